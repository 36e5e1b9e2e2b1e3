"""Tipping's sparse maximum-likelihood weights: coordinate ascent, and the paper's two update rules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from streamkpca._core.arrays import Array, Indices
from streamkpca.components._loops import ascend, step_gains
from streamkpca.components.likelihood import ActiveSet, CandidateGram, Problem, make_problem, statistics

Optimizer = Literal["coordinate", "fixed_point", "em"]
OPTIMISERS: tuple[Optimizer, ...] = get_args(Optimizer)

MOST_ROUNDS: dict[Optimizer, int] = {"coordinate": 1_000, "fixed_point": 10_000, "em": 10_000}
# The paper's rules creep: a round of EM still gains 1 / (2 t^2) from every vanishing weight after t rounds.
_TOLERANCES: dict[Optimizer, float] = {"coordinate": 1e-10, "fixed_point": 1e-8, "em": 1e-8}
# Steps of coordinate ascent between two looks at the likelihood, at most.
_MOST_STEPS = 512
# At least this many candidates are chosen at a time.
_FEWEST_NEWCOMERS = 8
# Steps that gain a smaller share of the best are left to Newton's method, or to a later round.
_WORTHWHILE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class WeightFit:
    """Sparse weights (p,), none negative, and how they were found.

    `trace` holds the mean log-likelihood of a data point at the start and after each round; it never decreases.
    `converged` says that nothing worth the tolerance was left to gain. Optimizers take and return weights in units of
    the noise variance, and leave the constant of the likelihood out.
    """

    weights: Array
    trace: Array
    converged: bool

    @property
    def active(self) -> Indices:
        """Positions of the weights that are not zero, ascending."""
        return np.flatnonzero(self.weights)


def fit_weights(
    features: Array,
    second_moment: Array,
    noise_variance: float,
    *,
    optimizer: Optimizer = "coordinate",
    initial_weights: Array | None = None,
    tolerance: float | None = None,
    max_rounds: int | None = None,
) -> WeightFit:
    """Find the weights (p,) that make the data most likely; many of them are zero.

    Candidates have `features` (p, r), coordinates in an orthonormal basis, centred if the data are; p may exceed r, and
    rows may be dependent or zero. `second_moment` (r, r) is the mean of c c^T over the data's coordinates c there. From
    the largest eigenvalue of it on, the noise variance leaves no weight. By default "coordinate" starts with no
    weights, the others with all equal, as they do where an initial weight is zero. A fit has converged when no step
    ("coordinate") or no round raises the mean log-likelihood by more than the tolerance, relative to max(1,
    |mean log-likelihood + r/2 log(2 pi sigma^2)|). ValueError or SparsityError for features too large to be squared, or
    a noise variance below the rounding error of the second moment.

    Notes
    -----
    The model is c ~ N(0, sigma^2 I + Phi^T W Phi) [1]_. Its likelihood has more than one maximum, and optimizers may
    end in different ones. With A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T the posterior of data point n's
    coefficients has the variance w_i - w_i^2 A_ii, eq. (11), and the mean square of its means is w_i^2 Q_ii, eq. (12):

    * "em", eq. (13): w_i <- mean square + variance. Never lowers the likelihood. A weight that belongs at zero only
      falls like one over the number of rounds; it is dropped once w_i A_ii < 0.01 and zero is its best value.
    * "fixed_point", eq. (14): w_i <- mean square / (1 - variance / w_i) = w_i Q_ii / A_ii. A round that would lower the
      likelihood is replaced by one of EM. Weights are dropped at w_i A_ii < 1e-6.
    * "coordinate": see `coordinate_ascent`, after [2]_, carried over from regression to a covariance.

    A round of the paper's rules costs O(r^3 + k r^2) for k weights that are not zero.

    References
    ----------
    .. [1] M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001.
    .. [2] M. E. Tipping, A. C. Faul, "Fast marginal likelihood maximisation for sparse Bayesian models", AISTATS 2003.
    """
    problem = make_problem(features, second_moment, noise_variance)
    p, r = problem.features.shape
    # A zero row changes nothing, so no optimizer would ever touch its weight.
    usable = problem.features.any(axis=1)
    start = np.zeros(p) if initial_weights is None else np.where(usable, initial_weights / noise_variance, 0.0)
    if optimizer != "coordinate" and usable.any():
        equal = np.trace(problem.second_moment) / np.square(problem.features).sum()
        start = np.where(start > 0.0, start, equal)

    tolerance = _TOLERANCES[optimizer] if tolerance is None else tolerance
    max_rounds = MOST_ROUNDS[optimizer] if max_rounds is None else max_rounds
    if optimizer == "coordinate":
        fit = coordinate_ascent(problem, start, tolerance=tolerance, max_rounds=max_rounds)
    else:
        # scipy's driver for subsets gives up on some matrices with many equal eigenvalues.
        if np.linalg.eigvalsh(problem.second_moment)[-1] <= 1.0 + 1e-12:
            # The maximum is known here, and rules that multiply weights would take for ever to shrink them to it.
            start = np.zeros(p)
        fit = _repeat(*_RULES[optimizer], problem, start, tolerance=tolerance, max_rounds=max_rounds)

    constant = -0.5 * r * float(np.log(2.0 * np.pi) + np.log(noise_variance))
    return WeightFit(fit.weights * noise_variance, fit.trace + constant, fit.converged)


def coordinate_ascent(problem: Problem, weights: Array, *, tolerance: float, max_rounds: int) -> WeightFit:
    """Maximise over one weight at a time, always the one that gains most, and over all that are not zero together.

    Converged when no change of a single weight gains more than `tolerance`, relative to max(1, |likelihood|).

    Notes
    -----
    With C_-i the covariance without candidate i, s_i = phi_i^T C_-i^-1 phi_i and q_i = phi_i^T C_-i^-1 S C_-i^-1 phi_i,
    the likelihood as a function of w_i alone has its one maximum at (q_i - s_i) / s_i^2, or at zero if q_i <= s_i.

    Each round computes the gain of changing any one weight, takes at most 512 steps among the candidates that have a
    weight and as many that gain most, and brings the weights that are not zero to their maximum by Newton's method.
    Steps that gain little beside the best are left to a later round, which judges by a better model. Gains are always
    judged on freshly computed numbers, so rounding cannot accumulate. Steps that turn out to have lowered the
    likelihood are taken back, and an eighth of them tried; when a single step lowers it, only rounding is left to gain.

    A start pays O(p r^2) once, and O(r (p + r)) for each candidate that is tried; then a Newton step costs O(k^3) for k
    weights and the gains O(p k^2). With more than 128 weights and more than half as many as coordinates, Newton's
    method is left out; then, and where inner products lose their digits, the gains cost O(r^3 + p r^2).
    """
    candidates = CandidateGram(problem)
    current = candidates.with_weights(weights)
    trace, most_steps, converged = [current.log_likelihood], _MOST_STEPS, False
    while True:
        least_gain = tolerance * max(1.0, abs(trace[-1]))
        gains = np.empty(len(weights))
        step_gains(*current.diagonals(least_gain), current.weights, gains)
        best_gain = float(gains.max())
        converged = best_gain <= least_gain
        if converged or len(trace) > max_rounds:
            break
        # Where Newton's method does not apply, the steps have to gain everything.
        worthwhile = max(least_gain, _WORTHWHILE * best_gain) if current.model else least_gain
        weights, steps = _ascend(current, gains, worthwhile, least_gain, most_steps)
        proposed = candidates.with_weights(weights)
        if steps and proposed.log_likelihood >= trace[-1]:
            current = proposed.refine(worthwhile)
            trace.append(current.log_likelihood)
            most_steps = min(2 * most_steps, _MOST_STEPS)
        elif steps <= 1:
            converged = True
            break
        else:
            most_steps = max(1, steps // 8)
    return WeightFit(current.weights, np.array(trace), converged)


def _ascend(
    current: ActiveSet, gains: Array, worthwhile: float, least_gain: float, most_steps: int
) -> tuple[Array, int]:
    """Take at most this many worthwhile steps among the active and the candidates that gain most."""
    others = gains.copy()
    others[current.active] = 0.0
    best = np.argsort(-others, kind="stable")[: max(_FEWEST_NEWCOMERS, current.active.size)]
    newcomers = best[others[best] > least_gain]
    working, weights = np.concatenate([current.active, newcomers]), current.weights
    A, Q = current.matrices(newcomers)
    moving, p = weights[working], len(working)
    changes, U, V = np.empty(most_steps), np.empty((most_steps, p)), np.empty((most_steps, p))
    steps = ascend(A, Q, A.diagonal().copy(), Q.diagonal().copy(), moving, worthwhile, changes, U, V)
    weights[working] = moving
    return weights, steps


_Rule = Callable[[Array, Array, Array], Array]


def _em_rule(w: Array, a: Array, q: Array) -> Array:
    """Tipping's equation (13): mean square w^2 q of the posterior means plus their variance w - w^2 a, eq. (11)."""
    # Rounding never makes the variance negative.
    return w * w * q + w * np.maximum(1.0 - w * a, 0.0)


