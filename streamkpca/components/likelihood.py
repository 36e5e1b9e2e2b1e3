"""The Gaussian model behind the weights, c ~ N(0, sigma^2 I + Phi^T W Phi), and the maximum over positive ones.

`statistics` computes its likelihood by features, in O(r^3) for r coordinates; `GramModel` by inner products of the k
active candidates, in O(k^3). Everything is in units of the noise variance, so that C = I + Phi^T W Phi. With
A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T, the derivative by weight i is (Q_ii - A_ii) / 2.

`CandidateGram` keeps the inner products of the few active candidates with all others, `ActiveSet` is the model with
weights for some of them, and `newton_refine` brings these to their maximum.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

from streamkpca._core.arrays import Array, Indices
from streamkpca._core.concurrency import cached_property
from streamkpca.errors import SparsityError

# The smallest eigenvalue of a covariance in these units is 1. A Cholesky factor, and solutions by it, may be
# wrong by size * epsilon * the largest eigenvalue.
_LARGEST_ERROR = 1e-8
_SMALLEST_SQUARE = 1e-250
_LARGEST_SQUARE = 1e140


@dataclass(frozen=True, slots=True)
class Problem:
    """Coordinates of the candidates (p, r), and the second moment of the data (r, r) over the noise variance."""

    features: Array
    second_moment: Array


def make_problem(features: Array, second_moment: Array, noise_variance: float) -> Problem:
    """Divide by the noise variance; refuse numbers that would overflow or drown in rounding.

    Features shorter than 1e-125 become zero: their weights would overflow.
    """
    least = float(np.finfo(float).eps) * float(np.trace(second_moment))
    if noise_variance < least:
        raise SparsityError(
            f"noise_variance={noise_variance:.3g} is below {least:.3g}, the rounding error of the rows' variance; "
            "choose a larger one, or 'auto'"
        )
    phi = np.ascontiguousarray(features)
    with np.errstate(over="ignore"):
        squared_lengths = np.square(phi).sum(axis=1)
    if squared_lengths.max() > _LARGEST_SQUARE:
        raise ValueError(
            f"kernel values up to {squared_lengths.max():.3g} are too large for the likelihood, whose powers of them "
            "overflow; multiply the kernel by a small number, or set noise_variance=None"
        )
    if squared_lengths.min() < _SMALLEST_SQUARE:
        phi = np.where(squared_lengths[:, None] < _SMALLEST_SQUARE, 0.0, phi)
    return Problem(phi, np.ascontiguousarray(second_moment) / noise_variance)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Likelihood and the terms of its derivatives, computed from scratch.

    `unit_log_likelihood` is -(log|C| + tr(C^-1 S)) / 2, the mean log-likelihood but for its constant. With R^T R = C,
    `half_solved` is Phi R^-1, `solved` Phi C^-1 and `moment_solved` Phi C^-1 S, all (p, r).
    """

    unit_log_likelihood: float
    half_solved: Array
    solved: Array
    moment_solved: Array
    diagonal_A: Array
    diagonal_Q: Array


def statistics(problem: Problem, weights: Array) -> Statistics:
    """Compute the likelihood of weights (p,) by features, Tipping's equations (5) to (8), in O(r^3 + p r^2).

    The data enter as their second moment in the span of the basis. From C^-1 = I - C^-1 Phi^T W Phi follows
    tr(C^-1 S) = tr S - sum_i w_i (Phi C^-1 S)_i . phi_i, which spares solving for S.
    """
    features, second_moment = problem.features, problem.second_moment
    active = np.flatnonzero(weights)
    log_determinant = 0.0
    half_solved = solved = features
    if active.size:
        factor = _covariance_factor(np.sqrt(weights[active])[:, None] * features[active])
        log_determinant = 2.0 * float(np.log(np.abs(np.diagonal(factor))).sum())
        half_solved = solve_triangular(factor, features.T, trans="T", check_finite=False).T
        solved = solve_triangular(factor, half_solved.T, check_finite=False).T
    moment_solved = solved @ second_moment
    explained = np.einsum("i,ij,ij->", weights[active], moment_solved[active], features[active])
    trace = float(np.trace(second_moment) - explained)
    return Statistics(
        unit_log_likelihood=-0.5 * (log_determinant + trace),
        half_solved=half_solved,
        solved=solved,
        moment_solved=moment_solved,
        diagonal_A=np.einsum("ij,ij->i", half_solved, half_solved),
        diagonal_Q=np.einsum("ij,ij->i", moment_solved, solved),
    )


