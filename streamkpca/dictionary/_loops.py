"""Jitted loops of the dictionary."""

import numpy as np
import numpy.typing as npt

from streamkpca._core.jit import jit

Array = npt.NDArray[np.float64]


@jit
def gram_schmidt(gram: Array, threshold: Array, factor: Array, accepted: npt.NDArray[np.int64]) -> int:
    """Orthonormalise s rows known by their inner products alone; return the number of independent rows.

    Notation:
        G = gram (s, s): inner products of the rows.
        threshold (s,): a row is dependent if its squared distance to the rows before it is at most this.
        L = factor (s, s), output: row a holds the coordinates of the a-th independent row; zeros above the diagonal.
        accepted (s,), output: positions of the independent rows, in order.

    Notes
    -----
    L[j, l] = (G[j, l] - sum_{t<l} L[j, t] L[l, t]) / L[l, l] and
    L[j, j]^2 = G[j, j] - sum_{t<j} L[j, t]^2: classical Gram-Schmidt on inner products, which is the Cholesky
    factorisation row by row. O(s^3 / 3).

    References
    ----------
    .. [1] S. Martin, "An approximate version of kernel PCA", ICMLA 2006: the inner-product Gram-Schmidt process.
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


@jit
def add_rank_one(
    gram: Array, left: Array, right: Array, scale: float, weights: Array, squares: Array, fourths: Array
) -> None:
    """Replace residual inner products R by R + l r^T, and sum their powers.

    Notation:
        R = gram (s, n): inner products of s candidates with n rows, overwritten.
        l = left (s,): coordinates of the candidates along a direction, negated if it joins the span.
        r = right (n,): coordinates of the rows along it.
        scale: keeps powers of R in range.
        a = weights (n,): row weights.
        squares, fourths (s,), output: sum_i a_i (scale R_ji)^2 and sum_i a_i (scale R_ji)^4 for each candidate j.

    Notes
    -----
    One pass over R, O(s n). The update is bound by memory, so the sums that the next choice needs take no extra time.
    """
    for j in range(gram.shape[0]):
        multiple = left[j]
        square_sum = 0.0
        fourth_sum = 0.0
        for i in range(gram.shape[1]):
            value = gram[j, i] + multiple * right[i]
            gram[j, i] = value
            square = (scale * value) * (scale * value)
            square_sum += weights[i] * square
            fourth_sum += weights[i] * square * square
        squares[j] = square_sum
        fourths[j] = fourth_sum


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
    """Turn inner products of columns a_i into those of a_i + g_i c, in place.

    Notation:
        products (k, k): (a_i, a_j), overwritten.
        column (k,): (a_i, c) before the change.
        square: (c, c).
        g = multiples (k,).
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

    Notation:
        share (m,): P_ij / P_jj.
        P = precision (m, m): K^-1, the inner products of the dual vectors, overwritten.
        Q = recorded (m, m): the recorded second moment between dual vectors, overwritten.

    Notes
    -----
    The dual vectors of the other atoms become orthogonal to w_j: w_i <- w_i - (P_ij / P_jj) w_j. Row and column j of
    P and Q end as zeros. O(m^2).
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
def insert_direction(atom: int, share: Array, inverse_pivot: float, precision: Array) -> None:
    """Insert atom p, whose row and column are zero, into the inner products of the dual vectors w_i, in place.

    Notation:
        share (m,): (phi_p, w_i) / |r|, where r is what phi_p has outside the span.
        inverse_pivot: 1 / |r|.
        P = precision (m, m): inner products of the dual vectors, overwritten.

    Notes
    -----
    w_p = r / |r|^2 and w_i <- w_i - (phi_p, w_i) r / |r|^2. Nothing is recorded along r yet, so Q stays. O(m^2).
    """
    m = precision.shape[0]
    change = -share
    change[atom] = inverse_pivot
    for i in range(m):
        for j in range(m):
            precision[i, j] += change[i] * change[j]


@jit
def weigh_slopes(slopes: Array, coefficients: Array, weights: Array, sizes: Array) -> None:
    """Multiply derivatives (n, m) by coefficients (n, m) and weights (n,), in place; add sizes to `sizes` (m,)."""
    for n in range(slopes.shape[0]):
        weight = weights[n]
        for i in range(slopes.shape[1]):
            weighted = weight * coefficients[n, i] * slopes[n, i]
            slopes[n, i] = weighted
            sizes[i] += abs(weighted)


@jit
def weigh_coefficients(coefficients: Array, values: Array, weights: Array, sizes: Array) -> float:
    """Multiply coefficients (n, m) by the roots of weights (n,), in place; return the weighted sum of B_ni k_ni.

    The weighted sums of |B_ni k_ni| over the rows are added to `sizes` (m,).
    """
    total = 0.0
    for n in range(values.shape[0]):
        weight = weights[n]
        root = np.sqrt(weight)
        for i in range(values.shape[1]):
            product = weight * coefficients[n, i] * values[n, i]
            coefficients[n, i] *= root
            total += product
            sizes[i] += abs(product)
    return total


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
    found: npt.NDArray[np.int64],
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

    Notes
    -----
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
