"""What is expected of some numbers of a row, given its others, and how surprising its numbers are."""

import numpy as np
import numpy.typing as npt

from streamkpca._core._loops import solve_among
from streamkpca._core.arrays import Array, Flags
from streamkpca._core.linalg import one_blas_thread, squared_norms
from streamkpca.components._loops import expect_numbers, measure_surprise
from streamkpca.rows.gaps import WIDEST_TOGETHER

Columns = npt.NDArray[np.intp]

# Logarithm of what is nothing beside 1; numbers that are almost too small for a float would be slow.
_NOTHING = -100.0
# Steps towards the widths.
_STEPS = 6
# Rows that the widths are found from.
_MOST_QUERIES = 128
# The least width, in standard deviations.
_LEAST_WIDTH = 0.01
# Share of the rows that must have others like them: one row in ten may have none.
_USUAL = 0.9
# The quantile of that share of a squared normal number.
_SQUARED_NORMAL = 2.7055
# Added to variances, relative to them.
_RIDGE = 0.01
# Numbers farther off than this, in standard deviations, are as far.
_FARTHEST = 1e100
# Half the length of a range, in standard deviations.
RANGE = 2.0
# Most healthy rows.
_MOST_ROWS = 640
# Least healthy rows, however wide they are.
_LEAST_ROWS = 64
# Most numbers in the healthy rows: 1.6 MB.
_MOST_NUMBERS = 200_000


def n_rows_wanted(d: int) -> int:
    """Return how many healthy rows of d numbers an `Expectation` takes."""
    return min(max(_MOST_NUMBERS // d, _LEAST_ROWS), _MOST_ROWS)


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
        rows = (rows - self._mean) / self._unit
        self._columns = np.ascontiguousarray(rows.T)
        self._low, self._high = rows.min(axis=0), rows.max(axis=0)
        self._width, self._precision = _neighbourhood(rows)
        self._closeness = 1.0 / self._width

    def surprise(self, rows: Array, lags: int, n_conditions: int = 0) -> Array:
        """Return how surprising each feature of n rows of lags * d numbers is, with its predecessors: (n, d), >= 0.

        It is the sum of two squares, of -log p(x_j | others) and of -log p(x_j), both given the conditions, which are
        further columns at the end. Rows may have gaps.
        """
        found = np.empty((len(rows), (rows.shape[1] - n_conditions) // lags))
        measure_surprise(self.standardise(rows), self._closeness, self._columns, lags, found)
        return found

    def predict(self, rows: Array, columns: Columns) -> tuple[Array, Array]:
        """Return means and standard deviations (n, k) of some columns (k,) of n rows, given the others."""
        k, d = len(columns), rows.shape[1]
        slopes, left, width = np.zeros((k, d)), np.ones(k), self._width[columns]
        if len(self._precision):
            solved = np.hstack([-self._precision[columns], np.eye(k)])
            if solve_among(self._precision, columns, solved):
                slopes, left = width[:, None] * solved[:, :d], np.diagonal(solved[:, d:])
        closeness = self._closeness.copy()
        closeness[columns] = 0.0
        means, variances = np.empty((2, len(rows), k))
        expect_numbers(self.standardise(rows), closeness, self._columns, columns, slopes, means, variances)
        unit = self._unit[columns]
        return means * unit + self._mean[columns], np.sqrt(variances + np.maximum(left, _RIDGE) * width * width) * unit

    def covers(self, values: Array, columns: Columns) -> Flags:
        """Tell which values (n, k) of some columns (k,) lie within the healthy ones, or within half their range."""
        low, high = self._low[columns], self._high[columns]
        standardised = (values - self._mean[columns]) / self._unit[columns]
        is_near: Flags = np.abs(standardised - 0.5 * (low + high)) <= high - low
        return is_near

    def standardise(self, rows: Array) -> Array:
        """Return rows (n, d) less the healthy mean, in healthy deviations."""
        with np.errstate(over="ignore"):
            seen: Array = np.clip((rows - self._mean) / self._unit, -_FARTHEST, _FARTHEST)
        return seen


def _neighbourhood(rows: Array) -> tuple[Array, Array]:
    """Return the widths (d,), and the inverse covariance (d, d) of differences between neighbours in widths."""
    n, d = rows.shape
    width = np.full(d, max(n ** (-1.0 / (4 + min(d, 4))), _LEAST_WIDTH))
    if n < 3:
        return width, np.empty((0, 0))
    places = np.unique(np.linspace(0, n - 1, min(n, _MOST_QUERIES)).astype(np.intp))
    queries, summed = rows[places], np.hstack([rows, rows**2, np.ones((n, 1))])
    place, share = divmod(_USUAL * (len(places) - 1), 1.0)
    for _ in range(_STEPS):
        seen = rows / width
        shares = seen[places] @ seen.T - 0.5 * squared_norms(seen)
        shares[np.arange(len(places)), places] = -np.inf
        shares -= shares.max(axis=1)[:, None]
        np.exp(np.maximum(shares, _NOTHING, out=shares), out=shares)
        means, squares, total = np.split(shares @ summed, [d, 2 * d], axis=1)
        means, squares = means / total, squares / total
        deviations = np.maximum(queries**2 - 2.0 * queries * means + squares, 0.0)
        # The quantile between two rows, in a tenth of the time of numpy's.
        usual = [1.0 - share, share] @ np.sort(deviations, axis=0)[int(place) :][:2]
        width = np.maximum(np.sqrt(usual / _SQUARED_NORMAL), _LEAST_WIDTH)
    if d > WIDEST_TOGETHER:
        return width, np.empty((0, 0))
    # Rows that are far from all others say nothing about neighbours.
    counts = 1.0 / np.maximum((deviations / width**2).mean(axis=1), 1.0)
    counts /= counts.sum()
    cross = queries.T @ (counts[:, None] * means)
    own = queries.T @ (counts[:, None] * queries) + rows.T @ ((counts / total[:, 0] @ shares)[:, None] * rows)
    return width, np.linalg.inv((own - cross - cross.T) / width / width[:, None] + _RIDGE * np.eye(d))
