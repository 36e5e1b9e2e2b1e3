"""Kernels known by their values alone: the matrix that a fit is given, and the columns that a question brings."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkpca.rows.packed import MOST_DENSE, is_sparse
from streamkpca.rows.validation import checked_packed, checked_rows
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.equality import category_reader
from streamkpca.kernels.program import Array, Base, ProgramBuilder
from streamkpca.kernels.registry import kernel_from
from streamkpca.kernels.sparse import OfSparse
from streamkpca.kernels.views import FeatureView

# Entries of a symmetric matrix may differ by this share of the largest one: single precision, summed in two orders.
_ASYMMETRY = 1e-5


@dataclass(frozen=True, eq=False, repr=False)
class GivenMatrix(Kernel):
    """k(i, j) = K[i, j] for rows that are positions in a kernel matrix (n, n), as a fit sees it."""

    values: Array

    _positive_definite = False
    _compiled = False

    @property
    def positions(self) -> Array:
        """The rows that this kernel compares: positions (n, 1)."""
        return np.arange(len(self.values), dtype=np.float64)[:, None]

    def __repr__(self) -> str:
        return f"GivenMatrix({len(self.values)} rows)"

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.CUSTOM, view, self._of_pairs, self._of_rows)

    def _of_pairs(self, X: Array, Y: Array) -> Array:
        picked: Array = self.values[np.ix_(X[:, 0].astype(np.int64), Y[:, 0].astype(np.int64))]
        return picked

    def _of_rows(self, X: Array) -> Array:
        picked: Array = np.diagonal(self.values)[X[:, 0].astype(np.int64)]
        return picked


@dataclass(frozen=True)
class Precomputed(Kernel):
    """k(x, i) = x[i] for rows (n, n_fit) of kernel values, and rows that were fitted, which are positions (m, 1)."""

    n_fit: int

    _positive_definite = False
    _compiled = False

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.load(Base.CUSTOM, view, _picked)


def _picked(X: Array, Y: Array) -> Array:
    return X[:, Y[:, 0].astype(np.int64)]


def is_precomputed(kernel: Any) -> bool:
    """Tell whether a parameter asks for precomputed values, as in scikit-learn."""
    return isinstance(kernel, str) and kernel == "precomputed"


def kernel_and_rows(kernel: Any, X: Any, where: str, *, copied: bool = False) -> tuple[Kernel, Array]:
    """Return the kernel that an estimator was given, and the checked rows that it compares, as a copy if asked.

    Of a precomputed matrix X, the rows are positions, and the kernel looks the values up.
    """
    if is_precomputed(kernel):
        given = given_matrix(X, where)
        return given, given.positions
    kernel = kernel_from(kernel, where=where)
    if is_sparse(X) and X.shape[-1] > MOST_DENSE:
        return OfSparse(kernel, X.shape[1]), checked_packed(X, where, None)[:]
    rows = checked_rows(X, where, None, None, categories=category_reader(kernel))
    return kernel, rows.copy() if copied else rows


def asked_with(kernel: Kernel) -> Kernel:
    """Return the kernel for rows to come: that of a fit, unless its values were given."""
    return Precomputed(len(kernel.values)) if isinstance(kernel, GivenMatrix) else kernel


def given_matrix(X: Any, where: str) -> GivenMatrix:
    """Check the kernel matrix (n, n) of the rows to fit: finite, square, and symmetric up to rounding.

    Raises
    ------
    TypeError, ValueError
        X is anything else.
    """
    values = checked_rows(X, where, None, None)
    n, d = values.shape
    if n != d:
        raise ValueError(
            f"{where}: with kernel='precomputed', expected the square kernel matrix of all rows with each other but "
            f"got the shape ({n}, {d}); pass K of shape (n, n), such as kernel.matrix(X)"
        )
    # Both triangles count, and the caller may write to X later.
    with np.errstate(over="ignore"):
        apart = np.abs(values - values.T)
    largest = float(np.abs(values).max())
    if not apart.max() <= _ASYMMETRY * largest:
        row, column = (int(i) for i in np.unravel_index(np.argmax(apart), apart.shape))
        raise ValueError(
            f"{where}: with kernel='precomputed', expected a symmetric matrix but K[{row}, {column}] is "
            f"{values[row, column]:.6g} and K[{column}, {row}] is {values[column, row]:.6g}; pass the kernel values of "
            "all rows with each other, not distances in one direction"
        )
    return GivenMatrix(0.5 * values + 0.5 * values.T)
