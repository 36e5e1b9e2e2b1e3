"""The summary: all that is kept of the stream, advanced a block at a time."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.basis import Basis, Projected
from streamkpca.change import ResidualTrend
from streamkpca.exchange import Tenure
from streamkpca.factor import solve_factor
from streamkpca.kernels import Kernel
from streamkpca.moments import Moments
from streamkpca.reservoir import Reservoir, arrival_times
from streamkpca.selection import (
    Choice,
    choose_by_tolerance,
    choose_exchanges,
    choose_for_free_places,
    choose_to_shrink,
)

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Forgetting stops where the stream weighs so little: rows that count, the least of them 1e-100, outweigh it beyond all
# digits, and its shares are kept for as long as none come. Fading with the rows stops later than the user's own clock,
# so that pending rows and recorded ones keep their shares too.
LEAST_TOTAL_WEIGHT = 1e-120
_LEAST_FADED_WEIGHT = 1e-150
# What rows have faded to within a block is no weight any more: nothing can be divided by it.
_LEAST_WEIGHT = 1e-200

# Of a young stream every block is searched. Later one block in n^2 / 8192 is, after n of them, or four times as often
# while searches find something: what one more block can win falls as 1 / n, what it costs does not. At the end one
# block in 128 to 512; drift makes the stream young again.
_YOUTH = 8192
_LONGEST_PAUSE = 512
_PATIENCE = 4
_MOST_ROUNDS = 10
# Shares of the mean residual that exchanges must win to count as found, and to look through the same block once more.
_WORTHWHILE = 0.001
_WORTH_ANOTHER_ROUND = 0.003

# Rows of the sample that judges candidates and atoms, for each place. A choice between so many rows fits a small sample
# better than the stream: with 20 for each of 200 places, server metrics were left 1.04 times as unexplained as batch
# greedy leaves them, with 50 it is 1.02. The bounds keep the search affordable: it takes time in proportion.
_JURORS_A_PLACE = 50
_LEAST_JURORS, _MOST_JURORS = 1024, 10240


def possible_factor(factor: float, total_weight: float, least: float) -> float:
    """Limit forgetting to what leaves a total weight that can be divided by.

    Parameters
    ----------
    factor : float
        From 0 to 1.
    total_weight : float
    least : float
        What must be left of it.

    Returns
    -------
    float
        The factor, or one nearer to 1.
    """
    return max(factor, min(least / total_weight, 1.0)) if total_weight > 0.0 else 1.0


def jury_size(max_atoms: int | None) -> int:
    """Say how many rows judge candidates and atoms.

    Parameters
    ----------
    max_atoms : int or None
        Budget of atoms.

    Returns
    -------
    int
    """
    return _MOST_JURORS if max_atoms is None else min(max(_JURORS_A_PLACE * max_atoms, _LEAST_JURORS), _MOST_JURORS)


@dataclass(frozen=True)
class SearchPace:
    """When to look for atoms: rarely while nothing is found, at once when the stream is explained worse.

    Parameters
    ----------
    pause : int
        Blocks between searches.
    wait : int
        Blocks still to let pass.
    usual_residual : float
        Mean residual of the rows at the last search.
    age : int
        Blocks since the stream began, or changed.
    """

    pause: int = 1
    wait: int = 0
    usual_residual: float = np.inf
    age: int = 0

    def is_due(self, mean_residual: float, standard_error: float) -> bool:
        """Say whether this block should be searched.

        Parameters
        ----------
        mean_residual, standard_error : float
            Of the block's rows, in units of k(x, x).

        Returns
        -------
        bool
        """
        return self.wait == 0 or mean_residual - 3.0 * standard_error > self.usual_residual

    def skipped(self) -> Self:
        """Return the pace after a block that was not searched."""
        return replace(self, wait=self.wait - 1, age=self.age + 1)

    def searched(self, *, found: bool, mean_residual: float) -> Self:
        """Return the pace after a search."""
        longest = min(self.age**2 // _YOUTH, _LONGEST_PAUSE)
        pause = self.pause // 2 if found else min(2 * self.pause, longest)
        pause = max(pause, longest // _PATIENCE, 1)
        return replace(self, pause=pause, wait=pause - 1, usual_residual=mean_residual, age=self.age + 1)


class Summary:
    """Atoms, their orthonormal basis, and the stream's moments in it.

    Parameters
    ----------
    kernel : Kernel
        A settled kernel.
    n_features : int
        Width d of the rows.
    max_atoms : int or None
        Budget of atoms that the stream begins with.
    reservoir_size : int
        Rows of the random sample.
    seed : int
        Seed of the samples.

    Attributes
    ----------
    basis : Basis
    moments : Moments
    reservoir : Reservoir
    trend : ResidualTrend
    last_drift : int or None
        Number of rows taken in when a drift was last signalled.
    tenure : Tenure
        Position, weight and exposure of each atom.
    jury : Reservoir
        The sample that judges candidates and atoms. It is not the one that certificates read: rows that the choice of
        atoms has seen flatter it.
    n_rows : int
        Rows taken in.

    Notes
    -----
    The result is a function of the blocks alone. Arrays are replaced, never written to, so `copy` is cheap.
    """

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        *,
        max_atoms: int | None = None,
        reservoir_size: int = 0,
        seed: int = 0,
    ) -> None:
        self.seed = seed
        self.basis = Basis(kernel, n_features)
        self.moments = Moments.zero()
        self.tenure = Tenure.none()
        self.n_rows = 0
        self.jury = Reservoir.empty(jury_size(max_atoms), n_features)
        self.reservoir = Reservoir.empty(reservoir_size, n_features)
        self.trend = ResidualTrend()
        self.last_drift: int | None = None
        self._pace = SearchPace()

    def copy(self) -> Self:
        """Return a summary that goes its own way from here."""
        twin = type(self)(self.basis.kernel, self.basis.atoms.shape[1])
        twin.__dict__.update(self.__dict__)
        twin.basis = self.basis.copy()
        return twin

    def advance(
        self,
        rows: Array,
        weights: Array,
        *,
        max_atoms: int | None,
        tolerance: float,
        half_life: float | None = None,
    ) -> None:
        """Take in a block: choose atoms among its rows, then record it.

        Parameters
        ----------
        rows : ndarray of shape (B, d)
        weights : ndarray of shape (B,)
        max_atoms : int or None
            Budget of atoms, at least as many as are held; None for no bound but the tolerance.
        tolerance : float
            Share of the energy that may stay unexplained. Kept always without a budget; within one it decides
            whether a row is worth a free place.
        half_life : float or None
            Rows after which a row counts half; None for never.

        Notes
        -----
        O(B m (d + m)) to record, and O(B^2 (d + m)) more where atoms are looked for.
        """
        weights = self._age(weights, half_life)
        block = self.basis.project(rows)
        if self.basis.size:
            self._watch(block, weights, tolerance)
        times = self._arrival_times(rows)
        self.jury = self.jury.add(rows, weights, self.n_rows, times[1])
        block = self._search(block, weights, max_atoms, tolerance)
        self._record(block, weights, times[0])

    def shrink(self, max_atoms: int) -> None:
        """Let the weakest atoms go until the rest fits a budget.

        Parameters
        ----------
        max_atoms : int
        """
        if self.basis.size > max_atoms:
            choice = choose_to_shrink(self.basis, self.tenure, self.jury, max_atoms)
            self._change(choice, self.basis.atoms[:0], np.empty(0))

    def recount(self) -> None:
        """Forget the moments but keep the atoms: the second pass records every row in the final basis."""
        self.moments = Moments.zero(self.basis.size)
        self.tenure = replace(self.tenure, exposure=np.zeros(self.basis.size))
        self.reservoir = Reservoir.empty(self.reservoir.size, self.basis.atoms.shape[1])
        self.n_rows = 0

    def record(self, rows: Array, weights: Array, *, half_life: float | None = None) -> None:
        """Take in a block without looking for atoms.

        Parameters
        ----------
        rows : ndarray of shape (B, d)
        weights : ndarray of shape (B,)
        half_life : float or None
        """
        weights = self._age(weights, half_life)
        self._record(self.basis.project(rows), weights, self._arrival_times(rows)[0])

    def forget(self, factor: float) -> None:
        """Let all rows taken in so far count `factor` times what they did.

        Parameters
        ----------
        factor : float
            From 0 to 1.
        """
        factor = possible_factor(factor, self.moments.total_weight, _LEAST_FADED_WEIGHT)
        if factor < 1.0:
            self.moments = self.moments.decayed(factor)
            self.tenure = self.tenure.decayed(factor)
            self.jury = self.jury.decayed(factor)
            self.reservoir = self.reservoir.decayed(factor)

    def merge(self, other: Self) -> None:
        """Add what another stream has taught, as if its rows had come after these.

        Parameters
        ----------
        other : Summary
            With the same kernel; it stays as it is.

        Notes
        -----
        The other's atoms join the basis, and its moments are expressed in the union. What is known of directions that
        only one of the two spans stays what it is: an atom has then seen the rows of both streams. O(m^3) for m atoms
        in all.
        """
        known, own_weight, other_weight = self.basis.size, self.moments.total_weight, other.moments.total_weight
        joined = self.basis.extend(other.basis.atoms)
        # Row j of other.basis.factor holds atom j in the other's own basis: T = L2^-1 (its atoms in the union basis).
        in_union = self.basis.project(other.basis.atoms).coordinates
        coordinates = solve_factor(other.basis.factor, np.ascontiguousarray(in_union.T)).T
        self.moments = self.moments.grown(self.basis.size - known).merged(other.moments, coordinates)
        theirs = other.tenure
        self.tenure = self.tenure.exposed(other_weight).joined(
            self.n_rows + theirs.positions[joined], theirs.weights[joined], theirs.exposure[joined] + own_weight
        )
        self.jury = self.jury.merged(other.jury, self.n_rows)
        self.reservoir = self.reservoir.merged(other.reservoir, self.n_rows)
        self.n_rows += other.n_rows
        # What the rows to come leave unexplained by the union is not known yet.
        self.trend, self._pace = ResidualTrend(), SearchPace()

    def _age(self, weights: Array, half_life: float | None) -> Array:
        """Make older rows count less; the newest of the block keeps its weight."""
        if half_life is None:
            return weights
        # A clock so fast that a single row's age is beyond all numbers leaves the newest row.
        with np.errstate(over="ignore"):
            fading = np.exp2(-np.arange(len(weights) + 1)[::-1] / half_life)
        self.forget(float(fading[0]))
        aged: Array = weights * fading[1:]
        return np.where(aged < _LEAST_WEIGHT, 0.0, aged)

    def _arrival_times(self, rows: Array) -> Array:
        """Draw when the rows arrive in the race for the reservoir and in that for the jury."""
        return arrival_times(self.seed, self.n_rows, rows, 2)

    def _record(self, block: Projected, weights: Array, times: Array) -> None:
        self.moments = self.moments.add(block.coordinates, block.energy, weights)
        self.tenure = self.tenure.exposed(float(weights.sum()))
        self.reservoir = self.reservoir.add(block.rows, weights, self.n_rows, times)
        self.n_rows += len(weights)

    def _watch(self, block: Projected, weights: Array, tolerance: float) -> None:
        """Notice when the stream is explained worse than before, and look for atoms at once."""
        energy = float(weights @ np.abs(block.energy))
        if energy == 0.0:
            return
        residual = np.maximum(block.residual, 0.0)
        share = float(weights @ residual) / energy
        # Relative to the energy, whose square may be too large for a number.
        deviations = weights * (residual - share * np.abs(block.energy)) / energy
        # Below the tolerance nothing is wrong: whatever moves there is no change.
        trend = self.trend.observe(max(share, tolerance), float(np.sqrt(deviations @ deviations)))
        if trend.signalled and trend.n_blocks == 1:
            self.last_drift = self.n_rows + len(weights)
            self._pace = SearchPace()
        self.trend = trend

    def _search(self, block: Projected, weights: Array, max_atoms: int | None, tolerance: float) -> Projected:
        """Look for atoms where that is worth it; return the block as it is seen from the basis then."""
        if self._is_explained(block, weights, tolerance):
            return block
        if max_atoms is None:
            return self._changed(choose_by_tolerance(self.basis, block, weights, tolerance), block, weights)

        residual = np.maximum(block.residual, 0.0)
        mean_residual = float(np.average(residual, weights=weights))
        spread = float(np.average((residual - mean_residual) ** 2, weights=weights))
        standard_error = np.sqrt(spread * float(weights @ weights)) / float(weights.sum())
        if not self._pace.is_due(mean_residual, standard_error):
            self._pace = self._pace.skipped()
            return block
        profit = 0.0
        for _ in range(_MOST_ROUNDS):
            if self._is_explained(block, weights, tolerance):
                break
            choice = self._choose(block, weights, max_atoms, tolerance)
            if not choice:
                break
            block = self._changed(choice, block, weights)
            profit += choice.profit
            if choice.profit <= _WORTH_ANOTHER_ROUND * mean_residual:
                break
        found = profit > _WORTHWHILE * mean_residual
        self._pace = self._pace.searched(found=found, mean_residual=mean_residual)
        return block

    def _is_explained(self, block: Projected, weights: Array, tolerance: float) -> bool:
        # With zero tolerance every independent row counts, also one whose residual is tiny beside the block's energy.
        unexplained = float(weights @ np.maximum(block.residual, 0.0))
        return not weights.any() or (tolerance > 0.0 and unexplained <= tolerance * float(weights @ block.energy))

    def _choose(self, block: Projected, weights: Array, max_atoms: int, tolerance: float) -> Choice:
        if self.basis.size == max_atoms:
            return choose_exchanges(self.basis, self.tenure, self.moments, self.jury, block, weights, start=self.n_rows)
        total_weight = self.moments.total_weight + float(weights.sum())
        return choose_for_free_places(
            self.basis,
            block,
            weights,
            max_atoms=max_atoms,
            tolerance=tolerance,
            total_weight=total_weight,
            mean_energy=(self.moments.energy + float(weights @ block.energy)) / total_weight,
        )

    def _changed(self, choice: Choice, block: Projected, weights: Array) -> Projected:
        if not choice:
            return block
        self._change(choice, block.rows, weights)
        return self.basis.project(block.rows)

    def _change(self, choice: Choice, rows: Array, weights: Array) -> None:
        """Carry out a choice: atoms go first, so that the budget holds at any time."""
        if len(choice.removed):
            self.moments = self.moments.rotated(self.basis.remove(choice.removed))
            self.tenure = self.tenure.without(choice.removed)
        if len(choice.admitted):
            accepted = choice.admitted[self.basis.extend(rows[choice.admitted])]
            self.moments = self.moments.grown(len(accepted))
            self.tenure = self.tenure.joined(self.n_rows + accepted, weights[accepted], np.zeros(len(accepted)))
