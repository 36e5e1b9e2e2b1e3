"""How rows are judged: scored by where they lie and how their numbers relate, and what their rarity says of them."""

import itertools
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca._core.concurrency import replace_fields
from streamkpca.monitoring.alarms import Alarms, find_alarms
from streamkpca.monitoring.causes import Cause, Healthy
from streamkpca.monitoring.periods import Period, append_phases, n_phases
from streamkpca.monitoring.policy import LEARNING
from streamkpca.monitoring.recent import average
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
# Rows that are less rare than this are usual.
_USUAL_RARITY = 100.0


class Scorer(NamedTuple):
    """How rows are scored: the settings of the model, and what becomes of rows before it sees them; a value.

    A row (d,) becomes D numbers: its own and those of the phase, which the model sees, and then the means and
    deviations of the last rows.
    """

    settings: Settings
    period: Period

    def width(self, d: int) -> int:
        """Return how many numbers of a row (d,) the model sees."""
        return d + n_phases(self.period)

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
        """Return rows (n, d) of a segment as (n, D), and the state with the averages up to them."""
        recent, averages = average(rows, state.averages)
        seen = rows if self.period is None else append_phases(rows, self.period, state.n_rows, times)
        # Among rows that wait to be learned, those that the model would refuse would make every later call fail.
        check_range(state.model, seen, 1.0)
        return replace_fields(state, averages=averages), np.hstack([seen, recent])

    def select_seen(self, state: MonitorState, rows: Array) -> Array:
        """Return what the model sees of rows (n, D)."""
        return rows[:, : self.width(state.n_features)]

    def select_related(self, state: MonitorState, rows: Array) -> Array:
        """Return the numbers (n, 3 d) of rows (n, D) that are related to those of the last rows."""
        d = state.n_features
        return rows if self.period is None else np.hstack([rows[:, :d], rows[:, self.width(d) :]])

    def score(self, state: MonitorState, rows: Array, learns: bool) -> Array:
        """Score rows (n, D) by each view: (v, n)."""
        novelty = np.zeros(len(rows))
        # A model that learns has no novelty before its first refit.
        if not learns or state.model.published is not None:
            novelty = latest_axes(state.model, self.settings).novelty_by_row(self.select_seen(state, rows))
        return state.views.score(novelty, rows[:, : state.n_features], self.select_related(state, rows))

    def find_kind(self, state: MonitorState, rows: Array, healthy: Healthy, causes: tuple[Cause, ...]) -> str:
        """Return "relation" if alarms (k, D) would be usual, were their causes as the others let expect, or "place".

        The two views do not tell: beyond all healthy rows, both are as rare as they can be.
        """
        names: list[str | int] = [*(state.names or range(state.n_features))]
        features = np.array([names.index(cause.feature) for cause in causes], dtype=np.intp)
        is_outside = any(not cause.low <= cause.value <= cause.high for cause in causes)
        if state.views.relation is None or not is_outside or 2 * len(features) > state.n_features:
            return "place"
        mended = rows.copy()
        mended[:, features] = healthy.compare(rows, features)[0]
        novelty = latest_axes(state.model, self.settings).novelty_by_row(self.select_seen(state, mended))
        return "relation" if np.median(state.views.scales[0].rank(novelty)) < _USUAL_RARITY else "place"

    def describe_healthy(self, state: MonitorState) -> Healthy:
        """Return what is known of healthy rows, by the model and their relation, if there is one."""
        expectation = latest_axes(state.model, self.settings).expectation
        return Healthy(expectation, state.views.relation, state.views.recent, state.n_features, n_phases(self.period))


def find_chunk_length(n_rows: int) -> int:
    """Return how many rows the present chunk has: by its position alone, so that cuts into calls do not matter."""
    return min(max(1 << max(n_rows // _ROWS_FOR_ONE, 1).bit_length() - 1, SHORTEST_CHUNK), _LONGEST_CHUNK)


def judge(
    state: MonitorState,
    scorer: Scorer,
    scores: Array,
    rows: Array,
    threshold: float,
    end_after: int,
    allowance: Array,
    learns: bool,
) -> tuple[MonitorState, Array, Alarms]:
    """Judge rows (n, D) by their scores (v, n); they wait to be learned. Returns their rarities, and what are alarms.

    Rows like those of accepted events may be learned, those like confirmed ones are alarms. A monitor that does not
    learn compares with healthy rows alone, not with those that came since.
    """
    n, is_reviewed = len(rows), len(state.reviewed.rows) > 0
    is_fine, is_fault = np.zeros((2, n), dtype=bool)
    rarities = state.views.rank_each(scores)
    rarity = state.views.rank(rarities)
    if is_reviewed and len(compared := np.flatnonzero(rarity >= _LEAST_RARITY)):
        healthy = scorer.describe_healthy(state)
        is_fine[compared], is_fault[compared] = state.reviewed.recognise(rows[compared], healthy)
    least = threshold * (1.0 - _ROUNDING)
    before = state.alarms
    alarms, found = find_alarms(before, rarity, rarities, is_fine, is_fault, least, end_after, allowance, learns)
    is_rare = (rarity >= LEARNING.rare * (1.0 - _ROUNDING)) & ~(is_fine | is_fault)
    if state.is_declaring:
        # Rows that are known to be healthy are no alarms.
        is_rare[:] = False
        none = np.zeros(n, dtype=bool)
        alarms, found = replace(before.skip(n), counts=alarms.counts), found._replace(is_alarm=none, begins=none)
    elif is_reviewed:
        rarity = np.where(is_fine, 1.0, np.where(is_fault, np.maximum(rarity, threshold), rarity))
    is_learnable = ~(is_rare | is_fault)
    judged = JudgedRows(rows, is_learnable, is_rare, rarity > _MEDIAN, is_fault, np.full(n, state.is_declaring))
    return replace_fields(state, alarms=alarms, waiting=(*state.waiting, judged)), rarity, found
