"""Kernels of the distance between two rows."""

import math
import sys
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

from streamkpca._core.validation import check_real
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.lengthscale import RULES, checked_width, settled_gamma, settled_length
from streamkpca.kernels.pairwise import Array, Base, FeatureView
from streamkpca.kernels.program import ProgramBuilder
from streamkpca.kernels.registry import register

# exp(-t) is 0 long before this t; an infinite t would give infinity times 0.
_FAR = 1e3
# Up to this alpha, a whole power costs less than a logarithm and an exponential.
_LARGEST_WHOLE_ALPHA = 16


@register("rbf")
@dataclass(frozen=True)
class RBF(Kernel):
    """exp(-gamma |x - y|^2), the Gaussian kernel.

    Parameters
    ----------
    gamma : float, "spread", "scale" or "median"
        Greater than 0, or a rule that computes it from the first rows: 1 / (the sum of the features' variances),
        1 / (d var) with the variance of all entries, or 1 / median of the squared distances.

    Raises
    ------
    TypeError, ValueError
        `gamma` is neither a positive number nor a rule.

    References
    ----------
    Garreau, Jitkrittum, Kanagawa (2017), "Large sample analysis of the median heuristic".

    Examples
    --------
    >>> RBF(0.5).matrix([[0.0]], [[0.0], [2.0]]).round(3)
    array([[1.   , 0.135]])
    """

    gamma: float | str = "spread"

    _stationary = True

    def __post_init__(self) -> None:
        self._set("gamma", checked_width("gamma", self.gamma, rules=RULES, where="RBF"))

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.SQUARED, view)
        builder.affine(-float(self.gamma), 0.0)
        builder.apply(loops.EXP)

    def _settle(self, X: Array, weights: Array | None) -> Self:
        return replace(self, gamma=settled_gamma(self.gamma, X, weights))


@register("laplacian")
@dataclass(frozen=True)
class Laplacian(Kernel):
    """exp(-gamma |x - y|_1), with the L1 distance.

    Parameters
    ----------
    gamma : float, "spread", "scale" or "median"
        Greater than 0, or a rule that computes it from the first rows: 1 / (the sum of the features' standard
        deviations), 1 / (d std) with that of all entries, or 1 / median of the L1 distances.

    Raises
    ------
    TypeError, ValueError
        `gamma` is neither a positive number nor a rule.

    Examples
    --------
    >>> Laplacian(0.5).matrix([[0.0, 0.0]], [[1.0, 1.0]]).round(3)
    array([[0.368]])
    """

    gamma: float | str = "spread"

    _stationary = True

    def __post_init__(self) -> None:
        self._set("gamma", checked_width("gamma", self.gamma, rules=RULES, where="Laplacian"))

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.ABSOLUTE, view)
        builder.affine(-float(self.gamma), 0.0)
        builder.apply(loops.EXP)

    def _settle(self, X: Array, weights: Array | None) -> Self:
        return replace(self, gamma=settled_gamma(self.gamma, X, weights, squared=False))


@register("matern")
@dataclass(frozen=True)
class Matern(Kernel):
    """The Matern kernel, of smoothness 1/2, 3/2 or 5/2.

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5}
        Smoothness.
    length_scale : float, "spread", "scale" or "median"
        Greater than 0, or a rule that computes it from the first rows: the root of the sum of the features' variances,
        of d var with the variance of all entries, or of the median squared distance.

    Raises
    ------
    TypeError, ValueError
        A parameter is out of its range.

    Notes
    -----
    With t = sqrt(2 nu) |x - y| / length_scale: exp(-t), (1 + t) exp(-t), (1 + t + t^2/3) exp(-t).

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
    length_scale: float | str = "spread"

    _stationary = True

    def __post_init__(self) -> None:
        nu = check_real("nu", self.nu, where="Matern")
        if nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"Matern: nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; RBF is the limit of large nu")
        self._set("nu", nu)
        self._set("length_scale", checked_width("length_scale", self.length_scale, rules=RULES, where="Matern"))

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

    def _settle(self, X: Array, weights: Array | None) -> Self:
        return replace(self, length_scale=settled_length(self.length_scale, X, weights))


@register("rational_quadratic")
@dataclass(frozen=True)
class RationalQuadratic(Kernel):
    """(1 + |x - y|^2 / (2 alpha length_scale^2))^-alpha, a mixture of Gaussian kernels of many widths.

    Parameters
    ----------
    alpha : float
        Greater than 0; for large alpha the kernel is RBF.
    length_scale : float, "spread", "scale" or "median"
        Greater than 0, or a rule that computes it from the first rows: the root of the sum of the features' variances,
        of d var with the variance of all entries, or of the median squared distance.

    Raises
    ------
    TypeError, ValueError
        A parameter is out of its range.

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
    length_scale: float | str = "spread"

    _stationary = True

    def __post_init__(self) -> None:
        self._set("alpha", check_real("alpha", self.alpha, least=0.0, open_below=True, where="RationalQuadratic"))
        length_scale = checked_width("length_scale", self.length_scale, rules=RULES, where="RationalQuadratic")
        self._set("length_scale", length_scale)

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

    def _settle(self, X: Array, weights: Array | None) -> Self:
        return replace(self, length_scale=settled_length(self.length_scale, X, weights))


def _finite(number: float) -> float:
    """Keep a constant finite, because infinity times a distance of 0 would be NaN."""
    return min(number, sys.float_info.max)
