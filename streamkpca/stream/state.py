"""The state of a stream (pending rows, summary, refits, published axes), and the cell that holds it for a model."""

import copy
import secrets
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import WriteLock
from streamkpca._core.linalg import blas_threads, one_blas_thread, squared_norms
from streamkpca._core.reservoir import Reservoir, arrival_times
from streamkpca.components.refit import Candidates, RefitSettings, refit
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.basis import check_energy, check_squared_lengths
from streamkpca.dictionary.moments import RowSums
from streamkpca.errors import SparsityError, SparsityWarning
from streamkpca.kernels import Kernel
from streamkpca.rows.gaps import ColumnSums, gaps_in
from streamkpca.rows.parts import Rows, parts_of
from streamkpca.rows.validation import LARGEST_WEIGHT, Names, round_to_single
from streamkpca.stream.blocks import Block, BlockCutter, BlockPrefetcher, RowBuffer
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.summary import LEAST_DECAYED_WEIGHT, LEAST_TOTAL_WEIGHT, Summary, clamp_decay, decayed_weights

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Multiplications in a block. With fewer, handing it to another thread costs more than it saves: with 4 million (512
# rows of 64 features and 64 atoms) two threads were a fifth slower than one, with 9 million a seventh faster.
_WORTH_A_THREAD = 8_000_000

# While a stream is shorter, the scale of the kernel is settled again whenever its rows have doubled. The first 512 rows
# of servers and plants showed 10% to 60% of the spread of later ones; from 4,096 rows on it was right to a half.
ROWS_TO_SETTLE = 4096

# `fit` settles the scale on so many numbers (8 MiB) of the rows, or on so many rows if that is more. They are taken in
# runs of neighbours: evenly spaced rows could all have the same time of day.
_NUMBERS_TO_SETTLE, _LEAST_TO_SETTLE, _RUN = 2**20, 2048, 64


class Provisional(NamedTuple):
    """Axes made for readers before the first refit, and what they were made from."""

    settings: StreamSettings
    pending: RowBuffer
    snapshot: Snapshot


class Stream:
    """The state of a stream: everything that a model has learned.

    Rows of weight zero, among them those that were rejected, keep their positions in the stream.

    Notes
    -----
    Methods that advance a stream return the next one and do not change this one, so a call that is refused or fails
    changes nothing. Parts are replaced, never written to; only answers that take long are kept with the stream.
    """

    def __init__(self, settings: StreamSettings, n_features: int, names: Names | None) -> None:
        self.kernel = settings.kernel
        self.block_size = settings.block_size
        self.reservoir_size = settings.reservoir_size
        self.dtype = settings.dtype
        self.has_gaps = settings.has_gaps
        # Without a random_state the seed is drawn once, and then belongs to the stream.
        given = settings.random_state
        self.seed = secrets.randbits(63) if given is None else given
        self.n_features = n_features
        self.names = names
        self.summary: Summary | None = None
        # Rows, in whole blocks, before the first of positive weight; until that comes there is no summary.
        self.n_rows_before = 0
        self.n_rejected = 0
        self.pending = RowBuffer.empty(n_features, self.dtype)
        # The rows of all full blocks from the first that counts, until the scale of the kernel is final; then None.
        self.settling = None if self.kernel.is_settled else RowBuffer.empty(n_features, self.dtype)
        self.scheduled: Snapshot | None = None
        self.published: Snapshot | None = None
        self.provisional: Provisional | None = None
        self.n_rows_at_refit = 0
        self._continued: StreamSettings | None = None

    def __copy__(self) -> Self:
        # As `copy` does it, in a fifth of the time: every single row makes a stream.
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def n_rows(self) -> int:
        """Number of rows given, including pending ones."""
        return self.pending.n_rows + (self.summary.n_rows if self.summary else self.n_rows_before)

    # Checks

    def check_continued(self, settings: StreamSettings, where: str) -> None:
        """Refuse parameters that cannot change within a stream."""
        if settings is self._continued:
            return
        began = (self.kernel, self.block_size, self.reservoir_size, self.dtype)
        if (settings.kernel, settings.block_size, settings.reservoir_size, settings.dtype) != began:
            raise ValueError(
                f"{where}: kernel, block_size, reservoir_size and dtype cannot change within a stream; it began with "
                f"kernel={self.kernel!r}, block_size={self.block_size}, reservoir_size={self.reservoir_size}, "
                f"dtype={self.dtype!r}; set them back or start anew with fit"
            )
        if self.has_gaps != settings.has_gaps:
            raise ValueError(
                f"{where}: on_missing={settings.on_missing!r} is not how this stream began: it cannot change to or "
                "from 'marginal' within a stream; set it back or start anew with fit"
            )
        self._continued = settings

    def rounded(self, rows: Rows, where: str, *, finite: bool) -> Rows:
        """Round rows to the stream's precision; rows beyond its range are refused if `finite`, else made infinite."""
        return rows if self.dtype == "float64" else round_to_single(rows, where, finite=finite)

    def _check_mergeable(
        self, other: Self, settings: StreamSettings, other_settings: StreamSettings, where: str
    ) -> None:
        """Refuse a stream of other features, another precision, half-life or kernel."""
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
        if other.has_gaps and not self.has_gaps:
            raise ValueError(
                f"{where} expected a model of rows without gaps but got one with on_missing='marginal'; merge this one "
                "into that one"
            )
        if settings.half_life != other_settings.half_life:
            raise ValueError(
                f"{where} expected a model with half_life={settings.half_life} but got "
                f"half_life={other_settings.half_life}; set the same half_life, as weights that decay at different "
                "rates cannot be added"
            )
        own, others = (stream.summary.basis.kernel if stream.summary else stream.kernel for stream in (self, other))
        settled = own.is_settled and others.is_settled
        if own != others if settled else self.kernel != other.kernel:
            raise ValueError(
                f"{where} expected a model with the kernel {own!r} but got {others!r}; give all models the same, scale "
                "included: settle it on some rows once and pass kernel=first.kernel_ to the others"
            )

    def check_range(self, rows: Rows, weights: Array | float) -> None:
        """Refuse rows outside the kernel's range; among the pending rows, they would make every later call fail."""
        kernel = self.kernel if self.summary is None else self.summary.basis.kernel
        if kernel.is_stationary and not self.n_rows and (kernel.is_settled or not kernel.has_units):
            # The same for all rows, whatever the width, but exp(exp(...)) of 1 can be too large.
            origin = np.zeros((1, self.n_features))
            check_energy(kernel.settled(origin).program.diagonal(origin))
        _check_range(kernel, rows, weights, gaps=self.has_gaps)

    # The next stream

    def learned(self, rows: Rows, weights: Array | float, settings: StreamSettings, *, n_rejected: int = 0) -> "Stream":
        """Return the stream after rows (n, d), of weights (n,) or one weight for all.

        Every full block advances the summary, and refits the axes if that is due.
        """
        self.check_range(rows, weights)
        stream = copy.copy(self)
        if not n_rejected and self.pending.n_rows + len(rows) < self.block_size:
            stream.pending = self.pending.joined(rows[:], weights, self.block_size)
            return stream
        stream.n_rejected += n_rejected
        with one_blas_thread():
            stream._take(rows, _one_for_each(weights, len(rows)), settings, publish=True)
        return stream

    def fitted(self, rows: Rows, weights: Array | float, settings: StreamSettings, *, n_rejected: int) -> "Stream":
        """Return the stream after two passes over its first rows: the first chooses atoms, the second records.

        With a budget of atoms, a sample of all rows chooses them, as a short stream does that comes in random order.
        """
        stream = copy.copy(self)
        stream.n_rejected = n_rejected
        weights = _one_for_each(weights, len(rows))
        with one_blas_thread():
            stream.check_range(rows, weights)
            # A row of the first pass is followed by all others, so the scale is settled on rows from all over.
            kernel, stream.settling = stream.settled_on(*_spread_rows(rows, weights)), None
            _check_range(kernel, rows, weights, gaps=self.has_gaps)
            if settings.max_atoms is None:
                stream._take_all(rows, weights, settings, kernel)
            else:
                stream._choose_from_sample(rows, weights, settings, kernel)
            summary = stream.summary
            assert summary is not None
            summary.recount()
            sample, stats = summary.selection_sample, summary.atom_stats
            for start in range(0, len(rows), settings.block_size):
                block = slice(start, start + settings.block_size)
                summary.record(rows[block], np.ascontiguousarray(weights[block]), half_life=settings.half_life)
            # The first pass has aged these already, unless all rows have faded to nothing; the second aged them again.
            heaviest, total = float(sample.weights.sum()), summary.total_weight
            if heaviest > 2.0 * total:
                sample = sample.decayed(total / heaviest) if total > 0.0 else sample.emptied()
            summary.selection_sample = sample
            weights = np.minimum(stats.weights, total)
            summary.atom_stats = replace(summary.atom_stats, weights=weights)
            summary.renew_distribution()
            stream._publish_now(settings)
        return stream

    def _choose_from_sample(self, rows: Rows, weights: Array, settings: StreamSettings, kernel: Kernel) -> None:
        """Make a summary without moments, of atoms that a sample of the rows chooses."""
        size, half_life = settings.block_size, settings.half_life
        blocks = [slice(start, start + size) for start in range(0, len(rows), size)]
        summary = self._own_summary(settings, kernel)
        sample = summary.selection_sample
        if not any(_aged(weights, block, half_life).any() for block in reversed(blocks)):
            half_life = None
        for block in blocks:
            some = rows[block]
            times = arrival_times(self.seed, block.start, kernel.contents(some), 2)[1]
            sample = sample.add(some, _aged(weights, block, half_life), block.start, times)
        sample = sample.sorted()
        # An order that depends on nothing but the number of rows, as that of the draws depends on their contents.
        order = np.argsort(sample.positions)[np.random.default_rng(self.seed).permutation(len(sample))]
        chooser = Stream(replace(settings, kernel=kernel), self.n_features, None)
        chooser.summary = summary.chooser(len(order))
        chooser._take_all(
            sample.rows[order], sample.inclusion_weights()[order], replace(settings, half_life=None), kernel
        )
        if settings.moves_atoms:
            chooser.summary.move()
        summary.choose_from(sample, order, chooser.summary)
        self.summary = summary

    def refitted(self, settings: StreamSettings) -> "Stream":
        """Return the stream with axes of all rows published, outside the schedule of refits and without changing it."""
        stream = copy.copy(self)
        with one_blas_thread():
            stream.published = stream._snapshot_of_all(settings)
        return stream

    def without_rows(self, settings: StreamSettings) -> "Stream":
        """Return a stream of no rows, whose kernel is settled, that begins with the atoms of this one."""
        stream = Stream(
            replace(settings, kernel=self.settled_kernel(), random_state=self.seed), self.n_features, self.names
        )
        if self.summary is not None:
            with one_blas_thread():
                stream.summary = self.completed(settings).without_rows()
        return stream

    def forgotten(self, factor: float) -> "Stream":
        """Return the stream with the weights of all rows multiplied by `factor`."""
        stream = copy.copy(self)
        recorded = stream.summary.total_weight if stream.summary else 0.0
        factor = clamp_decay(factor, recorded + float(stream.pending.weights.sum()), LEAST_TOTAL_WEIGHT)
        if stream.summary:
            stream.summary = stream.summary.copy()
            stream.summary.forget(factor)
        stream.pending = stream.pending.decayed(factor)
        if stream.settling is not None:
            # A row that counted once stays one, or the stream would begin later when it is learned anew.
            stream.settling = stream.settling.decayed(factor, least=LEAST_DECAYED_WEIGHT)
        return stream

    def _take(self, rows: Rows, weights: Array, settings: StreamSettings, *, publish: bool) -> None:
        """Advance the summary by every full block, and keep the rest pending.

        Where the scale of the kernel changes, the stream is what it would be had it begun with that scale.
        """
        cutter = BlockCutter(self.pending, rows, weights, self.block_size)
        self.pending = RowBuffer.empty(self.n_features, self.dtype)
        first = 0
        if self.settling is not None:
            first, kernel = self._settle(cutter)
            known = self.settling
            if known.n_rows >= ROWS_TO_SETTLE:
                self.settling = None
            n_learned = 0 if self.summary is None else self.summary.n_rows - self.n_rows_before
            if self.summary is not None and kernel != self.summary.basis.kernel:
                self.summary = self.scheduled = self.published = None
                self.n_rows_at_refit = n_learned = 0
            if known.n_rows > n_learned:
                new = BlockCutter(
                    RowBuffer.empty(self.n_features),
                    known.rows[n_learned:],
                    known.weights[n_learned:],
                    self.block_size,
                )
                self._take_blocks(new, 0, settings, kernel, publish=publish)
        self._take_blocks(cutter, first, settings, publish=publish)
        self.pending = self.pending.joined(*cutter.block(cutter.n_blocks), self.block_size)

    def _settle(self, cutter: BlockCutter) -> tuple[int, Kernel]:
        """Add the next blocks to the rows that settle the scale, and return how many they are, and the kernel.

        A kernel stays until another would be clearly wider or narrower, so that most streams are learned only once.
        """
        kernel, known = self.summary.basis.kernel if self.summary else None, self.settling
        assert known is not None
        number = 0
        while number < cutter.n_blocks and known.n_rows < ROWS_TO_SETTLE:
            rows, weights = cutter.block(number)
            number += 1
            if not known.n_rows and not weights.any():
                self.n_rows_before += len(rows)
                continue
            known = known.joined(rows, weights, ROWS_TO_SETTLE + self.block_size)
            if known.n_rows >= ROWS_TO_SETTLE or (known.n_rows // self.block_size).bit_count() == 1:
                settled = self.settled_on(known.rows, known.weights)
                kernel = settled if kernel is None or not settled.is_near(kernel) else kernel
        self.settling = known
        return number, kernel or self.kernel

    def _take_blocks(
        self, cutter: BlockCutter, first: int, settings: StreamSettings, kernel: Kernel | None = None, *, publish: bool
    ) -> None:
        """Advance the summary by the full blocks from number `first` on."""

        def prepare(number: int) -> Block:
            # Blocks are only prefetched once there is a summary.
            assert self.summary is not None
            return self.summary.prepare_block(*cutter.block(number), settings.half_life)

        n_threads = blas_threads() if cutter.n_blocks - first > 2 and self.kernel.is_compiled else 1
        with BlockPrefetcher(n_threads) as prefetcher:
            for number in range(first, cutter.n_blocks):
                last = min(number + self._n_prefetchable(settings), cutter.n_blocks) - 1
                block = prefetcher.block(number, last, prepare)
                self._advance(settings, *cutter.block(number), kernel=kernel, block=block)
                if publish and self._refit_is_due(settings):
                    self._publish_now(settings)

    def _take_all(self, rows: Rows, weights: Array, settings: StreamSettings, kernel: Kernel) -> None:
        """Advance the summary by all rows, the last block being shorter; publish nothing."""
        cutter = BlockCutter(self.pending, rows, weights, self.block_size)
        self._take_blocks(cutter, 0, settings, kernel, publish=False)
        rest = cutter.block(cutter.n_blocks)
        if len(rest[0]):
            self._advance(settings, *rest, kernel=kernel)
            self.pending = RowBuffer.empty(self.n_features, self.dtype)

    def _merge(self, other: Self, settings: StreamSettings, other_settings: StreamSettings) -> None:
        """Add another stream, including its pending rows."""
        self.n_rejected += other.n_rejected
        if self.summary is None and other.summary is None and not self.kernel.is_settled:
            # The kernel's scale is not settled yet, so the other stream is nothing but rows. Those counted before its
            # first row of positive weight are counted here too, and so come before the pending rows.
            self.n_rows_before += other.n_rows_before
            self.check_range(other.pending.rows, other.pending.weights)
            self._take(other.pending.rows, other.pending.weights, settings, publish=False)
            return
        kernel = (self if self.summary else other).settled_kernel()
        self.settling = None
        summary = self.completed(settings, kernel)
        summary.merge(other.completed(other_settings, kernel))
        if settings.max_atoms is not None and summary.basis.size > settings.max_atoms:
            summary.shrink(settings.max_atoms)
            if settings.moves_atoms:
                summary.move()
        self.summary = summary
        self.pending = RowBuffer.empty(self.n_features, self.dtype)

    def _n_prefetchable(self, settings: StreamSettings) -> int:
        """Return how many of the next blocks are worth preparing ahead."""
        if self.summary is None:
            return 0
        m, d = self.summary.basis.size, self.n_features
        return (
            self.summary.n_prefetchable(settings.max_atoms) if self.block_size * m * (m + d) >= _WORTH_A_THREAD else 0
        )

    def _advance(
        self,
        settings: StreamSettings,
        rows: Array,
        weights: Array,
        *,
        kernel: Kernel | None = None,
        block: Block | None = None,
    ) -> None:
        """Advance the summary by a block; before the first row of positive weight, blocks are only counted."""
        if self.summary is None and not weights.any():
            self.n_rows_before += len(rows)
        else:
            self.summary = self._advanced(settings, rows, weights, kernel=kernel, block=block)

    def _advanced(
        self,
        settings: StreamSettings,
        rows: Array,
        weights: Array,
        *,
        kernel: Kernel | None = None,
        block: Block | None = None,
    ) -> Summary:
        """Return a summary of the rows so far and these, which may have been prepared as a block."""
        summary = self._own_summary(settings, kernel)
        if settings.max_atoms is not None:
            summary.shrink(settings.max_atoms)
        if len(rows):
            summary.advance(
                rows,
                weights,
                max_atoms=settings.max_atoms,
                tolerance=settings.tolerance,
                half_life=settings.half_life,
                moves_atoms=settings.moves_atoms,
                block=block,
            )
        return summary

    def _own_summary(self, settings: StreamSettings, kernel: Kernel | None = None) -> Summary:
        """Return a copy of the summary, or an empty one with a kernel settled on the pending rows or given."""
        if self.summary is not None:
            return self.summary.copy()
        return Summary(
            kernel or self.settled_kernel(),
            self.n_features,
            max_atoms=settings.max_atoms,
            reservoir_size=self.reservoir_size,
            seed=self.seed,
            n_rows=self.n_rows_before,
            dtype=self.dtype,
            has_gaps=self.has_gaps,
        )

    def settled_kernel(self) -> Kernel:
        """Return the kernel with its scale as it is now; before the first full block, settled on the pending rows."""
        return self.summary.basis.kernel if self.summary else self.settled_on(self.pending.rows, self.pending.weights)

    def settled_on(self, rows: Array, weights: Array) -> Kernel:
        """Return the kernel with its scale settled on rows of positive weight."""
        if self.kernel.is_settled:
            return self.kernel
        if not weights.any():
            # A query may come before any row of positive weight; then any scale will do, and is not kept.
            return self.kernel.settled(np.zeros((1, rows.shape[1])))
        return self.kernel.settled(self._filled(rows, weights), _within_range(weights))

    def _filled(self, rows: Array, weights: Array) -> Array:
        """Complete rows (n, d) by the expected numbers, for the choice of a scale."""
        if not self.has_gaps or gaps_in(rows) is None:
            return rows
        return ColumnSums.of(rows, weights).distribution().completed(rows)

    # Refits

    def _refit_is_due(self, settings: StreamSettings) -> bool:
        # While the stream is young, a growth by a quarter comes first.
        n_atoms = self.summary.basis.size if self.summary else 0
        interval = min(settings.refit_interval(n_atoms), self.n_rows_at_refit / 4)
        return self.summary is not None and self.n_rows - self.n_rows_at_refit >= interval

    def _publish_now(self, settings: StreamSettings) -> None:
        """Publish axes of all rows; the next scheduled refit counts from here."""
        self.scheduled = self.published = self._snapshot_of_all(settings)
        self.n_rows_at_refit = self.n_rows

    def _snapshot_of_all(self, settings: StreamSettings) -> Snapshot:
        """Make a snapshot of all rows, including pending ones, without changing the stream.

        It starts from the last scheduled snapshot, so that snapshots published on demand have no effect on later ones.
        It is prepared for single rows at once, for 4% to 13% of the time of the refit; otherwise the first of them
        took 90 to 180 us with 128 atoms, where others take 5.
        """
        summary, atoms = self.refit_input(settings)
        known = summary.basis.kernel, atoms, summary.moments
        sample = summary.reservoir.mapped(summary.basis.completed).kept_rows.astype(self.dtype, copy=False)

        def fitted(chosen: RefitSettings) -> Snapshot:
            snapshot = refit(*known, chosen, sample, self.scheduled)
            return replace(snapshot, distribution=summary.basis.distribution).ready()

        try:
            return fitted(settings.refit)
        except SparsityError as error:
            # A stream must not stop here, and the last axes may be those of a much older stream.
            warnings.warn(f"{error}; until then all atoms are active", SparsityWarning, stacklevel=4)
            everything = replace(settings.refit, noise_variance=None, n_active=None, axes="ritz")
            return fitted(everything)

    # Answers to readers, which do not change the stream

    def completed(self, settings: StreamSettings, kernel: Kernel | None = None) -> Summary:
        """Return a summary of all rows, including pending ones."""
        return self._advanced(settings, self.pending.rows, self.pending.weights, kernel=kernel)

    def width_scores(self) -> dict[str, Array]:
        """Compare widths for the kernel's parts on all rows that settle the scale, later on a sample of all rows."""
        rows, weights = self.pending.rows, self.pending.weights
        if self.settling is not None and self.settling.n_rows:
            rows, weights = self.settling.rows, self.settling.weights
        elif self.summary is not None:
            # Neighbours in the stream are held out together.
            rows, weights, _ = self.summary.selection_sample.in_stream_order()
        if not weights.any():
            rows, weights = np.zeros((1, self.n_features)), np.ones(1)
        return self.settled_kernel().width_scores(self._filled(rows, weights), _within_range(weights))

    def refit_input(self, settings: StreamSettings) -> tuple[Summary, Candidates]:
        """Return what a refit starts from: a summary of all rows, and its atoms."""
        summary = self.completed(settings)
        basis = summary.basis
        return summary, Candidates(basis.atoms, summary.atom_stats.positions, basis.factor, are_atoms=True)

    def sampled(self, settings: StreamSettings) -> tuple[Reservoir, RowSums]:
        """Return the sample for certificates and the stream's totals, without searching for atoms."""
        summary = self._own_summary(settings)
        return summary.sampled(self.pending.rows, self.pending.weights, settings.half_life)

    def rows_for_selection(self) -> tuple[Array, Array, Positions]:
        """Return rows (n, d), weights (n,) and positions of what atoms were chosen from, pending rows included."""
        pending, summary = self.pending, self.summary
        positions = self.n_rows - pending.n_rows + np.arange(pending.n_rows)
        if summary is None:
            return pending.rows, pending.weights, positions
        rows, weights, sampled = summary.selection_sample.in_stream_order()
        return (
            np.concatenate([rows, pending.rows]),
            np.concatenate([weights, pending.weights]),
            np.concatenate([sampled, positions]),
        )

    @property
    def holds_all_rows(self) -> bool:
        """Whether the rows that atoms are chosen from are all rows of positive weight."""
        return self.summary is None or not self.summary.selection_sample.is_full

    def relearned(self, rows: Array, weights: Array, settings: StreamSettings, kernel: Kernel) -> Summary:
        """Return the summary of a stream of these rows alone, which decay no further."""
        other = Stream(replace(settings, kernel=kernel, half_life=None, random_state=self.seed), self.n_features, None)
        other._take_all(rows, weights, replace(settings, half_life=None), kernel)
        assert other.summary is not None
        return other.summary

    def answering(self, settings: StreamSettings) -> Snapshot:
        """Return the published snapshot, or before the first refit one of all rows so far, kept until more come."""
        if self.published is not None:
            return self.published
        pending, made = self.pending, self.provisional
        # Rows may come while another thread makes the snapshot; the rows that it was made from tell if it is current.
        if made is None or made.settings != settings or made.pending is not pending:
            with one_blas_thread():
                made = Provisional(settings, pending, self._snapshot_of_all(settings))
            self.provisional = made
        return made.snapshot

    def snapshots(self) -> Iterator[tuple[str, Snapshot]]:
        """Yield each snapshot once, with its name."""
        if self.scheduled is not None:
            yield "scheduled", self.scheduled
        if self.published is not None and self.published is not self.scheduled:
            yield "published", self.published


def _check_range(kernel: Kernel, rows: Rows, weights: Array | float, *, gaps: bool = False) -> None:
    is_bounded = kernel.is_settled and kernel.is_stationary
    if is_bounded and not kernel.has_units:
        return
    for place, part in parts_of(rows):
        counting = part[weights[place] > 0.0] if isinstance(weights, np.ndarray) else part
        if gaps and (missing := gaps_in(counting)) is not None:
            # What they will be completed by is among other rows.
            counting = np.where(missing, 0.0, counting)
        kernel.check_range(counting, "kernel")
        if not is_bounded:
            with one_blas_thread(), np.errstate(over="ignore"):
                if kernel.is_settled:
                    check_energy(kernel.program.diagonal(counting))
                else:
                    check_squared_lengths(squared_norms(counting))


def _one_for_each(weights: Array | float, count: int) -> Array:
    """Return a weight for each row; one weight for all takes no memory."""
    return weights if isinstance(weights, np.ndarray) else np.broadcast_to(np.float64(weights), count)


def _aged(weights: Array, block: slice, half_life: float | None) -> Array:
    """Return the weights that the rows of a block have after all rows, of weights (n,)."""
    return decayed_weights(np.ascontiguousarray(weights[block]), half_life, max(len(weights) - block.stop, 0))[1]


def _spread_rows(rows: Rows, weights: Array) -> tuple[Array, Array]:
    """Return all rows (n, d) and weights (n,), or of many those in runs of neighbours from all over.

    Runs, because neighbours are compared where the scale is settled.
    """
    n_runs = -(-len(rows) // _RUN)
    most = max(_NUMBERS_TO_SETTLE // rows.shape[1], _LEAST_TO_SETTLE) // _RUN
    if n_runs <= most:
        return rows[:], weights
    starts = np.linspace(0, n_runs - 1, most).astype(np.intp) * _RUN
    pieces = [slice(start, start + _RUN) for start in starts.tolist()]
    chosen = np.concatenate([weights[piece] for piece in pieces])
    if not chosen.any():
        # All weight is in a few rows elsewhere.
        counting = np.flatnonzero(weights)[: most * _RUN].tolist()
        pieces = [slice(position, position + 1) for position in counting]
        chosen = np.concatenate([weights[piece] for piece in pieces])
    taken, filled = np.empty((len(chosen), rows.shape[1])), 0
    for piece in pieces:
        some = rows[piece]
        taken[filled : filled + len(some)] = some
        filled += len(some)
    return taken, chosen


def _within_range(weights: Array) -> Array:
    """Return weights (n,), or multiples of them where `forget` has reduced some below the smallest that is allowed."""
    if weights.min(where=weights > 0.0, initial=1.0) >= 1.0 / LARGEST_WEIGHT and weights.max() <= LARGEST_WEIGHT:
        return weights
    weights = weights / weights.max()
    return np.where(weights < 1.0 / LARGEST_WEIGHT, 0.0, weights)


def merged_streams(
    own: Stream | None, others: Iterable[tuple[Stream, StreamSettings]], settings: StreamSettings, where: str
) -> Stream | None:
    """Return the union of several streams, with new axes; None if none has seen a row."""
    merged = copy.copy(own)
    for other, other_settings in others:
        if merged is None:
            merged = Stream(replace(settings, kernel=other.kernel), other.n_features, other.names)
        merged.check_continued(settings, where)
        merged._check_mergeable(other, settings, other_settings, where)
        with one_blas_thread():
            merged._merge(other, settings, other_settings)
    if merged is not None:
        with one_blas_thread():
            merged._publish_now(settings)
    return merged


def kernel_settled_by(rows: Array, weights: Array, settings: StreamSettings) -> Kernel:
    """Return the kernel with the scale that a stream of rows (n, d), weights (n,), settles."""
    stream = Stream(settings, rows.shape[1], None)
    if stream.kernel.is_settled:
        return stream.kernel
    cutter = BlockCutter(stream.pending, rows, weights, stream.block_size)
    kernel = stream._settle(cutter)[1]
    return kernel if kernel.is_settled else stream.settled_on(rows, weights)


class StreamCell:
    """The current stream of a model (None before the first row), and the lock that its writers hold.

    Notes
    -----
    A writer holds the lock, makes the next stream from the current one, and replaces it by one assignment. So readers
    see one of the two, and a call that fails changes nothing. A reader must read `stream` only once per query.
    """

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.write_lock = WriteLock()

    def as_it_is(self) -> "StreamCell":
        """Return a cell that keeps the present stream, whatever writers do with this one."""
        cell = StreamCell()
        cell.stream = self.stream
        return cell
