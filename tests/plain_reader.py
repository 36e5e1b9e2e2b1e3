"""Reads checkpoints as docs/checkpoint-format.md describes them, by struct, json, math and zipfile alone."""

import io
import json
import math
import struct
import zipfile
from typing import Any

Vector = list[float]
Matrix = list[Vector]


def array(data: bytes) -> list[Any]:
    """Read an npy array as nested lists."""
    start = 10 + int.from_bytes(data[8:10], "little")
    text = data[10:start].decode("ascii")
    letter = {"<f8": "d", "<f4": "f", "<i8": "q", "|b1": "?"}[text.split("'descr': '")[1].split("'")[0]]
    shape = [int(n) for n in text.split("'shape': (")[1].split(")")[0].split(",") if n.strip()]
    numbers = list(struct.unpack(f"<{math.prod(shape)}{letter}", data[start:]))
    return numbers if len(shape) < 2 else [numbers[i * shape[1] :][: shape[1]] for i in range(shape[0])]


def contents(file: bytes) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Read the header and the arrays."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        header = json.loads(archive.read("header.json"))
        return header, {name: array(archive.read(f"{name}.npy")) for name in header["arrays"]}


def kernel(record: dict[str, Any], x: Vector, y: Vector) -> float:
    """Evaluate some kernels."""
    kind, inner = record["type"], record.get("kernel")
    if kind == "OnColumns":
        return kernel(inner, *([row[i] for i in record["columns"]] for row in (x, y)))
    if kind == "InUnits":
        return kernel(inner, *([a / unit for a, unit in zip(row, record["units"], strict=True)] for row in (x, y)))
    if kind in ("Sum", "Product"):
        left, right = (kernel(record[side], x, y) for side in ("left", "right"))
        return left + right if kind == "Sum" else left * right
    if kind == "Scaled":
        return float(record["scale"] * kernel(inner, x, y))
    if kind == "Linear":
        return math.fsum(a * b for a, b in zip(x, y, strict=True))
    assert kind == "RBF"
    return math.exp(-record["gamma"] * math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def solved(lower: Matrix, right: Vector) -> Vector:
    """Solve L c = b by forward substitution."""
    found: Vector = []
    for row, number in zip(lower, right, strict=True):
        known = math.fsum(a * b for a, b in zip(row, found, strict=False))
        found.append((number - known) / row[len(found)])
    return found


class Checkpoint:
    """The answers in a checkpoint."""

    def __init__(self, file: bytes) -> None:
        header, self.arrays = contents(file)
        assert (header["format"], header["version"]) == ("streamkpca", 1)
        self.state = header["state"]
        self.name = self.state.get("published", "published")
        self.record = json.loads(header["kernels"][self.state[f"{self.name}.kernel"]])
        self.atoms = self["atoms"]
        self.active = [atom for atom, weight in zip(self.atoms, self["weights"], strict=True) if weight > 0.0]

    def __getitem__(self, field: str) -> list[Any]:
        return self.arrays[f"{self.name}.{field}"]

    def projection(self, x: Vector) -> Vector:
        """Return the projection of a row."""
        values = [kernel(self.record, x, atom) for atom in self.active]
        columns = zip(*self["projection"], strict=True)
        return [
            math.fsum(a * b for a, b in zip(values, column, strict=True)) - offset
            for column, offset in zip(columns, self["offset"], strict=True)
        ]

    def reconstruction_error(self, x: Vector) -> float:
        """Return the squared distance of a row from the span of the atoms."""
        coordinates = solved(self["span_factor"], [kernel(self.record, x, atom) for atom in self.atoms])
        return max(kernel(self.record, x, x) - math.fsum(c * c for c in coordinates), 0.0)

    def novelty(self, x: Vector) -> float:
        """Return the novelty of a row, whose energy is that of all rows."""
        energy = kernel(self.record, x, x)
        values = [kernel(self.record, x, atom) for atom in self.atoms]
        error = self.reconstruction_error(x)
        if error <= energy / 2:
            return -energy * math.log1p(-error / energy)
        largest = max(values)
        explained = math.fsum(c * c for c in solved(self["span_factor"], [value / largest for value in values]))
        return -energy * (math.log(explained / energy) + 2.0 * math.log(largest))
