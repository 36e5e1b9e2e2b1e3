"""The plain detectors of changes are what their papers say: by definition, and by the delays that they published."""

import runpy
from pathlib import Path

import numpy as np
import pytest

PEERS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "change_peers.py"))
GAMMA = 0.1


def kernel(x, y):
    found = np.exp(-GAMMA * ((x[:, None] - y[None]) ** 2).sum(axis=2))
    return found


def discrepancy(x, y):
    """Return the squared maximum mean discrepancy of two samples, with equal pairs."""
    return float(kernel(x, x).mean() + kernel(y, y).mean() - 2.0 * kernel(x, y).mean())


def test_mmdew_compares_what_lies_before_and_after_each_bucket():
    rows = np.random.default_rng(0).normal(size=(45, 3))
    found = PEERS["mmdew"](rows, GAMMA)
    for t in range(1, 45):
        # Buckets are the digits of the number of rows before in base two, the largest first, and the row itself.
        splits = [(t >> k) << k for k in range(6)]
        values = [
            np.sqrt(max(discrepancy(rows[:s], rows[s : t + 1]), 0.0) / (1.0 / s + 1.0 / (t + 1 - s)))
            for s in splits
            if 0 < s < t + 1
        ]
        assert found[t] == pytest.approx(max(values, default=0.0))


def test_scan_statistics_are_unbiased_discrepancies():
    random = np.random.default_rng(1)
    healthy, rows = random.normal(size=(500, 3)), random.normal(size=(30, 3)) + 0.5
    last, largest = PEERS["scan"](rows, GAMMA, healthy, block=10, n_blocks=4)
    sizes = np.arange(2, 11, 2)
    deviations = PEERS["_deviations"](healthy[40:], GAMMA, 4, sizes)
    assert not last[:9].any()
    for t in range(9, 30):
        values = []
        for size in sizes:
            y, total = rows[t + 1 - size : t + 1], 0.0
            for block in healthy[:40].reshape(4, 10, 3):
                x = block[10 - size :]
                h = kernel(x, x) + kernel(y, y) - kernel(x, y) - kernel(y, x)
                total += (h.sum() - np.trace(h)) / (size * (size - 1)) / 4.0
            values.append(total)
        values = np.array(values) / deviations
        assert last[t] == pytest.approx(values[-1])
        assert largest[t] == pytest.approx(max(values.max(), 0.0))


def test_delays_are_those_published():
    # Table of arXiv 2205.12706, 20 features, run length 1,000: uniform +-4 after N(0, I).
    random = np.random.default_rng(3)
    healthy = random.normal(size=(3000, 20))
    gamma = PEERS["bandwidth"](healthy)

    def statistics(rows):
        last, largest = PEERS["scan"](rows, gamma, healthy)
        return [PEERS["mmdew"](rows, gamma), PEERS["newma"](rows, gamma, healthy), last, largest]

    # Of a run length of 1,000, 20 streams of 1,000 rows have a share of 1 / e without a detection.
    records = np.array([[one.max() for one in statistics(random.normal(size=(1000, 20)))] for _ in range(20)])
    levels = np.quantile(records, np.exp(-1.0), axis=0)
    delays = []
    for _ in range(20):
        rows = np.concatenate([random.normal(size=(200, 20)), random.uniform(-4.0, 4.0, size=(100, 20))])
        found = statistics(rows)
        delays.append([int(np.argmax(one[200:] > level)) + 1 for one, level in zip(found, levels, strict=True)])
    for mean, published in zip(np.mean(delays, axis=0), (1.00, 4.1, 10.6, 3.9), strict=True):
        assert 0.7 * published < mean < 1.4 * published
