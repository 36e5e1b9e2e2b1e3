"""Claim: at one average run length, a `ChangeDetector` finds most changes within 1.1 times the best peer's delay.

Healthy rows are N(0, I) with 20 features. After 200 of them the rows change (see `CASES`); the delay is the number of
changed rows up to the detection, at most 500. All methods know the same healthy rows; the peers are plain
implementations, see `change_peers.py`. The level of each method is that which streams of fresh healthy rows pass for
the first time after 10^3, 10^4 or 10^5 rows on average: passages are counted in streams of 4,000 rows, and their
logarithmic mean length is a line in the level, which is checked where both are known.

* **delays**: means over streams, with their standard errors, and the ratio of ours to the best peer.
* **kept**: detections in healthy rows for each that the detector's own run length promises, for kinds of rows with
  heavy tails and with memory (`HEALTHY`), each with the default number of healthy rows.
* **speed**: microseconds of processor time a row of ours, settled, in calls of 10,000 rows and in single rows.

Run::

    python benchmarks/changes_of_distribution.py
    python benchmarks/changes_of_distribution.py --tiny

The exit code is 0 if delays are at most 1.1 times the best in seven of eight cases at each run length, within two
standard errors, kinds of rows bring .5 to 1.5 times the promised detections on average, and rows cost at most 10
microseconds.
"""

import argparse
import copy
import math
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from change_peers import bandwidth, mmdew, newma, scan
from common import surroundings, threads, write_figures
from scipy.signal import lfilter

from streamkpca import StreamingKernelPCA
from streamkpca.changes import ChangeDetector
from streamkpca.kernels import RBF

