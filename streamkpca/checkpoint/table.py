"""The table of everything that a checkpoint holds of a stream: each field's path, kind, shape and range."""

from typing import Any, Final

import numpy as np

from streamkpca._core.reservoir import Draws, Reservoir
from streamkpca.checkpoint.fields import AnyArray, whole_of
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.basis import AtomStats, Basis
from streamkpca.dictionary.moments import Moments, ProjectionLoss, RecordedMoments, RowSums
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Kernel
from streamkpca.rows.gaps import ColumnSums, RowDistribution
from streamkpca.stream.schedule import ResidualTrend, SearchSchedule
from streamkpca.stream.state import RowBuffer, State
from streamkpca.stream.summary import Summary


def _state(kernel: Kernel, names: list[str] | None, settling: RowBuffer | None, **rest: Any) -> State:
    if names is not None and len(names) != rest["n_features"]:
        raise CheckpointError(f"there are {len(names)} names for {rest['n_features']} columns")
    # The scale of a kernel that had to be passed is final.
    settling = None if kernel.is_settled else settling
    columns = None if names is None else np.array(names, dtype=object)
    return State(kernel=kernel, names=columns, settling=settling, **rest)


def _buffer(rows: AnyArray, weights: AnyArray) -> RowBuffer:
    return RowBuffer.of(rows, weights)


def make_reservoir(size: int, rows: AnyArray, **rest: AnyArray) -> Reservoir:
    """Return a sample of at most `size` rows."""
    if len(rows) > size:
        raise CheckpointError(f"a sample holds {len(rows)} rows but has room for {size}")
    return Reservoir(size, Draws(rows, **rest))


def _snapshot(weights: AnyArray, atoms: AnyArray, factor: AnyArray, **rest: Any) -> Snapshot:
    active = atoms[weights > 0.0]
    if len(active) != len(factor):
        raise CheckpointError(f"{len(active)} atoms have positive weights, but the factor is that of {len(factor)}")
    return Snapshot(weights=weights, atoms=atoms, active_atoms=active, span_atoms=atoms, factor=factor, **rest)


_CLASSES = (AtomStats, Basis, ColumnSums, Moments, ProjectionLoss, RecordedMoments, RowDistribution, RowSums)
# Lengths: d columns, m atoms, k active ones, q axes, n rows of the part; P and E are d, d, or of wide rows d and 0, 0.
STATE: Final = whole_of(
    """
    _state:
        kernel / kernel
        n_features / integer / / >= 1
        names / texts?
        block_size / integer / / >= 2
        reservoir_size n_rows_before n_rejected n_rows_at_refit / integer / / >= 0
        seed / large integer / / >= 0
        has_gaps / flag
    _buffer: pending
    _buffer: settling?
        rows / <f8 / nd / or NaN
        weights / <f8 / n / >= 0
    Summary: summary?
        seed / large integer / / >= 0
        n_rows / integer / / >= 0
        last_drift / integer? / / >= 0
    Basis: summary.basis
        kernel / kernel
        atoms / <f8 / md
        factor / <f8 / mm / diagonal > 0
        energy / <f8 / m
    AtomStats: summary.atom_stats
        positions / <i8 / m
        weights weight_since_admission / <f8 / m / >= 0
    RecordedMoments: summary.record
        -
    Moments: summary.record.settled
    RowSums: summary.record.recent?
        total_weight total_squared_weight largest_energy spread / real / / >= 0
        energy / real
        first / <f8 / m
        second / <f8 / mm / symmetric
    ProjectionLoss: summary.record.settled.losses
        orthogonal_arrival orthogonal_removal other_arrival other_removal / real
        other_length rounding / real / / >= 0
    make_reservoir: summary.selection_sample
    make_reservoir: summary.reservoir
        size / integer / / >= 0
        rows / <f8 / nd / or NaN
        weights / <f8 / n / >= 0
        positions / <i8 / n / >= 0
        keys / <f8 / n / ascending
    SearchSchedule: summary.schedule
        countdown n_blocks n_rows_searched / integer / / >= 0
        usual_residual / real or null / / >= 0
        spread / real / / >= 0
    ResidualTrend: summary.trend
        n_blocks / integer / / >= 0
        level / real
        variance rise fall / real / / >= 0
        signalled / flag
    ColumnSums: summary.column_sums?
        origin / <f8 / d
        sums / <f8 / 3P / weights >= 0
        total_weight total_squared_weight / real / / >= 0
        n_rows / integer / / >= 0
    _snapshot: scheduled?
    _snapshot: published? = scheduled
        kernel / kernel
        atoms / <f8 / md
        atom_rows / <i8 / m
        weights / <f8 / m / >= 0
        sample / <f8 / nd
        factor / <f8 / kk / diagonal > 0
        span_factor / <f8 / mm / diagonal > 0
        axes projection / <f8 / kq
        mean / <f8 / k
        offset / <f8 / q
        eigenvalues / <f8 / q / descending, >= 0
        eigenvalue_bounds / <f8 / q2
        explained_variance_ratio / <f8 / q / >= 0
        noise_variance / real? / / >= 0
        total_weight unexplained_energy_ratio / real / / >= 0
    RowDistribution: summary.basis.distribution?
    RowDistribution: scheduled.distribution?
    RowDistribution: published.distribution?
        mean / <f8 / d
        scale / <f8 / d / >= 0
        precision / <f8 / E / symmetric
    """,
    (_state, _buffer, make_reservoir, _snapshot, Summary, SearchSchedule, ResidualTrend, *_CLASSES),
)
