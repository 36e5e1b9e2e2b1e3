"""Replace a file as a whole or not at all, whatever happens during the writing."""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

# The suffix of files that were half written when a process was killed.
TEMPORARY: Final = ".tmp"


def write_durably(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Replace a file so that either the old or the new one is there, whole, whatever happens.

    A link stays a link: the file that it points to is replaced.

    Raises
    ------
    OSError
        The disk is full, the folder is read-only, ...; the old file is then untouched. If only the folder cannot be
        flushed to the disk, the new file is in place, but after a power cut either of the two may be found.

    Notes
    -----
    The contents go to a temporary file in the same folder, which is flushed to the disk and renamed to the target;
    then the folder is flushed too. A process killed in the meantime leaves the temporary file behind.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{TEMPORARY}")
    try:
        with temporary.open("x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        # A second failure of the disk must not hide the first.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, where the operating system supports it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not support it.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
