"""The basis: rows of the stream kept as atoms, and the factor that makes them orthonormal."""

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.triangular import (
    KERNEL_ROUNDING,
    LARGEST_AMPLIFICATION,
    LEAST_PIVOT,
    apply_inverse,
    inverse_factor,
    restrict_factor,
    rounding_amplification,
    solve_factor,
    solve_transposed,
    squared_norms,
)
from streamkpca.dictionary._loops import gram_schmidt
from streamkpca.errors import IndefiniteKernelWarning
from streamkpca.kernels import Kernel

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Products of kernel values of other atoms would leave the range of numbers.
_LEAST_ENERGY = 1e-50

# Squares and sums of larger numbers would overflow; four times as much is the most that the likelihood takes.
_LARGEST_ENERGY = 1e139


@dataclass(frozen=True)
class Projected:
    """Rows seen from the basis.

    Parameters
    ----------
    rows : ndarray of shape (B, d)
        The rows.
    energy : ndarray of shape (B,)
        k(x, x).
    coordinates : ndarray of shape (B, m)
        c(x) = L^-1 k_Z(x).
    """

    rows: Array
    energy: Array
    coordinates: Array

    @property
    def residual(self) -> Array:
        """Squared distances k(x, x) - |c(x)|^2 to the span, shape (B,); rounding may make them negative."""
        return self.energy - squared_norms(self.coordinates)


class Basis:
    """Atoms and the lower Cholesky factor L of their kernel matrix.

    Parameters
    ----------
    kernel : Kernel
        A settled kernel.
    n_features : int
        Width d of the rows.

    Attributes
    ----------
    atoms : ndarray of shape (m, d)
        Z, in the order in which they came.
    factor : ndarray of shape (m, m)
        L with L L^T = k(Z, Z); row j holds the Gram-Schmidt coordinates of atom j.
    energy : ndarray of shape (m,)
        k(z, z).

    Notes
    -----
    Arrays are replaced, never written to: whoever holds one holds a constant.

    References
    ----------
    .. [1] S. Martin, "An approximate version of kernel PCA", ICMLA 2006.
    """

    def __init__(self, kernel: Kernel, n_features: int) -> None:
        self.kernel = kernel
        self.atoms: Array = np.empty((0, n_features))
        self.factor: Array = np.empty((0, 0))
        self.energy: Array = np.empty(0)
        self._inverse: Array | None = None
        self._precision: Array | None = None
        self._distortion: float | None = None

    @property
    def size(self) -> int:
        """Number of atoms m."""
        return len(self.atoms)

    @property
    def inverse(self) -> Array:
        """L^-1, shape (m, m): c(x) = L^-1 k_Z(x), and column j is the dual vector of atom j. O(m^3) when it is new."""
        if self._inverse is None:
            self._inverse = inverse_factor(self.factor)
        return self._inverse

    @property
    def precision(self) -> Array:
        """K^-1 = L^-T L^-1, shape (m, m): inner products of the dual vectors. O(m^3) when it is new."""
        if self._precision is None:
            self._precision = self.inverse.T @ self.inverse
        return self._precision

    @property
    def rounding_amplification(self) -> float:
        """Share of a row's energy that rounding in kernel values may move between directions."""
        if self._distortion is None:
            self._distortion = rounding_amplification(self.inverse, self.factor)
        return self._distortion

    @property
    def is_well_conditioned(self) -> bool:
        """Whether kernel values may be summed before L^-1 is applied, and that applied instead of solving with L."""
        in_range = (self.energy >= _LEAST_ENERGY) & (self.energy <= 1.0 / _LEAST_ENERGY)
        return bool(in_range.all()) and self.rounding_amplification <= LARGEST_AMPLIFICATION

    def copy(self) -> Self:
        """Return a basis that goes its own way from here."""
        twin = type(self)(self.kernel, self.atoms.shape[1])
        twin.__dict__.update(self.__dict__)
        return twin

    def project(self, rows: Array) -> Projected:
        """Project rows onto the span of the atoms, O(B m (d + m)).

        Parameters
        ----------
        rows : ndarray of shape (B, d)

        Returns
        -------
        Projected
        """
        energy, kernel_rows = self.compare(rows)
        return Projected(rows, energy, self.coordinates(kernel_rows))

    def compare(self, rows: Array) -> tuple[Array, Array]:
        """Evaluate the kernel for rows with themselves and with the atoms, O(B m d).

        Parameters
        ----------
        rows : ndarray of shape (B, d)

        Returns
        -------
        energy : ndarray of shape (B,)
            k(x, x).
        kernel_rows : ndarray of shape (B, m)
            k(x, Z).
        """
        program = self.kernel.program
        energy = program.diagonal(rows)
        check_energy(energy)
        return energy, program.matrix(rows, self.atoms)

    def coordinates(self, kernel_rows: Array) -> Array:
        """Turn kernel values against the atoms into coordinates, O(B m^2).

        Parameters
        ----------
        kernel_rows : ndarray of shape (B, m)
            k(x, Z), C-contiguous; overwritten.

        Returns
        -------
        ndarray of shape (B, m)
            Row by row L^-1 k_Z(x).
        """
        if self.is_well_conditioned:
            return apply_inverse(self.inverse, kernel_rows)
        return solve_factor(self.factor, kernel_rows)

    def interpolation(self, coordinates: Array) -> Array:
        """Express the projections of rows by the atoms themselves, O(B m^2).

        Parameters
        ----------
        coordinates : ndarray of shape (B, m)

        Returns
        -------
        ndarray of shape (B, m)
            Coefficients beta = L^-T c(x): the projection of phi(x) is sum_i beta_i phi(z_i).
        """
        return solve_transposed(self.factor, coordinates)

    def extend(self, rows: Array) -> Positions:
        """Append those rows that are independent of the atoms and of the rows before them.

        Parameters
        ----------
        rows : ndarray of shape (s, d)

        Returns
        -------
        ndarray of int64
            Positions among `rows` of those that became atoms, in order.

        Notes
        -----
        O(s m (d + m) + s^3 / 3). The factor grows by the block [L21 L22], where L21 are the coordinates of the new
        rows in the old basis and L22 L22^T = k(rows, rows) - L21 L21^T.
        """
        seen = self.project(rows)
        floor = rounding_error(seen.energy, self.interpolation(seen.coordinates), self.energy)
        schur = self.kernel.program.gram(rows) - seen.coordinates @ seen.coordinates.T
        local, accepted = np.empty_like(schur), np.empty(len(rows), dtype=np.int64)
        count = gram_schmidt(schur, np.maximum(floor, LEAST_PIVOT * np.abs(seen.energy)), local, accepted)
        accepted = accepted[:count]

        m = self.size
        factor = np.zeros((m + count, m + count))
        factor[:m, :m] = self.factor
        factor[m:, :m] = seen.coordinates[accepted]
        factor[m:, m:] = local[:count, :count]
        self.factor = factor
        self._forget_derived()
        self.atoms = np.concatenate([self.atoms, rows[accepted]])
        self.energy = np.concatenate([self.energy, seen.energy[accepted]])
        return accepted

    def warn_if_indefinite(self, block: Projected) -> None:
        """Say so when a row is at a negative squared distance to the span, beyond rounding.

        Parameters
        ----------
        block : Projected
        """
        suspects = np.flatnonzero(block.residual < -LEAST_PIVOT * np.abs(block.energy))
        if len(suspects):
            interpolation = self.interpolation(block.coordinates[suspects])
            rounding = rounding_error(block.energy[suspects], interpolation, self.energy)
            excess = block.residual[suspects] + rounding
            if excess.min() < 0.0:
                warn_indefinite(float(block.residual[suspects].min()))

    def remove(self, positions: Positions) -> Array:
        """Remove atoms.

        Parameters
        ----------
        positions : ndarray of int64
            Which atoms go.

        Returns
        -------
        ndarray of shape (m - s, m)
            G with orthonormal rows: the new basis vectors in the old basis. Old coordinates c become G c.

        Notes
        -----
        The remaining rows of L are factored as L' G (LQ with a positive diagonal). Rows above the first removed one
        keep their coordinates, so only what follows is factored: O((m - first)^3).
        """
        keep = np.setdiff1d(np.arange(self.size), positions)
        self.factor, rotation = restrict_factor(self.factor, keep)
        self.atoms, self.energy = self.atoms[keep], self.energy[keep]
        self._forget_derived()
        return rotation

    def _forget_derived(self) -> None:
        self._inverse = self._precision = self._distortion = None


