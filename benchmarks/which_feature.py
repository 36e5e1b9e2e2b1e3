"""Claim: the causes of an event are the sensors that failed, with the values that they should have had.

Made streams of 4 to 16 sensors, 2,000 healthy rows and 40 of an event in which one sensor or two are stuck, drift, are
noisy or are off: **ring** (sines of one angle at many spacings), **curve** (sines of several frequencies, some bent),
**arc** (powers and exponentials of a load), **sheet** (two hidden numbers), **linear** (two to four hidden numbers in
time, mixed), **modes** (five states), **apart** (independent sensors). Files with train, test and test_label, with the
labelled features of their events in ``interpretation_label`` beside them, are judged by the features alone.

A default model of a Monitor learns the healthy rows; features are ranked over all rows of an event, by

* **causes**: `Event.features`, by how surprising they are, alone and given the others;
* **z-scores**: mean deviation from the mean of the healthy rows, in standard deviations of at least .01 of the range;
* **left out**: how much less novel rows are without a feature, by `impute`.

Columns: share of events in which the feature ranked first failed (first); share of the features that failed among as
many that are ranked highest (hit); for causes, share of failed sensors whose expected value is within two standard
deviations of the noise of the true one, in the median row (value), and of healthy values within the range (range).

Run::

    python benchmarks/which_feature.py [FILE OR FOLDER ...]
    python benchmarks/which_feature.py --tiny

The exit code is 0 if on rings and curves causes are first in 95% and values right in 95%, and if on each kind causes
hit at least as many as z-scores do.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import surroundings, threads, write_figures

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF

Array = np.ndarray
KINDS = ("ring", "curve", "arc", "sheet", "linear", "modes", "apart")
FAULTS = ("stuck", "drift", "noisy", "off")
HEALTHY, EVENT, MOST_ROWS = 2000, 40, 32


class Case(NamedTuple):
    """Rows of an event, the positions of the features that failed and, of made ones, true values and noise."""

    rows: Array
    failed: list[int]
    truth: Array | None = None
    noise: float = 0.0


def sensors(kind: str, n: int, d: int, rng: np.random.Generator) -> Array:
    """Return rows (n, d) without noise."""
    walk = np.cumsum(rng.normal(0.1, 0.15, n))
    if kind == "ring":
        return np.sin(walk[:, None] + rng.choice([0.2, 0.5, 1.0, 1.3, 2.0, 2.0 * np.pi / d]) * np.arange(d))
    if kind == "curve":
        rows = np.sin(rng.choice([1, 1, 2, 3], d) * walk[:, None] + rng.uniform(0.0, 2.0 * np.pi, d))
        return np.where(np.arange(d) % 3 == 0, np.tanh(2.0 * rows), rows)
    if kind == "arc":
        load = 1.0 / (1.0 + np.exp(-np.convolve(rng.normal(size=n + 19), np.full(20, 0.25), "valid")))[:, None]
        power = rng.uniform(0.3, 3.0, d)
        return 2.0 * np.where(np.arange(d) % 2, load**power, np.exp(-power * load))
    if kind == "sheet":
        other = np.cumsum(rng.normal(0.0, 0.2, n))
        mixed = np.column_stack([np.sin(walk), np.sin(other)]) @ rng.normal(size=(2, d))
        return np.sin(mixed + rng.uniform(0.0, 2.0 * np.pi, d))
    if kind == "linear":
        hidden = rng.normal(size=(n, rng.integers(2, min(d - 1, 5))))
        for i in range(1, n):
            hidden[i] = 0.9 * hidden[i - 1] + 0.436 * hidden[i]
        return hidden @ rng.normal(size=(hidden.shape[1], d))
    if kind == "modes":
        states = 2.0 * rng.normal(size=(5, d))[rng.permutation(np.arange(n) // 25 % 5)]
        return states + 0.3 * rng.normal(size=(n, 1)) * rng.normal(size=d)
    return rng.normal(size=(n, d)) * rng.uniform(0.5, 3.0, d)


def made(kind: str, seed: int) -> tuple[Array, Case]:
    """Return healthy rows, and an event in which sensors fail."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    d, noise = int(rng.choice([4, 5, 6, 8, 12, 16])), float(rng.choice([0.02, 0.05, 0.1]))
    truth = sensors(kind, HEALTHY + EVENT, d, rng)
    rows = truth + noise * rng.normal(size=truth.shape)
    spread, event = rows[:HEALTHY].std(axis=0), rows[HEALTHY:].copy()
    failed = rng.choice(d, 2 if d >= 6 and rng.random() < 0.5 else 1, replace=False).tolist()
    # What is independent of all others can only fail by values that it never has.
    fault, size = rng.choice(FAULTS), 3.0 if kind == "apart" else 1.0
    for j in failed:
        sign = rng.choice([-1.0, 1.0])
        off = {
            "stuck": (4.0 * spread[j] if kind == "apart" else rows[HEALTHY - 1, j]) - event[:, j],
            "drift": sign * np.linspace(0.0, 3.0, EVENT) * spread[j] * size,
            "noisy": rng.normal(size=EVENT) * spread[j] * size,
            "off": np.full(EVENT, 1.5 * sign * spread[j] * size),
        }[fault]
        event[:, j] += off
    noise = noise if kind != "apart" else float(spread[failed].mean())
    return rows[:HEALTHY], Case(event, failed, truth[HEALTHY:], noise)


