"""The novelty that rows of a stream have for a model which has not seen them, from which thresholds come."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import one_blas_thread
from streamkpca.components.certificates import left_out_novelty
from streamkpca.components.novelty import NoveltyScore
from streamkpca.kernels import Kernel
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import (
    State,
    answering,
    holds_all_rows,
    rows_for_selection,
    settled_on,
    totals_and_sample,
)
from streamkpca.stream.transitions import learned_anew

Array = npt.NDArray[np.float64]

# Rows are left out in at most this many parts, and in fewer once one part holds this many rows. With four parts,
# thresholds of 300 rows were exceeded by half as many fresh rows as they should be.
_MOST_PARTS, _ROWS_LEFT_OUT = 8, 512
# Widths that contrast chooses from are a factor of 3 apart, and those of parts of the rows differ by less than this.
_SAME_WIDTH = 2.0
# Unseen rows of the sample that are enough for any level, if it resolves them.
_ENOUGH = 250


class Calibration(NamedTuple):
    """Novelty (k,) of rows that were not seen when it was measured, and the weight (k,) that each stands for."""

    novelty: Array
    weights: Array


def rows_for_level(quantile: float) -> int:
    """Return how many rows decide about a quantile alone: of five times fewer, one is expected above it.

    The level of few rows is too high by up to one row's share: that of 28 rows for .9 lay at .93.
    """
    least = 1.0 / (1.0 - quantile)
    return math.ceil(max(least, min(5.0 * least, _ENOUGH)))


def calibrate(stream: State, settings: StreamSettings, n_least: int) -> Calibration:
    """Score rows of a stream as if its snapshot had not seen them; `n_least` rows or more decide alone.

    Notes
    -----
    Rows that came after the last refit, and sampled rows that had no part in the choice of the atoms, are unseen. While
    there are too few of them, the rows that the snapshot has seen are learned anew, each time without some of them,
    which are scored then (cross-validation). Without a budget, the rows other than the atoms had no part in the choice
    but being explained, and an atom is scored against the others (leave-one-out).
    """
    snapshot, (_, reservoir) = answering(stream, settings), totals_and_sample(stream, settings)
    counting = reservoir.inclusion_weights()
    if settings.max_atoms is None:
        novelty = left_out_novelty(snapshot, reservoir)
        return Calibration(novelty[counting > 0.0], counting[counting > 0.0])
    n_seen = stream.n_rows_at_refit if snapshot is stream.scheduled else stream.n_rows
    rows, weights, positions = rows_for_selection(stream)
    seen = positions < n_seen
    is_unseen = ((reservoir.positions >= n_seen) | ~np.isin(reservoir.positions, positions)) & (counting > 0.0)
    unseen = Calibration(snapshot.novelty(reservoir.rows[is_unseen]), counting[is_unseen])
    if len(unseen.weights) >= n_least or np.count_nonzero(seen) < 2:
        return unseen if len(unseen.weights) else Calibration(snapshot.novelty(reservoir.rows), counting)
    n = int(np.count_nonzero(seen))
    parts = np.random.default_rng(stream.seed).permutation(n) % min(_MOST_PARTS, n)
    known = list(_cross_validated(stream, snapshot.kernel, rows[seen], weights[seen], parts, settings))
    if not known:
        return Calibration(snapshot.novelty(rows), weights)
    return Calibration(*map(np.concatenate, zip(unseen, *known, strict=True)))


def held_out_runs(stream: State, settings: StreamSettings, n_least: int) -> list[Array]:
    """Return the novelty of rows as if they had not been seen, in runs of rows in the order of the stream.

    While all rows are kept, runs of neighbours are left out in turn. Later the rows are not neighbours any more, and
    each run is a single one of those that `calibrate` scores.
    """
    if settings.max_atoms is not None and holds_all_rows(stream):
        rows, weights, _ = rows_for_selection(stream)
        parts = np.arange(len(rows)) * _MOST_PARTS // max(len(rows), 1)
        kernel = answering(stream, settings).kernel
        return [part.novelty for part in _cross_validated(stream, kernel, rows, weights, parts, settings)]
    return [np.array([score]) for score in calibrate(stream, settings, n_least).novelty]


def _cross_validated(
    stream: State, kernel: Kernel, rows: Array, weights: Array, parts: npt.NDArray[np.int64], settings: StreamSettings
) -> Iterator[Calibration]:
    """Learn rows (n, d) without each of some parts in turn, given by their numbers (n,), and score those rows."""
    n_parts = int(parts.max(initial=-1)) + 1
    is_young = stream.summary is None or stream.settling is not None
    n_left_out = min(n_parts, -(-_ROWS_LEFT_OUT * n_parts // max(len(rows), 1)))
    with one_blas_thread():
        for number in range(n_left_out):
            left_out = (parts == (2 * number + 1) * n_parts // (2 * n_left_out)) & (weights > 0.0)
            # Rows of weight zero keep their places, so that blocks end where they did.
            others = np.where(left_out, 0.0, weights)
            if left_out.any() and others.any():
                # While the scale is not final, rows that it was settled on look nearer than rows to come.
                known = settled_on(stream, rows, others) if is_young else kernel
                if stream.has_gaps and not known.is_near(kernel, _SAME_WIDTH):
                    # Completed rows show less contrast, and of another width novelty has another unit.
                    known = kernel
                basis = learned_anew(stream, rows, others, settings, known).basis
                score = NoveltyScore(basis.kernel, basis.atoms, basis.factor)
                yield Calibration(score.of_rows(basis.completed(rows[left_out])), weights[left_out])
