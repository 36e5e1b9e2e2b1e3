"""Where bytes come from: a file, a pipe, either of them compressed, or a file that grows."""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from streamkpca.tables.errors import TableError, blaming, need_pyarrow
from streamkpca.tables.openings import FollowedFile, Next, Opening

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
