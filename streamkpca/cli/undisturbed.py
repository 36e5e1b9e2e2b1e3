"""Imports that no signal interrupts."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# The signals that stop a command; after SIGHUP the terminal was closed.
STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back signals that Python handles until libraries are imported, and raise them again then.

    A KeyboardInterrupt in the middle of an import may end as another error, or nowhere: pyarrow imports pandas if it
    can, and takes any exception for its absence.
    """
    held: list[int] = []
    before = {}

    def hold(signum: int, frame: FrameType | None) -> None:
        held.append(signum)

    # Only the main thread may set handlers, and it alone runs them.
    if threading.current_thread() is threading.main_thread():
        for signum in STOPS:
            if callable(handler := signal.getsignal(signum)):
                before[signum] = handler
                signal.signal(signum, hold)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        for signum in held:
            signal.raise_signal(signum)
