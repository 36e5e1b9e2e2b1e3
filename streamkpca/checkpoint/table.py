"""The table of everything that a checkpoint holds of a stream: each field's path, kind, shape and range."""

from typing import Any

import numpy as np

from streamkpca._core.reservoir import Draws, Reservoir
from streamkpca.checkpoint.fields import AnyArray, Part, part
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.basis import AtomStats, Basis
from streamkpca.dictionary.moments import Moments, ProjectionLoss, Record, RowSums
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Kernel
from streamkpca.rows.gaps import ColumnSums, RowDistribution
from streamkpca.stream.blocks import RowBuffer
from streamkpca.stream.drift import PageCusum
from streamkpca.stream.schedule import SearchSchedule
from streamkpca.stream.state import State
from streamkpca.stream.summary import Summary


def _made_state(kernel: Kernel, names: list[str] | None, settling: RowBuffer | None, **rest: Any) -> State:
    if names is not None and len(names) != rest["n_features"]:
        raise CheckpointError(f"there are {len(names)} names for {rest['n_features']} columns")
    # The scale of a kernel that had to be passed is final.
    settling = None if kernel.is_settled else settling
    columns = None if names is None else np.array(names, dtype=object)
    return State(kernel=kernel, names=columns, settling=settling, **rest)


def _made_buffer(kept_rows: AnyArray, weights: AnyArray) -> RowBuffer:
    return RowBuffer.of(kept_rows, weights)


def _made_reservoir(size: int, kept_rows: AnyArray, **rest: AnyArray) -> Reservoir:
    if len(kept_rows) > size:
        raise CheckpointError(f"a sample holds {len(kept_rows)} rows but has room for {size}")
    return Reservoir(size, Draws(kept_rows, **rest))


def _made_snapshot(weights: AnyArray, atoms: AnyArray, factor: AnyArray, **rest: Any) -> Snapshot:
    active = atoms[weights > 0.0]
    if len(active) != len(factor):
        raise CheckpointError(f"{len(active)} atoms have positive weights, but the factor is that of {len(factor)}")
    return Snapshot(weights=weights, atoms=atoms, active_atoms=active, span_atoms=atoms, factor=factor, **rest)


_SUMS = """
    total_weight total_squared_weight largest_energy spread / real / / >= 0
    energy / real
    first / <f8 / m
    second / <f8 / mm / symmetric
"""
_BUFFER = """
    kept_rows / rows / nd / or NaN
    weights / <f8 / n / >= 0
"""
_RESERVOIR = f"""
    size / integer / / >= 0
    {_BUFFER}
    positions / <i8 / n / >= 0
    keys / <f8 / n / ascending
"""
_DISTRIBUTION = """
    mean / <f8 / d
    scale / <f8 / d / >= 0
    precision / <f8 / E / symmetric
"""
_SNAPSHOT = """
    kernel / kernel
    atoms / <f8 / md
    atom_rows / <i8 / m
    weights / <f8 / m / >= 0
    sample / rows / nd
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
"""

# A part stands in front of those that it holds. Lengths: d columns, m atoms, k active ones, q axes, n rows of the part;
# P and E are d, d, or where rows are wide d and 0, 0.
STATE: tuple[Part, ...] = (
    part(
        "",
        _made_state,
        """
        kernel / kernel
        n_features / integer / / >= 1
        names / texts?
        block_size / integer / / >= 2
        reservoir_size n_rows_before n_rejected n_rows_at_refit / integer / / >= 0
        seed / large integer / / >= 0
        dtype / text
        has_gaps / flag
        """,
    ),
    part("pending", _made_buffer, _BUFFER),
    part("settling", _made_buffer, _BUFFER, optional=True),
    part(
        "summary",
        Summary,
        "seed / large integer / / >= 0 \n n_rows / integer / / >= 0 \n last_drift / integer? / / >= 0",
        optional=True,
    ),
    part(
        "summary.basis",
        Basis,
        "kernel / kernel \n atoms / <f8 / md \n factor / <f8 / mm / diagonal > 0 \n energy / <f8 / m",
    ),
    part("summary.basis.distribution", RowDistribution, _DISTRIBUTION, optional=True),
    part("summary.record", Record, ""),
    part("summary.record.settled", Moments, _SUMS),
    part(
        "summary.record.settled.losses",
        ProjectionLoss,
        """
        orthogonal_arrival orthogonal_removal other_arrival other_removal / real
        other_length rounding / real / / >= 0
        """,
    ),
    part("summary.record.recent", RowSums, _SUMS, optional=True),
    part("summary.atom_stats", AtomStats, "positions / <i8 / m \n weights weight_since_admission / <f8 / m / >= 0"),
    part("summary.selection_sample", _made_reservoir, _RESERVOIR),
    part("summary.reservoir", _made_reservoir, _RESERVOIR),
    part(
        "summary.schedule",
        SearchSchedule,
        """
        countdown n_blocks n_rows_searched / integer / / >= 0
        usual_residual / real or null / / >= 0
        spread / real / / >= 0
        """,
    ),
    part(
        "summary.trend",
        PageCusum,
        """
        n_blocks / integer / / >= 0
        level / real
        variance cusum_up cusum_down / real / / >= 0
        signalled / flag
        """,
    ),
    part(
        "summary.column_sums",
        ColumnSums,
        """
        origin / <f8 / d
        weight / <f8 / P / >= 0
        first second / <f8 / P
        total_weight total_squared_weight / real / / >= 0
        n_rows / integer / / >= 0
        """,
        optional=True,
    ),
    part("scheduled", _made_snapshot, _SNAPSHOT, optional=True),
    part("scheduled.distribution", RowDistribution, _DISTRIBUTION, optional=True),
    part("published", _made_snapshot, _SNAPSHOT, optional=True, twin="scheduled"),
    part("published.distribution", RowDistribution, _DISTRIBUTION, optional=True),
)
