"""The Gaussian model behind the weights, c ~ N(0, sigma^2 I + Phi^T W Phi), in two forms of the same likelihood.

`statistics` computes it by features, in O(r^3) for r coordinates; `GramModel` by inner products of the k active
candidates, in O(k^3). Everything is in units of the noise variance, so that C = I + Phi^T W Phi. With
A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T, the derivative by weight i is (Q_ii - A_ii) / 2.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtri

from streamkpca._core.arrays import Array
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
