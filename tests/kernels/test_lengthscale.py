"""The rules behind "spread", "scale" and "median", against scikit-learn and scipy."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.svm import SVC

from streamkpca.kernels import RBF, Laplacian, Matern, Polynomial, RationalQuadratic, Sigmoid
from streamkpca.kernels.widths import typical_distance


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 2.0, 5.0]


def test_scale_is_that_of_scikit_learn(X):
    gamma = SVC(gamma="scale").fit(X, np.arange(30) % 2)._gamma
    assert RBF("scale").settled(X).gamma == gamma
    assert Polynomial().settled(X).gamma == gamma
    assert Sigmoid().settled(X).gamma == gamma
    assert Laplacian("scale").settled(X).gamma == pytest.approx(1.0 / (3 * X.std()), rel=1e-15)
    for make in (Matern, RationalQuadratic):
        assert make(length_scale="scale").settled(X).length_scale == pytest.approx(np.sqrt(3 * X.var()), rel=1e-15)


def test_spread_is_half_the_mean_squared_distance(X):
    # The mean is over all pairs, including each row with itself.
    half = pdist(X, "sqeuclidean").sum() / len(X) ** 2
    assert RBF().settled(X) == RBF("spread").settled(X)
    assert RBF().settled(X).gamma == pytest.approx(1.0 / half, rel=1e-14)
    assert Laplacian().settled(X).gamma == pytest.approx(1.0 / X.std(axis=0).sum(), rel=1e-14)
    for make in (Matern, RationalQuadratic):
        assert make().settled(X).length_scale == pytest.approx(np.sqrt(half), rel=1e-14)


def test_spread_does_not_depend_on_the_features_origins(X):
    exact = np.round(X * 8) / 8
    beside = np.column_stack([exact + np.array([0.0, 1e6, -3e5]), np.full(len(X), 0.1)])
    for squared in (True, False):
        near, far = (typical_distance(rows, "spread", squared=squared) for rows in (exact, beside))
        assert far == pytest.approx(near, rel=1e-9)
        assert typical_distance(beside, "scale", squared=squared) > 100 * far


def test_median_is_that_of_the_pairs(X):
    median = np.median(pdist(X, "sqeuclidean"))
    assert RBF("median").settled(X).gamma == pytest.approx(1.0 / median, rel=1e-14)
    assert Laplacian("median").settled(X).gamma == pytest.approx(1.0 / np.median(pdist(X, "cityblock")), rel=1e-14)
    for make in (Matern, RationalQuadratic):
        assert make(length_scale="median").settled(X).length_scale == pytest.approx(np.sqrt(median), rel=1e-14)


@pytest.mark.parametrize(
    "kernel",
    [RBF(), RBF("scale"), RBF("median"), Laplacian(), Laplacian("scale"), Laplacian("median"), Matern(), Polynomial()],
)
def test_a_weight_is_as_many_rows(X, kernel):
    counts = np.random.default_rng(3).integers(0, 5, len(X))
    weighted, repeated = kernel.settled(X, sample_weight=counts), kernel.settled(np.repeat(X, counts, axis=0))
    for name, value in vars(repeated).items():
        if isinstance(value, float):
            assert getattr(weighted, name) == pytest.approx(value, rel=1e-12)
    assert kernel.settled(X, sample_weight=3.0) == kernel.settled(X)
    ones = np.concatenate([X, X[:7]]), np.concatenate([np.ones(len(X)), np.zeros(7)])
    assert kernel.settled(ones[0], sample_weight=ones[1]) == kernel.settled(X)


def test_weights_of_a_scale_are_checked(X):
    with pytest.raises(ValueError, match=r"RBF\.settled: sample_weight"):
        RBF().settled(X, sample_weight=-np.ones(len(X)))
    with pytest.raises(ValueError, match=r"RBF\.settled: sample_weight is zero for every row"):
        RBF().settled(X, sample_weight=0.0)


def test_median_of_many_rows_takes_some_evenly_spaced():
    X = np.arange(2000.0)[:, None]
    assert typical_distance(np.array([[0.0], [0.0], [0.0], [3.0]]), "median", squared=True) == 9.0
    chosen = X[np.linspace(0, 1999, 512).astype(int)]
    expected = np.median(pdist(chosen, "cityblock"))
    assert typical_distance(X, "median", squared=False) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("rule", ["spread", "scale", "median"])
@pytest.mark.parametrize("squared", [True, False])
def test_equal_rows_count_as_distance_one(rule, squared):
    # 0.1 ten times has a computed mean that is not 0.1.
    for rows in (np.full((10, 3), 0.1), np.full((1, 1), 7.0), np.full((3, 2), 1e200)):
        assert typical_distance(rows, rule, squared=squared) == 1.0


@pytest.mark.parametrize(("rule", "size"), [("spread", 1e-200), ("scale", 1e-160), ("median", 1e100)])
def test_extreme_rows_give_usable_widths(X, rule, size):
    rows = X / np.abs(X).max() * size
    for squared in (True, False):
        distance = typical_distance(rows, rule, squared=squared)
        assert 0.0 < distance < np.inf
        assert 0.0 < 1.0 / distance < np.inf


@pytest.mark.parametrize(("rule", "size"), [("spread", 1e200), ("scale", 1e308), ("median", 1e200)])
def test_rows_whose_distances_overflow_are_refused_with_a_remedy(X, rule, size):
    for kernel in (RBF(rule), Matern(length_scale=rule)):
        with pytest.raises(ValueError, match=rf'these rows overflow, so that "{rule}".*give the kernel'):
            kernel.settled(X / np.abs(X).max() * size)
