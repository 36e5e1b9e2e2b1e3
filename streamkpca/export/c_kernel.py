"""A kernel as C functions, and the C file that takes their tables and text."""

import json
import re
import textwrap
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array
from streamkpca.export.layout import LARGEST_SINGLE, Layout
from streamkpca.export.model import Formula
from streamkpca.kernels.logarithms import LARGEST, log_values
from streamkpca.kernels.program import Arithmetic, Base

Positions = npt.NDArray[np.int64]

# Below this logarithm of a kernel value, those of all atoms differ by less than rounding.
_LEAST_LOG = -1e300
# The same in single precision.
_LEAST_SINGLE_LOG = -1e30

WIDTH = 110
_DOUBLE = re.compile(r"\bdouble\b")
_FLOATS = re.compile(r"(?<![\w.])(?:\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+)")
_CALLS = re.compile(r"\b(exp|fabs|hypot|log|log1p|sqrt|tanh)\(")


class CText:
    """A C file being written, in which all names begin with `name` and all numbers are "double" or "float".

    Functions are written for double, and changed to single precision with their numbers. `tables` and `functions` hold
    the text so far, `uses` what public functions do, by their heads, and `n_bytes` the size of the tables.
    """

    def __init__(self, name: str, dtype: str) -> None:
        self.name = name
        self.dtype = dtype
        self.is_single = dtype == "float"
        self.n_bytes_of_number = 4 if self.is_single else 8
        self.tables: list[str] = []
        self.functions: list[str] = []
        self.uses: dict[str, str] = {}
        self.n_bytes = 0

    def check(self, values: Array) -> None:
        """Refuse numbers that single precision would lose."""
        for value in values.tolist() if self.is_single else ():
            _single_literal(repr(value))

    def table(self, what: str, values: Array) -> str:
        """Write a table of numbers; return its name, which ends in `what`."""
        self.n_bytes += values.size * self.n_bytes_of_number
        return self._write(what, self.dtype, values.shape, [self._spell(row) for row in np.atleast_2d(values)])

    def positions(self, what: str, values: Positions) -> str:
        """Write a table of positions; return its name, which ends in `what`."""
        dtype, n_bytes = ("unsigned short", 2) if int(values.max()) < 2**16 else ("unsigned long", 4)
        self.n_bytes += values.size * n_bytes
        return self._write(what, dtype, values.shape, [[str(value) for value in values.tolist()]])

    def function(self, comment: str, head: str, lines: Sequence[str], *, use: str = "") -> None:
        """Write a function: a comment, its head from the type to the arguments, and the lines of its body.

        A public one says to callers what its `use` is.
        """
        text = f"{head}\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
        if self.is_single:
            text = _FLOATS.sub(lambda number: _single_literal(number[0]), _DOUBLE.sub("float", text))
            text, head = _CALLS.sub(r"\1f(", text), _DOUBLE.sub("float", head)
        self.functions.append(textwrap.fill(f"/* {comment} */", WIDTH, subsequent_indent="   ") + f"\n{text}")
        if use:
            self.uses[head] = use

    def _spell(self, values: Array) -> list[str]:
        # These are the shortest decimals that give the number. C++ has hexadecimal ones only since 2017.
        if not self.is_single:
            return [repr(value) for value in values.tolist()]
        with np.errstate(all="ignore"):
            singles = values.astype(np.float32)
        if not np.isfinite(singles).all():
            raise _beyond_single(repr(float(values[~np.isfinite(singles)][0])))
        return [f"{single!s}f" for single in singles]

    def _write(self, what: str, dtype: str, shape: tuple[int, ...], rows: list[list[str]]) -> str:
        name, sizes = f"{self.name}_{what}", "".join(f"[{size}]" for size in shape)
        ends = ("{", "}") if len(shape) > 1 else ("", "")
        texts = [textwrap.fill(ends[0] + ", ".join(row) + ends[1], WIDTH, break_on_hyphens=False) for row in rows]
        listed = textwrap.indent(",\n".join(texts), "    ")
        self.tables.append(f"static const {dtype} {name}{sizes} = {{\n{listed}\n}};\n")
        return name


