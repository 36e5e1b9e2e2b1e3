"""Checks of a stream that was read from a file: of each part by itself, then of the parts against each other.

Errors name the parts by their keys in the file, such as "recent" and "jury".
"""

import math
from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf

from streamkpca._core.linalg import solve_transposed
from streamkpca._core.positions import are_outside, origins_of
from streamkpca._core.reservoir import Reservoir
from streamkpca.components.snapshot import Snapshot
from streamkpca.dictionary.basis import Basis, check_energy
from streamkpca.dictionary.moments import Moments, RowSums
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Kernel
from streamkpca.rows.gaps import RowDistribution
from streamkpca.rows.validation import LARGEST_WEIGHT
from streamkpca.stream.checkpoint.codec import samples_of
from streamkpca.stream.schedule import LONGEST_PAUSE
from streamkpca.stream.state import State
from streamkpca.stream.summary import Summary

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Kernel values of other machines differ in their last digits, relative to sqrt(k(x, x) k(y, y)); and rounding adds up
# over all the rows of a long stream, relative to the energy.
_SAME = 1e-8
_ROUNDING = 1e-6
# The largest number whose square is finite, roughly; and what counts as zero.
_LARGEST, _LEAST = 1e150, 1e-300
# The squares of smaller weights have lost their digits.
_LEAST_SQUARABLE = 1e-140
# Rows compared at a time, so that no whole sample is copied.
_CHUNK = 256


def check_stream(stream: State) -> None:
    """Refuse a stream whose parts contradict themselves or each other, by a CheckpointError that says which.

    Notes
    -----
    Each figure alone may be any that a stream can reach. Checked together: shapes agree, numbers are finite, factors
    are lower triangular with a positive diagonal and belong to their atoms' kernel matrices, moments are those of some
    rows, energy is conserved, samples are in the order of their draws, counts add up, axes are orthonormal and give
    the projection that is stored, and what is stored twice agrees. O(m^3 + m^2 d), and no more memory than the arrays
    themselves take.

    This is no protection against forgery: nothing in a file shows whether its rows, weights, counts and moments are
    those of the stream that it claims to be of. The following cannot be checked, as nothing else in the file determines
    it: pending rows and their weights; atoms that moved, as long as their kernel values stay; rows of a sample that are
    stored only once, and keys; moments rotated or scaled together with the losses; weights, eigenvalues, their bounds
    and shares of a snapshot, as the moments have changed since; parameters that may be set at any time; the seed;
    positions of rows that are stored once; counts of rows without weight; and what only guides the search for atoms:
    weights since admission, the trend, the schedule.
    """
    summary, pending = stream.summary, stream.pending
    require_columns(stream.kernel, stream.n_features)
    if summary is not None:
        require_columns(summary.basis.kernel, stream.n_features)
    require(pending.n_rows < stream.block_size, f"{pending.n_rows} rows are pending for a block of {stream.block_size}")
    gaps = stream.has_gaps
    require(
        summary is None or gaps == (summary.column_sums is not None),
        "columns: they are known where rows may have gaps, and only there",
    )
    known = summary.basis.kernel if summary else stream.kernel
    require_rows("pending", pending.rows, known, pending.weights, gaps=gaps)
    heaviest = float(pending.weights.max(initial=0.0))
    require(heaviest <= LARGEST_WEIGHT, f"pending.weights: a row cannot weigh {heaviest:.6g}")
    _check_settling(stream)
    require(stream.n_rejected <= stream.n_rows, f"{stream.n_rejected} of {stream.n_rows} rows were rejected")
    require(stream.n_rows_at_refit <= stream.n_rows, "n_rows_at_refit: the last refit is later than the last row")
    require(
        (stream.n_rows_at_refit > 0) == (stream.scheduled is not None),
        f"n_rows_at_refit is {stream.n_rows_at_refit}, but there are "
        + ("no axes" if stream.scheduled is None else "axes")
        + " of a scheduled refit",
    )
    require(stream.published is not None or stream.scheduled is None, "axes were refitted but never published")
    require(stream.n_rows_before <= stream.n_rows, "n_rows_before exceeds the number of rows")
    if summary is not None:
        _check_summary(summary)
        require(
            summary.reservoir.size <= stream.reservoir_size,
            f"reservoir: its size is {summary.reservoir.size} but reservoir_size is {stream.reservoir_size}",
        )
    for name, snapshot in _snapshots(stream):
        _check_snapshot(name, snapshot, stream)
    _check_same_rows(stream)
    if summary is not None:
        _check_weights(summary)
        _check_samples(summary)


