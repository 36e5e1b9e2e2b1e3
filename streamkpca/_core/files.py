"""Write files: a regular one is replaced as a whole or not at all, and a device or a pipe is written into."""

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, Final

from streamkpca._core.locks import try_lock

FileName = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# The suffix of files that were half written when a process was killed.
TEMPORARY: Final = ".tmp"
_TEMPORARY_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}" + re.escape(TEMPORARY), re.DOTALL)
_LONGEST_NAME = 255

# Rights of a new file: those of one with rows of the data, whatever the umask, and those from which it takes some away.
PRIVATE: Final = 0o600
SHARED: Final = 0o666

# Linux gives up after as many.
_MOST_LINKS = 40
_OWN_DESCRIPTORS = ("/proc/self/fd", "/dev/fd")
_NO_NEW_FILE = "no file can be created in its folder"
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_READER_SECONDS = 5.0
# Larger contents for a device or a pipe go through a file.
_LARGEST_IN_MEMORY = 2**26

_ACL = "system.posix_acl_access"
# A file that is replaced keeps these. Capabilities and signatures belong to contents, which change.
_KEPT_ATTRIBUTES = ("user.", _ACL, "security.selinux")
# What file systems raise that do not know owners, rights, attributes or the flushing of folders.
_UNSUPPORTED = {errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.ENODATA}


def write_durably(path: FileName, write: Callable[[IO[bytes]], object], *, mode: int = PRIVATE) -> None:
    """Write a file so that either the old or the new one is there, whole, whatever happens.

    `write` gets an empty file that it can write, read and seek in. A link stays a link: the file that it points to is
    replaced. Character devices and pipes (FIFOs, descriptors such as ``/dev/stdout``) are written into. `mode` holds
    the rights of a new file: `PRIVATE`, or `SHARED` less what the umask takes away.

    Raises
    ------
    OSError
        The disk is full, the folder is read-only, the path names a folder, a socket, a block device or a file without
        write permission, nothing reads the FIFO, ...; the old file is then untouched. If only the folder cannot be
        flushed to the disk, the new file is in place, but after a power cut either of the two may be found.
    ValueError
        No file can have this name.

    Notes
    -----
    The contents go to a temporary file in the same folder, which is flushed to the disk and renamed to the target;
    then the folder is flushed too. A process killed in the meantime leaves the temporary file behind.

    An existing file keeps its rights, and as far as the system allows its owner, group, access control list and
    extended attributes. If its group or list cannot be kept, the new group gets the rights of all others. Other hard
    links keep the old contents.
    """
    stream = open_stream(path)
    if stream is None:
        with Replacement(path, mode=mode) as file:
            write(file)
        return
    with _naming(path, None), stream, tempfile.SpooledTemporaryFile(_LARGEST_IN_MEMORY) as whole:
        # Neither can be read back.
        write(whole)
        whole.seek(0)
        shutil.copyfileobj(whole, stream)


def check_target(path: FileName) -> None:
    """Raise what `write_durably` would, as far as that is known before anything is written."""
    name = checked_name(path)
    with _naming(path):
        target = _followed(name)
        if isinstance(target, int) or _is_stream(name):
            return
        _existing(target)
        folder = os.path.dirname(target) or os.curdir
        os.stat(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, _NO_NEW_FILE)


def open_stream(path: FileName) -> IO[bytes] | None:
    """Open a character device, a FIFO or an own descriptor for writing; None if the path is that of a regular file.

    A FIFO is given some seconds until a process reads it.
    """
    name = checked_name(path)
    with _naming(path):
        target = _followed(name)
        if isinstance(target, int):
            # Opened by its name, a file to which the shell appends standard output would be truncated.
            descriptor = target
            return open(name, "wb", opener=lambda *_: os.dup(descriptor))
        return open(name, "wb", opener=lambda *_: _opened_stream(name)) if _is_stream(name) else None