def _covariance_factor(scaled: Array) -> Array:
    """Factor I + F^T F = R^T R, F of shape (k, r), by QR of [I; F] where squaring F would cost too many digits."""
    r = scaled.shape[1]
    covariance = scaled.T @ scaled
    covariance.flat[:: r + 1] += 1.0
    if r * np.finfo(float).eps * covariance.diagonal().max() < _LARGEST_ERROR:
        return np.asarray(cholesky(covariance, overwrite_a=True, check_finite=False))
    return np.asarray(np.linalg.qr(np.vstack([np.eye(r), scaled]), mode="r"))


class GramModel:
    """Likelihood of k positive weights by inner products K = Phi Phi^T and T = Phi S Phi^T, both (k, k).

    By Woodbury's identity C^-1 = (I + Phi^T W Phi)^-1 = I - Phi^T P Phi, and by Sylvester's |C| = |G|, with
    G = I + W^1/2 K W^1/2 and the `precision` P = W^1/2 G^-1 W^1/2, hence

        -(log |C| + tr(C^-1 S)) / 2 = -tr(S) / 2 + (tr(P T) - log |G|) / 2.

    The second term is `gain`, minus infinity where G cannot be inverted to eight digits: then `is_reliable` is false.
    """

    def __init__(self, gram: Array, moment_gram: Array, weights: Array) -> None:
        self.gram, self.moment_gram, self.weights = gram, moment_gram, weights
        k = len(weights)
        roots = np.sqrt(weights)
        self._scaling = roots[:, None] * roots
        self._scaled = gram * self._scaling
        G = self._scaled.copy()
        G.flat[:: k + 1] += 1.0
        # This comparison is false for NaN too.
        self.is_reliable = bool(k * np.finfo(float).eps * G.diagonal().max(initial=0.0) < _LARGEST_ERROR)
        factor, failed = dpotrf(G) if self.is_reliable and k else (G, 0)
        self.is_reliable = self.is_reliable and not failed
        self.gain = -np.inf
        if not self.is_reliable:
            return
        inverse_factor = dtrtri(factor)[0] if k else factor
        self._inverse = inverse_factor @ inverse_factor.T
        self.precision = self._inverse * self._scaling
        self.gain = 0.5 * float(np.vdot(self.precision, moment_gram)) - float(np.log(factor.diagonal()).sum())

    @cached_property
    def scaled_matrices(self) -> tuple[Array, Array]:
        """W^1/2 A W^1/2 and W^1/2 Q W^1/2, shape (k, k), which are free of the units of weights and features.

        As G^-1 (G - I) and G^-1 W^1/2 T W^1/2 G^-1 no digits cancel, as they would in A = K - K P K.
        """
        return self._inverse @ self._scaled, self._inverse @ (self.moment_gram * self._scaling) @ self._inverse

    def solve(self, gram: Array, moment_gram: Array) -> tuple[Array, Array]:
        """Express any n candidates' C^-1 phi = phi - Phi^T X and Phi S C^-1 phi = V by these k.

        Takes the candidates' columns (k, n) of K and T; X and V = T - T_kk X have that shape too.
        """
        X = self.precision @ gram
        return X, moment_gram - self.moment_gram @ X

    def explain_away(self, columns: Array) -> Array:
        """Multiply by I - K P = W^-1/2 G^-1 W^1/2, without the digits that the difference loses to large weights.

        Columns (k, n) of K become those of A; V of `solve` becomes columns of Q.
        """
        roots = np.sqrt(self.weights)[:, None]
        product: Array = self._inverse @ (roots * columns) / roots
        return product


