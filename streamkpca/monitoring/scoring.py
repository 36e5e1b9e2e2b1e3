"""How rows are scored: with their predecessors and the phase of a cycle, by where they lie and by how they relate."""

import copy
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca.checkpoint.fields import Context
from streamkpca.components.relation import Relation, RowMoments
from streamkpca.kernels import Kernel
from streamkpca.kernels.kinds import kernel_from
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.monitoring._loops import smooth_roots
from streamkpca.monitoring.causes import Healthy
from streamkpca.monitoring.periods import Period, check_knows_phases, kernel_with_phases, n_phases, with_phases
from streamkpca.monitoring.state import MonitorState
from streamkpca.rows.times import Times
from streamkpca.rows.validation import usable_rows
from streamkpca.stream.state import State, check_range, latest_axes

# Numbers of a row up to which each is predicted by the others, as that takes the square of their number.
MOST_RELATED = 1024


class Scores(NamedTuple):
    """Scores of rows (n,) by both views, smoothed, and the novelty that those of the place are of.

    Those of the relation are None without one.
    """

    place: Array
    relation: Array | None
    novelty: Array


@dataclass(eq=False)
class Scorer:
    """The model of rows with their predecessors and phases, which belongs to one monitor.

    A row (d,) becomes D numbers, those that the model sees.
    """

    model: StreamingKernelPCA
    period: Period
    lags: int
    smoothing: float | None

    def __post_init__(self) -> None:
        if self.known is not None:
            n_known = self.model.n_features_in_ - n_phases(self.period)
            if self.period is not None:
                check_knows_phases(self.model)
            if n_known % self.lags:
                raise ValueError(
                    f"with lags={self.lags} the model should have learned stacked rows, but {n_known} features"
                    f" are no multiple of {self.lags}; pass it Monitor(lags={self.lags}).stacked(rows)"
                )

    def begin(self, d: int) -> None:
        """Make ready for the first row (d,); parameters of the model may have been set until now."""
        if self.known is None and self.period is not None:
            kernel = kernel_from(self.model.kernel)
            self.model.kernel = kernel_with_phases(kernel, d * self.lags)

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self) | {"model": copy.copy(self.model)})
        return twin

    @property
    def states(self) -> tuple[State | None, Any]:
        """The state of the model, and its kernel; assign them to take back what was learned since."""
        return self.known, self.model.kernel

    @states.setter
    def states(self, states: tuple[State | None, Any]) -> None:
        self.model.state_, self.model.kernel = states

    @property
    def known(self) -> State | None:
        """The state of the model, None before it has learned."""
        known: State | None = getattr(self.model, "state_", None)
        return known

    @property
    def kernel(self) -> Kernel | None:
        """The settled kernel of the model."""
        known = self.known
        return None if known is None or known.summary is None else known.summary.basis.kernel

    # Rows

    def width(self, d: int) -> int:
        """Return how many numbers D a row (d,) becomes."""
        return d * self.lags + n_phases(self.period)

    def leave_phases_out(self, rows: Array) -> Array:
        """Return the columns of rows (n, D) that are related to each other: all but the phases."""
        return rows[:, : rows.shape[1] - n_phases(self.period)]

    def record_context(self, d: int) -> Context:
        """Return what the table of the monitor's state asks for: lengths of axes, and whether rows may have NaN."""
        shapes: dict[str, tuple[int, ...]] = {"d": (d,), "D": (self.width(d),), "L": (self.lags - 1,)}
        shapes["R"] = (d * self.lags,)
        return Context(has_gaps=self.model.on_missing == "marginal", lengths=shapes)

    def runs(self, rows: Array, breaks: Flags, is_planned: Flags) -> list[tuple[int, int, bool]]:
        """Cut rows (n, d) before breaks, and tell of each run whether its rows are to be scored.

        Those of planned windows are not, nor those without numbers enough.
        """
        if self.model.on_missing == "marginal":
            bad = ~usable_rows(rows, gaps=True)
        elif "skip" in (self.model.on_bad_rows, self.model.on_missing):
            bad = ~usable_rows(rows, gaps=False)
        else:
            # Rows are refused with a number that is not finite.
            bad = np.zeros(len(rows), dtype=bool)
        bad |= is_planned
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
        stacked = with_phases(stacked, self.period, state.n_rows, times)
        # Among rows that wait to be learned, those that the model would refuse would make every later call fail.
        check_range(self.known or State.begin(self.model.settings(), stacked.shape[1]), stacked, 1.0)
        return stacked, context, n_padded

    # Scores

    def score(self, stacked: Array, relation: Relation | None, last: Array | None, learns: bool = True) -> Scores:
        """Score a run of rows (n, D), smoothed after the last scores (2,), if there are any."""
        novelty = self.novelty(stacked, learns)
        place = smooth(novelty, self.smoothing, None if last is None else float(last[0]))
        if relation is None:
            return Scores(place, None, novelty)
        # The numbers of the row itself, given all others, its predecessors among them.
        d = len(relation.mean) // self.lags
        surprise = relation.score(self.leave_phases_out(stacked), d)
        relation_scores = smooth(surprise, self.smoothing, None if last is None else float(last[1]))
        return Scores(place, relation_scores, novelty)

    def novelty(self, rows: Array, learns: bool = True) -> Array:
        """Score rows, as the model sees them; 0 before the first refit of a model that learns."""
        known = self.known
        if not len(rows) or known is None or (known.published is None and learns):
            return np.zeros(len(rows))
        novelty: Array = latest_axes(known, self.model.settings()).novelty_by_row(rows)
        return novelty

    def healthy(self, relation: Relation | None) -> Healthy:
        """Return what is known of healthy rows, by the model and their relation, or by that of rows of the model."""
        assert self.known is not None
        answers = latest_axes(self.known, self.model.settings())
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


def smooth(scores: Array, smoothing: float | None, last: float | None) -> Array:
    """Return the exponentially weighted means of a run of scores (n,), after the last mean if there is one.

    Roots are averaged, and the mean squared: s_t = ((1 - a) s_(t-1)^1/2 + a x_t^1/2)^2. Novelty behaves like a sum of
    squares, whose roots are nearer to symmetric; in the plain mean one far row would outweigh the next ten.
    """
    if smoothing is None or not len(scores):
        return scores
    smoothed = np.empty(len(scores))
    smooth_roots(scores, smoothing, scores[0] if last is None else last, smoothed)
    return smoothed
