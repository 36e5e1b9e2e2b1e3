"""What is demanded of what was read, each in a line."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf

from streamkpca.basis import check_energy
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Kernel

Array = npt.NDArray[np.float64]

# Kernel values of other machines differ in their last digits, relative to sqrt(k(x, x) k(y, y)); and rounding adds up
# over all the rows of a long stream, relative to the energy.
SAME = 1e-8
ROUNDING = 1e-6


def require(holds: bool, otherwise: str) -> None:
    """Refuse the checkpoint with this text unless something holds."""
    if not holds:
        raise CheckpointError(otherwise)


def require_columns(kernel: Kernel, n_features: int) -> None:
    """Check that rows have all the columns that a kernel reads."""
    try:
        kernel.check_width(n_features, "the kernel")
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def require_finite(name: str, numbers: Array | Iterable[float]) -> None:
    """Check that there is no NaN and no infinity."""
    values = numbers if isinstance(numbers, np.ndarray) else np.array(list(numbers))
    require(bool(np.isfinite(values).all()), f"{name}: a number is not finite")


def require_not_negative(name: str, numbers: Array) -> None:
    """Check that numbers are finite and not below zero."""
    require_finite(name, numbers)
    require(bool(np.all(numbers >= 0.0)), f"{name}: a number is negative")


def require_positions(name: str, positions: npt.NDArray[np.int64], n_rows: int) -> None:
    """Check that positions are different ones of the stream."""
    inside = len(positions) == 0 or (positions.min() >= 0 and positions.max() < n_rows)
    require(bool(inside), f"{name}.positions: one is outside the {n_rows} rows of the stream")
    require(len(np.unique(positions)) == len(positions), f"{name}.positions: one is there twice")


def require_rows(name: str, rows: Array, kernel: Kernel, weights: Array | None = None) -> None:
    """Check that rows are finite, and within the range of the kernel."""
    require_finite(f"{name}.rows", rows)
    if weights is not None:
        require_not_negative(f"{name}.weights", weights)
        rows = rows[weights > 0.0]
    if kernel.is_settled and len(rows):
        try:
            kernel.check_range(rows, "the kernel")
            check_energy(kernel.program.diagonal(rows.astype(np.float64, copy=False)))
        except ValueError as error:
            raise CheckpointError(f"{name}.rows: {error}") from None


def require_factor(name: str, factor: Array, atoms: Array, kernel: Kernel) -> None:
    """Check that L is lower triangular with a positive diagonal, and that L L^T = k(Z, Z)."""
    require_finite(f"{name}.factor", factor)
    require(not np.triu(factor, 1).any(), f"{name}.factor is not lower triangular")
    require(bool(np.all(np.diagonal(factor) > 0.0)), f"{name}.factor has a pivot that is not positive")
    difference = kernel.program.gram(atoms)
    lengths = np.sqrt(np.abs(np.diagonal(difference)))
    with np.errstate(over="ignore", invalid="ignore"):
        difference -= factor @ factor.T
        np.abs(difference, out=difference)
        difference -= SAME * lengths * lengths[:, None]
    require(bool(np.all(difference <= 0.0)), f"{name}.factor is not that of its atoms' kernel matrix")


def require_close(name: str, given: Array, expected: Array, scale: Array) -> None:
    """Check that numbers are what they must be, up to other machines' last digits of a scale."""
    require_finite(name, given)
    require(bool(np.all(np.abs(given - expected) <= SAME * np.abs(scale))), f"{name} is not what follows from the rest")


def is_nearly_semidefinite(matrix: Array, rounding: float) -> bool:
    """Say whether no eigenvalue is below minus `rounding`; the matrix is overwritten."""
    if not matrix.size:
        return True
    matrix[np.diag_indices_from(matrix)] += rounding
    # The transposed view is column-major, and the matrix symmetric.
    return bool(dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)[1] == 0)
