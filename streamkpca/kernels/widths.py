"""Widths of kernels: the rules that find them from rows, and the contrast, by which one of these compares widths."""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg.lapack import dpstrf

from streamkpca._core.arrays import Array, Indices
from streamkpca._core.linalg import apply_inverse, inverse_factor, one_blas_thread, squared_norms
from streamkpca._core.parameters import check_choice, check_real
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.program import Program

RULES = ("contrast", "spread")
# How many times wider one step is than the last: 3.2 in gamma.
_STEP = 10.0**0.25
# The steps that "contrast" compares, from "spread" to 32 times wider. Narrower kernels leave rows with nothing near
# them, and are no better where the contrast is measured.
_STEPS = np.arange(7.0)
_NUMBERS_AT_ONCE = 2**18
# The least number whose reciprocal, and products with it, stay finite.
_SMALLEST = 1e-300
# The largest number whose reciprocal, and products with it, stay finite.
_LARGEST = 1e300


def typical_distance(X: Array, *, squared: bool, weights: Array | None = None) -> float:
    """Sum the variances of the features of rows (n, d), or their standard deviations; 1 if all rows agree.

    It is half the mean squared distance of two rows, positive and finite. Weights (n,) are more than 0, and a whole
    number counts as that many copies of the row.
    """
    with np.errstate(all="ignore"):
        distance = _sum_of_variances(X, squared, weights)
    if not np.isfinite(distance):
        raise ValueError(
            'kernel: the distances between these rows overflow, so that "spread" finds no scale; scale the features '
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
        distance = typical_distance(X, squared=self._squared, weights=weights)
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


# Rows that the contrast is measured on. With twice as many, the width that resulted was the same within one step of the
# grid, on 24 streams of eight kinds.
_MOST_ROWS = 1024
# Rows that span the known part; twice as many gave the same widths too.
_MOST_KNOWN = 128
# Copies of each held-out row.
_COPIES = 2
# Share of the best contrast, beyond chance, that is nearly the best.
_NEARLY = 0.9
# Standard errors of a contrast that are allowed for chance.
_CHANCE = 0.5**0.5
# Standard errors of a contrast that are beyond chance.
_BEYOND_CHANCE = 3.0
# With fewer held-out rows, contrasts are mostly chance.
_LEAST_HELD_OUT = 16
_RANK_TOLERANCE = 1e-11
# Smaller shares outside the span are rounding, which must not decide, and count as none.
_ROUNDING = 1e-12


class PermutedRows(NamedTuple):
    """Known rows (k, d), held-out rows (h, d) of weights (h,), copies (s, d), and the rows (s,) they are copies of."""

    known: Array
    held_out: Array
    weights: Array
    copies: Array
    of: Indices


def permute_features(X: Array, weights: Array | None) -> PermutedRows:
    """Hold out half of some rows (n, d), and copy each held-out row with one number replaced by that of another.

    Every other quarter is known, as neighbours in time resemble each other.
    """
    chosen = np.linspace(0, len(X) - 1, min(len(X), _MOST_ROWS)).astype(np.intp)
    is_known, rows = 4 * chosen // len(X) % 2 == 0, X[chosen]
    known, held_out = rows[is_known], rows[~is_known]
    n_known = min(len(known), _MOST_KNOWN)
    known = known[np.linspace(0, len(known) - 1, n_known).astype(np.intp)]
    row_weights = np.ones(len(held_out)) if weights is None else weights[chosen][~is_known]
    varying = np.flatnonzero(held_out.min(axis=0) < held_out.max(axis=0)) if len(held_out) else np.empty(0, np.intp)
    if len(held_out) < _LEAST_HELD_OUT or not len(varying):
        return PermutedRows(known, held_out, row_weights, held_out[:0], np.empty(0, dtype=np.intp))
    random = np.random.default_rng(0)
    of = np.tile(np.arange(len(held_out)), _COPIES)
    columns, donors = random.choice(varying, len(of)), random.integers(len(held_out), size=len(of))
    copies = held_out[of]
    copies[np.arange(len(of)), columns] = held_out[donors, columns]
    differs = (copies != held_out[of]).any(axis=1)
    return PermutedRows(known, held_out, row_weights, copies[differs], of[differs])


def contrast(program: Program, permuted: PermutedRows) -> float:
    """Return how well copies are told from held-out rows: 0.5 where the kernel sees no difference, 1 where all are.

    It is the area under the ROC curve: the probability that a copy is more novel than a row. Among equal ones, a copy
    is in the middle. Novelty is the share of a row's energy outside the span of the known rows.
    """
    if not len(permuted.copies):
        return 0.5
    with one_blas_thread(), np.errstate(all="ignore"):
        gram = program.gram(permuted.known)
        factor, pivots, rank, _ = dpstrf(gram, lower=1, tol=_RANK_TOLERANCE * float(np.max(np.diagonal(gram))))
        inverse = inverse_factor(np.ascontiguousarray(np.tril(factor[:rank, :rank])))
        known = permuted.known[pivots[:rank] - 1]
        usual, odd = (_log_share(program, inverse, known, rows) for rows in (permuted.held_out, permuted.copies))
    order = np.argsort(usual)
    # A copy is more novel than all rows of which a larger share is explained.
    total = np.concatenate([[0.0], np.cumsum(permuted.weights[order])])
    explained = usual[order]
    more, as_many = (np.searchsorted(explained, odd, side=side) for side in ("right", "left"))
    taken = 0.5 * (total[more] + total[as_many]) / total[-1]
    return float(np.average(1.0 - taken, weights=permuted.weights[permuted.of]))


def least_change(contrasts: Array, n_held_out: int) -> float:
    """Return after how many steps, from the usual kernel on, the contrast is nearly the best.

    It then exceeds chance by nine tenths of what the best does, up to chance. Between two steps the best contrast so
    far changes evenly: whole steps hung on single rows, and average precision on one stream was 0.46 to 0.70 as its
    first rows were dropped. Where even the best is within three standard errors of chance, the usual kernel stays.
    """
    # Areas of h rows and 2 h copies that are like them have a variance of (1 / 12) (1 / h + 1 / (2 h)).
    error = np.sqrt(0.125 / max(n_held_out, 1))
    # Areas below one half are chance: no kernel takes copies for rows and rows for copies.
    excess = np.maximum(contrasts - 0.5, 0.0)
    if float(excess.max()) < _BEYOND_CHANCE * error:
        return 0.0
    least = _NEARLY * float(excess.max()) - _CHANCE * error
    return float(np.interp(least, np.maximum.accumulate(excess), np.arange(len(excess))))


def _log_share(program: Program, inverse: Array, known: Array, rows: Array) -> Array:
    """Return the logarithm of the share of each row's energy inside the span of the known rows."""
    values = program.matrix(rows, known)
    # Far away, squares of kernel values would underflow.
    largest = np.abs(values).max(axis=1, initial=np.finfo(float).tiny)
    inside = squared_norms(apply_inverse(inverse, values / largest[:, None]))
    shares: Array = np.log(inside) + 2.0 * np.log(largest) - np.log(program.diagonal(rows))
    return np.where(shares > -_ROUNDING, 0.0, shares)
