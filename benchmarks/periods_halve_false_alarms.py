"""Claim: where rows follow a daily cycle, a Monitor that knows the period raises half the false alarms or fewer.

Streams of five made families follow a cycle of 24, 96, 288 or 1,440 rows, a row an
hour to a row a minute, for 8 to 120 periods. Their second half has faults, each a twelfth of a period long, of four
kinds in turn: rows of another time of day; one feature off by one standard deviation; one that stays at a value; all
that are half as far from their mean as they should be.

* **sines**: features are sums of two harmonics with noise. **office**: they follow a working day, higher on some days.
  **traffic**: roots of counts with two peaks and a common factor. **mixed**: two features have the cycle, two have
  none. **drifting**: amplitudes change over a month, and a slow random walk is added.
* **tods 5**, **tods 1**: the generators of rows and of single series of a public benchmark (K.-H. Lai, D. Zha, J. Xu,
  Y. Zhao, G. Wang, X. Hu, "Revisiting time series outlier detection", NeurIPS Datasets and Benchmarks 2021;
  github.com/datamllab/tods, benchmark/synthetic): sines of frequency .04, that is a period of 25 rows, with amplitudes
  1.5 and 2.5 and noise of .05 of them. Its outliers with its settings: global points (3.5 times), contextual points
  (2.5 times, within the range), a square wave, three times the frequency, and a trend of .5 a row, the last three 10
  rows long. A trend ends with its outlier here; there, the feature stays away for good.

Methods see each stream once: ``Monitor()``, ``Monitor(lags=3)``, ``Monitor(period=...)``, and both. Columns: the share
of faults **found** and the share of healthy rows in alarm (**false**) at the monitor's own threshold, in the second
half; the same share at the level, of score over threshold, that finds half of the faults (**at .5**) and four fifths
(**at .8**); and the share of rows in alarm in the first half, from the first row on (**young**). Six rows after a fault
do not count as healthy. Figures are means over streams.

Run::

    python benchmarks/periods_halve_false_alarms.py
    python benchmarks/periods_halve_false_alarms.py --tiny

The exit code is 0 if a monitor with the period has at most half the false alarms of ``Monitor()`` at a recall of .8, in
the mean over the made families and in **tods 1**, and 1 otherwise.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import surroundings, threads, write_figures
from detection_metrics import segments
from scipy.signal import lfilter

from streamkpca.monitoring import Monitor

Array = np.ndarray
TURN = 2.0 * np.pi
# Rows of a period, and periods.
LENGTHS = ((24, 120), (96, 40), (288, 20), (1440, 8))
N_FAULTS, AFTER = 20, 6
COLUMNS = ("found", "false", "at .5", "at .8", "young")
METHODS: dict[str, Callable[[int], Monitor]] = {
    "Monitor()": lambda period: Monitor(),
    "lags=3": lambda period: Monitor(lags=3),
    "period": lambda period: Monitor(period=period),
    "period, lags=3": lambda period: Monitor(period=period, lags=3),
}
MOST_RATIO = 0.5
# Where Monitor() has fewer false alarms than this, there is nothing to halve.
NOTHING = 1e-3


def noise(rng: np.random.Generator, n: int, d: int, correlation: float, deviation: float) -> Array:
    """Make rows (n, d) of autoregressive noise."""
    steps = rng.normal(size=(n, d)) * deviation * np.sqrt(1.0 - correlation**2)
    return lfilter([1.0], [1.0, -correlation], steps, axis=0)


def sines(rng: np.random.Generator, turns: Array, d: int = 6) -> Array:
    """Make sums of two harmonics."""
    size, phases = rng.uniform(0.5, 2.0, d), rng.uniform(0.0, TURN, (2, d))
    angles = TURN * turns[:, None]
    rows = size * (np.sin(angles + phases[0]) + 0.3 * np.sin(2.0 * angles + phases[1]))
    return rows + noise(rng, len(turns), d, 0.5, 0.15)


def office(rng: np.random.Generator, turns: Array, d: int = 5) -> Array:
    """Make features that follow the load of a working day."""
    hours, days = 24.0 * (turns % 1.0), turns.astype(int)
    load = 1.0 / (1.0 + np.exp(-3.0 * (hours - 7.5))) / (1.0 + np.exp(2.0 * (hours - 18.0)))
    load = (load * (1.0 + 0.08 * rng.normal(size=days.max() + 1)[days]))[:, None]
    rows = load * rng.uniform(0.5, 3.0, d) + 0.3 * load**2 * rng.normal(size=d)
    return rows + noise(rng, len(turns), d, 0.7, 0.08)


def traffic(rng: np.random.Generator, turns: Array, d: int = 4) -> Array:
    """Make roots of counts with a peak in the morning and one in the evening."""
    hours = 24.0 * (turns % 1.0)
    peaks = ((200.0, 8.0, 1.5), (160.0, 17.5, 2.0), (60.0, 12.5, 3.0))
    rate = 20.0 + sum(high * np.exp(-0.5 * ((hours - middle) / width) ** 2) for high, middle, width in peaks)
    common = np.exp(noise(rng, len(turns), 1, 0.9, 0.1))
    return np.sqrt(rng.poisson(rate[:, None] * common * rng.uniform(0.3, 1.5, d)))


def mixed(rng: np.random.Generator, turns: Array) -> Array:
    """Make two features with the cycle and two without."""
    return np.hstack([sines(rng, turns, 2), noise(rng, len(turns), 2, 0.95, 1.0)])


def drifting(rng: np.random.Generator, turns: Array) -> Array:
    """Make sines whose amplitudes and levels change."""
    slow = 1.0 + 0.1 * np.sin(TURN * turns / 29.0)[:, None]
    return sines(rng, turns, 5) * slow + noise(rng, len(turns), 5, 0.999, 0.3)


FAMILIES = {maker.__name__: maker for maker in (sines, office, traffic, mixed, drifting)}


def with_faults(rng: np.random.Generator, healthy: Array, period: int) -> tuple[Array, Array]:
    """Put faults in the second half of rows (n, d); return also which rows they are in."""
    n, d = healthy.shape
    rows, labels, half, length = healthy.copy(), np.zeros(n, dtype=bool), n // 2, max(period // 12, 3)
    mean, spread = healthy[:half].mean(axis=0), healthy[:half].std(axis=0)
    starts = half + (np.arange(N_FAULTS) + rng.uniform(0.1, 0.6, N_FAULTS)) * (n - half) / N_FAULTS
    for k, start in enumerate(starts.astype(int).tolist()):
        part, feature = slice(start, start + length), int(rng.integers(d))
        if k % 4 == 0:
            other = start - int(period * (rng.integers(2) + rng.uniform(0.3, 0.7)))
            rows[part] = healthy[other : other + length]
        elif k % 4 == 1:
            rows[part, feature] += rng.choice([-1.0, 1.0]) * spread[feature]
        elif k % 4 == 2:
            rows[part, feature] = healthy[start - period // 3, feature]
        else:
            rows[part] = mean + 0.5 * (healthy[part] - mean)
        labels[part] = True
    return rows, labels


def tods(rng: np.random.Generator, n: int, d: int) -> tuple[Array, Array]:
    """Make a stream (n, d) of the public generator with outliers in the second half."""
    size, level = np.array([1.5, 2.5, 1.5, 2.5, 1.5])[:d], np.array([0.0, 0.0, 0.0, 2.0, -2.0])[:d]
    shift, rows_in = np.array([0.0, 0.25, 0.0, 0.25, 0.0])[:d], np.arange(n)[:, None]
    wave = np.sin(TURN * (0.04 * rows_in + shift))
    healthy = size * (wave + 0.05 * rng.normal(size=(n, d))) + level
    rows, labels, radius, low, high = healthy.copy(), np.zeros(n, dtype=bool), 5, healthy.min(0), healthy.max(0)
    square = sum(np.sin(TURN * 0.04 * (2 * i + 1) * rows_in[:, 0]) / (2 * i + 1) for i in range(20))
    places = n // 2 + (np.arange(N_FAULTS) + rng.uniform(0.1, 0.6, N_FAULTS)) * (n - n // 2) / N_FAULTS
    for k, place in enumerate(places.astype(int).tolist()):
        kind, j = k % 5, k % 5 % d
        part = slice(place - radius, place + radius) if kind > 1 else slice(place, place + 1)
        if kind < 2:
            value = healthy[place, j] * (3.5, 2.5)[kind] * healthy[place - radius : place + radius, j].std()
            if kind == 0:
                rows[place, j] = max(value, high[j]) if value >= 0.0 else min(value, low[j])
            else:
                within = min(0.95, abs(rng.normal()))
                rows[place, j] = value if low[j] <= value <= high[j] else within * (high if value > 0 else low)[j]
        elif kind == 2:
            rows[part, j] = size[0] * square[part] + 0.03 * rng.normal(size=2 * radius)
        elif kind == 3:
            rows[part, j] = level[j] + size[j] * np.sin(TURN * (0.12 * rows_in[part, 0] + shift[j]))
        else:
            rows[part, j] += rng.choice([-1.0, 1.0]) * 0.5 * np.arange(2 * radius)
        labels[part] = True
    return rows, labels


def false_at(recall: float, peaks: Array, healthy: Array) -> float:
    """Return the share of healthy scores at the level that this share of the faults' largest scores reach."""
    level = np.sort(peaks)[::-1][int(np.ceil(recall * len(peaks))) - 1]
    return float((healthy >= level).mean())


