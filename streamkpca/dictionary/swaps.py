"""The exchange: which atom goes for which row, judged by a sample of the stream."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca._core.reservoir import Reservoir
from streamkpca._core.triangular import LEAST_PIVOT
from streamkpca.dictionary._loops import add_column, insert_direction, remove_direction, subtract_outer
from streamkpca.dictionary.basis import Basis, Projected, warn_indefinite
from streamkpca.dictionary.moments import Moments, gram_of

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# ProjectionLoss below this share of k(x, x) are rounding, and gains too.
_NOTHING = 1e-12

# Squared distances down to minus this share of k(x, x) may be the rounding of nearly dependent atoms.
_LEAST_LENGTH = 1e-3

# Memory beside the sums is that of so many sampled.
_SAMPLED_ROWS_AT_ONCE = 1024

# Rows of the sample that judges candidates and atoms, for each place. A choice between so many rows fits a small sample
# better than the stream: with 20 for each of 200 places, server metrics were left 1.04 times as unexplained as batch
# greedy leaves them, with 50 it is 1.02. The bounds keep the search affordable: it takes time in proportion.
_SAMPLED_ROWS_PER_ATOM = 50
_LEAST_SAMPLED_ROWS, _MOST_SAMPLED_ROWS = 1024, 10240


def selection_sample_size(max_atoms: int | None) -> int:
    """Say how many rows judge candidates and atoms.

    Parameters
    ----------
    max_atoms : int or None
        Budget of atoms.

    Returns
    -------
    int
    """
    return (
        _MOST_SAMPLED_ROWS
        if max_atoms is None
        else min(max(_SAMPLED_ROWS_PER_ATOM * max_atoms, _LEAST_SAMPLED_ROWS), _MOST_SAMPLED_ROWS)
    )


@dataclass(frozen=True)
class AtomStats:
    """What is known of each atom besides the row itself.

    Parameters
    ----------
    positions : ndarray of shape (m,) of int64
        Its position in the stream.
    weights : ndarray of shape (m,)
        What its row counts now.
    weight_since_admission : ndarray of shape (m,)
        Weight of the rows that came since it is an atom, its own block included.
    """

    positions: Positions
    weights: Array
    weight_since_admission: Array

    @classmethod
    def none(cls) -> "AtomStats":
        """Return the stats of no atom."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    def without(self, places: Positions) -> "AtomStats":
        """Let atoms go."""
        return AtomStats(
            np.delete(self.positions, places),
            np.delete(self.weights, places),
            np.delete(self.weight_since_admission, places),
        )

    def joined(self, positions: Positions, weights: Array, weight_since_admission: Array) -> "AtomStats":
        """Append atoms."""
        return AtomStats(
            np.concatenate([self.positions, positions]),
            np.concatenate([self.weights, weights]),
            np.concatenate([self.weight_since_admission, weight_since_admission]),
        )

    def decayed(self, factor: float) -> "AtomStats":
        """Let all rows count `factor` times what they did."""
        return AtomStats(self.positions, self.weights * factor, self.weight_since_admission * factor)

    def advanced(self, weight: float) -> "AtomStats":
        """Count rows that all atoms have seen."""
        return AtomStats(self.positions, self.weights, self.weight_since_admission + weight)


