"""The moments of the stream in the basis, and the account of its energy."""

import math
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.blas import lower_self_product
from streamkpca._core.triangular import apply_inverse
from streamkpca.kernels._loops import mirror_lower


@dataclass(frozen=True)
class ProjectionLoss:
    """Energy outside the span, kept apart by what it says of the eigenvalues.

    Parameters
    ----------
    orthogonal_arrival, orthogonal_removal : float
        Energy that rows had outside the span when they came, and that went with removed atoms, since the span last
        grew. All of it is orthogonal to the present span.
    other_arrival, other_removal : float
        The same from before the span last grew: directions that came later need not be orthogonal to it.
    other_length : float
        Bound of the Frobenius norm of what went with removed atoms before the span last grew.
    rounding : float
        Bound of what rounding may have moved from one direction to another, besides.

    Notes
    -----
    With A the weighted rows in feature space and A^ what is recorded of them, A = A^ + F + S. The rows of F, fresh
    losses, are orthogonal to the span that the rows of A^ lie in; those of S, stale losses, need not be. |F|^2 is
    `orthogonal`. Stale arrivals are of different rows, so their squares add up; stale removals may be of the same rows,
    so only their lengths add up, one for each time that the span grew after atoms were removed: |S| <=
    `other_distance`.
    """

    orthogonal_arrival: float = 0.0
    orthogonal_removal: float = 0.0
    other_arrival: float = 0.0
    other_removal: float = 0.0
    other_length: float = 0.0
    rounding: float = 0.0

    @property
    def on_arrival(self) -> float:
        """Energy of what rows had outside the span when they came."""
        return self.orthogonal_arrival + self.other_arrival

    @property
    def by_removal(self) -> float:
        """Energy that the recorded rows had along directions that went with removed atoms."""
        return self.orthogonal_removal + self.other_removal

    @property
    def total(self) -> float:
        """Energy that projections gave up."""
        return self.on_arrival + self.by_removal

    @property
    def orthogonal(self) -> float:
        """Energy orthogonal to the present span, never negative."""
        return max(self.orthogonal_arrival + self.orthogonal_removal, 0.0)

    @property
    def other_distance(self) -> float:
        """Bound of the Frobenius norm of the stale losses."""
        return math.sqrt(max(self.other_arrival, 0.0)) + self.other_length

    def arrived(self, energy: float, rounding: float = 0.0) -> Self:
        """Enter what rows have outside the span when they come."""
        return replace(self, orthogonal_arrival=self.orthogonal_arrival + energy, rounding=self.rounding + rounding)

    def rounded(self, energy: float) -> Self:
        """Enter what rounding may have moved."""
        return replace(self, rounding=self.rounding + energy)

    def removed(self, energy: float) -> Self:
        """Enter what goes with removed atoms."""
        return replace(self, orthogonal_removal=self.orthogonal_removal + energy)

    def span_grown(self) -> Self:
        """Call all losses stale: the new directions need not be orthogonal to them."""
        return type(self)(
            other_arrival=self.on_arrival,
            other_removal=self.by_removal,
            other_length=self.other_length + math.sqrt(max(self.orthogonal_removal, 0.0)),
            rounding=self.rounding,
        )

    def decayed(self, factor: float) -> Self:
        """Let all rows count `factor` times what they did."""
        return type(self)(
            self.orthogonal_arrival * factor,
            self.orthogonal_removal * factor,
            self.other_arrival * factor,
            self.other_removal * factor,
            self.other_length * math.sqrt(factor),
            self.rounding * factor,
        )

    def merged(self, other: Self) -> Self:
        """Add the losses of other rows, both seen from a span that may be larger than either's own."""
        own, others = self.span_grown(), other.span_grown()
        return type(self)(
            other_arrival=own.other_arrival + others.other_arrival,
            other_removal=own.other_removal + others.other_removal,
            other_length=math.hypot(own.other_length, others.other_length),
            rounding=own.rounding + others.rounding,
        )


Array = npt.NDArray[np.float64]


def gram_of(vectors: Array) -> Array:
    """Sum the products of vectors with themselves, sum v_n v_n^T; O(B m^2).

    Parameters
    ----------
    vectors : ndarray of shape (B, m)
        C-contiguous.

    Returns
    -------
    ndarray of shape (m, m)
        Symmetric to the bit.
    """
    gram = lower_self_product(vectors)
    mirror_lower(gram, 0, 0, *gram.shape)
    return gram


def weighted_gram(vectors: Array, weights: Array) -> Array:
    """Sum the products of vectors with themselves, sum a_n v_n v_n^T; O(B m^2).

    Parameters
    ----------
    vectors : ndarray of shape (B, m)
    weights : ndarray of shape (B,)

    Returns
    -------
    ndarray of shape (m, m)
        Symmetric to the bit.
    """
    # The usual case, all weights 1, costs no scaled copy.
    even = bool(np.all(weights == 1.0))
    return gram_of(np.ascontiguousarray(vectors) if even else vectors * np.sqrt(weights)[:, None])


