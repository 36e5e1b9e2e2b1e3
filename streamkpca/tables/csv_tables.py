"""CSV read block by block, from a file or a pipe.

pyarrow's own streaming reader would be shorter, but it reads ahead in a thread of its own: rows of a slow
pipe would wait for a full megabyte, and Ctrl-C would wait for the pipe. So blocks of whole lines are cut
here, on the calling thread, and only their parsing is pyarrow's.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from streamkpca.tables.columns import Array, Columns, Table, TableError, choose_columns

_READ_BYTES = 1 << 20
_LONGEST_LINE = 1 << 26
_MISSING = {"", "na", "n/a", "nan", "-nan", "null", "none", "#n/a", "#na", "?"}
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


class CsvTable(Table):
    """Comma-separated rows, in a file (may be compressed) or a stream.

    Parameters
    ----------
    source : str
        The file's name, or how errors shall call the stream.
    stream : binary file, optional
        Read this instead of opening `source`; it can be read only once.
    header : bool, optional
        Whether the first line holds names. None finds out: a first line of numbers alone is a row; one with
        text holds names, unless it has numbers too and the second line has its text in the same columns.
    delimiter : str, optional
        What separates fields; None is a comma, for a file named ``.tsv`` a tab.
    columns, drop, labels : sequence of str, sequence of str, str or None
        As in `choose_columns`.

    Raises
    ------
    TableError
        The file cannot be opened or holds no line.
    """

    def __init__(
        self,
        source: str,
        *,
        stream: BinaryIO | None = None,
        header: bool | None = None,
        delimiter: str | None = None,
        columns: Sequence[str] = (),
        drop: Sequence[str] = (),
        labels: str | None = None,
    ) -> None:
        self.source = source
        path = Path(source)
        plain = stream is None and path.is_file()
        self.rereadable = plain
        self.total = path.stat().st_size if plain and path.suffix not in _COMPRESSED else None
        suffixes = [suffix for suffix in path.suffixes if suffix not in _COMPRESSED]
        self._delimiter = delimiter or ("\t" if suffixes[-1:] == [".tsv"] else ",")
        self._owned = stream is None
        # A pipe cannot be opened twice, so what was read to find the names is handed on to the rows.
        self._stream = stream if stream is not None or plain else _open(source)
        self._head = b""
        if self._stream is not None:
            self._head, names, self._header = self._peek(self._stream, header)
        else:
            with _opened(source) as file:
                _, names, self._header = self._peek(file, header)
        self.columns: Columns = choose_columns(
            source, names, named=self._header, columns=columns, drop=drop, labels=labels
        )

    def _peek(self, stream: BinaryIO, header: bool | None) -> tuple[bytes, list[str], bool]:
        """Read until two lines are there; return them, the names, and whether line one holds them."""
        read = _reader(stream)
        head = b""
        while head.count(b"\n") < 2 and len(head) < _LONGEST_LINE and (more := read(_READ_BYTES)):
            head += more
        lines = [self._fields(line.rstrip("\r")) for line in _decode(head).split("\n")[:2]]
        if not "".join(lines[0]).strip():
            raise TableError(f"{self.source}: the file is empty or begins with an empty line; give a table with rows")
        first = lines[0]
        second = lines[1] if len(lines) == 2 and len(lines[1]) == len(first) else None
        if header is None:
            text = [not _is_number(field) for field in first]
            header = any(text) and (
                all(text)
                or second is None
                or any(t and _is_number(field) for t, field in zip(text, second, strict=True))
            )
        names = [field.strip() for field in first] if header else [str(j) for j in range(len(first))]
        return head, names, header

    def _fields(self, line: str) -> list[str]:
        return next(csv.reader([line], delimiter=self._delimiter), [""])

    def _blocks(self, n_rows: int) -> Iterator[tuple[Array, int]]:
        del n_rows
        if self._stream is not None:
            head, self._head = self._head, b""
            yield from self._parse_all(_reader(self._stream), head)
            if self._owned:
                self._stream.close()
        else:
            with _opened(self.source) as file:
                yield from self._parse_all(_reader(file), b"")

    def _parse_all(self, read: Callable[[int], bytes], head: bytes) -> Iterator[tuple[Array, int]]:
        line, position, skip = 0, 0, self._header
        for block in self._cut(read, head):
            position += len(block)
            body = block
            if line == 0:
                body = body.removeprefix(b"\xef\xbb\xbf")
                if skip:
                    body = body.partition(b"\n")[2]
                    line = 1
            if body.strip():
                yield self._parse(body, line), position
            line += body.count(b"\n")

    def _cut(self, read: Callable[[int], bytes], head: bytes) -> Iterator[bytes]:
        """Yield blocks that end where a line ends outside quotes."""
        rest = b""
        while more := head or read(_READ_BYTES):
            head = b""
            rest += more
            end = rest.rfind(b"\n") + 1
            while end and rest.count(b'"', 0, end) % 2:
                end = rest.rfind(b"\n", 0, end - 1) + 1
            if end:
                yield rest[:end]
                rest = rest[end:]
            elif len(rest) > _LONGEST_LINE:
                raise TableError(f"{self.source}: a line longer than {_LONGEST_LINE} bytes; is this a CSV file?")
        if rest:
            yield rest

    def _parse(self, block: bytes, line: int) -> Array:
        """Parse whole lines; `line` of them came before."""
        import pyarrow
        from pyarrow import csv as arrow_csv

        keys = [str(j) for j in range(len(self.columns.names))]
        wanted = [str(j) for j in self.columns.wanted]
        try:
            table = arrow_csv.read_csv(
                pyarrow.BufferReader(block),
                read_options=arrow_csv.ReadOptions(column_names=keys, use_threads=False, block_size=len(block) + 1),
                parse_options=arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=b'"' in block),
                # One type for all: an integer-looking column may turn fractional a million rows later.
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pyarrow.float64()), include_columns=wanted
                ),
            )
        except pyarrow.ArrowInvalid:
            return self._parse_slowly(block, line)
        values = np.empty((table.num_rows, len(wanted)))
        for j, column in enumerate(table.columns):
            values[:, j] = column.to_numpy()
        return values if np.isfinite(values).all() else self._parse_slowly(block, line)

    def _parse_slowly(self, block: bytes, line: int) -> Array:
        """Parse field by field: finds the line to blame, and reads the numbers that only Python reads."""
        reader = csv.reader(io.StringIO(_decode(block), newline=""), delimiter=self._delimiter)
        width = len(self.columns.names)
        rows: list[list[float]] = []
        for fields in reader:
            if not fields or fields == [""] or (width > 1 and len(fields) == 1 and not fields[0].strip()):
                continue
            where = f"{self.source}, line {line + reader.line_num}"
            if len(fields) != width:
                raise TableError(
                    f"{where}: expected {width} fields (as in the first line) but found {len(fields)}; "
                    "mend or remove the line"
                )
            rows.append([self._number(fields[j], where, self.columns.names[j]) for j in self.columns.wanted])
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.columns.wanted))

    def _number(self, field: str, where: str, name: str) -> float:
        text = field.strip()
        if text.lower() in _MISSING:
            raise TableError(
                f"{where}: column {name!r} has no value ({field!r}); fill or remove such rows first, "
                f"or leave the column out (--drop {name})"
            )
        if not _is_number(text):
            hint = "" if self._header else "; if the first line holds names, say --header"
            raise TableError(
                f"{where}: column {name!r} holds text ({field[:40]!r}) but numbers are required; "
                f"leave the column out (--drop {name}){hint}"
            )
        number = float(text)
        if not np.isfinite(number):
            raise TableError(
                f"{where}: column {name!r} is infinite; remove such rows first, or leave the column out (--drop {name})"
            )
        return number


def _is_number(field: str) -> bool:
    """Say whether a field is a number or a missing one."""
    if field.strip().lower() in _MISSING:
        return True
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


def _decode(block: bytes) -> str:
    # Text matters only in names and error texts: bytes of an unknown encoding must not stop the numbers.
    return block.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


def _reader(stream: BinaryIO) -> Callable[[int], bytes]:
    """Return the read function that hands over what a pipe holds now instead of waiting for more."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read


def _open(source: str) -> BinaryIO:
    try:
        if compression := _COMPRESSED.get(Path(source).suffix):
            import pyarrow

            stream: BinaryIO = pyarrow.input_stream(source, compression=compression)
            return stream
        return open(source, "rb")
    except OSError as error:
        raise TableError(f"{source}: {error.strerror or error}; give a file that can be read") from None


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    stream = _open(source)
    try:
        yield stream
    except OSError as error:
        raise TableError(f"{source}: {error}; is the file whole?") from None
    finally:
        stream.close()
