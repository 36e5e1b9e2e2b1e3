"""What is expected of some numbers of a row, given its others, and how surprising its numbers are."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import one_blas_thread, squared_norms
from streamkpca.rows.gaps import WIDEST_TOGETHER

Array = npt.NDArray[np.float64]
Columns = npt.NDArray[np.intp]

# Logarithm of what is nothing beside 1; numbers that are almost too small for a float would be slow.
_NOTHING = -100.0
# Degrees of freedom of a number around that of a healthy row: a few far-off numbers must not outweigh the others.
_FREEDOM = 4.0
# Steps towards the widths, rows that these are found from, and the least width in standard deviations.
_STEPS, _MOST_QUERIES, _LEAST_WIDTH = 6, 128, 0.01
# One row in ten may have no other like it. Quantile of its squared deviation, and that of a squared normal number.
_USUAL, _SQUARED_NORMAL = 0.9, 2.7055
# Added to variances, relative to them.
_RIDGE = 0.01
# Deviations in widths beyond which a number counts less, and from which on it does not matter how far it is.
_NEAR, _FARTHEST = 5.0, 1e8
# Logarithm of the share of the likeliest healthy row from which on one counts.
_UNLIKELY = -40.0
# Half the length of a range, in standard deviations.
RANGE = 2.0
# Most healthy rows, and least; most numbers in them.
_MOST_ROWS, _LEAST_ROWS, _MOST_NUMBERS = 640, 64, 200_000


def n_rows_wanted(d: int) -> int:
    """Return how many healthy rows of d numbers an `Expectation` takes."""
    return min(max(_MOST_NUMBERS // d, _LEAST_ROWS), _MOST_ROWS)


class Compared(NamedTuple):
    """A row compared with n healthy ones: differences (n, d) in widths, 0 in gaps, and their Student's log densities.

    The densities are without their constants.
    """

    apart: Array
    logarithms: Array


class Expectation:
    """A density of rows around some healthy ones (n, d), in which each number may be wrong for itself.

    Notes
    -----
    p(x) is the mean over healthy rows s of prod_j t((x_j - s_j) / h_j) with Student's t of four degrees of freedom,
    without its constants. So rows like x are those that agree with most of its numbers, be the others as wrong as they
    may, and numbers are left out by leaving out their factors. The widths h maximise the likelihood of each healthy row
    among the others under normal factors, by expectation maximisation with a robust scale; features in which neighbours
    do not agree get wide ones. Within these widths, expected numbers follow the others linearly, by the covariance of
    the differences between neighbours. O(n d) a row.
    """

    @one_blas_thread()
    def __init__(self, rows: Array) -> None:
        spread = np.ptp(rows, axis=0)
        # The mean and the deviation of equal numbers are so up to rounding.
        self._mean = np.where(spread > 0.0, rows.mean(axis=0), rows[0])
        deviation = np.where(spread > 0.0, np.maximum(rows.std(axis=0), 0.01 * spread), 0.0)
        # A feature that never varied has no unit but its size.
        unit = np.where(deviation > 0.0, deviation, 0.01 * np.abs(self._mean))
        self._unit = np.where(unit > 0.0, unit, 0.01 * np.median(unit[unit > 0.0]) if unit.any() else 1.0)
        self._rows = (rows - self._mean) / self._unit
        self._width, self._precision = self._neighbourhood()

    def compared(self, rows: Array) -> Iterator[Compared]:
        """Compare each of rows (n, d), which may have gaps, with the healthy ones."""
        for row in rows:
            apart = (row - self._mean) / self._unit - self._rows
            apart /= self._width
            np.clip(apart, -_FARTHEST, _FARTHEST, out=apart)
            apart[:, np.isnan(row)] = 0.0
            yield Compared(apart, -0.5 * (_FREEDOM + 1.0) * np.log(1.0 + apart * apart / _FREEDOM))

    @property
    def widths(self) -> Array:
        """The widths h (d,), in the features' units."""
        return self._width * self._unit

    @one_blas_thread()
    def surprise(self, compared: Iterable[Compared], lags: int, n_conditions: int = 0) -> Array:
        """Return how surprising each feature of n rows of lags * d numbers is, with its predecessors: (n, d), >= 0.

        It is the sum of two squares, of -log p(x_j | others) and of -log p(x_j), both given the conditions, which are
        further columns at the end.
        """
        found = []
        for _, logarithms in compared:
            n, width = logarithms.shape
            alone = logarithms[:, : width - n_conditions].reshape(n, lags, -1).sum(axis=1)
            given = logarithms[:, width - n_conditions :].sum(axis=1)
            whole = alone.sum(axis=1) + given
            others = _log_of_sum(whole[:, None] - alone) - _log_of_sum(whole)
            found.append(others**2 + (_log_of_sum(given) - _log_of_sum(alone + given[:, None])) ** 2)
        return np.array(found)

    @one_blas_thread()
    def given(self, compared: Iterable[Compared], columns: Columns) -> tuple[Array, Array]:
        """Return means and standard deviations (n, k) of some columns (k,) of n rows, given the others."""
        is_kept = np.ones(len(self._mean))
        is_kept[columns] = 0.0
        kept = np.flatnonzero(is_kept)
        slopes: Any = np.zeros((len(kept), len(columns)))
        left = np.ones(len(columns))
        if len(self._precision):
            of_columns = np.linalg.inv(self._precision[np.ix_(columns, columns)])
            slopes = -self._precision[np.ix_(kept, columns)] @ of_columns
            left = np.maximum(np.diag(of_columns), _RIDGE)
        means, spreads = [], []
        width, unit = self._width[columns], self._unit[columns]
        for apart, logarithms in compared:
            likely = logarithms @ is_kept
            likely -= _log_of_sum(likely)
            near = np.flatnonzero(likely > likely.max() + _UNLIKELY)
            weights, away = np.exp(likely[near]), apart[np.ix_(near, kept)]
            away = np.clip(away, -_NEAR, _NEAR) ** 2 / np.where(away == 0.0, 1.0, away)
            found = self._rows[np.ix_(near, columns)] + away @ slopes * width
            means.append(weights @ found)
            spreads.append(np.sqrt(weights @ (found - means[-1]) ** 2 + left * width**2))
        shape = -1, len(columns)
        return np.reshape(means, shape) * unit + self._mean[columns], np.reshape(spreads, shape) * unit

    def _neighbourhood(self) -> tuple[Array, Array]:
        """Return the widths (d,), and the inverse covariance (d, d) of differences between neighbours in widths."""
        rows, (n, d) = self._rows, self._rows.shape
        width = np.full(d, max(n ** (-1.0 / (4 + min(d, 4))), _LEAST_WIDTH))
        if n < 3:
            return width, np.empty((0, 0))
        places = np.unique(np.linspace(0, n - 1, min(n, _MOST_QUERIES)).astype(np.intp))
        queries = rows[places]
        for _ in range(_STEPS):
            seen = rows / width
            lengths = 0.5 * squared_norms(seen)
            likely = seen[places] @ seen.T - lengths - lengths[places, None]
            likely[np.arange(len(places)), places] = -np.inf
            shares = np.exp(np.maximum(likely - likely.max(axis=1)[:, None], _NOTHING))
            shares /= shares.sum(axis=1)[:, None]
            means, squares = shares @ rows, shares @ rows**2
            deviations = np.maximum(queries**2 - 2.0 * queries * means + squares, 0.0)
            scale = np.sqrt(np.quantile(deviations, _USUAL, axis=0) / _SQUARED_NORMAL)
            width = np.maximum(scale, _LEAST_WIDTH)
        if d > WIDEST_TOGETHER:
            return width, np.empty((0, 0))
        # Rows that are far from all others say nothing about neighbours.
        counts = 1.0 / np.maximum((deviations / width**2).mean(axis=1), 1.0)
        counts /= counts.sum()
        cross = queries.T @ (counts[:, None] * means)
        own = queries.T @ (counts[:, None] * queries) + rows.T @ ((counts @ shares)[:, None] * rows)
        return width, np.linalg.inv((own - cross - cross.T) / width / width[:, None] + _RIDGE * np.eye(d))


def _log_of_sum(logarithms: Array) -> Array:
    """Return the logarithms of sums over the first axis."""
    largest = logarithms.max(axis=0)
    total: Array = np.log(np.exp(logarithms - largest).sum(axis=0)) + largest
    return total
