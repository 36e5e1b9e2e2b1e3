"""Features as kernels compare them: some columns of rows, each divided by its unit."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.concurrency import cached_property
from streamkpca._core.parameters import check_choice, check_integer, check_real, is_real

UNIT_RULES = ("range", "std")
# A feature is constant where its numbers differ by no more than this share of the largest one, which is rounding.
_ROUNDING = 4.0 * np.finfo(np.float64).eps
# The least unit, whose square is above zero; a feature that varies less counts as constant.
_SMALLEST = 1e-150
# The largest unit, whose square is finite.
_LARGEST = 1e150
# Squared lengths of rows within this limit are far below what streams accept, so no row makes them refuse its block.
FARTHEST = 1e65

# Positive numbers to divide features by.
Units = tuple[float, ...]


@dataclass(frozen=True)
class Features:
    """Columns of rows, by position, each divided by its unit; all columns as they are where these are None."""

    columns: tuple[int, ...] | None = None
    units: Units | None = None

    @cached_property
    def divisors(self) -> Array | None:
        """The units as an array of shape (c,)."""
        return None if self.units is None else np.array(self.units)

    def on(self, columns: tuple[int, ...]) -> "Features":
        """Choose some of these columns, by their positions among them."""
        return Features(
            columns if self.columns is None else tuple(self.columns[i] for i in columns),
            None if self.units is None else tuple(self.units[i] for i in columns),
        )

    def in_units(self, units: Units) -> "Features":
        """Divide by further units, and refuse those that are out of range together with the present ones."""
        if self.units is not None:
            units = _check_numbers(np.multiply(self.units, units).tolist())
        return Features(self.columns, units)

    def width(self, d: int) -> int:
        """Return how many numbers rows of d features become."""
        return d if self.columns is None else len(self.columns)

    def select(self, X: Array) -> Array:
        """Return the columns (n, c) of rows (n, d), before units: X itself if these are all."""
        return X if self.columns is None else np.take(X, self.columns, axis=1)

    def of(self, X: Array) -> Array:
        """Return the features (n, c) of rows (n, d), not finite where units make them overflow."""
        columns = self.select(X)
        if self.divisors is None:
            return columns
        with np.errstate(all="ignore"):
            scaled: Array = columns / self.divisors
        return scaled


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
    """Check units: a rule, or one positive number for each feature."""
    if isinstance(given, str):
        return check_choice("units", given, choices=UNIT_RULES)
    # Arrays without dimensions say that they are iterable, but are not.
    if not np.iterable(given) or isinstance(given, dict | set | frozenset | bytes):
        raise TypeError(
            "expected one positive number for each feature, as in [1.0, 0.5], or "
            f"{' or '.join(map(repr, UNIT_RULES))}, but got {given!r}"
        )
    listed = list(given)
    if not listed:
        raise ValueError("expected at least one unit but got none; leave .in_units() out to divide nothing")
    if any(np.iterable(item) and not isinstance(item, str) for item in listed):
        raise TypeError(
            "expected one positive number for each feature but got a matrix; give the model the rows X @ W.T instead"
        )
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
