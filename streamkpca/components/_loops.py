"""Compiled loops: ascent of sparse weights, novelty scores, expected numbers, and distances to neighbours."""

import math

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.jit import jit

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
) -> int:
    """Change one weight at a time, always the one that gains most, each to its exact maximiser; count the steps.

    A and Q (p, p) are as they were at first, and only read. Their diagonals and the weights, in units of the noise
    variance, are kept up to date. Steps that raise the mean log-likelihood by no more than `least_gain` are not taken.
    The coefficient kappa of each step goes to `changes` (b,), its vectors to the rows of `U` and `V` (b, p), and there
    are at most b steps. After a step so large that A and Q have to be computed anew there is none.

    Notes
    -----
    Notation: p candidates, C covariance (r, r) with unit noise, Phi features (p, r), S second moment (r, r),
    A = Phi C^-1 Phi^T, Q = Phi C^-1 S C^-1 Phi^T, w weights (p,).

    Changing w_j by dw multiplies the determinant of C by g = 1 + dw A_jj and raises the mean log-likelihood by (dw Q_jj
    / g - log g) / 2. The maximum is at g = Q_jj / A_jj, hence dw = (Q_jj - A_jj) / A_jj^2, unless that makes the weight
    negative; then dw = -w_j. The step changes the matrices by rank one and two, with kappa = dw / g:

        A -= kappa u u^T,  Q -= kappa (u v^T + v u^T),  u = A_j,  v = Q_j - kappa Q_jj u / 2.

    A column is brought up to date when its step comes, in O(p b).
    """
    p = weights.shape[0]
    step = 0
    while step < changes.shape[0]:
        best = -1
        best_gain = least_gain
        best_change = 0.0
        best_growth = 1.0
        for i in range(p):
            gain, change, growth = _best_change(diagonal_A[i], diagonal_Q[i], weights[i])
            if gain > best_gain:
                best, best_gain, best_change, best_growth = i, gain, change, growth
        if best < 0:
            break
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
            break
    return step


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


# Expectations: columns H (d, s) of healthy rows around rows x (n, d), which may have gaps, and c (d,), one over widths
# or 0. a = c (x - h) has Student's density of four degrees of freedom, without its constant q^-5/2 with the factor
# q = 1 + a^2 / 4, so that a few far-off numbers do not outweigh the others.
_HALF_POWER = 2.5
# A square from which on it does not matter how far a number is.
_FARTHEST_SQUARE = 1e16
# A product of factors from which on it becomes a logarithm.
_FARTHEST = 1e100
# Factors that are multiplied before the product is looked at: eight such squares more are no overflow.
_FACTORS = 8
# Deviations beyond which a number counts less.
_NEAR = 5.0


@jit
def _multiply(x: float, c: float, h: Array, product: Array) -> None:
    """Multiply products (s,) by the factors of a column, but for a gap."""
    if math.isnan(x):
        return
    for s in range(len(h)):
        a = c * (x - h[s])
        product[s] *= 1.0 + 0.25 * min(a * a, _FARTHEST_SQUARE)


@jit
def _take_logarithms(product: Array, logarithms: Array, beyond: float) -> None:
    """Let products (s,) beyond a limit be 1, and add their logarithms to others."""
    for s in range(len(product)):
        if product[s] > beyond:
            logarithms[s] += math.log(product[s])
            product[s] = 1.0


@jit
def _weigh(logarithms: Array) -> float:
    """Replace logarithms (s,) of products of factors by densities, as shares of the largest; return their sum."""
    least, total = logarithms.min(), 0.0
    for s in range(len(logarithms)):
        logarithms[s] = math.exp(-_HALF_POWER * (logarithms[s] - least))
        total += logarithms[s]
    return total


@jit
def measure_surprise(X: Array, closeness: Array, H: Array, lags: int, found: Array) -> None:
    """Write how surprising each of f features of rows (n, d) is (n, f), see `Expectation.surprise`.

    Columns are `lags` times the features, then conditions. With the factors q_j of a feature, and the densities w of
    all numbers and g of the conditions, it is log^2(sum w q_j^5/2 / sum w) + log^2(sum g q_j^-5/2 / sum g), with sums
    over healthy rows.
    """
    f, n = found.shape[1], H.shape[1]
    factors, product, given, whole = np.empty((f, n)), np.empty(n), np.empty(n), np.empty(n)
    for i in range(len(X)):
        for s in range(n):
            product[s], given[s] = 1.0, 0.0
        for k in range(lags * f, len(H)):
            _multiply(X[i, k], closeness[k], H[k], product)
        _take_logarithms(product, given, 0.0)
        for s in range(n):
            whole[s] = given[s]
        for j in range(f):
            for s in range(n):
                factors[j, s] = 1.0
            for k in range(j, lags * f, f):
                _multiply(X[i, k], closeness[k], H[k], factors[j])
                for s in range(n):
                    factors[j, s] = min(factors[j, s], _FARTHEST)
            for s in range(n):
                product[s] *= factors[j, s]
            _take_logarithms(product, whole, _FARTHEST)
        _take_logarithms(product, whole, 0.0)
        sum_given, sum_whole = _weigh(given), _weigh(whole)
        for j in range(f):
            alone = others = 0.0
            for s in range(n):
                power = factors[j, s] * factors[j, s] * math.sqrt(factors[j, s])
                others += whole[s] * power
                alone += given[s] / power
            found[i, j] = math.log(others / sum_whole) ** 2 + math.log(alone / sum_given) ** 2


