"""The kernels, and the tables that find them by name and read them from JSON text."""

import json
import math
import sys
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, NoReturn

from streamkpca._core.parameters import check_integer, check_real, show
from streamkpca.errors import name_errors
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.base import Exponential, InUnits, Kernel, OnColumns, Power, Product, Scaled, Sum
from streamkpca.kernels.program import Base, PairFunction, ProgramBuilder
from streamkpca.kernels.units import Features
from streamkpca.kernels.values import DEEPEST
from streamkpca.kernels.widths import WidthKernel

# exp(-t) is 0 long before this t; an infinite t would give infinity times 0.
_FAR = 1e3
# Up to this alpha, a whole power costs less than a logarithm and an exponential.
_LARGEST_WHOLE_ALPHA = 16


@dataclass(frozen=True)
class RBF(WidthKernel):
    """``exp(-gamma |x - y|^2)``, the Gaussian kernel.

    Parameters
    ----------
    gamma : float, "contrast" or "spread"
        Greater than 0, or a rule that finds it from rows: "spread" is 1 / (the sum of the features' variances),
        "contrast" one from that to a thousandth of it.

    Notes
    -----
    "contrast" holds out half of the rows, and copies them with one number of each replaced by that of another row. It
    takes the smallest width, from that of "spread" to one 32 times larger, whose novelty tells the copies from the rows
    nearly as well as the best does: by 0.9 of its area under the ROC curve above 1/2. With fewer than 32 rows, or where
    no width is better, the rule is "spread".

    References
    ----------
    Hastie, Tibshirani, Friedman (2009), "The Elements of Statistical Learning", section 14.2.4, where all columns are
    permuted.

    Examples
    --------
    >>> RBF(0.5).matrix([[0.0]], [[0.0], [2.0]]).round(3)
    array([[1.   , 0.135]])
    """

    gamma: float | str = "contrast"

    _stationary = True

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        builder.load(Base.SQUARED, features)
        builder.affine(-float(self.gamma), 0.0)
        builder.apply(loops.EXP)


@dataclass(frozen=True)
class Laplacian(WidthKernel):
    """``exp(-gamma |x - y|_1)``, with the L1 distance.

    Parameters
    ----------
    gamma : float, "contrast" or "spread"
        Greater than 0, or a rule as in `RBF`, with standard deviations and L1 distances for variances and squares.

    Examples
    --------
    >>> Laplacian(0.5).matrix([[0.0, 0.0]], [[1.0, 1.0]]).round(3)
    array([[0.368]])
    """

    gamma: float | str = "contrast"

    _stationary = True
    _squared = False

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        builder.load(Base.ABSOLUTE, features)
        builder.affine(-float(self.gamma), 0.0)
        builder.apply(loops.EXP)


@dataclass(frozen=True)
class Matern(WidthKernel):
    """The Matern kernel, of smoothness 1/2, 3/2 or 5/2: exp(-t), (1 + t) exp(-t), (1 + t + t^2/3) exp(-t).

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5}
    length_scale : float, "contrast" or "spread"
        In ``t = sqrt(2 nu) |x - y| / length_scale``: greater than 0, or the root of the squared distance that the rule
        of `RBF` takes one over.

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
        self._set("nu", check_real("nu", self.nu))
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; RBF is the limit of large nu")

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        if self.nu > 0.5:
            self._load_t(builder, features)
            if self.nu > 1.5:
                self._load_t(builder, features)
                builder.affine(1.0 / 3.0, 1.0)
                builder.apply(loops.MULTIPLY)
            builder.affine(1.0, 1.0)
        self._load_t(builder, features)
        builder.affine(-1.0, 0.0)
        builder.apply(loops.EXP)
        if self.nu > 0.5:
            builder.apply(loops.MULTIPLY)

    def _load_t(self, builder: ProgramBuilder, features: Features) -> None:
        builder.load(Base.SQUARED, features)
        builder.apply(loops.SQRT)
        builder.affine(_finite(math.sqrt(2.0 * self.nu) / float(self.length_scale)), 0.0)
        if self.nu > 0.5:
            builder.minimum(_FAR)


@dataclass(frozen=True)
class RationalQuadratic(WidthKernel):
    """``(1 + |x - y|^2 / (2 alpha length_scale^2))^-alpha``, a mixture of Gaussian kernels of many widths.

    Parameters
    ----------
    alpha : float
        Greater than 0; for large alpha the kernel is RBF.
    length_scale : float, "contrast" or "spread"
        As of `Matern`.

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
        self._set("alpha", check_real("alpha", self.alpha, least=0.0, open_below=True))

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        length = float(self.length_scale)
        factor = _finite(0.5 / self.alpha / length / length)
        builder.load(Base.SQUARED, features)
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


