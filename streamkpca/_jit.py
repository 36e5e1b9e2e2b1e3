"""The one decorator for compiled loops."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# The full set would let the compiler assume that no NaN and no infinity exist, and every guard
# against them would be compiled away.
_FASTMATH = {"contract", "reassoc", "arcp", "nsz"}


def jit(function: Function) -> Function:
    """Compile a loop on its first call, without the interpreter lock.

    Parameters
    ----------
    function : callable
        Arrays and scalars in, results written to arrays that the caller brings.

    Returns
    -------
    callable
        The compiled function, its machine code cached on disk where that is possible.

    Notes
    -----
    ``error_model="numpy"``: a division by zero gives infinity, as in numpy, instead of an exception.
    Signatures are left open: eager ones refuse read-only arrays and make the import pay for compiling.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _FASTMATH}
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # Numba refuses to cache when neither the package's folder nor the user's cache folder can be
        # written. The loop then compiles again in every process: slower, never a failing import.
        compiled = numba.njit(**options)(function)
    return compiled
