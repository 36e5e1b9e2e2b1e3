"""Files: a regular one is replaced as a whole or not at all, and one process at a time may hold the lock on one."""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from typing import IO, Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

FileName = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# The suffix of files that are being written, or were when a process was killed.
TEMPORARY: Final = ".tmp"
# Rights of a new file: those of one with rows of the data, and those from which the umask takes some away.
PRIVATE: Final = 0o600
SHARED: Final = 0o666


@contextmanager
def replace_file(path: FileName, *, mode: int = PRIVATE) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of the one at `path`, unless an error ends the with statement.

    Either the old or the new file is there, whole, whatever happens. The file at the end of a link is replaced, and a
    file that is replaced keeps its rights; `mode` holds those of a new one. A device or a FIFO is written into.
    """
    name = os.fsdecode(path)
    found = _check_target(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        with open(name, "wb") as stream:
            yield stream
        return
    target = os.path.realpath(name)
    folder, last = os.path.split(target)
    mark = os.path.join(folder, f".{sha256(os.fsencode(last)).hexdigest()[:16]}.")
    _remove_stale(mark)
    try:
        with _create_locked(mark, mode if found is None else PRIVATE) as (file, temporary):
            try:
                yield file
                file.flush()
                if found is not None and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
                os.fsync(file.fileno())
                if os.name == "nt":
                    # Open files cannot be renamed there. Elsewhere the lock lasts until the file is in its place.
                    file.close()
                os.replace(temporary, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
    except OSError as error:
        if not str(error.filename or mark).startswith(mark):
            raise
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from None
    _flush_folder(folder)


def _check_target(path: FileName) -> os.stat_result | None:
    """Refuse, before anything is written, a file that cannot be replaced; return the state of what is there."""
    name = os.fspath(path)
    try:
        found = os.stat(name)
    except FileNotFoundError:
        if not os.path.basename(name):
            raise
        found = None
    if found is not None and not os.access(name, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), name)
    return found


@contextmanager
def _create_locked(mark: str, mode: int) -> Iterator[tuple[IO[bytes], str]]:
    """Create a file, and yield it with its name, that no other process takes for one that was left behind."""
    while True:
        name = f"{mark}{secrets.token_hex(8)}{TEMPORARY}"
        with open(name, "x+b", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            # Another process may have removed it before it was locked.
            if try_lock(file.fileno()) is not False and os.path.exists(name):
                yield file, name
                return


def _remove_stale(mark: str) -> None:
    """Remove what killed processes left of a file whose temporary names begin with `mark`; errors are ignored."""
    folder, start = os.path.split(mark)
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(start) and name.endswith(TEMPORARY):
                path = os.path.join(folder, name)
                with suppress(OSError), open(path, "r+b") as file:
                    if try_lock(file.fileno()):
                        os.unlink(path)


def _flush_folder(folder: str) -> None:
    """Flush a folder's entries to the disk; not every system can, and the file is in its place already."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def lock_folder(folder: FileName) -> Iterator[None]:
    """Hold the lock on a folder once no other process does; go on without one where folders cannot be locked."""
    with ExitStack() as stack:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            if sys.platform != "win32":
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file or folder until it is closed, or the process ends.

    False if another process holds the lock, or another open file of this one; None where the file system knows none.
    """
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        is_held = error.errno == (errno.EACCES if sys.platform == "win32" else errno.EWOULDBLOCK)
        return False if is_held else None
    return True
