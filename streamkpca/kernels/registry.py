"""Kernels by their names and by expressions: one table for parameters, files and the command.

Expressions are read without running any code.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from itertools import islice
from keyword import kwlist
from types import MappingProxyType
from typing import Any, TypeVar

from streamkpca.kernels.base import DEEPEST, Kernel
from streamkpca.kernels.views import UnitMatrix, checked_units

KernelClass = TypeVar("KernelClass", bound=type[Kernel])
OuterClass = TypeVar("OuterClass", bound=type[Kernel])
Number = float | int

# Kernel classes by the names that an estimator's parameter `kernel` accepts.
KERNELS: dict[str, type[Kernel]] = {}
# The same classes by the names that expressions use, such as RBF.
_CLASSES: dict[str, type[Kernel]] = {}


# Kernels around a whole one, by their names in expressions; with a whole number each.
_OUTER: dict[str, Callable[[Kernel, int], Kernel]] = {}


def register_outer(kind: OuterClass) -> OuterClass:
    """Decorate the class of a kernel that is made of another one and a whole number, and stands outside all others."""
    _OUTER[kind.__name__] = kind
    return kind


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
        if value == "precomputed":
            raise ValueError(
                f"{where}: expected a kernel that can compare any two rows but got 'precomputed'; pass the function as "
                "kernels.Custom(f), or use scikit-learn's KernelPCA, which takes a matrix of kernel values"
            )
        if value not in KERNELS:
            raise ValueError(f"{where}: kernel must be a Kernel or one of {names}, got {value!r}")
        return KERNELS[value]()
    if isinstance(value, type) and issubclass(value, Kernel):
        raise TypeError(f"{where}: expected a kernel but got the class {value.__name__}; make one: {value.__name__}()")
    if callable(value):
        raise TypeError(f"{where}: kernel must be a Kernel, got the function {value!r}; wrap it: kernels.Custom(f)")
    raise TypeError(f"{where}: kernel must be a Kernel or one of {names}, got {value!r}")


# This leaves room for fifty thousand columns, each in a unit of its own.
_LONGEST, _MOST_TOKENS = 1_000_000, 20_000
# Every pair of rows is evaluated in every part, and a hostile text of a megabyte has room for 100,000 parts.
_MOST_PARTS = 1000
# Units inside others are multiplied by each other, again for each of them: matrices of c columns in O(c^3), unless they
# are small.
_DEEPEST_UNITS, _DEEPEST_MATRICES, _MOST_MATRICES = 10, 2, 64
# Python's parser takes 2 KB of the C stack for a bracket and 150 bytes for a sign or a power, and does not check what
# is left: in a thread, which has 512 KB on some systems, it would crash the process. Words of the language, such as ten
# thousand times ``1if 1else``, which need no space after a number, never reach it.
_MOST_BRACKETS, _MOST_SIGNS, _MOST_POWERS = 100, 100, 1000
# From 3.12 on it makes the syntax tree by recursion too: 2,000 levels, such as sums of so many terms, were too many.
_DEEPEST_TREE = 1200
# Python takes time with the square of the digits of an integer, where its own limit is lifted.
_MOST_DIGITS = 4300
# No pattern gives back what it has taken: hostile texts take time in proportion to their length.
_NUMBER = r"(?:\d[\d_]*+(?:\.[\d_]*+)?+|\.\d[\d_]*+)(?:[eE][-+]?\d++)?+(?!\w)"
_NUMBERS = rf"\s*+[-+]?{_NUMBER}(?:\s*+,\s*+[-+]?{_NUMBER}){{16,}}+\s*+,?+\s*+"
# A syntax tree takes a kilobyte for each number of a list, so long lists of numbers are read without it.
_LIST = re.compile(rf"\[{_NUMBERS}\]|\({_NUMBERS}\)", re.ASCII)
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\n\r]++)
    | (?P<name>[A-Za-z_]\w*+)
    | (?P<number>{_NUMBER})
    | (?P<text>'[^'"\\\n]*+'|"[^'"\\\n]*+")
    | (?P<sign>[-+])
    | (?P<power>\*\*)
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<comma>,)
    | (?P<mark>[*.=])""",
    re.VERBOSE | re.ASCII,
)
# Begins the names of such lists; no token has this letter.
_LISTED = "\u03bb"
_WORDS = frozenset(kwlist) - {"None", "True", "False"}


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
        return kernel_from(text.strip()[:200], where="kernel")
    readable = _readable(text)
    if readable is None:
        raise ValueError(f"cannot read kernel {_shown(text)}; {_help()}")
    plain, lists = readable
    try:
        return _Reader(matrices, lists).kernel(ast.parse(plain.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"cannot read kernel {_shown(text)}; {_help()}") from None
    except (TypeError, OverflowError) as error:
        raise ValueError(f"cannot read kernel {_shown(text)} ({error}); {_help()}") from None


def _readable(text: str) -> tuple[str, dict[str, list[Number]]] | None:
    """Return an expression with names in the place of its long lists of numbers, and these lists.

    None if it holds anything that expressions are not written with, or that Python's parser cannot bear.
    """
    pieces: list[str] = []
    lists: dict[str, list[Number]] = {}
    place = depth = n_signs = n_powers = 0
    tree = _TreeDepth()
    before: str | None = None
    while place < len(text):
        # Brackets after a name hold the arguments of a call.
        found = _LIST.match(text, place) if before in ("open", "comma") else None
        if found is not None:
            name = f"{_LISTED}{len(lists)}"
            lists[name] = [_number_of(item) for item in found[0][1:-1].split(",") if item.strip()]
            pieces.append(name)
            place, before = found.end(), "list"
            continue
        found = _TOKEN.match(text, place)
        if found is None or len(pieces) >= _MOST_TOKENS:
            return None
        place, kind = found.end(), found.lastgroup
        depth += (kind == "open") - (kind == "close")
        n_signs = n_signs + 1 if kind == "sign" else n_signs if kind == "space" else 0
        n_powers += kind == "power"
        if depth > _MOST_BRACKETS or n_signs >= _MOST_SIGNS or n_powers > _MOST_POWERS:
            return None
        if (kind == "name" and found[0] in _WORDS) or (kind == "number" and len(found[0]) > _MOST_DIGITS):
            return None
        pieces.append(" " if kind == "space" else found[0])
        tree.add(kind, is_binary=before not in (None, "open", "comma", "sign", "power", "mark"))
        before = before if kind == "space" else kind
    return ("".join(pieces), lists) if tree.depth() <= _DEEPEST_TREE else None


class _TreeDepth:
    """A bound on the depth of the syntax tree of an expression, from its tokens: operators of one level are nested."""

    def __init__(self) -> None:
        # For each open bracket: sums, the deepest term so far, and factors and brackets of the present term.
        self._levels = [[0, 0, 0]]

    def add(self, kind: str | None, *, is_binary: bool) -> None:
        """Count a token; `is_binary` tells whether an operand is before it."""
        level = self._levels[-1]
        if kind == "open":
            self._levels.append([0, 0, 0])
        elif kind == "close" and len(self._levels) > 1:
            inner = self._of(self._levels.pop()) + 1
            self._levels[-1][2] += inner
        elif kind == "comma" or (kind == "sign" and is_binary):
            level[:] = [level[0] + (kind == "sign"), max(level[1], level[2]), 0]
        elif kind in ("mark", "power", "sign"):
            level[2] += 1

    def depth(self) -> int:
        """Return the bound for all tokens so far."""
        return sum(map(self._of, self._levels))

    @staticmethod
    def _of(level: list[int]) -> int:
        return level[0] + max(level[1], level[2])


def _number_of(text: str) -> Number:
    """Read a number that Python would read as an integer or as a float."""
    text = text.strip()
    whole = text.lstrip("+-")
    if whole.isdecimal() and len(whole) <= _MOST_DIGITS:
        return int(text)
    return float(text)


class _Reader:
    """Turns the syntax tree of one expression into a kernel, over matrices that it calls by their names."""

    def __init__(self, matrices: Mapping[str, UnitMatrix], lists: Mapping[str, list[Number]]) -> None:
        self._matrices = matrices
        self._lists = lists
        self._n_parts = self._n_matrices = 0

    def kernel(self, node: ast.expr, depth: int = 0, n_units: int = 0, n_matrices: int = 0) -> Kernel:
        """Read a kernel inside `depth` others, of which `n_units` have units, `n_matrices` of these a large matrix."""
        self._n_parts += 1
        if depth > DEEPEST:
            raise ValueError(f"a kernel is nested more than {DEEPEST} deep; join fewer kernels")
        if self._n_parts > _MOST_PARTS:
            raise ValueError(f"a kernel has more than {_MOST_PARTS} parts; join fewer kernels")
        inner = partial(self.kernel, depth=depth + 1, n_units=n_units, n_matrices=n_matrices)
        match node:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="kernels"), attr=name) if name in _CLASSES:
                return _CLASSES[name]()
            case ast.Call(func=ast.Name(id=name), args=[part, number], keywords=[]) if name in _OUTER and depth == 0:
                return _OUTER[name](inner(part), int(_number(number, whole=True)))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _CLASSES:
                return _construct(name, args, keywords)
            case ast.Call(func=ast.Attribute(value=part, attr="exp"), args=[], keywords=[]):
                return inner(part).exp()
            case ast.Call(func=ast.Attribute(value=part, attr="on"), args=[columns], keywords=[]):
                return inner(part).on(self._columns(columns))
            case ast.Call(func=ast.Attribute(value=part, attr="in_units"), args=[given], keywords=[]):
                units = checked_units(self._units(given))
                is_large = isinstance(units, UnitMatrix) and not units.is_printed_whole
                n_units, n_matrices = n_units + 1, n_matrices + is_large
                self._n_matrices += is_large
                if n_units > _DEEPEST_UNITS or n_matrices > _DEEPEST_MATRICES or self._n_matrices > _MOST_MATRICES:
                    raise ValueError(
                        f"a kernel has units nested more than {_DEEPEST_UNITS} deep, or large matrices of units nested "
                        f"more than {_DEEPEST_MATRICES} deep, or more than {_MOST_MATRICES} of these; join them first"
                    )
                return inner(part, n_units=n_units, n_matrices=n_matrices).in_units(units)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return inner(left) + inner(right)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return inner(left) ** int(_number(right, whole=True))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                if _is_number(left):
                    return _number(left) * inner(right)
                if _is_number(right):
                    return inner(left) * _number(right)
                return inner(left) * inner(right)
        raise ValueError(f"cannot read {_shown_node(node)} in a kernel; {_help()}")

    def _columns(self, node: ast.expr) -> list[int]:
        """Read one whole number, or a list of them."""
        return [int(_finite(number, node, whole=True)) for number in self._numbers(node)]

    def _units(self, node: ast.expr) -> str | list[Any] | UnitMatrix:
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                rows = [self._numbers(item) for item in items]
                return [row if self._is_list(item) else row[0] for item, row in zip(items, rows, strict=True)]
            case ast.Call(func=ast.Name(id="matrix"), args=[ast.Constant(value=str(name))], keywords=[]):
                if name not in self._matrices:
                    raise ValueError(
                        f"the kernel has the matrix {_shown(name)} by its name alone; pass the kernel itself, whose "
                        "text does not hold large matrices"
                    )
                return self._matrices[name]
        if self._is_list(node):
            return self._numbers(node)
        word = _literal(node)
        if isinstance(word, str):
            return word
        raise ValueError(f"expected units in a kernel, as in [1, 0.5], but got {_shown_node(node)}; {_help()}")

    def _is_list(self, node: ast.expr) -> bool:
        return isinstance(node, ast.List | ast.Tuple) or (isinstance(node, ast.Name) and node.id in self._lists)

    def _numbers(self, node: ast.expr) -> list[Number]:
        """Read a number, or a list of them."""
        match node:
            case ast.Name(id=name) if name in self._lists:
                return [_finite(number, node) for number in self._lists[name]]
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [_number(item) for item in items]
        return [_number(node)]


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


