"""Widths of kernels: the rules that find them from rows."""

from typing import Any, ClassVar, Self

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.parameters import check_choice, check_real
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.contrast import contrast, least_change, permute_features

RULES = ("contrast", "spread", "scale", "median")
# How many times wider one step is than the last: 3.2 in gamma.
_STEP = 10.0**0.25
# The steps that "contrast" compares, from "spread" to 32 times wider. Narrower kernels leave rows with nothing near
# them, and are no better where the contrast is measured.
_STEPS = np.arange(7.0)
_NUMBERS_AT_ONCE = 2**18
_MEDIAN_ROWS = 512
# The least number whose reciprocal, and products with it, stay finite.
_SMALLEST = 1e-300
# The largest number whose reciprocal, and products with it, stay finite.
_LARGEST = 1e300


def typical_distance(X: Array, rule: str, *, squared: bool, weights: Array | None = None) -> float:
    """Measure how far apart rows (n, d) typically are, in squared or L1 distances: positive and finite, 1 if all agree.

    Weights (n,) are more than 0, and a whole number counts as that many copies of the row. "spread" is the sum over
    features of their variances, or standard deviations; "scale" is d var, or d std, over all entries, as in
    scikit-learn; "median" is over pairs of at most 512 rows, evenly spaced, without equal pairs.
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
    varies = X.min(axis=0) < X.max(axis=0)
    variances = np.zeros(X.shape[1])
    # Some features at a time, as several copies of all would take as many times the memory of the rows.
    step = max(_NUMBERS_AT_ONCE // len(X), 1)
    for start in range(0, len(variances), step):
        part = X[:, start : start + step]
        deviations = part - np.average(part, axis=0, weights=weights)
        variances[start : start + step] = np.average(deviations**2, axis=0, weights=weights)
    variances = variances[varies]
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
    kind = loops.SQUARED if squared else loops.ABSOLUTE
    loops.compare_directly(kind, rows, np.ascontiguousarray(rows.T), distances, 0, 0)
    pairs = np.tril_indices(len(rows), -1)
    apart = distances[pairs] > 0.0
    if not apart.any():
        return 0.0
    lengths, counts = distances[pairs][apart], np.ones(len(rows)) if weights is None else weights[chosen]
    multiplicities = (counts[pairs[0]] * counts[pairs[1]])[apart]
    order = np.argsort(lengths)
    below = np.cumsum(multiplicities[order] / multiplicities.sum())
    # Half of the pairs may end exactly at a length, up to rounding; then the median is half-way to the next.
    first, last = np.searchsorted(below, [0.5 - 1e-12, 0.5 + 1e-12]).clip(max=len(lengths) - 1)
    return float(lengths[order[[first, last]]].mean())


_MEASURES = {"spread": _sum_of_variances, "scale": _variance_of_entries, "median": _median_of_pairs}


class WidthKernel(Kernel):
    """Base of the kernels whose width is a number or a rule that finds it from rows.

    `_width` names the parameter: a length, or gamma, which is one over the distance or, if `_squared`, its square.
    """

    _width: ClassVar[str] = "gamma"
    _rules: ClassVar[tuple[str, ...]] = RULES
    _squared: ClassVar[bool] = True

    def _check(self) -> None:
        value = getattr(self, self._width)
        if isinstance(value, str):
            check_choice(self._width, value, choices=self._rules)
        else:
            self._set(self._width, check_real(self._width, value, least=0.0, open_below=True))

    def _settle(self, X: Array, weights: Array | None) -> Self:
        rule = getattr(self, self._width)
        if not isinstance(rule, str):
            return self
        distance = typical_distance(X, "spread" if rule == "contrast" else rule, squared=self._squared, weights=weights)
        step = least_change(*self._compare_widths(distance, X, weights)) if rule == "contrast" else 0.0
        return self.with_parameter(self._width, float(self._wider(distance, step)))

    def _compare_widths(self, distance: float, X: Array, weights: Array | None) -> tuple[Array, int]:
        """Return the contrasts (g,) of widths, from that of a typical distance on, and the number of held-out rows."""
        swaps, widths = permute_features(X, weights), self._wider(distance, _STEPS)
        kernels = (self.with_parameter(self._width, float(width)) for width in widths)
        return np.array([contrast(kernel.program, swaps) for kernel in kernels]), len(swaps.held_out)

    def _wider(self, distance: float, steps: Any) -> Any:
        """Return the widths that belong to a typical distance, squared or not, and some steps wider."""
        distances = np.clip(distance * _STEP ** (2.0 * steps if self._squared else steps), _SMALLEST, _LARGEST)
        return 1.0 / distances if self._width == "gamma" else np.sqrt(distances)
