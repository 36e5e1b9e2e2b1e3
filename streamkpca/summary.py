"""The summary: all that is kept of the stream, advanced a block at a time."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.basis import Basis, Projected
from streamkpca.change import ResidualTrend
from streamkpca.factor import solve_factor
from streamkpca.kernels import Kernel
from streamkpca.moments import Moments
from streamkpca.reservoir import Reservoir
from streamkpca.selection import Choice, choose_by_tolerance, choose_to_shrink, choose_within_budget

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Forgetting stops where the stream weighs so little: rows that count, the least of them 1e-100, outweigh it beyond all
# digits, and its shares are kept for as long as none come. Fading with the rows stops later than the user's own clock,
# so that pending rows and recorded ones keep their shares too.
LEAST_TOTAL_WEIGHT = 1e-120
_LEAST_FADED_WEIGHT = 1e-150
# What rows have faded to within a block is no weight any more: nothing can be divided by it.
_LEAST_WEIGHT = 1e-200

# While searches find nothing, one block in up to this many is searched.
_LONGEST_PAUSE = 32


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
    """

    pause: int = 1
    wait: int = 0
    usual_residual: float = np.inf

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
        return replace(self, wait=self.wait - 1)

    def searched(self, *, found: bool, mean_residual: float) -> Self:
        """Return the pace after a search."""
        pause = 1 if found else min(2 * self.pause, _LONGEST_PAUSE)
        return replace(self, pause=pause, wait=pause - 1, usual_residual=mean_residual)


class Summary:
    """Atoms, their orthonormal basis, and the stream's moments in it.

    Parameters
    ----------
    kernel : Kernel
        A settled kernel.
    n_features : int
        Width d of the rows.
    reservoir_size : int
        Rows of the random sample.
    seed : int
        Seed of the sample.

    Attributes
    ----------
    basis : Basis
    moments : Moments
    reservoir : Reservoir
    trend : ResidualTrend
    last_drift : int or None
        Number of rows taken in when a drift was last signalled.
    atom_rows : ndarray of shape (m,) of int64
        Position of each atom in the stream.
    exposure : ndarray of shape (m,)
        Weight of the rows that each atom has seen, its own block included.
    n_rows : int
        Rows taken in.

    Notes
    -----
    The result is a function of the blocks alone. Arrays are replaced, never written to, so `copy` is cheap.
    """

    def __init__(self, kernel: Kernel, n_features: int, *, reservoir_size: int = 0, seed: int = 0) -> None:
        self.basis = Basis(kernel, n_features)
        self.moments = Moments.zero()
        self.atom_rows: Positions = np.empty(0, dtype=np.int64)
        self.exposure: Array = np.empty(0)
        self.n_rows = 0
        self.reservoir = Reservoir.empty(reservoir_size, seed, n_features)
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
        choice = self._search(block, weights, max_atoms, tolerance)
        if choice:
            self._change(choice, rows)
            block = self.basis.project(rows)
        self._record(block, weights)

    def shrink(self, max_atoms: int) -> None:
        """Let the weakest atoms go until the rest fits a budget.

        Parameters
        ----------
        max_atoms : int
        """
        if self.basis.size > max_atoms:
            choice = choose_to_shrink(self.basis, self.moments, self.exposure, max_atoms)
            self._change(choice, self.basis.atoms[:0])

    def recount(self) -> None:
        """Forget the moments but keep the atoms: the second pass records every row in the final basis."""
        self.moments = Moments.zero(self.basis.size)
        self.exposure = np.zeros(self.basis.size)
        self.reservoir = Reservoir.empty(self.reservoir.size, self.reservoir.seed, self.basis.atoms.shape[1])
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
        self._record(self.basis.project(rows), weights)

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
            self.exposure = self.exposure * factor
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
        self.atom_rows = np.concatenate([self.atom_rows, self.n_rows + other.atom_rows[joined]])
        self.exposure = np.concatenate([self.exposure + other_weight, other.exposure[joined] + own_weight])
        self.reservoir = self.reservoir.merged(other.reservoir, self.n_rows)
        self.n_rows += other.n_rows
        # What the rows to come leave unexplained by the union is not known yet.
        self.trend, self._pace = ResidualTrend(), SearchPace()

    def _age(self, weights: Array, half_life: float | None) -> Array:
        """Make older rows count less; the newest of the block keeps its weight."""
        if half_life is None:
            return weights
        self.forget(float(np.exp2(-len(weights) / half_life)))
        aged: Array = weights * np.exp2(-np.arange(len(weights))[::-1] / half_life)
        return np.where(aged < _LEAST_WEIGHT, 0.0, aged)

    def _record(self, block: Projected, weights: Array) -> None:
        self.moments = self.moments.add(block.coordinates, block.energy, weights)
        self.exposure = self.exposure + weights.sum()
        self.reservoir = self.reservoir.add(block.rows, weights, self.n_rows)
        self.n_rows += len(weights)

    def _watch(self, block: Projected, weights: Array, tolerance: float) -> None:
        """Notice when the stream is explained worse than before, and look for atoms at once."""
        energy = float(weights @ np.abs(block.energy))
        if energy == 0.0:
            return
        residual = np.maximum(block.residual, 0.0)
        share = float(weights @ residual) / energy
        deviations = weights * (residual - share * np.abs(block.energy))
        # Below the tolerance nothing is wrong: whatever moves there is no change.
        trend = self.trend.observe(max(share, tolerance), float(np.sqrt(deviations @ deviations)) / energy)
        if trend.signalled and trend.n_blocks == 1:
            self.last_drift = self.n_rows + len(weights)
            self._pace = SearchPace()
        self.trend = trend

    def _search(self, block: Projected, weights: Array, max_atoms: int | None, tolerance: float) -> Choice:
        """Look for atoms if the block is explained badly enough, and, within a budget, if it is time to."""
        nothing = Choice(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        residual = np.maximum(block.residual, 0.0)
        # With zero tolerance every independent row counts, also one whose residual is tiny beside the block's energy.
        if tolerance > 0.0 and weights @ residual <= tolerance * (weights @ block.energy):
            return nothing
        if not weights.any():
            return nothing
        if max_atoms is None:
            return choose_by_tolerance(self.basis, block, weights, tolerance)

        mean_residual = float(np.average(residual, weights=weights))
        spread = float(np.average((residual - mean_residual) ** 2, weights=weights))
        standard_error = np.sqrt(spread * float(weights @ weights)) / float(weights.sum())
        if not self._pace.is_due(mean_residual, standard_error):
            self._pace = self._pace.skipped()
            return nothing
        choice = choose_within_budget(
            self.basis, self.moments, self.exposure, block, weights, max_atoms=max_atoms, tolerance=tolerance
        )
        self._pace = self._pace.searched(found=bool(choice), mean_residual=mean_residual)
        return choice

    def _change(self, choice: Choice, rows: Array) -> None:
        """Carry out a choice: atoms go first, so that the budget holds at any time."""
        if len(choice.removed):
            self.moments = self.moments.rotated(self.basis.remove(choice.removed))
            self.atom_rows = np.delete(self.atom_rows, choice.removed)
            self.exposure = np.delete(self.exposure, choice.removed)
        if len(choice.admitted):
            accepted = choice.admitted[self.basis.extend(rows[choice.admitted])]
            self.moments = self.moments.grown(len(accepted))
            self.atom_rows = np.concatenate([self.atom_rows, self.n_rows + accepted])
            self.exposure = np.concatenate([self.exposure, np.zeros(len(accepted))])
