"""First and second moments of the stream in the basis, and the account of its energy."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Weighted sums over all rows seen, in the coordinates of the basis.

    Parameters
    ----------
    total_weight : float
        N = sum a_n.
    total_squared_weight : float
        sum a_n^2, for Bessel's correction.
    energy : float
        E = sum a_n k(x_n, x_n).
    first : ndarray of shape (m,)
        s = sum a_n c_n.
    second : ndarray of shape (m, m)
        M = sum a_n c_n c_n^T.
    lost_on_arrival : float
        Energy of what rows had outside the span when they came.
    lost_by_removal : float
        Energy that the recorded rows had along directions that went with removed atoms.

    Notes
    -----
    Energy is conserved: trace(M) + lost = E. Every operation keeps this account, up to rounding.
    """

    total_weight: float
    total_squared_weight: float
    energy: float
    first: Array
    second: Array
    lost_on_arrival: float
    lost_by_removal: float

    @classmethod
    def zero(cls, m: int = 0) -> Self:
        """Return the moments of no row at all in a basis of m atoms."""
        return cls(0.0, 0.0, 0.0, np.zeros(m), np.zeros((m, m)), 0.0, 0.0)

    @property
    def lost(self) -> float:
        """Energy that projections gave up."""
        return self.lost_on_arrival + self.lost_by_removal

    @property
    def mean(self) -> Array:
        """Mean of the rows in the basis, shape (m,); zeros where all weights are zero."""
        return self.first / self.total_weight if self.total_weight else self.first

    def centre(self, *, center: bool) -> Array:
        """Return the point that axes go through: the mean, or the origin without centring; shape (m,)."""
        return self.mean if center else np.zeros_like(self.first)

    @property
    def mean_energy(self) -> float:
        """Energy a unit of weight; zero where all weights are zero."""
        return self.energy / self.total_weight if self.total_weight else 0.0

    def add(self, coordinates: Array, energy: Array, weights: Array) -> Self:
        """Take in a block, O(B m^2).

        Parameters
        ----------
        coordinates : ndarray of shape (B, m)
        energy : ndarray of shape (B,)
            k(x, x).
        weights : ndarray of shape (B,)

        Returns
        -------
        Moments
        """
        # The scaled copy makes numpy call SYRK, which does half the work of GEMM and is symmetric to the bit.
        scaled = coordinates * np.sqrt(weights)[:, None]
        block = scaled.T @ scaled
        block_energy = float(weights @ energy)
        return replace(
            self,
            total_weight=self.total_weight + float(weights.sum()),
            total_squared_weight=self.total_squared_weight + float(weights @ weights),
            energy=self.energy + block_energy,
            first=self.first + weights @ coordinates,
            second=self.second + block,
            lost_on_arrival=self.lost_on_arrival + block_energy - float(np.trace(block)),
        )

    def grown(self, count: int) -> Self:
        """Make room for new atoms: nothing is recorded along their directions yet."""
        return replace(self, first=np.pad(self.first, (0, count)), second=np.pad(self.second, ((0, count), (0, count))))

    def rotated(self, rotation: Array) -> Self:
        """Move to the basis that is left after atoms were removed, O(m^3).

        Parameters
        ----------
        rotation : ndarray of shape (k, m)
            New basis vectors in the old basis, orthonormal rows.

        Returns
        -------
        Moments
        """
        second = rotation @ self.second @ rotation.T
        second = 0.5 * (second + second.T)
        lost = float(np.trace(self.second)) - float(np.trace(second))
        return replace(self, first=rotation @ self.first, second=second, lost_by_removal=self.lost_by_removal + lost)