def _check_settling(stream: State) -> None:
    """Check that the rows which will settle the scale of the kernel are those of the full blocks so far."""
    settling, summary = stream.settling, stream.summary
    if settling is None:
        return
    require(not stream.kernel.is_settled, "settling: the kernel has a scale already")
    n_learned = summary.n_rows - stream.n_rows_before if summary else 0
    require(settling.n_rows == n_learned, f"settling: {settling.n_rows} rows are kept of {n_learned}")
    known = summary.basis.kernel if summary else stream.kernel
    require_rows("settling", settling.rows, known, settling.weights, gaps=stream.has_gaps)
    heaviest = float(settling.weights.max(initial=0.0))
    require(heaviest <= LARGEST_WEIGHT, f"settling.weights: a row cannot weigh {heaviest:.6g}")
    counts = not settling.n_rows or bool(settling.weights[: stream.block_size].any())
    require(counts, "settling.weights: no row of the first block counts")


def require(holds: bool, otherwise: str) -> None:
    """Refuse the checkpoint with this text unless something holds."""
    if not holds:
        raise CheckpointError(otherwise)


def require_columns(kernel: Kernel, n_features: int) -> None:
    """Check that rows have all the columns that a kernel reads."""
    try:
        kernel.check_width(n_features, "the kernel")
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def require_finite(name: str, numbers: Array | Iterable[float]) -> None:
    """Check that there is no NaN and no infinity."""
    values = numbers if isinstance(numbers, np.ndarray) else np.array(list(numbers))
    require(bool(np.isfinite(values).all()), f"{name}: a number is not finite")


def require_not_negative(name: str, numbers: Array) -> None:
    """Check that numbers are finite and not below zero."""
    require_finite(name, numbers)
    require(bool(np.all(numbers >= 0.0)), f"{name}: a number is negative")


def require_positions(name: str, positions: Positions, n_rows: int, *, of_atoms: bool) -> None:
    """Check that positions of rows are distinct and within the stream; atoms may have moved, or come from outside."""
    within = origins_of(positions[~are_outside(positions)]) if of_atoms else positions
    inside = len(within) == 0 or (within.min() >= 0 and within.max() < n_rows)
    require(bool(inside), f"{name}.positions: one is outside the {n_rows} rows of the stream")
    # A row may become an atom again once the atom that it was has moved.
    rows = positions[positions >= 0]
    require(len(np.unique(rows)) == len(rows), f"{name}.positions: one occurs twice")


def require_rows(name: str, rows: Array, kernel: Kernel, weights: Array | None = None, *, gaps: bool = False) -> None:
    """Check that rows are finite, but for gaps, and within the range of the kernel."""
    if gaps:
        missing = np.isnan(rows)
        require(not missing.all(axis=1).any(), f"{name}.rows: a row has no number")
        rows = np.where(missing, 0.0, rows)
    require_finite(f"{name}.rows", rows)
    if weights is not None:
        require_not_negative(f"{name}.weights", weights)
        rows = rows[weights > 0.0]
    if kernel.is_settled and len(rows):
        try:
            kernel.check_range(rows, "the kernel")
            check_energy(kernel.program.diagonal(rows.astype(np.float64, copy=False)))
        except ValueError as error:
            raise CheckpointError(f"{name}.rows: {error}") from None


def require_factor(name: str, factor: Array, atoms: Array, kernel: Kernel) -> None:
    """Check that L is lower triangular with a positive diagonal, and that L L^T = k(Z, Z)."""
    require_finite(f"{name}.factor", factor)
    require(not np.triu(factor, 1).any(), f"{name}.factor is not lower triangular")
    require(bool(np.all(np.diagonal(factor) > 0.0)), f"{name}.factor has a pivot that is not positive")
    difference = kernel.program.gram(atoms)
    lengths = np.sqrt(np.abs(np.diagonal(difference)))
    with np.errstate(over="ignore", invalid="ignore"):
        difference -= factor @ factor.T
        np.abs(difference, out=difference)
        difference -= _SAME * lengths * lengths[:, None]
    require(bool(np.all(difference <= 0.0)), f"{name}.factor is not that of its atoms' kernel matrix")


def require_close(name: str, given: Array, expected: Array, scale: Array) -> None:
    """Check that numbers are as expected, up to the last digits of a scale."""
    require_finite(name, given)
    require(bool(np.all(np.abs(given - expected) <= _SAME * np.abs(scale))), f"{name} does not follow from the rest")


