"""What changes a stream, besides its rows: refits, forgetting, merging; one at a time."""

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Self

from streamkpca._blas import one_blas_thread
from streamkpca.parameters import check_real
from streamkpca.stored_estimator import StoredEstimator
from streamkpca.stream import Stream
from streamkpca.stream_settings import StreamSettings
from streamkpca.write_lock import WriteLock


class StreamWriter(StoredEstimator):
    """Base of the streaming estimator: everything that writes, but for learning rows.

    Notes
    -----
    Who writes holds the lock, works on a shallow copy of the stream, and puts it in the stream's place at the end, in
    one assignment. So readers see one of the two, and a call that breaks has changed nothing.
    """

    _lock: WriteLock | None = None

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
        with self._writing(), one_blas_thread():
            stream = copy.copy(self._given("refit"))
            stream.published = stream.publish(settings)
            self._stream = stream
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
        with self._writing():
            if self._stream is not None:
                stream = copy.copy(self._stream)
                stream.forget(factor)
                self._stream = stream
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
        with self._writing():
            stream, settings = self._merged_with([other], f"{type(self).__name__}.merge")
            if stream is not None:
                with one_blas_thread():
                    stream.publish_now(settings)
                self._stream = stream
        return self

    def _merged_with(self, others: Sequence[Self], where: str) -> tuple[Stream | None, StreamSettings]:
        """Merge streams without publishing; this model stays as it is."""
        settings = self._settings(where)
        stream = copy.copy(self._stream)
        for other in others:
            self._check_other(other, where)
            # Read once: it may be learning in another thread.
            others_stream = other._stream
            if others_stream is None:
                continue
            other_settings = other._settings(where)
            if stream is None:
                stream = Stream(settings, others_stream.n_features, others_stream.names)
            stream.check_continued(settings, where)
            stream.check_mergeable(others_stream, settings, other_settings, where)
            with one_blas_thread():
                stream.merge(others_stream, settings, other_settings)
        return stream, settings

    def _check_other(self, other: object, where: str) -> None:
        if not isinstance(other, StreamWriter):
            raise TypeError(f"{where} expects a StreamingKernelPCA but got {type(other).__name__}; fit one to the rows")
        if other is self:
            raise ValueError(
                f"{where}: a model cannot be merged with itself: its rows would count twice; "
                "give the rows twice the sample_weight if that is meant"
            )

    def _writing(self) -> AbstractContextManager[bool]:
        """Return the lock that writers hold."""
        lock = self._lock
        if lock is None:
            # Not made by the constructor, which sets parameters and nothing else; of two threads that make one, one
            # wins.
            lock = self.__dict__.setdefault("_lock", WriteLock())
        return lock.held

    def __copy__(self) -> Self:
        # A shallow copy would share the buffer that pending rows are appended to.
        return copy.deepcopy(self)
