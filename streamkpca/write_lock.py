"""A lock that belongs to one model, wherever the model goes."""

import os
import threading
import weakref
from typing import Any

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
