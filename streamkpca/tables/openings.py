"""Bytes as they come: from a file, a pipe, or a file that grows."""

import io
import os
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

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
