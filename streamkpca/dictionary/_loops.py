"""Jitted loops of the dictionary."""

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.jit import jit


@jit
def gram_schmidt(gram: Array, threshold: Array, factor: Array, accepted: Positions) -> int:
    """Orthonormalise s rows known by their inner products G = gram (s, s); return the number of independent rows.

    Notation: a row is dependent if its squared distance to the rows before it is at most its threshold (s,); row a of
    L = factor (s, s) takes the coordinates of the a-th independent row; accepted (s,) takes their positions, in order.

    The inner-product Gram-Schmidt process (S. Martin, "An approximate version of kernel PCA", ICMLA 2006), which is the
    Cholesky factorisation row by row; O(s^3 / 3).
    """
    count = 0
    for j in range(gram.shape[0]):
        pivot = gram[j, j]
        for a in range(count):
            inner = gram[j, accepted[a]]
            for t in range(a):
                inner -= factor[count, t] * factor[a, t]
            inner /= factor[a, a]
            factor[count, a] = inner
            pivot -= inner * inner
        # A NaN pivot fails this comparison too.
        if pivot > threshold[j]:
            factor[count, count] = np.sqrt(pivot)
            for t in range(count + 1, gram.shape[0]):
                factor[count, t] = 0.0
            accepted[count] = j
            count += 1
    return count


# How `choose_greedily` values candidates: by the energy that they would explain, less one standard error; by that
# energy; by the energy that they share with the rows per k(x, x) of their own; by their distance to the span.
CAUTIOUS_GAIN, GAIN, SHARED_ENERGY, DISTANCE = range(4)

# Gains that differ by less than this share are equal. Where the kernel has few dimensions, those of rows close to the
# span are known to some of their digits only.
_SAME_GAIN = 1e-6
# Squares of residuals below this would underflow.
_LEAST_RESIDUAL = 1e-150
# A row whose squared distance to the span falls below minus this share of k(x, x) shows that the kernel is indefinite;
# less may be the rounding of nearly dependent atoms.
LARGEST_NEGATIVE_SHARE = 1e-3


@jit
def cautious_gains(
    squares: Array, fourths: Array, pivots: Array, own: Array, shares: Array, weights: Array, gains: Array
) -> None:
    """Compute the mean gain, less one standard error, of s candidates; minus infinity without a pivot or other rows.

    Notation:
        squares, fourths (s,): sum_i a_i R_i^2 and sum_i a_i R_i^4, R the residual inner products with n rows.
        pivots (s,): R of the candidate with itself; 0 for those that may not be chosen.
        own (s,): their weights among the rows.
        shares (s,): their shares of the stream.
        a = weights (n,): row weights.
        gains (s,), output.

    The candidate counts with its share of the stream, so an outlier gains no more than that. With x_i = R_i^2 / pivot,
    the others count with their weighted mean of x less its standard error, sqrt(var(x) sum a_i^2) / sum a_i.
    """
    weight = squared_weight = 0.0
    for i in range(len(weights)):
        weight += weights[i]
        squared_weight += weights[i] * weights[i]
    for j in range(len(gains)):
        gains[j] = -np.inf
        pivot, others = pivots[j], weight - own[j]
        if pivot > 0.0 and others > 0.0:
            mean = (squares[j] / pivot - own[j] * pivot) / others
            square = (fourths[j] / (pivot * pivot) - own[j] * (pivot * pivot)) / others
            spread = max(square - mean * mean, 0.0) * max(squared_weight - own[j] * own[j], 0.0)
            gains[j] = mean - np.sqrt(spread) / others + shares[j] * pivot


