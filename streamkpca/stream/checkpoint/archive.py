"""The file format: arrays and a JSON header in an uncompressed npz archive, read without trusting it."""

import errno
import json
import math
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from streamkpca.errors import CheckpointError

# An array's type, and the length of each axis.
Shape = tuple[int, ...]
Expected = Mapping[str, tuple[str, Shape]]
AnyArray = npt.NDArray[Any]

HEADER: Final = "header.json"
_SUFFIX = ".npy"

# Limits of the header: once parsed, a text of nested lists takes 20 times the memory of its letters.
_LARGEST_HEADER = 4 * 2**20
_MOST_VALUES = 2**18
# A checkpoint has some dozens of members.
_LARGEST_DIRECTORY = 2**16
_PIECE = 2**20
_LONGEST_PREAMBLE = 512

# Raised by zipfile over damaged archives, besides struct.error.
_DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, ArithmeticError)

_PREAMBLE = re.compile(
    rb"\{'descr': '([<>|=]?[a-zA-Z]\d+)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}(?:, \d{1,19})*)?,?)\), \} *\n"
)


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
        self._length = file.seek(0, 2)
        _check_directory(file, self._length)
        with _reading_errors():
            self._zip = zipfile.ZipFile(file)
        self._members = self._checked_members()
        self.header = self._parsed_header()

    def read(self, expected: Expected) -> dict[str, AnyArray]:
        """Read all arrays, writable and in C order; exactly these must be there, each of its type and shape."""
        names = {name + _SUFFIX for name in expected}
        if unexpected := sorted(set(self._members) - names - {HEADER}):
            raise CheckpointError(f"it holds {unexpected[0]!r}, which is no part of a checkpoint")
        if missing := sorted(names - set(self._members)):
            raise CheckpointError(f"{missing[0]!r} is missing")
        return {name: self._array(name + _SUFFIX, *expected[name]) for name in sorted(expected)}

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        members: dict[str, zipfile.ZipInfo] = {}
        total = 0
        for member in self._zip.infolist():
            name = member.filename
            if name in members:
                raise CheckpointError(f"it holds {name!r} twice")
            if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                raise CheckpointError(f"{name!r} is compressed; checkpoints are not")
            if member.flag_bits & 0x1:
                raise CheckpointError(f"{name!r} is encrypted; checkpoints are not")
            total += member.file_size
            members[name] = member
        if total > self._length:
            raise CheckpointError(f"its members claim {total} bytes, but the file has {self._length}")
        return members

    def _parsed_header(self) -> dict[str, Any]:
        if HEADER not in self._members:
            raise CheckpointError(f"this is not a checkpoint: {HEADER!r} is missing")
        size = self._members[HEADER].file_size
        if size > _LARGEST_HEADER:
            raise CheckpointError(f"its header has {size} bytes; at most {_LARGEST_HEADER} are read")
        with _reading_errors(), self._zip.open(self._members[HEADER]) as source:
            text = source.read()
        if _n_values(text) > _MOST_VALUES:
            raise CheckpointError(f"its header holds about {_n_values(text)} values; at most {_MOST_VALUES} are read")
        try:
            header = _parse(text)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"its header is not JSON: {error}") from None
        if not isinstance(header, dict):
            raise CheckpointError("its header is not a JSON object")
        return header

    def _array(self, name: str, dtype: str, shape: Shape) -> AnyArray:
        member = self._members[name]
        with _reading_errors(), self._zip.open(member) as source:
            size = _check_preamble(source, name, dtype, shape)
            # In Python integers, as numpy's overflow.
            n_bytes = np.dtype(dtype).itemsize
            for length in shape:
                n_bytes *= length
            if member.file_size != size + n_bytes:
                raise CheckpointError(f"{name!r} has {member.file_size} bytes, but its shape needs {size + n_bytes}")
            array = np.empty(shape, dtype)
            target, filled = _bytes_of(array), 0
            # Read to the very end, where zipfile compares the checksum.
            while piece := source.read(_PIECE):
                target[filled : filled + len(piece)] = piece
                filled += len(piece)
        if filled != n_bytes:
            raise CheckpointError(f"{name!r} ends after {filled} of {n_bytes} bytes")
        return array.astype(np.dtype(dtype).newbyteorder("="), copy=False)


