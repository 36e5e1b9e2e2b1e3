"""Whether the parts of a stream that was read from a file say the same of the same rows."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import numpy.typing as npt

from streamkpca.checkpoints.requirements import ROUNDING, SAME, require
from streamkpca.stream import Stream
from streamkpca.summary import Summary
from streamkpca.validation import LARGEST_WEIGHT

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Rows compared at a time, so that no copy of a whole sample is made.
_CHUNK = 256
# Of lower weights the squares have lost their digits.
_LEAST_SQUARABLE = 1e-140


def check_agreement(stream: Stream) -> None:
    """Check what is known of rows from several parts of a stream.

    Parameters
    ----------
    stream : Stream
        Each part of which makes sense by itself.

    Raises
    ------
    CheckpointError
        Two parts contradict each other; the text says which.

    Notes
    -----
    A row is the same wherever it is kept. Rows of a sample weigh no more than the stream, and as much while none was
    left out; none has more energy than the largest; the square of what rows weigh together is at most their number
    times the sum of their squares.
    """
    for (name, positions, rows), (other, others_positions, others_rows) in combinations(_kept_rows(stream), 2):
        _, here, there = np.intersect1d(positions, others_positions, assume_unique=True, return_indices=True)
        for start in range(0, len(here), _CHUNK):
            piece = slice(start, start + _CHUNK)
            same = np.array_equal(rows[here[piece]], others_rows[there[piece]])
            require(same, f"{name} and {other} hold different rows from the same position of the stream")
    if stream.summary is not None:
        _check_weights(stream.summary)
        _check_samples(stream.summary)


def _kept_rows(stream: Stream) -> Iterator[tuple[str, Positions, Array]]:
    """Go through the rows that are kept by name, with their positions in the stream."""
    summary, pending = stream.summary, stream.pending
    yield "pending", stream.n_rows - pending.n_rows + np.arange(pending.n_rows), pending.rows
    if summary is not None:
        yield "atoms", summary.tenure.positions, summary.basis.atoms
        for name, sample in summary.samples():
            yield name, sample.settled.positions, sample.settled.rows
    for name, snapshot in stream.snapshots():
        yield name, snapshot.atom_rows, snapshot.atoms


def _check_weights(summary: Summary) -> None:
    for name, sums in (("settled", summary.settled), ("recent", summary.recent)):
        if sums is None:
            continue
        weight, squared = sums.total_weight, sums.total_squared_weight
        most = (1.0 + ROUNDING) * summary.n_rows
        require(weight <= LARGEST_WEIGHT * most, f"{name}: {summary.n_rows} rows cannot weigh {weight:.6g}")
        require(
            weight < _LEAST_SQUARABLE or weight**2 <= squared * most,
            f"{name}: of {summary.n_rows} rows that weigh {weight:.6g} the squares cannot be just {squared:.6g}",
        )
    total = (1.0 + ROUNDING) * summary.total_weight
    tenure = summary.tenure
    kept = {"atoms": tenure.weights} | {name: sample.settled.weights for name, sample in summary.samples()}
    for name, weights in kept.items():
        require(
            float(weights.sum()) <= total, f"{name} are said to weigh more than the stream, {summary.total_weight:.6g}"
        )
    require(bool(np.all(tenure.exposure <= total)), "atoms.exposure: an atom has seen more than the whole stream")


def _check_samples(summary: Summary) -> None:
    jury, reservoir = summary.jury.settled, summary.reservoir.settled
    if not summary.reservoir.is_full:
        kept, weight = float(reservoir.weights.sum()), summary.total_weight
        require(
            abs(kept - weight) <= ROUNDING * weight,
            f"reservoir: it was never full, but its rows weigh {kept:.6g} and those of the stream {weight:.6g}",
        )
    if not summary.jury.is_full:
        for name, positions in (("atoms", summary.tenure.positions), ("reservoir", reservoir.positions)):
            known = bool(np.isin(positions, jury.positions).all())
            require(known, f"jury: it was never full, but lacks rows of {name}")
    largest = max(sums.largest_energy for sums in (summary.settled, summary.recent) if sums is not None)
    kept_rows = reservoir.rows.astype(np.float64, copy=False)
    energies = summary.basis.kernel.program.diagonal(kept_rows), summary.basis.energy
    highest = max(float(energy.max(initial=0.0)) for energy in energies)
    require(
        highest <= (1.0 + SAME) * largest,
        f"a row of energy {highest:.6g} is kept, but {largest:.6g} is said to be the largest",
    )
