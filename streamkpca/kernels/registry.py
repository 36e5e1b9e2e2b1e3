"""Kernels by their names and by expressions: one table for parameters, files and the command.

Expressions are read without running any code.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import accumulate
from types import MappingProxyType
from typing import Any, TypeVar

from streamkpca.kernels.base import Kernel
from streamkpca.kernels.views import UnitMatrix

KernelClass = TypeVar("KernelClass", bound=type[Kernel])

# Kernel classes by the names that an estimator's parameter `kernel` accepts.
KERNELS: dict[str, type[Kernel]] = {}
# The same classes by the names that expressions use, such as RBF.
_CLASSES: dict[str, type[Kernel]] = {}


def register(*names: str) -> Callable[[KernelClass], KernelClass]:
    """Decorate a kernel class, to register it under names."""

    def registered(kind: KernelClass) -> KernelClass:
        KERNELS.update(dict.fromkeys(names, kind))
        _CLASSES[kind.__name__] = kind
        return kind

    return registered


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
    RBF(gamma='contrast')
    """
    if isinstance(value, Kernel):
        return value
    names = ", ".join(repr(name) for name in sorted(KERNELS))
    if isinstance(value, str):
        if value not in KERNELS:
            raise ValueError(f"{where}: kernel must be a Kernel or one of {names}, got {value!r}")
        return KERNELS[value]()
    if isinstance(value, type) and issubclass(value, Kernel):
        raise TypeError(f"{where}: expected a kernel but got the class {value.__name__}; make one: {value.__name__}()")
    if callable(value):
        raise TypeError(f"{where}: kernel must be a Kernel, got the function {value!r}; wrap it: kernels.Custom(f)")
    raise TypeError(f"{where}: kernel must be a Kernel or one of {names}, got {value!r}")


# This leaves room for two kernels on ten thousand columns, each in a unit of its own.
_LONGEST = 1_000_000
# Printing or comparing a kernel takes up to three calls a level, and Python allows a thousand.
_DEEPEST = 200
# Python's parser takes 2 KB of the C stack for a bracket and 150 bytes for a sign, and does not check what is left:
# in a thread, which has 512 KB on some systems, it would crash the process.
_MOST_BRACKETS = 100
_ENDLESS = re.compile(r"(?:[-+~]\s*){100}|\b(?:lambda|not|if|await)\b")


def parse_kernel(text: str, matrices: Mapping[str, UnitMatrix] = MappingProxyType({})) -> Kernel:
    """Read a kernel from text: a name, or the expression that a kernel prints as.

    `matrices` are those that the text calls by their names, as `Kernel.matrices` returns them.

    A ValueError says what cannot be read, or which parameter the kernel refuses. The text is parsed to a syntax tree,
    of which only calls of kernel constructors, ``+``, ``*``, ``**``, ``.exp()``, ``.on()``, ``.in_units()`` and
    literals are carried out; nothing is evaluated. Custom kernels hold code, so they cannot be written this way.

    Examples
    --------
    >>> parse_kernel("2.0 * RBF(gamma=0.5) + Linear().on([0, 1])")
    2.0 * RBF(gamma=0.5) + Linear().on((0, 1))
    """
    if len(text) > _LONGEST:
        raise ValueError(f"kernel expression of {len(text)} characters; at most {_LONGEST} are read")
    if text.strip().isidentifier() and text.strip() not in _CLASSES:
        return kernel_from(text.strip(), where="kernel")
    brackets = accumulate((letter in "([{") - (letter in ")]}") for letter in text)
    if max(brackets, default=0) > _MOST_BRACKETS or _ENDLESS.search(text):
        raise ValueError(f"cannot read kernel {_shown(text)}; {_help()}")
    try:
        return _kernel(ast.parse(text.strip(), mode="eval").body, matrices)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"cannot read kernel {_shown(text)}; {_help()}") from None
    except (TypeError, OverflowError) as error:
        raise ValueError(f"cannot read kernel {_shown(text)} ({error}); {_help()}") from None


