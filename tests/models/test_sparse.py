import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tipping import mean_log_likelihood

from streamkpca import KernelPCA, SparseKernelPCA, SparsityError, SparsityWarning, StreamingKernelPCA
from streamkpca.components import refit, weights
from streamkpca.components.weights import fit_weights
from streamkpca.kernels import RBF, Cosine, Laplacian, Linear, Polynomial

SEEDS = st.integers(0, 10**6)
KERNEL = RBF(0.3)


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def assert_same_columns(ours, theirs, eigenvalues, *, tolerance):
    """Compare projections up to sign where eigenvalues are apart."""
    gaps = -np.diff(np.concatenate([[np.inf], eigenvalues, [0.0]]))
    apart = np.minimum(gaps[:-1], gaps[1:]) > 1e-3 * eigenvalues[0]
    np.testing.assert_allclose(np.abs(ours)[:, apart], np.abs(theirs)[:, apart], atol=tolerance)


@given(
    SEEDS,
    st.integers(4, 25),
    st.sampled_from([KERNEL, Laplacian(0.3), Linear(), Cosine(), Polynomial(2, gamma=0.5)]),
    st.booleans(),
)
def test_without_a_noise_variance_it_is_kernel_pca(seed, n, kernel, center):
    rows, new = rows_of(seed, n), rows_of(seed + 1, 5)
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, n)
    model = SparseKernelPCA(3, kernel=kernel, noise_variance=None, center=center).fit(rows, sample_weight=weights)
    oracle = KernelPCA(3, kernel=kernel, center=center).fit(rows, sample_weight=weights)
    scale = kernel.diagonal(rows).max()
    np.testing.assert_allclose(model.eigenvalues_, oracle.eigenvalues_, atol=1e-8 * scale)
    np.testing.assert_allclose(model.explained_variance_ratio_, oracle.explained_variance_ratio_, atol=1e-8)
    assert_same_columns(
        model.transform(new), oracle.transform(new), oracle.eigenvalues_, tolerance=1e-6 * np.sqrt(scale)
    )
    errors = model.reconstruction_error(new), oracle.reconstruction_error(new)
    np.testing.assert_allclose(*errors, atol=1e-6 * kernel.diagonal(new).max())
    assert model.total_weight_ == oracle.total_weight_


@given(SEEDS, st.integers(6, 20), st.sampled_from([0.02, 0.1]))
def test_with_every_row_an_atom_the_stream_finds_the_same(seed, n, noise_variance):
    rows = rows_of(seed, n)
    # Where some row is close to the span of the others, weights may move along it and say the same.
    if np.linalg.cond(KERNEL.matrix(rows)) > 1e8:
        return
    options = {"kernel": KERNEL, "noise_variance": noise_variance}
    batch = SparseKernelPCA(2, **options).fit(rows)
    stream = StreamingKernelPCA(2, max_atoms=None, tolerance=0.0, **options).fit(rows)
    np.testing.assert_array_equal(np.sort(stream.atom_rows_), np.arange(n))
    weights = np.empty(n)
    weights[stream.atom_rows_] = stream.weights_
    np.testing.assert_allclose(weights, batch.weights_, atol=1e-6)
    np.testing.assert_allclose(stream.eigenvalues_, batch.eigenvalues_, atol=1e-6)
    new = rows_of(seed + 1, 3)
    gap = stream.eigenvalues_[0] - stream.eigenvalues_[1]
    if gap > 1e-3:
        np.testing.assert_allclose(np.abs(stream.transform(new)), np.abs(batch.transform(new)), atol=1e-4)


@given(SEEDS, st.integers(6, 20), st.sampled_from([0.02, 0.1]), st.booleans())
def test_weights_are_at_a_maximum_of_the_dense_likelihood(seed, n, noise, center):
    rows = rows_of(seed, n)
    K = KERNEL.matrix(rows)
    centre = np.eye(n) - 1.0 / n if center else np.eye(n)
    Kc = centre @ K @ centre
    # In coordinates of all rows: phi = Kc^1/2, S = phi^T phi / n.
    values, vectors = np.linalg.eigh(Kc)
    keep = values > 1e-10 * values[-1]
    phi = vectors[:, keep] * np.sqrt(values[keep])
    S = phi.T @ phi / n
    try:
        model = SparseKernelPCA(2, kernel=KERNEL, noise_variance=noise, center=center).fit(rows)
    except SparsityError:
        # No row lies along more variance than the noise.
        assert np.all(np.einsum("ij,jk,ik->i", phi, S, phi) <= noise * np.sum(phi**2, axis=1) * (1 + 1e-3))
        return
    C = noise * np.eye(keep.sum()) + phi.T @ (model.weights_[:, None] * phi)
    inverse = np.linalg.inv(C)
    q = np.einsum("ij,jk,ik->i", phi, inverse @ S @ inverse, phi)
    s = np.einsum("ij,jk,ik->i", phi, inverse, phi)
    assert np.all(q - s <= 1e-3 * s)
    assert np.all(np.abs(q - s)[model.active_] <= 1e-3 * s[model.active_])


@pytest.mark.parametrize("options", [{}, {"noise_variance": None}, {"axes": "likelihood"}, {"n_active": 3}], ids=repr)
def test_whole_number_weights_are_repeated_rows(options):
    rows, times = rows_of(0, 15), np.arange(15) % 4
    weighted = SparseKernelPCA(2, kernel=KERNEL, **options).fit(rows, sample_weight=times)
    repeated = SparseKernelPCA(2, kernel=KERNEL, **options).fit(rows.repeat(times, axis=0))
    total = times.sum()
    # Bessel's correction counts how many observations there are; the likelihood's own variances have none.
    ratio = 1.0 if options.get("axes") == "likelihood" else (total - 1) / (total - times @ times / total)
    np.testing.assert_allclose(weighted.eigenvalues_, ratio * repeated.eigenvalues_, rtol=1e-4)
    np.testing.assert_allclose(
        weighted.reconstruction_error(rows, 2), repeated.reconstruction_error(rows, 2), atol=1e-4
    )
    assert weighted.total_weight_ == repeated.total_weight_ == total


