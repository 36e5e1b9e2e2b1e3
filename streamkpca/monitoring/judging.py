"""What the scores of rows say: how rare they are, whether they are alarms, and whether they may be learned."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca._core.concurrency import replace_fields
from streamkpca.monitoring.causes import Healthy
from streamkpca.monitoring.scoring import Scores
from streamkpca.monitoring.state import MonitorState
from streamkpca.monitoring.young import YOUNG

# A share of rows has a whole number of rows for one; the quotient that gives it may be off in the last digit.
_ROUNDING = 1e-9
# Rarity of the healthy row in the middle.
_MEDIAN = 2.0
# Rows that are less rare than this among healthy ones are compared with no event that a user has judged.
_LEAST_RARITY = 10.0


class Verdict(NamedTuple):
    """What is said of rows (n,): their rarity, which view finds them rarer, and what follows from it.

    `is_alarm` are rows at least as rare as the threshold, `exceeds` those as rare among the healthy ones alone,
    `is_usual` those that may be learned, and `is_odder` those that are rarer than half of the healthy ones.
    """

    rarity: Array
    is_relation: Flags
    is_alarm: Flags
    exceeds: Flags
    is_usual: Flags
    is_odder: Flags


def compare(state: MonitorState, scores: Scores, rows: Array, healthy: Callable[[], Healthy]) -> tuple[Flags, Flags]:
    """Tell which rows (n, D), of those that are rare, are like accepted events, and which like confirmed ones: (n,)."""
    is_fine, is_fault = np.zeros((2, len(rows)), dtype=bool)
    if len(state.known.rows):
        rarity = state.place.rarity_of(scores.place)
        if scores.relation is not None:
            rarity = np.maximum(rarity, state.relation.rarity_of(scores.relation))
        compared = np.flatnonzero(rarity >= _LEAST_RARITY * state.n_views)
        if len(compared):
            is_fine[compared], is_fault[compared] = state.known.recognise(rows[compared], healthy())
    return is_fine, is_fault


def judge(
    state: MonitorState, scores: Scores, threshold: float, learns: bool, is_fine: Flags, is_fault: Flags
) -> tuple[MonitorState, Verdict]:
    """Judge rows by their scores: a row is as rare as its rarer view says.

    While the monitor is young, all rows but gross ones may be learned, later those that are not rare among those that
    were learned. A monitor that does not learn compares with these alone, not with the rows that came since. Rows like
    those of accepted events are usual, those like confirmed ones are alarms; neither count among the rows so far.
    """
    is_counted = ~(is_fine | is_fault)
    place, limited_place, place_scale = state.place.rank(scores.place, is_counted)
    relation, limited_relation, relation_scale = place, limited_place, state.relation
    if scores.relation is not None:
        relation, limited_relation, relation_scale = state.relation.rank(scores.relation, is_counted)
    # Two views that differ are rare twice as often as one.
    among_healthy = np.maximum(np.maximum(place, relation) / state.n_views, 1.0)
    rarity, is_relation = among_healthy, relation > place
    if learns:
        rarity = np.maximum(np.maximum(limited_place, limited_relation) / state.n_views, 1.0)
        is_relation = limited_relation > limited_place
        state = replace_fields(state, place=place_scale, relation=relation_scale)
    least = threshold * (1.0 - _ROUNDING)
    # Rows of a change that lasts become common, and their alarms end long before it can be told from an event.
    exceeds = among_healthy >= least
    is_usual = ~exceeds
    if state.n_learned < YOUNG.n_grown:
        is_usual = ~state.place.is_gross(scores.place, YOUNG.gross)
        if scores.relation is not None:
            is_usual &= ~state.relation.is_gross(scores.relation, YOUNG.gross)
    rarity = np.where(is_fine, 1.0, np.where(is_fault, np.maximum(rarity, threshold), rarity))
    exceeds, is_usual = exceeds & ~is_fine, (is_usual | is_fine) & ~is_fault
    return state, Verdict(rarity, is_relation, rarity >= least, exceeds, is_usual, among_healthy > _MEDIAN)
