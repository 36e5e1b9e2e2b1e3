"""Small monitors and streams for the tests of monitoring."""

import itertools
import math

import numpy as np

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF
from streamkpca.monitoring import MonitorRecord


def small_model(kernel=None, **parameters):
    """Return a model with few atoms and short blocks."""
    given = {"max_atoms": 16, "block_size": 64, "reservoir_size": 64, "kernel": kernel or RBF(0.2), **parameters}
    return StreamingKernelPCA(3, **given)


def normal_rows(n, d=3, seed=0):
    """Return rows whose features depend on two hidden ones, with some noise."""
    random = np.random.default_rng(seed)
    hidden = random.normal(size=(n, 2))
    mixing = np.random.default_rng(d).normal(size=(2, d))
    return hidden @ mixing + 0.2 * random.normal(size=(n, d))


def eventful_rows(n=1100):
    """Return rows with a short fault, single odd rows, and a change that lasts."""
    rows = normal_rows(n)
    rows[620:640, 1] += 12.0
    rows[[300, 700, 705], 0] -= 9.0
    rows[800:, 2] += 15.0
    return rows


def joined(records):
    """Return the record of the rows of all."""
    columns = zip(*records, strict=True)
    return MonitorRecord(*(None if column[0] is None else np.concatenate(column) for column in columns))


def updated(monitor, rows, cuts, times=None):
    """Give a monitor the rows in pieces, and return their record."""
    edges = [0, *cuts, len(rows)]
    pieces = [slice(a, b) for a, b in itertools.pairwise(edges) if a < b]
    return joined([monitor.update(rows[p], time=None if times is None else times[p]) for p in pieces])


def assert_same_records(one, other):
    """Compare two records bit for bit."""
    for a, b in zip(one, other, strict=True):
        assert (a is None and b is None) or a.tobytes() == b.tobytes()


def follow_slowly(rarity, is_fault, threshold, end_after, rate, positions):
    """Return which rows are alarms and which begin events, from the definition, where rows have these positions."""
    alarms, begins, needed = [], [], math.log10(threshold)
    for i, (value, at) in enumerate(zip(rarity, positions, strict=True)):
        is_open = bool(alarms) and at - positions[alarms[-1]] <= end_after
        is_record = (
            value >= threshold
            and all(before < value for before in rarity[max(i - 200, 0) : i])
            and not is_open
            and (rate is None or min(math.log10(value), 6.0) >= needed)
        )
        if is_record or (is_fault[i] and not is_open):
            begins.append(i)
        if begins[-1:] == [i] or (is_open and (value >= threshold or is_fault[i])):
            alarms.append(i)
        if rate is not None:
            needed = max(needed + 0.3 * is_record - 0.3 * rate, math.log10(threshold))
    return alarms, begins
