"""The novelty that rows of a stream have for a model which has not seen them, from which thresholds come."""

import math
from typing import NamedTuple

import numpy as np

from streamkpca._core import linalg
from streamkpca._core.arrays import Array, Positions
from streamkpca._core.reservoir import origins_of
from streamkpca.components.snapshot import NoveltyScore, Snapshot
from streamkpca.dictionary._loops import GAIN, choose_greedily
from streamkpca.stream.parameters import Settings
from streamkpca.stream.state import State, latest_axes, totals_and_sample

# Runs of neighbours that are left out in turn. With four, thresholds of 300 rows were exceeded by half as many fresh
# rows as they should be; with runs of 64 rows, those of 2,048 rows by twice as many where atoms move.
_N_RUNS = 8
# Rows that may take the places of atoms that are left out. If all places are taken, fresh rows exceed thresholds up to
# three times as often as they should: the other atoms were chosen to explain the run, too. If none is, half as often,
# and the last atom of a rank is missing.
_MOST_ADMISSIBLE = 256
# Rows take the places of atoms until the others are explained as well as before, but for this factor.
_AS_WELL = 1.2
# Below this share of k(x, x), what other atoms explain of a row is not known from what they explain together.
_LEAST_EXPLAINED = 1e-6
# The least share of k(x, x) that counts as explained: the rest is rounding.
_ROUNDING = 1e-16
# Unseen rows of the sample that are enough for any level, if it resolves them.
_ENOUGH = 250


class Calibration(NamedTuple):
    """Novelty of rows that were not seen when it was measured.

    Parameters
    ----------
    novelty, weights : ndarray of shape (k,)
        The scores, and the weight that each stands for.
    runs : ndarray of shape (k,)
        Numbers of runs: rows of one run were neighbours in the stream, in this order.
    rows : ndarray of shape (k, d)
        The rows.

    Examples
    --------
    >>> from streamkpca.stream import Calibration
    >>> Calibration(np.arange(99.0), np.ones(99), np.arange(99), np.ones((99, 2))).level(10.0)
    89.0
    """

    novelty: Array
    weights: Array
    runs: Positions
    rows: Array

    def level(self, rarity: float) -> float:
        """Return the score that a new row exceeds at most once in `rarity` rows, or the highest.

        Parameters
        ----------
        rarity : float
            Above 1.
        """
        order = np.argsort(self.novelty, kind="stable")
        below = np.cumsum(self.weights[order])
        # The new row counts as one more of average weight above all others.
        newcomer = float(self.weights @ self.weights) / float(self.weights.sum())
        wanted = (1.0 - 1.0 / rarity) * (float(below[-1]) + newcomer) * (1.0 - 1e-12)
        return float(self.novelty[order[min(int(np.searchsorted(below, wanted)), len(order) - 1)]])


def rows_for_level(rarity: float) -> int:
    """Return how many rows decide about a level alone: of five times fewer, one is expected above it."""
    return math.ceil(max(rarity, min(5.0 * rarity, _ENOUGH)))


def calibrate(state: State, settings: Settings, *, n_least: int = _ENOUGH) -> Calibration:
    """Return scores of rows of a stream as if its latest axes had not seen them.

    Parameters
    ----------
    state : State
        With at least one row, and a `reservoir_size` above 0.
    settings : Settings
    n_least : int
        This many unseen rows, or more, decide alone.

    Notes
    -----
    Rows that came after the last refit, and sampled rows that had no part in the choice of the atoms, are unseen. While
    there are too few of them, an eighth of the rows that the snapshot has seen, a run of neighbours, is scored without
    the atoms that began as rows of this run. Without a budget, sampled rows are left out one by one.

    Examples
    --------
    >>> from streamkpca.kernels import RBF
    >>> from streamkpca.stream import Settings, State, advance, calibrate, latest_axes
    >>> settings, random = Settings.make(kernel=RBF(0.5), max_atoms=16), np.random.default_rng(0)
    >>> state = advance(State.begin(settings, 2), random.normal(size=(5000, 2)), 1.0, settings)
    >>> later = latest_axes(state, settings).novelty(random.normal(size=(5000, 2)))
    >>> round(float((later < calibrate(state, settings).level(20.0)).mean()), 2)
    0.95
    """
    snapshot = latest_axes(state, settings)
    _, reservoir = totals_and_sample(state, settings, snapshot.kernel)
    counting = reservoir.inclusion_weights()
    is_counting = counting > 0.0
    if settings.max_atoms is None:
        with linalg.one_blas_thread():
            singles = np.arange(len(counting))
            novelty = _without_own_atoms(snapshot, reservoir.rows, counting, reservoir.positions, singles)
        return _single(reservoir.rows[is_counting], novelty[is_counting], counting[is_counting])
    n_seen = state.n_rows_at_refit if snapshot is state.scheduled else state.n_rows
    rows, weights, positions = rows_for_selection(state)
    is_unseen = ((reservoir.positions >= n_seen) | ~np.isin(reservoir.positions, positions)) & is_counting
    unseen = _single(reservoir.rows[is_unseen], snapshot.novelty(reservoir.rows[is_unseen]), counting[is_unseen])
    seen = np.flatnonzero((positions < n_seen) & (weights > 0.0))
    if len(unseen.weights) >= n_least or len(seen) < 2:
        return unseen if len(unseen.rows) else _single(reservoir.rows, snapshot.novelty(reservoir.rows), counting)
    runs = np.arange(len(seen)) * min(_N_RUNS, len(seen)) // len(seen)
    with linalg.one_blas_thread():
        novelty = _without_own_atoms(snapshot, rows[seen], weights[seen], positions[seen], runs)
    if state.summary is not None and not state.summary.samples_all_rows:
        # Rows of a sample that are next to each other were not neighbours.
        runs = np.arange(len(seen))
    return Calibration(
        np.concatenate([novelty, unseen.novelty]),
        np.concatenate([weights[seen], unseen.weights]),
        np.concatenate([runs, -1 - unseen.runs]),
        np.concatenate([rows[seen], unseen.rows]),
    )