def rounding_error(energy: Array, interpolation: Array, atom_energy: Array) -> Array:
    """Bound what rounding in the kernel values does to squared distances to the span.

    Parameters
    ----------
    energy : ndarray of shape (B,)
        k(x, x).
    interpolation : ndarray of shape (B, m)
        Coefficients beta of the rows' projections over the atoms.
    atom_energy : ndarray of shape (m,)
        k(z, z).

    Returns
    -------
    ndarray of shape (B,)

    Notes
    -----
    The residual is phi(x) - sum_i beta_i phi(z_i), so errors eps sqrt(k(x,x) k(y,y)) in the kernel values add up to at
    most eps (sqrt k(x,x) + sum_i |beta_i| sqrt k(z_i,z_i))^2 in its squared length.
    """
    reach = np.sqrt(np.abs(energy)) + np.abs(interpolation) @ np.sqrt(np.abs(atom_energy))
    bound: Array = KERNEL_ROUNDING * reach**2
    return bound


def warn_indefinite(squared_distance: float) -> None:
    """Warn that a kernel gave a negative squared distance.

    Parameters
    ----------
    squared_distance : float
    """
    warnings.warn(
        f"the kernel is not positive definite on these rows: a squared distance in feature space is "
        f"{squared_distance:.3g}. The model goes on with directions along which all lengths are positive, but "
        "tolerances and bounds no longer hold; a kernel such as RBF or Polynomial keeps them",
        IndefiniteKernelWarning,
        stacklevel=2,
    )


def check_energy(energy: Array) -> None:
    """Refuse rows that the kernel takes out of the range in which squares and sums are numbers.

    Parameters
    ----------
    energy : ndarray of shape (B,)
        k(x, x).

    Raises
    ------
    ValueError
        One is too large, infinite or NaN.
    """
    too_large = ~(np.abs(energy) <= _LARGEST_ENERGY)
    if too_large.any():
        row = int(np.flatnonzero(too_large)[0])
        raise ValueError(
            f"kernel: k(x, x) is {energy[row]:.3g} for row {row} of these, but the limit is {_LARGEST_ENERGY:g}; "
            "scale the features down, or choose a bounded kernel such as RBF"
        )
