"""Interface of streamkpca.cli.tables (stubs; the code follows). All names are imported from streamkpca.cli.tables."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

FORMATS: Final = ("csv", "jsonl", "parquet", "arrow", "npy", "npz")  # read; "arrow" is the file and the stream form
WRITTEN: Final = ("csv", "jsonl", "parquet", "arrow", "arrows", "npy")  # "arrows": Arrow's stream form


class TableError(ValueError):
    """A file cannot be read as a table: one line with the file, the place, expected, got, and the remedy."""


class Batch(NamedTuple):
    """Consecutive rows that were kept.

    rows (n,) int64: their numbers in the file: lines of text counted from 1, the header included; in the other formats
    rows counted from 0 (`Table.unit` tells which). numbers (n, d) float64, C-contiguous, finite but for NaN in gaps.
    times (n,) datetime64[ns] or float64, and labels (n,) float64, if they were asked for, else None. position: where to
    go on after the last of these rows: a small dict that JSON can hold, for `open_table(start=)`; None for streams.
    done: bytes or rows read so far, in the unit of `Table.total`.
    """

    rows: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    times: npt.NDArray[Any] | None
    labels: npt.NDArray[np.float64] | None
    position: dict[str, Any] | None
    done: int


class Table:
    """A file or a stream whose rows are read in batches.

    path: as given, "standard input" for "-". names: the columns of `Batch.numbers`, "0", "1", ... if not `named`.
    named: whether the names come from the file. left_out: text columns that nobody asked for; the caller prints them.
    time_name: name of the time column or None. unit: "line" or "row", what `Batch.rows` counts. total: size in the unit
    of `Batch.done`, or None. rereadable: whether `batches` can be called again. notes: warnings for the user (list of
    str; also grows while a file is followed: "was replaced, ..."). n_bad: rows left out so far by the last call of
    `batches`. bad_examples: the first five of them, each with file, place and reason.
    """

    path: str
    names: tuple[str, ...]
    named: bool
    left_out: tuple[str, ...]
    time_name: str | None
    unit: str
    total: int | None
    rereadable: bool
    notes: list[str]
    n_bad: int
    bad_examples: list[str]

    def batches(self, n_rows: int, *, full: bool = False) -> Iterator[Batch]:
        """Yield batches of at most n_rows rows; with `full`, exactly n_rows in all but the last.

        Without `full` rows of a pipe or a followed file come as soon as they arrive.

        Raises
        ------
        TableError
            A bad row (unless they are skipped), a damaged file, or no rows at all.
        """
        raise NotImplementedError


def open_table(
    path: str,
    *,
    format: str | None = None,
    array: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    time: str | None = None,
    labels: str | None = None,
    learned: Sequence[str] | int = (),
    on_bad_rows: str = "raise",
    on_missing: str = "raise",
    follow: bool = False,
    start: Mapping[str, Any] | None = None,
) -> Table:
    """Open a file, or standard input ("-"), for reading in batches.

    format: one of FORMATS; None tells it from the first bytes. array: which array of an npz. columns, drop: names
    (columns without names are called "0", "1", ...). time: column handed out beside the rows, never a feature. labels:
    column of numbers handed out beside the rows. learned: names of the columns to read, in this order, where the file
    has names and `columns` is empty; where it has none, or with an int, only the number of columns is checked. For
    the second of several files give the names of the first. on_bad_rows: "raise" or "skip". on_missing: "raise" (a gap
    makes a bad row), "skip" (rows with gaps are left out and counted), "marginal" (gaps are NaN; rows without any
    number are left out and counted). follow: wait for more at the end of a CSV or JSON lines file, which need not
    exist yet. start: `Batch.position` of an earlier reading; if the file is not that one any more: TableError, or with
    `follow` a note in `Table.notes` and reading from the beginning.

    Raises
    ------
    TableError
        The file is absent, unreadable, without rows, or without a column that is asked for.
    """
    raise NotImplementedError


class Writer:
    """Write rows of results: a file that is whole or absent, or a stream whose rows can be read as they come.

    path: "-" is standard output. format: one of WRITTEN, by default that of the path's ending, and CSV on standard
    output. live: write into the file itself and flush every call (csv, jsonl, arrows only). The constructor raises
    TableError for another ending or a format that cannot be live; entering opens the file. An error inside the with
    statement leaves an older file as it was.

    Attributes: path (str), format (str), is_output (standard output), n_rows.
    """

    path: str
    format: str
    is_output: bool
    n_rows: int

    def __init__(self, path: str, *, format: str | None = None, live: bool = False) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        raise NotImplementedError

    def write(self, columns: Mapping[str, npt.ArrayLike]) -> None:
        """Append rows: names and arrays (n,) of numbers, booleans, datetime64 or text; the same names in every call."""
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError
