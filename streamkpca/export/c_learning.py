"""A model as one C file that goes on learning: its tables, put into the template `c_learning.c`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkpca._core.parameters import check_real
from streamkpca._version import __version__
from streamkpca.errors import name_errors
from streamkpca.export.c_rarity import rarity_text
from streamkpca.export.c_text import (
    CText,
    check_name,
    comment_of,
    comment_safe,
    enum_of,
    fill_template,
    read_template,
    spell,
)
from streamkpca.export.device_state import (
    LEAST_RESIDUAL,
    MEMORY,
    N_CANDIDATES,
    RBF_KERNEL,
    RETURN_PERIOD,
    StateField,
    decode,
    device_tables,
    encode,
    layout_of,
    place_of,
    values_of,
)
from streamkpca.export.views import N_LEVELS, fit_views
from streamkpca.models.streaming import StreamingKernelPCA

# A novel row raises the threshold by this share of itself. With it, the logarithm of a threshold wanders by some 0.06
# around that of the quantile where the tail of scores falls with the third power, whatever the quantile: the variance
# is half of the step by that power.
_STEP = 0.02
# Candidates are drawn from this many rows or more.
_ROWS_TO_DRAW = 8
# The rows that judge a candidate come in batches, because neighbours in a stream are alike.
_ROWS_OF_BATCH = 64
# Fewest batches that judge a candidate.
_LEAST_BATCHES = 4
_C_TYPES = {"u": "uint32_t", "f": "float"}


@name_errors
def to_c_learner(model: StreamingKernelPCA, *, name: str = "streamkpca", return_period: float = RETURN_PERIOD) -> str:
    """Write a model as one self-contained C99 file that goes on learning on a device, in single precision.

    Parameters
    ----------
    model : StreamingKernelPCA
        With a budget of atoms, an RBF or linear kernel with a unit for each feature or none, a sample of 64 rows or
        more, and 256 features at most.
    name : str
        Prefix of the names of all functions.
    return_period : float
        Healthy rows of which one is an alarm; the levels of alarms follow that. 2 to 10,000.

    Returns
    -------
    str
        The file, whose head describes its functions: ``<name>_update``, which scores a row and learns it, and others.
        The same model gives the same text.

    Raises
    ------
    NotFittedError
        No row was seen yet.
    TypeError, ValueError
        It is another model or kernel, or single precision cannot hold its numbers.

    Examples
    --------
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.export import to_c_learner
    >>> model = StreamingKernelPCA(2, max_atoms=16).partial_fit(np.random.default_rng(0).normal(size=(500, 3)))
    >>> "pump_update(" in to_c_learner(model, name="pump", return_period=1000)
    True
    """
    check_name(name)
    return_period = check_real("return_period", return_period, least=2.0, most=10_000.0)
    record = encode(values_of(model, return_period=return_period))
    # As rounded, and refused where single precision cannot hold them.
    values = decode(record)
    views, source = fit_views(model), CText("float")
    assert views is not None
    m, d = values["max_atoms"], values["n_features"]
    half_life, is_rbf = values["half_life"], values["kernel"] == RBF_KERNEL
    layout = layout_of(m, d)
    sizes = {
        "m": m,
        "d": d,
        "p": N_CANDIDATES,
        "rows_of_batch": _ROWS_OF_BATCH,
        "least_batches": _LEAST_BATCHES,
        "rows_to_draw": _ROWS_TO_DRAW,
        "n_levels": N_LEVELS,
    }
    numbers = {
        "centre": values["centre"],
        "scale": values["scale"],
        "unit": values["unit"],
        "up": _STEP * (1.0 - 1.0 / values["return_period"]),
        "down": _STEP / values["return_period"],
        "fading": -np.expm1(-np.log(2.0) / half_life) if half_life else 0.0,
        "squared_fading": -np.expm1(-2.0 * np.log(2.0) / half_life) if half_life else 0.0,
        "tolerance": values["tolerance"],
        "least_residual": LEAST_RESIDUAL,
        **device_tables(views, values),
    }
    begun = [field for field in MEMORY if not field.name.startswith(("candidate", "waiting"))]
    for what, number in numbers.items():
        source.table(what, number)
    source.table("constants", np.frombuffer(record, "<u4", place_of(layout, "sequence") // 4), "uint32_t")
    uses, body = read_template("c_learning.c")
    uses = uses.replace("kpca_d]", f"{d}]")
    tables = [
        f"#define kpca_IS_RBF {int(is_rbf)}\n",
        enum_of(sizes),
        *source.tables,
        f"typedef struct {{\n{_members(MEMORY, layout)}}} kpca_memory;\n",
        f"static const struct {{\n{_members(begun, layout)}}} kpca_initial = {{\n"
        + ",\n".join(f"    /* {field.name} */ {spell(values[field.name], _C_TYPES[field.kind])}" for field in begun)
        + "\n};\n",
    ]
    body = fill_template(body, uses, {"tables": tables, "rarity": [rarity_text(source, prefix="kpca_")]})
    uses, body = (text.replace("kpca_", f"{name}_") for text in (uses, body))
    return _comment(model, values, return_period, uses) + body


def _members(fields: Sequence[StateField], layout: np.dtype[np.void]) -> str:
    sizes = ["".join(f"[{size}]" for size in layout[field.name].shape) for field in fields]
    lines = [f"    {_C_TYPES[field.kind]} {field.name}{size};\n" for field, size in zip(fields, sizes, strict=True)]
    return "".join(lines)


def _comment(model: StreamingKernelPCA, values: dict[str, Any], return_period: float, uses: str) -> str:
    m, d, half_life = values["max_atoms"], values["n_features"], values["half_life"]
    layout = layout_of(m, d)
    n_memory = sum(layout[field.name].itemsize for field in MEMORY)
    names = getattr(model, "feature_names_in_", None)
    forgets = f"a half-life of {half_life:g} rows" if half_life else "no half-life"
    facts = {
        "Kernel": repr(model.kernel_),
        "Atoms": f"{values['n_atoms']} of at most {m}",
        "Features": f"{d}" + ("" if names is None else f": {comment_safe(names)}"),
        "Memory": f"{n_memory} bytes of RAM, about as many of constants, {4 * (m + d)} bytes of arrays on the stack "
        f"and some 200 of calls. A saved state has {layout.itemsize} bytes, twice. Nothing is allocated.",
        "Learning": f"Rows count with {forgets}, and with 2^-20 or more of the means, whatever came before. Three rows "
        "at a time are candidates, judged by the rows that follow: one replaces the weakest atom if what these would "
        "gain, less one standard error, is 1.5 times what the atom explains alone; more, until a quarter of the "
        "rows that the means stand for has judged it.",
        "Alarms": f"Once in {return_period:g} healthy rows. The two levels follow the rows: an alarm raises its level "
        f"by up to {_STEP:.0%}, divided by the root of its place in a run of alarms, and other rows lower it. The mean "
        "that the relation predicts from follows the rows, too.",
        "Numbers": "All arithmetic is in IEEE single precision, with exp, log and roots of its own: compiled with "
        "-ffp-contract=off and without -ffast-math, every processor has the same bits.",
        "Use": "C99, one caller at a time: the state is one static object.",
    }
    title = f"Kernel PCA that learns row by row, written by streamkpca {__version__}."
    return comment_of(title, facts, uses)