def is_nearly_semidefinite(matrix: Array, rounding: float) -> bool:
    """Tell whether no eigenvalue is below minus `rounding`; the matrix is overwritten."""
    if not matrix.size:
        return True
    matrix[np.diag_indices_from(matrix)] += rounding
    # The transposed view is column-major, and the matrix symmetric.
    return bool(dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)[1] == 0)


def _check_same_rows(stream: State) -> None:
    """Check that a row of the stream is the same wherever it is stored."""
    for (name, positions, rows), (other, others_positions, others_rows) in combinations(_kept_rows(stream), 2):
        _, here, there = np.intersect1d(positions, others_positions, assume_unique=True, return_indices=True)
        for start in range(0, len(here), _CHUNK):
            piece = slice(start, start + _CHUNK)
            same = np.array_equal(rows[here[piece]], others_rows[there[piece]], equal_nan=True)
            require(same, f"{name} and {other} hold different rows from the same position of the stream")


def _kept_rows(stream: State) -> Iterator[tuple[str, Positions, Array]]:
    """Yield the name, the positions in the stream and the rows of each part that holds rows."""
    summary, pending = stream.summary, stream.pending
    yield "pending", stream.n_rows - pending.n_rows + np.arange(pending.n_rows), pending.rows
    if stream.settling is not None:
        yield "settling", stream.n_rows_before + np.arange(stream.settling.n_rows), stream.settling.rows
    if summary is not None:
        yield ("atoms", *_rows_among(summary.atom_stats.positions, summary.basis.atoms))
        for name, sample in samples_of(summary).items():
            yield name, sample.sorted_draws.positions, sample.sorted_draws.rows
    for name, snapshot in _snapshots(stream):
        yield (name, *_rows_among(snapshot.atom_rows, snapshot.atoms))


def _rows_among(positions: Positions, atoms: Array) -> tuple[Positions, Array]:
    """Return positions and rows of the atoms that have not moved."""
    return positions[positions >= 0], atoms[positions >= 0]


def _check_weights(summary: Summary) -> None:
    """Check that no part weighs more than its rows can: (sum a)^2 <= n sum a^2, and no sample more than the stream."""
    for name, sums in (("settled", summary.record.settled), ("recent", summary.record.recent)):
        if sums is None:
            continue
        weight, squared = sums.total_weight, sums.total_squared_weight
        most = (1.0 + _ROUNDING) * summary.n_rows
        require(weight <= LARGEST_WEIGHT * most, f"{name}: {summary.n_rows} rows cannot weigh {weight:.6g}")
        require(
            weight < _LEAST_SQUARABLE or weight**2 <= squared * most,
            f"{name}: the squared weights of {summary.n_rows} rows that weigh {weight:.6g} cannot sum to {squared:.6g}",
        )
    # Smaller weights are lost sooner in sums than in the rows themselves.
    total = (1.0 + _ROUNDING) * summary.total_weight + _LEAST_SQUARABLE
    stats = summary.atom_stats
    kept = {"atoms": stats.weights} | {
        name: sample.sorted_draws.weights for name, sample in samples_of(summary).items()
    }
    for name, weights in kept.items():
        require(
            float(weights.sum()) <= total, f"{name}: its rows weigh more than the stream, {summary.total_weight:.6g}"
        )
    require(
        bool(np.all(stats.weight_since_admission <= total)),
        f"atoms.exposure: more weight since an atom's admission than in the stream, {summary.total_weight:.6g}",
    )