def _literal(node: ast.expr) -> Number | str:
    match node:
        case ast.Constant(value=str(word)):
            return word
        case ast.Name(id=word) if not word.startswith(_LISTED):
            # Inner quotes are awkward in a shell, and gamma=scale is as clear as gamma="scale".
            return word
    return _number(node)


def _number(node: ast.expr, *, whole: bool = False) -> Number:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_number(inner, whole=whole)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _number(inner, whole=whole)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _finite(number, node, whole=whole)
    raise _wrong_number(node, whole=whole)


def _finite(number: Number, node: ast.expr, *, whole: bool = False) -> Number:
    """Return a number that an expression holds at a node, or refuse it."""
    if not math.isfinite(number) or (whole and number != int(number)):
        raise _wrong_number(node, whole=whole)
    return number


def _wrong_number(node: ast.expr, *, whole: bool) -> ValueError:
    kind = "a whole number" if whole else "a number"
    return ValueError(f"expected {kind} in a kernel but got {_shown_node(node)}; {_help()}")


def _is_number(node: ast.expr) -> bool:
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant)


def _shown_node(node: ast.expr) -> str:
    """Print a part of an expression; to print half a million numbers would take seconds."""
    is_long = next(islice(ast.walk(node), 100, None), None) is not None
    return "a long expression" if is_long else _shown(re.sub(rf"{_LISTED}\d+", "[...]", ast.unparse(node)))


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}..."


def _help() -> str:
    """Say what can be written; kernels register after this module is imported."""
    return (
        "write a name such as rbf, or an expression such as 'RBF(gamma=0.5) + 0.1 * Linear()' of "
        f"{', '.join(sorted(_CLASSES))} with numbers, +, *, **, .exp(), .on([0, 1]) and .in_units(range)"
    )
