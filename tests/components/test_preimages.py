import numpy as np
import pytest

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.components import preimages
from streamkpca.components.preimages import PreImages
from streamkpca.kernels import RBF, Custom, Laplacian, Linear, Matern, Polynomial, RationalQuadratic

ESTIMATORS = [StreamingKernelPCA, KernelPCA, SparseKernelPCA, ApproximateKernelPCA]
SMOOTH = [
    RBF(0.3),
    Matern(0.5, length_scale=2.0),
    Matern(1.5, length_scale=2.0),
    Matern(2.5, length_scale=2.0),
    RationalQuadratic(0.7, length_scale=1.5),
    RationalQuadratic(2.0, length_scale=1.5),
    2.0 * RBF(0.3) + Matern(1.5, length_scale=1.0).on([0, 2]),
    (RBF(0.1).on([1]) * RBF(0.2).on([0, 2])) ** 2,
    (0.5 * RBF(0.3)).exp(),
]


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def circle(n, noise=0.0):
    rng = np.random.default_rng(n)
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([np.cos(angle), np.sin(angle)]) + noise * rng.normal(size=(n, 2))


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_the_image_of_a_row_leads_back_to_it(kernel):
    atoms, targets = rows_of(0, 40), rows_of(1, 6)
    # Points in the span of the atoms that are next to images of rows.
    gram = kernel.matrix(atoms) + 1e-9 * np.eye(40)
    combinations = np.linalg.solve(gram, kernel.matrix(atoms, targets)).T
    found, reached = preimages._iterate(kernel, atoms, combinations, atoms[:6].copy())
    start = np.einsum("ij,ij->i", combinations, kernel.matrix(atoms[:6], atoms))
    assert np.all(reached >= start - 1e-12)
    np.testing.assert_allclose(reached, np.einsum("ij,ij->i", combinations, kernel.matrix(found, atoms)), rtol=1e-7)
    # At a fixed point no small move wins.
    moves = [] if kernel == SMOOTH[1] else range(20)  # Matern of smoothness 1/2 has cusps, up which steps crawl
    for seed in moves:
        moved = found + 1e-3 * rows_of(seed, 6)
        after = np.einsum("ij,ij->i", combinations, kernel.matrix(moved, atoms))
        assert np.all(after <= reached + 1e-5 * np.abs(reached))


def test_the_rule_of_the_paper():
    """For RBF: x = sum c_i k(x, z_i) z_i / sum c_i k(x, z_i)."""
    atoms, kernel = rows_of(0, 30), RBF(0.2)
    combinations = np.random.default_rng(1).uniform(0.1, 1.0, (5, 30))
    found, _ = preimages._iterate(kernel, atoms, combinations, atoms[:5].copy())
    weights = combinations * kernel.matrix(found, atoms)
    np.testing.assert_allclose(found, weights @ atoms / weights.sum(axis=1)[:, None], atol=1e-4)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_linear_kernels_find_the_rows_of_pca(estimator):
    X = rows_of(0, 300) @ np.diag([3.0, 2.0, 0.1]) @ rows_of(1, 3) + 5.0
    model = estimator(2, kernel=Linear()).fit(X)
    mean = X.mean(axis=0)
    _, _, axes = np.linalg.svd(X - mean, full_matrices=False)
    expected = mean + (X - mean) @ axes[:2].T @ axes[:2]
    # On average, as left-out rows are predicted alike with several penalties: rounding may decide between them.
    errors = model.inverse_transform(model.transform(X)) - expected
    assert np.sqrt(np.mean(errors**2)) < 0.01 * X.std()


@pytest.mark.parametrize(
    ("estimator", "kernel"),
    [
        (StreamingKernelPCA, Matern(1.5)),
        (KernelPCA, Laplacian("spread")),
        (SparseKernelPCA, Polynomial(3)),
        (ApproximateKernelPCA, RBF() + Linear()),
    ],
)
def test_rows_are_found_again(estimator, kernel):
    X = circle(600, noise=0.02)
    model = estimator(6, kernel=kernel).fit(X)
    fresh = circle(100)
    found = model.inverse_transform(model.transform(fresh))
    assert found.shape == (100, 2)
    assert np.abs(found - fresh).max() < 0.25
    assert model.score(fresh) > 0.98


def test_a_guess_that_went_astray_is_not_taken():
    rows = rows_of(0, 50)
    kernel = RBF(0.5)
    finder = PreImages(kernel, rows, rows, rows[:, :1])
    finder.__dict__["_ridge"] = type("Astray", (), {"predict": lambda self, Y: np.full((len(Y), 3), 1e6)})()
    combinations = np.eye(50)[:4]
    found = finder.find(rows[:4, :1], combinations)
    assert np.abs(found - rows[:4]).max() < 1.0


@pytest.mark.parametrize("kernel", [RBF(0.5), Linear(), Polynomial(2, gamma=1.0)], ids=repr)
def test_few_and_equal_rows(kernel):
    few = [np.ones((1, 2)), np.ones((5, 2)), np.zeros((4, 2)), rows_of(0, 2, 2)]
    for estimator, rows in zip(ESTIMATORS, few, strict=True):
        model = estimator(2, kernel=kernel).fit(rows)
        np.testing.assert_allclose(model.inverse_transform(model.transform(rows)), rows, atol=0.3)


def test_functions_of_the_caller_are_guessed():
    kernel = Custom(lambda X, Y: np.minimum(np.abs(X)[:, None], np.abs(Y)[None]).sum(axis=2))
    X = np.abs(rows_of(0, 300))
    model = StreamingKernelPCA(3, kernel=kernel).fit(X)
    assert model.score(X) > 0.8


def test_bad_projections_are_refused():
    model = StreamingKernelPCA(2).partial_fit(circle(100))
    with pytest.raises(ValueError, match=r"inverse_transform: expected projections onto 2 axes but got 3"):
        model.inverse_transform(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="inverse_transform: X contains NaN"):
        model.inverse_transform([[np.nan, 0.0]])
    with pytest.raises(AttributeError, match="inverse_transform needs a fitted"):
        StreamingKernelPCA().inverse_transform([[0.0]])


def test_score_is_one_less_the_share_of_the_variance_that_is_missed():
    X = circle(200, noise=0.1)
    model = StreamingKernelPCA(3).fit(X)
    found = model.inverse_transform(model.transform(X))
    weights = np.random.default_rng(0).uniform(size=200)
    mean = np.average(X, axis=0, weights=weights)
    expected = 1.0 - (weights @ ((X - found) ** 2)).sum() / (weights @ ((X - mean) ** 2)).sum()
    assert model.score(X, sample_weight=weights) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="score: expected rows that differ but all are equal"):
        model.score(np.ones((3, 2)))


@pytest.mark.parametrize(("model", "offset"), [(KernelPCA, 1e3), (SparseKernelPCA, 0.0), (StreamingKernelPCA, 1e6)])
def test_rows_far_from_the_origin_are_found_again_as_well_as_least_squares_finds_them(model, offset):
    """The first axis of rows that are not centred points at all of them: projections are large, and differ little."""
    rows = np.random.default_rng(0).normal(size=(150, 3)) + np.array([offset, 0.0, -offset])
    fitted = model(2, kernel=Linear(), center=False).fit(rows)
    known = np.column_stack([fitted.transform(rows) - fitted.transform(rows).mean(axis=0), np.ones(150)])
    residual = rows - known @ np.linalg.lstsq(known, rows, rcond=1e-9)[0]
    best = 1.0 - (residual**2).sum() / ((rows - rows.mean(axis=0)) ** 2).sum()
    assert fitted.score(rows) > best - 0.02
    assert best > 0.3
