"""A model as one C file that answers rows, by the template `c_answers.c`, with its size, cost and accuracy above."""

import math
from typing import Any

import numpy as np

from streamkpca._core.parameters import check_choice
from streamkpca._version import __version__
from streamkpca.errors import name_errors
from streamkpca.export.c_kernel import write_kernel
from streamkpca.export.c_rarity import write_rarity
from streamkpca.export.c_text import CText, check_name, comment_of, comment_safe, enum_of, fill_template, read_template
from streamkpca.export.formula import Formula, formula_of
from streamkpca.export.views import N_LEVELS, fit_views

_ACCURACY = {
    "double": "equal to Python's answers to 1e-12 of k(x, x), unless atoms nearly depend on each other.",
    "float": "equal to Python's answers to 1e-6 to 1e-3 of k(x, x), the worse the more atoms depend on each other: "
    "compare the answers on rows of your own.",
}
# Below these logarithms of kernel values, those of all atoms differ by less than rounding.
_LEAST_LOGS = {"double": -1e300, "float": -1e30}
# The score stops at the largest number, as in Python: shares of infinity would be NaN.
_MOST = {"double": float(np.finfo(np.float64).max), "float": float(np.finfo(np.float32).max)}


@name_errors
def to_c(
    model: Any,
    *,
    name: str = "streamkpca",
    dtype: str = "double",
) -> str:
    """Write a model's projection, scores, rarity and expected numbers as one self-contained C99 file.

    Parameters
    ----------
    model : estimator
        Fitted: StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA.
    name : str
        Prefix of the names of all functions.
    dtype : {"double", "float"}
        Type of all numbers.

    Returns
    -------
    str
        The file, whose head describes its functions: ``<name>_transform``, ``<name>_reconstruction_error`` and
        ``<name>_novelty``; of a stream with a sample of 64 rows or more, and 256 features at most, also
        ``<name>_rarity`` and ``<name>_explain``. The same model gives the same text.

    Raises
    ------
    NotFittedError
        No row was seen yet.
    TypeError, ValueError
        `model` is not an estimator of this library, its kernel calls functions of the user, it keeps no row, or single
        precision cannot hold its numbers.

    Notes
    -----
    The file includes <math.h> and nothing else, allocates nothing, and compiles without warnings as C99 and as C++; its
    head states its size and cost. The rarity of a row says in how many healthy rows one is as odd, by the rarer of two
    views as in `Monitor`: its novelty, and how surprising its numbers are, given each other. It is interpolated between
    the levels of the sampled rows at powers of two, and grows with the distance beyond 32,768. The terms are the
    surprise of each number.

    Answers equal those of the model to 1e-12 of k(x, x) (projections: of its root) in double, and to some 1e-6 to 1e-3
    in "float", unless atoms nearly depend on each other.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.export import to_c
    >>> model = StreamingKernelPCA(2).partial_fit(np.random.default_rng(0).normal(size=(500, 3)))
    >>> "double pump_rarity(const double x[3]);" in to_c(model, name="pump")
    True
    """
    check_name(name)
    dtype = check_choice("dtype", dtype, choices=("double", "float"))
    formula = formula_of(model, language="C", single=dtype == "float")
    source, views = CText(dtype), fit_views(model)
    layout, own = write_kernel(source, formula), formula.own_value()
    (k, q), (s, d) = formula.projection.shape, formula.rows.shape
    # Row after row up to the diagonal, which is inverted, so that solving needs no division.
    source.table("factor", np.concatenate([np.append(row[:i], 1.0 / row[i]) for i, row in enumerate(formula.factor)]))
    source.table("projection", formula.projection)
    source.table("offset", formula.offset)
    uses_all = np.array_equal(formula.axis_rows, np.arange(k))
    definitions = {
        "ACTIVE(i)": "(i)" if uses_all else f"(int){source.positions('active', formula.axis_rows)}[i]",
        "OWN": "kpca_kernel(u, u)" if own is None else repr(own),
        "LOG_OWN": repr(math.log(own)) if own else "0.0",
        "LEAST_LOG": _LEAST_LOGS[dtype],
        "MOST": _MOST[dtype],
        "HAS_LOGARITHMS": int(bool(own)),
        "HAS_COSINES": int(any(segment.is_unit for segment in layout.segments)),
    }
    sizes = {"d": d, "q": q, "k": k, "s": s, "width": layout.width}
    uses, text = read_template("c_answers.c")
    answers, _, rarity = text.partition("/* @rarity@ */\n")
    if views is None:
        uses, rarity = uses.partition("double kpca_rarity")[0], ""
    else:
        rarity = write_rarity(source, formula, views) + source.convert(rarity)
        sizes["n_levels"] = N_LEVELS
    uses = uses.replace("double", dtype).replace("kpca_d]", f"{d}]").replace("kpca_q]", f"{q}]")
    defined = source.convert("".join(f"#define kpca_{what} {value}\n" for what, value in definitions.items()))
    parts = {"tables": [defined, enum_of(sizes), *source.tables], "kernel": source.functions}
    body = fill_template(source.convert(answers), uses, parts) + rarity
    uses, body = (part.replace("kpca_", f"{name}_") for part in (uses, body))
    return _comment(source, formula, uses, n_stack=s + layout.width + (0 if views is None else d)) + body


def _comment(source: CText, formula: Formula, uses: str, *, n_stack: int) -> str:
    (k, q), (s, d) = formula.projection.shape, formula.rows.shape
    facts, seen = formula.facts, formula.facts.get("n_samples_seen")
    names = "" if formula.feature_names is None else f": {comment_safe(formula.feature_names)}"
    rows = "" if seen is None else f"; {seen} rows were seen"
    told = {
        "Kernel": repr(formula.kernel),
        "Learned": f"from rows of total weight {facts['total_weight']}{rows}",
        "Atoms": f"{facts['n_atoms']}; projections are made of {k}, errors are measured to {s}",
        "Features": f"{d}{names}",
        "Size": f"{source.n_bytes} bytes of constant tables beside the code; no static RAM; "
        f"{n_stack * (8 if source.dtype == 'double' else 4)} bytes of arrays on the stack, and some 200 of calls. "
        "Nothing is allocated.",
        "Cost": f"A row takes {k} kernel values and {k * q} multiplications "
        f"for a projection, {s} and {s * (s + 3) // 2} for an error or a novelty.",
        "Accuracy": _ACCURACY[source.dtype],
        "Use": "C99 or C++, linked with the mathematics library; from any number of threads. A row with NaN gives "
        "NaN, unless the compiler is told otherwise (-ffast-math). Rows so far away that kernel values overflow, "
        "which Python refuses, give infinity or NaN.",
    }
    estimator = comment_safe([facts["estimator"]])[1:-1]
    title = f"Kernel PCA of one row at a time, written by streamkpca {__version__} from a {estimator}."
    return comment_of(title, told, uses)
