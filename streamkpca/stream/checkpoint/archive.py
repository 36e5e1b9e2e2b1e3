"""The container of checkpoints: arrays and one text in an uncompressed npz, read without trusting it."""

import errno
import json
import math
import re
import struct
import zipfile
from collections.abc import Mapping
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

# What the header may hold: texts of lists in lists take 20 times the memory of their letters once they are parsed.
_LARGEST_HEADER = 4 * 2**20
_MOST_VALUES = 2**18
# Of some dozens of members.
_LARGEST_DIRECTORY = 2**16
_PIECE = 2**20
_LONGEST_PREAMBLE = 512

_PREAMBLE = re.compile(
    rb"\{'descr': '([<>|=]?[a-zA-Z]\d+)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}(?:, \d{1,19})*)?,?)\), \} *\n"
)


def write_archive(file: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> None:
    """Write an archive; the same contents make the same bytes.

    Parameters
    ----------
    file : binary file
        Seekable, empty.
    header : mapping
        Of what JSON knows: text, finite numbers, booleans, None, lists, mappings from text.
    arrays : mapping of str to ndarray
        Written in the order of their names, little-endian and in C order.

    Raises
    ------
    TypeError, ValueError
        The header is no JSON, or larger than a reader would take.
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
        # It is lost. Closed by a with statement, it would complain of a member that is not whole, and a full disk would
        # come out as a ValueError.
        archive.fp = None
        raise


class Archive:
    """An archive that is open for reading; nothing in it is believed.

    Parameters
    ----------
    file : binary file
        Seekable.

    Attributes
    ----------
    header : dict

    Raises
    ------
    CheckpointError
        It is no such archive, or damaged.

    Notes
    -----
    Sizes are compared before memory is taken, with the length of the file and with what the caller expects, so no more
    is taken than the file is long, besides a few MB. Nothing is unpickled or evaluated. Damage is found by the
    members' checksums.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._length = file.seek(0, 2)
        _check_directory(file, self._length)
        with _BlamingTheFile():
            self._zip = zipfile.ZipFile(file)
        self._members = self._listed()
        self.header = self._parsed_header()

    def read(self, expected: Expected) -> dict[str, AnyArray]:
        """Read all arrays.

        Parameters
        ----------
        expected : mapping of str to (str, tuple of int)
            For each name the numpy type and shape that the array must have.

        Returns
        -------
        dict of str to ndarray
            Writable, in C order.

        Raises
        ------
        CheckpointError
            One is missing, of another type or shape, or damaged; or there is one that nobody expects.
        """
        names = {name + _SUFFIX for name in expected}
        if strangers := sorted(set(self._members) - names - {HEADER}):
            raise CheckpointError(f"it holds {strangers[0]!r}, which is no part of a checkpoint")
        if missing := sorted(names - set(self._members)):
            raise CheckpointError(f"{missing[0]!r} is missing")
        return {name: self._array(name + _SUFFIX, *expected[name]) for name in sorted(expected)}

    def _listed(self) -> dict[str, zipfile.ZipInfo]:
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
            raise CheckpointError(f"it is no checkpoint: {HEADER!r} is missing")
        size = self._members[HEADER].file_size
        if size > _LARGEST_HEADER:
            raise CheckpointError(f"its header has {size} bytes; at most {_LARGEST_HEADER} are read")
        with _BlamingTheFile(), self._zip.open(self._members[HEADER]) as source:
            text = source.read()
        values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
        if values > _MOST_VALUES:
            raise CheckpointError(f"its header holds about {values} values; at most {_MOST_VALUES} are read")
        try:
            header = _parse(text)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"its header is no JSON text: {error}") from None
        if not isinstance(header, dict):
            raise CheckpointError("its header is no JSON object")
        return header

    def _array(self, name: str, dtype: str, shape: Shape) -> AnyArray:
        member = self._members[name]
        with _BlamingTheFile(), self._zip.open(member) as source:
            size = _check_preamble(source, name, dtype, shape)
            # In Python's numbers: those of numpy overflow.
            n_bytes = np.dtype(dtype).itemsize
            for length in shape:
                n_bytes *= length
            if member.file_size != size + n_bytes:
                raise CheckpointError(f"{name!r} has {member.file_size} bytes, but its shape takes {size + n_bytes}")
            array = np.empty(shape, dtype)
            target, filled = _bytes_of(array), 0
            # To the very end, where the checksum is compared.
            while piece := source.read(_PIECE):
                target[filled : filled + len(piece)] = piece
                filled += len(piece)
        if filled != n_bytes:
            raise CheckpointError(f"{name!r} ends after {filled} of {n_bytes} bytes")
        return array.astype(np.dtype(dtype).newbyteorder("="), copy=False)


