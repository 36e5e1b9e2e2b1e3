"""Swaps: which rows of the stream should replace which atoms, judged by a sample."""

from dataclasses import dataclass

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.linalg import LEAST_PIVOT
from streamkpca._core.reservoir import Draws, Reservoir
from streamkpca.dictionary import _loops as loops
from streamkpca.dictionary.basis import AtomStats, Basis, reveals_indefinite_kernel, rounding_error
from streamkpca.dictionary.moments import Moments
from streamkpca.dictionary.selection import Choice, normalised_weights_of, sample_gram

# Most candidates of a search.
MOST_CANDIDATES = 2048
# Sampled rows that screen the candidates. With half as many, the unexplained energy of a curved sheet was larger by
# another percent.
SCREENING_ROWS = 1024
# Candidates that the whole sample judges after that.
_MOST_JUDGED = 128
# Candidates that are screened at a time.
_CANDIDATES_AT_ONCE = 256
# Squares of residuals below this share of the largest k(x, x) would underflow.
_LEAST_SHARE = 1e-150
# Losses and gains below this share of k(x, x) are rounding.
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class SwapSearch:
    """Chooses candidates that replace atoms, see `Swaps`.

    The sample and `total_weight` include the present block, the moments do not. A row must exceed `usual_weight` to say
    anything about later rows by itself.
    """

    basis: Basis
    stats: AtomStats
    moments: Moments
    sample: Reservoir
    total_weight: float
    usual_weight: float = 0.0

    def shares(self, weights: Array) -> Array:
        """Return the shares of the stream (k,) that rows of weights (k,) stand for by themselves."""
        return np.maximum(weights - self.usual_weight, 0.0) / self.total_weight

    def choose(self, candidates: Draws) -> tuple[Choice, Draws]:
        """Choose candidates that replace atoms; return also those worth another search, best first.

        A part of the sample screens the candidates; the whole sample judges the best of them.
        """
        leading = self._screen(candidates)
        judged = leading[:_MOST_JUDGED]
        swaps: dict[int, int] = {}
        total_profit = 0.0
        if len(judged):
            swapped = Swaps(self, candidates.at(judged))
            for _ in judged:
                candidate, atom, profit = swapped.best()
                if profit <= 0.0:
                    break
                total_profit += profit
                swapped.apply(candidate, atom)
                # A candidate admitted and swapped out within one search is not recorded.
                swaps.pop(atom, None)
                swaps[atom] = candidate
        choice = Choice(judged[list(swaps.values())], np.array(sorted(swaps), dtype=np.int64), total_profit)
        return choice, candidates.at(leading[: 4 * _MOST_JUDGED])

    def _screen(self, candidates: Draws) -> Positions:
        """Find the independent candidates whose cautious gains are positive, in descending order."""
        basis, sample = self.basis, self.sample.first(SCREENING_ROWS)
        seen, sampled = basis.project(candidates.rows), basis.project(sample.rows)
        unit = float(np.abs(seen.energy).max(initial=0.0)) or 1.0
        rounding = rounding_error(seen.energy, seen.coordinates @ basis.inverse, basis.energy)
        least = np.maximum(rounding, np.maximum(LEAST_PIVOT * np.abs(seen.energy), _LEAST_SHARE * unit))
        independent = (seen.residual > least) & (candidates.weights > 0.0)
        independent &= ~np.isin(candidates.positions, self.stats.positions)
        pivots = np.where(independent, seen.residual / unit, 1.0)
        weights, own = sample.normalised_weights(), normalised_weights_of(sample, candidates.positions)
        squares, fourths = np.empty((2, len(pivots)))
        # A part of the candidates at a time, so that the passes over their inner products stay in the cache.
        for start in range(0, len(pivots), _CANDIDATES_AT_ONCE):
            part = slice(start, start + _CANDIDATES_AT_ONCE)
            products = basis.kernel.program.matrix(seen.rows[part], sampled.rows)
            products -= seen.coordinates[part] @ sampled.coordinates.T
            products /= unit
            if not basis.kernel.is_positive_definite:
                residual, energy = sampled.residual / unit, np.abs(sampled.energy) / unit
                independent[part] &= ~reveals_indefinite_kernel(residual, products, pivots[part], energy, unit=unit)
            products *= products
            squares[part] = products @ weights
            products *= products
            fourths[part] = products @ weights
        shares = self.shares(candidates.weights)
        gains = np.empty(len(pivots))
        loops.cautious_gains(squares, fourths, np.where(independent, pivots, 0.0), own, shares, weights, gains)
        order = np.argsort(-gains, kind="stable")
        return order[gains[order] > 0.0]


