"""Compiled loops: coordinate ascent of sparse maximum-likelihood weights, and novelty scores of errors."""

import math

from streamkpca._core.arrays import Array
from streamkpca._core.jit import jit

NO_GAIN_LEFT = 0
BLOCK_FULL = 1
ILL_CONDITIONED = 2

# A step that changes the determinant of the covariance by more than this factor, up or down, costs as many
# digits of the rank-one updates; six of sixteen are affordable.
_LARGEST_CHANGE = 1e6
_EPSILON = 2.220446049250313e-16


@jit
def _best_change(a: float, q: float, w: float) -> tuple[float, float, float]:
    """Return the gain of the best change of one weight, the change, and its factor on the determinant."""
    if not a > 0.0:
        return 0.0, 0.0, 1.0
    ratio = q / a
    # Rounding must not make the determinant vanish when a weight is so large that w a is 1.
    without = max(1.0 - w * a, _EPSILON)
    if ratio > without:
        return 0.5 * (ratio - 1.0 - math.log(ratio)), (ratio - 1.0) / a, ratio
    if w > 0.0:
        return -0.5 * (w * q / without + math.log(without)), -w, without
    return 0.0, 0.0, 1.0


@jit
def step_gains(diagonal_A: Array, diagonal_Q: Array, weights: Array, gains: Array) -> None:
    """Compute the gains in mean log-likelihood by the best change of each single weight; all (p,), 0 for no gain."""
    for i in range(weights.shape[0]):
        gains[i] = _best_change(diagonal_A[i], diagonal_Q[i], weights[i])[0]


@jit
def ascend(
    A: Array,
    Q: Array,
    diagonal_A: Array,
    diagonal_Q: Array,
    weights: Array,
    least_gain: float,
    changes: Array,
    U: Array,
    V: Array,
) -> tuple[int, int]:
    """Change one weight at a time, always the one that gains most, each to its exact maximiser.

    A and Q (p, p) are as they were when the block began, and only read. Their diagonals and the weights, in units of
    the noise variance, are kept up to date. Steps that raise the mean log-likelihood by no more than `least_gain` are
    not taken. The coefficient kappa of each step goes to `changes` (b,), its vectors to the rows of `U` and `V` (b, p).

    Returns the number of steps taken, and a status: `NO_GAIN_LEFT`; `BLOCK_FULL` when there is a gain but no row for
    another step; `ILL_CONDITIONED` when the last step was so large that A and Q have to be computed anew.

    Notes
    -----
    Notation: p candidates, C covariance (r, r) with unit noise, Phi features (p, r), S second moment (r, r),
    A = Phi C^-1 Phi^T, Q = Phi C^-1 S C^-1 Phi^T, w weights (p,).

    Changing w_j by dw multiplies the determinant of C by g = 1 + dw A_jj and raises the mean log-likelihood by (dw Q_jj
    / g - log g) / 2. The maximum is at g = Q_jj / A_jj, hence dw = (Q_jj - A_jj) / A_jj^2, unless that makes the weight
    negative; then dw = -w_j. The step changes the matrices by rank one and two, with kappa = dw / g:

        A -= kappa u u^T,  Q -= kappa (u v^T + v u^T),  u = A_j,  v = Q_j - kappa Q_jj u / 2.

    The changes are collected, a column is brought up to date when its step comes (O(p b)), and the caller subtracts a
    whole block at once with BLAS.
    """
    p = weights.shape[0]
    step = 0
    while True:
        best = -1
        best_gain = least_gain
        best_change = 0.0
        best_growth = 1.0
        for i in range(p):
            gain, change, growth = _best_change(diagonal_A[i], diagonal_Q[i], weights[i])
            if gain > best_gain:
                best, best_gain, best_change, best_growth = i, gain, change, growth
        if best < 0:
            return step, NO_GAIN_LEFT
        if step == changes.shape[0]:
            return step, BLOCK_FULL

        kappa = best_change / best_growth
        for i in range(p):
            U[step, i] = A[best, i]
            V[step, i] = Q[best, i]
        for t in range(step):
            u = changes[t] * U[t, best]
            v = changes[t] * V[t, best]
            for i in range(p):
                U[step, i] -= u * U[t, i]
                V[step, i] -= u * V[t, i] + v * U[t, i]
        half = 0.5 * kappa * V[step, best]
        a = diagonal_A[best] / best_growth
        q = diagonal_Q[best] / (best_growth * best_growth)
        for i in range(p):
            V[step, i] -= half * U[step, i]
            diagonal_A[i] -= kappa * U[step, i] * U[step, i]
            diagonal_Q[i] -= 2.0 * kappa * U[step, i] * V[step, i]
        diagonal_A[best] = a
        diagonal_Q[best] = q
        changes[step] = kappa
        weights[best] = 0.0 if best_change == -weights[best] else weights[best] + best_change
        step += 1
        if best_growth > _LARGEST_CHANGE or best_growth * _LARGEST_CHANGE < 1.0:
            return step, ILL_CONDITIONED


@jit
def score_errors(errors: Array, explained: Array, own: float, least: float, scores: Array) -> bool:
    """Write -e log(1 - r/e) of errors r (n,), e = own, as `NoveltyScore` says; tell whether some need logarithms.

    They are those that explain less than `least`, and score -1 here. The energies `explained` (n,) count for others
    beyond half of e, where 1 - r/e would lose digits.
    """
    has_hidden = False
    for i in range(len(errors)):
        if errors[i] <= 0.5 * own:
            scores[i] = -own * math.log1p(-max(errors[i], 0.0) / own)
        elif explained[i] >= least:
            scores[i] = -own * math.log(explained[i] / own)
        else:
            scores[i] = -1.0
            has_hidden = True
    return has_hidden