def rows_for_selection(state: State) -> tuple[Array, Array, Positions]:
    """Return rows (n, d), weights (n,) and positions of what atoms were chosen from, pending rows included."""
    pending, summary = state.pending, state.summary
    positions = state.n_rows - pending.n_rows + np.arange(pending.n_rows)
    if summary is None:
        return pending.rows, pending.weights, positions
    rows, weights, places = summary.selection_sample.in_stream_order()
    return (
        np.concatenate([rows, pending.rows]),
        np.concatenate([weights, pending.weights]),
        np.concatenate([places, positions]),
    )


def _single(rows: Array, novelty: Array, weights: Array) -> Calibration:
    """Return scores (k,) of rows that are no neighbours."""
    return Calibration(novelty, weights, np.arange(len(novelty)), rows)


def _without_own_atoms(snapshot: Snapshot, rows: Array, weights: Array, positions: Positions, runs: Positions) -> Array:
    """Score rows (n, d), at positions in the stream, with rows of other runs in place of the atoms of their own run.

    With beta = K^-1 k_Z(x) and P = K^-1, the residual inner product of two rows grows by beta_S^T (P_SS)^-1 beta'_S
    without the atoms S: their dual vectors, whose inner products are P_SS, span what only they explain. Then rows of
    other runs are admitted greedily. O(n m (m + s)) for s rows that may be.
    """
    rows, factor = snapshot.complete(rows), snapshot.span_factor
    program = snapshot.kernel.program
    energy, coordinates = program.diagonal(rows), linalg.solve_factor(factor, program.matrix(rows, snapshot.span_atoms))
    unit = float(np.abs(energy).max()) or 1.0
    coefficients = linalg.solve_transposed(factor, coordinates)
    residual = (energy - linalg.squared_norms(coordinates)) / unit
    precision = linalg.solve_transposed(factor, linalg.solve_factor(factor, np.eye(len(factor)))) * unit
    origins = origins_of(snapshot.atom_rows)
    run_of_row = dict(zip(positions.tolist(), runs.tolist(), strict=True))
    owners = np.array([run_of_row.get(row, -1) for row in origins.tolist()], dtype=np.int64)
    free = np.flatnonzero(~np.isin(positions, origins))
    free = free[:: max(-(-len(free) // _MOST_ADMISSIBLE), 1)]

    def products(first: Positions, second: Positions) -> Array:
        """Return residual inner products of rows at some numbers."""
        values = program.matrix(rows[first], rows[second])
        return (values - coordinates[first] @ coordinates[second].T) / unit

    among_free, left = products(free, free), residual.copy()
    for run in np.unique(owners[owners >= 0]):
        own, others = np.flatnonzero(owners == run), np.flatnonzero(runs[free] != run)
        admissible, beside = free[others], np.flatnonzero(runs == run)
        grown = np.linalg.inv(precision[np.ix_(own, own)])
        lost, lost_beside = coefficients[np.ix_(admissible, own)], coefficients[np.ix_(beside, own)]
        shared, counting = lost @ grown, weights[admissible]
        # One axis after the other takes a third of the time of both at once.
        gram, after = among_free.take(others, 0).take(others, 1), residual[admissible] + (shared * lost).sum(1)
        gram += shared @ lost.T
        enough = _AS_WELL * max(float(counting @ residual[admissible]), 0.0)
        limits, untested = (1.0, 0.0, enough, linalg.LEAST_PIVOT, 0.0), (np.empty((0, 0)), np.empty(0))
        numbers, chosen = np.arange(len(others)), np.empty(len(own), dtype=np.int64)
        found, units = np.empty((len(own), len(others))), energy[admissible] / unit
        count, _ = choose_greedily(gram, numbers, counting, units, after, GAIN, limits, found, *untested, chosen)
        chosen = chosen[:count]
        explained = products(beside, admissible[chosen]) + lost_beside @ shared[chosen].T
        along = linalg.solve_factor(np.ascontiguousarray(np.tril(found[:count, chosen].T)), explained)
        left[beside] += (lost_beside @ grown * lost_beside).sum(axis=1) - linalg.squared_norms(along)
    explained = np.maximum(energy - np.maximum(left, 0.0) * unit, _ROUNDING * energy)
    novelty = snapshot.novelty_score.of_errors(rows, energy - explained, explained)
    is_rounding = (explained < _LEAST_EXPLAINED * energy) & np.isin(runs, owners)
    for run in np.unique(runs[is_rounding]) if runs[-1] < _N_RUNS else ():
        # Rounding has taken the digits of what the other atoms explain. Many runs would take too long.
        part, others = np.flatnonzero(is_rounding & (runs == run)), np.flatnonzero(owners != run)
        score = NoveltyScore(snapshot.kernel, snapshot.span_atoms[others], linalg.restrict_factor(factor, others)[0])
        novelty[part] = score.of_rows(rows[part])
    return novelty
