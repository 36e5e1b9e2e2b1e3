"""Exact kernel PCA of all rows at once: the reference that the other estimators are compared with."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpstrf

from streamkpca._core.arrays import Array
from streamkpca._core.linalg import LEAST_PIVOT, solve_transposed
from streamkpca._core.memory import check_memory
from streamkpca._core.parameters import check_flag, check_n_components
from streamkpca.components import spectrum
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.basis import check_energy, warn_indefinite
from streamkpca.errors import name_errors
from streamkpca.kernels import Kernel, Linear
from streamkpca.kernels.base import InUnits, OnColumns, Scaled
from streamkpca.models._base import Estimator, check_batch
from streamkpca.models._protocol import explain_unknown_arguments

# Points shorter than this share of the longest one are rounding.
_LEAST_LENGTH = 1e-12
# Matrices (n, n) that a fit holds at its peak; 7.1 were measured with 2,000 rows.
_N_MATRICES = 7


@name_errors
@explain_unknown_arguments
@dataclass(eq=False, repr=False)
class KernelPCA(Estimator):
    """Kernel PCA of all rows at once.

    Exact and expensive: it keeps every row, and while it fits, the kernel matrix of all rows.

    Parameters
    ----------
    n_components : int or float, default=10
        Number q of axes. A float between 0 and 1: the fewest axes that explain this share of the variance.
    kernel : Kernel or str, default="rbf"
        A kernel of `streamkpca.kernels`, or the name of one with its default parameters. A width of ``"contrast"`` or
        ``"spread"`` is computed from the rows.
    center : bool, default=True
        Subtract the mean in feature space.

    See Also
    --------
    StreamingKernelPCA : The same in one pass and bounded memory.

    Notes
    -----
    Fitting takes O(n^2 d + n^3) time and O(n^2) memory, projecting a row O(n (d + q)) time. Eigenvalues are those of
    the unbiased covariance: for rows of weight 1, the eigenvalues of the centred kernel matrix divided by n - 1
    (scikit-learn reports them undivided), or by n without centring.

    References
    ----------
    .. [1] B. Schölkopf, A. Smola, K.-R. Müller, "Nonlinear component analysis as a kernel eigenvalue problem", Neural
       Computation 10, 1998.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import KernelPCA
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> bool(np.allclose(KernelPCA(3, kernel="linear").fit(X).eigenvalues_, np.linalg.eigvalsh(np.cov(X.T))[::-1]))
    True
    """

    n_components: int | float = 10
    _: KW_ONLY
    kernel: Kernel | str = "rbf"
    center: bool = True

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the principal axes of rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Also a sparse matrix, a DataFrame, or an Arrow table or stream, which is read whole.
        y : object
            Ignored; accepted for scikit-learn.
        sample_weight : array-like of shape (n,), float or None
            Weight of each row; 1 by default.

        Raises
        ------
        TypeError, ValueError
            X or the weights are not finite real arrays, or a parameter is invalid. The model is as before the call.
        MemoryError
            The rows need more memory than there is.
        """
        del y
        n_components = check_n_components(self.n_components)
        center = check_flag("center", self.center)
        kernel, rows, weights, names = check_batch(self.kernel, X, sample_weight)
        check_memory(len(rows), _N_MATRICES)
        centre = weights / weights.sum() if center else np.zeros(len(rows))
        return self._publish(_exact_snapshot(kernel, rows.copy(), weights.copy(), centre, n_components), names)


