"""A kernel as C functions of a row and an atom."""

from streamkpca.export.c_text import CText, single_literal
from streamkpca.export.formula import Formula
from streamkpca.export.segments import LARGEST_SINGLE, RowSegments, Segment
from streamkpca.kernels.logarithms import LARGEST, log_values
from streamkpca.kernels.program import Arithmetic, Base

# What a base matrix adds for each number of a row and an atom.
_TERMS = {
    Base.INNER: "u[@] * a[@]",
    Base.COSINE: "u[@] * a[@]",
    Base.SQUARED: "(u[@] - a[@]) * (u[@] - a[@])",
    Base.ABSOLUTE: "fabs(u[@] - a[@])",
}


def write_kernel(source: CText, formula: Formula) -> RowSegments:
    """Write the atoms, and the functions that give `c_answers.c` kernel values; return the layout of prepared rows.

    ``kpca_prepare`` copies a row x to u in the form in which ``kpca_kernel`` compares it with atoms. If k(x, x) is the
    same number for all rows, ``kpca_log_kernel`` gives the logarithm, also where the kernel is too small for a number.
    """
    is_single, program = source.dtype == "float", formula.kernel.program
    layout = RowSegments(formula, single=is_single)
    lines = [line for place, segment in enumerate(layout.segments) for line in _fill(source, place, segment)]
    source.function(
        "Copy a row in the form in which atoms are compared with it.",
        "static void kpca_prepare(const double *x, double *u)",
        ["int k;", *lines],
    )
    source.table("atoms", layout.atoms)
    steps, sums = _Statements(), [f"p{p}" for p in range(len(layout.matrices))]
    _write_pair(source, layout, "kernel", "The kernel of two rows.", steps, program.evaluate(sums, steps))
    if formula.own_value():
        steps = _Statements()
        result = log_values(program, sums, steps, most=LARGEST_SINGLE if is_single else LARGEST)
        _write_pair(source, layout, "log_kernel", "Its logarithm.", steps, result)
    return layout


def _fill(source: CText, place: int, segment: Segment) -> list[str]:
    """Return the statements that fill a segment of ``u`` with a row."""
    column = "k"
    if segment.columns is not None:
        column = f"{source.positions(f'columns{place}', segment.columns)}[k]"
    entry = f"x[{column}]"
    if segment.centre is not None:
        entry = f"({entry} - {source.table(f'centre{place}', segment.centre)}[k])"
    if segment.units is not None:
        if source.dtype == "float":
            # No divisor may become 0.
            for size in segment.units.tolist():
                single_literal(repr(size))
        entry = f"{entry} / {source.table(f'units{place}', segment.units)}[k]"
    lines = [f"for (k = 0; k < {segment.width}; ++k) {{", f"    u[{segment.start} + k] = {entry};", "}"]
    return [*lines, f"kpca_scale(u + {segment.start}, {segment.width});"] if segment.is_unit else lines


def _write_pair(source: CText, layout: RowSegments, name: str, comment: str, steps: "_Statements", result: str) -> None:
    """Write a function of two prepared rows."""
    loops = []
    for p, (matrix, segment) in enumerate(zip(layout.matrices, layout.of_matrix, strict=True)):
        term = _TERMS[matrix.base].replace("@", f"{segment.start} + k")
        loops += [f"double p{p} = 0.0;", f"for (k = 0; k < {segment.width}; ++k) p{p} += {term};"]
    head = f"static double kpca_{name}(const double *u, const double *a)"
    source.function(comment, head, ["int k;", *loops, *steps.lines, f"return {result};"])


class _Statements(Arithmetic[str]):
    """Steps as C statements, each of which names its result."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def affine(self, x: str, a: float, b: float) -> str:
        scaled = x if a == 1.0 else f"-{x}" if a == -1.0 else f"{a!r} * {x}"
        return self._name(scaled if b == 0.0 else f"{scaled} + {b!r}")

    def minimum(self, x: str, most: float) -> str:
        return self._name(f"{x} > {most!r} ? {most!r} : {x}")

    def add_logs(self, x: str, y: str) -> str:
        larger, smaller = self._name(f"{x} > {y} ? {x} : {y}"), self._name(f"{x} > {y} ? {y} : {x}")
        return self._name(f"{larger} + log(1.0 + exp({smaller} - {larger}))")

    def add(self, x: str, y: str) -> str:
        return self._name(f"{x} + {y}")

    def multiply(self, x: str, y: str) -> str:
        return self._name(f"{x} * {y}")

    def apply(self, function: str, x: str) -> str:
        return self._name(f"1.0 / {x}" if function == "reciprocal" else f"{function}({x})")

    def _name(self, expression: str) -> str:
        self.lines.append(f"const double v{len(self.lines)} = {expression};")
        return f"v{len(self.lines) - 1}"
