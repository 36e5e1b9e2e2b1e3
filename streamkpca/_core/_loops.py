"""Compiled loops of the input checks, and of rows with gaps, whose missing numbers are normal."""

from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.jit import jit

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

_LARGEST = float(np.finfo(np.float64).max)


@jit
def all_finite(rows: Any) -> Any:
    """Return whether every number of (n, d) rows is finite.

    Notes
    -----
    By comparison alone: arithmetic such as x - x may be folded to 0 where sums are reordered. The loop over a row
    never exits early, so that it can use vector instructions.
    """
    n, d = rows.shape
    for i in range(n):
        count = 0
        for j in range(d):
            count += 1 if abs(rows[i, j]) <= _LARGEST else 0
        if count < d:
            return False
    return True


@jit
def factor_in_place(matrix: Array, g: int) -> float:
    """Replace the leading (g, g) part by its lower Cholesky factor; return the logarithm of its determinant.

    Notes
    -----
    NaN if a pivot is not positive.
    """
    log = 0.0
    for j in range(g):
        pivot = matrix[j, j]
        for k in range(j):
            pivot -= matrix[j, k] * matrix[j, k]
        if not pivot > 0.0:
            return np.nan
        root = np.sqrt(pivot)
        matrix[j, j] = root
        log += np.log(pivot)
        for i in range(j + 1, g):
            inner = matrix[i, j]
            for k in range(j):
                inner -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = inner / root
    return log


@jit
def solve_for_all(factor: Array, g: int, columns: Array) -> None:
    """Replace the leading columns (g, m) by L^-1 of them, L being the leading part (g, g) of the factor."""
    m = columns.shape[1]
    for j in range(g):
        for k in range(j):
            coefficient = factor[j, k]
            for a in range(m):
                columns[j, a] -= coefficient * columns[k, a]
        inverse = 1.0 / factor[j, j]
        for a in range(m):
            columns[j, a] *= inverse


@jit
def fill_expected(rows: Array, mean: Array, scale: Array, precision: Array, out: Array) -> None:
    """Put the expected number, given the others of the row, in every gap.

    Notation:
        rows (n, d): with NaN in gaps; out (n, d), output: the rows completed.
        mean, scale (d,): of columns; a scale of 0 is that of a constant column.
        P = precision (d, d): the inverse of the correlations of columns, or (0, 0) if they are independent.

    Notes
    -----
    In scales, the gaps given the numbers x_o have the mean -P_mm^-1 P_mo x_o. Where that overflows, or rounding has
    spoiled P, the mean of the column is taken. O(g^2 (g + 1) + g d) for g gaps of a row; each row by itself.
    """
    n, d = rows.shape
    away, gaps = np.empty(d), np.empty(d, dtype=np.int64)
    part, pull = np.empty((0, 0)), np.empty((d, 1))
    for i in range(n):
        g = 0
        for j in range(d):
            out[i, j] = rows[i, j]
            if np.isnan(rows[i, j]):
                gaps[g] = j
                g += 1
                out[i, j] = mean[j]
                away[j] = 0.0
            else:
                away[j] = (rows[i, j] - mean[j]) / (scale[j] if scale[j] > 0.0 else 1.0)
        if g == 0 or precision.shape[0] == 0:
            continue
        if part.shape[0] < g:
            part = np.empty((g, g))
        for a in range(g):
            j = gaps[a]
            total = 0.0
            for k in range(d):
                total -= precision[j, k] * away[k]
            pull[a, 0] = total
            for b in range(g):
                part[a, b] = precision[j, gaps[b]]
        if not abs(factor_in_place(part, g)) <= _LARGEST:
            continue
        solve_for_all(part, g, pull)
        for a in range(g - 1, -1, -1):
            for b in range(a + 1, g):
                pull[a, 0] -= part[b, a] * pull[b, 0]
            pull[a, 0] /= part[a, a]
        for a in range(g):
            value = mean[gaps[a]] + scale[gaps[a]] * pull[a, 0]
            if abs(value) <= _LARGEST:
                out[i, gaps[a]] = value


@jit
def nearest_atoms(rows: Array, atoms: Array, scale: Array, nearest: Positions) -> None:
    """Find the position (n,) of the atom (m, d) nearest to each row (n, d) over its present columns, in scales (d,).

    Notes
    -----
    Constant columns, of scale 0, count in their own unit. O(m d) for each row.
    """
    d = rows.shape[1]
    present, inverse = np.empty(d), np.empty(d)
    for i in range(rows.shape[0]):
        for j in range(d):
            gap = np.isnan(rows[i, j])
            present[j] = 0.0 if gap else rows[i, j]
            inverse[j] = 0.0 if gap else (1.0 / scale[j] if scale[j] > 0.0 else 1.0)
        best, least = 0, np.inf
        for a in range(atoms.shape[0]):
            total = 0.0
            for j in range(d):
                apart = (present[j] - atoms[a, j]) * inverse[j]
                total += apart * apart
            if total < least:
                best, least = a, total
        nearest[i] = best


