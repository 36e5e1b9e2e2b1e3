"""Claim: `Monitor(false_alarms=...)` keeps its promise, and finds .9 of what a threshold chosen afterwards finds.

Two parts, each on scores of one monitor a stream, so that only the rules for alarms differ.

* **Promise**: runs of alarms in healthy rows, of scores and of rows. Scores: squares of autoregressive columns with a
  memory of 0 to .99, seasons, heavy tails, mixtures and waves (`KINDS`). Rows: families of `made_streams` that do not
  change for good, and the training part of given files. A stream keeps the promise if it has no more runs than rows
  times the rate, or one.
* **Faults**: segments found in the test parts, beside the plain threshold at the level, known only afterwards, with as
  many false runs on the same stream.

Peers, all on the same scores: the **threshold** of the monitor; the textbook **e-detector**, a Shiryaev-Roberts sum
of e-values p^(-1/2) / 2 of single rows, their p-values from all healthy rows before; **SPOT**, peaks over the .98
quantile of the first rows with a generalised Pareto tail, updated by each later peak that is no alarm [1]_.

Run::

    python benchmarks/alarms_by_contract.py [FILE OR FOLDER ...]
    python benchmarks/alarms_by_contract.py --tiny

Files hold train, test and test_label, or d00, d00_te and d01_te to ... of a plant, whose faults begin at row 160.
The exit code is 0 if the contract is kept on 95% of the streams, and finds .9 of what that threshold finds.

.. [1] A. Siffer, P.-A. Fouque, A. Termier, C. Largouet, "Anomaly detection in streams with extreme value theory", KDD
   2017; its DSPOT subtracts a moving mean first.
"""

import argparse
import bisect
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import surroundings, threads, write_figures
from detection_metrics import segments
from made_streams import FAMILIES, Stream, healthy, made, slow
from scipy.stats import genpareto

from streamkpca.monitoring import Monitor
from streamkpca.monitoring.contract import Contract, judge_by_bound, renew_level

Array = np.ndarray
MEMORIES = (0.0, 0.5, 0.9, 0.97, 0.99)
SHAPES = ("season", "heavy", "heavy, slow", "mixture", "waves", "lognormal")
KINDS = (*(f"memory {memory:g}" for memory in MEMORIES), *SHAPES)
# Streams of the seeds below were at hand when the contract was made.
FIRST_SEED = 100
RATE, START, HEALTHY_ROWS, FAULT_AT = 1 / 1000, 250, 16_000, 160
RULES = ("contract", "threshold", "e-detector", "SPOT")


def made_scores(kind: str, n: int, seed: int) -> Array:
    """Return scores of healthy rows, in units of their .99 quantile."""
    random = np.random.default_rng([seed, *kind.encode()])
    if kind.startswith("memory"):
        scores = (slow(random, n, 4, float(kind.split()[1])) ** 2).sum(axis=1)
    elif kind == "season":
        scores = (slow(random, n, 4, 0.8) ** 2).sum(axis=1) * np.exp(np.sin(2.0 * np.pi * np.arange(n) / 288))
    elif kind == "heavy":
        scores = (random.standard_t(3.0, size=(n, 4)) ** 2).sum(axis=1)
    elif kind == "heavy, slow":
        scores = (random.standard_t(3.0, size=(n, 2)) ** 2).sum(axis=1) * np.exp(slow(random, n, 1)[:, 0])
    elif kind == "mixture":
        scores = (random.normal(size=(n, 6)) ** 2).sum(axis=1) * np.where(random.random(n) < 0.01, 4.0, 1.0)
    elif kind == "waves":
        turned = np.cumsum(2.0 * np.pi / 80.0 * (1.0 + 0.5 * slow(random, n, 1, 0.9)[:, 0]))
        scores = np.abs(np.sin(turned)) + 0.1 * np.abs(random.normal(size=n))
    else:
        scores = np.exp(1.5 * slow(random, n, 1, 0.9)[:, 0])
    return scores / np.quantile(scores, 0.99)


def contract(scores: Array, thresholds: Array, rate: float) -> Array:
    """Return the alarms of a contract, as the monitor raises them."""
    promise, alarms = Contract(rate), np.zeros(len(scores), dtype=bool)
    changes = np.flatnonzero(thresholds[1:] != thresholds[:-1]) + 1
    edges = sorted({*changes.tolist(), *range(0, len(scores), 256), len(scores)})
    for start, stop in itertools.pairwise(edges):
        promise, alarms[start:stop], _ = judge_by_bound(promise, scores[start:stop], float(thresholds[start]), False)
        promise = renew_level(promise)
    return alarms


