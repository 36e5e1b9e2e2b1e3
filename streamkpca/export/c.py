"""A model as one C file: the functions of the model, and a header that states size, cost and accuracy."""

import math
import re
import textwrap
from typing import Any

import numpy as np

from streamkpca._core.parameters import check_choice, check_flag
from streamkpca._version import __version__
from streamkpca.errors import name_errors
from streamkpca.export.c_kernel import (
    WIDTH,
    CText,
    KernelText,
    comment_safe,
    find_largest_logarithm,
    list_facts,
    scaled_value,
)
from streamkpca.export.c_learning import write_learning_file
from streamkpca.export.device_state import RETURN_PERIOD
from streamkpca.export.model import Formula, formula_of
from streamkpca.export.scales import DOUBLE_ROUNDING, N_LEVELS, SINGLE_ROUNDING, Scales, relation_text

_ACCURACY = {
    "double": "equal to Python's answers to 1e-12 of k(x, x), unless atoms nearly depend on each other.",
    "float": "equal to Python's answers to 1e-6 to 1e-3 of k(x, x), the worse the more atoms depend on each other: "
    "compare the answers on rows of your own.",
}


@name_errors
def to_c(
    model: Any,
    *,
    name: str = "streamkpca",
    dtype: str | None = None,
    learns: bool = False,
    return_period: float = RETURN_PERIOD,
) -> str:
    """Write a model's projection, scores, rarity and expected numbers as one self-contained C99 file.

    Parameters
    ----------
    model : estimator
        Fitted: StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA.
    name : str
        Prefix of the names of all functions.
    dtype : {"double", "float"}, optional
        Type of all numbers, and of all arithmetic. By default "double", and "float" for a file that learns, which has
        no other.
    learns : bool
        Write a file that goes on learning: the model is a StreamingKernelPCA with a budget of atoms, an RBF or linear
        kernel with a unit for each feature or none, and a sample of 64 rows or more.
    return_period : float
        Healthy rows of which one is an alarm, for a file that learns, whose levels follow that; 2 to 10,000. The caller
        of another file compares the rarity with a number of its own.

    Returns
    -------
    str
        The file. Its functions are ``void <name>_transform(const double x[d], double y[q])``,
        ``double <name>_reconstruction_error(const double x[d])`` and ``double <name>_novelty(const double x[d])``. Of a
        stream with a sample of 64 rows or more, and 256 features at most, also ``double <name>_rarity(const double
        x[d])`` and ``int <name>_explain(const double x[d], double expected[d], double terms[d])``. The same model gives
        the same text. One that learns has ``int <name>_update(const float x[d])`` and others, which its head describes.

    Raises
    ------
    NotFittedError
        No row was seen yet.
    TypeError, ValueError
        `model` is not an estimator of this library, its kernel calls functions of the user, it keeps no row, or
        single precision cannot hold its numbers; a file that learns is wanted of another model or kernel than it takes.

    Notes
    -----
    The file includes <math.h> and nothing else, allocates nothing, and compiles without warnings as C99 and as C++.
    With s rows that errors are measured to, k rows that projections are computed from, d features and q axes, it has
    s d + s (s + 1) / 2 + (k + 1) q constants and s + d numbers on the stack, and takes O(k (d + q)) time for a
    projection and O(s (d + s)) for an error or a novelty.

    The rarity of a row says in how many healthy rows one is as odd, by the rarer of two views as in `Monitor`: its
    novelty, and how surprising its numbers are, given each other. It is interpolated between the levels of the
    sampled rows at powers of two, and grows with the distance beyond 32,768. The terms are the surprise of each number.
    They take d (d + 7) / 2 + 33 constants and d numbers on the stack more, and O(d^2) time.

    A file that learns includes <stdint.h>, too, needs no library, and has a static state; see the manual's page "At the
    edge". Its answers are those of "float".

    Answers equal those of the model to 1e-12 of k(x, x) (projections: of its root) in double, and to some 1e-6 to 1e-3
    in "float", unless atoms nearly depend on each other. A row with NaN gives NaN, but not with -ffast-math.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.export import to_c
    >>> model = StreamingKernelPCA(2).partial_fit(np.random.default_rng(0).normal(size=(500, 3)))
    >>> text = to_c(model, name="pump")
    >>> "double pump_rarity(const double x[3]);" in text
    True
    """
    _check_name(name)
    if dtype is None:
        dtype = "float" if check_flag("learns", learns) else "double"
    check_choice("dtype", dtype, choices=("double", "float"))
    if check_flag("learns", learns):
        if dtype != "float":
            raise ValueError('expected dtype="float" for a file that learns but got "double"; leave it out')
        return write_learning_file(model, name=name, return_period=return_period)
    formula = formula_of(model, language="C", single="float" if dtype == "float" else None)
    source = CText(name, dtype)
    kernel = KernelText(source, formula)
    # Row after row up to the diagonal, which is inverted, so that solving needs no division.
    inverted = [np.append(row[:i], 1.0 / row[i]) for i, row in enumerate(formula.factor)]
    factor = source.table("factor", np.concatenate(inverted))
    _write_transform(source, formula, kernel)
    _write_error(source, formula, kernel, factor)
    _write_novelty(source, formula, kernel, factor)
    scales = Scales.of(model)
    if scales is not None:
        _write_rarity(source, scales, formula.mean_value())
    prototypes = "".join(f"{head};\n" for head in source.uses)
    return "\n".join(
        [
            _header(source, formula, kernel, scales),
            "#include <math.h>\n",
            f'#ifdef __cplusplus\nextern "C" {{\n#endif\n{prototypes}#ifdef __cplusplus\n}}\n#endif\n',
            *source.tables,
            *source.functions,
        ]
    )


