"""Tables that numpy wrote: npy files mapped into memory, arrays of npz files decompressed as they are read."""

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from streamkpca.tables.columns import (
    Array,
    Chunk,
    Table,
    TableError,
    blaming,
    check_finite,
    choose_columns,
)


class NpyTable(Table):
    """A two-dimensional array in an npy file, mapped into memory.

    Parameters
    ----------
    source : str
        The file.
    columns, drop, labels : sequence of str, sequence of str, str or None
        As in `choose_columns`.

    Raises
    ------
    TableError
        Not a two-dimensional array of real numbers.
    """

    rereadable = True

    def __init__(
        self, source: str, *, columns: Sequence[str] = (), drop: Sequence[str] = (), labels: str | None = None
    ) -> None:
        self.source = source
        with blaming(source):
            array = np.load(source, mmap_mode="r", allow_pickle=False)
        self.total, width = _check_array(source, array.shape, array.dtype)
        names = [str(j) for j in range(width)]
        self.columns = choose_columns(source, names, named=False, columns=columns, drop=drop, labels=labels)

    def _blocks(self, n_rows: int) -> Iterator[tuple[Array, int]]:
        with blaming(self.source):
            array = np.load(self.source, mmap_mode="r", allow_pickle=False)
        wanted = list(self.columns.wanted)
        for start in range(0, len(array), n_rows):
            values = np.asarray(array[start : start + n_rows], dtype=np.float64)[:, wanted]
            check_finite(values, source=self.source, first_row=start, columns=self.columns)
            yield values, start + len(values)


class NpzTable(Table):
    """One two-dimensional array of an npz file, decompressed as it is read.

    Parameters
    ----------
    source : str
        The file.
    array : str, optional
        The array's name; not needed where only one has two dimensions.
    columns, drop : sequence of str
        As in `choose_columns`.
    labels : str, optional
        A column, or the name of another array of the file that has one number a row.

    Raises
    ------
    TableError
        No such array, or none of two dimensions with real numbers.
    """

    rereadable = True

    def __init__(
        self,
        source: str,
        *,
        array: str | None = None,
        columns: Sequence[str] = (),
        drop: Sequence[str] = (),
        labels: str | None = None,
    ) -> None:
        self.source = source
        with blaming(source):
            shapes = _npz_shapes(source)
        tables = [name for name, (shape, _) in shapes.items() if len(shape) == 2]
        if array is None and len(tables) == 1:
            array = tables[0]
        if array is None or array not in shapes:
            what = "say which array with --array" if array is None else f"no array {array!r} in it; use --array"
            raise TableError(f"{source}: {what}: {', '.join(shapes) or 'there is none'}")
        self._array = array
        self.total, width = _check_array(f"{source}[{array}]", *shapes[array])
        # Asked for like a column, but kept apart: it takes no part in positions.
        self._label_array = labels if labels in shapes and labels != array else None
        if self._label_array is not None:
            shape, dtype = shapes[self._label_array]
            if shape not in {(self.total,), (self.total, 1)} or dtype.kind not in "fiub":
                raise TableError(
                    f"{source}[{labels}]: expected one number for each of the {self.total} rows of {array} "
                    f"but got shape {shape} of type {dtype}; name another array or a column with --labels"
                )
        names = [str(j) for j in range(width)]
        self.columns = choose_columns(
            source,
            names,
            named=False,
            columns=columns,
            drop=drop,
            labels=None if self._label_array is not None else labels,
        )

    def chunks(self, n_rows: int) -> Iterator[Chunk]:  # noqa: D102 -- as in Table
        chunks = super().chunks(n_rows)
        if self._label_array is None:
            yield from chunks
            return
        with blaming(self.source), np.load(self.source, allow_pickle=False) as archive:
            labels = np.asarray(archive[self._label_array], dtype=np.float64).ravel()
        for chunk in chunks:
            yield chunk._replace(labels=labels[chunk.position - len(chunk.rows) : chunk.position])

    def _blocks(self, n_rows: int) -> Iterator[tuple[Array, int]]:
        wanted, start = list(self.columns.wanted), 0
        with blaming(self.source), _npz_member(self.source, self._array) as file:
            for block in _array_blocks(file, n_rows):
                values = np.asarray(block, dtype=np.float64)[:, wanted]
                check_finite(values, source=self.source, first_row=start, columns=self.columns)
                start += len(values)
                yield values, start


def _check_array(source: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[int, int]:
    kind = np.dtype(dtype).kind
    if kind not in "fiub":
        raise TableError(f"{source}: holds {np.dtype(dtype)} but real numbers are required; save it as float64")
    if len(shape) != 2 or not shape[1]:
        raise TableError(
            f"{source}: expected an array of rows and columns but its shape is {shape}; save it with two dimensions"
        )
    return shape[0], shape[1]


def _npz_shapes(source: str) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Read the headers of an npz file's arrays, in its order, and nothing more."""
    shapes = {}
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as file:
                    shape, _, dtype = _read_header(file)
                shapes[name.removesuffix(".npy")] = (shape, dtype)
    return shapes


@contextmanager
def _npz_member(source: str, array: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(source) as archive, archive.open(f"{array}.npy") as file:
        yield file


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    # Version 3 differs from 2 only for field names, and an array with fields is refused anyway.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(file)
    return header


def _array_blocks(file: IO[bytes], n_rows: int) -> Iterator[npt.NDArray[Any]]:
    shape, column_major, dtype = _read_header(file)
    n, d = shape
    if column_major:
        columns = np.frombuffer(file.read(n * d * dtype.itemsize), dtype).reshape(d, n)
        for start in range(0, n, n_rows):
            yield columns[:, start : start + n_rows].T
        return
    for start in range(0, n, n_rows):
        rows = min(n_rows, n - start)
        yield np.frombuffer(file.read(rows * d * dtype.itemsize), dtype).reshape(rows, d)