def threshold(scores: Array, thresholds: Array, rate: float) -> Array:
    """Return the scores that reach the monitor's threshold."""
    return scores >= thresholds


def e_detector(scores: Array, thresholds: Array, rate: float) -> Array:
    """Return the alarms of a Shiryaev-Roberts sum of e-values of rows, which begins anew after each."""
    ratios = np.where(np.isfinite(thresholds), scores / thresholds, 0.0)
    alarms, before, total = np.zeros(len(ratios), dtype=bool), list[float](), 0.0
    for i, ratio in enumerate(ratios.tolist()):
        place = bisect.bisect_left(before, ratio)
        if i >= START:
            p = (1 + len(before) - place) / (1 + len(before))
            total = (1.0 + total) * 0.5 / math.sqrt(p)
            alarms[i] = total >= 1.0 / rate
            total = 0.0 if alarms[i] else total
        if not alarms[i]:
            before.insert(place, ratio)
    return alarms


def spot(scores: Array, thresholds: Array, rate: float) -> Array:
    """Return the alarms of peaks over a threshold with a generalised Pareto tail, which promises a rate of rows."""
    first = int(np.argmax(np.isfinite(thresholds))) + 4 * START
    usual = scores[first - 4 * START : first]
    base = float(np.quantile(usual, 0.98))
    peaks, n, alarms = (usual[usual > base] - base).tolist(), len(usual), np.zeros(len(scores), dtype=bool)
    level, fitted = math.inf, 0
    for i in range(first, len(scores)):
        if len(peaks) >= 1.1 * fitted:
            shape, _, scale = genpareto.fit(peaks, floc=0.0)
            fitted = len(peaks)
            level = base + float(genpareto.isf(min(rate * n / len(peaks), 1.0), shape, scale=scale))
        n += 1
        alarms[i] = scores[i] > level
        if not alarms[i] and scores[i] > base:
            peaks.append(float(scores[i] - base))
    return alarms


Rule = Callable[[Array, Array, float], Array]
ALARMS: dict[str, Rule] = {"contract": contract, "threshold": threshold, "e-detector": e_detector, "SPOT": spot}


def watched(*parts: Array, smoothing: float | None) -> tuple[Array, Array]:
    """Return the rarities and the thresholds of a monitor."""
    monitor = Monitor(smoothing=smoothing)
    records = [monitor.update(part) for part in parts]
    assert all(np.isfinite(record.rarity).all() for record in records)
    return tuple(np.concatenate([getattr(record, name) for record in records]) for name in ("rarity", "threshold"))


def given(paths: list[Path]) -> Iterator[Stream]:
    """Read files of streams, and plants."""
    files = [[path] if path.is_file() else path.rglob("*.npz") for path in paths]
    for path in sorted(itertools.chain.from_iterable(files)):
        arrays = np.load(path)
        if {"train", "test", "test_label"} <= set(arrays.files):
            # The latest rows of train, and the test from 2,000 rows before its first fault.
            labels = arrays["test_label"] != 0
            start = max(int(np.argmax(labels)) - 2000, 0)
            rows = slice(start, start + 8000)
            yield Stream(path.parent.name, path.stem, arrays["train"][-12_000:], arrays["test"][rows], labels[rows])
        elif "d00" in arrays.files:
            for name in sorted(set(arrays.files) - {"d00", "d00_te"}):
                if name.endswith("_te"):
                    labels = np.arange(len(arrays[name])) >= FAULT_AT
                    yield Stream("plant", name, arrays["d00"], arrays[name], labels)


def counted(labels: Array, alarms: Array) -> tuple[int, int]:
    """Return the runs of alarms that touch no fault, and the faults with an alarm."""
    false = sum(not labels[start:stop].any() for start, stop in segments(alarms))
    return false, sum(bool(alarms[start:stop].any()) for start, stop in segments(labels))


def found_by_level(labels: Array, ratios: Array, false: int) -> int:
    """Return the faults that the best level finds with at most so many false runs."""
    best = 0
    for level in np.unique(np.append(ratios[labels], 1.0))[::-1]:
        runs, found = counted(labels, ratios > level)
        if runs > false + 20:
            break
        best = max(best, found if runs <= false else 0)
    return best


