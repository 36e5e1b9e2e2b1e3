"""Kernel PCA of an endless stream."""

import copy
import io
import operator
import os
from collections.abc import Callable, Sequence
from typing import IO, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.files import write_durably
from streamkpca._core.params import check_real
from streamkpca._core.reservoir import Reservoir
from streamkpca._core.validation import Names, as_sample_weight, checked_rows, feature_names, without_bad_rows
from streamkpca.components.certificates import captured_energy, novelty_threshold
from streamkpca.components.refit import Candidates
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.moments import Moments, RowSums
from streamkpca.errors import CheckpointError, not_fitted
from streamkpca.estimators._params import argument_reader
from streamkpca.estimators._snapshot_base import SnapshotEstimator
from streamkpca.kernels import Kernel
from streamkpca.stream.checkpoint import checkpoint_bytes, read_checkpoint, write_checkpoint
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import Stream, StreamCell, merged_streams

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
        digits beyond the seventh; eigenvalues of digits moved by 5e-9.

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

    extra_: Any = None
    # The settings of the parameters as they are; None where one was set since.
    _checked: StreamSettings | None = None

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

    # Learning

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
        with self._cell.lock:
            settings = self._settings(where)
            stream = self._cell.stream
            width, names = (None, None) if stream is None else (stream.n_features, stream.names)
            rows = checked_rows(X, where, width, names, finite=not settings.skips_bad_rows)
            if stream is None:
                settings.kernel.check_width(rows.shape[1], where)
                stream = Stream(settings, rows.shape[1], feature_names(X))
            stream.check_continued(settings, where)
            rows, n_rejected = stream.rounded(rows, where, finite=not settings.skips_bad_rows), 0
            # Zeros alone make sense here: the same rows could have come in one call with others. To make an array of
            # one 1.0 took a fifth of what a row takes.
            weights = (
                1.0 if sample_weight is None else as_sample_weight(sample_weight, len(rows), where=where, all_zero=True)
            )
            if settings.skips_bad_rows:
                rows, weights, n_rejected = without_bad_rows(rows, weights)
            self._cell.stream = stream.learned(rows, weights, settings, n_rejected=n_rejected)
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
        stream, n_rejected = Stream(settings, rows.shape[1], feature_names(X)), 0
        rows = stream.rounded(rows, where, finite=not settings.skips_bad_rows)
        if settings.skips_bad_rows:
            rows, kept, n_rejected = without_bad_rows(rows, weights)
            weights = as_sample_weight(kept, len(rows), where=where, all_zero=True)
            if not weights.any():
                raise ValueError(
                    f"{where}: each of the {len(rows)} rows of X contains NaN or infinity, or has a sample_weight of "
                    "0; repair some of them first"
                )
        with self._cell.lock:
            self._cell.stream = stream.fitted(rows, weights, settings, n_rejected=n_rejected)
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

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> rows = np.random.default_rng(0).normal(size=(1200, 2))
        >>> model = StreamingKernelPCA(2, block_size=256).partial_fit(rows)
        >>> model.total_weight_, model.refit().total_weight_
        (1024.0, 1200.0)
        """
        settings = self._settings(f"{type(self).__name__}.refit")
        with self._cell.lock:
            self._cell.stream = self._require_stream("refit").refitted(settings)
        return self

    def forget(self, factor: float) -> Self:
        """Let all rows seen so far count `factor` times what they did: forgetting by a clock of the user's own.

        Parameters
        ----------
        factor : float
            Above 0, at most 1.

        Returns
        -------
        StreamingKernelPCA
            This model. Published axes stay; those to come lean to the rows to come.

        Raises
        ------
        TypeError, ValueError
            The factor is not such a number.

        Notes
        -----
        Calls add up: k times 1/2 is 2^-k. Where that would leave less than any row can weigh, shares stay as they are.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> model = StreamingKernelPCA(1, kernel="linear").partial_fit(np.full((1000, 1), 1.0))
        >>> model = model.forget(0.5).partial_fit(np.full((100, 1), 2.0)).refit()
        >>> model.total_weight_
        600.0
        """
        factor = check_real(
            "factor", factor, least=0.0, most=1.0, open_below=True, where=f"{type(self).__name__}.forget"
        )
        with self._cell.lock:
            if self._cell.stream is not None:
                self._cell.stream = self._cell.stream.forgotten(factor)
        return self

    def merge(self, other: Self) -> Self:
        """Take in what another model has learned from other rows.

        Parameters
        ----------
        other : StreamingKernelPCA
            With the same kernel, scale included, the same features and the same `half_life`. It stays as it is.

        Returns
        -------
        StreamingKernelPCA
            This model, with new axes published.

        Raises
        ------
        TypeError
            The other is no such model.
        ValueError
            It is this model itself, or kernels, features or half-lives differ. Nothing is changed then.

        Notes
        -----
        The bases are united and the moments expressed in the union, which is exact; then the weakest atoms go until
        `max_atoms` is kept. Without a budget and with ``tolerance=0`` the result is that of all rows in one stream.
        Counts, weights and energies add; positions in the other's stream are counted on from the end of this one. Both
        streams end now: with a half-life their newest rows count the same. O(m^3) for m atoms in all.

        Let shards agree on the kernel's scale: settle it once and pass it on, ``kernel=first.kernel_``. While neither
        has filled a block, merging a scale that is not settled appends the other's rows.

        Examples
        --------
        Shards that agree on a kernel make one model; without a budget, that of all rows:

        >>> from streamkpca import KernelPCA, StreamingKernelPCA
        >>> east = StreamingKernelPCA(1, kernel="linear").fit([[-2.0, 0.0], [2.0, 0.0]])
        >>> west = StreamingKernelPCA(1, kernel="linear").fit([[0.0, -1.0], [0.0, 1.0]])
        >>> exact = KernelPCA(1, kernel="linear").fit([[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
        >>> east.merge(west).eigenvalues_.round(3), exact.eigenvalues_.round(3)
        (array([2.667]), array([2.667]))
        """
        with self._cell.lock:
            self._cell.stream = self._merged_with([other], f"{type(self).__name__}.merge")
        return self

    # Certificates

    def captured_energy(self, confidence: float = 0.95) -> Array:
        """Certify how much of the stream the atoms explain.

        Parameters
        ----------
        confidence : float, default=0.95
            Probability, over the draws of the random sample, with which the interval holds the truth.

        Returns
        -------
        ndarray of shape (2,)
            Ends of an interval for the share of the stream's energy sum a_n k(x_n, x_n) that lies in the span of the
            published atoms; a single point while the sample holds every row.

        Raises
        ------
        NotFittedError
            No row was seen yet.
        TypeError, ValueError
            The confidence is not strictly between 0 and 1, or there is no sample.

        Notes
        -----
        Energy that was not recorded when it came, `unexplained_energy_ratio_`, may well lie in the span of the atoms
        by now: that figure is about the summary's past, this one about its atoms. Rows that became atoms count, as they
        are rows of the stream. No assumption is made on the rows, and whatever the sample's size the confidence is
        kept [1]_. O(r m (d + m)) for r rows of the sample.

        References
        ----------
        .. [1] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by betting", Journal of the
           Royal Statistical Society B 86, 2024.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> rows = np.random.default_rng(0).normal(size=(5000, 2))
        >>> model = StreamingKernelPCA(2, kernel=RBF(0.5), max_atoms=16).partial_fit(rows)
        >>> low, high = model.captured_energy()
        >>> truth = 1.0 - model.reconstruction_error(rows).mean()
        >>> bool(low < truth < high)
        True
        """
        share = self._open_share("captured_energy", "confidence", confidence)
        snapshot, reservoir, totals = self._sampled("captured_energy")
        return captured_energy(snapshot, reservoir, totals, share)

    def novelty_threshold(self, quantile: float = 0.99) -> float:
        """Find the reconstruction error above which a row is novel.

        Parameters
        ----------
        quantile : float, default=0.99
            Share of rows like those of the stream that shall stay below; under forgetting, like those of late.

        Returns
        -------
        float
            In units of k(x, x): compare with `reconstruction_error(X)`, or its negative with `score_samples(X)`. The
            largest error of the sample where that is too small for the quantile: r rows resolve r / (r + 1).

        Raises
        ------
        NotFittedError
            No row was seen yet.
        TypeError, ValueError
            The quantile is not strictly between 0 and 1, or there is no sample.

        Notes
        -----
        A split-conformal level from the random sample, atoms left out: they are explained by themselves.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> random = np.random.default_rng(0)
        >>> model = StreamingKernelPCA(2, kernel=RBF(0.5), max_atoms=16).partial_fit(random.normal(size=(5000, 2)))
        >>> errors = model.reconstruction_error(random.normal(size=(5000, 2)))  # of rows to come
        >>> round(float((errors < model.novelty_threshold(0.95)).mean()), 2)
        0.95
        """
        share = self._open_share("novelty_threshold", "quantile", quantile)
        snapshot, reservoir, _ = self._sampled("novelty_threshold")
        return novelty_threshold(snapshot, reservoir, share)

    # Fitted attributes of a stream

    @property
    def n_samples_seen_(self) -> int:
        """Rows given, those after the last refit included, and those that were rejected.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> StreamingKernelPCA(1).partial_fit([[1.0], [2.0]]).partial_fit([[3.0]]).n_samples_seen_
        3
        """
        return self._require_stream("n_samples_seen_").n_rows

    @property
    def n_rows_rejected_(self) -> int:
        """Rows left out because of NaN or infinity; see `on_bad_rows`.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> model = StreamingKernelPCA(1, on_bad_rows="skip").partial_fit([[1.0], [float("nan")], [3.0]])
        >>> model.n_rows_rejected_, model.n_samples_seen_
        (1, 3)
        """
        return self._require_stream("n_rows_rejected_").n_rejected

    @property
    def residual_trend_(self) -> float:
        """How strongly the present stream is explained worse than before: 0 as before, 1 a signal.

        Page's cumulative sum of what blocks leave unexplained before they are searched for atoms, in units of the
        level at which it signals. Blocks below `tolerance` are as good as explained.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> random = np.random.default_rng(0)
        >>> model = StreamingKernelPCA(2, kernel=RBF(0.1), max_atoms=16, block_size=64)
        >>> model = model.partial_fit(random.normal(size=(6400, 2)))
        >>> round(model.residual_trend_, 2)
        0.0
        >>> round(model.partial_fit(random.normal(scale=4.0, size=(64, 2))).residual_trend_, 2)
        0.35
        """
        summary = self._require_stream("residual_trend_").summary
        return 0.0 if summary is None else summary.trend.strength

    @property
    def drift_detected_(self) -> bool:
        """Whether a drift was signalled and the stream's new level is not known yet, which takes eight blocks.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> random = np.random.default_rng(0)
        >>> model = StreamingKernelPCA(2, kernel=RBF(0.1), max_atoms=16, block_size=64)
        >>> model = model.partial_fit(random.normal(size=(6400, 2)))
        >>> model.drift_detected_
        False
        >>> model.partial_fit(random.normal(scale=4.0, size=(256, 2))).drift_detected_
        True
        """
        summary = self._require_stream("drift_detected_").summary
        return summary is not None and summary.trend.is_fresh

    @property
    def last_drift_row_(self) -> int | None:
        """Number of rows given when a drift was signalled last; None for never.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> random = np.random.default_rng(0)
        >>> model = StreamingKernelPCA(2, kernel=RBF(0.1), max_atoms=16, block_size=64)
        >>> model = model.partial_fit(random.normal(size=(6400, 2)))
        >>> model.partial_fit(random.normal(scale=4.0, size=(256, 2))).last_drift_row_  # three blocks later
        6592
        """
        summary = self._require_stream("last_drift_row_").summary
        return None if summary is None else summary.last_drift

    # Checkpoints

    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write all that the model has learned to a file.

        Parameters
        ----------
        path : path-like
            Replaced at once when the new file is whole and on the disk; whatever happens before, the old one stays.
        extra : object, optional
            Of what JSON knows; `load` returns it as `extra_`. The offset in the source up to which rows were learned,
            say, from which a consumer goes on.

        Raises
        ------
        OSError
            The disk is full, the folder is read-only, ...; the old file stays, or the new one is in its place.
        TypeError, ValueError
            `extra` is no JSON, or a parameter makes no sense.

        Notes
        -----
        An uncompressed npz, numpy's own format, with parameters and counters in a JSON text. A model that is loaded
        goes on as if it had never been stopped, bit for bit, and the same state makes the same bytes. Functions are
        never stored: a kernel with functions of the caller must be passed to `load` again. Rows that came since the
        last block are saved too.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from streamkpca import StreamingKernelPCA, load
        >>> model = StreamingKernelPCA(1, kernel="linear").partial_fit([[-2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(pathlib.Path(folder, "plant.npz"), extra={"offset": 3})
        ...     load(pathlib.Path(folder, "plant.npz")).extra_
        {'offset': 3}
        """
        write_durably(path, self._writer("save", extra))

    def to_bytes(self, extra: Any = None) -> bytes:
        """Return what `save` writes.

        Parameters
        ----------
        extra : object, optional
            As for `save`.

        Returns
        -------
        bytes

        Raises
        ------
        TypeError, ValueError
            As `save`.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> data = StreamingKernelPCA(1, kernel="linear").partial_fit([[-2.0, 0.0], [2.0, 0.0]]).to_bytes()
        >>> StreamingKernelPCA.from_bytes(data).n_samples_seen_
        2
        """
        return checkpoint_bytes(self._writer("to_bytes", extra))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, kernel: Kernel | None = None) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : path-like
        kernel : Kernel, optional
            The settled kernel, where it has functions of the caller; else it is in the file.

        Returns
        -------
        StreamingKernelPCA
            Its `extra_` is what it was saved with.

        Raises
        ------
        CheckpointError
            The file is damaged, no checkpoint, of a later format, or makes no sense.
        OSError
            It cannot be read.

        Notes
        -----
        A file from a stranger does no harm: nothing is unpickled or evaluated, no more memory is taken than the file is
        long, and what was read is checked for meaning: that the factor is that of the atoms' kernel matrix, that the
        moments are those of some rows, and so on.

        Examples
        --------
        A file whose bytes have changed on the way is refused:

        >>> import pathlib, tempfile
        >>> from streamkpca import StreamingKernelPCA
        >>> data = bytearray(StreamingKernelPCA(1, kernel="linear").partial_fit([[-2.0, 0.0], [2.0, 0.0]]).to_bytes())
        >>> data[len(data) // 2] ^= 1
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "plant.npz")
        ...     n_bytes = path.write_bytes(data)
        ...     StreamingKernelPCA.load(path)
        Traceback (most recent call last):
            ...
        streamkpca.errors.CheckpointError: load: ...plant.npz: it is damaged: ...
        """
        with open(path, "rb") as file:
            return cls._read(file, f"load: {os.fspath(path)!s}", kernel)

    @classmethod
    def from_bytes(cls, data: bytes, *, kernel: Kernel | None = None) -> Self:
        """Read a model that `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
        kernel : Kernel, optional
            As for `load`.

        Returns
        -------
        StreamingKernelPCA

        Raises
        ------
        CheckpointError
            As `load`.

        Examples
        --------
        A kernel with a function of the caller must be given again:

        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import Custom
        >>> kernel = Custom(lambda X, Y: X @ Y.T)
        >>> data = StreamingKernelPCA(1, kernel=kernel).partial_fit([[-2.0, 0.0], [2.0, 0.0]]).to_bytes()
        >>> StreamingKernelPCA.from_bytes(data, kernel=kernel).eigenvalues_.round(3)
        array([8.])
        """
        return cls._read(io.BytesIO(data), "from_bytes", kernel)

    def _writer(self, method: str, extra: Any) -> Callable[[IO[bytes]], None]:
        where = f"{type(self).__name__}.{method}"
        self._settings(where)
        parameters, stream = self.get_params(deep=False), self._stream
        return lambda file: write_checkpoint(file, parameters, stream, extra, where)

    @classmethod
    def _read(cls, file: IO[bytes], where: str, kernel: Kernel | None) -> Self:
        if kernel is not None and not (isinstance(kernel, Kernel) and kernel.is_settled):
            raise TypeError(f"{where}: expected kernel to be a settled Kernel but got {kernel!r}; pass model.kernel_")
        try:
            parameters, stream, extra = read_checkpoint(
                file, lambda given: cls(**given)._settings(cls.__name__), kernel
            )
        except CheckpointError as error:
            raise CheckpointError(f"{where}: {error}") from None
        model = cls(**parameters)
        model._stream, model.extra_ = stream, extra
        return model

    # The stream and its settings

    @property
    def _cell(self) -> StreamCell:
        cell: StreamCell | None = self.__dict__.get("_stream_cell")
        if cell is None:
            # Not made by the constructor, which sets parameters and nothing else; of two threads that make one, one
            # wins.
            cell = self.__dict__.setdefault("_stream_cell", StreamCell())
        return cell

    @property
    def _stream(self) -> Stream | None:
        return self._cell.stream

    @_stream.setter
    def _stream(self, stream: Stream | None) -> None:
        self._cell.stream = stream

    def _require_stream(self, request: str) -> Stream:
        stream = self._cell.stream
        if stream is None:
            raise not_fitted(type(self).__name__, request)
        return stream

    def _snapshot(self) -> Snapshot | None:
        # Read once: another thread may be writing the next.
        stream = self._cell.stream
        if stream is None:
            return None
        return stream.published or stream.answering(self._settings(type(self).__name__))

    def _width(self) -> tuple[int, Names | None] | None:
        stream = self._cell.stream
        return None if stream is None else (stream.n_features, stream.names)

    def _refit_input(self) -> tuple[Candidates, Moments] | None:
        stream = self._cell.stream
        if stream is None:
            return None
        summary, atoms = stream.refit_input(self._settings(type(self).__name__))
        return atoms, summary.moments

    def _sampled(self, request: str) -> tuple[Snapshot, Reservoir, RowSums]:
        """Return the published snapshot, a sample of all rows, and their totals."""
        where = f"{type(self).__name__}.{request}"
        stream, settings = self._require_stream(request), self._settings(where)
        reservoir, totals = stream.sampled(settings)
        if not len(reservoir):
            reason = "reservoir_size is 0" if reservoir.size == 0 else "no row had a weight above 0"
            raise ValueError(
                f"{where}: expected a random sample of the stream but there is none: {reason}; "
                "start a stream with reservoir_size=512, and rows that count"
            )
        return stream.answering(settings), reservoir, totals

    def _open_share(self, method: str, name: str, value: Any) -> float:
        where = f"{type(self).__name__}.{method}"
        return check_real(name, value, least=0.0, most=1.0, open_below=True, open_above=True, where=where)

    def _merged_with(self, others: Sequence[Self], where: str) -> Stream | None:
        """Merge the streams of other models with this one's, which stays as it is."""
        settings, streams = self._settings(where), []
        for other in others:
            if not isinstance(other, StreamingKernelPCA):
                raise TypeError(
                    f"{where} expects a StreamingKernelPCA but got {type(other).__name__}; fit one to the rows"
                )
            if other is self:
                raise ValueError(
                    f"{where}: a model cannot be merged with itself: its rows would count twice; "
                    "give the rows twice the sample_weight if that is meant"
                )
            # Read once: it may be learning in another thread.
            stream = other._stream
            if stream is not None:
                streams.append((stream, other._settings(where)))
        return merged_streams(self._stream, streams, settings, where)

    def _settings(self, where: str) -> StreamSettings:
        # Single rows come by the million with the very same arguments: what was checked once stays checked. To compare
        # the arguments with those of the last time took a fifth of what a row takes.
        checked = self._checked
        while checked is None:
            read = argument_reader(type(self))
            given = read(self)
            checked = self._checked = StreamSettings.checked(**self.get_params(deep=False), where=where)
            # Another thread may have set one meanwhile; who sets one later takes back what is stored here.
            if not all(map(operator.is_, given, read(self))):
                checked = None
        return checked

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if not name.startswith("_"):
            self.__dict__.pop("_checked", None)

    def __copy__(self) -> Self:
        # A shallow copy would share the buffer that pending rows are appended to.
        return copy.deepcopy(self)


def merge(*models: StreamingKernelPCA) -> StreamingKernelPCA:
    """Merge models that have learned from different rows of one kind: shards of a stream, machines of a fleet.

    Parameters
    ----------
    *models : StreamingKernelPCA
        At least one; see `StreamingKernelPCA.merge`. They stay as they are.

    Returns
    -------
    StreamingKernelPCA
        A new model with the parameters of the first.

    Raises
    ------
    TypeError, ValueError
        There is none, one is given twice, or as `StreamingKernelPCA.merge`.

    Notes
    -----
    One after the other; axes are published once, at the end. With a budget the order matters within the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA, kernels, merge
    >>> rows = np.random.default_rng(0).normal(size=(3000, 2))
    >>> shards = [StreamingKernelPCA(2, kernel=kernels.RBF(0.5)).partial_fit(part) for part in np.split(rows, 3)]
    >>> whole = merge(*shards)
    >>> whole.n_samples_seen_, whole.total_weight_
    (3000, 3000.0)
    """
    where = "merge"
    if not models:
        raise TypeError(f"{where} expects at least one StreamingKernelPCA but got none")
    first = models[0]
    if not isinstance(first, StreamingKernelPCA):
        raise TypeError(f"{where} expects StreamingKernelPCA models but got {type(first).__name__}; {_remedy(first)}")
    if len({id(model) for model in models}) < len(models):
        raise ValueError(f"{where}: a model is given twice: its rows would count twice; give each model once")
    merged = copy.deepcopy(first)
    merged._stream = merged._merged_with(models[1:], where)
    return merged


def _remedy(what: object) -> str:
    return "pass them one by one: merge(*models)" if isinstance(what, list | tuple) else "fit one to the rows"
