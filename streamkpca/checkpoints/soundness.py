"""Whether a stream that was read from a file makes sense."""

import math

import numpy as np

from streamkpca.basis import Basis
from streamkpca.checkpoints.agreement import check_agreement
from streamkpca.checkpoints.requirements import (
    ROUNDING,
    SAME,
    is_nearly_semidefinite,
    require,
    require_close,
    require_columns,
    require_factor,
    require_finite,
    require_not_negative,
    require_positions,
    require_rows,
)
from streamkpca.factor import solve_transposed
from streamkpca.moments import Moments
from streamkpca.reservoir import Reservoir
from streamkpca.row_sums import RowSums
from streamkpca.snapshot import Snapshot
from streamkpca.stream import Stream
from streamkpca.summary import Summary
from streamkpca.validation import LARGEST_WEIGHT

# What can be squared, and what is nothing.
_LARGEST, _LEAST = 1e150, 1e-300


def check_stream(stream: Stream) -> None:
    """Check what a stream's parts promise each other.

    Parameters
    ----------
    stream : Stream

    Raises
    ------
    CheckpointError
        A promise is broken; the text says which.

    Notes
    -----
    Each figure alone may be anything that a stream can come to. Together they are held to: shapes agree, numbers are
    finite, factors are lower triangular with a positive diagonal and are those of their atoms' kernel matrices, moments
    are those of some rows, energy is conserved, samples are in the order of their draws, counts add up, axes are made
    of what they say, and what is there twice agrees. O(m^3 + m^2 d), and not more memory than the arrays themselves
    take.

    Who wants to deceive can: nothing in a file says whether the rows, weights, counts and moments in it are those of
    the stream that it claims to be of. What cannot be found, because nothing else in the file determines it: rows and
    weights that wait; rows of a sample that are there only once, and keys; moments turned or scaled together with the
    losses; weights, eigenvalues, their bounds and shares of a snapshot, whose moments have gone on since; parameters
    that may be set at any time; the seed; positions of rows that are there once; counts of rows that weigh nothing; and
    what only guides the search for atoms: exposures, the trend, the pace.
    """
    summary, pending = stream.summary, stream.pending
    require_columns(stream.kernel, stream.n_features)
    if summary is not None:
        require_columns(summary.basis.kernel, stream.n_features)
    require(pending.n_rows < stream.block_size, f"{pending.n_rows} rows wait for a block of {stream.block_size}")
    require_rows("pending", pending.rows, summary.basis.kernel if summary else stream.kernel, pending.weights)
    heaviest = float(pending.weights.max(initial=0.0))
    require(heaviest <= LARGEST_WEIGHT, f"pending.weights: a row cannot weigh {heaviest:.6g}")
    require(stream.n_rejected <= stream.n_rows, f"{stream.n_rejected} of {stream.n_rows} rows were rejected")
    require(stream.n_rows_at_refit <= stream.n_rows, "the last refit is said to be later than the last row")
    require(
        (stream.n_rows_at_refit > 0) == (stream.scheduled is not None),
        f"{stream.n_rows_at_refit} rows had come when the axes were refitted, of which there are "
        + ("none" if stream.scheduled is None else "some"),
    )
    require(stream.published is not None or stream.scheduled is None, "axes were refitted but never published")
    require(stream.n_rows_before <= stream.n_rows, "there are more rows before the first that counts than rows")
    if summary is not None:
        _check_summary(summary)
        require(
            summary.reservoir.size <= stream.reservoir_size,
            f"reservoir: a sample of {summary.reservoir.size} rows where {stream.reservoir_size} were asked for",
        )
    for name, snapshot in stream.snapshots():
        _check_snapshot(name, snapshot, stream)
    check_agreement(stream)


