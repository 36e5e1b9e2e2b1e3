"""Kernels lowered to programs: short lists of steps on flat arrays, which compiled loops, exports and gradients run.

A `Program` starts from base matrices over pairs of rows, mostly from BLAS, and evaluates blocks; a `PreparedKernel`
evaluates single rows against fixed ones; `Program.evaluate` runs the steps in any `Arithmetic`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.units import Features
from streamkpca.rows.parts import parts_of

PairFunction = Callable[[Array, Array], Any]

# Up to this many features, or rows on the left, sums over the features take less time than setting up a matrix product.
_FEW_FEATURES = 8
_FEW_ROWS = 4


class Base(Enum):
    """Kinds of base matrices, with their codes in compiled loops, which cannot call the function of a custom one."""

    INNER = loops.INNER
    COSINE = loops.COSINE
    SQUARED = loops.SQUARED
    ABSOLUTE = loops.ABSOLUTE
    CUSTOM = -1


@dataclass(frozen=True)
class PairwiseMatrix:
    """A base matrix over pairs of rows, before any step is applied; `function` is the caller's, for ``CUSTOM``."""

    base: Base
    features: Features
    function: PairFunction | None = None

    def centre(self, Y: Array, *, n_rows: int) -> Array | None:
        """Choose the point (c,) that distances are measured from, by the right rows Y (m, d) alone.

        So the answer for a left row does not depend on the rows beside it. None where distances are summed directly.
        """
        few = self.features.width(Y.shape[1]) <= _FEW_FEATURES or n_rows <= _FEW_ROWS
        if self.base is not Base.SQUARED or few or not len(Y):
            return None
        with np.errstate(all="ignore"):
            mean: Array = self.features.of(Y).mean(axis=0)
        return mean

    def side(self, X: Array, centre: Array | None) -> "Side":
        """Prepare rows (n, d) for either side of the matrix."""
        rows = self.features.of(X)
        if self.base is Base.COSINE:
            return Side(rows, unit_rows(rows), None)
        if centre is None:
            return Side(rows, rows, None)
        with np.errstate(all="ignore"):
            centred = rows - centre
            return Side(rows, centred, np.einsum("ij,ij->i", centred, centred))

    def fill(self, left: "Side", right: "Side", target: Array, row: int, column: int) -> None:
        """Write the block of `target` (n, m) that belongs to two sides and starts at (row, column)."""
        n, m = len(left.rows), len(right.rows)
        block = target[row : row + n, column : column + m]
        if self.base is Base.CUSTOM:
            assert self.function is not None
            block[:] = _check_values(self.function(left.rows, right.rows), (n, m))
        elif self.base in (Base.INNER, Base.COSINE) or right.norms is not None:
            with np.errstate(all="ignore"):
                np.matmul(left.used, right.used.T, out=block)
            if left.norms is not None and right.norms is not None:
                loops.finish_squared_distances(left.rows, right.rows, left.norms, right.norms, target, row, column)
        else:
            loops.compare_directly(self.base.value, left.rows, np.ascontiguousarray(right.rows.T), target, row, column)

    def fill_diagonal(self, X: Array, target: Array) -> None:
        """Write the values of rows (n, d) with themselves to `target` (n,)."""
        rows = self.features.of(X)
        if self.base is Base.INNER:
            with np.errstate(all="ignore"):
                np.einsum("ij,ij->i", rows, rows, out=target)
        elif self.base is Base.COSINE:
            target[:] = rows.any(axis=1)
        elif self.base is not Base.CUSTOM:
            target[:] = 0.0
        else:
            assert self.function is not None
            for i in range(len(rows)):
                row = rows[i : i + 1]
                target[i] = _check_values(self.function(row, row), (1, 1))[0, 0]


@dataclass(frozen=True)
class Side:
    """Rows (n, c) in units; the same as a product uses them, centred or of length 1; and their squared norms."""

    rows: Array
    used: Array
    norms: Array | None

    def first(self, count: int) -> "Side":
        """Return the first rows alone."""
        norms = None if self.norms is None else self.norms[:count]
        return Side(self.rows[:count], self.used[:count], norms)


def _check_values(values: Any, shape: tuple[int, ...]) -> Array:
    """Check that a caller's function returned real, finite numbers of the given shape."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(
            f"Custom: the function must return an array of shape {shape} for these rows "
            f"but returned shape {array.shape}"
        )
    if array.dtype.kind not in "fiub":
        raise ValueError(f"Custom: the function must return real numbers but returned dtype {array.dtype}")
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise ValueError("Custom: the function returned NaN or infinity; it must be finite for every row")
    return array


def unit_rows(rows: Array) -> Array:
    """Scale rows (n, d) to length 1 without overflow; rows of zeros stay."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest == 0.0, 1.0, largest)
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    unit: Array = scaled / np.where(lengths == 0.0, 1.0, lengths)
    return unit


