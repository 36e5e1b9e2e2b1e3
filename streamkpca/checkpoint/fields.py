"""Tables of fields, and what follows from them: what is written of a value, and how it is read and checked.

A value is a tree of parts, and a part has fields: arrays and scalars. The key of a field in the file is its path in the
value, such as `summary.record.settled.second`.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import show
from streamkpca.errors import CheckpointError

AnyArray = npt.NDArray[Any]

# Counts can be added without overflow.
_LARGEST = {int: 2**60, float: sys.float_info.max}


def _are_finite(values: AnyArray) -> bool:
    return bool(np.isfinite(values).all())


def _are_not_negative(values: AnyArray) -> bool:
    # NaN is the minimum where there is one, and compares as False.
    return not values.size or bool(values.min() >= 0 and values.max() < np.inf)


# What the numbers of an array must be. All but gaps are finite.
RULES: dict[str, Callable[[AnyArray], Any]] = {
    "": _are_finite,
    "or NaN": lambda values: not np.isinf(values).any(),
    "or unknown": lambda values: not np.isinf(values).any(),
    ">= 0": _are_not_negative,
    "> 0": lambda values: _are_not_negative(values) and (values > 0).all(),
    "weights >= 0": lambda values: _are_finite(values) and _are_not_negative(values[0]),
    "ascending": lambda values: _are_finite(values) and (values[1:] >= values[:-1]).all(),
    "descending, >= 0": lambda values: _are_not_negative(values) and (values[1:] <= values[:-1]).all(),
    "symmetric": lambda values: _are_finite(values) and (values == values.T).all(),
    "diagonal > 0": lambda values: _are_finite(values) and (values.diagonal() > 0).all(),
}
_ARRAYS = ("<f8", "<i8", "|b1", "|u1", "rows")
_SCALARS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "large integer": (int,),
    "real": (float,),
    "flag": (bool,),
    "text": (str,),
    "time": (float,),
    "feature": (str, int),
}
# Lists of these, and whether one of them may be None.
_LISTS = {"texts": ("text", False), "times": ("time", True), "features": ("feature", False)}


class Field(NamedTuple):
    """An array or a scalar of a part, called `name` there.

    The kind of arrays is `<f8`, `<i8`, `|b1`, `|u1`, or `rows`: in the precision of the stream. The letters of
    `shape` are lengths of axes, n that of the part, and others the same wherever keys begin with the same word. The
    kind of scalars is one of `_SCALARS` or `_LISTS`, `kernel`, or `real or null`, where null is infinity. A `time` is a
    number, or the text of a ``datetime64``; a `feature` is a name or a position. The rule is one of `RULES`, the least
    value of a scalar, or the texts that are allowed.
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


class Section(NamedTuple):
    """The object at a path: what makes it of its fields and children, and whether it may be None, or be its `twin`.

    A listed part stands for a tuple of such objects, each with keys of its own.
    """

    path: str
    make: Callable[..., Any]
    is_optional: bool
    is_listed: bool
    twin: str
    fields: list[Field]
    children: list["Section"]

    @property
    def name(self) -> str:
        """The attribute of the part that holds this one."""
        return self.path.rpartition(".")[2]

    def key(self, name: str) -> str:
        """Return the key of a field."""
        return f"{self.path}.{name}" if self.path and not self.is_listed else name


def whole_of(table: str, makers: Sequence[Callable[..., Any]]) -> Section:
    """Read a table: lines that name a maker and the path of a part, then the fields of these parts.

    A part stands in front of those that it holds. `PATH?` may be None, `PATH? = TWIN` the part of that name before it,
    and `PATH*` is a tuple of parts.
    A line of fields has their names, kind (`KIND?` may be None), shape and rule, between slashes; `-` stands for none.
    """
    known = {make.__name__: make for make in makers}
    parts: dict[str, Section] = {}
    group: list[Section] = []
    has_fields = False
    for line in filter(None, map(str.strip, table.splitlines())):
        make, is_part, path = line.partition(":")
        if is_part:
            path, _, twin = path.strip().partition(" = ")
            whole = path.rstrip("?*")
            before, _, name = whole.rpartition(".")
            key = parts[before].key(name) if whole else ""
            part = parts[whole] = Section(key, known[make], path.endswith("?"), path.endswith("*"), twin, [], [])
            group = [part] if has_fields else [*group, part]
            if whole:
                parts[before].children.append(part)
        elif line != "-":
            names, kind, shape, rule = (*(cell.strip() for cell in line.split("/")), "", "")[:4]
            for part in group:
                part.fields.extend(
                    Field(name, kind.rstrip("?"), shape, rule, kind.endswith("?")) for name in names.split()
                )
        has_fields = not is_part
    return parts[""]


@dataclass
class Context:
    """Context that all fields share: whether rows have gaps, lengths of axes, and what `kernel` entries stand for."""

    has_gaps: bool = True
    lengths: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kernel: Callable[[Any], Any] = lambda value: value


