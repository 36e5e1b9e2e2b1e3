"""Kernel PCA of an endless stream, and the merging of such models."""

import copy
import io
import os
import threading
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import IO, Any, Literal, Self, cast

import numpy as np

from streamkpca._core.arrays import Array, Names
from streamkpca._core.concurrency import WriteLock
from streamkpca._core.files import FileName, replace_file
from streamkpca._core.parameters import check_real
from streamkpca._core.reservoir import Reservoir
from streamkpca.checkpoint import Checkpoint, checkpoint_of, read_checkpoint
from streamkpca.components.certificates import captured_energy
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.moments import RowSums
from streamkpca.errors import CheckpointError, name_errors, plainly, require
from streamkpca.kernels import Kernel
from streamkpca.models._base import Estimator, warn_of_empty_axes
from streamkpca.models._protocol import explain_unknown_arguments
from streamkpca.rows import bad_rows, validation
from streamkpca.rows.parts import Rows
from streamkpca.stream.calibration import calibrate, rows_for_level
from streamkpca.stream.parameters import PARAMETERS, Settings
from streamkpca.stream.state import State, check_continued, latest_axes, totals_and_sample
from streamkpca.stream.transitions import fit, forget, refit, with_rows, without_rows
from streamkpca.stream.transitions import merge as merge_states

# Novelty below this share of the mean k(x, x) is rounding. Where all rows are a few setpoints, every row would be above
# a threshold of 1e-16.
_ROUNDING = 1e-12


