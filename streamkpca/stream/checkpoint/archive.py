"""The file format: arrays and a JSON header in an uncompressed npz archive, read without trusting it."""

import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from streamkpca.errors import CheckpointError
from streamkpca.stream.checkpoint.members import Member, members_of

# An array's type, and the length of each axis.
Shape = tuple[int, ...]
Expected = Mapping[str, tuple[str, Shape]]
AnyArray = npt.NDArray[Any]

HEADER: Final = "header.json"
_SUFFIX = ".npy"

# Limits of the header: once parsed, a text of nested lists takes 20 times the memory of its letters.
_LARGEST_HEADER = 4 * 2**20
_MOST_VALUES = 2**18
# Parsers recurse, and the stack may be deep already. Two levels hold a caller's object, which is left 64.
_MOST_LEVELS = 66
# Python's own limit can be lifted, and reading an integer takes time with the square of its digits.
_MOST_DIGITS = 4300
_PIECE = 2**20
_LONGEST_PREAMBLE = 522

_PREAMBLE = re.compile(
    rb"\{'descr': '([<>|=]?[a-zA-Z]\d+)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}(?:, \d{1,19})*)?,?)\), \} *\n"
)


def check_data(data: Any) -> None:
    """Refuse a caller's data whose keys would come back as text, or that are nested deeper than a reader accepts."""
    n_values = 0
    # The header is a level above them.
    waiting: list[tuple[Any, int]] = [(data, 2)]
    while waiting:
        value, level = waiting.pop()
        if not isinstance(value, dict | list | tuple):
            continue
        if level > _MOST_LEVELS:
            raise ValueError(f"it is nested more than {_MOST_LEVELS - 2} levels deep")
        n_values += len(value)
        if n_values > _MOST_VALUES:
            # One list in many places is cheap to make, but not to write.
            raise ValueError(f"it holds more than {_MOST_VALUES} values; keep large data in a separate file")
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"the key {key!r} has the type {type(key).__name__}; write it as text")
        waiting += [(inner, level + 1) for inner in (value.values() if isinstance(value, dict) else value)]


def write_archive(file: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> None:
    """Write an archive to an empty seekable file; the same contents make the same bytes.

    Arrays are written in the order of their names, little-endian and in C order. A header that JSON cannot express
    raises TypeError or ValueError, and so does one larger than a reader accepts.
    """
    text = _dump(header)
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
    try:
        archive.writestr(_member(HEADER, len(text)), text)
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name], dtype=arrays[name].dtype.newbyteorder("<"))
            preamble = _preamble(array)
            member = _member(name + _SUFFIX, len(preamble) + array.nbytes)
            with archive.open(member, "w") as target:
                target.write(preamble)
                target.write(_bytes_of(array))
        archive.close()
    except BaseException:
        # Closing the broken archive, as a with statement would, complains about the unfinished member: a full disk
        # would be reported as a ValueError.
        archive.fp = None
        raise


