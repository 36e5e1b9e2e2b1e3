"""Does `Monitor(false_alarms=1/1000)` keep its promise, and does it still find faults?

Runs of alarms in healthy rows, for each that the rate promises: in scores (squares of autoregressive columns with a
memory of 0 to 0.99, seasons, heavy tails, mixtures, waves) and in the training rows of real streams. Then the faults
found in real streams, beside the **best threshold**: the level, known only afterwards, with as many false runs.

Peers on the same scores: the plain **threshold** of the monitor; the textbook **e-detector**, a Shiryaev-Roberts sum of
e-values of single rows; **SPOT**, peaks over the 0.98 quantile with a generalised Pareto tail [1]_.

.. [1] A. Siffer et al., "Anomaly detection in streams with extreme value theory", KDD 2017.
"""

import bisect
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Array, Figures, draw_slow, make_table, run
from detection_metrics import segments
from real_streams import read_families
from scipy.stats import genpareto

from streamkpca.monitoring import Monitor
from streamkpca.monitoring.bound import FalseAlarmBound, judge_by_bound, renew_ratio

MEMORIES = (0.0, 0.5, 0.9, 0.97, 0.99)
SHAPES = ("season", "heavy", "heavy, slow", "mixture", "waves", "lognormal")
KINDS = (*(f"memory {memory:g}" for memory in MEMORIES), *SHAPES)
# The bound, and the rows before a p-value counts.
RATE, START = 1 / 1000, 250


def make_scores(kind: str, n: int, seed: int) -> Array:
    """Return scores of healthy rows, in units of their .99 quantile."""
    random = np.random.default_rng([seed, *kind.encode()])
    if kind.startswith("memory"):
        scores = (draw_slow(random, n, 4, float(kind.split()[1])) ** 2).sum(axis=1)
    elif kind == "season":
        scores = (draw_slow(random, n, 4, 0.8) ** 2).sum(axis=1) * np.exp(np.sin(2.0 * np.pi * np.arange(n) / 288))
    elif kind == "heavy":
        scores = (random.standard_t(3.0, size=(n, 4)) ** 2).sum(axis=1)
    elif kind == "heavy, slow":
        scores = (random.standard_t(3.0, size=(n, 2)) ** 2).sum(axis=1) * np.exp(draw_slow(random, n, 1)[:, 0])
    elif kind == "mixture":
        scores = (random.normal(size=(n, 6)) ** 2).sum(axis=1) * np.where(random.random(n) < 0.01, 4.0, 1.0)
    elif kind == "waves":
        turned = np.cumsum(2.0 * np.pi / 80.0 * (1.0 + 0.5 * draw_slow(random, n, 1, 0.9)[:, 0]))
        scores = np.abs(np.sin(turned)) + 0.1 * np.abs(random.normal(size=n))
    else:
        scores = np.exp(1.5 * draw_slow(random, n, 1, 0.9)[:, 0])
    return scores / np.quantile(scores, 0.99)


def raise_bounded(scores: Array, thresholds: Array, rate: float) -> Array:
    """Return the alarms of a bound, as the monitor raises them."""
    bound, alarms = FalseAlarmBound(rate), np.zeros(len(scores), dtype=bool)
    changes = np.flatnonzero(thresholds[1:] != thresholds[:-1]) + 1
    edges = sorted({*changes.tolist(), *range(0, len(scores), 256), len(scores)})
    for start, stop in itertools.pairwise(edges):
        bound, alarms[start:stop], _ = judge_by_bound(bound, scores[start:stop], float(thresholds[start]), False)
        bound = renew_ratio(bound)
    return alarms


def pass_threshold(scores: Array, thresholds: Array, rate: float) -> Array:
    """Return the scores that reach the monitor's threshold."""
    return scores >= thresholds


def sum_evidence(scores: Array, thresholds: Array, rate: float) -> Array:
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


def pass_tail(scores: Array, thresholds: Array, rate: float) -> Array:
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
ALARMS: dict[str, Rule] = {
    "false_alarms": raise_bounded,
    "threshold": pass_threshold,
    "e-detector": sum_evidence,
    "SPOT": pass_tail,
}


