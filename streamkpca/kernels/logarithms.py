"""Logarithms of kernel values, which keep their digits where the values themselves are too small for a float."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.kernels.program import Arithmetic, Program, Value

# Its square is finite.
LARGEST = 1e153


def log_matrix(program: Program, bases: Array) -> Array:
    """Evaluate log k (n, m) of a stationary kernel from its base matrices (b, n, m); -inf where it overflows."""
    with np.errstate(all="ignore"):
        values = log_values(program, list(bases), Arithmetic[Array]())
    return np.where(np.isfinite(values), values, -np.inf)


def log_values(
    program: Program, bases: Sequence[Value], arithmetic: Arithmetic[Value], *, most: float = LARGEST
) -> Value:
    """Run the steps of a stationary kernel so that they leave log k; the square of `most` must be finite."""
    steps = _LogArithmetic(arithmetic, most)
    return steps.log(program.evaluate([_Number(base, is_log=False) for base in bases], steps))


@dataclass(frozen=True)
class _Number(Generic[Value]):
    """A number, or the logarithm of a positive one."""

    value: Value
    is_log: bool


class _LogArithmetic(Arithmetic[_Number[Value]]):
    """Steps on numbers that turn into logarithms at the first exponential or power.

    Stationary kernels consist of such functions of distances and their sums and products, all of them positive.
    """

    def __init__(self, plain: Arithmetic[Value], most: float) -> None:
        self._plain = plain
        self._most = most

    def log(self, x: _Number[Value]) -> Value:
        """Return the logarithm of a positive number."""
        return x.value if x.is_log else self._plain.apply("log", x.value)

    def affine(self, x: _Number[Value], a: float, b: float) -> _Number[Value]:
        if x.is_log and a > 0.0 and b == 0.0:
            return _Number(self._plain.affine(x.value, 1.0, float(np.log(a))), is_log=True)
        return _Number(self._plain.affine(self._number(x), a, b), is_log=False)

    def minimum(self, x: _Number[Value], most: float) -> _Number[Value]:
        # The limit keeps infinity times zero out of products, and would stop the logarithms of Matern at -1,000. Here
        # it only has to keep squares finite.
        return _Number(self._plain.minimum(self._number(x), self._most), is_log=False)

    def add(self, x: _Number[Value], y: _Number[Value]) -> _Number[Value]:
        if x.is_log or y.is_log:
            return _Number(self._plain.add_logs(self.log(x), self.log(y)), is_log=True)
        return _Number(self._plain.add(x.value, y.value), is_log=False)

    def multiply(self, x: _Number[Value], y: _Number[Value]) -> _Number[Value]:
        if x.is_log or y.is_log:
            return _Number(self._plain.add(self.log(x), self.log(y)), is_log=True)
        return _Number(self._plain.multiply(x.value, y.value), is_log=False)

    def power(self, x: _Number[Value], exponent: int) -> _Number[Value]:
        return _Number(self._plain.affine(self.log(x), float(exponent), 0.0), is_log=True)

    def apply(self, function: str, x: _Number[Value]) -> _Number[Value]:
        if function == "exp":
            return _Number(self._number(x), is_log=True)
        return _Number(self._plain.apply(function, self._number(x)), is_log=False)

    def _number(self, x: _Number[Value]) -> Value:
        return self._plain.apply("exp", x.value) if x.is_log else x.value
