"""Slopes: how fast kernel values fall with the squared distances that they are made of."""

import math
from collections.abc import Callable

import numpy as np

from streamkpca.kernels import _loops as loops
from streamkpca.kernels.pairwise import Array, Base
from streamkpca.kernels.program import Program

# A value, and its derivative by each squared distance; None where it does not depend on it.
_Dual = tuple[Array, list[Array | None]]

_FUNCTIONS: dict[int, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    loops.EXP: (np.exp, lambda x, value: value),
    loops.LOG1P: (np.log1p, lambda x, value: 1.0 / (1.0 + x)),
    loops.SQRT: (np.sqrt, lambda x, value: 0.5 / np.maximum(value, math.sqrt(np.finfo(np.float64).tiny))),
    loops.TANH: (np.tanh, lambda x, value: 1.0 - value * value),
}


def has_gradients(program: Program) -> bool:
    """Say whether a kernel is a smooth function of squared distances alone.

    Parameters
    ----------
    program : Program

    Returns
    -------
    bool
    """
    return not program.factors and all(plane.base is Base.SQUARED for plane in program.planes)


def values_and_gradients(program: Program, X: Array, Y: Array) -> tuple[Array, list[Array]]:
    """Evaluate a kernel and its derivatives by the squared distances over its sets of columns, in their units.

    Parameters
    ----------
    program : Program
        For which `has_gradients` holds.
    X : ndarray of shape (n, d)
    Y : ndarray of shape (m, d)

    Returns
    -------
    values : ndarray of shape (n, m)
    slopes : list of ndarray of shape (n, m)
        One for each plane of the program. Where a kernel has a cusp at distance 0, as Matern of smoothness 1/2 has, the
        slope there is large but finite.

    Notes
    -----
    Forward differentiation: the program runs on values that carry their derivatives along. O(n m) for each step and
    plane.
    """
    stack: list[_Dual] = []
    n_planes = len(program.planes)
    distances = [_squared_distances(plane.view.of(X), plane.view.of(Y)) for plane in program.planes]
    with np.errstate(all="ignore"):
        for code, operand, (a, b) in zip(program.codes, program.operands, program.constants, strict=True):
            if code == loops.PLANE:
                slopes: list[Array | None] = [None] * n_planes
                slopes[operand] = np.ones_like(distances[operand])
                stack.append((distances[operand], slopes))
            elif code == loops.COPY:
                stack.append(stack[-1])
            elif code == loops.SWAP:
                stack[-1], stack[-2] = stack[-2], stack[-1]
            elif code in (loops.ADD, loops.MULTIPLY):
                second, first = stack.pop(), stack.pop()
                stack.append(_sum(first, second) if code == loops.ADD else _product(first, second))
            else:
                value, slopes = stack.pop()
                result, slope = _applied(int(code), int(operand), a, b, value)
                stack.append((result, [None if part is None else slope * part for part in slopes]))
    value, found = stack.pop()
    return value, [np.zeros_like(value) if slope is None else np.nan_to_num(slope) for slope in found]


def _applied(code: int, operand: int, a: float, b: float, value: Array) -> tuple[Array, Array]:
    """Apply a step to a value; return the result and its derivative by the value."""
    if code == loops.AFFINE:
        return a * value + b, np.full_like(value, a)
    if code == loops.POWER:
        return value ** float(operand), operand * value ** float(operand - 1)
    if code == loops.MINIMUM:
        return np.minimum(value, a), (value < a).astype(np.float64)
    function, slope = _FUNCTIONS[code]
    result = function(value)
    return result, slope(value, result)


def _sum(first: _Dual, second: _Dual) -> _Dual:
    return first[0] + second[0], [_added(*slopes) for slopes in zip(first[1], second[1], strict=True)]


def _product(first: _Dual, second: _Dual) -> _Dual:
    left = [None if slope is None else slope * second[0] for slope in first[1]]
    right = [None if slope is None else slope * first[0] for slope in second[1]]
    return first[0] * second[0], [_added(*slopes) for slopes in zip(left, right, strict=True)]


def _added(first: Array | None, second: Array | None) -> Array | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _squared_distances(X: Array, Y: Array) -> Array:
    centre = Y.mean(axis=0)
    X, Y = X - centre, Y - centre
    squares = np.einsum("ij,ij->i", X, X)[:, None] + np.einsum("ij,ij->i", Y, Y) - 2.0 * (X @ Y.T)
    distances: Array = np.maximum(squares, 0.0)
    return distances
