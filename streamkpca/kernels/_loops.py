"""Compiled loops of kernels: programs over blocks and single rows, and distances.

Notation: n left rows and m right rows of d features. A block is the part of an (n, m) result that starts at
``(row, column)`` and extends over ``rows`` and ``columns``. A base matrix holds what a program starts from, such as
squared distances.
"""

import math
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.jit import jit

# Numbers of a program's stack, and of a row of distances, that are worked on at once.
TILE = 1024
_DISTANCE_TILE = 256

# The steps of a program, beginning with LOAD, which pushes a base matrix.
LOAD, AFFINE, MINIMUM, POWER, ADD, MULTIPLY, EXP, LOG1P, SQRT, TANH = range(10)

# The kinds of base matrices.
INNER, COSINE, SQUARED, ABSOLUTE = range(4)

_LARGEST = float(np.finfo(np.float64).max)
_LOG2_E = 1.4426950408889634
# ln 2 in two parts (Cody and Waite 1980): the first has 21 trailing zero bits, so whole multiples are exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# Added to a whole number, it leaves that number in the low bits of the sum.
_SHIFTER = 6755399441055744.0
# Coefficients of the Taylor polynomial of exp, from degree 13 down.
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
_EXP_LEAST = -708.3964185322641
_EXP_MOST = 709.782712893384

# Below this share of |x|^2 + |y|^2 a squared distance from inner products has lost too many digits. Rounding
# leaves an error of a few 1e-16 of that sum, so what is kept is right to about 1e-13.
_CANCELLED = 1e-2


