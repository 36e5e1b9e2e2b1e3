"""Swaps: which candidate row should replace which atom, judged by a sample of the stream."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import LEAST_PIVOT
from streamkpca._core.reservoir import Reservoir
from streamkpca.dictionary._loops import add_column, insert_direction, remove_direction, subtract_outer
from streamkpca.dictionary.basis import Basis, Projected, reveals_indefinite_kernel
from streamkpca.dictionary.moments import Moments, gram_of

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Losses and gains below this share of k(x, x) are rounding.
_NEGLIGIBLE = 1e-12

# Sampled rows projected at a time, which limits the memory used beside the sums.
_SAMPLED_ROWS_AT_ONCE = 1024

# Sampled rows for each atom of the budget. A choice among many rows fits a small sample better than the stream: with 20
# sampled rows for each of 200 atoms, the unexplained energy of server metrics was 1.04 times that of batch greedy; with
# 50 it is 1.02 times. The limits keep the search affordable, since its time is in proportion.
_SAMPLED_ROWS_PER_ATOM = 50
_LEAST_SAMPLED_ROWS, _MOST_SAMPLED_ROWS = 1024, 10240


def selection_sample_size(max_atoms: int | None) -> int:
    """Return how many rows of the stream judge candidates and atoms, given the budget of atoms."""
    return (
        _MOST_SAMPLED_ROWS
        if max_atoms is None
        else min(max(_SAMPLED_ROWS_PER_ATOM * max_atoms, _LEAST_SAMPLED_ROWS), _MOST_SAMPLED_ROWS)
    )


@dataclass(frozen=True)
class AtomStats:
    """What is known of each atom besides its row.

    Parameters
    ----------
    positions : ndarray of shape (m,) of int64
        Positions in the stream.
    weights : ndarray of shape (m,)
        Present weights of the atoms' rows.
    weight_since_admission : ndarray of shape (m,)
        Weight of the rows seen since the atom was admitted, its own block included.
    """

    positions: Positions
    weights: Array
    weight_since_admission: Array

    @classmethod
    def none(cls) -> "AtomStats":
        """Return the stats of no atoms."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    def without(self, atoms: Positions) -> "AtomStats":
        """Remove the atoms at some positions of the basis."""
        return AtomStats(
            np.delete(self.positions, atoms),
            np.delete(self.weights, atoms),
            np.delete(self.weight_since_admission, atoms),
        )

    def joined(self, positions: Positions, weights: Array, weight_since_admission: Array) -> "AtomStats":
        """Append atoms."""
        return AtomStats(
            np.concatenate([self.positions, positions]),
            np.concatenate([self.weights, weights]),
            np.concatenate([self.weight_since_admission, weight_since_admission]),
        )

    def decayed(self, factor: float) -> "AtomStats":
        """Multiply the weights of all rows by `factor`."""
        return AtomStats(self.positions, self.weights * factor, self.weight_since_admission * factor)

    def advanced(self, weight: float) -> "AtomStats":
        """Add the weight of new rows, which all atoms have seen."""
        return AtomStats(self.positions, self.weights, self.weight_since_admission + weight)


