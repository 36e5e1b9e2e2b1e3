"""Compiled loops: moving averages of rows, ranks of scores among healthy ones, and of rarities among earlier ones."""

import math

from streamkpca._core.arrays import Array, Flags
from streamkpca._core.jit import jit

# Scores below this are rounding, in units of k(x, x).
ROUNDING = 1e-12
# Logarithm of the factor beyond the number of healthy scores up to which rarity grows as an exponential tail has it.
EXTRAPOLATED = 2.302585092994046
# Bins of logarithms that rarities are counted in, a power of two.
N_BINS = 2048
# Bins for a factor of e: the last one is that of rarities of 9 million and more.
_PER_UNIT = 128.0
# Rarities counted, from which on all counts are halved, so that a row is compared with the latest ones: what lasts is
# common soon, and what came back is no rarer than before it left. With 32,768, the mean area under the ROC curve of 14
# drifting streams was 0.027 lower; events found and false were the same.
_MOST_COUNTED = 1024.0
# Logarithm to base 10 of the rarity that is enough for an event, however many there were.
MOST_NEEDED = 6.0
# What an event adds to the logarithm that the next one needs: a factor of two.
RAISED = 0.3
# Earlier rarities that there must be before a rank among them says anything.
_LEAST_COUNTED = 64.0


@jit
def average_recent(rows: Array, weight: float, averages: Array, found: Array) -> None:
    """Write means and deviations (n, 2 d) up to each of the rows (n, d); `averages` (2, d) are means and variances."""
    n, d = rows.shape
    for i in range(n):
        for j in range(d):
            number = rows[i, j]
            if math.isnan(averages[0, j]):
                averages[0, j] = number
            found[i, j] = averages[0, j]
            found[i, d + j] = math.nan if math.isnan(averages[0, j]) else math.sqrt(averages[1, j])
            if not math.isnan(number):
                away = number - averages[0, j]
                averages[0, j] += weight * away
                averages[1, j] = (1.0 - weight) * (averages[1, j] + weight * away * away)


@jit
def take_logarithms(scores: Array, logs: Array) -> None:
    """Write the logarithms of scores (n,), with the digits that `rank_scores` compares: those of numpy may differ."""
    for i in range(len(scores)):
        logs[i] = math.log(max(scores[i], ROUNDING))


@jit
def rank_scores(scores: Array, ordered: Array, slope: float, rarity: Array) -> None:
    """Write the rarities of scores (n,) among healthy ones.

    `ordered` (h,) are the logarithms of the healthy scores, ascending, beyond which rarity grows by their tail's
    `slope`.
    """
    n_healthy = len(ordered)
    for i in range(len(scores)):
        logarithm = math.log(max(scores[i], ROUNDING))
        low, high = 0, n_healthy
        while low < high:
            middle = (low + high) // 2
            if ordered[middle] < logarithm:
                low = middle + 1
            else:
                high = middle
        beyond = max(logarithm - ordered[n_healthy - 1], 0.0) / slope
        grown = math.exp(min(beyond, EXTRAPOLATED)) * (1.0 + max(beyond - EXTRAPOLATED, 0.0))
        rarity[i] = (n_healthy + 1.0) / (n_healthy - low + 1.0) * grown


@jit
def limit_rarities(rarity: Array, is_counted: Flags, most: float, counts: Array, limited: Array) -> None:
    """Write the rarities (n,), each at most `most` times that by its rank among all earlier ones, and count them.

    Rarities that are not counted are not limited either. `counts` has the total first, and a Fenwick tree of the
    numbers in each bin.
    """
    for i in range(len(rarity)):
        limited[i] = rarity[i]
        if not is_counted[i]:
            continue
        index = int(min(math.log(rarity[i]) * _PER_UNIT, N_BINS - 1.0))
        below, place = 0.0, index
        while place > 0:
            below += counts[place]
            place -= place & -place
        total = counts[0]
        if total >= _LEAST_COUNTED:
            limited[i] = min(rarity[i], most * (total + 1.0) / (total - below + 1.0))
        if total >= _MOST_COUNTED:
            for k in range(N_BINS + 1):
                counts[k] *= 0.5
        counts[0] += 1.0
        place = index + 1
        while place <= N_BINS:
            counts[place] += 1.0
            place += place & -place


@jit
def follow_events(
    rarity: Array,
    is_fault: Flags,
    threshold: float,
    end_after: float,
    allowance: Array,
    recent: Array,
    counters: Array,
    is_alarm: Flags,
    begins: Flags,
) -> None:
    """Write which of the next rows (n,) are alarms, and which of these begin an event.

    An event begins at a row at the threshold or beyond it that is rarer than the rows before it whose rarities are in
    the ring `recent` (w,), or that is a known fault, if no event is open. It lasts while rows at the threshold follow
    within `end_after` rows. Each record raises the logarithm of the rarity that the next one needs, which falls as rows
    come, each with its `allowance` of events. `counters` are the place in the ring, the rows since the last alarm, and
    that logarithm, to base 10.
    """
    width = len(recent)
    place = int(counters[0])
    for i in range(len(rarity)):
        counters[1] += 1.0
        is_open = counters[1] <= end_after
        is_alarm[i] = False
        begins[i] = False
        if rarity[i] >= threshold or is_fault[i]:
            needed = max(counters[2], math.log10(threshold))
            is_record = (rarity[i] >= threshold and not is_open) and (
                math.isinf(allowance[i]) or min(math.log10(rarity[i]), MOST_NEEDED) >= needed
            )
            k = 0
            while is_record and k < width:
                is_record = recent[k] < rarity[i]
                k += 1
            begins[i] = is_record or (is_fault[i] and not is_open)
            is_alarm[i] = begins[i] or is_open
            # A fault that is known takes nothing from the budget.
            if is_record and not is_fault[i]:
                counters[2] = needed + RAISED
            if is_alarm[i]:
                counters[1] = 0.0
        if not math.isinf(threshold):
            counters[2] = max(counters[2] - RAISED * allowance[i], math.log10(threshold))
        recent[place] = rarity[i]
        place = (place + 1) % width
    counters[0] = place
