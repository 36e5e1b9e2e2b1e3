"""Direct control of BLAS: OpenBLAS on one thread while blocks are small, and SYRK without the interpreter lock."""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.linalg import _umath_linalg
from scipy.linalg import _fblas, cython_blas

Array = npt.NDArray[np.float64]

# OpenBLAS as numpy and scipy bundle it, and as distributions build it; with 64-bit integers and without.
_NAMES = [(prefix, suffix) for prefix in ("scipy_openblas", "openblas") for suffix in ("64_", "")]

_lock = threading.Lock()
_depth = 0
_before: list[int] = []
# How many calls of `one_blas_thread` this thread is inside.
_own = threading.local()


class _ThreadCount(NamedTuple):
    """Getter and setter for the number of threads of one OpenBLAS in this process."""

    get: Callable[[], int]
    set: Callable[[int], None]


@cache
def _thread_counts() -> list[_ThreadCount]:
    """Find the OpenBLAS libraries that numpy and scipy are linked with; an empty list for any other BLAS."""
    found = []
    for module in (_umath_linalg, _fblas):
        # The handle of an extension module finds the symbols of the libraries that the module is linked with.
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
    """Hold OpenBLAS to one thread.

    Notes
    -----
    OpenBLAS uses several threads for matrices larger than about 64 x 64 and lets them spin while they wait for each
    other. For blocks of 512 rows and 256 atoms that gains nothing, and costs a factor of 27 when other processes want
    the cores too (1,025 against 27,366 rows a second, on two cores with four busy processes). One thread also gives
    the same bits whatever the number of threads.

    The number of threads belongs to the process, so other Python threads are held to one as well in the meantime.
    Calls may overlap: the last one to end restores what the first one found. A call costs a few hundred nanoseconds
    and does nothing with a BLAS other than OpenBLAS.
    """
    global _depth
    with _lock:
        if _depth == 0:
            _before[:] = [count.get() for count in _thread_counts()]
            for count in _thread_counts():
                count.set(1)
        _depth += 1
    _own.depth = getattr(_own, "depth", 0) + 1
    try:
        yield
    finally:
        _own.depth -= 1
        with _lock:
            _depth -= 1
            if _depth == 0:
                for count, threads in zip(_thread_counts(), _before, strict=True):
                    count.set(threads)


def blas_threads() -> int:
    """Return how many threads OpenBLAS uses outside `one_blas_thread`; 1 with another BLAS."""
    with _lock:
        counts = _before if _depth else [count.get() for count in _thread_counts()]
        return max(counts, default=1)


def lower_self_product(columns: Array) -> Array:
    """Return the lower triangle of A^T A, zeros above it, for a C-contiguous A of shape (n, m).

    Notes
    -----
    numpy's product calls SYRK too, but mirrors the result in a plain loop, which takes a fifth of the time at m = 512;
    scipy's wrapper keeps the interpreter lock. This calls the function that scipy publishes for C through ctypes, which
    releases the lock.
    """
    n, m = columns.shape
    product = np.zeros((m, m))
    if n and m:
        # BLAS is column-major: it sees A^T of shape (m, n), and its upper triangle is the lower one here.
        width, height = ctypes.byref(ctypes.c_int(m)), ctypes.byref(ctypes.c_int(n))
        one, zero = ctypes.byref(ctypes.c_double(1.0)), ctypes.byref(ctypes.c_double(0.0))
        _syrk()(b"U", b"N", width, height, one, columns.ctypes.data, width, zero, product.ctypes.data, width)
    return product


@cache
def _syrk() -> Callable[..., None]:
    """Find dsyrk among the functions that scipy publishes for C."""
    capsule = cython_blas.__pyx_capi__["dsyrk"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(capsule, name(capsule))
    text, number = ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)
    real, array = ctypes.POINTER(ctypes.c_double), ctypes.c_void_p
    prototype = ctypes.CFUNCTYPE(None, text, text, number, number, real, array, number, real, array, number)
    return prototype(address)


def _reset_in_child() -> None:
    """Reset the lock and the count in a forked child, where other threads cannot release or restore anything."""
    global _lock, _depth
    _lock = threading.Lock()
    if _depth and not getattr(_own, "depth", 0):
        for count, threads in zip(_thread_counts(), _before, strict=True):
            count.set(threads)
    _depth = getattr(_own, "depth", 0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
