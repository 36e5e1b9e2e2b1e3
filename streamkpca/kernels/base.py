"""Kernels and their algebra: the class `Kernel`, and the combinations that its operators make."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array
from streamkpca._core.concurrency import cached_property
from streamkpca._core.parameters import check_integer, check_real, is_real, show
from streamkpca.errors import name_errors
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.program import Program, ProgramBuilder
from streamkpca.kernels.units import FARTHEST, Features, Units, check_columns, check_units, measure_units
from streamkpca.kernels.values import ATOM, POWER, PRODUCT, SUM, KernelValue
from streamkpca.rows.validation import as_sample_weight, check_parts


@name_errors
class Kernel(KernelValue, ABC):
    """A positive semidefinite function of two rows, as a value: immutable, comparable, printable.

    Notes
    -----
    Kernels combine: ``k1 + k2``, ``k1 * k2``, ``2.0 * k``, ``k ** 3``, ``k.exp()``, ``k.on(columns)``,
    ``k.in_units(units)``. All of these keep positive semidefiniteness (Shawe-Taylor and Cristianini 2004, propositions
    3.22 and 3.24). A class is a frozen dataclass of its parameters and parts, whose method `_lower` writes the formula.

    Kernels nested more than 200 deep are refused.

    Examples
    --------
    >>> from streamkpca.kernels import RBF, Linear
    >>> kernel = 0.5 * RBF(gamma=0.1).on([0]) + Linear().exp() ** 2
    >>> kernel.diagonal([[0.0]]), kernel.is_stationary, kernel.is_positive_definite, kernel.is_compiled
    (array([1.5]), False, True, True)

    A width may be a rule, which rows settle:

    >>> kernel = RBF("spread").in_units([2.0])
    >>> kernel.is_settled, kernel.has_units
    (False, True)
    >>> settled = kernel.settled([[0.0], [4.0]])
    >>> settled.check_width(1), settled.check_range(np.ones((1, 1))), settled.program.diagonal(np.ones((1, 1)))
    (None, None, array([1.]))
    """

    # Properties of a class, read only for kernels without parts.
    _stationary: ClassVar[bool] = False
    _positive_definite: ClassVar[bool] = True
    _compiled: ClassVar[bool] = True
    # With this, numpy scalars leave ``np.float64(2) * kernel`` to __rmul__ instead of making an array of it.
    __array_ufunc__ = None

    def matrix(self, X: Any, Y: Any = None) -> Array:
        """Evaluate the kernel for all pairs of rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
        Y : array-like of shape (m, d), optional
            X itself by default; the result is then exactly symmetric.

        Returns
        -------
        ndarray of shape (n, m)

        Raises
        ------
        TypeError, ValueError
            X or Y are not finite rows of one width that the kernel accepts, or the kernel is not settled.

        Notes
        -----
        O(n m d). Equal rows are exactly at distance 0.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> RBF(0.5).matrix([[0.0]], [[0.0], [1.0]]).round(3)
        array([[1.   , 0.607]])
        """
        left = self._check_rows(X)
        if Y is None:
            return self.program.gram(left)
        right = self._check_rows(Y)
        if left.shape[1] != right.shape[1]:
            raise ValueError(
                f"X has {left.shape[1]} features but Y has {right.shape[1]}; pass rows with the same columns"
            )
        return self.program.matrix(left, right)

    def diagonal(self, X: Any) -> Array:
        """Evaluate the kernel for every row with itself.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        return self.program.diagonal(self._check_rows(X))

    def settled(self, X: Any, sample_weight: Any = None) -> Self:
        """Replace words such as "contrast" and "range" by numbers that fit the given rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
        sample_weight : array-like of shape (n,), float or None

        Returns
        -------
        Kernel
            This kernel itself if nothing is left to settle.

        Raises
        ------
        TypeError, ValueError
            X is not finite rows that the kernel accepts, or the weights are not finite, negative, or all 0.
        """
        rows, weights = self._check_rows(X), None
        if sample_weight is not None:
            weights = as_sample_weight(sample_weight, len(rows))
            rows, weights = rows[weights > 0.0], weights[weights > 0.0]
            # Weights that are all the same say nothing.
            weights = None if np.all(weights == weights[0]) else weights
        if self.is_settled:
            return self
        kernel = self._settle(rows, weights)
        kernel.check_range(rows)
        return kernel

    @cached_property
    def is_settled(self) -> bool:
        """Whether all parameters are numbers."""
        is_rule = (isinstance(value, str) for value in self._own_parameters().values())
        return not any(is_rule) and all(part.is_settled for part in self._parts.values())

    @cached_property
    def is_stationary(self) -> bool:
        """Whether the value is known to depend on x - y alone, and to be positive."""
        return self._of_all_parts("is_stationary", self._stationary)

    @property
    def is_positive_definite(self) -> bool:
        """Whether the values are known to be inner products, whatever the rows."""
        return self._of_all_parts("is_positive_definite", self._positive_definite)

    @cached_property
    def has_units(self) -> bool:
        """Whether some part takes rows in units."""
        return any(part.has_units for part in self._parts.values())

    @property
    def is_compiled(self) -> bool:
        """Whether the kernel calls no function of the user, which might not be safe in several threads."""
        return self._of_all_parts("is_compiled", self._compiled)

    @cached_property
    def program(self) -> Program:
        """The kernel lowered to flat arrays, for rows that are already known to be valid.

        Raises
        ------
        ValueError
            The kernel is not settled.
        """
        if not self.is_settled:
            raise ValueError(
                f"{type(self).__name__}: expected all parameters to be numbers, but {show(self)} still takes "
                "some from data; call kernel.settled(X) with rows of that kind and use the kernel that it returns"
            )
        builder = ProgramBuilder()
        self._lower(builder, Features())
        return builder.finish()

    def exp(self) -> "Kernel":
        """Make the kernel exp(k(x, y))."""
        return Exponential(self)

    def on(self, columns: int | Iterable[int]) -> "Kernel":
        """Make the kernel that compares only some columns.

        Parameters
        ----------
        columns : int or iterable of int
            Positions, counted from 0. Those of a nested selection count within the outer one.
        """
        return OnColumns(self, columns)  # type: ignore[arg-type]

    def in_units(self, units: str | npt.ArrayLike) -> "Kernel":
        """Make the kernel k(x / u, y / u) with a unit for each feature.

        Parameters
        ----------
        units : "range", "std", or iterable of float
            A positive number for each feature; or a rule that takes from the first rows the range of each feature, or
            its standard deviation (1 if it does not vary).

        Raises
        ------
        TypeError, ValueError
            `units` is another word, or numbers outside 1e-150 to 1e150; or it is not for the features that this kernel
            compares.

        Notes
        -----
        Known units are best: with a rule, a feature that hardly varied in the first rows, but does later, counts for
        more than all others. ``k.in_units(u).on(columns)`` takes a unit for each chosen column,
        ``k.on(columns).in_units(u)`` for every column. For a matrix W of units, give the model the rows ``X @ W.T``.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> RBF(1.0).in_units("range").settled([[0.0, 5.0], [10.0, 5.5], [20.0, 5.0]])
        RBF(gamma=1.0).in_units((20.0, 0.5))
        """
        return InUnits(self, units)  # type: ignore[arg-type]

    def __add__(self, other: Any) -> "Kernel":
        """Make the kernel k1 + k2."""
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        """Make the kernel k1 k2, or c k for a positive number c."""
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(float(other), self) if is_real(other) else NotImplemented

    __rmul__ = __mul__

    def __pow__(self, exponent: Any) -> "Kernel":
        """Make the kernel k^p for a whole number p of at least 1."""
        return Power(self, exponent)

    def check_width(self, d: int) -> None:
        """Refuse rows of d features that lack a column which the kernel names.

        Parameters
        ----------
        d : int
        """
        for part in self._parts.values():
            part.check_width(d)

    def check_range(self, X: Array) -> None:
        """Refuse finite rows that are out of range in the units of the kernel, as far as those are known.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        """
        for part in self._parts.values():
            if part.has_units:
                part.check_range(self._inner_rows(X))

    @abstractmethod
    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        """Write the steps that leave k(x, y), for rows in this view, on top of the stack."""

    def _settle(self, X: Array, weights: Array | None) -> Self:
        """Settle all parts on rows that are known to be valid."""
        changes = {name: part._settle(self._inner_rows(X), weights) for name, part in self._parts.items()}
        return replace(self, **changes) if changes else self  # type: ignore[type-var]

    def _inner_rows(self, X: Array) -> Array:
        """Return the rows as the parts see them."""
        return X

    def _check_rows(self, X: Any) -> Array:
        rows = check_parts(X)[:]
        self.check_width(rows.shape[1])
        self.check_range(rows)
        return rows


