"""A kernel's program, step by step, in whatever numbers are: names in a graph, C expressions, arrays."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from streamkpca import kernel_loops as loops
from streamkpca.kernels.programs import Program

_FUNCTIONS = {loops.EXP: "exp", loops.LOG1P: "log1p", loops.SQRT: "sqrt", loops.TANH: "tanh"}

Value = TypeVar("Value")


class Arithmetic(Protocol[Value]):
    """What a step can do with values; each returns a new one."""

    def affine(self, x: Value, a: float, b: float) -> Value:
        """Make a x + b."""

    def minimum(self, x: Value, most: float) -> Value:
        """Make the smaller of x and a number; NaN stays NaN."""

    def add(self, x: Value, y: Value) -> Value:
        """Make x + y."""

    def multiply(self, x: Value, y: Value) -> Value:
        """Make x y."""

    def reciprocal(self, x: Value) -> Value:
        """Make 1 / x."""

    def apply(self, function: str, x: Value) -> Value:
        """Make exp, log1p, sqrt or tanh of x."""


def evaluate(program: Program, planes: Sequence[Value], arithmetic: Arithmetic[Value]) -> Value:
    """Go through the steps of a program.

    Parameters
    ----------
    program : Program
        Without row factors.
    planes : sequence of values
        What its steps start from, in the order of ``program.planes``.
    arithmetic : Arithmetic
        What does the steps.

    Returns
    -------
    value
        The kernel's.
    """
    stack: list[Value] = []
    for code, operand, (a, b) in zip(
        program.codes.tolist(), program.operands.tolist(), program.constants.tolist(), strict=True
    ):
        if code == loops.PLANE:
            stack.append(planes[operand])
        elif code == loops.COPY:
            stack.append(stack[-1])
        elif code == loops.SWAP:
            stack[-1], stack[-2] = stack[-2], stack[-1]
        elif code == loops.AFFINE:
            stack.append(arithmetic.affine(stack.pop(), a, b))
        elif code == loops.MINIMUM:
            stack.append(arithmetic.minimum(stack.pop(), a))
        elif code == loops.POWER:
            stack.append(_power(stack.pop(), operand, arithmetic))
        elif code in (loops.ADD, loops.MULTIPLY):
            y, x = stack.pop(), stack.pop()
            stack.append(arithmetic.add(x, y) if code == loops.ADD else arithmetic.multiply(x, y))
        else:
            stack.append(arithmetic.apply(_FUNCTIONS[code], stack.pop()))
    (value,) = stack
    return value


def _power(x: Value, exponent: int, arithmetic: Arithmetic[Value]) -> Value:
    """Raise to a whole power, not zero, by squaring, in the order of the compiled loop."""
    result, square, remaining = x, x, abs(exponent) - 1
    while remaining:
        if remaining & 1:
            result = arithmetic.multiply(result, square)
        remaining >>= 1
        if remaining:
            square = arithmetic.multiply(square, square)
    return arithmetic.reciprocal(result) if exponent < 0 else result
