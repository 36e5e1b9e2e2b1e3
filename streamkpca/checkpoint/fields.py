"""Tables of fields, and what follows from them: what is written of a value, and how it is read and checked.

A value is a tree of parts, and a part has fields: arrays and scalars. The key of a field in the file is its path in the
value, such as `summary.record.settled.second`.
"""

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca.errors import CheckpointError

AnyArray = npt.NDArray[Any]

# Counts can be added without overflow.
_LARGEST = {"integer": 2**60, "real": sys.float_info.max}


def _are_finite(values: AnyArray) -> bool:
    return bool(np.isfinite(values).all())


def _are_not_negative(values: AnyArray) -> bool:
    # NaN is the minimum where there is one, and compares as False.
    return not values.size or bool(values.min() >= 0 and values.max() < np.inf)


# What the numbers of an array must be. All but gaps are finite.
RULES: dict[str, Callable[[AnyArray], Any]] = {
    "": _are_finite,
    "or NaN": lambda values: not np.isinf(values).any(),
    ">= 0": _are_not_negative,
    "ascending": lambda values: _are_finite(values) and (values[1:] >= values[:-1]).all(),
    "descending, >= 0": lambda values: _are_not_negative(values) and (values[1:] <= values[:-1]).all(),
    "symmetric": lambda values: _are_finite(values) and (values == values.T).all(),
    "diagonal > 0": lambda values: _are_finite(values) and (values.diagonal() > 0).all(),
}
_ARRAYS = ("<f8", "<i8", "|b1", "rows")
_SCALARS = {"integer": int, "large integer": int, "real": float, "flag": bool, "text": str, "texts": list}


class Field(NamedTuple):
    """An array or a scalar of a part, called `name` there.

    The kind of arrays is `<f8`, `<i8`, `|b1`, or `rows`: in the precision of the stream. The letters of `shape` are
    lengths of axes, n that of the part, and others the same wherever keys begin with the same word. The kind of scalars
    is one of `_SCALARS`, `real or null`, where null is infinity, `kernel`, or `data`, which the part itself checks. The
    rule is one of `RULES`, or the least value of a scalar.
    """

    name: str
    kind: str
    shape: str = ""
    rule: str = ""
    is_optional: bool = False

    @property
    def is_array(self) -> bool:
        """Whether the field is one of the arrays."""
        return self.kind in _ARRAYS


class Part(NamedTuple):
    """The object at a path, what makes it of its fields, and whether it may be None, or the same as its `twin`."""

    path: str
    make: Callable[..., Any]
    fields: list[Field]
    is_optional: bool
    twin: str


def parts_of(table: str, makers: Sequence[Callable[..., Any]]) -> tuple[Part, ...]:
    """Read a table: lines that name a maker and the path of a part, then the fields of these parts.

    A part stands in front of those that it holds. `PATH?` may be None, `PATH? = TWIN` another part before it. The line
    of fields has their names, kind (`KIND?` may be None), shape and rule, between slashes; `-` stands for no fields.
    """
    known = {make.__name__: make for make in makers}
    parts: list[Part] = []
    first, is_listed = 0, False
    for line in filter(None, map(str.strip, table.splitlines())):
        make, is_part, path = line.partition(":")
        if is_part:
            first = len(parts) if is_listed else first
            path, _, twin = path.strip().partition(" = ")
            parts.append(Part(path.rstrip("?"), known[make], [], path.endswith("?"), twin))
        elif line != "-":
            names, kind, shape, rule = (*(cell.strip() for cell in line.split("/")), "", "")[:4]
            for part in parts[first:]:
                part.fields.extend(
                    Field(name, kind.rstrip("?"), shape, rule, kind.endswith("?")) for name in names.split()
                )
        is_listed = not is_part
    return tuple(parts)


@dataclass
class Context:
    """What fields have in common: the type of `rows`, lengths of axes, and what `kernel` entries stand for."""

    row_type: str = "<f8"
    has_gaps: bool = True
    lengths: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kernel: Callable[[Any], Any] = lambda value: value


def recorded(parts: Sequence[Part], value: Any) -> dict[str, Any]:
    """Return the value of every field by its key; that of an absent part is None, or the path of its twin."""
    found: dict[str, Any] = {}
    absent: list[str] = []
    for part in parts:
        if _is_within(part.path, absent):
            continue
        own = attrgetter(part.path)(value) if part.path else value
        is_twin = own is not None and bool(part.twin) and own is attrgetter(part.twin)(value)
        if own is None or is_twin:
            absent.append(part.path)
            found[part.path] = part.twin if is_twin else None
            continue
        for entry in part.fields:
            kept = getattr(own, entry.name)
            found[_key(part, entry)] = None if entry.kind == "real or null" and kept == math.inf else kept
    return found