Array = np.ndarray
D, BEFORE, MOST = 20, 200, 500
RUN_LENGTHS = (1e3, 1e4, 1e5)


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
        detector.run_length = 1e300
        self._detector, self._gamma = detector, bandwidth(self.healthy)

    def statistics(self, rows: Array) -> dict[str, Array]:
        """Return the statistics (n,) of a stream by each method."""
        last, largest = scan(rows, self._gamma, self.healthy)
        return {
            "ours": np.log(copy.copy(self._detector).update(rows).run_length),
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
        self._known = np.log(seen / np.maximum(counts, 1) + 1.0)
        self._sure = (counts >= max(n // 3, 1)) & (self._known >= math.log(length / 20.0))
        self._slope, self._start = np.polyfit(self._levels[self._sure], self._known[self._sure], 1)
        self.longest = float(np.exp(self._known[self._sure].max()))

    def at(self, run_length: float) -> float:
        """Return the level that is passed after so many rows on average."""
        return float((math.log(run_length) - self._start) / self._slope)

    def error(self) -> float:
        """Return the largest deviation from the line, as a factor of run lengths."""
        line = self._start + self._slope * self._levels[self._sure]
        return float(np.exp(np.abs(line - self._known[self._sure]).max()))


def delays(random: np.random.Generator, n_healthy: int, n_streams: int, length: int, n_changes: int) -> dict:
    """Return, for each run length, case and method, the mean delay and its standard error."""
    methods = Methods(random, n_healthy)
    found = [methods.statistics(random.normal(size=(length, D))) for _ in range(n_streams)]
    levels = {name: Levels(np.array([one[name] for one in found])) for name in found[0]}
    for name, level in levels.items():
        print(
            f"  {name}: counted up to a run length of {level.longest:,.0f}, line within {level.error():.2f}", flush=True
        )
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


def print_delays(rows: dict) -> bool:
    """Print delays; return whether ours are at most 1.1 times the best in seven of eight cases."""
    holds = True
    for run_length, cases in rows.items():
        names = list(next(iter(cases.values())))
        print(f"\nrun length {run_length:28}" + "".join(f"{name:>16}" for name in names) + "     ratio")
        n_good = 0
        for case, found in cases.items():
            best, spread = min(value for name, value in found.items() if name != "ours")
            ours, error = found["ours"]
            n_good += ours <= 1.1 * best + 2.0 * math.hypot(error, 1.1 * spread)
            cells = "".join(f"{mean:10.2f} +-{error:4.1f}" for mean, error in found.values())
            print(f"{case:39}{cells}{ours / best:10.2f}")
        print(f"at most 1.1 times the best in {n_good} of {len(cases)}", flush=True)
        holds &= n_good >= len(cases) - 1
    return holds


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


def kept(n_charts: int, run_lengths: tuple[float, ...], n_lengths: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return, for each run length and kind of healthy rows, mean detections for each promised and warnings a chart."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for run_length in run_lengths:
        print(f"run length {run_length:.0e}{'':14}detections for each promised, mean and each; charts that warn")
        for kind, draw in HEALTHY.items():
            ratios, n_warned = [], 0
            for seed in range(n_charts):
                random = np.random.default_rng([seed, *kind.encode()])
                detector = ChangeDetector(model_of(draw(random, 2000)), run_length=run_length)
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    detector.update(draw(random, detector.n_healthy))
                n_warned += bool(said)
                ratios.append(len(detector.update(draw(random, int(n_lengths * run_length))).changes) / n_lengths)
            found.setdefault(f"{run_length:.0e}", {})[kind] = float(np.mean(ratios)), n_warned / n_charts
            each = " ".join(f"{ratio:5.2f}" for ratio in ratios)
            print(f"{kind:24}{np.mean(ratios):6.2f}   {each}   {n_warned}", flush=True)
        means = np.array([mean for mean, _ in found[f"{run_length:.0e}"].values()])
        print(f"{'mean':24}{means.mean():6.2f}   {np.mean((means >= 0.5) & (means <= 1.5)):.2f} within .5 and 1.5")
    return found


def speed(random: np.random.Generator, n_rows: int) -> tuple[float, float]:
    """Return microseconds a row, of many rows and of single ones."""
    detector = ChangeDetector(model_of(random.normal(size=(2000, D))), run_length=1e4)
    detector.update(random.normal(size=(5100, D)))
    rows = random.normal(size=(n_rows, D))
    began = time.process_time()
    for start in range(0, n_rows, 10_000):
        detector.update(rows[start : start + 10_000])
    many = (time.process_time() - began) / n_rows
    began = time.process_time()
    for i in range(200):
        detector.update(rows[i : i + 1])
    return 1e6 * many, 1e6 * (time.process_time() - began) / 200


def main() -> int:
    """Measure, print, and tell whether the claim holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=60, help="healthy streams of 4,000 rows")
    parser.add_argument("--changes", type=int, default=100, help="streams of each case")
    parser.add_argument("--charts", type=int, default=4, help="healthy streams of each kind")
    parser.add_argument(
        "--promises", type=int, choices=(1, 2, 3), default=2, help="run lengths at which promises are counted"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiny", action="store_true", help="few and short streams")
    arguments = parser.parse_args()
    with threads(1):
        where = surroundings()
        random = np.random.default_rng(0)
        tiny = arguments.tiny
        sizes = (1000, 4, 2000, 3) if tiny else (5000, arguments.streams, 4000, arguments.changes)
        rows = delays(random, *sizes)
        checks = {"delays": print_delays(rows)}
        print()
        counted = (1, (1000.0,), 2) if tiny else (arguments.charts, RUN_LENGTHS[: arguments.promises], 20)
        promised = kept(*counted)
        checks["kept"] = all(0.5 <= np.mean([mean for mean, _ in kinds.values()]) <= 1.5 for kinds in promised.values())
        many, single = speed(random, 10_000 if tiny else 100_000)
        print(f"\n{many:.1f} microseconds a row, {single:.0f} a single row")
        checks["speed"] = many <= 10.0
    figures = {"delays": rows, "kept": promised, "speed": [many, single]}
    write_figures(arguments.json, where, figures)
    print(", ".join(f"{name}: {'holds' if good else 'FAILS'}" for name, good in checks.items()))
    return 0 if all(checks.values()) or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
