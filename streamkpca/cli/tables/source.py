"""The bytes of files, pipes, compressed files, and files that grow."""

import io
import lzma
import os
import re
import stat
import sys
import tempfile
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow

from streamkpca.cli.tables.table import TableError

READ_BYTES = 1 << 20
LONGEST_LINE = 1 << 24
# A file that was replaced is told by its first bytes.
_HEAD_BYTES = 1024
_POLL_SECONDS = 0.2
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".lz4"}


class Source:
    """A file, or standard input ("-"), whose beginning can be looked at before it is read.

    name: what errors call it. is_plain: a regular file, not compressed. rereadable: whether `pieces` can be called
    again. follows: whether reading waits for more at the end. notes: what the user should know of a replaced file.
    """

    def __init__(self, path: str, *, follow: bool = False) -> None:
        self.path, self.name = Path(path), "standard input" if path == "-" else path
        self.notes: list[str] = []
        is_compressed, mode = self.path.suffix.lower() in _COMPRESSED, stat.S_IFIFO
        if path != "-":
            try:
                mode = self.path.stat().st_mode
            except FileNotFoundError:
                if not (follow and self.path.parent.is_dir()):
                    raise TableError(f"{path}: no such file; give a table, or - for standard input") from None
                mode = stat.S_IFREG
        elif sys.stdin is None:
            raise TableError("-: standard input is closed; name a file, or redirect one")
        if stat.S_ISDIR(mode):
            raise TableError(f"{path}: is a folder; give a CSV, JSON lines, Parquet, Arrow or npy file")
        if is_compressed and follow:
            raise TableError(f"{path}: compressed files do not grow line by line; leave --follow out, or unpack it")
        self.rereadable = stat.S_ISREG(mode)
        self.is_plain = self.rereadable and not is_compressed
        # A pipe waits for more by itself.
        self.follows = follow and self.rereadable
        self._pipe: Iterator[bytes | None] | None = None
        self._copy: Any = None
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

    def on_disk(self) -> str:
        """Return a file that can be read from its end: this one, or a temporary copy of what is compressed or piped."""
        if self.is_plain:
            return str(self.path)
        if self._copy is None:
            self._copy = tempfile.NamedTemporaryFile()
            weakref.finalize(self, self._copy.close)
            self._copy.writelines(piece or b"" for piece in self.pieces())
            self._copy.flush()
        return str(self._copy.name)

    def _opened(self) -> Any:
        """Open what `_read` reads; gzip, bzip2, zstd and lz4 are told by the suffix."""
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
                # The name may be gone again.
                with suppress(FileNotFoundError):
                    if what is not None:
                        file, old = open(self.path, "rb", buffering=0), file
                        old.close()
                        self.notes.append(f"{self.name}: was {what}; reading it from its beginning")
                        self._head = b""
                        yield None
        finally:
            file.close()

    def _what_happened(self, file: io.FileIO) -> str | None:
        """Tell whether another file has the name now, or this one was emptied and perhaps written again."""
        at, opened = file.tell(), os.fstat(file.fileno())
        file.seek(0)
        is_same = file.read(len(self._head)) == self._head
        file.seek(at)
        with suppress(OSError):
            named = self.path.stat()
            if os.path.samestat(opened, named):
                return "emptied" if named.st_size < at or not is_same else None
            # Its writer may go on with the old file until there is something in the new one.
            return "replaced" if named.st_size and os.fstat(file.fileno()).st_size <= at else None
        return None

    def _note_head(self, piece: bytes) -> None:
        self._head += piece[: max(_HEAD_BYTES - len(self._head), 0)]

    def mark(self) -> list[int]:
        """Return what tells this file from another: a number of first bytes, and their checksum."""
        return [len(self._head), zlib.crc32(self._head)]

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse the position {"byte", "line", "head"} of a file that is not this one any more."""
        at, (n_head, crc) = int(start["byte"]), start["head"]
        if at < 0 or int(start["line"]) < 1 or not 0 <= n_head <= _HEAD_BYTES:
            raise ValueError(start)
        if zlib.crc32(next(self._read(0), b"")[:n_head]) != crc:
            fault = "begins with other text"
        elif self.is_plain and self.path.stat().st_size < at:
            fault = "is shorter"
        elif self.is_plain and at and re.match(rb"[^\n][^\r\n]", next(self._read(at - 1), b"")):
            fault = "has a longer last line"
        else:
            return
        remedy = "name that file, or begin anew (--follow reads whole lines only)"
        raise TableError(f"{self.name}: expected the file that was read up to byte {at:,} but it {fault}; {remedy}")