@pytest.mark.parametrize(("axes", "noise_variance"), [("ritz", None), ("ritz", 0.1), ("likelihood", "auto")])
def test_dependent_rows_span_no_more_than_their_rank(axes, noise_variance):
    rows = rows_of(0, 50, 2) * [3.0, 1.0]
    model = SparseKernelPCA(2, kernel=Linear(), noise_variance=noise_variance, axes=axes).fit(rows)
    assert model.n_active_ == model.active_.sum() >= 2
    np.testing.assert_allclose(model.reconstruction_error(rows), 0.0, atol=1e-9)
    np.testing.assert_allclose(
        np.linalg.norm(rows - rows.mean(axis=0), axis=1), np.linalg.norm(model.transform(rows), axis=1), atol=1e-6
    )
    if axes == "ritz":
        np.testing.assert_allclose(model.eigenvalues_, np.linalg.eigvalsh(np.cov(rows.T))[::-1], rtol=1e-8)


OPTIMISERS = ["coordinate", "fixed_point", "em"]
MODES = [{}, {"noise_variance": 0.02}, {"n_active": 4}]


def fitted_log_likelihood(model, rows):
    """Mean log-likelihood of the centred rows under the model's weights, in coordinates of all rows."""
    centre = np.eye(len(rows)) - 1.0 / len(rows)
    values, vectors = np.linalg.eigh(centre @ KERNEL.matrix(rows) @ centre)
    keep = values > 1e-10 * values[-1]
    phi = vectors[:, keep] * np.sqrt(values[keep])
    return mean_log_likelihood(model.weights_, phi, phi.T @ phi / len(rows), model.noise_variance_)


@pytest.mark.parametrize(("seed", "noise_variance"), [(0, 0.02), (1, 0.1)])
def test_the_three_optimisers_agree(seed, noise_variance):
    rows = rows_of(seed, 20, 2)
    models = [
        SparseKernelPCA(2, kernel=KERNEL, optimiser=optimiser, noise_variance=noise_variance).fit(rows)
        for optimiser in OPTIMISERS
    ]
    ours, fixed_point, em = (fitted_log_likelihood(model, rows) for model in models)
    # The paper's rules stop before weights that belong at zero are there; coordinate may end at another maximum.
    assert -1e-4 <= ours - fixed_point < 1e-3
    assert -1e-4 <= ours - em < 1e-2


@pytest.mark.parametrize("optimiser", ["coordinate", "fixed_point"])
def test_every_search_uses_the_optimiser(optimiser, monkeypatch):
    used = []

    def recording(*arguments, **options):
        used.append(options["optimiser"])
        return fit_weights(*arguments, **options)

    for module in (weights, refit):
        monkeypatch.setattr(module, "fit_weights", recording)
    rows = rows_of(0, 12, 2)
    for options in MODES:
        model = SparseKernelPCA(2, kernel=KERNEL, optimiser=optimiser, **options).fit(rows)
        assert model.n_active_ == options.get("n_active", model.n_active_)
    model.sparsity_path([0.1, 0.05])
    assert len(used) >= 6
    assert set(used) == {optimiser}


@pytest.mark.parametrize("optimiser", ["fixed_point", "em"])
def test_an_optimiser_that_runs_out_of_rounds_warns(optimiser, monkeypatch):
    monkeypatch.setitem(weights.MOST_ROUNDS, optimiser, 3)
    rows = rows_of(0, 20)
    text = f"optimiser='{optimiser}' did not converge within 3 rounds in {{}} fits.*use optimiser='coordinate'"
    with pytest.warns(SparsityWarning, match=text.format("1 of 1")):
        model = SparseKernelPCA(2, kernel=KERNEL, optimiser=optimiser).fit(rows)
    assert model.active_.any()
    with pytest.warns(SparsityWarning, match=text.format("2 of 2")):
        path = model.sparsity_path([0.1, 0.05])
    assert not path.converged.any()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"optimiser": "newton"}, ValueError, r"SparseKernelPCA\.fit: optimiser must be one of 'coordinate', 'fixed_"),
        ({"optimiser": None}, TypeError, r"SparseKernelPCA\.fit: optimiser must be one of"),
        ({"noise_variance": 1e-30}, SparsityError, "noise_variance=1e-30 is below .*, the rounding error"),
        ({"noise_variance": 50.0}, SparsityError, "noise_variance=50 leaves no atom active.*choose a smaller value"),
        ({"n_active": 21}, SparsityError, "n_active=21 is more than the 20 candidates there are"),
        ({"n_active": 3, "noise_variance": 0.1}, ValueError, r"SparseKernelPCA\.fit: .*both decide"),
        (
            {"noise_variance": "best"},
            ValueError,
            r"SparseKernelPCA\.fit: noise_variance must be a positive number, 'auto' or None",
        ),
        ({"kernel": KERNEL.on(7)}, ValueError, "uses column 7 but got rows with 3 features"),
    ],
)
def test_bad_parameters_are_refused_and_leave_the_model_unchanged(options, error, message):
    rows = rows_of(0, 20)
    model = SparseKernelPCA(3, kernel=KERNEL).fit(rows)
    before = model.transform(rows), model.sparsity_path([0.1]).weights
    with pytest.raises(error, match=message):
        model.set_params(**options).fit(rows)
    np.testing.assert_array_equal(model.transform(rows), before[0])
    assert model.active_.sum() > 0
