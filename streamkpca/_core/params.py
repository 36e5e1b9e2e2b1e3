"""Parameters of estimators and kernels: numbers, flags and words, or a clear error."""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np

# Of what can be a number of rows, columns or atoms; checkpoints read no larger ones.
_LARGEST_INTEGER = 2**60


def check_integer(name: str, value: Any, *, least: int, most: int | None = _LARGEST_INTEGER, where: str) -> int:
    """Check that a parameter is a whole number of at least `least`.

    Parameters
    ----------
    name, value : str, object
        The parameter.
    least : int
        Smallest value allowed.
    most : int or None
        Largest value allowed, None for any; by default one that float64 and int64 can take.
    where : str
        Who asks, for the error text.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        Not an integer (True and False are not).
    ValueError
        Less than `least`, or more than `most`.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError(f"{where}: {name} must be an integer of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{where}: {name} must be at least {least}, got {value!r}")
    if most is not None and int(value) > most:
        raise ValueError(f"{where}: {name} must be at most {most}, got {_shown(int(value))}")
    return int(value)


def check_real(
    name: str,
    value: Any,
    *,
    where: str,
    least: float = -math.inf,
    most: float = math.inf,
    open_below: bool = False,
    open_above: bool = False,
) -> float:
    """Check that a parameter is a finite number of an interval.

    Parameters
    ----------
    name, value : str, object
        The parameter.
    where : str
        Who asks, for the error text.
    least, most : float
        Ends of the interval.
    open_below, open_above : bool
        Leave the end itself out.

    Returns
    -------
    float

    Raises
    ------
    TypeError
        Not a real number (True and False are not).
    ValueError
        NaN, infinite, or outside the interval.
    """
    if not is_real(value):
        raise TypeError(f"{where}: {name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    too_small = number <= least if open_below else number < least
    too_large = number >= most if open_above else number > most
    if not math.isfinite(number) or too_small or too_large:
        low, high = ("(" if open_below else "["), (")" if open_above or most == math.inf else "]")
        interval = "" if least == -math.inf and most == math.inf else f" in {low}{least:g}, {most:g}{high}"
        raise ValueError(f"{where}: {name} must be a finite number{interval}, got {value!r}")
    return number


def check_choice(name: str, value: Any, *, choices: Collection[str], where: str) -> str:
    """Check that a parameter is one of a few words.

    Parameters
    ----------
    name, value : str, object
        The parameter.
    choices : collection of str
        The words.
    where : str
        Who asks, for the error text.

    Returns
    -------
    str

    Raises
    ------
    TypeError, ValueError
        Not a string, or not one of them.
    """
    words = ", ".join(repr(choice) for choice in choices)
    if not isinstance(value, str):
        raise TypeError(f"{where}: {name} must be one of {words}, got {value!r}")
    if value not in choices:
        raise ValueError(f"{where}: {name} must be one of {words}, got {value!r}")
    return value


def check_flag(name: str, value: Any, *, where: str) -> bool:
    """Check that a parameter is True or False.

    Parameters
    ----------
    name, value : str, object
        The parameter.
    where : str
        Who asks, for the error text.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        Anything else, also 0, 1 and None.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{where}: {name} must be True or False, got {value!r}")
    return bool(value)


def check_n_components(value: Any, *, where: str) -> int | float:
    """Check a number of axes, or a share of variance to explain.

    Parameters
    ----------
    value : object
        The parameter.
    where : str
        Who asks, for the error text.

    Returns
    -------
    int or float
        At least 1, or strictly between 0 and 1.

    Raises
    ------
    TypeError, ValueError
        Neither of the two.
    """
    if isinstance(value, float | np.floating):
        return check_real(
            "n_components, as a share of the variance,",
            value,
            least=0.0,
            most=1.0,
            open_below=True,
            open_above=True,
            where=where,
        )
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError(
            f"{where}: n_components must be an integer of at least 1, or a share of the variance between 0 and 1, "
            f"got {value!r}"
        )
    return check_integer("n_components", value, least=1, where=where)


def is_real(value: Any) -> TypeGuard[Real]:
    """Say whether a value is a real number; True and False are not.

    Parameters
    ----------
    value : object

    Returns
    -------
    bool
    """
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _shown(number: Any) -> str:
    # Python prints no number of more than 4,300 digits, and nobody reads one.
    return repr(number) if number < 10**30 else f"one of {int(number).bit_length()} bits"
