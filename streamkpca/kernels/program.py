"""Rows that a kernel compares with again and again, laid out for one row on the other side."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from streamkpca.kernels import _loops as loops
from streamkpca.kernels._loops import mirror_lower
from streamkpca.kernels.features import FeatureView
from streamkpca.kernels.pairwise import Array, Base, Factor, PairwiseMatrix, unit_rows

# A block of 512 x 1024 numbers is 4 MB. With 1024 rows a Gram matrix took a tenth longer on one core, with 256
# rows a 512 x 256 matrix a sixth longer on two: BLAS starts its threads more often. The width of a block is a
# multiple of its height, which keeps the blocks of a triangle on one grid.
_ROWS, _COLUMNS = 512, 1024


class ProgramBuilder:
    """A program being written: kernels append their steps, planes and factors are shared."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, int, float, float]] = []
        self._planes: dict[PairwiseMatrix, int] = {}
        self._factors: dict[Factor, int] = {}
        self._height = 0
        self._depth = 0

    def plane(self, plane: PairwiseMatrix) -> None:
        """Push a plane.

        Parameters
        ----------
        plane : PairwiseMatrix
        """
        self._push(loops.PLANE, self._planes.setdefault(plane, len(self._planes)))

    def copy(self) -> None:
        """Push the top once more."""
        self._push(loops.COPY, 0)

    def factor(self, factor: Factor) -> None:
        """Multiply the top by a row factor of both sides.

        Parameters
        ----------
        factor : Factor
        """
        self._steps.append((loops.FACTOR, self._factors.setdefault(factor, len(self._factors)), 0.0, 0.0))

    def affine(self, a: float, b: float) -> None:
        """Replace the top x by a x + b.

        Parameters
        ----------
        a, b : float
        """
        self._steps.append((loops.AFFINE, 0, a, b))

    def minimum(self, most: float) -> None:
        """Replace the top x by min(x, most).

        Parameters
        ----------
        most : float
        """
        self._steps.append((loops.MINIMUM, 0, most, 0.0))

    def power(self, exponent: int) -> None:
        """Raise the top to a whole power.

        Parameters
        ----------
        exponent : int
            Not zero.
        """
        self._steps.append((loops.POWER, exponent, 0.0, 0.0))

    def apply(self, code: int) -> None:
        """Replace the top by a function of it, or exchange it with the value below.

        Parameters
        ----------
        code : int
            ``EXP``, ``LOG1P``, ``SQRT``, ``TANH`` or ``SWAP`` of `kernel_loops`.
        """
        self._steps.append((code, 0, 0.0, 0.0))

    def combine(self, code: int) -> None:
        """Replace the two topmost values by one.

        Parameters
        ----------
        code : int
            ``ADD`` or ``MULTIPLY`` of `kernel_loops`.
        """
        self._steps.append((code, 0, 0.0, 0.0))
        self._height -= 1

    def finish(self) -> "Program":
        """Turn what was written into a program.

        Returns
        -------
        Program
        """
        return Program(self._steps, tuple(self._planes), tuple(self._factors), self._depth)

    def _push(self, code: int, operand: int) -> None:
        self._steps.append((code, operand, 0.0, 0.0))
        self._height += 1
        self._depth = max(self._depth, self._height)


