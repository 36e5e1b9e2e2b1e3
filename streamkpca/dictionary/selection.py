"""Selection: which rows of a block to admit as atoms, and which atoms to remove.

All searches return a `Choice` and change nothing; the summary applies it.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import LEAST_PIVOT
from streamkpca._core.reservoir import Reservoir
from streamkpca.dictionary._loops import add_rank_one, remove_direction, subtract_outer
from streamkpca.dictionary.basis import Basis, Projected, reveals_indefinite_kernel, rounding_error
from streamkpca.dictionary.moments import Moments
from streamkpca.dictionary.swaps import AtomStats, SwapSearch, normalised_weights_of, sample_gram

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Squares of residuals below this share of the largest k(x, x) of a block would underflow.
_LEAST_SHARE = 1e-150


class ResidualGram:
    """Gram matrix R = k(X, X) - C C^T of what a block's rows have outside the span.

    Parameters
    ----------
    basis : Basis
    block : Projected
        The block's rows, projected onto the basis.
    weights : ndarray of shape (B,)
        Row weights a.
    capacity : int
        The largest number of atoms, at least the basis' size.

    Attributes
    ----------
    interpolation : ndarray of shape (B, capacity)
        V, the coefficients of the rows' projections over the atoms; those of the basis come first.

    Notes
    -----
    O(B^2 (d + m)) to make, O(B (B + capacity)) for each row admitted.
    """

    def __init__(self, basis: Basis, block: Projected, weights: Array, capacity: int) -> None:
        self._weights = weights
        self._energy = block.energy
        # Powers of the residuals are taken in multiples of this, so that no scale of the kernel under- or overflows.
        self._unit = float(np.abs(block.energy).max()) or 1.0
        self._gram: Array = basis.kernel.program.gram(block.rows) - block.coordinates @ block.coordinates.T
        self.interpolation: Array = np.zeros((len(weights), capacity))
        self.interpolation[:, : basis.size] = basis.interpolation(block.coordinates)
        self._atom_energy = np.zeros(capacity)
        self._atom_energy[: basis.size] = basis.energy
        self._squares, self._fourths = np.empty((2, len(weights)))
        self._free = weights > 0.0
        self._change(np.zeros(len(weights)), 1.0)
        basis.warn_if_indefinite(block)

    @property
    def residual(self) -> Array:
        """Squared distances of the rows to the span, shape (B,)."""
        return np.diagonal(self._gram)

    @property
    def unexplained(self) -> float:
        """Weighted sum of the residuals."""
        return float(self._weights @ self.residual)

    def gains(self) -> Array:
        """Energy of the block that each row would explain, shape (B,).

        Notes
        -----
        g_j = sum_i a_i R_ij^2 / R_jj [1]_, Martin's criterion on the residuals; -inf for rows that are dependent, are
        atoms already, or have no weight.

        References
        ----------
        .. [1] S. Martin, "An approximate version of kernel PCA", ICMLA 2006.
        """
        independent, relative = self._candidates()
        return np.where(independent, self._squares / relative * self._unit, -np.inf)

    def cautious_gains(self, total_weight: float) -> Array:
        """Energy per unit of weight of the stream that each row would explain, less one standard error, shape (B,).

        Notes
        -----
        The block's other rows represent the stream; the row itself counts only with its own share a_j / N of the
        stream's weight N, this block included. So an outlier, which explains nothing but itself, gains no more than
        that. With x_i = R_ij^2 / R_jj, the part of the others is the weighted mean of x over i != j, and its standard
        error is sqrt(var(x) sum a_i^2) / sum a_i, which is sd / sqrt(B - 1) for equal weights.
        """
        independent, relative = self._candidates()
        others = self._weights.sum() - self._weights
        squared_others = self._weights @ self._weights - self._weights**2
        independent &= others > 0.0
        others = np.where(independent, others, 1.0)
        mean = (self._squares / relative - self._weights * relative) / others
        square = (self._fourths / relative**2 - self._weights * relative**2) / others
        error = np.sqrt(np.maximum(square - mean**2, 0.0) * np.maximum(squared_others, 0.0)) / others
        share = self._weights * relative / total_weight
        return np.where(independent, (mean - error + share) * self._unit, -np.inf)

    def best(self, gains: Array) -> tuple[int, float]:
        """Find the row of the largest gain that is independent beyond rounding; the gain is -inf if no row is left.

        Rows found dependent are struck out of `gains` (B,).
        """
        while True:
            row = int(np.argmax(gains))
            if gains[row] == -np.inf or self._is_independent(row):
                return row, float(gains[row])
            self._free[row] = False
            gains[row] = -np.inf

    def leading(self, gains: Array, count: int) -> Positions:
        """Find up to `count` independent rows of the largest positive gains, largest first; overwrites `gains`."""
        rows: list[int] = []
        while len(rows) < count:
            row, gain = self.best(gains)
            if gain <= 0.0:
                break
            rows.append(row)
            gains[row] = -np.inf
        return np.array(rows, dtype=np.int64)

    def admit(self, row: int, atom: int) -> None:
        """Admit a row as the atom at an unused position: its direction joins the span."""
        along: Array = self._gram[row] / np.sqrt(self._gram[row, row])
        share = along / along[row]
        subtract_outer(self.interpolation, share, self.interpolation[row].copy())
        self.interpolation[:, atom] = share
        self._atom_energy[atom] = self._energy[row]
        self._free[row] = False
        self._change(along, -1.0)

    def _is_independent(self, row: int) -> bool:
        """Return whether a row is independent of the atoms beyond rounding, and leaves no row a negative distance."""
        one, residual = slice(row, row + 1), self.residual
        if not residual[row] > rounding_error(self._energy[one], self.interpolation[one], self._atom_energy)[0]:
            return False
        return not reveals_indefinite_kernel(residual, self._gram[one], residual[one], np.abs(self._energy))[0]

    def _change(self, along: Array, sign: float) -> None:
        add_rank_one(self._gram, sign * along, along, 1.0 / self._unit, self._weights, self._squares, self._fourths)

    def _candidates(self) -> tuple[npt.NDArray[np.bool_], Array]:
        """Return which rows may be chosen, and their residuals in multiples of the unit (1 for other rows)."""
        independent = self._free & (self.residual > LEAST_PIVOT * np.abs(self._energy))
        independent &= self.residual > _LEAST_SHARE * self._unit
        return independent, np.where(independent, self.residual / self._unit, 1.0)


# The largest number of rows of a block that the sample judges in one search.
_MOST_PRESCREENED = 64

# Losses that differ by less than this share of k(x, x) are equal.
_TIE = 1e-12

_NO_POSITIONS: Positions = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Choice:
    """The result of a search.

    Parameters
    ----------
    admitted : ndarray of int64
        Positions in the block of the rows that become atoms, in the order of their choice.
    removed : ndarray of int64
        Positions of the atoms to remove, ascending.
    profit : float
        What swaps gain, in energy per unit of weight; infinite if the budget was not used up.
    """

    admitted: Positions
    removed: Positions
    profit: float = math.inf

    def __bool__(self) -> bool:
        """Return whether anything changes."""
        return len(self.admitted) + len(self.removed) > 0


def choose_by_tolerance(basis: Basis, block: Projected, weights: Array, tolerance: float) -> Choice:
    """Choose few rows, greedily, so that at most `tolerance` of the block's energy stays unexplained.

    `weights` are the row weights (B,). A tolerance of 0 admits every row that is independent to working precision.
    """
    residual = ResidualGram(basis, block, weights, basis.size + len(weights))
    target = tolerance * float(weights @ block.energy)
    admitted: list[int] = []
    while tolerance == 0.0 or residual.unexplained > target:
        gains = residual.gains()
        if tolerance == 0.0:
            # All independent rows are admitted, so their order matters for rounding only: the largest pivot first.
            gains = np.where(gains > 0.0, residual.residual, -np.inf)
        best, gain = residual.best(gains)
        if gain <= 0.0:
            break
        residual.admit(best, basis.size + len(admitted))
        admitted.append(best)
    return Choice(np.array(admitted, dtype=np.int64), _NO_POSITIONS)


def choose_below_budget(
    basis: Basis,
    block: Projected,
    weights: Array,
    *,
    max_atoms: int,
    tolerance: float,
    total_weight: float,
    mean_energy: float,
) -> Choice:
    """Choose rows that are worth an atom while the basis has fewer than `max_atoms`.

    A row of the block, with weights (B,), is admitted while its gain times `max_atoms` exceeds the share `tolerance` of
    `mean_energy`. `total_weight` and `mean_energy` are those of the stream, this block included.
    """
    # A block cannot add more atoms than it has rows, so a generous budget takes no memory before it is used.
    capacity = min(max_atoms, basis.size + len(weights))
    residual = ResidualGram(basis, block, weights, capacity)
    admitted: list[int] = []
    for atom in range(basis.size, capacity):
        # The first atom may explain itself alone: without any atom there would be no model.
        best, gain = residual.best(residual.cautious_gains(total_weight) if atom else residual.gains())
        if gain <= 0.0 or (atom and gain * max_atoms <= tolerance * mean_energy):
            break
        residual.admit(best, atom)
        admitted.append(best)
    return Choice(np.array(admitted, dtype=np.int64), _NO_POSITIONS)


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
    """Choose rows of a block that replace atoms.

    `moments` are those of the stream before the block, `sample` is a sample of the stream that includes it, `weights`
    (B,) are the row weights, and `start` is the block's position in the stream.

    Notes
    -----
    Rows are prescreened by what they explain of the rest of the block; the sample judges the best of them.
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
    swaps: dict[int, int] = {}
    total_profit = 0.0
    for _ in prescreened:
        candidate, atom, profit = search.best()
        if profit <= 0.0:
            break
        total_profit += profit
        search.apply(candidate, atom)
        # A candidate admitted and swapped out within one search is not recorded.
        swaps.pop(atom, None)
        swaps[atom] = candidate
    return Choice(prescreened[list(swaps.values())], np.array(sorted(swaps), dtype=np.int64), total_profit)