def _check_summary(summary: Summary) -> None:
    basis, tenure, moments = summary.basis, summary.tenure, summary.settled
    require(basis.kernel.is_settled, f"the scale of its kernel {basis.kernel!r} is not settled")
    require_rows("atoms", basis.atoms, basis.kernel)
    require_factor("atoms", basis.factor, basis.atoms, basis.kernel)
    require_close("atoms.energy", basis.energy, basis.kernel.program.diagonal(basis.atoms), basis.energy)
    require_positions("atoms", tenure.positions, summary.n_rows)
    for name in ("weights", "exposure"):
        require_not_negative(f"atoms.{name}", getattr(tenure, name))
    _check_moments(moments)
    if summary.recent is not None:
        _check_sums("recent", summary.recent)
        if basis.kernel.is_positive_definite:
            _check_recent(summary.recent, basis)
    for name, sample in summary.samples():
        _check_sample(name, sample, summary)
    trend, pace = summary.trend, summary.pace
    require_finite("trend", [trend.level, trend.variance, trend.rise, trend.fall])
    require(abs(trend.level) <= _LARGEST, "trend: the level cannot be squared")
    require(min(trend.variance, trend.rise, trend.fall) >= 0.0, "trend: sums of squares or of rises are negative")
    require(trend.n_blocks >= 0, "trend: a negative number of blocks")
    require_finite("pace", [pace.spread])
    require(pace.usual_residual >= 0.0 and pace.spread >= 0.0, "pace: the residuals are no residuals")
    require(0 <= pace.wait < pace.pause and pace.age >= 0, "pace: the next search is not within the pause")
    drift = summary.last_drift
    require(drift is None or drift <= summary.n_rows, "a drift is said to be later than the last row")


def _check_moments(moments: Moments) -> None:
    losses = moments.losses
    require_finite("losses", vars(losses).values())
    require(min(losses.rounding, losses.stale_length) >= 0.0, "losses: a length is negative")
    require(losses.stale_length <= _LARGEST, "losses: a length cannot be squared")
    _check_sums("settled", moments)
    account = float(np.trace(moments.second)) + losses.total
    allowed = ROUNDING * abs(moments.energy) + losses.rounding
    require(
        abs(account - moments.energy) <= allowed,
        f"energy is not conserved: {account:.6g} are recorded or lost of {moments.energy:.6g}",
    )


def _check_sums(name: str, sums: RowSums) -> None:
    """Check that some rows have these sums: second - first first^T / N is a sum of squares."""
    weight, squared = sums.total_weight, sums.total_squared_weight
    require_finite(name, [weight, squared, sums.energy, sums.largest_energy])
    require_finite(f"{name}.first", sums.first)
    require_finite(f"{name}.second", sums.second)
    require(weight >= 0.0 and squared >= 0.0, f"{name}: a total weight is negative")
    require(weight <= _LARGEST, f"{name}: the total weight cannot be squared")
    # Forgetting can take the squares below all numbers, but never above the square of the sum.
    require(squared <= (1.0 + ROUNDING) * weight**2 + _LEAST, f"{name}: squared weights exceed the square of their sum")
    most = weight * sums.largest_energy
    require(sums.largest_energy >= 0.0, f"{name}: the largest energy is negative")
    require(
        sums.energy <= (1.0 + ROUNDING) * most + _LEAST,
        f"{name}: rows of a total weight of {weight:.6g}, none of more energy than {sums.largest_energy:.6g}, are said "
        f"to have {sums.energy:.6g} together",
    )
    require(np.array_equal(sums.second, sums.second.T), f"{name}.second is not symmetric")
    if weight <= _LEAST:
        # All of it has faded to nothing, and the digits of what little is left are lost.
        largest = max(float(np.abs(moment).max(initial=0.0)) for moment in (sums.first, sums.second))
        require(largest <= _LEAST * max(sums.largest_energy, 1.0), f"{name}: there are moments, but of no weight")
        return
    trace = float(np.trace(sums.second))
    centred = sums.second - np.outer(sums.first / weight, sums.first)
    rounding = ROUNDING * trace + np.finfo(np.float64).tiny
    require(is_nearly_semidefinite(centred, rounding), f"{name}.second is not positive semidefinite around its mean")


