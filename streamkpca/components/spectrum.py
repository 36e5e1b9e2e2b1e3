"""Principal axes and eigenvalues from the moments."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, eigh, eigvalsh
from scipy.linalg.lapack import dpotrf

from streamkpca._core.arrays import Array
from streamkpca.dictionary.moments import Moments

# From this part of the pairs on LAPACK finds all of them faster than some: 41 against 90 ms for half of 512.
_MANY = 4

# From this size on, Lanczos iterations find few pairs faster than LAPACK: ten of 4,000 in 1.0 s instead of 7.3 s, with
# the proof that none is missing. With 512 atoms they saved less than 9 ms of a refit.
_LARGE = 1024
# The part of the pairs that counts as few, one in eight.
_FEW = 8
# Restarts before LAPACK takes over, as it does where eigenvalues lie close together.
_MOST_RESTARTS = 30
# A missing eigenvalue may exceed the last one found by this share of the first.
_LANCZOS_TOLERANCE = 1e-10

# Eigenvalues below this share of the largest are rounding, not variance.
RANK_TOLERANCE = 64 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class Spectrum:
    """The first q principal axes (m, q), unit vectors in the basis; eigenvalues (q,) and axes are zero beyond the rank.

    `mean` (m,) is the centre, zeros without centring. `explained` (q,) is the variance of the rows along each axis,
    which differs from the eigenvalues where these are a model's. `total_variance` is that in the whole feature space.
    """

    eigenvalues: Array
    axes: Array
    mean: Array
    explained: Array
    total_variance: float

    @property
    def explained_variance_ratio(self) -> Array:
        """Share of the total variance along each axis, shape (q,); zeros where nothing varies."""
        if self.total_variance <= 0.0:
            return np.zeros_like(self.explained)
        return self.explained / self.total_variance


def total_variance(moments: Moments, *, center: bool) -> float:
    """Return the variance of the rows in the whole feature space, including losses.

    Only the recorded part of the mean is known, so with energy lost this is an estimate. Losses that may be rounding
    count as none: where one row has nearly all the weight, they would exceed the variance.
    """
    divisor = covariance_divisor(moments, center=center)
    if divisor == 0.0:
        return 0.0
    lost = moments.losses.total
    if abs(lost) <= max(moments.losses.rounding, RANK_TOLERANCE * abs(moments.energy)):
        lost = 0.0
    return max((recorded_variance(moments, center=center) + lost) / divisor, 0.0)


def principal_axes(moments: Moments, n_components: int | float, *, center: bool, variance: float) -> Spectrum:
    """Diagonalise the covariance that the moments hold (Rayleigh-Ritz in the span of the atoms), O(m^3).

    `n_components` is the number of axes or, as a float, the share of `variance` that the fewest axes must explain.

    Notes
    -----
    Covariance (M - s s^T / N) / (N - sum a^2 / N) when centred, the unbiased estimate for weighted rows; M / N without
    centring. B. Schölkopf, A. Smola, K.-R. Müller, "Nonlinear component analysis as a kernel eigenvalue problem", 1998.
    """
    mean = moments.centre(center=center)
    divisor = covariance_divisor(moments, center=center)
    m = len(mean)
    if m == 0 or divisor == 0.0:
        eigenvalues, axes = _pad(np.zeros(0), np.zeros((m, 0)), n_components)
        return Spectrum(eigenvalues, axes, mean, eigenvalues, variance)
    covariance = (moments.second - moments.total_weight * np.outer(mean, mean)) / divisor
    eigenvalues, axes = leading_eigenpairs(covariance, m if isinstance(n_components, float) else n_components)
    # The sums are known to this share of the energy, and dividing by less than the weight magnifies that.
    rounding = RANK_TOLERANCE * abs(moments.energy) / divisor
    rank = int(np.count_nonzero(eigenvalues > rounding))
    rank = count_axes(eigenvalues, rank, n_components, variance)
    eigenvalues, axes = _pad(eigenvalues[:rank], axes[:, :rank], n_components)
    return Spectrum(eigenvalues, axes, mean, eigenvalues, variance)


def likelihood_axes(
    weights: Array,
    features: Array,
    rotation: Array,
    moments: Moments,
    noise_variance: float,
    n_components: int | float,
    *,
    center: bool,
    variance: float,
) -> Spectrum:
    """Diagonalise the covariance of the likelihood's model, sigma^2 I + sum_i w_i phi_i phi_i^T.

    Takes positive weights (p,) of candidates with features (p, r), centred if the model is, an orthonormal basis of
    their span (k, r), and the moments of the rows in that basis. Eigenvalues are those of W^1/2 K W^1/2 plus sigma^2:
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001, eqs. (15) to (17). The paper does not
    centre; here the axes of a centred model are those of its part in the active span.
    """
    mean = moments.centre(center=center)
    scaled = np.sqrt(weights)[:, None] * features
    inside = scaled @ rotation.T
    # Phi^T W Phi and W^1/2 Phi Phi^T W^1/2 share their eigenvalues; the first gives the axes themselves.
    lengths, axes = leading_eigenpairs(inside.T @ inside, len(rotation))
    rank = int(np.count_nonzero(lengths > RANK_TOLERANCE * len(rotation) * np.max(lengths, initial=0.0)))
    eigenvalues = leading_eigenpairs(scaled @ scaled.T, rank)[0] + noise_variance
    axes = axes[:, :rank]
    divisor = covariance_divisor(moments, center=center)
    along = (
        np.einsum("ij,ik,kj->j", axes, moments.second, axes, optimize=True) - moments.total_weight * (mean @ axes) ** 2
    )
    explained = np.maximum(along, 0.0) / divisor if divisor else np.zeros(rank)
    rank = count_axes(explained, rank, n_components, variance)
    eigenvalues, axes = _pad(eigenvalues[:rank], axes[:, :rank], n_components)
    explained = np.pad(explained[:rank], (0, len(eigenvalues) - rank))
    return Spectrum(eigenvalues, axes, mean, explained, variance)


def leading_eigenpairs(matrix: Array, count: int) -> tuple[Array, Array]:
    """Return the largest `count` eigenvalues of a symmetric matrix, descending, and their eigenvectors as columns."""
    m, first = len(matrix), max(len(matrix) - count, 0)
    if m >= _LARGE and count <= m // _FEW and (found := _run_lanczos(matrix, count)) is not None:
        return found
    if count <= m // _MANY:
        try:
            eigenvalues, vectors = eigh(matrix, subset_by_index=[first, m - 1], check_finite=False)
            if len(eigenvalues) == m - first:
                return eigenvalues[::-1], vectors[:, ::-1]
        except LinAlgError:
            pass
        # LAPACK's driver for subsets gives up on some matrices with many equal eigenvalues, or leaves some of these out
        # silently; the other does not.
    eigenvalues, vectors = eigh(matrix, driver="evd", check_finite=False)
    return eigenvalues[first:][::-1], vectors[:, first:][:, ::-1]


def _run_lanczos(matrix: Array, count: int) -> tuple[Array, Array] | None:
    """Return the largest eigenpairs, O(m^2) an iteration, or None where they cannot be proven complete.

    Lanczos iterations may miss one of several equal eigenvalues. None is missing if s I - (A - V D V^T) has a Cholesky
    factor, with s beyond the last one found.
    """
    # Sparse matrices would add a tenth to the time that importing this library takes.
    from scipy.sparse.linalg import ArpackError, eigsh

    unit = float(np.abs(matrix.diagonal()).max())
    if not 0.0 < unit < np.inf:
        return None
    scaled = matrix / unit
    try:
        # The start is fixed, so that the same matrix has the same answer.
        eigenvalues, vectors = eigsh(scaled, k=count, v0=np.ones(len(matrix)), which="LA", maxiter=_MOST_RESTARTS)
    except ArpackError:
        return None
    order = np.argsort(eigenvalues)[::-1]
    eigenvalues, vectors = eigenvalues[order], vectors[:, order]
    rest = (vectors * eigenvalues) @ vectors.T - scaled
    rest[np.diag_indices_from(rest)] += eigenvalues[-1] + _LANCZOS_TOLERANCE * abs(eigenvalues[0])
    # The transposed view is what LAPACK calls column-major; the matrix is symmetric.
    failed = dpotrf(rest.T, overwrite_a=True, clean=False)[1]
    return None if failed else (eigenvalues * unit, vectors)


def all_eigenvalues(matrix: Array) -> Array:
    """Return the eigenvalues of a symmetric matrix (m, m), ascending; none if m is 0, which scipy 1.13 refuses."""
    return np.asarray(eigvalsh(matrix, check_finite=False)) if len(matrix) else np.empty(0)


def leading_sum(matrix: Array, count: int) -> float:
    """Sum the largest `count` eigenvalues of a symmetric matrix, or all if there are fewer."""
    return float(all_eigenvalues(matrix)[max(len(matrix) - count, 0) :].sum())


def deciding_signs(columns: Array) -> Array:
    """Return the sign of each column's largest absolute entry; 1 for zeros and where there are no rows."""
    if not columns.size:
        return np.ones(columns.shape[1])
    decisive = np.take_along_axis(columns, np.argmax(np.abs(columns), axis=0)[None], axis=0)[0]
    return np.where(decisive < 0.0, -1.0, 1.0)