def _check_samples(summary: Summary) -> None:
    """Check that a sample that was never full holds every row, and that no row kept exceeds the largest energy."""
    sampled, reservoir = summary.selection_sample.sorted_draws, summary.reservoir.sorted_draws
    if not summary.reservoir.is_full:
        kept, weight = float(reservoir.weights.sum()), summary.total_weight
        require(
            abs(kept - weight) <= _ROUNDING * weight,
            f"reservoir: it was never full, but its rows weigh {kept:.6g} and those of the stream {weight:.6g}",
        )
    if not summary.selection_sample.is_full:
        stats = summary.atom_stats
        for name, positions, weights in (
            ("atoms", stats.origins, stats.weights),
            ("reservoir", reservoir.positions, reservoir.weights),
        ):
            # Lighter rows may have left one sample before the other.
            counting = positions[~are_outside(positions) & (weights > _LEAST_SQUARABLE)]
            known = bool(np.isin(counting, sampled.positions).all())
            require(known, f"jury: it was never full, but lacks rows that {name} holds")
    largest = max(sums.largest_energy for sums in (summary.record.settled, summary.record.recent) if sums is not None)
    kept_rows = reservoir.rows.astype(np.float64, copy=False)
    if summary.column_sums is not None:
        # The energy of a row with gaps depends on what was known of the columns when it came.
        kept_rows = kept_rows[~np.isnan(kept_rows).any(axis=1)]
    # Atoms that have moved may be longer than any row.
    positions, weights = summary.atom_stats.positions, summary.atom_stats.weights
    atoms = summary.basis.energy[(positions >= 0) & ~are_outside(positions) & (weights > _LEAST_SQUARABLE)]
    energies = summary.basis.kernel.program.diagonal(kept_rows), atoms
    highest = max(float(energy.max(initial=0.0)) for energy in energies)
    require(
        highest <= (1.0 + _SAME) * largest,
        f"largest_energy is {largest:.6g}, but a row that is kept has {highest:.6g}",
    )


def _check_summary(summary: Summary) -> None:
    basis, stats, moments = summary.basis, summary.atom_stats, summary.record.settled
    require(basis.kernel.is_settled, f"the scale of its kernel {basis.kernel!r} is not settled")
    require_rows("atoms", basis.atoms, basis.kernel)
    require_factor("atoms", basis.factor, basis.atoms, basis.kernel)
    require_close("atoms.energy", basis.energy, basis.kernel.program.diagonal(basis.atoms), basis.energy)
    require_positions("atoms", stats.positions, summary.n_rows, of_atoms=True)
    require_not_negative("atoms.weights", stats.weights)
    require_not_negative("atoms.exposure", stats.weight_since_admission)
    _check_moments(moments)
    _check_columns(summary)
    if summary.record.recent is not None:
        _check_sums("recent", summary.record.recent)
        if basis.kernel.is_positive_definite:
            _check_recent(summary.record.recent, basis)
    for name, sample in samples_of(summary).items():
        _check_sample(name, sample, summary)
    trend, schedule = summary.trend, summary.schedule
    require_finite("trend", [trend.level, trend.variance, trend.cusum_up, trend.cusum_down])
    require(abs(trend.level) <= _LARGEST, "trend: the level cannot be squared")
    require(min(trend.variance, trend.cusum_up, trend.cusum_down) >= 0.0, "trend: the variance or a sum is negative")
    require(trend.n_blocks >= 0, "trend: a negative number of blocks")
    require_finite("pace", [schedule.spread])
    require(schedule.usual_residual >= 0.0 and schedule.spread >= 0.0, "pace: a residual is negative")
    require(0 <= schedule.countdown <= LONGEST_PAUSE, "pace: the next search is too far away")
    require(schedule.n_blocks >= 0, "pace: a negative number of blocks")
    require(0 <= schedule.n_rows_searched <= summary.n_rows, "pace: a search is later than the last row")
    drift = summary.last_drift
    require(drift is None or drift <= summary.n_rows, "last_drift is later than the last row")


def _check_columns(summary: Summary) -> None:
    """Check sums over pairs of columns, and the distribution that was made of some."""
    sums = summary.column_sums
    if sums is None:
        return
    require_finite("columns", [sums.total_weight, sums.total_squared_weight])
    for part in ("origin", "weight", "first", "second"):
        require_finite(f"columns.{part}", getattr(sums, part))
    require_not_negative("columns.weight", sums.weight)
    squares = np.diagonal(sums.second) if sums.is_of_pairs else sums.second
    require(bool(np.all(squares >= 0.0)), "columns.second: a sum of squares is negative")
    if sums.is_of_pairs:
        same = all(np.allclose(part, part.T, rtol=_SAME, atol=_LEAST) for part in (sums.weight, sums.second))
        require(same, "columns: the sums over pairs are not symmetric")
    require(min(sums.total_weight, sums.total_squared_weight) >= 0.0, "columns: a total weight is negative")
    require(sums.n_rows <= summary.n_rows, "columns.n_rows exceeds the number of rows")
    require(summary.basis.distribution is not None or not summary.total_weight, "atoms.gaps: nothing is known of gaps")
    _check_distribution("atoms", summary.basis.distribution)


