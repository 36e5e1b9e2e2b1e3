"""Sums over a stream's rows in the basis of the atoms, and the account of their energy."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Self

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.linalg import apply_inverse, lower_self_product
from streamkpca.dictionary.basis import Basis
from streamkpca.kernels._loops import mirror_lower


@dataclass(frozen=True)
class ProjectionLoss:
    """Energy outside the span, split by its effect on the eigenvalues.

    `orthogonal_arrival` is that of rows on arrival, `orthogonal_removal` that lost with removed atoms, since the span
    last grew; the others are the same from before, and the variance of gaps. `other_length` bounds the Frobenius norm
    of the losses with removed atoms before the span last grew, and `rounding` the energy that rounding may have moved
    from one direction to another in addition.

    With A the weighted rows in feature space and A^ what is recorded of them, A = A^ + F + S. The rows of F, the
    orthogonal losses, are orthogonal to the span; those of S, the other losses, need not be. |F|^2 is `orthogonal`, and
    |S| <= `other_distance`. Squares of other arrivals add up, as they belong to different rows; of other removals, only
    lengths do, one for each time that the span grew after atoms were removed.
    """

    orthogonal_arrival: float = 0.0
    orthogonal_removal: float = 0.0
    other_arrival: float = 0.0
    other_removal: float = 0.0
    other_length: float = 0.0
    rounding: float = 0.0

    @property
    def on_arrival(self) -> float:
        """Energy that rows had outside the span when they arrived."""
        return self.orthogonal_arrival + self.other_arrival

    @property
    def by_removal(self) -> float:
        """Energy of the recorded rows along directions that were removed with atoms."""
        return self.orthogonal_removal + self.other_removal

    @property
    def total(self) -> float:
        """Energy that projections have lost."""
        return self.on_arrival + self.by_removal

    @property
    def orthogonal(self) -> float:
        """Energy orthogonal to the present span, never negative."""
        return max(self.orthogonal_arrival + self.orthogonal_removal, 0.0)

    @property
    def other_distance(self) -> float:
        """Bound on the Frobenius norm of the other losses."""
        return math.sqrt(max(self.other_arrival, 0.0)) + self.other_length

    def add_arrivals(self, energy: float, rounding: float = 0.0, spread: float = 0.0) -> Self:
        """Add what rows have outside the span when they arrive, and the variance of what is missing in them."""
        return self.join(type(self)(orthogonal_arrival=energy, other_arrival=spread, rounding=rounding))

    def add_removal(self, energy: float, rounding: float = 0.0) -> Self:
        """Add what is lost with removed atoms, and what rounding may have moved."""
        return replace(self, orthogonal_removal=self.orthogonal_removal + energy, rounding=self.rounding + rounding)

    def span_grown(self) -> Self:
        """Count all losses as other: the new directions need not be orthogonal to them."""
        return type(self)(
            other_arrival=self.on_arrival,
            other_removal=self.by_removal,
            other_length=self.other_length + math.sqrt(max(self.orthogonal_removal, 0.0)),
            rounding=self.rounding,
        )

    def decay(self, factor: float) -> Self:
        """Multiply the weights of all rows by `factor`."""
        scaled = {name: value * factor for name, value in vars(self).items()}
        return type(self)(**scaled | {"other_length": self.other_length * math.sqrt(factor)})

    def join(self, other: Self) -> Self:
        """Add the losses of other rows beside the same span."""
        total = {name: value + getattr(other, name) for name, value in vars(self).items()}
        # Lengths of other rows add up by Pythagoras.
        return type(self)(**total | {"other_length": math.hypot(self.other_length, other.other_length)})

    def merge(self, other: Self) -> Self:
        """Add the losses of other rows; the common span may be larger than the span of either."""
        return self.span_grown().join(other.span_grown())


def gram_of(vectors: Array) -> Array:
    """Return sum v_n v_n^T over C-contiguous vectors (B, m), symmetric to the bit; O(B m^2)."""
    gram = lower_self_product(vectors)
    mirror_lower(gram, 0, 0, *gram.shape)
    return gram


@dataclass(frozen=True)
class RowSums:
    """Weighted sums over rows x_n, each given as a vector v_n of m numbers.

    N = sum a_n, sum a_n^2, E = sum a_n k(x_n, x_n), the largest k(x, x) of a row that had weight on arrival, sum a_n
    v_n (m,), sum a_n v_n v_n^T (m, m), and the part of E that is the variance of what is missing in rows with gaps.
    """

    total_weight: float
    total_squared_weight: float
    energy: float
    largest_energy: float
    first: Array
    second: Array
    spread: float = 0.0

    @classmethod
    def zero(cls, m: int = 0) -> Self:
        """Return the sums over no rows."""
        return cls(0.0, 0.0, 0.0, 0.0, np.zeros(m), np.zeros((m, m)))

    @classmethod
    def of(cls, vectors: Array, energy: Array, weights: Array, spread: Array | None = None) -> Self:
        """Sum over a block: vectors (B, m), k(x, x) as energy (B,), weights (B,), spread (B,) of gaps; O(B m^2)."""
        # The usual case, all weights 1, costs no scaled copy.
        scaled = np.ascontiguousarray(vectors) if np.all(weights == 1.0) else vectors * np.sqrt(weights)[:, None]
        return cls(
            total_weight=float(weights.sum()),
            total_squared_weight=float(weights @ weights),
            energy=float(weights @ energy),
            largest_energy=float(energy.max(where=weights > 0.0, initial=0.0)),
            first=weights @ vectors,
            second=gram_of(scaled),
            spread=0.0 if spread is None else float(weights @ spread),
        )

    def plus(self, other: "RowSums") -> Self:
        """Add sums over other rows."""
        total = {name: getattr(self, name) + value for name, value in vars(other).items() if name in _SUMS}
        return replace_fields(self, **total | {"largest_energy": max(self.largest_energy, other.largest_energy)})

    @property
    def mean_energy(self) -> float:
        """Energy per unit of weight; zero if all weights are zero."""
        return self.energy / self.total_weight if self.total_weight else 0.0

    def along_nothing(self) -> "RowSums":
        """Return the totals alone, as sums of vectors of length 0."""
        totals = self.total_weight, self.total_squared_weight, self.energy, self.largest_energy
        return RowSums(*totals, np.empty(0), np.empty((0, 0)))

    def decay(self, factor: float) -> Self:
        """Multiply the weights of all rows by `factor`, from 0 to 1."""
        # Two multiplications, because the square of a small factor underflows.
        squared, largest = self.total_squared_weight * factor * factor, self.largest_energy
        decayed = {item.name: getattr(self, item.name) * factor for item in fields(RowSums)}
        return replace(self, **decayed | {"total_squared_weight": squared, "largest_energy": largest})

    def solve(self, inverse: Array) -> Self:
        """Return the sums for vectors L^-1 v_n, given L^-1; O(m^3), at half the cost of `map`."""
        half = apply_inverse(inverse, self.second.copy())
        second = apply_inverse(inverse, np.ascontiguousarray(half.T))
        return replace(self, first=inverse @ self.first, second=0.5 * (second + second.T))

    def map(self, matrix: Array) -> Self:
        """Return the sums for vectors A v_n, given A (k, m); O(m^3)."""
        second = matrix @ self.second @ matrix.T
        return replace(self, first=matrix @ self.first, second=0.5 * (second + second.T))


# Looked up once, as sums are added up several times for each block.
_SUMS = frozenset(item.name for item in fields(RowSums))


@dataclass(frozen=True)
class Moments(RowSums):
    """Sums over all rows seen, in the coordinates c(x) of the basis, and the energy that projections lost.

    Energy is conserved up to rounding: trace(second) + losses.total = energy.
    """

    losses: ProjectionLoss = field(default_factory=ProjectionLoss)

    @property
    def mean(self) -> Array:
        """Mean of the rows in the basis, shape (m,); zeros if all weights are zero."""
        return self.first / self.total_weight if self.total_weight else self.first

    def centre(self, *, center: bool) -> Array:
        """Return the point that the axes pass through, the mean or the origin; shape (m,)."""
        return self.mean if center else np.zeros_like(self.first)

    def add(self, coordinates: Array, energy: Array, weights: Array) -> Self:
        """Take in a block: coordinates (B, m), k(x, x) as energy (B,), weights (B,); O(B m^2)."""
        return self.record_block(RowSums.of(coordinates, energy, weights))

    def record_block(self, sums: RowSums, rounding_amplification: float = 0.0) -> Self:
        """Take in sums over new rows, in coordinates; rounding may have moved a share of their energy, see `Basis`."""
        outside = sums.energy - float(np.trace(sums.second)) - sums.spread
        losses = self.losses.add_arrivals(outside, rounding_amplification * abs(sums.energy), sums.spread)
        return replace(self.plus(sums), losses=losses)

    def grow(self, count: int) -> Self:
        """Add `count` directions of new atoms, with nothing recorded along them yet."""
        if count == 0:
            return self
        return replace(
            self,
            first=np.pad(self.first, (0, count)),
            second=np.pad(self.second, ((0, count), (0, count))),
            losses=self.losses.span_grown(),
        )

    def rotate(self, rotation: Array, rounding_amplification: float = 0.0) -> Self:
        """Change to another basis, given its vectors in the old one (k, m); what the trace loses is lost; O(m^2 k)."""
        rotated = self.map(rotation)
        lost = float(np.trace(self.second)) - float(np.trace(rotated.second))
        losses = self.losses.add_removal(lost, rounding_amplification * abs(self.energy))
        return replace(rotated, losses=losses)

    def record_anew(self, sums: RowSums, rounding_amplification: float = 0.0) -> "Moments":
        """Return the moments of the same rows in another basis, given the sums over all of them in its coordinates."""
        # Totals added up in another order would differ in the last digits. Expected values of rows with gaps may have
        # changed since.
        energies = sums if sums.spread else self
        largest = max(self.largest_energy, energies.largest_energy)
        totals = self.total_weight, self.total_squared_weight, energies.energy, largest
        again = RowSums(*totals, sums.first, sums.second, sums.spread)
        return Moments.zero(len(sums.first)).record_block(again, rounding_amplification)

    def reproject(self, coordinates: Array, rounding_amplification: float = 0.0) -> Self:
        """Project the moments onto another span, given the projections (m, m2) of this basis' vectors; O(m^2 m2)."""
        return replace(self, losses=self.losses.span_grown()).rotate(coordinates.T, rounding_amplification)

    def decay(self, factor: float) -> Self:
        """Multiply the weights of all rows by `factor`, from 0 to 1."""
        return replace(super().decay(factor), losses=self.losses.decay(factor))

    def join(self, other: Self) -> Self:
        """Add the moments of other rows, recorded in the same basis, O(m^2)."""
        return replace(self.plus(other), losses=self.losses.join(other.losses))

    def merge(self, other: Self, coordinates: Array, rounding_amplification: float = 0.0) -> Self:
        """Add the moments of other rows in another basis, given the projections (m2, m) of its vectors; O(m^2 m2)."""
        # Vectors that were independent only by rounding are not wholly in the span of the union.
        theirs = other.rotate(coordinates.T, rounding_amplification)
        return replace(self.plus(theirs), losses=self.losses.merge(theirs.losses))