def _single_literal(number: str) -> str:
    """Spell a number in single precision, or refuse it if it is 0 or infinite there."""
    with np.errstate(all="ignore"):
        single = np.float32(number)
    if not np.isfinite(single) or (single == 0.0) != (float(number) == 0.0):
        raise _beyond_single(number)
    return f"{single!s}f"


def _beyond_single(number: str) -> ValueError:
    return ValueError(
        f'to_c: expected numbers of single precision for dtype="float" but this model needs {number}; '
        'scale the features, or use dtype="double"'
    )


class KernelText:
    """How the functions of a file get kernel values.

    Every function first copies its row x to `u` in the form in which atoms are compared with it: `preparation` are the
    statements. Then ``of_atom`` is k(x, atom i), `of_itself` is k(x, x), and `log_of_atom` the logarithm of k(x, atom
    i), if k(x, x) is the same number for all rows.
    """

    def __init__(self, source: CText, formula: Formula) -> None:
        self.source = source
        self.layout = Layout(formula, single=source.is_single)
        self._write_preparation(formula)
        self._atoms = source.table("atoms", self.layout.atoms)
        program, own = formula.kernel.program, formula.own_value()
        sums = [f"p{p}" for p in range(len(self.layout.matrices))]
        steps = _StatementArithmetic()
        self._write_pair("kernel", "The kernel of two rows", steps, program.evaluate(sums, steps))
        self.of_atom = f"{source.name}_kernel(u, {self._atoms}[@])"
        self.of_itself = f"{source.name}_kernel(u, u)" if own is None else repr(own)
        self.log_of_atom = ""
        if own:
            steps = _StatementArithmetic()
            most = LARGEST_SINGLE if source.is_single else LARGEST
            result = log_values(program, sums, steps, steps.add_logs, most=most)
            comment = "Its logarithm, which is a number where the kernel is too small for one"
            self._write_pair("log_kernel", comment, steps, result)
            self.log_of_atom = f"{source.name}_log_kernel(u, {self._atoms}[i])"

    @property
    def preparation(self) -> list[str]:
        """The statements that fill ``u`` with the row in the form in which atoms are compared with it."""
        return [f"double u[{self.layout.width}];", f"{self.source.name}_prepare(x, u);"]

    def _write_preparation(self, formula: Formula) -> None:
        source = self.source
        lines, has_matrix = [], any(segment.has_matrix for segment in self.layout.segments)
        for place, segment in enumerate(self.layout.segments):
            index = column = "l" if segment.has_matrix else "k"
            if segment.columns is not None:
                column = f"{source.positions(f'columns{place}', segment.columns)}[{index}]"
            entry = f"x[{column}]"
            if segment.centre is not None:
                entry = f"({entry} - {source.table(f'centre{place}', segment.centre)}[{index}])"
            filled, loop = segment.entry("u"), f"for (k = 0; k < {segment.width}; ++k)"
            if segment.units is None:
                lines.append(f"{loop} {filled} = {entry};")
            elif not segment.has_matrix:
                source.check(segment.units)
                lines.append(f"{loop} {filled} = {entry} / {source.table(f'units{place}', segment.units)}[k];")
            else:
                # Entries that are small beside the rest of their column may become 0, but not the whole column.
                source.check(np.abs(segment.units).max(axis=0, initial=0.0))
                product = f"{source.table(f'units{place}', segment.units)}[k][l] * {entry}"
                n_columns = segment.units.shape[1]
                inner = f"for (l = 0; l < {n_columns}; ++l) {filled} += {product};"
                lines += [f"{loop} {{", f"    {filled} = 0.0;", f"    {inner}", "}"]
            if segment.is_unit:
                lines.append(f"{source.name}_scale(u + {segment.start}, {segment.width});")
        if any(segment.is_unit for segment in self.layout.segments):
            self._write_scale()
        source.function(
            "Copy a row in the form in which atoms are compared with it.",
            f"static void {source.name}_prepare(const double *x, double *u)",
            ["int k, l;" if has_matrix else "int k;", *lines],
        )

    def _write_scale(self) -> None:
        self.source.function(
            "Scale a row to length 1, without overflow; a row of zeros stays.",
            f"static void {self.source.name}_scale(double *u, int n)",
            [
                "int k;",
                "double largest = 0.0, sum = 0.0, scale = 1.0;",
                "for (k = 0; k < n; ++k) largest = fabs(u[k]) > largest ? fabs(u[k]) : largest;",
                "if (!(largest > 0.0)) return;",
                "for (k = 0; k < n; ++k) {",
                "    u[k] /= largest;",
                "    sum += u[k] * u[k];",
                "}",
                "scale /= sqrt(sum);",
                "for (k = 0; k < n; ++k) u[k] *= scale;",
            ],
        )

    def _write_pair(self, name: str, comment: str, steps: "_StatementArithmetic", result: str) -> None:
        """Write a function of two prepared rows."""
        sums, loops = [], []
        for p, (matrix, segment) in enumerate(zip(self.layout.matrices, self.layout.of_matrix, strict=True)):
            row, atom = segment.entry("u"), segment.entry("a")
            added = {
                Base.SQUARED: f"({row} - {atom}) * ({row} - {atom})",
                Base.ABSOLUTE: f"fabs({row} - {atom})",
                Base.EQUAL: f"{row} == {atom} ? 1.0 : 0.0",
            }.get(matrix.base, f"{row} * {atom}")
            sums.append(f"double p{p} = 0.0;")
            loops.append(f"for (k = 0; k < {segment.width}; ++k) p{p} += {added};")
        self.source.function(
            f"{comment}.",
            f"static double {self.source.name}_{name}(const double *u, const double *a)",
            ["int k;", *sums, *loops, *steps.lines, f"return {result};"],
        )