@dataclass(frozen=True)
class Linear(Kernel):
    """The inner product x.y, with which kernel PCA is PCA.

    Examples
    --------
    >>> Linear().matrix([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        builder.load(Base.INNER, features)


@dataclass(frozen=True)
class Polynomial(WidthKernel):
    """(gamma x.y + coef0)^degree.

    Parameters
    ----------
    degree : int
        At least 1.
    gamma : float or "spread"
        Greater than 0, or the rule of `RBF`.
    coef0 : float
        At least 0.

    Examples
    --------
    >>> Polynomial(2, gamma=1.0).matrix([[1.0, 2.0]], [[3.0, 4.0]])
    array([[144.]])
    """

    _rules = ("spread",)

    degree: int = 3
    _: KW_ONLY
    gamma: float | str = "spread"
    coef0: float = 1.0

    def _check(self) -> None:
        super()._check()
        self._set("degree", check_integer("degree", self.degree, least=1))
        self._set("coef0", check_real("coef0", self.coef0, least=0.0))

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        builder.load(Base.INNER, features)
        builder.affine(float(self.gamma), self.coef0)
        builder.power(self.degree)


@dataclass(frozen=True)
class Cosine(Kernel):
    """``x.y / (|x| |y|)``, the cosine of the angle; 0 for rows of zeros, as in scikit-learn.

    Examples
    --------
    >>> Cosine().matrix([[2.0, 0.0]], [[3.0, 3.0], [0.0, 0.0]]).round(3)
    array([[0.707, 0.   ]])
    """

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        builder.load(Base.COSINE, features)


@dataclass(frozen=True)
class Sigmoid(WidthKernel):
    """tanh(gamma x.y + coef0), which is not positive semidefinite in general: its feature space may not exist.

    Parameters
    ----------
    gamma : float or "spread"
        Greater than 0, or the rule of `RBF`.
    coef0 : float

    Examples
    --------
    >>> Sigmoid(0.5, coef0=0.0).matrix([[1.0]], [[2.0]]).round(3)
    array([[0.762]])
    """

    _positive_definite = False
    _rules = ("spread",)

    gamma: float | str = "spread"
    _: KW_ONLY
    coef0: float = 1.0

    def _check(self) -> None:
        super()._check()
        self._set("coef0", check_real("coef0", self.coef0))

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        builder.load(Base.INNER, features)
        builder.affine(float(self.gamma), self.coef0)
        builder.apply(loops.TANH)


@dataclass(frozen=True)
class Custom(Kernel):
    """A kernel that the caller computes.

    Parameters
    ----------
    function : callable
        ``function(X, Y)`` returns the values (n, m) of rows (n, d) and (m, d), each of its own two rows alone. It must
        be symmetric and positive semidefinite, and must not change its arguments.

    Examples
    --------
    >>> import numpy as np
    >>> overlap = Custom(lambda X, Y: np.minimum(X[:, None], Y[None]).sum(axis=2))
    >>> overlap.matrix([[1.0, 5.0]], [[3.0, 2.0]])
    array([[3.]])
    """

    _positive_definite = False
    _compiled = False

    function: PairFunction

    def _check(self) -> None:
        if not callable(self.function):
            raise TypeError(f"expected function to be a function of rows but got {self.function!r}")

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        builder.load(Base.CUSTOM, features, self.function)


# Kernel classes by the names that an estimator's parameter `kernel` accepts.
KERNELS: dict[str, type[Kernel]] = {
    "rbf": RBF,
    "laplacian": Laplacian,
    "matern": Matern,
    "rational_quadratic": RationalQuadratic,
    "linear": Linear,
    "polynomial": Polynomial,
    "poly": Polynomial,
    "cosine": Cosine,
    "sigmoid": Sigmoid,
}
_COMBINATIONS: tuple[type[Kernel], ...] = (Sum, Product, Scaled, Power, Exponential, OnColumns, InUnits)
# The classes that JSON names.
_KINDS: dict[str, type[Kernel]] = {kind.__name__: kind for kind in (*_COMBINATIONS, *KERNELS.values())}

_LONGEST_REASON = 500
_EXAMPLE = '{"type": "RBF", "gamma": 0.5}'


@name_errors
def kernel_from(value: Any) -> Kernel:
    """Make a kernel from a kernel, the name of one with its default parameters, or what `Kernel.to_json` writes.

    Parameters
    ----------
    value : Kernel, str or dict
        A dict is parsed JSON. Nothing in it, or in text, is evaluated.

    Raises
    ------
    TypeError, ValueError
        `value` is no kernel, known name, or JSON of a kernel with valid parameters, nested 200 deep at most.

    Examples
    --------
    >>> kernel_from('{"type": "RBF", "gamma": 0.5}'), kernel_from("linear")
    (RBF(gamma=0.5), Linear())
    >>> kernel_from({"type": "Scaled", "scale": 2, "kernel": {"type": "Linear"}})
    2.0 * Linear()
    """
    if isinstance(value, Kernel):
        return value
    if isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{")):
        return kernel_from_json(value)
    if isinstance(value, str) and value in KERNELS:
        return KERNELS[value]()
    if callable(value):
        remedy = "call the class, as in RBF()" if isinstance(value, type) else "wrap it: kernels.Custom(f)"
        raise TypeError(f"kernel must be a Kernel, got {value!r}; {remedy}")
    names = ", ".join(map(repr, sorted(KERNELS)))
    message = f"kernel must be a Kernel, one of {names}, or JSON such as {_EXAMPLE}, got {show(value)}"
    raise ValueError(message) if isinstance(value, str) else TypeError(message)


def kernel_from_json(value: str | dict[str, Any]) -> Kernel:
    """Read a kernel from the text that `Kernel.to_json` writes, or from the parsed text."""
    try:
        return _kernel_of(json.loads(value, parse_constant=_refuse_constant) if isinstance(value, str) else value)
    except RecursionError:
        reason = f"it is nested more than {DEEPEST} deep; join fewer kernels"
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error)[:_LONGEST_REASON]
    raise ValueError(f"cannot read the kernel {show(value)}: {reason}. JSON of a kernel looks like {_EXAMPLE}")


def _kernel_of(record: Any) -> Kernel:
    """Make the kernel of parsed JSON."""
    kind = _KINDS.get(str(record.get("type"))) if isinstance(record, dict) else None
    if kind is None:
        raise ValueError(f"expected an object with the type {', '.join(sorted(_KINDS))} but got {show(record)}")
    known = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in record.items() if name != "type"}
    if unknown := sorted(given.keys() - known.keys()):
        names = ", ".join(known) or "none"
        raise ValueError(f"{kind.__name__} has no parameter {show(unknown[0])}; it has {names}")
    parts = {name: _kernel_of(value) for name, value in given.items() if known[name] is Kernel}
    return kind(**given | parts)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")
