"""The file: an uncompressed npz archive of a JSON header and of arrays, which can be written in one way only.

`docs/checkpoint-format.md` describes the bytes. A reader searches for nothing: every byte of the archive follows from
the header and the arrays, so it makes the same bytes and compares. `numpy.load` and any zip program open the file too.
"""

import json
import math
import os
import struct
import zlib
from collections.abc import Mapping
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from streamkpca.errors import CheckpointError

AnyArray = npt.NDArray[Any]

HEADER: Final = "header.json"
FORMAT: Final = "streamkpca"
VERSION: Final = 1
# Types of arrays, and the bytes of a number.
TYPES: Final = {"<f8": 8, "<f4": 4, "<i8": 8, "|b1": 1, "|u1": 1}

# Room for the names of some 100,000 columns and the caller's data.
_LARGEST_HEADER = 2**27
_LONGEST_AXIS = 2**40
_LARGEST_ARRAY = 2**62
# Stands for every length and offset in the places of 4 bytes; the numbers themselves are in a field of 8 bytes.
_ELSEWHERE = 0xFFFFFFFF
_MEMBER = struct.Struct("<4s5H3L2H")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_MEMBER_LENGTHS = struct.Struct("<2H2Q")
_ENTRY_LENGTHS = struct.Struct("<2H3Q")


class _Frame:
    """The bytes around the data of the members: a prefix before each, and the list of all at the end."""

    def __init__(self) -> None:
        self.place = 0
        self._entries: list[bytes] = []

    def prefix(self, name: str, preamble: bytes, size: int, checksum: int) -> bytes:
        """Return what stands before `size` bytes of data; the checksum is that of preamble and data."""
        letters, size = name.encode("ascii"), size + len(preamble)
        # Version 4.5, no flags, not compressed, 1 January 1980.
        common = (45, 0, 0, 0, 33, checksum, _ELSEWHERE, _ELSEWHERE, len(letters))
        entry = _ENTRY.pack(b"PK\x01\x02", 0x032D, *common, 28, 0, 0, 0, 0o644 << 16, _ELSEWHERE)
        self._entries.append(entry + letters + _ENTRY_LENGTHS.pack(1, 24, size, size, self.place))
        start = _MEMBER.pack(b"PK\x03\x04", *common, 20) + letters + _MEMBER_LENGTHS.pack(1, 16, size, size)
        self.place += len(start) + size
        return start + preamble

    def end(self) -> bytes:
        """Return what stands behind the last member."""
        listed, count = b"".join(self._entries), len(self._entries)
        large = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 0x032D, 45, 0, 0, count, count, len(listed), self.place)
        locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, self.place + len(listed), 1)
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, _ELSEWHERE, _ELSEWHERE, 0)
        return listed + large + locator + end


_HEADER_PREFIX = len(_Frame().prefix(HEADER, b"", 0, 0))


