"""The summary: all that is kept of the stream, advanced a block at a time."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.basis import Basis, Projected
from streamkpca.kernels import Kernel
from streamkpca.moments import Moments
from streamkpca.selection import Choice, choose_by_tolerance, choose_to_shrink, choose_within_budget

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# While searches find nothing, one block in up to this many is searched.
_LONGEST_PAUSE = 32


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

    Attributes
    ----------
    basis : Basis
    moments : Moments
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

    def __init__(self, kernel: Kernel, n_features: int) -> None:
        self.basis = Basis(kernel, n_features)
        self.moments = Moments.zero()
        self.atom_rows: Positions = np.empty(0, dtype=np.int64)
        self.exposure: Array = np.empty(0)
        self.n_rows = 0
        self._pace = SearchPace()

    def copy(self) -> Self:
        """Return a summary that goes its own way from here."""
        twin = type(self)(self.basis.kernel, self.basis.atoms.shape[1])
        twin.__dict__.update(self.__dict__)
        twin.basis = self.basis.copy()
        return twin

    def advance(self, rows: Array, weights: Array, *, max_atoms: int | None, tolerance: float) -> None:
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

        Notes
        -----
        O(B m (d + m)) to record, and O(B^2 (d + m)) more where atoms are looked for.
        """
        block = self.basis.project(rows)
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
        self.n_rows = 0

    def record(self, rows: Array, weights: Array) -> None:
        """Take in a block without looking for atoms.

        Parameters
        ----------
        rows : ndarray of shape (B, d)
        weights : ndarray of shape (B,)
        """
        self._record(self.basis.project(rows), weights)

    def _record(self, block: Projected, weights: Array) -> None:
        self.moments = self.moments.add(block.coordinates, block.energy, weights)
        self.exposure = self.exposure + weights.sum()
        self.n_rows += len(weights)

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
