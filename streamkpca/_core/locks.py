"""Files and folders that one process at a time may write."""

import errno
import sys
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_NAME = "lock"


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file or folder until it is closed, or the process ends.

    False if another process holds the lock, or another open file of this one; None where locks are unknown, as on some
    network file systems.
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


def lock_folder(folder: Path) -> IO[bytes] | None:
    """Return an open file that locks a folder until it is closed, or the process ends; None if another holds it."""
    file = open(folder / _NAME, "ab")
    if try_lock(file.fileno()) is False:
        file.close()
        return None
    return file
