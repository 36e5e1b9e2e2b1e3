"""Exceptions at any line of the package."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamkpca

_PACKAGE = str(Path(streamkpca.__file__).parent)


def interrupted_at(moment: int, kind: type[BaseException], act: Callable[[], object]) -> bool:
    """Carry something out and raise an exception before the n-th line of this package that it reaches.

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

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal left
        del argument
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise kind("interrupted")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except kind:
        return True
    finally:
        sys.settrace(before)
    assert left > 0, "the interrupt was swallowed"
    return False


def n_lines(act: Callable[[], object]) -> int:
    """Count the lines of this package that something reaches."""
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        del argument
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count
