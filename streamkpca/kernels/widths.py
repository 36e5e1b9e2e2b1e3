"""Widths of kernels: the rules that find them from rows, and the contrast by which "contrast" compares several.

The contrast tells how well a kernel distinguishes rows from copies of them in which one number is another row's.
"""

from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpstrf

from streamkpca._core.linalg import one_blas_thread, solve_factor, squared_norms
from streamkpca._core.parameters import check_choice, check_real
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.program import Program

Array = npt.NDArray[np.float64]

RULES = ("contrast", "spread", "scale", "median")
# How many times wider than "spread" are the widths that "contrast" compares: 1 to 32, in steps of a factor of 3.2 in
# gamma. Narrower ones leave rows with nothing near them, and are no better where the contrast is measured.
_FACTORS = 10.0 ** (np.arange(7) / 4.0)
_NUMBERS_AT_ONCE = 2**18
_MEDIAN_ROWS = 512
# Reciprocals of these numbers and products with them stay finite.
_SMALLEST, _LARGEST = 1e-300, 1e300


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


class WidthKernel(Kernel):
    """Base of the kernels whose width is a number or a rule that finds it from rows.

    `_width` names the parameter: a length, or gamma, which is one over the distance or, if `_squared`, its square.
    """

    _width: ClassVar[str] = "gamma"
    _rules: ClassVar[tuple[str, ...]] = RULES
    _squared: ClassVar[bool] = True

    def _check(self) -> None:
        value, where = getattr(self, self._width), type(self).__name__
        if isinstance(value, str):
            check_choice(self._width, value, choices=self._rules, where=where)
        else:
            self._set(self._width, check_real(self._width, value, least=0.0, open_below=True, where=where))

    def _settle(self, X: Array, weights: Array | None) -> Self:
        rule = getattr(self, self._width)
        if not isinstance(rule, str):
            return self
        if rule == "contrast":
            widths, contrasts, n_held_out = self._compared(X, weights)
            return self.with_parameter(self._width, float(widths[least_change(contrasts, n_held_out)]))
        distance = typical_distance(X, rule, squared=self._squared, weights=weights)
        return self.with_parameter(self._width, float(self._wider(distance, np.ones(1))[0]))

    def _width_scores(self, X: Array, weights: Array | None) -> dict[str, Array]:
        if "contrast" not in self._rules:
            return {}
        widths, contrasts, _ = self._compared(X, weights)
        return {self._width: np.column_stack([widths, contrasts])}

    def _compared(self, X: Array, weights: Array | None) -> tuple[Array, Array, int]:
        """Return widths (g,) from the usual one on, their contrasts (g,), and the number of held-out rows."""
        widths = self._wider(typical_distance(X, "spread", squared=self._squared, weights=weights), _FACTORS)
        swaps = swapped(X, weights)
        kernels = (self.with_parameter(self._width, float(width)) for width in widths)
        return widths, np.array([contrast(kernel.program, swaps) for kernel in kernels]), len(swaps.held_out)

    def _wider(self, distance: float, factors: Array) -> Array:
        """Return the widths (g,) that belong to a typical distance, squared or not, and to multiples of it."""
        distances = np.clip(distance * (factors**2 if self._squared else factors), _SMALLEST, _LARGEST)
        return 1.0 / distances if self._width == "gamma" else np.sqrt(distances)


# Rows that the contrast is measured on, and those of them that span the known part. With twice as many of either, the
# width that resulted was the same within one step of the grid, on 24 streams of eight kinds.
_MOST_ROWS, _MOST_KNOWN = 1024, 128
# Neighbours in time resemble each other, so held-out rows come in runs of this length.
_RUN = 16
_COPIES = 2
# Share of the best contrast that a width must keep, and its allowance for chance in units of one over the root of the
# number of held-out rows.
_KEPT, _CHANCE = 0.9, 0.25
# Three standard errors of a contrast in the same units: ((1 + 1 / 2) / 12)^1/2 for twice as many copies.
_BEYOND_CHANCE = 3.0 * np.sqrt(0.125)
# With fewer held-out rows, contrasts are mostly chance.
_LEAST_HELD_OUT = 16
_RANK_TOLERANCE = 1e-11
# Smaller shares outside the span are rounding, which must not decide, and count as none.
_ROUNDING = 1e-12


