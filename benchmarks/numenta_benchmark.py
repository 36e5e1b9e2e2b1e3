"""Does one threshold serve many different machines?

The Numenta Anomaly Benchmark [1]_: one column a file, one pass, the same settings and one threshold for all files.
Windows around labelled anomalies give points, more for early alarms; each row above the threshold outside of them costs
some. 0 is a detector without alarms, 100 a perfect one. The monitor's detections are the rows in which its events
begin. The scorer is our own. It repeats the scores of three detectors from their published results on the same files,
which are the other columns. "Once": a row counts only if none of the 200 rows before it was as rare; a monitor's events
begin so by themselves. The last rows say where the standard profile's missing points went.

.. [1] A. Lavin, S. Ahmad, "Evaluating real-time anomaly detection algorithms", arXiv 1510.03336.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import Array, Figures, find_files, make_table, run
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import ndtr

from streamkpca.monitoring import Monitor

# What a missed window, a false alarm and a found window weigh.
PROFILES = {"standard": (1.0, 0.11, 1.0), "few false alarms": (1.0, 0.22, 1.0), "few misses": (1.0, 0.11, 2.0)}
# The first rows of a file do not count.
PROBATION, MOST_PROBATION = 0.15, 750
N_FILES = {"whole": None, "quick": 10, "tiny": 2}
# Detectors whose published scores the files hold.
PUBLISHED = ("numenta", "randomCutForest")
# The rows by which the detector windowedGaussian looks back, and those after which its window moves.
WINDOW, STEP = 6400, 100
# The digits of the published scores. Rows that are equal to so many share one threshold: with 7 digits, which is what
# single precision keeps, windowedGaussian loses 13 points of its 47.
DIGITS = 12
# The rows that an event is told once in: half of a usual labelled window. 100 and 400 rows give 50 and 52 points.
ONCE = 200


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


def sweep(files: list[Scored], profile: str) -> tuple[float, float]:
    """Return a profile's best score, and the threshold for all files that gives it."""
    hit, false, miss = PROFILES[profile]
    offsets = np.cumsum([0, *(file.n_windows for file in files)])
    n_windows = int(offsets[-1])
    scores, worth = (np.concatenate([getattr(file, name) for file in files]) for name in ("scores", "worth"))
    window = np.concatenate(
        [np.where(file.window < 0, -1, file.window + offset) for file, offset in zip(files, offsets, strict=False)]
    )
    order = np.argsort(-scores, kind="stable")
    # A threshold lies below all rows of one score.
    ends = np.append(scores[order][1:] != scores[order][:-1], True)
    gains, best = np.empty(len(order)), np.full(n_windows, -np.inf)
    for place, row in enumerate(order):
        k = window[row]
        if k < 0:
            gains[place] = false * worth[row]
            continue
        value = hit * worth[row]
        gains[place] = value + miss if best[k] == -np.inf else max(value - best[k], 0.0)
        best[k] = max(best[k], value)
    sums = np.where(ends, np.cumsum(gains), -np.inf)
    most = int(np.argmax(sums))
    if sums[most] <= 0.0:
        return 0.0, np.inf
    return 100.0 * float(sums[most]) / (n_windows * (hit + miss)), float(scores[order[most]])


def score_corpus(files: list[Scored]) -> dict[str, float]:
    """Return the score of each profile at its best threshold for all files."""
    return {profile: sweep(files, profile)[0] for profile in PROFILES}


def count_losses(files: list[Scored]) -> dict[str, float]:
    """Return where the points that the standard profile lacks went, at its best threshold."""
    hit, false, miss = PROFILES["standard"]
    threshold = sweep(files, "standard")[1]
    n_windows = n_found = n_false = 0
    late = cost = 0.0
    for file in files:
        is_told = file.scores >= threshold
        firsts = [file.worth[is_told & (file.window == k)].max(initial=-np.inf) for k in range(file.n_windows)]
        found = [worth for worth in firsts if worth > -np.inf]
        wrong = file.worth[is_told & (file.window < 0)]
        n_windows, n_found, n_false = n_windows + file.n_windows, n_found + len(found), n_false + len(wrong)
        late, cost = late + hit * float(np.sum(1.0 - np.array(found))), cost - false * float(wrong.sum())
    unit = 100.0 / (n_windows * (hit + miss))
    n_missed = n_windows - n_found
    return {
        "windows missed": n_missed,
        "rows of false alarm": n_false,
        "points lost by missed windows": unit * (hit + miss) * n_missed,
        "points lost by late alarms": unit * late,
        "points lost by false alarms": unit * cost,
    }


def score_by_window(values: Array) -> Array:
    """Return the scores of NAB's detector windowedGaussian: how improbable a value is under the normal law of its past.

    The files hold its published scores in single precision alone, in which 1,039 rows are 1 where 12 digits leave 592.
    """
    mean, deviation = np.zeros(len(values)), np.ones(len(values))
    for row in range(1, len(values)):
        start = max((row - WINDOW) // STEP, 0) * STEP
        past = values[start : min(row, start + WINDOW)]
        mean[row], deviation[row] = past.mean(), past.std() or 1e-6
    scores = 1.0 - ndtr(-np.abs(values - mean) / deviation)
    scores[:1] = 0.0
    return np.round(scores, DIGITS)


def tell_once(scores: Array) -> Array:
    """Return scores without those that one of the rows just before them reaches."""
    before = sliding_window_view(np.concatenate([np.full(ONCE, -np.inf), scores[:-1]]), ONCE).max(axis=1)
    return np.where(scores > before, scores, -np.inf)


def score_events(values: Array) -> Array:
    """Return the rarities so far of rows in which a default monitor's events begin, and minus infinity elsewhere."""
    monitor = Monitor()
    record = monitor.update(values[:, None])
    scores = np.full(len(values), -np.inf)
    begins = [event.start for event in monitor.events_]
    scores[begins] = record.rarity_so_far[begins]
    return scores


def measure(size: str, data: Path | None) -> Figures:
    """Score a default monitor, and the published results."""
    each: dict[str, list[Scored]] = {}
    once: dict[str, list[Scored]] = {}
    paths = find_files(data, "nab")[: N_FILES[size]]
    for path in paths:
        with np.load(path) as file:
            given = {name: file[name] for name in file.files}
        values = given["value"]
        scores = {"Monitor": score_events(values)}
        scores |= {name: given[name] for name in PUBLISHED} | {"windowedGaussian": score_by_window(values)}
        for name, found in scores.items():
            each.setdefault(name, []).append(weigh(given["time"], given["windows"], found))
            told = found if name == "Monitor" else tell_once(found)
            once.setdefault(name, []).append(weigh(given["time"], given["windows"], told))
    if not paths:
        return {}
    return {
        "n_files": len(paths),
        "n_windows": sum(file.n_windows for file in each["Monitor"]),
        "scores": {name: score_corpus(files) for name, files in each.items()},
        "once": {name: score_corpus(files) for name, files in once.items()},
        "losses": {name: count_losses(files) for name, files in each.items()},
    }


def describe(figures: Figures) -> str:
    """Return the scores by profile, and where the points went."""
    names = list(figures["scores"])
    rows = [
        [f"{profile}{suffix}", *(f"{figures[key][name][profile]:.1f}" for name in names)]
        for key, suffix in (("scores", ""), ("once", ", once"))
        for profile in PROFILES
    ]
    rows += [[loss, *(figures["losses"][name][loss] for name in names)] for loss in figures["losses"][names[0]]]
    return make_table([f"{figures['n_files']} files, {figures['n_windows']} windows", *names], rows)


if __name__ == "__main__":
    run(measure, describe)