def _exact_snapshot(kernel: Kernel, rows: Array, weights: Array, centre: Array, n_components: int | float) -> Snapshot:
    """Diagonalise sqrt(a_i a_j) (phi_i - mu, phi_j - mu), whose eigenvectors u give the axes.

    An axis is sum_i sqrt(a_i) u_i (phi_i - mu) / sqrt(eigenvalue). The snapshot holds it in an orthonormal basis of the
    span of the rows, by a pivoted factor of their kernel matrix.
    """
    check_energy(kernel.program.diagonal(rows))
    program, root, total = kernel.program, np.sqrt(weights), float(weights.sum())
    gram = program.gram(rows)
    energies = weights * np.abs(np.diagonal(gram))
    if centre.any() and _is_linear(kernel):
        # Products of rows far from the origin have no digits left for what sets these apart. Their mean and the
        # differences to it span the same space.
        mean_row = rows[0] + centre @ (rows - rows[0])
        moved = rows - mean_row
        centred, points = program.gram(moved), np.vstack([mean_row, moved])
        energies = weights * np.diagonal(centred) + np.finfo(np.float64).eps * energies
        coordinates, independent = _find_coordinates(program.gram(points))
        factor, mean, coordinates = coordinates[independent], coordinates[0], coordinates[1:]
    else:
        mean_products = gram @ centre
        centred, points = gram - mean_products[:, None] - mean_products + float(centre @ mean_products), rows
        coordinates, independent = _find_coordinates(gram)
        factor, mean = coordinates[independent], coordinates.T @ centre
    centred = root[:, None] * centred * root
    # As `covariance_divisor` has it.
    divisor = total - float(weights @ weights) / total if centre.any() else total
    divisor = divisor if divisor > spectrum.RANK_TOLERANCE * total else 0.0
    n, share_asked = len(rows), isinstance(n_components, float)
    eigenvalues, vectors = spectrum.leading_eigenpairs(centred, n if share_asked else int(n_components))
    if not kernel.is_positive_definite:
        smallest = float(spectrum.all_eigenvalues(gram)[0])
        if smallest < -spectrum.RANK_TOLERANCE * n * float(np.abs(np.diagonal(gram)).sum()):
            warn_indefinite(smallest)
    squares = float(np.trace(centred))
    rank = int(np.count_nonzero(eigenvalues > spectrum.RANK_TOLERANCE * float(energies.sum())))
    rank = spectrum.count_axes(eigenvalues, rank, n_components, squares)
    q = max(rank, 1) if share_asked else int(n_components)

    coefficients = np.zeros((n, q))
    coefficients[:, :rank] = np.sqrt(weights)[:, None] * vectors[:, :rank] / np.sqrt(eigenvalues[:rank])
    # The coefficients of a centred axis sum to zero, but for rounding.
    coefficients -= np.outer(centre, coefficients.sum(axis=0))
    coefficients *= spectrum.deciding_signs(coefficients)
    variances = np.zeros(q)
    if divisor > 0.0:
        variances[:rank] = eigenvalues[:rank] / divisor

    axes = coordinates.T @ coefficients
    return Snapshot(
        kernel=kernel,
        atoms=rows,
        atom_rows=np.arange(n),
        weights=weights,
        sample=np.empty((0, rows.shape[1])),
        active_atoms=points[independent],
        factor=factor,
        span_atoms=points[independent],
        span_factor=factor,
        axes=axes,
        mean=mean,
        projection=solve_transposed(factor, np.ascontiguousarray(axes.T)).T,
        offset=mean @ axes,
        eigenvalues=variances,
        eigenvalue_bounds=np.column_stack([variances, variances]),
        explained_variance_ratio=variances * divisor / squares if squares > 0.0 else np.zeros(q),
        noise_variance=None,
        total_weight=total,
        unexplained_energy_ratio=0.0,
    )


def _is_linear(kernel: Kernel) -> bool:
    """Whether images of rows are linear in the rows."""
    while isinstance(kernel, Scaled | OnColumns | InUnits):
        kernel = kernel.kernel
    return isinstance(kernel, Linear)


def _find_coordinates(gram: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return coordinates (n, r) of points in an orthonormal basis of their span, by LAPACK's pivoted Cholesky.

    Those of the r independent points, whose numbers are returned too, are a lower triangle. A point is independent by
    the share of its own energy that the others leave.
    """
    lengths = np.sqrt(np.abs(np.diagonal(gram)))
    lengths = np.maximum(lengths, _LEAST_LENGTH * lengths.max())
    lengths[lengths == 0.0] = 1.0
    packed, pivots, rank, _ = dpstrf(gram / lengths / lengths[:, None], tol=LEAST_PIVOT, lower=1)
    order = pivots.astype(np.int64) - 1
    coordinates = np.empty((len(gram), rank))
    coordinates[order] = np.tril(packed[:, :rank]) * lengths[order, None]
    return coordinates, order[:rank]
