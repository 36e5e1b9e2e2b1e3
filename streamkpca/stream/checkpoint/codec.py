"""A stream as a header and arrays, and back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamkpca._core.reservoir import Draws, Reservoir
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.basis import AtomStats, Basis
from streamkpca.dictionary.moments import Moments, ProjectionLoss, Record, RowSums
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Kernel, kernel_from_json
from streamkpca.rows.gaps import WIDEST_TOGETHER, ColumnSums, RowDistribution
from streamkpca.stream.blocks import RowBuffer
from streamkpca.stream.checkpoint.header import HeaderFields, numbers_in
from streamkpca.stream.drift import PageCusum
from streamkpca.stream.schedule import SearchSchedule
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import State
from streamkpca.stream.summary import Summary

AnyArray = npt.NDArray[Any]
Arrays = dict[str, AnyArray]
Expected = dict[str, tuple[str, tuple[int, ...]]]

_REALS, _POSITIONS = "<f8", "<i8"
# Types of sampled and pending rows, by the stream's dtype.
_ROWS = {"float64": "<f8", "float32": "<f4"}
# Arrays of a snapshot that are stored, with the letters of their axes: m atoms of d features, k of them active, q axes,
# r rows of a sample. The active atoms are those of positive weight, and the span is that of all atoms.
_SNAPSHOT = {
    "atoms": "md",
    "atom_rows": "m",
    "weights": "m",
    "sample": "rd",
    "factor": "kk",
    "span_factor": "mm",
    "axes": "kq",
    "mean": "k",
    "projection": "kq",
    "offset": "q",
    "eigenvalues": "q",
    "eigenvalue_bounds": "q2",
    "explained_variance_ratio": "q",
}
# numpy cannot make an array of much wider rows, not even of none of them.
_MOST_FEATURES = 2**40
FORMAT: Final = "streamkpca stream"
# Raised when older releases could not read what is written.
VERSION: Final = 3

# Keys of the file for the fields of each part. They never change: a field that is renamed keeps its key.
_CUSUM_KEYS = {
    "n_blocks": "n_blocks",
    "level": "level",
    "variance": "variance",
    "cusum_up": "rise",
    "cusum_down": "fall",
    "signalled": "signalled",
}
_SCHEDULE_KEYS = {
    "countdown": "wait",
    "usual_residual": "usual_residual",
    "spread": "spread",
    "n_blocks": "age",
    "n_rows_searched": "searched",
}
_LOSS_KEYS = {
    "orthogonal_arrival": "fresh_arrival",
    "orthogonal_removal": "fresh_removal",
    "other_arrival": "stale_arrival",
    "other_removal": "stale_removal",
    "other_length": "stale_length",
    "rounding": "rounding",
}
_SUM_KEYS = {
    "total_weight": "total_weight",
    "total_squared_weight": "total_squared_weight",
    "energy": "energy",
    "largest_energy": "largest_energy",
}
# Of streams whose rows may have gaps.
_COLUMN_KEYS = ("total_weight", "total_squared_weight", "n_rows")
_COLUMN_ARRAYS = ("weight", "first", "second")
_STATS_KEYS = {"positions": "positions", "weights": "weights", "weight_since_admission": "exposure"}
_SAMPLE_KEYS = {"selection_sample": "jury", "reservoir": "reservoir"}


def kernel_record(kernel: Kernel) -> str | None:
    """Return a kernel as JSON; None if it has functions of the caller, which are code, or too many parts."""
    try:
        return kernel.to_json()
    except (TypeError, ValueError):
        return None


class StoredKernels:
    """The kernels of a file, of the text that `kernel_record` wrote.

    `known` is the kernel if it has functions of the caller. A text that occurs again is not read again.
    """

    def __init__(self, known: Kernel | None) -> None:
        self._known = known
        self._read: dict[str, Kernel] = {}

    def kernel(self, text: str | None) -> Kernel:
        """Return the kernel of a text, or the known one where there is none."""
        if text is None:
            if self._known is None:
                raise CheckpointError(
                    "its kernel has functions of the caller, which are code and never stored, or more parts than are "
                    "read; pass the settled kernel again: load(path, kernel=...)"
                )
            return self._known
        if text not in self._read:
            try:
                self._read[text] = kernel_from_json(text, where="load")
            except ValueError as error:
                raise CheckpointError(f"its kernel is not known: {error}") from None
        return self._read[text]


def stream_record(stream: State) -> tuple[dict[str, Any], Arrays]:
    """Return JSON data and arrays (not copied) that determine the future of a stream."""
    # Read once, as another thread may be appending rows. The provisional snapshot is not stored.
    pending, summary = stream.pending, stream.summary
    arrays: Arrays = {"pending.rows": pending.kept_rows, "pending.weights": pending.weights}
    settling = stream.settling
    if settling is not None:
        arrays |= {"settling.rows": settling.kept_rows, "settling.weights": settling.weights}
    header: dict[str, Any] = {
        "kernel": kernel_record(stream.kernel),
        "block_size": stream.block_size,
        "reservoir_size": stream.reservoir_size,
        "dtype": stream.dtype,
        "seed": stream.seed,
        "n_features": stream.n_features,
        "feature_names": None if stream.names is None else [str(name) for name in stream.names],
        "n_rows_before": stream.n_rows_before,
        "n_rejected": stream.n_rejected,
        "n_rows_at_refit": stream.n_rows_at_refit,
        "n_pending": pending.n_rows,
        "n_settling": None if settling is None else settling.n_rows,
        "summary": None if summary is None else _summary_record(summary, arrays),
        "scheduled": _snapshot_record("scheduled", stream.scheduled, arrays),
        "published_as_scheduled": stream.published is stream.scheduled,
        "published": None,
    }
    if not header["published_as_scheduled"]:
        header["published"] = _snapshot_record("published", stream.published, arrays)
    return header, arrays


def samples_of(summary: Summary) -> dict[str, Reservoir]:
    """Return the samples of a summary by their keys in the file."""
    return {key: getattr(summary, field) for field, key in _SAMPLE_KEYS.items()}


def expected_arrays(header: HeaderFields) -> Expected:
    """Return the type and shape of each array that belongs to a header."""
    d, n_pending = header.integer("n_features", least=1, most=_MOST_FEATURES), header.integer("n_pending")
    kept = _ROWS[header.choice("dtype", _ROWS)]
    expected: Expected = {"pending.rows": (kept, (n_pending, d)), "pending.weights": (_REALS, (n_pending,))}
    n_settling = header.optional_integer("n_settling") if "n_settling" in header else None
    if n_settling is not None:
        expected |= {"settling.rows": (kept, (n_settling, d)), "settling.weights": (_REALS, (n_settling,))}
    if summary := header.optional_part("summary"):
        m = summary.integer("n_atoms")
        expected |= {"atoms.rows": (_REALS, (m, d)), "atoms.factor": (_REALS, (m, m))}
        expected |= {f"atoms.{name}": (_REALS, (m,)) for name in ("energy", "weights", "exposure")}
        expected["atoms.positions"] = (_POSITIONS, (m,))
        for name, sums in (("settled", summary.part("settled")), ("recent", summary.optional_part("recent"))):
            if sums:
                expected |= {f"{name}.first": (_REALS, (m,)), f"{name}.second": (_REALS, (m, m))}
        if "columns" in summary:
            pairs = (d, d) if d <= WIDEST_TOGETHER else (d,)
            expected["columns.origin"] = (_REALS, (d,))
            expected |= {f"columns.{part}": (_REALS, pairs) for part in _COLUMN_ARRAYS}
            expected |= _expected_distribution("atoms", summary, d)
        for name in _SAMPLE_KEYS.values():
            count = summary.part(name).integer("count")
            expected |= {f"{name}.{part}": (_REALS, (count,)) for part in ("weights", "keys")}
            expected |= {f"{name}.rows": (kept, (count, d)), f"{name}.positions": (_POSITIONS, (count,))}
    for name in ("scheduled", "published"):
        if snapshot := header.optional_part(name):
            sizes = {"d": d, "2": 2, **{size: snapshot.integer(f"n_{size}") for size in "mkqr"}}
            for part, axes in _SNAPSHOT.items():
                kind = {"atom_rows": _POSITIONS, "sample": kept}.get(part, _REALS)
                expected[f"{name}.{part}"] = (kind, tuple(sizes[axis] for axis in axes))
            expected |= _expected_distribution(name, snapshot, d)
    return expected


def _expected_distribution(name: str, header: HeaderFields, d: int) -> Expected:
    """Return the type and shape of the arrays that say what gaps could hold, if there are any."""
    if "has_gaps" not in header or not header.flag("has_gaps"):
        return {}
    size = d if d <= WIDEST_TOGETHER else 0
    columns = {f"{name}.gaps.{part}": (_REALS, (d,)) for part in ("mean", "scale")}
    return {**columns, f"{name}.gaps.precision": (_REALS, (size, size))}


def restored_stream(
    header: HeaderFields, arrays: Mapping[str, AnyArray], settings: StreamSettings, kernels: StoredKernels
) -> State:
    """Make the stream of a header and the arrays that it expects; `check_stream` checks whether it makes sense.

    `settings` are the model's present parameters, which may differ from those that the stream began with.
    """
    d = header.integer("n_features", least=1, most=_MOST_FEATURES)
    names = header.optional_texts("feature_names", d)
    began = replace(
        settings,
        kernel=kernels.kernel(header.optional_text("kernel")),
        block_size=header.integer("block_size", least=2),
        reservoir_size=header.integer("reservoir_size"),
        random_state=header.integer("seed", most=None),
        dtype=header.choice("dtype", _ROWS),
    )
    settling, summary = None, header.optional_part("summary")
    # The scale of a kernel that had to be passed is final.
    if "settling.rows" in arrays and header.optional_text("kernel") is not None:
        settling = RowBuffer.of(arrays["settling.rows"], arrays["settling.weights"])
    scheduled, published = (_restored_snapshot(name, header, arrays, kernels) for name in ("scheduled", "published"))
    stream = replace(
        State.begin(began, d, None if names is None else np.array(names, dtype=object)),
        n_rows_before=header.integer("n_rows_before"),
        n_rejected=header.integer("n_rejected"),
        n_rows_at_refit=header.integer("n_rows_at_refit"),
        pending=RowBuffer.of(arrays["pending.rows"], arrays["pending.weights"]),
        settling=settling,
        scheduled=scheduled,
        published=scheduled if header.flag("published_as_scheduled") else published,
    )
    if summary:
        return replace(stream, summary=_restored_summary(summary, arrays, d, stream.seed, kernels))
    return stream


def _summary_record(summary: Summary, arrays: Arrays) -> dict[str, Any]:
    basis, stats = summary.basis, summary.atom_stats
    arrays |= {"atoms.rows": basis.atoms, "atoms.factor": basis.factor, "atoms.energy": basis.energy}
    arrays |= {f"atoms.{key}": getattr(stats, field) for field, key in _STATS_KEYS.items()}
    header: dict[str, Any] = {
        "kernel": kernel_record(basis.kernel),
        "n_rows": summary.n_rows,
        "n_atoms": basis.size,
        "last_drift": summary.last_drift,
        "trend": numbers_in(summary.trend, _CUSUM_KEYS),
        "pace": numbers_in(summary.schedule, _SCHEDULE_KEYS),
        "losses": numbers_in(summary.record.settled.losses, _LOSS_KEYS),
    }
    for name, sums in (("settled", summary.record.settled), ("recent", summary.record.recent)):
        header[name] = None if sums is None else numbers_in(sums, _SUM_KEYS)
        if sums is not None:
            arrays |= {f"{name}.first": sums.first, f"{name}.second": sums.second}
    if summary.column_sums is not None:
        header |= _columns_record(summary, arrays)
    for name, sample in samples_of(summary).items():
        # Sorting the draws changes no answer and no later draw.
        drawn = sample.sorted().sorted_draws
        header[name] = {"size": sample.size, "count": len(drawn.keys)}
        arrays |= {f"{name}.{part}": getattr(drawn, part) for part in ("rows", "positions", "weights", "keys")}
    return header


def _columns_record(summary: Summary, arrays: Arrays) -> dict[str, Any]:
    """Return what is known of columns with gaps; files of other streams stay as earlier releases read them."""
    sums, moments, pending = summary.column_sums, summary.record.settled, summary.record.recent
    assert sums is not None
    arrays["columns.origin"] = sums.origin
    arrays |= {f"columns.{part}": getattr(sums, part) for part in _COLUMN_ARRAYS}
    return {
        "columns": {key: getattr(sums, key) for key in _COLUMN_KEYS},
        "settled_spread": moments.spread,
        "recent_spread": 0.0 if pending is None else pending.spread,
        "has_gaps": _distribution_recorded("atoms", summary.basis.distribution, arrays),
    }


def _distribution_recorded(name: str, distribution: RowDistribution | None, arrays: Arrays) -> bool:
    if distribution is None:
        return False
    arrays |= {f"{name}.gaps.{part}": getattr(distribution, part) for part in ("mean", "scale", "precision")}
    return True


def _restored_distribution(name: str, arrays: Mapping[str, AnyArray]) -> RowDistribution | None:
    if f"{name}.gaps.mean" not in arrays:
        return None
    return RowDistribution(*(arrays[f"{name}.gaps.{part}"] for part in ("mean", "scale", "precision")))


def _restored_summary(
    header: HeaderFields, arrays: Mapping[str, AnyArray], d: int, seed: int, kernels: StoredKernels
) -> Summary:
    rows, factor, energy = (arrays[f"atoms.{name}"] for name in ("rows", "factor", "energy"))
    kernel = kernels.kernel(header.optional_text("kernel"))
    basis = Basis(kernel, rows, factor, energy, _restored_distribution("atoms", arrays))
    losses = header.part("losses").numbers_of(ProjectionLoss, _LOSS_KEYS)
    settled: dict[str, Any] = {"first": arrays["settled.first"], "second": arrays["settled.second"]}
    column_sums, has_gaps = None, "columns" in header
    if has_gaps:
        settled["spread"] = header.real("settled_spread")
        columns = header.part("columns")
        column_sums = ColumnSums(
            origin=arrays["columns.origin"],
            weight=arrays["columns.weight"],
            first=arrays["columns.first"],
            second=arrays["columns.second"],
            total_weight=columns.real("total_weight"),
            total_squared_weight=columns.real("total_squared_weight"),
            n_rows=columns.integer("n_rows"),
        )
    record = Record(header.part("settled").numbers_of(Moments, _SUM_KEYS, losses=losses, **settled))
    if recent := header.optional_part("recent"):
        spread = header.real("recent_spread") if has_gaps else 0.0
        sums = recent.numbers_of(
            RowSums, _SUM_KEYS, first=arrays["recent.first"], second=arrays["recent.second"], spread=spread
        )
        record = replace(record, recent=sums)
    samples = {
        field: Reservoir(
            header.part(name).integer("size"),
            Draws(*(arrays[f"{name}.{part}"] for part in ("rows", "positions", "weights", "keys"))),
        )
        for field, name in _SAMPLE_KEYS.items()
    }
    return Summary(
        seed=seed,
        basis=basis,
        record=record,
        atom_stats=AtomStats(**{field: arrays[f"atoms.{key}"] for field, key in _STATS_KEYS.items()}),
        n_rows=header.integer("n_rows"),
        schedule=header.part("pace").numbers_of(SearchSchedule, _SCHEDULE_KEYS),
        trend=header.part("trend").numbers_of(PageCusum, _CUSUM_KEYS),
        last_drift=header.optional_integer("last_drift"),
        column_sums=column_sums,
        **samples,
    )


def _snapshot_record(name: str, snapshot: Snapshot | None, arrays: Arrays) -> dict[str, Any] | None:
    if snapshot is None:
        return None
    arrays |= {f"{name}.{part}": getattr(snapshot, part) for part in _SNAPSHOT}
    gaps = {"has_gaps": True} if _distribution_recorded(name, snapshot.distribution, arrays) else {}
    return gaps | {
        "kernel": kernel_record(snapshot.kernel),
        "n_m": len(snapshot.atoms),
        "n_k": len(snapshot.factor),
        "n_q": snapshot.n_components,
        "n_r": len(snapshot.sample),
        "noise_variance": snapshot.noise_variance,
        "total_weight": snapshot.total_weight,
        "unexplained_energy_ratio": snapshot.unexplained_energy_ratio,
    }


def _restored_snapshot(
    name: str, stream_header: HeaderFields, arrays: Mapping[str, AnyArray], kernels: StoredKernels
) -> Snapshot | None:
    header = stream_header.optional_part(name)
    if header is None:
        return None
    parts: dict[str, Any] = {part: arrays[f"{name}.{part}"] for part in _SNAPSHOT}
    active = parts["weights"] > 0.0
    if np.count_nonzero(active) != header.integer("n_k"):
        raise CheckpointError(
            f"{name}: {np.count_nonzero(active)} weights are positive, but {header.integer('n_k')} atoms are recorded "
            "as active"
        )
    return Snapshot(
        kernel=kernels.kernel(header.optional_text("kernel")),
        active_atoms=parts["atoms"][active],
        span_atoms=parts["atoms"],
        noise_variance=None if header.value("noise_variance") is None else header.real("noise_variance"),
        total_weight=header.real("total_weight"),
        unexplained_energy_ratio=header.real("unexplained_energy_ratio"),
        distribution=_restored_distribution(name, arrays),
        **parts,
    )
