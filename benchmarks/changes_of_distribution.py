"""How soon is a change of distribution found, and how often is one found that is none?

Streams of 20 features whose rows are N(0, I) until a change; means of many streams.

* **Delays**: rows from the change to its detection, at most 500, where all methods have the same mean time between
  false detections, the **run length**. The peers are plain versions of MMDEW, NEWMA, Scan-B and OKCUSUM after their
  papers (`change_peers.py`); each method's level is that which fresh healthy streams pass as often.
* **Promises**: detections of a `ChangeDetector` in twenty kinds of healthy rows (heavy tails, counts, clusters, memory,
  seasons, moving spread), for each that its run length promises.
"""

import copy
import math
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from change_peers import bandwidth, mmdew, newma, scan
from common import Array, Figures, make_table, run, time_call
from scipy.signal import lfilter

from streamkpca import StreamingKernelPCA
from streamkpca.changes import ChangeDetector
from streamkpca.kernels import RBF

# Features, rows before the change, and rows after it.
D, BEFORE, MOST = 20, 200, 500
RUN_LENGTHS = (1e3, 1e4, 1e5)
# The run length whose delays the page shows.
SHOWN = 1e4


def _correlated(random: np.random.Generator, n: int) -> Array:
    rows = random.normal(size=(n, D))
    rows[:, 1] = 0.9 * rows[:, 0] + math.sqrt(1.0 - 0.81) * rows[:, 1]
    return rows


def _mixed(share: float, random: np.random.Generator, n: int) -> Array:
    return random.normal(size=(n, D)) * np.where(random.random((n, 1)) < share, 2.0, 1.0)


CASES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "70% of rows N(0, 4I)": partial(_mixed, 0.7),
    "30% of rows N(0, 4I)": partial(_mixed, 0.3),
    "Laplace, scale 2": lambda random, n: random.laplace(scale=2.0, size=(n, D)),
    "uniform +-4": lambda random, n: random.uniform(-4.0, 4.0, (n, D)),
    "mean moved by 1 in all": lambda random, n: random.normal(size=(n, D)) + 1.0 / math.sqrt(D),
    "mean of one feature by 2": lambda random, n: random.normal(size=(n, D)) + 2.0 * (np.arange(D) == 0),
    "Laplace, same variance": lambda random, n: random.laplace(scale=math.sqrt(0.5), size=(n, D)),
    "correlation .9 of one pair": _correlated,
}


def model_of(rows: Array) -> StreamingKernelPCA:
    """Return a model such as a Monitor has by default, which has learned rows."""
    model = StreamingKernelPCA(kernel=RBF().in_units("std"), max_atoms=128, noise_variance=None)
    return model.partial_fit(rows)


class Methods:
    """All methods, which know the same healthy rows; each gives the statistic of each row of a stream."""

    def __init__(self, random: np.random.Generator, n_healthy: int) -> None:
        self.healthy = random.normal(size=(n_healthy, D))
        detector = ChangeDetector(model_of(random.normal(size=(2000, D))), run_length=1000, n_healthy=n_healthy)
        detector.update(self.healthy)
        # So that statistics never begin anew.
        detector.run_length = 1e12
        self._detector, self._gamma = detector, bandwidth(self.healthy)

    def statistics(self, rows: Array) -> dict[str, Array]:
        """Return the statistics (n,) of a stream by each method."""
        last, largest = scan(rows, self._gamma, self.healthy)
        return {
            "ChangeDetector": np.log(copy.copy(self._detector).update(rows).run_length),
            "MMDEW": mmdew(rows, self._gamma),
            "NEWMA": newma(rows, self._gamma, self.healthy),
            "Scan-B": last,
            "OKCUSUM": largest,
        }