@jit
def choose_greedily(
    gram: Array,
    rows: Positions,
    weights: Array,
    energy: Array,
    residual: Array,
    rule: int,
    limits: tuple[float, float, float, float, float],
    coordinates: Array,
    factor: Array,
    atom_energy: Array,
    chosen: Positions,
) -> tuple[int, float]:
    """Choose candidates one after the other, each the best after those before it, at most as many as `chosen` holds.

    Returns their number, and the lowest squared distance that a refused candidate would have left a row.

    Notation:
        R = gram (s, n): residual inner products of s candidates with n rows, overwritten; the largest k(x, x) is 1.
        rows (s,): position of each candidate among the rows.
        a = weights (n,), energy (n,): row weights and k(x, x).
        residual (n,): squared distances of the rows to the span, overwritten.
        rule: how candidates are valued; the first atom of all may explain itself alone.
        limits: total weight of the stream; gain that is not worth an atom; unexplained energy at which to stop
            (negative: never); share of k(x, x) up to which a residual is dependent; rounding of kernel values.
        C = coordinates (m + most, n): coordinates of the rows along the m directions before; those of the chosen
            candidates are appended.
        L = factor (m + most, m + most): factor of the atoms, continued. If empty, candidates are not tested for
            rounding and for indefinite kernels.
        atom_energy (m + most,): k(z, z) of the atoms; continued with the factor.
        chosen (most,), output: the candidates' numbers, in the order of their choice.

    A candidate j gains sum_i a_i R_ij^2 / R_jj, Martin's criterion on the residuals. Where several gain the same,
    the farthest from the span is chosen: a row close to the span would make a factor that loses digits. O(s n) to begin
    with and for each choice, and O((m + most)^2) for its test.

    A candidate is dependent if rounding could explain its residual, see `rounding_error`. One that would leave a row a
    clearly negative squared distance shows that the kernel is indefinite (Cauchy and Schwarz), and is refused.

    """
    total_weight, least_gain, tolerated, least_share, rounding = limits
    s, n = gram.shape
    m = len(coordinates) - len(chosen)
    squares, fourths, pivots, gains = np.empty(s), np.empty(s), np.empty(s), np.empty(s)
    multiples, own, shares, is_free = np.empty(s), np.empty(s), np.empty(s), np.empty(s, np.bool_)
    for j in range(s):
        weight = weights[rows[j]]
        multiples[j], own[j], shares[j], is_free[j] = 0.0, weight, weight / total_weight, weight > 0.0
    beta, along, lowest, count, is_changed = np.empty(len(factor)), np.zeros(n), np.inf, 0, True
    while count < len(chosen):
        if is_changed:
            left = 0.0
            for i in range(n):
                left += weights[i] * residual[i]
            if 0.0 <= tolerated and left <= tolerated:
                break
            # One pass over R subtracts the last direction, and sums the powers that gains need: it is bound by memory.
            for j in range(s):
                square_sum = fourth_sum = 0.0
                for i in range(n):
                    value = gram[j, i] - multiples[j] * along[i]
                    gram[j, i] = value
                    square = value * value
                    square_sum += weights[i] * square
                    fourth_sum += weights[i] * square * square
                squares[j], fourths[j] = square_sum, fourth_sum
            is_changed = False

        for j in range(s):
            left = residual[rows[j]]
            is_independent = left > max(least_share * abs(energy[rows[j]]), _LEAST_RESIDUAL)
            pivots[j] = left if is_free[j] and is_independent else 0.0
        if rule == CAUTIOUS_GAIN and m + count:
            cautious_gains(squares, fourths, pivots, own, shares, weights, gains)
        else:
            for j in range(s):
                gains[j] = -np.inf
                if pivots[j] > 0.0:
                    divisor = energy[rows[j]] if rule == SHARED_ENERGY else pivots[j]
                    gains[j] = pivots[j] if rule == DISTANCE and squares[j] > 0.0 else squares[j] / divisor
        highest, best = -np.inf, -1
        for j in range(s):
            highest = max(highest, gains[j])
        if not highest > (least_gain if m + count else 0.0):
            break
        for j in range(s):
            if gains[j] >= highest - _SAME_GAIN * highest and (best < 0 or pivots[j] > pivots[best]):
                best = j
        row, pivot = rows[best], pivots[best]

        is_free[best] = False
        if len(factor):
            reach, lowest_left = np.sqrt(abs(energy[row])), 0.0
            for a in range(m + count):
                beta[a] = coordinates[a, row]
            for a in range(m + count - 1, -1, -1):
                beta[a] /= factor[a, a]
                reach += abs(beta[a]) * np.sqrt(abs(atom_energy[a]))
                for b in range(a):
                    beta[b] -= beta[a] * factor[a, b]
            if not pivot > rounding * (reach * reach):
                continue
            for i in range(n):
                left = residual[i] - gram[best, i] * gram[best, i] / pivot
                if left < -LARGEST_NEGATIVE_SHARE * abs(energy[i]):
                    lowest_left = min(lowest_left, left)
            if lowest_left < 0.0:
                lowest = min(lowest, lowest_left)
                continue
            for a in range(m + count):
                factor[m + count, a] = coordinates[a, row]
            factor[m + count, m + count], atom_energy[m + count] = np.sqrt(pivot), energy[row]

        for i in range(n):
            along[i] = gram[best, i] / np.sqrt(pivot)
            residual[i] -= along[i] * along[i]
            coordinates[m + count, i] = along[i]
        for j in range(s):
            multiples[j] = along[rows[j]]
        # Exactly zero, so that rounding cannot make an atom a candidate again.
        residual[row] = 0.0
        chosen[count] = best
        count, is_changed = count + 1, True
    return count, lowest


@jit
def subtract_outer(matrix: Array, left: Array, right: Array) -> None:
    """Subtract l r^T from the first k columns of a matrix (n, m) in place, l = left (n,) and r = right (k,)."""
    for i in range(matrix.shape[0]):
        multiple = left[i]
        if multiple != 0.0:
            for j in range(right.shape[0]):
                matrix[i, j] -= multiple * right[j]


