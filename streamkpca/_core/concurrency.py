"""A property that is worked out once, without the lock that Python 3.11 puts around it."""

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

_EVERY: weakref.WeakSet["WriteLock"] = weakref.WeakSet()


class WriteLock:
    """Lets one thread write at a time; copies and pickles have locks of their own.

    Attributes
    ----------
    held : threading.RLock
        ``with lock.held:`` waits for it and frees it. Python's own lock, and no context manager around it: an interrupt
        would find the gap between the one's method and the other's, and the lock would be held for ever.

    Notes
    -----
    Who holds a lock stays behind in the parent process when another thread forks, and would hold it for ever in the
    child: a child starts with free locks. Models lose nothing by that, as what a writer works on is a copy.
    """

    def __init__(self) -> None:
        self.release_all()
        _EVERY.add(self)

    def release_all(self) -> None:
        """Forget who holds the lock; whoever does still frees the one that he was given."""
        self.held = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def _free_all() -> None:
    for lock in list(_EVERY):
        lock.release_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)


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
