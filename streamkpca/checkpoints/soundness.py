"""Whether a stream that was read from a file makes sense."""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf

from streamkpca.basis import Basis, check_energy
from streamkpca.errors import CheckpointError
from streamkpca.factor import solve_transposed
from streamkpca.kernels import Kernel
from streamkpca.moments import Moments
from streamkpca.reservoir import Reservoir
from streamkpca.row_sums import RowSums
from streamkpca.snapshot import Snapshot
from streamkpca.stream import Stream
from streamkpca.summary import Summary

Array = npt.NDArray[np.float64]

# Kernel values of other machines differ in their last digits, relative to sqrt(k(x, x) k(y, y)); and rounding adds up
# over all the rows of a long stream, relative to the energy.
_SAME = 1e-8
_ROUNDING = 1e-6


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
    of what they say. O(m^3 + m^2 d), and not more memory than the arrays themselves take.
    """
    summary, pending = stream.summary, stream.pending
    _require_columns(stream.kernel, stream.n_features)
    if summary is not None:
        _require_columns(summary.basis.kernel, stream.n_features)
    _require(pending.n_rows < stream.block_size, f"{pending.n_rows} rows wait for a block of {stream.block_size}")
    _require_rows("pending", pending.rows, summary.basis.kernel if summary else stream.kernel, pending.weights)
    _require(stream.n_rejected <= stream.n_rows, f"{stream.n_rejected} of {stream.n_rows} rows were rejected")
    _require(stream.n_rows_at_refit <= stream.n_rows, "the last refit is said to be later than the last row")
    if summary is not None:
        _check_summary(summary)
    for name, snapshot in (("scheduled", stream.scheduled), ("published", stream.published)):
        if snapshot is not None and not (name == "published" and snapshot is stream.scheduled):
            _require(summary is not None, f"{name} axes are there, but no summary that they could be of")
            assert summary is not None
            _check_snapshot(name, snapshot, summary)


def _check_summary(summary: Summary) -> None:
    basis, tenure, moments = summary.basis, summary.tenure, summary.settled
    _require(basis.kernel.is_settled, f"the scale of its kernel {basis.kernel!r} is not settled")
    _require_rows("atoms", basis.atoms, basis.kernel)
    _require_factor("atoms", basis.factor, basis.atoms, basis.kernel)
    _require_close("atoms.energy", basis.energy, basis.kernel.program.diagonal(basis.atoms), basis.energy)
    _require_positions("atoms", tenure.positions, summary.n_rows)
    for name in ("weights", "exposure"):
        _require_not_negative(f"atoms.{name}", getattr(tenure, name))
    _check_moments(moments)
    if summary.recent is not None:
        _check_sums("recent", summary.recent)
        _check_recent(summary.recent, basis)
    for name, sample in (("jury", summary.jury), ("reservoir", summary.reservoir)):
        _check_sample(name, sample, summary)
    trend, pace = summary.trend, summary.pace
    _require_finite("trend", [trend.level, trend.variance, trend.rise, trend.fall])
    _require(min(trend.variance, trend.rise, trend.fall) >= 0.0, "trend: sums of squares or of rises are negative")
    _require(trend.n_blocks >= 0, "trend: a negative number of blocks")
    _require_finite("pace", [pace.spread])
    _require(not math.isnan(pace.usual_residual) and pace.spread >= 0.0, "pace: the residuals are no residuals")
    _require(0 <= pace.wait < pace.pause and pace.age >= 0, "pace: the next search is not within the pause")
    drift = summary.last_drift
    _require(drift is None or drift <= summary.n_rows, "a drift is said to be later than the last row")


def _check_moments(moments: Moments) -> None:
    losses = moments.losses
    _require_finite("losses", vars(losses).values())
    _require(min(losses.rounding, losses.stale_length) >= 0.0, "losses: a length is negative")
    _check_sums("settled", moments)
    account = float(np.trace(moments.second)) + losses.total
    allowed = _ROUNDING * abs(moments.energy) + losses.rounding
    _require(
        abs(account - moments.energy) <= allowed,
        f"energy is not conserved: {account:.6g} are recorded or lost of {moments.energy:.6g}",
    )


def _check_sums(name: str, sums: RowSums) -> None:
    """Check that some rows have these sums: second - first first^T / N is a sum of squares."""
    weight, squared = sums.total_weight, sums.total_squared_weight
    _require_finite(name, [weight, squared, sums.energy, sums.largest_energy])
    _require_finite(f"{name}.first", sums.first)
    _require_finite(f"{name}.second", sums.second)
    _require(weight >= 0.0 and squared >= 0.0, f"{name}: a total weight is negative")
    # Forgetting can take the squares below all numbers, but never above the square of the sum.
    _require(squared <= (1.0 + _ROUNDING) * weight**2, f"{name}: squared weights exceed the square of their sum")
    _require(np.array_equal(sums.second, sums.second.T), f"{name}.second is not symmetric")
    if weight == 0.0:
        _require(not (sums.first.any() or sums.second.any()), f"{name}: there are moments, but of no weight")
        return
    trace = float(np.trace(sums.second))
    centred = sums.second - np.outer(sums.first / weight, sums.first)
    rounding = _ROUNDING * trace + np.finfo(np.float64).tiny
    _require(_is_nearly_semidefinite(centred, rounding), f"{name}.second is not positive semidefinite around its mean")


def _check_recent(recent: RowSums, basis: Basis) -> None:
    # Rows cannot have more energy in the span of the atoms than they have: <K^-1, sum a k k^T> <= E.
    recorded = float(np.vdot(basis.precision, recent.second))
    allowed = (1.0 + _ROUNDING + basis.distortion) * abs(recent.energy)
    _require(recorded <= allowed, f"recent: {recorded:.6g} of an energy of {recent.energy:.6g} are recorded")


def _check_sample(name: str, sample: Reservoir, summary: Summary) -> None:
    drawn, kernel = sample.settled, summary.basis.kernel
    _require(len(drawn.keys) <= sample.size, f"{name}: {len(drawn.keys)} rows are in a sample of {sample.size}")
    _require_rows(name, drawn.rows, kernel)
    _require_positions(name, drawn.positions, summary.n_rows)
    _require_not_negative(f"{name}.weights", drawn.weights)
    _require_finite(f"{name}.keys", drawn.keys)
    _require(bool(np.all(np.diff(drawn.keys) >= 0.0)), f"{name}.keys are not in the order of the draws")


def _check_snapshot(name: str, snapshot: Snapshot, summary: Summary) -> None:
    _require(snapshot.kernel == summary.basis.kernel, f"{name}: the kernel is not that of the atoms")
    _require_rows(f"{name}.atoms", snapshot.atoms, snapshot.kernel)
    _require_rows(f"{name}.sample", snapshot.sample, snapshot.kernel)
    _require(bool(np.all(snapshot.atom_rows >= 0)), f"{name}.atom_rows: a position is negative")
    _require_not_negative(f"{name}.weights", snapshot.weights)
    _require_factor(name, snapshot.factor, snapshot.active_atoms, snapshot.kernel)
    if not (snapshot.span_factor.shape == summary.basis.factor.shape and _same_span(snapshot, summary)):
        _require_factor(f"{name}.span", snapshot.span_factor, snapshot.span_atoms, snapshot.kernel)
    for part in ("axes", "mean", "projection", "offset", "eigenvalue_bounds"):
        _require_finite(f"{name}.{part}", getattr(snapshot, part))
    # Axes are orthonormal, or zero beyond the rank.
    lengths = np.einsum("ij,ij->j", snapshot.axes, snapshot.axes)
    gram = snapshot.axes.T @ snapshot.axes
    _require_close(f"{name}.axes", gram, np.diag((lengths > 0.5).astype(float)), np.ones(len(lengths)))
    expected = solve_transposed(snapshot.factor, snapshot.axes.T).T
    scale = np.abs(expected).max(initial=0.0)
    _require(
        bool(np.all(np.abs(snapshot.projection - expected) <= _ROUNDING * scale)),
        f"{name}.projection is not that of its axes",
    )
    reach = float(np.linalg.norm(snapshot.mean))
    _require(
        bool(np.all(np.abs(snapshot.offset - snapshot.mean @ snapshot.axes) <= _SAME * reach)),
        f"{name}.offset is not the projection of its mean",
    )
    values, bounds, ratios = snapshot.eigenvalues, snapshot.eigenvalue_bounds, snapshot.explained_variance_ratio
    _require_not_negative(f"{name}.eigenvalues", values)
    _require(bool(np.all(np.diff(values) <= 0.0)), f"{name}.eigenvalues are not in descending order")
    _require(bool(np.all(bounds[:, 0] <= bounds[:, 1])), f"{name}.eigenvalue_bounds: a lower one is above its upper")
    _require_not_negative(f"{name}.explained_variance_ratio", ratios)
    _require(float(ratios.sum()) <= 1.0 + _ROUNDING, f"{name}.explained_variance_ratio exceeds the whole")
    noise = snapshot.noise_variance
    _require(noise is None or (math.isfinite(noise) and noise > 0.0), f"{name}.noise_variance is {noise}")
    _require_finite(name, [snapshot.total_weight, snapshot.unexplained_energy_ratio])
    _require(min(snapshot.total_weight, snapshot.unexplained_energy_ratio) >= 0.0, f"{name}: a total is negative")


def _same_span(snapshot: Snapshot, summary: Summary) -> bool:
    """Say whether the span is that of the present atoms, which has been looked at."""
    basis = summary.basis
    return np.array_equal(snapshot.span_factor, basis.factor) and np.array_equal(snapshot.span_atoms, basis.atoms)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CheckpointError(otherwise)


def _require_columns(kernel: Kernel, n_features: int) -> None:
    try:
        kernel.check_width(n_features, "the kernel")
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def _require_finite(name: str, numbers: Array | Iterable[float]) -> None:
    values = numbers if isinstance(numbers, np.ndarray) else np.array(list(numbers))
    _require(bool(np.isfinite(values).all()), f"{name}: a number is not finite")


def _require_not_negative(name: str, numbers: Array) -> None:
    _require_finite(name, numbers)
    _require(bool(np.all(numbers >= 0.0)), f"{name}: a number is negative")


def _require_positions(name: str, positions: npt.NDArray[np.int64], n_rows: int) -> None:
    inside = len(positions) == 0 or (positions.min() >= 0 and positions.max() < n_rows)
    _require(bool(inside), f"{name}.positions: one is outside the {n_rows} rows of the stream")
    _require(len(np.unique(positions)) == len(positions), f"{name}.positions: one is there twice")


def _require_rows(name: str, rows: Array, kernel: Kernel, weights: Array | None = None) -> None:
    """Check that rows are finite, and within the range of the kernel."""
    _require_finite(f"{name}.rows", rows)
    if weights is not None:
        _require_not_negative(f"{name}.weights", weights)
        rows = rows[weights > 0.0]
    if kernel.is_settled and len(rows):
        try:
            check_energy(kernel.program.diagonal(rows.astype(np.float64, copy=False)))
        except ValueError as error:
            raise CheckpointError(f"{name}.rows: {error}") from None


def _require_factor(name: str, factor: Array, atoms: Array, kernel: Kernel) -> None:
    """Check that L is lower triangular with a positive diagonal, and that L L^T = k(Z, Z)."""
    _require_finite(f"{name}.factor", factor)
    _require(not np.triu(factor, 1).any(), f"{name}.factor is not lower triangular")
    _require(bool(np.all(np.diagonal(factor) > 0.0)), f"{name}.factor has a pivot that is not positive")
    difference = kernel.program.gram(atoms)
    lengths = np.sqrt(np.abs(np.diagonal(difference)))
    with np.errstate(over="ignore", invalid="ignore"):
        difference -= factor @ factor.T
        np.abs(difference, out=difference)
        difference -= _SAME * lengths * lengths[:, None]
    _require(bool(np.all(difference <= 0.0)), f"{name}.factor is not that of its atoms' kernel matrix")


def _require_close(name: str, given: Array, expected: Array, scale: Array) -> None:
    _require_finite(name, given)
    _require(
        bool(np.all(np.abs(given - expected) <= _SAME * np.abs(scale))), f"{name} is not what follows from the rest"
    )


def _is_nearly_semidefinite(matrix: Array, rounding: float) -> bool:
    """Say whether no eigenvalue is below minus `rounding`; the matrix is overwritten."""
    if not matrix.size:
        return True
    matrix[np.diag_indices_from(matrix)] += rounding
    # The transposed view is column-major, and the matrix symmetric.
    return bool(dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)[1] == 0)
