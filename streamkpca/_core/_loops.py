"""Compiled loops of the input checks, and of rows with gaps, whose missing numbers are normal."""

from typing import Any

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.jit import jit

_LARGEST = float(np.finfo(np.float64).max)


@jit
def all_finite(rows: Any) -> Any:
    """Return whether every number of (n, d) rows is finite: by comparisons, as x - x may be folded to 0."""
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
    """Replace the leading (g, g) part by its lower Cholesky factor; return its log determinant, or NaN."""
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
def solve_among(matrix: Array, columns: Positions, right: Array) -> bool:
    """Solve A_cc X = `right` (k, m) in place, c (k,) being rows and columns of A.

    False, and nothing changed, if A_cc is not positive definite.
    """
    k, m = right.shape
    factor = np.empty((k, k))
    for a in range(k):
        for b in range(k):
            factor[a, b] = matrix[columns[a], columns[b]]
    if not abs(factor_in_place(factor, k)) <= _LARGEST:
        return False
    solve_for_all(factor, k, right)
    for a in range(k - 1, -1, -1):
        for b in range(a + 1, k):
            for j in range(m):
                right[a, j] -= factor[b, a] * right[b, j]
        for j in range(m):
            right[a, j] /= factor[a, a]
    return True


@jit
def fill_expected(rows: Array, mean: Array, scale: Array, precision: Array, out: Array) -> None:
    """Put the expected number, given the others of the row, in every gap.

    Notation:
        rows (n, d): with NaN in gaps; out (n, d), output: the rows completed.
        mean, scale (d,): of columns; a scale of 0 is that of a constant column.
        P = precision (d, d): the inverse of the correlations of columns, or (0, 0) if they are independent.

    In scales, the gaps given the numbers x_o have the mean -P_mm^-1 P_mo x_o. Where that overflows, or rounding has
    spoiled P, the mean of the column is taken. O(g^2 (g + 1) + g d) for g gaps of a row; each row by itself.
    """
    n, d = rows.shape
    away = np.empty(d)
    for i in range(n):
        gaps = np.flatnonzero(np.isnan(rows[i]))
        for j in range(d):
            out[i, j], away[j] = rows[i, j], (rows[i, j] - mean[j]) / (scale[j] if scale[j] > 0.0 else 1.0)
        out[i, gaps], away[gaps] = mean[gaps], 0.0
        if len(gaps) == 0 or precision.shape[0] == 0:
            continue
        pull = np.zeros((len(gaps), 1))
        for a in range(len(gaps)):
            for k in range(d):
                pull[a, 0] -= precision[gaps[a], k] * away[k]
        if not solve_among(precision, gaps, pull):
            continue
        for a in range(len(gaps)):
            value = mean[gaps[a]] + scale[gaps[a]] * pull[a, 0]
            if abs(value) <= _LARGEST:
                out[i, gaps[a]] = value


@jit
def condition_precision(missing: Any, precision: Array, diagonal: Array) -> None:
    """Write the diagonal of the inverse covariance of the numbers that each row has.

    Notation:
        missing (n, d): which numbers are gaps.
        P = precision (d, d): the inverse covariance of all columns.
        diagonal (n, d), output: P_oo - P_om P_mm^-1 P_mo for the present columns o and the gaps m; P_mm for these.

    O(g^2 (g + d)) for g gaps of a row; each row by itself.
    """
    for i in range(len(missing)):
        gaps = np.flatnonzero(missing[i])
        pull = precision[gaps]
        # A ridge makes every part of the precision definite.
        solve_among(precision, gaps, pull)
        for j in range(missing.shape[1]):
            diagonal[i, j] = precision[j, j]
            if not missing[i, j]:
                for a in range(len(gaps)):
                    diagonal[i, j] -= precision[gaps[a], j] * pull[a, j]


@jit
def nearest_atoms(rows: Array, atoms: Array, scale: Array, nearest: Positions) -> None:
    """Find the position (n,) of the atom (m, d) nearest to each row (n, d) over its present columns, in scales (d,)."""
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
    exponents: Array,
    own: Array,
) -> None:
    """Integrate exp(-(x - z)^T G (x - z)) over the gaps of n rows against m atoms, columns being correlated.

    Notation:
        starts (n + 1,), gaps: the gaps of row i are the columns gaps[starts[i] : starts[i + 1]].
        P = precision (d, d), S = stiffness (d, d): G in scales.
        pulls (n, d), atom_pulls (d, m): G x and G z in scales, x being the expected row.
        exponents (n, m), output: added to -(x - z)^T G (x - z) of the expected row.
        own (n,), output: logarithm of the expected value for two independent draws of the gaps.

    The gaps u are normal with covariance P_mm^-1. With H = P_mm + 2 S_mm and g the difference of the pulls, the
    integral is (|P_mm| / |H|)^1/2 exp(2 g^T H^-1 g). O(g^2 (g + m)) for each row.
    """
    n, m = len(starts) - 1, atom_pulls.shape[1]
    most = 0
    for i in range(n):
        most = max(most, starts[i + 1] - starts[i])
    own_part, two_part, tilted = np.empty((most, most)), np.empty((most, most)), np.empty((most, most))
    pulled = np.empty((most, m))
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


@jit
def tilt_apart(
    starts: Positions,
    gaps: Positions,
    stiffness: Array,
    pulls: Array,
    atom_pulls: Array,
    exponents: Array,
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
        for a in range(starts[i], starts[i + 1]):
            j = gaps[a]
            inverse = 1.0 / (1.0 + 2.0 * stiffness[j])
            for z in range(m):
                pull = pulls[i, j] - atom_pulls[j, z]
                exponents[i, z] += 2.0 * inverse * pull * pull
