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
# Codes of 2 or 4 bytes a letter, by a mark of their order, or by letters of ASCII.
_CODES = (
    (rb"\xff\xfe\0\0|\0\0\xfe\xff", "utf-32"),
    (rb"\xff\xfe|\xfe\xff", "utf-16"),
    (rb"[^\0]\0{3}", "utf-32-le"),
    (rb"\0{3}[^\0]", "utf-32-be"),
    (rb"([^\0]\0){2}", "utf-16-le"),
    (rb"(\0[^\0]){2}", "utf-16-be"),
)


class Source:
    """A file, or standard input ("-"), whose beginning can be looked at before it is read.

    name: what errors call it. rereadable: whether `pieces` can be called again. follows: whether reading waits for more
    at the end. sheet: the text of a spreadsheet, which is read instead of its bytes. notes: what the user should know.
    """

    def __init__(self, path: str, *, follow: bool = False, code: str | None = None) -> None:
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
            raise TableError(f"{path}: is a folder; name a file in it")
        if self._opener and follow:
            raise TableError(f"{path}: compressed files do not grow line by line; leave --follow out, or unpack it")
        self.rereadable = stat.S_ISREG(mode)
        # A pipe waits for more by itself.
        self.follows = follow and self.rereadable
        self.sheet: bytes | None = None
        try:
            self._asked = self._code = code and codecs.lookup(code).name
        except LookupError:
            raise TableError(f"--encoding {code}: is not known; give one such as utf-8, latin-1 or utf-16") from None
        self._pipe: Pieces | None = None
        self._head = b""

    @property
    def is_plain(self) -> bool:
        """Whether bytes of the file are bytes of its text, and can be read in any order."""
        return self.rereadable and not (self._opener or self._code or self.sheet is not None)

    @property
    def size(self) -> int | None:
        """Size in bytes, where the bytes that are read are those of a file that is complete."""
        return self.path.stat().st_size if self.is_plain and not self.follows else None

    def peek(self, enough: Callable[[bytes], bool]) -> bytes:
        """Return the first text without consuming it; `enough` is asked after every piece."""
        head, text, pieces = b"", b"", self._pipe or self._read(0)
        for piece in pieces:
            head = b"" if piece is None else head + piece
            self._code = self._asked or find_code(head)
            text = b"".join(filter(None, recode(iter([head]), self._code)))
            if enough(text):
                break
            if len(head) > LONGEST_LINE:
                raise TableError(f"{self.name}: its first line is longer than {LONGEST_LINE} bytes; give a table")
        if not self.rereadable:
            self._pipe = chain([head], pieces)
        return text

    def pieces(self, at: int = 0) -> Pieces:
        """Yield the text from byte `at` on, as it arrives; None where a followed file begins anew."""
        begin = at if self.is_plain else 0
        return self._skip(recode(self._pipe or self._read(begin), self._code), at - begin)

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

    def _open(self) -> Any:
        if self.sheet is not None:
            return io.BytesIO(self.sheet)
        if self.name == "standard input":
            return nullcontext(sys.stdin.buffer)
        return self._opener(self.path) if self._opener else open(self.path, "rb", 0 if self.rereadable else -1)

    def _read(self, at: int) -> Pieces:
        """Yield the bytes from byte `at` of a plain file on, or of any other file.

        A followed file is read anew when its name has passed to another, or it was emptied.
        """
        while True:
            while self.follows and not self.path.exists():
                time.sleep(_POLL_SECONDS)
            with self._open() as file:
                read, what = file.read if self.rereadable else file.read1, None
                self._head = read(min(at, _HEAD_BYTES)) if at else b""
                if at:
                    file.seek(at)
                while what is None:
                    while piece := read(READ_BYTES):
                        self._head += piece[: max(_HEAD_BYTES - len(self._head), 0)]
                        yield piece
                    if not self.follows:
                        return
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

    def mark(self) -> list[int]:
        """Return what tells this file from another: a number of first bytes, and their checksum."""
        return [len(self._head), zlib.crc32(self._head)]

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse the position {"byte", "line", "head"} of a file that is not this one any more."""
        at, (n_head, crc) = int(start["byte"]), start["head"]
        with self._open() as file:
            if zlib.crc32(file.read(_HEAD_BYTES)[:n_head]) != crc:
                fault = "begins with other text"
            elif self.is_plain and self.path.stat().st_size < at:
                fault = "is shorter"
            elif self.is_plain and at and file.seek(at - 1) >= 0 and re.match(rb"[^\r\n][^\r\n]", file.read(2)):
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
    return next((code for begin, code in _CODES if re.match(begin, head)), None)


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
