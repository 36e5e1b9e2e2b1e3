"""Texts of C files: numbers, tables, comments and templates, whose names begin with kpca_ until a file gets its own."""

import json
import re
import textwrap
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Positions

_WIDTH = 110
_DOUBLE = re.compile(r"\bdouble\b")
_FLOATS = re.compile(r"(?<![\w.])(?:\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+)")
_CALLS = re.compile(r"\b(exp|fabs|log|log1p|sqrt|tanh)\(")
_BYTES = {"double": 8, "float": 4, "uint32_t": 4, "unsigned short": 2, "unsigned long": 4}


class CText:
    """The text so far of a C file whose numbers are "double" or "float": functions, and tables of `n_bytes` in all."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.tables: list[str] = []
        self.functions: list[str] = []
        self.n_bytes = 0

    def table(self, what: str, values: npt.ArrayLike, dtype: str | None = None) -> str:
        """Write a number or an array, of the type of the file by default; return its name, which ends in `what`."""
        array, dtype = np.asarray(values), dtype or self.dtype
        sizes = "".join(f"[{size}]" for size in array.shape)
        self.n_bytes += array.size * _BYTES[dtype]
        self.tables.append(f"static const {dtype} kpca_{what}{sizes} = {spell(array, dtype)};\n")
        return f"kpca_{what}"

    def positions(self, what: str, values: Positions) -> str:
        """Write a table of positions; return its name, which ends in `what`."""
        return self.table(what, values, "unsigned short" if values.max() < 2**16 else "unsigned long")

    def function(self, comment: str, head: str, lines: list[str]) -> None:
        """Write a function: a comment, its head from the type to the arguments, and the lines of its body."""
        body = "".join(f"    {line}\n" for line in lines)
        self.functions.append(self.convert(f"/* {comment} */\n{head}\n{{\n{body}}}\n"))

    def convert(self, text: str) -> str:
        """Change text for double to the type of the file."""
        if self.dtype == "double":
            return text
        text = _FLOATS.sub(lambda number: single_literal(number[0]), _DOUBLE.sub("float", text))
        return _CALLS.sub(r"\1f(", text)


def spell(values: npt.ArrayLike, dtype: str) -> str:
    """Spell a number, or an array as C initialises it, in the shortest decimals that give the numbers."""
    array = np.asarray(values)
    if array.ndim > 1:
        return "{" + ",\n    ".join(spell(row, dtype) for row in array) + "}"
    if dtype == "float":
        with np.errstate(all="ignore"):
            singles = array.astype(np.float32)
        if not np.isfinite(singles).all():
            raise _beyond_single(array[~np.isfinite(singles)][0])
        words = [f"{single!s}f" for single in singles.ravel()]
    else:
        words = [repr(value) if dtype == "double" else f"{value}u" for value in array.ravel().tolist()]
    lines = ",\n    ".join(", ".join(words[start : start + 8]) for start in range(0, len(words), 8))
    return f"{{{lines}}}" if array.ndim else lines


def single_literal(number: str) -> str:
    """Spell a number in single precision, or refuse it if it is 0 or infinite there."""
    with np.errstate(all="ignore"):
        single = np.float32(number)
    if not np.isfinite(single) or (single == 0.0) != (float(number) == 0.0):
        raise _beyond_single(float(number))
    return f"{single!s}f"


def _beyond_single(number: float) -> ValueError:
    return ValueError(
        f'to_c: expected numbers of single precision for dtype="float" but this model needs {float(number)!r}; '
        'scale the features, or use dtype="double"'
    )


def read_template(name: str) -> tuple[str, str]:
    """Return the uses of a template's functions, by their heads, and its C text, with places such as ``@tables@``."""
    text = files("streamkpca.export").joinpath(name).read_text(encoding="ascii")
    uses, _, body = text.partition("/* @uses@\n")[2].partition("*/\n\n")
    return uses, body


def fill_template(body: str, uses: str, parts: dict[str, list[str]]) -> str:
    """Put texts into the places of a template, and the heads of its functions."""
    heads = [f"{line}\n" for line in uses.splitlines() if not line.startswith(" ")]
    for place, texts in {"heads": ["".join(heads)], **parts}.items():
        body = body.replace(f"/* @{place}@ */\n", "\n".join(texts))
    return body


def enum_of(sizes: dict[str, int]) -> str:
    """Spell sizes as constants."""
    return f"enum {{ {', '.join(f'kpca_{what} = {size}' for what, size in sizes.items())} }};\n"


def comment_of(title: str, facts: dict[str, str], uses: str) -> str:
    """Return the comment at the head of a file."""
    wrapper = textwrap.TextWrapper(_WIDTH, subsequent_indent=" " * 10, break_long_words=False, break_on_hyphens=False)
    listed = [line for what, fact in facts.items() for line in wrapper.wrap(f"{what:<10}{fact}")]
    lines = [title, "", *listed, "", *uses.splitlines()]
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n\n"


def comment_safe(names: Any) -> str:
    r"""Spell names in ASCII, as JSON does, so that none ends a comment or is a trigraph: \/ for the slash."""
    text = re.sub(r"(?<=/)\*", r"\\u002a", json.dumps([str(name) for name in names])[1:-1])
    return text.replace("/", "\\/").replace("??", "?\\u003f")


def check_name(name: Any) -> None:
    """Refuse what cannot be the prefix of names in C."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", name):
        kind = ValueError if isinstance(name, str) else TypeError
        raise kind(
            f"name must be a C identifier such as 'pump', got {name!r}; use ASCII letters, digits and single "
            "underscores, a letter first and no underscore last: the others are reserved"
        )
