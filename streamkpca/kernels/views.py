"""Views: the features of rows that a kernel compares, in the units in which it compares them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array
from streamkpca._core.concurrency import cached_property
from streamkpca._core.linalg import one_blas_thread
from streamkpca._core.parameters import check_choice, check_integer, check_real, is_real, show
from streamkpca.kernels import _loops as loops

UNIT_RULES = ("range", "std", "whitened")
# A feature is constant where its numbers differ by no more than this share of the largest one, which is rounding.
_ROUNDING = 4.0 * np.finfo(np.float64).eps
# The least unit, whose square is above zero; a feature that varies less counts as constant.
_SMALLEST = 1e-150
# The largest unit, whose square is finite.
_LARGEST = 1e150
# The entries of a matrix are reciprocals of units, times a number that its conditioning bounds.
_LARGEST_ENTRY = 1e160
# Most features that a matrix is found for, in seconds; it takes 32 MB.
MOST_WHITENED = 2048
# With more features than this, it is found from as many of the rows, evenly spaced: covariances of more features are
# found from products of rows, in time that grows with the square of their number.
_MOST_BY_ROWS = 1024
# Parts of the rows, one after another in time, of which "whitened" holds out each in turn.
_PARTS = 5
# Smaller variances, in units of a feature's own, count as this: differences of a thousandth of what a feature varies.
_LEAST_VARIANCE = 1e-6
# Eigenvalues below this share of the largest are 0, up to rounding; their eigenvectors are any basis of one space.
_NO_VARIANCE = 1e-12
# Matrices of up to this many numbers are printed whole.
_PRINTED_WHOLE = 16
# Squared lengths of rows within this limit are far below what streams accept, so no row makes them refuse its block.
FARTHEST = 1e65


class UnitMatrix:
    """A matrix (p, c) that multiplies rows of c features, as an immutable value; a large one prints as its shape."""

    def __init__(self, entries: npt.ArrayLike) -> None:
        # Zeros have one sign, as equal matrices have one hash.
        self._entries = np.array(entries, dtype=np.float64, order="C") + 0.0
        self._entries.setflags(write=False)

    @property
    def entries(self) -> Array:
        """The entries, read-only, of shape (p, c)."""
        return self._entries

    @cached_property
    def is_invertible(self) -> bool:
        """Whether a square matrix is invertible up to rounding, whatever the units of features and of results."""
        balanced = self._entries
        for axis in (0, 1):
            largest = np.abs(balanced).max(axis=axis, keepdims=True)
            balanced = balanced / np.where(largest > 0.0, largest, 1.0)
        with one_blas_thread():
            # The condition in this norm takes a tenth of the time of singular values.
            condition = np.linalg.cond(balanced, p=1)
        return bool(condition * len(balanced) * np.finfo(np.float64).eps < 1.0)

    def is_near(self, other: "UnitMatrix", factor: float = 1.25) -> bool:
        """Whether no row becomes longer or shorter by more than a factor with this matrix than with another."""
        if self == other or self._entries.shape != other._entries.shape:
            return self == other
        with one_blas_thread():
            ratios = np.linalg.solve(other._entries.T, self._entries.T)
            # The squares of singular values, a third of the time.
            squares = np.linalg.eigvalsh(ratios.T @ ratios)
        return bool(1.0 / factor**2 <= squares[0] and squares[-1] <= factor**2)

    def __len__(self) -> int:
        """Return how many numbers a row becomes."""
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnitMatrix) and np.array_equal(self._entries, other._entries)

    def __hash__(self) -> int:
        return hash(self._entries.tobytes())

    def __repr__(self) -> str:
        if self._entries.size <= _PRINTED_WHOLE:
            return repr(tuple(map(tuple, self._entries.tolist())))
        return f"<matrix of {len(self._entries)} x {self._entries.shape[1]} numbers>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self._entries, dtype=dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        # So that the entries are read-only again.
        return UnitMatrix, (self._entries,)


# Positive numbers to divide features by, or a matrix that multiplies them.
Units = tuple[float, ...] | UnitMatrix


@dataclass(frozen=True)
class FeatureView:
    """Columns of rows, by position, in units: each divided by its own, or all multiplied by a matrix."""

    columns: tuple[int, ...] | None = None
    units: Units | None = None

    @cached_property
    def divisors(self) -> Array | None:
        """The units that columns are divided by, as an array of shape (c,)."""
        return np.array(self.units) if isinstance(self.units, tuple) else None

    @property
    def matrix(self) -> UnitMatrix | None:
        """The matrix that columns are multiplied by."""
        return self.units if isinstance(self.units, UnitMatrix) else None

    def on(self, columns: tuple[int, ...]) -> "FeatureView":
        """Choose columns of this view, by their positions in it."""
        if isinstance(self.units, UnitMatrix):
            return FeatureView(self.columns, UnitMatrix(self.units.entries[list(columns)]))
        return FeatureView(
            columns if self.columns is None else tuple(self.columns[i] for i in columns),
            None if self.units is None else tuple(self.units[i] for i in columns),
        )

    def in_units(self, units: Units) -> "FeatureView":
        """Give this view in units, and refuse those that are out of range together with the present ones."""
        return FeatureView(self.columns, units if self.units is None else _units_of_units(self.units, units))

    def width(self, d: int) -> int:
        """Return how many numbers rows of d features become."""
        if self.units is not None:
            return len(self.units)
        return d if self.columns is None else len(self.columns)

    def select(self, X: Array) -> Array:
        """Return the columns (n, c) of rows (n, d), before units: X itself if these are all."""
        return X if self.columns is None else np.take(X, self.columns, axis=1)

    def of(self, X: Array, origin: Array | None = None) -> Array:
        """Return the view (n, p) of rows (n, d), not finite where units make it overflow.

        A matrix multiplies the difference of the columns to `origin` (c,), if that is given.
        """
        seen = self.select(X)
        if self.units is None:
            return seen
        with np.errstate(all="ignore"):
            if self.divisors is not None:
                return seen / self.divisors
            out, entries = np.empty((len(seen), len(self.units))), np.asarray(self.units)
            origin = np.zeros(entries.shape[1]) if origin is None else origin
            loops.multiply_rows(np.ascontiguousarray(seen), origin, entries, out)
        return out


def _units_of_units(outer: Units, inner: Units) -> Units:
    """Combine the units of rows with those of what they are then."""
    if not isinstance(outer, UnitMatrix) and not isinstance(inner, UnitMatrix):
        return _check_numbers(np.multiply(outer, inner).tolist())
    first, second = (
        units if isinstance(units, UnitMatrix) else np.diag(1.0 / np.array(units)) for units in (outer, inner)
    )
    with np.errstate(all="ignore"):
        return UnitMatrix(_check_entries(np.asarray(second) @ np.asarray(first)))


def check_columns(given: Any) -> tuple[int, ...]:
    """Check which columns a kernel shall compare: one position or several different ones, counted from 0."""
    if isinstance(given, str) or not (np.iterable(given) or is_real(given)):
        raise TypeError(f"expected a column or a list of columns (integers), but got {given!r}")
    listed = list(given) if np.iterable(given) else [given]
    columns = tuple(check_integer("column", column, least=0) for column in listed)
    if not columns:
        raise ValueError("expected at least one column but got none; leave .on() out to use all")
    if len(set(columns)) < len(columns):
        raise ValueError(f"expected every column once but got {columns}; remove the repetitions")
    return columns


def check_units(given: Any) -> str | Units:
    """Check units: a rule, one positive number for each feature, or a square matrix that can be inverted."""
    if isinstance(given, UnitMatrix):
        return _check_matrix(given)
    if isinstance(given, str):
        return check_choice("units", given, choices=UNIT_RULES)
    # Arrays without dimensions say that they are iterable, but are not.
    if not np.iterable(given) or isinstance(given, dict | set | frozenset | bytes):
        raise TypeError(
            "expected one positive number for each feature, as in [1.0, 0.5], a square matrix, or "
            f"{' or '.join(map(repr, UNIT_RULES))}, but got {given!r}"
        )
    listed = list(given)
    if not listed:
        raise ValueError("expected at least one unit but got none; leave .in_units() out to divide nothing")
    if any(np.iterable(item) and not isinstance(item, str) for item in listed):
        return _check_matrix(listed)
    return _check_numbers(listed)


def _check_numbers(units: Iterable[float]) -> tuple[float, ...]:
    return tuple(
        check_real(f"the unit of feature {position}", unit, least=_SMALLEST, most=_LARGEST)
        for position, unit in enumerate(units)
    )


def measure_units(X: Array, rule: str, weights: Array | None) -> Units:
    """Measure units of the features of rows (n, d) by a rule, see `Kernel.in_units`; 1 for one that does not vary.

    Weights (n,) are more than 0, and a whole number counts as that many copies of the row.
    """
    if rule == "whitened":
        return _find_whitening(X, weights)
    least, most = X.min(axis=0), X.max(axis=0)
    # Numbers that overflow here are refused later, in these units.
    with np.errstate(all="ignore"):
        spread = most - least
        varies = spread > _ROUNDING * np.maximum(np.abs(least), np.abs(most))
        units = np.where(varies, spread, 1.0)
        # Squares of shares of the range are finite whatever the range is.
        shares = (X - least) / units
        if rule == "std":
            mean = np.average(shares, axis=0, weights=weights)
            units = units * np.sqrt(np.average((shares - mean) ** 2, axis=0, weights=weights))
    usable = varies & (units >= _SMALLEST)
    return tuple(np.where(usable, np.minimum(units, _LARGEST), 1.0).tolist())


def _find_whitening(X: Array, weights: Array | None) -> UnitMatrix:
    """Find W = P D^(-1/2) P^T S^-1 with the standard deviations S of rows, and axes P and variances D in these units.

    The symmetric root depends continuously on the rows, whatever signs and order LAPACK gives eigenvectors, and keeps
    every number nearest to its feature, so L1 distances and ``.on(columns)`` keep a meaning.
    """
    units = np.array(measure_units(X, "std", weights))
    with np.errstate(all="ignore"):
        shares = (X - X.min(axis=0)) / units
        shares -= np.average(shares, axis=0, weights=weights)
        # The mean square is 1 unless a feature does not vary, or its unit is out of range.
        varies = np.abs(np.average(shares**2, axis=0, weights=weights) - 1.0) < 0.5
    inverse = np.diag(1.0 / units)
    if varies.any():
        rows, counts = shares[:, varies], np.ones(len(X)) if weights is None else weights
        d = rows.shape[1]
        if d > _MOST_BY_ROWS and len(rows) > _MOST_BY_ROWS:
            places = np.linspace(0, len(rows) - 1, _MOST_BY_ROWS).astype(np.intp)
            rows, counts = rows[places], counts[places]
        with one_blas_thread():
            axes, _ = _principal_axes(rows, counts)
            scales = 1.0 / np.sqrt(np.maximum(_held_out_variances(rows, counts), _LEAST_VARIANCE))
            n_unseen = d - axes.shape[1]
            others = scales[:n_unseen].mean() if n_unseen else 0.0
            root = (axes * (scales[n_unseen:] - others)) @ axes.T
            root[np.diag_indices(d)] += others
        inverse[np.ix_(varies, varies)] = 0.5 * (root + root.T) / units[varies]
    return UnitMatrix(inverse)


def _principal_axes(rows: Array, weights: Array) -> tuple[Array, Array]:
    """Return the axes (d, k) of rows (n, d) with variance, that with the least first, and their mean."""
    n, d = rows.shape
    mean = np.average(rows, axis=0, weights=weights)
    centred = (rows - mean) * np.sqrt(weights / weights.sum())[:, None]
    sizes, axes = np.linalg.eigh(centred.T @ centred if n >= d else centred @ centred.T)
    seen = sizes > _NO_VARIANCE * sizes[-1]
    of_rows: Array = axes[:, seen] if n >= d else (centred.T @ axes[:, seen]) / np.sqrt(sizes[seen])
    return of_rows, mean


def _held_out_variances(rows: Array, weights: Array) -> Array:
    """Return the mean squares (d,) of held-out rows along the axes of the others, and before them along no axis."""
    # Copies of a row are held out together, as they tell nothing new; zeros have two signs.
    _, first, of = np.unique(rows + 0.0, axis=0, return_index=True, return_inverse=True)
    n_parts = min(_PARTS, len(first))
    part = (np.argsort(np.argsort(first)) * n_parts // len(first))[of.ravel()]
    total = np.zeros(rows.shape[1])
    for number in range(n_parts):
        known, held_out = part != number, part == number
        axes, mean = _principal_axes(rows[known], weights[known])
        away = rows[held_out] - mean
        squares, n_unseen = weights[held_out] @ (away @ axes) ** 2, len(total) - axes.shape[1]
        beside = float(weights[held_out] @ (away**2).sum(axis=1) - squares.sum())
        total[n_unseen:] += squares
        total[:n_unseen] += max(beside, 0.0) / max(n_unseen, 1)
    total /= weights.sum()
    return total


def _check_matrix(given: Any) -> UnitMatrix:
    """Make a matrix of rows or another matrix, if it is square and can be inverted."""
    try:
        entries = np.asarray(given)
    except ValueError:
        entries = np.array(None)
    if entries.dtype.kind not in "fiu":
        raise TypeError(
            "expected a number for each feature, or a square matrix of numbers with rows of one length, but "
            f"got {show(given)}"
        )
    if entries.ndim != 2 or entries.shape[0] != entries.shape[1]:
        raise ValueError(
            "expected a square matrix, with a row and a column for each feature, but got the shape "
            f"{entries.shape}; rows x become W x. To leave directions out, give the model the rows X @ W.T instead"
        )
    _check_entries(entries)
    matrix = given if isinstance(given, UnitMatrix) else UnitMatrix(entries)
    if not matrix.is_invertible:
        raise ValueError(
            f"expected a matrix that can be inverted but this one of shape {entries.shape} is "
            "singular, up to rounding, so that rows which differ would count as equal; add a ridge to the covariance "
            "before its inverse square root is taken"
        )
    return matrix


def _check_entries(entries: Array) -> Array:
    allowed = np.abs(entries) <= _LARGEST_ENTRY
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0]
        raise ValueError(
            f"expected a matrix of finite numbers, at most {_LARGEST_ENTRY:g} in size, but got "
            f"{float(entries[row, column])!r} in row {row}, column {column}; check how the matrix was computed"
        )
    return entries
