"""Checks of parameters: of the right kind and in their range, or a clear error. Nothing here is compiled."""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np

# The largest number of rows, columns or atoms, in checkpoints too; int64 and float64 can hold it.
_LARGEST_INTEGER = 2**60
# Letters of a value that an error prints: the text of a kernel with many numbers may take megabytes.
_MOST_LETTERS = 200


def check_integer(name: str, value: Any, *, least: int, most: int | None = _LARGEST_INTEGER) -> int:
    """Check that a parameter is an integer, at least `least` and at most `most` (None for no limit)."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    if most is not None and int(value) > most:
        raise ValueError(f"{name} must be at most {most}, got {_show(int(value))}")
    return int(value)


def check_real(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    open_below: bool = False,
    open_above: bool = False,
) -> float:
    """Check that a parameter is a finite number between `least` and `most`, ends included unless open."""
    if not is_real(value):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    too_small = number <= least if open_below else number < least
    too_large = number >= most if open_above else number > most
    if not math.isfinite(number) or too_small or too_large:
        low, high = ("(" if open_below else "["), (")" if open_above or most == math.inf else "]")
        interval = "" if least == -math.inf and most == math.inf else f" in {low}{least:g}, {most:g}{high}"
        # Shares are often given in percent.
        meant = f"; did you mean {number / 100.0:g}?" if most == 1.0 and 2.0 <= number < 100.0 else ""
        raise ValueError(f"{name} must be a finite number{interval}, got {value!r}{meant}")
    return number


def check_choice(name: str, value: Any, *, choices: Collection[str]) -> str:
    """Check that a parameter is one of a few words."""
    words = ", ".join(repr(choice) for choice in choices)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {words}, got {value!r}")
    if value not in choices:
        raise ValueError(f"{name} must be one of {words}, got {value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Check that a parameter is True or False; 0, 1 and None are refused too."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_n_components(value: Any) -> int | float:
    """Check a number of axes of at least 1, or a share of variance strictly between 0 and 1."""
    if isinstance(value, float | np.floating):
        return check_real(
            "n_components, as a share of the variance,", value, least=0.0, most=1.0, open_below=True, open_above=True
        )
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError(
            f"n_components must be an integer of at least 1, or a share of the variance between 0 and 1, got {value!r}"
        )
    return check_integer("n_components", value, least=1)


def check_noise_variance(value: Any) -> float:
    """Check a noise variance that is neither "auto" nor None: a positive number."""
    if isinstance(value, str):
        raise ValueError(f"noise_variance must be a positive number, 'auto' or None, got {value!r}")
    return check_real("noise_variance", value, least=0.0, open_below=True)


def is_real(value: Any) -> TypeGuard[Real]:
    """Return whether a value is a real number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _show(number: Any) -> str:
    # Python refuses to print integers of more than 4,300 digits, and a shorter text reads better anyway.
    return repr(number) if number < 10**30 else f"one of {int(number).bit_length()} bits"


def show(value: Any) -> str:
    """Print the beginning of a value for an error."""
    text = repr(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
