"""Does one threshold serve many different machines?

The Numenta Anomaly Benchmark [1]_: one column a file, one pass, the same settings and one threshold for all files.
Windows around labelled anomalies give points, more for early alarms; alarms outside cost some. 0 is a detector without
alarms, 100 a perfect one. The scorer is our own; from the published results of two detectors on the same files, which
are the other columns, it repeats their scores.

.. [1] A. Lavin, S. Ahmad, "Evaluating real-time anomaly detection algorithms", arXiv 1510.03336.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import Array, Figures, find_files, make_table, run

from streamkpca.monitoring import Monitor

# What a missed window, a false alarm and a found window weigh.
PROFILES = {"standard": (1.0, 0.11, 1.0), "few false alarms": (1.0, 0.22, 1.0), "few misses": (1.0, 0.11, 2.0)}
# The first rows of a file do not count.
PROBATION, MOST_PROBATION = 0.15, 750
N_FILES = {"whole": None, "quick": 10, "tiny": 2}
DETECTORS = ("numenta", "randomCutForest")


class Scored(NamedTuple):
    """The rows of a file that count: scores, the window of each (-1 outside), and what an alarm there is worth."""

    scores: Array
    window: Array
    worth: Array
    n_windows: int


def fall(position: Array) -> Array:
    """Return NAB's scaled sigmoid of a position relative to a window's end: 1 at its start, -1 far behind it."""
    return np.where(position > 3.0, -1.0, 2.0 / (1.0 + np.exp(5.0 * np.minimum(position, 50.0))) - 1.0)


def weigh(time: Array, windows: Array, scores: Array) -> Scored:
    """Return what an alarm at each row is worth."""
    n, first = len(time), min(int(PROBATION * len(time)), MOST_PROBATION)
    window, worth = np.full(n, -1), np.full(n, -1.0)
    spans = [np.flatnonzero((time >= start) & (time <= end))[[0, -1]] for start, end in windows]
    for k, (left, right) in enumerate(spans):
        width = right - left + 1
        window[left : right + 1] = k
        worth[left : right + 1] = fall(-(right - np.arange(left, right + 1) + 1) / width) / fall(np.float64(-1.0))
        behind = np.arange(right + 1, spans[k + 1][0] if k + 1 < len(spans) else n)
        worth[behind] = fall((behind - right) / max(width - 1, 1))
    return Scored(scores[first:], window[first:], worth[first:], len(spans))


def score_corpus(files: list[Scored]) -> dict[str, float]:
    """Return the score of each profile at its best threshold for all files."""
    offsets = np.cumsum([0, *(file.n_windows for file in files)])
    n_windows = int(offsets[-1])
    scores, worth = (np.concatenate([getattr(file, name) for file in files]) for name in ("scores", "worth"))
    window = np.concatenate(
        [np.where(file.window < 0, -1, file.window + offset) for file, offset in zip(files, offsets, strict=False)]
    )
    order = np.argsort(-scores, kind="stable")
    # A threshold lies below all rows of one score.
    ends = np.append(scores[order][1:] != scores[order][:-1], True)
    found = {}
    for name, (hit, false, miss) in PROFILES.items():
        gains, best = np.empty(len(order)), np.full(n_windows, -np.inf)
        for place, row in enumerate(order):
            k = window[row]
            if k < 0:
                gains[place] = false * worth[row]
                continue
            value = hit * worth[row]
            gains[place] = value + miss if best[k] == -np.inf else max(value - best[k], 0.0)
            best[k] = max(best[k], value)
        most = max(float(np.cumsum(gains)[ends].max()), 0.0)
        found[name] = 100.0 * most / (n_windows * (hit + miss))
    return found


def measure(size: str, data: Path | None) -> Figures:
    """Score a default monitor, and the published results."""
    files: dict[str, list[Scored]] = {name: [] for name in ("Monitor", *DETECTORS)}
    for path in find_files(data, "nab")[: N_FILES[size]]:
        with np.load(path) as file:
            given = {name: file[name] for name in file.files}
        scores = {"Monitor": Monitor().update(given["value"][:, None]).rarity} | {
            name: given[name] for name in DETECTORS
        }
        for name, values in scores.items():
            files[name].append(weigh(given["time"], given["windows"], values))
    if not files["Monitor"]:
        return {}
    return {"n_files": len(files["Monitor"]), "scores": {name: score_corpus(scored) for name, scored in files.items()}}


def describe(figures: Figures) -> str:
    """Return the scores by profile."""
    names = list(figures["scores"])
    rows = [[profile, *(f"{figures['scores'][name][profile]:.1f}" for name in names)] for profile in PROFILES]
    return make_table([f"{figures['n_files']} files", *names], rows)


if __name__ == "__main__":
    run(measure, describe)