def record_fields(part: Section, value: Any) -> dict[str, Any]:
    """Return the value of every field by its key; that of an absent part is None, or the name of its twin."""
    found: dict[str, Any] = {}
    for entry in part.fields:
        kept = getattr(value, entry.name)
        kept = list(map(_plain, kept)) if entry.kind in _LISTS and kept is not None else _plain(kept)
        found[part.key(entry.name)] = None if entry.kind == "real or null" and kept == math.inf else kept
    for child in part.children:
        inner = getattr(value, child.name)
        is_twin = inner is not None and child.twin and inner is getattr(value, child.twin)
        if child.is_listed:
            found[child.path] = [record_fields(child, item) for item in inner]
        elif inner is None or is_twin:
            found[child.path] = child.twin if is_twin else None
        else:
            found |= record_fields(child, inner)
    return found


def restore_section(part: Section, values: Mapping[str, Any], context: Context) -> Any:
    """Make the value that `record_fields` recorded; CheckpointError if a field is missing, wrong or unknown."""
    left = dict(values)
    made = _build_part(part, left, context)
    if left:
        raise CheckpointError(f"{min(left)!r} is no part of a checkpoint")
    return made


def _build_part(part: Section, left: dict[str, Any], context: Context) -> Any:
    """Make a part of the values that are left, and take them."""
    fields: dict[str, Any] = {}
    for entry in part.fields:
        key = part.key(entry.name)
        if key not in left:
            raise CheckpointError(f"{key} is missing")
        fields[entry.name] = _check_value(key, entry, left.pop(key), context)
    for child in part.children:
        if child.is_listed:
            fields[child.name] = _build_list(child, left, context)
            continue
        if not child.is_optional or child.path not in left:
            fields[child.name] = _build_part(child, left, context)
            continue
        twin = left.pop(child.path)
        if twin is not None and (not child.twin or twin != child.twin):
            raise CheckpointError(f"{child.path} is {show(twin)}, but should be null or have fields")
        fields[child.name] = None if twin is None else fields[twin]
    return part.make(**fields)


def _build_list(part: Section, left: dict[str, Any], context: Context) -> tuple[Any, ...]:
    """Make the objects of a listed part of the values that are left, and take them."""
    items = left.pop(part.path, None)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise CheckpointError(f"{part.path} is {show(items)} but should be a list of JSON objects")
    return tuple(restore_section(part, item, replace(context, lengths=dict(context.lengths))) for item in items)


def _plain(value: Any) -> Any:
    """Return the text of a time in UTC, and anything else as it is."""
    return str(value) if isinstance(value, np.datetime64) else value


def _check_value(key: str, entry: Field, value: Any, context: Context) -> Any:
    """Return the value of a field, if it is of the kind, the shape and the range that the table says."""
    kind = entry.kind
    if kind == "kernel":
        return context.kernel(value)
    if value is None and (entry.is_optional or kind == "real or null"):
        return None if entry.is_optional else math.inf
    if entry.is_array:
        return _check_array(key, entry, value, context)
    if kind in _LISTS and type(value) is list:
        inner = Field(entry.name, _LISTS[kind][0], is_optional=_LISTS[kind][1])
        found = [_check_value(key, inner, item, context) for item in value]
        return found if kind == "texts" else tuple(found)
    if kind == "time" and isinstance(value, str):
        return _date(key, value)
    kind = kind.partition(" or ")[0]
    if type(value) not in _SCALARS.get(kind, ()) or not _is_in_range(value, kind, entry.rule):
        raise CheckpointError(
            f"{key} is {show(value)} but should be of the kind {' '.join((kind, entry.rule)).rstrip()}"
        )
    return value


def _is_in_range(value: Any, kind: str, rule: str) -> bool:
    """Tell whether a scalar is one of the texts, or in the range, that a rule allows."""
    if isinstance(value, str | bool):
        return not rule or value in rule.split(" | ")
    least = 0 if kind == "feature" else int(rule.rpartition(" ")[2]) if rule else -math.inf
    is_small = kind == "large integer" or abs(value) <= _LARGEST[type(value)]
    return is_small and bool(value > least if rule.startswith("> ") else value >= least)


def _date(key: str, text: str) -> np.datetime64:
    try:
        # numpy takes words for dates too, such as "now" and "NaT".
        found = np.datetime64(text) if text[:1].isdigit() else None
    except ValueError:
        found = None
    if found is None or str(found) != text:
        raise CheckpointError(f"{key} is {show(text)} but should be a date")
    return found


def _check_array(key: str, entry: Field, value: Any, context: Context) -> AnyArray:
    if not isinstance(value, np.ndarray):
        raise CheckpointError(f"{key} is {show(value)} but should be an array")
    if value.dtype.str != entry.kind and value.dtype.newbyteorder("<").str != entry.kind:
        raise CheckpointError(f"{key} holds numbers of type {value.dtype.str} but should hold {entry.kind}")
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
    if entry.kind != "|b1" and not RULES[rule](value):
        raise CheckpointError(f"{key}: its numbers should be {', '.join(filter(None, ('finite', rule)))}, and are not")
    return value