class SwapSearch:
    """Candidate rows that may replace atoms, judged by a sample of the stream.

    Parameters
    ----------
    basis : Basis
        The m atoms.
    stats : AtomStats
    moments : Moments
        Moments of the stream before the candidates' block.
    sample : Reservoir
        A sample of the stream, the candidates' block included.
    candidates : Projected
        The s candidates, projected onto the basis.
    positions, weights : ndarray of shape (s,)
        Positions of the candidates in the stream, and their weights.
    total_weight : float
        Weight of the stream, the candidates' block included.

    Notes
    -----
    Let R be the residual inner products of sampled rows (i) and candidates (c), V the coefficients of the sampled rows'
    projections over the atoms, v those of the candidate's projection, P = K^-1 and t_i = R_ic / R_cc. The energy that
    row i gains from candidate c is R_ic^2 / R_cc, and what it then loses without atom j is

        (V_ij - t_i v_j)^2 / (P_jj + v_j^2 / R_cc).

    So an atom that resembles the candidate costs little to lose. Like a search among all rows, this judges all pairs,
    and both sides of a pair by the same rows.

    When the sample judges a candidate or an atom, its own row is left out, because its share of the sample says nothing
    about its share of the stream. That share is known, a / N, and is used instead. An atom that has seen more rows than
    the sample has is worth at least what the moments record: a rare pattern that keeps coming back may have no row in
    the sample.

    Every mean over the sample is an entry of one Gram matrix, that of the columns of [V R], and a swap adds multiples
    of one column to the others. So this takes O(n (m + s) (d + m + s)) to make for n sampled rows, and O((m + s)^2) for
    each swap, whatever n is.
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
        # Powers of the residuals are taken in multiples of this, so that no scale of the kernel under- or overflows.
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
        # The moments count for an atom only if they record more rows of average weight for it than the sample has.
        rows_seen = stats.weight_since_admission * moments.total_weight / max(moments.total_squared_weight, 1e-300)
        self._weight_since_admission = np.where(rows_seen > len(sample), stats.weight_since_admission, np.inf)
        self._free = np.ones(len(positions), dtype=bool)

    def best(self) -> tuple[int, int, float]:
        """Find the swap that gains most.

        Returns
        -------
        candidate, atom : int
            The candidate to admit, and the position of the atom that it replaces.
        profit : float
            Energy that the stream would gain per unit of weight; not positive if no swap pays beyond rounding.
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
        # The candidate reduces the loss that the moments record for an atom in the same proportion as the loss that the
        # sample shows; if the sample shows none, the whole recorded loss counts.
        loss_before = alone / before
        proportion = np.ones_like(loss)
        np.divide(loss, loss_before, out=proportion, where=loss_before > _NEGLIGIBLE)
        recorded = np.diagonal(self._recorded) / before / self._weight_since_admission * np.minimum(proportion, 1.0)
        cost = np.maximum(loss + self._shares / precision, recorded)
        gain = gained[:, 0] + (self._candidate_shares - self._candidate_normalised_weights)[usable] * pivots[:, 0]
        profit = gain - cost.min(axis=1) - _NEGLIGIBLE
        winner = int(np.argmax(profit))
        return int(usable[winner]), int(np.argmin(cost[winner])), float(profit[winner]) * self._unit

    def apply(self, candidate: int, atom: int) -> None:
        """Let a candidate replace an atom."""
        m, sums, v = self._n_atoms, self._sums, self._coefficients
        pivot = self._precision[atom, atom]
        share, leaving = self._precision[atom] / pivot, v[:, atom].copy()
        add_column(sums, sums[atom].copy(), sums[atom, atom], np.concatenate([-share, leaving / pivot]))
        sums[atom] = sums[:, atom] = 0.0
        subtract_outer(v, leaving, share)
        subtract_outer(self._gram, -leaving / pivot, leaving)
        remove_direction(atom, share, self._precision, self._recorded)
        v[:, atom] = 0.0

        pivot = self._gram[candidate, candidate]
        along, entering = self._gram[candidate].copy(), v[candidate].copy()
        # The removed atom's column is zero, and becomes that of the candidate.
        multiples = np.concatenate([-entering, -along])
        multiples[atom] = 1.0
        add_column(sums, sums[m + candidate] / pivot, sums[m + candidate, m + candidate] / pivot**2, multiples)
        subtract_outer(v, along / pivot, entering)
        v[:, atom] = along / pivot
        subtract_outer(self._gram, along / pivot, along)
        insert_direction(atom, entering / np.sqrt(pivot), 1.0 / np.sqrt(pivot), self._precision)

        self._normalised_weights[atom] = self._candidate_normalised_weights[candidate]
        self._shares[atom] = self._candidate_shares[candidate]
        self._weight_since_admission[atom] = np.inf
        self._free[candidate] = False

    def _usable(self) -> Positions:
        """Find the remaining candidates that are independent of the atoms and do not reveal an indefinite kernel."""
        residual, energy = np.diagonal(self._gram), np.abs(self._energy)
        usable = np.flatnonzero(self._free & (residual > LEAST_PIVOT * energy))
        refused = reveals_indefinite_kernel(residual, self._gram[usable], residual[usable], energy, unit=self._unit)
        return usable[~refused]


def sample_gram(basis: Basis, sample: Reservoir, candidates: Projected, unit: float) -> Array:
    """Return the Gram matrix (m + s, m + s), weighted by the sample, of the columns of [V R].

    V are the coefficients of the sampled rows' projections over the m atoms, R their residual inner products with the s
    candidates, in multiples of `unit`.
    """
    m, size = basis.size, basis.size + len(candidates.rows)
    program, weights = basis.kernel.program, sample.normalised_weights()
    sums = np.zeros((size, size))
    # The arrays are made once for all parts. Where the allocator returns memory at once, as it does in dask's workers,
    # new pages for each part made a young stream take a quarter more time.
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
        # In place, since a scaled copy would be another array of this size.
        seen *= np.sqrt(weights[part])[:, None]
        sums += gram_of(seen)
    # V = C L^-1 turns sums over C into sums over V.
    inverse = basis.inverse * np.sqrt(unit)
    sums[:m] = inverse.T @ sums[:m]
    sums[:, :m] = sums[:, :m] @ inverse
    return sums


def normalised_weights_of(sample: Reservoir, positions: Positions) -> Array:
    """Look up the sample's normalised weights of rows, by their positions in the stream; shape (k,).

    A row outside the sample has weight 0.
    """
    weights = np.zeros(len(positions))
    _, in_sample, found = np.intersect1d(sample.positions, positions, return_indices=True)
    weights[found] = sample.normalised_weights()[in_sample]
    return weights