def _check_distribution(name: str, distribution: RowDistribution | None) -> None:
    if distribution is None:
        return
    require_finite(f"{name}.gaps.mean", distribution.mean)
    require_not_negative(f"{name}.gaps.scale", distribution.scale)
    require_finite(f"{name}.gaps.precision", distribution.precision)
    precision = distribution.precision
    require(np.array_equal(precision, precision.T), f"{name}.gaps.precision is not symmetric")
    require(is_nearly_semidefinite(precision.copy(), 0.0), f"{name}.gaps.precision is not positive definite")


def _check_moments(moments: Moments) -> None:
    losses = moments.losses
    require_finite("losses", vars(losses).values())
    require(min(losses.rounding, losses.other_length) >= 0.0, "losses: a length is negative")
    require(losses.other_length <= _LARGEST, "losses: a length cannot be squared")
    _check_sums("settled", moments)
    account = float(np.trace(moments.second)) + losses.total
    allowed = _ROUNDING * abs(moments.energy) + losses.rounding
    require(
        abs(account - moments.energy) <= allowed,
        f"energy is not conserved: it is {moments.energy:.6g}, but {account:.6g} is recorded or lost",
    )


def _check_sums(name: str, sums: RowSums) -> None:
    """Check that some rows have these sums: second - first first^T / N is a sum of squares."""
    weight, squared = sums.total_weight, sums.total_squared_weight
    require_finite(name, [weight, squared, sums.energy, sums.largest_energy])
    require_finite(f"{name}.first", sums.first)
    require_finite(f"{name}.second", sums.second)
    require(weight >= 0.0 and squared >= 0.0, f"{name}: a total weight is negative")
    require(weight <= _LARGEST, f"{name}: the total weight cannot be squared")
    # Forgetting can make the squares underflow, but never exceed the square of the sum.
    require(
        squared <= (1.0 + _ROUNDING) * weight**2 + _LEAST, f"{name}: squared weights exceed the square of their sum"
    )
    most = weight * sums.largest_energy
    require(sums.largest_energy >= 0.0, f"{name}: the largest energy is negative")
    require(
        sums.energy <= (1.0 + _ROUNDING) * most + _LEAST,
        f"{name}: rows of total weight {weight:.6g} and energy up to {sums.largest_energy:.6g} cannot have "
        f"{sums.energy:.6g} together",
    )
    require(np.array_equal(sums.second, sums.second.T), f"{name}.second is not symmetric")
    if weight <= _LEAST:
        # All rows have faded to nothing, and what little is left has lost its digits.
        largest = max(float(np.abs(moment).max(initial=0.0)) for moment in (sums.first, sums.second))
        require(
            largest <= _LEAST * max(sums.largest_energy, 1.0), f"{name}: the moments are not zero, but the weight is"
        )
        return
    trace = float(np.trace(sums.second))
    centred = sums.second - np.outer(sums.first / weight, sums.first)
    rounding = _ROUNDING * trace + np.finfo(np.float64).tiny
    require(is_nearly_semidefinite(centred, rounding), f"{name}.second is not positive semidefinite around its mean")


def _check_recent(recent: RowSums, basis: Basis) -> None:
    # The energy in the span of the atoms is at most the whole: <K^-1, sum a k k^T> <= E.
    recorded = float(np.vdot(basis.precision, recent.second))
    allowed = (1.0 + _ROUNDING + basis.rounding_amplification) * abs(recent.energy)
    require(recorded <= allowed, f"recent: energy {recorded:.6g} is recorded, but there is only {recent.energy:.6g}")


def _check_sample(name: str, sample: Reservoir, summary: Summary) -> None:
    drawn, kernel = sample.sorted_draws, summary.basis.kernel
    require(len(drawn.keys) <= sample.size, f"{name}: it holds {len(drawn.keys)} rows but has room for {sample.size}")
    require_rows(name, drawn.rows, kernel, gaps=summary.column_sums is not None)
    require_positions(name, drawn.positions, summary.n_rows, of_atoms=False)
    require_not_negative(f"{name}.weights", drawn.weights)
    require_finite(f"{name}.keys", drawn.keys)
    require(bool(np.all(np.diff(drawn.keys) >= 0.0)), f"{name}.keys are not in the order of the draws")


