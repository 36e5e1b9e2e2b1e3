"""Files that are whole, whatever happens while they are written."""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

# What is half written when a process is killed.
TEMPORARY: Final = ".tmp"


def write_durably(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Replace a file by another so that, whatever happens, one of the two is there, whole.

    Parameters
    ----------
    path : path-like
        A link stays one: what it points to is replaced.
    write : callable
        Writes the contents.

    Raises
    ------
    OSError
        The disk is full, the folder read-only, ...; the old file is untouched then. Where all went well but the folder
        cannot be brought to the disk, the new one is in its place, and either may be found after a power cut.

    Notes
    -----
    A temporary file in the same folder is written and brought to the disk, takes the place of the old one, and the
    folder is brought to the disk. A process that is killed meanwhile leaves the temporary file behind.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{TEMPORARY}")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        # A disk that fails now would hide what was wrong.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk, where the system knows such a thing."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
