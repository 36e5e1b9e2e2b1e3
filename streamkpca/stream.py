"""The state of a stream: blocks, the refit schedule, publishing."""

import secrets
import warnings
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca._blas import blas_threads, one_blas_thread
from streamkpca.basis import check_energy
from streamkpca.block import Block
from streamkpca.errors import SparsityError, SparsityWarning
from streamkpca.factor import squared_norms
from streamkpca.fading import LEAST_TOTAL_WEIGHT, possible_factor
from streamkpca.kernels import Kernel
from streamkpca.lookahead import Lookahead
from streamkpca.moments import Moments
from streamkpca.refit import refit
from streamkpca.snapshot import Snapshot
from streamkpca.stream_settings import StreamSettings
from streamkpca.summary import Summary
from streamkpca.validation import Names, round_to_single
from streamkpca.weighting import Candidates

Array = npt.NDArray[np.float64]

# Multiplications in a block. With less, handing it to another thread costs more than it saves: at 512 rows of 64
# features and 64 atoms, 4 million, two threads were a fifth slower than one; at 9 million a seventh faster.
_WORTH_A_THREAD = 8_000_000


class Stream:
    """All that a stream has taught.

    A call works on a shallow copy and the model takes the copy over when nothing failed, so a refused or broken call
    changes nothing. Parts are replaced, never written to, with one exception: rows are appended to the buffer behind
    the first `n_pending`, where no older copy looks.
    """

    n_pending: int
    _buffer: Array
    _buffer_weights: Array

    def __init__(self, settings: StreamSettings, n_features: int, names: Names | None) -> None:
        self.kernel = settings.kernel
        self.block_size = settings.block_size
        self.reservoir_size = settings.reservoir_size
        self.dtype = settings.dtype
        # A seed that nobody names is drawn once, and then belongs to the stream.
        named = settings.random_state
        self.seed = secrets.randbits(63) if named is None else named
        self.n_features = n_features
        self.names = names
        self.summary: Summary | None = None
        self.scheduled: Snapshot | None = None
        self.published: Snapshot | None = None
        self.provisional: tuple[StreamSettings, Snapshot] | None = None
        self.n_rows_at_refit = 0
        self._continued: StreamSettings | None = None
        self._new_buffer()

    @property
    def n_rows(self) -> int:
        """Rows given, pending ones included."""
        return self.n_pending + (self.summary.n_rows if self.summary else 0)

    def check_continued(self, settings: StreamSettings, where: str) -> None:
        """Refuse parameters that the rows so far were not worked off with."""
        if settings is self._continued:
            return
        began = (self.kernel, self.block_size, self.reservoir_size, self.dtype)
        if (settings.kernel, settings.block_size, settings.reservoir_size, settings.dtype) != began:
            raise ValueError(
                f"{where}: kernel, block_size, reservoir_size and dtype cannot change within a stream; it began with "
                f"kernel={self.kernel!r}, block_size={self.block_size}, reservoir_size={self.reservoir_size}, "
                f"dtype={self.dtype!r}; set them back or start anew with fit"
            )
        self._continued = settings

    def check_mergeable(
        self, other: Self, settings: StreamSettings, other_settings: StreamSettings, where: str
    ) -> None:
        """Refuse a stream of other features, another kernel, or another clock."""
        if self.n_features != other.n_features:
            raise ValueError(
                f"{where} expected a model of {self.n_features} features but got one of {other.n_features}; "
                "merge models of the same columns"
            )
        if self.names is not None and other.names is not None and self.names.tolist() != other.names.tolist():
            raise ValueError(
                f"{where} expected a model of the features {self.names.tolist()} but got {other.names.tolist()}; "
                "merge models of the same columns in the same order"
            )
        if self.dtype != other.dtype:
            raise ValueError(
                f"{where} expected a model with dtype={self.dtype!r} but got dtype={other.dtype!r}; "
                "merge models that keep rows in the same precision"
            )
        if settings.half_life != other_settings.half_life:
            raise ValueError(
                f"{where} expected a model with half_life={settings.half_life} but got "
                f"half_life={other_settings.half_life}; rows that fade by different clocks cannot be added up"
            )
        own, others = (stream.summary.basis.kernel if stream.summary else stream.kernel for stream in (self, other))
        settled = own.is_settled and others.is_settled
        if own != others if settled else self.kernel != other.kernel:
            raise ValueError(
                f"{where} expected a model with the kernel {own!r} but got {others!r}; give all models the same, scale "
                "included: settle it on some rows once and pass kernel=first.kernel_ on"
            )

    def rounded(self, rows: Array, where: str) -> Array:
        """Round rows to what this stream keeps of them; refuse those that are beyond its numbers."""
        return rows if self.dtype == "float64" else round_to_single(rows, where)

    def append(self, rows: Array, weights: Array | float) -> bool:
        """Append rows, of some weight each or all of the same, to the pending ones, in place, unless they fill a block.

        The last step, counting them, makes them part of the stream.
        """
        stop = self.n_pending + len(rows)
        if stop >= self.block_size:
            return False
        self._check_range(rows)
        self._buffer[self.n_pending : stop], self._buffer_weights[self.n_pending : stop] = rows, weights
        self.provisional = None
        self.n_pending = stop
        return True

    def take(self, rows: Array, weights: Array, settings: StreamSettings, *, publish: bool) -> None:
        """Append rows; every block that fills advances the summary, and refits it when that is due."""
        self._check_range(rows)
        self.provisional = None
        waiting, waiting_weights = self._pending()
        missing = self.block_size - len(waiting)
        first = rows[:missing], weights[:missing]
        if len(waiting):
            first = np.concatenate([waiting, first[0]]), np.concatenate([waiting_weights, first[1]])
        n_blocks = (len(waiting) + len(rows)) // self.block_size
        self._new_buffer()

        def piece(number: int) -> tuple[Array, Array]:
            start = missing + (number - 1) * self.block_size
            place = slice(start, start + self.block_size)
            return (rows[place], weights[place]) if number else first

        def look(number: int) -> Block:
            # Only asked for while blocks are calm, so there is one.
            assert self.summary is not None
            return self.summary.look(*piece(number), settings.half_life)

        with Lookahead(blas_threads() if n_blocks > 2 and self.kernel.is_compiled else 1) as lookahead:
            for number in range(n_blocks):
                last = min(number + self._calm_blocks(settings), n_blocks) - 1
                block = lookahead.block(number, last, look)
                self.summary = self._advanced(settings, *piece(number), block=block)
                if publish and self._refit_is_due(settings):
                    self.publish_now(settings)
        self.append(*piece(n_blocks))

    def flush(self, settings: StreamSettings) -> None:
        """Advance the summary by the pending rows."""
        if self.n_pending:
            self.summary = self._advanced(settings, *self._pending())
            self._new_buffer()

    def forget(self, factor: float) -> None:
        """Let all rows given so far count `factor` times what they did."""
        self.provisional = None
        pending = float(self._pending()[1].sum())
        recorded = self.summary.total_weight if self.summary else 0.0
        factor = possible_factor(factor, recorded + pending, LEAST_TOTAL_WEIGHT)
        if self.summary:
            self.summary = self.summary.copy()
            self.summary.forget(factor)
        # A buffer of its own: older copies of this stream look at the rows that are there.
        self._buffer_weights = self._buffer_weights.copy()
        self._buffer_weights[: self.n_pending] *= factor

    def merge(self, other: Self, settings: StreamSettings, other_settings: StreamSettings) -> None:
        """Take in what another stream has learned, its pending rows included."""
        self.provisional = None
        if self.summary is None and other.summary is None and not self.kernel.is_settled:
            # Nothing has settled the kernel's scale yet: rows are all that there is.
            self.take(*other._pending(), settings, publish=False)
            return
        first = self if self.summary else other
        kernel = first._settled_kernel(first._pending()[0])
        summary = self._advanced(settings, *self._pending(), kernel=kernel)
        summary.merge(other._advanced(other_settings, *other._pending(), kernel=kernel))
        if settings.max_atoms is not None:
            summary.shrink(settings.max_atoms)
        self.summary = summary
        self._new_buffer()

    def publish_now(self, settings: StreamSettings) -> None:
        """Publish outside the schedule, which begins anew from here."""
        self.scheduled = self.published = self.publish(settings)
        self.n_rows_at_refit = self.n_rows

    def publish(self, settings: StreamSettings) -> Snapshot:
        """Make a snapshot of all rows, pending ones included, and leave the stream where it is.

        It starts from the last scheduled one: what is published in between on demand leaves no trace. It is ready for
        single rows: left to the first of them, that took 90 to 180 us with 128 atoms, where others take 5. It takes 4%
        to 13% of what the refit does.
        """
        return self._refitted(settings).ready()

    def _refitted(self, settings: StreamSettings) -> Snapshot:
        kernel, atoms, moments = self.state(settings)
        try:
            return refit(kernel, atoms, moments, settings.refit, self.scheduled)
        except SparsityError as error:
            # A stream must go on: the last axes stay, and before there are any, all atoms make them.
            kept = "all atoms are used" if self.scheduled is None else "the last axes stay"
            warnings.warn(f"{error}; until then {kept}", SparsityWarning, stacklevel=3)
            if self.scheduled is not None:
                return self.scheduled
            every_atom = replace(settings.refit, noise_variance=None, n_active=None, axes="ritz")
            return refit(kernel, atoms, moments, every_atom)

    def completed(self, settings: StreamSettings) -> Summary:
        """Return a summary of all rows, pending ones included, and leave the stream where it is."""
        return self._advanced(settings, *self._pending())

    def state(self, settings: StreamSettings) -> tuple[Kernel, Candidates, Moments]:
        """Return what a refit sees, pending rows included."""
        summary = self.completed(settings)
        basis = summary.basis
        atoms = Candidates(basis.atoms, summary.tenure.positions, basis.factor, are_atoms=True)
        return basis.kernel, atoms, summary.moments

    def read_provisional(self, settings: StreamSettings) -> Snapshot:
        """Answer readers before the first scheduled refit, from the rows so far; kept until rows come."""
        if self.provisional is None or self.provisional[0] != settings:
            self.provisional = settings, self.publish(settings)
        return self.provisional[1]

    def _check_range(self, rows: Array) -> None:
        """Refuse rows that the kernel could not take, while the call can still be refused.

        Among the pending rows they would stop every later call.
        """
        kernel = self.kernel if self.summary is None else self.summary.basis.kernel
        if not kernel.is_settled:
            with np.errstate(over="ignore"):
                check_energy(squared_norms(rows))
        elif not kernel.is_stationary:
            with one_blas_thread():
                check_energy(kernel.program.diagonal(rows))

    def _pending(self) -> tuple[Array, Array]:
        return self._buffer[: self.n_pending].astype(np.float64, copy=False), self._buffer_weights[: self.n_pending]

    def _settled_kernel(self, rows: Array) -> Kernel:
        return self.summary.basis.kernel if self.summary else self.kernel.settled(rows)

    def _calm_blocks(self, settings: StreamSettings) -> int:
        """Say how many blocks to come are worth looking at ahead."""
        if self.summary is None:
            return 0
        m, d = self.summary.basis.size, self.n_features
        return self.summary.calm_blocks(settings.max_atoms) if self.block_size * m * (m + d) >= _WORTH_A_THREAD else 0

    def _advanced(
        self,
        settings: StreamSettings,
        rows: Array,
        weights: Array,
        *,
        kernel: Kernel | None = None,
        block: Block | None = None,
    ) -> Summary:
        """Return a summary of the rows before and these, which may have been looked at already."""
        if self.summary is None:
            summary = Summary(
                kernel or self._settled_kernel(rows),
                self.n_features,
                max_atoms=settings.max_atoms,
                reservoir_size=self.reservoir_size,
                seed=self.seed,
                dtype=self.dtype,
            )
        else:
            summary = self.summary.copy()
        if settings.max_atoms is not None:
            summary.shrink(settings.max_atoms)
        if len(rows):
            summary.advance(
                rows,
                weights,
                max_atoms=settings.max_atoms,
                tolerance=settings.tolerance,
                half_life=settings.half_life,
                block=block,
            )
        return summary

    def _refit_is_due(self, settings: StreamSettings) -> bool:
        # While the stream is young a growth by a quarter comes first.
        n_atoms = self.summary.basis.size if self.summary else 0
        interval = min(settings.refit_interval(n_atoms), self.n_rows_at_refit / 4)
        return self.n_rows - self.n_rows_at_refit >= interval

    def _new_buffer(self) -> None:
        self.n_pending = 0
        self._buffer = np.empty((self.block_size, self.n_features), dtype=self.dtype)
        self._buffer_weights = np.empty(self.block_size)
