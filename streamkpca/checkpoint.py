"""Checkpoints: a model as a file, written so that no crash can spoil it, and read without trusting it."""

import errno
import io
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from streamkpca._blas import one_blas_thread
from streamkpca.archive import Archive, write_archive
from streamkpca.errors import CheckpointError
from streamkpca.header_fields import HeaderFields
from streamkpca.kernels import Kernel
from streamkpca.soundness import check_stream
from streamkpca.stream import Stream
from streamkpca.stream_records import expected_arrays, kernel_from_record, kernel_record, restored_stream, stream_record
from streamkpca.stream_settings import StreamSettings

FORMAT: Final = "streamkpca stream"
VERSION: Final = 1

# What is half written when a process is killed.
TEMPORARY: Final = ".tmp"


def write_checkpoint(
    file: IO[bytes], parameters: Mapping[str, Any], stream: Stream | None, extra: Any, where: str
) -> None:
    """Write a model.

    Parameters
    ----------
    file : binary file
        Seekable, empty.
    parameters : mapping
        The estimator's, checked.
    stream : Stream or None
    extra : object
        What the caller wants to find again, of what JSON knows.
    where : str
        Who asks, for the error text.

    Raises
    ------
    TypeError, ValueError
        `extra` is no JSON, or too large.
    """
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "stream": None,
        "extra": extra,
    }
    arrays: dict[str, npt.NDArray[Any]] = {}
    if stream is not None:
        header["stream"], arrays = stream_record(stream)
    try:
        write_archive(file, header, arrays)
    except (TypeError, ValueError, RecursionError) as error:
        raise type(error)(
            f"{where}: expected extra to be of what JSON knows (texts, finite numbers, true, false, null, lists, "
            f"dictionaries of texts) but {error}"
        ) from None


def read_checkpoint(
    file: IO[bytes], settings_of: Callable[[dict[str, Any]], StreamSettings], known_kernel: Kernel | None
) -> tuple[dict[str, Any], Stream | None, Any]:
    """Read a model.

    Parameters
    ----------
    file : binary file
        Seekable.
    settings_of : callable
        Checks parameters.
    known_kernel : Kernel or None
        For a kernel with functions of the caller.

    Returns
    -------
    parameters : dict
    stream : Stream or None
        None where no row was seen.
    extra : object

    Raises
    ------
    CheckpointError
        Anything is wrong with it.
    """
    archive = Archive(file)
    header = HeaderFields(archive.header, "header")
    if header.value("format") != FORMAT:
        raise CheckpointError("it is an archive, but no checkpoint of a stream")
    version = header.integer("version", least=1)
    if version > VERSION:
        raise CheckpointError(
            f"its format has version {version}, and this release reads up to {VERSION}; install a later streamkpca"
        )
    given = header.part("parameters")
    parameters = {name: given.value(name) for name in given}
    parameters["kernel"] = _kernel_parameter(given, known_kernel)
    try:
        settings = settings_of(parameters)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"its parameters are refused: {error}") from None
    record = header.optional_part("stream")
    arrays = archive.read(expected_arrays(record) if record else {})
    stream = restored_stream(record, arrays, settings, known_kernel) if record else None
    if stream is not None:
        with one_blas_thread(), np.errstate(all="ignore"):
            check_stream(stream)
    return parameters, stream, header.value("extra")


def write_durably(path: str | os.PathLike[str], write: Callable[[IO[bytes]], None]) -> None:
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
        The disk is full, the folder read-only, ...; the old file is untouched then.

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
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def checkpoint_bytes(write: Callable[[IO[bytes]], None]) -> bytes:
    """Return what `write` writes."""
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


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


def _plain(value: Any) -> Any:
    """Turn a parameter into what JSON knows."""
    if isinstance(value, Kernel):
        return {"expression": kernel_record(value)}
    return value.item() if isinstance(value, np.generic) else value


def _kernel_parameter(parameters: HeaderFields, known_kernel: Kernel | None) -> Kernel | str:
    name = parameters.value("kernel")
    if isinstance(name, str):
        return name
    return kernel_from_record(parameters.part("kernel").optional_text("expression"), known_kernel)
