"""The compiled loops of charts against their definitions; also run without the compiler and with bounds checks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.changes._loops import fill_rows, first_passages, follow_averages, sample_averages, scale_columns


def test_far_columns_grow_as_logarithms():
    rows = np.array([[0.0, 3.0], [-2.0, 5.0], [9.0, np.nan], [-np.inf, 1e300]])
    scale_columns(rows, np.array([1.0, 3.0]), np.array([2.0, 1.0]), np.array([0.5, 1.0]))
    far = 1e30
    expected = [
        [-2.0, 0.0],
        [-4.0 * (1.0 + np.log(1.5)), 1.0 + np.log(2.0)],
        [4.0 * (1.0 + np.log(4.0)), 0.0],
        [-4.0 * (1.0 + np.log(far / 2.0)), 1.0 + np.log(far)],
    ]
    np.testing.assert_allclose(rows, expected)


def charted(columns, plan):
    """Return averages (n, K, p) and statistics, by definition."""
    rates, precision, bounds, *_ = plan
    shares = [rates[:, None] * (1.0 - rates[:, None]) ** np.arange(t, -1, -1) for t in range(len(columns))]
    averages = np.array([share @ columns[: t + 1] for t, share in enumerate(shares)])
    averages[:, rates == 1.0, bounds[-2] :] = 0.0
    groups = np.split(averages**2 * precision, bounds[1:-1], axis=2)
    return averages, np.stack([g.mean(axis=2) if i < 2 else g.max(axis=2) for i, g in enumerate(groups)], axis=2)


def on_one_scale(statistics, plan):
    *_, power, unit = plan
    return (statistics / unit) ** power


def a_chart(seed, n=40):
    """Return columns (n, 4), products of the last two, the columns (n, 7) with them, and a plan of four groups."""
    rng = np.random.default_rng(seed)
    few, mean, scale = rng.normal(size=(n, 4)), rng.normal(size=3), rng.uniform(0.5, 2.0, 3)
    pairs = np.stack([few[:, 2] ** 2, few[:, 2] * few[:, 3], few[:, 3] ** 2], axis=1)
    power, unit = rng.uniform(0.5, 1.5, (2, 4)), rng.uniform(0.5, 2.0, (2, 4))
    plan = np.array([1.0, 0.3]), rng.uniform(0.5, 2.0, (2, 7)), np.array([0, 2, 3, 4, 7]), power, unit
    return few, (2, 2, mean, scale), np.hstack([few, (pairs - mean) / scale]), plan


@given(st.integers(0, 2**31))
def test_charts_follow_the_averages_up_to_a_level(seed):
    few, products, columns, plan = a_chart(seed)
    out = np.empty(columns.shape)
    fill_rows(few, products, out)
    np.testing.assert_allclose(out, columns, rtol=1e-12, atol=1e-12)
    averages, statistics = charted(columns, plan)
    values = on_one_scale(statistics, plan).reshape(len(few), -1)
    for level, n in ((np.inf, len(few)), (np.median(values.max(axis=1)), None)):
        n = n or int(np.argmax(values.max(axis=1) > level)) + 1
        e, found = np.zeros((2, 7)), np.zeros(len(few))
        # In two calls, as the second goes on.
        taken, place = follow_averages(few[: n - 1], products, e, plan, level, found)
        assert (taken, place) == (n - 1, -1)
        taken, place = follow_averages(few[n - 1 :][:1], products, e, plan, level, found[n - 1 :])
        assert (taken, place) == (1, -1 if level == np.inf else int(np.argmax(values[n - 1])))
        np.testing.assert_allclose(found[:n], values[:n].max(axis=1), rtol=1e-7)
        np.testing.assert_allclose(e, averages[n - 1], rtol=1e-9, atol=1e-12)


@given(st.integers(0, 2**31))
def test_resampled_streams_are_runs_of_rows(seed):
    _, _, columns, plan = a_chart(seed)
    starts = np.random.default_rng(seed).integers(0, 35, (3, 4))
    streams = [np.concatenate([columns[begin : begin + 5] for begin in one]) for one in starts]
    squares, found = np.zeros((2, 7)), np.empty((3 * 4, 2, 4))
    sample_averages(columns, starts, (5, 8, 3), plan, squares, found)
    parts = [tuple(part[9::3] for part in charted(stream, plan)) for stream in streams]
    np.testing.assert_allclose(found, np.concatenate([statistics for _, statistics in parts]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(squares, sum((averages**2).sum(axis=0) for averages, _ in parts), rtol=1e-9, atol=1e-12)
    errors, levels = np.full((3, 7), 0.25), np.array([0.1, 1.0, 3.0, 1e300])
    for chosen in (levels, levels[:1]):
        passed = np.empty((3, len(chosen)), dtype=np.intp)
        first_passages(columns, errors, starts, 5, np.empty(squares.shape), plan, chosen, passed)
        for stream, got in zip(streams, passed, strict=True):
            largest = on_one_scale(charted(stream - 0.25, plan)[1], plan).max(axis=(1, 2))
            expected = [int(np.argmax(largest > a)) + 1 if (largest > a).any() else -1 for a in chosen]
            assert got.tolist() == expected
