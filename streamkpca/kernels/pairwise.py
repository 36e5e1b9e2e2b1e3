"""The input of kernel programs: base matrices over pairs of rows, mostly from BLAS, and functions of single rows."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.kernels import _loops as loops
from streamkpca.kernels.features import FeatureView

Array = npt.NDArray[np.float64]
RowFunction = Callable[[Array], Any]
PairFunction = Callable[[Array, Array], Any]

# Up to this many features, or rows on the left, sums over the features take less time than setting up a matrix product.
_FEW_FEATURES = 8
_FEW_ROWS = 4


class Base(Enum):
    """Kinds of base matrices, by what they hold."""

    INNER = "inner products"
    COSINE = "inner products of rows scaled to length 1"
    SQUARED = "squared distances"
    ABSOLUTE = "L1 distances"
    CUSTOM = "values of the caller's function"


@dataclass(frozen=True)
class RowScaling:
    """A function of one row that multiplies a kernel from both sides: rows (n, c) of the view in, n numbers out."""

    function: RowFunction
    view: FeatureView

    def values(self, X: Array) -> Array:
        """Evaluate the function for rows (n, d), and check that it returns n finite numbers."""
        return checked_values(self.function(self.view.of(X)), (len(X),), where="scaled_by")


@dataclass(frozen=True)
class PairwiseMatrix:
    """A base matrix over pairs of rows, before any step is applied.

    `function` and `diagonal` are the caller's functions of pairs and of rows, for ``Base.CUSTOM``.
    """

    base: Base
    view: FeatureView
    function: PairFunction | None = None
    diagonal: RowFunction | None = None

    def centre(self, Y: Array, *, n_rows: int) -> Array | None:
        """Choose the point (c,) from which inner products measure squared distances, or None to sum them directly.

        The point depends on the right rows Y (m, d) alone, so that the answer for a left row does not depend on the
        rows beside it.
        """
        d = Y.shape[1] if self.view.columns is None else len(self.view.columns)
        if self.base is not Base.SQUARED or d <= _FEW_FEATURES or n_rows <= _FEW_ROWS or not len(Y):
            return None
        with np.errstate(all="ignore"):
            mean: Array = self.view.of(Y).mean(axis=0)
        return mean

    def side(self, X: Array, centre: Array | None) -> "Side":
        """Prepare rows (n, d) for either side of the matrix."""
        rows = self.view.of(X)
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
            block[:] = checked_values(self.function(left.rows, right.rows), (n, m), where="Custom")
        elif self.base in (Base.INNER, Base.COSINE) or right.norms is not None:
            with np.errstate(all="ignore"):
                np.matmul(left.used, right.used.T, out=block)
            if right.norms is not None:
                loops.finish_squared_distances(left.rows, right.rows, left.norms, right.norms, target, row, column)
        else:
            transposed = np.ascontiguousarray(right.rows.T)
            loops.direct_distances(left.rows, transposed, self.base is Base.SQUARED, target, row, column)

    def fill_diagonal(self, X: Array, target: Array) -> None:
        """Write the values of rows (n, d) with themselves to `target` (n,)."""
        rows = self.view.of(X)
        if self.base is Base.INNER:
            with np.errstate(all="ignore"):
                np.einsum("ij,ij->i", rows, rows, out=target)
        elif self.base is Base.COSINE:
            target[:] = rows.any(axis=1)
        elif self.base is not Base.CUSTOM:
            target[:] = 0.0
        elif self.diagonal is not None:
            target[:] = checked_values(self.diagonal(rows), (len(rows),), where="Custom.diagonal")
        else:
            assert self.function is not None
            for i in range(len(rows)):
                row = rows[i : i + 1]
                target[i] = checked_values(self.function(row, row), (1, 1), where="Custom")[0, 0]


@dataclass(frozen=True)
class Side:
    """Rows prepared for one side of a base matrix.

    `rows` (n, c) are the rows in the matrix's view; `used` (n, c) enter the matrix product: the same rows, centred, or
    scaled to length 1; `norms` (n,) are the squared norms of centred rows.
    """

    rows: Array
    used: Array
    norms: Array | None

    def first(self, count: int) -> "Side":
        """Return the first rows alone."""
        norms = None if self.norms is None else self.norms[:count]
        return Side(self.rows[:count], self.used[:count], norms)


def checked_values(values: Any, shape: tuple[int, ...], *, where: str) -> Array:
    """Check that a caller's function returned real, finite numbers of the given shape."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(
            f"{where}: the function must return an array of shape {shape} for these rows "
            f"but returned shape {array.shape}"
        )
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{where}: the function must return real numbers but returned dtype {array.dtype}")
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise ValueError(f"{where}: the function returned NaN or infinity; it must be finite for every row")
    return array


def unit_rows(rows: Array) -> Array:
    """Scale rows (n, d) to length 1 without overflow; rows of zeros stay."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest == 0.0, 1.0, largest)
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    unit: Array = scaled / np.where(lengths == 0.0, 1.0, lengths)
    return unit
