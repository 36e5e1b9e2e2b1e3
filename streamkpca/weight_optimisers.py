"""Three ways to the sparse maximum-likelihood weights, on checked arrays and with unit noise."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamkpca.candidate_span import CandidateSpan
from streamkpca.gaussian_model import Array, Problem, Statistics, posterior_variances, statistics
from streamkpca.weight_loops import BLOCK_FULL, NO_GAIN_LEFT, ascend

_BLOCK = 64
_MOST_STEPS = 512
# So many candidates at least are chosen at a time.
_FEWEST_NEWCOMERS = 8


class Ascent(NamedTuple):
    """Where an optimiser ended, weights in units of the noise variance, likelihoods without the constant."""

    weights: Array
    trace: list[float]
    converged: bool


def coordinate(problem: Problem, weights: Array, *, tolerance: float, max_rounds: int) -> Ascent:
    """Maximise over one weight at a time, always the one that gains most among the chosen candidates.

    Parameters
    ----------
    problem : Problem
    weights : ndarray of shape (p,)
        Where to start; those that are not zero are the first to be chosen.
    tolerance : float
        Converged when no step gains more, relative to max(1, |likelihood of the trace|).
    max_rounds : int
        A round is at most 512 steps, followed by a computation from scratch.

    Returns
    -------
    Ascent

    Notes
    -----
    Few candidates ever have a weight, and whatever their weights, the covariance differs from the noise only in
    their span. So the chosen are maximised over in coordinates of that span, at the price of a problem of their
    number; then all others are asked what they would gain, and those that gain most are chosen too. At most as
    many as have a weight, so that a search from nothing has a picture to judge by before it takes in many.
    """
    span = CandidateSpan(problem)
    span.choose(np.flatnonzero(weights))
    start = statistics(span.problem(), weights[span.chosen])
    trace = [start.unit_log_likelihood + span.log_likelihood_beyond()]
    weights = weights.copy()
    settled = False
    while True:
        least_gain = tolerance * max(1.0, abs(trace[-1]))
        gains = span.gains_of_others(weights, least_gain)
        most = max(_FEWEST_NEWCOMERS, np.count_nonzero(weights))
        best = np.argsort(-gains, kind="stable")[:most]
        newcomers = best[gains[best] > least_gain]
        if settled and not newcomers.size:
            return Ascent(weights, trace, converged=True)
        span.choose(newcomers)
        beyond, rounds_left = span.log_likelihood_beyond(), max_rounds + 1 - len(trace)
        inside = _coordinate_among(span.problem(), weights[span.chosen], beyond, tolerance, rounds_left)
        weights[span.chosen] = inside.weights
        # Likelihoods in two bases differ by rounding: the latest counts, those before it keep their distances.
        level, shift = inside.trace[0], inside.trace[0] - trace[-1]
        trace = [*(min(earlier + shift, level) for earlier in trace[:-1]), *inside.trace]
        settled = inside.converged
        if not settled:
            return Ascent(weights, trace, converged=False)


def _coordinate_among(problem: Problem, weights: Array, beyond: float, tolerance: float, max_rounds: int) -> Ascent:
    """Maximise over all candidates of a problem, to whose likelihood something is to be added.

    Rounding cannot pile up: convergence is only believed on freshly computed statistics, and a round that
    turns out to have lowered the likelihood is taken back and tried again with an eighth of its steps. When a
    single step from fresh statistics lowers it, what is left to gain is smaller than the rounding of the
    likelihood.
    """
    most_steps = _MOST_STEPS
    current = statistics(problem, weights)
    trace = [current.unit_log_likelihood + beyond]
    while True:
        least_gain = tolerance * max(1.0, abs(trace[-1]))
        if not _gains_more(current, weights, least_gain):
            return Ascent(weights, trace, converged=True)
        if len(trace) > max_rounds:
            return Ascent(weights, trace, converged=False)
        proposal, steps = _coordinate_round(current, weights, least_gain, most_steps)
        proposed = statistics(problem, proposal)
        likelihood = proposed.unit_log_likelihood + beyond
        if likelihood >= trace[-1]:
            weights, current = proposal, proposed
            trace.append(likelihood)
            most_steps = min(2 * most_steps, _MOST_STEPS)
        elif steps == 1:
            return Ascent(weights, trace, converged=True)
        else:
            most_steps = max(1, steps // 8)


def _gains_more(current: Statistics, weights: Array, least_gain: float) -> bool:
    """Say whether a single step gains more than the least that counts."""
    p = len(weights)
    nothing, no_changes = np.empty((0, p)), np.empty(0)
    diagonals = current.diagonal_A.copy(), current.diagonal_Q.copy()
    _, status = ascend(nothing, nothing, *diagonals, weights.copy(), least_gain, no_changes, nothing, nothing.copy())
    return status != NO_GAIN_LEFT


def _coordinate_round(current: Statistics, weights: Array, least_gain: float, most_steps: int) -> tuple[Array, int]:
    """Take up to so many steps without computing anything from scratch."""
    p = len(weights)
    weights = weights.copy()
    A, Q = current.matrices()
    diagonal_A, diagonal_Q = current.diagonal_A.copy(), current.diagonal_Q.copy()
    taken = 0
    while True:
        block = min(_BLOCK, most_steps - taken)
        changes, U, V = np.empty(block), np.empty((block, p)), np.empty((block, p))
        steps, status = ascend(A, Q, diagonal_A, diagonal_Q, weights, least_gain, changes, U, V)
        taken += steps
        if status != BLOCK_FULL or taken == most_steps:
            return weights, taken
        subtract_block(A, Q, changes, U, V)


def subtract_block(A: Array, Q: Array, changes: Array, U: Array, V: Array) -> None:
    """Subtract collected rank-one changes from A and Q in place.

    Parameters
    ----------
    A, Q : ndarray of shape (p, p)
    changes : ndarray of shape (b,)
    U, V : ndarray of shape (b, p)
        As `ascend` filled them.
    """
    scaled = changes[:, None] * U
    A -= scaled.T @ U
    product = scaled.T @ V
    Q -= product
    Q -= product.T


def expectation_maximisation(problem: Problem, weights: Array, *, tolerance: float, max_rounds: int) -> Ascent:
    """Maximise by Tipping's EM rule (13).

    Parameters
    ----------
    problem : Problem
    weights : ndarray of shape (p,)
        Where to start; a weight of zero stays zero.
    tolerance : float
        Converged when a round gains no more, relative to max(1, |likelihood of the trace|).
    max_rounds : int
        A round is one update of all weights.

    Returns
    -------
    Ascent
    """
    return _simultaneous(problem, weights, [_em_rule], tolerance, max_rounds)


def fixed_point(problem: Problem, weights: Array, *, tolerance: float, max_rounds: int) -> Ascent:
    """Maximise by Tipping's rule (14), dropping weights as they vanish.

    Parameters
    ----------
    problem : Problem
    weights : ndarray of shape (p,)
        Where to start; a weight of zero stays zero.
    tolerance : float
        Converged when a round gains no more, relative to max(1, |likelihood of the trace|).
    max_rounds : int
        A round is one update of all weights.

    Returns
    -------
    Ascent

    Notes
    -----
    The paper's rule usually raises the likelihood but need not; a round that would lower it is replaced by an
    EM round, which cannot.
    """
    return _simultaneous(problem, weights, [_fixed_point_rule, _em_rule], tolerance, max_rounds)


_Rule = Callable[[Array, Array, Array], Array]


def _em_rule(w: Array, a: Array, q: Array) -> Array:
    """Mean square of the posterior means plus posterior variance."""
    return w * w * q + posterior_variances(w, a)


def _fixed_point_rule(w: Array, a: Array, q: Array) -> Array:
    """Mean square w^2 q of the posterior means over 1 - variance / w = w a; zero where that is best."""
    without = 1.0 - w * a
    # Dropped are only weights that have all but vanished and whose best value, all others fixed, is zero.
    vanished = (w * a < 1e-6) & (q <= a * without)
    return np.where(vanished, 0.0, w * q / a)


def _simultaneous(problem: Problem, weights: Array, rules: list[_Rule], tolerance: float, max_rounds: int) -> Ascent:
    """Repeat the first rule that does not lower the likelihood."""
    active = np.flatnonzero((weights > 0.0) & problem.features.any(axis=1))
    part = Problem(problem.features[active], problem.second_moment)
    w = weights[active]
    current = statistics(part, w)
    trace = [current.unit_log_likelihood]
    converged = False
    while not converged and len(trace) <= max_rounds:
        for rule in rules:
            proposal = rule(w, current.diagonal_A, current.diagonal_Q)
            proposed = statistics(part, proposal)
            if proposed.unit_log_likelihood >= trace[-1]:
                break
        else:
            converged = True
            break
        gain = proposed.unit_log_likelihood - trace[-1]
        converged = gain <= tolerance * max(1.0, abs(trace[-1]))
        w, current = proposal, proposed
        trace.append(proposed.unit_log_likelihood)
        if not w.all():
            kept = w > 0.0
            active, w = active[kept], w[kept]
            part = Problem(part.features[kept], part.second_moment)
            current = Statistics(
                current.unit_log_likelihood,
                current.half_solved[kept],
                current.solved[kept],
                current.moment_solved[kept],
                current.diagonal_A[kept],
                current.diagonal_Q[kept],
            )
    result = np.zeros_like(weights)
    result[active] = w
    return Ascent(result, trace, converged)
