"""Reads and writes checkpoints as docs/checkpoint-format.md describes them, by struct, json, math and hashlib alone."""

import hashlib
import json
import math
import struct
from typing import Any

Vector = list[float]
Matrix = list[Vector]


def crc32(data: bytes) -> int:
    """Return the CRC-32 of the zip format."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _crc_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
    return value


_CRC = [_crc_entry(value) for value in range(256)]


def category_number(text: str) -> float:
    """Return the number that stands for a category given as text."""
    try:
        number = float(text)
        if math.isfinite(number) and text in (repr(number), str(int(number))):
            return number
    except ValueError:
        pass
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return float(2**52 + (struct.unpack("<Q", digest)[0] >> 12))


def members(file: bytes) -> dict[str, bytes]:
    """Read an archive without zip64."""
    mark, _, _, _, count, size, place, comment = struct.unpack("<4s4H2LH", file[-22:])
    assert (mark, comment, place + size) == (b"PK\x05\x06", 0, len(file) - 22)
    found = {}
    for _ in range(count):
        fields = struct.unpack("<4s6H3L5H2L", file[place : place + 46])
        checksum, size, _, name_length, extra_length, comment_length = fields[7:13]
        offset = fields[16]
        name = file[place + 46 : place + 46 + name_length].decode("ascii")
        place += 46 + name_length + extra_length + comment_length
        lengths = struct.unpack("<2H", file[offset + 26 : offset + 30])
        start = offset + 30 + sum(lengths)
        found[name] = file[start : start + size]
        assert crc32(found[name]) == checksum
    return found


def array(data: bytes) -> tuple[list[int], list[Any]]:
    """Read the shape and the numbers of an npy array."""
    assert data[:8] == b"\x93NUMPY\x01\x00"
    start = 10 + int.from_bytes(data[8:10], "little")
    text = data[10:start].decode("ascii")
    kind = text.split("'descr': '")[1].split("'")[0]
    shape = [int(number) for number in text.split("'shape': (")[1].split(")")[0].split(",") if number.strip()]
    letter = {"<f8": "d", "<f4": "f", "<i8": "q"}[kind]
    return shape, list(struct.unpack(f"<{math.prod(shape)}{letter}", data[start:]))


def matrix(data: bytes) -> Matrix:
    """Read an array of two axes as its rows."""
    (n, m), numbers = array(data)
    return [numbers[i * m : (i + 1) * m] for i in range(n)]


def solved(lower: Matrix, right: Vector) -> Vector:
    """Solve L c = b by forward substitution."""
    found: Vector = []
    for row, number in zip(lower, right, strict=True):
        known = math.fsum(a * b for a, b in zip(row, found, strict=False))
        found.append((number - known) / row[len(found)])
    return found


class Checkpoint:
    """The answers in a checkpoint whose kernel is RBF."""

    def __init__(self, file: bytes) -> None:
        self.members = members(file)
        self.header = json.loads(self.members["header.json"])
        assert self.header["format"] == "streamkpca stream"
        assert self.header["version"] <= 3
        stream = self.header["stream"]
        name = "scheduled" if stream["published_as_scheduled"] else "published"
        self.categories = {text: category_number(text) for text in stream.get("categories", [])}
        text = stream[name]["kernel"]
        # Of products with a kernel of categories, only the first factor is read.
        assert text.startswith("RBF(gamma=")
        self.gamma = float(text[len("RBF(gamma=") : text.index(")")])
        units = text[text.index(")") + 1 :]
        self.units = (
            [float(u) for u in units[11:-2].split(",") if u.strip()] if units.startswith(".in_units(") else None
        )
        self.atoms = matrix(self.members[f"{name}.atoms.npy"])
        weights = array(self.members[f"{name}.weights.npy"])[1]
        self.active = [atom for atom, weight in zip(self.atoms, weights, strict=True) if weight > 0.0]
        self.span_factor = matrix(self.members[f"{name}.span_factor.npy"])
        self.factor = matrix(self.members[f"{name}.factor.npy"])
        self.axes = matrix(self.members[f"{name}.axes.npy"])
        self.mean = array(self.members[f"{name}.mean.npy"])[1]
        self.coefficients = matrix(self.members[f"{name}.projection.npy"])
        self.offset = array(self.members[f"{name}.offset.npy"])[1]

    def kernel(self, x: Vector, y: Vector) -> float:
        """Return exp(-gamma |x - y|^2), in units."""
        units = self.units or [1.0] * len(x)
        squares = (((a - b) / unit) ** 2 for a, b, unit in zip(x, y, units, strict=True))
        return math.exp(-self.gamma * math.fsum(squares))

    def projection(self, x: Vector) -> Vector:
        """Return the projection of a row."""
        values = [self.kernel(x, atom) for atom in self.active]
        columns = zip(*self.coefficients, strict=True)
        return [
            math.fsum(a * b for a, b in zip(values, column, strict=True)) - offset
            for column, offset in zip(columns, self.offset, strict=True)
        ]

    def reconstruction_error(self, x: Vector) -> float:
        """Return the squared distance of a row from the span of the atoms."""
        coordinates = solved(self.span_factor, [self.kernel(x, atom) for atom in self.atoms])
        return max(1.0 - math.fsum(c * c for c in coordinates), 0.0)

    def error_to_axes(self, x: Vector, count: int) -> float:
        """Return the squared distance of a row from the centre plus the span of the first axes."""
        coordinates = solved(self.factor, [self.kernel(x, atom) for atom in self.active])
        centred = [c - mean for c, mean in zip(coordinates, self.mean, strict=True)]
        columns = list(zip(*self.axes, strict=True))[:count]
        along = [math.fsum(a * b for a, b in zip(axis, centred, strict=True)) for axis in columns]
        squares = [math.fsum(c * c for c in vector) for vector in (coordinates, centred, along)]
        return max(1.0 - squares[0] + squares[1] - squares[2], 0.0)

    def novelty(self, x: Vector) -> float:
        """Return the novelty of a row, however far away."""
        distances = [-math.log(self.kernel(x, atom) or 1e-300) for atom in self.atoms]
        if min(distances) < 100.0:
            error = self.reconstruction_error(x)
            if error <= 0.5:
                return -math.log1p(-error)
        exponents = [
            -self.gamma
            * math.fsum(((a - b) / u) ** 2 for a, b, u in zip(x, z, self.units or [1.0] * len(x), strict=True))
            for z in self.atoms
        ]
        largest = max(exponents)
        coordinates = solved(self.span_factor, [math.exp(exponent - largest) for exponent in exponents])
        return -math.log(math.fsum(c * c for c in coordinates)) - 2.0 * largest


def written(header: Any, arrays: dict[str, bytes]) -> bytes:
    """Write an archive of a header and of npy arrays, by their names with .npy, as the library does."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii")
    file, entries = b"", b""
    for name, data in [("header.json", text), *sorted(arrays.items())]:
        common = struct.pack("<5H3L2H", 20, 0, 0, 0, 33, crc32(data), len(data), len(data), len(name), 0)
        entries += b"PK\x01\x02" + bytes([20, 3]) + common + struct.pack("<3H2L", 0, 0, 0, 0o644 << 16, len(file))
        entries += name.encode("ascii")
        file += b"PK\x03\x04" + common + name.encode("ascii") + data
    count = 1 + len(arrays)
    return file + entries + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entries), len(file), 0)


def npy(kind: str, shape: list[int], numbers: list[Any]) -> bytes:
    """Write an npy array."""
    sizes = f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {sizes}, }}"
    length = -(-(10 + len(text) + 1) // 64) * 64 - 10
    letter = {"<f8": "d", "<f4": "f", "<i8": "q"}[kind]
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + (text.ljust(length - 1) + "\n").encode("ascii")
    return start + struct.pack(f"<{len(numbers)}{letter}", *numbers)
