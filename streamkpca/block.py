"""A block of the stream: what it leaves unexplained, and what it adds to the moments."""

import numpy as np
import numpy.typing as npt

from streamkpca.basis import Basis, Projected
from streamkpca.row_sums import RowSums

Array = npt.NDArray[np.float64]


class Block:
    """Rows seen from the basis as it is when this is made.

    Parameters
    ----------
    basis : Basis
    rows : ndarray of shape (B, d)
    weights : ndarray of shape (B,)
        Faded ones, if rows fade.

    Attributes
    ----------
    rows, weights : ndarray
    sums : RowSums
        Over kernel values against the atoms where `Basis.is_well_conditioned`, else over coordinates.
    unexplained : float
        What of that lies outside the span; rounding may make it negative.

    Notes
    -----
    Coordinates are c(x) = L^-1 k_Z(x), and sums over their products follow from the sums over those of kernel values:
    the product with L^-1 is due once for many blocks instead of once a row, which saves a third of the work. What the
    block leaves unexplained is sum a k(x,x) - <K^-1, sum a k_Z k_Z^T>. Where the atoms are so close to each other that
    rounding would show, coordinates are made and summed at once.

    O(B m (d + m)). Nothing is changed: blocks can be made in other threads, and thrown away.
    """

    def __init__(self, basis: Basis, rows: Array, weights: Array) -> None:
        self.rows, self.weights = rows, weights
        self._basis = basis.copy()
        self._row_energy, self._kernel_rows = basis.compare(rows)
        if basis.is_well_conditioned:
            self.sums = RowSums.of(self._kernel_rows, self._row_energy, weights)
            recorded = float(np.vdot(basis.precision, self.sums.second))
        else:
            coordinates = basis.coordinates(self._kernel_rows.copy())
            self.sums = RowSums.of(coordinates, self._row_energy, weights)
            recorded = float(np.trace(self.sums.second))
        self.unexplained = self.sums.energy - recorded

    @property
    def mean_residual(self) -> float:
        """Weighted mean of the squared distances to the span, never negative."""
        return max(self.unexplained, 0.0) / self.sums.total_weight

    def is_seen_from(self, basis: Basis) -> bool:
        """Say whether the basis still has the atoms that this block was compared with."""
        return self._basis.factor is basis.factor

    def projected(self) -> Projected:
        """Return the rows' coordinates, O(B m^2)."""
        return Projected(self.rows, self._row_energy, self._basis.coordinates(self._kernel_rows.copy()))
