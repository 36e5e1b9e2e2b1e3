"""The basis: atoms, rows of the stream or points moved from there, and the factor that makes them orthonormal."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from streamkpca._core import linalg
from streamkpca._core.arrays import Array, Flags, Positions
from streamkpca._core.concurrency import cached_property, replace_fields
from streamkpca._core.reservoir import origins_of, positions_outside
from streamkpca.dictionary._loops import LARGEST_NEGATIVE_SHARE, gram_schmidt
from streamkpca.dictionary.completion import Completion
from streamkpca.dictionary.expected import Compared, ExpectedKernel
from streamkpca.errors import IndefiniteKernelWarning, RowError, warn
from streamkpca.kernels import Kernel
from streamkpca.rows.gaps import RowDistribution

# Products of kernel values of atoms below this energy, or above its inverse, would leave the range of float64.
_LEAST_ENERGY = 1e-50

# Squares and sums of larger numbers would overflow; the likelihood takes at most four times this limit.
_LARGEST_ENERGY = 1e139

# The spread of rows without gaps.
_NO_SPREAD = np.zeros(0)


@dataclass(frozen=True)
class Projected:
    """Rows (B, d) and their projections onto the span of the atoms.

    `energy` (B,) is k(x, x), or for a row with gaps the squared length of its expected image; `coordinates` (B, m) are
    c(x) = L^-1 k_Z(x).
    """

    rows: Array
    energy: Array
    coordinates: Array

    @property
    def residual(self) -> Array:
        """Squared distances k(x, x) - |c(x)|^2 to the span, shape (B,); rounding may make them negative."""
        return self.energy - linalg.squared_norms(self.coordinates)


@dataclass(frozen=True)
class AtomStats:
    """Facts about each atom besides its row, each of shape (m,).

    `positions` in the stream are those of the atoms' rows, or ``~position`` of the row that a moved atom began as; see
    `positions_outside` for rows from outside the stream. `weights` are the present weights of these rows,
    `weight_since_admission` the weight of the rows seen since the atom was admitted, its own block included.
    """

    positions: Positions
    weights: Array
    weight_since_admission: Array

    @classmethod
    def none(cls) -> "AtomStats":
        """Return the stats of no atoms."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    @property
    def origins(self) -> Positions:
        """Positions of the rows that the atoms are, or began as; shape (m,)."""
        return origins_of(self.positions)

    def from_outside(self, atoms: Array) -> "AtomStats":
        """Return the stats of the same atoms (m, d) in a stream that has no rows yet."""
        positions, zeros = positions_outside(atoms), np.zeros(len(atoms))
        return AtomStats(np.where(self.positions < 0, ~positions, positions), zeros, zeros)

    def move(self, kept: Positions, has_moved: Flags) -> "AtomStats":
        """Keep the atoms at some positions of the basis, and note which of them, (k,), are no rows any more."""
        positions = self.positions[kept]
        positions = np.where(has_moved & (positions >= 0), ~positions, positions)
        return AtomStats(positions, self.weights[kept], self.weight_since_admission[kept])

    def without(self, atoms: Positions) -> "AtomStats":
        """Remove the atoms at some positions of the basis."""
        return AtomStats(*(np.delete(values, atoms) for values in vars(self).values()))

    def join(self, positions: Positions, weights: Array, weight_since_admission: Array) -> "AtomStats":
        """Append atoms."""
        more = positions, weights, weight_since_admission
        return AtomStats(*map(np.concatenate, zip(vars(self).values(), more, strict=True)))

    def decay(self, factor: float) -> "AtomStats":
        """Multiply the weights of all rows by `factor`."""
        return AtomStats(self.positions, self.weights * factor, self.weight_since_admission * factor)

    def advance(self, weight: float) -> "AtomStats":
        """Add the weight of new rows, which all atoms have seen."""
        return AtomStats(self.positions, self.weights, self.weight_since_admission + weight)


