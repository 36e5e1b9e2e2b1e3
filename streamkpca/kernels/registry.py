"""The kernels that have names: one table for parameters, expressions and the command."""

from collections.abc import Callable
from typing import Any, TypeVar

from streamkpca.kernels.base import Kernel

KernelClass = TypeVar("KernelClass", bound=type[Kernel])

# Kernel classes by the names that an estimator's parameter `kernel` accepts.
KERNELS: dict[str, type[Kernel]] = {}


def register(*names: str) -> Callable[[KernelClass], KernelClass]:
    """Decorate a kernel class, to register it under names."""

    def registered(kind: KernelClass) -> KernelClass:
        KERNELS.update(dict.fromkeys(names, kind))
        return kind

    return registered


def kernel_classes() -> dict[str, type[Kernel]]:
    """Return the registered classes by their names in expressions, such as RBF."""
    return {kind.__name__: kind for kind in KERNELS.values()}


def kernel_from(value: Any, *, where: str) -> Kernel:
    """Make a kernel from a kernel or a name.

    Parameters
    ----------
    value : Kernel or str
        A kernel, or the name of a kernel, which is made with its default parameters.
    where : str
        Name of the caller, for the error text.

    Returns
    -------
    Kernel

    Raises
    ------
    TypeError
        `value` is neither a kernel nor a name.
    ValueError
        `value` is not a known name.

    Examples
    --------
    >>> kernel_from("rbf", where="KernelPCA")
    RBF(gamma='spread')
    """
    if isinstance(value, Kernel):
        return value
    names = ", ".join(repr(name) for name in KERNELS)
    if isinstance(value, str):
        if value not in KERNELS:
            raise ValueError(f"{where}: kernel must be a Kernel or one of {names}, got {value!r}")
        return KERNELS[value]()
    if isinstance(value, type) and issubclass(value, Kernel):
        raise TypeError(
            f"{where}: kernel must be a value, got the class {value.__name__}; make one: {value.__name__}()"
        )
    if callable(value):
        raise TypeError(f"{where}: kernel must be a Kernel, got the function {value!r}; wrap it: kernels.Custom(f)")
    raise TypeError(f"{where}: kernel must be a Kernel or one of {names}, got {value!r}")