def _write_transform(source: CText, formula: Formula, kernel: KernelText) -> None:
    k, q = formula.projection.shape
    projection, offset = source.table("projection", formula.projection), source.table("offset", formula.offset)
    atom = "i"
    if not np.array_equal(formula.axis_rows, np.arange(k)):
        atom = f"(int){source.positions('active', formula.axis_rows)}[i]"
    source.function(
        "Project a row onto the principal axes.",
        f"void {source.name}_transform(const double x[{formula.n_features}], double y[{q}])",
        [
            "int i, j;",
            *kernel.preparation,
            f"for (j = 0; j < {q}; ++j) y[j] = -{offset}[j];",
            f"for (i = 0; i < {k}; ++i) {{",
            f"    const double value = {kernel.of_atom.replace('@', atom)};",
            f"    for (j = 0; j < {q}; ++j) y[j] += value * {projection}[i][j];",
            "}",
        ],
        use=f"writes the projection of a row onto {q} principal axes; x and y must not overlap.",
    )


def _write_error(source: CText, formula: Formula, kernel: KernelText, factor: str) -> None:
    source.function(
        "Squared distance of a row to the span of the atoms: k(x, x) less the squares of its coordinates there.",
        f"double {source.name}_reconstruction_error(const double x[{formula.n_features}])",
        [
            "int i, j;",
            *kernel.preparation,
            f"double error = {kernel.of_itself}, coordinates[{len(formula.rows)}];",
            f"const double *factor = {factor};",
            *_solve(len(formula.rows), kernel.of_atom.replace("@", "i"), "error -= rest * rest;"),
            "return error < 0.0 ? 0.0 : error;",
        ],
        use="returns the squared distance to the span of the atoms, in units of k(x, x), never negative.",
    )


def _write_novelty(source: CText, formula: Formula, kernel: KernelText, factor: str) -> None:
    s, own = len(formula.rows), formula.own_value()
    head = f"double {source.name}_novelty(const double x[{formula.n_features}])"
    if not own:
        returned = [f"return {source.name}_reconstruction_error(x);"]
        source.function("Novelty of a row: its reconstruction error.", head, returned, use="returns the same.")
        return
    # The score stops at the largest number, as in Python: shares of infinity would be NaN.
    most = float(np.finfo(np.float32 if source.is_single else np.float64).max)
    source.function(
        "Novelty of a row: minus k(x, x) log of the explained share of k(x, x), from logarithms of kernel values.",
        head,
        [
            "int i, j;",
            *kernel.preparation,
            f"double explained = 0.0, score, coordinates[{s}];",
            f"const double *factor = {factor};",
            *find_largest_logarithm(kernel, s),
            *_solve(s, scaled_value(source), "explained += rest * rest;"),
            f"score = {-own!r} * (2.0 * top + log(explained) - {math.log(own)!r});",
            f"return score < 0.0 ? 0.0 : score > {most!r} ? {most!r} : score;",
        ],
        use="returns that on a scale that goes on growing far away, -e log(1 - that / e) with e = k(x, x).",
    )


