"""Where bytes come from: a file, a pipe, either of them compressed, or a file that grows."""

import bz2
import gzip
import io
import lzma
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from streamkpca.tables.errors import TableError, blaming, need_pyarrow

READ_BYTES = 1 << 20
LONGEST_LINE = 1 << 26

_COMPRESSIONS = {
    "gz": re.compile(rb"\x1f\x8b"),
    # Three letters may begin a name as well; what follows them may not.
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}
MAGIC_BYTES = 10


class Next(Enum):
    """What follows where a source has nothing more to give."""

    END = "nothing"
    MORE = "more of the same file"
    ANEW = "another file of the same name, from its beginning"
    CUT = "the same file, from its beginning: it was emptied"


class Opening(io.RawIOBase):
    """The bytes of a source, handed over as they come instead of waiting for more.

    Parameters
    ----------
    read : callable
        Gives at most so many bytes, none at the end.
    close : callable
        Gives back what is behind it.
    """

    def __init__(self, read: Callable[[int], bytes], close: Callable[[], None]) -> None:
        self._read, self._close, self._held = read, close, b""

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read what is there.

        Parameters
        ----------
        size : int
            Most bytes.

        Returns
        -------
        bytes
            None at the end.
        """
        if size < 0:
            return self.readall()
        if self._held:
            piece, self._held = self._held[:size], self._held[size:]
            return piece
        return self._read(size)

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read into a buffer, as `io.BufferedReader` asks.

        Parameters
        ----------
        buffer : writable buffer
            Filled from its beginning.

        Returns
        -------
        int
            Bytes read.
        """
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def unread(self, piece: bytes) -> None:
        """Take back bytes that were read, to be read again.

        Parameters
        ----------
        piece : bytes
            The last bytes read.
        """
        self._held = piece + self._held

    def wait(self) -> Next:
        """Wait for more, where more may come.

        Returns
        -------
        Next
        """
        return Next.END

    def close(self) -> None:
        """Give back the file; a stream of somebody else's stays open."""
        if not self.closed:
            self._close()
        super().close()


class FollowedFile(Opening):
    """A file that grows, as ``tail -F`` follows it: by its name, across rotation and truncation.

    Parameters
    ----------
    path : Path
        The file; awaited where it does not exist yet.
    at : int
        The first byte to read.
    """

    poll_seconds = 0.2

    def __init__(self, path: Path, at: int = 0) -> None:
        self._path = path
        while not path.exists():
            time.sleep(self.poll_seconds)
        self._file = path.open("rb", buffering=0)
        self._file.seek(at)
        super().__init__(lambda size: self._file.read(size) or b"", lambda: self._file.close())

    def wait(self) -> Next:
        """Wait until the file has grown, was emptied, or has given its name to another."""
        while True:
            ours = os.fstat(self._file.fileno())
            if ours.st_size < self._file.tell():
                self._file.seek(0)
                return Next.CUT
            try:
                named: os.stat_result | None = self._path.stat()
            except FileNotFoundError:
                named = None
            # Asked after the name was looked up: what was written before the file lost its name is read first.
            if os.fstat(self._file.fileno()).st_size > self._file.tell():
                return Next.MORE
            if named is not None and not os.path.samestat(ours, named):
                self._file.close()
                self._file = self._path.open("rb", buffering=0)
                return Next.ANEW
            time.sleep(self.poll_seconds)


