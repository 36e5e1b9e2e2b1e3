"""Where a table's bytes come from: a file, a pipe, either of them compressed, or a file that grows.

`Source` is what a table holds: it can be examined before it is read, and opened as often as its kind allows. Opening it
gives a `ByteStream`, which returns bytes as soon as they arrive. `FollowedFile` is the stream of a file that grows.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from streamkpca.cli.tables.columns import TableError, need_pyarrow, reading_errors

READ_BYTES = 1 << 20
LONGEST_LINE = 1 << 26
MAGIC_BYTES = 10
# A followed file that was rewritten is recognised by its last bytes read.
_TAIL_BYTES = 256
_MOST_OLDER = 4

# Takes a line for the user.
Tell = Callable[[str], object]

_COMPRESSIONS = {
    "gz": re.compile(rb"\x1f\x8b"),
    # A column name may begin with these three letters, but not with the bytes that follow them here.
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}


class AtEnd(Enum):
    """What follows where a stream has no more bytes for now."""

    END = "nothing"
    MORE = "more of the same file"
    NEW_FILE = "another file of the same name, from its beginning"
    TRUNCATED = "the same file, from its beginning: it was emptied"


class ByteStream(io.RawIOBase):
    """The bytes of a source, returned as they arrive instead of waiting for a full read.

    `read` takes the largest number of bytes to return and returns none at the end; `close` releases what is read.
    """

    def __init__(self, read: Callable[[int], bytes], close: Callable[[], None]) -> None:
        self._read, self._close, self._held = read, close, b""

    def readable(self) -> bool:
        """Return True: every stream of a source can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes, as many as are there; none at the end."""
        if size < 0:
            return self.readall()
        if self._held:
            piece, self._held = self._held[:size], self._held[size:]
            return piece
        return self._read(size)

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read into the beginning of a buffer and return the number of bytes, as `io.BufferedReader` asks."""
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def unread(self, piece: bytes) -> None:
        """Put back the last bytes read, to be read again."""
        self._held = piece + self._held

    def wait(self) -> AtEnd:
        """Wait for more bytes, if the stream can grow, and tell what comes next."""
        return AtEnd.END

    def close(self) -> None:
        """Release what is read; a stream that the caller gave stays open."""
        if not self.closed:
            self._close()
        super().close()


