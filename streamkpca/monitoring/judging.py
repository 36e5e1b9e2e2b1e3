"""How rows are judged: scored by where they lie and how their numbers relate, and what their rarity says of them."""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamkpca._core.arrays import Array, Flags, Indices
from streamkpca._core.concurrency import replace_fields
from streamkpca.monitoring._loops import smooth_roots
from streamkpca.monitoring.bound import judge_by_bound
from streamkpca.monitoring.causes import Healthy
from streamkpca.monitoring.periods import Period, append_phases, n_phases
from streamkpca.monitoring.state import JudgedRows, MonitorState
from streamkpca.rows.bad_rows import usable_rows
from streamkpca.rows.times import Times
from streamkpca.stream import Settings, check_range, latest_axes

# Fewest rows of a chunk, which one model and one scale judge.
SHORTEST_CHUNK = 32
# Most rows of a chunk.
_LONGEST_CHUNK = 128
# A chunk has a row for each 16 so far, rounded down to a power of two.
_ROWS_FOR_ONE = 16
# 1 / (1 - quantile) is a whole number of rows only up to rounding.
_ROUNDING = 1e-9
# Rarity of the healthy row in the middle.
_MEDIAN = 2.0
# Rows that are less rare than this among healthy ones are compared with no event that a user has reviewed.
_LEAST_RARITY = 10.0


@dataclass(frozen=True)
class YoungPolicy:
    """The numbers of learned rows at which a monitor changes what it does, and what it does until then."""

    # From here on rows are judged. With 32, average precision on short streams was 0.05 lower.
    n_first: int = 64
    # Each time that the learned rows have grown by this factor, the rows held out are scored again.
    growth: float = 1.5
    # Learned rows after which they are scored again, at the latest. With growth alone, slow drifts outran the scale: on
    # 14 drifting streams, the mean area under the ROC curve was 0.02 lower.
    n_between: int = 512
    # Until here the model is refitted each time, as its own schedule publishes too late for young streams.
    n_refitted: int = 2048
    # Until here all rows but gross ones are learned, later those that raise no alarm. A stream has four rows for three
    # that are learned. On ten families of streams, each begun at four rows, average precision was 0.557; with 2,048
    # rows it was 0.552, with 4,608 0.548.
    n_grown: int = 3072
    # Until here rows as rare as alarms are learned this many rows late, so that no fault is learned before it has
    # lasted. With 0 and 256 rows average precision was 0.540, with 1,024 0.551.
    n_late: int = 512
    # From here on a model stands still while the stream does: it would learn faults that begin slowly, and what is rare
    # among the rows below the threshold. With 3,072 rows average precision was 0.552, with 6,144 0.542, and 0.527 where
    # models go on learning.
    n_settled: int = 4608
    # A row is gross if an exponential tail would bring less than one in this number of rows. Lower limits keep a model
    # in the state that it began in.
    gross: float = 1e6


YOUNG = YoungPolicy()


class Scorer(NamedTuple):
    """How rows are scored: the settings of the model, and what becomes of rows before it sees them; a value.

    A row (d,) becomes D numbers.
    """

    settings: Settings
    period: Period
    lags: int
    smoothing: float | None

    def width(self, d: int) -> int:
        """Return how many numbers D a row (d,) becomes."""
        return d * self.lags + n_phases(self.period)

    def leave_phases_out(self, rows: Array) -> Array:
        """Return the columns of rows (n, D) that are related to each other: all but the phases."""
        return rows if self.period is None else rows[:, : rows.shape[1] - n_phases(self.period)]

    def cut_segments(self, rows: Array, breaks: Flags, is_planned: Flags) -> list[tuple[int, int, bool]]:
        """Cut rows (n, d) before breaks, and tell of each segment whether its rows are to be scored.

        Those of planned windows are not, nor those without numbers enough.
        """
        bad, missing = is_planned, self.settings.missing
        # Otherwise `check_parts` has refused them.
        if missing != "raise":
            bad = bad | ~usable_rows(rows, gaps=missing == "marginal")
        if len(rows) == 1 or not (bad.any() or breaks[1:].any()):
            return [(0, len(rows), not bad[0])]
        edges = [0, *(np.flatnonzero(breaks[1:] | (bad[1:] != bad[:-1])) + 1).tolist(), len(bad)]
        return [(start, stop, not bad[start]) for start, stop in itertools.pairwise(edges)]

    def stack(self, state: MonitorState, rows: Array, times: Times | None) -> tuple[MonitorState, Array]:
        """Return rows (n, d) of a segment as (n, D), and the state with the context of the next one."""
        context, n_padded = state.context, state.n_padded
        if context is None:
            context = np.repeat(rows[:1], self.lags - 1, axis=0)
            # Rows whose predecessors are padded are not learned, except the first of all, or with learn="all".
            n_padded = self.lags - 1 if state.n_rows else 0
        stacked, context = append_predecessors(rows, context) if self.lags > 1 else (rows.copy(), context)
        if self.period is not None:
            stacked = append_phases(stacked, self.period, state.n_rows, times)
        # Among rows that wait to be learned, those that the model would refuse would make every later call fail.
        check_range(state.model, stacked, 1.0)
        return replace_fields(state, context=context, n_padded=n_padded), stacked

    def score(self, state: MonitorState, rows: Array, learns: bool) -> tuple[Array, Array]:
        """Score a segment of rows (n, D) by each view, (v, n), and return these scores and the smoothed ones."""
        novelty = np.zeros(len(rows))
        # A model that learns has no novelty before its first refit.
        if not learns or state.model.published is not None:
            novelty = latest_axes(state.model, self.settings).novelty_by_row(rows)
        # The numbers of the row itself, given all others, its predecessors among them.
        scores = state.views.score(novelty, self.leave_phases_out(rows), state.n_features)
        return scores, scores if self.smoothing is None else smooth(scores, state.last_scores, self.smoothing)

    def describe_healthy(self, state: MonitorState) -> Healthy:
        """Return what is known of healthy rows, by the model and their relation, if there is one."""
        expectation = latest_axes(state.model, self.settings).expectation
        return Healthy(expectation, state.views.relation, self.lags, n_phases(self.period))


