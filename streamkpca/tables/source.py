"""The bytes of files, pipes, spreadsheets and files that grow, in UTF-8 or another code that ASCII is part of."""

import codecs
import io
import lzma
import os
import re
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

from streamkpca.tables.errors import TableError

Pieces = Iterator[bytes | None]

READ_BYTES = 1 << 20
LONGEST_LINE = 1 << 24
# A file that was replaced is told by its first bytes.
_HEAD_BYTES = 1024
_POLL_SECONDS = 0.2
_OPENERS: dict[str, Callable[[Path], Any]] = {
    **dict.fromkeys((".gz", ".bz2", ".zst", ".lz4"), pyarrow.input_stream),
    ".xz": lzma.open,
}
_BOMS = {
    **{codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"},
    **{codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"},
}
# Which of the first four bytes are not zero, where letters of ASCII have four or two bytes.
_LETTERS = {
    **{b"\1\0\0\0": "utf-32-le", b"\0\0\0\1": "utf-32-be"},
    **{b"\1\0\1\0": "utf-16-le", b"\0\1\0\1": "utf-16-be"},
}


class Source:
    """A file, or standard input ("-"), whose beginning can be looked at before it is read.

    name: what errors call it. rereadable: whether `pieces` can be called again. follows: whether reading waits for more
    at the end. text: that of a spreadsheet, which is read instead of its bytes. notes: what the user should know.
    """

    def __init__(self, path: str, *, follow: bool = False) -> None:
        self.path, self.name = Path(path), "standard input" if path == "-" else path
        self.notes: list[str] = []
        self._opener, mode = _OPENERS.get(self.path.suffix.lower()), stat.S_IFIFO
        if path == "-":
            if sys.stdin is None:
                raise TableError("-: standard input is closed; name a file, or redirect one")
        elif self.path.exists():
            mode = self.path.stat().st_mode
        elif follow and self.path.parent.is_dir():
            mode = stat.S_IFREG
        else:
            raise TableError(f"{path}: no such file; give a table, or - for standard input")
        if stat.S_ISDIR(mode):
            raise TableError(f"{path}: is a folder; give a CSV, JSON lines, Parquet, Arrow, npy or xlsx file")
        if self._opener and follow:
            raise TableError(f"{path}: compressed files do not grow line by line; leave --follow out, or unpack it")
        self.rereadable = stat.S_ISREG(mode)
        # A pipe waits for more by itself.
        self.follows = follow and self.rereadable
        self.text: bytes | None = None
        self._code: str | None = None
        self._pipe: Pieces | None = None
        self._head = b""

    @property
    def size(self) -> int | None:
        """Size in bytes, where the bytes that are read are those of a file that is complete."""
        return self.path.stat().st_size if self._is_as_it_is() and not self.follows else None

    def peek(self, enough: Callable[[bytes], bool]) -> bytes:
        """Return the first bytes without consuming them; `enough` is asked after every piece."""
        head, pieces = b"", self._raw(0)
        for piece in pieces:
            head = b"" if piece is None else head + piece
            if enough(head):
                break
            if len(head) > LONGEST_LINE:
                raise TableError(f"{self.name}: its first line is longer than {LONGEST_LINE} bytes; give a table")
        if not self.rereadable:
            self._pipe = chain([head], pieces)
        self._code = find_code(head)
        return head

    def pieces(self, at: int = 0) -> Pieces:
        """Yield the text from byte `at` on, as it arrives; None where a followed file begins anew."""
        begin = at if self._is_as_it_is() else 0
        return self._skip(recode(self._raw(begin), self._code), at - begin)

    def on_disk(self) -> str:
        """Return the path of a file that is read in any order."""
        if self._opener or not self.rereadable:
            what = "only CSV and JSON lines are read from a pipe, or compressed"
            raise TableError(f"{self.name}: {what}; unpack it, and name the file")
        return str(self.path)

    def _is_as_it_is(self) -> bool:
        """Tell whether bytes of the file are bytes of its text."""
        return self.rereadable and not (self._opener or self._code or self.text is not None)

    def _raw(self, at: int) -> Pieces:
        if self._pipe is not None:
            return self._pipe
        return self._follow(at) if self.follows else self._read(at)

    def _open(self) -> Any:
        """Open what `_read` reads."""
        if self.text is not None:
            return io.BytesIO(self.text)
        if self.name == "standard input":
            return nullcontext(sys.stdin.buffer)
        return self._opener(self.path) if self._opener else open(self.path, "rb")

    def _skip(self, pieces: Pieces, at: int) -> Pieces:
        """Leave out the first `at` bytes."""
        for piece in pieces:
            if piece is None:
                at = 0
                yield None
                continue
            if piece[at:]:
                yield piece[at:]
            at = max(at - len(piece), 0)
        if at:
            raise TableError(f"{self.name}: is shorter than when it was read before; name that file, or begin anew")

    def _read(self, at: int) -> Iterator[bytes]:
        """Yield the bytes from byte `at` of a plain file on, or of any other file."""
        with self._open() as file:
            read = file.read if self.rereadable else file.read1
            self._head = file.read(min(at, _HEAD_BYTES)) if at else b""
            if at:
                file.seek(at)
            while piece := read(READ_BYTES):
                self._note_head(piece)
                yield piece

    def _follow(self, at: int) -> Pieces:
        """Read a file and wait for more; begin anew when its name has passed to another, or it was emptied."""
        while True:
            while not self.path.exists():
                time.sleep(_POLL_SECONDS)
            with open(self.path, "rb", buffering=0) as file:
                self._head, what = file.read(min(at, _HEAD_BYTES)), None
                file.seek(at)
                while what is None:
                    while piece := file.read(READ_BYTES):
                        self._note_head(piece)
                        yield piece
                    time.sleep(_POLL_SECONDS)
                    what = self._what_happened(file)
            self.notes.append(f"{self.name}: was {what}; reading it from its beginning")
            at = 0
            yield None

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
        if zlib.crc32(next(self._read(0), b"")[:n_head]) != crc:
            fault = "begins with other text"
        elif self._is_as_it_is() and self.path.stat().st_size < at:
            fault = "is shorter"
        elif self._is_as_it_is() and at and re.match(rb"[^\r\n][^\r\n]", next(self._read(at - 1), b"")):
            fault = "has a longer last line"
        else:
            return
        remedy = "name that file, or begin anew (--follow reads whole lines only)"
        raise TableError(f"{self.name}: expected the file that was read up to byte {at:,} but it {fault}; {remedy}")


def find_code(head: bytes) -> str | None:
    r"""Find a code of 2 or 4 bytes a letter in the first bytes of a text.

    >>> [find_code("t,x\n1,2\n".encode(code)) for code in ("utf-8", "utf-16", "utf-16-be", "utf-32-le")]
    [None, 'utf-16', 'utf-16-be', 'utf-32-le']
    """
    marked = next((code for mark, code in _BOMS.items() if head.startswith(mark)), None)
    return marked or _LETTERS.get(bytes(map(bool, head[:4])))


def recode(pieces: Pieces, code: str | None) -> Pieces:
    """Turn text of a code into UTF-8, and leave 8-bit text as it is."""
    if code is None:
        return pieces
    decoder = codecs.getincrementaldecoder(code)("replace")

    def decode(piece: bytes | None) -> bytes | None:
        if piece is not None:
            return decoder.decode(piece).encode()
        decoder.reset()
        return None

    return map(decode, pieces)


def spell(cell: Any) -> str:
    """Write a cell as one line of text, whole numbers without a point."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    return " ".join(str(cell).split())