def labelled(path: Path) -> tuple[Array, list[Case]]:
    """Return the train rows of a file, and its labelled events."""
    with np.load(path) as file:
        train, test, labels = (
            np.ascontiguousarray(file[name], dtype=float) for name in ("train", "test", "test_label")
        )
    cases = []
    for line in (path.parent / "interpretation_label" / f"{path.stem}.txt").read_text().split():
        ends, features = line.split(":")
        first, last = map(int, ends.split("-"))
        rows = test[first : last + int(labels[last])]
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int)
        cases.append(Case(rows[chosen], [int(j) - 1 for j in features.split(",")]))
    return train, cases


def by_surprise(model: StreamingKernelPCA, healthy: Array, rows: Array) -> Array:
    """Return how surprising each feature is, as a monitor's causes have it."""
    expectation = model.snapshot_.expectation
    return expectation.surprise(rows, 1).mean(axis=0)


def by_z_scores(model: StreamingKernelPCA, healthy: Array, rows: Array) -> Array:
    """Return the mean deviation of each feature."""
    scale = np.maximum(healthy.std(axis=0), 0.01 * np.ptp(healthy, axis=0))
    scale = np.where(scale > 0.0, scale, np.median(scale[scale > 0.0]))
    return np.abs((rows - healthy.mean(axis=0)) / scale).mean(axis=0)


def by_leaving_out(model: StreamingKernelPCA, healthy: Array, rows: Array) -> Array:
    """Return how much less novel rows are without each feature."""
    rows, left = rows[:: -(-len(rows) // 8)], []
    for j in range(rows.shape[1]):
        gappy = rows.copy()
        gappy[:, j] = np.nan
        left.append(model.novelty(model.impute(gappy)).mean())
    return -np.array(left)


RANKINGS: dict[str, Callable[[StreamingKernelPCA, Array, Array], Array]] = {
    "causes": by_surprise,
    "z-scores": by_z_scores,
    "left out": by_leaving_out,
}


def judged(model: StreamingKernelPCA, healthy: Array, case: Case) -> dict[str, tuple[float, ...]]:
    """Return the figures of each ranking for one event."""
    found: dict[str, tuple[float, ...]] = {}
    for name, rank in RANKINGS.items():
        order = np.argsort(-rank(model, healthy, case.rows), kind="stable").tolist()
        n = len(case.failed)
        found[name] = float(order[0] in case.failed), len(set(order[:n]) & set(case.failed)) / n
    if case.truth is not None:
        expectation = model.snapshot_.expectation
        expected, spread = expectation.given(case.rows, np.array(case.failed))
        error = np.abs(expected - case.truth[:, case.failed])
        found["causes"] += (
            float((np.median(error, axis=0) <= 2.0 * case.noise).mean()),
            float((error <= 2.0 * spread).mean()),
        )
    return found


def families(paths: list[Path], seeds: int) -> Iterator[tuple[str, Array, list[Case]]]:
    """Yield kind, healthy rows and events."""
    for kind in KINDS:
        for seed in range(seeds):
            healthy, case = made(kind, seed)
            yield kind, healthy, [case]
    for path in paths:
        for file in sorted(path.glob("*.npz")) if path.is_dir() else [path]:
            yield path.stem if path.is_dir() else path.parent.stem, *labelled(file)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Which feature failed.")
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="made streams of each kind")
    parser.add_argument("--tiny", action="store_true", help="one made stream of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    where = surroundings()
    figures: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    with threads(1):
        for kind, healthy, cases in families(arguments.paths, 1 if arguments.tiny else arguments.seeds):
            model = StreamingKernelPCA(kernel=RBF().in_units("std"), max_atoms=128, noise_variance=None)
            model.partial_fit(healthy).refit()
            for case in cases:
                for name, found in judged(model, healthy, case).items():
                    figures.setdefault(kind, {}).setdefault(name, []).append(found)
    means: dict[str, dict[str, Any]] = {
        kind: {name: [float(value) for value in np.mean(found, axis=0)] for name, found in of_kind.items()}
        for kind, of_kind in figures.items()
    }
    print(f"\n{'first / hit':10}" + "".join(f"{name:>16}" for name in RANKINGS) + f"{'value / range':>16}")
    for kind, of_kind in means.items():
        cells = [f"{of_kind[name][0]:.2f} / {of_kind[name][1]:.2f}" for name in RANKINGS]
        if len(of_kind["causes"]) > 2:
            cells.append(f"{of_kind['causes'][2]:.2f} / {of_kind['causes'][3]:.2f}")
        print(f"{kind:10}" + "".join(f"{cell:>16}" for cell in cells))
    checks = {
        f"{kind}: {what} in {means[kind]['causes'][place]:.2f}, at least .95 wanted": means[kind]["causes"][place]
        >= 0.95
        for kind in ("ring", "curve")
        for what, place in (("the right sensor first", 0), ("the right value", 2))
    }
    for kind, of_kind in means.items():
        least = of_kind["z-scores"][1]
        checks[f"{kind}: causes hit {of_kind['causes'][1]:.2f}, at least {least:.2f} wanted"] = (
            of_kind["causes"][1] >= least
        )
    for what, holds in checks.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    write_figures(arguments.json, where, {"means": means, "checks": checks})
    return 0 if all(checks.values()) or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