def main() -> int:
    """Print how many streams keep the promise, and the faults found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE OR FOLDER", help="streams of your own")
    parser.add_argument("--seeds", type=int, default=4, help="streams of a kind (default 4)")
    parser.add_argument("--smoothing", type=float, help="of the monitor (default none)")
    parser.add_argument("--tiny", action="store_true", help="few and short streams, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    where = surroundings()
    seeds = range(FIRST_SEED, FIRST_SEED + (1 if arguments.tiny else arguments.seeds))
    n = 2000 if arguments.tiny else HEALTHY_ROWS
    kinds = ("memory 0.9", "heavy") if arguments.tiny else KINDS
    families = ("slow",) if arguments.tiny else tuple(FAMILIES)
    streams = list(given(arguments.paths))
    promise: dict[str, dict[str, list[float]]] = {}
    faults: dict[str, list[int]] = {}

    def judge(kind: str, scores: Array, thresholds: Array) -> None:
        """Count runs in healthy rows, relative to the promise."""
        allowed = max(np.count_nonzero(np.isfinite(thresholds)) * RATE, 1.0)
        for name, rule in ALARMS.items():
            runs = len(segments(rule(scores, thresholds, RATE)))
            promise.setdefault(kind, {}).setdefault(name, []).append(runs / allowed)

    with threads(1):
        for kind in kinds:
            for seed in seeds:
                scores = made_scores(kind, n, seed)
                judge(kind, scores, np.ones(n))
        for family in families:
            if family not in ("drift", "regime"):
                for seed in seeds:
                    judge(f"made {family}", *watched(healthy(family, seed, n), smoothing=arguments.smoothing))
            for seed in seeds:
                # The rows of train are healthy, as the promise assumes.
                stream = made(family, seed, size=0.5 if arguments.tiny else 1.0)
                train = made(family, seed, faults=False, size=0.5 if arguments.tiny else 1.0).train
                streams.append(Stream(stream.family, stream.name, train, stream.test, stream.labels))
        for stream in streams:
            scores, thresholds = watched(stream.train, stream.test, smoothing=arguments.smoothing)
            first = len(stream.train)
            if not stream.family.startswith("made") and len(stream.train) > 2000:
                judge(stream.family, scores[:first], thresholds[:first])
            false, found = counted(stream.labels, contract(scores, thresholds, RATE)[first:])
            same = found_by_level(stream.labels, (scores / thresholds)[first:], false)
            totals = faults.setdefault(stream.family, [0, 0, 0, 0, 0])
            for place, value in enumerate((false, np.sum(~stream.labels), found, same, len(segments(stream.labels)))):
                totals[place] += int(value)

    print(f"\nfalse alarm runs / promised, mean{'':8}" + "".join(f"{name:>12}" for name in RULES))
    for kind, of_kind in promise.items():
        print(f"{kind:40}" + "".join(f"{np.mean(of_kind[name]):12.2f}" for name in RULES))
    kept = {
        name: float(np.mean(np.concatenate([of_kind[name] for of_kind in promise.values()]) <= 1)) for name in RULES
    }
    print(f"{'streams that keep the promise':40}" + "".join(f"{kept[name]:12.2f}" for name in RULES))
    print(f"\n{'faults':24}{'false runs':>12}{'promised':>12}{'found':>12}{'threshold':>12}{'of':>12}")
    for family, (false, rows, found, same, of) in faults.items():
        print(f"{family:24}{false:12}{rows * RATE:12.1f}{found:12}{same:12}{of:12}")
    shares = [min(found / same, 1.0) for _, _, found, same, _ in faults.values() if same]
    share = float(np.mean(shares)) if shares else math.nan
    checks: dict[str, bool] = {
        f"kept on {kept['contract']:.2f} of the streams, at least .95 wanted": kept["contract"] >= 0.95,
        f"finds {share:.2f} of what the threshold finds, mean over families, at least .9 wanted": share >= 0.9,
    }
    for what, holds in checks.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    figures: dict[str, Any] = {"promise": promise, "kept": kept, "faults": faults, "share": share, "checks": checks}
    write_figures(arguments.json, where, figures)
    return 0 if all(checks.values()) or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
