"""Contributions of features, against plain formulas, derivatives by differences, and classical PCA."""

import warnings

import numpy as np
import pytest
from exports import EXPORTABLE, MATRIX, OF_THE_CALLER, drawn_rows, probing_rows, streamed
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca import ApproximateKernelPCA, KernelPCA, NotFittedError, SparseKernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial, Sigmoid


def estimators(kernel, rows):
    """Fit every estimator."""
    return [
        KernelPCA(2, kernel=kernel).fit(rows),
        SparseKernelPCA(2, kernel=kernel, n_active=20).fit(rows),
        ApproximateKernelPCA(2, kernel=kernel, max_atoms=20).fit(rows),
        StreamingKernelPCA(2, kernel=kernel, max_atoms=20, block_size=32).fit(rows),
    ]


@pytest.mark.parametrize("n_components", [None, 0, 1, 2])
def test_every_estimator_shares_the_novelty_or_the_error_that_it_measures(n_components):
    rows = drawn_rows(0, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = estimators(Laplacian(0.5), rows)
    for model in models:
        contributions = model.contributions(rows, n_components)
        errors = model.novelty(rows) if n_components is None else model.reconstruction_error(rows, n_components)
        np.testing.assert_allclose(contributions.sum(axis=1), errors, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("q", [0, 1, 2])
def test_with_a_linear_kernel_they_are_the_classical_contributions_to_spe(q):
    rows, queries = drawn_rows(0, 60) * [3.0, 1.0, 0.5] + [1.0, -2.0, 5.0], 2.0 * drawn_rows(1, 20)
    centred = rows - rows.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:q].T
    beside = queries - rows.mean(axis=0)
    beside = beside - beside @ axes @ axes.T
    for model in (
        KernelPCA(3, kernel="linear").fit(rows),
        StreamingKernelPCA(3, kernel="linear", tolerance=0.0, max_atoms=None).fit(rows),
    ):
        np.testing.assert_allclose(model.contributions(queries, q), beside**2, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("kernel", "n_components"),
    [(Polynomial(3, gamma=0.3, coef0=0.5), None), (Sigmoid(0.05, coef0=0.5), 2), ((0.1 * Linear()).exp(), None)],
)
def test_with_inner_products_they_follow_the_derivative_of_the_error(kernel, n_components):
    model = streamed(kernel, max_atoms=6, atoms="rows")
    step = 1e-5
    for x in 2.0 * drawn_rows(1, 10):
        up, down = (model.reconstruction_error(x + sign * step * np.eye(3), n_components) for sign in (1.0, -1.0))
        derivative = (up - down) / (2.0 * step)
        (contributions,) = model.contributions([x], n_components)
        np.testing.assert_allclose(
            contributions / contributions.sum(), derivative**2 / (derivative**2).sum(), rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize(
    "kernel", [RBF(0.4), Matern(0.5, length_scale=1.0), RBF(0.4) + Laplacian(0.2), Cosine(), Linear()]
)
def test_a_feature_far_away_adds_nearly_everything(kernel):
    model = streamed(kernel, max_atoms=2)
    for size in (30.0, 1e4, 1e60):
        (contributions,) = model.contributions([[0.3, size, -0.5]])
        if not isinstance(kernel, Cosine | Linear):
            assert contributions[1] > 0.95 * contributions.sum()
        # The novelty goes on growing, and rounding is relative to its size.
        np.testing.assert_allclose(contributions.sum(), model.novelty([[0.3, size, -0.5]]), rtol=1e-12)
        assert np.isfinite(contributions).all()


def differences(model, x, matrix):
    """Return mean sizes of products of a matrix with the difference of a row from those its projection is made of."""
    kernel, atoms = model.kernel_, model.atoms_
    c = np.abs(np.linalg.solve(kernel.matrix(atoms), kernel.matrix(atoms, [x])[:, 0]))
    return c @ np.abs((x - atoms) @ matrix.T) / c.sum()


ONE, UNITS = np.eye(3), np.diag([1.0 / 0.7, 1.0 / 1.3, 1.0 / 3.1])


@pytest.mark.parametrize(
    ("of", "matrix"),
    [(RBF(0.4), ONE), (Matern(1.5, length_scale=1.7), ONE), (Laplacian(0.4), ONE), (RBF(0.4), UNITS),
     (RBF(0.4), MATRIX), (Matern(1.5), MATRIX), (Laplacian(0.4), MATRIX)],
)  # fmt: skip
def test_with_distances_they_follow_the_mean_distance_from_the_rows_that_the_projection_is_made_of(of, matrix):
    """In units of a matrix, terms of the squared length count."""
    kernel = of if matrix is ONE else of.in_units(matrix)
    model, rows = streamed(kernel, atoms="rows", max_atoms=8), 2.0 * drawn_rows(1, 20)
    for x, contributions in zip(rows, model.contributions(rows), strict=True):
        alone, changed = differences(model, x, ONE), differences(model, x, matrix.T @ matrix)
        expected = np.sqrt(alone * changed) if isinstance(of, Laplacian) else alone * changed
        np.testing.assert_allclose(contributions / contributions.sum(), expected / expected.sum(), rtol=1e-7)


@pytest.mark.parametrize("of", [Linear(), Cosine()], ids=repr)
def test_inner_products_in_units_of_a_matrix_compare_rows_with_their_projections(of):
    rows, queries = drawn_rows(0, 60, 5), drawn_rows(1, 20, 5)
    matrix = np.eye(5) + 0.3 * drawn_rows(2, 5, 5)
    model = ApproximateKernelPCA(1, kernel=of.in_units(matrix), max_atoms=2).fit(rows)
    atoms, seen = model.atoms_ @ matrix.T, queries @ matrix.T
    inside = np.linalg.lstsq(atoms.T, seen.T)[0].T @ model.atoms_
    apart = queries - inside
    shares = np.abs(apart * (apart @ matrix.T @ matrix))
    shares /= shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.contributions(queries), shares * model.novelty(queries)[:, None], rtol=1e-9)


@pytest.mark.parametrize(("of", "size"), [(RBF(0.4), 1e-60), (Cosine(), 1e60), (Laplacian(0.4), 1e-60)])
def test_entries_of_matrices_whose_squares_are_no_floats(of, size):
    matrix = MATRIX / [size, 1.0, 1.0]
    expected = streamed(of.in_units(MATRIX)).contributions(drawn_rows(1, 20))
    scaled = [size, 1.0, 1.0]
    given = streamed(of.in_units(matrix), drawn_rows(0) * scaled).contributions(drawn_rows(1, 20) * scaled)
    np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-9)


