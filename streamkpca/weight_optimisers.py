"""Three ways to the sparse maximum-likelihood weights, on checked arrays and with unit noise."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamkpca.candidate_gram import CandidateGram, WeightedFew
from streamkpca.gaussian_model import Array, Problem, Statistics, posterior_variances, statistics
from streamkpca.weight_loops import BLOCK_FULL, ascend, step_gains

_BLOCK = 64
_MOST_STEPS = 512
# So many candidates at least are chosen at a time.
_FEWEST_NEWCOMERS = 8
# Steps that gain a smaller share of the best are left to Newton's method, or to a later round.
_WORTHWHILE = 0.01


class Ascent(NamedTuple):
    """Where an optimiser ended, weights in units of the noise variance, likelihoods without the constant."""

    weights: Array
    trace: list[float]
    converged: bool


def coordinate(problem: Problem, weights: Array, *, tolerance: float, max_rounds: int) -> Ascent:
    """Maximise over one weight at a time, always the one that gains most, and over all that are not zero together.

    Parameters
    ----------
    problem : Problem
    weights : ndarray of shape (p,)
        Where to start.
    tolerance : float
        Converged when no change of a single weight gains more, relative to max(1, |likelihood of the trace|).
    max_rounds : int
        A round is at most 512 steps along one weight each, followed by Newton steps.

    Returns
    -------
    Ascent

    Notes
    -----
    Few candidates ever have a weight. In a round all are asked what a change of their weight would gain, steps are
    taken among those that have a weight and those that gain most, and Newton's method brings the weights that are not
    zero to their maximum. Steps along one weight decide who has a weight, in a few dozen; to find out how large weights
    are that depend on each other they would take hundreds. At most as many are admitted as have a weight, so that a
    search from nothing has a picture to judge by before it takes in many; and steps that gain little beside the best
    are left to a later round, which judges from there.

    Rounding cannot pile up: gains are always judged on freshly computed numbers, and steps that turn out to have
    lowered the likelihood are taken back, to try an eighth of them. When a single step lowers it, or none is found
    where one was promised, what is left to gain is smaller than the rounding.
    """
    current = CandidateGram(problem).weighted(weights)
    trace = [current.log_likelihood]
    most_steps = _MOST_STEPS
    while True:
        least_gain = tolerance * max(1.0, abs(trace[-1]))
        gains = np.empty(len(weights))
        step_gains(*current.diagonals(least_gain), current.weights, gains)
        best_gain = float(gains.max())
        if best_gain <= least_gain:
            return Ascent(current.weights, trace, converged=True)
        if len(trace) > max_rounds:
            return Ascent(current.weights, trace, converged=False)
        # Where Newton's method cannot help, all is left to the steps.
        worthwhile = max(least_gain, _WORTHWHILE * best_gain) if current.can_be_polished else least_gain
        proposed, steps = _ascended(current, gains, worthwhile, least_gain, most_steps)
        if steps and proposed.log_likelihood >= trace[-1]:
            current = proposed.polished(worthwhile)
            trace.append(current.log_likelihood)
            most_steps = min(2 * most_steps, _MOST_STEPS)
        elif steps <= 1:
            return Ascent(current.weights, trace, converged=True)
        else:
            most_steps = max(1, steps // 8)


def _ascended(
    current: WeightedFew, gains: Array, worthwhile: float, least_gain: float, most_steps: int
) -> tuple[WeightedFew, int]:
    """Take up to so many worthwhile steps among the active and the candidates that gain most."""
    others = gains.copy()
    others[current.active] = 0.0
    best = np.argsort(-others, kind="stable")[: max(_FEWEST_NEWCOMERS, current.active.size)]
    newcomers = best[others[best] > least_gain]
    working = np.concatenate([current.active, newcomers])
    weights = current.weights
    weights[working], steps = _coordinate_round(*current.matrices(newcomers), weights[working], worthwhile, most_steps)
    return current.reweighted(weights), steps


def _coordinate_round(A: Array, Q: Array, weights: Array, least_gain: float, most_steps: int) -> tuple[Array, int]:
    """Take up to so many steps without computing anything from scratch."""
    p = len(weights)
    weights = weights.copy()
    diagonal_A, diagonal_Q = A.diagonal().copy(), Q.diagonal().copy()
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
