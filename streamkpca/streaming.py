"""Kernel PCA of an endless stream."""

import copy
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from streamkpca._blas import one_blas_thread
from streamkpca.errors import not_fitted
from streamkpca.kernels import Kernel, kernel_from
from streamkpca.moments import Moments
from streamkpca.parameters import check_integer, check_real
from streamkpca.snapshot import Snapshot
from streamkpca.snapshot_estimator import SnapshotEstimator
from streamkpca.stream import Stream, StreamSettings
from streamkpca.validation import Names, as_sample_weight, checked_rows, feature_names
from streamkpca.weighting import Candidates, RefitSettings

Array = npt.NDArray[np.float64]


class StreamingKernelPCA(SnapshotEstimator):
    """Kernel PCA of a stream, in one pass and bounded memory.

    Rows of the stream itself become the basis (atoms). A row enters when it explains others well, and within a budget
    it takes the place of the atom whose loss costs least. The stream's first and second moments in that basis give
    sparse maximum-likelihood weights, which leave few atoms active, and the principal axes in their span.

    Parameters
    ----------
    n_components : int or float, default=10
        Number q of axes. A float between 0 and 1: the fewest axes that explain this share of the variance.
    kernel : Kernel or str, default="rbf"
        A kernel of `streamkpca.kernels`, or the name of one with its default parameters. A scale of ``"scale"`` or
        ``"median"`` is settled on the first block; see `kernel_`.
    max_atoms : int or None, default=256
        Budget of atoms. None: as many as the tolerance needs.
    tolerance : float, default=1e-3
        Share of the energy sum k(x, x) that may stay outside the span of the atoms. Without a budget it is kept
        always; 0 then keeps every row that is independent to working precision, and the result is that of batch
        kernel PCA. Within a budget it decides when a row is worth a free place.
    noise_variance : float, "auto" or None, default="auto"
        Tipping's noise variance sigma^2, in units of k(x, x): the larger, the fewer atoms stay active. "auto" takes
        the (q + 1)-th eigenvalue, so that the likelihood keeps q axes (half of it, and so on, while fewer than q atoms
        are active). None: all atoms are active, as they are with
        "auto" when ``tolerance=0`` and ``max_atoms=None`` ask for batch kernel PCA.
    n_active : int or None, default=None
        Look for the noise variance that leaves so many atoms active, instead.
    axes : {"ritz", "likelihood"}, default="ritz"
        "ritz": the best axes in the span of the active atoms. "likelihood": those of the likelihood's own model.
    center : bool, default=True
        Subtract the mean in feature space.
    block_size : int, default=512
        Rows that are worked off together. Results depend on it, but not on how calls cut the stream. Atoms are chosen
        by how well they explain the rest of their block, so within a budget a block should have some dozens of rows.
    refit_every : int, default=4096
        Rows between refits of the axes; while the stream is young, every growth by a quarter refits too. Refits
        happen at the end of a block.

    Attributes
    ----------
    atoms_ : ndarray of shape (m, d)
        Rows of the stream kept as basis.
    atom_rows_ : ndarray of shape (m,)
        Their positions in the stream, counted from 0.
    weights_ : ndarray of shape (m,)
        Tipping's maximum-likelihood weight of each atom, many of them zero; ones where no likelihood was asked.
    active_ : ndarray of shape (m,) of bool
        Atoms that projections use.
    n_atoms_, n_active_ : int
        How many there are.
    eigenvalues_ : ndarray of shape (q,)
        Variances along the axes, in units of k(x, x); with ``axes="likelihood"`` those of the likelihood's model.
    explained_variance_ratio_ : ndarray of shape (q,)
        Shares of the variance in the whole feature space: what the atoms do not span counts against them.
    unexplained_energy_ratio_ : float
        Share of the stream's energy that is not recorded in the basis.
    noise_variance_ : float or None
        sigma^2 that the weights were found with.
    kernel_ : Kernel
        The kernel with its scale settled.
    total_weight_ : float
        Weight of the rows behind the published axes.
    n_samples_seen_ : int
        Rows given, those after the last refit included.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Present where the first rows were a DataFrame with string column names.

    See Also
    --------
    KernelPCA : The same of all rows at once.

    Notes
    -----
    Answers come from the axes last published and stay put between refits. Before the first block is full they come
    from all rows so far, at the price of a refit for the first question after each `partial_fit`. A row costs
    O(m (d + m)), a block that is searched for atoms O(B^2 (d + m)) more, a refit
    O(m^3); memory is O(m (d + m) + B (d + B)).

    References
    ----------
    .. [1] B. Schölkopf, A. Smola, K.-R. Müller, "Nonlinear component analysis as a kernel eigenvalue problem",
       Neural Computation 10, 1998.
    .. [2] M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001.
    .. [3] S. Martin, "An approximate version of kernel PCA", ICMLA 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 3000)
    >>> circle = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> model = StreamingKernelPCA(n_components=2, max_atoms=32)
    >>> for block in np.array_split(circle, 10):
    ...     model = model.partial_fit(block)
    >>> model.transform(circle[:5]).shape
    (5, 2)
    >>> bool(model.score_samples([[0.0, 0.0]])[0] < model.score_samples(circle).min())  # the centre is new
    True
    """

    def __init__(
        self,
        n_components: int | float = 10,
        *,
        kernel: Kernel | str = "rbf",
        max_atoms: int | None = 256,
        tolerance: float = 1e-3,
        noise_variance: float | Literal["auto"] | None = "auto",
        n_active: int | None = None,
        axes: Literal["ritz", "likelihood"] = "ritz",
        center: bool = True,
        block_size: int = 512,
        refit_every: int = 4096,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.tolerance = tolerance
        self.noise_variance = noise_variance
        self.n_active = n_active
        self.axes = axes
        self.center = center
        self.block_size = block_size
        self.refit_every = refit_every

    _stream: Stream | None = None

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the next rows of the stream.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : array-like of shape (n,), float or None
            What each row counts; 1 by default.

        Returns
        -------
        StreamingKernelPCA
            This model.

        Raises
        ------
        TypeError, ValueError
            X is not a finite real array as wide as the first rows, the weights are not, or a parameter makes no
            sense. The model is as before the call.

        Notes
        -----
        The result depends on the rows and their order, not on how calls cut them.
        """
        del y
        where = "StreamingKernelPCA.partial_fit"
        settings = self._settings(where)
        stream = self._stream
        if stream is None:
            rows = checked_rows(X, where, None, None)
            settings.kernel.check_width(rows.shape[1], where)
            stream = Stream(settings, rows.shape[1], feature_names(X))
        else:
            rows = checked_rows(X, where, stream.n_features, stream.names)
            if (settings.kernel, settings.block_size) != (stream.kernel, stream.block_size):
                raise ValueError(
                    f"{where}: kernel and block_size cannot change within a stream; it began with "
                    f"kernel={stream.kernel!r}, block_size={stream.block_size}; set them back or start anew with fit"
                )
            stream = copy.copy(stream)
        # Zeros alone are no nonsense here: the same rows could have come in one call with others.
        weights = as_sample_weight(sample_weight, len(rows), where=where, all_zero=True)
        with one_blas_thread():
            stream.take(rows, weights, settings, publish=True)
        self._stream = stream
        return self

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Start anew and learn from these rows in two passes.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : array-like of shape (n,), float or None
            What each row counts; 1 by default.

        Returns
        -------
        StreamingKernelPCA
            This model; `partial_fit` goes on from here.

        Raises
        ------
        TypeError, ValueError
            As `partial_fit`.

        Notes
        -----
        The first pass chooses the atoms as a stream does, the second records every row in their final basis.
        """
        del y
        where = "StreamingKernelPCA.fit"
        settings = self._settings(where)
        rows = checked_rows(X, where, None, None)
        weights = as_sample_weight(sample_weight, len(rows), where=where)
        stream = Stream(settings, rows.shape[1], feature_names(X))
        with one_blas_thread():
            stream.take(rows, weights, settings, publish=False)
            stream.flush(settings)
            assert stream.summary is not None
            stream.summary.recount()
            for start in range(0, len(rows), settings.block_size):
                block = slice(start, start + settings.block_size)
                stream.summary.record(rows[block], weights[block])
            stream.scheduled = stream.published = stream.publish(settings)
            stream.n_rows_at_refit = stream.n_rows
        self._stream = stream
        return self

    def refit(self) -> Self:
        """Publish axes of all rows seen so far, now.

        Returns
        -------
        StreamingKernelPCA
            This model.

        Raises
        ------
        NotFittedError
            No row was seen yet.

        Notes
        -----
        Rows of a block that is not full yet are taken into a copy of the summary, so that the stream goes on as if
        nobody had asked.
        """
        settings = self._settings("StreamingKernelPCA.refit")
        if self._stream is None:
            raise not_fitted("StreamingKernelPCA", "refit")
        stream = copy.copy(self._stream)
        with one_blas_thread():
            stream.published = stream.publish(settings)
        self._stream = stream
        return self

    @property
    def n_samples_seen_(self) -> int:
        """Rows given, those after the last refit included."""
        if self._stream is None:
            raise not_fitted("StreamingKernelPCA", "n_samples_seen_")
        return self._stream.n_rows

    def _answers(self) -> Snapshot | None:
        stream = self._stream
        if stream is None:
            return None
        if stream.published is not None:
            return stream.published
        with one_blas_thread():
            return stream.read_provisional(self._settings("StreamingKernelPCA"))

    def _width(self) -> tuple[int, Names | None] | None:
        return None if self._stream is None else (self._stream.n_features, self._stream.names)

    def _learned(self) -> tuple[Candidates, Moments] | None:
        if self._stream is None:
            return None
        _, atoms, moments = self._stream.state(self._settings("StreamingKernelPCA"))
        return atoms, moments

    def _settings(self, where: str) -> StreamSettings:
        max_atoms, tolerance = self.max_atoms, self.tolerance
        if max_atoms is not None:
            max_atoms = check_integer("max_atoms", max_atoms, least=1, where=where)
        tolerance = check_real("tolerance", tolerance, least=0.0, most=1.0, open_above=True, where=where)
        if max_atoms is not None and isinstance(self.n_active, int) and self.n_active > max_atoms:
            raise ValueError(
                f"{where}: n_active={self.n_active} atoms cannot be active with max_atoms={max_atoms}; "
                "ask for fewer, or raise max_atoms"
            )
        # Who asks for every row wants batch kernel PCA: nothing is to be pruned unless a noise variance is named.
        exact = max_atoms is None and tolerance == 0.0 and self.axes != "likelihood"
        return StreamSettings(
            kernel=kernel_from(self.kernel, where=where),
            max_atoms=max_atoms,
            tolerance=tolerance,
            block_size=check_integer("block_size", self.block_size, least=2, where=where),
            refit_every=check_integer("refit_every", self.refit_every, least=1, where=where),
            refit=RefitSettings.checked(
                n_components=self.n_components,
                center=self.center,
                noise_variance=None if exact and self.noise_variance == "auto" else self.noise_variance,
                n_active=self.n_active,
                axes=self.axes,
                where=where,
            ),
        )

    def __copy__(self) -> Self:
        # A shallow copy would share the buffer that pending rows are appended to.
        return copy.deepcopy(self)