@jit
def add_column(products: Array, column: Array, square: float, multiples: Array) -> None:
    """Turn inner products (a_i, a_j) (k, k) of columns into those of a_i + g_i c, in place.

    Notation: column (k,), (a_i, c) before the change; square, (c, c); g = multiples (k,).
    """
    k = len(products)
    for i in range(k):
        multiple = multiples[i]
        # With (a_i + g_i c, c), one pass over the row is enough.
        shifted = column[i] + multiple * square
        for j in range(k):
            products[i, j] += shifted * multiples[j] + multiple * column[j]


@jit
def remove_direction(atom: int, share: Array, precision: Array, recorded: Array) -> None:
    """Remove atom j from the inner products and moments of the dual vectors w_i, in place.

    Notation: share (m,), P_ij / P_jj; P = precision (m, m), K^-1; Q = recorded (m, m), second moments of the w_i.

    The other dual vectors become orthogonal to w_j: w_i <- w_i - (P_ij / P_jj) w_j. Row and column j of P and Q end as
    zeros. O(m^2).
    """
    m = precision.shape[0]
    pivot = precision[atom, atom]
    moment = recorded[atom, atom]
    cross = recorded[atom].copy()
    for i in range(m):
        for j in range(m):
            precision[i, j] -= pivot * share[i] * share[j]
            recorded[i, j] += share[i] * share[j] * moment - share[i] * cross[j] - cross[i] * share[j]
    for i in range(m):
        # Zero except for rounding, which would otherwise return as the moment of a direction that no longer exists.
        precision[atom, i] = precision[i, atom] = 0.0
        recorded[atom, i] = recorded[i, atom] = 0.0


@jit
def scale_values(values: Array, roots: Array, lengths: Array, out: Array) -> None:
    """Multiply values (n, m) by the roots (n,) of their rows and divide them by lengths (m,), to `out` (n, m)."""
    for n in range(values.shape[0]):
        for i in range(values.shape[1]):
            out[n, i] = roots[n] * values[n, i] / lengths[i]


@jit
def sum_of_squares(values: Array) -> float:
    """Return the sum of the squares of (n, m) values in double precision."""
    total = 0.0
    for n in range(values.shape[0]):
        for i in range(values.shape[1]):
            value = np.float64(values[n, i])
            total += value * value
    return total


@jit
def weigh(values: Array, coefficients: Array, roots: Array, sizes: Array) -> None:
    """Multiply values (n, m) by coefficients (n, m) and roots (n,), in place; add their sizes to `sizes` (m,)."""
    for n in range(values.shape[0]):
        root = roots[n]
        for i in range(values.shape[1]):
            weighted = root * coefficients[n, i] * values[n, i]
            values[n, i] = weighted
            sizes[i] += abs(weighted)


@jit
def best_swap(
    sums: Array,
    pivots: Array,
    coefficients: Array,
    precision: Array,
    own: Array,
    shares: Array,
    recorded: Array,
    own_gains: Array,
    rounding: float,
    found: Positions,
) -> float:
    """Find the swap of a candidate c for an atom j that gains most; return its profit, minus infinity without any.

    Notation:
        sums (m + s, m + s): inner products over the sample of coefficients V and residual products R.
        pivots (s,): R_cc; zero for candidates that may not be admitted.
        v = coefficients (s, m): coefficients of the candidates' projections over the atoms.
        precision (m,): P_jj.
        own (m,): normalised weights of the atoms' own rows in the sample.
        shares (m,): what the atoms' rows weigh in the stream.
        recorded (m,): loss that the moments record for an atom; it falls in proportion to the loss in the sample.
        own_gains (s,): what a candidate's own row gains per R_cc, beyond its part in the sample.
        rounding: gains and losses below this count as none.
        found (2,), output: candidate and atom.

    The energy that the sample loses without j, once c is in, is (V_j^2 - 2 v t V_j + v^2 t^2) / (P_jj + v^2 / R_cc),
    averaged over rows, with t = R_ic / R_cc. O(s m).
    """
    best = -np.inf
    m = len(precision)
    for c in range(len(pivots)):
        pivot = pivots[c]
        if pivot == 0.0:
            continue
        products = sums[m + c]
        gained = products[m + c] / pivot
        least = np.inf
        weakest = -1
        for j in range(m):
            v = coefficients[c, j]
            spread = v * v / pivot
            after = precision[j] + spread
            alone = sums[j, j] - own[j]
            loss = max(alone - 2.0 * v * products[j] / pivot + spread * gained, 0.0) / after
            before = alone / precision[j]
            proportion = min(loss / before, 1.0) if before > rounding else 1.0
            cost = max(loss + shares[j] / after, recorded[j] * proportion)
            if cost < least:
                least = cost
                weakest = j
        profit = gained + own_gains[c] * pivot - least - rounding
        if profit > best:
            best = profit
            found[0] = c
            found[1] = weakest
    return best
