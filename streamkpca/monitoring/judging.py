"""What the scores of rows say: how rare they are, whether they are alarms, and whether they may be learned."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca._core.concurrency import replace_fields
from streamkpca.monitoring.bound import judge_by_bound
from streamkpca.monitoring.causes import Healthy
from streamkpca.monitoring.rarity import RarityScale
from streamkpca.monitoring.scoring import Scores
from streamkpca.monitoring.state import MonitorState
from streamkpca.monitoring.young import YOUNG

# 1 / (1 - quantile) is a whole number of rows only up to rounding.
_ROUNDING = 1e-9
# Rarity of the healthy row in the middle.
_MEDIAN = 2.0
# Rows that are less rare than this among healthy ones are compared with no event that a user has judged.
_LEAST_RARITY = 10.0


class Verdict(NamedTuple):
    """What is said of rows (n,): their rarity, from which on they are alarms, and what follows from it.

    `is_relation` are rows that the relation finds rarer than the place, `exceeds` those that are as rare as an alarm
    among the healthy ones alone, `is_usual` those that may be learned, and `is_odder` those that are rarer than half of
    the healthy ones.
    """

    rarity: Array
    threshold: Array
    is_alarm: Flags
    is_relation: Flags
    exceeds: Flags
    is_usual: Flags
    is_odder: Flags


def judge(
    state: MonitorState, scores: Scores, rows: Array, threshold: float, learns: bool, healthy: Callable[[], Healthy]
) -> tuple[MonitorState, Verdict]:
    """Judge rows (n, D) by their scores: a row is as rare as its rarer view says.

    While the monitor is young, all rows but gross ones may be learned, later those that are not rare among those that
    were learned. A monitor that does not learn compares with these alone, not with the rows that came since. Rows like
    those of accepted events are usual, those like confirmed ones are alarms; neither count among the rows so far.
    """
    n = len(rows)
    if not state.scales:
        none, usual = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
        return state, Verdict(np.ones(n), np.full(n, np.inf), none, none, none, usual, none)
    views = list(zip(state.scales, scores.views, strict=True))
    known = _recognise(state, views, rows, healthy) if len(state.known.rows) else None
    is_counted = np.ones(n, dtype=bool) if known is None else ~(known[0] | known[1])
    counts, found, limited = state.counts.copy(), [], []
    for (scale, view), row in zip(views, counts, strict=False):
        rarities = scale.rank(view, is_counted, row)
        found.append(rarities[0])
        limited.append(rarities[1])
    among_healthy, is_relation = _take_rarer(found, state.n_views)
    rarity = among_healthy
    if learns:
        rarity, is_relation = _take_rarer(limited, state.n_views)
        state = replace_fields(state, counts=counts)
    least = threshold * (1.0 - _ROUNDING)
    # By rarity, rows of a change that lasts become common long before it can be told from an event.
    exceeds = among_healthy >= least
    is_usual = ~exceeds
    if state.n_learned < YOUNG.n_grown:
        is_usual = ~np.logical_or.reduce([scale.is_gross(view, YOUNG.gross) for scale, view in views])
    if known is not None:
        rarity = np.where(known[0], 1.0, np.where(known[1], np.maximum(rarity, threshold), rarity))
        exceeds, is_usual = exceeds & ~known[0], (is_usual | known[0]) & ~known[1]
    is_alarm, levels = rarity >= least, np.full(n, threshold)
    if state.bound is not None:
        is_fault = known is not None and known[1]
        bound, is_alarm, levels = judge_by_bound(state.bound, rarity, threshold, is_fault)
        state = replace_fields(state, bound=bound)
    return state, Verdict(rarity, levels, is_alarm, is_relation, exceeds, is_usual, among_healthy > _MEDIAN)


def _take_rarer(views: Sequence[Array], n_views: float) -> tuple[Array, Flags]:
    """Return the rarities (n,) by the rarer of one or two views, and which rows the second one finds rarer."""
    # Two views that differ are rare twice as often as one.
    return np.maximum(np.maximum(views[0], views[-1]) / n_views, 1.0), views[-1] > views[0]


def _recognise(
    state: MonitorState, views: Sequence[tuple[RarityScale, Array]], rows: Array, healthy: Callable[[], Healthy]
) -> tuple[Flags, Flags]:
    """Tell which rows (n, D), of those that are rare, are like accepted events, and which like confirmed ones: (n,)."""
    is_fine, is_fault = np.zeros((2, len(rows)), dtype=bool)
    rarity, _ = _take_rarer([scale.rarity_of(view) for scale, view in views], state.n_views)
    compared = np.flatnonzero(rarity >= _LEAST_RARITY)
    if len(compared):
        is_fine[compared], is_fault[compared] = state.known.recognise(rows[compared], healthy())
    return is_fine, is_fault
