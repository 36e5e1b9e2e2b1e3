"""Kernels of the distance between two rows, and the rules that find a width from rows."""

import math
import sys
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_choice, check_real
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.contrast import contrast, least_change, swapped
from streamkpca.kernels.program import Base, ProgramBuilder
from streamkpca.kernels.registry import register
from streamkpca.kernels.views import FeatureView

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

    Weights (n,) are more than 0, and a whole number counts as that many copies of the row.

    Notes
    -----
    "spread": the sum over features of their variances, or standard deviations: half the mean squared distance of two
    rows. "scale": d var, or d std, over all entries, as in scikit-learn's ``gamma="scale"``; features around different
    values make it larger than distances are. "median": over pairs of at most 512 rows, evenly spaced, equal pairs left
    out [1]_. O(n d) for the first two and O(512^2 d) for the last.

    References
    ----------
    .. [1] Garreau, Jitkrittum, Kanagawa (2017), "Large sample analysis of the median heuristic"; there over all pairs.
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
            return self._replaced(self._width, float(widths[least_change(contrasts, n_held_out)]))
        distance = typical_distance(X, rule, squared=self._squared, weights=weights)
        return self._replaced(self._width, float(self._wider(distance, np.ones(1))[0]))

    def _width_scores(self, X: Array, weights: Array | None) -> dict[str, Array]:
        if "contrast" not in self._rules:
            return {}
        widths, contrasts, _ = self._compared(X, weights)
        return {self._width: np.column_stack([widths, contrasts])}

    def _compared(self, X: Array, weights: Array | None) -> tuple[Array, Array, int]:
        """Return widths (g,) from the usual one on, their contrasts (g,), and the number of held-out rows."""
        widths = self._wider(typical_distance(X, "spread", squared=self._squared, weights=weights), _FACTORS)
        swaps = swapped(X, weights)
        kernels = (self._replaced(self._width, float(width)) for width in widths)
        return widths, np.array([contrast(kernel.program, swaps) for kernel in kernels]), len(swaps.held_out)

    def _wider(self, distance: float, factors: Array) -> Array:
        """Return the widths (g,) that belong to a typical distance, squared or not, and to multiples of it."""
        distances = np.clip(distance * (factors**2 if self._squared else factors), _SMALLEST, _LARGEST)
        return 1.0 / distances if self._width == "gamma" else np.sqrt(distances)


# exp(-t) is 0 long before this t; an infinite t would give infinity times 0.
_FAR = 1e3
# Up to this alpha, a whole power costs less than a logarithm and an exponential.
_LARGEST_WHOLE_ALPHA = 16


@register("rbf")
@dataclass(frozen=True)
class RBF(WidthKernel):
    """``exp(-gamma |x - y|^2)``, the Gaussian kernel.

    Parameters
    ----------
    gamma : float, "contrast", "spread", "scale" or "median"
        Greater than 0, or a rule that computes it from rows: "contrast" compares 1 / (the sum of the features'
        variances) with smaller values, see Notes; "spread" is that number; "scale" is 1 / (d var) with the variance of
        all entries; "median" is 1 / median of the squared distances.

    Notes
    -----
    "contrast" needs no labels. Half of the rows are held out, and copied with one number of each replaced by that of
    another row. Of seven widths, from that of "spread" to one 32 times larger, the smallest is taken whose novelty
    tells the copies from the rows nearly as well as the best does: by .9 of its area under the ROC curve above 1/2.
    `width_scores` shows the areas. With fewer than 32 rows, or where no width is better, the rule is "spread".

    References
    ----------
    Garreau, Jitkrittum, Kanagawa (2017), "Large sample analysis of the median heuristic". Swaps of single numbers as
    unlabelled contrast: T. Hastie, R. Tibshirani, J. Friedman (2009), "The Elements of Statistical Learning", section
    14.2.4, where all columns are permuted.

    Examples
    --------
    >>> RBF(0.5).matrix([[0.0]], [[0.0], [2.0]]).round(3)
    array([[1.   , 0.135]])
    """

    gamma: float | str = "contrast"

    _stationary = True

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.SQUARED, view)
        builder.affine(-float(self.gamma), 0.0)
        builder.apply(loops.EXP)