class Archive:
    """A seekable file read as an archive, with its parsed `header`; CheckpointError if it is none, or damaged.

    Notes
    -----
    Every size is compared with the length of the file and with what the caller expects before memory is allocated, so
    reading takes no more memory than the file is long, plus a few MB. Nothing is unpickled or evaluated. The members'
    checksums reveal damage.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._members = members_of(file, file.seek(0, 2))
        self.header = self._parsed_header()

    def read(self, expected: Expected) -> dict[str, AnyArray]:
        """Read all arrays, writable and in C order; exactly these must be there, each of its type and shape."""
        names = {name + _SUFFIX for name in expected}
        if unexpected := sorted(set(self._members) - names - {HEADER}):
            raise CheckpointError(f"it holds {unexpected[0]!r}, which is no part of a checkpoint")
        if missing := sorted(names - set(self._members)):
            raise CheckpointError(f"{missing[0]!r} is missing")
        return {name: self._array(name + _SUFFIX, *expected[name]) for name in sorted(expected)}

    def _parsed_header(self) -> dict[str, Any]:
        if HEADER not in self._members:
            raise CheckpointError(f"this is not a checkpoint: {HEADER!r} is missing")
        member = self._members[HEADER]
        if member.size > _LARGEST_HEADER:
            raise CheckpointError(f"its header has {member.size} bytes; at most {_LARGEST_HEADER} are read")
        self._file.seek(member.start)
        text = self._file.read(member.size)
        _check_sum(HEADER, member, zlib.crc32(text))
        if _n_values(text) > _MOST_VALUES:
            raise CheckpointError(f"its header holds about {_n_values(text)} values; at most {_MOST_VALUES} are read")
        try:
            header = _parse(text)
        except ValueError as error:
            raise CheckpointError(f"its header is not JSON: {error}") from None
        if not isinstance(header, dict):
            raise CheckpointError("its header is not a JSON object")
        return header

    def _array(self, name: str, dtype: str, shape: Shape) -> AnyArray:
        member = self._members[name]
        self._file.seek(member.start)
        preamble = _preamble_in(self._file.read(min(member.size, _LONGEST_PREAMBLE)), name, dtype, shape)
        # In Python integers, as numpy's overflow.
        n_bytes = math.prod(shape, start=np.dtype(dtype).itemsize)
        if member.size != len(preamble) + n_bytes:
            raise CheckpointError(f"{name!r} has {member.size} bytes, but its shape needs {len(preamble) + n_bytes}")
        array = np.empty(shape, dtype)
        target, filled, checksum = _bytes_of(array), 0, zlib.crc32(preamble)
        self._file.seek(member.start + len(preamble))
        while filled < n_bytes and (piece := self._file.read(min(_PIECE, n_bytes - filled))):
            target[filled : filled + len(piece)] = piece
            checksum = zlib.crc32(piece, checksum)
            filled += len(piece)
        _check_sum(name, member, checksum)
        return array.astype(np.dtype(dtype).newbyteorder("="), copy=False)


def _check_sum(name: str, member: Member, checksum: int) -> None:
    """Compare the checksum of what was read with that of the member."""
    if checksum != member.checksum:
        raise CheckpointError(f"it is damaged: the checksum of {name!r} does not fit")


def _dump(header: Mapping[str, Any]) -> bytes:
    text = json.dumps(header, sort_keys=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > _LARGEST_HEADER or _n_values(text) > _MOST_VALUES:
        raise ValueError(
            f"a checkpoint's header holds at most {_LARGEST_HEADER} bytes and {_MOST_VALUES} values, but this one has "
            f"{len(text)} and {_n_values(text)}; keep large data in a separate file"
        )
    # A header that cannot be read again must not be written.
    _parse(text)
    return text


def _n_values(text: bytes) -> int:
    """Count the values of a JSON text, or a few more."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def _n_levels(text: bytes) -> int:
    """Count how deep lists and objects of a JSON text are nested."""
    # Without escaped ones, every quotation mark begins or ends a string, whose brackets count for nothing.
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    level, deepest, is_inside = 0, 0, False
    for start in range(0, len(plain), _PIECE):
        letters = np.frombuffer(plain[start : start + _PIECE], dtype=np.uint8)
        quoted = np.logical_xor.accumulate(letters == ord('"')) ^ is_inside
        is_inside = bool(quoted[-1])
        steps = np.zeros(len(letters), dtype=np.int8)
        for mark, step in zip(b"[{]}", (1, 1, -1, -1), strict=True):
            steps[(letters == mark) & ~quoted] = step
        levels = np.cumsum(steps, dtype=np.int32)
        deepest = max(deepest, level + int(levels.max()))
        level += int(levels[-1])
    return deepest


def _parse(text: bytes) -> Any:
    if _n_levels(text) > _MOST_LEVELS:
        raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")
    return json.loads(
        text.decode("ascii"),
        object_pairs_hook=_unambiguous,
        parse_int=_whole,
        parse_float=_finite,
        parse_constant=_finite,
    )


def _member(name: str, size: int) -> zipfile.ZipInfo:
    """Describe a member without date, owner, or anything else that differs between runs and machines."""
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.create_system = 3
    member.external_attr = 0o644 << 16
    member.file_size = size
    return member


def _preamble(array: AnyArray) -> bytes:
    """Write the preamble of numpy's npy format 1.0; numpy's own writer may differ between releases."""
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape!r}, }}"
    length = -(-(len(text) + 11) // 64) * 64 - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text.ljust(length - 1).encode("ascii") + b"\n"


def _bytes_of(array: AnyArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _preamble_in(data: bytes, name: str, dtype: str, shape: Shape) -> bytes:
    """Compare an array's preamble, at the beginning of its data, with the expected type and shape; return it.

    A regular expression matches it: numpy's own parser evaluates the text as Python literals.
    """
    if len(data) < 10 or data[:8] != b"\x93NUMPY\x01\x00":
        raise CheckpointError(f"{name!r} is not an array in numpy's format")
    end = 10 + int.from_bytes(data[8:10], "little")
    found = _PREAMBLE.fullmatch(data, 10, end) if end <= len(data) else None
    if found is None:
        raise CheckpointError(f"{name!r} is not a plain array of numbers in numpy's format")
    if found[1] != dtype.encode("ascii"):
        raise CheckpointError(f"{name!r} holds numbers of type {found[1].decode('ascii')} but should hold {dtype}")
    given = tuple(int(number) for number in found[3].split(b",") if number.strip())
    if given != shape:
        raise CheckpointError(f"{name!r} has shape {given} but should have {shape}")
    if found[2] != b"False":
        raise CheckpointError(f"{name!r} is in Fortran order but should be in C order")
    return data[:end]


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"an integer has {len(text)} digits; at most {_MOST_DIGITS} are read")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text if len(text) <= 30 else 'a number'} is not a finite number")
    return number
