"""Exact kernel PCA of all rows at once: the reference that the other estimators are compared with."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpstrf

from streamkpca._core.concurrency import cached_property
from streamkpca._core.linalg import LEAST_PIVOT, solve_factor, squared_norms
from streamkpca._core.parameters import check_flag, check_n_components
from streamkpca.components.charts import ResidualSpectrum
from streamkpca.components.explanations import Explainer
from streamkpca.components.novelty import NoveltyScore
from streamkpca.components.preimages import PreImages
from streamkpca.components.snapshot import ReadOnlyArrays, in_chunks
from streamkpca.components.spectrum import RANK_TOLERANCE, deciding_signs, leading_eigenpairs, wanted_axes
from streamkpca.dictionary.basis import check_energy, warn_indefinite
from streamkpca.kernels import Kernel, kernel_from
from streamkpca.models._base import Estimator
from streamkpca.models._params import explaining_unknown_arguments
from streamkpca.models._snapshot_base import some_of
from streamkpca.rows.validation import Names, Rows, arrow_table, as_sample_weight, checked_rows, feature_names

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _ExactAxes(ReadOnlyArrays):
    """Principal axes as combinations of all rows."""

    kernel: Kernel
    atoms: Array
    weights: Array  # of the rows
    mean_coefficients: Array  # the centre as a combination of rows; zeros without centring
    mean_energy: float  # squared length of the centre
    projection: Array
    offset: Array
    eigenvalues: Array
    explained_variance_ratio: Array
    total_weight: float
    independent_rows: Array
    factor: Array

    @property
    def has_gaps(self) -> bool:
        """False: all numbers of a row are needed."""
        return False

    @property
    def n_features(self) -> int:
        """Number of columns of a row that is asked about."""
        return int(self.atoms.shape[1])

    def transform(self, rows: Rows) -> Array:
        """Project rows."""

        def answer(chunk: Array) -> Array:
            return self._projected(self.kernel.program.matrix(chunk, self.atoms))

        return in_chunks(answer, rows, np.empty((len(rows), len(self.eigenvalues))), len(self.atoms))

    def reconstruction_error(self, rows: Rows, n_components: int | None = None, *, active_only: bool = False) -> Array:
        """Measure squared distances to the span of all rows (all are active), or to the centre plus the first axes."""
        del active_only
        program = self.kernel.program

        def outside_span(chunk: Array) -> Array:
            coordinates = solve_factor(self.factor, program.matrix(chunk, self.independent_rows))
            return program.diagonal(chunk) - squared_norms(coordinates)

        def beside_axes(chunk: Array) -> Array:
            kernel_rows = program.matrix(chunk, self.atoms)
            from_centre = program.diagonal(chunk) - 2.0 * kernel_rows @ self.mean_coefficients + self.mean_energy
            return from_centre - squared_norms(self._projected(kernel_rows)[:, :n_components])

        answer = outside_span if n_components is None else beside_axes
        error = in_chunks(answer, rows, np.empty(len(rows)), len(self.atoms))
        return np.maximum(error, 0.0, out=error)

    def novelty(self, rows: Rows) -> Array:
        """Score how far rows are from the span of all rows."""
        return in_chunks(self._novelty_score.of_rows, rows, np.empty(len(rows)), len(self.atoms))

    def shares(self, rows: Rows, n_components: int | None = None) -> Array:
        """Share the novelty of rows, or errors, among the features, see `Explainer`."""
        explainer = self._span_explainer if n_components is None else self._explainer

        def answer(chunk: Array) -> Array:
            return explainer.shares(chunk, self.combinations(chunk, n_components)[1])

        width = len(self.atoms) * len(self.kernel.program.base_matrices)
        return in_chunks(answer, rows, np.empty(rows.shape), width)

    def combinations(self, rows: Array, n_components: int | None) -> tuple[Array, Array]:
        """Return rows (m, d), and the coefficients (n, m) over them of the projections of rows onto span or axes."""
        if n_components is None:
            return self.independent_rows, self._novelty_score.coefficients(rows)
        projected = self._projected(self.kernel.program.matrix(rows, self.atoms))[:, :n_components]
        return self.atoms, self.mean_coefficients + projected @ self.projection[:, :n_components].T

    @cached_property
    def _novelty_score(self) -> NoveltyScore:
        return NoveltyScore(self.kernel, self.independent_rows, self.factor)

    @cached_property
    def _span_explainer(self) -> Explainer:
        return Explainer(self.kernel, self.independent_rows)

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(self.kernel, self.atoms)

    def residual_spectrum(self, n_components: int) -> ResidualSpectrum:
        """Describe the variance beside the leading axes, O(n^3)."""
        gram = self.kernel.program.gram(self.atoms)
        total, square = float(self.weights.sum()), float(self.weights @ self.weights)
        centred = _centred_gram(gram, self.weights, self.mean_coefficients)
        divisor = _divisor(self.weights, self.mean_coefficients)
        # Ascending.
        variances = np.asarray(np.linalg.eigvalsh(centred), dtype=np.float64) / (divisor or np.inf)
        beside = variances[: max(len(variances) - n_components, 0)]
        return ResidualSpectrum.of(beside, 0.0, float(self.weights @ np.diagonal(gram)) / total, total**2 / square)

    def inverse_transform(self, projections: Rows) -> Array:
        """Find rows with given projections."""

        def answer(chunk: Array) -> Array:
            return self._pre_images.find(chunk, self.mean_coefficients + chunk @ self.projection.T)

        out = np.empty((len(projections), self.atoms.shape[1]))
        return in_chunks(answer, projections, out, self._pre_images.width)

    @cached_property
    def _pre_images(self) -> PreImages:
        chosen = some_of(self.atoms)
        return PreImages(self.kernel, self.atoms, chosen, self.transform(chosen))

    def _projected(self, kernel_rows: Array) -> Array:
        projected: Array = kernel_rows @ self.projection - self.offset
        return projected


class KernelPCA(Estimator):
    """Kernel PCA of all rows at once.

    Exact and expensive: it keeps every row, and while it fits, the kernel matrix of all rows.

    Parameters
    ----------
    n_components : int or float, default=10
        Number q of axes. A float between 0 and 1: the fewest axes that explain this share of the variance.
    kernel : Kernel or str, default="rbf"
        A kernel of `streamkpca.kernels`, or the name of one with its default parameters. A width of ``"spread"``,
        ``"scale"`` or ``"median"`` is computed from the rows.
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

    @explaining_unknown_arguments
    def __init__(self, n_components: int | float = 10, *, kernel: Kernel | str = "rbf", center: bool = True) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.center = center

    # One attribute, so that readers in other threads never see parts of two fits.
    _published: tuple[_ExactAxes, Names | None] | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the principal axes of rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : object
            Ignored; accepted for scikit-learn.
        sample_weight : array-like of shape (n,), float or None
            Weight of each row; 1 by default.

        Returns
        -------
        KernelPCA

        Raises
        ------
        TypeError, ValueError
            X or the weights are not finite real arrays, or a parameter is invalid. The model is as before the call.

        Examples
        --------
        Two rows of weight 1/2 balance one of weight 1:

        >>> model = KernelPCA(1, kernel="linear").fit([[0.0], [1.0], [1.0]], sample_weight=[1.0, 0.5, 0.5])
        >>> model.transform([[0.0], [1.0]]).round(3)
        array([[ 0.5],
               [-0.5]])
        """
        del y
        where = "KernelPCA.fit"
        n_components = check_n_components(self.n_components, where=where)
        center = check_flag("center", self.center, where=where)
        # The caller may write to X later.
        X = arrow_table(X, where)
        kernel, rows = kernel_from(self.kernel, where=where), checked_rows(X, where, None, None).copy()
        weights = as_sample_weight(sample_weight, len(rows), where=where)
        axes = _exact_axes(kernel.settled(rows, weights), rows, weights, n_components, center)
        self._published = axes, feature_names(X)
        return self

    def _snapshot(self) -> _ExactAxes | None:
        return None if self._published is None else self._published[0]

    def _residual_spectrum(self, n_components: int) -> ResidualSpectrum:
        assert self._published is not None
        return self._published[0].residual_spectrum(n_components)

    def _width(self) -> tuple[int, Names | None] | None:
        return None if self._published is None else (self._published[0].n_features, self._published[1])


def _exact_axes(kernel: Kernel, rows: Array, weights: Array, n_components: int | float, center: bool) -> _ExactAxes:
    """Diagonalise sqrt(a_i a_j) (phi_i - mu, phi_j - mu), whose eigenvectors u give the axes.

    An axis is sum_i sqrt(a_i) u_i (phi_i - mu) / sqrt(eigenvalue). Centred eigenvectors are orthogonal to sqrt(a), so
    the coefficients sum to zero and the mean appears only in the offset.
    """
    check_energy(kernel.program.diagonal(rows))
    gram = kernel.program.gram(rows)
    total = float(weights.sum())
    mean_coefficients = weights / total if center else np.zeros(len(rows))
    mean_products = gram @ mean_coefficients
    mean_energy = float(mean_coefficients @ mean_products)
    divisor = _divisor(weights, mean_coefficients)

    root = np.sqrt(weights)
    centred = _centred_gram(gram, weights, mean_coefficients)
    share_asked = isinstance(n_components, float)
    n = len(rows)
    eigenvalues, vectors = leading_eigenpairs(centred, n if share_asked else int(n_components))
    if not kernel.is_positive_definite:
        smallest = float(np.linalg.eigvalsh(gram)[0])
        if smallest < -RANK_TOLERANCE * len(rows) * float(np.abs(np.diagonal(gram)).sum()):
            warn_indefinite(smallest)
    squares = float(np.trace(centred))
    rank = int(np.count_nonzero(eigenvalues > RANK_TOLERANCE * float(weights @ np.abs(np.diagonal(gram)))))
    rank = wanted_axes(eigenvalues, rank, n_components, squares)
    q = max(rank, 1) if share_asked else int(n_components)

    projection = np.zeros((n, q))
    projection[:, :rank] = root[:, None] * vectors[:, :rank] / np.sqrt(eigenvalues[:rank])
    # The coefficients of a centred axis sum to zero; the offset would multiply what rounding leaves of the sum.
    projection -= np.outer(mean_coefficients, projection.sum(axis=0))
    projection *= deciding_signs(projection)
    variances = np.zeros(q)
    if divisor > 0.0:
        variances[:rank] = eigenvalues[:rank] / divisor

    factor, independent = _pivoted_factor(gram)
    return _ExactAxes(
        kernel=kernel,
        atoms=rows,
        weights=weights,
        mean_coefficients=mean_coefficients,
        mean_energy=mean_energy,
        projection=projection,
        offset=mean_products @ projection,
        eigenvalues=variances,
        explained_variance_ratio=variances * divisor / squares if squares > 0.0 else np.zeros(q),
        total_weight=total,
        independent_rows=rows[independent],
        factor=factor,
    )


def _centred_gram(gram: Array, weights: Array, mean_coefficients: Array) -> Array:
    """Return sqrt(a_i a_j) (phi_i - mu, phi_j - mu)."""
    root, mean_products = np.sqrt(weights), gram @ mean_coefficients
    centred = gram - mean_products[:, None] - mean_products + float(mean_coefficients @ mean_products)
    scaled: Array = root[:, None] * centred * root
    return scaled


def _divisor(weights: Array, mean_coefficients: Array) -> float:
    """Return what sums of squares are divided by, as `covariance_divisor` does."""
    total = float(weights.sum())
    divisor = total - float(weights @ weights) / total if mean_coefficients.any() else total
    return divisor if divisor > RANK_TOLERANCE * total else 0.0


def _pivoted_factor(gram: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """Factor the kernel matrix of the independent rows, by LAPACK's pivoted Cholesky; return their indices too."""
    scale = float(np.abs(np.diagonal(gram)).max())
    packed, pivots, rank, _ = dpstrf(gram, tol=LEAST_PIVOT * scale, lower=1)
    return np.ascontiguousarray(np.tril(packed[:rank, :rank])), pivots[:rank].astype(np.int64) - 1
