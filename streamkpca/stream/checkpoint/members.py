"""Where the members of an uncompressed zip archive are, read without trusting it.

zipfile writes checkpoints but does not read them: it accepts bytes between members, a header before a member that
contradicts the list of members, and names and sizes that its own releases and other programs read differently. Here
every byte of a file belongs to one member or to the list, and whatever is written twice agrees.
"""

import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

from streamkpca.errors import CheckpointError

# A checkpoint has some dozens of members.
_LARGEST_LIST = 2**16

_END = struct.Struct("<4s4H2LH")
_LARGE_END = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_HEADER = struct.Struct("<4s5H3L2H")
_FIELD = struct.Struct("<2H")
_NUMBER = struct.Struct("<Q")

# These stand for numbers that are too large for their place, and are written elsewhere.
_ALL_ONES = (0xFFFF, 0xFFFFFFFF)
_LARGE_NUMBERS = 0x0001
_ENCRYPTED, _UTF8 = 0x0001, 0x0800


class Member(NamedTuple):
    """The data of a member: the position of its first byte, the number of bytes, and their CRC-32."""

    start: int
    size: int
    checksum: int


class _Entry(NamedTuple):
    """A member in the list of members; `offset` is where its header begins."""

    name: bytes
    flags: int
    method: int
    checksum: int
    size: int
    offset: int


def members_of(file: IO[bytes], length: int) -> dict[str, Member]:
    """Find the members of an archive of this length by their names; CheckpointError unless it is plain and whole."""
    offset, size, count = _list_place(file, length)
    if size > _LARGEST_LIST:
        raise CheckpointError(f"its list of members has {size} bytes; at most {_LARGEST_LIST} are read")
    entries = sorted(_entries(_bytes_at(file, offset, size), count), key=lambda entry: entry.offset)
    members: dict[str, Member] = {}
    place = 0
    for entry in entries:
        name = _checked_name(entry)
        if name in members:
            raise CheckpointError(f"it holds {name!r} twice")
        if entry.offset != place:
            raise _damaged(f"{name!r} does not begin where the member before it ends")
        start = _data_start(file, entry, name)
        members[name] = Member(start, entry.size, entry.checksum)
        place = start + entry.size
        if place > offset:
            raise _damaged(f"{name!r} has {entry.size} bytes, but the members end before")
    if place != offset:
        raise _damaged("there are bytes between the last member and the list of members")
    return members


def _list_place(file: IO[bytes], length: int) -> tuple[int, int, int]:
    """Return where the list of members begins, its length, and the number of members."""
    if length < _END.size:
        raise CheckpointError(f"this is not a checkpoint: it has only {length} bytes")
    place = length - _END.size
    signature, disk, first_disk, *numbers, comment = _END.unpack(_bytes_at(file, place, _END.size))
    if signature != b"PK\x05\x06" or comment:
        raise CheckpointError("this is not a checkpoint, or not a complete one: the end of a zip archive is missing")
    if large := _large_numbers(file, place):
        place -= _LARGE_END.size + _LOCATOR.size
        if any(number not in (known, *_ALL_ONES) for number, known in zip(numbers, large, strict=True)):
            raise _damaged("the two ends of a large zip archive contradict each other")
        numbers = large
    count_here, count, size, offset = numbers
    if disk or first_disk or count_here != count:
        raise _damaged("a part of the zip archive is in another file")
    if offset + size != place:
        raise _damaged("its list of members does not stand right before the end")
    return offset, size, count


def _large_numbers(file: IO[bytes], place: int) -> list[int] | None:
    """Return the numbers of the end of a large archive, if one stands before the plain end at `place`."""
    offset = place - _LOCATOR.size - _LARGE_END.size
    if offset < 0:
        return None
    data = _bytes_at(file, offset, place - offset)
    mark, *locator = _LOCATOR.unpack(data[_LARGE_END.size :])
    if mark != b"PK\x06\x07":
        return None
    kind, rest, _, _, disk, first_disk, *numbers = _LARGE_END.unpack(data[: _LARGE_END.size])
    expected = (b"PK\x06\x06", _LARGE_END.size - 12, 0, 0, [0, offset, 1])
    if (kind, rest, disk, first_disk, locator) != expected:
        raise _damaged("the end of a large zip archive is not where it should be")
    return numbers