class Levels:
    """Levels of a method by run length: the line through logarithmic mean first passages of healthy streams."""

    def __init__(self, statistics: Array) -> None:
        records = np.maximum.accumulate(statistics, axis=1)
        n, length = records.shape
        self._levels = np.unique(np.quantile(records[:, length // 50 :], np.linspace(0.0, 0.999, 200)))
        passed = [(records > level).sum(axis=1) for level in self._levels]
        counts = np.array([np.count_nonzero(rows) for rows in passed])
        seen = np.array([(length - rows).sum() for rows in passed])
        known = np.log(seen / np.maximum(counts, 1) + 1.0)
        sure = (counts >= max(n // 3, 1)) & (known >= math.log(length / 20.0))
        self._slope, self._start = np.polyfit(self._levels[sure], known[sure], 1)

    def at(self, run_length: float) -> float:
        """Return the level that is passed after so many rows on average."""
        return float((math.log(run_length) - self._start) / self._slope)


def measure_delays(random: np.random.Generator, n_healthy: int, n_streams: int, length: int, n_changes: int) -> dict:
    """Return, for each run length, case and method, the mean delay and its standard error."""
    methods = Methods(random, n_healthy)
    found = [methods.statistics(random.normal(size=(length, D))) for _ in range(n_streams)]
    levels = {name: Levels(np.array([one[name] for one in found])) for name in found[0]}
    rows: dict = {}
    for case, draw in CASES.items():
        found = [
            methods.statistics(np.concatenate([random.normal(size=(BEFORE, D)), draw(random, MOST)]))
            for _ in range(n_changes)
        ]
        for run_length in RUN_LENGTHS:
            for name, level in levels.items():
                passed = np.array([one[name][BEFORE:] > level.at(run_length) for one in found])
                rows_until = np.where(passed.any(axis=1), passed.argmax(axis=1) + 1, MOST)
                mean, error = float(rows_until.mean()), float(rows_until.std() / math.sqrt(n_changes))
                rows.setdefault(f"{run_length:.0e}", {}).setdefault(case, {})[name] = mean, error
    return rows


def _slow(memory: float, random: np.random.Generator, n: int, draw: str = "normal") -> Array:
    noise = random.standard_t(3.0, (n + 300, 6)) if draw == "t" else random.normal(size=(n + 300, 6))
    return lfilter([math.sqrt(1.0 - memory**2)], [1.0, -memory], noise, axis=0)[300:]


def _waves(random: np.random.Generator, n: int) -> Array:
    return np.sin(2.0 * np.pi * (np.arange(n) / 144.0 + random.random()))[:, None]


def _garch(random: np.random.Generator, n: int) -> Array:
    rows, spread = random.normal(size=(n + 300, 6)), np.ones(6)
    for row in rows:
        row *= np.sqrt(spread)
        spread = 0.05 + 0.1 * row**2 + 0.85 * spread
    return rows[300:]


HEALTHY: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": partial(_slow, 0.0),
    "normal, correlated": lambda random, n: random.normal(size=(n, 6)) @ np.random.default_rng(9).normal(size=(6, 6)),
    "t, 2 degrees": lambda random, n: random.standard_t(2.0, (n, 6)),
    "t, 3 degrees": lambda random, n: random.standard_t(3.0, (n, 6)),
    "lognormal": lambda random, n: random.lognormal(size=(n, 6)),
    "Laplace": lambda random, n: random.laplace(size=(n, 6)),
    "exponential": lambda random, n: random.exponential(size=(n, 6)),
    "uniform": lambda random, n: random.random((n, 6)),
    "Poisson": lambda random, n: random.poisson(2.0, (n, 6)).astype(float),
    "two clusters": lambda random, n: random.normal(size=(n, 6)) + 3.0 * np.sign(random.random((n, 1)) - 0.3),
    "1% of rows N(0, 25I)": lambda random, n: random.normal(size=(n, 6)) * np.where(random.random((n, 1)) < 0.01, 5, 1),
    "AR(.5)": partial(_slow, 0.5),
    "AR(.8)": partial(_slow, 0.8),
    "AR(.8), t": partial(_slow, 0.8, draw="t"),
    "AR(.9)": partial(_slow, 0.9),
    "AR(.97)": partial(_slow, 0.97),
    "season": lambda random, n: _slow(0.5, random, n) + _waves(random, n),
    "season of spread": lambda random, n: random.normal(size=(n, 6)) * np.exp(0.7 * _waves(random, n)),
    "slow spread": lambda random, n: random.normal(size=(n, 6)) * np.exp(0.5 * _slow(0.97, random, n)[:, :1]),
    "GARCH": _garch,
}


# Healthy rows, healthy streams and their rows, streams of a case; then run length, charts of a kind, run lengths each.
AMOUNTS = {
    "whole": ((5000, 30, 4000, 60), (1e4, 4, 20)),
    "quick": ((2000, 8, 2000, 20), (1e3, 1, 10)),
    "tiny": ((1000, 4, 2000, 3), (1e3, 1, 2)),
}


def count_detections(run_length: float, n_charts: int, n_lengths: int) -> dict[str, float]:
    """Return, for each kind of healthy rows, the mean number of detections for each promised one."""
    found = {}
    for kind, draw in HEALTHY.items():
        ratios = []
        for seed in range(n_charts):
            random = np.random.default_rng([seed, *kind.encode()])
            detector = ChangeDetector(model_of(draw(random, 2000)), run_length=run_length)
            with warnings.catch_warnings():
                # Rows with a long memory bring a warning.
                warnings.simplefilter("ignore")
                detector.update(draw(random, detector.n_healthy))
            ratios.append(len(detector.update(draw(random, int(n_lengths * run_length))).changes) / n_lengths)
        found[kind] = float(np.mean(ratios))
    return found


def measure(size: str, data: Path | None) -> Figures:
    """Measure delays, promises and the time of a row."""
    sizes, counted = AMOUNTS[size]
    random = np.random.default_rng(0)
    delays = measure_delays(random, *sizes)
    detector = ChangeDetector(model_of(random.normal(size=(2000, D))), run_length=1e4)
    detector.update(random.normal(size=(5100, D)))
    rows = random.normal(size=(10_000, D))
    seconds, _ = time_call(detector.update, rows)
    detections = count_detections(*counted)
    return {
        "delays": delays,
        "run_length": counted[0],
        "detections": detections,
        "mean": float(np.mean(list(detections.values()))),
        "microseconds": 1e6 * seconds / len(rows),
    }


def describe(figures: Figures) -> str:
    """Return delays by run length and case, and how promises are kept."""
    first = next(iter(next(iter(figures["delays"].values())).values()))
    rows = [
        [f"{float(run_length):,.0f}", case, *(f"{mean:.1f}" for mean, _ in found.values())]
        for run_length, cases in figures["delays"].items()
        if float(run_length) == SHOWN
        for case, found in cases.items()
    ]
    counts = np.array(list(figures["detections"].values()))
    worst = max(figures["detections"], key=figures["detections"].__getitem__)
    near = f"{np.count_nonzero((counts >= 0.5) & (counts <= 1.5))} of {len(counts)}"
    return (
        f"{make_table(['run length', 'change', *first], rows)}\n\n"
        f"At a run length of {figures['run_length']:,.0f}, twenty kinds of healthy rows bring {figures['mean']:.2f} of "
        f"the promised detections on average, {near} kinds 0.5 to 1.5 times as many, and at most "
        f"{figures['detections'][worst]:.1f} ({worst}). A row takes {figures['microseconds']:.1f} microseconds."
    )


if __name__ == "__main__":
    run(measure, describe)
