"""Triangular factors of kernel matrices."""

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.linalg.blas import dtrmm, dtrsm
from scipy.linalg.lapack import dtrtri

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# A row whose squared distance to the span is below this share of its own k(x, x) counts as dependent. A squared pivot p
# is known to eps / p, relative, and so are later coordinates along its direction; dropping it gives up p of the row's
# energy. On smooth kernels 1e-12 lost 1e-5 of an eigenvalue where pivots were met in unlucky order, 1e-8 lost 1e-8 of
# a projection everywhere.
LEAST_PIVOT = 1e-10

# Rounding in one kernel value, relative to sqrt(k(x, x) k(y, y)). The bound of squared distances that is made from it
# was never exceeded by more than 1.7 in some 240 fits of kernels of finite rank.
KERNEL_ROUNDING = 4 * np.finfo(np.float64).eps

# Bases of 256 atoms on digits, server metrics or a curved sheet keep to 1e-12 to 1e-10. Above this, rounding shows in
# the eighth digit.
LARGEST_AMPLIFICATION = 1e-8


def solve_factor(factor: Array, kernel_rows: Array) -> Array:
    """Turn kernel values against the atoms into coordinates, in place.

    Parameters
    ----------
    factor : ndarray of shape (m, m)
        Lower triangular L.
    kernel_rows : ndarray of shape (B, m)
        k(x, Z), C-contiguous; overwritten.

    Returns
    -------
    ndarray of shape (B, m)
        Row by row L^-1 k_Z(x).
    """
    if not kernel_rows.size:
        return kernel_rows
    # BLAS thinks in columns: the transposed views are column-major, and nothing is copied.
    solved: Array = dtrsm(1.0, factor.T, kernel_rows.T, trans_a=1, overwrite_b=1).T
    return solved


def apply_inverse(inverse: Array, kernel_rows: Array) -> Array:
    """Turn kernel values against the atoms into coordinates by the inverse factor, in place.

    Parameters
    ----------
    inverse : ndarray of shape (m, m)
        Lower triangular L^-1.
    kernel_rows : ndarray of shape (B, m)
        k(x, Z), C-contiguous; overwritten.

    Returns
    -------
    ndarray of shape (B, m)
        Row by row L^-1 k_Z(x).

    Notes
    -----
    A product runs at nearly the rate of GEMM, solving at a third of it.
    """
    if not kernel_rows.size:
        return kernel_rows
    product: Array = dtrmm(1.0, inverse.T, kernel_rows.T, trans_a=1, overwrite_b=1).T
    return product


def solve_transposed(factor: Array, coordinates: Array) -> Array:
    """Turn coordinates in the orthonormal basis into coefficients over the atoms.

    Parameters
    ----------
    factor : ndarray of shape (m, m)
        Lower triangular L.
    coordinates : ndarray of shape (B, m)

    Returns
    -------
    ndarray of shape (B, m)
        Row by row L^-T c.
    """
    if not coordinates.size:
        return coordinates
    solved: Array = dtrsm(1.0, factor.T, coordinates.T).T
    return solved


def inverse_factor(factor: Array) -> Array:
    """Invert a lower triangular factor; column j is the dual vector of atom j.

    Parameters
    ----------
    factor : ndarray of shape (m, m)

    Returns
    -------
    ndarray of shape (m, m)
    """
    if not factor.size:
        return factor
    # The transposed view is column-major and upper triangular.
    inverse, _ = dtrtri(factor.T, lower=0)
    return np.ascontiguousarray(inverse.T)


def rounding_amplification(inverse: Array, factor: Array) -> float:
    """Estimate, from above, the share of energy that rounding in kernel values moves between directions.

    Parameters
    ----------
    inverse : ndarray of shape (m, m)
        L^-1.
    factor : ndarray of shape (m, m)
        L.

    Returns
    -------
    float

    Notes
    -----
    Kernel values are known to eps sqrt(k(x,x) k(y,y)), so k(Z, Z) = L L^T + E with |E_ij| <= eps e_i e_j and
    e_j = sqrt(k(z_j, z_j)), and squared lengths in the span change by the share |L^-1 E L^-T|. Errors that are
    independent of each other make that some eps |L^-1 diag(e)|_F^2. So do errors in the kernel values of other rows, or
    in sums over products of these, once L^-1 is applied to them.
    """
    lengths = np.sqrt(squared_norms(factor))
    reach = inverse * lengths
    return float(KERNEL_ROUNDING * np.vdot(reach, reach))


def restrict_factor(factor: Array, keep: Positions) -> tuple[Array, Array]:
    """Factor the kernel matrix of some of the atoms.

    Parameters
    ----------
    factor : ndarray of shape (m, m)
        L of all atoms.
    keep : ndarray of int64 of shape (k,)
        Positions of some of them, ascending.

    Returns
    -------
    factor : ndarray of shape (k, k)
        L' of those, lower triangular with a positive diagonal.
    rotation : ndarray of shape (k, m)
        G with orthonormal rows and L[keep] = L' G.
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
    """Find independent rows among some, and an orthonormal basis of what they span.

    Parameters
    ----------
    coordinates : ndarray of shape (p, r)
        Coordinates of the rows in an orthonormal basis.

    Returns
    -------
    accepted : ndarray of int64 of shape (k,)
        Positions of the independent rows, ascending.
    factor : ndarray of shape (k, k)
        Their lower triangular factor with a positive diagonal.
    rotation : ndarray of shape (k, r)
        G with orthonormal rows and coordinates[accepted] = factor G.
    """
    if not coordinates.size:
        return np.empty(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, coordinates.shape[1]))
    lengths = np.sqrt(squared_norms(coordinates))
    unit = coordinates / np.where(lengths > 0.0, lengths, 1.0)[:, None]
    # With pivoting, so that the diagonal reveals the rank: never more rows than there are coordinates.
    _, r, order = qr(unit.T, mode="economic", pivoting=True, check_finite=False)
    count = int(np.count_nonzero(np.diagonal(r) ** 2 > LEAST_PIVOT))
    accepted = np.sort(order[:count]).astype(np.int64)
    return accepted, *_lower_factor(coordinates[accepted])


def _lower_factor(rows: Array) -> tuple[Array, Array]:
    """LQ with a positive diagonal, by Householder: orthonormal to rounding however close the rows are."""
    q, r = qr(rows.T, mode="economic", check_finite=False)
    signs = np.where(np.diagonal(r) < 0.0, -1.0, 1.0)
    return (signs[:, None] * r).T, (q * signs).T


def squared_norms(coordinates: Array) -> Array:
    """Return the squared length of each row.

    Parameters
    ----------
    coordinates : ndarray of shape (B, m)

    Returns
    -------
    ndarray of shape (B,)
    """
    norms: Array = np.einsum("ij,ij->i", coordinates, coordinates)
    return norms
