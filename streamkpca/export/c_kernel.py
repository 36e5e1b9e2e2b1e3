"""A kernel written as C functions."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca.export.model import Formula
from streamkpca.export.program import evaluate, single_centre, single_units
from streamkpca.kernels.features import FeatureView
from streamkpca.kernels.pairwise import Base, PairwiseMatrix, unit_rows

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

_WIDTH = 110


class Source:
    """A C file being written.

    Parameters
    ----------
    name : str
        What all names in it begin with.
    dtype : {"double", "float"}
        Type of all numbers in it.

    Attributes
    ----------
    tables, functions : list of str
        What was written so far.
    n_bytes : int
        What the tables take.
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
        """Whether numbers are of single precision."""
        return self.dtype == "float"

    @property
    def n_bytes_of_number(self) -> int:
        """Size of a number."""
        return 4 if self.is_single else 8

    def number(self, value: float) -> str:
        """Spell a constant so that the compiler reads the same number.

        Parameters
        ----------
        value : float

        Returns
        -------
        str

        Raises
        ------
        ValueError
            It is beyond single precision, or lost in it.
        """
        if self.is_single and not np.array_equal(_singles(np.array([value])) == 0.0, [value == 0.0]):
            raise _beyond_single(value)
        return self._spelled(np.array([value]))[0]

    def call(self, function: str, argument: str) -> str:
        """Spell a call of a function of <math.h>.

        Parameters
        ----------
        function : str
            What it is called for double.
        argument : str

        Returns
        -------
        str
        """
        return f"{function}f({argument})" if self.is_single else f"{function}({argument})"

    def table(self, what: str, values: Array) -> str:
        """Write a table of numbers, or find an equal one.

        Parameters
        ----------
        what : str
            What it holds: the last part of its name.
        values : ndarray of shape (n,) or (n, c)

        Returns
        -------
        str
            Its name.

        Raises
        ------
        ValueError
            A number is beyond single precision.
        """
        key = values.shape, values.tobytes()
        if key not in self._known:
            rows = [self._spelled(row) for row in np.atleast_2d(values)]
            self._known[key] = self._write(what, self.dtype, values.shape, rows)
            self.n_bytes += values.size * self.n_bytes_of_number
        return self._known[key]

    def divisors(self, what: str, values: Array) -> str:
        """Write a table of numbers to divide by.

        Parameters
        ----------
        what : str
            What it holds: the last part of its name.
        values : ndarray of shape (n,)
            Not zero.

        Returns
        -------
        str
            Its name.

        Raises
        ------
        ValueError
            A number is beyond single precision, or lost in it.
        """
        for value in values.tolist():
            self.number(value)
        return self.table(what, values)

    def positions(self, what: str, values: Positions) -> str:
        """Write a table of positions.

        Parameters
        ----------
        what : str
            What it holds: the last part of its name.
        values : ndarray of shape (n,)

        Returns
        -------
        str
            Its name.
        """
        dtype, n_bytes = ("unsigned short", 2) if int(values.max()) < 2**16 else ("unsigned long", 4)
        self.n_bytes += values.size * n_bytes
        return self._write(what, dtype, values.shape, [[str(value) for value in values.tolist()]])

    def function(self, comment: str, head: str, lines: Sequence[str]) -> None:
        """Write a function.

        Parameters
        ----------
        comment : str
        head : str
            From its type to its arguments.
        lines : sequence of str
            What it does.
        """
        body = "".join(f"    {line}\n" for line in lines)
        note = textwrap.fill(f"/* {comment} */", _WIDTH, subsequent_indent="   ")
        self.functions.append(f"{note}\n{head}\n{{\n{body}}}\n")

    def _spelled(self, values: Array) -> list[str]:
        # The shortest decimals that name the number: hexadecimal ones are no C++ before 2017.
        if not self.is_single:
            return [repr(value) for value in values.tolist()]
        return [f"{single!s}f" for single in _singles(values)]

    def _write(self, what: str, dtype: str, shape: tuple[int, ...], rows: list[list[str]]) -> str:
        name, sizes = f"{self.name}_{what}", "".join(f"[{size}]" for size in shape)
        ends = ("{", "}") if len(shape) > 1 else ("", "")
        texts = [textwrap.fill(ends[0] + ", ".join(row) + ends[1], _WIDTH, break_on_hyphens=False) for row in rows]
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
    """How the functions of a file get kernel values.

    Parameters
    ----------
    prepared : tuple of (str, str, str)
        What must come first, once a row: the declaration of an array, the call that fills it, and the name of what
        that returns, empty where it is nothing.
    of_atom : str
        k(x, atom i), with ``{i}`` for i.
    of_itself : str
        k(x, x).
    n_numbers : int
        Size of those arrays together.
    n_multiplications : int
        Of one k(x, atom i).
    calls : Counter of str
        Divisions and functions of <math.h> of one k(x, atom i).
    n_divisions : int
        Of what comes first, once a row.
    """

    prepared: tuple[tuple[str, str, str], ...]
    of_atom: str
    of_itself: str
    n_numbers: int
    n_multiplications: int
    calls: Counter[str]
    n_divisions: int