class Program:
    """A kernel lowered to flat arrays.

    Parameters
    ----------
    steps : sequence of (code, operand, a, b)
        In postfix order.
    planes : tuple of PairwiseMatrix
        Distinct matrices that the steps start from.
    factors : tuple of Factor
        Distinct row factors.
    depth : int
        The most values that the stack holds at once.

    Notes
    -----
    Nothing is validated: rows must be finite C-contiguous float64 with all columns that the planes name.
    `Kernel.matrix` is the checked way in. Beside the result, memory is a few MB whatever n and m.
    """

    def __init__(
        self,
        steps: Sequence[tuple[int, int, float, float]],
        planes: tuple[PairwiseMatrix, ...],
        factors: tuple[Factor, ...],
        depth: int,
    ) -> None:
        self.codes = np.array([step[0] for step in steps], dtype=np.int64)
        self.operands = np.array([step[1] for step in steps], dtype=np.int64)
        self.constants = np.array([step[2:] for step in steps], dtype=np.float64)
        self.planes = planes
        self.factors = factors
        self.depth = depth

    def matrix(self, X: Array, Y: Array) -> Array:
        """Evaluate the kernel for all pairs of rows.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        Y : ndarray of shape (m, d)

        Returns
        -------
        ndarray of shape (n, m)
        """
        out = np.empty((len(X), len(Y)))
        self._fill(out, X, Y, lower=False)
        return out

    def gram(self, X: Array) -> Array:
        """Evaluate the kernel for all pairs of the same rows, exactly symmetric.

        Parameters
        ----------
        X : ndarray of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n)
        """
        out = np.empty((len(X), len(X)))
        self._fill(out, X, X, lower=True)
        return out

    def diagonal(self, X: Array) -> Array:
        """Evaluate the kernel for every row with itself.

        Parameters
        ----------
        X : ndarray of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        n = len(X)
        values = np.empty((len(self.planes), 1, n))
        for plane, target in zip(self.planes, values, strict=True):
            plane.fill_diagonal(X, target[0])
        # A row with itself takes its factor twice: as one row of n columns, the other side's factors are 1.
        factors = self._factor_values(X)
        with np.errstate(all="ignore"):
            factors *= factors
        self._run(values[1:], np.ones((len(self.factors), 1)), factors, values[0], (0, 0, 1, n))
        diagonal: Array = values[0, 0]
        return diagonal

    def _fill(self, out: Array, X: Array, Y: Array, *, lower: bool) -> None:
        """Write the matrix block by block, or just its lower triangle."""
        n, m = out.shape
        centres = [plane.centre(Y, n_rows=n) for plane in self.planes]
        planes = list(zip(self.planes, centres, strict=True))
        left_factors = self._factor_values(X)
        right_factors = left_factors if Y is X else self._factor_values(Y)
        others = np.empty((len(planes) - 1, min(n, _ROWS), min(m, _COLUMNS)))
        for column in range(0, m, _COLUMNS):
            right_rows = Y[column : column + _COLUMNS]
            rights = [plane.side(right_rows, centre) for plane, centre in planes]
            for row in range(column if lower else 0, n, _ROWS):
                left_rows = X[row : row + _ROWS]
                width = min(len(right_rows), row + len(left_rows) - column) if lower else len(right_rows)
                for p, (plane, centre) in enumerate(planes):
                    left, right = plane.side(left_rows, centre), rights[p].first(width)
                    if p == 0:
                        plane.fill(left, right, out, row, column)
                    else:
                        plane.fill(left, right, others[p - 1], 0, 0)
                extent = (row, column, len(left_rows), width)
                self._run(others, left_factors, right_factors, out, extent)
                if lower:
                    mirror_lower(out, *extent)

    def _factor_values(self, X: Array) -> Array:
        values = np.empty((len(self.factors), len(X)))
        for factor, target in zip(self.factors, values, strict=True):
            target[:] = factor.values(X)
        return values

    def _run(self, planes: Array, left: Array, right: Array, target: Array, extent: tuple[int, int, int, int]) -> None:
        loops.run_program(self.codes, self.operands, self.constants, self.depth, planes, left, right, target, *extent)


_BASES = {
    Base.INNER: loops.INNER,
    Base.COSINE: loops.COSINE,
    Base.SQUARED: loops.SQUARED,
    Base.ABSOLUTE: loops.ABSOLUTE,
}


class PreparedKernel:
    """A kernel program with its right side prepared.

    Parameters
    ----------
    program : Program
        Without functions of the caller.
    rows : ndarray of shape (m, d)

    Notes
    -----
    With few rows on the left, matrix products and numpy's calls cost more than the arithmetic: this goes from the row
    to the answer in one compiled call.
    """

    def __init__(self, program: Program, rows: Array) -> None:
        planes = program.planes
        all_columns = tuple(range(rows.shape[1]))
        owned = [np.array(all_columns if plane.view.columns is None else plane.view.columns) for plane in planes]
        bounds, columns = np.cumsum([0, *map(len, owned)]), np.concatenate(owned)
        # Rows in units are laid out as the parts are, and divided at once: a loop would divide for each target.
        self._view = None
        if any(plane.view.units for plane in planes):
            units = [plane.view.units or (1.0,) * len(own) for plane, own in zip(planes, owned, strict=True)]
            chosen = tuple(columns.tolist())
            self._view = FeatureView(None if chosen == all_columns else chosen, tuple(chain.from_iterable(units)))
            columns = np.arange(len(columns))
        steps = [program.depth, len(program.codes), len(planes), *program.codes, *program.operands]
        layout = [*(_BASES[plane.base] for plane in planes), *bounds, *columns]
        parts = np.concatenate([_part(plane, rows) for plane in planes])
        self._prepared = np.array(steps + layout, dtype=np.int64), program.constants, parts

    def project(self, X: Array, axes: Array, offset: Array) -> Array | None:
        """Project rows onto axes, k(x, Z) P - offset.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        axes : ndarray of shape (q, m)
            P, transposed.
        offset : ndarray of shape (q,)

        Returns
        -------
        ndarray of shape (n, q), or None
            None where an answer is not finite.
        """
        out = np.empty((len(X), len(offset)))
        finite = loops.project_rows(*self._prepared, self._seen(X), axes, offset, out)
        return out if finite else None

    def measure(self, X: Array, inverse: Array) -> Array | None:
        """Measure squared distances of rows to the span of the targets.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        inverse : ndarray of shape (m, m)
            Lower triangular L^-1, with L L^T = k(targets, targets).

        Returns
        -------
        ndarray of shape (n,), or None
            None where an answer is not finite.
        """
        out = np.empty(len(X))
        return out if loops.measure_rows(*self._prepared, self._seen(X), inverse, out) else None

    def _seen(self, X: Array) -> Array:
        return X if self._view is None else self._view.of(X)


def _part(plane: PairwiseMatrix, rows: Array) -> Array:
    seen = plane.view.of(rows)
    return np.ascontiguousarray((unit_rows(seen) if plane.base is Base.COSINE else seen).T)
