"""Kernels by name and from JSON text: one table for parameters, files and the command."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import count
from typing import Any, NoReturn, TypeVar

from streamkpca.kernels.base import (
    DEEPEST,
    MOST_PARTS,
    Exponential,
    InUnits,
    Kernel,
    OnColumns,
    Power,
    Product,
    Scaled,
    Sum,
)
from streamkpca.kernels.views import shown

KernelClass = TypeVar("KernelClass", bound=type[Kernel])

# Kernel classes by the names that an estimator's parameter `kernel` accepts.
KERNELS: dict[str, type[Kernel]] = {}
# The classes that JSON names: these, and all that are registered.
_KINDS: dict[str, type[Kernel]] = {
    kind.__name__: kind for kind in (Sum, Product, Scaled, Power, Exponential, OnColumns, InUnits)
}

# Text with room for a matrix of units of 2,048 features, the largest that is measured.
_LONGEST = 2**27
_LONGEST_REASON = 500
_EXAMPLE = '{"type": "RBF", "gamma": 0.5}'


def register(*names: str) -> Callable[[KernelClass], KernelClass]:
    """Decorate a kernel class, to register it under names."""

    def registered(kind: KernelClass) -> KernelClass:
        KERNELS.update(dict.fromkeys(names, kind))
        _KINDS[kind.__name__] = kind
        return kind

    return registered


def kernel_from(value: Any, *, where: str) -> Kernel:
    """Make a kernel from a kernel, a name, or JSON text.

    Parameters
    ----------
    value : Kernel or str
        A kernel; the name of one, which is made with its default parameters; or text of `Kernel.to_json`.
    where : str
        Name of the caller, for the error text.

    Raises
    ------
    TypeError
        `value` is neither a kernel nor text.
    ValueError
        `value` is neither a known name nor JSON of a kernel.

    Examples
    --------
    >>> kernel_from("rbf", where="KernelPCA")
    RBF(gamma='contrast')
    >>> kernel_from('{"type": "RBF", "gamma": 0.5}', where="KernelPCA")
    RBF(gamma=0.5)
    """
    if isinstance(value, Kernel):
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return kernel_from_json(value, where=where)
    if isinstance(value, str) and value in KERNELS:
        return KERNELS[value]()
    if isinstance(value, str) and value == "precomputed":
        raise ValueError(
            f"{where}: expected a kernel that can compare any two rows but got 'precomputed'; pass the function as "
            "kernels.Custom(f), or use scikit-learn's KernelPCA, which takes a matrix of kernel values"
        )
    if isinstance(value, type) and issubclass(value, Kernel):
        raise TypeError(f"{where}: expected a kernel but got the class {value.__name__}; make one: {value.__name__}()")
    if callable(value):
        raise TypeError(f"{where}: kernel must be a Kernel, got the function {value!r}; wrap it: kernels.Custom(f)")
    names = ", ".join(map(repr, sorted(KERNELS)))
    message = f"{where}: kernel must be a Kernel, one of {names}, or JSON such as {_EXAMPLE}, got {shown(value)}"
    raise ValueError(message) if isinstance(value, str) else TypeError(message)


def kernel_from_json(text: str, *, where: str) -> Kernel:
    """Read a kernel from the text that `Kernel.to_json` writes; nothing in it is evaluated.

    Parameters
    ----------
    text : str
    where : str
        Name of the caller, for the error text.

    Raises
    ------
    ValueError
        The text is not JSON of a kernel, a kernel refuses a parameter, or there are more than 1,000 parts, nested
        more than 200 deep.

    Examples
    --------
    >>> kernel_from_json('{"type": "Scaled", "scale": 2, "kernel": {"type": "Linear"}}', where="load")
    2.0 * Linear()
    """
    try:
        if len(text) > _LONGEST:
            raise ValueError(f"expected at most {_LONGEST} characters but got {len(text)}")
        return _kernel_of(json.loads(text, parse_constant=_refuse_constant), count(1))
    except RecursionError:
        reason = f"it is nested more than {DEEPEST} deep; join fewer kernels"
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error)[:_LONGEST_REASON]
    raise ValueError(f"{where}: cannot read the kernel {shown(text)}: {reason}. JSON of a kernel looks like {_EXAMPLE}")


def _kernel_of(record: Any, number: Iterator[int]) -> Kernel:
    """Make the kernel of parsed JSON; `number` counts the parts."""
    kind = _KINDS.get(str(record.get("type"))) if isinstance(record, dict) else None
    if kind is None:
        raise ValueError(f"expected an object with the type {', '.join(sorted(_KINDS))} but got {shown(record)}")
    if next(number) > MOST_PARTS:
        raise ValueError(f"it has more than {MOST_PARTS} parts; join fewer kernels")
    known = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in record.items() if name != "type"}
    if unknown := sorted(given.keys() - known.keys()):
        names = ", ".join(known) or "none"
        raise ValueError(f"{kind.__name__} has no parameter {shown(unknown[0])}; it has {names}")
    parts = {name: _kernel_of(value, number) for name, value in given.items() if known[name] is Kernel}
    return kind(**given | parts)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")
