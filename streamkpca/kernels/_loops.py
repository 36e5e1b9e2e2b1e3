"""Compiled loops for distances between rows.

Notation: n left rows and m right rows of d features; a block is the part of an (n, m) result that starts at
``(row, column)``.
"""

import math
from typing import Any

import numpy as np

from streamkpca._core.jit import jit

TILE = 1024

PLANE, FACTOR, AFFINE, MINIMUM, POWER, ADD, MULTIPLY, EXP, LOG1P, SQRT, TANH, COPY, SWAP = range(13)

INNER, COSINE, SQUARED, ABSOLUTE = range(4)

_LARGEST = float(np.finfo(np.float64).max)
_LOG2_E = 1.4426950408889634
# ln 2 in two parts (Cody and Waite 1980): the first has 21 trailing zero bits, so whole multiples are exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# Adding it to a whole number leaves that number in the low bits of the sum.
_SHIFTER = 6755399441055744.0
_EXP_LEAST = -708.3964185322641
_EXP_MOST = 709.782712893384


@jit
def exponentiate(stack: Any, bits: Any, top: Any, scratch: Any, size: Any) -> None:
    """Replace the first `size` values x of a row by exp(x), in loops that compile to vector instructions.

    Parameters
    ----------
    stack : ndarray of shape (h, w)
        Its row `top` holds any values: NaN stays NaN, results below 2.2e-308 (subnormal) become 0. The rows
        `scratch` and ``scratch + 1`` are overwritten.
    bits : ndarray of int64 of shape (h, w)
        The same memory as `stack`.
    top, scratch, size : int
        The rows, and how many values of them.

    Notes
    -----
    exp(x) = 2^k exp(r) with k the whole number nearest to x / ln 2, so that abs(r) <= ln(2)/2, where the Taylor
    polynomial of degree 13 is exact to 4e-18. The error is at most about one unit in the last place. math.exp is a
    call for every value and takes six times as long.

    Several short loops and not one: reassociation, which the decorator allows, would merge the two parts of
    ln 2 into one product. Values that pass through memory are out of its reach. The last loop sees integers
    alone, because memory that is read as one type and written as another keeps loops from being vectorised.
    """
    whole, rest = scratch, scratch + 1
    for j in range(size):
        x = stack[top, j]
        k = np.rint(x * _LOG2_E)
        stack[whole, j] = k
        stack[rest, j] = x - k * _LN2_HIGH
    for j in range(size):
        x = stack[top, j]
        k = stack[whole, j]
        r = stack[rest, j] - k * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        p = 0.0 if x < _EXP_LEAST else p
        p = math.inf if x > _EXP_MOST else p
        stack[rest, j] = p
        k = k if x >= _EXP_LEAST else 0.0
        k = k if x <= _EXP_MOST else 0.0
        stack[whole, j] = k + _SHIFTER
    for j in range(size):
        bits[top, j] = bits[rest, j] + (bits[whole, j] << 52)


