"""Rows with gaps, which are NaN: sums over columns, and the normal distribution that missing numbers are taken from."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import eigh

from streamkpca._core._loops import all_finite, fill_expected, nearest_atoms
from streamkpca._core.arrays import Array, Flags

# Rows of more features are taken to have independent columns: sums over pairs of columns would cost more than kernels.
WIDEST_TOGETHER = 256
# Eigenvalues of correlations below this, as where a column repeats another, are raised to it.
_LEAST_EIGENVALUE = 1e-6


def gaps_in(rows: Array) -> Flags | None:
    """Return which cells of rows (n, d) are missing; None if none is."""
    # NaN spoils the sum of finite numbers, and a sum that overflows is looked at.
    if all_finite(rows):
        return None
    missing = np.isnan(rows)
    return missing if missing.any() else None


@dataclass(frozen=True, eq=False)
class RowDistribution:
    """A normal distribution of rows.

    `mean` and `scale` (d,) are the mean and standard deviation of each column, scale 0 where it never varied;
    `precision` (d, d) is the inverse of the columns' correlations, or (0, 0) for independent columns.
    """

    mean: Array
    scale: Array
    precision: Array

    @property
    def is_independent(self) -> bool:
        """Whether columns say nothing about each other."""
        return not len(self.precision)

    def complete(self, rows: Array) -> Array:
        """Put the expected number, given the others of the row, in every gap of rows (n, d); O(g^2 (g + 1) + g d)."""
        out = np.empty(rows.shape)
        fill_expected(np.ascontiguousarray(rows), self.mean, self.scale, self.precision, out)
        return out

    def borrow(self, rows: Array, others: Array) -> Array:
        """Put the numbers of the nearest of some complete rows (m, d), at least one, in the gaps of rows (n, d)."""
        nearest = np.empty(len(rows), dtype=np.int64)
        nearest_atoms(np.ascontiguousarray(rows), others, self.scale, nearest)
        return np.where(np.isnan(rows), others[nearest], rows)


class ColumnSums(NamedTuple):
    """Sums over rows of what pairs of columns hold where both have a number; a value.

    Parameters
    ----------
    origin : ndarray of shape (d,)
        Subtracted from numbers, so that sums of squares keep their digits.
    sums : ndarray of shape (3, d, d) or (3, d)
        For columns j and k the weight of the rows that have both, and the sums of x_j and of x_j x_k over these; the
        diagonals alone where there are more than `WIDEST_TOGETHER` columns.
    total_weight, total_squared_weight : float
        Sums over all rows.
    n_rows : int
        Rows counted when the distribution was last made.
    """

    origin: Array
    sums: Array
    total_weight: float
    total_squared_weight: float
    n_rows: int

    @classmethod
    def none(cls, d: int) -> Self:
        """Return the sums over no rows."""
        return cls(np.zeros(d), np.zeros((3, d, d) if d <= WIDEST_TOGETHER else (3, d)), 0.0, 0.0, 0)

    @classmethod
    def of(cls, rows: Array, weights: Array) -> Self:
        """Return the sums over rows (n, d), with gaps, of weights (n,)."""
        return cls.none(rows.shape[1]).plus(rows, weights)

    @property
    def is_of_pairs(self) -> bool:
        """Whether there are sums for pairs of columns."""
        return self.sums.ndim == 3

    @property
    def of_columns(self) -> Array:
        """The sums of each column with itself, (3, d)."""
        return np.diagonal(self.sums, axis1=1, axis2=2).copy() if self.is_of_pairs else self.sums

    def plus(self, rows: Array, weights: Array) -> Self:
        """Add rows (n, d), with gaps, of weights (n,); O(n d^2)."""
        counting = weights > 0.0
        if not counting.any():
            return self
        rows, weights = rows[counting], weights[counting]
        present = ~np.isnan(rows)
        with np.errstate(all="ignore"):
            # Columns that had no number yet are measured from their mean.
            mean = (weights[:, None] * np.where(present, rows, 0.0)).sum(axis=0) / (weights @ present)
            origin = np.where((self.of_columns[0] == 0.0) & np.isfinite(mean), mean, self.origin)
            moved = np.where(present, rows - origin, 0.0)
            weighted, heavy = moved * weights[:, None], present * weights[:, None]
            if self.is_of_pairs:
                added = heavy.T @ present, weighted.T @ present, weighted.T @ moved
            else:
                added = heavy.sum(axis=0), weighted.sum(axis=0), (weighted * moved).sum(axis=0)
        return self._with(origin, np.array(added), float(weights.sum()), float(weights @ weights))

    def merge(self, other: Self) -> Self:
        """Add the sums over other rows."""
        origin = np.where(self.of_columns[0] > 0.0, self.origin, other.origin)
        shift = np.where(other.of_columns[0] > 0.0, other.origin - origin, 0.0)
        column = shift[:, None] if self.is_of_pairs else shift
        weight, first, second = other.sums
        second = second + column * first.T + shift * first + column * shift * weight
        moved = np.array([weight, first + column * weight, second])
        return self._with(origin, moved, other.total_weight, other.total_squared_weight)

    def _with(self, origin: Array, sums: Array, weight: float, squared_weight: float) -> Self:
        total, squared_total = self.total_weight + weight, self.total_squared_weight + squared_weight
        return type(self)(origin, self.sums + sums, total, squared_total, self.n_rows)

    def decay(self, factor: float) -> Self:
        """Multiply the weights of all rows by `factor`."""
        total, squared_total = self.total_weight * factor, self.total_squared_weight * factor**2
        return type(self)(self.origin, self.sums * factor, total, squared_total, self.n_rows)

    def distribution(self) -> RowDistribution:
        """Return the normal distribution with these moments; O(d^3).

        Correlations come from the rows that have both columns, so eigenvalues below zero are raised. Then they shrink
        towards none by the share that loses least for normal rows, which is more the fewer rows there are [1]_.

        References
        ----------
        .. [1] Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance estimation", IEEE
           Transactions on Signal Processing 58, 2010, eq. (23).
        """
        weight, first, second = self.of_columns
        with np.errstate(all="ignore"):
            seen = weight > 0.0
            shift = np.where(seen, first / weight, 0.0)
            spread = np.sqrt(np.maximum(np.where(seen, second / weight - shift**2, 0.0), 0.0))
            # Less than this is the rounding of numbers that are all the same.
            size = np.abs(np.where(seen, self.origin + shift, 0.0)) * 1e-12
            scale = np.where((spread > size) & np.isfinite(spread), spread, 0.0)
            mean = np.where(np.isfinite(self.origin + shift), self.origin + shift, 0.0)
            if not self.is_of_pairs:
                return RowDistribution(mean, scale, np.empty((0, 0)))
            weight, first, second = self.sums
            means = np.where(weight > 0.0, first / weight, 0.0)
            covariance = np.where(weight > 0.0, second / weight - means * means.T, 0.0)
            unit = np.where(scale > 0.0, scale, np.inf)
            correlations = np.clip(np.nan_to_num(covariance / unit / unit[:, None]), -1.0, 1.0)
        np.fill_diagonal(correlations, 1.0)
        values, vectors = eigh(correlations)
        shrunk = self._shrink(np.maximum(values, 0.0))
        precision = (vectors / shrunk) @ vectors.T
        return RowDistribution(mean, scale, 0.5 * (precision + precision.T))

    def _shrink(self, values: Array) -> Array:
        """Shrink the eigenvalues (d,) of correlations towards their mean, by what the number of rows suggests."""
        d = len(values)
        n = self.total_weight**2 / self.total_squared_weight if self.total_squared_weight > 0.0 else 1.0
        total, squares = float(values.sum()), float(values @ values)
        excess = (n + 1.0 - 2.0 / d) * (squares - total**2 / d)
        share = 1.0 if excess <= 0.0 else min(1.0, max(((1.0 - 2.0 / d) * squares + total**2) / excess, 0.0))
        shrunk: Array = np.maximum((1.0 - share) * values + share * total / d, _LEAST_EIGENVALUE)
        return shrunk
