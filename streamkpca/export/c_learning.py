"""A model as one C file that goes on learning: its tables, before the template `device.c`."""

from importlib.resources import files
from math import prod
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.parameters import check_real
from streamkpca._version import __version__
from streamkpca.export.c_kernel import comment_safe, listed
from streamkpca.export.device_state import (
    CONSTANTS,
    LEAST_RESIDUAL,
    MEMORY,
    N_CANDIDATES,
    RBF_KERNEL,
    Field,
    decode,
    encode,
    record_size,
    shape_of,
    values_of,
)
from streamkpca.models.streaming import StreamingKernelPCA

# A novel row raises the threshold by this share of itself. With it, the logarithm of a threshold wanders by some .06
# around that of the quantile where the tail of scores falls with the third power, whatever the quantile: the variance
# is half of the step by that power.
_STEP = 0.02
# Candidates are drawn from this many rows or more, and judged by at least some batches of the rows that follow.
_ROWS_TO_DRAW, _ROWS_OF_BATCH, _LEAST_BATCHES = 8, 64, 4

_USES = {
    "int kpca_update(const float x[{d}]);": "scores a row, then learns it; 1 if it is novel, 0 if it is not, -1 if it "
    "was refused and only counted: NaN, infinite, or farther than 1e7 units away.",
    "float kpca_novelty(const float x[{d}]);": "scores a row without learning it; NaN if it would be refused.",
    "int kpca_is_novel(const float x[{d}]);": "1 if the novelty is above the threshold, which follows the rows learned,"
    " or NaN.",
    "float kpca_expected(const float x[{d}], int feature);": "what is expected of a number, given the others of the "
    "row, of which those that are not finite do not count.",
    "void kpca_reset(void);": "begins again with what the file says; what is saved stays until the next save.",
    "int kpca_load(int (*read)(int slot, uint32_t at, unsigned char bytes[32], uint32_t count));": "restores the "
    "newest state of two slots. To be called before the first row. The caller's read fills bytes from a position in "
    "slot 0 or 1; 0 for success. Returns 0; 1 if the other slot holds a state from home that was made from an older "
    "one than the newest, and so was not taken; -1 if neither slot holds a whole state of this file, and nothing "
    "changes, or if one that did could not be read again, and nothing is saved until load succeeds; -2 if rows were "
    "learned since the last save, and nothing changes: save them, or call reset.",
    "int kpca_save(int (*write)(int slot, uint32_t at, const unsigned char bytes[32], uint32_t count));": "writes the "
    "state in order over the slot that does not hold the newest one, which a power cut leaves; 0 for success, -1 if "
    "write fails, or before load. Erase the slot when position 0 comes.",
    "int kpca_slot(void);": "the slot that the next save overwrites, where a state from home belongs; -1 before load.",
}


def learning_file(model: Any, *, name: str, quantile: float, threshold: float | None) -> str:
    """Write the C file of a device that begins with what a model has learned."""
    quantile = check_real("quantile", quantile, where="to_c", least=0.5, most=0.9999)
    record = encode(values_of(model, where="to_c", quantile=quantile, threshold=threshold), "to_c")
    # As rounded, and refused where single precision cannot hold them.
    values = decode(record, "to_c")
    m, d = values["max_atoms"], values["n_features"]
    half_life, is_rbf = values["half_life"], values["kernel"] == RBF_KERNEL
    n_constant_words = sum(prod(shape_of(field, m, d)) for field in CONSTANTS)
    sizes = {
        "m": m,
        "d": d,
        "p": N_CANDIDATES,
        "rows_of_batch": _ROWS_OF_BATCH,
        "least_batches": _LEAST_BATCHES,
        "rows_to_draw": _ROWS_TO_DRAW,
    }
    numbers = {
        "centre": values["centre"],
        "scale": values["scale"],
        "width": model.snapshot_.expectation.widths * values["scale"],
        "unit": values["unit"],
        "up": _STEP * quantile,
        "down": _STEP * (1.0 - quantile),
        "fading": -np.expm1(-np.log(2.0) / half_life) if half_life else 0.0,
        "squared_fading": -np.expm1(-2.0 * np.log(2.0) / half_life) if half_life else 0.0,
        "tolerance": values["tolerance"],
        "least_residual": LEAST_RESIDUAL,
    }
    words = [f"{word:#x}u" for word in np.frombuffer(record, "<u4", n_constant_words).tolist()]
    tables = [
        "#include <math.h>\n#include <stdint.h>\n",
        "".join(head.format(d=d) + "\n" for head in _USES),
        f"#define kpca_IS_RBF {int(is_rbf)}\n",
        "enum { " + ", ".join(f"kpca_{what} = {size}" for what, size in sizes.items()) + " };\n",
        "".join(_table(what, np.asarray(number, dtype=np.float32)) for what, number in numbers.items()),
        f"static const uint32_t kpca_constants[{len(words)}] = {{\n{_wrapped(words)}\n}};\n",
        "typedef struct {\n" + "".join(f"    {_member(field, m, d)};\n" for field in MEMORY) + "} kpca_memory;\n",
        "static const kpca_memory kpca_initial = {\n"
        + ",\n".join(f"    /* {field.name} */ {_initial(field, values[field.name])}" for field in MEMORY)
        + "\n};\n",
    ]
    template = files("streamkpca.export").joinpath("device.c").read_text(encoding="ascii")
    body = template[template.index("/* @tables@ */") :].replace("/* @tables@ */", "\n".join(tables))
    return (_header(model, values) + body).replace("kpca_", f"{name}_")


