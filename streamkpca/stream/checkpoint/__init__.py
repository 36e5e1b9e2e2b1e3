"""Checkpoints: a model as an archive of arrays and a JSON header, read without trusting it.

`docs/checkpoint-format.md` describes the files.

members : where the members of an uncompressed zip archive are
archive : the file format, such an archive of arrays in numpy's npy format, and of the header
header : entries of the JSON header, each checked as it is read
codec : a stream as a header and arrays, and back
checks : whether the parts of a stream that was read agree with each other

An array is added in three files: in the class that holds it, in `codec` (where it is written, expected and restored;
an array of a snapshot is one line of `_SNAPSHOT`), and in `checks`. Keys in the file never change, whatever fields are
renamed to.
"""

import io
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import one_blas_thread
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Kernel
from streamkpca.stream.checkpoint.archive import Archive, check_data, write_archive
from streamkpca.stream.checkpoint.checks import check_stream
from streamkpca.stream.checkpoint.codec import (
    FORMAT,
    VERSION,
    StoredKernels,
    expected_arrays,
    kernel_record,
    restored_stream,
    stream_record,
)
from streamkpca.stream.checkpoint.header import HeaderFields
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import State


def write_checkpoint(
    file: IO[bytes], parameters: Mapping[str, Any], stream: State | None, extra: Any, where: str
) -> None:
    """Write checked parameters, a stream, and the caller's JSON data `extra` to an empty seekable file.

    Raises TypeError or ValueError if JSON cannot express `extra`, or it is too large; `where` begins their text.
    """
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "parameters": {
            # What earlier releases do not know is left out where it changes nothing.
            name: _plain(value)
            for name, value in parameters.items()
            if (name, value) != ("on_missing", "raise")
        },
        "stream": None,
        "extra": extra,
    }
    arrays: dict[str, npt.NDArray[Any]] = {}
    if stream is not None:
        header["stream"], arrays = stream_record(stream)
    try:
        check_data(extra)
        write_archive(file, header, arrays)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{where}: expected extra to be JSON data (strings, finite numbers, booleans, None, lists, dictionaries "
            f"with string keys) but {error}"
        ) from None


def read_checkpoint(
    file: IO[bytes], settings_of: Callable[[dict[str, Any]], StreamSettings], known_kernel: Kernel | None
) -> tuple[dict[str, Any], State | None, Any]:
    """Read parameters, stream and `extra` from a seekable file; CheckpointError if anything is wrong with it.

    `settings_of` checks the parameters; `known_kernel` is the kernel if it has functions of the caller.
    """
    archive = Archive(file)
    header = HeaderFields(archive.header, "header")
    if header.value("format") != FORMAT:
        raise CheckpointError("it is an archive, but not a checkpoint of a stream")
    version = header.integer("version", least=1)
    if version > VERSION:
        raise CheckpointError(
            f"its format has version {version}, and this release reads up to {VERSION}; install a later streamkpca"
        )
    record = header.optional_part("stream")
    arrays = archive.read(expected_arrays(record) if record else {})
    given = header.part("parameters")
    parameters = {name: given.value(name) for name in given}
    kernels = StoredKernels(known_kernel)
    parameters["kernel"] = _kernel_parameter(given, kernels)
    # Files of version 1 are of streams whose atoms stayed rows.
    parameters.setdefault("atoms", "rows")
    try:
        settings = settings_of(parameters)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"its parameters are refused: {error}") from None
    stream = restored_stream(record, arrays, settings, kernels) if record else None
    if stream is not None:
        with one_blas_thread(), np.errstate(all="ignore"):
            check_stream(stream)
    return parameters, stream, header.value("extra")


def checkpoint_header(file: IO[bytes]) -> dict[str, Any]:
    """Return the parsed header of a seekable file, without its arrays; CheckpointError if it has none."""
    return Archive(file).header


def checkpoint_bytes(write: Callable[[IO[bytes]], None]) -> bytes:
    """Return the bytes that `write` writes."""
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """Turn a parameter into JSON data."""
    if isinstance(value, Kernel):
        return {"expression": kernel_record(value)}
    return value.item() if isinstance(value, np.generic) else value


def _kernel_parameter(parameters: HeaderFields, kernels: StoredKernels) -> Kernel | str:
    name = parameters.value("kernel")
    if isinstance(name, str):
        return name
    return kernels.kernel(parameters.part("kernel").optional_text("expression"))