class Replacement:
    """A file that takes the place of another at the end of a with statement, unless an error ends it.

    For `path` and `mode` see `write_durably`; the path must be that of a regular file. The with statement yields the
    new file, empty. Clear `is_wanted` to leave the old one.
    """

    def __init__(self, path: FileName, *, mode: int = PRIVATE) -> None:
        self.is_wanted = True
        self._path = path
        self._mode = mode

    def __enter__(self) -> IO[bytes]:
        name = checked_name(self._path)
        with _naming(self._path):
            target = _followed(name)
            # `open_stream` opens descriptors.
            assert isinstance(target, str)
            self._target = target
            self._found = _existing(target)
            if self._found is None and target != name and os.path.exists(name) and not os.path.lexists(target):
                raise OSError(errno.EINVAL, "the file was deleted, so it has no name any more")
            self._folder, last = os.path.split(target)
            shown = stand_in(self._folder, last)
            while True:
                self._temporary = os.path.join(self._folder, f".{shown}.{secrets.token_hex(8)}{TEMPORARY}")
                try:
                    self._file = open(self._temporary, "x+b", opener=self._created)
                    if _is_marked(self._file.fileno()):
                        return self._file
                    self._file.close()
                except BaseException as error:
                    self._remove()
                    if isinstance(error, FileNotFoundError) and self._found:
                        # As in /proc.
                        raise OSError(errno.EPERM, _NO_NEW_FILE) from None
                    raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_replaced = False
        try:
            if kind is None and self.is_wanted:
                with _naming(self._path):
                    self._commit()
                is_replaced = True
        finally:
            if not is_replaced:
                # A second failure of the disk must not hide the first.
                with suppress(OSError):
                    self._file.close()
                self._remove()
        if is_replaced:
            with _naming(self._path):
                _sync_folder(self._folder or os.curdir)
        elif isinstance(error, OSError) and error.filename in (None, self._temporary):
            _name(error, self._path)

    def _created(self, name: str, flags: int) -> int:
        # Until it is complete, nobody may read it who could not read the old file.
        return os.open(name, flags, self._mode if self._found is None else PRIVATE)

    def _commit(self) -> None:
        self._file.flush()
        descriptor = self._file.fileno()
        # Its rights may have changed meanwhile, or it may be a folder now.
        found = _existing(self._target)
        if found is not None:
            _take_over(descriptor, self._target, found)
        elif self._mode == PRIVATE:
            _change_mode(descriptor, PRIVATE)
        os.fsync(descriptor)
        if sys.platform == "win32":
            # Open files cannot be renamed there. Elsewhere the lock lasts until the file is in its place.
            self._file.close()
        os.replace(self._temporary, self._target)
        self._file.close()

    def _remove(self) -> None:
        with suppress(OSError):
            os.unlink(self._temporary)


def stand_in(folder: str, name: str) -> str:
    """Return what stands for a file in the names of its temporary files: its name, or a digest of a long one."""
    longest = _LONGEST_NAME
    if hasattr(os, "pathconf"):
        with suppress(OSError, ValueError):
            longest = os.pathconf(folder or os.curdir, "PC_NAME_MAX")
    encoded = os.fsencode(name)
    # Two dots and 16 random digits.
    is_long = len(encoded) + 18 + len(TEMPORARY) > longest
    return hashlib.sha256(encoded).hexdigest()[:32] if is_long else name


def remove_leftovers(path: FileName) -> None:
    """Remove half-written files of killed processes that wrote this file; errors are ignored."""
    # A folder that cannot be listed may still take the file.
    with suppress(OSError):
        target = _followed(checked_name(path))
        if isinstance(target, str):
            folder, name = os.path.split(target)
            remove_leftovers_in(folder or os.curdir, lambda found: found == stand_in(folder, name))


def remove_leftovers_in(folder: str | os.PathLike[str], is_ours: Callable[[str], bool]) -> None:
    """Remove half-written files of killed processes; `is_ours` knows what stands for the files that they wrote."""
    for name in os.listdir(folder):
        found = _TEMPORARY_NAME.fullmatch(name)
        if found and is_ours(found[1]):
            _remove_unmarked(os.path.join(folder, name))


def checked_name(path: FileName) -> str:
    """Return a path as text, if files can have such names."""
    name = os.fsdecode(path)
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise ValueError(f"expected the name of a file but got {path!r}: {error.reason}") from None
    if "\0" in name:
        raise ValueError(f"expected the name of a file but got {path!r}, which holds a NUL character")
    return name


def _followed(name: str) -> str | int:
    """Follow links to where a file is or will be, or to the number of an own descriptor, as of /dev/stdout."""
    for _ in range(_MOST_LINKS):
        folder, last = os.path.split(name)
        if last in ("", os.curdir, os.pardir):
            with suppress(FileNotFoundError):
                os.stat(name)
            raise OSError(errno.EISDIR if name else errno.ENOENT, os.strerror(errno.EISDIR if name else errno.ENOENT))
        if last.isdecimal() and os.path.realpath(folder) in map(os.path.realpath, _OWN_DESCRIPTORS):
            return int(last)
        try:
            if not stat.S_ISLNK(os.lstat(name).st_mode):
                return name
        except FileNotFoundError:
            return name
        name = os.path.join(folder, os.readlink(name))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_stream(name: str) -> bool:
    """Tell whether something is there that is written into; refuse what is no file at all."""
    try:
        found = os.stat(name).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISCHR(found) or stat.S_ISFIFO(found):
        return True
    _check_regular(found)
    return False


