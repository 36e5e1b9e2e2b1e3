"""Kernels of packed sparse rows: the same values, from the numbers that are not 0 alone."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamkpca.rows.packed import check_packed, columns_of, compacted, numbers_of
from streamkpca._core.parameters import check_integer
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.base import InUnits, Kernel, OnColumns, ScaledByRows
from streamkpca.kernels.custom import Custom
from streamkpca.kernels.equality import Equal
from streamkpca.kernels.program import KINDS, Array, Base, Centre, PairwiseMatrix, ProgramBuilder, Side, unit_rows
from streamkpca.kernels.registry import register_outer
from streamkpca.kernels.views import FeatureView

# The width of a kernel is settled on as many rows as make so many numbers (32 MiB) when only the columns that occur in
# them are kept, which changes no distance.
_NUMBERS_TO_SETTLE, _ROWS_TO_SETTLE = 2**22, 1024


@dataclass(frozen=True)
class PackedSide(Side):
    """Packed rows prepared for one side: columns and numbers (n, k), how many there are, and squared lengths (n,)."""

    columns: npt.NDArray[np.int64]
    numbers: Array
    counts: npt.NDArray[np.int64]
    squares: Array

    def first(self, count: int) -> "PackedSide":
        """Return the first rows alone."""
        return PackedSide(
            self.rows[:count],
            self.used[:count],
            None,
            self.columns[:count],
            self.numbers[:count],
            self.counts[:count],
            self.squares[:count],
        )


@dataclass(frozen=True)
class PackedMatrix(PairwiseMatrix):
    """A base matrix over pairs of packed rows, which have so many columns."""

    n_columns: int = 0

    is_dense: ClassVar[bool] = False

    def centre(self, Y: Array, *, n_rows: int) -> Centre:
        """Measure from nothing: sparse rows have many zeros, and distances that cancel are summed again."""
        del Y, n_rows
        return Centre(None, None)

    def side(self, X: Array, centre: Centre) -> PackedSide:
        """Prepare packed rows (n, 2 k) for either side of the matrix."""
        del centre
        columns, numbers = columns_of(X, self.n_columns), numbers_of(X)
        if self.base is Base.COSINE:
            numbers = unit_rows(numbers)
        with np.errstate(all="ignore"):
            squares = np.einsum("ij,ij->i", numbers, numbers)
        return PackedSide(X, X, None, columns, numbers, (columns >= 0).sum(axis=1), squares)

    def fill(self, left: Side, right: Side, target: Array, row: int, column: int) -> None:
        """Write the block of `target` (n, m) that belongs to two sides and starts at (row, column)."""
        assert isinstance(left, PackedSide)
        assert isinstance(right, PackedSide)
        kind = loops.INNER if self.base is Base.COSINE else KINDS[self.base]
        sides = [(side.columns, side.numbers, side.counts, side.squares) for side in (left, right)]
        loops.compare_packed(kind, *sides[0], *sides[1], np.zeros(self.n_columns), target, row, column)

    def fill_diagonal(self, X: Array, target: Array) -> None:
        """Write the values of packed rows (n, 2 k) with themselves to `target` (n,)."""
        numbers = numbers_of(X)
        if self.base is Base.INNER:
            with np.errstate(all="ignore"):
                np.einsum("ij,ij->i", numbers, numbers, out=target)
        else:
            target[:] = numbers.any(axis=1) if self.base is Base.COSINE else 0.0


@register_outer
@dataclass(frozen=True, repr=False)
class OfSparse(Kernel):
    """A kernel of sparse rows with `n_columns` columns, which come packed: see `streamkpca.rows.packed`.

    Models make it where they meet sparse rows of more than 1,024 columns. Its parts compare all columns as they are.
    """

    kernel: Kernel
    n_columns: int

    def __post_init__(self) -> None:
        self._set("n_columns", check_integer("n_columns", self.n_columns, least=1, most=2**40, where="OfSparse"))
        self._check_depth()
        if not _compares_all_columns(self.kernel):
            raise ValueError(
                f"sparse rows of {self.n_columns} columns are compared by inner products and distances of all columns, "
                f"but the kernel {self.kernel!r} chooses columns, gives them units, or calls a function; scale the "
                "columns before, or pass dense rows: X.toarray()"
            )

    def __repr__(self) -> str:
        return f"OfSparse({self.kernel!r}, {self.n_columns})"

    def check_width(self, d: int, where: str) -> None:
        """Refuse what cannot be packed rows."""
        if d % 2:
            raise ValueError(f"{where}: expected packed rows, columns and as many numbers, but got rows of {d} numbers")

    def check_range(self, X: Array, where: str) -> None:
        """Refuse rows that are not packed, or have columns that do not exist."""
        check_packed(X, self.n_columns, where)

    def _lower(self, builder: ProgramBuilder, view: FeatureView) -> None:
        builder.pack(partial(PackedMatrix, n_columns=self.n_columns))
        self.kernel._lower(builder, view)

    def contents(self, X: Array) -> Array:
        """Return the numbers of packed rows: a checksum of them is that of the dense rows."""
        return numbers_of(X)

    def _settle(self, X: Array, weights: Array | None) -> Self:
        return replace(self, kernel=self.kernel._settle(*self._compacted(X, weights)))

    def _width_scores(self, X: Array, weights: Array | None) -> dict[str, Array]:
        scores = self.kernel._width_scores(*self._compacted(X, weights))
        return {f"kernel__{path}": values for path, values in scores.items()}

    def _compacted(self, X: Array, weights: Array | None) -> tuple[Array, Array | None]:
        """Return dense rows of the columns that occur, of some packed rows evenly spaced, and their weights."""
        count = min(len(X), _ROWS_TO_SETTLE)
        while True:
            chosen = np.linspace(0, len(X) - 1, count).astype(np.intp)
            some = np.ascontiguousarray(X[chosen], dtype=np.float64)
            n_used = len(np.unique(columns_of(some, self.n_columns)))
            if count * n_used <= _NUMBERS_TO_SETTLE or count <= 2:
                break
            count //= 2
        dense = compacted(some, n_columns=self.n_columns)[1][0]
        return dense, None if weights is None else weights[chosen]


def _compares_all_columns(kernel: Kernel) -> bool:
    if isinstance(kernel, OnColumns | InUnits | ScaledByRows | Custom | Equal | OfSparse):
        return False
    return all(_compares_all_columns(part) for part in kernel._parts())
