"""The exchange: which atom goes for which row, judged by a sample of the stream."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca.basis import Basis, Projected, warn_indefinite
from streamkpca.factor import LEAST_PIVOT, inverse_factor
from streamkpca.moments import Moments
from streamkpca.reservoir import Reservoir
from streamkpca.selection_loops import insert_direction, remove_direction, subtract_outer

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# What an exchange wins must exceed so many standard errors. At 0 the choice follows the noise of the sample, and every
# exchange forgets what was recorded along the direction that goes; at 1 rare improvements are missed.
_CAUTION = 0.25

# Losses below this share of k(x, x) are rounding, and gains too.
_NOTHING = 1e-12

# Squared distances down to minus this share of k(x, x) may be the rounding of nearly dependent atoms.
_LEAST_LENGTH = 1e-3


@dataclass(frozen=True)
class Tenure:
    """What is known of each atom besides the row itself.

    Parameters
    ----------
    positions : ndarray of shape (m,) of int64
        Its position in the stream.
    weights : ndarray of shape (m,)
        What its row counts now.
    exposure : ndarray of shape (m,)
        Weight of the rows that came since it is an atom, its own block included.
    """

    positions: Positions
    weights: Array
    exposure: Array

    @classmethod
    def none(cls) -> "Tenure":
        """Return the tenure of no atom."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    def without(self, places: Positions) -> "Tenure":
        """Let atoms go."""
        return Tenure(
            np.delete(self.positions, places), np.delete(self.weights, places), np.delete(self.exposure, places)
        )

    def joined(self, positions: Positions, weights: Array, exposure: Array) -> "Tenure":
        """Append atoms."""
        return Tenure(
            np.concatenate([self.positions, positions]),
            np.concatenate([self.weights, weights]),
            np.concatenate([self.exposure, exposure]),
        )

    def decayed(self, factor: float) -> "Tenure":
        """Let all rows count `factor` times what they did."""
        return Tenure(self.positions, self.weights * factor, self.exposure * factor)

    def exposed(self, weight: float) -> "Tenure":
        """Count rows that all atoms have seen."""
        return Tenure(self.positions, self.weights, self.exposure + weight)


