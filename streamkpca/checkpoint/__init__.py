"""Checkpoints: a model as a JSON header and arrays in an npz archive, read without trusting it.

`docs/checkpoint-format.md` describes the files. Each stage checks what it reads; here, that the parts fit each other.

archive : the archive, each byte of which is checked
fields : how values are recorded and restored by tables of fields, which say their kinds, shapes and ranges
table : the fields that a stream has; a file has these, and no others
"""

from collections.abc import Callable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import show
from streamkpca.checkpoint.archive import TYPES, header_text, parse_header, read_archive, write_archive
from streamkpca.checkpoint.fields import Context, record_fields, restore_section
from streamkpca.checkpoint.table import STATE
from streamkpca.dictionary.basis import Basis
from streamkpca.errors import CheckpointError, text_of
from streamkpca.kernels import Kernel
from streamkpca.kernels.kinds import kernel_from_json
from streamkpca.rows.gaps import WIDEST_TOGETHER
from streamkpca.stream.state import State

Arrays = dict[str, npt.NDArray[Any]]

# Of the caller's data. Parsers recurse, and the stack may be deep already.
_MOST_LEVELS = 64
# The only key of an object that stands for an array of the file.
_ARRAY = "array in this file"
# The only key of an object that stands for bytes, which the file holds as an array.
_BYTES = "bytes in this file"
# Kernel values of other machines differ in their last digits, relative to sqrt(k(x, x) k(y, y)).
_SAME = 1e-8


class Checkpoint(NamedTuple):
    """The contents of a file: the text of its header, and its arrays, which are not copied."""

    text: bytes
    arrays: Arrays

    def write(self, file: IO[bytes]) -> None:
        """Write the file."""
        write_archive(file, self.text, self.arrays)


def checkpoint_of(parameters: Mapping[str, Any], state: State | None, extra: Any) -> Checkpoint:
    """Record checked parameters, a state, and the caller's `extra`, which must be JSON data, bytes and arrays."""
    arrays: Arrays = {}
    kernels: list[Kernel] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Kernel):
            if value not in kernels:
                kernels.append(value)
            return kernels.index(value)
        return value.item() if isinstance(value, np.generic) else value

    values = None if state is None else record_fields(STATE, state)
    if values is not None:
        arrays = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
        values = {key: plain(value) for key, value in values.items() if key not in arrays}
    header: dict[str, Any] = {"parameters": {name: plain(value) for name, value in parameters.items()}, "state": values}
    header["kernels"] = [kernel.to_json() if kernel.is_compiled else None for kernel in kernels]
    given: Arrays = {}
    try:
        header["extra"] = _encode(extra, given, 0)
        arrays |= given
        return Checkpoint(header_text(header, arrays), arrays)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "expected extra to be JSON data (strings, finite numbers, booleans, None, lists, dictionaries "
            f"with string keys), bytes or arrays but {error}"
        ) from None


def read_checkpoint(
    file: IO[bytes] | Checkpoint, settings_of: Callable[[dict[str, Any]], object], known_kernel: Kernel | None
) -> tuple[State | None, Any]:
    """Read the state and the caller's data of a seekable file, or of what would be written, and check everything.

    `settings_of` checks the parameters; `known_kernel` is the kernel if it has functions of the caller. CheckpointError
    if anything is wrong.
    """
    if isinstance(file, Checkpoint):
        header, arrays = parse_header(file.text), dict(file.arrays)
    else:
        header, arrays = read_archive(file)
    try:
        kernels = [known_kernel if text is None else kernel_from_json(text) for text in _entry(header, "kernels", list)]
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"its kernel: {text_of(error)}") from None

    def kernel_at(place: Any) -> Kernel:
        if type(place) is not int or not 0 <= place < len(kernels):
            raise CheckpointError(f"its kernel {show(place)} is not one of the {len(kernels)} that it lists")
        kernel = kernels[place]
        if kernel is None:
            raise CheckpointError(
                "its kernel has functions of the caller, which are code and never stored; "
                "pass the settled kernel again: load(path, kernel=...)"
            )
        return kernel

    parameters = dict(_entry(header, "parameters", dict))
    if not isinstance(parameters.get("kernel"), str):
        parameters["kernel"] = kernel_at(parameters.get("kernel"))
    try:
        settings_of(parameters)
        extra = _decode(header.get("extra"), arrays)
    except RecursionError:
        raise CheckpointError("its header is nested too deep") from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"its parameters are refused: {text_of(error)}") from None
    if header.get("state") is None:
        if arrays:
            raise CheckpointError(f"{min(arrays)!r} is no part of a checkpoint")
        return None, extra
    values = _entry(header, "state", dict) | arrays
    d = values.get("n_features")
    if type(d) is not int:
        raise CheckpointError(f"its rows have {show(d)} columns")
    pairs, square = ((d, d), (d, d)) if d <= WIDEST_TOGETHER else ((d,), (0, 0))
    context = Context(bool(values.get("has_gaps")), {"d": (d,), "P": pairs, "E": square}, kernel_at)
    state: State = restore_section(STATE, values, context)
    _check(state, known_kernel)
    return state, extra