# Rows of a block of a matrix: 4 MB. With 1,024 rows a Gram matrix took a tenth longer on one core. With 256,
# a 512 x 256 matrix took a sixth longer on two, as BLAS starts its threads more often.
_ROWS = 512
# Columns of a block: a multiple of its rows, which keeps the blocks of a triangle on one grid.
_COLUMNS = 1024
# Numbers (16 MiB) that the rows of a block's columns, or the other base matrices in it, take at most.
_MOST_NUMBERS = 2**21

_FUNCTIONS = {loops.EXP: "exp", loops.LOG1P: "log1p", loops.SQRT: "sqrt", loops.TANH: "tanh"}

Value = TypeVar("Value")


class ProgramBuilder:
    """A program being written: kernels append their steps; equal base matrices and row scalings are shared."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, int, float, float]] = []
        self._matrices: dict[PairwiseMatrix, int] = {}
        self._height = 0
        self._depth = 0

    def load(self, base: Base, features: Features, function: PairFunction | None = None) -> None:
        """Push a base matrix; a custom one needs the caller's function of pairs."""
        matrix = PairwiseMatrix(base, features, function)
        self._steps.append((loops.LOAD, self._matrices.setdefault(matrix, len(self._matrices)), 0.0, 0.0))
        self._height += 1
        self._depth = max(self._depth, self._height)

    def affine(self, a: float, b: float) -> None:
        """Replace the top x by a x + b."""
        self._steps.append((loops.AFFINE, 0, a, b))

    def minimum(self, most: float) -> None:
        """Replace the top x by min(x, most)."""
        self._steps.append((loops.MINIMUM, 0, most, 0.0))

    def power(self, exponent: int) -> None:
        """Raise the top to a whole power other than zero."""
        self._steps.append((loops.POWER, exponent, 0.0, 0.0))

    def apply(self, code: int) -> None:
        """Apply ``EXP``, ``LOG1P``, ``SQRT``, ``TANH`` to the top, ``ADD``, ``MULTIPLY`` to the top two."""
        self._steps.append((code, 0, 0.0, 0.0))
        self._height -= code in (loops.ADD, loops.MULTIPLY)

    def finish(self) -> "Program":
        """Turn the steps written so far into a program."""
        return Program(self._steps, tuple(self._matrices), self._depth)


class Arithmetic(Generic[Value]):
    """The operations of a program's steps on values of some type, here arrays; each returns a new value."""

    def affine(self, x: Any, a: float, b: float) -> Any:
        """Return a x + b."""
        return a * x + b

    def minimum(self, x: Any, most: float) -> Any:
        """Return the smaller of x and a number; NaN stays NaN."""
        return np.minimum(x, most)

    def add(self, x: Any, y: Any) -> Any:
        """Return x + y."""
        return x + y

    def multiply(self, x: Any, y: Any) -> Any:
        """Return x y."""
        return x * y

    def add_logs(self, x: Any, y: Any) -> Any:
        """Return log(exp(x) + exp(y))."""
        return np.logaddexp(x, y)

    def apply(self, function: str, x: Any) -> Any:
        """Return exp, log, log1p, sqrt, tanh or reciprocal of x."""
        return getattr(np, function)(x)

    def power(self, x: Value, exponent: int) -> Value:
        """Raise x to a whole power other than zero, by squaring, in the order of the compiled loop."""
        result, square, remaining = x, x, abs(exponent) - 1
        while remaining:
            if remaining & 1:
                result = self.multiply(result, square)
            remaining >>= 1
            if remaining:
                square = self.multiply(square, square)
        return self.apply("reciprocal", result) if exponent < 0 else result


class _Derivatives(Arithmetic[tuple[Any, Any]]):
    """Arithmetic of values (n, m) with their derivatives by base matrices, (b, n, m) or what broadcasts to that."""

    def affine(self, x: Any, a: float, b: float) -> Any:
        return a * x[0] + b, a * x[1]

    def minimum(self, x: Any, most: float) -> Any:
        return np.minimum(x[0], most), np.where(x[0] >= most, 0.0, x[1])

    def add(self, x: Any, y: Any) -> Any:
        return x[0] + y[0], x[1] + y[1]

    def multiply(self, x: Any, y: Any) -> Any:
        return x[0] * y[0], x[1] * y[0] + x[0] * y[1]

    def apply(self, function: str, x: Any) -> Any:
        value = getattr(np, function)(x[0])
        return value, x[1] * _SLOPES[function](x[0], value)


