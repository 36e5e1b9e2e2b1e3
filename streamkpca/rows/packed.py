"""Sparse rows: scipy's matrices checked, and rows packed into arrays of their columns and numbers.

Of a packed row, the first half are the columns of the numbers that are not 0, in ascending order and then -1, and the
second half these numbers and then 0. All that keeps, samples and stores dense rows can do so with packed ones.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from streamkpca.rows.parts import RowParts

Array = npt.NDArray[np.float64]

# Sparse rows of so many columns are made dense, a few at a time: more of them take less time and memory as they are.
MOST_DENSE = 1024
# Packed rows have room for so many numbers, or the next power of two.
_LEAST_ROOM = 8
# numpy and float32 hold no larger numbers of columns.
_MOST_COLUMNS = 2**40


def is_sparse(X: Any) -> bool:
    """Tell whether X is a sparse matrix or array of scipy."""
    return hasattr(X, "tocsr") and hasattr(X, "nnz")


def checked_csr(X: Any, where: str, n_features: int | None, *, finite: bool = True) -> sparse.csr_array:
    """Return sparse rows (n, d) as CSR in float64, sorted, without zeros and without entries given twice.

    Raises
    ------
    TypeError, ValueError
        X is not two-dimensional, has no row, holds no real numbers, NaN or infinity (unless `finite` is False), or has
        other than `n_features` columns.
    """
    if getattr(X, "ndim", 2) != 2 or 0 in X.shape:
        raise ValueError(f"{where}: expected sparse rows (n, d) but got the shape {X.shape}; pass at least one row")
    if X.dtype.kind not in "fiub":
        raise TypeError(f"{where}: X is sparse with dtype {X.dtype} but real numbers are required; convert it first")
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"{where}: X has {X.shape[1]} features, but {where.partition('.')[0]} is expecting {n_features} features "
            "as input (set by the first rows); bring the same columns in the same order, or fit anew"
        )
    # A copy, which is sorted and cleaned in place.
    with np.errstate(over="ignore"):
        rows = sparse.csr_array(X, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    numbers = np.isfinite(rows.data)
    if finite and not numbers.all():
        at = int(np.argmin(numbers))
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
        kind = "NaN" if np.isnan(rows.data[at]) else "infinity"
        raise ValueError(
            f"{where}: X contains {kind} (first at row {row}, column {column}); drop or impute such rows first"
        )
    return rows


def dense_parts(rows: sparse.csr_array) -> RowParts:
    """Return sparse rows of few columns as dense ones, made where they are sliced."""
    return RowParts(rows.shape, lambda start, stop: rows[start:stop].toarray())


def packed_parts(rows: sparse.csr_array, room: int = 0) -> RowParts:
    """Return sparse rows packed, where they are sliced, with room for at least that many numbers each."""
    room = max(room, room_for(rows))
    return RowParts((rows.shape[0], 2 * room), lambda start, stop: _packed(rows[start:stop], room))


def room_for(rows: sparse.csr_array) -> int:
    """Return how many numbers packed rows must have room for: a power of two."""
    most = int(np.diff(rows.indptr).max(initial=0))
    return 1 << (max(most, _LEAST_ROOM) - 1).bit_length()


def _packed(rows: sparse.csr_array, room: int) -> Array:
    counts = np.diff(rows.indptr)
    packed = np.zeros((len(counts), 2 * room))
    packed[:, :room] = -1.0
    row = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(rows.data)) - np.repeat(rows.indptr[:-1], counts)
    packed[row, place] = rows.indices
    packed[row, room + place] = rows.data
    return packed


def widened(packed: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    """Give packed rows (n, 2 k) more room."""
    n, half = len(packed), packed.shape[1] // 2
    wider = np.zeros((n, 2 * room), dtype=packed.dtype)
    wider[:, half:room] = -1.0
    wider[:, :half], wider[:, room : room + half] = packed[:, :half], packed[:, half:]
    return wider


def columns_of(packed: Array, n_columns: int) -> npt.NDArray[np.int64]:
    """Return the columns (n, k) of packed rows, -1 where there is none; ValueError if one does not exist."""
    given = packed[:, : packed.shape[1] // 2]
    columns = given.astype(np.int64)
    if not ((columns >= -1) & (columns < n_columns) & (columns == given)).all():
        raise ValueError(f"packed rows: expected columns from 0 to {n_columns - 1}, or -1 for none")
    return columns


def check_packed(packed: Array, n_columns: int, where: str) -> None:
    """Refuse packed rows whose columns do not exist, or do not ascend; rows of nothing but 0 are rows of 0."""
    columns = columns_of(packed, n_columns)
    before, after = columns[:, :-1], columns[:, 1:]
    ascends = ((after == -1) | ((before >= 0) & (after > before))).all(axis=1)
    if not (ascends | ~packed.any(axis=1)).all():
        raise ValueError(f"{where}: expected packed rows, whose columns ascend and end with -1")


def numbers_of(packed: Array) -> Array:
    """Return the numbers (n, k) of packed rows; 0 where there is no column."""
    # A copy also of a single row: loops would be compiled again for arrays that cannot be written to.
    return packed[:, packed.shape[1] // 2 :].copy()


def unpacked(packed: Array, n_columns: int) -> sparse.csr_array:
    """Return packed rows as CSR (n, n_columns)."""
    columns, numbers = columns_of(packed, n_columns), numbers_of(packed)
    used = columns >= 0
    indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    rows = sparse.csr_array((numbers[used], columns[used], indptr), shape=(len(packed), n_columns))
    rows.eliminate_zeros()
    return rows


def compacted(*parts: Array, n_columns: int) -> tuple[npt.NDArray[np.int64], list[Array]]:
    """Return the columns (u,) that occur in packed rows, and dense rows (n, u) of these for each of the parts."""
    rows = [unpacked(part, n_columns) for part in parts]
    columns = np.unique(np.concatenate([part.indices for part in rows]))
    columns = columns if len(columns) else np.zeros(1, dtype=np.int64)
    places = [np.searchsorted(columns, part.indices) for part in rows]
    dense = [
        sparse.csr_array((part.data, place, part.indptr), shape=(part.shape[0], len(columns))).toarray()
        for part, place in zip(rows, places, strict=True)
    ]
    return columns.astype(np.int64), dense