@jit
def tilt_together(
    starts: Positions,
    gaps: Positions,
    precision: Array,
    stiffness: Array,
    pulls: Array,
    atom_pulls: Array,
    slopes: Array,
    exponents: Array,
    shifts: Array,
    variances: Array,
    own: Array,
) -> None:
    """Integrate exp(-(x - z)^T G (x - z)) over the gaps of n rows against m atoms, columns being correlated.

    Notation:
        starts (n + 1,), gaps: the gaps of row i are the columns gaps[starts[i] : starts[i + 1]].
        P = precision (d, d), S = stiffness (d, d): G in scales.
        pulls (n, d), atom_pulls (d, m): G x and G z in scales, x being the expected row.
        slopes (d, m) or (0, 0): A z in scales, for a factor x.A z.
        exponents (n, m), output: added to -(x - z)^T G (x - z) of the expected row.
        shifts, variances (n, m) or (0, 0), output: mean, relative to the expected row, and variance of x.A z.
        own (n,), output: logarithm of the expected value for two independent draws of the gaps.

    Notes
    -----
    The gaps u are normal with covariance P_mm^-1. With H = P_mm + 2 S_mm and g the difference of the pulls, the
    integral is (|P_mm| / |H|)^1/2 exp(2 g^T H^-1 g), and under the tilted distribution u has mean -2 H^-1 g and
    covariance H^-1. O(g^2 (g + m)) for each row.
    """
    n, m = len(starts) - 1, atom_pulls.shape[1]
    most = 0
    for i in range(n):
        most = max(most, starts[i + 1] - starts[i])
    own_part, two_part, tilted = np.empty((most, most)), np.empty((most, most)), np.empty((most, most))
    pulled, sloped = np.empty((most, m)), np.empty((most, m))
    for i in range(n):
        g, first = starts[i + 1] - starts[i], starts[i]
        for a in range(g):
            j = gaps[first + a]
            for b in range(g):
                k = gaps[first + b]
                own_part[a, b] = precision[j, k]
                tilted[a, b] = precision[j, k] + 2.0 * stiffness[j, k]
                two_part[a, b] = precision[j, k] + 4.0 * stiffness[j, k]
        log_own = factor_in_place(own_part, g)
        level = 0.5 * (log_own - factor_in_place(tilted, g))
        own[i] = 0.5 * (log_own - factor_in_place(two_part, g))
        for a in range(g):
            j = gaps[first + a]
            for z in range(m):
                pulled[a, z] = pulls[i, j] - atom_pulls[j, z]
        solve_for_all(tilted, g, pulled)
        for z in range(m):
            exponents[i, z] = level
        for a in range(g):
            for z in range(m):
                exponents[i, z] += 2.0 * pulled[a, z] * pulled[a, z]
        if shifts.shape[0]:
            for a in range(g):
                j = gaps[first + a]
                for z in range(m):
                    sloped[a, z] = slopes[j, z]
            solve_for_all(tilted, g, sloped)
            for z in range(m):
                shifts[i, z] = 0.0
                variances[i, z] = 0.0
            for a in range(g):
                for z in range(m):
                    shifts[i, z] -= 2.0 * pulled[a, z] * sloped[a, z]
                    variances[i, z] += sloped[a, z] * sloped[a, z]


@jit
def tilt_apart(
    starts: Positions,
    gaps: Positions,
    stiffness: Array,
    pulls: Array,
    atom_pulls: Array,
    slopes: Array,
    exponents: Array,
    shifts: Array,
    variances: Array,
    own: Array,
) -> None:
    """Do what `tilt_together` does where columns are independent: the precision is 1, and `stiffness` (d,) diagonal."""
    n, m = len(starts) - 1, atom_pulls.shape[1]
    for i in range(n):
        level, own[i] = 0.0, 0.0
        for a in range(starts[i], starts[i + 1]):
            level -= 0.5 * np.log1p(2.0 * stiffness[gaps[a]])
            own[i] -= 0.5 * np.log1p(4.0 * stiffness[gaps[a]])
        for z in range(m):
            exponents[i, z] = level
        if shifts.shape[0]:
            for z in range(m):
                shifts[i, z] = 0.0
                variances[i, z] = 0.0
        for a in range(starts[i], starts[i + 1]):
            j = gaps[a]
            inverse = 1.0 / (1.0 + 2.0 * stiffness[j])
            for z in range(m):
                pull = pulls[i, j] - atom_pulls[j, z]
                exponents[i, z] += 2.0 * inverse * pull * pull
                if shifts.shape[0]:
                    shifts[i, z] -= 2.0 * inverse * pull * slopes[j, z]
                    variances[i, z] += inverse * slopes[j, z] * slopes[j, z]