def _write_rarity(source: CText, scales: Scales, own: float) -> None:
    name, relation = source.name, scales.relation
    d = len(relation.mean)
    rounding = SINGLE_ROUNDING if source.is_single else DOUBLE_ROUNDING
    tables = {**scales.tables(own, rounding), "inverse_scales": 1.0 / relation.scale, "mean": relation.mean}
    for what, table in tables.items():
        source.table(what, table)
    sizes = {"d": d, "n_levels": N_LEVELS}
    source.tables.append(f"enum {{ {', '.join(f'{name}_{what} = {size}' for what, size in sizes.items())} }};\n")
    text = relation_text(source.dtype).replace("kpca_", f"{name}_")
    end = "f" if source.is_single else ""
    source.functions.append(text.replace(f"{name}_exp(", f"exp{end}(").replace(f"{name}_log(", f"log{end}("))
    standardised = f"for (k = 0; k < {d}; ++k) z[k] = {name}_standardise(k, x[k] - {name}_mean[k]);"
    source.function(
        "Rarity of a row: that of its novelty or of the surprise of its numbers, whichever is higher.",
        f"double {name}_rarity(const double x[{d}])",
        [
            f"double z[{d}], surprise;",
            f"const double novelty = {name}_novelty(x);",
            "int k;",
            "if (novelty != novelty) return novelty;",
            standardised,
            f"surprise = {name}_relate(z, 0, 0);",
            f"return {name}_rarer({name}_rank(0, log(novelty > 1e-30 ? novelty : 1e-30)),",
            f"    {name}_rank(1, log(surprise > 1e-30 ? surprise : 1e-30)));",
        ],
        use="returns in how many healthy rows one is as odd, by its place or by the relation of its numbers.",
    )
    source.function(
        "Expected numbers of a row, each given the others, and how surprising the numbers are.",
        f"int {name}_explain(const double x[{d}], double expected[{d}], double terms[{d}])",
        [
            f"double z[{d}];",
            "int k;",
            standardised,
            f"(void){name}_relate(z, expected, terms);",
            f"for (k = 0; k < {d}; ++k) expected[k] = expected[k] / {name}_inverse_scales[k] + {name}_mean[k];",
            f"return {name}_most_surprising(terms);",
        ],
        use="writes what is expected of each number, given the others, and how surprising it is, and returns the "
        "position of the most surprising one. Numbers that are NaN count as means.",
    )


def _solve(s: int, value: str, use: str) -> list[str]:
    """Return statements that compute the coordinates of a row from kernel values, and use each, named ``rest``."""
    return [
        f"for (i = 0; i < {s}; ++i) {{",
        f"    double rest = {value};",
        "    for (j = 0; j < i; ++j) rest -= *factor++ * coordinates[j];",
        "    rest *= *factor++;",
        "    coordinates[i] = rest;",
        f"    {use}",
        "}",
    ]


def _header(source: CText, formula: Formula, kernel: KernelText, scales: Scales | None) -> str:
    (k, q), s = formula.projection.shape, len(formula.rows)
    facts, seen = formula.facts, formula.facts.get("n_samples_seen")
    names = "" if formula.feature_names is None else f": {comment_safe(formula.feature_names)}"
    rows = "" if seen is None else f"; {seen} rows were seen"
    n_numbers = s + kernel.layout.width + (formula.n_features if scales is not None else 0)
    learned = {
        "Kernel": repr(formula.kernel),
        "Learned": f"from rows of total weight {facts['total_weight']}{rows}",
        "Atoms": f"{facts['n_atoms']}; projections are made of {k}, errors are measured to {s}",
        "Features": f"{formula.n_features}{names}",
    }
    promises = {
        "Size": f"{source.n_bytes} bytes of constant tables beside the code; no static RAM; "
        f"{n_numbers * source.n_bytes_of_number} bytes of arrays on the stack, and some 200 of calls. Nothing is "
        "allocated.",
        "Cost": f"A row takes {k} kernel values and {k * q} multiplications "
        f"for a projection, {s} and {s * (s + 3) // 2} for an error or a novelty.",
        "Accuracy": _ACCURACY[source.dtype],
        "Use": "C99 or C++, linked with the mathematics library; from any number of threads. A row with NaN gives "
        "NaN, unless the compiler is told otherwise (-ffast-math). Rows so far away that kernel values overflow, "
        "which Python refuses, give infinity or NaN.",
    }
    estimator = comment_safe([facts["estimator"]])[1:-1]
    lines = [f"Kernel PCA of one row at a time, written by streamkpca {__version__} from a {estimator}.", ""]
    lines += [
        *list_facts(learned),
        "",
        *(f"{head};\n *     " + "\n *     ".join(textwrap.wrap(use, WIDTH - 4)) for head, use in source.uses.items()),
    ]
    lines += ["", *list_facts(promises)]
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", name):
        kind = ValueError if isinstance(name, str) else TypeError
        raise kind(
            f"name must be a C identifier such as 'pump', got {name!r}; use ASCII letters, digits and single "
            "underscores, a letter first and no underscore last: the others are reserved"
        )