@jit
def expect_numbers(
    X: Array, closeness: Array, H: Array, columns: Positions, slopes: Array, means: Array, variances: Array
) -> None:
    """Write means and variances (n, k) of columns (k,) beside rows (n, d), as `Expectation.predict` says.

    Columns of closeness 0 count for nothing. Healthy numbers move by a along slopes (k, d), or by 25 / a where |a| > 5.
    """
    n = H.shape[1]
    product, weights, away, values = np.empty(n), np.empty(n), np.empty(n), np.empty((len(columns), n))
    for i in range(len(X)):
        for s in range(n):
            product[s], weights[s] = 1.0, 0.0
        for k in range(len(columns)):
            values[k] = H[columns[k]]
        for j in range(len(H)):
            if j % _FACTORS == 0:
                _take_logarithms(product, weights, _FARTHEST)
            x, c, h = X[i, j], closeness[j], H[j]
            if math.isnan(x) or c == 0.0:
                continue
            _multiply(x, c, h, product)
            for s in range(n):
                a = c * (x - h[s])
                away[s] = a * (_NEAR * _NEAR / max(a * a, _NEAR * _NEAR))
            for k in range(len(columns)):
                for s in range(n):
                    values[k, s] += slopes[k, j] * away[s]
        _take_logarithms(product, weights, 0.0)
        total = _weigh(weights)
        for k in range(len(columns)):
            mean = variance = 0.0
            for s in range(n):
                mean += weights[s] * values[k, s]
            mean /= total
            for s in range(n):
                variance += weights[s] * (values[k, s] - mean) ** 2
            means[i, k], variances[i, k] = mean, variance / total


# Numbers farther off than this, in standard deviations, count as this far: their squares are finite.
FARTHEST = 1e60


@jit
def sum_relation_terms(
    rows: Array, mean: Array, scale: Array, weights: Array, inverse_squared_units: Array, n: int, sums: Array
) -> None:
    """Write the sums of the first `n` terms of rows (k, d) without gaps, as `relation.Relation` defines them.

    `weights` (d, d) are the rows of the precision divided by its diagonal. Each row is summed by itself, to the bit.
    """
    d = rows.shape[1]
    standardised = np.empty(d)
    for i in range(len(rows)):
        for j in range(d):
            standardised[j] = min(max((rows[i, j] - mean[j]) / scale[j], -FARTHEST), FARTHEST)
        total = 0.0
        for j in range(n):
            residual = 0.0
            for k in range(d):
                residual += weights[j, k] * standardised[k]
            total += math.log1p(residual * residual * inverse_squared_units[j])
        sums[i] = total


@jit
def multiply_rows(X: Array, W: Array, out: Array) -> None:
    """Write W x for each row x, in an order that does not depend on the rows beside it.

    Numbers that overflow on both sides, which have no sum, count as infinite: such rows are far from all others.

    Notation: X (n, c); W (p, c); out (n, p).
    """
    n, c = X.shape
    block = np.empty((4, c))
    first, second, third, fourth = block[0], block[1], block[2], block[3]
    for i in range(0, n, 4):
        for t in range(4):
            row = X[min(i + t, n - 1)]
            for k in range(c):
                block[t, k] = row[k]
        for j in range(len(W)):
            entries = W[j]
            w, x, y, z = 0.0, 0.0, 0.0, 0.0
            for k in range(c):
                w += entries[k] * first[k]
                x += entries[k] * second[k]
                y += entries[k] * third[k]
                z += entries[k] * fourth[k]
            for t, value in enumerate((w, x, y, z)):
                if i + t < n:
                    out[i + t, j] = math.inf if math.isnan(value) else value


@jit
def score_neighbours(rows: Array, references: Array, orders: Positions, scores: Array) -> None:
    """Write the means of the distances from rows (k, d) to some nearest references (d, m): (k,).

    `orders` are ascending, 1 for the nearest one, and the last reference stands for those beyond. Of references that
    are equal to a row, one is the row itself, and left out. Each row is scored by itself, to the bit.
    """
    d, m = references.shape
    n_kept = min(orders[-1] + 1, m)
    squares, nearest = np.empty(m), np.empty(n_kept)
    for i in range(len(rows)):
        squares[:] = 0.0
        for j in range(d):
            x = rows[i, j]
            for a in range(m):
                difference = x - references[j, a]
                squares[a] += difference * difference
        nearest[:] = np.inf
        for a in range(m):
            if squares[a] < nearest[n_kept - 1]:
                place = n_kept - 1
                while place > 0 and nearest[place - 1] > squares[a]:
                    nearest[place] = nearest[place - 1]
                    place -= 1
                nearest[place] = squares[a]
        n_equal = 1 if nearest[0] == 0.0 else 0
        total = 0.0
        for order in orders:
            total += math.sqrt(nearest[min(order - 1 + n_equal, n_kept - 1)])
        scores[i] = total / len(orders)
