"""The relation view: how surprising each number of a row is, given its others, by linear prediction."""

from dataclasses import dataclass, replace
from functools import reduce
from statistics import NormalDist
from typing import NamedTuple, Self

import numpy as np

from streamkpca._core._loops import condition_precision, fill_expected, solve_among
from streamkpca._core.arrays import Array, Positions
from streamkpca._core.concurrency import cached_property
from streamkpca._core.linalg import one_blas_thread
from streamkpca.components._loops import FARTHEST, multiply_rows, sum_relation_terms
from streamkpca.rows.gaps import gaps_in

# Numbers of a row up to which each is predicted by the others, as that takes the square of their number.
_MOST_RELATED = 1024
# Added to the variances of standardised columns; 0.1 costs 0.008 of the average precision on families of real streams.
_RIDGE = 0.01
# Quantile of the healthy residuals that is the unit of a feature; 0.9 costs 0.03 of the average precision.
_UNIT_QUANTILE = 0.99
# Smallest unit, in standard deviations of the column: what is off by less is rounding.
SMALLEST_UNIT = 0.01
# A deviation below this share of the mean is the rounding of numbers that are all the same.
_ROUNDING = 1e-12
# Parts of rows that are left out in turn, to be predicted by the others.
_N_PARTS = 4


def count_related(n_numbers: int) -> int:
    """Return how many numbers of a row are predicted by the others, and have moments: all of them, or none."""
    return n_numbers if n_numbers <= _MOST_RELATED else 0


class RowMoments(NamedTuple):
    """Weights, means (d,) and scatter (d, d) of rows, for each pair of columns over the rows that have both; a value.

    Where rows have gaps, which are NaN, weights are (d, d) and means[k, j] is the mean of column j over the rows that
    have columns k and j; without gaps they are (1, 1) and (1, d). Scatter sums the products of two deviations.
    Two sets of rows are combined by the pairwise update [1]_, whose terms are products of deviations: so no digits are
    lost where the numbers are large and vary little. Nothing is filled in, and all statistics are unbiased if numbers
    are missing at random.

    References
    ----------
    .. [1] T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
       variances", COMPSTAT 1982, eq. (2.1).
    """

    weights: Array
    means: Array
    scatter: Array

    @classmethod
    def none(cls, d: int) -> Self:
        """Return the moments of no rows of d columns."""
        return cls(np.zeros((1, 1)), np.zeros((1, d)), np.zeros((d, d)))

    def add(self, rows: Array) -> Self:
        """Add rows (n, d), which may have gaps; O(n d^2)."""
        return self.merge(_moments_of(rows)) if len(rows) else self

    def merge(self, other: "RowMoments") -> Self:
        """Add the moments of other rows; O(d^2)."""
        weights = self.weights + other.weights
        share = other.weights / np.where(weights > 0.0, weights, 1.0)
        with np.errstate(all="ignore"):
            shift = other.means - self.means
            scatter = self.scatter + other.scatter + shift * shift.T * (self.weights * share)
            return self._replace(weights=weights, means=self.means + shift * share, scatter=scatter)

    @property
    def mean(self) -> Array:
        """The mean of each column (d,), 0 for one without numbers."""
        return self.means[0] if len(self.means) == 1 else np.diagonal(self.means).copy()

    @property
    def deviation(self) -> Array:
        """The standard deviation of each column (d,), 0 for one that did not vary but for rounding."""
        weights = np.diagonal(self.weights)
        with np.errstate(all="ignore"):
            deviation = np.sqrt(np.diagonal(self.scatter) / np.where(weights > 0.0, weights, 1.0))
            varies = (deviation > _ROUNDING * np.abs(self.mean)) & np.isfinite(deviation)
        return np.where(varies, deviation, 0.0)

    @property
    def correlation(self) -> Array:
        """The correlations (d, d), positive semidefinite; 0 between a column that did not vary and others.

        Those of rows with gaps need not be the correlations of any rows: then eigenvalues below 0 are raised to it.
        """
        deviation = self.deviation
        unit = np.where(deviation > 0.0, deviation, np.inf)
        with np.errstate(all="ignore"):
            covariance = self.scatter / np.where(self.weights > 0.0, self.weights, 1.0)
            correlation = np.clip(np.nan_to_num(covariance / unit / unit[:, None]), -1.0, 1.0)
        np.fill_diagonal(correlation, 1.0)
        if len(self.weights) > 1:
            with one_blas_thread():
                values, vectors = np.linalg.eigh(correlation)
                root = vectors * np.sqrt(np.maximum(values, 0.0))
                root /= np.sqrt((root**2).sum(axis=1, keepdims=True))
                correlation = root @ root.T
        return correlation


