"""Contributions of features as a C function."""

from dataclasses import dataclass

import numpy as np

from streamkpca.components.explanations import Explainer
from streamkpca.export.c_kernel import (
    BaseText,
    KernelCalls,
    Source,
    find_largest_logarithm,
    packed_factor,
    scaled_value,
)
from streamkpca.export.model import Formula
from streamkpca.kernels.program import Arithmetic, Base


def write_contributions(source: Source, formula: Formula, kernel: KernelCalls) -> str:
    """Write the function that shares the novelty of a row among its features, and return its head.

    ValueError if the kernel is a function of inner products that is not linear in them: C has no derivatives of it; or
    of cosines in units of a matrix.
    """
    c, s, d, zero, one = source.dtype, formula.n_span, formula.n_features, source.number(0.0), source.number(1.0)
    if kernel.log_of_atom is None:
        value, scaling = kernel.of_atom.format(i="i"), []
    else:
        # As shares of the largest kernel value: weights keep their digits where these vanish.
        value, scaling = scaled_value(source), find_largest_logarithm(source, kernel, s)
    steepness = Explainer(formula.kernel, formula.rows[:s]).steepness
    absolute = source.call("fabs", "coordinates[i]")
    lines = [
        "int i, j, k, l;" if any(base.matrix.view.matrix is not None for base in kernel.bases) else "int i, j, k;",
        f"{c} coordinates[{s}];",
        *(declaration for declaration, _, _ in kernel.prepared),
        *(f"{call};" for _, call, _ in kernel.prepared),
        f"const {c} *row = {packed_factor(source, formula)};",
        f"{c} {'top, ' if scaling else ''}largest = {zero}, total = {zero}, sum = {zero};",
        *scaling,
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
        *(
            line
            for p, base in enumerate(kernel.bases)
            for line in _differences(source, formula, base, p, float(np.sqrt(steepness[p])))
        ),
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
    source.function("Share the novelty of a row among its features.", head, lines)
    return head


def _differences(source: Source, formula: Formula, base: BaseText, p: int, root: float) -> list[str]:
    """Return the statements that add the differences in what a base matrix sees, as roots, to ``y``."""
    c, s, zero, one = source.dtype, formula.n_span, source.number(0.0), source.number(1.0)
    if base.matrix.base in (Base.INNER, Base.COSINE):
        slope = _slope(formula, p)
        if slope is None:
            raise ValueError(
                f"to_c: contributions under the kernel {formula.kernel!r} need derivatives, which C does not "
                "have; leave them out (contributions=False), or combine kernels of distances with Linear and Cosine"
            )
        # The steepness is the slope itself where there are several base matrices, and one where there is one.
        if base.is_cosine and base.matrix.view.matrix is not None:
            raise ValueError(
                f"to_c: contributions under the kernel {formula.kernel!r} need the lengths of rows, which C does "
                "not keep where units are a matrix; leave them out (contributions=False), or give Cosine a unit for "
                "each feature"
            )
        scale = abs(slope) / root if root > 0.0 else 0.0
    else:
        scale = root
    lines, parts = [], []
    for i, (statements, of_row, of_atom) in enumerate(base.write_numbers()):
        parts.append(part := f"part{i}")
        if base.matrix.base in (Base.INNER, Base.COSINE):
            start, summed, end = of_row, f"{part} -= coordinates[i] * {of_atom};", source.call("fabs", part)
        else:
            weight = f"(largest > {zero} ? {source.call('fabs', 'coordinates[i]')} / largest : {one})"
            difference = source.call("fabs", f"{of_row} - {of_atom}")
            if base.matrix.base is Base.EQUAL:
                difference = f"({of_row} == {of_atom} ? {zero} : {one})"
            start, summed, end = zero, f"{part} += {weight} / sum * {difference};", part
        lines += [*statements, f"{c} {part} = {start};", f"for (i = 0; i < {s}; ++i) {summed}"]
        lines += [f"{part} = {end};"] if end != part else []
    rest = parts[0]
    if len(parts) > 1:
        rest = " * ".join(source.call("sqrt", part) for part in parts)
    if base.matrix.base is Base.ABSOLUTE:
        rest = source.call("sqrt", rest)
    lines.append(f"const {c} part = {source.number(scale)} * {rest};" if scale != 1.0 else f"const {c} part = {rest};")
    if p == 0:
        lines.append(f"{base.target} = part;")
    else:
        # The root of a sum of squares, without overflow.
        known, ratio = base.target, f"const {c} ratio = "
        larger = f"{known} > part"
        lines += [
            f"if ({larger}) {{",
            f"    {ratio}part / {known};",
            f"    {known} *= {source.call('sqrt', f'{one} + ratio * ratio')};",
            f"}} else if (part > {zero}) {{",
            f"    {ratio}{known} / part;",
            f"    {known} = part * {source.call('sqrt', f'{one} + ratio * ratio')};",
            "} else {",
            f"    {known} += part;",
            "}",
        ]
    return [f"for (k = 0; k < {base.n_columns}; ++k) {{", *(f"    {line}" for line in lines), "}"]


def _slope(formula: Formula, p: int) -> float | None:
    """Return the derivative of the kernel by a base matrix if it is a constant, else None."""
    count = len(formula.kernel.program.base_matrices)
    line = formula.kernel.program.evaluate([_Line(float(i == p)) for i in range(count)], _LineArithmetic())
    return line.slope


@dataclass(frozen=True)
class _Line:
    """A value that is linear in one base matrix, with its slope; None if it depends on that in another way."""

    slope: float | None


class _LineArithmetic(Arithmetic[_Line]):
    """Steps on values of which only the slope by one base matrix is known."""

    def affine(self, x: _Line, a: float, b: float) -> _Line:
        del b
        return _Line(None if x.slope is None else a * x.slope)

    def minimum(self, x: _Line, most: float) -> _Line:
        del most
        return self._bent(x)

    def add(self, x: _Line, y: _Line) -> _Line:
        return _Line(None if x.slope is None or y.slope is None else x.slope + y.slope)

    def multiply(self, x: _Line, y: _Line) -> _Line:
        return self._bent(x, y)

    def apply(self, function: str, x: _Line) -> _Line:
        del function
        return self._bent(x)

    def _bent(self, *values: _Line) -> _Line:
        return _Line(0.0 if all(value.slope == 0.0 for value in values) else None)
