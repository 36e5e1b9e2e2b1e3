"""The input of kernel programs: base matrices over pairs of rows, mostly from BLAS, and functions of single rows."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import cached_property
from streamkpca._core.validation import check_choice, check_integer, check_real, is_real
from streamkpca.kernels import _loops as loops

Array = npt.NDArray[np.float64]
Units = tuple[float, ...]

UNIT_RULES = ("range", "std")
# A feature is constant where its numbers differ by no more than this share of the largest one, which is rounding.
_ROUNDING = 4.0 * np.finfo(np.float64).eps
# The squares of units in this range are finite; a feature that varies less counts as constant.
_SMALLEST, _LARGEST = 1e-150, 1e150
# Squared lengths of rows within this limit are far below what streams accept, so no row makes them refuse its block.
_FARTHEST = 1e65


@dataclass(frozen=True)
class FeatureView:
    """Columns of rows, by position, each divided by its unit; by default all columns, divided by nothing."""

    columns: tuple[int, ...] | None = None
    units: Units | None = None

    @cached_property
    def divisors(self) -> Array | None:
        """The units as an array of shape (c,)."""
        return None if self.units is None else np.array(self.units)

    def on(self, columns: tuple[int, ...]) -> "FeatureView":
        """Choose columns of this view, by their positions in it."""
        return FeatureView(
            columns if self.columns is None else tuple(self.columns[i] for i in columns),
            None if self.units is None else tuple(self.units[i] for i in columns),
        )

    def in_units(self, units: Units) -> "FeatureView":
        """Divide this view by units, and refuse those that are out of range together with the present ones."""
        if self.units is not None:
            units = _checked_numbers([outer * inner for outer, inner in zip(self.units, units, strict=True)])
        return FeatureView(self.columns, units)

    def of(self, X: Array) -> Array:
        """Return the view (n, c) of rows (n, d): X itself if nothing changes, infinite where units make it overflow."""
        seen = X if self.columns is None else np.take(X, self.columns, axis=1)
        if self.divisors is None:
            return seen
        with np.errstate(over="ignore"):
            divided: Array = seen / self.divisors
        return divided


def check_in_units(seen: Array, where: str) -> None:
    """Refuse rows (n, c), given in the units of a kernel, that are too large."""
    largest = np.abs(seen).max(axis=0, initial=0.0)
    if not (largest <= _FARTHEST).all():
        feature = int(np.argmax(~(largest <= _FARTHEST)))
        raise ValueError(
            f"{where}: feature {feature} of these rows is {largest[feature]:.3g} in the kernel's units, but the limit "
            f"is {_FARTHEST:g}; give in_units larger units"
        )


def checked_columns(given: Any) -> tuple[int, ...]:
    """Check which columns a kernel shall compare: one position or several different ones, counted from 0."""
    if isinstance(given, str) or not (np.iterable(given) or is_real(given)):
        raise TypeError(f"on: expected a column or a list of columns (integers), but got {given!r}")
    listed = list(given) if np.iterable(given) else [given]
    columns = tuple(check_integer("column", column, least=0, where="on") for column in listed)
    if not columns:
        raise ValueError("on: expected at least one column but got none; leave .on() out to use all")
    if len(set(columns)) < len(columns):
        raise ValueError(f"on: expected every column once but got {columns}; remove the repetitions")
    return columns


def checked_units(given: Any) -> str | Units:
    """Check what a kernel shall divide features by: a rule, or one positive number for each feature."""
    where = "in_units"
    if isinstance(given, str):
        return check_choice("units", given, choices=UNIT_RULES, where=where)
    # Arrays without dimensions say that they are iterable, but are not.
    if not np.iterable(given) or isinstance(given, dict | set | frozenset | bytes):
        raise TypeError(
            f"{where}: expected one positive number for each feature, as in [1.0, 0.5], or "
            f"{' or '.join(map(repr, UNIT_RULES))}, but got {given!r}"
        )
    listed = list(given)
    if not listed:
        raise ValueError(f"{where}: expected at least one unit but got none; leave .in_units() out to divide nothing")
    return _checked_numbers(listed)


def measured_units(X: Array, rule: str, weights: Array | None) -> Units:
    """Measure how much features of rows (n, d) vary: their "range" (largest less smallest number) or "std".

    The unit is 1 for a feature that does not vary, or by its rounding alone. Weights (n,) are more than 0, and a whole
    number counts as that many copies of the row.

    Examples
    --------
    >>> measured_units(np.array([[0.0, 7.0], [4.0, 7.0]]), "std", None)
    (2.0, 1.0)
    """
    least, most = X.min(axis=0), X.max(axis=0)
    # Numbers that overflow here are refused later, in these units.
    with np.errstate(all="ignore"):
        spread = most - least
        varies = spread > _ROUNDING * np.maximum(np.abs(least), np.abs(most))
        units = np.where(varies, spread, 1.0)
        if rule == "std":
            # Squares of shares of the range are finite whatever the range is.
            shares = (X - least) / units
            mean = np.average(shares, axis=0, weights=weights)
            units = units * np.sqrt(np.average((shares - mean) ** 2, axis=0, weights=weights))
    usable = varies & (units >= _SMALLEST)
    return tuple(np.where(usable, np.minimum(units, _LARGEST), 1.0).tolist())


def _checked_numbers(listed: list[Any]) -> Units:
    return tuple(
        check_real(f"unit {position}", unit, least=_SMALLEST, most=_LARGEST, where="in_units")
        for position, unit in enumerate(listed)
    )


RowFunction = Callable[[Array], Any]
PairFunction = Callable[[Array, Array], Any]

# Up to this many features, or rows on the left, sums over the features take less time than setting up a matrix product.
_FEW_FEATURES = 8
_FEW_ROWS = 4


class Base(Enum):
    """Kinds of base matrices, by what they hold."""

    INNER = "inner products"
    COSINE = "inner products of rows scaled to length 1"
    SQUARED = "squared distances"
    ABSOLUTE = "L1 distances"
    CUSTOM = "values of the caller's function"


@dataclass(frozen=True)
class RowScaling:
    """A function of one row that multiplies a kernel from both sides: rows (n, c) of the view in, n numbers out."""

    function: RowFunction
    view: FeatureView

    def values(self, X: Array) -> Array:
        """Evaluate the function for rows (n, d), and check that it returns n finite numbers."""
        return checked_values(self.function(self.view.of(X)), (len(X),), where="scaled_by")


@dataclass(frozen=True)
class PairwiseMatrix:
    """A base matrix over pairs of rows, before any step is applied.

    `function` and `diagonal` are the caller's functions of pairs and of rows, for ``Base.CUSTOM``.
    """

    base: Base
    view: FeatureView
    function: PairFunction | None = None
    diagonal: RowFunction | None = None

    def centre(self, Y: Array, *, n_rows: int) -> Array | None:
        """Choose the point (c,) from which inner products measure squared distances, or None to sum them directly.

        The point depends on the right rows Y (m, d) alone, so that the answer for a left row does not depend on the
        rows beside it.
        """
        d = Y.shape[1] if self.view.columns is None else len(self.view.columns)
        if self.base is not Base.SQUARED or d <= _FEW_FEATURES or n_rows <= _FEW_ROWS or not len(Y):
            return None
        with np.errstate(all="ignore"):
            mean: Array = self.view.of(Y).mean(axis=0)
        return mean

    def side(self, X: Array, centre: Array | None) -> "Side":
        """Prepare rows (n, d) for either side of the matrix."""
        rows = self.view.of(X)
        if self.base is Base.COSINE:
            return Side(rows, unit_rows(rows), None)
        if centre is None:
            return Side(rows, rows, None)
        with np.errstate(all="ignore"):
            centred = rows - centre
            return Side(rows, centred, np.einsum("ij,ij->i", centred, centred))

    def fill(self, left: "Side", right: "Side", target: Array, row: int, column: int) -> None:
        """Write the block of `target` (n, m) that belongs to two sides and starts at (row, column)."""
        n, m = len(left.rows), len(right.rows)
        block = target[row : row + n, column : column + m]
        if self.base is Base.CUSTOM:
            assert self.function is not None
            block[:] = checked_values(self.function(left.rows, right.rows), (n, m), where="Custom")
        elif self.base in (Base.INNER, Base.COSINE) or right.norms is not None:
            with np.errstate(all="ignore"):
                np.matmul(left.used, right.used.T, out=block)
            if right.norms is not None:
                loops.finish_squared_distances(left.rows, right.rows, left.norms, right.norms, target, row, column)
        else:
            transposed = np.ascontiguousarray(right.rows.T)
            loops.direct_distances(left.rows, transposed, self.base is Base.SQUARED, target, row, column)

    def fill_diagonal(self, X: Array, target: Array) -> None:
        """Write the values of rows (n, d) with themselves to `target` (n,)."""
        rows = self.view.of(X)
        if self.base is Base.INNER:
            with np.errstate(all="ignore"):
                np.einsum("ij,ij->i", rows, rows, out=target)
        elif self.base is Base.COSINE:
            target[:] = rows.any(axis=1)
        elif self.base is not Base.CUSTOM:
            target[:] = 0.0
        elif self.diagonal is not None:
            target[:] = checked_values(self.diagonal(rows), (len(rows),), where="Custom.diagonal")
        else:
            assert self.function is not None
            for i in range(len(rows)):
                row = rows[i : i + 1]
                target[i] = checked_values(self.function(row, row), (1, 1), where="Custom")[0, 0]


@dataclass(frozen=True)
class Side:
    """Rows prepared for one side of a base matrix.

    `rows` (n, c) are the rows in the matrix's view; `used` (n, c) enter the matrix product: the same rows, centred, or
    scaled to length 1; `norms` (n,) are the squared norms of centred rows.
    """

    rows: Array
    used: Array
    norms: Array | None

    def first(self, count: int) -> "Side":
        """Return the first rows alone."""
        norms = None if self.norms is None else self.norms[:count]
        return Side(self.rows[:count], self.used[:count], norms)


def checked_values(values: Any, shape: tuple[int, ...], *, where: str) -> Array:
    """Check that a caller's function returned real, finite numbers of the given shape."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(
            f"{where}: the function must return an array of shape {shape} for these rows "
            f"but returned shape {array.shape}"
        )
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{where}: the function must return real numbers but returned dtype {array.dtype}")
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise ValueError(f"{where}: the function returned NaN or infinity; it must be finite for every row")
    return array


def unit_rows(rows: Array) -> Array:
    """Scale rows (n, d) to length 1 without overflow; rows of zeros stay."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest == 0.0, 1.0, largest)
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    unit: Array = scaled / np.where(lengths == 0.0, 1.0, lengths)
    return unit