@one_blas_thread()
def _moments_of(rows: Array) -> RowMoments:
    """Return the moments of rows (n, d), at least one."""
    missing = gaps_in(rows)
    with np.errstate(all="ignore"):
        if missing is None:
            # From the first row, so that the mean keeps its digits.
            mean = rows[0] + (rows - rows[0]).mean(axis=0)
            away = rows - mean
            return RowMoments(np.full((1, 1), float(len(rows))), mean[None], away.T @ away)
        present = np.where(missing, 0.0, 1.0)
        counts = present.T @ present
        divisor = np.maximum(counts, 1.0)
        origin = np.where(missing, 0.0, rows).sum(axis=0) / np.diagonal(divisor)
        away = np.where(missing, 0.0, rows - origin)
        sums = present.T @ away
        return RowMoments(counts, origin + sums / divisor, away.T @ away - sums * sums.T / divisor)


@dataclass(frozen=True, eq=False)
class Relation:
    """The best linear prediction of each number of a row by its others, and how far off healthy rows are; a value.

    Rows (d,) are standardised by `mean` and `scale`; that of a column that did not vary is its size, or 1 if it was 0.
    `precision` (d, d) is P = (C + 0.01 I)^-1 with the correlations C of the columns. `units` (d,) are the `quantile` of
    the sizes of healthy residuals, at least 0.01.

    Notes
    -----
    With the standardised row z, e_j = (P z)_j / P_jj is the difference between z_j and its ridge regression on the
    other columns, where the ridge is 0.01 of a variance. The term of feature j is log(1 + (e_j / q_j)^2) with its unit
    q_j, and the sum of the terms is the score: the logarithm of a pseudo-likelihood [1]_ whose conditional densities
    have the tails of Student's distribution.

    Where a row has gaps, numbers are predicted by the others that are there. What that adds to the variance of the
    prediction, times the square of the normal quantile, is added to q_j^2. O(d^2) a row, with g gaps O((g + d) g^2)
    more. No bit of an answer depends on other rows.

    References
    ----------
    .. [1] J. Besag, "Statistical analysis of non-lattice data", The Statistician 24, 1975.
    """

    mean: Array
    scale: Array
    precision: Array
    units: Array
    quantile: float = _UNIT_QUANTILE

    @classmethod
    def fit(cls, moments: RowMoments, healthy_rows: Array, quantile: float = _UNIT_QUANTILE) -> Self:
        """Take predictions from moments, and units from healthy rows (n, d); O(d^3 + n d^2).

        Units of rows that are in the moments too are smaller than those of other rows, the more so the fewer rows there
        are. A feature without healthy numbers takes the unit that normal residuals would have.
        """
        mean, deviation = moments.mean, moments.deviation
        size = np.where(mean != 0.0, np.abs(mean), 1.0)
        with one_blas_thread():
            precision = np.linalg.inv(moments.correlation + _RIDGE * np.eye(len(mean)))
        precision = 0.5 * (precision + precision.T)
        begun = cls(mean, np.where(deviation > 0.0, deviation, size), precision, np.ones(len(mean)), quantile)
        squares, added = begun._squared_residuals(healthy_rows)
        usual = begun._normal_quantile / np.sqrt(np.diagonal(precision))
        units = [_unit_of(*column, quantile) for column in zip((squares - added).T, usual, strict=True)]
        return replace(begun, units=np.array(units))

    @classmethod
    def fit_in_parts(cls, rows: Array, n_terms: int | None = None) -> tuple[Self, Array]:
        """Return the relation of rows (n, d), and how surprising each row is (n,) to that of the rows in other parts.

        So rows are scored as if they had not been seen, and so are the residuals that units are taken from.
        """
        parts = np.array_split(rows, _N_PARTS)
        moments = [RowMoments.none(rows.shape[1]).add(part) for part in parts]
        of_others = [reduce(RowMoments.merge, moments[:k] + moments[k + 1 :]) for k in range(_N_PARTS)]
        relations = [cls.fit(others, part) for others, part in zip(of_others, parts, strict=True)]
        units = np.mean([relation.units for relation in relations], axis=0)
        scores = [replace(one, units=units).score(part, n_terms) for one, part in zip(relations, parts, strict=True)]
        whole = cls.fit(reduce(RowMoments.merge, moments), rows)
        return replace(whole, units=units), np.concatenate(scores)

    def standardise(self, X: Array) -> Array:
        """Return rows (n, d) less the mean, over the scale; of size 1e60 at most."""
        with np.errstate(over="ignore"):
            rows: Array = np.clip((X - self.mean) / self.scale, -FARTHEST, FARTHEST)
        return rows

    def residuals(self, X: Array) -> Array:
        """Return what the numbers of rows (n, d) differ from their predictions, in scales: (n, d), NaN in gaps."""
        return self._find_residuals(X)[0]

    def terms(self, X: Array) -> Array:
        """Return how surprising the numbers of rows (n, d) are, given the others: (n, d), finite, >= 0, 0 in gaps."""
        squares, added = self._squared_residuals(X)
        terms: Array = np.log1p(np.nan_to_num(squares) / (self.units**2 + added))
        return terms

    def score(self, X: Array, n_terms: int | None = None) -> Array:
        """Return how surprising rows (n, d) are: (n,), the sums of their terms, or of the first `n_terms`."""
        n_terms = len(self.mean) if n_terms is None else n_terms
        sums, missing = np.empty(len(X)), gaps_in(X)
        weights, squares = self._weights
        sum_relation_terms(np.ascontiguousarray(X), self.mean, self.scale, weights, squares, n_terms, sums)
        if missing is not None:
            has_gaps = missing.any(axis=1)
            sums[has_gaps] = self.terms(X[has_gaps])[:, :n_terms].sum(axis=1)
        return sums

    def predict(self, X: Array, columns: Positions) -> tuple[Array, Array]:
        """Return means (n, k) and deviations (k,) of some columns (k,) of rows (n, d), given the others of each row."""
        rows, completed = X.copy(), np.empty(X.shape)
        rows[:, columns] = np.nan
        fill_expected(rows, self.mean, self.scale, self.precision, completed)
        # The more columns are left out, the less the others say about each.
        covariance = np.eye(len(columns))
        # The ridge makes every part of the precision definite.
        solve_among(self.precision, columns, covariance)
        added = np.diagonal(covariance) - 1.0 / self.precision[columns, columns]
        return completed[:, columns], self.scale[columns] * np.sqrt(self.deviations[columns] ** 2 + added)

    @cached_property
    def deviations(self) -> Array:
        """Deviations (d,) of healthy residuals, in scales, as if they were normal."""
        deviations: Array = self.units / self._normal_quantile
        return deviations

    @property
    def _normal_quantile(self) -> float:
        """The quantile of the sizes of normal numbers with deviation 1."""
        return NormalDist().inv_cdf(0.5 + 0.5 * self.quantile)

    @cached_property
    def _weights(self) -> tuple[Array, Array]:
        """The weights (d, d) of standardised numbers in residuals, and the inverse squares of the units (d,)."""
        return self.precision / np.diagonal(self.precision)[:, None], 1.0 / self.units**2

    def _multiply(self, rows: Array) -> Array:
        """Multiply rows (n, d), each by itself, by P with its rows divided by the diagonal."""
        residuals = np.empty(rows.shape)
        multiply_rows(np.ascontiguousarray(rows), self._weights[0], residuals)
        return residuals

    def _squared_residuals(self, X: Array) -> tuple[Array, Array | float]:
        """Return squared residuals (n, d), NaN in gaps, and what gaps add to the squared units."""
        residuals, variance = self._find_residuals(X)
        return residuals * residuals, self._normal_quantile**2 * variance

    def _find_residuals(self, X: Array) -> tuple[Array, Array | float]:
        """Return the residuals (n, d) of rows, NaN in gaps, and the variances (n, d) that gaps add to them."""
        rows = self.standardise(X)
        missing = gaps_in(rows)
        if missing is None:
            return self._multiply(rows), 0.0
        d, own = len(self.mean), np.diagonal(self.precision)
        completed, precision = np.empty(rows.shape), np.empty(rows.shape)
        fill_expected(np.ascontiguousarray(rows), np.zeros(d), np.ones(d), self.precision, completed)
        condition_precision(missing, self.precision, precision)
        residuals = self._multiply(completed) * (own / precision)
        return np.where(missing, np.nan, residuals), np.maximum(1.0 / precision - 1.0 / own, 0.0)


def _unit_of(squares: Array, usual: float, quantile: float) -> float:
    """Return the unit of a feature from squared residuals (n,), NaN in gaps, or the usual one if there are none."""
    sizes = np.sqrt(np.maximum(squares[~np.isnan(squares)], 0.0))
    return max(float(np.quantile(sizes, quantile)) if len(sizes) else usual, SMALLEST_UNIT)
