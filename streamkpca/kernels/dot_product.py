"""Kernels of the inner product of two rows."""

from dataclasses import KW_ONLY, dataclass

from streamkpca._core.parameters import check_integer, check_real
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.program import Base, ProgramBuilder
from streamkpca.kernels.registry import register
from streamkpca.kernels.stationary import WidthKernel
from streamkpca.kernels.views import FeatureView


@register("linear")
@dataclass(frozen=True)
class Linear(Kernel):
    """The inner product x.y, with which kernel PCA is PCA.

    Examples
    --------
    >>> Linear().matrix([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.INNER, view)


@register("polynomial", "poly")
@dataclass(frozen=True)
class Polynomial(WidthKernel):
    """(gamma x.y + coef0)^degree.

    Parameters
    ----------
    degree : int
        At least 1.
    gamma : float or "scale"
        Greater than 0; "scale" is 1 / (d var) with the variance of all entries of the first rows.
    coef0 : float
        At least 0.

    Examples
    --------
    >>> Polynomial(2, gamma=1.0).matrix([[1.0, 2.0]], [[3.0, 4.0]])
    array([[144.]])
    """

    _rules = ("scale",)

    degree: int = 3
    _: KW_ONLY
    gamma: float | str = "scale"
    coef0: float = 1.0

    def _check(self) -> None:
        super()._check()
        self._set("degree", check_integer("degree", self.degree, least=1, where="Polynomial"))
        self._set("coef0", check_real("coef0", self.coef0, least=0.0, where="Polynomial"))

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.INNER, view)
        builder.affine(float(self.gamma), self.coef0)
        builder.power(self.degree)


@register("cosine")
@dataclass(frozen=True)
class Cosine(Kernel):
    """``x.y / (|x| |y|)``, the cosine of the angle; 0 for rows of zeros, as in scikit-learn.

    Examples
    --------
    >>> Cosine().matrix([[2.0, 0.0]], [[3.0, 3.0], [0.0, 0.0]]).round(3)
    array([[0.707, 0.   ]])
    """

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.COSINE, view)


@register("sigmoid")
@dataclass(frozen=True)
class Sigmoid(WidthKernel):
    """tanh(gamma x.y + coef0), which is not positive semidefinite in general: its feature space may not exist.

    Parameters
    ----------
    gamma : float or "scale"
        Greater than 0; "scale" is 1 / (d var) with the variance of all entries of the first rows.
    coef0 : float

    Examples
    --------
    >>> Sigmoid(0.5, coef0=0.0).matrix([[1.0]], [[2.0]]).round(3)
    array([[0.762]])
    """

    _positive_definite = False
    _rules = ("scale",)

    gamma: float | str = "scale"
    _: KW_ONLY
    coef0: float = 1.0

    def _check(self) -> None:
        super()._check()
        self._set("coef0", check_real("coef0", self.coef0, where="Sigmoid"))

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.INNER, view)
        builder.affine(float(self.gamma), self.coef0)
        builder.apply(loops.TANH)
