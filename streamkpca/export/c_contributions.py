"""Contributions of features as a C function."""

import numpy as np

from streamkpca.components.explanations import Explainer
from streamkpca.export.c_kernel import KernelText, Source, find_largest_logarithm, scaled_value
from streamkpca.export.model import Formula
from streamkpca.kernels.program import Base
from streamkpca.kernels.views import shown


def write_contributions(source: Source, formula: Formula, kernel: KernelText, factor: str) -> None:
    """Write the function that shares the novelty of a row among its features.

    ValueError if the kernel has inner products, as C has no derivatives by them, or units that are a matrix.
    """
    s, d = formula.n_span, formula.n_features
    has_inner = any(matrix.base in (Base.INNER, Base.COSINE) for matrix in kernel.layout.matrices)
    if has_inner or any(segment.has_matrix for segment in kernel.layout.segments):
        raise ValueError(
            "to_c: contributions need a kernel of distances or categories, with a unit for each feature, but this one "
            f"is {shown(formula.kernel)}; leave them out (contributions=False), or use RBF().in_units('std')"
        )
    value, logarithms = kernel.of_atom.replace("@", "i"), list[str]()
    if kernel.log_of_atom:
        # As shares of the largest kernel value: weights keep their digits where these vanish.
        value, logarithms = scaled_value(source), find_largest_logarithm(kernel, s)
    lines = [
        "int i, j, k;",
        *kernel.preparation,
        f"double coordinates[{s}];",
        f"const double *row = {factor};",
        "double largest = 0.0, total = 0.0, sum = 0.0;",
        *logarithms,
        # Forwards as for the error, then backwards: coefficients of the projection over the atoms.
        f"for (i = 0; i < {s}; row += ++i) {{",
        f"    double rest = {value};",
        "    for (j = 0; j < i; ++j) rest -= row[j] * coordinates[j];",
        "    coordinates[i] = rest * row[i];",
        "}",
        f"for (i = {s - 1}; i >= 0; --i) {{",
        "    row -= i + 1;",
        "    coordinates[i] *= row[i];",
        "    for (j = 0; j < i; ++j) coordinates[j] -= row[j] * coordinates[i];",
        "    largest = fabs(coordinates[i]) > largest ? fabs(coordinates[i]) : largest;",
        "}",
        # The weights of far rows are too small for sums of products.
        f"for (i = 0; i < {s}; ++i) sum += largest > 0.0 ? fabs(coordinates[i]) / largest : 1.0;",
        f"for (k = 0; k < {d}; ++k) y[k] = 0.0;",
        *(line for p in range(len(kernel.layout.matrices)) for line in _differences(formula, kernel, p)),
        f"for (largest = 0.0, k = 0; k < {d}; ++k) largest = y[k] > largest ? y[k] : largest;",
        f"for (k = 0; k < {d}; ++k) {{",
        "    y[k] = largest > 0.0 ? y[k] / largest : y[k];",
        "    y[k] *= y[k];",
        "    total += y[k];",
        "}",
        f"sum = {source.name}_novelty(x);",
        f"for (k = 0; k < {d}; ++k) y[k] = total > 0.0 ? y[k] / total * sum : total;",
    ]
    source.function(
        "Share the novelty of a row among its features.",
        f"void {source.name}_contributions(const double x[{d}], double y[{d}])",
        lines,
        use="writes how much each feature adds to the novelty; x and y must not overlap.",
    )


def _differences(formula: Formula, kernel: KernelText, p: int) -> list[str]:
    """Return the statements that add the differences in the columns of a base matrix, as roots, to ``y``."""
    s, base, segment = formula.n_span, kernel.layout.matrices[p].base, kernel.layout.of_matrix[p]
    root = float(np.sqrt(Explainer(formula.kernel, formula.rows[:s]).steepness[p]))
    of_row, of_atom = segment.entry("u"), kernel.entry_of_atom(segment)
    apart = f"({of_row} == {of_atom} ? 0.0 : 1.0)" if base is Base.EQUAL else f"fabs({of_row} - {of_atom})"
    added = f"(largest > 0.0 ? fabs(coordinates[i]) / largest : 1.0) / sum * {apart}"
    part = "sqrt(part)" if base is Base.ABSOLUTE else "part"
    target = f"y[{kernel.column(segment, 'k')}]"
    return [
        f"for (k = 0; k < {segment.width}; ++k) {{",
        "    double part = 0.0;",
        f"    for (i = 0; i < {s}; ++i) part += {added};",
        # The root of a sum of squares, without overflow.
        f"    {target} = hypot({target}, {root!r} * {part});",
        "}",
    ]