@dataclass(frozen=True, repr=False)
class _Pair(Kernel):
    """A kernel of two others, joined by one operation."""

    left: Kernel
    right: Kernel

    _sign: ClassVar[str]
    _code: ClassVar[int]

    def __repr__(self) -> str:
        return f"{self.left._within(self._binding)} {self._sign} {self.right._within(self._binding + 1)}"

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        self.left._lower(builder, features)
        self.right._lower(builder, features)
        builder.apply(self._code)


@dataclass(frozen=True, repr=False)
class Sum(_Pair):
    """k1(x, y) + k2(x, y), written ``k1 + k2``."""

    _sign, _code, _binding = "+", loops.ADD, SUM


@dataclass(frozen=True, repr=False)
class Product(_Pair):
    """k1(x, y) k2(x, y), written ``k1 * k2``."""

    _sign, _code, _binding = "*", loops.MULTIPLY, PRODUCT


@dataclass(frozen=True, repr=False)
class Scaled(Kernel):
    """c k(x, y) with c > 0, written ``c * k``."""

    scale: float
    kernel: Kernel

    _binding = PRODUCT

    def __repr__(self) -> str:
        return f"{self.scale!r} * {self.kernel._within(POWER)}"

    def _check(self) -> None:
        self._set("scale", check_real("scale", self.scale, least=0.0, open_below=True))

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        self.kernel._lower(builder, features)
        builder.affine(self.scale, 0.0)


