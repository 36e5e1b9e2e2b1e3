"""How well a novelty score finds labelled anomalies."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def auroc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Measure how often an anomalous row scores above a healthy one.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Anything but zero is anomalous.
    scores : array-like of shape (n,)
        The higher, the more novel; none may be NaN.

    Returns
    -------
    float
        Area under the ROC curve: 1 is perfect, 0.5 is chance. NaN without both kinds of rows.

    Notes
    -----
    The share of (anomalous, healthy) pairs that the score puts in order, ties counting half. O(n log n).

    Examples
    --------
    >>> auroc([0, 0, 1, 1], [1.0, 2.0, 2.0, 3.0])
    0.875
    """
    thresholds_hit, thresholds_false = _counts(labels, scores)
    hits, falses = thresholds_hit[-1], thresholds_false[-1]
    if hits == 0 or falses == 0:
        return float("nan")
    steps = np.diff(thresholds_false, prepend=0.0)
    heights = thresholds_hit - np.diff(thresholds_hit, prepend=0.0) / 2
    return float(steps @ heights / (hits * falses))


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Measure the mean precision over all anomalous rows, each at the threshold that just finds it.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Anything but zero is anomalous.
    scores : array-like of shape (n,)
        The higher, the more novel; none may be NaN.

    Returns
    -------
    float
        1 is perfect, the share of anomalous rows is chance. NaN without an anomalous row.

    Notes
    -----
    sum_t (recall_t - recall_{t-1}) precision_t over the distinct scores t, from the highest down: rows of
    equal score are found together. O(n log n).

    Examples
    --------
    >>> average_precision([1, 0, 1], [3.0, 2.0, 1.0])
    0.8333333333333333
    """
    hits, falses = _counts(labels, scores)
    if hits[-1] == 0:
        return float("nan")
    return float(np.diff(hits, prepend=0.0) @ (hits / (hits + falses)) / hits[-1])


def _counts(labels: npt.ArrayLike, scores: npt.ArrayLike) -> tuple[Array, Array]:
    """Count anomalous and healthy rows at or above each distinct score, from the highest down."""
    anomalous, values = np.asarray(labels) != 0, np.asarray(scores, dtype=np.float64)
    if anomalous.ndim != 1 or anomalous.shape != values.shape or not len(values):
        raise ValueError(
            "expected one label and one score for each row but got shapes "
            f"{anomalous.shape} and {values.shape}; pass two vectors of the same length"
        )
    if np.isnan(values).any():
        raise ValueError("scores hold NaN, which has no place in an order; leave rows without a score out")
    order = np.argsort(-values, kind="stable")
    last = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
    hits = np.cumsum(anomalous[order])[last].astype(np.float64)
    return hits, last + 1 - hits