class SwapSearch:
    """Rows that may become atoms in exchange for others, before a sample of rows drawn from the stream.

    Parameters
    ----------
    basis : Basis
        The m atoms.
    stats : AtomStats
    moments : Moments
        Of the stream before the candidates' block.
    sample : Reservoir
        The candidates' block included.
    candidates : Projected
        The s rows, seen from the basis.
    positions, weights : ndarray of shape (s,)
        Theirs in the stream.
    total_weight : float
        Of the stream, the candidates' block included.

    Notes
    -----
    With R the residual inner products of sample (i) and candidates (c), V the coefficients of the sample's projections
    over the atoms, v those of the candidate's, P = K^-1 and t_i = R_ic / R_cc, the energy that row i gains from
    candidate c is R_ic^2 / R_cc, and what it then loses without atom j is

        (V_ij - t_i v_j)^2 / (P_jj + v_j^2 / R_cc):

    an atom that the candidate resembles is cheap to lose. Judging all pairs, and both sides of a pair by the same rows,
    is what a search among all rows does.

    A row is no witness in its own case: its share of the sample says nothing of its share of the stream, which is known
    to be a / N and is used instead. An atom that has seen more rows than the sample has is worth no less than what its
    moments say: a rare pattern that comes back again and again has no juror for it.

    Every mean over the sample is an entry of one Gram matrix, that of the columns of [V R]; an exchange adds multiples
    of one column to the others. So O(n (m + s) (d + m + s)) to make for n sampled, and O((m + s)^2) an exchange,
    whatever n is.
    """

    def __init__(
        self,
        basis: Basis,
        stats: AtomStats,
        moments: Moments,
        sample: Reservoir,
        candidates: Projected,
        positions: Positions,
        weights: Array,
        total_weight: float,
    ) -> None:
        # Powers of the residuals are taken relative to this, so that no scale of the kernel under- or overflows.
        unit = self._unit = float(np.abs(candidates.energy).max()) or 1.0
        inverse = basis.inverse
        self._n_atoms = basis.size
        self._sums = sample_gram(basis, sample, candidates, unit)
        own_gram = basis.kernel.program.gram(candidates.rows)
        self._gram = (own_gram - candidates.coordinates @ candidates.coordinates.T) / unit
        self._coefficients = candidates.coordinates @ inverse
        self._energy = candidates.energy / unit
        self._precision = basis.precision * unit
        self._recorded = inverse.T @ moments.second @ inverse

        self._normalised_weights = normalised_weights_of(sample, stats.positions)
        self._candidate_normalised_weights = normalised_weights_of(sample, positions)
        self._shares = stats.weights / total_weight
        self._candidate_shares = weights / total_weight
        # Rows behind the moments, in rows of average weight, against rows of the sample.
        rows_seen = stats.weight_since_admission * moments.total_weight / max(moments.total_squared_weight, 1e-300)
        self._weight_since_admission = np.where(rows_seen > len(sample), stats.weight_since_admission, np.inf)
        self._free = np.ones(len(positions), dtype=bool)

    def best(self) -> tuple[int, int, float]:
        """Find the exchange that wins most.

        Returns
        -------
        candidate, place : int
            Who comes, and where the atom is that goes.
        profit : float
            Energy a unit of weight that the stream would win; not positive where no exchange pays beyond rounding.
        """
        usable = self._usable()
        if not len(usable):
            return -1, -1, 0.0
        m, pivots, v = self._n_atoms, np.diagonal(self._gram)[usable, None], self._coefficients[usable]
        squares = np.diagonal(self._sums)
        # Means over the sample of V_j^2, t V_j and t^2.
        alone = squares[:m] - self._normalised_weights
        together = self._sums[m + usable, :m] / pivots
        gained = squares[m + usable, None] / pivots
        before = np.diagonal(self._precision)
        precision = before + v**2 / pivots
        loss = np.maximum(alone - 2.0 * v * together + v**2 * gained / pivots, 0.0) / precision
        # What moments say of the atom alone, less in the same proportion as the sample sees it; where it sees nothing
        # of the atom it has nothing to say against the record.
        witnessed = alone / before
        proportion = np.ones_like(loss)
        np.divide(loss, witnessed, out=proportion, where=witnessed > _NOTHING)
        recorded = np.diagonal(self._recorded) / before / self._weight_since_admission * np.minimum(proportion, 1.0)
        cost = np.maximum(loss + self._shares / precision, recorded)
        gain = gained[:, 0] + (self._candidate_shares - self._candidate_normalised_weights)[usable] * pivots[:, 0]
        profit = gain - cost.min(axis=1) - _NOTHING
        winner = int(np.argmax(profit))
        return int(usable[winner]), int(np.argmin(cost[winner])), float(profit[winner]) * self._unit

    def apply(self, candidate: int, place: int) -> None:
        """Let a candidate take the place of an atom.

        Parameters
        ----------
        candidate, place : int
        """
        m, sums, v = self._n_atoms, self._sums, self._coefficients
        pivot = self._precision[place, place]
        share, leaving = self._precision[place] / pivot, v[:, place].copy()
        add_column(sums, sums[place].copy(), sums[place, place], np.concatenate([-share, leaving / pivot]))
        sums[place] = sums[:, place] = 0.0
        subtract_outer(v, leaving, share)
        subtract_outer(self._gram, -leaving / pivot, leaving)
        remove_direction(place, share, self._precision, self._recorded)
        v[:, place] = 0.0

        pivot = self._gram[candidate, candidate]
        along, entering = self._gram[candidate].copy(), v[candidate].copy()
        # The column of the place is zero, and becomes the newcomer's.
        multiples = np.concatenate([-entering, -along])
        multiples[place] = 1.0
        add_column(sums, sums[m + candidate] / pivot, sums[m + candidate, m + candidate] / pivot**2, multiples)
        subtract_outer(v, along / pivot, entering)
        v[:, place] = along / pivot
        subtract_outer(self._gram, along / pivot, along)
        insert_direction(place, entering / np.sqrt(pivot), 1.0 / np.sqrt(pivot), self._precision)

        self._normalised_weights[place] = self._candidate_normalised_weights[candidate]
        self._shares[place] = self._candidate_shares[candidate]
        self._weight_since_admission[place] = np.inf
        self._free[candidate] = False

    def _usable(self) -> Positions:
        """Find the candidates that are independent of the atoms, and whose direction is no impossible one.

        Inner products leave no row a negative squared distance to the span (Cauchy and Schwarz); a kernel that is not
        positive definite can, and coordinates would grow without bound.
        """
        residual, energy = np.diagonal(self._gram), np.abs(self._energy)
        usable = np.flatnonzero(self._free & (residual > LEAST_PIVOT * energy))
        left = residual - self._gram[usable] ** 2 / residual[usable, None]
        impossible = left < -_LEAST_LENGTH * energy
        if impossible.any():
            warn_indefinite(float(left[impossible].min()) * self._unit)
        return usable[~impossible.any(axis=1)]