@name_errors
@explain_unknown_arguments
@dataclass(eq=False, repr=False)
class StreamingKernelPCA(Estimator):
    """Kernel PCA of a stream, in one pass and bounded memory.

    The model keeps a few atoms, whose images in feature space span the basis. A row becomes an atom if it explains
    other rows well; within a budget it replaces the atom that is needed least, and atoms move to where they explain
    more [4]_. The moments of the stream in that basis give sparse maximum-likelihood weights [2]_, which leave few
    atoms active, and the principal axes in the span of these.

    Parameters
    ----------
    n_components : int or float, default=10
        Number q of axes. A float between 0 and 1: the fewest axes that explain this share of the variance.
    kernel : Kernel or str, default="rbf"
        A kernel of `streamkpca.kernels`, or the name of one with its default parameters. A width that is a rule, such
        as ``"contrast"``, is computed from the first block, and again after 2, 4, 8 ... blocks, for the last time after
        4,096 rows. If it is clearly different by then, the stream is learned anew with it.
    max_atoms : int or None, default=256
        Maximum number of atoms. None: as many as the tolerance requires.
    atoms : {"moved", "rows"}, default="moved"
        "rows": atoms stay rows of the stream, as they do without a budget, with functions of the caller, which have no
        derivatives, and with kernels that are not positive definite.
    tolerance : float, default=1e-3
        Share of a block's variance in feature space that may lie outside the span of the atoms. If `max_atoms` is None,
        at most this share of the energy sum k(x, x) is lost, and 0 gives batch kernel PCA. Otherwise it decides, below
        `max_atoms`, whether a row is worth becoming an atom.
    noise_variance : float, "auto" or None, default="auto"
        Tipping's noise variance sigma^2, in units of k(x, x): the larger it is, the fewer atoms are active. "auto"
        keeps the fewest that hold at least 99% of the variance of all atoms on the q axes (99.67% of that of the rows
        seen, as a margin). None makes all atoms active, and so does "auto" where ``tolerance=0`` and ``max_atoms=None``
        ask for batch kernel PCA.
    n_active : int or None, default=None
        Number of active atoms; the noise variance is then chosen to give it.
    axes : {"ritz", "likelihood"}, default="ritz"
        "ritz": the best axes in the span of the active atoms. "likelihood": the axes of the likelihood's model.
    center : bool, default=True
        Subtract the mean in feature space.
    half_life : float or None, default=None
        Number of rows after which the weight of a row has halved; None for no forgetting.
    block_size : int, default=512
        Number of rows that are processed together, at most 4,096. Results depend on it, but not on how calls cut the
        stream. Use at least some dozens: the rows of a block decide which of them become atoms.
    refit_every : int or "auto", default="auto"
        Rows between refits of the axes, at the end of a block; a young stream also refits whenever it has grown by a
        half. "auto": 128 rows per atom and at least 16,384, but at most a quarter of the half-life.
    reservoir_size : int, default=512
        Size of a random sample of the stream, which `captured_energy` and `novelty_threshold` use; 0 for none.
    missing : {"raise", "skip", "marginal"}, default="raise"
        Rows that contain NaN (or None in tables) or infinity. "raise" refuses the whole call. "skip" leaves them out
        and counts them in `n_rows_rejected_`; they keep their positions in the stream. "marginal" integrates missing
        numbers out, see Notes, in learning and in all questions, and leaves out rows with infinity or no number.
    random_state : int or None, default=0
        Seed of the random sample; None for a new seed each time. Nothing else is random.

    See Also
    --------
    KernelPCA : Exact kernel PCA of all rows at once.

    Notes
    -----
    Queries are answered from the last published axes, which do not change between refits. Before the first block is
    full, they are answered from all rows so far, and the first query after each `partial_fit` costs a refit.

    One thread may write while others read: a query uses a snapshot that never changes. Writers wait for each other. If
    a call fails, by an exception or Ctrl-C, the model is as before the call.

    With ``missing="marginal"``, missing numbers are normal, given the others of their row, with the running means,
    variances and (up to 256 features) correlations of the columns. A row then enters as its expected image with RBF and
    Linear; other kernels take the expected numbers. The novelty of a row with gaps is that of the row completed as
    `impute` does, so an unseen number makes no row novel. Gaps cost a row O(m g^2) for g of them, and each row O(d^2).

    A row costs O(m (d + m)), a search for atoms O(n m (d + m)) with n sampled rows, a refit O(m^3). Memory is
    O(m (d + m) + B (d + B) + n d).

    References
    ----------
    .. [1] B. Schölkopf, A. Smola, K.-R. Müller, "Nonlinear component analysis as a kernel eigenvalue problem",
       Neural Computation 10, 1998.
    .. [2] M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001.
    .. [3] S. Martin, "An approximate version of kernel PCA", ICMLA 2006.
    .. [4] E. Snelson, Z. Ghahramani, "Sparse Gaussian processes using pseudo-inputs", NIPS 18, 2006.

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
    >>> bool(model.novelty([[0.0, 0.0]])[0] > model.novelty(circle).max())  # the centre is novel
    True

    The state is a value, to which a model can return:

    >>> before = model.state_
    >>> with model.write_lock:  # no other thread learns between these calls
    ...     model.forget(0.5).partial_fit(circle[:100]).refit().total_weight_
    1600.0
    >>> model.state_ = before
    >>> model.n_samples_seen_, model.n_rows_rejected_, model.settings().max_atoms
    (3000, 0, 32)

    A copy of all that was learned, and one of the atoms alone:

    >>> StreamingKernelPCA.from_bytes(model.to_bytes()).n_samples_seen_, model.without_rows().n_samples_seen_
    (3000, 0)
    """

    n_components: int | float = 10
    _: KW_ONLY
    kernel: Kernel | str = "rbf"
    max_atoms: int | None = 256
    atoms: Literal["moved", "rows"] = "moved"
    tolerance: float = 1e-3
    noise_variance: float | Literal["auto"] | None = "auto"
    n_active: int | None = None
    axes: Literal["ritz", "likelihood"] = "ritz"
    center: bool = True
    half_life: float | None = None
    block_size: int = 512
    refit_every: int | Literal["auto"] = "auto"
    reservoir_size: int = 512
    missing: Literal["raise", "skip", "marginal"] = "raise"
    random_state: int | None = 0

    # Without annotations, as they are no parameters. Readers take the state, which never changes, once for each query.
    extra_ = cast(Any, None)
    _state = cast("State | None", None)

    # Learning

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from the next rows of the stream.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Also a sparse matrix, which is made dense part by part, or an Arrow stream (of pyarrow, DuckDB), which is
            read batch by batch, or whole if each row has a weight.
        y : object
            Ignored; accepted for scikit-learn.
        sample_weight : array-like of shape (n,), float or None
            Weight of each row; 1 by default.

        Raises
        ------
        TypeError, ValueError
            X is not a finite real array with as many features as the first rows, the weights are not finite and real,
            or a parameter is invalid. The model is as before the call.

        Examples
        --------
        >>> rows = np.random.default_rng(0).normal(size=(1200, 2))
        >>> whole, pieces = StreamingKernelPCA(2).partial_fit(rows), StreamingKernelPCA(2)
        >>> for piece in np.split(rows, [1, 500, 1199]):
        ...     pieces = pieces.partial_fit(piece)
        >>> whole.to_bytes() == pieces.to_bytes()
        True
        """
        del y
        with self.write_lock:
            settings, state = self.settings(), self._state
            # A stream with a weight for each row is read whole, as its weights are.
            is_read_in_batches = validation.is_arrow(X) and np.ndim(sample_weight) == 0
            for batch in validation.arrow_batches(X) if is_read_in_batches else [X]:
                try:
                    state, rows, weights, n_rejected = _prepare_rows(state, batch, sample_weight, settings)
                    state = with_rows(state, rows, weights, settings, n_rejected)
                except (TypeError, ValueError) as error:
                    begun, last = (0 if each is None else each.n_rows for each in (self._state, state))
                    if last > begun:
                        error.add_note(
                            f"Rows are counted from row {last - begun} of the Arrow stream, where a batch begins."
                        )
                    raise
            self._state = state
        return self

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Start anew and learn from these rows in two passes.

        With a budget, a sample of all rows (50 for each of `max_atoms`, at least 1,024 and at most 10,240) chooses the
        atoms; the second pass records every row in the final basis, so the result hardly depends on their order. The
        scale of the kernel is settled on about a million numbers from all over, or 2,048 rows if these are more.

        Parameters
        ----------
        X, y, sample_weight
            As for `partial_fit`, which raises the same; some row must be usable.
        """
        del y
        settings, X = self.settings(), validation.arrow_table(X)
        state, rows, weights, n_rejected = _prepare_rows(None, X, sample_weight, settings)
        with self.write_lock:
            self._state = fit(state, rows, weights, settings, n_rejected=n_rejected)
        warn_of_empty_axes(self.eigenvalues_, "StreamingKernelPCA.fit")
        return self

    def refit(self) -> Self:
        """Publish axes of all rows so far, outside the schedule; the stream goes on as if there had been no refit."""
        settings = self.settings()
        with self.write_lock:
            self._state = refit(self._require_state("refit"), settings)
        warn_of_empty_axes(self.eigenvalues_, f"{type(self).__name__}.refit")
        return self

    def forget(self, factor: float) -> Self:
        """Multiply the weights of all rows seen so far by `factor`, to forget by a clock of one's own.

        Published axes stay; later ones depend more on later rows.

        Parameters
        ----------
        factor : float
            Above 0, at most 1; k calls with 1/2 give 2^-k. The total weight stays above 1e-120.
        """
        factor = check_real("factor", factor, least=0.0, most=1.0, open_below=True)
        with self.write_lock:
            if self._state is not None:
                self._state = forget(self._state, factor)
        return self

    def merge(self, other: Self) -> Self:
        """Add the state of another model, learned from other rows, and publish new axes.

        Parameters
        ----------
        other : StreamingKernelPCA
            With the same kernel, features and `half_life`. It does not change, nor does this one where it is
            refused. Let all shards have one scale of the kernel: ``kernel=kernel.settled(rows)``.

        Notes
        -----
        The bases are united and the moments expressed in the union, which is exact; then the weakest atoms are removed
        until at most `max_atoms` are left. Counts, weights and energies add up; positions in the other stream follow
        the last one of this stream. With a half-life, the newest row of each has its full weight. O(m^3).

        Examples
        --------
        >>> from streamkpca import KernelPCA
        >>> east = StreamingKernelPCA(1, kernel="linear").fit([[-2.0, 0.0], [2.0, 0.0]])
        >>> west = StreamingKernelPCA(1, kernel="linear").fit([[0.0, -1.0], [0.0, 1.0]])
        >>> exact = KernelPCA(1, kernel="linear").fit([[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
        >>> east.merge(west).eigenvalues_.round(3), exact.eigenvalues_.round(3)
        (array([2.667]), array([2.667]))
        """
        with self.write_lock:
            self._state = _merge_states((self, other))
        return self

    # Gaps

    def impute(self, X: Any) -> Array:
        """Complete rows with gaps.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows with gaps: NaN, None in tables.

        Returns
        -------
        ndarray of shape (n, d)
            Each gap has the number expected given the others of the row, or that of the nearest atom, whichever makes
            the row less novel; with local kernels it descends from there along the distance to the span. The
            distribution is that of ``missing="marginal"``, or else of the atoms and the sample.

        Examples
        --------
        >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 3000)
        >>> model = StreamingKernelPCA(max_atoms=32).partial_fit(np.column_stack([np.cos(angle), np.sin(angle)]))
        >>> abs(model.impute([[0.6, np.nan], [0.6, 0.8]])).round(1)
        array([[0.6, 0.8],
               [0.6, 0.8]])
        """
        answers, rows = self._ask("impute", X)
        return answers.impute(rows)

    # Certificates

    def captured_energy(self, confidence: float = 0.95) -> Array:
        """Certify how much of the stream the atoms explain.

        Parameters
        ----------
        confidence : float, default=0.95
            Probability, strictly between 0 and 1, that the interval contains the true share, over draws of the sample.

        Returns
        -------
        ndarray of shape (2,)
            Ends of an interval for the share of the stream's energy sum a_n k(x_n, x_n) in the span of the published
            atoms. They coincide while the sample holds every row.

        Notes
        -----
        The confidence holds for any rows and any size of the sample [1]_. O(r m (d + m)) for r sampled rows.

        References
        ----------
        .. [1] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by betting", Journal of the
           Royal Statistical Society B 86, 2024.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> rows = np.random.default_rng(0).normal(size=(5000, 2))
        >>> model = StreamingKernelPCA(2, kernel=RBF(0.5), max_atoms=16).partial_fit(rows)
        >>> low, high = model.captured_energy()
        >>> bool(low < 1.0 - model.reconstruction_error(rows).mean() < high)
        True
        """
        share = check_real("confidence", confidence, least=0.0, most=1.0, open_below=True, open_above=True)
        state, settings, totals, reservoir = self._require_sample("captured_energy")
        return captured_energy(latest_axes(state, settings), reservoir, totals, share)

    def novelty_threshold(self, quantile: float = 0.99) -> float:
        """Find the novelty above which a row is an alarm.

        Parameters
        ----------
        quantile : float, default=0.99
            Share of rows like those of the stream (with forgetting, like the recent ones) that should stay below it,
            strictly between 0 and 1.

        Returns
        -------
        float
            In units of k(x, x), to compare with `novelty(X)`. If there are too few rows for the quantile, the largest
            score: r rows resolve quantiles up to r / (r + 1). At least 1e-12 of the mean k(x, x): less is rounding.

        Notes
        -----
        A split-conformal level [1]_ of the scores of rows that the model has not learned from, see
        `streamkpca.stream.calibrate`. A share `quantile` of later rows stays below it if they are exchangeable with
        those of the stream, up to chance: 3 of 300 rows decide about 0.99. For streams that change, use `Monitor`.

        References
        ----------
        .. [1] J. Lei, M. G'Sell, A. Rinaldo, R. J. Tibshirani, L. Wasserman, "Distribution-free predictive inference
           for regression", Journal of the American Statistical Association 113, 2018, section 2.2.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> random = np.random.default_rng(0)
        >>> model = StreamingKernelPCA(2, kernel=RBF(0.5), max_atoms=16).partial_fit(random.normal(size=(5000, 2)))
        >>> later = model.novelty(random.normal(size=(5000, 2)))
        >>> round(float((later < model.novelty_threshold(0.95)).mean()), 2)
        0.95
        """
        rarity = 1.0 / (1.0 - check_real("quantile", quantile, least=0.0, most=1.0, open_below=True, open_above=True))
        state, settings, totals, _ = self._require_sample("novelty_threshold")
        level = calibrate(state, settings, n_least=rows_for_level(rarity)).level(rarity)
        return max(level, _ROUNDING * totals.mean_energy)

    # Fitted attributes of a stream

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows given, including those after the last refit and those rejected."""
        return self._require_state("n_samples_seen_").n_rows

    @property
    def n_rows_rejected_(self) -> int:
        """Number of rows left out because of NaN or infinity; see `missing`."""
        return self._require_state("n_rows_rejected_").n_rejected

    @property
    def residual_trend_(self) -> float:
        """How much worse the stream is explained now than before: 0 is no worse, 1 signals a drift.

        Page's cumulative sum of the shares, at least `tolerance`, that blocks leave unexplained before a search for
        atoms, divided by the threshold of a signal.

        Examples
        --------
        >>> from streamkpca.kernels import RBF
        >>> random = np.random.default_rng(0)
        >>> model = StreamingKernelPCA(2, kernel=RBF(0.1), max_atoms=16, block_size=64)
        >>> model = model.partial_fit(random.normal(size=(6400, 2)))
        >>> round(model.partial_fit(random.normal(scale=4.0, size=(64, 2))).residual_trend_, 2)
        0.35
        >>> model.partial_fit(random.normal(scale=4.0, size=(192, 2))).drift_detected_, model.last_drift_row_
        (True, 6592)
        """
        summary = self._require_state("residual_trend_").summary
        return 0.0 if summary is None else summary.trend.strength

    @property
    def drift_detected_(self) -> bool:
        """Whether a drift was signalled and the new level is still being estimated, from eight blocks."""
        summary = self._require_state("drift_detected_").summary
        return summary is not None and summary.trend.is_fresh

    @property
    def last_drift_row_(self) -> int | None:
        """Number of rows given when a drift was last signalled; None if there was none."""
        summary = self._require_state("last_drift_row_").summary
        return None if summary is None else summary.last_drift

    # Checkpoints

    def save(self, path: FileName, extra: Any = None) -> None:
        """Write everything that the model has learned to a file: an uncompressed npz archive, numpy's own format.

        A loaded model continues as if it had never been stopped, bit for bit, and the same state gives the same bytes.

        Parameters
        ----------
        path : path-like
            An existing file is replaced in one step, once the new one is complete and on the disk, and keeps its mode.
            A new one can be read by its owner only, because it holds rows of the data.
        extra : object, optional
            JSON data, bytes and arrays, which `load` returns as `extra_`, such as the offset in the source from which a
            consumer continues. Keys are strings, tuples come back as lists, nested at most 64 deep.

        Raises
        ------
        OSError
            The file cannot be written; it is then the old one or the complete new one.
        CheckpointError, TypeError, ValueError
            JSON cannot express `extra`, a parameter is invalid, or the contents could not be loaded again. Then nothing
            is written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> model = StreamingKernelPCA(1, kernel="linear").partial_fit([[-2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(pathlib.Path(folder, "plant.npz"), extra={"offset": 3})
        ...     StreamingKernelPCA.load(pathlib.Path(folder, "plant.npz")).extra_
        {'offset': 3}
        """
        contents, state = self._checkpoint(extra), self._state
        kernel = self.kernel if state is None else state.settled_kernel
        try:
            # Files lack functions of the caller.
            self._restore(contents, kernel if isinstance(kernel, Kernel) and not kernel.is_compiled else None)
        except CheckpointError as error:
            raise CheckpointError(
                f"{type(self).__name__}.save: {os.fsdecode(path)} could not be loaded again ({error}), so nothing "
                "was saved; please report this"
            ) from None
        with replace_file(path) as file:
            contents.write(file)

    def to_bytes(self, extra: Any = None) -> bytes:
        """Return the bytes that `save` would write, without its check that they can be loaded.

        Parameters
        ----------
        extra : object, optional
            As for `save`.
        """
        file = io.BytesIO()
        self._checkpoint(extra).write(file)
        return file.getvalue()

    @classmethod
    def load(cls, path: FileName, *, kernel: Kernel | None = None) -> Self:
        """Read a model that `save` wrote, with its `extra_`.

        Files from strangers are safe to load: nothing is unpickled or evaluated, and memory is bounded by their length.

        Parameters
        ----------
        path : path-like
        kernel : Kernel, optional
            The settled kernel, needed only if it has functions of the caller, which are never stored.

        Raises
        ------
        CheckpointError, OSError
            The file is damaged, no checkpoint, of another format, contradicts itself, or cannot be read.
        """
        if isinstance(path, bytes) and b"\0" in path:
            raise TypeError("expected the name of a file but got the bytes of one; from_bytes reads them")
        # A small model is read at once.
        with open(path, "rb", buffering=2**20) as file:
            return cls._read(file, f"load: {os.fsdecode(path)}", kernel)

    @classmethod
    def from_bytes(cls, data: bytes, *, kernel: Kernel | None = None) -> Self:
        """Read a model that `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
        kernel : Kernel, optional
            As for `load`.
        """
        return cls._read(io.BytesIO(data), "from_bytes", kernel)

    def _checkpoint(self, extra: Any) -> Checkpoint:
        self.settings()
        return checkpoint_of(self.get_params(deep=False), self._state, extra)

    def without_rows(self) -> Self:
        """Return a new model that begins with the kernel and the atoms of this one, but has learned no rows."""
        state, parameters = self._state, self.get_params(deep=False)
        if state is None:
            return type(self)(**parameters)
        begun = without_rows(state, self.settings())
        model = type(self)(**(parameters | {"kernel": begun.kernel}))
        model.state_ = begun
        return model

    @classmethod
    def _restore(cls, file: IO[bytes] | Checkpoint, kernel: Kernel | None) -> Self:
        """Read and check a model; `kernel` is the settled one if it has functions of the caller."""
        model = cls()

        def settings_of(parameters: dict[str, Any]) -> Settings:
            # Not set_params, which passes deep names on to the kernel.
            cls.__init__(model, **parameters)
            return model.settings()

        model._state, model.extra_ = read_checkpoint(file, settings_of, kernel)
        return model

    @classmethod
    def _read(cls, file: IO[bytes], source: str, kernel: Kernel | None) -> Self:
        if kernel is not None and not (isinstance(kernel, Kernel) and kernel.is_settled):
            raise TypeError(f"expected kernel to be a settled Kernel but got {kernel!r}; pass model.kernel_")
        try:
            return cls._restore(file, kernel)
        except CheckpointError as error:
            raise CheckpointError(f"{source}: {plainly(str(error))}") from None

    # The state and its settings

    @property
    def state_(self) -> State:
        """Everything that the model has learned, as an immutable value; see `streamkpca.stream`.

        Assign a state to go on from it, or None to begin anew.
        """
        return require(self._state, type(self).__name__, "state_")

    @state_.setter
    def state_(self, state: State | None) -> None:
        if not isinstance(state, State | None):
            raise TypeError(
                f"{type(self).__name__}: expected state_ to be a State or None but got {type(state).__name__}; "
                "pass other_model.state_"
            )
        with self.write_lock:
            self._state = state

    @property
    def write_lock(self) -> threading.RLock:
        """The lock that writers hold, for several calls that belong together: ``with model.write_lock: ...``."""
        # The constructor sets nothing but parameters, as scikit-learn requires. One of two threads that make a lock
        # wins.
        lock: WriteLock = vars(self).get("_lock") or vars(self).setdefault("_lock", WriteLock())
        return lock.held

    def settings(self) -> Settings:
        """Return the parameters, checked, as the functions of `streamkpca.stream` take them."""
        # Streams of single rows use the same arguments millions of times, so they are checked once. Comparing them with
        # those of the last call took a fifth of the time of a row.
        checked: Settings | None = vars(self).get("_checked")
        while checked is None:
            given = {parameter.name: getattr(self, parameter.name) for parameter in PARAMETERS}
            checked = self._checked = Settings.make(**given)
            # Another thread may have set one meanwhile. One that is set later deletes what is stored here.
            if any(getattr(self, name) is not value for name, value in given.items()):
                checked = None
        return checked

    def _require_state(self, request: str) -> State:
        return require(self._state, type(self).__name__, request)

    def _snapshot(self) -> Snapshot | None:
        # Read once, as another thread may be publishing the next state.
        state = self._state
        return None if state is None else state.published or latest_axes(state, self.settings())

    def _width(self) -> tuple[int, Names | None] | None:
        state = self._state
        return None if state is None else (state.n_features, state.names)

    def _require_sample(self, request: str) -> tuple[State, Settings, RowSums, Reservoir]:
        """Return the state, its settings, its totals and its sample, which must not be empty."""
        state, settings = self._require_state(request), self.settings()
        totals, reservoir = totals_and_sample(state, settings)
        if not len(reservoir):
            reason = "reservoir_size is 0" if reservoir.size == 0 else "no row had a weight above 0"
            raise ValueError(
                f"expected a random sample of the stream but there is none: {reason}; "
                "start a stream with reservoir_size=512, and rows of positive weight"
            )
        return state, settings, totals, reservoir

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        # Others are no parameters, but what was learned.
        if not (name.startswith("_") or name.endswith("_")):
            self.__dict__.pop("_checked", None)

    def __getstate__(self) -> dict[str, Any]:
        # Copies have a lock of their own.
        return {name: value for name, value in super().__getstate__().items() if name not in ("_checked", "_lock")}


def check_model(model: Any, *, remedy: str = "make one of the rows") -> StreamingKernelPCA:
    """Refuse what is no model of a stream."""
    if not isinstance(model, StreamingKernelPCA):
        raise TypeError(f"expected a StreamingKernelPCA but got {type(model).__name__}; {remedy}")
    return model


def check_template(template: Any) -> None:
    """Refuse a template of other models, or with invalid parameters."""
    check_model(template, remedy="pass one with the parameters of the models to come")
    template.settings()


def _prepare_rows(
    state: State | None, X: Any, sample_weight: Any, settings: Settings
) -> tuple[State, Rows, Array | float, int]:
    """Check rows; return the state that they continue or begin, rows, their weights, and how many were rejected."""
    leaves_out = settings.missing != "raise"
    width, names = None, None
    if state is not None:
        check_continued(state, settings)
        width, names = state.n_features, state.names
    if validation.is_plain(X, width):
        # Single rows have no time for more.
        rows: Rows = X
    else:
        rows = validation.check_parts(X, width, names, finite=not leaves_out, learner="give the model")
    if state is None:
        settings.kernel.check_width(rows.shape[1])
        state = State.begin(settings, rows.shape[1], validation.feature_names(X))
    n_rejected = 0
    # All weights may be zero here: the same rows could have come in one call with others. A default weight stays a
    # number, as making an array of it took a fifth of the time of a single row.
    weights = 1.0 if sample_weight is None else validation.as_sample_weight(sample_weight, len(rows), all_zero=True)
    if leaves_out:
        rows, weights, n_rejected = bad_rows.leave_out(rows, weights, gaps=settings.has_gaps)
    return state, rows, weights, n_rejected


@name_errors
def merge(*models: StreamingKernelPCA) -> StreamingKernelPCA:
    """Merge models that have learned from different rows: shards of a stream, machines of a fleet.

    Parameters
    ----------
    *models : StreamingKernelPCA
        At least one; see `StreamingKernelPCA.merge`. They do not change.

    Returns
    -------
    StreamingKernelPCA
        A new model with the parameters of the first. With `max_atoms`, it depends on the order, within its bounds.

    Raises
    ------
    TypeError, ValueError
        No model is given, one is given twice, or as `StreamingKernelPCA.merge`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA, kernels, merge
    >>> rows = np.random.default_rng(0).normal(size=(3000, 2))
    >>> shards = [StreamingKernelPCA(2, kernel=kernels.RBF(0.5)).partial_fit(part) for part in np.split(rows, 3)]
    >>> merge(*shards).n_samples_seen_
    3000
    """
    if not models:
        raise TypeError("expected at least one StreamingKernelPCA but got none")
    state = _merge_states(models)
    merged = copy.copy(models[0])
    merged.state_ = state
    return merged


def _merge_states(models: Sequence[Any]) -> State | None:
    """Return the state of all rows of models, with the settings of the first; none of them changes."""
    for model in models:
        is_list = isinstance(model, list | tuple)
        check_model(model, remedy="pass them one by one: merge(*models)" if is_list else "fit one to the rows")
    if len(set(map(id, models))) < len(models):
        raise ValueError(
            "a model is given twice: its rows would count twice; give each model once, or to double the "
            "weight of rows, give them twice the sample_weight"
        )
    # Read once, as another thread may be learning.
    states = [(model._state, model.settings()) for model in models]
    (first, settings), *others = states
    return merge_states(first, [(state, own) for state, own in others if state is not None], settings)
