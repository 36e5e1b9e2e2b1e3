"""The novelty that rows of a stream have for a model which has not seen them, from which thresholds come."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import one_blas_thread
from streamkpca.components.certificates import left_out_novelty
from streamkpca.components.novelty import NoveltyScore
from streamkpca.components.snapshot import Snapshot
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import Stream

Array = npt.NDArray[np.float64]

# Rows are left out in at most this many parts, and in fewer once one part holds this many rows. With four parts,
# thresholds of 300 rows were exceeded by half as many fresh rows as they should be.
_MOST_PARTS, _ROWS_LEFT_OUT = 8, 512


class Calibration(NamedTuple):
    """Novelty (k,) of rows that were not seen when it was measured, and the weight (k,) that each stands for."""

    novelty: Array
    weights: Array


def calibrate(stream: Stream, settings: StreamSettings, n_least: int) -> Calibration:
    """Score rows of a stream as if its snapshot had not seen them; `n_least` rows or more decide alone.

    Notes
    -----
    Rows that came after the last refit, and sampled rows that had no part in the choice of the atoms, are unseen. While
    there are too few of them, the rows that the snapshot has seen are learned anew, each time without some of them,
    which are scored then (cross-validation). Without a budget, the rows other than the atoms had no part in the choice
    but being explained, and an atom is scored against the others (leave-one-out).
    """
    snapshot, (reservoir, _) = stream.answering(settings), stream.sampled(settings)
    counting = reservoir.inclusion_weights()
    if settings.max_atoms is None:
        novelty = left_out_novelty(snapshot, reservoir)
        return Calibration(novelty[counting > 0.0], counting[counting > 0.0])
    n_seen = stream.n_rows_at_refit if snapshot is stream.scheduled else stream.n_rows
    rows, weights, positions = stream.rows_for_selection()
    seen = positions < n_seen
    is_unseen = ((reservoir.positions >= n_seen) | ~np.isin(reservoir.positions, positions)) & (counting > 0.0)
    unseen = Calibration(snapshot.novelty(reservoir.rows[is_unseen]), counting[is_unseen])
    if len(unseen.weights) >= n_least or np.count_nonzero(seen) < 2:
        return unseen if len(unseen.weights) else Calibration(snapshot.novelty(reservoir.rows), counting)
    known = _cross_validated(stream, snapshot, rows[seen], weights[seen], settings)
    return Calibration(*map(np.concatenate, zip(unseen, known, strict=True)))


def _cross_validated(
    stream: Stream, snapshot: Snapshot, rows: Array, weights: Array, settings: StreamSettings
) -> Calibration:
    """Learn rows (n, d) without some of them, and score those."""
    n = len(rows)
    n_parts = min(_MOST_PARTS, n)
    part = np.random.default_rng(stream.seed).permutation(n) % n_parts
    scores, stand_for = [], []
    with one_blas_thread():
        for number in range(min(n_parts, -(-_ROWS_LEFT_OUT * n_parts // n))):
            left_out = (part == number) & (weights > 0.0)
            # Rows of weight zero keep their places, so that blocks end where they did.
            others = np.where(left_out, 0.0, weights)
            if not left_out.any() or not others.any():
                continue
            basis = stream.relearned(rows, others, settings, snapshot.kernel).basis
            score = NoveltyScore(basis.kernel, basis.atoms, basis.factor)
            scores.append(score.of_rows(rows[left_out]))
            stand_for.append(weights[left_out])
    if not scores:
        return Calibration(snapshot.novelty(rows), weights)
    return Calibration(np.concatenate(scores), np.concatenate(stand_for))