class Swaps:
    """Candidate rows that may replace atoms, judged by a sample of the stream.

    Let R be the residual inner products of sampled rows (i) and candidates (c), V the coefficients of the sampled rows'
    projections over the atoms, v those of the candidate's projection, P = K^-1 and t_i = R_ic / R_cc. The energy that
    row i gains from candidate c is R_ic^2 / R_cc, and what it then loses without atom j is

        (V_ij - t_i v_j)^2 / (P_jj + v_j^2 / R_cc).

    When the sample judges a candidate or an atom, its own row is left out and counts with its share of the stream,
    a / N, less `usual_weight` / N. An atom that has seen more rows than the sample has is worth at least what the
    moments record: a rare pattern that keeps coming back may have no row in the sample.

    Every mean over the sample is an entry of the Gram matrix of the columns of [V R], and a swap adds multiples of one
    column to the others: O(n (m + s) (d + m + s)) to make for n sampled rows, and O((m + s)^2) for each swap.
    """

    def __init__(self, search: SwapSearch, candidates: Draws) -> None:
        basis, stats, moments, sample = search.basis, search.stats, search.moments, search.sample
        seen = basis.project(candidates.rows)
        # Powers of the residuals are taken in multiples of this, so that no scale of the kernel under- or overflows.
        unit = self._unit = float(np.abs(seen.energy).max()) or 1.0
        inverse = basis.inverse
        self._n_atoms = basis.size
        self._sums = sample_gram(basis, sample, seen, unit)
        self._gram = (basis.kernel.program.gram(seen.rows) - seen.coordinates @ seen.coordinates.T) / unit
        self._coefficients = seen.coordinates @ inverse
        self._energy = seen.energy / unit
        self._precision = basis.precision * unit
        self._recorded = inverse.T @ moments.second @ inverse

        self._normalised_weights = normalised_weights_of(sample, stats.origins)
        self._candidate_normalised_weights = normalised_weights_of(sample, candidates.positions)
        self._shares = search.shares(stats.weights)
        self._candidate_shares = search.shares(candidates.weights)
        # The moments count for an atom only if they record more rows of average weight for it than the sample has.
        rows_seen = stats.weight_since_admission * moments.total_weight / max(moments.total_squared_weight, 1e-300)
        self._weight_since_admission = np.where(rows_seen > len(sample), stats.weight_since_admission, np.inf)
        self._free = np.ones(len(seen.rows), dtype=bool)
        self._may_be_indefinite = not basis.kernel.is_positive_definite

    def best(self) -> tuple[int, int, float]:
        """Find the candidate and the atom whose swap gains most, and its gain of energy per unit of weight."""
        precision = np.diagonal(self._precision).copy()
        found = np.full(2, -1)
        profit = loops.best_swap(
            self._sums,
            self._usable_pivots(),
            self._coefficients,
            precision,
            self._normalised_weights,
            self._shares,
            np.diagonal(self._recorded) / precision / self._weight_since_admission,
            self._candidate_shares - self._candidate_normalised_weights,
            _NEGLIGIBLE,
            found,
        )
        candidate, atom = found.tolist()
        return candidate, atom, profit * self._unit if candidate >= 0 else 0.0

    def apply(self, candidate: int, atom: int) -> None:
        """Let a candidate replace an atom."""
        m, sums, v = self._n_atoms, self._sums, self._coefficients
        pivot = self._precision[atom, atom]
        share, leaving = self._precision[atom] / pivot, v[:, atom].copy()
        loops.add_column(sums, sums[atom].copy(), sums[atom, atom], np.concatenate([-share, leaving / pivot]))
        sums[atom] = sums[:, atom] = 0.0
        loops.subtract_outer(v, leaving, share)
        loops.subtract_outer(self._gram, -leaving / pivot, leaving)
        loops.remove_direction(atom, share, self._precision, self._recorded)
        v[:, atom] = 0.0

        pivot = self._gram[candidate, candidate]
        along, entering = self._gram[candidate].copy(), v[candidate].copy()
        # The removed atom's column is zero, and becomes that of the candidate.
        multiples = np.concatenate([-entering, -along])
        multiples[atom] = 1.0
        loops.add_column(sums, sums[m + candidate] / pivot, sums[m + candidate, m + candidate] / pivot**2, multiples)
        loops.subtract_outer(v, along / pivot, entering)
        v[:, atom] = along / pivot
        loops.subtract_outer(self._gram, along / pivot, along)
        # The candidate's dual vector is r / |r|^2, and those of the others lose their share along its residual r.
        change = -entering / np.sqrt(pivot)
        change[atom] = 1.0 / np.sqrt(pivot)
        loops.subtract_outer(self._precision, -change, change)

        self._normalised_weights[atom] = self._candidate_normalised_weights[candidate]
        self._shares[atom] = self._candidate_shares[candidate]
        self._weight_since_admission[atom] = np.inf
        self._free[candidate] = False

    def _usable_pivots(self) -> Array:
        """Return residuals (s,) of candidates; 0 if admitted, dependent, or revealing an indefinite kernel."""
        residual, energy = np.diagonal(self._gram), np.abs(self._energy)
        usable = self._free & (residual > LEAST_PIVOT * energy)
        if self._may_be_indefinite:
            rows = np.flatnonzero(usable)
            usable[rows] = ~reveals_indefinite_kernel(
                residual, self._gram[rows], residual[rows], energy, unit=self._unit
            )
        return np.where(usable, residual, 0.0)
