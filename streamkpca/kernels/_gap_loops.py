"""Jitted loops of expected kernel values, for rows whose missing numbers are normal."""

import numpy as np
import numpy.typing as npt

from streamkpca._core.jit import jit

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]


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