@dataclass(frozen=True, eq=False)
class Basis:
    """Atoms, and the lower Cholesky factor L of their matrix of a settled kernel; a value.

    `atoms` Z (m, d) are in the order in which they were admitted; row j of `factor` (m, m), L L^T = k(Z, Z), holds the
    Gram-Schmidt coordinates of atom j; `energy` (m,) is k(z, z). `distribution` is that of the gaps in rows, None where
    rows have none.
    """

    kernel: Kernel
    atoms: Array
    factor: Array
    energy: Array
    distribution: RowDistribution | None = None

    @classmethod
    def empty(cls, kernel: Kernel, n_features: int, distribution: RowDistribution | None = None) -> Self:
        """Return a basis without atoms."""
        return cls(kernel, np.empty((0, n_features)), np.empty((0, 0)), np.empty(0), distribution)

    @property
    def size(self) -> int:
        """Number of atoms m."""
        return len(self.atoms)

    @cached_property
    def inverse(self) -> Array:
        """L^-1, shape (m, m), O(m^3) once: c(x) = L^-1 k_Z(x), and column j is the dual vector of atom j."""
        return linalg.inverse_factor(self.factor)

    @cached_property
    def precision(self) -> Array:
        """K^-1 = L^-T L^-1, shape (m, m), O(m^3) once: inner products of the dual vectors."""
        precision: Array = self.inverse.T @ self.inverse
        return precision

    @cached_property
    def rounding_amplification(self) -> float:
        """Share of a row's energy that rounding in kernel values may move between directions."""
        return linalg.rounding_amplification(self.inverse, self.factor)

    @cached_property
    def is_well_conditioned(self) -> bool:
        """Whether kernel values may be summed before L^-1 is applied, and L^-1 used instead of solving with L."""
        in_range = (self.energy >= _LEAST_ENERGY) & (self.energy <= 1.0 / _LEAST_ENERGY)
        return bool(in_range.all()) and self.rounding_amplification <= linalg.LARGEST_AMPLIFICATION

    def with_distribution(self, distribution: RowDistribution | None) -> "Basis":
        """Return the same atoms with another distribution of gaps; cached factors stay."""
        return replace_fields(self, distribution=distribution)

    def project(self, rows: Array) -> Projected:
        """Project rows onto the span of the atoms, O(B m (d + m))."""
        compared = self.compare(rows)
        return Projected(rows, compared.energy, self.coordinates(compared.kernel_rows))

    def vectors_in(self, other: "Basis") -> Array:
        """Return the projections (m, m2) of this basis' vectors onto another, L^-1 (atoms there); O(m m2 (d + m2))."""
        atoms = other.project(self.atoms).coordinates
        return linalg.solve_factor(self.factor, np.ascontiguousarray(atoms.T)).T

    def compare(self, rows: Array) -> Compared:
        """Compare rows (B, d), which may have gaps, with themselves and with the atoms; O(B m d)."""
        if self.distribution is not None:
            compared = ExpectedKernel(self.kernel, self.distribution).compare(rows, self.atoms)
            check_energy(compared.energy + compared.spread)
            return compared
        program = self.kernel.program
        energy = program.diagonal(rows)
        check_energy(energy)
        return Compared(program.matrix(rows, self.atoms), energy, _NO_SPREAD)

    def complete(self, rows: Array) -> Array:
        """Put numbers into the gaps of rows (B, d) that leave them near the span; the rows themselves without gaps."""
        if self.distribution is None:
            return rows
        expected = ExpectedKernel(self.kernel, self.distribution)
        with np.errstate(all="ignore"):
            return Completion(expected, self.atoms, self.factor, lambda whole: self.project(whole).residual).complete(
                rows
            )

    def coordinates(self, kernel_rows: Array) -> Array:
        """Turn kernel values against the atoms (B, m), C-contiguous, into coordinates in place, O(B m^2)."""
        if self.is_well_conditioned:
            return linalg.apply_inverse(self.inverse, kernel_rows)
        return linalg.solve_factor(self.factor, kernel_rows)

    def interpolation(self, coordinates: Array) -> Array:
        """Return coefficients beta = L^-T c(x), (B, m), of the projections sum_i beta_i phi(z_i); O(B m^2)."""
        return linalg.solve_transposed(self.factor, coordinates)

    def extend(self, rows: Array) -> tuple["Basis", Positions]:
        """Append the rows (s, d) that are independent of the atoms and of those before; return their positions too.

        The factor grows by [L21 L22], the coordinates of the new rows in the old basis and L22 L22^T = k(rows, rows) -
        L21 L21^T; O(s m (d + m) + s^3 / 3).
        """
        seen = self.project(rows)
        rounding = rounding_error(seen.energy, self.interpolation(seen.coordinates), self.energy)
        thresholds = np.maximum(rounding, linalg.LEAST_PIVOT * np.abs(seen.energy))
        schur = self.kernel.program.gram(rows) - seen.coordinates @ seen.coordinates.T
        local, accepted = np.empty_like(schur), np.empty(len(rows), dtype=np.int64)
        count = gram_schmidt(schur, thresholds, local, accepted)
        accepted = accepted[:count]

        m = self.size
        factor = np.zeros((m + count, m + count))
        factor[:m, :m] = self.factor
        factor[m:, :m] = seen.coordinates[accepted]
        factor[m:, m:] = local[:count, :count]
        atoms = np.concatenate([self.atoms, rows[accepted]])
        energy = np.concatenate([self.energy, seen.energy[accepted]])
        return Basis(self.kernel, atoms, factor, energy, self.distribution), accepted

    def warn_if_indefinite(self, block: Projected) -> None:
        """Warn if a row has a negative squared distance to the span, beyond rounding."""
        suspects = np.flatnonzero(block.residual < -linalg.LEAST_PIVOT * np.abs(block.energy))
        if len(suspects):
            interpolation = self.interpolation(block.coordinates[suspects])
            rounding = rounding_error(block.energy[suspects], interpolation, self.energy)
            excess = block.residual[suspects] + rounding
            if excess.min() < 0.0:
                warn_indefinite(float(block.residual[suspects].min()))

    def without(self, positions: Positions) -> tuple["Basis", Array]:
        """Remove s atoms; return G (m - s, m) too, with orthonormal rows: old coordinates c become G c; O(m^3)."""
        keep = np.setdiff1d(np.arange(self.size), positions)
        factor, rotation = linalg.restrict_factor(self.factor, keep)
        return Basis(self.kernel, self.atoms[keep], factor, self.energy[keep], self.distribution), rotation


