"""Widths of kernels: "spread" against scipy, "contrast" against a slow oracle."""

import naive
import numpy as np
import pytest
from scipy.spatial.distance import pdist

from streamkpca.kernels import RBF, Laplacian, Linear, Matern, Polynomial, RationalQuadratic, Sigmoid
from streamkpca.kernels.widths import contrast, least_change, permute_features, typical_distance

# Typical distances


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 2.0, 5.0]


def test_spread_is_half_the_mean_squared_distance(X):
    # The mean is over all pairs, including each row with itself.
    half = pdist(X, "sqeuclidean").sum() / len(X) ** 2
    assert RBF().settled(X) == RBF("spread").settled(X)
    assert RBF().settled(X).gamma == pytest.approx(1.0 / half, rel=1e-14)
    assert Laplacian().settled(X).gamma == pytest.approx(1.0 / X.std(axis=0).sum(), rel=1e-14)
    for make in (Polynomial, Sigmoid):
        assert make().settled(X).gamma == RBF().settled(X).gamma
    for make in (Matern, RationalQuadratic):
        assert make().settled(X).length_scale == pytest.approx(np.sqrt(half), rel=1e-14)


def test_spread_does_not_depend_on_the_features_origins(X):
    exact = np.round(X * 8) / 8
    beside = np.column_stack([exact + np.array([0.0, 1e6, -3e5]), np.full(len(X), 0.1)])
    for squared in (True, False):
        near, far = (typical_distance(rows, squared=squared) for rows in (exact, beside))
        assert far == pytest.approx(near, rel=1e-9)


