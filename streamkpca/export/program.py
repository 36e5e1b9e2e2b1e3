"""How much of what rounding does to kernel values arrives in the answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from streamkpca.export.model import Formula
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.features import FeatureView
from streamkpca.kernels.pairwise import Base, PairwiseMatrix, unit_rows
from streamkpca.kernels.program import Program

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


Array = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

# At most three times as many rows are answered to measure rounding.
_ROWS = 48
_EPS = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Rounding:
    """What rounding does to the answers, measured in single precision.

    Parameters
    ----------
    projection : float
        Largest error of a projection, relative to the root of k(x, x), or of its mean over the atoms if that is larger.
    error : float
        Largest error of a reconstruction error, relative to k(x, x).
    n_rows : int
        Number of rows that both were measured on.

    Notes
    -----
    NaN where the model's numbers are beyond single precision.
    """

    projection: float
    error: float
    n_rows: int

    def in_double(self) -> "Rounding":
        """Return what to expect in double precision: the same number of roundings, each of them smaller."""
        ratio = float(np.finfo(np.float64).eps) / _EPS
        return Rounding(self.projection * ratio, self.error * ratio, self.n_rows)


def measure_rounding(formula: Formula) -> Rounding:
    """Answer some rows in single precision and compare.

    Parameters
    ----------
    formula : Formula

    Returns
    -------
    Rounding

    Notes
    -----
    O(m (d + m)) a row. The rows are points halfway between two atoms, a quarter beyond one, and atoms with columns
    of other atoms: atoms themselves are explained too easily. In 36 fits with twelve kernels this was between a half
    and three times of what fresh rows showed, and what double precision lost, in units of its own rounding, was the
    same to a factor of 2: atoms that nearly depend on each other amplify rounding alike in any precision.
    """
    with np.errstate(all="ignore"):
        singles = _probes(formula.rows).astype(np.float32)
        rows = singles.astype(np.float64)
        own = np.abs(formula.kernel.program.diagonal(rows))
        level = float(np.abs(formula.kernel.program.diagonal(formula.rows)).mean())
        values = _kernel_values(formula, rows)
        projected = values[:, formula.axis_rows] @ formula.projection.astype(np.float32)
        projected -= formula.offset.astype(np.float32)
        coordinates = solve_triangular(
            formula.factor.astype(np.float32), values[:, : formula.n_span].T, lower=True, check_finite=False
        )
        errors = formula.kernel.program.diagonal(rows).astype(np.float32)
        for coordinate in coordinates:
            errors = errors - coordinate * coordinate
        beside = np.abs(projected - formula.transform(rows)).max(axis=1) / np.sqrt(np.maximum(own, level))
        off = np.abs(np.maximum(errors, 0.0) - formula.reconstruction_error(rows)) / np.where(own > 0.0, own, 1.0)
        return Rounding(float(beside.max()), float(off.max()), len(rows))


def single_centre(rows: Array) -> Array:
    """Choose what single precision subtracts from rows before it takes their distances.

    Parameters
    ----------
    rows : ndarray of shape (m, d)

    Returns
    -------
    ndarray of shape (d,)
        A single precision number for each column: the mean where it exceeds the spread, 0 where rounding an atom
        loses no more than rounding its difference to the mean does.
    """
    mean = rows.mean(axis=0)
    centre: Array = np.where(np.abs(mean) > np.abs(rows - mean).max(axis=0), mean, 0.0)
    return centre.astype(np.float32).astype(np.float64)


def single_units(units: Array) -> Array:
    """Round units to single precision, which rows and atoms are then both divided by.

    Parameters
    ----------
    units : ndarray of shape (c,)

    Returns
    -------
    ndarray of shape (c,)
        0 or infinite where a unit is beyond single precision.
    """
    with np.errstate(all="ignore"):
        return units.astype(np.float32).astype(np.float64)


def _probes(rows: Array) -> Array:
    atoms = rows[np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(np.intp)]
    parts = []
    for shift in range(1, _ROWS // len(atoms) + 1):
        others = np.roll(atoms, shift, axis=0)
        mixed = np.stack([np.roll(column, shift * j) for j, column in enumerate(atoms.T)], axis=1)
        parts += [0.5 * atoms + 0.5 * others, 1.25 * atoms - 0.25 * others, mixed]
    return np.concatenate(parts)


def _kernel_values(formula: Formula, rows: Array) -> Singles:
    planes = [_plane(plane, rows, formula.rows) for plane in formula.kernel.program.planes]
    return evaluate(formula.kernel.program, planes, _SingleArithmetic())


def _plane(plane: PairwiseMatrix, rows: Array, atoms: Array) -> Singles:
    columns = FeatureView(plane.view.columns)
    rows, atoms = columns.of(rows), columns.of(atoms)
    if plane.base in (Base.SQUARED, Base.ABSOLUTE):
        centre = single_centre(atoms)
        rows, atoms = rows - centre, atoms - centre
    if plane.view.divisors is not None:
        units = single_units(plane.view.divisors)
        rows, atoms = (rows / units).astype(np.float32).astype(np.float64), atoms / units
    if plane.base is Base.COSINE:
        rows, atoms = unit_rows(rows), unit_rows(atoms)
    left, right = rows.astype(np.float32), atoms.astype(np.float32)
    if plane.base in (Base.INNER, Base.COSINE):
        return left @ right.T
    # Row by row: all differences at once would be d times the size of the result.
    power = np.square if plane.base is Base.SQUARED else np.abs
    return np.array([power(row - right).sum(axis=1) for row in left], dtype=np.float32)


class _SingleArithmetic:
    """Steps on arrays of single precision."""

    def affine(self, x: Singles, a: float, b: float) -> Singles:
        return np.float32(a) * x + np.float32(b)

    def minimum(self, x: Singles, most: float) -> Singles:
        return np.minimum(x, np.float32(most))

    def add(self, x: Singles, y: Singles) -> Singles:
        return x + y

    def multiply(self, x: Singles, y: Singles) -> Singles:
        return x * y

    def reciprocal(self, x: Singles) -> Singles:
        return np.float32(1.0) / x

    def apply(self, function: str, x: Singles) -> Singles:
        result: Singles = {"exp": np.exp, "log1p": np.log1p, "sqrt": np.sqrt, "tanh": np.tanh}[function](x)
        return result