class Swaps(NamedTuple):
    """Known rows (k, d), held-out rows (h, d) of weights (h,), copies (s, d), and the rows (s,) they are copies of."""

    known: Array
    held_out: Array
    weights: Array
    copies: Array
    of: npt.NDArray[np.intp]


def swapped(X: Array, weights: Array | None) -> Swaps:
    """Hold out half of some rows (n, d), and copy each held-out row with one number replaced by that of another."""
    chosen = np.linspace(0, len(X) - 1, min(len(X), _MOST_ROWS)).astype(np.intp)
    is_known = np.arange(len(chosen)) // _RUN % 2 == 0
    rows = X[chosen]
    known, held_out = rows[is_known], rows[~is_known]
    n_known = min(len(known), _MOST_KNOWN)
    known = known[np.linspace(0, len(known) - 1, n_known).astype(np.intp)]
    row_weights = np.ones(len(held_out)) if weights is None else weights[chosen][~is_known]
    varying = np.flatnonzero(held_out.min(axis=0) < held_out.max(axis=0)) if len(held_out) else np.empty(0, np.intp)
    if len(held_out) < _LEAST_HELD_OUT or not len(varying):
        return Swaps(known, held_out, row_weights, held_out[:0], np.empty(0, dtype=np.intp))
    random = np.random.default_rng(0)
    of = np.tile(np.arange(len(held_out)), _COPIES)
    columns, donors = random.choice(varying, len(of)), random.integers(len(held_out), size=len(of))
    copies = held_out[of]
    copies[np.arange(len(of)), columns] = held_out[donors, columns]
    differs = (copies != held_out[of]).any(axis=1)
    return Swaps(known, held_out, row_weights, copies[differs], of[differs])


def contrast(program: Program, swaps: Swaps) -> float:
    """Return the probability that a copy is more novel than a held-out row: .5 where the kernel sees no difference.

    Novelty is the share of a row's energy outside the span of the known rows.
    """
    if not len(swaps.copies):
        return 0.5
    with one_blas_thread(), np.errstate(all="ignore"):
        gram = program.gram(swaps.known)
        factor, pivots, rank, _ = dpstrf(gram, lower=1, tol=_RANK_TOLERANCE * float(np.max(np.diagonal(gram))))
        factor = np.ascontiguousarray(np.tril(factor[:rank, :rank]))
        known = swaps.known[pivots[:rank] - 1]
        usual, odd = (_log_share(program, factor, known, rows) for rows in (swaps.held_out, swaps.copies))
    order = np.argsort(usual)
    # A copy is more novel than all rows of which a larger share is explained.
    total = np.concatenate([[0.0], np.cumsum(swaps.weights[order])])
    explained = usual[order]
    more, as_many = (np.searchsorted(explained, odd, side=side) for side in ("right", "left"))
    above = total[-1] - 0.5 * (total[more] + total[as_many])
    return float(np.average(above, weights=swaps.weights[swaps.of]) / total[-1])


def least_change(contrasts: Array, n_held_out: int) -> int:
    """Return the first of several widths, from the usual one on, whose contrast is nearly the best.

    It exceeds chance by at least .9 as much as the best, up to chance. Where even the best is within three standard
    errors of chance, the usual width stays.
    """
    # Areas below one half are chance: no kernel takes copies for rows and rows for copies.
    excess = np.maximum(contrasts - 0.5, 0.0)
    if float(excess.max()) * np.sqrt(n_held_out) < _BEYOND_CHANCE:
        return 0
    wanted = _KEPT * float(excess.max()) - _CHANCE / np.sqrt(max(n_held_out, 1))
    return int(np.argmax(excess >= wanted))


def _log_share(program: Program, factor: Array, known: Array, rows: Array) -> Array:
    """Return the logarithm of the share of each row's energy inside the span of the known rows."""
    values = program.matrix(rows, known)
    # Far away, squares of kernel values would underflow.
    largest = np.abs(values).max(axis=1, initial=np.finfo(float).tiny)
    inside = squared_norms(solve_factor(factor, values / largest[:, None]))
    shares: Array = np.log(inside) + 2.0 * np.log(largest) - np.log(program.diagonal(rows))
    return np.where(shares > -_ROUNDING, 0.0, shares)
