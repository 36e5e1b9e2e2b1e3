"""Exceptions at any line of the package."""

import linecache
import sys
from pathlib import Path

import streamkpca

_PACKAGE = str(Path(streamkpca.__file__).parent)


def interrupted_at(moment, kind, act):
    """Call a function, and raise an exception before the n-th line of this package that it reaches.

    Parameters
    ----------
    moment : int
        From 1.
    kind : type of BaseException
    act : callable

    Returns
    -------
    bool
        Whether it was interrupted; it was not if there are fewer lines.
    """
    left = moment

    def count(place):
        nonlocal left
        del place
        left -= 1
        if left == 0:
            raise kind("interrupted")

    try:
        _traced(act, count)
    except kind:
        return True
    assert left > 0, "the interrupt was swallowed"
    return False


def count_lines(act):
    """Count the lines of this package that a function reaches."""
    found = []
    _traced(act, found.append)
    return len(found)


def _traced(act, reached):
    """Tell of every line that is reached, but not of the way out of a with statement.

    There a tracer can raise between the end of the body and the release of a lock. A signal cannot: the interpreter
    looks for them after calls, so it is in the body, or the lock is free.
    """
    last = {}

    def trace(frame, event, argument):
        del argument
        name, line = frame.f_code.co_filename, frame.f_lineno
        if not name.startswith(_PACKAGE):
            return None
        if event == "line":
            goes_back = line < last.get(frame, line)
            last[frame] = line
            if not (goes_back and linecache.getline(name, line).lstrip().startswith("with ")):
                reached((name, line))
        elif event == "return":
            last.pop(frame, None)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