def _kernel(node: ast.expr, matrices: Mapping[str, UnitMatrix], depth: int = 0) -> Kernel:
    if depth > _DEEPEST:
        raise ValueError(f"a kernel is nested more than {_DEEPEST} deep; join fewer kernels")
    deeper = depth + 1
    match node:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="kernels"), attr=name) if name in _CLASSES:
            return _CLASSES[name]()
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _CLASSES:
            return _construct(name, args, keywords)
        case ast.Call(func=ast.Attribute(value=inner, attr="exp"), args=[], keywords=[]):
            return _kernel(inner, matrices, deeper).exp()
        case ast.Call(func=ast.Attribute(value=inner, attr="on"), args=[columns], keywords=[]):
            return _kernel(inner, matrices, deeper).on([int(_number(item, whole=True)) for item in _items(columns)])
        case ast.Call(func=ast.Attribute(value=inner, attr="in_units"), args=[units], keywords=[]):
            return _kernel(inner, matrices, deeper).in_units(_units(units, matrices))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _kernel(left, matrices, deeper) + _kernel(right, matrices, deeper)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _kernel(left, matrices, deeper) ** int(_number(right, whole=True))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            if _is_number(left):
                return _number(left) * _kernel(right, matrices, deeper)
            if _is_number(right):
                return _kernel(left, matrices, deeper) * _number(right)
            return _kernel(left, matrices, deeper) * _kernel(right, matrices, deeper)
    raise ValueError(f"cannot read {_shown(ast.unparse(node))} in a kernel; {_help()}")


def _construct(name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> Kernel:
    values = [_literal(arg) for arg in args]
    named = {}
    for keyword in keywords:
        if keyword.arg is None:
            raise ValueError(f"cannot read ** in {name}(...); {_help()}")
        named[keyword.arg] = _literal(keyword.value)
    known = [one.name for one in fields(_CLASSES[name])]  # type: ignore[arg-type]
    if unknown := [given for given in named if given not in known]:
        raise ValueError(f"{name} has no parameter {_shown(unknown[0])}; it has {', '.join(known) or 'none'}")
    if len(values) > len(known) or set(named) & set(known[: len(values)]):
        raise ValueError(f"{name} has the parameters {', '.join(known) or 'none'}, but more were given, or one twice")
    return _CLASSES[name](*values, **named)


def _literal(node: ast.expr) -> float | int | str:
    match node:
        case ast.Constant(value=str(word)):
            return word
        case ast.Name(id=word):
            # Inner quotes are awkward in a shell, and gamma=scale is as clear as gamma="scale".
            return word
    return _number(node)


def _number(node: ast.expr, *, whole: bool = False) -> float | int:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_number(inner, whole=whole)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _number(inner, whole=whole)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            if math.isfinite(number) and not (whole and number != int(number)):
                return number
    kind = "a whole number" if whole else "a number"
    raise ValueError(f"expected {kind} in a kernel but got {_shown(ast.unparse(node))}; {_help()}")


def _is_number(node: ast.expr) -> bool:
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant)


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple) else [node]


def _units(node: ast.expr, matrices: Mapping[str, UnitMatrix]) -> str | list[Any] | UnitMatrix:
    match node:
        case ast.List() | ast.Tuple():
            return [_numbers(item) for item in node.elts]
        case ast.Call(func=ast.Name(id="matrix"), args=[ast.Constant(value=str(name))], keywords=[]):
            if name not in matrices:
                raise ValueError(
                    f"the kernel has the matrix {_shown(name)} by its name alone; pass the kernel itself, whose text "
                    "does not hold large matrices"
                )
            return matrices[name]
    word = _literal(node)
    if isinstance(word, str):
        return word
    raise ValueError(f"expected units in a kernel, as in [1, 0.5], but got {_shown(ast.unparse(node))}; {_help()}")


def _numbers(node: ast.expr) -> float | list[float]:
    """Read a number, or a row of a matrix."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_number(item) for item in node.elts]
    return _number(node)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}..."


def _help() -> str:
    """Say what can be written; kernels register after this module is imported."""
    return (
        "write a name such as rbf, or an expression such as 'RBF(gamma=0.5) + 0.1 * Linear()' of "
        f"{', '.join(sorted(_CLASSES))} with numbers, +, *, **, .exp(), .on([0, 1]) and .in_units(range)"
    )