@jit
def invert_in_place(matrix: Array, g: int) -> None:
    """Replace the leading (g, g) part, positive definite, by its inverse; O(g^3)."""
    factor_in_place(matrix, g)
    inverse = np.zeros((g, g))
    for j in range(g):
        inverse[j, j] = 1.0 / matrix[j, j]
        for i in range(j + 1, g):
            total = 0.0
            for k in range(j, i):
                total -= matrix[i, k] * inverse[k, j]
            inverse[i, j] = total / matrix[i, i]
    for a in range(g):
        for b in range(g):
            total = 0.0
            for k in range(max(a, b), g):
                total += inverse[k, a] * inverse[k, b]
            matrix[a, b] = total


@jit
def form_cumulants_together(
    starts: Positions,
    gaps: Positions,
    precision: Array,
    stiffness: Array,
    form: Array,
    slopes: Array,
    lengths: Array,
    one: Array,
    two: Array,
) -> None:
    """Find the cumulants of x.A x, and of x.A x' for two independent draws of the gaps, columns being correlated.

    Notation:
        starts (n + 1,), gaps, precision P, stiffness S: as in `tilt_together`.
        form (d, d): A in scales; slopes (n, d): A x of the expected rows, in scales; lengths (n,): x.A x of them.
        one, two (n, p), output: cumulants of order 1 to p, without the factor (r - 1)!; those of two draws under the
            tilt exp(-(x - x')^T G (x - x')).

    Notes
    -----
    A form of normal variables with mean m and covariance C has the cumulants
    2^(r-1) (r-1)! (tr (A C)^r + r m^T (A C)^(r-1) A m). For two draws x.A x' is one form of (x + x') / sqrt 2, whose
    covariance the tilt leaves alone, less one of (x - x') / sqrt 2, whose covariance becomes (P_mm + 4 S_mm)^-1.
    O(p g^3) for each row.
    """
    orders = one.shape[1]
    for i in range(len(starts) - 1):
        g, first = starts[i + 1] - starts[i], starts[i]
        covariance, tilted, part = np.empty((g, g)), np.empty((g, g)), np.empty((g, g))
        pushed, slope = np.empty(g), np.empty(g)
        for a in range(g):
            j = gaps[first + a]
            slope[a] = pushed[a] = slopes[i, j]
            for b in range(g):
                k = gaps[first + b]
                covariance[a, b] = precision[j, k]
                tilted[a, b] = precision[j, k] + 4.0 * stiffness[j, k]
                part[a, b] = form[j, k]
        invert_in_place(covariance, g)
        invert_in_place(tilted, g)
        step, tilted_step = multiply_small(part, covariance), multiply_small(part, tilted)
        forward, apart = step, tilted_step
        for r in range(1, orders + 1):
            bent = lengths[i]
            if r > 1:
                forward, apart = multiply_small(forward, step), multiply_small(apart, tilted_step)
                bent = 0.0
                for a in range(g):
                    for b in range(g):
                        bent += slope[a] * covariance[a, b] * pushed[b]
                later = np.zeros(g)
                for a in range(g):
                    for b in range(g):
                        later[a] += step[a, b] * pushed[b]
                pushed = later
            own, other = 0.0, 0.0
            for a in range(g):
                own += forward[a, a]
                other += apart[a, a]
            one[i, r - 1] = 2.0 ** (r - 1) * (own + r * bent)
            two[i, r - 1] = 0.5 * own + r * bent + 0.5 * (other if r % 2 == 0 else -other)


@jit
def form_cumulants_apart(
    starts: Positions,
    gaps: Positions,
    stiffness: Array,
    form: Array,
    slopes: Array,
    lengths: Array,
    one: Array,
    two: Array,
) -> None:
    """Do what `form_cumulants_together` does for independent columns and diagonal A (d,) and G (d,)."""
    for i in range(len(starts) - 1):
        for r in range(1, one.shape[1] + 1):
            bent, own, other = lengths[i] if r == 1 else 0.0, 0.0, 0.0
            for a in range(starts[i], starts[i + 1]):
                j = gaps[a]
                own += form[j] ** r
                other += (form[j] / (1.0 + 4.0 * stiffness[j])) ** r
                if r > 1:
                    bent += slopes[i, j] ** 2 * form[j] ** (r - 2)
            one[i, r - 1] = 2.0 ** (r - 1) * (own + r * bent)
            two[i, r - 1] = 0.5 * own + r * bent + 0.5 * (other if r % 2 == 0 else -other)


@jit
def multiply_small(left: Array, right: Array) -> Array:
    """Multiply small square matrices (g, g) without BLAS."""
    g = left.shape[0]
    out = np.zeros((g, g))
    for a in range(g):
        for k in range(g):
            for b in range(g):
                out[a, b] += left[a, k] * right[k, b]
    return out