@register("laplacian")
@dataclass(frozen=True)
class Laplacian(WidthKernel):
    """``exp(-gamma |x - y|_1)``, with the L1 distance.

    Parameters
    ----------
    gamma : float, "contrast", "spread", "scale" or "median"
        Greater than 0, or a rule as in `RBF`, with standard deviations and L1 distances for variances and squares.

    Examples
    --------
    >>> Laplacian(0.5).matrix([[0.0, 0.0]], [[1.0, 1.0]]).round(3)
    array([[0.368]])
    """

    gamma: float | str = "contrast"

    _stationary = True
    _squared = False

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.ABSOLUTE, view)
        builder.affine(-float(self.gamma), 0.0)
        builder.apply(loops.EXP)


@register("matern")
@dataclass(frozen=True)
class Matern(WidthKernel):
    """The Matern kernel, of smoothness 1/2, 3/2 or 5/2.

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5}
        Smoothness.
    length_scale : float, "contrast", "spread", "scale" or "median"
        Greater than 0, or a rule: the root of the squared distance that `RBF` takes one over.

    Notes
    -----
    With ``t = sqrt(2 nu) |x - y| / length_scale``: exp(-t), (1 + t) exp(-t), (1 + t + t^2/3) exp(-t).

    References
    ----------
    Rasmussen, Williams (2006), "Gaussian Processes for Machine Learning", equations (4.16) and (4.17).

    Examples
    --------
    >>> Matern(0.5, length_scale=2.0).matrix([[0.0]], [[2.0]]).round(3)
    array([[0.368]])
    """

    nu: float = 1.5
    _: KW_ONLY
    length_scale: float | str = "contrast"

    _width = "length_scale"
    _stationary = True

    def _check(self) -> None:
        super()._check()
        self._set("nu", check_real("nu", self.nu, where="Matern"))
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"Matern: nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; RBF is the limit of large nu")

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.SQUARED, view)
        builder.apply(loops.SQRT)
        builder.affine(_finite(math.sqrt(2.0 * self.nu) / float(self.length_scale)), 0.0)
        if self.nu > 0.5:
            builder.minimum(_FAR)
            builder.copy()
            if self.nu > 1.5:
                builder.copy()
                builder.affine(1.0 / 3.0, 1.0)
                builder.combine(loops.MULTIPLY)
            builder.affine(1.0, 1.0)
            builder.apply(loops.SWAP)
        builder.affine(-1.0, 0.0)
        builder.apply(loops.EXP)
        if self.nu > 0.5:
            builder.combine(loops.MULTIPLY)


@register("rational_quadratic")
@dataclass(frozen=True)
class RationalQuadratic(WidthKernel):
    """``(1 + |x - y|^2 / (2 alpha length_scale^2))^-alpha``, a mixture of Gaussian kernels of many widths.

    Parameters
    ----------
    alpha : float
        Greater than 0; for large alpha the kernel is RBF.
    length_scale : float, "contrast", "spread", "scale" or "median"
        Greater than 0, or a rule: the root of the squared distance that `RBF` takes one over.

    References
    ----------
    Rasmussen, Williams (2006), "Gaussian Processes for Machine Learning", equation (4.19).

    Examples
    --------
    >>> RationalQuadratic(length_scale=1.0).matrix([[0.0]], [[2.0]]).round(3)
    array([[0.333]])
    """

    alpha: float = 1.0
    _: KW_ONLY
    length_scale: float | str = "contrast"

    _width = "length_scale"
    _stationary = True

    def _check(self) -> None:
        super()._check()
        self._set("alpha", check_real("alpha", self.alpha, least=0.0, open_below=True, where="RationalQuadratic"))

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        length = float(self.length_scale)
        factor = _finite(0.5 / self.alpha / length / length)
        builder.load(Base.SQUARED, view)
        if self.alpha.is_integer() and self.alpha <= _LARGEST_WHOLE_ALPHA:
            builder.affine(factor, 1.0)
            builder.power(-int(self.alpha))
        else:
            builder.affine(factor, 0.0)
            builder.apply(loops.LOG1P)
            builder.affine(-self.alpha, 0.0)
            builder.apply(loops.EXP)


def _finite(number: float) -> float:
    """Keep a constant finite, because infinity times a distance of 0 would be NaN."""
    return min(number, sys.float_info.max)