def _existing(target: str) -> os.stat_result | None:
    """Return the state of a regular file that may be written, None if there is none."""
    try:
        _check_regular(os.lstat(target).st_mode)
        # More exact than os.access: it knows lists of rights, immutable files, and the user that counts.
        descriptor = os.open(target, os.O_WRONLY | _NO_WAIT | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _check_regular(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    kinds = {stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a block device", stat.S_IFLNK: "a link"}
    what = kinds.get(stat.S_IFMT(mode), "something else")
    raise OSError(errno.EINVAL, f"expected a regular file, a FIFO or a character device but got {what}")


def _opened_stream(name: str) -> int:
    """Open a character device or a FIFO, whose reader may come a little later."""
    deadline = time.monotonic() + _READER_SECONDS
    while True:
        try:
            # Without waiting: a FIFO without a reader would keep the process for ever.
            descriptor = os.open(name, os.O_WRONLY | _NO_WAIT | getattr(os, "O_NOCTTY", 0))
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(name).st_mode):
                raise
            if time.monotonic() >= deadline:
                what = f"a FIFO that no process has opened for reading in {_READER_SECONDS:g} s"
                raise OSError(errno.ENXIO, what) from None
        time.sleep(0.02)
    if _NO_WAIT:
        os.set_blocking(descriptor, True)
    return descriptor


def _take_over(descriptor: int, target: str, found: os.stat_result) -> None:
    """Give a new file the owner, rights and attributes of the one that it replaces, but nobody more rights."""
    mode, own = stat.S_IMODE(found.st_mode), os.fstat(descriptor)
    if hasattr(os, "fchown") and (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
        for owner in (found.st_uid, -1):
            with _where_supported():
                os.fchown(descriptor, owner, found.st_gid)
                break
        own = os.fstat(descriptor)
    has_same_list = _copy_attributes(descriptor, target)
    if own.st_uid != found.st_uid:
        mode &= 0o777
    if own.st_gid != found.st_gid or not has_same_list:
        mode = mode & 0o707 | (mode & 0o007) << 3
    _change_mode(descriptor, mode)


def _copy_attributes(descriptor: int, target: str) -> bool:
    """Copy extended attributes; return whether both files have the same access control list."""
    if not hasattr(os, "listxattr"):
        return True
    has_same_list = True
    with _where_supported():
        kept = {name for name in os.listxattr(target) if name.startswith(_KEPT_ATTRIBUTES)}
        if _ACL in os.listxattr(descriptor) and _ACL not in kept:
            # From the folder, for new files.
            os.removexattr(descriptor, _ACL)
        has_same_list = _ACL not in kept
        for name in kept:
            with _where_supported():
                os.setxattr(descriptor, name, os.getxattr(target, name))
                has_same_list |= name == _ACL
    return has_same_list


def _change_mode(descriptor: int, mode: int) -> None:
    if hasattr(os, "fchmod"):
        with _where_supported():
            os.fchmod(descriptor, mode)


@contextmanager
def _where_supported() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


@contextmanager
def _naming(path: FileName, *own: str | None) -> Iterator[None]:
    """Name in errors the path that the caller gave: in all, or only in those that name one of `own`."""
    try:
        yield
    except OSError as error:
        if not own or error.filename in own:
            _name(error, path)
        raise


def _name(error: OSError, path: FileName) -> None:
    if error.errno is not None:
        error.filename = os.fspath(path)
        del error.filename2


def _is_marked(descriptor: int) -> bool:
    """Mark a new file as being written until it is closed; False if another process has just removed it."""
    if sys.platform == "win32":
        return True
    is_locked = try_lock(descriptor)
    return os.fstat(descriptor).st_nlink > 0 if is_locked else is_locked is None


def _remove_unmarked(path: str) -> None:
    """Remove a file unless a living process writes it, or one of another user might."""
    if sys.platform == "win32":
        os.unlink(path)
        return
    try:
        # Network file systems lock only what may be written.
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | _NO_WAIT)
    except OSError:
        return
    try:
        # The lock lasts until the file is gone: its writer could mark it in between.
        with suppress(FileNotFoundError):
            if _is_marked(descriptor):
                os.unlink(path)
    finally:
        os.close(descriptor)


def _sync_folder(folder: str) -> None:
    """Flush a folder's entries to the disk, where the operating system supports it."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        # Files can be written to a folder that cannot be read.
        return
    try:
        with _where_supported():
            # Some network file systems do not support it.
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