def _entries(data: bytes, count: int) -> Iterator[_Entry]:
    """Read the list of members, which must have `count` entries and no byte more."""
    place = 0
    for _ in range(count):
        if len(data) - place < _ENTRY.size:
            raise _damaged("its list of members is too short")
        signature, _, _, flags, method, _, _, checksum, stored, size, *lengths, disk, _, _, offset = _ENTRY.unpack_from(
            data, place
        )
        end_of_name = place + _ENTRY.size + lengths[0]
        end_of_extra = end_of_name + lengths[1]
        if signature != b"PK\x01\x02" or end_of_extra + lengths[2] > len(data) or disk:
            raise _damaged("an entry of its list of members is not whole")
        name = data[place + _ENTRY.size : end_of_name]
        plain = [size, stored, offset]
        n_large = plain.count(_ALL_ONES[1])
        large = _large_field(data[end_of_name:end_of_extra])
        if len(large) != n_large:
            raise _damaged("an entry of its list of members has a size or a place too few or too many")
        size, stored, offset = (large.pop(0) if number == _ALL_ONES[1] else number for number in plain)
        if not method and stored != size:
            raise _damaged("an entry of its list of members has two different sizes")
        yield _Entry(name, flags, method, checksum, size, offset)
        place = end_of_extra + lengths[2]
    if place != len(data):
        raise _damaged("its list of members is too long")


def _checked_name(entry: _Entry) -> str:
    """Return the name of a member that is neither compressed nor encrypted, and is whole before its data begins."""
    try:
        name = entry.name.decode("ascii")
    except UnicodeDecodeError:
        raise CheckpointError(f"it holds {entry.name!r}, which is no part of a checkpoint") from None
    if entry.flags & _ENCRYPTED:
        raise CheckpointError(f"{name!r} is encrypted; checkpoints are not")
    if entry.method:
        raise CheckpointError(f"{name!r} is compressed; checkpoints are not")
    if entry.flags & ~_UTF8:
        raise CheckpointError(f"{name!r} has flags (0x{entry.flags:04x}) that members of checkpoints do not have")
    return name


def _data_start(file: IO[bytes], entry: _Entry, name: str) -> int:
    """Return where the data of a member begin, after a header that must say what the list of members says."""
    header = _bytes_at(file, entry.offset, _HEADER.size)
    lengths: list[int]
    if len(header) < _HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise _damaged(f"the header of {name!r} is not where it should be")
    _, _, flags, method, _, _, checksum, stored, size, *lengths = _HEADER.unpack(header)
    rest = _bytes_at(file, entry.offset + _HEADER.size, sum(lengths))
    large = _large_field(rest[lengths[0] :])
    sizes_agree = all(number == entry.size for number in large) and all(
        number == entry.size or (number == _ALL_ONES[1] and len(large) == 2) for number in (size, stored)
    )
    same = (rest[: lengths[0]], flags, method, checksum) == (entry.name, entry.flags, entry.method, entry.checksum)
    if not same or not sizes_agree or len(large) not in (0, 2):
        raise _damaged(f"the header of {name!r} contradicts the list of members")
    return entry.offset + _HEADER.size + sum(lengths)


def _large_field(extra: bytes) -> list[int]:
    """Return the numbers of the extra field for large archives, of which there may be none; others are skipped."""
    found: list[bytes] = []
    place = 0
    while place < len(extra):
        if len(extra) - place < _FIELD.size:
            raise _damaged("an extra field is not whole")
        kind, length = _FIELD.unpack_from(extra, place)
        place += _FIELD.size
        if place + length > len(extra):
            raise _damaged("an extra field is not whole")
        if kind == _LARGE_NUMBERS:
            found.append(extra[place : place + length])
        place += length
    if len(found) > 1 or any(len(field) % _NUMBER.size for field in found):
        raise _damaged("an extra field for large archives is not as it should be")
    return [number for field in found for (number,) in _NUMBER.iter_unpack(field)]


def _bytes_at(file: IO[bytes], offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _damaged(text: str) -> CheckpointError:
    return CheckpointError(f"it is damaged: {text}")
