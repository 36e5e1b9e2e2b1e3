"""A kernel as C functions, and the C file that takes their tables and text."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca.export.model import Formula
from streamkpca.export.rounding import LARGEST_SINGLE, single_centre, single_units
from streamkpca.kernels.logarithms import LARGEST, log_values
from streamkpca.kernels.program import Arithmetic, Base, PairwiseMatrix, unit_rows
from streamkpca.kernels.views import FeatureView, UnitMatrix

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Below this logarithm of a kernel value, those of all atoms differ by less than rounding.
_LEAST_LOG, _LEAST_SINGLE_LOG = -1e300, -1e30

WIDTH = 110


class Source:
    """A C file being written, in which all names begin with `name` and all numbers are "double" or "float".

    `tables` and `functions` hold the text written so far, and `n_bytes` the size of the tables.
    """

    def __init__(self, name: str, dtype: str) -> None:
        self.name = name
        self.dtype = dtype
        self.tables: list[str] = []
        self.functions: list[str] = []
        self.n_bytes = 0
        self._known: dict[tuple[tuple[int, ...], bytes], str] = {}

    @property
    def is_single(self) -> bool:
        """Whether all numbers are of single precision."""
        return self.dtype == "float"

    @property
    def n_bytes_of_number(self) -> int:
        """Size of a number."""
        return 4 if self.is_single else 8

    def number(self, value: float) -> str:
        """Spell a constant so that the compiler reads the same number; refuse it if single precision loses it."""
        if self.is_single and not np.array_equal(_singles(np.array([value])) == 0.0, [value == 0.0]):
            raise _beyond_single(value)
        return self._spelled(np.array([value]))[0]

    def call(self, function: str, argument: str) -> str:
        """Spell a call of a function of <math.h>, given by its name for double."""
        return f"{function}f({argument})" if self.is_single else f"{function}({argument})"

    def table(self, what: str, values: Array) -> str:
        """Write a table of numbers, unless an equal one is there; return its name, which ends in `what`."""
        key = values.shape, values.tobytes()
        if key not in self._known:
            rows = [self._spelled(row) for row in np.atleast_2d(values)]
            self._known[key] = self._write(what, self.dtype, values.shape, rows)
            self.n_bytes += values.size * self.n_bytes_of_number
        return self._known[key]

    def divisors(self, what: str, values: Array) -> str:
        """Write a table of numbers to divide by, which must not be zero in single precision; return its name."""
        for value in values.tolist():
            self.number(value)
        return self.table(what, values)

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


@dataclass(frozen=True)
class KernelCalls:
    """How the functions of a file get kernel values, and what these cost."""

    # What comes first, once a row: the declaration of an array, the call that fills it, and the name of the number that
    # the call returns, empty if it returns none.
    prepared: tuple[tuple[str, str, str], ...]
    # Size of these arrays together, and number of divisions that fill them.
    n_numbers: int
    n_divisions: int
    # k(x, atom i), with ``{i}`` for i, and k(x, x).
    of_atom: str
    of_itself: str
    # Number of multiplications by matrices of units, once a row.
    n_multiplications_once: int
    # log k(x, atom i), if k(x, x) is the same number for all rows.
    log_of_atom: str | None
    # The base matrices of the kernel, and how their entries are spelled.
    bases: tuple["BaseText", ...]
    # What one k(x, atom i) costs; `calls` counts divisions and functions of <math.h>.
    n_multiplications: int
    calls: Counter[str]
    # The same of log k(x, atom i).
    n_log_multiplications: int
    log_calls: Counter[str]


def write_kernel(source: Source, formula: Formula) -> KernelCalls:
    """Write the kernel between a row and the rows of a formula."""
    c, name = source.dtype, source.name
    program = formula.kernel.program
    bases = [BaseText(source, formula, matrix, p) for p, matrix in enumerate(program.base_matrices)]
    sums = [base.sum for base in bases]

    steps = _StatementArithmetic(source)
    result = program.evaluate(sums, steps)
    meanings = ", ".join(f"{base.sum} ({base.matrix.base.value})" for base in bases)
    parameters = ", ".join(f"{c} {value}" for value in sums)
    source.function(
        f"The kernel as a function of {meanings}.",
        f"static {c} {name}_value({parameters})",
        [*steps.lines, f"return {result};"],
    )
    prepared = [base for base in bases if base.is_prepared]
    for base in prepared:
        base.write_preparation()
    takes = ([] if len(prepared) == len(bases) else ["x"]) + [base.used for base in prepared]

    def write_of_atom(what: str, kernel: str, value: str) -> str:
        source.function(
            f"{what} between a row and atom i.",
            f"static {c} {name}_{kernel}({', '.join(f'const {c} *{array}' for array in takes)}, int i)",
            [
                "int k;",
                *(f"{c} {total} = {source.number(0.0)};" for total in sums),
                *(line for base in bases for line in base.loop()),
                f"return {name}_{value}({', '.join(sums)});",
            ],
        )
        return f"{name}_{kernel}({', '.join(takes)}, {{i}})"

    of_atom, log_of_atom = write_of_atom("The kernel", "kernel", "value"), None
    constant, log_steps = formula.own_value(), _StatementArithmetic(source)
    if constant:
        most = LARGEST_SINGLE if source.is_single else LARGEST
        result = log_values(program, sums, log_steps, log_steps.add_logs, most=most)
        if log_steps.adds_logs:
            _write_add_logs(source)
        source.function(
            "The logarithm of the kernel, which is a number where the kernel itself is too small for one.",
            f"static {c} {name}_log_value({parameters})",
            [*log_steps.lines, f"return {result};"],
        )
        log_of_atom = write_of_atom("The logarithm of the kernel", "log_kernel", "log_value")
    return KernelCalls(
        prepared=tuple((f"{c} {base.used}[{base.width}];", base.preparing_call, base.own) for base in prepared),
        of_atom=of_atom,
        log_of_atom=log_of_atom,
        of_itself=source.number(constant)
        if constant is not None
        else f"{name}_value({', '.join(base.write_own() for base in bases)})",
        n_numbers=sum(base.width for base in prepared),
        n_multiplications_once=sum(base.n_multiplications_once for base in bases),
        bases=tuple(bases),
        n_multiplications=steps.n_multiplications + sum(base.n_multiplications for base in bases),
        calls=steps.calls,
        n_divisions=sum(base.n_divisions for base in bases),
        n_log_multiplications=log_steps.n_multiplications + sum(base.n_multiplications for base in bases),
        log_calls=log_steps.calls,
    )


def _write_add_logs(source: Source) -> None:
    c = source.dtype
    ratio = source.call("exp", "smaller - larger")
    source.function(
        "log(exp(x) + exp(y)).",
        f"static {c} {source.name}_add_logs({c} x, {c} y)",
        [
            f"const {c} larger = x > y ? x : y, smaller = x > y ? y : x;",
            f"return larger + {source.call('log', f'{source.number(1.0)} + {ratio}')};",
        ],
    )


def packed_factor(source: Source, formula: Formula) -> str:
    """Write the factor of a formula, row after row up to the diagonal, which is inverted; return its name."""
    # So solving needs no division.
    rows = [np.append(row[:i], 1.0 / row[i]) for i, row in enumerate(formula.factor)]
    return source.table("factor", np.concatenate(rows))


def find_largest_logarithm(source: Source, kernel: KernelCalls, s: int) -> list[str]:
    """Return statements that fill ``coordinates`` with logarithms of kernel values, and ``top`` with the largest."""
    assert kernel.log_of_atom is not None
    return [
        f"for (i = 0; i < {s}; ++i) coordinates[i] = {kernel.log_of_atom.format(i='i')};",
        "top = coordinates[0];",
        f"for (i = 1; i < {s}; ++i) top = coordinates[i] > top ? coordinates[i] : top;",
    ]


def no_logarithm(source: Source) -> str:
    """Spell the condition that all logarithms are so low that they differ by less than rounding."""
    return f"top < {source.number(_LEAST_SINGLE_LOG if source.is_single else _LEAST_LOG)}"


def scaled_value(source: Source) -> str:
    """Spell the kernel value of atom i as a share of the largest, from logarithms."""
    # Infinity less infinity would be NaN.
    return f"{no_logarithm(source)} ? {source.number(1.0)} : {source.call('exp', 'coordinates[i] - top')}"


class BaseText:
    """One base matrix of a program in C."""

    def __init__(self, source: Source, formula: Formula, matrix: PairwiseMatrix, p: int) -> None:
        self.source = source
        self.matrix = matrix
        self.sum, self.used, self._number = f"p{p}", f"u{p}", p
        # A distance between a row and itself is 0 and needs no name.
        self.own = f"own{p}" if matrix.base in (Base.INNER, Base.COSINE) else ""
        self.is_cosine = matrix.base is Base.COSINE
        columns = np.ascontiguousarray(matrix.view.selected(formula.rows))
        self.is_prepared = self.is_cosine or matrix.view.units is not None
        self.width = matrix.view.width(formula.n_features)
        self.n_columns = columns.shape[1]
        self._place = self._entry("@")
        # Where column k belongs among the features, in an array y.
        self.target = self._place.replace("@", "k").replace("x", "y", 1)
        rows = self._write_entries(columns)
        if self.is_cosine:
            rows = unit_rows(rows)
        verb = "multiplied" if matrix.view.matrix is not None else "divided"
        self._preparation = f"{source.name}_{'unit' if self.is_cosine else verb}{p}"
        # Prepared entries are computed once a row, and not for each atom.
        self.entry_of_row = f"{self.used}[k]" if self.is_prepared else self._entry_of_x
        self.entry_of_atom = f"{source.table(f'atoms{p}', rows)}[i][k]"
        self._atoms = rows

    def write_numbers(self) -> list[tuple[list[str], str, str]]:
        """Write the numbers of column k in which rows are compared with atom i, by which contributions go.

        Two where a matrix is used, as in `Explainer`: the statements that it takes for a row, and the two numbers.
        """
        source, p, matrix = self.source, self._number, self.matrix.view.matrix
        if matrix is None:
            return [([], self.entry_of_row, self.entry_of_atom)]
        lengths, unit_columns = matrix.column_lengths, matrix.unit_columns
        if source.is_single:
            lengths, unit_columns = single_units(lengths), single_units(unit_columns)
        alone = source.table(f"alone{p}", self._columns * lengths)
        changed = source.table(f"changed{p}", self._atoms @ unit_columns)
        summed = f"change += {source.table(f'unit_columns{p}', unit_columns)}[l][k] * {self.used}[l];"
        return [
            (
                [],
                f"{source.table(f'lengths{p}', lengths)}[k] * {self._entry_of_x.replace('[l]', '[k]')}",
                f"{alone}[i][k]",
            ),
            (
                [f"{source.dtype} change = {source.number(0.0)};", f"for (l = 0; l < {self.width}; ++l) {summed}"],
                "change",
                f"{changed}[i][k]",
            ),
        ]

    def _write_entries(self, columns: Array) -> Array:
        """Write how a row in units comes from x, with the tables that it takes; return the atoms (m, p) in units.

        `columns` (m, c) are those of the atoms. `_filling` are the statements for one entry of ``u``.
        """
        source, p, view = self.source, self._number, self.matrix.view
        is_distance = self.matrix.base in (Base.SQUARED, Base.ABSOLUTE)
        index = "k" if view.matrix is None else "l"
        entry, rows = self._place.replace("@", index), columns
        if is_distance and (source.is_single or view.matrix is not None):
            # Rounding atoms far from the origin would spoil the distances between them, and so would sums of products.
            centre = single_centre(columns)
            if centre.any():
                entry = f"({entry} - {source.table(f'centre{p}', centre)}[{index}])"
                rows = columns - centre
        self._columns = rows
        if view.matrix is not None:
            factors = single_units(view.matrix.entries) if source.is_single else view.matrix.entries
            # What is small beside the rest of its column may become 0, but not the whole column.
            for largest in np.abs(view.matrix.entries).max(axis=0, initial=0.0).tolist():
                source.number(largest)
            table = source.table(f"units{p}", factors)
            self._entry_of_x = entry
            self._filling = [
                f"u[k] = {source.number(0.0)};",
                f"for (l = 0; l < {self.n_columns}; ++l) u[k] += {table}[k][l] * {entry};",
            ]
            return FeatureView(units=UnitMatrix(factors)).of(rows)
        if view.divisors is not None:
            entry = f"{entry} / {source.divisors(f'units{p}', view.divisors)}[k]"
            rows = rows / (single_units(view.divisors) if source.is_single else view.divisors)
        self._entry_of_x = entry
        self._filling = [f"u[k] = {entry};"]
        return rows

    @property
    def n_multiplications(self) -> int:
        """Number of multiplications for a row and one atom."""
        return 0 if self.matrix.base in (Base.ABSOLUTE, Base.EQUAL) else self.width

    @property
    def n_divisions(self) -> int:
        """Number of divisions for a row, before any atom."""
        return int(self.width) * ((self.matrix.view.divisors is not None) + self.is_cosine)

    @property
    def n_multiplications_once(self) -> int:
        """Number of multiplications for a row, before any atom."""
        return 0 if self.matrix.view.matrix is None else self.width * self.n_columns

    @property
    def preparing_call(self) -> str:
        """The call that prepares a row."""
        return f"{self._preparation}(x, {self.used})"

    def loop(self) -> list[str]:
        """Return the statements that compute the value for a row and atom i."""
        source, base = self.source, self.matrix.base
        loop = f"for (k = 0; k < {self.width}; ++k)"
        difference = f"{self.entry_of_row} - {self.entry_of_atom}"
        if base is Base.SQUARED:
            square = [f"    const {source.dtype} t = {difference};", f"    {self.sum} += t * t;"]
            return [f"{loop} {{", *square, "}"]
        if base is Base.ABSOLUTE:
            return [f"{loop} {self.sum} += {source.call('fabs', difference)};"]
        if base is Base.EQUAL:
            one, zero = source.number(1.0), source.number(0.0)
            return [f"{loop} {self.sum} += {self.entry_of_row} == {self.entry_of_atom} ? {one} : {zero};"]
        return [f"{loop} {self.sum} += {self.entry_of_row} * {self.entry_of_atom};"]

    def write_preparation(self) -> None:
        """Write the function that gives a row in units, and for cosines scales it to length 1."""
        if self.is_cosine:
            self._write_unit_row()
        else:
            self._write_row_in_units()

    def _write_row_in_units(self) -> None:
        source, c = self.source, self.source.dtype
        head, loop = f"{self._preparation}(const {c} *x, {c} *u)", f"for (k = 0; k < {self.width}; ++k)"
        does = "Divide a row by its units" if self.matrix.view.matrix is None else "Multiply a row by a matrix"
        if not self.own:
            filling = [f"{loop} {{", *(f"    {line}" for line in self._filling), "}"]
            lines = [f"{loop} {self._filling[0]}"] if len(self._filling) == 1 else filling
            source.function(f"{does}.", f"static void {head}", [self._indices, *lines])
            return
        lines = [f"    {line}" for line in [*self._filling, "sum += u[k] * u[k];"]]
        source.function(
            f"{does}; return its squared length {'in them' if self.matrix.view.matrix is None else 'then'}.",
            f"static {c} {head}",
            [self._indices, f"{c} sum = {source.number(0.0)};", f"{loop} {{", *lines, "}", "return sum;"],
        )

    @property
    def _indices(self) -> str:
        return "int k;" if self.matrix.view.matrix is None else "int k, l;"

    def _write_unit_row(self) -> None:
        source, c = self.source, self.source.dtype
        zero, one, loop = source.number(0.0), source.number(1.0), f"k < {self.width}; ++k"
        source.function(
            "Scale a row to length 1, without overflow; return its new squared length, 0 for a row of zeros.",
            f"static {c} {self._preparation}(const {c} *x, {c} *u)",
            [
                self._indices,
                f"{c} largest = {zero}, sum = {zero}, scale = {zero};",
                f"for (k = 0; {loop}) {{",
                *(f"    {line}" for line in self._filling),
                f"    largest = {source.call('fabs', 'u[k]')} > largest ? {source.call('fabs', 'u[k]')} : largest;",
                "}",
                f"if (!(largest > {zero})) return {zero};",
                f"for (k = 0; {loop}) {{",
                "    u[k] /= largest;",
                "    sum += u[k] * u[k];",
                "}",
                f"scale = {one} / {source.call('sqrt', 'sum')};",
                f"for (k = 0; {loop}) u[k] *= scale;",
                f"return {one};",
            ],
        )

    def write_own(self) -> str:
        """Return the value between a row and itself, and write a function if it needs one."""
        source, c = self.source, self.source.dtype
        if not self.own:
            return source.number(float(self.width) if self.matrix.base is Base.EQUAL else 0.0)
        if self.is_prepared:
            return self.own
        head = f"{source.name}_square{self._number}"
        source.function(
            "The inner product of a row with itself.",
            f"static {c} {head}(const {c} *x)",
            [
                "int k;",
                f"{c} sum = {source.number(0.0)};",
                f"for (k = 0; k < {self.width}; ++k) sum += {self.entry_of_row} * {self.entry_of_row};",
                "return sum;",
            ],
        )
        return f"{head}(x)"

    def _entry(self, index: str) -> str:
        columns = self.matrix.view.columns
        if columns is None or columns == tuple(range(self.n_columns)):
            return f"x[{index}]"
        if columns == tuple(range(columns[0], columns[0] + self.n_columns)):
            return f"x[{columns[0]} + {index}]"
        return f"x[{self.source.positions(f'columns{self._number}', np.array(columns))}[{index}]]"


class _StatementArithmetic(Arithmetic[str]):
    """Steps as C statements, each of which names its result."""

    def __init__(self, source: Source) -> None:
        self.lines: list[str] = []
        self.n_multiplications = 0
        self.calls: Counter[str] = Counter()
        self.adds_logs = False
        self._source = source

    def affine(self, x: str, a: float, b: float) -> str:
        scaled = x
        if a == -1.0:
            scaled = f"-{x}"
        elif a != 1.0:
            scaled = f"{self._source.number(a)} * {x}"
            self.n_multiplications += 1
        return self._named(scaled if b == 0.0 else f"{scaled} + {self._source.number(b)}")

    def minimum(self, x: str, most: float) -> str:
        limit = self._source.number(most)
        return self._named(f"{x} > {limit} ? {limit} : {x}")

    def add(self, x: str, y: str) -> str:
        return self._named(f"{x} + {y}")

    def multiply(self, x: str, y: str) -> str:
        self.n_multiplications += 1
        return self._named(f"{x} * {y}")

    def add_logs(self, x: str, y: str) -> str:
        """Return log(exp(x) + exp(y))."""
        self.adds_logs = True
        self.calls.update(["exp", "log"])
        return self._named(f"{self._source.name}_add_logs({x}, {y})")

    def apply(self, function: str, x: str) -> str:
        if function == "reciprocal":
            self.calls["division"] += 1
            return self._named(f"{self._source.number(1.0)} / {x}")
        self.calls[function] += 1
        return self._named(self._source.call(function, x))

    def _named(self, expression: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const {self._source.dtype} {name} = {expression};")
        return name
