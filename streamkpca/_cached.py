"""A property that is worked out once, without the lock that Python 3.11 puts around it."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

Value = TypeVar("Value")


class cached_property(Generic[Value]):
    """Work out a property when it is asked for first, and keep it.

    Parameters
    ----------
    function : callable
        Of an object whose attributes do not change.

    Notes
    -----
    As `functools.cached_property` is from Python 3.12 on. Before, one lock for all objects of a class is held
    meanwhile: readers wait for each other, and a child that is forked in the meantime waits for ever. Two threads may
    work the same out twice; one of the results stays.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> Self | Value:
        # Once there, the object's own attribute comes first, and this is not even called.
        if instance is None:
            return self
        value: Value = instance.__dict__.setdefault(self._name, self._function(instance))
        return value