# Sums that weigh less are solved before they decay: the unit of kernel values' sums is k^2, so they fall below the
# smallest numbers and lose their digits long before moments do.
_LEAST_RECENT_WEIGHT = 1e-50


@dataclass(frozen=True)
class RecordedMoments:
    """The moments of all rows recorded, as a pair; `solve` reads both.

    `settled` are those of the rows recorded before the atoms last changed. `recent`, or None, sums over the kernel
    values k_Z(x) of later rows: c(x) = L^-1 k_Z(x) is solved in O(m^3) when moments are needed.
    """

    settled: Moments
    recent: RowSums | None = None

    @classmethod
    def zero(cls, m: int = 0) -> Self:
        """Return the record of no rows."""
        return cls(Moments.zero(m))

    @property
    def total_weight(self) -> float:
        """Weight of all rows."""
        return self.settled.total_weight + (self.recent.total_weight if self.recent else 0.0)

    @property
    def energy(self) -> float:
        """Energy of all rows."""
        return self.settled.energy + (self.recent.energy if self.recent else 0.0)

    @property
    def n_effective(self) -> float:
        """Number of rows of equal weight that estimate a mean as well as these; 0 for no rows."""
        weight, squared = self.totals.total_weight, self.totals.total_squared_weight
        return weight**2 / squared if squared > 0.0 else 0.0

    @property
    def totals(self) -> RowSums:
        """The sums that need no vectors."""
        totals = self.settled.along_nothing()
        return totals.plus(self.recent.along_nothing()) if self.recent else totals

    def first_with(self, sums: RowSums, basis: Basis) -> Array:
        """Return the first moments (m,) in the coordinates of the basis with those of a block, O(m^2)."""
        first = sums.first + self.recent.first if self.recent else sums.first
        return self.settled.first + (basis.inverse @ first if basis.is_well_conditioned else first)

    def solve(self, basis: Basis) -> Moments:
        """Return the moments in the coordinates of the basis, O(m^3) if there are recent sums."""
        if self.recent is None:
            return self.settled
        return self.settled.record_block(self.recent.solve(basis.inverse), basis.rounding_amplification)

    def plus(self, sums: RowSums, basis: Basis) -> "RecordedMoments":
        """Add the sums over a block: of kernel values if the basis is well conditioned, else of coordinates."""
        if basis.is_well_conditioned:
            return RecordedMoments(self.settled, self.recent.plus(sums) if self.recent else sums)
        return RecordedMoments(self.settled.record_block(sums, basis.rounding_amplification), self.recent)

    def decay(self, factor: float, basis: Basis) -> "RecordedMoments":
        """Multiply the weights of all rows by `factor`."""
        if self.recent and factor * self.recent.total_weight < _LEAST_RECENT_WEIGHT:
            return RecordedMoments(self.solve(basis).decay(factor))
        return RecordedMoments(self.settled.decay(factor), self.recent.decay(factor) if self.recent else None)