@jit
def exponentiate(stack: Array, bits: Positions, top: int, scratch: int, size: int) -> None:
    """Replace the first `size` values x of row `top` of a stack by exp(x), in loops that become vector instructions.

    Notation: stack (h, w); bits (h, w), the same memory as int64. Rows `scratch` and ``scratch + 1`` are overwritten.

    exp(x) = 2^k exp(r) with k the whole number nearest to x / ln 2, right to about one unit in the last place; math.exp
    takes six times as long. NaN stays NaN; results below 2.2e-308 become 0. Values pass through memory, where
    reassociation cannot merge the two parts of ln 2, and where no loop reads one type and writes another.
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
        p = 0.0
        for coefficient in _TAYLOR:
            p = p * r + coefficient
        p = 0.0 if x < _EXP_LEAST else p
        p = math.inf if x > _EXP_MOST else p
        stack[rest, j] = p
        k = k if x >= _EXP_LEAST else 0.0
        k = k if x <= _EXP_MOST else 0.0
        stack[whole, j] = k + _SHIFTER
    for j in range(size):
        bits[top, j] = bits[rest, j] + (bits[whole, j] << 52)


@jit
def vary(number: int) -> Any:
    """Return a number that is no constant: constants have types of their own, for which a loop is compiled again."""
    return np.int64(number)


@jit
def run_program(
    codes: Positions,
    operands: Positions,
    constants: Array,
    depth: int,
    others: Array,
    target: Array,
    extent: tuple[int, int, int, int],
) -> None:
    """Evaluate a kernel program over a block, one tile of a row at a time.

    Notation:

    * codes, operands (s,): the steps, and the base matrix or the whole number of each
    * constants (s, 2): the numbers of each step
    * depth: largest number of values on the stack
    * others (b - 1, >= rows, >= columns): base matrices 1, 2, ... of the block
    * target (n, m): its block holds base matrix 0 and takes the results
    * extent: first row, first column, rows and columns of the block
    """
    row, column, rows, columns = extent
    stack = np.empty((depth + 2, TILE))
    bits = stack.view(np.int64)
    height = max(1, TILE // max(1, columns))
    for i in range(0, rows, height):
        count = min(height, rows - i)
        for start in range(0, columns, TILE):
            width = min(TILE, columns - start)
            size = count * width
            top = vary(-1)
            for step in range(codes.size):
                code, operand = codes[step], operands[step]
                a, b = constants[step, 0], constants[step, 1]
                if code == LOAD:
                    top += 1
                    if operand == 0:
                        _load(stack, top, target, row + i, column + start, count, width)
                    else:
                        _load(stack, top, others[operand - 1], i, start, count, width)
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
                elif code == POWER:
                    _raise_to(stack, top, depth, operand, size)
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
            _store(stack, target, row + i, column + start, count, width)


@jit
def add_signs(X: Array, Y: Array, weights: Array, sums: Array) -> None:
    """Add sum_n w_ni sign(y_ik - x_nk) to `sums` (m, d), for X (n, d), Y (m, d) and weights (n, m)."""
    for i in range(Y.shape[0]):
        for n in range(X.shape[0]):
            weight = weights[n, i]
            for k in range(Y.shape[1]):
                y, x = Y[i, k], X[n, k]
                sums[i, k] += weight if y > x else (-weight if y < x else 0.0)


@jit
def _load(stack: Array, top: int, source: Array, row: int, column: int, count: int, width: int) -> None:
    """Copy a tile of `count` rows of a matrix to one row of the stack."""
    for t in range(count):
        # Slices cost a reference count each, but an index that is a sum of offsets would be tested for being negative
        # at every entry.
        block = source[row + t, column : column + width]
        values = stack[top, t * width : (t + 1) * width]
        for j in range(width):
            values[j] = block[j]


@jit
def _store(stack: Array, target: Array, row: int, column: int, count: int, width: int) -> None:
    """Copy the bottom row of the stack to a tile of `count` rows of a matrix."""
    for t in range(count):
        block = target[row + t, column : column + width]
        values = stack[0, t * width : (t + 1) * width]
        for j in range(width):
            block[j] = values[j]


@jit
def _raise_to(stack: Array, top: int, scratch: int, exponent: int, size: int) -> None:
    """Raise row `top` of the stack to a whole power other than zero, by squaring."""
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
def _scale_to_one(kind: int, row: Array, start: int, stop: int) -> tuple[float, float]:
    """Return the factor and the divisor that scale a row to length 1 without overflow for cosines; else 1 and 1."""
    if kind != COSINE:
        return 1.0, 1.0
    largest = 0.0
    for k in range(start, stop):
        largest = max(largest, abs(row[k]))
    if largest == 0.0:
        return 0.0, 1.0
    square = 0.0
    for k in range(start, stop):
        square += (row[k] / largest) ** 2
    return 1.0 / math.sqrt(square), largest


@jit
def _take_row(x: Array, columns: Positions, row: Array) -> None:
    """Copy columns of a row to another one (c,)."""
    for k in range(columns.size):
        row[k] = x[columns[k]]


@jit
def _add_squares(parts: Array, row: Array, start: int, stop: int, sums: Array) -> int:
    """Add squared differences of a row to sums (m,), four columns at a time; return the first column left."""
    whole = stop - (stop - start) % 4
    for k in range(start, whole, 4):
        first, second, third, fourth = parts[k], parts[k + 1], parts[k + 2], parts[k + 3]
        a, b, c, d = row[k], row[k + 1], row[k + 2], row[k + 3]
        for j in range(len(sums)):
            sums[j] += (a - first[j]) ** 2 + (b - second[j]) ** 2 + (c - third[j]) ** 2 + (d - fourth[j]) ** 2
    return whole


@jit
def _fill_base_matrices(kinds: Positions, bounds: Positions, parts: Array, row: Array, i: int, bases: Array) -> None:
    """Write row `i` of the base matrices (b, n, m), between a row and the targets."""
    for p in range(kinds.size):
        kind, first, stop, sums = kinds[p], bounds[p], bounds[p + 1], bases[p, i]
        for j in range(len(sums)):
            sums[j] = 0.0
        scale, divisor = _scale_to_one(kind, row, first, stop)
        if kind == SQUARED:
            first = _add_squares(parts, row, first, stop, sums)
        for k in range(first, stop):
            value, part = row[k] / divisor * scale, parts[k]
            if kind == SQUARED:
                for j in range(len(sums)):
                    sums[j] += (value - part[j]) * (value - part[j])
            elif kind == ABSOLUTE:
                for j in range(len(sums)):
                    sums[j] += abs(value - part[j])
            else:
                for j in range(len(sums)):
                    sums[j] += value * part[j]


@jit
def _fill_own_values(kinds: Positions, bounds: Positions, row: Array, bases: Array) -> None:
    """Write the values (b, 1, 1) of all base matrices between a row and itself."""
    for p in range(kinds.size):
        kind, start, stop = kinds[p], bounds[p], bounds[p + 1]
        value = 0.0
        if kind == INNER:
            for k in range(start, stop):
                value += row[k] * row[k]
        elif kind == COSINE:
            value = 1.0 if _scale_to_one(kind, row, start, stop)[0] > 0.0 else 0.0
        bases[p, 0, 0] = value


@jit
def _unpack(plan: Positions) -> tuple[int, Positions, Positions, Positions, Positions, Positions]:
    """Return depth, codes, operands, kinds, bounds and columns of a plan; see `project_rows`."""
    depth, s, b = plan[0], plan[1], plan[2]
    codes, operands, rest = plan[3 : 3 + s], plan[3 + s : 3 + 2 * s], plan[3 + 2 * s :]
    return depth, codes, operands, rest[:b], rest[b : 2 * b + 1], rest[2 * b + 1 :]


@jit
def fill_rows(plan: Positions, parts: Array, X: Array, out: Array) -> None:
    """Write the base matrices (b, n, m) of rows; the rest as in `project_rows`."""
    _, _, _, kinds, bounds, columns = _unpack(plan)
    row = np.empty(columns.size)
    for i in range(len(X)):
        _take_row(X[i], columns, row)
        _fill_base_matrices(kinds, bounds, parts, row, i, out)


@jit
def project_rows(
    plan: Positions, constants: Array, parts: Array, X: Array, axes: Array, offset: Array, out: Array
) -> bool:
    """Project rows onto axes, k(x, Z) P - offset; return whether all projections are finite.

    Notation:

    * plan: all whole numbers in one array, as each array of a call takes a twentieth of a microsecond: the depth of
      the stack, the numbers s of steps and b of base matrices; codes and operands, s each (see `run_program`); the
      kinds of the base matrices, b; the bounds of their parts, b + 1; and the rows' columns in the parts, c
    * constants (s, 2): the numbers of each step
    * parts (c, m): the targets Z, transposed
    * X (n, d): the rows
    * axes (q, m), offset (q,): P, transposed so that its rows are long, and what is subtracted
    * out (n, q): takes the projections
    """
    depth, codes, operands, kinds, bounds, columns = _unpack(plan)
    q, m = axes.shape
    row, bases, finite = np.empty(columns.size), np.empty((kinds.size, 1, m)), True
    for i in range(len(X)):
        _take_row(X[i], columns, row)
        _fill_base_matrices(kinds, bounds, parts, row, vary(0), bases)
        run_program(codes, operands, constants, depth, bases[1:], bases[0], (vary(0), vary(0), vary(1), m))
        kernel_row = bases[0, 0]
        for a in range(q):
            coordinate, axis = 0.0, axes[a]
            for j in range(m):
                coordinate += axis[j] * kernel_row[j]
            coordinate -= offset[a]
            out[i, a] = coordinate
            finite = finite and abs(coordinate) <= _LARGEST
    return finite


@jit
def _solve_four(factor: Array, first: Array, second: Array, third: Array, fourth: Array, lengths: Array) -> None:
    """Replace four rows (m,) of kernel values by coordinates L^-1 k, and write their squared lengths (4,)."""
    for t in range(4):
        lengths[t] = 0.0
    for j in range(len(factor)):
        before = factor[j]
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for k in range(j):
            a += before[k] * first[k]
            b += before[k] * second[k]
            c += before[k] * third[k]
            d += before[k] * fourth[k]
        first[j] = (first[j] - a) / before[j]
        second[j] = (second[j] - b) / before[j]
        third[j] = (third[j] - c) / before[j]
        fourth[j] = (fourth[j] - d) / before[j]
        lengths[0] += first[j] * first[j]
        lengths[1] += second[j] * second[j]
        lengths[2] += third[j] * third[j]
        lengths[3] += fourth[j] * fourth[j]


@jit
def explained_energies(factor: Array, values: Array, out: Array) -> None:
    """Write |L^-1 k|^2 of each row of kernel values; factor (m, m), values (n, m), out (n,)."""
    block, lengths = np.empty((4, len(factor))), np.empty(4)
    for i in range(0, len(values), 4):
        count = min(4, len(values) - i)
        for t in range(4):
            for j in range(len(factor)):
                block[t, j] = values[i + min(t, count - 1), j]
        _solve_four(factor, block[0], block[1], block[2], block[3], lengths)
        for t in range(count):
            out[i + t] = lengths[t]


@jit
def measure_rows(plan: Positions, constants: Array, parts: Array, X: Array, factor: Array, out: Array) -> bool:
    """Measure squared distances of rows to the span of the targets; return whether all are finite.

    A distance is k(x, x) less the explained energy |L^-1 k(x, Z)|^2, and never negative. No bit depends on rows beside.

    Notation: plan, constants, parts and X as in `project_rows`; L = factor (m, m); out (2, n), distances and energies.
    """
    depth, codes, operands, kinds, bounds, columns = _unpack(plan)
    m = len(factor)
    row, bases, own = np.empty(columns.size), np.empty((kinds.size, 4, m)), np.empty((kinds.size, 1, 1))
    values, energy, lengths = bases[0], np.empty(4), np.empty(4)
    # Distances of a row to itself are 0 for all rows, but inner products, the first kinds, are not.
    finite, varies = True, False
    for p in range(kinds.size):
        varies = varies or kinds[p] <= COSINE
    for i in range(0, len(X), 4):
        count = min(4, len(X) - i)
        for t in range(count):
            _take_row(X[i + t], columns, row)
            _fill_base_matrices(kinds, bounds, parts, row, t, bases)
            if varies or i + t == 0:
                _fill_own_values(kinds, bounds, row, own)
                extent = vary(0), vary(0), vary(1), vary(1)
                run_program(codes, operands, constants, depth, own[1:], own[0], extent)
            energy[t] = own[0, 0, 0]
        run_program(codes, operands, constants, depth, bases[1:], values, (vary(0), vary(0), count, m))
        for t in range(count, 4):
            values[t] = values[0]
        _solve_four(factor, values[0], values[1], values[2], values[3], lengths)
        for t in range(count):
            distance = energy[t] - lengths[t]
            # Written so that NaN stays NaN.
            out[0, i + t] = 0.0 if distance < 0.0 else distance
            out[1, i + t] = lengths[t]
            finite = finite and abs(distance) <= _LARGEST
    return finite


@jit
def compare_directly(kind: int, X: Array, Yt: Array, target: Array, row: int, column: int) -> None:
    """Write squared or absolute (L1) distances, each a sum over the features.

    Notation: kind, SQUARED or ABSOLUTE; X (rows, d); Yt (d, columns), transposed; target (n, m) takes the block.
    """
    rows, d = X.shape
    columns = Yt.shape[1]
    for i in range(rows):
        for start in range(0, columns, _DISTANCE_TILE):
            width = min(_DISTANCE_TILE, columns - start)
            sums = target[row + i, column + start : column + start + width]
            for j in range(width):
                sums[j] = 0.0
            for k in range(d):
                value = X[i, k]
                others = Yt[k, start : start + width]
                if kind == SQUARED:
                    for j in range(width):
                        sums[j] += (value - others[j]) * (value - others[j])
                else:
                    for j in range(width):
                        sums[j] += abs(value - others[j])


@jit
def finish_squared_distances(X: Array, Y: Array, xx: Array, yy: Array, target: Array, row: int, column: int) -> None:
    """Turn inner products of centred rows into squared distances, right to nearly the last digit.

    Notation: X (rows, d), Y (columns, d), not centred; xx (rows,), yy (columns,), squared norms of the centred rows;
    target (n, m), whose block holds their inner products and takes the distances.

    Where x^2 + y^2 - 2 x y cancels, or overflows, entries are summed again from the differences: O(d) each, and rare
    unless rows form clusters.
    """
    rows, d = X.shape
    columns = Y.shape[0]
    for i in range(rows):
        own = xx[i]
        for start in range(0, columns, _DISTANCE_TILE):
            width = min(_DISTANCE_TILE, columns - start)
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
                # Written so that infinities and NaN are summed again, too.
                if not block[j] > _CANCELLED * (own + norms[j]):
                    distance = 0.0
                    for k in range(d):
                        difference = X[i, k] - Y[start + j, k]
                        distance += difference * difference
                    block[j] = distance


@jit
def mirror_lower(square: Array, row: int, column: int, rows: int, columns: int) -> None:
    """Copy the entries of a block below the diagonal to their mirror image, by tiles that are a cache line wide."""
    for top in range(row, row + rows, 8):
        for left in range(column, column + columns, 8):
            for j in range(left, min(left + 8, column + columns)):
                for i in range(max(top, j + 1), min(top + 8, row + rows)):
                    square[j, i] = square[i, j]
