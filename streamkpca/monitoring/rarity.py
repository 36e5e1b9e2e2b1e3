"""Rarity: in how many healthy rows one is as odd, by the views of a row: where it lies, how its numbers relate."""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from streamkpca._core.arrays import Array, Flags, Indices
from streamkpca._core.concurrency import cached_property
from streamkpca.components.relation import Relation
from streamkpca.monitoring._loops import EXTRAPOLATED, rank_scores, take_logarithms

KINDS = ("place", "relation")
# Rarity at which both views are compared: low enough that many held-out rows reach it.
_COMPARED = 20.0
# Share of the highest healthy scores that may be of anomalies.
_MOST_ANOMALIES = 0.125
# Fewest scores that a gap is looked for in.
_LEAST_FOR_GAP = 16
# Factor, at least, between two scores that a gap lies between.
_GAP = 3.0
# Share of the anomalies beyond a gap, at least, that differ from each other; fewer are a healthy state of few values.
_DISTINCT = 0.5
# Quantile above which the healthy scores tell how fast rows become rarer.
_TAIL = 0.9
# Least step of a logarithm that makes rows e times rarer: where healthy scores agree in all digits, rounding does not.
_LEAST_SLOPE = 0.5
# A row is at most five times rarer than by rank among all rows: four of five of the rows as odd may be anomalies. On
# ten families of real streams, four times put 0.043 of the healthy rows in alarm and touched 0.72 of the faults, six
# times 0.061 and 0.75.
_MOST_TIMES_RARER = 5.0


@dataclass(frozen=True)
class RarityScale:
    """How rare scores are among healthy ones that no model had learned, whose logarithms, ascending, are `logs` (n,).

    A score is once in (n + 1) / (c + 1) rows, where c healthy scores are as high or higher: for exchangeable rows, the
    share that is rarer than r is at most 1 / r, as in conformal prediction. Beyond the highest one, t slopes above it,
    it is once in (n + 1) e^t rows up to t = log 10, as the logarithms of heavy-tailed scores have an exponential tail;
    from there on once in 10 (n + 1) (1 + t - log 10), so that scales of different streams compare. The slope is the
    mean distance of the highest tenth from its lower end.
    """

    logs: Array

    @classmethod
    def fit(cls, scores: Array) -> Self:
        """Take the scores (n,), at least one, of rows of which an eighth may be anomalies: what lies beyond a gap.

        A gap is the first step, among the highest eighth of the logarithms, that is wider than the way from their
        median to this eighth, and than log 3. Most scores beyond it differ: one that returns is a rare healthy one.
        """
        logs = np.sort(_logarithms(scores))
        n = len(logs)
        certain = int((1.0 - _MOST_ANOMALIES) * n) - 1
        if n >= _LEAST_FOR_GAP:
            wide = max(logs[certain] - logs[n // 2], math.log(_GAP))
            steps = np.flatnonzero(np.diff(logs[certain:]) > wide)
            if len(steps):
                healthy = certain + 1 + int(steps[0])
                beyond = logs[healthy:]
                if len(np.unique(beyond)) > _DISTINCT * len(beyond):
                    n = healthy
        return cls(logs[:n])

    @cached_property
    def _tail(self) -> tuple[float, float]:
        """The logarithm where the tail begins, and its slope."""
        first = min(int(_TAIL * len(self.logs)), len(self.logs) - 1)
        start = float(self.logs[first])
        return start, max(float(self.logs[first:].mean()) - start, _LEAST_SLOPE)

    def rank(self, scores: Array, is_counted: Flags, counts: Array, rarities: Array) -> None:
        """Write the rarities of the next scores (k,) of a stream, and these limited by all scores so far: (2, k).

        Where a stream has moved on, all its rows would be rare among the healthy ones. So a row is at most five times
        rarer than among all rows so far, of which the latest 16,000 to 32,000 count most. Scores that are not counted
        are not limited either. The others are added to `counts` (N_BINS + 1,), a Fenwick tree with the total first.
        """
        rank_scores(scores, is_counted, self.logs, self._tail[1], _MOST_TIMES_RARER, counts, *rarities)

    def level(self, rarity: float) -> float:
        """Return the highest score that is not rarer than this rarity."""
        n = len(self.logs)
        as_high = math.ceil((n + 1.0) / rarity * (1.0 - 1e-12)) - 1
        if as_high > 0:
            return math.exp(self.logs[n - min(as_high, n)])
        beyond = math.log(rarity / (n + 1.0))
        if beyond > EXTRAPOLATED:
            beyond = EXTRAPOLATED + math.exp(beyond - EXTRAPOLATED) - 1.0
        return math.exp(min(float(self.logs[-1]) + beyond * self._tail[1], math.log(np.finfo(float).max)))

    def is_gross(self, scores: Array, rarity: float) -> Flags:
        """Tell which scores (k,) an exponential tail of the logarithms would bring less often than the rarity says."""
        start, slope = self._tail
        gross: Flags = (_logarithms(scores) - start) / slope > math.log(rarity * (1.0 - _TAIL))
        return gross


@dataclass(frozen=True, eq=False)
class Views:
    """How rows are scored by each view, and how rare their scores are; a value.

    The views are `KINDS`, the second one only with a `relation`. `scales` (v) are those of healthy scores, none before
    there are any. A healthy row is rare by one view or the other `rarity_divisor` times as often as by one alone, 1 to
    2 times; rarities are divided by it.
    """

    relation: Relation | None = None
    scales: tuple[RarityScale, ...] = ()
    rarity_divisor: float = 1.0

    @classmethod
    def fit(cls, relation: Relation | None, scores: Array) -> Self:
        """Take the scores (v, n) of healthy rows."""
        views = cls(relation, tuple(map(RarityScale.fit, scores)))
        n_rare = _COMPARED * float(np.mean(views.rarity_of(scores) >= _COMPARED))
        return replace(views, rarity_divisor=min(max(n_rare, 1.0), float(len(scores))))

    def score(self, novelty: Array, rows: Array, n_own: int) -> Array:
        """Return the scores (v, n) of rows (n, R): their novelty (n,), and their first numbers given all others."""
        return novelty[None] if self.relation is None else np.array([novelty, self.relation.score(rows, n_own)])

    def rarity_of(self, scores: Array) -> Array:
        """Return in how many healthy rows one has such scores (v, n), by the rarer view: (n,), at least 1."""
        rarity: Array = self.rank(scores, np.zeros(scores.shape[1], dtype=bool), np.empty((len(scores), 0)))[0][0]
        return rarity

    def rank(self, scores: Array, is_counted: Flags, counts: Array) -> tuple[Array, Indices]:
        """Return the rarities (2, n) of the next rows by the rarer view, and which view that is (2, n).

        First among healthy rows, then limited by all scores so far, see `RarityScale.rank`; 1 without scales.
        """
        rarities = np.ones((len(scores), 2, len(is_counted)))
        for scale, view, row, out in zip(self.scales, scores, counts, rarities, strict=False):
            scale.rank(view, is_counted, row, out)
        return np.maximum(rarities.max(axis=0) / self.rarity_divisor, 1.0), rarities.argmax(axis=0)


def _logarithms(scores: Array) -> Array:
    logs = np.empty(len(scores))
    take_logarithms(scores, logs)
    return logs
