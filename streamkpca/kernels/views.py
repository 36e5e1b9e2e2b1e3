"""Views: the features of rows that a kernel compares, in the units in which it compares them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import cached_property
from streamkpca._core.parameters import check_choice, check_integer, check_real, is_real

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
