"""What a stream can be asked: its answers, its certificates, its drift."""

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._blas import one_blas_thread
from streamkpca.certificates import captured_energy, novelty_threshold
from streamkpca.errors import not_fitted
from streamkpca.moments import Moments
from streamkpca.parameters import check_real
from streamkpca.snapshot import Snapshot
from streamkpca.snapshot_estimator import SnapshotEstimator
from streamkpca.stream import Stream
from streamkpca.stream_settings import StreamSettings
from streamkpca.summary import Summary
from streamkpca.validation import Names
from streamkpca.weighting import Candidates

Array = npt.NDArray[np.float64]


class StreamEstimator(SnapshotEstimator):
    """Base of the streaming estimator: its parameters, and everything that reads and never writes."""

    _stream: Stream | None = None
    # Of the parameters as they are; None where one was set since.
    _checked: StreamSettings | None = None

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
        snapshot, summary = self._sampled("captured_energy")
        return captured_energy(snapshot, summary.reservoir, summary.moments, share)

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
        snapshot, summary = self._sampled("novelty_threshold")
        return novelty_threshold(snapshot, summary.reservoir, share)

    @property
    def n_samples_seen_(self) -> int:
        """Rows given, those after the last refit included, and those that were rejected.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> StreamingKernelPCA(1).partial_fit([[1.0], [2.0]]).partial_fit([[3.0]]).n_samples_seen_
        3
        """
        return self._given("n_samples_seen_").n_rows

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
        return self._given("n_rows_rejected_").n_rejected

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
        summary = self._given("residual_trend_").summary
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
        summary = self._given("drift_detected_").summary
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
        summary = self._given("last_drift_row_").summary
        return None if summary is None else summary.last_drift

    def _given(self, request: str) -> Stream:
        stream = self._stream
        if stream is None:
            raise not_fitted(type(self).__name__, request)
        return stream

    def _sampled(self, request: str) -> tuple[Snapshot, Summary]:
        """Return the published snapshot, and a summary of all rows that has a sample of them."""
        where = f"{type(self).__name__}.{request}"
        stream = self._given(request)
        with one_blas_thread():
            summary = stream.completed(self._settings(where))
        if not len(summary.reservoir):
            reason = "reservoir_size is 0" if summary.reservoir.size == 0 else "no row had a weight above 0"
            raise ValueError(
                f"{where}: expected a random sample of the stream but there is none: {reason}; "
                "start a stream with reservoir_size=512, and rows that count"
            )
        return self._answers_of(stream), summary

    def _open_share(self, method: str, name: str, value: Any) -> float:
        where = f"{type(self).__name__}.{method}"
        return check_real(name, value, least=0.0, most=1.0, open_below=True, open_above=True, where=where)

    def _answers(self) -> Snapshot | None:
        # Read once: another thread may be writing the next.
        stream = self._stream
        return None if stream is None else self._answers_of(stream)

    def _answers_of(self, stream: Stream) -> Snapshot:
        if stream.published is not None:
            return stream.published
        with one_blas_thread():
            return stream.read_provisional(self._settings(type(self).__name__))

    def _width(self) -> tuple[int, Names | None] | None:
        stream = self._stream
        return None if stream is None else (stream.n_features, stream.names)

    def _learned(self) -> tuple[Candidates, Moments] | None:
        stream = self._stream
        if stream is None:
            return None
        summary, atoms = stream.state(self._settings(type(self).__name__))
        return atoms, summary.moments

    def _settings(self, where: str) -> StreamSettings:
        # Single rows come by the million with the very same arguments: what was checked once stays checked. To compare
        # the arguments with those of the last time took a fifth of what a row takes.
        checked = self._checked
        while checked is None:
            given = self._arguments()
            checked = self._checked = StreamSettings.checked(**self.get_params(deep=False), where=where)
            # Another thread may have set one meanwhile; who sets one later takes back what is stored here.
            if not all(map(operator.is_, given, self._arguments())):
                checked = None
        return checked

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if not name.startswith("_"):
            self.__dict__.pop("_checked", None)
