"""Freed memory that the C library keeps for the next arrays."""

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_VARIABLES: Final = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"
# Codes of mallopt for the two variables, and what glibc uses where only the other one is set.
_CODES: Final = -1, -3
_USUAL: Final = 2**17
# Bytes that stay at the end of a heap, and size from which an array is mapped alone; glibc allows no more than 32 MiB.
_KEPT: Final = 2**27, 2**25

_lock = threading.Lock()
_depth = 0


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Let glibc keep freed memory in the meantime, where the environment makes it return that at once.

    Notes
    -----
    Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_=65536``. Then every array of 128 KiB or more is mapped and
    cleared anew, page by page: learning blocks of 512 rows with 128 atoms took 1.6 times the processor time. Without
    such a variable glibc raises its thresholds by itself, and this does nothing.

    The thresholds belong to the process. Calls may overlap: the last one to end restores those of the environment and
    returns what is free.
    """
    global _depth
    given = _thresholds()
    if given is None:
        yield
        return
    with _lock:
        if _depth == 0:
            _set([max(pair) for pair in zip(given, _KEPT, strict=True)])
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _set(given)
                _glibc().malloc_trim(0)


def _set(thresholds: list[int]) -> None:
    for code, size in zip(_CODES, thresholds, strict=True):
        _glibc().mallopt(code, size)


@cache
def _thresholds() -> list[int] | None:
    """Return the thresholds that the environment has given to this process; None if it gives none, or without glibc."""
    try:
        given = [int(os.environ.get(name, _USUAL)) for name in _VARIABLES]
    except ValueError:
        return None
    has_some = any(name in os.environ for name in _VARIABLES)
    is_glibc = sys.platform == "linux" and hasattr(_glibc(), "gnu_get_libc_version")
    return given if has_some and is_glibc else None


@cache
def _glibc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _reset_in_child() -> None:
    """Reset the lock in a forked child, where other threads cannot release it."""
    global _lock, _depth
    _lock, _depth = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
