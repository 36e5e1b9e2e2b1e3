"""What the rows of a block have outside the span of the atoms, and what the block would win from each."""

import numpy as np
import numpy.typing as npt

from streamkpca._core.triangular import LEAST_PIVOT
from streamkpca.dictionary._loops import add_rank_one, subtract_outer
from streamkpca.dictionary.basis import Basis, Projected, rounding_error, warn_indefinite

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Of the largest k(x, x) of a block: squares of smaller residuals would vanish.
_LEAST_SHARE = 1e-150

# Squared distances down to minus this share of k(x, x) may be the rounding of nearly dependent atoms.
_LEAST_LENGTH = 1e-3


class ResidualGram:
    """Gram matrix R = k(X, X) - C C^T of what a block's rows have outside the span.

    Parameters
    ----------
    basis : Basis
        The atoms.
    block : Projected
        The block's rows seen from the basis.
    weights : ndarray of shape (B,)
        Row weights a.
    places : int
        The most atoms that there may be at once, at least the basis' size.

    Attributes
    ----------
    interpolation : ndarray of shape (B, places)
        V, the coefficients of the rows' projections over the atoms, which hold the first places.

    Notes
    -----
    O(B^2 (d + m)) to make, O(B (B + places)) for each direction added.
    """

    def __init__(self, basis: Basis, block: Projected, weights: Array, places: int) -> None:
        self._weights = weights
        self._energy = block.energy
        # Powers of the residuals are taken relative to this, so that no scale of the kernel under- or overflows.
        self._unit = float(np.abs(block.energy).max()) or 1.0
        self._gram: Array = basis.kernel.program.gram(block.rows) - block.coordinates @ block.coordinates.T
        self.interpolation: Array = np.zeros((len(weights), places))
        self.interpolation[:, : basis.size] = basis.interpolation(block.coordinates)
        self._place_energy = np.zeros(places)
        self._place_energy[: basis.size] = basis.energy
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
        """Energy that the block would win from each row, shape (B,).

        Notes
        -----
        g_j = sum_i a_i R_ij^2 / R_jj [1]_, the criterion of Martin on the residuals; -inf for rows that are dependent,
        are atoms already, or weigh nothing.

        References
        ----------
        .. [1] S. Martin, "An approximate version of kernel PCA", ICMLA 2006.
        """
        independent, relative = self._candidates()
        return np.where(independent, self._squares / relative * self._unit, -np.inf)

    def cautious_gains(self, total_weight: float) -> Array:
        """Energy a unit of weight that the stream would win from each row, less one standard error, shape (B,).

        Parameters
        ----------
        total_weight : float
            Weight N of the stream, this block included.

        Notes
        -----
        The block's other rows speak for the stream, the row itself only for its own share a_j / N of it: an outlier
        explains itself and nothing else, and is worth no more than that. With x_i = R_ij^2 / R_jj the others' part is
        the weighted mean of x over i != j, and its standard error is sqrt(var(x) sum a_i^2) / sum a_i, which is
        sd / sqrt(B - 1) for equal weights.
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
        """Find the row of the largest gain that is independent beyond rounding.

        Parameters
        ----------
        gains : ndarray of shape (B,)
            From `gains` or `cautious_gains`; rows found dependent are struck out.

        Returns
        -------
        row : int
        gain : float
            -inf where no row is left.
        """
        while True:
            row = int(np.argmax(gains))
            if gains[row] == -np.inf or (self.residual[row] > self._rounding(row) and self._leaves_lengths(row)):
                return row, float(gains[row])
            self._free[row] = False
            gains[row] = -np.inf

    def leading(self, gains: Array, count: int) -> Positions:
        """Find the rows of the largest positive gains that are independent beyond rounding.

        Parameters
        ----------
        gains : ndarray of shape (B,)
            From `gains` or `cautious_gains`; overwritten.
        count : int
            How many, at the most.

        Returns
        -------
        ndarray of int64
            Their positions, the largest gain first.
        """
        rows: list[int] = []
        while len(rows) < count:
            row, gain = self.best(gains)
            if gain <= 0.0:
                break
            rows.append(row)
            gains[row] = -np.inf
        return np.array(rows, dtype=np.int64)

    def admit(self, row: int, place: int) -> None:
        """Let a row's direction join the span.

        Parameters
        ----------
        row : int
            Position p.
        place : int
            A free place for it.
        """
        along: Array = self._gram[row] / np.sqrt(self._gram[row, row])
        share = along / along[row]
        subtract_outer(self.interpolation, share, self.interpolation[row].copy())
        self.interpolation[:, place] = share
        self._place_energy[place] = self._energy[row]
        self._free[row] = False
        self._change(along, -1.0)

    def _leaves_lengths(self, row: int) -> bool:
        """Say whether no row would get a negative squared distance to the span, beyond rounding, by admitting one.

        Inner products cannot do that (Cauchy and Schwarz); a kernel that is not positive definite can, and coordinates
        would grow without bound.
        """
        left = self.residual - self._gram[row] ** 2 / self._gram[row, row]
        impossible = left < -_LEAST_LENGTH * np.abs(self._energy)
        if impossible.any():
            warn_indefinite(float(left[impossible].min()))
        return not impossible.any()

    def _change(self, along: Array, sign: float) -> None:
        add_rank_one(self._gram, sign * along, along, 1.0 / self._unit, self._weights, self._squares, self._fourths)

    def _candidates(self) -> tuple[npt.NDArray[np.bool_], Array]:
        """Say which rows may be chosen, and give their residuals relative to the unit (1 for the others)."""
        independent = self._free & (self.residual > LEAST_PIVOT * np.abs(self._energy))
        independent &= self.residual > _LEAST_SHARE * self._unit
        return independent, np.where(independent, self.residual / self._unit, 1.0)

    def _rounding(self, rows: int | Positions) -> Array:
        rows = np.atleast_1d(rows)
        return rounding_error(self._energy[rows], self.interpolation[rows], self._place_energy)
