"""Linear algebra: OpenBLAS on one thread, SYRK without the interpreter lock, and triangular factors.

A factor L is lower triangular with a positive diagonal, the Cholesky factor of a kernel matrix.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import _umath_linalg
from scipy.linalg import _fblas, cython_blas, qr
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dtrtri

from streamkpca._core.arrays import Array, Positions

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

    OpenBLAS lets threads spin while they wait for each other. For blocks of 512 rows and 256 atoms that gains nothing,
    and costs a factor of 27 when other processes want the cores too. One thread gives the same bits everywhere.

    Other Python threads are held to one as well in the meantime, and calls may overlap; another BLAS is left alone.
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
    """Return the lower triangle of A^T A, zeros above it, for a C-contiguous A of shape (n, m), single or double."""
    n, m = columns.shape
    product = np.zeros((m, m), columns.dtype)
    if n and m:
        # BLAS is column-major: it sees A^T of shape (m, n), and its upper triangle is the lower one here.
        _call_blas("syrk", b"UN", (m, n), 1.0, (columns, m), 0.0, (product, m))
    return product


def apply_inverse(inverse: Array, kernel_rows: Array, *, transposed: bool = False) -> Array:
    """Turn kernel values (B, m), C-contiguous, into coordinates in place, given L^-1, or coordinates into L^-T c."""
    n, m = kernel_rows.shape
    if kernel_rows.size:
        # The transposed views are column-major; that of the inverse is upper triangular.
        how = b"LUNN" if transposed else b"LUTN"
        _call_blas("trmm", how, (m, n), 1.0, (inverse, m), (kernel_rows, m))
    return kernel_rows


def _call_blas(name: str, how: bytes, shape: tuple[int, ...], *arguments: float | tuple[Array, int]) -> None:
    """Call a routine through ctypes, as scipy's wrappers keep the interpreter lock.

    `how` is a letter for each of its options; the arguments are factors, and arrays with their leading dimensions.
    """
    single = any(isinstance(argument, tuple) and argument[0].dtype == np.float32 for argument in arguments)
    real: Any = ctypes.c_float if single else ctypes.c_double
    passed: list[Any] = [how[i : i + 1] for i in range(len(how))]
    passed += [ctypes.byref(ctypes.c_int(size)) for size in shape]
    for argument in arguments:
        if isinstance(argument, tuple):
            array, leading = argument
            passed += [ctypes.c_void_p(array.ctypes.data), ctypes.byref(ctypes.c_int(leading))]
        else:
            passed.append(ctypes.byref(real(argument)))
    _blas(("s" if single else "d") + name)(*passed)


@cache
def _blas(name: str) -> Callable[..., None]:
    """Find a routine among those that scipy publishes for C."""
    capsule = cython_blas.__pyx_capi__[name]
    name_of, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(pointer(capsule, name_of(capsule)))


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


# A row whose squared distance to the span is below this share of its own k(x, x) counts as dependent. A squared pivot p
# is known to eps / p, relative, and so are later coordinates along its direction; dropping it gives up p of the row's
# energy. On smooth kernels, 1e-12 lost 1e-5 of an eigenvalue when pivots came in an unlucky order, and 1e-8 lost 1e-8
# of a projection everywhere.
LEAST_PIVOT = 1e-10

# Rounding in one kernel value, relative to sqrt(k(x, x) k(y, y)). In some 240 fits of kernels of finite rank, errors of
# squared distances never exceeded the bound derived from it by more than a factor of 1.7.
KERNEL_ROUNDING = 4 * np.finfo(np.float64).eps

# Bases of 256 atoms on digits, server metrics or a curved sheet have 1e-12 to 1e-10. Above this limit, rounding shows
# in the eighth digit.
LARGEST_AMPLIFICATION = 1e-8


def solve_factor(factor: Array, kernel_rows: Array) -> Array:
    """Turn kernel values (B, m), C-contiguous, into coordinates L^-1 k_Z(x), row by row and in place."""
    if not kernel_rows.size:
        return kernel_rows
    # BLAS is column-major, and so are the transposed views: nothing is copied.
    solved: Array = dtrsm(1.0, factor.T, kernel_rows.T, trans_a=1, overwrite_b=1).T
    return solved


def solve_transposed(factor: Array, coordinates: Array) -> Array:
    """Turn coordinates (B, m) into coefficients over the atoms, row by row L^-T c."""
    if not coordinates.size:
        return coordinates
    solved: Array = dtrsm(1.0, factor.T, coordinates.T).T
    return solved


def inverse_factor(factor: Array) -> Array:
    """Invert a lower triangular factor; column j is the dual vector of atom j."""
    if not factor.size:
        return factor
    # The transposed view is column-major and upper triangular.
    inverse, _ = dtrtri(factor.T, lower=0)
    return np.ascontiguousarray(inverse.T)


def rounding_amplification(inverse: Array, factor: Array) -> float:
    """Estimate, from above, the share of energy that rounding in kernel values moves between directions.

    Kernel values are known to eps sqrt(k(x,x) k(y,y)), so k(Z, Z) = L L^T + E with |E_ij| <= eps e_i e_j and
    e_j = sqrt(k(z_j, z_j)), and squared lengths in the span change by |L^-1 E L^-T|: about eps |L^-1 diag(e)|_F^2 for
    independent errors.
    """
    lengths = np.sqrt(squared_norms(factor))
    reach = inverse * lengths
    return float(KERNEL_ROUNDING * np.vdot(reach, reach))


def restrict_factor(factor: Array, keep: Positions) -> tuple[Array, Array]:
    """Factor the kernel matrix of the k atoms at the ascending positions `keep`, given the factor (m, m) of all.

    Returns the lower triangular factor L' (k, k) with a positive diagonal, and the rotation G (k, m) with orthonormal
    rows and L[keep] = L' G.
    """
    m, k = len(factor), len(keep)
    untouched = int(np.flatnonzero(np.append(keep, m) != np.arange(k + 1))[0]) if k < m else m
    rotation = np.eye(k, m)
    restricted = factor[keep][:, :k].copy()
    if untouched < k:
        tail = _lower_factor(factor[keep[untouched:], untouched:])
        restricted[untouched:, untouched:], rotation[untouched:, untouched:] = tail
    return restricted, rotation


def independent_span(coordinates: Array) -> tuple[Positions, Array, Array]:
    """Find independent rows among coordinates (p, r), and an orthonormal basis of what all rows span.

    Returns the ascending positions of k independent rows, their lower triangular factor (k, k) with a positive
    diagonal, and G (k, r) with orthonormal rows and coordinates[accepted] = factor G.
    """
    if not coordinates.size:
        return np.empty(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, coordinates.shape[1]))
    lengths = np.sqrt(squared_norms(coordinates))
    unit = coordinates / np.where(lengths > 0.0, lengths, 1.0)[:, None]
    # Pivoting makes the diagonal reveal the rank: there are never more rows than coordinates.
    _, r, order = qr(unit.T, mode="economic", pivoting=True, check_finite=False)
    count = int(np.count_nonzero(np.diagonal(r) ** 2 > LEAST_PIVOT))
    accepted = np.sort(order[:count]).astype(np.int64)
    return accepted, *_lower_factor(coordinates[accepted])


def _lower_factor(rows: Array) -> tuple[Array, Array]:
    """Return LQ with a positive diagonal, by Householder: orthonormal to rounding however close the rows are."""
    q, r = qr(rows.T, mode="economic", check_finite=False)
    signs = np.where(np.diagonal(r) < 0.0, -1.0, 1.0)
    return (signs[:, None] * r).T, (q * signs).T


def squared_norms(coordinates: Array) -> Array:
    """Return the squared length of each row."""
    norms: Array = np.einsum("ij,ij->i", coordinates, coordinates)
    return norms