def find_largest_logarithm(kernel: KernelText, s: int) -> list[str]:
    """Return statements that fill ``coordinates`` with logarithms of kernel values, and ``top`` with the largest."""
    return [
        "double top;",
        f"for (i = 0; i < {s}; ++i) coordinates[i] = {kernel.log_of_atom};",
        "top = coordinates[0];",
        f"for (i = 1; i < {s}; ++i) top = coordinates[i] > top ? coordinates[i] : top;",
    ]


def scaled_value(source: CText) -> str:
    """Spell the kernel value of atom i as a share of the largest, from logarithms; 1 where they are too low to differ.

    Then infinity less infinity would be NaN.
    """
    return f"top < {_LEAST_SINGLE_LOG if source.is_single else _LEAST_LOG} ? 1.0 : exp(coordinates[i] - top)"


class _StatementArithmetic(Arithmetic[str]):
    """Steps as C statements, each of which names its result."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def affine(self, x: str, a: float, b: float) -> str:
        scaled = x if a == 1.0 else f"-{x}" if a == -1.0 else f"{a!r} * {x}"
        return self._name(scaled if b == 0.0 else f"{scaled} + {b!r}")

    def minimum(self, x: str, most: float) -> str:
        return self._name(f"{x} > {most!r} ? {most!r} : {x}")

    def add(self, x: str, y: str) -> str:
        return self._name(f"{x} + {y}")

    def multiply(self, x: str, y: str) -> str:
        return self._name(f"{x} * {y}")

    def add_logs(self, x: str, y: str) -> str:
        """Return log(exp(x) + exp(y))."""
        larger, smaller = self._name(f"{x} > {y} ? {x} : {y}"), self._name(f"{x} > {y} ? {y} : {x}")
        return self._name(f"{larger} + log(1.0 + exp({smaller} - {larger}))")

    def apply(self, function: str, x: str) -> str:
        return self._name(f"1.0 / {x}" if function == "reciprocal" else f"{function}({x})")

    def _name(self, expression: str) -> str:
        self.lines.append(f"const double v{len(self.lines)} = {expression};")
        return f"v{len(self.lines) - 1}"


def list_facts(facts: dict[str, str], indent: int = 10) -> list[str]:
    """List facts by their names, in lines of a comment."""
    wrapper = textwrap.TextWrapper(
        WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return [line for what, fact in facts.items() for line in wrapper.wrap(f"{what:<{indent}}{fact}")]


def comment_safe(names: list[str]) -> str:
    r"""Spell names in ASCII, as JSON does, so that none ends a comment or is a trigraph: \/ for the slash."""
    text = re.sub(r"(?<=/)\*", r"\\u002a", json.dumps(names)[1:-1])
    return text.replace("/", "\\/").replace("??", "?\\u003f")