def write_kernel(source: Source, formula: Formula) -> KernelCalls:
    """Write the kernel between a row and the rows of a formula.

    Parameters
    ----------
    source : Source
        Takes tables and functions.
    formula : Formula

    Returns
    -------
    KernelCalls
    """
    c, name = source.dtype, source.name
    planes = [_PlaneText(source, formula, plane, p) for p, plane in enumerate(formula.kernel.program.planes)]
    sums = [plane.sum for plane in planes]

    steps = _Statements(source)
    result = evaluate(formula.kernel.program, sums, steps)
    meanings = ", ".join(f"{plane.sum} ({plane.plane.base.value})" for plane in planes)
    parameters = ", ".join(f"{c} {value}" for value in sums)
    source.function(
        f"The kernel as a function of {meanings}.",
        f"static {c} {name}_value({parameters})",
        [*steps.lines, f"return {result};"],
    )
    prepared = [plane for plane in planes if plane.is_prepared]
    for plane in prepared:
        plane.write_preparation()
    takes = ([] if len(prepared) == len(planes) else ["x"]) + [plane.used for plane in prepared]
    source.function(
        "The kernel between a row and atom i.",
        f"static {c} {name}_kernel({', '.join(f'const {c} *{array}' for array in takes)}, int i)",
        [
            "int k;",
            *(f"{c} {value} = {source.number(0.0)};" for value in sums),
            *(line for plane in planes for line in plane.loop()),
            f"return {name}_value({', '.join(sums)});",
        ],
    )
    constant = formula.own_value()
    return KernelCalls(
        prepared=tuple((f"{c} {plane.used}[{plane.width}];", plane.preparing_call, plane.own) for plane in prepared),
        of_atom=f"{name}_kernel({', '.join(takes)}, {{i}})",
        of_itself=source.number(constant)
        if constant is not None
        else f"{name}_value({', '.join(plane.write_own() for plane in planes)})",
        n_numbers=sum(plane.width for plane in prepared),
        n_multiplications=steps.n_multiplications + sum(plane.n_multiplications for plane in planes),
        calls=steps.calls,
        n_divisions=sum(plane.n_divisions for plane in planes),
    )


