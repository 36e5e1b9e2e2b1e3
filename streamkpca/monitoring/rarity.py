"""Rarity: in how many healthy rows one is as odd, by where it lies, by its own numbers, and by the last rows."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.concurrency import cached_property
from streamkpca.components.relation import Relation
from streamkpca.monitoring._loops import EXTRAPOLATED, rank_scores, take_logarithms

KINDS = ("place", "relation", "recent")
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

    def rank(self, scores: Array) -> Array:
        """Return the rarities of scores (k,)."""
        rarity = np.empty(len(scores))
        rank_scores(scores, self.logs, self._tail[1], rarity)
        return rarity

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


@dataclass(frozen=True, eq=False)
class Views:
    """How rows are scored by each view, and how rare their scores are; a value.

    The views are `kinds`: where a row lies, by the model's novelty; with a `relation`, how its numbers relate; with
    `recent`, how they relate to the means and deviations of the last rows, too. `scales` (v) are those of healthy
    scores, none before there are any, and `joint` is the scale of what joins the views: with the rarities r by each,
    exp (sum log^2 r)^1/2, ranked among the same rows.
    """

    relation: Relation | None = None
    recent: Relation | None = None
    scales: tuple[RarityScale, ...] = ()
    joint: RarityScale | None = None

    @classmethod
    def fit(cls, relation: Relation | None, recent: Relation | None, scores: Array) -> Self:
        """Take the scores (v, n) of healthy rows."""
        scales = tuple(map(RarityScale.fit, scores))
        joint = RarityScale.fit(_join(cls(relation, recent, scales).rank_each(scores)))
        return cls(relation, recent, scales, joint)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the views that there are."""
        has = (True, self.relation is not None, self.recent is not None)
        return tuple(kind for kind, there in zip(KINDS, has, strict=True) if there)

    def score(self, novelty: Array, rows: Array, recent: Array) -> Array:
        """Return the scores (v, n) of rows (n, d): their novelty (n,), and their relations, (n, 3 d) with the last."""
        scores = [novelty]
        if self.relation is not None:
            scores.append(self.relation.score(rows))
        if self.recent is not None:
            scores.append(self.recent.score(recent))
        return np.array(scores)

    def rank_each(self, scores: Array) -> Array:
        """Return in how many healthy rows one has such scores (v, n), by each view: (v, n), 1 without scales."""
        if not self.scales:
            return np.ones(scores.shape)
        return np.array([scale.rank(view) for scale, view in zip(self.scales, scores, strict=True)])

    def rank(self, rarities: Array) -> Array:
        """Return in how many healthy rows one is as rare (v, n) by all views: (n,), 1 without scales."""
        return np.ones(rarities.shape[1]) if self.joint is None else self.joint.rank(_join(rarities))


def _join(rarities: Array) -> Array:
    """Return exp (sum log^2 r)^1/2 of rarities (v, n)."""
    joined: Array = np.exp(np.sqrt((np.log(rarities) ** 2).sum(axis=0)))
    return joined


def _logarithms(scores: Array) -> Array:
    logs = np.empty(len(scores))
    take_logarithms(scores, logs)
    return logs
