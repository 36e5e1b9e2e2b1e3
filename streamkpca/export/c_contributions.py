"""Contributions of features as a C function."""

import numpy as np

from streamkpca.components.explanations import Explainer
from streamkpca.export.c_kernel import KernelText, Source, find_largest_logarithm, scaled_value
from streamkpca.export.model import Formula
from streamkpca.kernels.gradients import values_and_gradients
from streamkpca.kernels.program import Base


def write_contributions(source: Source, formula: Formula, kernel: KernelText, factor: str) -> None:
    """Write the function that shares the novelty of a row among its features.

    ValueError if the kernel is a function of inner products that is not linear in them: C has no derivatives of it; or
    if its units are a matrix.
    """
    c, s, d, zero, one = source.dtype, formula.n_span, formula.n_features, source.number(0.0), source.number(1.0)
    if any(segment.has_matrix for segment in kernel.layout.segments):
        raise ValueError(
            f"to_c: contributions under the kernel {formula.kernel!r} would need its matrix of units twice, which C "
            "does not keep; leave them out (contributions=False), or give the kernel a unit for each feature, as "
            "in_units('std') does"
        )
    value, logarithms = kernel.of_atom.replace("@", "i"), list[str]()
    if kernel.log_of_atom:
        # As shares of the largest kernel value: weights keep their digits where these vanish.
        value, logarithms = scaled_value(source), find_largest_logarithm(source, kernel, s)
    absolute = source.call("fabs", "coordinates[i]")
    lines = [
        "int i, j, k;",
        *kernel.preparation,
        f"{c} coordinates[{s}];",
        f"const {c} *row = {factor};",
        f"{c} largest = {zero}, total = {zero}, sum = {zero};",
        *logarithms,
        # Forwards as for the error, then backwards: coefficients of the projection over the atoms.
        f"for (i = 0; i < {s}; row += ++i) {{",
        f"    {c} rest = {value};",
        "    for (j = 0; j < i; ++j) rest -= row[j] * coordinates[j];",
        "    coordinates[i] = rest * row[i];",
        "}",
        f"for (i = {s - 1}; i >= 0; --i) {{",
        "    row -= i + 1;",
        "    coordinates[i] *= row[i];",
        "    for (j = 0; j < i; ++j) coordinates[j] -= row[j] * coordinates[i];",
        f"    largest = {absolute} > largest ? {absolute} : largest;",
        "}",
        # The weights of far rows are too small for sums of products.
        f"for (i = 0; i < {s}; ++i) sum += largest > {zero} ? {absolute} / largest : {one};",
        f"for (k = 0; k < {d}; ++k) y[k] = {zero};",
        *(line for p in range(len(kernel.layout.matrices)) for line in _differences(source, formula, kernel, p)),
        f"for (largest = {zero}, k = 0; k < {d}; ++k) largest = y[k] > largest ? y[k] : largest;",
        f"for (k = 0; k < {d}; ++k) {{",
        f"    y[k] = largest > {zero} ? y[k] / largest : y[k];",
        "    y[k] *= y[k];",
        "    total += y[k];",
        "}",
        f"sum = {source.name}_novelty(x);",
        f"for (k = 0; k < {d}; ++k) y[k] = total > {zero} ? y[k] / total * sum : total;",
    ]
    head = f"void {source.name}_contributions(const {c} x[{d}], {c} y[{d}])"
    use = "writes how much each feature adds to the novelty; x and y must not overlap."
    source.public(use, "Share the novelty of a row among its features.", head, lines)


def _differences(source: Source, formula: Formula, kernel: KernelText, p: int) -> list[str]:
    """Return the statements that add the differences in the columns of a base matrix, as roots, to ``y``."""
    c, s, zero, one = source.dtype, formula.n_span, source.number(0.0), source.number(1.0)
    base, segment = kernel.layout.matrices[p].base, kernel.layout.of_matrix[p]
    root = float(np.sqrt(Explainer(formula.kernel, formula.rows[:s]).steepness[p]))
    of_row, of_atom = segment.entry("u"), kernel.entry_of_atom(segment)
    lines = [f"for (k = 0; k < {segment.width}; ++k) {{"]
    if base in (Base.INNER, Base.COSINE):
        # The steepness is the slope itself where there are several base matrices, and one where there is one.
        scale = abs(_slope(formula, p)) / root if root > 0.0 else 0.0
        lines += [
            f"    {c} part = {of_row};",
            f"    for (i = 0; i < {s}; ++i) part -= coordinates[i] * {of_atom};",
        ]
        part = source.call("fabs", "part")
    else:
        scale = root
        weight = f"(largest > {zero} ? {source.call('fabs', 'coordinates[i]')} / largest : {one})"
        difference = source.call("fabs", f"{of_row} - {of_atom}")
        if base is Base.EQUAL:
            difference = f"({of_row} == {of_atom} ? {zero} : {one})"
        lines += [
            f"    {c} part = {zero};",
            f"    for (i = 0; i < {s}; ++i) part += {weight} / sum * {difference};",
        ]
        part = source.call("sqrt", "part") if base is Base.ABSOLUTE else "part"
    target = f"y[{kernel.column(segment, 'k')}]"
    # The root of a sum of squares, without overflow.
    return [*lines, f"    {target} = {source.call('hypot', f'{target}, {source.number(scale)} * {part}')};", "}"]


def _slope(formula: Formula, p: int) -> float:
    """Return the derivative of the kernel by a base matrix of inner products, which must be a constant."""
    rows = formula.rows[: formula.n_span]
    probes = np.concatenate([rows, 2.0 * rows + 1.0])
    slopes = values_and_gradients(formula.kernel.program, probes, probes)[1][p]
    if np.ptp(slopes) > 0.0:
        raise ValueError(
            f"to_c: contributions under the kernel {formula.kernel!r} need derivatives, which C does not have; "
            "leave them out (contributions=False), or combine kernels of distances with Linear and Cosine"
        )
    return float(slopes[0, 0])
