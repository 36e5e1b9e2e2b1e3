"""The bytes of files, pipes, compressed files, and files that grow."""

import io
import lzma
import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow

from streamkpca.cli.tables.table import TableError

READ_BYTES = 1 << 20
LONGEST_LINE = 1 << 26
# A file that was replaced is told by its first bytes.
_HEAD_BYTES = 1024
_POLL_SECONDS = 0.2
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".lz4"}


class Source:
    """A file, or standard input ("-"), whose beginning can be looked at before it is read.

    Attributes
    ----------
    name : str
        What errors call it.
    is_plain : bool
        Whether it is a regular file that is not compressed.
    rereadable : bool
        Whether `pieces` can be called again.
    follows : bool
        Whether reading waits for more at the end.
    notes : list of str
        What the user should know of a file that was replaced.
    """

    def __init__(self, path: str, *, follow: bool = False) -> None:
        self.path = Path(path)
        self.notes: list[str] = []
        is_compressed = self.path.suffix.lower() in _COMPRESSED
        if path == "-":
            if sys.stdin is None:
                raise TableError("-: standard input is closed; name a file, or redirect one")
            self.name, self.rereadable, is_compressed = "standard input", False, False
        else:
            self.name = path
            try:
                mode = self.path.stat().st_mode
            except FileNotFoundError:
                if not (follow and self.path.parent.is_dir()):
                    raise TableError(f"{path}: no such file; give a table, or - for standard input") from None
                mode = stat.S_IFREG
            if stat.S_ISDIR(mode):
                raise TableError(f"{path}: is a folder; give a CSV, JSON lines, Parquet, Arrow, npy or npz file")
            self.rereadable = stat.S_ISREG(mode)
        if is_compressed and follow:
            raise TableError(f"{path}: compressed files do not grow line by line; leave --follow out, or unpack it")
        self.is_plain = self.rereadable and not is_compressed
        # A pipe waits for more by itself.
        self.follows = follow and self.rereadable
        self._pipe: Iterator[bytes | None] | None = None
        self._head = b""

    @property
    def size(self) -> int | None:
        """Size in bytes, where the bytes that are read are those of a file that is complete."""
        return self.path.stat().st_size if self.is_plain and not self.follows else None

    def peek(self, enough: Callable[[bytes], bool]) -> bytes:
        """Return the beginning without consuming it; `enough` is asked after every piece."""
        head, pieces = b"", self.pieces()
        for piece in pieces:
            head = b"" if piece is None else head + piece
            if enough(head):
                break
            if len(head) > LONGEST_LINE:
                raise TableError(f"{self.name}: its first line is longer than {LONGEST_LINE} bytes; give a table")
        if not self.rereadable:
            self._pipe = chain([head], pieces)
        return head

    def pieces(self, at: int = 0) -> Iterator[bytes | None]:
        """Yield the bytes from byte `at` on, as they arrive; None where a followed file begins anew."""
        if self._pipe is not None:
            return self._pipe
        return self._followed(at) if self.follows else self._read(at)

    def stream(self) -> io.BufferedReader:
        """Open for formats that read as much as they need."""
        return open(self.path, "rb") if self.is_plain else io.BufferedReader(_Stream(self.pieces()), READ_BYTES)

    def _opened(self) -> Any:
        """Open what `read` reads; gzip, bzip2, zstd and lz4 are told by the suffix."""
        if self.name == "standard input":
            return nullcontext(sys.stdin.buffer)
        if self.is_plain or not self.rereadable:
            return open(self.path, "rb")
        return lzma.open(self.path) if self.path.suffix.lower() == ".xz" else pyarrow.input_stream(self.path)

    def _read(self, at: int) -> Iterator[bytes]:
        self._head = b""
        with self._opened() as file:
            read = file.read if self.rereadable else file.read1
            if self.is_plain:
                self._head = file.read(min(at, _HEAD_BYTES))
                file.seek(at)
                at = 0
            while piece := read(READ_BYTES):
                self._note_head(piece)
                skipped, at = piece[at:], max(at - len(piece), 0)
                if skipped:
                    yield skipped
            if at:
                raise TableError(f"{self.name}: is shorter than when it was read before; name that file, or begin anew")

    def _followed(self, at: int) -> Iterator[bytes | None]:
        """Read a file and wait for more; begin anew when its name has passed to another, or it was emptied."""
        while not self.path.exists():
            time.sleep(_POLL_SECONDS)
        file = open(self.path, "rb", buffering=0)
        try:
            self._head = file.read(min(at, _HEAD_BYTES))
            file.seek(at)
            while True:
                if piece := file.read(READ_BYTES):
                    self._note_head(piece)
                    yield piece
                    continue
                time.sleep(_POLL_SECONDS)
                what = self._what_happened(file)
                if what is not None:
                    self.notes.append(f"{self.name}: was {what}; reading it from its beginning")
                    if what == "replaced":
                        file.close()
                        file = open(self.path, "rb", buffering=0)
                    file.seek(0)
                    self._head = b""
                    yield None
        finally:
            file.close()

    def _what_happened(self, file: io.FileIO) -> str | None:
        """Tell whether another file has the name now, or this one was emptied and perhaps written again."""
        at, is_named, begun = file.tell(), True, False
        with suppress(OSError):
            named = self.path.stat()
            is_named, begun = os.path.samestat(os.fstat(file.fileno()), named), named.st_size > 0
        # After the name: rows that were written before the file lost it come first.
        size = os.fstat(file.fileno()).st_size
        file.seek(0)
        is_same = file.read(len(self._head)) == self._head
        file.seek(at)
        if size < at or not is_same:
            return "emptied"
        # Its writer may go on with the old file until there is something in the new one.
        return "replaced" if size == at and begun and not is_named else None

    def _note_head(self, piece: bytes) -> None:
        if len(self._head) < _HEAD_BYTES:
            self._head += piece[: _HEAD_BYTES - len(self._head)]

    def mark(self) -> list[int]:
        """Return what tells this file from another: a number of first bytes, and their checksum."""
        return [len(self._head), zlib.crc32(self._head)]

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse the position {"byte", "line", "head"} of a file that is not this one any more."""
        at, (n_head, crc) = int(start["byte"]), start["head"]
        where = f"{self.name}: expected the file that was read up to byte {at:,} but"
        remedy = "name that file, or begin anew"
        with self.stream() as file:
            head, before = file.read(min(max(int(n_head), 0), _HEAD_BYTES)), b""
            if self.is_plain:
                file.seek(max(at - 1, 0))
                before = file.read(2)
        if zlib.crc32(head) != crc:
            raise TableError(f"{where} it begins with other text; {remedy}")
        if self.is_plain and self.path.stat().st_size < at:
            raise TableError(f"{where} it has only {self.path.stat().st_size:,} bytes; {remedy}")
        if at and before[:1] not in (b"", b"\n") and before[1:] not in (b"", b"\r", b"\n"):
            raise TableError(
                f"{where} its last line has grown since: it was read before it was complete; begin anew, or read "
                "growing files with --follow"
            )


class _Stream(io.RawIOBase):
    """The pieces of a source as a file."""

    def __init__(self, pieces: Iterator[bytes | None]) -> None:
        self._pieces, self._held = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._held = self._held or next(self._pieces, b"") or b""
        n = min(len(buffer), len(self._held))
        buffer[:n] = self._held[:n]
        self._held = self._held[n:]
        return n