class Exchange:
    """Rows that may become atoms in exchange for others, before a jury of rows drawn from the stream.

    Parameters
    ----------
    basis : Basis
        The m atoms.
    tenure : Tenure
    moments : Moments
        Of the stream before the candidates' block.
    jury : Reservoir
        The candidates' block included.
    candidates : Projected
        The s rows, seen from the basis.
    positions, weights : ndarray of shape (s,)
        Theirs in the stream.
    total_weight : float
        Of the stream, the candidates' block included.

    Notes
    -----
    With R the residual inner products of jury (i) and candidates (c), V the coefficients of the jury's projections over
    the atoms, v those of the candidate's, P = K^-1 and t_i = R_ic / R_cc, the energy that row i gains from candidate c
    is R_ic^2 / R_cc, and what it then loses without atom j is

        (V_ij - t_i v_j)^2 / (P_jj + v_j^2 / R_cc):

    an atom that the candidate resembles is cheap to lose. Judging all pairs, and both sides of a pair by the same rows,
    is what a search among all rows does. On USPS digits (100 atoms, a stream of ten resamples) it ends at 1.01 times
    what batch greedy leaves unexplained, where the weakest atom regardless of the candidate stays at 1.03.

    A row is no witness in its own case: its share of the sample says nothing of its share of the stream, which is known
    to be a / N and is used instead. An atom that has seen more rows than the jury has is worth no less than what its
    moments say: a rare pattern that comes back again and again has no juror for it.

    O(n m (d + m)) to make for n jurors, O(n m + n s) an exchange besides O(n m s) to find it.
    """

    def __init__(
        self,
        basis: Basis,
        tenure: Tenure,
        moments: Moments,
        jury: Reservoir,
        candidates: Projected,
        positions: Positions,
        weights: Array,
        total_weight: float,
    ) -> None:
        program = basis.kernel.program
        jurors = basis.project(jury.rows)
        inverse = inverse_factor(basis.factor)
        # Powers of the residuals are taken relative to this, so that no scale of the kernel under- or overflows.
        unit = self._unit = float(np.abs(candidates.energy).max()) or 1.0
        self._votes = jury.inclusion_weights() / jury.inclusion_weights().sum()
        self._energy = jurors.energy / unit
        self._residual = jurors.residual / unit
        self._coefficients = jurors.coordinates @ inverse
        self._cross = (
            program.matrix(jury.rows, candidates.rows) - jurors.coordinates @ candidates.coordinates.T
        ) / unit
        self._gram = (program.gram(candidates.rows) - candidates.coordinates @ candidates.coordinates.T) / unit
        self._candidate_coefficients = candidates.coordinates @ inverse
        self._candidate_energy = candidates.energy / unit
        self._precision = inverse.T @ inverse * unit
        self._recorded = inverse.T @ moments.second @ inverse

        self._seats = _seats(jury.positions, tenure.positions)
        self._candidate_seats = _seats(jury.positions, positions)
        self._shares = tenure.weights / total_weight
        self._candidate_shares = weights / total_weight
        # Rows behind the moments, in rows of average weight, against rows of the jury.
        rows_seen = tenure.exposure * moments.total_weight / max(moments.total_squared_weight, 1e-300)
        self._exposure = np.where(rows_seen > len(jury), tenure.exposure, np.inf)
        self._free = np.ones(len(positions), dtype=bool)

    def best(self) -> tuple[int, int, float]:
        """Find the exchange that wins most.

        Returns
        -------
        candidate, place : int
            Who comes, and where the atom is that goes.
        profit : float
            Energy a unit of weight that the stream would win, less a quarter of a standard error; not positive where no
            exchange pays beyond rounding.
        """
        pivots = np.diagonal(self._gram)
        usable = np.flatnonzero(self._free & (pivots > LEAST_PIVOT * np.abs(self._candidate_energy)))
        usable = usable[np.array([self._leaves_lengths(int(c)) for c in usable], dtype=bool)]
        if not len(usable):
            return -1, -1, 0.0
        pivots, along, v = pivots[usable], self._cross[:, usable], self._candidate_coefficients[usable]
        t, votes = along / pivots, self._votes

        alone = np.einsum("i,ij,ij->j", votes, self._coefficients, self._coefficients) - self._own(self._seats)
        together = (t * votes[:, None]).T @ self._coefficients
        square = alone - 2.0 * v * together + v**2 * (votes @ t**2)[:, None]
        before = np.diagonal(self._precision)
        precision = before + v**2 / pivots[:, None]
        loss = np.maximum(square, 0.0) / precision
        # What moments say of the atom alone, less in the same proportion as the jury sees it; where it sees nothing of
        # the atom it has nothing to say against the record.
        witnessed = alone / before
        proportion = np.ones_like(loss)
        np.divide(loss, witnessed, out=proportion, where=witnessed > _NOTHING)
        recorded = np.diagonal(self._recorded) / before / self._exposure * np.minimum(proportion, 1.0)
        cost = np.maximum(loss + self._shares / precision, recorded)
        places = np.argmin(cost, axis=1)

        pairs = np.arange(len(usable))
        gained = along**2 / pivots
        lost = (self._coefficients[:, places] - t * v[pairs, places]) ** 2 / precision[pairs, places]
        own = self._own(self._candidate_seats[usable])
        gain = votes @ gained + (self._candidate_shares[usable] - own) * pivots
        spread = gained - lost
        spread -= votes @ spread
        for seats in (self._candidate_seats[usable], self._seats[places]):
            seated = np.flatnonzero(seats >= 0)
            spread[seats[seated], seated] = 0.0
        error = np.sqrt(votes**2 @ spread**2)
        profit = gain - cost[pairs, places] - _CAUTION * error - _NOTHING
        winner = int(np.argmax(profit))
        return int(usable[winner]), int(places[winner]), float(profit[winner]) * self._unit

    def carry_out(self, candidate: int, place: int) -> None:
        """Let a candidate take the place of an atom.

        Parameters
        ----------
        candidate, place : int
        """
        pivot = self._precision[place, place]
        share = self._precision[place] / pivot
        leaving = self._coefficients[:, place].copy()
        leaving_candidates = self._candidate_coefficients[:, place].copy()
        subtract_outer(self._coefficients, leaving, share)
        subtract_outer(self._candidate_coefficients, leaving_candidates, share)
        subtract_outer(self._cross, -leaving / pivot, leaving_candidates)
        subtract_outer(self._gram, -leaving_candidates / pivot, leaving_candidates)
        self._residual += leaving**2 / pivot
        remove_direction(place, share, self._precision, self._recorded)
        self._coefficients[:, place] = self._candidate_coefficients[:, place] = 0.0

        pivot = self._gram[candidate, candidate]
        along, along_candidates = self._cross[:, candidate].copy(), self._gram[candidate].copy()
        v = self._candidate_coefficients[candidate].copy()
        subtract_outer(self._coefficients, along / pivot, v)
        subtract_outer(self._candidate_coefficients, along_candidates / pivot, v)
        self._coefficients[:, place] = along / pivot
        self._candidate_coefficients[:, place] = along_candidates / pivot
        subtract_outer(self._cross, along / pivot, along_candidates)
        subtract_outer(self._gram, along_candidates / pivot, along_candidates)
        self._residual -= along**2 / pivot
        insert_direction(place, v / np.sqrt(pivot), 1.0 / np.sqrt(pivot), self._precision)

        self._seats[place] = self._candidate_seats[candidate]
        self._shares[place] = self._candidate_shares[candidate]
        self._exposure[place] = np.inf
        self._free[candidate] = False

    def _own(self, seats: Positions) -> Array:
        """Return the votes that rows have in their own case."""
        return np.where(seats >= 0, self._votes[seats], 0.0)

    def _leaves_lengths(self, candidate: int) -> bool:
        """Say whether no juror would get a negative squared distance to the span, beyond rounding.

        Inner products cannot do that (Cauchy and Schwarz); a kernel that is not positive definite can, and coordinates
        would grow without bound.
        """
        left = self._residual - self._cross[:, candidate] ** 2 / self._gram[candidate, candidate]
        impossible = left < -_LEAST_LENGTH * np.abs(self._energy)
        if impossible.any():
            warn_indefinite(float(left[impossible].min()))
        return not impossible.any()


def _seats(jurors: Positions, rows: Positions) -> Positions:
    """Return where rows sit in the jury; -1 where they do not."""
    seats = np.full(len(rows), -1)
    _, seated, found = np.intersect1d(jurors, rows, return_indices=True)
    seats[found] = seated
    return seats