def restored(parts: Sequence[Part], values: Mapping[str, Any], context: Context) -> Any:
    """Make the value that `recorded` recorded; CheckpointError if a field is missing, wrong, or not in the table."""
    made: dict[str, dict[str, Any]] = {}
    absent: dict[str, Any] = {}
    known: set[str] = set()
    for part in parts:
        if _is_within(part.path, absent):
            continue
        if part.is_optional and part.path in values:
            absent[part.path] = twin = values[part.path]
            known.add(part.path)
            if twin is not None and (twin != part.twin or twin not in made):
                raise CheckpointError(f"{part.path} is {shown(twin)}, but should be null or have fields")
            continue
        made[part.path] = {}
        for entry in part.fields:
            key = _key(part, entry)
            if key not in values:
                raise CheckpointError(f"{key} is missing")
            known.add(key)
            made[part.path][entry.name] = _checked(key, entry, values[key], context)
    if unknown := sorted(values.keys() - known):
        raise CheckpointError(f"{unknown[0]!r} is no part of a checkpoint")
    whole = None
    # A part is made before the one that holds it.
    for part in reversed(parts):
        if part.path in made:
            whole = part.make(**made[part.path])
            _put(made, part.path, whole)
            for path in (path for path, twin in absent.items() if twin == part.path):
                _put(made, path, whole)
        elif part.path in absent and absent[part.path] is None:
            _put(made, part.path, None)
    return whole


def _put(made: dict[str, dict[str, Any]], path: str, value: Any) -> None:
    if path:
        parent, _, name = path.rpartition(".")
        made[parent][name] = value


def _is_within(path: str, others: Collection[str]) -> bool:
    return any(path.startswith(f"{other}.") for other in others)


def _key(part: Part, entry: Field) -> str:
    return f"{part.path}.{entry.name}" if part.path else entry.name


def _checked(key: str, entry: Field, value: Any, context: Context) -> Any:
    """Return the value of a field, if it is of the kind, the shape and the range that the table says."""
    if entry.kind in ("kernel", "data"):
        return context.kernel(value) if entry.kind == "kernel" else value
    if value is None and (entry.is_optional or entry.kind == "real or null"):
        return None if entry.is_optional else math.inf
    if entry.is_array:
        return _checked_array(key, entry, value, context)
    kind = entry.kind.partition(" or ")[0]
    is_right = type(value) is _SCALARS[kind]
    if is_right and kind == "texts":
        is_right = all(isinstance(text, str) for text in value)
    elif is_right and entry.rule:
        is_right = value >= int(entry.rule.removeprefix(">= "))
    if not is_right or (kind in ("integer", "real") and abs(value) > _LARGEST[kind]):
        raise CheckpointError(
            f"{key} is {shown(value)} but should be of the kind {' '.join((kind, entry.rule)).rstrip()}"
        )
    return value


def _checked_array(key: str, entry: Field, value: Any, context: Context) -> AnyArray:
    if not isinstance(value, np.ndarray):
        raise CheckpointError(f"{key} is {shown(value)} but should be an array")
    dtype = context.row_type if entry.kind == "rows" else entry.kind
    if value.dtype.newbyteorder("<").str != dtype:
        raise CheckpointError(f"{key} holds numbers of type {value.dtype.str} but should hold {dtype}")
    expected: tuple[int, ...] = ()
    for letter in entry.shape:
        if letter.isdigit():
            expected += (int(letter),)
        elif letter in context.lengths:
            expected += context.lengths[letter]
        else:
            scope = key.rpartition(".")[0] if letter == "n" else key.partition(".")[0]
            length = value.shape[len(expected)] if len(expected) < value.ndim else -1
            expected += context.lengths.setdefault(f"{scope} {letter}", (length,))
    if value.shape != expected:
        raise CheckpointError(f"{key} has shape {value.shape} but should have {expected}")
    rule = "" if entry.rule == "or NaN" and not context.has_gaps else entry.rule
    if dtype != "|b1" and not RULES[rule](value):
        raise CheckpointError(f"{key}: its numbers should be {', '.join(filter(None, ('finite', rule)))}, and are not")
    return value


def shown(value: Any) -> str:
    """Return the beginning of a value's text."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