@dataclass(frozen=True, repr=False)
class Power(Kernel):
    """k(x, y)^p with a whole p of at least 1, written ``k ** p``."""

    kernel: Kernel
    exponent: int

    _binding = POWER

    def __repr__(self) -> str:
        return f"{self.kernel._within(ATOM)} ** {self.exponent}"

    def _check(self) -> None:
        self._set("exponent", check_integer("exponent", self.exponent, least=1))

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        self.kernel._lower(builder, features)
        builder.power(self.exponent)


@dataclass(frozen=True, repr=False)
class Exponential(Kernel):
    """exp(k(x, y)), written ``k.exp()``."""

    kernel: Kernel

    def __repr__(self) -> str:
        return f"{self.kernel._within(ATOM)}.exp()"

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        self.kernel._lower(builder, features)
        builder.apply(loops.EXP)


@name_errors
@dataclass(frozen=True, repr=False)
class OnColumns(Kernel):
    """The kernel of some columns alone, written ``k.on(columns)``."""

    kernel: Kernel
    columns: tuple[int, ...]

    def __repr__(self) -> str:
        return f"{self.kernel._within(ATOM)}.on({self.columns!r})"

    def _check(self) -> None:
        self._set("columns", check_columns(self.columns))
        self.kernel.check_width(len(self.columns))

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        self.kernel._lower(builder, features.on(self.columns))

    def _inner_rows(self, X: Array) -> Array:
        return Features(self.columns).of(X)

    def check_width(self, d: int) -> None:
        """Refuse rows that lack one of the columns."""
        if max(self.columns) >= d:
            raise ValueError(
                f"the kernel {show(self)} uses column {max(self.columns)} but got rows with {d} "
                f"features (columns 0 to {d - 1}); choose columns that exist"
            )


@name_errors
@dataclass(frozen=True, repr=False)
class InUnits(Kernel):
    """The kernel of rows in units, or in what a rule makes of the first rows; written ``k.in_units(units)``."""

    kernel: Kernel
    units: str | Units

    has_units = True

    def __repr__(self) -> str:
        return f"{self.kernel._within(ATOM)}.in_units({self.units!r})"

    def _check(self) -> None:
        self._set("units", check_units(self.units))
        if not isinstance(self.units, str):
            self.kernel.check_width(len(self.units))
        if self.is_settled:
            # This multiplies units of units, and so refuses those out of range.
            self._lower(ProgramBuilder(), Features())

    def _lower(self, builder: ProgramBuilder, features: Features) -> None:
        assert not isinstance(self.units, str)
        self.kernel._lower(builder, features.in_units(self.units))

    def _settle(self, X: Array, weights: Array | None) -> Self:
        units = measure_units(X, self.units, weights) if isinstance(self.units, str) else self.units
        return replace(self, units=units, kernel=self.kernel._settle(Features(units=units).of(X), weights))

    def _inner_rows(self, X: Array) -> Array:
        return X if isinstance(self.units, str) else Features(units=self.units).of(X)

    @cached_property
    def _certain_range(self) -> float:
        """Size up to which no number of a row is out of range, whatever the others are."""
        if isinstance(self.units, str):
            return FARTHEST
        return 0.5 * FARTHEST * min(self.units)

    def check_range(self, X: Array) -> None:
        """Refuse rows that are out of range in these units, or in those of the parts."""
        if not np.abs(X).max(initial=0.0) <= self._certain_range:
            largest = np.abs(self._inner_rows(X)).max(axis=0, initial=0.0)
            if not (largest <= FARTHEST).all():
                feature = int(np.argmax(~(largest <= FARTHEST)))
                raise ValueError(
                    f"feature {feature} of these rows is {largest[feature]:.3g} in the kernel's units, but "
                    f"the limit is {FARTHEST:g}; divide the feature by a constant first, or leave it out"
                )
        if self.kernel.has_units:
            self.kernel.check_range(self._inner_rows(X))

    def check_width(self, d: int) -> None:
        """Refuse rows with more or fewer features than there are units."""
        if not isinstance(self.units, str) and len(self.units) != d:
            raise ValueError(
                f"the kernel has units for {len(self.units)} features but got rows with {d}; give in_units "
                "one for each feature that its kernel compares, after .on() where that chooses columns"
            )
        super().check_width(d)
