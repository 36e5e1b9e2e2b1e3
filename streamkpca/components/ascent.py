"""Three ways to the sparse maximum-likelihood weights, on checked arrays and with unit noise."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas
from scipy.linalg.lapack import dpotrf, dpotrs

from streamkpca._core.concurrency import cached_property
from streamkpca.components._loops import BLOCK_FULL, ascend, step_gains
from streamkpca.components.likelihood import Array, GramModel, Problem, Statistics, posterior_variances, statistics

Positions = npt.NDArray[np.intp]

# Up to so many active candidates, or so many for each coordinate, their inner products are cheaper than all features.
_FEW, _FEW_OF = 128, 0.5
# Generous for what sums of a few hundred products lose.
_ROUNDING = 64.0 * float(np.finfo(float).eps)


class CandidateGram:
    """Rows of K = Phi Phi^T and T = Phi S Phi^T, computed when first asked for, and both diagonals.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    problem : Problem
    squares, energies : ndarray of shape (p,)
        Diagonals of K and T.
    trace : float
        Trace of S.

    Notes
    -----
    p candidates, r coordinates: O(p r^2) for the diagonal of T, O(k r (p + r)) for k rows.
    """

    def __init__(self, problem: Problem) -> None:
        features, second_moment = problem.features, problem.second_moment
        p = len(features)
        self.problem = problem
        self.squares = np.einsum("ij,ij->i", features, features)
        # Only the diagonal of Phi S Phi^T is wanted, and a triangle of S gives it for half of the product.
        half = blas.dtrmm(1.0, second_moment.T, features.T, lower=1).T
        self.energies = 2.0 * np.einsum("ij,ij->i", half, features) - np.square(features) @ np.diagonal(second_moment)
        self.trace = float(np.trace(second_moment))
        self._place = np.full(p, -1)
        self._gram, self._moment_gram = np.empty((0, p)), np.empty((0, p))

    def rows(self, candidates: Positions) -> tuple[Array, Array]:
        """Return rows of both matrices.

        Parameters
        ----------
        candidates : ndarray of int of shape (k,)

        Returns
        -------
        gram, moment_gram : ndarray of shape (k, p)
        """
        missing = candidates[self._place[candidates] < 0]
        if missing.size:
            features = self.problem.features
            new = features[missing]
            self._place[missing] = len(self._gram) + np.arange(len(missing))
            self._gram = np.vstack([self._gram, new @ features.T])
            self._moment_gram = np.vstack([self._moment_gram, new @ self.problem.second_moment @ features.T])
        places = self._place[candidates]
        return self._gram[places], self._moment_gram[places]

    def weighted(self, weights: Array) -> "ActiveSet":
        """Return the model with these weights.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            In units of the noise variance, few of them not zero.

        Returns
        -------
        ActiveSet
        """
        active = np.flatnonzero(weights)
        model = None
        if active.size <= max(_FEW, _FEW_OF * self.problem.features.shape[1]):
            gram, moment_gram = self.rows(active)
            model = GramModel(gram[:, active], moment_gram[:, active], weights[active])
        return ActiveSet(self, active, weights[active], model if model and model.is_reliable else None)


class ActiveSet:
    """The model with weights for few candidates: its likelihood, and how that changes with the weight of any.

    Parameters
    ----------
    candidates : CandidateGram
    active : ndarray of int of shape (k,)
        Positions of the candidates that have a weight.
    weights : ndarray of shape (k,)
        Theirs.
    model : GramModel or None
        Of these; None where inner products cost or lose too much. All is computed from triangular factors then, in
        O(r^3 + p r^2).

    Attributes
    ----------
    active : ndarray of int
    """

    def __init__(self, candidates: CandidateGram, active: Positions, weights: Array, model: GramModel | None) -> None:
        self.active, self._active_weights = active, weights
        self._candidates, self._model = candidates, model
        self._loses_digits = False

    @property
    def weights(self) -> Array:
        """Weights of all candidates, shape (p,)."""
        weights = np.zeros(len(self._candidates.squares))
        weights[self.active] = self._active_weights
        return weights

    @property
    def can_be_refined(self) -> bool:
        """Whether Newton's method is for these weights."""
        return self._model is not None

    @cached_property
    def log_likelihood(self) -> float:
        """Mean log-likelihood but for its constant."""
        if self._model:
            return self._model.gain - 0.5 * self._candidates.trace
        return self._statistics.unit_log_likelihood

    def reweighted(self, weights: Array) -> "ActiveSet":
        """Return the model with other weights, shape (p,)."""
        return self._candidates.weighted(weights)

    def newton_refined(self, least_gain: float) -> "ActiveSet":
        """Maximise over the weights that are not zero; some may become zero.

        Parameters
        ----------
        least_gain : float
            Gains below this do not count.

        Returns
        -------
        ActiveSet
            Nowhere less likely than this.
        """
        if not self._model:
            return self
        kept, model = newton_refine(self._model, least_gain)
        return ActiveSet(self._candidates, self.active[kept], model.weights, model)

    def diagonals(self, least_gain: float) -> tuple[Array, Array]:
        r"""Compute what decides the gain of changing any one weight.

        Parameters
        ----------
        least_gain : float
            Gains above this have to be told from those below.

        Returns
        -------
        diagonal_A, diagonal_Q : ndarray of shape (p,)
            Of A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T.

        Notes
        -----
        With X and V of `GramModel.solve` these are K_ii - K_i . X_i and T_ii - (T_i + V_i) . X_i: O(p k^2). The gain of
        a new weight is (x - log(1 + x)) / 2 with x = Q_ii / A_ii - 1 > 0, so an error of x near 0 costs its square.
        Where the differences lose too many digits for that, all is computed anew from triangular factors.
        """
        squares, energies = self._candidates.squares, self._candidates.energies
        if not self.active.size:
            return squares.copy(), energies.copy()
        if not self._model:
            return self._statistics.diagonal_A, self._statistics.diagonal_Q
        gram, moment_gram = self._candidates.rows(self.active)
        X, V = self._model.solve(gram, moment_gram)
        a = squares - np.einsum("ij,ij->j", gram, X)
        q = energies - np.einsum("ij,ij->j", moment_gram + V, X)
        # Entries of X may be large where active candidates resemble each other.
        reach = np.sqrt(squares[self.active] + energies[self.active]) @ np.abs(X)
        lost = _ROUNDING * (squares + energies + reach * reach)
        lost[self.active] = 0.0
        self._loses_digits = not (lost * lost <= least_gain * a * np.abs(a)).all()
        if self._loses_digits:
            return self._statistics.diagonal_A, self._statistics.diagonal_Q
        A, Q = self._model.scaled_matrices
        a[self.active] = A.diagonal() / self._model.weights
        q[self.active] = Q.diagonal() / self._model.weights
        return a, q

    def matrices(self, newcomers: Positions) -> tuple[Array, Array]:
        """Compute A and Q among the active and others, in the way in which `diagonals` were computed last.

        Parameters
        ----------
        newcomers : ndarray of int of shape (n,)
            None of them active.

        Returns
        -------
        A, Q : ndarray of shape (k + n, k + n)
            The active first.
        """
        working, k = np.concatenate([self.active, newcomers]), self.active.size
        if not self._model or self._loses_digits:
            found = self._statistics
            half = found.half_solved[working]
            return half @ half.T, found.moment_solved[working] @ found.solved[working].T
        # Indexing would give columns one after another, for which the loop would be compiled once more.
        gram, moment_gram = (rows.take(working, axis=1) for rows in self._candidates.rows(working))
        if not k:
            return gram, moment_gram
        X, V = self._model.solve(gram[:k], moment_gram[:k])
        across_A, across_Q = self._model.explained_away(gram[:k]), self._model.explained_away(V)
        A = gram - gram[:k].T @ X
        Q = moment_gram - moment_gram[:k].T @ X - X.T @ V
        A[:k], A[:, :k] = across_A, across_A.T
        Q[:k], Q[:, :k] = across_Q, across_Q.T
        scales = np.sqrt(self._model.weights)
        A[:k, :k], Q[:k, :k] = (matrix / np.outer(scales, scales) for matrix in self._model.scaled_matrices)
        return A, Q

    @cached_property
    def _statistics(self) -> Statistics:
        return statistics(self._candidates.problem, self.weights)


