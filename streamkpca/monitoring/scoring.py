"""How rows are scored: with their predecessors and the phase of a cycle, by where they lie and by how they relate."""

import itertools
from typing import NamedTuple

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca.components.relation import Relation, RowMoments
from streamkpca.monitoring._loops import smooth_roots
from streamkpca.monitoring.causes import Healthy
from streamkpca.monitoring.periods import Period, n_phases, with_phases
from streamkpca.monitoring.state import MonitorState
from streamkpca.rows.times import Times
from streamkpca.rows.validation import usable_rows
from streamkpca.stream import Settings, check_range, latest_axes

# Numbers of a row up to which each is predicted by the others, as that takes the square of their number.
MOST_RELATED = 1024


class Scores(NamedTuple):
    """Scores of rows (n,): their novelty, and by which they are judged.

    The `views` are the smoothed novelty, which says where rows lie, and, where numbers are predicted, how surprising
    they are given each other.
    """

    novelty: Array
    views: tuple[Array, ...]


class Scorer(NamedTuple):
    """How rows are scored: the settings of the model, and what becomes of rows before it sees them; a value.

    A row (d,) becomes D numbers.
    """

    settings: Settings
    period: Period
    lags: int
    smoothing: float | None

    # Rows

    def width(self, d: int) -> int:
        """Return how many numbers D a row (d,) becomes."""
        return d * self.lags + n_phases(self.period)

    def leave_phases_out(self, rows: Array) -> Array:
        """Return the columns of rows (n, D) that are related to each other: all but the phases."""
        return rows if self.period is None else rows[:, : rows.shape[1] - n_phases(self.period)]

    def cut_runs(self, rows: Array, breaks: Flags, is_planned: Flags) -> list[tuple[int, int, bool]]:
        """Cut rows (n, d) before breaks, and tell of each run whether its rows are to be scored.

        Those of planned windows are not, nor those without numbers enough.
        """
        bad, missing = is_planned, self.settings.on_missing
        # Otherwise rows are refused with a number that is not finite.
        if missing != "raise" or self.settings.on_bad_rows == "skip":
            bad = bad | ~usable_rows(rows, gaps=missing == "marginal")
        if len(rows) == 1 or not (bad.any() or breaks[1:].any()):
            return [(0, len(rows), not bad[0])]
        edges = [0, *(np.flatnonzero(breaks[1:] | (bad[1:] != bad[:-1])) + 1).tolist(), len(bad)]
        return [(start, stop, not bad[start]) for start, stop in itertools.pairwise(edges)]

    def stack(self, state: MonitorState, rows: Array, times: Times | None) -> tuple[Array, Array, int]:
        """Return rows (n, d) that follow each other as (n, D), the context of the next one, and how many are padded."""
        context, n_padded = state.context, state.n_padded
        if context is None:
            context = np.repeat(rows[:1], self.lags - 1, axis=0)
            # Rows whose predecessors are padded are not learned, except the first rows of all.
            n_padded = self.lags - 1 if state.n_rows else 0
        stacked, context = with_predecessors(rows, context)
        if self.period is not None:
            stacked = with_phases(stacked, self.period, state.n_rows, times)
        # Among rows that wait to be learned, those that the model would refuse would make every later call fail.
        check_range(state.model, stacked, 1.0)
        return stacked, context, n_padded

    # Scores

    def score(self, state: MonitorState, stacked: Array, learns: bool) -> Scores:
        """Score a run of rows (n, D), smoothed after the last scores, if there are any."""
        model, relation, last = state.model, state.predictor, state.last_scores
        # A model that learns has no novelty before its first refit.
        novelty = np.zeros(len(stacked))
        if not learns or model.published is not None:
            novelty = latest_axes(model, self.settings).novelty_by_row(stacked)
        place = smooth(novelty, None if last is None else last[0], self.smoothing)
        if relation is None:
            return Scores(novelty, (place,))
        # The numbers of the row itself, given all others, its predecessors among them.
        surprise = relation.score(self.leave_phases_out(stacked), len(relation.mean) // self.lags)
        return Scores(novelty, (place, smooth(surprise, None if last is None else last[1], self.smoothing)))

    def describe_healthy(self, state: MonitorState) -> Healthy:
        """Return what is known of healthy rows, by the model and their relation, or by that of rows of the model."""
        answers, relation = latest_axes(state.model, self.settings), state.predictor
        if relation is None and (rows := self.leave_phases_out(answers.healthy_rows)).shape[1] <= MOST_RELATED:
            relation = Relation.fit(RowMoments.none(rows.shape[1]).add(rows), rows)
        return Healthy(answers.expectation, relation, self.lags, n_phases(self.period))


def with_predecessors(rows: Array, before: Array) -> tuple[Array, Array]:
    """Return rows (n, d) with those before them, the latest first, given those before the first row; and the next."""
    if not len(before):
        return rows.copy(), before
    series = np.concatenate([before[::-1], rows])
    lags = [series[lag : lag + len(rows)] for lag in range(len(before), -1, -1)]
    return np.concatenate(lags, axis=1), series[len(rows) :][::-1].copy()


def smooth(scores: Array, last: float | None, smoothing: float | None) -> Array:
    """Return the exponentially weighted means of a run of scores (n,), after the last mean if there is one.

    Roots are averaged, and the mean squared: s_t = ((1 - a) s_(t-1)^1/2 + a x_t^1/2)^2. Novelty behaves like a sum of
    squares, whose roots are nearer to symmetric; in the plain mean one far row would outweigh the next ten.
    """
    if smoothing is None:
        return scores
    smoothed = np.empty(len(scores))
    smooth_roots(scores, smoothing, scores[0] if last is None else last, smoothed)
    return smoothed
