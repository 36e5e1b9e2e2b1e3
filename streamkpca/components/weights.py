"""Tipping's sparse maximum-likelihood weights: one fit, three optimisers.

`fit_weights` runs either the coordinate ascent of `ascent` or one of the paper's two update rules, which are here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from streamkpca.components.ascent import Ascent, coordinate_ascent
from streamkpca.components.likelihood import (
    Array,
    Problem,
    distinct_rows,
    make_problem,
    posterior_variances,
    statistics,
)

Optimiser = Literal["coordinate", "fixed_point", "em"]
OPTIMISERS: tuple[Optimiser, ...] = get_args(Optimiser)

MOST_ROUNDS: dict[Optimiser, int] = {"coordinate": 1_000, "fixed_point": 10_000, "em": 10_000}
# The paper's rules creep: a round of EM still gains 1 / (2 t^2) from every vanishing weight after t rounds.
_TOLERANCES: dict[Optimiser, float] = {"coordinate": 1e-10, "fixed_point": 1e-8, "em": 1e-8}


@dataclass(frozen=True, slots=True, eq=False)
class WeightFit:
    """Sparse weights and how they were found.

    Parameters
    ----------
    weights : ndarray of shape (p,)
        One for each candidate, none negative; a weight of zero is exactly zero.
    converged : bool
        Whether the optimiser stopped because nothing worth the tolerance was left to gain.
    trace : ndarray of shape (n_rounds + 1,)
        Mean log-likelihood of a data point at the start and after each round. It never decreases.
    """

    weights: Array
    converged: bool
    trace: Array

    @property
    def mean_log_likelihood(self) -> float:
        """Mean log-likelihood of a data point under these weights."""
        return float(self.trace[-1])

    @property
    def n_rounds(self) -> int:
        """Number of rounds that the optimiser made."""
        return len(self.trace) - 1

    @property
    def active(self) -> npt.NDArray[np.intp]:
        """Positions of the weights that are not zero, ascending."""
        return np.flatnonzero(self.weights)


def fit_weights(
    features: Array,
    second_moment: Array,
    noise_variance: float,
    *,
    optimiser: Optimiser = "coordinate",
    initial_weights: Array | None = None,
    tolerance: float | None = None,
    max_rounds: int | None = None,
) -> WeightFit:
    r"""Find the weights that make the data most likely; many of them are zero.

    Parameters
    ----------
    features : ndarray of shape (p, r)
        Coordinates of the candidates in an orthonormal basis, centred if the data are. Only the first of equal
        rows can get a weight. p may exceed r, and rows may be dependent or zero.
    second_moment : ndarray of shape (r, r)
        Mean of c c^T over the data's coordinates c in that basis.
    noise_variance : float
        Variance sigma^2 in every direction, in units of k(x, x). From the largest eigenvalue of the second moment
        on, no weight remains.
    optimiser : {"coordinate", "fixed_point", "em"}
    initial_weights : ndarray of shape (p,), optional
        Where to start: the weights of the last fit, say. By default "coordinate" starts with none, the others
        with all equal. These cannot change a zero and start it as they do by default.
    tolerance : float, optional
        Converged when no step ("coordinate", 1e-10) or no round (the others, 1e-8) raises the mean log-likelihood by
        more than this, relative to max(1, \|mean log-likelihood + r/2 log(2 pi sigma^2)\|): the constant left out
        would make the answer depend on the unit of the features.
    max_rounds : int, optional
        Most rounds; 1,000 for "coordinate", each of up to 512 steps and Newton's method after them; 10,000 for the
        others.

    Raises
    ------
    ValueError, SparsityError
        Features too large to be squared, or a noise variance below the rounding error of the second moment.

    Notes
    -----
    The model is c ~ N(0, sigma^2 I + Phi^T W Phi). Its likelihood has more than one maximum, and optimisers may end in
    different ones. With A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T the posterior of data point n's coefficients
    has the variance w_i - w_i^2 A_ii, eq. (11), and the mean square of its means is w_i^2 Q_ii, eq. (12):

    * "em", eq. (13): w_i <- mean square + variance. Never lowers the likelihood. A weight that belongs at zero only
      falls like one over the number of rounds; it is dropped once w_i A_ii < 0.01 and zero is its best value.
    * "fixed_point", eq. (14): w_i <- mean square / (1 - variance / w_i) = w_i Q_ii / A_ii. It usually raises the
      likelihood but need not; a round that would lower it is replaced by one of EM. Weights are dropped at
      w_i A_ii < 1e-6.
    * "coordinate" is ours, see `coordinate_ascent`.

    A round of the paper's rules costs O(r^3 + k r^2) for k weights that are not zero.

    References
    ----------
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13 (2001). "coordinate" carries over M. E. Tipping
    and A. C. Faul, "Fast marginal likelihood maximisation for sparse Bayesian models", AISTATS (2003), from regression
    to a covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.components.weights import fit_weights
    >>> candidates = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> fit = fit_weights(candidates, np.diag([3.0, 0.5]), 1.0)
    >>> fit.weights
    array([2., 0., 0.])
    >>> fit.active, fit.converged
    (array([0]), True)
    """
    problem = make_problem(features, second_moment, noise_variance)
    p, r = problem.features.shape
    # A zero row changes nothing, so no optimiser would ever touch its weight.
    usable = problem.features.any(axis=1)
    start = np.zeros(p) if initial_weights is None else np.where(usable, initial_weights / noise_variance, 0.0)
    if optimiser != "coordinate" and usable.any():
        equal = np.trace(problem.second_moment) / np.square(problem.features).sum()
        start = np.where(start > 0.0, start, equal)

    first, representative = distinct_rows(problem.features)
    if len(first) < p:
        problem = Problem(problem.features[first], problem.second_moment)
    unit: Array = np.bincount(representative, weights=start, minlength=len(first)).astype(np.float64)
    tolerance = _TOLERANCES[optimiser] if tolerance is None else tolerance
    max_rounds = MOST_ROUNDS[optimiser] if max_rounds is None else max_rounds
    if optimiser == "coordinate":
        ascent = coordinate_ascent(problem, unit, tolerance=tolerance, max_rounds=max_rounds)
    else:
        # scipy's driver for subsets gives up on some matrices with many equal eigenvalues.
        if np.linalg.eigvalsh(problem.second_moment)[-1] <= 1.0 + 1e-12:
            # The maximum is known here, and rules that multiply weights would take for ever to shrink them to it.
            unit = np.zeros_like(unit)
        ascent = _repeated(*_RULES[optimiser], problem, unit, tolerance=tolerance, max_rounds=max_rounds)

    weights = np.zeros(p)
    weights[first] = ascent.weights * noise_variance
    constant = -0.5 * r * float(np.log(2.0 * np.pi) + np.log(noise_variance))
    return WeightFit(weights, ascent.converged, np.array(ascent.trace) + constant)


_Rule = Callable[[Array, Array, Array], Array]


def _em_rule(w: Array, a: Array, q: Array) -> Array:
    """Tipping's equation (13): mean square of the posterior means plus posterior variance."""
    return w * w * q + posterior_variances(w, a)


def _fixed_point_rule(w: Array, a: Array, q: Array) -> Array:
    """Tipping's equation (14): mean square w^2 q of the posterior means over 1 - variance / w = w a."""
    return w * q / a


# With each rule goes the product w_i A_ii below which a weight whose best value is zero has vanished.
_RULES: dict[str, tuple[_Rule, float]] = {"em": (_em_rule, 1e-2), "fixed_point": (_fixed_point_rule, 1e-6)}


def _repeated(
    rule: _Rule, vanishing: float, problem: Problem, weights: Array, *, tolerance: float, max_rounds: int
) -> Ascent:
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
    return Ascent(result, trace, converged)