class _BlamingTheFile:
    """Turn what zipfile raises over damaged files into one kind of error."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        """Translate; errors of the disk stay what they are."""
        if isinstance(error, CheckpointError):
            return
        damaged = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, ArithmeticError)
        # Positions beyond the ends of the file; zipfile says so itself by an error without a number.
        nowhere = isinstance(error, OSError) and error.errno in (errno.EINVAL, None)
        if nowhere or isinstance(error, (*damaged, struct.error)):
            raise CheckpointError(f"it is damaged: {error}") from None


def _dump(header: Mapping[str, Any]) -> bytes:
    text = json.dumps(header, sort_keys=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
    if len(text) > _LARGEST_HEADER or values > _MOST_VALUES:
        raise ValueError(
            f"a checkpoint's header holds at most {_LARGEST_HEADER} bytes and {_MOST_VALUES} values, but this one has "
            f"{len(text)} and {values}; keep large data in a file of its own"
        )
    # What could not be read again must not be written: names that are the same text, say.
    _parse(text)
    return text


def _parse(text: bytes) -> Any:
    return json.loads(text.decode("ascii"), object_pairs_hook=_unambiguous, parse_float=_finite, parse_constant=_finite)


def _member(name: str, size: int) -> zipfile.ZipInfo:
    """Describe a member without date, owner, or whatever else differs between runs and machines."""
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.create_system = 3
    member.external_attr = 0o644 << 16
    member.file_size = size
    return member


def _preamble(array: AnyArray) -> bytes:
    """Write what precedes the numbers in numpy's own format, version 1.0, here the same with every release of numpy."""
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape!r}, }}"
    length = -(-(len(text) + 11) // 64) * 64 - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text.ljust(length - 1).encode("ascii") + b"\n"


def _bytes_of(array: AnyArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _check_preamble(source: IO[bytes], name: str, dtype: str, shape: Shape) -> int:
    """Compare the description of an array with what is expected; return its length.

    Matched and not parsed: whatever numpy's own parser could be made to do, it is not asked.
    """
    start = source.read(10)
    if len(start) < 10 or start[:8] != b"\x93NUMPY\x01\x00":
        raise CheckpointError(f"{name!r} is no array in numpy's format")
    length = struct.unpack("<H", start[8:])[0]
    found = _PREAMBLE.fullmatch(source.read(length)) if length <= _LONGEST_PREAMBLE else None
    if found is None:
        raise CheckpointError(f"{name!r} is no plain array of numbers in numpy's format")
    if found[1] != dtype.encode("ascii"):
        raise CheckpointError(f"{name!r} holds numbers of type {found[1].decode('ascii')} but should hold {dtype}")
    given = tuple(int(number) for number in found[3].split(b",") if number.strip())
    if given != shape:
        raise CheckpointError(f"{name!r} has shape {given} but should have {shape}")
    if found[2] != b"False":
        raise CheckpointError(f"{name!r} is in Fortran's order but should be in C's")
    return 10 + int(length)


def _check_directory(file: IO[bytes], length: int) -> None:
    """Refuse a file whose list of members is not at its very end, or so long that reading it would take much memory."""
    end, zip64, locator = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
    if length < end.size:
        raise CheckpointError(f"it is no checkpoint: it has just {length} bytes")
    file.seek(length - end.size)
    signature, *_, size, _, comment = end.unpack(file.read(end.size))
    if signature != b"PK\x05\x06" or comment:
        raise CheckpointError("it is no checkpoint, or not whole: the end of a zip archive is missing")
    before = end.size + locator.size
    if length >= before + zip64.size:
        place = length - before - zip64.size
        file.seek(place)
        large = file.read(zip64.size + locator.size)
        mark, _, said, _ = locator.unpack(large[zip64.size :])
        if mark == b"PK\x06\x07":
            # Releases of Python differ in where they look for the numbers of large archives: one place, or none.
            kind, rest, *_, size, _ = zip64.unpack(large[: zip64.size])
            if (kind, rest, said) != (b"PK\x06\x06", zip64.size - 12, place):
                raise CheckpointError("it is damaged: the end of a large zip archive is not where it should be")
    if size > _LARGEST_DIRECTORY:
        raise CheckpointError(f"its list of members has {size} bytes; that of a checkpoint is much shorter")


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number