_MOST_NEWTON_STEPS = 16
_MOST_HALVINGS = 6
# Where candidates depend on each other the curvature is singular, and the gradient across nothing but rounding.
_RIDGE = 1e-8


def newton_refine(model: GramModel, least_gain: float) -> tuple[npt.NDArray[np.intp], GramModel]:
    r"""Maximise over all weights of a model together; those that would become negative leave it.

    Parameters
    ----------
    model : GramModel
        A reliable one.
    least_gain : float
        Stop when the next step promises no larger one.

    Returns
    -------
    kept : ndarray of int
        Positions of the weights that are still positive.
    model : GramModel
        Of these. It is reliable, and its likelihood is not below the first one's.

    Notes
    -----
    With A and Q scaled by W^1/2 on both sides, the derivatives by relative changes of the weights are

        gradient (Q_ii - A_ii) / 2,  curvature -(A o (Q - A / 2))_ij

    (o: entry by entry). Far from a maximum minus the curvature may be indefinite; its expectation under the model, for
    which Q = A, is not. A step is halved until it raises the likelihood. O(k^3) a step; near a maximum every step
    doubles the number of digits, where steps along one weight after another take hundreds.

    References
    ----------
    J. Nocedal and S. Wright, "Numerical Optimization", 2nd ed. (2006), sections 3.4 and 16.7; expected curvature as in
    Fisher's method of scoring.
    """
    kept = np.arange(len(model.weights))
    for _ in range(_MOST_NEWTON_STEPS):
        if not kept.size:
            break
        step, promised = _relative_step(model)
        if not promised > least_gain:
            break
        for halvings in range(_MOST_HALVINGS):
            proposal = model.weights * np.maximum(1.0 + 0.5**halvings * step, 0.0)
            remaining = np.flatnonzero(proposal)
            block = np.ix_(remaining, remaining)
            proposed = GramModel(model.gram[block], model.moment_gram[block], proposal[remaining])
            if proposed.gain > model.gain:
                break
        else:
            break
        kept, model = kept[remaining], proposed
    return kept, model