def find_chunk_length(n_rows: int) -> int:
    """Return how many rows the present chunk has: by its position alone, so that cuts into calls do not matter."""
    return min(max(1 << max(n_rows // _ROWS_FOR_ONE, 1).bit_length() - 1, SHORTEST_CHUNK), _LONGEST_CHUNK)


def append_predecessors(rows: Array, before: Array) -> tuple[Array, Array]:
    """Return rows (n, d) with those before them, the latest first, given those before the first row; and the next."""
    series = np.concatenate([before[::-1], rows])
    lags = [series[lag : lag + len(rows)] for lag in range(len(before), -1, -1)]
    return np.concatenate(lags, axis=1), series[len(rows) :][::-1].copy()


def smooth(scores: Array, last: Array | None, smoothing: float) -> Array:
    """Return the exponentially weighted means of scores (v, n) in time order, after the last means (v,), if any.

    Roots are averaged, and the mean squared: s_t = ((1 - a) s_(t-1)^1/2 + a x_t^1/2)^2. Novelty behaves like a sum of
    squares, whose roots are nearer to symmetric; in the plain mean one far row would outweigh the next ten.
    """
    smoothed = np.empty(scores.shape)
    for view, begin, out in zip(scores, scores[:, 0] if last is None else last, smoothed, strict=True):
        smooth_roots(view, smoothing, begin, out)
    return smoothed


def judge(
    state: MonitorState, scorer: Scorer, scores: Array, rows: Array, threshold: float, learns: bool
) -> tuple[MonitorState, Array, Array, Flags, Indices]:
    """Judge rows (n, D) by their smoothed scores (v, n), as rare as the rarer view says; they wait to be learned.

    Returns their rarities, the thresholds from which on they are alarms, which ones are, and their rarer views.

    While the monitor is young, all rows but gross ones may be learned, later those that are not rare among those that
    were learned. A monitor that does not learn compares with these alone, not with the rows that came since. Rows like
    those of accepted events may be learned, those like confirmed ones are alarms; neither count among the rows so far.
    """
    n, is_reviewed = len(rows), len(state.reviewed.rows) > 0
    none, is_fine, is_fault = np.zeros((3, n), dtype=bool)
    if is_reviewed and len(compared := np.flatnonzero(state.views.rarity_of(scores) >= _LEAST_RARITY)):
        healthy = scorer.describe_healthy(state)
        is_fine[compared], is_fault[compared] = state.reviewed.recognise(rows[compared], healthy)
    counts = state.counts.copy()
    (among_healthy, limited), rarer = state.views.rank(scores, ~(is_fine | is_fault), counts)
    rarity, kinds = (limited, rarer[1]) if learns else (among_healthy, rarer[0])
    least = threshold * (1.0 - _ROUNDING)
    # By rarity, rows of a change that lasts become common long before it can be told from an event.
    is_rare = among_healthy >= least
    is_learnable = ~is_rare
    if state.n_learned < YOUNG.n_grown:
        gross = [scale.is_gross(view, YOUNG.gross) for scale, view in zip(state.views.scales, scores, strict=False)]
        is_learnable = ~np.logical_or.reduce([none, *gross])
    if is_reviewed:
        rarity = np.where(is_fine, 1.0, np.where(is_fault, np.maximum(rarity, threshold), rarity))
        is_rare, is_learnable = is_rare & ~(is_fine | is_fault), (is_learnable | is_fine) & ~is_fault
    is_learnable[: state.n_padded] = False
    is_alarm, thresholds, bound = rarity >= least, np.full(n, threshold), state.bound
    if bound is not None:
        bound, is_alarm, thresholds = judge_by_bound(bound, rarity, threshold, is_fault)
    counts, last_scores, n_padded = counts if learns else state.counts, scores[:, -1].copy(), max(state.n_padded - n, 0)
    waiting = (*state.waiting, JudgedRows(rows, is_learnable, is_rare, among_healthy > _MEDIAN, is_fault))
    state = replace_fields(
        state, bound=bound, counts=counts, last_scores=last_scores, n_padded=n_padded, waiting=waiting
    )
    return state, rarity, thresholds, is_alarm, kinds
