"""Residuals of the rows of a block: what they have outside the span of the atoms, and what each would explain."""

import numpy as np
import numpy.typing as npt

from streamkpca._core.triangular import LEAST_PIVOT
from streamkpca.dictionary._loops import add_rank_one, subtract_outer
from streamkpca.dictionary.basis import Basis, Projected, reveals_indefinite_kernel, rounding_error

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
