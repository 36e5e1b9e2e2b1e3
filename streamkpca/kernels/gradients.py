"""Gradients: derivatives of kernel values by the squared distances that they are functions of."""

import math
from collections.abc import Callable

import numpy as np

from streamkpca.kernels.program import Arithmetic, Array, Base, Program

# A value and its derivative by each squared distance; None where it does not depend on it.
_Dual = tuple[Array, list[Array | None]]

# A function, and its derivative from the argument and the value.
_FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "exp": (np.exp, lambda x, value: value),
    "log1p": (np.log1p, lambda x, value: 1.0 / (1.0 + x)),
    "sqrt": (np.sqrt, lambda x, value: 0.5 / np.maximum(value, math.sqrt(np.finfo(np.float64).tiny))),
    "tanh": (np.tanh, lambda x, value: 1.0 - value * value),
}


def has_gradients(program: Program) -> bool:
    """Say whether a kernel is a smooth function of squared distances alone."""
    return not program.scalings and all(matrix.base is Base.SQUARED for matrix in program.base_matrices)


def values_and_gradients(program: Program, X: Array, Y: Array) -> tuple[Array, list[Array]]:
    """Evaluate a kernel with `has_gradients`, and its derivative by each base matrix, in the units of that.

    X (n, d) and Y (m, d) give arrays (n, m).

    Notes
    -----
    Forward differentiation: the program runs on values that carry their derivatives along. O(n m) for each step and
    base matrix. Where a kernel has a cusp at distance 0, as Matern of smoothness 1/2 has, the derivative there is large
    but finite.
    """
    distances = [_squared_distances(matrix.view.of(X), matrix.view.of(Y)) for matrix in program.base_matrices]
    bases: list[_Dual] = [
        (values, [np.ones_like(values) if other is values else None for other in distances]) for values in distances
    ]
    with np.errstate(all="ignore"):
        value, gradients = program.evaluate(bases, _DualArithmetic())
    return value, [np.zeros_like(value) if part is None else np.nan_to_num(part) for part in gradients]


class _DualArithmetic(Arithmetic[_Dual]):
    """Steps on values with their derivatives."""

    def affine(self, x: _Dual, a: float, b: float) -> _Dual:
        return a * x[0] + b, _scaled(x[1], a)

    def minimum(self, x: _Dual, most: float) -> _Dual:
        return np.minimum(x[0], most), _scaled(x[1], (x[0] < most).astype(np.float64))

    def add(self, x: _Dual, y: _Dual) -> _Dual:
        return x[0] + y[0], [_sum(*parts) for parts in zip(x[1], y[1], strict=True)]

    def multiply(self, x: _Dual, y: _Dual) -> _Dual:
        parts = zip(_scaled(x[1], y[0]), _scaled(y[1], x[0]), strict=True)
        return x[0] * y[0], [_sum(left, right) for left, right in parts]

    def power(self, x: _Dual, exponent: int) -> _Dual:
        return x[0] ** float(exponent), _scaled(x[1], exponent * x[0] ** float(exponent - 1))

    def apply(self, function: str, x: _Dual) -> _Dual:
        evaluate, derivative = _FUNCTIONS[function]
        value = evaluate(x[0])
        return value, _scaled(x[1], derivative(x[0], value))


def _scaled(gradients: list[Array | None], factor: Array | float) -> list[Array | None]:
    return [None if part is None else factor * part for part in gradients]


def _sum(first: Array | None, second: Array | None) -> Array | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _squared_distances(X: Array, Y: Array) -> Array:
    centre = Y.mean(axis=0)
    X, Y = X - centre, Y - centre
    squares = np.einsum("ij,ij->i", X, X)[:, None] + np.einsum("ij,ij->i", Y, Y) - 2.0 * (X @ Y.T)
    distances: Array = np.maximum(squares, 0.0)
    return distances