def watch(*parts: Array) -> tuple[Array, Array]:
    """Return the rarities and the thresholds of a monitor."""
    monitor = Monitor()
    records = [monitor.update(part) for part in parts]
    rarity, threshold = (
        np.concatenate([getattr(record, name) for record in records]) for name in ("rarity", "threshold")
    )
    return rarity, threshold


def count_runs(labels: Array, alarms: Array) -> tuple[int, int]:
    """Return the runs of alarms that touch no fault, and the faults with an alarm."""
    false = sum(not labels[start:stop].any() for start, stop in segments(alarms))
    return false, sum(bool(alarms[start:stop].any()) for start, stop in segments(labels))


def find_by_level(labels: Array, ratios: Array, false: int) -> int:
    """Return the faults that the best level finds with at most so many false runs."""
    best = 0
    for level in np.unique(np.append(ratios[labels], 1.0))[::-1]:
        runs, found = count_runs(labels, ratios > level)
        if runs > false + 20:
            break
        best = max(best, found if runs <= false else 0)
    return best


# Kinds of scores, rows and seeds of each, and the families of real streams.
AMOUNTS = {
    "whole": (KINDS, 16_000, 4, ("asd", "smd", "tep", "batadal", "jumpstarter2")),
    "quick": (KINDS, 8000, 1, ("asd", "tep")),
    "tiny": (("memory 0.9", "heavy"), 2000, 1, ("asd",)),
}


def measure(size: str, data: Path | None) -> Figures:
    """Count false runs and faults."""
    kinds, n, n_seeds, families = AMOUNTS[size]
    bound: dict[str, dict[str, list[float]]] = {}
    faults: dict[str, list[int]] = {}

    def judge(kind: str, scores: Array, thresholds: Array) -> None:
        allowed = max(np.count_nonzero(np.isfinite(thresholds)) * RATE, 1.0)
        for name, rule in ALARMS.items():
            runs = len(segments(rule(scores, thresholds, RATE)))
            bound.setdefault(kind, {}).setdefault(name, []).append(runs / allowed)

    for kind, seed in itertools.product(kinds, range(n_seeds)):
        judge(kind, make_scores(kind, n, seed), np.ones(n))
    streams = read_families(data, size)
    for family in families:
        for stream in streams.get(family, ()):
            scores, thresholds = watch(stream.train, stream.test)
            first = len(stream.train)
            if first > 2000:
                judge(family, scores[:first], thresholds[:first])
            false, found = count_runs(stream.labels, raise_bounded(scores, thresholds, RATE)[first:])
            best = find_by_level(stream.labels, (scores / thresholds)[first:], false)
            counts = (false, int(np.sum(~stream.labels)), found, best, len(segments(stream.labels)))
            faults[family] = [a + b for a, b in zip(faults.get(family, [0] * len(counts)), counts, strict=True)]
    kept = {name: float(np.mean(np.concatenate([of[name] for of in bound.values()]) <= 1.0)) for name in ALARMS}
    means = {kind: {name: float(np.mean(of[name])) for name in ALARMS} for kind, of in bound.items()}
    return {"means": means, "kept": kept, "faults": faults}


def describe(figures: Figures) -> str:
    """Return false runs for each promised, and faults."""
    rows = [[kind, *(f"{value:.2f}" for value in of.values())] for kind, of in figures["means"].items()]
    rows.append(["streams that keep the bound", *(f"{value:.2f}" for value in figures["kept"].values())])
    table = make_table(["false runs for each promised", *ALARMS], rows)
    if not figures["faults"]:
        return table
    lines = [
        [family, false, f"{n * RATE:.1f}", found, best, of]
        for family, (false, n, found, best, of) in figures["faults"].items()
    ]
    return f"{table}\n\n{make_table(['faults', 'false runs', 'promised', 'found', 'best threshold', 'of'], lines)}"


if __name__ == "__main__":
    run(measure, describe)