@pytest.mark.parametrize(
    "kernel",
    [RBF(), RBF("spread"), Laplacian(), Laplacian("spread"), Matern(), Polynomial()],
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


@pytest.mark.parametrize("squared", [True, False])
def test_equal_rows_count_as_distance_one(squared):
    # 0.1 ten times has a computed mean that is not 0.1.
    for rows in (np.full((10, 3), 0.1), np.full((1, 1), 7.0), np.full((3, 2), 1e200)):
        assert typical_distance(rows, squared=squared) == 1.0


@pytest.mark.parametrize("size", [1e-200, 1e-160, 1e100])
def test_extreme_rows_give_usable_widths(X, size):
    rows = X / np.abs(X).max() * size
    for squared in (True, False):
        distance = typical_distance(rows, squared=squared)
        assert 0.0 < distance < np.inf
        assert 0.0 < 1.0 / distance < np.inf


def test_rows_whose_distances_overflow_are_refused_with_a_remedy(X):
    for kernel in (RBF("spread"), Matern(length_scale="spread")):
        with pytest.raises(ValueError, match=r'these rows overflow, so that "spread".*give the kernel'):
            kernel.settled(X / np.abs(X).max() * 1e200)


# Held-out rows, told from copies of them with one permuted feature

KERNELS = [RBF(), Laplacian(), Matern(2.5), RationalQuadratic(2.0)]


def correlated(seed=0, n=500, causes=8, d=20, noise=0.05):
    """Sensors that all hear the same causes: a permuted feature in a row is a small deviation from a plane."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, causes)) @ random.normal(size=(causes, d)) + noise * random.normal(size=(n, d))


def width_of(kernel):
    return getattr(kernel, kernel._width)


def times_wider(kernel, X, weights=None):
    """Return how many times wider the rule makes a kernel than "spread" does."""
    usual = kernel.with_parameter(kernel._width, "spread").settled(X, weights)
    if kernel._width == "length_scale":
        return width_of(kernel.settled(X, weights)) / width_of(usual)
    ratio = width_of(usual) / width_of(kernel.settled(X, weights))
    return np.sqrt(ratio) if kernel._squared else ratio


def compare_widths(kernel, X, weights=None):
    """Return the widths that "contrast" compares, and their areas under the ROC curve."""
    distance = typical_distance(X, squared=kernel._squared, weights=weights)
    areas, _ = kernel._compare_widths(distance, X, weights)
    return kernel._wider(distance, np.arange(7.0)), areas


@pytest.mark.parametrize(
    ("n", "d", "is_weighted"),
    [(20, 3, False), (33, 5, True), (130, 8, False), (1100, 3, True)],
)
def test_areas_are_those_of_the_slow_oracle(n, d, is_weighted):
    X = correlated(n=n, causes=3, d=d)
    weights = np.random.default_rng(1).integers(0, 4, n).astype(float) if is_weighted else np.ones(n)
    counting = weights > 0.0
    widths, areas = compare_widths(RBF(), X[counting], weights[counting])
    expected = naive.widths_of(X[counting], weights[counting])
    np.testing.assert_allclose(widths, expected, rtol=1e-12)
    oracle = [naive.contrast(naive.rbf(gamma), X[counting], weights[counting]) for gamma in expected]
    # Rows that are explained equally well, but for rounding, may change places.
    np.testing.assert_allclose(areas, oracle, rtol=0, atol=1e-3)
    assert RBF().settled(X, weights).gamma == pytest.approx(naive.settled_gamma(X, weights), rel=1e-2)


def test_far_away_nothing_underflows():
    X = correlated(n=200, causes=2, d=3)
    narrow = RBF(50.0)
    assert narrow.matrix(X[:100], X[100:]).min() == 0.0
    assert 0.5 <= contrast(narrow.program, permute_features(X, None)) <= 1.0


def test_the_first_width_that_is_nearly_the_best_is_taken():
    # Nine tenths of 0.45 lie half-way between the contrasts of two widths, of which the second is enough.
    assert least_change(np.array([0.7, 0.8, 1.01, 0.95, 0.9]) - 0.001, 10**9) == pytest.approx(1.75, abs=0.01)
    assert least_change(np.array([0.94, 0.8, 0.95]), 10**6) == 0.0
    assert least_change(np.array([0.5, 0.5, 0.5]), 100) == 0.0
    # Areas below one half are chance, and no reason to leave the usual width.
    assert least_change(np.array([0.487, 0.49, 0.506]), 512) == 0.0
    # With few rows, chance makes such differences.
    assert least_change(np.array([0.7, 0.75, 0.8]), 10**9) == pytest.approx(1.4, abs=0.01)
    assert least_change(np.array([0.7, 0.75, 0.8]), 6) == 0.0


# What the rule finds


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_correlated_columns_want_wide_kernels_and_clusters_the_usual_width(kernel):
    X = correlated()
    assert times_wider(kernel, X) > 2.0
    _, areas = compare_widths(kernel, X)
    assert areas.max() > areas[0] + 0.03
    random = np.random.default_rng(0)
    X = random.normal(size=(12, 6))[random.integers(12, size=600)] + 0.02 * random.normal(size=(600, 6))
    assert times_wider(kernel, X) == pytest.approx(1.0)


@pytest.mark.parametrize(("kernel", "factor"), list(zip(KERNELS, [1e-3, 3.7, 1e6, 1.0], strict=True)), ids=repr)
def test_neither_unit_nor_origin_of_the_rows_matters(kernel, factor):
    X = np.round(1024 * correlated()) / 1024
    assert times_wider(kernel, factor * (X + 1000.0)) == pytest.approx(times_wider(kernel, X), rel=1e-9)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((100, 3)),
        np.zeros((1, 4)),
        correlated(n=1),
        correlated(n=31),
        np.tile([[1.0, -2.0]], (5, 1)),
        np.repeat([[1.0], [2.0]], 500, axis=0),
    ],
    ids=["constant", "one row of zeros", "one row", "few rows", "a few equal rows", "two values"],
)
def test_without_contrast_the_width_is_that_of_spread(X):
    kernel = KERNELS[len(X) % len(KERNELS)]
    assert kernel.settled(X) == kernel.with_parameter(kernel._width, "spread").settled(X)
    for found in compare_widths(kernel, X):
        assert found.shape == (7,)
        assert np.isfinite(found).all()


# Kernels that are near


def test_near_is_a_quarter():
    assert RBF(1.0).is_near(RBF(1.25))
    assert RBF(1.25).is_near(RBF(1.0))
    assert not RBF(1.0).is_near(RBF(1.2501))
    assert not RBF(1.0).is_near(Laplacian(1.0))
    assert not Matern(1.5, length_scale=1.0).is_near(Matern(0.5, length_scale=1.0))
    assert RBF().is_near(RBF())
    assert not RBF("spread").is_near(RBF("contrast"))
    assert not RBF(1.0).is_near(RBF("spread"))


def test_all_parts_and_units_must_be_near():
    kernel = 2.0 * RBF(1.0).in_units([1.0, 2.0]).on([0, 1]) + Linear()
    assert kernel.is_near(2.0 * RBF(1.1).in_units([1.1, 1.9]).on([0, 1]) + Linear())
    assert not kernel.is_near(2.0 * RBF(1.1).in_units([1.1, 1.5]).on([0, 1]) + Linear())
    assert not kernel.is_near(2.0 * RBF(2.0).in_units([1.0, 2.0]).on([0, 1]) + Linear())
    assert not kernel.is_near(2.0 * RBF(1.0).in_units([1.0, 2.0]).on([0, 1]))