# Up to this many active candidates, inner products with them are cheaper than features.
_FEW = 128
# Active candidates for each coordinate up to which inner products with them are cheaper than features, too.
_FEW_OF = 0.5
# Generous for the rounding of sums of a few hundred products.
_ROUNDING = 64.0 * float(np.finfo(float).eps)


class CandidateGram:
    """Rows of K = Phi Phi^T and T = Phi S Phi^T, computed when first needed, their diagonals, and the trace of S.

    With p candidates and r coordinates O(p r^2) for the diagonal of T, O(k r (p + r)) for k rows.
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
        self._position = np.full(p, -1)
        self._gram, self._moment_gram = np.empty((0, p)), np.empty((0, p))

    def rows(self, candidates: Indices) -> tuple[Array, Array]:
        """Return the rows of K and T for k candidates, each (k, p)."""
        missing = candidates[self._position[candidates] < 0]
        if missing.size:
            features = self.problem.features
            new = features[missing]
            self._position[missing] = len(self._gram) + np.arange(len(missing))
            self._gram = np.vstack([self._gram, new @ features.T])
            self._moment_gram = np.vstack([self._moment_gram, new @ self.problem.second_moment @ features.T])
        positions = self._position[candidates]
        return self._gram[positions], self._moment_gram[positions]

    def with_weights(self, weights: Array) -> "ActiveSet":
        """Return the model with these weights (p,), few of them not zero."""
        active = np.flatnonzero(weights)
        model = None
        if active.size <= max(_FEW, _FEW_OF * self.problem.features.shape[1]):
            gram, moment_gram = self.rows(active)
            model = GramModel(gram[:, active], moment_gram[:, active], weights[active])
        return ActiveSet(self, active, weights[active], model if model and model.is_reliable else None)


class ActiveSet:
    """The model with weights (k,) for the candidates at `active` (k,): its likelihood, and how any weight changes it.

    `model` is None where inner products cost or lose too much. Then all comes from triangular factors: O(r^3 + p r^2).
    """

    def __init__(self, candidates: CandidateGram, active: Indices, weights: Array, model: GramModel | None) -> None:
        self.active, self._active_weights = active, weights
        self._candidates, self.model = candidates, model
        self._loses_digits = False

    @property
    def weights(self) -> Array:
        """Weights of all candidates, shape (p,)."""
        weights = np.zeros(len(self._candidates.squares))
        weights[self.active] = self._active_weights
        return weights

    @cached_property
    def log_likelihood(self) -> float:
        """Mean log-likelihood but for its constant."""
        if self.model:
            return self.model.gain - 0.5 * self._candidates.trace
        return self._statistics.unit_log_likelihood

    def refine(self, least_gain: float) -> "ActiveSet":
        """Maximise over the weights that are not zero, ignoring gains below this; some may become zero."""
        if not self.model:
            return self
        kept, model = newton_refine(self.model, least_gain)
        return ActiveSet(self._candidates, self.active[kept], model.weights, model)

    def diagonals(self, least_gain: float) -> tuple[Array, Array]:
        """Compute the diagonals of A and Q (p,), which decide what changing any one weight gains.

        With X and V of `GramModel.solve` these are K_ii - K_i . X_i and T_ii - (T_i + V_i) . X_i: O(p k^2). The gain of
        a new weight is (x - log(1 + x)) / 2 with x = Q_ii / A_ii - 1 > 0, so an error of x near 0 costs its square.
        Where the differences lose too many digits to tell gains above `least_gain` from those below, everything is
        computed anew from triangular factors.
        """
        squares, energies = self._candidates.squares, self._candidates.energies
        if not self.active.size:
            return squares.copy(), energies.copy()
        if not self.model:
            return self._statistics.diagonal_A, self._statistics.diagonal_Q
        gram, moment_gram = self._candidates.rows(self.active)
        X, V = self.model.solve(gram, moment_gram)
        a = squares - np.einsum("ij,ij->j", gram, X)
        q = energies - np.einsum("ij,ij->j", moment_gram + V, X)
        # Entries of X may be large where active candidates resemble each other.
        reach = np.sqrt(squares[self.active] + energies[self.active]) @ np.abs(X)
        lost = _ROUNDING * (squares + energies + reach * reach)
        lost[self.active] = 0.0
        self._loses_digits = not (lost * lost <= least_gain * a * np.abs(a)).all()
        if self._loses_digits:
            return self._statistics.diagonal_A, self._statistics.diagonal_Q
        A, Q = self.model.scaled_matrices
        a[self.active] = A.diagonal() / self.model.weights
        q[self.active] = Q.diagonal() / self.model.weights
        return a, q

    def matrices(self, newcomers: Indices) -> tuple[Array, Array]:
        """Compute A and Q among the active and n newcomers, (k + n, k + n), in the way `diagonals` last did."""
        working, k = np.concatenate([self.active, newcomers]), self.active.size
        if not self.model or self._loses_digits:
            found = self._statistics
            half = found.half_solved[working]
            return half @ half.T, found.moment_solved[working] @ found.solved[working].T
        # Indexing would give arrays in Fortran order, for which the loop would be compiled again.
        gram, moment_gram = (rows.take(working, axis=1) for rows in self._candidates.rows(working))
        if not k:
            return gram, moment_gram
        X, V = self.model.solve(gram[:k], moment_gram[:k])
        across_A, across_Q = self.model.explain_away(gram[:k]), self.model.explain_away(V)
        A = gram - gram[:k].T @ X
        Q = moment_gram - moment_gram[:k].T @ X - X.T @ V
        A[:k], A[:, :k] = across_A, across_A.T
        Q[:k], Q[:, :k] = across_Q, across_Q.T
        scales = np.sqrt(self.model.weights)
        A[:k, :k], Q[:k, :k] = (matrix / np.outer(scales, scales) for matrix in self.model.scaled_matrices)
        return A, Q

    @cached_property
    def _statistics(self) -> Statistics:
        return statistics(self._candidates.problem, self.weights)


_MOST_NEWTON_STEPS = 16
_MOST_HALVINGS = 6
# Where candidates depend on each other the curvature is singular, and the gradient along that direction is rounding.
_RIDGE = 1e-8


def newton_refine(model: GramModel, least_gain: float) -> tuple[Indices, GramModel]:
    """Maximise over all weights of a reliable model together until a step promises no more than `least_gain`.

    Returns the positions of the weights that are still positive, and a reliable model of these whose likelihood is not
    below the first one's.

    Notes
    -----
    With A and Q scaled by W^1/2 on both sides, the derivatives by relative changes of the weights are

        gradient (Q_ii - A_ii) / 2,  curvature -(A o (Q - A / 2))_ij

    (o: entry by entry). Where the negated curvature is indefinite, its expectation under the model, for which Q = A,
    takes its place (Fisher's scoring). A step is halved until it raises the likelihood. O(k^3) a step.
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
    """Return Newton's step, relative to the weights, and the gain that it promises."""
    A, Q = model.scaled_matrices
    gradient = 0.5 * (Q.diagonal() - A.diagonal())
    for curvature in (A * (Q - 0.5 * A), 0.5 * A * A):
        curvature.flat[:: len(A) + 1] *= 1.0 + _RIDGE
        factor, failed = dpotrf(curvature)
        if not failed:
            step = dpotrs(factor, gradient)[0]
            return step, 0.5 * float(gradient @ step)
    return np.zeros_like(gradient), 0.0