@jit
def run_program(
    codes: Any,
    operands: Any,
    constants: Any,
    depth: Any,
    planes: Any,
    left: Any,
    right: Any,
    target: Any,
    row: Any,
    column: Any,
    rows: Any,
    columns: Any,
) -> None:
    """Evaluate a kernel program over a block, one tile of a row at a time.

    Parameters
    ----------
    codes, operands : ndarray of int64 of shape (s,)
        The steps: what to do, and with which plane, factor or integer.
    constants : ndarray of shape (s, 2)
        Their numbers.
    depth : int
        The most values that the stack holds at once.
    planes : ndarray of shape (planes - 1, >= rows, >= columns)
        Planes 1, 2, ... of this block; plane 0 is in the target.
    left, right : ndarray of shape (factors, n), (factors, m)
        Row factors of both sides.
    target : ndarray of shape (n, m)
        Its block holds plane 0 and takes the results.
    row, column, rows, columns : int
        Where the block starts, and its extent.

    Notes
    -----
    A tile is part of a row, or several rows where they are short. The stack is one tile wide and stays in the
    first-level cache; choosing an operation is paid once a tile. A tile's plane 0 is read before its result is
    written, so both may share memory.
    """
    steps = codes.size
    stack = np.empty((depth + 2, TILE))
    bits = stack.view(np.int64)
    height = max(1, TILE // max(1, columns))
    for i in range(0, rows, height):
        count = min(height, rows - i)
        for start in range(0, columns, TILE):
            width = min(TILE, columns - start)
            size = count * width
            top = -1
            for step in range(steps):
                code, operand = codes[step], operands[step]
                a, b = constants[step, 0], constants[step, 1]
                if code == PLANE:
                    top += 1
                    if operand == 0:
                        _load(stack, top, target, row + i, column + start, count, width)
                    else:
                        _load(stack, top, planes[operand - 1], i, start, count, width)
                elif code == AFFINE:
                    for j in range(size):
                        stack[top, j] = a * stack[top, j] + b
                elif code == EXP:
                    exponentiate(stack, bits, top, depth, size)
                elif code == ADD:
                    top -= 1
                    for j in range(size):
                        stack[top, j] += stack[top + 1, j]
                elif code == MULTIPLY:
                    top -= 1
                    for j in range(size):
                        stack[top, j] *= stack[top + 1, j]
                elif code == FACTOR:
                    for t in range(count):
                        own = left[operand, row + i + t]
                        factors = right[operand, column + start : column + start + width]
                        values = stack[top, t * width : (t + 1) * width]
                        for j in range(width):
                            values[j] *= own * factors[j]
                elif code == POWER:
                    _raise_to(stack, top, depth, operand, size)
                elif code == COPY:
                    for j in range(size):
                        stack[top + 1, j] = stack[top, j]
                    top += 1
                elif code == SWAP:
                    for j in range(size):
                        stack[top, j], stack[top - 1, j] = stack[top - 1, j], stack[top, j]
                elif code == MINIMUM:
                    for j in range(size):
                        stack[top, j] = a if stack[top, j] > a else stack[top, j]
                elif code == SQRT:
                    for j in range(size):
                        stack[top, j] = math.sqrt(stack[top, j])
                elif code == LOG1P:
                    for j in range(size):
                        stack[top, j] = math.log1p(stack[top, j])
                elif code == TANH:
                    for j in range(size):
                        stack[top, j] = math.tanh(stack[top, j])
            for t in range(count):
                block = target[row + i + t, column + start : column + start + width]
                values = stack[0, t * width : (t + 1) * width]
                for j in range(width):
                    block[j] = values[j]


@jit
def _load(stack: Any, top: Any, source: Any, row: Any, column: Any, count: Any, width: Any) -> None:
    """Copy a tile of several rows to one row of the stack."""
    for t in range(count):
        # Slices, although they cost a reference count each: a sum of offsets as an index would be tested for
        # being negative, at every entry.
        block = source[row + t, column : column + width]
        values = stack[top, t * width : (t + 1) * width]
        for j in range(width):
            values[j] = block[j]


@jit
def _raise_to(stack: Any, top: Any, scratch: Any, exponent: Any, size: Any) -> None:
    """Raise to a whole power, not zero, by squaring."""
    remaining = abs(exponent) - 1
    for j in range(size):
        stack[scratch, j] = stack[top, j]
    while remaining > 0:
        if remaining & 1:
            for j in range(size):
                stack[top, j] *= stack[scratch, j]
        remaining >>= 1
        if remaining:
            for j in range(size):
                stack[scratch, j] *= stack[scratch, j]
    if exponent < 0:
        for j in range(size):
            stack[top, j] = 1.0 / stack[top, j]


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
def _add_squares(columns: Any, parts: Any, row: Any, start: Any, stop: Any, sums: Any) -> Any:
    """Add up squared differences, four columns at once; return the first of the columns that are left."""
    # One column at a time reads and writes the sums for each, which takes 1.7 times as long.
    m, whole = parts.shape[1], stop - (stop - start) % 4
    for k in range(start, whole, 4):
        a, b, c, d = row[columns[k]], row[columns[k + 1]], row[columns[k + 2]], row[columns[k + 3]]
        first, second, third, fourth = parts[k], parts[k + 1], parts[k + 2], parts[k + 3]
        for j in range(m):
            sums[j] += (a - first[j]) ** 2 + (b - second[j]) ** 2 + (c - third[j]) ** 2 + (d - fourth[j]) ** 2
    return whole


@jit
def _fill_planes(bases: Any, bounds: Any, columns: Any, parts: Any, row: Any, first: Any, others: Any) -> None:
    """Write all planes between one row and the targets; plane 0 to `first`, the others to `others`."""
    m = parts.shape[1]
    for p in range(bases.size):
        base, start, stop = bases[p], bounds[p], bounds[p + 1]
        sums = first[0] if p == 0 else others[p - 1, 0]
        for j in range(m):
            sums[j] = 0.0
        if base == SQUARED:
            start = _add_squares(columns, parts, row, start, stop, sums)
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
def _unpacked(plan: Any) -> Any:
    """Return depth, codes, operands, bases, bounds and columns of a plan."""
    depth, steps, planes = plan[0], plan[1], plan[2]
    codes, operands = plan[3 : 3 + steps], plan[3 + steps : 3 + 2 * steps]
    rest = plan[3 + 2 * steps :]
    return depth, codes, operands, rest[:planes], rest[planes : 2 * planes + 1], rest[2 * planes + 1 :]


@jit
def project_rows(plan: Any, constants: Any, parts: Any, X: Any, axes: Any, offset: Any, out: Any) -> Any:
    """Project rows onto axes, k(x, Z) P - offset.

    Parameters
    ----------
    plan : ndarray of int64
        All that is whole numbers, in one array: each array of a call takes a twentieth of a microsecond. It is, in
        this order, the stack's depth, the number s of steps, the number p of planes; codes and operands of the program,
        s each, see `run_program`; what each plane holds, p; where each plane's part begins and ends, p + 1; and the
        columns of the rows that belong to the parts, c.
    constants : ndarray of shape (s, 2)
        The program's numbers.
    parts : ndarray of shape (c, m)
        The targets, transposed.
    X : ndarray of shape (n, d)
    axes : ndarray of shape (q, m)
        P, transposed: so its rows are long, where P's have few numbers.
    offset : ndarray of shape (q,)
    out : ndarray of shape (n, q)
        Takes the projections.

    Returns
    -------
    bool
        Whether all are finite.
    """
    depth, codes, operands, bases, bounds, columns = _unpacked(plan)
    q, m = axes.shape
    values = np.empty((1, m))
    others = np.empty((max(bases.size - 1, 1), 1, m))
    nothing = np.empty((0, max(m, 1)))
    finite = True
    for i in range(len(X)):
        _fill_planes(bases, bounds, columns, parts, X[i], values, others)
        run_program(codes, operands, constants, depth, others, nothing, nothing, values, 0, 0, 1, m)
        kernel_row = values[0]
        for a in range(q):
            coordinate, axis = 0.0, axes[a]
            for j in range(m):
                coordinate += axis[j] * kernel_row[j]
            coordinate -= offset[a]
            out[i, a] = coordinate
            finite = finite and abs(coordinate) <= _LARGEST
    return finite


@jit
def measure_rows(plan: Any, constants: Any, parts: Any, X: Any, inverse: Any, out: Any) -> Any:
    """Measure squared distances of rows to the span of the targets, k(x, x) - |L^-1 k(x, Z)|^2.

    Parameters
    ----------
    plan, constants, parts, X
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
    depth, codes, operands, bases, bounds, columns = _unpacked(plan)
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
        finite = finite and abs(distance) <= _LARGEST
    return finite


_TILE = 256

# Below this share of |x|^2 + |y|^2 a squared distance from inner products has lost too many digits. Rounding
# leaves an error of a few 1e-16 of that sum, so what is kept is right to about 1e-13.
_CANCELLED = 1e-2


@jit
def direct_distances(X: Any, Yt: Any, squared: Any, target: Any, row: Any, column: Any) -> None:
    """Write squared or absolute (L1) distances, each a sum over the features.

    Parameters
    ----------
    X : ndarray of shape (rows, d)
        Left rows.
    Yt : ndarray of shape (d, columns)
        Right rows, transposed, so that the inner loop runs along memory.
    squared : bool
        Sum (x - y)^2, else abs(x - y).
    target : ndarray of shape (n, m)
        Takes the block.
    row, column : int
        Where the block starts.
    """
    rows, d = X.shape
    columns = Yt.shape[1]
    for i in range(rows):
        for start in range(0, columns, _TILE):
            width = min(_TILE, columns - start)
            sums = target[row + i, column + start : column + start + width]
            for j in range(width):
                sums[j] = 0.0
            for k in range(d):
                value = X[i, k]
                others = Yt[k, start : start + width]
                if squared:
                    for j in range(width):
                        sums[j] += (value - others[j]) * (value - others[j])
                else:
                    for j in range(width):
                        sums[j] += abs(value - others[j])


@jit
def finish_squared_distances(X: Any, Y: Any, xx: Any, yy: Any, target: Any, row: Any, column: Any) -> None:
    """Turn inner products of centred rows into squared distances, right to nearly the last digit.

    Parameters
    ----------
    X, Y : ndarray of shape (rows, d), (columns, d)
        The rows themselves, not centred.
    xx, yy : ndarray of shape (rows,), (columns,)
        Squared norms of the centred rows.
    target : ndarray of shape (n, m)
        Its block holds the inner products of the centred rows and takes the distances.
    row, column : int
        Where the block starts.

    Notes
    -----
    (x - y)^2 = x^2 + y^2 - 2 x y cancels where x and y are close compared with their distance to the centre.
    Those entries are summed anew from the differences: O(d) each, and rare unless the rows form clusters.
    The test is written so that infinities and NaN, from overflow, fail it.
    """
    rows, d = X.shape
    columns = Y.shape[0]
    for i in range(rows):
        own = xx[i]
        for start in range(0, columns, _TILE):
            width = min(_TILE, columns - start)
            block = target[row + i, column + start : column + start + width]
            norms = yy[start : start + width]
            kept = 0
            for j in range(width):
                total = own + norms[j]
                distance = total - 2.0 * block[j]
                block[j] = distance
                kept += 1 if distance > _CANCELLED * total else 0
            if kept == width:
                continue
            for j in range(width):
                if not block[j] > _CANCELLED * (own + norms[j]):
                    distance = 0.0
                    for k in range(d):
                        difference = X[i, k] - Y[start + j, k]
                        distance += difference * difference
                    block[j] = distance


@jit
def mirror_lower(square: Any, row: Any, column: Any, rows: Any, columns: Any) -> None:
    """Copy what a block holds below the diagonal onto its mirror image.

    Parameters
    ----------
    square : ndarray of shape (n, n)
        Changed in place.
    row, column, rows, columns : int
        Where the block starts, and its extent.

    Notes
    -----
    Tiles of 8 x 8 are one cache line wide on both sides, and writes run along memory.
    """
    for top in range(row, row + rows, 8):
        for left in range(column, column + columns, 8):
            for j in range(left, min(left + 8, column + columns)):
                for i in range(max(top, j + 1), min(top + 8, row + rows)):
                    square[j, i] = square[i, j]
