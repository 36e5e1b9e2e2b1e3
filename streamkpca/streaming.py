"""Kernel PCA of an endless stream."""

import copy
from typing import Any, Literal, Self

from streamkpca._blas import one_blas_thread
from streamkpca.kernels import Kernel
from streamkpca.stream import Stream
from streamkpca.stream_writer import StreamWriter
from streamkpca.validation import as_sample_weight, checked_rows, feature_names, without_bad_rows


class StreamingKernelPCA(StreamWriter):
    """Kernel PCA of a stream, in one pass and bounded memory.

    Rows of the stream itself become the basis (atoms). A row enters when it explains others well, and within a budget
    it takes the place of the atom whose loss costs least. The stream's first and second moments in that basis give
    sparse maximum-likelihood weights, which leave few atoms active, and the principal axes in their span.

    Parameters
    ----------
    n_components : int or float, default=10
        Number q of axes. A float between 0 and 1: the fewest axes that explain this share of the variance.
    kernel : Kernel or str, default="rbf"
        A kernel of `streamkpca.kernels`, or the name of one with its default parameters. A width of ``"spread"``,
        ``"scale"`` or ``"median"`` is settled on the first block; see `kernel_`.
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
    half_life : float or None, default=None
        Rows after which a row counts half; None for never. Atoms of the past are swapped out as their rows fade.
    block_size : int, default=512
        Rows that are worked off together. Results depend on it, but not on how calls cut the stream. Atoms are chosen
        by how well they explain the rest of their block, so within a budget a block should have some dozens of rows.
    refit_every : int or "auto", default="auto"
        Rows between refits of the axes; while the stream is young, every growth by a quarter refits too. "auto": 128
        for each atom and at least 16,384, so that refits take a tenth of the time or less, but at most a quarter of the
        half-life. Refits happen at the end of a block.
    reservoir_size : int, default=512
        Rows of a random sample of the stream, which `captured_energy` and `novelty_threshold` read; 0 for none.
    on_bad_rows : {"raise", "skip"}, default="raise"
        What `partial_fit` and `fit` do about rows with NaN or infinity: refuse the call whole, or leave such rows out,
        count them in `n_rows_rejected_`, and go on. They keep their positions in the stream.
    random_state : int or None, default=0
        Seed of that sample; None for a new one each time. Nothing else is random.
    dtype : {"float64", "float32"}, default="float64"
        What samples and waiting rows are kept as. "float32" rounds each row when it comes, and all else is what
        "float64" makes of the rounded rows, to the last bit: arithmetic and atoms stay double. With 256 atoms a model
        held 5.4 MiB instead of 6.7 at 32 features, 17 instead of 28.5 at 256. Rows that are not float32 already lose
        digits beyond the seventh; eigenvalues of digits moved by 5e-9. More: `streamkpca.validation.round_to_single`.

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
    eigenvalue_bounds_ : ndarray of shape (q, 2)
        Between what the eigenvalues of kernel PCA of all rows lie, whatever was lost.
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
        Rows given, those after the last refit included, and those that were rejected.
    n_rows_rejected_ : int
        Rows left out because of NaN or infinity.
    residual_trend_ : float
        How strongly the present stream is explained worse than before: from 0, as before, to 1, a signal.
    drift_detected_ : bool
        Whether that was signalled lately.
    last_drift_row_ : int or None
        Number of rows given when it was signalled last.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Present where the first rows were a DataFrame with string column names.

    See Also
    --------
    KernelPCA : The same of all rows at once.

    Notes
    -----
    Answers come from the axes last published and stay put between refits. Before the first block is full they come
    from all rows so far, at the price of a refit for the first question after each `partial_fit`.

    One thread may write while others read: questions are answered from a snapshot that never changes, and publishing
    the next one is a single assignment. Writers wait for each other. Whatever breaks a call, an exception or Ctrl-C,
    the model is as before the call. Models survive a fork, and can be pickled.

    A row costs
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
        half_life: float | None = None,
        block_size: int = 512,
        refit_every: int | Literal["auto"] = "auto",
        reservoir_size: int = 512,
        on_bad_rows: Literal["raise", "skip"] = "raise",
        random_state: int | None = 0,
        dtype: Literal["float64", "float32"] = "float64",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.tolerance = tolerance
        self.noise_variance = noise_variance
        self.n_active = n_active
        self.axes = axes
        self.center = center
        self.half_life = half_life
        self.block_size = block_size
        self.refit_every = refit_every
        self.reservoir_size = reservoir_size
        self.on_bad_rows = on_bad_rows
        self.random_state = random_state
        self.dtype = dtype

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

        Examples
        --------
        However calls cut the stream, it is the same model, to the byte:

        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> rows = np.random.default_rng(0).normal(size=(1200, 2))
        >>> whole, pieces = StreamingKernelPCA(2).partial_fit(rows), StreamingKernelPCA(2)
        >>> for piece in np.split(rows, [1, 500, 1199]):
        ...     pieces = pieces.partial_fit(piece)
        >>> whole.to_bytes() == pieces.to_bytes()
        True
        """
        del y
        where = "StreamingKernelPCA.partial_fit"
        with self._writing():
            settings = self._settings(where)
            stream = self._stream
            width, names = (None, None) if stream is None else (stream.n_features, stream.names)
            rows = checked_rows(X, where, width, names, finite=not settings.skips_bad_rows)
            if stream is None:
                settings.kernel.check_width(rows.shape[1], where)
                stream = Stream(settings, rows.shape[1], feature_names(X))
            stream.check_continued(settings, where)
            rows, n_rejected = stream.rounded(rows, where, finite=not settings.skips_bad_rows), 0
            # Zeros alone are no nonsense here: the same rows could have come in one call with others. To make an array
            # of one 1.0 took a fifth of what a row takes.
            weights = (
                1.0 if sample_weight is None else as_sample_weight(sample_weight, len(rows), where=where, all_zero=True)
            )
            if settings.skips_bad_rows:
                rows, weights, n_rejected = without_bad_rows(rows, weights)
            if n_rejected or not stream.append(rows, weights):
                stream = copy.copy(stream)
                stream.n_rejected += n_rejected
                weights = as_sample_weight(weights, len(rows), where=where, all_zero=True)
                with one_blas_thread():
                    stream.take(rows, weights, settings, publish=True)
            if stream is not self._stream:
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

        Examples
        --------
        Start with rows at hand, and go on with those to come:

        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> rows = np.random.default_rng(0).normal(size=(1200, 2))
        >>> StreamingKernelPCA(2).fit(rows[:1000]).partial_fit(rows[1000:]).n_samples_seen_
        1200
        """
        del y
        where = "StreamingKernelPCA.fit"
        settings = self._settings(where)
        rows = checked_rows(X, where, None, None, finite=not settings.skips_bad_rows)
        settings.kernel.check_width(rows.shape[1], where)
        weights = as_sample_weight(sample_weight, len(rows), where=where)
        stream = Stream(settings, rows.shape[1], feature_names(X))
        rows = stream.rounded(rows, where, finite=not settings.skips_bad_rows)
        if settings.skips_bad_rows:
            rows, kept, stream.n_rejected = without_bad_rows(rows, weights)
            weights = as_sample_weight(kept, len(rows), where=where, all_zero=True)
            if not weights.any():
                raise ValueError(
                    f"{where}: each of the {len(rows)} rows of X contains NaN or infinity, or has a sample_weight of "
                    "0; repair some of them first"
                )
        with self._writing(), one_blas_thread():
            stream.take(rows, weights, settings, publish=False)
            stream.flush(settings)
            assert stream.summary is not None
            stream.summary.recount()
            for start in range(0, len(rows), settings.block_size):
                block = slice(start, start + settings.block_size)
                stream.summary.record(rows[block], weights[block], half_life=settings.half_life)
            stream.publish_now(settings)
            self._stream = stream
        return self
