"""The one decorator for compiled loops."""

import ctypes
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_LOGGER = logging.getLogger("streamkpca")

# The full set would let the compiler assume that no NaN and no infinity exist, and every guard
# against them would be compiled away.
_FASTMATH = {"contract", "reassoc", "arcp", "nsz"}


def check_interpreter() -> None:
    """Refuse a subinterpreter: loops that release the interpreter lock never get it back there."""
    api: Any = ctypes.pythonapi
    config: Any = numba.config
    current = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyInterpreterState_Get", api))
    number = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(("PyInterpreterState_GetID", api))
    if number(current()) and not config.DISABLE_JIT:
        raise ImportError(
            "streamkpca: expected the main interpreter but this is a subinterpreter, in which numba's loops wait for "
            "ever; use threads or processes, or with mod_wsgi WSGIApplicationGroup %{GLOBAL}"
        )


check_interpreter()


@cache
def _say_once() -> None:
    """Say why the first calls after an installation take long; a program that shows no warnings hides it."""
    _LOGGER.warning("compiling loops for some seconds, once for this installation (all in advance: streamkpca warmup)")


class _ForgivingCache:
    """Numba's cache on disk, with a damaged entry treated as a missing one; `unsaved` counts loops not saved.

    A full disk or a crash leaves files that raise when they are unpickled, in every later process. Two processes that
    write numba's index at once can leave an entry of other types. Both faults are detected before any code runs; the
    index is then emptied and the loop compiled again.
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
            # The lookup is by argument types alone, so they must match.
            is_damaged = found is not None and tuple(found.signature.args) != tuple(signature)
        except Exception:  # noqa: BLE001, RUF100 - damaged bytes unpickle to anything, and raise anything
            found, is_damaged = None, True
        if is_damaged:
            found = None
            with suppress(OSError):
                self._cache.flush()
        if found is None:
            _say_once()
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Save machine code, unless the disk is full or the folder is no longer writable."""
        try:
            self._cache.save_overload(signature, compiled)
        except OSError:
            self.unsaved += 1


def jit(function: Function) -> Function:
    """Compile a loop on its first call, without the interpreter lock, and cache the machine code where possible.

    ``error_model="numpy"``: a division by zero gives infinity, as in numpy, instead of an exception.
    Signatures are left open: eager ones refuse read-only arrays and make the import pay for compiling.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _FASTMATH, "no_cfunc_wrapper": True}
    # Only other loops call those with an underscore: compiling a wrapper for Python would take longer than the loop.
    options["no_cpython_wrapper"] = function.__name__.startswith("_")
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # Numba refuses to cache when neither the package's folder nor the user's cache folder can be
        # written. The loop then compiles again in every process: slower, but the import never fails.
        compiled = numba.njit(**options)(function)
    # With the jit off, `compiled` is the function itself.
    if hasattr(compiled, "_cache"):
        compiled._cache = _ForgivingCache(compiled._cache)
        if options["no_cpython_wrapper"]:
            # Numba would call a null pointer. Without an overload that it finds, it asks for one to be compiled.
            compiled.add_overload = lambda made: compiled.overloads.update({tuple(made.signature.args): made})
            compiled._compile_for_args = _refuse_call
    return cast(Function, compiled)


def n_unsaved(loop: Any) -> int:
    """Count the specialisations of a compiled loop that could not be saved to the cache."""
    return int(loop._cache.unsaved)


def _refuse_call(*_: Any) -> NoReturn:
    raise TypeError("expected a call from a compiled loop: those with an underscore have no wrapper for Python")