# With each rule goes the product w_i A_ii below which a weight whose best value is zero has vanished. Equation (14) is
# the mean square w^2 q over 1 - variance / w = w a.
_RULES: dict[str, tuple[_Rule, float]] = {"em": (_em_rule, 1e-2), "fixed_point": (lambda w, a, q: w * q / a, 1e-6)}


def _repeat(
    rule: _Rule, vanishing: float, problem: Problem, weights: Array, *, tolerance: float, max_rounds: int
) -> WeightFit:
    """Update all weights (p,) together until a round gains too little, falling back on EM where the rule loses."""
    active = np.flatnonzero((weights > 0.0) & problem.features.any(axis=1))
    part, w = Problem(problem.features[active], problem.second_moment), weights[active]
    found = statistics(part, w)
    a, q, trace = found.diagonal_A, found.diagonal_Q, [found.unit_log_likelihood]
    converged = False
    while not converged and len(trace) <= max_rounds:
        has_vanished = (w * a < vanishing) & (q <= a * (1.0 - w * a))
        for proposal in (np.where(has_vanished, 0.0, rule(w, a, q)), _em_rule(w, a, q)):
            found = statistics(part, proposal)
            if found.unit_log_likelihood >= trace[-1]:
                break
        else:
            converged = True
            break
        converged = found.unit_log_likelihood - trace[-1] <= tolerance * max(1.0, abs(trace[-1]))
        trace.append(found.unit_log_likelihood)
        kept = np.flatnonzero(proposal)
        if kept.size < w.size:
            part = Problem(part.features[kept], part.second_moment)
        active, w, a, q = active[kept], proposal[kept], found.diagonal_A[kept], found.diagonal_Q[kept]
    result = np.zeros_like(weights)
    result[active] = w
    return WeightFit(result, np.array(trace), converged)
