"""Checkpoints: a model as an archive of arrays and a JSON text, read without trusting it."""

import io
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from streamkpca._core.blas import one_blas_thread
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Kernel
from streamkpca.stream.checkpoint.archive import Archive, write_archive
from streamkpca.stream.checkpoint.checks import check_stream
from streamkpca.stream.checkpoint.codec import (
    expected_arrays,
    kernel_from_record,
    kernel_record,
    restored_stream,
    stream_record,
)
from streamkpca.stream.checkpoint.header import HeaderFields
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import Stream

FORMAT: Final = "streamkpca stream"
VERSION: Final = 1


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
            if stream.published is not None:
                stream.published.ready()
    return parameters, stream, header.value("extra")


def checkpoint_bytes(write: Callable[[IO[bytes]], None]) -> bytes:
    """Return what `write` writes."""
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


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
