"""Lower triangular factors L of kernel matrices: solving with them, inverting them, and factors of fewer rows."""

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.linalg.blas import dtrmm, dtrsm
from scipy.linalg.lapack import dtrtri

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# A row whose squared distance to the span is below this share of its own k(x, x) counts as dependent. A squared pivot p
# is known to eps / p, relative, and so are later coordinates along its direction; dropping it gives up p of the row's
# energy. On smooth kernels, 1e-12 lost 1e-5 of an eigenvalue when pivots came in an unlucky order, and 1e-8 lost 1e-8
# of a projection everywhere.
LEAST_PIVOT = 1e-10

# Rounding in one kernel value, relative to sqrt(k(x, x) k(y, y)). In some 240 fits of kernels of finite rank, errors of
# squared distances never exceeded the bound derived from it by more than a factor of 1.7.
KERNEL_ROUNDING = 4 * np.finfo(np.float64).eps

# Bases of 256 atoms on digits, server metrics or a curved sheet have 1e-12 to 1e-10. Above this limit, rounding shows
# in the eighth digit.
LARGEST_AMPLIFICATION = 1e-8


def solve_factor(factor: Array, kernel_rows: Array) -> Array:
    """Turn kernel values (B, m), C-contiguous, into coordinates L^-1 k_Z(x), row by row and in place."""
    if not kernel_rows.size:
        return kernel_rows
    # BLAS is column-major, and so are the transposed views: nothing is copied.
    solved: Array = dtrsm(1.0, factor.T, kernel_rows.T, trans_a=1, overwrite_b=1).T
    return solved


def apply_inverse(inverse: Array, kernel_rows: Array) -> Array:
    """Turn kernel values (B, m) into coordinates as `solve_factor` does, given L^-1 instead of L.

    A product runs at nearly the rate of GEMM, solving at a third of it.
    """
    if not kernel_rows.size:
        return kernel_rows
    product: Array = dtrmm(1.0, inverse.T, kernel_rows.T, trans_a=1, overwrite_b=1).T
    return product


def solve_transposed(factor: Array, coordinates: Array) -> Array:
    """Turn coordinates (B, m) into coefficients over the atoms, row by row L^-T c."""
    if not coordinates.size:
        return coordinates
    solved: Array = dtrsm(1.0, factor.T, coordinates.T).T
    return solved


def inverse_factor(factor: Array) -> Array:
    """Invert a lower triangular factor; column j is the dual vector of atom j."""
    if not factor.size:
        return factor
    # The transposed view is column-major and upper triangular.
    inverse, _ = dtrtri(factor.T, lower=0)
    return np.ascontiguousarray(inverse.T)


def rounding_amplification(inverse: Array, factor: Array) -> float:
    """Estimate, from above, the share of energy that rounding in kernel values moves between directions.

    Notes
    -----
    Kernel values are known to eps sqrt(k(x,x) k(y,y)), so k(Z, Z) = L L^T + E with |E_ij| <= eps e_i e_j and
    e_j = sqrt(k(z_j, z_j)), and squared lengths in the span change by the share |L^-1 E L^-T|. If the errors are
    independent of each other, that is about eps |L^-1 diag(e)|_F^2. Errors in the kernel values of other rows, or in
    sums over products of these, have the same effect once L^-1 is applied to them.
    """
    lengths = np.sqrt(squared_norms(factor))
    reach = inverse * lengths
    return float(KERNEL_ROUNDING * np.vdot(reach, reach))


def restrict_factor(factor: Array, keep: Positions) -> tuple[Array, Array]:
    """Factor the kernel matrix of the k atoms at the ascending positions `keep`, given the factor (m, m) of all.

    Returns the lower triangular factor L' (k, k) with a positive diagonal, and the rotation G (k, m) with orthonormal
    rows and L[keep] = L' G.
    """
    m, k = len(factor), len(keep)
    untouched = int(np.flatnonzero(np.append(keep, m) != np.arange(k + 1))[0]) if k < m else m
    rotation = np.eye(k, m)
    restricted = factor[keep][:, :k].copy()
    if untouched < k:
        tail = _lower_factor(factor[keep[untouched:], untouched:])
        restricted[untouched:, untouched:], rotation[untouched:, untouched:] = tail
    return restricted, rotation


def independent_span(coordinates: Array) -> tuple[Positions, Array, Array]:
    """Find independent rows among coordinates (p, r), and an orthonormal basis of what all rows span.

    Returns the ascending positions of k independent rows, their lower triangular factor (k, k) with a positive
    diagonal, and G (k, r) with orthonormal rows and coordinates[accepted] = factor G.
    """
    if not coordinates.size:
        return np.empty(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, coordinates.shape[1]))
    lengths = np.sqrt(squared_norms(coordinates))
    unit = coordinates / np.where(lengths > 0.0, lengths, 1.0)[:, None]
    # Pivoting makes the diagonal reveal the rank: there are never more rows than coordinates.
    _, r, order = qr(unit.T, mode="economic", pivoting=True, check_finite=False)
    count = int(np.count_nonzero(np.diagonal(r) ** 2 > LEAST_PIVOT))
    accepted = np.sort(order[:count]).astype(np.int64)
    return accepted, *_lower_factor(coordinates[accepted])


def _lower_factor(rows: Array) -> tuple[Array, Array]:
    """Return LQ with a positive diagonal, by Householder: orthonormal to rounding however close the rows are."""
    q, r = qr(rows.T, mode="economic", check_finite=False)
    signs = np.where(np.diagonal(r) < 0.0, -1.0, 1.0)
    return (signs[:, None] * r).T, (q * signs).T


def squared_norms(coordinates: Array) -> Array:
    """Return the squared length of each row."""
    norms: Array = np.einsum("ij,ij->i", coordinates, coordinates)
    return norms
