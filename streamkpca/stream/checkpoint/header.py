"""Entries of a checkpoint's header, each checked as it is read."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar, get_type_hints

from streamkpca.errors import CheckpointError

Value = TypeVar("Value")

# Enough rows for a billion a second over decades; a few such numbers can be added without overflow.
_LARGEST_INTEGER = 2**60


class HeaderFields:
    """A JSON object of the header, called `where` in errors.

    All methods raise CheckpointError if an entry is missing or not of the kind that is asked for.
    """

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise CheckpointError(f"{where} is {_shown(values)} but should be an object")
        self._values = values
        self._where = where

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def value(self, name: str) -> Any:
        """Return an entry of any kind."""
        if name not in self._values:
            raise CheckpointError(f"{self._where} lacks {name!r}")
        return self._values[name]

    def with_value(self, name: str, value: Any) -> "HeaderFields":
        """Return the object with one more entry."""
        return HeaderFields({**self._values, name: value}, self._where)

    def part(self, name: str) -> "HeaderFields":
        """Return a nested object."""
        return HeaderFields(self.value(name), f"{self._where}.{name}")

    def optional_part(self, name: str) -> "HeaderFields | None":
        """Return a nested object, or None where the entry is null."""
        return None if self.value(name) is None else self.part(name)

    def integer(self, name: str, *, least: int = 0, most: int | None = _LARGEST_INTEGER) -> int:
        """Return an integer; by default a count."""
        value = self.value(name)
        if type(value) is not int or value < least or (most is not None and value > most):
            raise self._wrong(name, f"an integer of at least {least}" + ("" if most is None else f", at most {most}"))
        return value

    def optional_integer(self, name: str, *, least: int = 0) -> int | None:
        """Return an integer, or None where the entry is null."""
        return None if self.value(name) is None else self.integer(name, least=least)

    def real(self, name: str) -> float:
        """Return a number."""
        value = self.value(name)
        if type(value) not in (int, float):
            raise self._wrong(name, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self._wrong(name, "a number within the range of float64") from None

    def flag(self, name: str) -> bool:
        """Return True or False."""
        value = self.value(name)
        if type(value) is not bool:
            raise self._wrong(name, "true or false")
        return value

    def choice(self, name: str, choices: Collection[str]) -> str:
        """Return a string that is one of `choices`."""
        value = self.value(name)
        if not (isinstance(value, str) and value in choices):
            raise self._wrong(name, f"one of {', '.join(choices)}")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string, or None where the entry is null."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a string or null")
        return value

    def optional_texts(self, name: str, count: int) -> list[str] | None:
        """Return a list of `count` strings, or None where the entry is null."""
        value = self.value(name)
        if value is None:
            return None
        if not (isinstance(value, list) and len(value) == count and all(isinstance(text, str) for text in value)):
            raise self._wrong(name, f"null or a list of {count} strings")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of different strings, in their order."""
        value = self.value(name)
        is_listed = isinstance(value, list) and all(isinstance(text, str) for text in value)
        if not is_listed or value != sorted(set(value)):
            raise self._wrong(name, "a list of different strings, in order")
        listed: list[str] = value
        return listed

    def numbers_of(self, kind: type[Value], keys: Mapping[str, str], **others: Any) -> Value:
        """Make a dataclass; `keys` names the entry of each field that is a number or flag, `others` are the rest.

        null stands for infinity, which JSON cannot express.
        """
        read = {int: self.integer, float: self._real_or_infinite, bool: self.flag}
        hints = get_type_hints(kind)
        return kind(**{field: read[hints[field]](key) for field, key in keys.items()}, **others)

    def _real_or_infinite(self, name: str) -> float:
        return math.inf if self.value(name) is None else self.real(name)

    def _wrong(self, name: str, expected: str) -> CheckpointError:
        return CheckpointError(f"{self._where}.{name} is {_shown(self._values[name])} but should be {expected}")


def numbers_in(value: Any, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the numbers and flags of a dataclass by their keys, as `HeaderFields.numbers_of` reads them."""
    numbers = {key: getattr(value, field) for field, key in keys.items()}
    return {key: None if number == math.inf else number for key, number in numbers.items()}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
