"""The algebra of kernels: what combines them, and the combinations."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from streamkpca import kernel_loops as loops
from streamkpca._cached import cached_property
from streamkpca.kernels.core import KernelValue
from streamkpca.kernels.planes import Array, Columns, Factor, RowFunction
from streamkpca.kernels.programs import Listing
from streamkpca.parameters import check_integer, check_real, is_real

_SUM, _PRODUCT, _POWER, _ATOM = range(4)


class Kernel(KernelValue):
    """A positive semidefinite function of two rows, as a value: immutable, comparable, printable.

    Notes
    -----
    Kernels combine: ``k1 + k2``, ``k1 * k2``, ``2.0 * k``, ``k ** 3``, ``k.exp()``, ``k.scaled_by(f)``,
    ``k.on(columns)``. All of these keep positive semidefiniteness (Shawe-Taylor and Cristianini 2004,
    propositions 3.22 and 3.24). A new combination compiles nothing.
    """

    _binding: ClassVar[int] = _ATOM
    # numpy scalars then leave ``np.float64(2) * kernel`` to __rmul__ instead of making an array of it.
    __array_ufunc__ = None

    def exp(self) -> "Kernel":
        """Make the kernel exp(k(x, y)).

        Returns
        -------
        Kernel

        Examples
        --------
        >>> from streamkpca.kernels import Linear
        >>> Linear().exp().matrix([[0.0], [1.0]]).round(3)
        array([[1.   , 1.   ],
               [1.   , 2.718]])
        """
        return Exponential(self)

    def scaled_by(self, function: RowFunction) -> "Kernel":
        """Make the kernel f(x) f(y) k(x, y).

        Parameters
        ----------
        function : callable
            Rows (n, d) in, n finite numbers out.

        Returns
        -------
        Kernel

        Raises
        ------
        TypeError
            `function` cannot be called.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> RBF(1.0).scaled_by(lambda X: X[:, 0]).diagonal([[1.0], [3.0]])
        array([1., 9.])
        """
        return ScaledByRows(self, function)

    def on(self, columns: int | Iterable[int]) -> "Kernel":
        """Make the kernel that sees only some columns.

        Parameters
        ----------
        columns : int or iterable of int
            Positions, counted from 0. Nested selections count within the outer one.

        Returns
        -------
        Kernel

        Raises
        ------
        TypeError, ValueError
            No position, not whole numbers, negative ones, or one given twice.

        Examples
        --------
        >>> from streamkpca.kernels import Linear, RBF
        >>> kernel = RBF(1.0).on([0, 1]) * Linear().on(2)
        >>> kernel
        RBF(gamma=1.0).on((0, 1)) * Linear().on((2,))
        >>> kernel.diagonal([[5.0, 6.0, 7.0]])
        array([49.])
        """
        return OnColumns(self, _as_columns(columns))

    def __add__(self, other: Any) -> "Kernel":
        """Make the kernel k1 + k2."""
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        """Make the kernel k1 k2, or c k for a positive number c."""
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(float(other), self) if is_real(other) else NotImplemented

    def __rmul__(self, other: Any) -> "Kernel":
        """Make the kernel c k."""
        return self.__mul__(other)

    def __pow__(self, exponent: Any) -> "Kernel":
        """Make the kernel k^p for a whole number p of at least 1."""
        return Power(self, exponent)

    def _within(self, binding: int) -> str:
        """Print, in parentheses where the place binds more tightly."""
        return repr(self) if self._binding >= binding else f"({self!r})"


@dataclass(frozen=True, repr=False)
class Sum(Kernel):
    """k1(x, y) + k2(x, y), written ``k1 + k2``.

    Parameters
    ----------
    left, right : Kernel
    """

    left: Kernel
    right: Kernel

    _binding = _SUM

    def __repr__(self) -> str:
        return f"{self.left._within(_SUM)} + {self.right._within(_PRODUCT)}"

    def _lower(self, listing: Listing, columns: Columns) -> None:
        self.left._lower(listing, columns)
        self.right._lower(listing, columns)
        listing.combine(loops.ADD)


@dataclass(frozen=True, repr=False)
class Product(Kernel):
    """k1(x, y) k2(x, y), written ``k1 * k2``.

    Parameters
    ----------
    left, right : Kernel
    """

    left: Kernel
    right: Kernel

    _binding = _PRODUCT

    def __repr__(self) -> str:
        return f"{self.left._within(_PRODUCT)} * {self.right._within(_POWER)}"

    def _lower(self, listing: Listing, columns: Columns) -> None:
        self.left._lower(listing, columns)
        self.right._lower(listing, columns)
        listing.combine(loops.MULTIPLY)


@dataclass(frozen=True, repr=False)
class Scaled(Kernel):
    """c k(x, y), written ``c * k``.

    Parameters
    ----------
    scale : float
        Greater than 0.
    kernel : Kernel
    """

    scale: float
    kernel: Kernel

    _binding = _PRODUCT

    def __post_init__(self) -> None:
        self._set("scale", check_real("scale", self.scale, where="Scaled", least=0.0, open_below=True))

    def __repr__(self) -> str:
        return f"{self.scale!r} * {self.kernel._within(_POWER)}"

    def _lower(self, listing: Listing, columns: Columns) -> None:
        self.kernel._lower(listing, columns)
        listing.affine(self.scale, 0.0)


@dataclass(frozen=True, repr=False)
class Power(Kernel):
    """k(x, y)^p, written ``k ** p``.

    Parameters
    ----------
    kernel : Kernel
    exponent : int
        At least 1.
    """

    kernel: Kernel
    exponent: int

    _binding = _POWER

    def __post_init__(self) -> None:
        self._set("exponent", check_integer("exponent", self.exponent, least=1, where="Power"))

    def __repr__(self) -> str:
        return f"{self.kernel._within(_ATOM)} ** {self.exponent}"

    def _lower(self, listing: Listing, columns: Columns) -> None:
        self.kernel._lower(listing, columns)
        listing.power(self.exponent)


@dataclass(frozen=True, repr=False)
class Exponential(Kernel):
    """exp(k(x, y)), written ``k.exp()``.

    Parameters
    ----------
    kernel : Kernel
    """

    kernel: Kernel

    def __repr__(self) -> str:
        return f"{self.kernel._within(_ATOM)}.exp()"

    def _lower(self, listing: Listing, columns: Columns) -> None:
        self.kernel._lower(listing, columns)
        listing.apply(loops.EXP)


@dataclass(frozen=True, repr=False)
class ScaledByRows(Kernel):
    """f(x) f(y) k(x, y), written ``k.scaled_by(f)``.

    Parameters
    ----------
    kernel : Kernel
    function : callable
        Rows (n, d) in, n finite numbers out.
    """

    kernel: Kernel
    function: RowFunction

    _compiled = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                f"scaled_by: expected a function of rows, f(X) of shape (n,), but got {self.function!r}; "
                "a number scales a kernel as in 2.0 * kernel"
            )

    def __repr__(self) -> str:
        return f"{self.kernel._within(_ATOM)}.scaled_by({self.function!r})"

    @cached_property
    def is_stationary(self) -> bool:
        """False: the factor depends on where the rows are."""
        return False

    def _lower(self, listing: Listing, columns: Columns) -> None:
        self.kernel._lower(listing, columns)
        listing.factor(Factor(self.function, columns))


@dataclass(frozen=True, repr=False)
class OnColumns(Kernel):
    """The kernel of some columns alone, written ``k.on(columns)``.

    Parameters
    ----------
    kernel : Kernel
    columns : tuple of int
        Positions, counted from 0, each once.
    """

    kernel: Kernel
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        self.kernel.check_width(len(self.columns), "on")

    def __repr__(self) -> str:
        return f"{self.kernel._within(_ATOM)}.on({self.columns!r})"

    def _lower(self, listing: Listing, columns: Columns) -> None:
        chosen = self.columns if columns is None else tuple(columns[i] for i in self.columns)
        self.kernel._lower(listing, chosen)

    def _settle(self, X: Array, weights: Array | None) -> Self:
        return replace(self, kernel=self.kernel._settle(np.take(X, self.columns, axis=1), weights))

    def check_width(self, d: int, where: str) -> None:
        """Refuse rows that lack one of the columns.

        Parameters
        ----------
        d : int
            Number of columns.
        where : str
            Who asks, for the error text.

        Raises
        ------
        ValueError
            A column is missing.
        """
        if max(self.columns) >= d:
            raise ValueError(
                f"{where}: the kernel {self!r} uses column {max(self.columns)} but got rows with {d} "
                f"features (columns 0 to {d - 1}); choose columns that exist"
            )


def _as_columns(given: Any) -> tuple[int, ...]:
    if isinstance(given, str) or not (isinstance(given, Iterable) or is_real(given)):
        raise TypeError(f"on: expected a column or a list of columns (integers), but got {given!r}")
    listed = list(given) if isinstance(given, Iterable) else [given]
    columns = tuple(check_integer("column", column, least=0, where="on") for column in listed)
    if not columns:
        raise ValueError("on: expected at least one column but got none; leave .on() out to use all")
    if len(set(columns)) < len(columns):
        raise ValueError(f"on: expected every column once but got {columns}; remove the repetitions")
    return columns