def _check_snapshot(name: str, snapshot: Snapshot, stream: State) -> None:
    kernel, summary = snapshot.kernel, stream.summary
    require_columns(kernel, stream.n_features)
    require(kernel.is_settled, f"{name}: the scale of its kernel {kernel!r} is not settled")
    # Before the first block is full, a snapshot has a scale of its own, settled on the rows pending then.
    known = stream.kernel if stream.kernel.is_settled else kernel
    require(kernel == known, f"{name}: the kernel is not that of the stream")
    require_rows(f"{name}.atoms", snapshot.atoms, kernel)
    require_rows(f"{name}.sample", snapshot.sample, kernel)
    require((snapshot.distribution is not None) == stream.has_gaps, f"{name}.gaps: not as the stream has gaps")
    _check_distribution(name, snapshot.distribution)
    require_positions(f"{name}.atom_rows", snapshot.atom_rows, stream.n_rows, of_atoms=True)
    require_not_negative(f"{name}.weights", snapshot.weights)
    require_factor(name, snapshot.factor, snapshot.active_atoms, snapshot.kernel)
    if summary is None or not _same_span(snapshot, summary):
        require_factor(f"{name}.span", snapshot.span_factor, snapshot.span_atoms, snapshot.kernel)
    for part in ("axes", "mean", "projection", "offset", "eigenvalue_bounds"):
        require_finite(f"{name}.{part}", getattr(snapshot, part))
    # Axes are orthonormal, or zero beyond the rank.
    lengths = np.einsum("ij,ij->j", snapshot.axes, snapshot.axes)
    gram = snapshot.axes.T @ snapshot.axes
    require_close(f"{name}.axes", gram, np.diag((lengths > 0.5).astype(float)), np.ones(len(lengths)))
    expected = solve_transposed(snapshot.factor, snapshot.axes.T).T
    scale = np.abs(expected).max(initial=0.0)
    require(
        bool(np.all(np.abs(snapshot.projection - expected) <= _ROUNDING * scale)),
        f"{name}.projection is not that of its axes",
    )
    reach = float(np.linalg.norm(snapshot.mean))
    require(math.isfinite(reach), f"{name}.mean is longer than any row")
    require(
        bool(np.all(np.abs(snapshot.offset - snapshot.mean @ snapshot.axes) <= _SAME * reach)),
        f"{name}.offset is not the projection of its mean",
    )
    values, bounds, ratios = snapshot.eigenvalues, snapshot.eigenvalue_bounds, snapshot.explained_variance_ratio
    require_not_negative(f"{name}.eigenvalues", values)
    require(bool(np.all(np.diff(values) <= 0.0)), f"{name}.eigenvalues are not in descending order")
    require(
        bool(np.all(bounds[:, 0] <= bounds[:, 1])), f"{name}.eigenvalue_bounds: a lower bound is above the upper one"
    )
    require_not_negative(f"{name}.explained_variance_ratio", ratios)
    # Parts can exceed the whole if the kernel is indefinite, and by rounding if rows are nearly the same.
    limit = 1.0 + _ROUNDING if kernel.is_positive_definite else math.inf
    share, variance = float(ratios.sum()), float(values.sum())
    length = float(np.abs(kernel.program.diagonal(snapshot.atoms)).max(initial=0.0))
    is_rounding = (share - 1.0) * variance <= _ROUNDING * share * length
    require(is_rounding or share <= limit, f"{name}.explained_variance_ratio sums to more than 1")
    noise = snapshot.noise_variance
    require(noise is None or (math.isfinite(noise) and noise > 0.0), f"{name}.noise_variance is {noise}")
    require_finite(name, [snapshot.total_weight, snapshot.unexplained_energy_ratio])
    require(min(snapshot.total_weight, snapshot.unexplained_energy_ratio) >= 0.0, f"{name}: a total is negative")
    require(snapshot.total_weight <= _LARGEST, f"{name}: the total weight cannot be squared")
    require(snapshot.unexplained_energy_ratio <= limit, f"{name}.unexplained_energy_ratio is above 1")


def _same_span(snapshot: Snapshot, summary: Summary) -> bool:
    """Tell whether the span is that of the present atoms, whose factor is already checked."""
    basis = summary.basis
    if snapshot.kernel != basis.kernel:
        return False
    return np.array_equal(snapshot.span_factor, basis.factor) and np.array_equal(snapshot.span_atoms, basis.atoms)


def _snapshots(state: State) -> Iterator[tuple[str, Snapshot]]:
    """Yield each snapshot once, with its name."""
    if state.scheduled is not None:
        yield "scheduled", state.scheduled
    if state.published is not None and state.published is not state.scheduled:
        yield "published", state.published