# Derivatives of functions, of x and their values y.
_SLOPES: dict[str, Callable[[Array, Array], Array]] = {
    "exp": lambda _, y: y,
    "log1p": lambda x, _: 1.0 / (1.0 + x),
    "sqrt": lambda _, y: np.where(y > 0.0, 0.5 / y, 0.0),
    "tanh": lambda _, y: 1.0 - y * y,
    "reciprocal": lambda _, y: -y * y,
}


class Program:
    """A kernel lowered to steps (code, operand, a, b) in postfix order over base matrices.

    Rows are finite C-contiguous float64 with all columns that the base matrices name; `Kernel.matrix` checks them.
    """

    def __init__(
        self,
        steps: Sequence[tuple[int, int, float, float]],
        base_matrices: tuple[PairwiseMatrix, ...],
        depth: int,
    ) -> None:
        self.codes = np.array([step[0] for step in steps], dtype=np.int64)
        self.operands = np.array([step[1] for step in steps], dtype=np.int64)
        self.constants = np.array([step[2:] for step in steps], dtype=np.float64)
        self.base_matrices = base_matrices
        self.depth = depth

    def matrix(self, X: Array, Y: Array) -> Array:
        """Evaluate the kernel for all pairs of rows (n, d) and (m, d)."""
        return self._evaluate_blocks(X, Y, lower=False)

    def gram(self, X: Array) -> Array:
        """Evaluate the kernel for all pairs of the same rows (n, d), exactly symmetric."""
        return self._evaluate_blocks(X, X, lower=True)

    def diagonal(self, X: Array) -> Array:
        """Evaluate the kernel for every row (n, d) with itself."""
        out = np.empty(len(X))
        for place, part in parts_of(X, len(self.base_matrices)):
            values = np.empty((len(self.base_matrices), 1, len(part)))
            for matrix, target in zip(self.base_matrices, values[:, 0], strict=True):
                matrix.fill_diagonal(part, target)
            self._run(values[1:], values[0], (0, 0, 1, len(part)))
            out[place] = values[0, 0]
        return out

    def base_values(self, X: Array, Y: Array) -> Array:
        """Evaluate all base matrices for all pairs of rows (n, d) and (m, d); shape (b, n, m)."""
        values = np.empty((len(self.base_matrices), len(X), len(Y)))
        for matrix, target in zip(self.base_matrices, values, strict=True):
            centre = matrix.centre(Y, n_rows=len(X))
            matrix.fill(matrix.side(X, centre), matrix.side(Y, centre), target, 0, 0)
        return values

    @np.errstate(all="ignore")
    def differentiate(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Evaluate the kernel for rows (n, d) and (m, d), and its derivatives (b, n, m) by each base matrix.

        At a cusp, where a square root is 0, as that of Matern of smoothness 1/2 at distance 0, the derivative counts as
        0. Infinite derivatives become the nearest finite number, NaN 0. O(b n m) for each step.
        """
        bases = self.base_values(X, Y)
        values, slopes = self.evaluate([*zip(bases, np.eye(len(bases))[..., None, None], strict=True)], _Derivatives())
        slopes = slopes if slopes.shape == bases.shape else np.broadcast_to(slopes, bases.shape).copy()
        return values, slopes if np.isfinite(slopes.sum()) else np.nan_to_num(slopes)

    def evaluate(self, bases: Sequence[Value], arithmetic: Arithmetic[Value]) -> Value:
        """Run the steps on values of any type, one for each base matrix."""
        stack: list[Value] = []
        for code, operand, (a, b) in zip(
            self.codes.tolist(), self.operands.tolist(), self.constants.tolist(), strict=True
        ):
            if code == loops.LOAD:
                stack.append(bases[operand])
            elif code == loops.AFFINE:
                stack.append(arithmetic.affine(stack.pop(), a, b))
            elif code == loops.MINIMUM:
                stack.append(arithmetic.minimum(stack.pop(), a))
            elif code == loops.POWER:
                stack.append(arithmetic.power(stack.pop(), operand))
            elif code in (loops.ADD, loops.MULTIPLY):
                y, x = stack.pop(), stack.pop()
                stack.append(arithmetic.add(x, y) if code == loops.ADD else arithmetic.multiply(x, y))
            else:
                stack.append(arithmetic.apply(_FUNCTIONS[code], stack.pop()))
        (value,) = stack
        return value

    def _evaluate_blocks(self, X: Array, Y: Array, *, lower: bool) -> Array:
        """Evaluate the matrix block by block, or just its lower triangle and the mirror image of that."""
        n, m = len(X), len(Y)
        out = np.empty((n, m))
        height, breadth = self._block_shape(Y.shape[1])
        centres = [matrix.centre(Y, n_rows=n) for matrix in self.base_matrices]
        matrices = list(zip(self.base_matrices, centres, strict=True))
        others = np.empty((len(matrices) - 1, min(n, height), min(m, breadth)))
        for column in range(0, m, breadth):
            right_rows = Y[column : column + breadth]
            rights = [matrix.side(right_rows, centre) for matrix, centre in matrices]
            for row in range(column if lower else 0, n, height):
                left_rows = X[row : row + height]
                width = min(len(right_rows), row + len(left_rows) - column) if lower else len(right_rows)
                for p, (matrix, centre) in enumerate(matrices):
                    place = (out, row, column) if p == 0 else (others[p - 1], 0, 0)
                    matrix.fill(matrix.side(left_rows, centre), rights[p].first(width), *place)
                extent = (row, column, len(left_rows), width)
                self._run(others, out, extent)
                if lower:
                    loops.mirror_lower(out, *extent)
        return out

    def _block_shape(self, d: int) -> tuple[int, int]:
        """Return the height and the breadth of a block for rows of d features."""
        n_others = len(self.base_matrices) - 1
        height, breadth = _ROWS, _COLUMNS
        while height > 1 and (breadth * d > _MOST_NUMBERS or n_others * height * breadth > 2 * _MOST_NUMBERS):
            height, breadth = height // 2, breadth // 2
        return height, breadth

    def _run(self, others: Array, target: Array, extent: tuple[int, int, int, int]) -> None:
        loops.run_program(self.codes, self.operands, self.constants, self.depth, others, target, extent)


class PreparedKernel:
    """A program without functions of the caller and its right rows (m, d): one compiled call for left rows.

    No bit of a row's answer depends on the rows beside it.
    """

    def __init__(self, program: Program, rows: Array) -> None:
        matrices = program.base_matrices
        self._features = [matrix.features for matrix in matrices]
        parts = [features.of(rows) for features in self._features]
        all_columns = tuple(range(rows.shape[1]))
        owned = [all_columns if features.columns is None else features.columns for features in self._features]
        bounds = np.cumsum([0, *(part.shape[1] for part in parts)])
        # Rows in units are laid out as the parts are, and divided once: a loop would for each target.
        self._is_laid_out = any(features.units is not None for features in self._features)
        columns = np.arange(bounds[-1]) if self._is_laid_out else np.array(tuple(chain.from_iterable(owned)))
        steps = [program.depth, len(program.codes), len(matrices), *program.codes, *program.operands]
        layout = [*(matrix.base.value for matrix in matrices), *bounds, *columns]
        used = [
            (unit_rows(part) if matrix.base is Base.COSINE else part).T
            for matrix, part in zip(matrices, parts, strict=True)
        ]
        self._prepared = (
            np.array(steps + layout, dtype=np.int64),
            program.constants,
            np.ascontiguousarray(np.concatenate(used)),
        )

    def project(self, X: Array, axes: Array, offset: Array) -> Array | None:
        """Project rows (n, d) onto axes (q, m), k(x, Z) P - offset; None where a projection is not finite."""
        out = np.empty((len(X), len(offset)))
        finite = loops.project_rows(*self._prepared, self._lay_out(X), axes, offset, out)
        return out if finite else None

    def measure(self, X: Array, factor: Array) -> tuple[Array, Array] | None:
        """Measure squared distances (n,) of rows (n, d) to the span of the right rows, and energies (n,) in it.

        None where a distance is not finite. `factor` (m, m) is that of the right rows.
        """
        out = np.empty((2, len(X)))
        return (out[0], out[1]) if loops.measure_rows(*self._prepared, self._lay_out(X), factor, out) else None

    def base_values(self, X: Array) -> Array:
        """Evaluate all base matrices for rows (n, d) and the right rows; shape (b, n, m)."""
        plan, _, parts = self._prepared
        out = np.empty((plan[2], len(X), parts.shape[1]))
        loops.fill_rows(plan, parts, self._lay_out(X), out)
        return out

    def _lay_out(self, X: Array) -> Array:
        if not self._is_laid_out:
            return X
        parts = [features.of(X) for features in self._features]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def explained_energies(factor: Array, values: Array) -> Array:
    """Return |L^-1 k|^2 (n,) for kernel values (n, m) of rows; no bit depends on the rows beside."""
    out = np.empty(len(values))
    loops.explained_energies(factor, values, out)
    return out