def test_in_whitened_units_the_feature_that_others_do_not_explain_adds_most():
    rows = np.random.default_rng(0).normal(size=(2000, 6))
    rows[:, 1] = rows[:, 0] + 0.1 * rows[:, 1]
    for kernel in (RBF(), Matern(1.5), Laplacian()):
        model = StreamingKernelPCA(kernel=kernel.in_units("whitened")).partial_fit(rows)
        strange = rows[:50].copy()
        strange[:, 4] += 8.0
        assert (model.contributions(strange).argmax(axis=1) == 4).mean() > 0.9
        # Small beside the spread of each of the two, but not beside their difference.
        broken = 0.3 * rows[:50]
        broken[:, 1] += 2.0
        assert (model.contributions(broken)[:, :2].sum(axis=1) > 0.8 * model.novelty(broken)).mean() > 0.9


@pytest.mark.parametrize("kernel", [RBF(0.4), RBF(0.4) + Laplacian(0.2), Matern(2.5, length_scale=1.0)])
def test_far_away_rows_are_compared_with_the_nearest_atoms_where_kernel_values_vanish(kernel):
    far = np.array([50000.0, 0.0, 0.0])
    model = streamed(kernel, np.concatenate([drawn_rows(0), drawn_rows(1) + far]), max_atoms=40, atoms="rows")
    x = far + np.array([0.0, 5000.0, 0.0])
    assert kernel.matrix(model.atoms_, [x]).max() < 1e-200
    (contributions,) = model.contributions([x])
    assert contributions.argmax() == 1


@settings(max_examples=30)
@given(
    st.sampled_from([*EXPORTABLE, *OF_THE_CALLER]),
    st.integers(0, 100),
    st.sampled_from([0.0, 1e-6, 1.0, 10.0]),
    st.sampled_from([None, 0, 2]),
)
def test_any_row_has_finite_contributions_that_add_up(kernel, seed, size, n_components):
    model = streamed(kernel, drawn_rows(0, 100))
    rows = np.concatenate([size * drawn_rows(seed, 5), probing_rows(model)])
    contributions = model.contributions(rows, n_components)
    errors = model.novelty(rows) if n_components is None else model.reconstruction_error(rows, n_components)
    assert contributions.shape == rows.shape
    assert (contributions >= 0.0).all()
    np.testing.assert_allclose(contributions.sum(axis=1), errors, rtol=1e-12)


def test_a_model_without_atoms_explains_by_the_row_itself():
    model = StreamingKernelPCA(1, kernel="linear").fit(np.zeros((3, 2)))
    np.testing.assert_allclose(model.contributions([[3.0, -4.0]]), [[9.0, 16.0]])


def test_bad_requests_are_refused():
    model = KernelPCA(2, kernel="linear")
    with pytest.raises(NotFittedError, match="contributions needs a fitted KernelPCA"):
        model.contributions([[1.0]])
    model.fit([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match=r"KernelPCA.contributions: n_components is 3 but the model has 2 axes; ask"):
        model.contributions([[1.0, 2.0]], 3)
    with pytest.raises(ValueError, match="X has 1 features, but KernelPCA is expecting 2"):
        model.contributions([[1.0]])