def rounding_error(energy: Array, interpolation: Array, atom_energy: Array) -> Array:
    """Bound the effect of rounding in kernel values on squared distances to the span, shape (B,).

    With beta the `interpolation` of projections, the residual is phi(x) - sum_i beta_i phi(z_i): errors of
    eps sqrt(k(x,x) k(y,y)) in kernel values add up to eps (sqrt k(x,x) + sum_i |beta_i| sqrt k(z_i,z_i))^2 in it.
    """
    reach = np.sqrt(np.abs(energy)) + np.abs(interpolation) @ np.sqrt(np.abs(atom_energy))
    bound: Array = linalg.KERNEL_ROUNDING * reach**2
    return bound


def warn_indefinite(squared_distance: float) -> None:
    """Warn that a kernel gave a negative squared distance."""
    warn(
        "the kernel is not positive definite on these rows: a squared distance in feature space is "
        f"{squared_distance:.3g}. The model continues with directions along which all lengths are positive, but "
        "tolerances and bounds no longer hold; choose a kernel such as RBF or Polynomial to keep them",
        IndefiniteKernelWarning,
    )


def reveals_indefinite_kernel(
    residual: Array, products: Array, pivots: Array, energy: Array, unit: float = 1.0
) -> Flags:
    """Return which of s candidates would leave a row a negative squared distance to the span, and warn of that.

    `residual` and `energy` (n,) are squared distances and |k(x, x)| of the rows, `products` (s, n) and `pivots` (s,)
    residual inner products of the candidates with the rows and with themselves; all are multiples of `unit`.
    """
    left = residual - products**2 / pivots[:, None]
    negative = left < -LARGEST_NEGATIVE_SHARE * energy
    if negative.any():
        warn_indefinite(float(left[negative].min()) * unit)
    return np.asarray(negative.any(axis=1))


def check_energy(energy: Array) -> None:
    """Refuse rows whose k(x, x), shape (B,), is NaN, or too large for sums of its squares."""
    _check_size(energy, "k(x, x)", "choose a bounded kernel such as RBF")


def check_squared_lengths(squared_lengths: Array) -> None:
    """Refuse rows of squared lengths (B,) so large that no rule can find the width or the units of a kernel."""
    _check_size(squared_lengths, "the squared length", "give the kernel's parameters as numbers")


def _check_size(values: Array, name: str, remedy: str) -> None:
    too_large = ~(np.abs(values) <= _LARGEST_ENERGY)
    if too_large.any():
        row = int(np.flatnonzero(too_large)[0])
        raise RowError(
            f"kernel: {name} is {values[row]:.3g} for row {{row}} of these, but the limit is {_LARGEST_ENERGY:g}; "
            f"scale the features down, or {remedy}",
            row,
        )
