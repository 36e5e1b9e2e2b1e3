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

from streamkpca.cli.tables.columns import TableError, blaming, need_pyarrow

_TOLD_APART_BY = 256


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

    Notes
    -----
    When the name has gone to another file, the old one is read for as long as newer ones are empty: whoever writes may
    learn of the change late. One that has the name for less than `poll_seconds` may go unnoticed. A file that was
    emptied and written again is told by its last bytes read, even where it is longer than before.
    """

    poll_seconds = 0.2

    def __init__(self, path: Path, at: int = 0) -> None:
        self._path = path
        while True:
            try:
                self._file, self._last = path.open("rb", buffering=0), b""
                break
            except FileNotFoundError:
                time.sleep(self.poll_seconds)
        self._file.seek(at)
        # Files that have had the name since, in their order.
        self._newer: list[io.FileIO] = []
        super().__init__(self._read_on, self._close_all)

    def _read_on(self, size: int) -> bytes:
        piece = self._file.read(size) or b""
        self._last = (self._last + piece)[-_TOLD_APART_BY:] if len(piece) < _TOLD_APART_BY else piece[-_TOLD_APART_BY:]
        return piece

    def _close_all(self) -> None:
        for file in (self._file, *self._newer):
            file.close()

    def wait(self) -> Next:
        """Wait until the file has grown, was emptied, or has given its name to another."""
        while True:
            self._look_up()
            # Asked after the name was looked up: what was written before the file lost its name is read first.
            at, size = self._file.tell(), os.fstat(self._file.fileno()).st_size
            if size < at or self._was_written_again(at):
                self._file.seek(0)
                self._last = b""
                return Next.CUT
            if size > at:
                return Next.MORE
            if begun := [i for i, file in enumerate(self._newer) if os.fstat(file.fileno()).st_size]:
                for file in (self._file, *self._newer[: begun[0]]):
                    file.close()
                self._file, self._last, self._newer = self._newer[begun[0]], b"", self._newer[begun[0] + 1 :]
                return Next.ANEW
            time.sleep(self.poll_seconds)

    def _look_up(self) -> None:
        """Open the file that has the name now, if it is another."""
        newest = self._newer[-1] if self._newer else self._file
        try:
            if not os.path.samestat(os.fstat(newest.fileno()), self._path.stat()):
                self._newer.append(self._path.open("rb", buffering=0))
        except FileNotFoundError:
            return

    def _was_written_again(self, at: int) -> bool:
        self._file.seek(at - len(self._last))
        found = self._file.read(len(self._last))
        self._file.seek(at)
        return found != self._last


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
        if stream is None:
            self._check_path(follow)
        elif hasattr(stream, "encoding"):
            raise TableError(f"{name}: expected a stream of bytes but got one of text; give its buffer")
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

    def _check_path(self, follow: bool) -> None:
        what = None
        if self.path.is_dir():
            what = "is a folder"
        elif not self.path.exists() and not (follow and self.path.parent.is_dir()):
            what = "no such folder to wait in for a file" if follow else "no such file"
        if what is not None:
            raise TableError(
                f"{self.name}: {what}; give a CSV, TSV, JSON lines, npy, npz, Parquet or Arrow file, "
                "or - for standard input"
            )

    @property
    def on_disk(self) -> bool:
        """Whether it is a file that can be read from any byte, as it is."""
        return self.rereadable and self.compression is None

    @property
    def size(self) -> int | None:
        """Bytes by now, where they are those that are read."""
        return self.path.stat().st_size if self.on_disk else None

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
        if self._given is not None:
            # Whoever gave the stream closes it.
            return Opening(getattr(self._given, "read1", self._given.read), lambda: None)
        file = self.path.open("rb", buffering=0)

        def read(size: int) -> bytes:
            piece = b"" if file.closed else file.read(size) or b""
            if not piece:
                file.close()
            return piece

        return Opening(read, file.close)

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