def sample_gram(basis: Basis, sample: Reservoir, candidates: Projected, unit: float) -> Array:
    """Sum over a sample the products of what it sees of atoms and candidates.

    Parameters
    ----------
    basis : Basis
        The m atoms.
    sample : Reservoir
        Its n rows.
    candidates : Projected
        The s rows, seen from the basis.
    unit : float
        Unit of residual products.

    Returns
    -------
    ndarray of shape (m + s, m + s)
        Gram matrix, by the sample's weights_, of the columns of [V R]: coefficients over the atoms, and residual inner
        products with the candidates.
    """
    m, size = basis.size, basis.size + len(candidates.rows)
    program, weights_ = basis.kernel.program, sample.normalised_weights()
    sums = np.zeros((size, size))
    # Made once: where an allocator gives memory back at once, as dask has its workers do, new pages for each part made
    # a young stream take a quarter more time.
    n_most = min(len(sample), _SAMPLED_ROWS_AT_ONCE)
    all_seen, all_spanned = np.empty((n_most, size)), np.empty((n_most, size - m))
    for start in range(0, len(sample), _SAMPLED_ROWS_AT_ONCE):
        part = slice(start, start + _SAMPLED_ROWS_AT_ONCE)
        sampled = basis.project(sample.part(part))
        seen, spanned = all_seen[: len(sampled.rows)], all_spanned[: len(sampled.rows)]
        np.divide(sampled.coordinates, np.sqrt(unit), out=seen[:, :m])
        cross = program.matrix(sampled.rows, candidates.rows)
        cross -= np.matmul(sampled.coordinates, candidates.coordinates.T, out=spanned)
        np.divide(cross, unit, out=seen[:, m:])
        # In place, for a scaled copy would be another array of this size.
        seen *= np.sqrt(weights_[part])[:, None]
        sums += gram_of(seen)
    # V = C L^-1, and so for the sums.
    inverse = basis.inverse * np.sqrt(unit)
    sums[:m] = inverse.T @ sums[:m]
    sums[:, :m] = sums[:, :m] @ inverse
    return sums


def normalised_weights_of(sample: Reservoir, positions: Positions) -> Array:
    """Look up the votes that rows of the stream have in their own case.

    Parameters
    ----------
    sample : Reservoir
    positions : ndarray of shape (k,) of int64
        Of the rows.

    Returns
    -------
    ndarray of shape (k,)
        0 where a row does not sit in the sample.
    """
    own = np.zeros(len(positions))
    _, seats, found = np.intersect1d(sample.positions, positions, return_indices=True)
    own[found] = sample.normalised_weights()[seats]
    return own