@contextmanager
def _reading_errors() -> Iterator[None]:
    """Turn what zipfile raises for damaged files into CheckpointError; errors of the disk pass unchanged."""
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        # An offset beyond the ends of the file; zipfile itself reports that by an error without a number.
        if error.errno not in (errno.EINVAL, None):
            raise
        raise CheckpointError(f"it is damaged: {error}") from None
    except (*_DAMAGE, struct.error) as error:
        raise CheckpointError(f"it is damaged: {error}") from None


def _dump(header: Mapping[str, Any]) -> bytes:
    text = json.dumps(header, sort_keys=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > _LARGEST_HEADER or _n_values(text) > _MOST_VALUES:
        raise ValueError(
            f"a checkpoint's header holds at most {_LARGEST_HEADER} bytes and {_MOST_VALUES} values, but this one has "
            f"{len(text)} and {_n_values(text)}; keep large data in a separate file"
        )
    # A header that cannot be read again must not be written, for example one with two keys of the same text.
    _parse(text)
    return text


def _n_values(text: bytes) -> int:
    """Count the values of a JSON text, or a few more."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def _parse(text: bytes) -> Any:
    return json.loads(text.decode("ascii"), object_pairs_hook=_unambiguous, parse_float=_finite, parse_constant=_finite)


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


def _check_preamble(source: IO[bytes], name: str, dtype: str, shape: Shape) -> int:
    """Compare an array's preamble with the expected type and shape; return its length.

    A regular expression matches it: numpy's own parser evaluates the text as Python literals.
    """
    start = source.read(10)
    if len(start) < 10 or start[:8] != b"\x93NUMPY\x01\x00":
        raise CheckpointError(f"{name!r} is not an array in numpy's format")
    length = struct.unpack("<H", start[8:])[0]
    found = _PREAMBLE.fullmatch(source.read(length)) if length <= _LONGEST_PREAMBLE else None
    if found is None:
        raise CheckpointError(f"{name!r} is not a plain array of numbers in numpy's format")
    if found[1] != dtype.encode("ascii"):
        raise CheckpointError(f"{name!r} holds numbers of type {found[1].decode('ascii')} but should hold {dtype}")
    given = tuple(int(number) for number in found[3].split(b",") if number.strip())
    if given != shape:
        raise CheckpointError(f"{name!r} has shape {given} but should have {shape}")
    if found[2] != b"False":
        raise CheckpointError(f"{name!r} is in Fortran order but should be in C order")
    return 10 + int(length)


def _check_directory(file: IO[bytes], length: int) -> None:
    """Refuse a file whose list of members is not at its very end, or is too long to be that of a checkpoint."""
    end, zip64, locator = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
    if length < end.size:
        raise CheckpointError(f"this is not a checkpoint: it has only {length} bytes")
    file.seek(length - end.size)
    signature, *_, size, _, comment = end.unpack(file.read(end.size))
    if signature != b"PK\x05\x06" or comment:
        raise CheckpointError("this is not a checkpoint, or not a complete one: the end of a zip archive is missing")
    before = end.size + locator.size
    if length >= before + zip64.size:
        offset = length - before - zip64.size
        file.seek(offset)
        large = file.read(zip64.size + locator.size)
        mark, _, claimed_offset, _ = locator.unpack(large[zip64.size :])
        if mark == b"PK\x06\x07":
            # Releases of Python look for the sizes of large archives at different offsets; only one is accepted here.
            kind, rest, *_, size, _ = zip64.unpack(large[: zip64.size])
            if (kind, rest, claimed_offset) != (b"PK\x06\x06", zip64.size - 12, offset):
                raise CheckpointError("it is damaged: the end of a large zip archive is not where it should be")
    if size > _LARGEST_DIRECTORY:
        raise CheckpointError(f"its list of members has {size} bytes; at most {_LARGEST_DIRECTORY} are read")


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
