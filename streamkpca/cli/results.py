"""Results of each row, written as rows come: to a file or to standard output."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.files import SHARED, replacing

Array = npt.NDArray[np.float64]

FORMATS: Final = ("csv", "jsonl", "parquet", "arrow", "arrows")
STANDARD_OUTPUT: Final = "-"

# These can be read before they are complete, so they may grow for ever.
_LIVE_FORMATS = ("csv", "jsonl", "arrows")


def is_among(path: str | Path, files: Sequence[str]) -> bool:
    """Tell whether a file, which need not exist yet, is one of some others under whatever name."""
    target = Path(path)
    # Hard links have names of their own, and a file that does not exist yet has only a name. Unlike Path.resolve,
    # os.path.realpath does not raise for a link to itself.
    return any(
        os.path.realpath(target) == os.path.realpath(name)
        or (target.exists() and Path(name).exists() and target.samefile(name))
        for name in files
    )


class ResultWriter:
    """One row of results for every row of input: position, time, label, novelty, projections.

    A file takes the place of an older one when it is complete; an error leaves the older one. With `live`, on standard
    output, and in devices and pipes, each chunk can be read as soon as it is written. Memory is one chunk.

    Parameters
    ----------
    path : str or Path
        ``-`` is standard output.
    form : str, optional
        One of `FORMATS`; by default the file's ending, and CSV on standard output.
    live : bool, default=False
        Write into the file itself from the start, and flush every chunk.
    time_name : str, optional
        Name of the column of times.

    Raises
    ------
    ValueError
        Another ending, or a live format that can be read only when it is complete.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ResultWriter(Path(folder) / "a.csv") as writer:
    ...         writer.write(np.array([0.5, 0.25]), np.zeros((2, 1)))
    ...     print((Path(folder) / "a.csv").read_text())
    "row","novelty","component_0"
    0,0.5,0
    1,0.25,0
    """

    def __init__(
        self, path: str | Path, *, form: str | None = None, live: bool = False, time_name: str | None = None
    ) -> None:
        self.path = Path(path)
        self.is_output = str(path) == STANDARD_OUTPUT
        suffix = "csv" if self.is_output else self.path.suffix.lower().removeprefix(".")
        self.form = form or suffix
        if self.form not in FORMATS:
            known = ", ".join(f".{name}" for name in FORMATS)
            raise ValueError(f"{path}: results are written as {known}; end the name in one of these, or give --format")
        self._is_live = live or self.is_output
        if self._is_live and self.form not in _LIVE_FORMATS:
            raise ValueError(
                f"{path}: {self.form} can only be read when it is complete; choose {', '.join(_LIVE_FORMATS)} "
                "where rows are read as they come"
            )
        self.n_rows = 0
        self._time_name = time_name
        # A Path forgets the slash at the end of what can only be a folder.
        self._name = path
        self._replacement: AbstractContextManager[IO[bytes]] | None = None
        self._file: IO[bytes] | None = None
        self._writer: Any = None
        self._time_type: type | None = None

    def __enter__(self) -> Self:
        # Opened before anything is learned, so that a folder without write access does not cost an hour first.
        if self.is_output:
            if sys.stdout is None:
                raise ValueError("-: standard output is closed; give --save a file")
            self._file = sys.stdout.buffer
        elif self._is_live:
            self._file = open(self._name, "wb")
        else:
            self._replacement = replacing(self._name, mode=SHARED)
            self._file = self._replacement.__enter__()
        return self

    def write(
        self,
        novelty: Array,
        projections: Array | None = None,
        *,
        times: Sequence[Any] | None = None,
        labels: npt.ArrayLike | None = None,
        more: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Append n rows: novelty (n,), projections (n, q), n times and labels, and `more` columns after the novelty.

        Projections, times, labels and more are given in every call or in none; q stays the same.
        """
        columns = self._numbered(len(novelty), times)
        if labels is not None:
            columns["label"] = np.asarray(labels)
        columns["novelty"] = novelty
        columns |= {name: np.asarray(values) for name, values in (more or {}).items()}
        if projections is not None:
            columns |= {f"component_{i}": projections[:, i] for i in range(projections.shape[1])}
        self._append(columns, len(novelty))

    def write_rows(self, rows: Array, names: Sequence[str], *, times: Sequence[Any] | None = None) -> None:
        """Append rows (n, d) themselves, with the names of their columns, and their n times."""
        self._append(self._numbered(len(rows), times) | dict(zip(names, rows.T, strict=True)), len(rows))

    def _numbered(self, n: int, times: Sequence[Any] | None) -> dict[str, Any]:
        """Return the columns that come first: positions of n rows, and their times if there are any."""
        columns: dict[str, Any] = {"row": np.arange(self.n_rows, self.n_rows + n)}
        if times is not None:
            self._time_type = self._time_type or _type_of(times)
            columns[self._time_name or "time"] = _as_type(times, self._time_type)
        return columns

    def _append(self, columns: dict[str, Any], n: int) -> None:
        import pyarrow

        assert self._file is not None
        table = pyarrow.table(columns)
        with self._named():
            if self._writer is None:
                self._writer = _make_writer(self.form, self._file, table.schema)
            self._writer.write_table(table)
            if self._is_live:
                self._file.flush()
        self.n_rows += n

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        writer, self._writer = self._writer, None
        try:
            with self._named():
                # Writing the end of a file that cannot be written would only fail again.
                if writer is not None and not (self.is_output and kind is not None):
                    writer.close()
        except BaseException as failure:
            kind, error, trace = type(failure), failure, failure.__traceback__
            raise
        finally:
            if self._replacement is not None:
                if writer is None and error is None:
                    # Nothing was written, so the older file stays.
                    kind, error = ValueError, ValueError()
                self._replacement.__exit__(kind, error, trace)
            elif not self.is_output:
                with self._named():
                    self._file.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in errors where the system does not."""
        try:
            yield
        except OSError as error:
            if self.is_output and isinstance(error, BrokenPipeError):
                # The reader of standard output has seen enough, which is no error.
                raise
            where = "standard output" if self.is_output else str(self.path)
            raise OSError(error.errno, error.strerror or str(error), where) from None


class _JsonLines:
    """A writer of one JSON object a row, with the methods of pyarrow's writers."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write_table(self, table: Any) -> None:
        for row in table.to_pylist():
            # Times that are neither text nor numbers become text; numbers that JSON lacks become null.
            known = {
                name: None if isinstance(value, float) and not np.isfinite(value) else value
                for name, value in row.items()
            }
            self._file.write(json.dumps(known, default=str, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        """Do nothing: the file belongs to the caller."""


def _type_of(times: Sequence[Any]) -> type:
    """Choose the one type of a column of times: int, float or str."""
    kinds = {type(when) for when in times if when is not None}
    if any(isinstance(when, int) and not -(2**63) <= when < 2**63 for when in times):
        return str
    return next((kind for kind in (int, float) if kinds and kinds <= {int, kind}), str)


def _as_type(times: Sequence[Any], kind: type) -> Any:
    import pyarrow

    known = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    values = [None if when is None else str(when) for when in times] if kind is str else times
    try:
        return pyarrow.array(values, type=known[kind])
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError) as error:
        reason = f"times were {kind.__name__} at first but are not any more ({error})"
        raise ValueError(f"{reason}; repair the column, or leave --time out") from None


def _make_writer(form: str, file: IO[bytes], schema: Any) -> Any:
    if form == "jsonl":
        return _JsonLines(file)
    if form == "csv":
        from pyarrow import csv

        return csv.CSVWriter(file, schema)
    if form == "parquet":
        from pyarrow import parquet

        return parquet.ParquetWriter(file, schema)
    from pyarrow import ipc

    return ipc.new_file(file, schema) if form == "arrow" else ipc.new_stream(file, schema)
