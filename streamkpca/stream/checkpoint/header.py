"""Entries of a checkpoint's header, each checked when it is read."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar, get_type_hints

from streamkpca.errors import CheckpointError

Value = TypeVar("Value")

# Rows of a stream at a billion a second for decades, and sizes that can be added up.
_LARGEST_INTEGER = 2**60


class HeaderFields:
    """An object of the header.

    Parameters
    ----------
    values : object
        As it was parsed.
    where : str
        Its name, for the error text.

    Raises
    ------
    CheckpointError
        It is no object; and by all methods, where an entry is missing or not what is asked for.
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

    def part(self, name: str) -> "HeaderFields":
        """Return an object in the object."""
        return HeaderFields(self.value(name), f"{self._where}.{name}")

    def optional_part(self, name: str) -> "HeaderFields | None":
        """Return an object, or None where the entry is null."""
        return None if self.value(name) is None else self.part(name)

    def integer(self, name: str, *, least: int = 0, most: int | None = _LARGEST_INTEGER) -> int:
        """Return a whole number; by default one that counts something."""
        value = self.value(name)
        if type(value) is not int or value < least or (most is not None and value > most):
            raise self._wrong(name, f"a whole number of at least {least}" + ("" if most is None else ", not too large"))
        return value

    def optional_integer(self, name: str, *, least: int = 0) -> int | None:
        """Return a whole number, or None where the entry is null."""
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
        """Return one of a few words."""
        value = self.value(name)
        if not (isinstance(value, str) and value in choices):
            raise self._wrong(name, f"one of {', '.join(choices)}")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None where the entry is null."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a text or null")
        return value

    def optional_texts(self, name: str, count: int) -> list[str] | None:
        """Return so many texts, or None where the entry is null."""
        value = self.value(name)
        if value is None:
            return None
        if not (isinstance(value, list) and len(value) == count and all(isinstance(text, str) for text in value)):
            raise self._wrong(name, f"null or a list of {count} texts")
        return value

    def numbers_of(self, kind: type[Value], keys: Mapping[str, str], **others: Any) -> Value:
        """Make a dataclass whose fields are numbers and flags.

        Parameters
        ----------
        kind : type
            A dataclass.
        keys : mapping
            The entry that holds each field. null stands for infinity, which JSON does not know.
        **others : object
            Fields that are something else.

        Returns
        -------
        object
            Of that kind.
        """
        read = {int: self.integer, float: self._real_or_infinite, bool: self.flag}
        hints = get_type_hints(kind)
        return kind(**{field: read[hints[field]](key) for field, key in keys.items()}, **others)

    def _real_or_infinite(self, name: str) -> float:
        return math.inf if self.value(name) is None else self.real(name)

    def _wrong(self, name: str, expected: str) -> CheckpointError:
        return CheckpointError(f"{self._where}.{name} is {_shown(self._values[name])} but should be {expected}")


def numbers_in(value: Any, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return fields that are numbers and flags by their keys, as `HeaderFields.numbers_of` reads them."""
    numbers = {key: getattr(value, field) for field, key in keys.items()}
    return {key: None if number == math.inf else number for key, number in numbers.items()}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