def _entry(header: dict[str, Any], name: str, kind: type) -> Any:
    value = header.get(name)
    if not isinstance(value, kind):
        raise CheckpointError(f"{name} is {show(value)} but should be a JSON {'list' if kind is list else 'object'}")
    return value


def _check(state: State, known_kernel: Kernel | None) -> None:
    """Refuse parts that do not fit together: they would fail later, or read other columns than there are."""
    settled = [part for part in (state.scheduled, state.published, state.summary and state.summary.basis) if part]
    try:
        for kernel in (state.kernel, *(part.kernel for part in settled)):
            kernel.check_width(state.n_features)
    except ValueError as error:
        raise CheckpointError(text_of(error)) from None
    if not all(part.kernel.is_settled for part in settled):
        raise CheckpointError("the scale of its kernel is not settled")
    if any((part.distribution is None) == state.has_gaps for part in settled if len(part.atoms)):
        raise CheckpointError("a distribution is there where rows may have gaps, and only there")
    if state.pending.n_rows >= state.block_size:
        raise CheckpointError(f"{state.pending.n_rows} rows are pending for a block of {state.block_size}")
    if state.summary is not None and state.summary.basis.kernel is known_kernel:
        _check_passed(state.summary.basis)


def _check_passed(basis: Basis) -> None:
    """Refuse a kernel that was passed, unless it is the one that the factor was made with: L L^T = k(Z, Z)."""
    gram, factor = basis.kernel.program.gram(basis.atoms), basis.factor
    lengths = np.sqrt(np.abs(np.diagonal(gram)))
    if not (np.abs(gram - factor @ factor.T) <= _SAME * lengths * lengths[:, None]).all():
        raise CheckpointError("the kernel that was passed is not that of its atoms; pass model.kernel_ of that model")


def _encode(value: Any, arrays: Arrays, level: int) -> Any:
    """Put the arrays in a caller's data among those of the file; refuse keys that JSON would turn into text."""
    if isinstance(value, bytes | np.ndarray):
        array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
        if array.ndim > 2 or array.dtype.newbyteorder("<").str not in TYPES:
            raise TypeError(f"an array has the type {array.dtype} and {array.ndim} axes; convert it to float64")
        name = f"extra.{len(arrays)}"
        arrays[name] = array
        return {_BYTES if isinstance(value, bytes) else _ARRAY: name}
    if not isinstance(value, dict | list | tuple):
        return value
    if level >= _MOST_LEVELS:
        raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")
    if not isinstance(value, dict):
        return [_encode(inner, arrays, level + 1) for inner in value]
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"the key {key!r} has the type {type(key).__name__}; write it as text")
        if key in (_ARRAY, _BYTES):
            raise ValueError(f"the key {key!r} stands for an array; choose another one")
    return {key: _encode(inner, arrays, level + 1) for key, inner in value.items()}


def _decode(value: Any, arrays: Arrays) -> Any:
    """Take the arrays of a caller's data out of those of the file."""
    if isinstance(value, list):
        return [_decode(inner, arrays) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (key := next(iter(value))) in (_ARRAY, _BYTES):
        array = arrays.pop(value[key], None) if isinstance(value[key], str) else None
        if array is None or (key == _BYTES and array.dtype != np.uint8):
            raise CheckpointError(f"its extra data lack the {key.split()[0]} {show(value[key])}")
        return array.tobytes() if key == _BYTES else array
    return {key: _decode(inner, arrays) for key, inner in value.items()}
