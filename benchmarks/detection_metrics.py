"""What scores and alarms are worth: areas under curves, volume under a surface, delay, false alarms, segments."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def auroc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the area under the ROC curve: how often an anomalous row (label not 0) scores above a healthy one.

    Ties count half; NaN unless both kinds occur.

    >>> auroc([0, 0, 1, 1], [1.0, 2.0, 2.0, 3.0])
    0.875
    """
    anomalous = np.asarray(labels) != 0
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # Ties have the mean of their ranks.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n = int(anomalous.sum())
    n_pairs = n * (len(ranks) - n)
    return float((ranks[anomalous].sum() - n * (n + 1) / 2) / n_pairs) if n_pairs else float("nan")


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the mean precision over all anomalous rows (label not 0), each at the threshold that just finds it.

    Rows of equal score are found together; NaN without any.

    >>> average_precision([1, 0, 1], [3.0, 2.0, 1.0])
    0.8333333333333333
    """
    anomalous = np.asarray(labels) != 0
    _, level = np.unique(-np.asarray(scores, dtype=np.float64), return_inverse=True)
    hits, found = np.cumsum(np.bincount(level, weights=anomalous)), np.cumsum(np.bincount(level))
    return float(np.diff(hits, prepend=0.0) @ (hits / found) / hits[-1]) if anomalous.any() else float("nan")


def segments(labels: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return the runs of rows whose label is not 0, one [start, end) a line."""
    marked = np.asarray(labels) != 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return edges.reshape(-1, 2)


def vus_pr(labels: npt.ArrayLike, scores: npt.ArrayLike, *, window: int = 100, thresholds: int = 250) -> float:
    """Return the volume under the surface of precision over recall and buffer length; NaN without anomalous rows.

    Labels (n,), anomalous where not 0; scores (n,). `window` is the longest buffer, in rows; a buffer of w rows extends
    every anomalous segment by w // 2 rows on both sides, where the label falls as sqrt(1 - distance / w).

    Notes
    -----
    The mean over the buffers 0 .. window of the range-based average precision. Recall is the sum of the labels of the
    alarms, relative to the number of anomalous rows plus half of the sum that lies in buffers, times the share of
    segments that have an alarm; segments whose buffers touch count as one. The thresholds are evenly spaced ranks of
    the scores, as in the authors' code. O(n (log n + window)).

    References
    ----------
    Paparrizos, Boniol, Palpanas, Tsay, Elmore, Franklin, "Volume under the surface", PVLDB 15(11), 2022.
    """
    anomalous, values = np.asarray(labels) != 0, np.asarray(scores, dtype=np.float64)
    if anomalous.ndim != 1 or anomalous.shape != values.shape:
        raise ValueError(f"expected labels and scores of one length but got {anomalous.shape} and {values.shape}")
    if np.isnan(values).any():
        raise ValueError("expected scores that are not NaN")
    runs = segments(anomalous)
    if not len(runs):
        return float("nan")
    order = np.argsort(-values, kind="stable")
    falling = values[order]
    levels = falling[np.linspace(0, len(values) - 1, thresholds).astype(int)]
    alarms = np.searchsorted(-falling, -levels, side="right")
    hits = np.cumsum(anomalous[order])[alarms - 1]
    total = 0.0
    for buffer in range(window + 1):
        mass = np.cumsum(_extended(anomalous, runs, buffer)[order])[alarms - 1]
        peaks = np.sort(_peaks(values, runs, buffer // 2))
        found = 1.0 - np.searchsorted(peaks, levels, side="left") / len(peaks)
        recall = np.minimum(mass / (anomalous.sum() + (mass - hits) / 2), 1.0) * found
        total += float(np.diff(recall, prepend=0.0) @ (mass / alarms))
    return total / (window + 1)


def _extended(anomalous: npt.NDArray[np.bool_], runs: npt.NDArray[np.intp], buffer: int) -> Array:
    """Return labels that fall off over the buffers beside each run; where buffers overlap they add up, to 1 at most."""
    label = anomalous.astype(np.float64)
    slope = np.sqrt(1.0 - np.arange(1, buffer // 2 + 1) / max(buffer, 1))
    for start, end in runs:
        after = label[end : end + len(slope)]
        after += slope[: len(after)]
        before = label[max(start - len(slope), 0) : start]
        before += slope[: len(before)][::-1]
    return np.minimum(label, 1.0)


def _peaks(values: Array, runs: npt.NDArray[np.intp], margin: int) -> Array:
    """Return the highest score in each run with its margins; runs whose margins touch are one."""
    apart = runs[1:, 0] - margin > runs[:-1, 1] - 1 + margin
    starts = np.maximum(runs[np.concatenate([[True], apart]), 0] - margin, 0)
    ends = np.minimum(runs[np.concatenate([apart, [True]]), 1] + margin, len(values))
    return np.array([values[start:end].max() for start, end in zip(starts, ends, strict=True)])


@dataclass(frozen=True)
class Alarms:
    """What the alarms of a detector amount to.

    Parameters
    ----------
    delay : float
        Rows from the start of an anomalous segment to its first alarm, mean over segments; a segment without alarm
        counts with its length, so that silence does not look quick.
    covered : float
        Share of the anomalous segments with an alarm.
    false_rows : float
        Share of the healthy rows that are alarms.
    false_events : float
        Runs of alarms that touch no anomalous row, for each healthy row.
    """

    delay: float
    covered: float
    false_rows: float
    false_events: float


def judge_alarms(labels: npt.ArrayLike, is_alarm: npt.ArrayLike) -> Alarms:
    """Compare alarms with labels, both (n,); figures about rows that do not occur are NaN."""
    anomalous, alarmed = np.asarray(labels) != 0, np.asarray(is_alarm) != 0
    runs, nan = segments(anomalous), float("nan")
    delays, found = [], []
    for start, end in runs:
        first = np.flatnonzero(alarmed[start:end])
        delays.append(first[0] if len(first) else end - start)
        found.append(bool(len(first)))
    healthy = int((~anomalous).sum())
    false_events = sum(not anomalous[start:end].any() for start, end in segments(alarmed))
    return Alarms(
        float(np.mean(delays)) if delays else nan,
        float(np.mean(found)) if found else nan,
        float(alarmed[~anomalous].mean()) if healthy else nan,
        false_events / healthy if healthy else nan,
    )
