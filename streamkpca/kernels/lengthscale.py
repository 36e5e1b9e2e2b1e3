"""How far apart rows typically are: the rules behind "spread", "scale" and "median"."""

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.validation import check_choice, check_real
from streamkpca.kernels import _loops as loops

Array = npt.NDArray[np.float64]

RULES = ("spread", "scale", "median")
_MEDIAN_ROWS = 512
# Reciprocals of these numbers and products with them stay finite.
_SMALLEST, _LARGEST = 1e-300, 1e300


def checked_width(name: str, value: Any, *, rules: Collection[str], where: str) -> float | str:
    """Check a kernel's width: a positive number, or one of the rules that find one."""
    if isinstance(value, str):
        return check_choice(name, value, choices=rules, where=where)
    return check_real(name, value, least=0.0, open_below=True, where=where)


def settled_gamma(gamma: float | str, X: Array, weights: Array | None, *, squared: bool = True) -> float:
    """Return gamma, or what its rule finds: one over the typical squared or L1 distance of the rows."""
    return 1.0 / typical_distance(X, gamma, squared=squared, weights=weights) if isinstance(gamma, str) else gamma


def settled_length(length: float | str, X: Array, weights: Array | None) -> float:
    """Return a length scale, or what its rule finds: the root of the typical squared distance of the rows."""
    if not isinstance(length, str):
        return length
    return float(np.sqrt(typical_distance(X, length, squared=True, weights=weights)))


def typical_distance(X: Array, rule: str, *, squared: bool, weights: Array | None = None) -> float:
    """Measure how far apart rows (n, d) typically are, in squared or L1 distances.

    The result is positive and finite; it is 1 where all entries ("scale") or rows are equal. Weights (n,) are more than
    0, and a whole number counts as that many copies of the row.

    Notes
    -----
    "spread": the sum over features of their variances, or standard deviations: half the mean squared distance of two
    rows, wherever the features' origins are. "scale": d var, or d std, with the variance over all entries of X;
    ``1 / (d var)`` is scikit-learn's ``gamma="scale"``. It is never smaller than "spread", and the same where all
    features have one mean; features around different values make it larger than distances are. "median": over pairs
    of at most 512 rows, evenly spaced, equal pairs left out. O(n d) for the first two and O(512^2 d) for the last.

    References
    ----------
    Garreau, Jitkrittum, Kanagawa (2017), "Large sample analysis of the median heuristic". There the median
    is over all pairs, here over those of some rows.

    Examples
    --------
    >>> typical_distance(np.array([[0.0, 9.0], [4.0, 9.0]]), "spread", squared=True)
    4.0
    >>> typical_distance(np.array([[0.0], [4.0]]), "scale", squared=True)
    4.0
    >>> typical_distance(np.array([[0.0], [4.0]]), "median", squared=True)
    16.0
    """
    with np.errstate(all="ignore"):
        distance = _MEASURES[rule](X, squared, weights)
    if not np.isfinite(distance):
        raise ValueError(
            f'kernel: the distances between these rows overflow, so that "{rule}" finds no scale; scale the features '
            "down, or give the kernel's width as a number"
        )
    return 1.0 if distance == 0.0 else min(max(distance, _SMALLEST), _LARGEST)


def _sum_of_variances(X: Array, squared: bool, weights: Array | None) -> float:
    # The computed mean of equal entries may be off in the last place; their variance would then not be 0.
    varying = X[:, X.min(axis=0) < X.max(axis=0)]
    if not varying.shape[1]:
        return 0.0
    variances = np.average((varying - np.average(varying, axis=0, weights=weights)) ** 2, axis=0, weights=weights)
    return float((variances if squared else np.sqrt(variances)).sum())


def _variance_of_entries(X: Array, squared: bool, weights: Array | None) -> float:
    if X.min() == X.max():
        return 0.0
    if weights is None:
        variance = X.var()
    else:
        mean = np.average(X.mean(axis=1), weights=weights)
        variance = np.average(((X - mean) ** 2).mean(axis=1), weights=weights)
    return float(X.shape[1] * (variance if squared else np.sqrt(variance)))


def _median_of_pairs(X: Array, squared: bool, weights: Array | None) -> float:
    chosen = np.linspace(0, len(X) - 1, min(len(X), _MEDIAN_ROWS)).astype(np.intp)
    rows = np.ascontiguousarray(X[chosen])
    distances = np.empty((len(rows), len(rows)))
    loops.direct_distances(rows, np.ascontiguousarray(rows.T), squared, distances, 0, 0)
    pairs = np.tril_indices(len(rows), -1)
    apart = distances[pairs] > 0.0
    if not apart.any():
        return 0.0
    lengths = distances[pairs][apart]
    if weights is None:
        return float(np.median(lengths))
    return _weighted_median(lengths, (weights[chosen[pairs[0]]] * weights[chosen[pairs[1]]])[apart])


def _weighted_median(values: Array, weights: Array) -> float:
    """Return the median of values with multiplicities; where it lies between two of them, their mean."""
    order = np.argsort(values)
    below = np.cumsum(weights[order] / weights.sum())
    # Half of the weight may end exactly at a value, up to rounding.
    first, last = np.searchsorted(below, [0.5 - 1e-12, 0.5 + 1e-12]).clip(max=len(values) - 1)
    return float(values[order[[first, last]]].mean())


_MEASURES = {"spread": _sum_of_variances, "scale": _variance_of_entries, "median": _median_of_pairs}