class Source:
    """A file or a stream of bytes that can be looked at before it is read.

    Parameters
    ----------
    name : str
        The file, or how errors shall call the stream.
    stream : binary file, optional
        Read this instead of a file; it can be read only once, and is never sought in.
    follow : bool
        Whether a file's end is where more is awaited.

    Attributes
    ----------
    name : str
        As given.
    rereadable : bool
        Whether it can be opened again.
    compression : str or None
        What its first bytes tell.
    size : int or None
        Bytes, where they are known.
    followed : bool
        Whether more is awaited at the end.

    Raises
    ------
    TableError
        No such file.
    """

    def __init__(self, name: str, stream: BinaryIO | None = None, *, follow: bool = False) -> None:
        self.name = name
        self.path = Path(name)
        self._given = stream
        if stream is None and (self.path.is_dir() or not (follow or self.path.exists())):
            what = "is a folder" if self.path.is_dir() else "no such file"
            raise TableError(
                f"{name}: {what}; give a CSV, TSV, JSON lines, npy, npz, Parquet or Arrow file, or - for standard input"
            )
        # What is no regular file is a pipe, which waits for more by itself.
        self.rereadable = stream is None and (self.path.is_file() or not self.path.exists())
        self.followed = follow and self.rereadable
        self.compression: str | None = None
        self._pipe = None if self.rereadable else self._piped()
        head = self.peek(lambda head: len(head) >= MAGIC_BYTES or b"\n" in head)
        self.compression = next((kind for kind, magic in _COMPRESSIONS.items() if magic.match(head)), None)
        if self.compression is not None and self.followed:
            raise TableError(f"{name}: compressed files do not grow line by line; leave --follow out, or unpack it")
        if self._pipe is not None and self.compression is not None:
            self._pipe = self._decompressed(self._pipe)
        self.size = self.path.stat().st_size if self.rereadable and self.compression is None else None

    def peek(self, enough: Callable[[bytes], bool]) -> bytes:
        """Look at the beginning without taking it away.

        Parameters
        ----------
        enough : callable
            Whether what was read is enough; asked again after every piece.

        Returns
        -------
        bytes
            The beginning, or all there is.
        """
        head = b""
        with self.opened() as opening:
            while not enough(head):
                if len(head) > LONGEST_LINE:
                    raise TableError(f"{self.name}: a line longer than {LONGEST_LINE} bytes; is this a table?")
                if more := opening.read(READ_BYTES):
                    head += more
                elif (following := opening.wait()) is Next.END:
                    break
                elif following is not Next.MORE:
                    head = b""
            opening.unread(head)
        return head

    def checksum(self, n_bytes: int) -> int:
        """Sum up the first bytes, to tell the file from another.

        Parameters
        ----------
        n_bytes : int
            How many.

        Returns
        -------
        int
        """
        with self.opened(wait=False) as opening:
            return zlib.crc32(io.BufferedReader(opening).read(n_bytes))

    @contextmanager
    def opened(self, at: int = 0, *, wait: bool = True) -> Iterator[Opening]:
        """Open at a byte, counted after decompression.

        Parameters
        ----------
        at : int
            The byte; 0 for a stream, which goes on where it is.
        wait : bool
            Whether more is awaited at the end of a followed file.

        Yields
        ------
        Opening
        """
        with blaming(self.name):
            if self._pipe is not None:
                # Stays open for the next who asks.
                yield self._pipe
                return
            opening = self._open(0 if self.compression else at, wait=wait)
            try:
                if self.compression:
                    opening = self._decompressed(opening)
                    while at and (piece := opening.read(min(at, READ_BYTES))):
                        at -= len(piece)
                yield opening
            finally:
                opening.close()

    def _open(self, at: int, *, wait: bool) -> Opening:
        if self.followed and wait:
            return FollowedFile(self.path, at)
        file = self.path.open("rb", buffering=0)
        file.seek(at)
        return Opening(lambda size: file.read(size) or b"", file.close)

    def _piped(self) -> Opening:
        if self._given is None:
            file = self.path.open("rb", buffering=0)
            return Opening(lambda size: file.read(size) or b"", file.close)
        # Whoever gave the stream closes it.
        return Opening(getattr(self._given, "read1", self._given.read), lambda: None)

    def _decompressed(self, opening: Opening) -> Opening:
        if self.compression in {"zstd", "lz4"}:
            stream = need_pyarrow(self.name).CompressedInputStream(io.BufferedReader(opening), self.compression)
            return Opening(lambda size: stream.read(size), opening.close)
        # These ask for fixed amounts but take what they get, so that nothing waits that has come.
        kinds: dict[str, Any] = {"gz": _gunzip, "bz2": bz2.BZ2File, "xz": lzma.LZMAFile}
        file = kinds[str(self.compression)](opening)
        return Opening(file.read1, opening.close)


def _gunzip(opening: Opening) -> gzip.GzipFile:
    return gzip.GzipFile(fileobj=opening, mode="rb")
