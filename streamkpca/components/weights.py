"""Tipping's sparse maximum-likelihood weights."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamkpca._core.params import check_choice, check_integer, check_real
from streamkpca.components.ascent import coordinate, expectation_maximisation, fixed_point
from streamkpca.components.likelihood import (
    Array,
    Problem,
    distinct_rows,
    make_problem,
    posterior_variances,
    statistics,
    unit_weights,
)

Optimiser = Literal["coordinate", "em", "fixed_point"]

_OPTIMISERS = {
    "coordinate": (coordinate, 1_000),
    "em": (expectation_maximisation, 10_000),
    "fixed_point": (fixed_point, 1_000),
}


@dataclass(frozen=True, slots=True, eq=False)
class WeightFit:
    """Sparse weights and how they were found.

    Parameters
    ----------
    weights : ndarray of shape (p,)
        One for each candidate, none negative. A weight of zero is exactly zero.
    mean_log_likelihood : float
        Mean log-likelihood of a data point under these weights.
    n_rounds : int
        Rounds that the optimiser made.
    converged : bool
        Whether it stopped because nothing worth the tolerance was left to gain.
    trace : ndarray of shape (n_rounds + 1,)
        Mean log-likelihood at the start and after each round. It never decreases.
    """

    weights: Array
    mean_log_likelihood: float
    n_rounds: int
    converged: bool
    trace: Array

    @property
    def active(self) -> npt.NDArray[np.intp]:
        """Positions of the weights that are not zero, ascending."""
        return np.flatnonzero(self.weights)


def mean_log_likelihood(weights: Any, features: Any, second_moment: Any, noise_variance: float) -> float:
    r"""Compute the mean log-likelihood of a data point.

    Parameters
    ----------
    weights : array-like of shape (p,)
        Weights of the candidates, none negative.
    features : array-like of shape (p, r)
        Coordinates of the candidates in an orthonormal basis, one a row; centred if the data are.
    second_moment : array-like of shape (r, r)
        Mean of c c^T over the data's coordinates c in that basis: their covariance if they are centred.
    noise_variance : float
        Variance sigma^2 in every direction, in units of k(x, x).

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        Shapes that do not fit, numbers that are not finite, a negative weight, a second moment that is not
        symmetric, or a noise variance that is not positive or below the rounding error of the second moment.

    Notes
    -----
    -1/2 (r log 2 pi + log|C| + tr(C^-1 S)) with C = sigma^2 I + Phi^T W Phi. O(r^3 + k r^2) for k weights
    that are not zero.

    References
    ----------
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13 (2001), equations (5) to (8). The
    paper writes it for all rows of a data set in the space of the kernel's features; here it is divided by
    the number of rows and restricted to the span of the basis, so the data enter as their second moment
    alone.

    Examples
    --------
    >>> from streamkpca.components.weights import mean_log_likelihood
    >>> round(mean_log_likelihood([2.0], [[1.0, 0.0]], [[3.0, 0.0], [0.0, 1.0]], 1.0), 4)
    -3.3872
    """
    problem = _problem("mean_log_likelihood", features, second_moment, noise_variance)
    unit = unit_weights("mean_log_likelihood", weights, problem, noise_variance)
    active = np.flatnonzero(unit)
    part = Problem(problem.features[active], problem.second_moment)
    return statistics(part, unit[active]).unit_log_likelihood + _constant(problem, noise_variance)


def log_likelihood_gradient(weights: Any, features: Any, second_moment: Any, noise_variance: float) -> Array:
    """Differentiate the mean log-likelihood by each weight.

    Parameters
    ----------
    weights, features, second_moment, noise_variance : array-like, array-like, array-like, float
        As for `mean_log_likelihood`.

    Returns
    -------
    ndarray of shape (p,)
        At a maximum zero where the weight is positive, and not positive where it is zero.

    Raises
    ------
    TypeError, ValueError
        As `mean_log_likelihood`.

    Notes
    -----
    (phi_i^T C^-1 S C^-1 phi_i - phi_i^T C^-1 phi_i) / 2. O(r^3 + p r^2).

    References
    ----------
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13 (2001): the derivative whose zeros the
    rules (13) and (14) look for.

    Examples
    --------
    >>> from streamkpca.components.weights import log_likelihood_gradient
    >>> log_likelihood_gradient([0.0], [[1.0, 0.0]], [[3.0, 0.0], [0.0, 1.0]], 1.0)
    array([1.])
    """
    problem = _problem("log_likelihood_gradient", features, second_moment, noise_variance)
    unit = unit_weights("log_likelihood_gradient", weights, problem, noise_variance)
    found = statistics(problem, unit)
    gradient: Array = 0.5 * (found.diagonal_Q - found.diagonal_A) / noise_variance
    return gradient


def posterior_moments(weights: Any, features: Any, second_moment: Any, noise_variance: float) -> tuple[Array, Array]:
    """Compute how a data point's hidden coefficients are distributed, given the point.

    Parameters
    ----------
    weights, features, second_moment, noise_variance : array-like, array-like, array-like, float
        As for `mean_log_likelihood`.

    Returns
    -------
    variances : ndarray of shape (p,)
        Posterior variance of each candidate's coefficient, the same for every data point.
    mean_squares : ndarray of shape (p,)
        Mean over the data of the square of its posterior mean.

    Raises
    ------
    TypeError, ValueError
        As `mean_log_likelihood`.

    Notes
    -----
    The diagonals of Sigma = W - W A W and of W Q W, with A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T:
    the paper's Sigma = (W^-1 + Phi Phi^T / sigma^2)^-1 and mu_n = Sigma Phi c_n / sigma^2 without an inverse
    of W, which may hold zeros. The EM rule (13) is their sum. O(r^3 + p r^2).

    References
    ----------
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13 (2001), equations (11) and (12).

    Examples
    --------
    >>> from streamkpca.components.weights import posterior_moments
    >>> variances, mean_squares = posterior_moments([1.0], [[1.0]], [[4.0]], 1.0)
    >>> variances, mean_squares
    (array([0.5]), array([1.]))
    """
    problem = _problem("posterior_moments", features, second_moment, noise_variance)
    unit = unit_weights("posterior_moments", weights, problem, noise_variance)
    found = statistics(problem, unit)
    variances = noise_variance * posterior_variances(unit, found.diagonal_A)
    return variances, noise_variance * unit * unit * found.diagonal_Q


def fit_weights(
    features: Any,
    second_moment: Any,
    noise_variance: float,
    *,
    optimiser: Optimiser = "coordinate",
    initial_weights: Any = None,
    tolerance: float = 1e-10,
    max_rounds: int | None = None,
) -> WeightFit:
    r"""Find the weights that make the data most likely; many of them are zero.

    Parameters
    ----------
    features : array-like of shape (p, r)
        Coordinates of the candidates in an orthonormal basis, one a row; centred if the data are. Of equal
        rows only the first can get a weight. p may exceed r, and rows may be dependent or zero.
    second_moment : array-like of shape (r, r)
        Mean of c c^T over the data's coordinates c in that basis.
    noise_variance : float
        Variance sigma^2 in every direction, in units of k(x, x). The larger, the fewer weights remain; from
        the largest eigenvalue of the second moment on, none.
    optimiser : {"coordinate", "em", "fixed_point"}
        "coordinate" maximises over one weight at a time, always the one that gains most, and by Newton's method over
        those that are not zero. "em" is the paper's equation (13): slow, and its weights approach zero without
        reaching it. "fixed_point" is equation (14), dropping weights that vanish.
    initial_weights : array-like of shape (p,), optional
        Where to start: the weights of the last fit, say. By default "coordinate" starts with none, the others
        with all alike. "em" and "fixed_point" leave a zero at zero.
    tolerance : float
        Converged when no step ("coordinate") or no round (the others) raises the mean log-likelihood by more
        than this, relative to max(1, \|mean log-likelihood + r/2 log(2 pi sigma^2)\|): the constant left out
        would make the answer depend on the unit of the features.
    max_rounds : int, optional
        Most rounds; 1,000 by default, 10,000 for "em". A round of "coordinate" is up to 512 steps and what Newton's
        method adds to them.

    Returns
    -------
    WeightFit

    Raises
    ------
    TypeError, ValueError
        As `mean_log_likelihood`; also an unknown optimiser, a negative tolerance, or less than one round.

    Notes
    -----
    The model is c ~ N(0, sigma^2 I + Phi^T W Phi). With C_-i the covariance without candidate i, s_i =
    phi_i^T C_-i^-1 phi_i and q_i = phi_i^T C_-i^-1 S C_-i^-1 phi_i, the likelihood as a function of w_i alone
    has its one maximum at (q_i - s_i) / s_i^2, or at zero if q_i <= s_i. The likelihood has more than one
    maximum; optimisers may end in different ones.

    "coordinate" takes such steps among the candidates that have a weight or gain most from one, brings the k weights
    that are not zero to their maximum by Newton's method, and asks all candidates again, by their inner products with
    these k. Once O(p r^2) for the products phi_i^T S phi_i, which every start pays, O(r (p + r)) for each candidate
    that is tried, then O(k^3) a Newton step and O(p k^2) to ask all. A start from good weights asks three or four
    times, one from nothing ten to twenty times. With more than 128 weights and more than half as many as coordinates,
    Newton's method costs more than the steps that it saves and is left out; then, and where rounding forbids to judge
    by inner products, asking costs O(r^3 + p r^2), as a round of "em" and "fixed_point" does for p weights that are
    not zero.

    References
    ----------
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13 (2001), equations (13) and (14).
    "coordinate" is not in that paper; it carries over M. E. Tipping and A. C. Faul, "Fast marginal likelihood
    maximisation for sparse Bayesian models", AISTATS (2003), from regression to a covariance.

    Examples
    --------
    >>> from streamkpca.components.weights import fit_weights
    >>> candidates = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> fit = fit_weights(candidates, [[3.0, 0.0], [0.0, 0.5]], 1.0)
    >>> fit.weights
    array([2., 0., 0.])
    >>> fit.active, fit.converged
    (array([0]), True)
    """
    where = "fit_weights"
    problem = _problem(where, features, second_moment, noise_variance)
    check_choice("optimiser", optimiser, choices=_OPTIMISERS, where=where)
    tolerance = check_real("tolerance", tolerance, least=0.0, where=where)
    run, rounds = _OPTIMISERS[optimiser]
    if max_rounds is not None:
        rounds = check_integer("max_rounds", max_rounds, least=1, where=where)

    p = len(problem.features)
    if initial_weights is not None:
        # A zero row changes nothing, so no optimiser would ever touch its weight.
        start = np.where(
            problem.features.any(axis=1), unit_weights(where, initial_weights, problem, noise_variance), 0.0
        )
    elif optimiser == "coordinate" or not problem.features.any():
        start = np.zeros(p)
    else:
        start = np.full(p, np.trace(problem.second_moment) / np.square(problem.features).sum())

    first, representative = distinct_rows(problem.features)
    distinct = problem
    if len(first) < p:
        distinct = Problem(problem.features[first], problem.second_moment)
    unit: Array = np.bincount(representative, weights=start, minlength=len(first)).astype(np.float64)
    if optimiser != "coordinate" and _largest_eigenvalue(problem.second_moment) <= 1.0 + 1e-12:
        # The maximum is known here, and rules that multiply weights would take for ever to shrink them to it.
        unit = np.zeros_like(unit)

    ascent = run(distinct, unit, tolerance=tolerance, max_rounds=rounds)
    weights = np.zeros(p)
    weights[first] = ascent.weights * noise_variance
    trace = np.array(ascent.trace) + _constant(problem, noise_variance)
    return WeightFit(
        weights=weights,
        mean_log_likelihood=float(trace[-1]),
        n_rounds=len(trace) - 1,
        converged=ascent.converged,
        trace=trace,
    )


def _problem(where: str, features: Any, second_moment: Any, noise_variance: Any) -> Problem:
    noise_variance = check_real("noise_variance", noise_variance, least=0.0, open_below=True, where=where)
    return make_problem(where, features, second_moment, noise_variance)


def _constant(problem: Problem, noise_variance: float) -> float:
    """Compute what the mean log-likelihood has besides what units of the noise variance leave of it."""
    r: int = problem.features.shape[1]
    return -0.5 * r * float(np.log(2.0 * np.pi) + np.log(noise_variance))


def _largest_eigenvalue(second_moment: Array) -> float:
    # scipy's driver for subsets gives up on some matrices with many equal eigenvalues.
    return float(np.linalg.eigvalsh(second_moment)[-1])
