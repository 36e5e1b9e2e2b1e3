"""The state of a stream: blocks, the refit schedule, publishing."""

import secrets
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.blas import blas_threads, one_blas_thread
from streamkpca._core.triangular import squared_norms
from streamkpca._core.validation import LARGEST_WEIGHT, Names, round_to_single
from streamkpca.components.refit import Candidates, refit
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.basis import check_energy
from streamkpca.errors import SparsityError, SparsityWarning
from streamkpca.kernels import Kernel
from streamkpca.stream.blocks import Block, BlockPrefetcher
from streamkpca.stream.buffer import RowBuffer
from streamkpca.stream.decay import LEAST_TOTAL_WEIGHT, clamp_decay
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.summary import Summary

Array = npt.NDArray[np.float64]

# Multiplications in a block. With less, handing it to another thread costs more than it saves: at 512 rows of 64
# features and 64 atoms, 4 million, two threads were a fifth slower than one; at 9 million a seventh faster.
_WORTH_A_THREAD = 8_000_000


class Stream:
    """All that a stream has taught.

    A call works on a shallow copy and the model takes the copy over when nothing failed, so a refused or broken call
    changes nothing. Parts are replaced, never written to. Where a single assignment does it, it is made in place.

    Rows that count nothing, among them those that were rejected, keep their positions in the stream.
    """

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
        # Rows before the first that counts, in whole blocks; there is no summary so far.
        self.n_rows_before = 0
        self.n_rejected = 0
        self.pending = RowBuffer.none(n_features, self.dtype)
        self.scheduled: Snapshot | None = None
        self.published: Snapshot | None = None
        self.provisional: tuple[StreamSettings, RowBuffer, Snapshot] | None = None
        self.n_rows_at_refit = 0
        self._continued: StreamSettings | None = None

    @property
    def n_rows(self) -> int:
        """Rows given, pending ones included."""
        return self.pending.n_rows + (self.summary.n_rows if self.summary else self.n_rows_before)

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

    def rounded(self, rows: Array, where: str, *, finite: bool) -> Array:
        """Round rows to what this stream keeps of them; refuse those beyond its numbers, or make them infinite."""
        return rows if self.dtype == "float64" else round_to_single(rows, where, finite=finite)

    def snapshots(self) -> Iterator[tuple[str, Snapshot]]:
        """Go through the axes that are kept by name, each once."""
        if self.scheduled is not None:
            yield "scheduled", self.scheduled
        if self.published is not None and self.published is not self.scheduled:
            yield "published", self.published

    def append(self, rows: Array, weights: Array | float) -> bool:
        """Append rows, each of its weight or all of one, to the pending ones, in place, unless they fill a block."""
        if self.pending.n_rows + len(rows) >= self.block_size:
            return False
        self._check_range(rows, weights)
        self.pending = self.pending.joined(rows, weights, self.block_size)
        return True

    def take(self, rows: Array, weights: Array, settings: StreamSettings, *, publish: bool) -> None:
        """Append rows; every block that fills advances the summary, and refits it when that is due."""
        self._check_range(rows, weights)
        pending = self.pending
        missing = self.block_size - pending.n_rows
        first = rows[:missing], weights[:missing]
        if pending.n_rows:
            first = np.concatenate([pending.rows, first[0]]), np.concatenate([pending.weights, first[1]])
        n_blocks = (pending.n_rows + len(rows)) // self.block_size
        self.pending = RowBuffer.none(self.n_features, self.dtype)

        def piece(number: int) -> tuple[Array, Array]:
            start = missing + (number - 1) * self.block_size
            place = slice(start, start + self.block_size)
            return (rows[place], weights[place]) if number else first

        def prepare(number: int) -> Block:
            # Only asked for while blocks are calm, so there is one.
            assert self.summary is not None
            return self.summary.prepare_block(*piece(number), settings.half_life)

        with BlockPrefetcher(blas_threads() if n_blocks > 2 and self.kernel.is_compiled else 1) as prefetcher:
            for number in range(n_blocks):
                last = min(number + self._n_prefetchable(settings), n_blocks) - 1
                block = prefetcher.block(number, last, prepare)
                self._advance(settings, *piece(number), block=block)
                if publish and self._refit_is_due(settings):
                    self.publish_now(settings)
        self.pending = self.pending.joined(*piece(n_blocks), self.block_size)

    def flush(self, settings: StreamSettings) -> None:
        """Advance the summary by the pending rows."""
        if self.pending.n_rows:
            self._advance(settings, self.pending.rows, self.pending.weights)
            self.pending = RowBuffer.none(self.n_features, self.dtype)

    def forget(self, factor: float) -> None:
        """Let all rows given so far count `factor` times what they did."""
        pending = float(self.pending.weights.sum())
        recorded = self.summary.total_weight if self.summary else 0.0
        factor = clamp_decay(factor, recorded + pending, LEAST_TOTAL_WEIGHT)
        if self.summary:
            self.summary = self.summary.copy()
            self.summary.forget(factor)
        self.pending = self.pending.decayed(factor)

    def merge(self, other: Self, settings: StreamSettings, other_settings: StreamSettings) -> None:
        """Take in what another stream has learned, its pending rows included."""
        self.n_rejected += other.n_rejected
        if self.summary is None and other.summary is None and not self.kernel.is_settled:
            # Nothing has settled the kernel's scale yet: rows are all that there is. Those that did not count in the
            # other stream move before those that wait here, where they can be counted.
            self.n_rows_before += other.n_rows_before
            self.take(other.pending.rows, other.pending.weights, settings, publish=False)
            return
        kernel = (self if self.summary else other)._settled_kernel()
        summary = self.completed(settings, kernel)
        summary.merge(other.completed(other_settings, kernel))
        if settings.max_atoms is not None:
            summary.shrink(settings.max_atoms)
        self.summary = summary
        self.pending = RowBuffer.none(self.n_features, self.dtype)

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
        summary, atoms = self.state(settings)
        known = summary.basis.kernel, atoms, summary.moments
        sample = summary.reservoir.kept_rows
        try:
            return refit(*known, settings.refit, sample, self.scheduled)
        except SparsityError as error:
            # A stream must go on: the last axes stay, and before there are any, all atoms make them.
            kept = "all atoms are used" if self.scheduled is None else "the last axes stay"
            warnings.warn(f"{error}; until then {kept}", SparsityWarning, stacklevel=3)
            if self.scheduled is not None:
                return self.scheduled
            return refit(*known, replace(settings.refit, noise_variance=None, n_active=None, axes="ritz"), sample)

    def completed(self, settings: StreamSettings, kernel: Kernel | None = None) -> Summary:
        """Return a summary of all rows, pending ones included, and leave the stream where it is."""
        pending = self.pending
        return self._advanced(settings, pending.rows, pending.weights, kernel=kernel)

    def state(self, settings: StreamSettings) -> tuple[Summary, Candidates]:
        """Return what a refit sees, pending rows included: a summary, and its atoms."""
        summary = self.completed(settings)
        basis = summary.basis
        return summary, Candidates(basis.atoms, summary.atom_stats.positions, basis.factor, are_atoms=True)

    def read_provisional(self, settings: StreamSettings) -> Snapshot:
        """Answer readers before the first scheduled refit, from the rows so far; kept until rows come."""
        pending, made = self.pending, self.provisional
        # Rows may come while another thread makes the answers: what they are made of says whether they still hold.
        if made is None or made[0] != settings or made[1] is not pending:
            made = settings, pending, self.publish(settings)
            self.provisional = made
        return made[2]

    def _check_range(self, rows: Array, weights: Array | float) -> None:
        """Refuse rows that the kernel could not take, while the call can still be refused.

        Among the pending rows they would stop every later call.
        """
        kernel = self.kernel if self.summary is None else self.summary.basis.kernel
        is_bounded = kernel.is_settled and kernel.is_stationary
        if is_bounded and not kernel.has_units:
            return
        counting = rows[weights > 0.0] if isinstance(weights, np.ndarray) else rows
        kernel.check_range(counting, "kernel")
        if is_bounded:
            return
        with one_blas_thread(), np.errstate(over="ignore"):
            check_energy(kernel.program.diagonal(counting) if kernel.is_settled else squared_norms(counting))

    def _settled_kernel(self, rows: Array | None = None, weights: Array | None = None) -> Kernel:
        """Return the kernel with its scale settled on rows that count; by default the pending ones."""
        if self.summary:
            return self.summary.basis.kernel
        if rows is None or weights is None:
            rows, weights = self.pending.rows, self.pending.weights
        if not weights.any():
            # A question may come before any row that counts: then any scale will do, and is not kept.
            return self.kernel.settled(np.zeros((1, rows.shape[1])))
        if weights.min(where=weights > 0.0, initial=1.0) < 1.0 / LARGEST_WEIGHT:
            # Rows that wait may have been forgotten to less than any row can weigh.
            weights = weights / weights.max()
            weights = np.where(weights < 1.0 / LARGEST_WEIGHT, 0.0, weights)
        return self.kernel.settled(rows, weights)

    def _n_prefetchable(self, settings: StreamSettings) -> int:
        """Say how many blocks to come are worth looking at ahead."""
        if self.summary is None:
            return 0
        m, d = self.summary.basis.size, self.n_features
        return (
            self.summary.n_prefetchable(settings.max_atoms) if self.block_size * m * (m + d) >= _WORTH_A_THREAD else 0
        )

    def _advance(self, settings: StreamSettings, rows: Array, weights: Array, *, block: Block | None = None) -> None:
        """Take in a block; what comes before any row that counts is only counted, as it settles no scale."""
        if self.summary is None and not weights.any():
            self.n_rows_before += len(rows)
        else:
            self.summary = self._advanced(settings, rows, weights, block=block)

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
                kernel or self._settled_kernel(rows, weights),
                self.n_features,
                max_atoms=settings.max_atoms,
                reservoir_size=self.reservoir_size,
                seed=self.seed,
                n_rows=self.n_rows_before,
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
        return self.summary is not None and self.n_rows - self.n_rows_at_refit >= interval