def choose_to_shrink(
    basis: Basis, stats: AtomStats, sample: Reservoir, max_atoms: int, *, total_weight: float
) -> Choice:
    """Choose the weakest atoms, judged by a sample of the stream, until at most `max_atoms` (1 or more) are left.

    Notes
    -----
    The dual vector w_j of atom j is the vector in the span with (phi_i, w_j) = delta_ij; it points along what only atom
    j spans. Without the atom, the rows lose the energy that they have along it, Q_jj / P_jj with P the inner products
    of the dual vectors and Q = sum_i a_i (w_j, x_i)^2. O(n m^2) for n rows of the sample, and O(m^2) for each atom
    removed.
    """
    no_candidates = basis.project(basis.atoms[:0])
    precision, recorded = basis.precision.copy(), sample_gram(basis, sample, no_candidates, 1.0)
    # An atom's own row counts with its share of the stream, which is known, instead of its share of the sample.
    own = stats.weights / total_weight - normalised_weights_of(sample, stats.positions)
    rounding = _TIE * float(np.abs(basis.energy).max())
    left = np.arange(basis.size)
    while len(left) > max_atoms:
        loss = (np.diagonal(recorded)[left] + own[left]) / np.diagonal(precision)[left]
        # Ties go to the latest atom, so that rounding cannot decide.
        tied = left[loss <= loss.min() + rounding]
        weakest = int(tied[np.argmax(stats.positions[tied])])
        remove_direction(weakest, precision[weakest] / precision[weakest, weakest], precision, recorded)
        left = left[left != weakest]
    return Choice(_NO_POSITIONS, np.setdiff1d(np.arange(basis.size), left))
