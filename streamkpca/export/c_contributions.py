"""Contributions of features as a C function."""

import numpy as np

from streamkpca.components.explanations import Explainer
from streamkpca.export.c_kernel import KernelText, Source, find_largest_logarithm, scaled_value
from streamkpca.export.model import Formula
from streamkpca.kernels.program import Base, values_and_gradients


def write_contributions(source: Source, formula: Formula, kernel: KernelText, factor: str) -> None:
    """Write the function that shares the novelty of a row among its features.

    ValueError if the kernel is a function of inner products that is not linear in them: C has no derivatives of it; or
    if its units are a matrix.
    """
    s, d = len(formula.rows), formula.n_features
    if any(segment.has_matrix for segment in kernel.layout.segments):
        raise ValueError(
            f"to_c: contributions under the kernel {formula.kernel!r} would need its matrix of units twice, which C "
            "does not keep; leave them out (contributions=False), or give the kernel a unit for each feature, as "
            "in_units('std') does"
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
    s, base, segment = len(formula.rows), kernel.layout.matrices[p].base, kernel.layout.of_matrix[p]
    root = float(np.sqrt(Explainer(formula.kernel, formula.rows).steepness[p]))
    of_row, of_atom = segment.entry("u"), kernel.entry_of_atom(segment)
    if base in (Base.INNER, Base.COSINE):
        # The steepness is the slope itself where there are several base matrices, and one where there is one.
        scale = abs(_slope(formula, p)) / root if root > 0.0 else 0.0
        start, added, part = of_row, f"-coordinates[i] * {of_atom}", "fabs(part)"
    else:
        apart = f"({of_row} == {of_atom} ? 0.0 : 1.0)" if base is Base.EQUAL else f"fabs({of_row} - {of_atom})"
        scale, start = root, "0.0"
        added = f"(largest > 0.0 ? fabs(coordinates[i]) / largest : 1.0) / sum * {apart}"
        part = "sqrt(part)" if base is Base.ABSOLUTE else "part"
    target = f"y[{kernel.column(segment, 'k')}]"
    return [
        f"for (k = 0; k < {segment.width}; ++k) {{",
        f"    double part = {start};",
        f"    for (i = 0; i < {s}; ++i) part += {added};",
        # The root of a sum of squares, without overflow.
        f"    {target} = hypot({target}, {scale!r} * {part});",
        "}",
    ]


def _slope(formula: Formula, p: int) -> float:
    """Return the derivative of the kernel by a base matrix of inner products, which must be a constant."""
    rows = formula.rows
    probes = np.concatenate([rows, 2.0 * rows + 1.0])
    slopes = values_and_gradients(formula.kernel.program, probes, probes)[1][p]
    if np.ptp(slopes) > 0.0:
        raise ValueError(
            f"to_c: contributions under the kernel {formula.kernel!r} need derivatives, which C does not have; "
            "leave them out (contributions=False), or combine kernels of distances with Linear and Cosine"
        )
    return float(slopes[0, 0])