def judged(monitor: Monitor, rows: Array, labels: Array) -> dict[str, float]:
    """Watch a stream, and measure what its alarms are worth."""
    record, half = monitor.update(rows), len(rows) // 2
    score = np.where(np.isfinite(record.threshold), record.rarity / record.threshold, 0.0)
    after = np.convolve(labels, np.ones(AFTER + 1))[: len(labels)] > 0.0
    peaks = np.array([score[start:stop].max() for start, stop in segments(labels)])
    healthy = score[half:][~after[half:]]
    values = (
        (peaks >= 1.0).mean(),
        (healthy >= 1.0).mean(),
        false_at(0.5, peaks, healthy),
        false_at(0.8, peaks, healthy),
    )
    return dict(zip(COLUMNS, map(float, (*values, record.is_alarm[:half].mean())), strict=True))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a run of seconds, to see that the script works")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    seeds, lengths = (1, LENGTHS[:1]) if options.tiny else (options.seeds, LENGTHS)
    where = surroundings()
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    started = time.process_time()
    with threads(1):
        for family in (*FAMILIES, "tods 5", "tods 1"):
            lines: dict[str, list[dict[str, float]]] = {name: [] for name in METHODS}
            for seed in range(seeds):
                for period, count in lengths if family in FAMILIES else ((25, 160),):
                    rng = np.random.default_rng([seed, period])
                    if family in FAMILIES:
                        turns = np.arange(period * count) / period
                        rows, labels = with_faults(rng, FAMILIES[family](rng, turns), period)
                    else:
                        rows, labels = tods(rng, period * count, int(family[-1]))
                    for name, make in METHODS.items():
                        lines[name].append({"rows": period, **judged(make(period), rows, labels)})
            found[family] = lines
            print(f"\n{family:16}" + "".join(f"{column:>8}" for column in COLUMNS))
            for name, streams in lines.items():
                means = (np.mean([line[column] for line in streams]) for column in COLUMNS)
                print(f"{name:16}" + "".join(f"{mean:8.4f}" for mean in means), flush=True)
    print("\nfalse alarms at a recall of .8, as a share of those of Monitor()")
    ratios: dict[str, dict[str, float]] = {}
    for family, lines in found.items():
        means = {name: float(np.mean([line["at .8"] for line in streams])) for name, streams in lines.items()}
        ratios[family] = {name: mean / max(means["Monitor()"], NOTHING) for name, mean in means.items()}
        print(f"{family:16}" + "  ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios[family].items()))
    made, public = float(np.mean([ratios[family]["period"] for family in FAMILIES])), ratios["tods 1"]["period"]
    holds = max(made, public) <= MOST_RATIO
    print(f"\n{time.process_time() - started:.0f} s of processor time")
    verdict = "HALF" if holds else "MORE"
    print(f"{verdict}: {made:.2f} of the false alarms of Monitor() in made families, {public:.2f} in tods 1")
    write_figures(options.json, where, {"streams": found, "ratios": ratios, "half": holds})
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
