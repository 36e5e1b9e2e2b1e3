"""Claim: context of several lengths ranks anomalies better than three lags, in the mean over families of streams.

The families are those of `made_streams` that come in time order and do not change for good, and twelve more: sensors
that walk, independent rows, oscillators, a machine with phases, seasons, a plant, counts and heavy tails, with faults
of level, spread, frequency and correlation, stuck and dropped-out sensors, of 1 to 400 rows. Arguments are npz files
with train, test and test_label, or folders of them, each a family; ``--plant FILE`` adds the Tennessee Eastman process.

Every method learns the rows of train, and goes on to learn those of test if it is a Monitor; scores are weighted
exponentially, .3 new:

* **rows**, **3 lags**: `Monitor` of single rows, and of three.
* **windows**: `Monitor(windows="auto")`. **3 lags, windows**: `Monitor(lags=3, windows="auto")`.
* **neighbour, 3 lags**: the distance to the fifth nearest of three rows stacked, standardised. **neighbour, windows**:
  the same of rows, and of mean, deviation and range of the last 16 and 64 rows: three distances, each put on a scale by
  the last quarter of train (the rest is searched), -log of the tail, exponential beyond the .9 quantile; their mean.

Columns: average precision (AP) and volume under the precision-recall surface (VUS-PR, buffers of up to 100 rows), means
over the streams of each family, then over families, relative to 3 lags, and microseconds of processor time a row.

Run::

    python benchmarks/context_of_several_lengths.py --made 1 --plant tep.npz
    python benchmarks/context_of_several_lengths.py --tiny

The exit code is 0 if "3 lags, windows" has at least the mean AP and the mean VUS-PR of 3 lags, and 1 otherwise. Single
families may lose: the worst one is printed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import surroundings, threads, write_figures
from detection_metrics import vus_pr
from made_streams import FAMILIES, Stream, made, placed, slow
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import lfilter
from scipy.spatial import KDTree

from streamkpca.cli.reports import average_precision
from streamkpca.monitoring import Monitor

Array = np.ndarray
Random = np.random.Generator
LENGTHS = (16, 64)
BASE, OURS = "3 lags", "3 lags, windows"


def walks(random: Random, n: int) -> Array:
    """Make slow sensors of a few causes."""
    return slow(random, n, 4, 0.98) @ random.normal(size=(4, 12)) + 0.3 * slow(random, n, 12, 0.7)


def white(random: Random, n: int) -> Array:
    """Make independent rows with correlated columns."""
    return random.normal(size=(n, 3)) @ random.normal(size=(3, 9)) + 0.4 * random.normal(size=(n, 9))


def oscillators(random: Random, n: int) -> Array:
    """Make mixtures of oscillators with wandering phases."""
    phase = np.cumsum(2 * np.pi / random.uniform(12, 40, 5) * (1 + 0.2 * slow(random, n, 5, 0.95)), axis=0)
    waves = (1 + 0.2 * slow(random, n, 5, 0.99)) * np.sin(phase)
    return waves @ random.normal(size=(5, 10)) + 0.15 * random.normal(size=(n, 10))


def batches(random: Random, n: int) -> Array:
    """Make a machine that goes through five phases."""
    levels, lengths = 2.0 * random.normal(size=(5, 8)), random.integers(20, 60, 5)
    phases = np.arange(n // 10) % 5
    times = (lengths[phases] * random.uniform(0.8, 1.2, len(phases))).astype(int)
    return lfilter([0.3], [1, -0.7], levels[np.repeat(phases, times)[:n]], axis=0) + 0.2 * random.normal(size=(n, 8))


def seasons(random: Random, n: int) -> Array:
    """Make columns with a day of 288 rows."""
    day = np.arange(n)[:, None] / 288
    rows = np.sin(2 * np.pi * (day + random.random(7))) * random.uniform(0.5, 2, 7)
    rows += 0.4 * np.sin(4 * np.pi * (day + random.random(7)))
    return rows + 0.3 * slow(random, n, 7, 0.9) @ np.linalg.qr(random.normal(size=(7, 7)))[0]


def linear_plant(random: Random, n: int) -> Array:
    """Make a plant of fourteen states, in many units."""
    passing = random.normal(size=(14, 14))
    passing *= 0.9 / np.abs(np.linalg.eigvals(passing)).max()
    rows, noise = np.zeros((n, 14)), random.normal(size=(n, 14))
    for i in range(1, n):
        rows[i] = passing @ rows[i - 1] + noise[i]
    return rows * 10.0 ** random.uniform(-1, 2, 14) + 50.0


def counts(random: Random, n: int) -> Array:
    """Make counts whose rates wander."""
    rates = np.exp(0.5 * slow(random, n, 1, 0.97) + 0.3 * slow(random, n, 6, 0.8)) * random.uniform(1, 20, 6)
    return random.poisson(rates).astype(float)


def heavy(random: Random, n: int) -> Array:
    """Make sensors with heavy tails."""
    causes = lfilter([1], [1, -0.8], random.standard_t(3, size=(n, 3)), axis=0)
    return causes @ random.normal(size=(3, 8)) + 0.5 * random.standard_t(4, size=(n, 8))


ALL = ("level", "spread", "stuck", "frequency", "decorrelated", "dropout")
# What makes the rows, the faults, their sizes in standard deviations, their lengths, and their share of the rows.
MORE: dict[str, tuple[Any, tuple[str, ...], tuple[float, float], tuple[int, int], float]] = {
    "walks": (walks, ALL, (0.6, 1.5), (10, 300), 0.12),
    "white, spread": (white, ("spread", "calm"), (0.5, 1.0), (30, 300), 0.12),
    "white, level": (white, ("level",), (0.5, 1.2), (20, 300), 0.12),
    "white, spikes": (white, ("level",), (2.0, 4.0), (1, 4), 0.02),
    "oscillators": (oscillators, ("frequency", "level", "stuck", "spread"), (0.3, 1.0), (15, 200), 0.12),
    "oscillators, short": (oscillators, ("level", "stuck", "spread"), (0.8, 1.5), (3, 12), 0.05),
    "batches": (batches, ALL, (0.5, 1.5), (10, 200), 0.12),
    "seasons": (seasons, ("level", "stuck", "spread", "ramp", "decorrelated"), (0.5, 1.5), (10, 300), 0.12),
    "linear plant": (linear_plant, ("level", "spread", "stuck", "ramp", "decorrelated"), (0.5, 1.2), (20, 400), 0.2),
    "linear plant, short": (linear_plant, ("level", "spread"), (1.5, 3.0), (1, 8), 0.04),
    "counts": (counts, ("level", "spread", "dropout", "stuck", "calm"), (0.8, 2.0), (10, 300), 0.1),
    "heavy": (heavy, ("level", "spread", "decorrelated", "calm"), (0.8, 2.0), (10, 300), 0.1),
}


def spoil(random: Random, rows: Array, start: int, end: int, kind: str, size: float) -> None:
    """Put a fault into some columns."""
    n, d = rows.shape
    columns = random.choice(d, int(random.integers(1, max(2, d // 3) + 1)), replace=False)
    part, spread = rows[start:end, columns], rows[:1000, columns].std(axis=0)
    if kind == "level":
        part = part + size * spread * random.choice([-1.0, 1.0], len(columns))
    elif kind == "spread":
        part = part + size * spread * random.normal(size=part.shape)
    elif kind == "stuck":
        part = np.broadcast_to(part[:1], part.shape)
    elif kind == "frequency":
        times = np.minimum(start + np.arange(len(part)) * (1 + size), n - 1)
        part = np.column_stack([np.interp(times, np.arange(n), rows[:, j]) for j in columns])
    elif kind == "decorrelated":
        moved = [np.roll(rows[:, j], int(random.integers(300, 900)))[start:end] for j in columns]
        part = np.column_stack(moved)
    elif kind == "dropout":
        part = np.where(random.random(part.shape) < 0.3, rows[:1000, columns].min(axis=0), part)
    elif kind == "calm":
        part = part.mean(axis=0) + (1 - min(size, 0.9)) * (part - part.mean(axis=0))
    else:
        part = part + size * spread * np.linspace(0, 1, len(part))[:, None]
    rows[start:end, columns] = part


def more(name: str, seed: int, size: float = 1.0) -> Stream:
    """Make a stream of one of the twelve families."""
    make, kinds, sizes, lengths, share = MORE[name]
    random = np.random.default_rng([seed, *name.encode()])
    train, n = int(3000 * size), int(7000 * size)
    rows, labels = make(random, n), np.zeros(n, dtype=bool)
    for i, (start, end) in enumerate(placed(random, train, n, share, lengths)):
        spoil(random, rows, start, end, kinds[i % len(kinds)], random.uniform(*sizes))
        labels[start:end] = True
    return Stream(name, f"seed {seed}", rows[:train], rows[train:], labels[train:])


def smoothed(scores: Array) -> Array:
    """Weight scores exponentially, .3 new."""
    return lfilter([0.3], [1.0, -0.7], scores, zi=[0.7 * scores[0]])[0]


def monitor(**parameters: Any) -> Callable[[Array, Array], Array]:
    """Return a method that scores by a monitor."""

    def scores(train: Array, test: Array) -> Array:
        watching = Monitor(smoothing=0.3, **parameters)
        watching.update(train)
        return watching.update(test).smoothed

    return scores


def distances(rows: Array, n: int) -> Array:
    """Return the distance of rows to the fifth nearest of the first n, in units of these."""
    spread = rows[:n].std(axis=0)
    scaled = rows / np.where(spread > 0.0, spread, 1.0)
    return KDTree(scaled[:n]).query(scaled[n:], k=5)[0][:, -1]


def stacked(rows: Array, length: int) -> Array:
    """Return rows with those before, the first one standing for what came before it."""
    padded = np.concatenate([np.repeat(rows[:1], length - 1, axis=0), rows])
    return sliding_window_view(padded, length, axis=0)


def neighbour_of_lags(train: Array, test: Array) -> Array:
    """Score three rows by their fifth neighbour."""
    rows = np.concatenate([train, test])
    return smoothed(distances(stacked(rows, 3).reshape(len(rows), -1), len(train)))


def neighbour_of_windows(train: Array, test: Array) -> Array:
    """Score rows and windows by their fifth neighbours, on one scale."""
    rows, n = np.concatenate([train, test]), len(train) * 3 // 4
    views = [rows]
    for length in LENGTHS:
        windows = stacked(rows, length)
        views.append(np.hstack([windows.mean(axis=2), windows.std(axis=2), np.ptp(windows, axis=2)]))
    total = np.zeros(len(test))
    for view in views:
        held, found = np.split(distances(view, n), [len(train) - n])
        upper = np.quantile(held, 0.9)
        slope = max((held[held > upper] - upper).mean(), 1e-12)
        levels = np.linspace(0.0, 0.9, 19)
        usual = np.interp(found, np.quantile(held, levels), -np.log(1.0 - levels))
        total += np.where(found > upper, np.log(10.0) + (found - upper) / slope, usual)
    return smoothed(total / len(views))


METHODS: dict[str, Callable[[Array, Array], Array]] = {
    "rows": monitor(),
    BASE: monitor(lags=3),
    "windows": monitor(windows="auto"),
    OURS: monitor(lags=3, windows="auto"),
    "neighbour, 3 lags": neighbour_of_lags,
    "neighbour, windows": neighbour_of_windows,
}


def read(paths: list[Path], plant: Path | None) -> Iterator[Stream]:
    """Read streams from files."""
    for path in [file for given in paths for file in (sorted(given.glob("*.npz")) if given.is_dir() else [given])]:
        with np.load(path) as file:
            train, test = (np.asarray(file[name], dtype=np.float64) for name in ("train", "test"))
            labels = file["test_label"].ravel() != 0
        # The first anomalies are among these rows, and the latest rows of train are enough.
        first = 0 if labels[:8000].any() else max(int(labels.argmax()) - 2000, 0)
        part = slice(first, first + 8000)
        yield Stream(path.resolve().parent.name, path.stem, train[-8000:], test[part], labels[part])
    if plant is not None:
        with np.load(plant) as file:
            for name in sorted(set(file.files) - {"d00_te"}):
                if name.endswith("_te"):
                    yield Stream("plant", name[:3], file["d00"], file[name], np.arange(len(file[name])) >= 160)


def streams_of(arguments: argparse.Namespace) -> Iterator[Stream]:
    """Make and read the streams that were asked for."""
    size, seeds = (0.3, [0]) if arguments.tiny else (1.0, arguments.made)
    for seed in seeds:
        first, number = arguments.part
        kept = [name for name, family in FAMILIES.items() if family.ordered and not family.lasting]
        for name in ["white, level", "counts"] if arguments.tiny else [*MORE, *kept][first - 1 :: number]:
            yield more(name, seed, size) if name in MORE else made(name, seed)
    yield from read(arguments.paths, arguments.plant)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Compare context of several lengths with three lags.")
    parser.add_argument("paths", nargs="*", type=Path, help="npz files with train, test and test_label, or folders")
    parser.add_argument("--plant", type=Path, metavar="FILE", help="npz with d00, d01_te, d02_te ...")
    parser.add_argument(
        "--made", type=int, nargs="*", default=[], metavar="SEED", help="made streams of these seeds (1)"
    )
    parser.add_argument(
        "--part", type=int, nargs=2, default=[1, 1], metavar=("I", "N"), help="part I of N of the made families"
    )
    parser.add_argument("--tiny", action="store_true", help="two small made streams")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    if "--made" in sys.argv and not arguments.made:
        arguments.made = [1]
    if not (arguments.paths or arguments.made or arguments.tiny or arguments.plant):
        parser.error("name npz files with train, test and test_label, or folders of them, or try --made or --tiny")
    where = surroundings()
    families: dict[str, list[dict[str, tuple[float, float, float]]]] = {}
    with threads(1):
        for stream in streams_of(arguments):
            cells = {}
            for name, method in METHODS.items():
                started = time.process_time()
                scores = method(stream.train, stream.test)
                spent = (time.process_time() - started) / (len(stream.train) + len(stream.test))
                cells[name] = (average_precision(stream.labels, scores), vus_pr(stream.labels, scores), 1e6 * spent)
            families.setdefault(stream.family, []).append(cells)
            print(f"{stream.family} {stream.name}: {cells[BASE][0]:.3f} {cells[OURS][0]:.3f}", flush=True)
    means = {
        name: np.array([np.mean([cells[name] for cells in found], axis=0) for found in families.values()])
        for name in METHODS
    }
    print(f"\n{'AP / VUS-PR':22}" + "".join(f"{name:>20}" for name in METHODS))
    for i, family in enumerate(families):
        print(f"{family:22}" + "".join(f"{found[i, 0]:13.3f} /{found[i, 1]:5.3f}" for found in means.values()))
    ratios: dict[str, list[float]] = {}
    worst: dict[str, float] = {}
    for name, found in means.items():
        ratios[name] = (found.mean(axis=0) / means[BASE].mean(axis=0))[:2].tolist()
        worst[name] = float((found[:, 0] / means[BASE][:, 0]).min())
    print(f"{'of 3 lags':22}" + "".join(f"{ratio[0]:13.3f} /{ratio[1]:5.3f}" for ratio in ratios.values()))
    print(f"{'worst family, AP':22}" + "".join(f"{value:20.3f}" for value in worst.values()))
    print(f"{'us a row':22}" + "".join(f"{found[:, 2].mean():20.0f}" for found in means.values()))
    precision, volume = ratios[OURS]
    holds = precision >= 1.0 and volume >= 1.0
    print(f"\n{'HOLDS' if holds else 'FAILS'}: {OURS}: {precision:.3f} of the mean AP, {volume:.3f} of VUS-PR")
    table = {name: dict(zip(families, found.tolist(), strict=True)) for name, found in means.items()}
    write_figures(arguments.json, where, {"families": table, "ratios": ratios, "worst": worst, "holds": holds})
    return 0 if holds or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