def _relative_step(model: GramModel) -> tuple[Array, float]:
    """Return Newton's step and what it promises to gain."""
    A, Q = model.scaled_matrices
    gradient = 0.5 * (Q.diagonal() - A.diagonal())
    for curvature in (A * (Q - 0.5 * A), 0.5 * A * A):
        curvature.flat[:: len(A) + 1] *= 1.0 + _RIDGE
        factor, failed = dpotrf(curvature)
        if not failed:
            step = dpotrs(factor, gradient)[0]
            return step, 0.5 * float(gradient @ step)
    return np.zeros_like(gradient), 0.0


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
        worthwhile = max(least_gain, _WORTHWHILE * best_gain) if current.can_be_refined else least_gain
        proposed, steps = _ascended(current, gains, worthwhile, least_gain, most_steps)
        if steps and proposed.log_likelihood >= trace[-1]:
            current = proposed.newton_refined(worthwhile)
            trace.append(current.log_likelihood)
            most_steps = min(2 * most_steps, _MOST_STEPS)
        elif steps <= 1:
            return Ascent(current.weights, trace, converged=True)
        else:
            most_steps = max(1, steps // 8)


def _ascended(
    current: ActiveSet, gains: Array, worthwhile: float, least_gain: float, most_steps: int
) -> tuple[ActiveSet, int]:
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
