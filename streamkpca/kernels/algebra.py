"""The algebra of kernels: what combines them, and the combinations."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from streamkpca import kernel_loops as loops
from streamkpca._cached import cached_property
from streamkpca.kernels.core import KernelValue
from streamkpca.kernels.planes import Array, Factor, RowFunction
from streamkpca.kernels.programs import Listing
from streamkpca.kernels.views import Units, View, check_in_units, checked_columns, checked_units, measured_units
from streamkpca.parameters import check_integer, check_real, is_real

_SUM, _PRODUCT, _POWER, _ATOM = range(4)


class Kernel(KernelValue):
    """A positive semidefinite function of two rows, as a value: immutable, comparable, printable.

    Notes
    -----
    Kernels combine: ``k1 + k2``, ``k1 * k2``, ``2.0 * k``, ``k ** 3``, ``k.exp()``, ``k.scaled_by(f)``,
    ``k.on(columns)``, ``k.in_units(units)``. All of these keep positive semidefiniteness (Shawe-Taylor and Cristianini
    2004, propositions 3.22 and 3.24). A new combination compiles nothing.

    Examples
    --------
    >>> from streamkpca.kernels import RBF, Linear
    >>> 0.5 * RBF(gamma=0.1) + Linear() ** 2
    0.5 * RBF(gamma=0.1) + Linear() ** 2
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
        >>> Linear().exp().diagonal([[0.0], [1.0]]).round(3)
        array([1.   , 2.718])
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
        >>> (RBF(1.0).on([0, 1]) * Linear().on(2)).diagonal([[5.0, 6.0, 7.0]])
        array([49.])
        """
        return OnColumns(self, checked_columns(columns))

    def in_units(self, units: str | Iterable[float]) -> "Kernel":
        """Make the kernel k(x / u, y / u), with a unit for each feature.

        Parameters
        ----------
        units : "range", "std" or iterable of float
            Positive numbers, one for each feature that this kernel sees; or, from the first rows, largest less smallest
            number or standard deviation of each, and 1 where it does not vary.

        Returns
        -------
        Kernel

        Raises
        ------
        TypeError, ValueError
            Another word, or not numbers from 1e-150 to 1e150, or more or fewer than this kernel's own units.

        Notes
        -----
        Units that are known beforehand are best: a feature that hardly varied in the first rows, and does later, then
        counts for more than all others. gamma="spread" and the like are settled on rows in units.
        ``k.in_units(u).on(columns)`` has a unit for each chosen column, ``k.on(columns).in_units(u)`` for every one.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> RBF(1.0).in_units([100.0, 0.5]).matrix([[300.0, 1.0]], [[200.0, 1.0]]).round(3)
        array([[0.368]])
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

    def _lower(self, listing: Listing, view: View) -> None:
        self.left._lower(listing, view)
        self.right._lower(listing, view)
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

    def _lower(self, listing: Listing, view: View) -> None:
        self.left._lower(listing, view)
        self.right._lower(listing, view)
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

    def _lower(self, listing: Listing, view: View) -> None:
        self.kernel._lower(listing, view)
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

    def _lower(self, listing: Listing, view: View) -> None:
        self.kernel._lower(listing, view)
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

    def _lower(self, listing: Listing, view: View) -> None:
        self.kernel._lower(listing, view)
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

    def _lower(self, listing: Listing, view: View) -> None:
        self.kernel._lower(listing, view)
        listing.factor(Factor(self.function, view))


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

    def _lower(self, listing: Listing, view: View) -> None:
        self.kernel._lower(listing, view.on(self.columns))

    def _seen(self, X: Array) -> Array:
        return View(self.columns).of(X)

    def check_width(self, d: int, where: str) -> None:
        """Refuse rows that lack one of the columns."""
        if max(self.columns) >= d:
            raise ValueError(
                f"{where}: the kernel {self!r} uses column {max(self.columns)} but got rows with {d} "
                f"features (columns 0 to {d - 1}); choose columns that exist"
            )


@dataclass(frozen=True, repr=False)
class InUnits(Kernel):
    """The kernel of rows divided by units, written ``k.in_units(units)``.

    Parameters
    ----------
    kernel : Kernel
    units : tuple of float, "range" or "std"
        One number for each feature, or what settles them.
    """

    kernel: Kernel
    units: str | Units

    _divides = True

    def __post_init__(self) -> None:
        self._set("units", checked_units(self.units))
        if not isinstance(self.units, str):
            self.kernel.check_width(len(self.units), "in_units")
        if self.is_settled:
            # Units of units are multiplied here.
            self._lower(Listing(), View())

    def __repr__(self) -> str:
        return f"{self.kernel._within(_ATOM)}.in_units({self.units!r})"

    def _lower(self, listing: Listing, view: View) -> None:
        assert not isinstance(self.units, str)
        self.kernel._lower(listing, view.in_units(self.units))

    def _settle(self, X: Array, weights: Array | None) -> Self:
        units = measured_units(X, self.units, weights) if isinstance(self.units, str) else self.units
        return replace(self, units=units, kernel=self.kernel._settle(View(units=units).of(X), weights))

    def _seen(self, X: Array) -> Array:
        return X if isinstance(self.units, str) else View(units=self.units).of(X)

    def check_range(self, X: Array, where: str) -> None:
        """Refuse rows that are out of range in these units, or in those of the parts."""
        check_in_units(self._seen(X), where)
        super().check_range(X, where)

    def check_width(self, d: int, where: str) -> None:
        """Refuse rows that have more or fewer features than there are units."""
        if not isinstance(self.units, str) and len(self.units) != d:
            raise ValueError(
                f"{where}: the kernel has units for {len(self.units)} features but got rows with {d}; give in_units "
                "one unit for each feature that its kernel sees, after .on() where that chooses columns"
            )
        super().check_width(d, where)
