"""A kernel as C functions, and the C file that takes their tables and text."""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamkpca.export.layout import LARGEST_SINGLE, Layout, Segment
from streamkpca.export.model import Formula
from streamkpca.kernels.logarithms import LARGEST, log_values
from streamkpca.kernels.program import Arithmetic, Base

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Below this logarithm of a kernel value, those of all atoms differ by less than rounding.
_LEAST_LOG, _LEAST_SINGLE_LOG = -1e300, -1e30

WIDTH = 110


class Source:
    """A C file being written, in which all names begin with `name` and all numbers are "double" or "float".

    `tables` and `functions` hold the text written so far, `uses` what public functions do, by their heads, and
    `n_bytes` the size of the tables.
    """

    def __init__(self, name: str, dtype: str) -> None:
        self.name = name
        self.dtype = dtype
        self.is_single = dtype == "float"
        self.tables: list[str] = []
        self.functions: list[str] = []
        self.uses: dict[str, str] = {}
        self.n_bytes = 0

    @property
    def n_bytes_of_number(self) -> int:
        """Size of a number."""
        return 4 if self.is_single else 8

    def number(self, value: float) -> str:
        """Spell a constant so that the compiler reads the same number; refuse it if single precision loses it."""
        if self.is_single and (_singles(np.array([value]))[0] == 0.0) != (value == 0.0):
            raise _beyond_single(value)
        return self._spelled(np.array([value]))[0]

    def call(self, function: str, arguments: str) -> str:
        """Spell a call of a function of <math.h>, given by its name for double."""
        return f"{function}f({arguments})" if self.is_single else f"{function}({arguments})"

    def table(self, what: str, values: Array) -> str:
        """Write a table of numbers; return its name, which ends in `what`."""
        self.n_bytes += values.size * self.n_bytes_of_number
        return self._write(what, self.dtype, values.shape, [self._spelled(row) for row in np.atleast_2d(values)])

    def positions(self, what: str, values: Positions) -> str:
        """Write a table of positions; return its name, which ends in `what`."""
        dtype, n_bytes = ("unsigned short", 2) if int(values.max()) < 2**16 else ("unsigned long", 4)
        self.n_bytes += values.size * n_bytes
        return self._write(what, dtype, values.shape, [[str(value) for value in values.tolist()]])

    def function(self, comment: str, head: str, lines: Sequence[str]) -> None:
        """Write a function: a comment, its head from the type to the arguments, and the lines of its body."""
        body = "".join(f"    {line}\n" for line in lines)
        note = textwrap.fill(f"/* {comment} */", WIDTH, subsequent_indent="   ")
        self.functions.append(f"{note}\n{head}\n{{\n{body}}}\n")

    def public(self, use: str, comment: str, head: str, lines: Sequence[str]) -> None:
        """Write a function for the callers of the file."""
        self.uses[head] = use
        self.function(comment, head, lines)

    def _spelled(self, values: Array) -> list[str]:
        # These are the shortest decimals that give the number. C++ has hexadecimal ones only since 2017.
        if not self.is_single:
            return [repr(value) for value in values.tolist()]
        return [f"{single!s}f" for single in _singles(values)]

    def _write(self, what: str, dtype: str, shape: tuple[int, ...], rows: list[list[str]]) -> str:
        name, sizes = f"{self.name}_{what}", "".join(f"[{size}]" for size in shape)
        ends = ("{", "}") if len(shape) > 1 else ("", "")
        texts = [textwrap.fill(ends[0] + ", ".join(row) + ends[1], WIDTH, break_on_hyphens=False) for row in rows]
        listed = textwrap.indent(",\n".join(texts), "    ")
        self.tables.append(f"static const {dtype} {name}{sizes} = {{\n{listed}\n}};\n")
        return name


def _singles(values: Array) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        singles = values.astype(np.float32)
    if not np.isfinite(singles).all():
        raise _beyond_single(float(values[~np.isfinite(singles)][0]))
    return singles


def _beyond_single(value: float) -> ValueError:
    return ValueError(
        f'to_c: expected numbers of single precision for dtype="float" but this model needs {value!r}; '
        'scale the features, or use dtype="double"'
    )


