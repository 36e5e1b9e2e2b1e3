"""Compiled loops that answer single rows: from the row to the projection in one call.

Notation: n rows of d features; m targets, the rows that a kernel compares with; a plane's part is its share of the
rows of `parts`, the targets transposed and stacked over the planes, so that inner loops run along memory.
"""

import math
from typing import Any

import numpy as np

from streamkpca._jit import jit
from streamkpca.kernel_loops import run_program

INNER, COSINE, SQUARED, ABSOLUTE = range(4)


@jit
def _scale_to_one(base: Any, row: Any, columns: Any, start: Any, stop: Any) -> Any:
    """Return what a row is multiplied by for a plane: one over its length for cosines, without overflow."""
    if base != COSINE:
        return 1.0, 1.0
    largest = 0.0
    for k in range(start, stop):
        largest = max(largest, abs(row[columns[k]]))
    if largest == 0.0:
        return 0.0, 1.0
    square = 0.0
    for k in range(start, stop):
        square += (row[columns[k]] / largest) ** 2
    return 1.0 / math.sqrt(square), largest


@jit
def _fill_planes(bases: Any, bounds: Any, columns: Any, parts: Any, row: Any, first: Any, others: Any) -> None:
    """Write all planes between one row and the targets; plane 0 to `first`, the others to `others`."""
    m = parts.shape[1]
    for p in range(bases.size):
        base, start, stop = bases[p], bounds[p], bounds[p + 1]
        sums = first[0] if p == 0 else others[p - 1, 0]
        for j in range(m):
            sums[j] = 0.0
        scale, divisor = _scale_to_one(base, row, columns, start, stop)
        for k in range(start, stop):
            value = row[columns[k]] / divisor * scale
            part = parts[k]
            if base == SQUARED:
                for j in range(m):
                    sums[j] += (value - part[j]) * (value - part[j])
            elif base == ABSOLUTE:
                for j in range(m):
                    sums[j] += abs(value - part[j])
            else:
                for j in range(m):
                    sums[j] += value * part[j]


@jit
def _fill_own_planes(bases: Any, bounds: Any, columns: Any, row: Any, first: Any, others: Any) -> None:
    """Write all planes between a row and itself."""
    for p in range(bases.size):
        base, start, stop = bases[p], bounds[p], bounds[p + 1]
        value = 0.0
        if base == INNER:
            for k in range(start, stop):
                value += row[columns[k]] * row[columns[k]]
        elif base == COSINE:
            value = 1.0 if _scale_to_one(base, row, columns, start, stop)[0] > 0.0 else 0.0
        if p == 0:
            first[0, 0] = value
        else:
            others[p - 1, 0, 0] = value


@jit
def project_rows(
    codes: Any,
    operands: Any,
    constants: Any,
    depth: Any,
    bases: Any,
    bounds: Any,
    columns: Any,
    parts: Any,
    X: Any,
    projection: Any,
    offset: Any,
    out: Any,
) -> Any:
    """Project rows onto axes, k(x, Z) P - offset.

    Parameters
    ----------
    codes, operands, constants, depth
        The program, as for `run_program`.
    bases : ndarray of int64 of shape (planes,)
        What each plane holds.
    bounds : ndarray of int64 of shape (planes + 1,)
        Where each plane's part begins and ends.
    columns : ndarray of int64 of shape (c,)
        The columns of the rows that belong to the parts.
    parts : ndarray of shape (c, m)
        The targets, transposed.
    X : ndarray of shape (n, d)
    projection : ndarray of shape (m, q)
    offset : ndarray of shape (q,)
    out : ndarray of shape (n, q)
        Takes the projections.

    Returns
    -------
    bool
        Whether all are finite.
    """
    m, q = projection.shape
    values = np.empty((1, m))
    others = np.empty((max(bases.size - 1, 1), 1, m))
    nothing = np.empty((0, max(m, 1)))
    finite = True
    for i in range(len(X)):
        _fill_planes(bases, bounds, columns, parts, X[i], values, others)
        run_program(codes, operands, constants, depth, others, nothing, nothing, values, 0, 0, 1, m)
        answer = out[i]
        for a in range(q):
            answer[a] = -offset[a]
        for j in range(m):
            value, axis = values[0, j], projection[j]
            for a in range(q):
                answer[a] += value * axis[a]
        for a in range(q):
            finite = finite and math.isfinite(answer[a])
    return finite


@jit
def measure_rows(
    codes: Any,
    operands: Any,
    constants: Any,
    depth: Any,
    bases: Any,
    bounds: Any,
    columns: Any,
    parts: Any,
    X: Any,
    inverse: Any,
    out: Any,
) -> Any:
    """Measure squared distances of rows to the span of the targets, k(x, x) - |L^-1 k(x, Z)|^2.

    Parameters
    ----------
    codes, operands, constants, depth, bases, bounds, columns, parts, X
        As for `project_rows`.
    inverse : ndarray of shape (m, m)
        Lower triangular L^-1.
    out : ndarray of shape (n,)
        Takes the distances; none is negative.

    Returns
    -------
    bool
        Whether all are finite.
    """
    m = len(inverse)
    values = np.empty((1, m))
    own = np.empty((1, 1))
    others = np.empty((max(bases.size - 1, 1), 1, max(m, 1)))
    nothing = np.empty((0, max(m, 1)))
    finite = True
    for i in range(len(X)):
        _fill_own_planes(bases, bounds, columns, X[i], own, others)
        run_program(codes, operands, constants, depth, others, nothing, nothing, own, 0, 0, 1, 1)
        _fill_planes(bases, bounds, columns, parts, X[i], values, others)
        run_program(codes, operands, constants, depth, others, nothing, nothing, values, 0, 0, 1, m)
        explained = 0.0
        kernel_row = values[0]
        for j in range(m):
            coordinate = 0.0
            weights = inverse[j, : j + 1]
            for k in range(j + 1):
                coordinate += weights[k] * kernel_row[k]
            explained += coordinate * coordinate
        distance = own[0, 0] - explained
        # Written so that NaN stays what it is.
        out[i] = 0.0 if distance < 0.0 else distance
        finite = finite and math.isfinite(distance)
    return finite
