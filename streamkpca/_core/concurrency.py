"""Tools for values and threads: the write lock of a model, a cached property that takes no lock, quick replacement."""

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

_LOCKS: weakref.WeakSet["WriteLock"] = weakref.WeakSet()


class WriteLock:
    """Let one thread write at a time; copies and pickles get locks of their own.

    ``with lock.held:`` acquires and releases Python's own lock; an interrupt could fall between the methods of another
    context manager. A forked child starts with free locks, as no thread is left there to release them.
    """

    def __init__(self) -> None:
        self.held = threading.RLock()
        _LOCKS.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def _renew_locks() -> None:
    # A thread inside `with lock.held:` still releases the old one.
    for lock in list(_LOCKS):
        lock.held = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


Value = TypeVar("Value")


class cached_property(Generic[Value]):
    """Compute a property on first access and keep it; for objects whose attributes do not change.

    Equals `functools.cached_property` of Python 3.12 and later. The one of Python 3.11 holds one lock for all objects
    of a class while it computes, for which a child forked in the meantime waits for ever.
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
        # Once the value is kept, Python finds the object's own attribute first and does not even call this method.
        if instance is None:
            return self
        value: Value = instance.__dict__.setdefault(self._name, self._function(instance))
        return value


def replace_fields(value: Value, **changes: Any) -> Value:
    """Change fields of an immutable value and keep what it has cached, which must stay true; faster than `replace`."""
    twin = object.__new__(type(value))
    twin.__dict__.update(value.__dict__, **changes)
    return twin