class KernelText:
    """How the functions of a file get kernel values, and their cost.

    Every function first copies its row x to `u` in the form in which atoms are compared with it: `preparation` are the
    statements. Then ``of_atom`` is k(x, atom i), `of_itself` is k(x, x), and `log_of_atom` the logarithm of k(x, atom
    i), if k(x, x) is the same number for all rows. `cost` tells the operations that a kernel value takes.
    """

    def __init__(self, source: Source, formula: Formula) -> None:
        self.source = source
        self.layout = Layout(formula, single=source.is_single)
        self._write_preparation(formula)
        self._atoms = source.table("atoms", self.layout.atoms)
        program, own = formula.kernel.program, formula.own_value()
        sums = [f"p{p}" for p in range(len(self.layout.matrices))]
        steps = _StatementArithmetic(source)
        self.cost = self._write_pair("kernel", "The kernel of two rows", steps, program.evaluate(sums, steps))
        self.of_atom = f"{source.name}_kernel(u, {self._atoms}[@])"
        self.of_itself = f"{source.name}_kernel(u, u)" if own is None else source.number(own)
        self.log_of_atom = ""
        if own:
            steps = _StatementArithmetic(source)
            most = LARGEST_SINGLE if source.is_single else LARGEST
            result = log_values(program, sums, steps, steps.add_logs, most=most)
            comment = "Its logarithm, which is a number where the kernel is too small for one"
            self._write_pair("log_kernel", comment, steps, result)
            self.log_of_atom = f"{source.name}_log_kernel(u, {self._atoms}[i])"

    @property
    def preparation(self) -> list[str]:
        """The statements that fill ``u`` with the row in the form in which atoms are compared with it."""
        return [f"{self.source.dtype} u[{self.layout.width}];", f"{self.source.name}_prepare(x, u);"]

    def entry_of_atom(self, segment: Segment) -> str:
        """Spell number k of a segment in atom i; ``u`` has that of the row."""
        return segment.entry(f"{self._atoms}[i]")

    def column(self, segment: Segment, index: str) -> str:
        """Spell the position among the features of column `index` of a segment."""
        if segment.columns is None:
            return index
        return f"{self.source.name}_columns{self.layout.segments.index(segment)}[{index}]"

    def _write_preparation(self, formula: Formula) -> None:
        source, c = self.source, self.source.dtype
        lines, has_matrix = [], any(segment.has_matrix for segment in self.layout.segments)
        for place, segment in enumerate(self.layout.segments):
            index = "l" if segment.has_matrix else "k"
            if segment.columns is not None:
                source.positions(f"columns{place}", segment.columns)
            entry = f"x[{self.column(segment, index)}]"
            if segment.centre is not None:
                entry = f"({entry} - {source.table(f'centre{place}', segment.centre)}[{index}])"
            filled, loop = segment.entry("u"), f"for (k = 0; k < {segment.width}; ++k)"
            if segment.units is None:
                lines.append(f"{loop} {filled} = {entry};")
            elif not segment.has_matrix:
                self._check(segment.units)
                lines.append(f"{loop} {filled} = {entry} / {source.table(f'units{place}', segment.units)}[k];")
            else:
                # Entries that are small beside the rest of their column may become 0, but not the whole column.
                self._check(np.abs(segment.units).max(axis=0, initial=0.0))
                product = f"{source.table(f'units{place}', segment.units)}[k][l] * {entry}"
                n_columns = segment.units.shape[1]
                inner = f"for (l = 0; l < {n_columns}; ++l) {filled} += {product};"
                lines += [f"{loop} {{", f"    {filled} = {source.number(0.0)};", f"    {inner}", "}"]
            if segment.is_unit:
                lines.append(f"{source.name}_scale(u + {segment.start}, {segment.width});")
        if any(segment.is_unit for segment in self.layout.segments):
            self._write_scale()
        source.function(
            "Copy a row in the form in which atoms are compared with it.",
            f"static void {source.name}_prepare(const {c} *x, {c} *u)",
            ["int k, l;" if has_matrix else "int k;", *lines],
        )

    def _check(self, units: Array) -> None:
        """Refuse units that single precision would lose."""
        for unit in units.tolist():
            self.source.number(unit)

    def _write_scale(self) -> None:
        source, c = self.source, self.source.dtype
        zero, one, size = source.number(0.0), source.number(1.0), source.call("fabs", "u[k]")
        source.function(
            "Scale a row to length 1, without overflow; a row of zeros stays.",
            f"static void {source.name}_scale({c} *u, int n)",
            [
                "int k;",
                f"{c} largest = {zero}, sum = {zero}, scale = {one};",
                f"for (k = 0; k < n; ++k) largest = {size} > largest ? {size} : largest;",
                f"if (!(largest > {zero})) return;",
                "for (k = 0; k < n; ++k) {",
                "    u[k] /= largest;",
                "    sum += u[k] * u[k];",
                "}",
                f"scale /= {source.call('sqrt', 'sum')};",
                "for (k = 0; k < n; ++k) u[k] *= scale;",
            ],
        )

    def _write_pair(self, name: str, comment: str, steps: "_StatementArithmetic", result: str) -> str:
        """Write a function of two prepared rows, and tell the operations that a call takes."""
        source, c = self.source, self.source.dtype
        sums, loops, n_multiplications = [], [], "".join(steps.lines).count(" * ")
        for p, (matrix, segment) in enumerate(zip(self.layout.matrices, self.layout.of_matrix, strict=True)):
            row, atom = segment.entry("u"), segment.entry("a")
            added = {
                Base.SQUARED: f"({row} - {atom}) * ({row} - {atom})",
                Base.ABSOLUTE: source.call("fabs", f"{row} - {atom}"),
                Base.EQUAL: f"{row} == {atom} ? {source.number(1.0)} : {source.number(0.0)}",
            }.get(matrix.base, f"{row} * {atom}")
            sums.append(f"{c} p{p} = {source.number(0.0)};")
            loops.append(f"for (k = 0; k < {segment.width}; ++k) p{p} += {added};")
            n_multiplications += segment.width if " * " in added else 0
        source.function(
            f"{comment}.",
            f"static {c} {source.name}_{name}(const {c} *u, const {c} *a)",
            ["int k;", *sums, *loops, *steps.lines, f"return {result};"],
        )
        calls = Counter(re.findall(r"\b(exp|log1p|log|sqrt|tanh)f?\(", "".join(steps.lines)))
        return ", ".join([f"{n_multiplications} multiplications", *(f"{calls[call]} {call}" for call in sorted(calls))])