def _member(field: Field, m: int, d: int) -> str:
    sizes = "".join(f"[{size}]" for size in shape_of(field, m, d))
    return f"{'uint32_t' if field.kind == 'u' else 'float'} {field.name}{sizes}"


def _initial(field: Field, value: Any) -> str:
    def spelled(part: Any) -> str:
        if np.ndim(part) == 0:
            return f"{int(part)}u" if field.kind == "u" else _number(part)
        parts = [spelled(number) for number in part]
        return "{" + (_wrapped(parts) if np.ndim(part) == 1 else ",\n".join(parts)) + "}"

    return spelled(value)


def _table(name: str, values: Array) -> str:
    size = f"[{len(values)}]" if values.ndim else ""
    spelled = f"{{{_wrapped([_number(value) for value in values])}}}" if values.ndim else _number(values)
    return f"static const float kpca_{name}{size} = {spelled};\n"


def _number(value: Any) -> str:
    return f"{np.float32(value)!s}f"


def _wrapped(words: list[str]) -> str:
    return ",\n    ".join(", ".join(words[start : start + 8]) for start in range(0, len(words), 8))


def _header(model: StreamingKernelPCA, values: dict[str, Any]) -> str:
    m, d, half_life = values["max_atoms"], values["n_features"], values["half_life"]
    n_memory = 4 * sum(prod(shape_of(field, m, d)) for field in MEMORY)
    names = getattr(model, "feature_names_in_", None)
    forgets = f"a half-life of {half_life:g} rows" if half_life else "no half-life"
    facts = {
        "Kernel": repr(model.kernel_),
        "Atoms": f"{values['n_atoms']} of at most {m}",
        "Features": f"{d}" + ("" if names is None else f": {comment_safe([str(name) for name in names])}"),
        "Memory": f"{n_memory} bytes of RAM, about as many of constants, {4 * (m + d)} bytes of arrays on the stack "
        f"and some 200 of calls. A saved state has {record_size(m, d)} bytes, twice. Nothing is allocated.",
        "Learning": f"Rows count with {forgets}, and with 2^-20 or more of the means, whatever came before. Three rows "
        "at a time are candidates, judged by the rows that follow: one replaces the weakest atom if what these would "
        "gain, less one standard error, is 1.5 times what the atom explains alone; more, until a quarter of the "
        "rows that the means stand for has judged it. The threshold follows the "
        f"quantile {values['quantile']:g} of the novelty: a novel row raises it by up to {_STEP:.0%}, divided by the "
        "root of its place in a run of novel rows.",
        "Numbers": "All arithmetic is in IEEE single precision, with exp, log and roots of its own: compiled with "
        "-ffp-contract=off and without -ffast-math, every processor has the same bits.",
        "Use": "C99, one caller at a time: the state is one static object.",
    }
    lines = [f"Kernel PCA that learns row by row, written by streamkpca {__version__}.", "", *listed(facts), ""]
    for head, use in _USES.items():
        lines += [head.format(d=d), *(f"    {line}".rstrip() for line in listed({"": use}, indent=0))]
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n\n"
