"""Who comes and who goes: the search for atoms in a block.

Both searches return a `Choice` and change nothing; the summary carries it out.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca.basis import Basis, Projected
from streamkpca.factor import inverse_factor
from streamkpca.moments import Moments
from streamkpca.residual_gram import ResidualGram
from streamkpca.selection_loops import insert_direction, remove_direction

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# A swap must pay: a candidate's gain has to exceed this many times the loss rate of the weakest atom. At 1 the choice
# follows the noise of one block and every swap forgets recorded moments.
SWAP_FACTOR = 1.2


@dataclass(frozen=True)
class Choice:
    """What a search found.

    Parameters
    ----------
    admitted : ndarray of int64
        Positions of rows of the block that become atoms, in the order of their choice.
    removed : ndarray of int64
        Positions of atoms that go, ascending.
    """

    admitted: Positions
    removed: Positions

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return len(self.admitted) + len(self.removed) > 0


def choose_by_tolerance(basis: Basis, block: Projected, weights: Array, tolerance: float) -> Choice:
    """Choose the fewest rows, greedily, that leave at most `tolerance` of the block's energy unexplained.

    Parameters
    ----------
    basis : Basis
    block : Projected
        The block's rows seen from the basis.
    weights : ndarray of shape (B,)
    tolerance : float
        Share of the block's energy; 0 admits every row that is independent to working precision.

    Returns
    -------
    Choice
    """
    residual = ResidualGram(basis, block, weights, basis.size + len(weights))
    target = tolerance * float(weights @ block.energy)
    admitted: list[int] = []
    while tolerance == 0.0 or residual.unexplained > target:
        gains = residual.gains()
        if tolerance == 0.0:
            # All independent rows enter, and the order decides about rounding alone: the largest pivot first.
            gains = np.where(gains > 0.0, residual.residual, -np.inf)
        best, gain = residual.best(gains)
        if gain <= 0.0:
            break
        residual.admit(best, basis.size + len(admitted))
        admitted.append(best)
    return Choice(np.array(admitted, dtype=np.int64), np.empty(0, dtype=np.int64))


def choose_within_budget(
    basis: Basis,
    moments: Moments,
    exposure: Array,
    block: Projected,
    weights: Array,
    *,
    max_atoms: int,
    tolerance: float,
) -> Choice:
    """Choose rows that are worth their place, in exchange for the weakest atoms once all places are taken.

    Parameters
    ----------
    basis : Basis
    moments : Moments
        Of the stream before this block.
    exposure : ndarray of shape (m,)
        Weight of the rows that each atom has seen.
    block : Projected
        The block's rows seen from the basis.
    weights : ndarray of shape (B,)
    max_atoms : int
        The budget, at least the basis' size.
    tolerance : float
        Below the budget a row enters while its gain times `max_atoms` exceeds this share of the mean energy.

    Returns
    -------
    Choice
    """
    # No more can be admitted than the block has rows: a generous budget costs nothing before it is used.
    places = min(max_atoms, basis.size + len(weights))
    residual = ResidualGram(basis, block, weights, places)
    rivals = Rivals(basis, moments, exposure, places)
    mean_energy = (moments.energy + float(weights @ block.energy)) / (moments.total_weight + float(weights.sum()))
    while True:
        # The first atom may explain itself alone: without any there would be no model.
        best, gain = residual.best(residual.cautious_gains() if rivals.size else residual.gains())
        if rivals.size < max_atoms:
            if gain <= 0.0 or (rivals.size and gain * max_atoms <= tolerance * mean_energy):
                break
        else:
            weakest, loss_rate = rivals.weakest(residual.interpolation, weights)
            if not gain > SWAP_FACTOR * loss_rate:
                break
            residual.release(weakest, *rivals.remove(weakest))
        place = rivals.free_place()
        rivals.insert(place, best, residual.interpolation[best].copy(), residual.admit(best, place)[best])
    return rivals.choice()


def choose_to_shrink(basis: Basis, moments: Moments, exposure: Array, max_atoms: int) -> Choice:
    """Choose the weakest atoms until the rest fits a budget.

    Parameters
    ----------
    basis, moments, exposure
        As for `choose_within_budget`.
    max_atoms : int
        The budget, at least 1.

    Returns
    -------
    Choice
    """
    rivals = Rivals(basis, moments, exposure, basis.size)
    no_rows = np.empty((0, basis.size))
    while rivals.size > max_atoms:
        rivals.remove(rivals.weakest(no_rows, np.empty(0))[0])
    return rivals.choice()


class Rivals:
    """The atoms as they would be after the changes decided so far, each with what its loss would cost.

    Parameters
    ----------
    basis, moments, exposure, max_atoms
        As for `choose_within_budget`.

    Notes
    -----
    The dual vector w_j of atom j is the one in the span with (phi_i, w_j) = delta_ij; it points along what only
    atom j spans. In the basis it is column j of D = L^-1. An atom's loss rate is the energy a unit of weight
    recorded along that direction,

        loss_j = (w_j^T M w_j + sum_b a_b (w_j, x_b)^2) / |w_j|^2 / exposure_j,

    over the rows that came since it is an atom, this block included. Nothing was recorded along its direction before,
    so dividing by the weight of the whole stream would starve every newcomer: on USPS digits (100 atoms, one pass)
    that left .1120 of the energy unexplained against .1094, and .1175 against .1096 when sorted by digit.

    Both matrices, P of the inner products of dual vectors and Q = D^T M D, are held over places, so that a swap is two
    rank-one changes and moves nothing.
    """

    def __init__(self, basis: Basis, moments: Moments, exposure: Array, max_atoms: int) -> None:
        m = basis.size
        inverse = np.zeros((m, max_atoms))
        inverse[:, :m] = inverse_factor(basis.factor)
        self._precision: Array = inverse.T @ inverse
        self._recorded: Array = inverse.T @ moments.second @ inverse
        self._exposure = np.full(max_atoms, np.inf)
        self._exposure[:m] = exposure
        # What holds a place: an atom's position, or -1 - row for a newcomer; newcomers are safe in their own block.
        self._held: list[int | None] = [*range(m), *([None] * (max_atoms - m))]
        self._n_atoms = m
        self._admitted: list[int] = []

    @property
    def size(self) -> int:
        """Number of places taken."""
        return len(self._held) - self._held.count(None)

    def free_place(self) -> int:
        """Return the first place that nobody holds."""
        return self._held.index(None)

    def weakest(self, interpolation: Array, weights: Array) -> tuple[int, float]:
        """Find the atom whose loss costs least.

        Parameters
        ----------
        interpolation : ndarray of shape (B, max_atoms)
            Inner products of the block's rows with the dual vectors.
        weights : ndarray of shape (B,)

        Returns
        -------
        place : int
        loss_rate : float
            Energy a unit of weight; infinite where only newcomers are left.
        """
        old = np.array([held is not None and held >= 0 for held in self._held])
        recorded = np.diagonal(self._recorded) + np.einsum("b,bj,bj->j", weights, interpolation, interpolation)
        loss = np.full(len(old), np.inf)
        loss[old] = recorded[old] / np.diagonal(self._precision)[old] / (self._exposure[old] + weights.sum())
        place = int(np.argmin(loss))
        return place, float(loss[place])

    def remove(self, place: int) -> tuple[Array, float]:
        """Let the atom of a place go.

        Parameters
        ----------
        place : int

        Returns
        -------
        share : ndarray of shape (max_atoms,)
            Coefficients of all dual vectors along that of the atom.
        length : float
            Length of the atom's dual vector.
        """
        share = self._precision[place] / self._precision[place, place]
        length = float(np.sqrt(self._precision[place, place]))
        remove_direction(place, share, self._precision, self._recorded)
        self._held[place] = None
        return share, length

    def insert(self, place: int, row: int, interpolation: Array, pivot: float) -> None:
        """Give a free place to a row of the block.

        Parameters
        ----------
        place : int
        row : int
            Position of the row.
        interpolation : ndarray of shape (max_atoms,)
            Coefficients of its projection over the atoms.
        pivot : float
            Its distance to the span.
        """
        insert_direction(place, interpolation / pivot, 1.0 / pivot, self._precision)
        self._held[place] = -1 - row
        self._admitted.append(row)

    def choice(self) -> Choice:
        """Return what was decided."""
        stayed = [held for held in self._held if held is not None and held >= 0]
        return Choice(np.array(self._admitted, dtype=np.int64), np.setdiff1d(np.arange(self._n_atoms), stayed))
