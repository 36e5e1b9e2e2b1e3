"""The moments of the stream in the basis, and the account of its energy."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.losses import Losses
from streamkpca.row_sums import RowSums

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Moments(RowSums):
    """Sums over all rows seen, in the coordinates c(x) of the basis, and the account of the energy.

    Parameters
    ----------
    losses : Losses
        What projections gave up.

    Notes
    -----
    Energy is conserved: trace(second) + losses.total = energy. Every operation keeps this account, up to rounding.
    """

    losses: Losses = field(default_factory=Losses)

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
        return self.recorded(RowSums.of(coordinates, energy, weights))

    def recorded(self, sums: RowSums, distortion: float = 0.0) -> Self:
        """Take in sums over rows that are new, in coordinates.

        Parameters
        ----------
        sums : RowSums
        distortion : float
            Share of the energy that rounding may have moved, see `Basis.distortion`.

        Returns
        -------
        Moments
        """
        arrived = self.losses.arrived(sums.energy - float(np.trace(sums.second)), distortion * abs(sums.energy))
        return replace(self.plus(sums), losses=arrived)

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
        rotated = self.mapped(rotation)
        lost = float(np.trace(self.second)) - float(np.trace(rotated.second))
        return replace(rotated, losses=self.losses.removed(lost))

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
        return replace(super().decayed(factor), losses=self.losses.decayed(factor))

    def merged(self, other: Self, coordinates: Array, distortion: float = 0.0) -> Self:
        """Add the moments of other rows, recorded in another basis, O(m^2 m2).

        Parameters
        ----------
        other : Moments
            In a basis of m2 vectors.
        coordinates : ndarray of shape (m2, m)
            That basis' vectors, projected onto this one.
        distortion : float
            Share of the other's energy that rounding in these may move.

        Returns
        -------
        Moments
        """
        theirs = other.mapped(coordinates.T)
        # Vectors that were dependent but for rounding are not in the union to their last digit.
        beyond = float(np.trace(other.second)) - float(np.trace(theirs.second))
        given_up = other.losses.removed(beyond).rounded(distortion * abs(other.energy))
        return replace(self.plus(theirs), losses=self.losses.merged(given_up))