class _PlaneText:
    """What one plane of a program looks like in C."""

    def __init__(self, source: Source, formula: Formula, plane: PairwiseMatrix, p: int) -> None:
        self.source = source
        self.plane = plane
        self.sum, self.used, self._number = f"p{p}", f"u{p}", p
        # Between a row and itself, the distance is 0.
        self.own = f"own{p}" if plane.base in (Base.INNER, Base.COSINE) else ""
        self.is_cosine = plane.base is Base.COSINE
        rows = np.ascontiguousarray(FeatureView(plane.view.columns).of(formula.rows))
        self.width = rows.shape[1]
        entry = self._entry()
        if plane.base in (Base.SQUARED, Base.ABSOLUTE) and source.is_single:
            # What rounding takes of atoms far from the origin, a distance between them would miss.
            centre = single_centre(rows)
            if centre.any():
                entry = f"({entry} - {source.table(f'centre{p}', centre)}[k])"
                rows = rows - centre
        units = plane.view.divisors
        if units is not None:
            entry = f"{entry} / {source.divisors(f'units{p}', units)}[k]"
            rows = rows / (single_units(units) if source.is_single else units)
        if self.is_cosine:
            rows = unit_rows(rows)
        # Once a row, and not for each atom.
        self.is_prepared = self.is_cosine or units is not None
        self._entry_of_x = entry
        self._row_entry = f"{self.used}[k]" if self.is_prepared else entry
        self._atom_entry = f"{source.table(f'atoms{p}', rows)}[i][k]"

    @property
    def _verb(self) -> str:
        return "unit" if self.is_cosine else "divided"

    @property
    def n_multiplications(self) -> int:
        """Multiplications of the plane's value between a row and one atom."""
        return 0 if self.plane.base is Base.ABSOLUTE else self.width

    @property
    def n_divisions(self) -> int:
        """Divisions of a row, before any atom."""
        return int(self.width) * ((self.plane.view.units is not None) + self.is_cosine)

    @property
    def preparing_call(self) -> str:
        """The call that writes what is used of the row."""
        return f"{self.source.name}_{self._verb}{self._number}(x, {self.used})"

    def loop(self) -> list[str]:
        """Give the statements that sum the plane up between a row and atom i."""
        source, base = self.source, self.plane.base
        loop = f"for (k = 0; k < {self.width}; ++k)"
        difference = f"{self._row_entry} - {self._atom_entry}"
        if base is Base.SQUARED:
            square = [f"    const {source.dtype} t = {difference};", f"    {self.sum} += t * t;"]
            return [f"{loop} {{", *square, "}"]
        if base is Base.ABSOLUTE:
            return [f"{loop} {self.sum} += {source.call('fabs', difference)};"]
        return [f"{loop} {self.sum} += {self._row_entry} * {self._atom_entry};"]

    def write_preparation(self) -> None:
        """Write the function that puts a row into its units, and scales it to length 1 for cosines."""
        if self.is_cosine:
            self._write_unit_row()
        else:
            self._write_division()

    def _write_division(self) -> None:
        source, c = self.source, self.source.dtype
        head, loop = f"{source.name}_divided{self._number}(const {c} *x, {c} *u)", f"for (k = 0; k < {self.width}; ++k)"
        if not self.own:
            lines = ["int k;", f"{loop} u[k] = {self._entry_of_x};"]
            source.function("Divide a row by its units.", f"static void {head}", lines)
            return
        zero = source.number(0.0)
        lines = [f"    u[k] = {self._entry_of_x};", "    sum += u[k] * u[k];"]
        source.function(
            "Divide a row by its units; return its squared length in them.",
            f"static {c} {head}",
            ["int k;", f"{c} sum = {zero};", f"{loop} {{", *lines, "}", "return sum;"],
        )

    def _write_unit_row(self) -> None:
        source, c = self.source, self.source.dtype
        zero, one, entry, loop = source.number(0.0), source.number(1.0), self._entry_of_x, f"k < {self.width}; ++k"
        source.function(
            "Scale a row to length 1, without overflow; return its new squared length, 0 for a row of zeros.",
            f"static {c} {source.name}_unit{self._number}(const {c} *x, {c} *u)",
            [
                "int k;",
                f"{c} largest = {zero}, sum = {zero}, scale = {zero};",
                f"for (k = 0; {loop}) {{",
                f"    u[k] = {entry};",
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
        """Give the plane's value between a row and itself; write a function where one is needed."""
        source, c = self.source, self.source.dtype
        if not self.own:
            return source.number(0.0)
        if self.is_prepared:
            return self.own
        head = f"{source.name}_square{self._number}"
        source.function(
            "The inner product of a row with itself.",
            f"static {c} {head}(const {c} *x)",
            [
                "int k;",
                f"{c} sum = {source.number(0.0)};",
                f"for (k = 0; k < {self.width}; ++k) sum += {self._row_entry} * {self._row_entry};",
                "return sum;",
            ],
        )
        return f"{head}(x)"

    def _entry(self) -> str:
        columns = self.plane.view.columns
        if columns is None or columns == tuple(range(self.width)):
            return "x[k]"
        if columns == tuple(range(columns[0], columns[0] + self.width)):
            return f"x[{columns[0]} + k]"
        return f"x[{self.source.positions(f'columns{self._number}', np.array(columns))}[k]]"


class _Statements:
    """Steps as C statements, each of which names its result."""

    def __init__(self, source: Source) -> None:
        self.lines: list[str] = []
        self.n_multiplications = 0
        self.calls: Counter[str] = Counter()
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

    def reciprocal(self, x: str) -> str:
        self.calls["division"] += 1
        return self._named(f"{self._source.number(1.0)} / {x}")

    def apply(self, function: str, x: str) -> str:
        self.calls[function] += 1
        return self._named(self._source.call(function, x))

    def _named(self, expression: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const {self._source.dtype} {name} = {expression};")
        return name
