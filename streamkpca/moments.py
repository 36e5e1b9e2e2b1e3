"""First and second moments of the stream in the basis, and the account of its energy."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.losses import Losses

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
    losses : Losses
        What projections gave up.
    largest_energy : float
        Largest k(x, x) of a row that counted when it came.

    Notes
    -----
    Energy is conserved: trace(M) + losses.total = E. Every operation keeps this account, up to rounding.
    """

    total_weight: float
    total_squared_weight: float
    energy: float
    first: Array
    second: Array
    losses: Losses
    largest_energy: float

    @classmethod
    def zero(cls, m: int = 0) -> Self:
        """Return the moments of no row at all in a basis of m atoms."""
        return cls(0.0, 0.0, 0.0, np.zeros(m), np.zeros((m, m)), Losses(), 0.0)

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
            losses=self.losses.arrived(block_energy - float(np.trace(block))),
            largest_energy=max(self.largest_energy, float(energy[weights > 0.0].max(initial=0.0))),
        )

    def grown(self, count: int) -> Self:
        """Make room for new atoms: nothing is recorded along their directions yet."""
        if count == 0:
            return self
        return replace(
            self,
            first=np.pad(self.first, (0, count)),
            second=np.pad(self.second, ((0, count), (0, count))),
            losses=self.losses.span_grown(),
        )

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
        return replace(self, first=rotation @ self.first, second=second, losses=self.losses.removed(lost))

    def decayed(self, factor: float) -> Self:
        """Let all rows count `factor` times what they did.

        Parameters
        ----------
        factor : float
            From 0 to 1.

        Returns
        -------
        Moments
        """
        return replace(
            self,
            total_weight=self.total_weight * factor,
            total_squared_weight=self.total_squared_weight * factor**2,
            energy=self.energy * factor,
            first=self.first * factor,
            second=self.second * factor,
            losses=self.losses.decayed(factor),
        )

    def merged(self, other: Self, coordinates: Array) -> Self:
        """Add the moments of other rows, recorded in another basis, O(m^2 m2).

        Parameters
        ----------
        other : Moments
            In a basis of m2 vectors.
        coordinates : ndarray of shape (m2, m)
            That basis' vectors, projected onto this one.

        Returns
        -------
        Moments
        """
        second = coordinates.T @ other.second @ coordinates
        second = 0.5 * (second + second.T)
        # Vectors that were dependent but for rounding are not in the union to their last digit.
        beyond = float(np.trace(other.second)) - float(np.trace(second))
        return type(self)(
            total_weight=self.total_weight + other.total_weight,
            total_squared_weight=self.total_squared_weight + other.total_squared_weight,
            energy=self.energy + other.energy,
            first=self.first + other.first @ coordinates,
            second=self.second + second,
            losses=self.losses.merged(other.losses.removed(beyond)),
            largest_energy=max(self.largest_energy, other.largest_energy),
        )
