"""A model as one C file: the functions of the model, and a header that states size, cost and accuracy."""

import math
import re
from typing import Any

import numpy as np

from streamkpca._core.parameters import check_choice, check_flag, check_real
from streamkpca._version import __version__
from streamkpca.export.c_kernel import (
    KernelText,
    Source,
    comment_safe,
    find_largest_logarithm,
    listed,
    scaled_value,
)
from streamkpca.export.c_learning import learning_file
from streamkpca.export.model import Formula, formula_of

_ACCURACY = {
    "double": "equal to Python's answers to 1e-12 of k(x, x), unless atoms nearly depend on each other.",
    "float": "equal to Python's answers to 1e-6 to 1e-3 of k(x, x), the worse the more atoms depend on each other: "
    "compare the answers on rows of your own.",
}


def to_c(
    model: Any,
    *,
    name: str = "streamkpca",
    dtype: str | None = None,
    threshold: float | None = None,
    learns: bool = False,
    quantile: float = 0.99,
) -> str:
    """Write a model's projection, reconstruction error and novelty as one self-contained C99 file.

    Parameters
    ----------
    model : estimator
        Fitted: StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA.
    name : str
        Prefix of the names of all functions.
    dtype : {"double", "float"}, optional
        Type of all numbers, and of all arithmetic. By default "double", and "float" for a file that learns, which has
        no other.
    threshold : float, optional
        Novelty score above which a row is novel, such as a stream's ``novelty_threshold()``. Without it, the
        file has no function ``<name>_is_novel``; one that learns begins with ``novelty_threshold(quantile)``.
    learns : bool
        Write a file that goes on learning: the model is a StreamingKernelPCA with a budget of atoms and an RBF or
        linear kernel, with a unit for each feature or none.
    quantile : float
        Share of rows that should stay below the threshold of a file that learns, which follows it; 0.5 to 0.9999.

    Returns
    -------
    str
        The file. Its functions are ``void <name>_transform(const double x[d], double y[q])``,
        ``double <name>_reconstruction_error(const double x[d])``, ``double <name>_novelty(const double x[d])`` and,
        with a threshold, ``int <name>_is_novel(const double x[d])``. The same model gives the same text. One that
        learns has ``int <name>_update(const float x[d])`` and others, which its head describes.

    Raises
    ------
    NotFittedError
        No row was seen yet.
    TypeError, ValueError
        `model` is not an estimator of this library, its kernel calls functions of the user, it keeps no row, or
        single precision cannot hold its numbers; a file that learns is wanted of another model or
        kernel than it takes; or another argument is not as described.

    Notes
    -----
    The file includes <math.h> and nothing else, allocates nothing, and compiles without warnings as C99 and as C++.
    With s rows that errors are measured to, k rows that projections are computed from, d features and q axes, it has
    s d + s (s + 1) / 2 + (k + 1) q constants and s + d numbers on the stack, and takes O(k (d + q)) time for a
    projection and O(s (d + s)) for an error or a novelty.

    A file that learns includes <stdint.h>, too, needs no library, and has a static state; see the manual's page "At the
    edge". Its answers are those of "float".

    Answers equal those of the model to 1e-12 in double, relative to k(x, x) (projections: to its root; novelty: to
    k(x, x) and itself), unless atoms nearly depend on each other. Answers in "float" equal them to
    some 1e-6 to 1e-3. A row with NaN gives NaN and counts as novel, unless the compiler is given -ffast-math.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.export import to_c
    >>> model = StreamingKernelPCA(2).partial_fit(np.random.default_rng(0).normal(size=(500, 3)))
    >>> text = to_c(model, name="pump", threshold=model.novelty_threshold())
    >>> "int pump_is_novel(const double x[3]);" in text
    True
    """
    where = "to_c"
    _check_name(name)
    if dtype is None:
        dtype = "float" if check_flag("learns", learns, where=where) else "double"
    check_choice("dtype", dtype, choices=("double", "float"), where=where)
    if threshold is not None:
        threshold = check_real("threshold", threshold, where=where, least=0.0)
    if check_flag("learns", learns, where=where):
        if dtype != "float":
            raise ValueError('to_c: expected dtype="float" for a file that learns but got "double"; leave it out')
        return learning_file(model, name=name, quantile=quantile, threshold=threshold)
    formula = formula_of(model, where=where, language="C", single="float" if dtype == "float" else None)
    source = Source(name, dtype)
    kernel = KernelText(source, formula)
    # Row after row up to the diagonal, which is inverted, so that solving needs no division.
    packed = [np.append(row[:i], 1.0 / row[i]) for i, row in enumerate(formula.factor)]
    factor = source.table("factor", np.concatenate(packed))
    _write_transform(source, formula, kernel)
    _write_error(source, formula, kernel, factor)
    _write_novelty(source, formula, kernel, factor)
    if threshold is not None:
        source.function(
            "Whether the novelty is above the threshold, or NaN.",
            f"int {name}_is_novel(const double x[{formula.n_features}])",
            [f"return !({name}_novelty(x) <= {threshold!r});"],
            use=f"returns 1 where the novelty is above {threshold!r}, or NaN, else 0.",
        )
    prototypes = "".join(f"{head};\n" for head in source.uses)
    return "\n".join(
        [
            _header(source, formula, kernel),
            "#include <math.h>\n",
            f'#ifdef __cplusplus\nextern "C" {{\n#endif\n{prototypes}#ifdef __cplusplus\n}}\n#endif\n',
            *source.tables,
            *source.functions,
        ]
    )


def _write_transform(source: Source, formula: Formula, kernel: KernelText) -> None:
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


def _write_error(source: Source, formula: Formula, kernel: KernelText, factor: str) -> None:
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


def _write_novelty(source: Source, formula: Formula, kernel: KernelText, factor: str) -> None:
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


def _header(source: Source, formula: Formula, kernel: KernelText) -> str:
    (k, q), s = formula.projection.shape, len(formula.rows)
    facts, seen = formula.facts, formula.facts.get("n_samples_seen")
    names = "" if formula.feature_names is None else f": {comment_safe(formula.feature_names)}"
    rows = "" if seen is None else f"; {seen} rows were seen"
    stack = (s + kernel.layout.width) * source.n_bytes_of_number
    learned = {
        "Kernel": repr(formula.kernel),
        "Learned": f"from rows of total weight {facts['total_weight']}{rows}",
        "Atoms": f"{facts['n_atoms']}; projections are made of {k}, errors are measured to {s}",
        "Features": f"{formula.n_features}{names}",
    }
    promises = {
        "Size": f"{source.n_bytes} bytes of constant tables beside the code; no static RAM; {stack} bytes of arrays "
        "on the stack, and some 200 of calls. Nothing is allocated.",
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
        *listed(learned),
        "",
        *(line for head, use in source.uses.items() for line in (f"{head};", f"    {use}")),
    ]
    lines += ["", *listed(promises)]
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", name):
        kind = ValueError if isinstance(name, str) else TypeError
        raise kind(
            f"to_c: name must be a C identifier such as 'pump', got {name!r}; use ASCII letters, digits and single "
            "underscores, a letter first and no underscore last: the others are reserved"
        )
