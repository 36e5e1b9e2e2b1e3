"""A folder that one process writes."""

import sys
from pathlib import Path
from typing import IO

_NAME = "lock"


def lock_folder(folder: Path) -> IO[bytes] | None:
    """Return an open file that locks a folder until it is closed, or the process ends; None if another holds it."""
    file = open(folder / _NAME, "ab")
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