def header_text(header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> bytes:
    """Return a header as JSON, with the type and shape of every array; the same contents make the same text."""
    listed = {name: [array.dtype.newbyteorder("<").str, array.shape] for name, array in arrays.items()}
    whole = {"format": FORMAT, "version": VERSION, **header, "arrays": listed}
    text = json.dumps(whole, sort_keys=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > _LARGEST_HEADER:
        raise ValueError(f"the header's text would have {len(text)} bytes, of which {_LARGEST_HEADER} are read")
    return text


def parse_header(text: bytes) -> dict[str, Any]:
    """Return the header of a text; CheckpointError if it is that of no checkpoint, or of another version."""
    try:
        header = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"its header is not JSON: {error}") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CheckpointError("it is an archive, but not a checkpoint of a stream")
    if header.get("version") != VERSION:
        raise CheckpointError(
            f"its format has version {header.get('version')!r}, and this release reads version {VERSION}; "
            "install the release that wrote it"
        )
    return header


def write_archive(file: IO[bytes], text: bytes, arrays: Mapping[str, AnyArray]) -> None:
    """Write a header's text and arrays, in the order of their names, to a file that need not be seekable."""
    frame = _Frame()
    file.write(frame.prefix(HEADER, b"", len(text), zlib.crc32(text)) + text)
    for name in sorted(arrays):
        array = np.asarray(arrays[name], arrays[name].dtype.newbyteorder("<"), order="C")
        preamble, data = _preamble(array.dtype.str, array.shape), _bytes_of(array)
        file.write(frame.prefix(f"{name}.npy", preamble, len(data), zlib.crc32(data, zlib.crc32(preamble))))
        file.write(data)
    file.write(frame.end())


def read_archive(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Read the header and all arrays, new ones in C order; the file must be what `write_archive` writes, to the byte.

    Every shape is compared with the length of the file before memory is allocated.
    """
    frame, length = _Frame(), file.seek(0, os.SEEK_END)
    text = bytearray(_header_size(file, length))
    _read_member(file, frame, HEADER, b"", memoryview(text))
    header = parse_header(bytes(text))
    listed = header.get("arrays")
    if not isinstance(listed, dict):
        raise CheckpointError("its header lacks the list of arrays")
    arrays: dict[str, AnyArray] = {}
    for name in sorted(listed):
        dtype, shape = _parse_entry(name, listed[name])
        size, left = math.prod(shape, start=TYPES[dtype]), length - frame.place
        if size > left:
            raise _damage_error(
                f"{name!r} of type {dtype} and shape {shape} needs {size} bytes, but only {left} are left"
            )
        array = np.empty(shape, dtype)
        _read_member(file, frame, f"{name}.npy", _preamble(dtype, shape), _bytes_of(array))
        arrays[name] = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if file.read() != frame.end():
        raise _damage_error("it does not end as a checkpoint does")
    return header, arrays


def _header_size(file: IO[bytes], length: int) -> int:
    """Return the length of the header's text in a file of some length, which is at its beginning afterwards."""
    file.seek(0)
    found = file.read(_HEADER_PREFIX)
    file.seek(0)
    if length < _HEADER_PREFIX:
        raise CheckpointError(f"this is not a checkpoint: it has only {length} bytes")
    if not found.startswith(b"PK\x03\x04") or found[26:41] != struct.pack("<2H", len(HEADER), 20) + HEADER.encode():
        raise CheckpointError(f"this is not a checkpoint: it does not begin with {HEADER!r}; give one that save wrote")
    size = int.from_bytes(found[-8:], "little")
    if size > min(length - _HEADER_PREFIX, _LARGEST_HEADER):
        raise _damage_error(f"its header of {size} bytes is too long for a file of {length}")
    return size


def _read_member(file: IO[bytes], frame: _Frame, name: str, preamble: bytes, data: memoryview) -> None:
    """Read the next member into `data`; what stands before it is as long as it must be, whatever the checksum."""
    found = file.read(_MEMBER.size + len(name) + _MEMBER_LENGTHS.size + len(preamble))
    n_read = file.readinto(data)  # type: ignore[attr-defined]
    checksum = zlib.crc32(data, zlib.crc32(preamble))
    if n_read != len(data) or found != frame.prefix(name, preamble, len(data), checksum):
        raise _damage_error(f"the bytes of {name.removesuffix('.npy')!r} are not those that were written")


def _parse_entry(name: str, entry: Any) -> tuple[str, tuple[int, ...]]:
    """Return the type and shape of an array in the header's list."""
    if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], list):
        dtype, shape = entry
        if (
            dtype in TYPES
            and len(shape) <= 3
            and name.isascii()
            and all(type(n) is int and 0 <= n <= _LONGEST_AXIS for n in shape)
            # numpy refuses such arrays even if one axis has no length.
            and math.prod((n for n in shape if n), start=TYPES[dtype]) <= _LARGEST_ARRAY
        ):
            return dtype, tuple(shape)
    raise CheckpointError(f"its header lists no plain array as {name!r} but {entry!r}")


def _preamble(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Write the preamble of numpy's npy format 1.0; numpy's own writer may differ between releases."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape!r}, }}"
    length = -(-(len(text) + 11) // 64) * 64 - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text.ljust(length - 1).encode("ascii") + b"\n"


def _bytes_of(array: AnyArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")


def _damage_error(reason: str) -> CheckpointError:
    return CheckpointError(f"it is damaged, or not whole: {reason}; restore it from a backup")