class FollowedFile(ByteStream):
    """A file that grows, followed by its name across rotation and truncation as ``tail -F`` does.

    Parameters
    ----------
    path : Path
        The file; the constructor waits until it exists.
    at : int
        The first byte to read.
    tell : callable
        Takes a line for the user whenever rows may have been lost, or the name is of no use for a while.

    Notes
    -----
    When the name has passed to another file, the old one is read as long as newer ones are empty: its writer may learn
    of the change late. A file that has the name for less than `poll_seconds` may go unnoticed; it is told if it is
    found under another name. A file that was emptied and rewritten is recognised by the last bytes read, even if it is
    longer than before.
    """

    poll_seconds = 0.2

    def __init__(self, path: Path, at: int = 0, tell: Tell = lambda line: None) -> None:
        self._path, self._tell = path, tell
        # Files that have had the name since the one that is read, in order.
        self._newer: list[BinaryIO] = []
        # The files before it, whose writers may be late, with their sizes when they were left.
        self._older: deque[tuple[BinaryIO, int]] = deque()
        self._known: set[tuple[int, int]] = set()
        self._trouble = ""
        while (file := self._open()) is None:
            time.sleep(self.poll_seconds)
        self._file, self._tail = file, b""
        super().__init__(self._read_on, self._close_all)
        self.seek_to(at)

    def seek_to(self, at: int) -> None:
        """Go on reading at a byte of the file."""
        self._held = b""
        self._file.seek(max(at - _TAIL_BYTES, 0))
        self._tail = self._file.read(min(at, _TAIL_BYTES))
        self._file.seek(at)

    @property
    def position(self) -> int:
        """The byte of the file to be read next."""
        return self._file.tell() - len(self._held)

    def is_current(self) -> bool:
        """Whether the file that is read has the name."""
        try:
            return not self._newer and os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except OSError:
            return False

    def _open(self) -> BinaryIO | None:
        """Open the file that has the name; None, told once, if it is absent, no file or not ours to read."""
        trouble = ""
        try:
            # A pipe of that name would otherwise be waited for.
            descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            return None
        except OSError as error:
            trouble = error.strerror or str(error)
        else:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                self._trouble = ""
                self._known.add((found.st_ino, found.st_dev))
                return os.fdopen(descriptor, "rb", buffering=0)
            os.close(descriptor)
            trouble = "it is a folder now" if stat.S_ISDIR(found.st_mode) else "it is no regular file now"
        if trouble != self._trouble:
            self._trouble = trouble
            self._tell(f"{self._path}: cannot be followed ({trouble}); waiting for a file of that name")
        return None

    def _read_on(self, size: int) -> bytes:
        """Read on from the present byte; nothing, if the file was emptied or rewritten since the last look.

        The bytes before it are read again in the same call. Checked before, they could be replaced between the check
        and the reading, and the middle of a new line would then pass for the end of an old one.
        """
        at, tail = self._file.tell(), self._tail
        self._file.seek(at - len(tail))
        found = self._file.read(len(tail) + size) or b""
        if not found.startswith(tail):
            self._file.seek(at)
            return b""
        self._tail = found[-_TAIL_BYTES:]
        return found[len(tail) :]

    def _close_all(self) -> None:
        for file in (self._file, *self._newer, *(file for file, _ in self._older)):
            file.close()

    def wait(self) -> AtEnd:
        """Wait until the file grows, is emptied, or loses its name to another file that has bytes."""
        while True:
            self._open_newest()
            # The size is read after the name: what was written before the file lost its name must come first.
            at, size = self._file.tell(), os.fstat(self._file.fileno()).st_size
            if size < at or self._was_rewritten(at):
                self._tell(
                    f"{self._path}: was emptied after byte {at:,} had been read; what was written in the "
                    f"{self.poll_seconds:g} s before that may be lost"
                )
                self._file.seek(0)
                self._tail = b""
                return AtEnd.TRUNCATED
            if size > at:
                return AtEnd.MORE
            self._tell_late_bytes()
            if begun := [i for i, file in enumerate(self._newer) if os.fstat(file.fileno()).st_size]:
                self._tell_missed()
                for file in (self._file, *self._newer[: begun[0]]):
                    self._older.append((file, os.fstat(file.fileno()).st_size))
                while len(self._older) > _MOST_OLDER:
                    self._forget(self._older.popleft()[0])
                self._file, self._tail, self._newer = self._newer[begun[0]], b"", self._newer[begun[0] + 1 :]
                return AtEnd.NEW_FILE
            time.sleep(self.poll_seconds)

    def _open_newest(self) -> None:
        """Open the file that has the name now, if it is a new one."""
        newest = self._newer[-1] if self._newer else self._file
        with suppress(OSError):
            if os.path.samestat(os.fstat(newest.fileno()), self._path.stat()):
                return
        file = self._open()
        if file is None:
            return
        if os.path.samestat(os.fstat(newest.fileno()), os.fstat(file.fileno())):
            file.close()
        else:
            self._newer.append(file)

    def _forget(self, file: BinaryIO) -> None:
        # Its identity may soon be that of a file of its own.
        found = os.fstat(file.fileno())
        self._known.discard((found.st_ino, found.st_dev))
        file.close()

    def _was_rewritten(self, at: int) -> bool:
        self._file.seek(at - len(self._tail))
        found = self._file.read(len(self._tail))
        self._file.seek(at)
        return found != self._tail

    def _tell_late_bytes(self) -> None:
        """Tell if a file has grown after a newer one was read on."""
        for i, (file, size) in enumerate(self._older):
            if (now := os.fstat(file.fileno()).st_size) > size:
                self._older[i] = file, now
                self._tell(
                    f"{self._path}: {now - size:,} bytes were written to an earlier file of that name after a newer "
                    "one had begun; they are not read"
                )

    def _tell_missed(self) -> None:
        """Tell of rotated files that had the name between two looks."""
        last = os.fstat(self._file.fileno()).st_mtime_ns
        name = re.escape(self._path.name)
        numbered = rf"{re.escape(self._path.stem)}[._-]?\d[\d._T-]*({re.escape(self._path.suffix)})?"
        rotated = re.compile(rf"{name}[._-].+|{numbered}")
        with suppress(OSError):
            for entry in sorted(os.scandir(self._path.parent), key=lambda entry: entry.name):
                if not rotated.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                found = entry.stat(follow_symlinks=False)
                identity = (found.st_ino, found.st_dev)
                # An earlier copy was written before the file that is left now.
                if found.st_size and found.st_mtime_ns > last and identity not in self._known:
                    self._known.add(identity)
                    self._tell(
                        f"{entry.path}: had the name {self._path.name} for less than {self.poll_seconds:g} s and was "
                        "not read"
                    )


def read_fully(stream: ByteStream, n_bytes: int) -> bytes:
    """Read up to `n_bytes`, fewer at the end."""
    found = b""
    while len(found) < n_bytes and (piece := stream.read(n_bytes - len(found))):
        found += piece
    return found


