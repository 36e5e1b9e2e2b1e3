"""What is known of columns of rows with gaps: sums over pairs, and the normal distribution with these moments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import generators, rows, weights_for

from streamkpca.rows.gaps import WIDEST_TOGETHER, ColumnSums, gaps_in


def with_gaps(rng, X, share=0.3):
    """Return rows with gaps, each with a number left."""
    missing = rng.random(X.shape) < share
    missing[np.arange(len(X)), rng.integers(0, X.shape[1], len(X))] = False
    return np.where(missing, np.nan, X)


def pair_moments(X, a, j, k):
    """Weight, means and covariance of two columns over the rows that have both."""
    both = ~np.isnan(X[:, j]) & ~np.isnan(X[:, k])
    weight = a[both].sum()
    if weight == 0.0:
        return 0.0, 0.0
    x, y = X[both, j], X[both, k]
    mean_x, mean_y = a[both] @ x / weight, a[both] @ y / weight
    return weight, a[both] @ ((x - mean_x) * (y - mean_y)) / weight


@given(st.data(), rows(min_rows=2, offsets=False), generators())
def test_moments_are_those_of_the_rows_that_have_both(data, X, rng):
    X, a = with_gaps(rng, X), data.draw(weights_for(len(X)))
    a = np.ones(len(X)) if a is None else a
    sums, size = ColumnSums.of(X, a), max(np.nanmax(X**2), 1.0)
    known = sums.distribution()
    for j in range(X.shape[1]):
        weight, variance = pair_moments(X, a, j, j)
        if weight > 0.0:
            present = ~np.isnan(X[:, j])
            assert known.mean[j] == pytest.approx(a[present] @ X[present, j] / weight, abs=1e-9 * size)
            assert known.scale[j] ** 2 == pytest.approx(variance, abs=1e-9 * size)
        for k in range(j):
            weight, covariance = pair_moments(X, a, j, k)
            assert sums.sums[0, j, k] == pytest.approx(weight)
            if weight > 0.0:
                means = sums.sums[1, j, k] / weight, sums.sums[1, k, j] / weight
                assert sums.sums[2, j, k] / weight - means[0] * means[1] == pytest.approx(covariance, abs=1e-9 * size)


@given(st.data(), rows(min_rows=3), generators())
def test_sums_add_up_however_rows_are_cut_and_merged(data, X, rng):
    X = with_gaps(rng, X)
    a, cut = rng.uniform(0.1, 2.0, len(X)), data.draw(st.integers(1, len(X) - 1))
    whole = ColumnSums.of(X, a).distribution()
    pieces = ColumnSums.of(X[:cut], a[:cut]).plus(X[cut:], a[cut:])
    merged = ColumnSums.of(X[:cut], a[:cut]).merge(ColumnSums.of(X[cut:], a[cut:]))
    size = max(np.nanmax(np.abs(X)), 1.0)
    for other in (pieces, merged):
        assert other.total_weight == pytest.approx(a.sum())
        assert other.total_squared_weight == pytest.approx(a @ a)
        np.testing.assert_allclose(other.distribution().mean, whole.mean, rtol=0, atol=1e-9 * size)
        np.testing.assert_allclose(other.distribution().scale, whole.scale, rtol=0, atol=1e-6 * size)


def test_forgetting_is_weighting():
    rng = np.random.default_rng(0)
    X = with_gaps(rng, rng.normal(size=(40, 3)))
    forgotten = ColumnSums.of(X[:20], np.ones(20)).decay(0.25).plus(X[20:], np.ones(20))
    weighted = ColumnSums.of(X, np.repeat([0.25, 1.0], 20))
    assert forgotten.total_weight == pytest.approx(weighted.total_weight)
    assert forgotten.total_squared_weight == pytest.approx(weighted.total_squared_weight)
    one, other = forgotten.distribution(), weighted.distribution()
    for part in ("mean", "scale", "precision"):
        np.testing.assert_allclose(getattr(one, part), getattr(other, part), rtol=1e-9, atol=1e-9)


def test_correlated_columns_say_what_is_missing():
    rng = np.random.default_rng(1)
    x = rng.normal(size=2000)
    X = np.column_stack([x, 2.0 * x + 1e6, rng.normal(size=2000)])
    known = ColumnSums.of(with_gaps(rng, X), np.ones(2000)).distribution()
    rows = np.array([[0.5, np.nan, 0.0], [np.nan, 1e6 + 3.0, 0.0], [0.5, 1e6 + 1.0, np.nan]])
    np.testing.assert_allclose(
        known.complete(rows) - [0.0, 1e6, 0.0], [[0.5, 1, 0], [1.5, 3, 0], [0.5, 1, 0]], atol=0.1
    )


def test_pairs_that_contradict_each_other_still_have_a_distribution():
    # Each pair of columns comes from rows of its own, and no three columns can be correlated so.
    gap, x = np.nan, np.linspace(-1.0, 1.0, 50)
    absent = np.full(50, gap)
    X = np.concatenate(
        [np.column_stack([x, x, absent]), np.column_stack([absent, x, x]), np.column_stack([x, absent, -x])]
    )
    known = ColumnSums.of(X, np.ones(150)).distribution()
    assert np.linalg.eigvalsh(known.precision).min() > 0.0
    assert np.isfinite(known.complete(np.array([[0.5, 0.5, gap]]))).all()


def test_a_sensor_that_reports_late_is_known_by_what_it_reports():
    early = np.column_stack([np.linspace(0.0, 1.0, 100), np.full(100, np.nan)])
    late = np.column_stack([np.linspace(0.0, 1.0, 10), 1e9 + np.linspace(0.0, 1.0, 10)])
    sums = ColumnSums.of(early, np.ones(100))
    assert sums.distribution().scale[1] == 0.0
    known = sums.plus(late, np.ones(10)).distribution()
    assert known.mean[1] == pytest.approx(1e9 + 0.5, abs=1e-5)
    assert known.scale[1] == pytest.approx(late[:, 1].std(), rel=1e-3)


def test_many_columns_are_taken_to_be_independent():
    rng = np.random.default_rng(2)
    X = with_gaps(rng, np.repeat(rng.normal(size=(30, 1)), WIDEST_TOGETHER + 1, axis=1))
    sums = ColumnSums.of(X, np.ones(30))
    assert sums.sums.shape == (3, WIDEST_TOGETHER + 1)
    known = sums.merge(ColumnSums.of(X + 5.0, np.ones(30))).distribution()
    assert known.is_independent
    both = np.concatenate([X, X + 5.0])
    np.testing.assert_allclose(known.mean, np.nanmean(both, axis=0), atol=1e-12)
    np.testing.assert_allclose(known.scale, np.nanstd(both, axis=0), atol=1e-12)


def test_only_nan_are_gaps():
    assert gaps_in(np.array([[1.0, 2.0]])) is None
    assert gaps_in(np.array([[1.0, np.inf]])) is None
    assert gaps_in(np.array([[1.0, np.nan]])).tolist() == [[False, True]]