def find_largest_logarithm(source: Source, kernel: KernelText, s: int) -> list[str]:
    """Return statements that fill ``coordinates`` with logarithms of kernel values, and ``top`` with the largest."""
    return [
        f"{source.dtype} top;",
        f"for (i = 0; i < {s}; ++i) coordinates[i] = {kernel.log_of_atom};",
        "top = coordinates[0];",
        f"for (i = 1; i < {s}; ++i) top = coordinates[i] > top ? coordinates[i] : top;",
    ]


def scaled_value(source: Source) -> str:
    """Spell the kernel value of atom i as a share of the largest, from logarithms; 1 where they are too low to differ.

    Then infinity less infinity would be NaN.
    """
    least = source.number(_LEAST_SINGLE_LOG if source.is_single else _LEAST_LOG)
    return f"top < {least} ? {source.number(1.0)} : {source.call('exp', 'coordinates[i] - top')}"


class _StatementArithmetic(Arithmetic[str]):
    """Steps as C statements, each of which names its result."""

    def __init__(self, source: Source) -> None:
        self.lines: list[str] = []
        self._source = source

    def affine(self, x: str, a: float, b: float) -> str:
        scaled = x
        if a == -1.0:
            scaled = f"-{x}"
        elif a != 1.0:
            scaled = f"{self._source.number(a)} * {x}"
        return self._named(scaled if b == 0.0 else f"{scaled} + {self._source.number(b)}")

    def minimum(self, x: str, most: float) -> str:
        limit = self._source.number(most)
        return self._named(f"{x} > {limit} ? {limit} : {x}")

    def add(self, x: str, y: str) -> str:
        return self._named(f"{x} + {y}")

    def multiply(self, x: str, y: str) -> str:
        return self._named(f"{x} * {y}")

    def add_logs(self, x: str, y: str) -> str:
        """Return log(exp(x) + exp(y))."""
        larger, smaller = self._named(f"{x} > {y} ? {x} : {y}"), self._named(f"{x} > {y} ? {y} : {x}")
        ratio = self.apply("exp", f"{smaller} - {larger}")
        return self.add(larger, self.apply("log", f"{self._source.number(1.0)} + {ratio}"))

    def apply(self, function: str, x: str) -> str:
        if function == "reciprocal":
            return self._named(f"{self._source.number(1.0)} / {x}")
        return self._named(self._source.call(function, x))

    def _named(self, expression: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const {self._source.dtype} {name} = {expression};")
        return name
