"""Who comes and who goes: the search for atoms in a block.

All searches return a `Choice` and change nothing; the summary carries it out.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca._core.reservoir import Reservoir
from streamkpca.dictionary._loops import remove_direction
from streamkpca.dictionary.basis import Basis, Projected
from streamkpca.dictionary.moments import Moments
from streamkpca.dictionary.residuals import ResidualGram
from streamkpca.dictionary.swaps import AtomStats, SwapSearch, normalised_weights_of, sample_gram

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Rows of a block that come before the sample at a time.
_MOST_PRESCREENED = 64

# ProjectionLoss that differ by less than this share of k(x, x) are equal.
_TIE = 1e-12


@dataclass(frozen=True)
class Choice:
    """What a search found.

    Parameters
    ----------
    admitted : ndarray of int64
        Positions of rows of the block that become atoms, in the order of their choice.
    removed : ndarray of int64
        Positions of atoms that go, ascending.
    profit : float
        What exchanges win, in energy a unit of weight; infinite where places were free.
    """

    admitted: Positions
    removed: Positions
    profit: float = math.inf

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


def choose_for_free_places(
    basis: Basis,
    block: Projected,
    weights: Array,
    *,
    max_atoms: int,
    tolerance: float,
    total_weight: float,
    mean_energy: float,
) -> Choice:
    """Choose rows that are worth a free place.

    Parameters
    ----------
    basis : Basis
    block : Projected
        The block's rows seen from the basis.
    weights : ndarray of shape (B,)
    max_atoms : int
        The budget, more than the basis' size.
    tolerance : float
        A row enters while its gain times `max_atoms` exceeds this share of the mean energy.
    total_weight, mean_energy : float
        Of the stream, this block included.

    Returns
    -------
    Choice
    """
    # No more can be admitted than the block has rows: a generous budget costs nothing before it is used.
    places = min(max_atoms, basis.size + len(weights))
    residual = ResidualGram(basis, block, weights, places)
    admitted: list[int] = []
    for place in range(basis.size, places):
        # The first atom may explain itself alone: without any there would be no model.
        best, gain = residual.best(residual.cautious_gains(total_weight) if place else residual.gains())
        if gain <= 0.0 or (place and gain * max_atoms <= tolerance * mean_energy):
            break
        residual.admit(best, place)
        admitted.append(best)
    return Choice(np.array(admitted, dtype=np.int64), np.empty(0, dtype=np.int64))


def choose_swaps(
    basis: Basis,
    stats: AtomStats,
    moments: Moments,
    sample: Reservoir,
    block: Projected,
    weights: Array,
    *,
    start: int,
) -> Choice:
    """Choose rows that take the places of atoms.

    Parameters
    ----------
    basis : Basis
    stats : AtomStats
    moments : Moments
        Of the stream before this block.
    sample : Reservoir
        A sample of the stream, this block included.
    block : Projected
        The block's rows seen from the basis.
    weights : ndarray of shape (B,)
    start : int
        Position of the block in the stream.

    Returns
    -------
    Choice

    Notes
    -----
    The block screens its rows by what they explain of each other; the sample judges the best of them.
    """
    total_weight = moments.total_weight + float(weights.sum())
    residual = ResidualGram(basis, block, weights, basis.size)
    prescreened = residual.leading(residual.cautious_gains(total_weight), _MOST_PRESCREENED)
    if not len(prescreened):
        return Choice(prescreened, prescreened)
    candidates = Projected(block.rows[prescreened], block.energy[prescreened], block.coordinates[prescreened])
    search = SwapSearch(
        basis, stats, moments, sample, candidates, start + prescreened, weights[prescreened], total_weight
    )
    held: dict[int, int] = {}
    total_profit = 0.0
    for _ in prescreened:
        candidate, place, profit = search.best()
        if profit <= 0.0:
            break
        total_profit += profit
        search.apply(candidate, place)
        # Who came and goes again within one search never was an atom.
        held.pop(place, None)
        held[place] = candidate
    return Choice(prescreened[list(held.values())], np.array(sorted(held), dtype=np.int64), total_profit)


def choose_to_shrink(
    basis: Basis, stats: AtomStats, sample: Reservoir, max_atoms: int, *, total_weight: float
) -> Choice:
    """Choose the weakest atoms, by a sample of the stream, until the rest fits a budget.

    Parameters
    ----------
    basis : Basis
    stats : AtomStats
    sample : Reservoir
        A sample of the stream.
    max_atoms : int
        The budget, at least 1.
    total_weight : float
        Of the stream.

    Returns
    -------
    Choice

    Notes
    -----
    The dual vector w_j of atom j is the one in the span with (phi_i, w_j) = delta_ij; it points along what only atom j
    spans. Without the atom the rows lose the energy that they have along it, Q_jj / P_jj with P the inner products of
    the dual vectors and Q = sum_i a_i (w_j, x_i)^2. O(n m^2) for n rows of the sample, and O(m^2) for each atom.
    """
    nobody = basis.project(basis.atoms[:0])
    precision, recorded = basis.precision.copy(), sample_gram(basis, sample, nobody, 1.0)
    # A row is no witness in its own case: what it counts in the stream is known.
    own = stats.weights / total_weight - normalised_weights_of(sample, stats.positions)
    rounding = _TIE * float(np.abs(basis.energy).max())
    left = np.arange(basis.size)
    while len(left) > max_atoms:
        loss = (np.diagonal(recorded)[left] + own[left]) / np.diagonal(precision)[left]
        # Of equals the latest goes, so that rounding does not decide.
        equals = left[loss <= loss.min() + rounding]
        weakest = int(equals[np.argmax(stats.positions[equals])])
        remove_direction(weakest, precision[weakest] / precision[weakest, weakest], precision, recorded)
        left = left[left != weakest]
    return Choice(np.empty(0, dtype=np.int64), np.setdiff1d(np.arange(basis.size), left))
