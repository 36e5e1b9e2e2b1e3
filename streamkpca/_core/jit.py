"""The one decorator for compiled loops."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# The full set would let the compiler assume that no NaN and no infinity exist, and every guard
# against them would be compiled away.
_FASTMATH = {"contract", "reassoc", "arcp", "nsz"}


class _ForgivingCache:
    """A cache on disk of which a damaged entry is a missing one.

    Parameters
    ----------
    cache : object
        Numba's.

    Notes
    -----
    Numba raises what unpickling raises when a file was cut off, by a full disk or a machine that went down, and does so
    again in every later process. It also numbers its files by an index that it reads, changes and writes back: where
    two processes do that at once, an entry can end up naming the machine code of other types. Both are seen here
    before anything runs; the index is emptied and the loop compiled again.

    Attributes
    ----------
    unsaved : int
        Specialisations that could not be saved.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self.unsaved = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Load the machine code for some types, or None."""
        try:
            found = self._cache.load_overload(signature, target)
            # Loops are asked for by the types of their arguments alone.
            if found is None or tuple(found.signature.args) == tuple(signature):
                return found
        except Exception:  # noqa: BLE001, RUF100 - damaged bytes unpickle to anything, and raise anything
            pass
        with suppress(OSError):
            self._cache.flush()
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Save machine code, unless the disk is full or the folder may no longer be written to."""
        try:
            self._cache.save_overload(signature, compiled)
        except OSError:
            self.unsaved += 1


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
        compiled: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # Numba refuses to cache when neither the package's folder nor the user's cache folder can be
        # written. The loop then compiles again in every process: slower, never a failing import.
        compiled = numba.njit(**options)(function)
    # With the jit off it is the function itself.
    if hasattr(compiled, "_cache"):
        compiled._cache = _ForgivingCache(compiled._cache)
    loop: Function = compiled
    return loop