@dataclass(frozen=True)
class RowSums:
    """Weighted sums over rows x_n that are given as vectors v_n of m numbers.

    Parameters
    ----------
    total_weight : float
        N = sum a_n.
    total_squared_weight : float
        sum a_n^2, for Bessel's correction.
    energy : float
        E = sum a_n k(x_n, x_n).
    largest_energy : float
        Largest k(x, x) of a row that counted when it came.
    first : ndarray of shape (m,)
        sum a_n v_n.
    second : ndarray of shape (m, m)
        sum a_n v_n v_n^T.
    """

    total_weight: float
    total_squared_weight: float
    energy: float
    largest_energy: float
    first: Array
    second: Array

    @classmethod
    def zero(cls, m: int = 0) -> Self:
        """Return the sums over no row at all."""
        return cls(0.0, 0.0, 0.0, 0.0, np.zeros(m), np.zeros((m, m)))

    @classmethod
    def of(cls, vectors: Array, energy: Array, weights: Array) -> Self:
        """Sum over a block, O(B m^2).

        Parameters
        ----------
        vectors : ndarray of shape (B, m)
        energy : ndarray of shape (B,)
            k(x, x).
        weights : ndarray of shape (B,)

        Returns
        -------
        RowSums
        """
        return cls(
            total_weight=float(weights.sum()),
            total_squared_weight=float(weights @ weights),
            energy=float(weights @ energy),
            largest_energy=float(energy.max(where=weights > 0.0, initial=0.0)),
            first=weights @ vectors,
            second=weighted_gram(vectors, weights),
        )

    def plus(self, other: "RowSums") -> Self:
        """Add sums over other rows."""
        return replace(
            self,
            total_weight=self.total_weight + other.total_weight,
            total_squared_weight=self.total_squared_weight + other.total_squared_weight,
            energy=self.energy + other.energy,
            largest_energy=max(self.largest_energy, other.largest_energy),
            first=self.first + other.first,
            second=self.second + other.second,
        )

    @property
    def mean_energy(self) -> float:
        """Energy a unit of weight; zero where all weights are zero."""
        return self.energy / self.total_weight if self.total_weight else 0.0

    def along_nothing(self) -> "RowSums":
        """Return the totals alone, without the moments."""
        totals = self.total_weight, self.total_squared_weight, self.energy, self.largest_energy
        return RowSums(*totals, np.empty(0), np.empty((0, 0)))

    def decayed(self, factor: float) -> Self:
        """Let all rows count `factor` times what they did.

        Parameters
        ----------
        factor : float
            From 0 to 1.

        Returns
        -------
        RowSums
        """
        return replace(
            self,
            total_weight=self.total_weight * factor,
            # One after the other: the square of a small factor is below all numbers.
            total_squared_weight=self.total_squared_weight * factor * factor,
            energy=self.energy * factor,
            first=self.first * factor,
            second=self.second * factor,
        )

    def solved(self, inverse: Array) -> Self:
        """Sum over the same rows, given as L^-1 v_n; O(m^3), at half the price of `mapped`.

        Parameters
        ----------
        inverse : ndarray of shape (m, m)
            Lower triangular L^-1.

        Returns
        -------
        RowSums
        """
        half = apply_inverse(inverse, self.second.copy())
        second = apply_inverse(inverse, np.ascontiguousarray(half.T))
        return replace(self, first=inverse @ self.first, second=0.5 * (second + second.T))

    def mapped(self, matrix: Array) -> Self:
        """Sum over the same rows, given as A v_n; O(m^3).

        Parameters
        ----------
        matrix : ndarray of shape (k, m)
            A.

        Returns
        -------
        RowSums
        """
        second = matrix @ self.second @ matrix.T
        return replace(self, first=matrix @ self.first, second=0.5 * (second + second.T))


@dataclass(frozen=True)
class Moments(RowSums):
    """Sums over all rows seen, in the coordinates c(x) of the basis, and the account of the energy.

    Parameters
    ----------
    losses : ProjectionLoss
        What projections gave up.

    Notes
    -----
    Energy is conserved: trace(second) + losses.total = energy. Every operation keeps this account, up to rounding.
    """

    losses: ProjectionLoss = field(default_factory=ProjectionLoss)

    @property
    def mean(self) -> Array:
        """Mean of the rows in the basis, shape (m,); zeros where all weights are zero."""
        return self.first / self.total_weight if self.total_weight else self.first

    def centre(self, *, center: bool) -> Array:
        """Return the point that axes go through: the mean, or the origin without centring; shape (m,)."""
        return self.mean if center else np.zeros_like(self.first)

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

    def recorded(self, sums: RowSums, rounding_amplification: float = 0.0) -> Self:
        """Take in sums over rows that are new, in coordinates.

        Parameters
        ----------
        sums : RowSums
        rounding_amplification : float
            Share of the energy that rounding may have moved, see `Basis.rounding_amplification`.

        Returns
        -------
        Moments
        """
        arrived = self.losses.arrived(
            sums.energy - float(np.trace(sums.second)), rounding_amplification * abs(sums.energy)
        )
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

    def merged(self, other: Self, coordinates: Array, rounding_amplification: float = 0.0) -> Self:
        """Add the moments of other rows, recorded in another basis, O(m^2 m2).

        Parameters
        ----------
        other : Moments
            In a basis of m2 vectors.
        coordinates : ndarray of shape (m2, m)
            That basis' vectors, projected onto this one.
        rounding_amplification : float
            Share of the other's energy that rounding in these may move.

        Returns
        -------
        Moments
        """
        theirs = other.mapped(coordinates.T)
        # Vectors that were dependent but for rounding are not in the union to their last digit.
        beyond = float(np.trace(other.second)) - float(np.trace(theirs.second))
        given_up = other.losses.removed(beyond).rounded(rounding_amplification * abs(other.energy))
        return replace(self.plus(theirs), losses=self.losses.merged(given_up))
