"""The cell that holds the current state of a model, and the lock of its writers."""

from typing import Self

from streamkpca._core.concurrency import WriteLock
from streamkpca.stream.state import State


class StateCell:
    """The current state of a model (None before the first row), and the lock that its writers hold.

    Notes
    -----
    A writer holds the lock, makes the next state from the current one, and replaces it by one assignment. So readers
    see one of the two, and a call that fails changes nothing. A reader must read `state` only once per query.
    """

    def __init__(self, state: State | None = None) -> None:
        self.state = state
        self.write_lock = WriteLock()

    def as_it_is(self) -> Self:
        """Return a cell that keeps the present state, whatever writers do with this one."""
        return type(self)(self.state)
