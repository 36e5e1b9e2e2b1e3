"""The compiled loops of charts against their definitions; also run without the compiler and with bounds checks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.changes._loops import fill_products, follow_averages, sample_averages, scale_columns


def test_far_columns_grow_as_logarithms():
    rows = np.array([[0.0, 3.0, 7.0], [-2.0, 5.0, 7.0], [9.0, np.nan, 7.0], [-np.inf, 1e300, 7.0]])
    scale_columns(rows, np.array([1.0, 3.0]), np.array([2.0, 1.0]), np.array([0.5, 1.0]))
    far = 1e30
    expected = [
        [-2.0, 0.0, 7.0],
        [-4.0 * (1.0 + np.log(1.5)), 1.0 + np.log(2.0), 7.0],
        [4.0 * (1.0 + np.log(4.0)), 0.0, 7.0],
        [-4.0 * (1.0 + np.log(far / 2.0)), 1.0 + np.log(far), 7.0],
    ]
    np.testing.assert_allclose(rows, expected)


@given(st.integers(0, 2**31))
def test_the_last_columns_are_products_of_any_two(seed):
    rng = np.random.default_rng(seed)
    # One column before those that are multiplied, two after them.
    h, mean, scale = rng.normal(size=(20, 8)), rng.normal(size=3), rng.uniform(0.5, 2.0, 3)
    pairs = np.stack([h[:, 1] ** 2, h[:, 1] * h[:, 2], h[:, 2] ** 2], axis=1)
    expected = np.hstack([h[:, :5], (pairs - mean) / scale])
    fill_products(h, 1, mean, scale)
    np.testing.assert_allclose(h, expected, rtol=1e-12, atol=1e-12)


def charted(columns, weights):
    """Return averages (n, K, p) and statistics, by definition."""
    rates, precision, bounds = weights
    shares = [rates[:, None] * (1.0 - rates[:, None]) ** np.arange(t, -1, -1) for t in range(len(columns))]
    averages = np.array([share @ columns[: t + 1] for t, share in enumerate(shares)])
    averages[:, rates == 1.0, bounds[-2] :] = 0.0
    groups = np.split(averages**2 * precision, bounds[1:-1], axis=2)
    return averages, np.stack([g.mean(axis=2) if i < 2 else g.max(axis=2) for i, g in enumerate(groups)], axis=2)


def a_chart(seed, n=40):
    """Return columns (n, 7), weights of four groups, and their tails."""
    rng = np.random.default_rng(seed)
    weights = np.array([1.0, 0.3]), rng.uniform(0.5, 2.0, (2, 7)), np.array([0, 2, 3, 4, 7])
    return rng.normal(size=(n, 7)), weights, (rng.uniform(0.5, 1.5, (2, 4)), rng.uniform(0.5, 2.0, (2, 4)))


@given(st.integers(0, 2**31))
def test_charts_follow_the_averages_up_to_a_level(seed):
    columns, weights, (power, scale) = a_chart(seed)
    averages, statistics = charted(columns, weights)
    values = ((statistics / scale) ** power).reshape(len(columns), -1)
    for level, n in ((np.inf, len(columns)), (np.median(values.max(axis=1)), None)):
        n = n or int(np.argmax(values.max(axis=1) > level)) + 1
        e, found = np.zeros((2, 7)), np.zeros(len(columns))
        # In two calls, as the second goes on.
        taken, place = follow_averages(columns[: n - 1], e, weights, (power, scale), level, found)
        assert (taken, place) == (n - 1, -1)
        taken, place = follow_averages(columns[n - 1 :][:1], e, weights, (power, scale), level, found[n - 1 :])
        assert (taken, place) == (1, -1 if level == np.inf else int(np.argmax(values[n - 1])))
        np.testing.assert_allclose(found[:n], values[:n].max(axis=1), rtol=1e-7)
        np.testing.assert_allclose(e, averages[n - 1], rtol=1e-9, atol=1e-12)


@given(st.integers(0, 2**31))
def test_averages_are_sampled_at_some_rows_of_streams(seed):
    columns, weights, _ = a_chart(seed)
    streams = np.random.default_rng(seed).integers(0, 40, (3, 20))
    squares, found = np.zeros((2, 7)), np.empty((3 * 4, 2, 4))
    sample_averages(columns, streams, (8, 3), weights, squares, found)
    parts = [tuple(part[8::3] for part in charted(columns[stream], weights)) for stream in streams]
    np.testing.assert_allclose(found, np.concatenate([statistics for _, statistics in parts]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(squares, sum((averages**2).sum(axis=0) for averages, _ in parts), rtol=1e-9, atol=1e-12)
