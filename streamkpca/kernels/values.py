"""Values made of parameters and parts: immutable, printed as code, compared, and written as JSON."""

import json
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from streamkpca._core.concurrency import cached_property
from streamkpca._core.parameters import is_real, show
from streamkpca.errors import name_errors

# Printing, comparing or lowering a kernel takes up to three calls a level, and Python allows a thousand.
DEEPEST = 200
# How tightly an expression binds when it is printed.
SUM, PRODUCT, POWER, ATOM = range(4)


@name_errors
class KernelValue:
    """A frozen dataclass whose fields are parameters and parts: the base of all kernels.

    Examples
    --------
    >>> from streamkpca.kernels import RBF
    >>> kernel = RBF(1.0).in_units([2.0])
    >>> kernel.parameters()
    {'kernel': RBF(gamma=1.0), 'kernel__gamma': 1.0, 'units': (2.0,)}
    >>> kernel.is_near(kernel.with_parameter("kernel__gamma", 1.3))
    False
    >>> kernel.to_json()
    '{"type": "InUnits", "kernel": {"type": "RBF", "gamma": 1.0}, "units": [2.0]}'
    """

    _binding: ClassVar[int] = ATOM

    def __post_init__(self) -> None:
        """Check the parameters, and refuse kernels that are nested too deeply to be printed or compared."""
        if self._depth > DEEPEST:
            raise ValueError(
                f"a kernel is nested more than {DEEPEST} deep; join fewer kernels, or many in "
                "pairs of pairs: (k1 + k2) + (k3 + k4)"
            )
        self._check()

    def parameters(self) -> dict[str, Any]:
        """Return the parameters, and those of the parts by paths such as ``left__gamma``."""
        found: dict[str, Any] = {}
        for name, value in self._own_parameters().items():
            parts = value.parameters() if isinstance(value, KernelValue) else {}
            found |= {name: value} | {f"{name}__{path}": part for path, part in parts.items()}
        return found

    def with_parameter(self, path: str, value: Any) -> Self:
        """Make the kernel with another value of a parameter.

        Parameters
        ----------
        path : str
            A key of `parameters`.
        value : object

        Raises
        ------
        TypeError, ValueError
            There is no such parameter, or it does not accept that value.
        """
        known = self.parameters()
        if path not in known:
            raise ValueError(f"the kernel {show(self)} has no parameter {path!r}; it has {', '.join(known) or 'none'}")
        name, _, rest = path.partition("__")
        changed = known[name].with_parameter(rest, value) if rest else value
        return replace(self, **{name: changed})  # type: ignore[type-var]

    def to_json(self) -> str:
        """Write the kernel as JSON, which `kernel_from` reads.

        Raises
        ------
        TypeError
            The kernel calls a function of the caller, which is code and not stored.
        """
        return json.dumps(self._record())

    def is_near(self, other: Self, factor: float = 1.25) -> bool:
        """Whether each number is within a factor of its counterpart in another kernel of the same form.

        Parameters
        ----------
        other : Kernel
        factor : float
        """
        return _is_near(self, other, factor)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the program, which is made again where it is needed."""
        return self._own_parameters()

    def _own_parameters(self) -> dict[str, Any]:
        """Return the parameters by name, without those of the parts."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @cached_property
    def _parts(self) -> dict[str, Any]:
        """Return the kernels that this one combines, by name."""
        return {name: value for name, value in self._own_parameters().items() if isinstance(value, KernelValue)}

    def _of_all_parts(self, name: str, own: bool) -> bool:
        """Return whether all parts have a property; `own` is that of a kernel without parts."""
        parts = self._parts.values()
        return all(getattr(part, name) for part in parts) if parts else own

    def _record(self) -> dict[str, Any]:
        """Return the kernel as an object of JSON."""
        record: dict[str, Any] = {"type": type(self).__name__}
        for name, value in self._own_parameters().items():
            if callable(value):
                raise TypeError(
                    f"to_json: the kernel {show(self)} calls the function {value!r}, which is code and not stored; "
                    "pass the kernel itself wherever it is needed again"
                )
            record[name] = value._record() if isinstance(value, KernelValue) else value
        return record

    def _check(self) -> None:
        """Check the parameters of a new kernel, and set those that change by it."""

    @cached_property
    def _depth(self) -> int:
        """Number of levels of parts."""
        return 1 + max((part._depth for part in self._parts.values()), default=-1)

    def _set(self, name: str, value: Any) -> None:
        """Set a checked parameter while the frozen value is made."""
        object.__setattr__(self, name, value)

    def _within(self, binding: int) -> str:
        """Print this kernel, in parentheses where its surroundings bind more tightly."""
        return repr(self) if self._binding >= binding else f"({self!r})"


def _is_near(value: Any, other: Any, factor: float) -> bool:
    """Tell whether two parameters agree up to a factor: numbers, tuples of them, or kernels; others must be equal."""
    if isinstance(value, KernelValue) and type(value) is type(other):
        others = other._own_parameters()
        return all(_is_near(own, others[name], factor) for name, own in value._own_parameters().items())
    if isinstance(value, tuple) and isinstance(other, tuple):
        return len(value) == len(other) and all(_is_near(*pair, factor) for pair in zip(value, other, strict=True))
    if is_real(value) and is_real(other):
        smaller, larger = sorted((abs(float(value)), abs(float(other))))
        return larger <= factor * smaller and (float(value) >= 0.0) == (float(other) >= 0.0)
    return bool(value == other)