def _check_recent(recent: RowSums, basis: Basis) -> None:
    # Rows cannot have more energy in the span of the atoms than they have: <K^-1, sum a k k^T> <= E.
    recorded = float(np.vdot(basis.precision, recent.second))
    allowed = (1.0 + ROUNDING + basis.distortion) * abs(recent.energy)
    require(recorded <= allowed, f"recent: {recorded:.6g} of an energy of {recent.energy:.6g} are recorded")


def _check_sample(name: str, sample: Reservoir, summary: Summary) -> None:
    drawn, kernel = sample.settled, summary.basis.kernel
    require(len(drawn.keys) <= sample.size, f"{name}: {len(drawn.keys)} rows are in a sample of {sample.size}")
    require_rows(name, drawn.rows, kernel)
    require_positions(name, drawn.positions, summary.n_rows)
    require_not_negative(f"{name}.weights", drawn.weights)
    require_finite(f"{name}.keys", drawn.keys)
    require(bool(np.all(np.diff(drawn.keys) >= 0.0)), f"{name}.keys are not in the order of the draws")


def _check_snapshot(name: str, snapshot: Snapshot, stream: Stream) -> None:
    kernel, summary = snapshot.kernel, stream.summary
    require_columns(kernel, stream.n_features)
    require(kernel.is_settled, f"{name}: the scale of its kernel {kernel!r} is not settled")
    # Before a block is full, answers have a scale of their own, settled on the rows that waited then.
    known = stream.kernel if stream.kernel.is_settled else kernel
    require(kernel == known, f"{name}: the kernel is not that of the stream")
    require_rows(f"{name}.atoms", snapshot.atoms, kernel)
    require_rows(f"{name}.sample", snapshot.sample, kernel)
    require_positions(f"{name}.atom_rows", snapshot.atom_rows, stream.n_rows)
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
        bool(np.all(np.abs(snapshot.projection - expected) <= ROUNDING * scale)),
        f"{name}.projection is not that of its axes",
    )
    reach = float(np.linalg.norm(snapshot.mean))
    require(math.isfinite(reach), f"{name}.mean is longer than any row")
    require(
        bool(np.all(np.abs(snapshot.offset - snapshot.mean @ snapshot.axes) <= SAME * reach)),
        f"{name}.offset is not the projection of its mean",
    )
    values, bounds, ratios = snapshot.eigenvalues, snapshot.eigenvalue_bounds, snapshot.explained_variance_ratio
    require_not_negative(f"{name}.eigenvalues", values)
    require(bool(np.all(np.diff(values) <= 0.0)), f"{name}.eigenvalues are not in descending order")
    require(bool(np.all(bounds[:, 0] <= bounds[:, 1])), f"{name}.eigenvalue_bounds: a lower one is above its upper")
    require_not_negative(f"{name}.explained_variance_ratio", ratios)
    # Of an indefinite kernel parts can exceed the whole; and of rows that are nearly the same by all their rounding.
    limit = 1.0 + ROUNDING if kernel.is_positive_definite else math.inf
    share, variance = float(ratios.sum()), float(values.sum())
    length = float(np.abs(kernel.program.diagonal(snapshot.atoms)).max(initial=0.0))
    is_rounding = (share - 1.0) * variance <= ROUNDING * share * length
    require(is_rounding or share <= limit, f"{name}.explained_variance_ratio exceeds the whole")
    noise = snapshot.noise_variance
    require(noise is None or (math.isfinite(noise) and noise > 0.0), f"{name}.noise_variance is {noise}")
    require_finite(name, [snapshot.total_weight, snapshot.unexplained_energy_ratio])
    require(min(snapshot.total_weight, snapshot.unexplained_energy_ratio) >= 0.0, f"{name}: a total is negative")
    require(snapshot.total_weight <= _LARGEST, f"{name}: the total weight cannot be squared")
    require(snapshot.unexplained_energy_ratio <= limit, f"{name}: more than all energy is unexplained")


def _same_span(snapshot: Snapshot, summary: Summary) -> bool:
    """Say whether the span is that of the present atoms, which has been looked at."""
    basis = summary.basis
    if snapshot.kernel != basis.kernel:
        return False
    return np.array_equal(snapshot.span_factor, basis.factor) and np.array_equal(snapshot.span_atoms, basis.atoms)
