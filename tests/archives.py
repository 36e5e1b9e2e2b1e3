"""Zip archives built field by field, so that any of them can be wrong."""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

ALL_ONES = 0xFFFFFFFF

HEADER = struct.Struct("<4s5H3L2H")
ENTRY = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
LARGE_END = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")


@dataclass(frozen=True)
class Part:
    """A member; `local` and `central` replace fields of its header and of its entry in the list of members."""

    name: bytes
    data: bytes
    flags: int = 0
    method: int = 0
    local_extra: bytes = b""
    central_extra: bytes = b""
    comment: bytes = b""
    before: bytes = b""
    after: bytes = b""
    local: dict[str, Any] = field(default_factory=dict)
    central: dict[str, Any] = field(default_factory=dict)


def parts_of(data: bytes) -> list[Part]:
    """Read the members of an archive that is known to be whole, in their order."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [Part(info.filename.encode("ascii"), archive.read(info)) for info in archive.infolist()]


def with_part(parts: Sequence[Part], number: int, **changes: Any) -> list[Part]:
    """Change fields of one member."""
    return [replace(part, **changes) if i == number else part for i, part in enumerate(parts)]


def large_field(*numbers: int) -> bytes:
    """Make the extra field for numbers that are too large for their place."""
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers)


def zipped(
    parts: Iterable[Part],
    *,
    before: bytes = b"",
    gap: bytes = b"",
    listed: Sequence[int] | None = None,
    extra_entries: bytes = b"",
    end: dict[str, Any] | None = None,
    large_end: dict[str, Any] | None = None,
    comment: bytes = b"",
    moved: int = 0,
) -> bytes:
    """Write an archive.

    `before` stands before the first member, `gap` before the list of members. `listed` are the members in the list, by
    their numbers, and `extra_entries` follow them there. `end` and `large_end` replace fields of the two ends; the
    second is written if it is given. All offsets are wrong by `moved`.
    """
    file, entries = bytearray(before), []
    for part in parts:
        file += part.before
        entries.append(_entry(part, len(file) + moved))
        file += _header(part) + part.data + part.after
    file += gap
    start = len(file)
    chosen = range(len(entries)) if listed is None else listed
    file += b"".join(entries[i] for i in chosen) + extra_entries
    size, count = len(file) - start, len(chosen)
    numbers = {"here": count, "count": count, "size": size, "offset": start + moved}
    if large_end is not None:
        place = len(file)
        large = {
            "kind": b"PK\x06\x06", "rest": 44, "made": 45, "needed": 45, "disk": 0, "first": 0, **numbers,
            "mark": b"PK\x06\x07", "locator_disk": 0, "place": place, "n_disks": 1, "between": b"", **large_end,
        }  # fmt: skip
        file += LARGE_END.pack(*(large[name] for name in _LARGE_NAMES)) + large["between"]
        file += LOCATOR.pack(large["mark"], large["locator_disk"], large["place"], large["n_disks"])
    fields = {"mark": b"PK\x05\x06", "disk": 0, "first": 0, **numbers, "length": len(comment), **(end or {})}
    file += END.pack(*fields.values()) + comment
    return bytes(file)


_LARGE_NAMES = ("kind", "rest", "made", "needed", "disk", "first", "here", "count", "size", "offset")


def _header(part: Part) -> bytes:
    fields = {
        "mark": b"PK\x03\x04", "needed": 20, "flags": part.flags, "method": part.method, "time": 0, "date": 0x21,
        "checksum": zlib.crc32(part.data), "stored": len(part.data), "size": len(part.data),
        "name_length": len(part.name), "extra_length": len(part.local_extra),
    }  # fmt: skip
    name = part.local.get("name", part.name)
    fields |= {key: value for key, value in part.local.items() if key != "name"}
    return HEADER.pack(*fields.values()) + name + part.local_extra


def _entry(part: Part, offset: int) -> bytes:
    fields = {
        "mark": b"PK\x01\x02", "made": 20 | 3 << 8, "needed": 20, "flags": part.flags, "method": part.method, "time": 0,
        "date": 0x21, "checksum": zlib.crc32(part.data), "stored": len(part.data), "size": len(part.data),
        "name_length": len(part.name), "extra_length": len(part.central_extra), "comment_length": len(part.comment),
        "disk": 0, "internal": 0, "attributes": 0o100644 << 16, "offset": offset,
    }  # fmt: skip
    name = part.central.get("name", part.name)
    fields |= {key: value for key, value in part.central.items() if key != "name"}
    return ENTRY.pack(*fields.values()) + name + part.central_extra + part.comment