def _is_file_or_absent(path: Path) -> bool:
    """Tell by one look whether a path is a regular file or nothing: a log may be rotated between two."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


class Source:
    """A file or a stream of bytes that can be examined before it is read.

    Parameters
    ----------
    name : str
        The file, or the name of the stream in errors.
    stream : binary file, optional
        Read this instead of a file. It can be read only once; `seek` is never called on it.
    follow : bool
        Whether to wait for more bytes at the end of a file.
    tell : callable
        Takes what the user should know while a file is followed.

    Notes
    -----
    `rereadable` tells whether it can be opened again, `compression` what its first bytes show, and `followed` whether
    reading waits for more bytes at the end.
    """

    def __init__(
        self, name: str, stream: BinaryIO | None = None, *, follow: bool = False, tell: Tell = lambda line: None
    ) -> None:
        self.name = name
        self.path = Path(name)
        self.tell = tell
        self._given = stream
        if stream is None:
            self._check_path(follow)
        elif hasattr(stream, "encoding"):
            raise TableError(f"{name}: expected a stream of bytes but got one of text; give its buffer")
        # Anything but a regular file is read as a pipe, which waits for more by itself.
        self.rereadable = stream is None and _is_file_or_absent(self.path)
        self.followed = follow and self.rereadable
        self.compression: str | None = None
        self._pipe = None if self.rereadable else self._open_pipe()
        # Kept from the first look on: the file may lose its name before its rows are read.
        self._following: FollowedFile | None = None
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
            what = "neither the file nor its folder exists" if follow else "no such file"
        if what is not None:
            raise TableError(
                f"{self.name}: {what}; give a CSV, TSV, JSON lines, npy, npz, Parquet or Arrow file, "
                "or - for standard input"
            )

    @property
    def on_disk(self) -> bool:
        """Whether it is an uncompressed file, which can be read from any byte."""
        return self.rereadable and self.compression is None

    @property
    def size(self) -> int | None:
        """Current size in bytes; None if the bytes read are not those of a file."""
        return self.path.stat().st_size if self.on_disk else None

    def peek(self, enough: Callable[[bytes], bool]) -> bytes:
        """Return the beginning without consuming it; `enough` is asked after every read whether it suffices."""
        head = b""
        with self.opened(keep=True) as stream:
            while not enough(head):
                if len(head) > LONGEST_LINE:
                    raise TableError(
                        f"{self.name}: a line is longer than {LONGEST_LINE} bytes; check that this is a table"
                    )
                if more := stream.read(READ_BYTES):
                    head += more
                elif (following := stream.wait()) is AtEnd.END:
                    break
                elif following is not AtEnd.MORE:
                    head = b""
            stream.unread(head)
        return head

    def beginning(self, n_bytes: int) -> bytes:
        """Return the first bytes, which tell the file from another."""
        with self.opened(wait=False) as stream:
            return read_fully(stream, n_bytes)

    @contextmanager
    def opened(self, at: int = 0, *, wait: bool = True, keep: bool = False) -> Iterator[ByteStream]:
        """Open at a byte, counted after decompression.

        A pipe ignores `at` and continues where it is. `wait` tells whether a followed file waits for more at its end,
        and `keep` whether it is to be read on later.
        """
        with reading_errors(self.name):
            if self._pipe is not None:
                # A pipe stays open for later reads.
                yield self._pipe
                return
            if self.followed and wait:
                try:
                    yield self._follow(at)
                finally:
                    if not keep and self._following is not None:
                        self._following.close()
                        self._following = None
                return
            stream = self._open_file(0 if self.compression else at)
            try:
                if self.compression:
                    stream = self._decompressed(stream)
                    while at and (piece := stream.read(min(at, READ_BYTES))):
                        at -= len(piece)
                yield stream
            finally:
                stream.close()

    def _follow(self, at: int) -> FollowedFile:
        """Follow the file on from where it was looked at, or from a byte of the file that has the name now."""
        kept = self._following
        if kept is not None and kept.position != at:
            if kept.is_current():
                kept.seek_to(at)
            else:
                kept.close()
                kept = None
        if kept is None:
            kept = FollowedFile(self.path, at, self.tell)
        self._following = kept
        return kept

    def _open_file(self, at: int) -> ByteStream:
        file = self.path.open("rb", buffering=0)
        file.seek(at)
        return ByteStream(lambda size: file.read(size) or b"", file.close)

    def _open_pipe(self) -> ByteStream:
        if self._given is not None:
            # The caller closes the stream that it gave.
            return ByteStream(getattr(self._given, "read1", self._given.read), lambda: None)
        file = self.path.open("rb", buffering=0)

        def read(size: int) -> bytes:
            piece = b"" if file.closed else file.read(size) or b""
            if not piece:
                file.close()
            return piece

        return ByteStream(read, file.close)

    def _decompressed(self, stream: ByteStream) -> ByteStream:
        if self.compression in {"zstd", "lz4"}:
            unpacked = need_pyarrow(self.name).CompressedInputStream(io.BufferedReader(stream), self.compression)
            # pyarrow's `read` never frees the bytes that it was to fill if it fails.
            return ByteStream(lambda size: unpacked.read_buffer(size).to_pybytes(), stream.close)
        # These ask for fixed amounts but accept fewer bytes, so that no data that has arrived is held back.
        file: Any
        if self.compression == "gz":
            file = gzip.GzipFile(fileobj=stream, mode="rb")
        else:
            file = {"bz2": bz2.BZ2File, "xz": lzma.LZMAFile}[str(self.compression)](stream)
        return ByteStream(file.read1, stream.close)
