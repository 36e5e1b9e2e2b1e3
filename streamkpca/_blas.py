"""One BLAS thread while small blocks are worked off."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from numpy.linalg import _umath_linalg
from scipy.linalg import _fblas

# OpenBLAS as numpy and scipy bundle it, and as distributions build it; with 64-bit integers and without.
_NAMES = [(prefix, suffix) for prefix in ("scipy_openblas", "openblas") for suffix in ("64_", "")]

_lock = threading.Lock()
_depth = 0
_before: list[int] = []


class _ThreadCount(NamedTuple):
    """The switch of one OpenBLAS in this process."""

    get: Callable[[], int]
    set: Callable[[int], None]


@cache
def _thread_counts() -> list[_ThreadCount]:
    """Find the switches of the libraries that numpy and scipy are linked with; none where it is not OpenBLAS."""
    found = []
    for module in (_umath_linalg, _fblas):
        # A handle of an extension module finds the symbols of what the module is linked with.
        library = ctypes.CDLL(module.__file__)
        for prefix, suffix in _NAMES:
            try:
                found.append(
                    _ThreadCount(
                        library[f"{prefix}_get_num_threads{suffix}"], library[f"{prefix}_set_num_threads{suffix}"]
                    )
                )
            except AttributeError:
                continue
    return found


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep OpenBLAS to one thread inside.

    Notes
    -----
    OpenBLAS starts its threads from matrices of some 64 x 64 on and lets them spin while they wait for each other. For
    blocks of 512 rows and 256 atoms that gains nothing, and costs a factor of 27 where other processes want the cores
    too (1,025 against 27,366 rows a second, on two cores with four busy processes). It also makes results the same
    bits whatever the number of threads.

    The number of threads belongs to the process, so other Python threads are held to one as well meanwhile. Calls may
    overlap: the last to leave restores what the first one found. A few hundred nanoseconds; nothing happens with a BLAS
    other than OpenBLAS.
    """
    global _depth
    with _lock:
        if _depth == 0:
            _before[:] = [count.get() for count in _thread_counts()]
            for count in _thread_counts():
                count.set(1)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                for count, threads in zip(_thread_counts(), _before, strict=True):
                    count.set(threads)