def covariance_divisor(moments: Moments, *, center: bool) -> float:
    """Return the divisor of sums of squares: N - sum a^2 / N around the mean (0 for one row), N around zero."""
    total = moments.total_weight
    if not center or total == 0.0:
        return total
    divisor = total - moments.total_squared_weight / total
    return divisor if divisor > RANK_TOLERANCE * total else 0.0


def count_axes(eigenvalues: Array, rank: int, n_components: int | float, variance: float) -> int:
    """Count the axes to keep of the first `rank`: the number wanted, or the fewest that explain their share."""
    if not isinstance(n_components, float):
        return min(rank, n_components)
    # Slightly less than wanted, so that rounding in the sum does not cost an axis.
    enough = n_components * variance * (1.0 - 1e-12)
    return min(rank, int(np.searchsorted(np.cumsum(eigenvalues), enough)) + 1)


def _pad(eigenvalues: Array, axes: Array, n_components: int | float) -> tuple[Array, Array]:
    """Fill up to q columns with zeros, so that the width of projections does not depend on the data."""
    width = 1 if isinstance(n_components, float) else n_components
    missing = max(width - len(eigenvalues), 0)
    return np.pad(eigenvalues, (0, missing)), np.pad(axes, ((0, 0), (0, missing)))


def recorded_variance(moments: Moments, *, center: bool) -> float:
    """Sum the squared distances of the recorded rows from the centre."""
    centre = moments.centre(center=center)
    return float(np.trace(moments.second) - moments.total_weight * (centre @ centre))
