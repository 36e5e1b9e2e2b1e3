"""The table of fields: what it says is what is written, and anything else is refused by its name."""

import io
import json

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.changes.detector import _STATE as CHANGES
from streamkpca.checkpoint.archive import header_text, read_archive, write_archive
from streamkpca.checkpoint.fields import RULES
from streamkpca.checkpoint.table import STATE
from streamkpca.errors import CheckpointError
from streamkpca.monitoring.state import _STATE as MONITOR

ROWS = np.random.default_rng(0).normal(size=(300, 3))
WITH_GAPS = np.where(np.random.default_rng(1).random(ROWS.shape) < 0.1, np.nan, ROWS)
SETTINGS = {"max_atoms": 8, "block_size": 32, "reservoir_size": 20}
# Each field is there in one of these, and each part that may be absent is absent in another one.
MODELS = {
    "young": StreamingKernelPCA(2, **SETTINGS).partial_fit(ROWS[:70]).refit(),
    "fixed": StreamingKernelPCA(2, kernel=kernels.RBF(0.3), **SETTINGS).partial_fit(ROWS).refit(),
    "gaps": StreamingKernelPCA(2, missing="marginal", axes="likelihood", **SETTINGS).partial_fit(WITH_GAPS).refit(),
    "exact": StreamingKernelPCA(2, kernel="linear", max_atoms=None, block_size=16, tolerance=0.0).partial_fit(ROWS),
    "waiting": StreamingKernelPCA(2).partial_fit(ROWS[:20]),
}


def parts_of(part):
    yield part
    for child in part.children:
        yield from parts_of(child)


FIELDS = {part.key(entry.name): entry for part in parts_of(STATE) for entry in part.fields}


def contents_of(model):
    return read_archive(io.BytesIO(model.to_bytes()))


def loaded(header, arrays):
    file = io.BytesIO()
    write_archive(file, header_text({**header, "arrays": None}, arrays), arrays)
    return StreamingKernelPCA.from_bytes(file.getvalue())


def wrong_values(entry, value):
    """Return values that the table does not allow for a field."""
    if not entry.is_array:
        wrong = [[1, 2], {}] if entry.kind != "kernel" else ["rbf", 1.5, -1, 99]
        wrong += [None] if not entry.is_optional and entry.kind not in ("real or null", "kernel") else []
        wrong += ["1"] if entry.kind not in ("text", "kernel") else []
        return wrong + ([int(entry.rule[3:]) - 1] if entry.rule else [])
    wrong = [
        value.astype(np.float32 if value.dtype == np.float64 else np.float64),
        value.ravel() if value.ndim > 1 else value[None],
    ]
    if value.size and value.dtype != np.int64:
        spoiled = value.copy()
        spoiled.flat[0] = np.inf
        wrong.append(spoiled)
    if value.size and entry.rule and entry.rule not in ("or NaN", "or unknown"):
        spoiled = value.copy()
        spoiled.flat[0] = np.nan if entry.rule in ("ascending", "symmetric") else -1
        wrong.append(spoiled)
    return wrong


def test_the_file_holds_what_the_table_says():
    found = set()
    for model in MODELS.values():
        header, arrays = contents_of(model)
        state = header["state"]
        absent = {part.path for part in parts_of(STATE) if part.path in state}
        found |= {*state, *arrays} - absent
        assert set(arrays) <= {key for key, entry in FIELDS.items() if entry.is_array}
        assert loaded(header, arrays).to_bytes() == model.to_bytes()
    assert found == set(FIELDS)
    rules = {
        entry.rule
        for whole in (STATE, MONITOR, CHANGES)
        for part in parts_of(whole)
        for entry in part.fields
        if entry.is_array
    }
    assert rules == set(RULES)


@pytest.mark.parametrize("name", MODELS)
def test_every_field_that_is_missing_or_wrong_is_refused_by_its_name(name):
    header, arrays = contents_of(MODELS[name])
    state = header["state"]
    for key in [key for key in FIELDS if key in arrays or (key in state and key not in ("n_features", "dtype"))]:
        where = arrays if key in arrays else state
        value = where.pop(key)
        with pytest.raises(CheckpointError, match=f"^from_bytes: {key} is missing"):
            loaded(header, arrays)
        for wrong in wrong_values(FIELDS[key], value):
            where[key] = wrong
            with pytest.raises(CheckpointError, match=f"^from_bytes: ({key.rpartition('.')[0]}|its kernel)"):
                loaded(header, arrays)
        where[key] = value
    arrays["stranger"] = np.zeros(3)
    with pytest.raises(CheckpointError, match="'stranger' is no part of a checkpoint"):
        loaded(header, arrays)


def entry(path, value):
    def change(header, arrays):
        *folders, name = path.split("/")
        for folder in folders:
            header = header[folder]
        header[name] = value

    return change


def without_gaps(header, arrays):
    for name in [name for name in arrays if name.startswith("scheduled.distribution.")]:
        del arrays[name]
    header["state"]["scheduled.distribution"] = None


BROKEN = [
    ("fixed", entry("parameters/max_atoms", -1), "its parameters are refused: max_atoms must be at least 1"),
    ("fixed", entry("parameters/strange", 1), "its parameters are refused"),
    ("fixed", entry("parameters", [1]), "parameters is .* but should be a JSON object"),
    ("fixed", entry("kernels", None), "kernels is None but should be a JSON list"),
    ("fixed", entry("state/n_features", "3"), "its rows have '3' columns"),
    ("fixed", entry("state/n_features", 4), r"shape \(12, 3\) but should have \(12, 4\)"),
    ("fixed", entry("state/block_size", 5), "12 rows are pending for a block of 5"),
    ("fixed", entry("state/names", ["a", "b"]), "2 names for 3 columns"),
    ("fixed", entry("state/has_gaps", True), "is there where rows may have gaps, and only there"),
    ("fixed", entry("state/summary.reservoir.size", 3), "holds 20 rows but has room for 3"),
    ("fixed", entry("state/published", "settling"), "published is 'settling', but should be null or have fields"),
    ("young", entry("state/summary.basis.kernel", 0), "the scale of its kernel is not settled"),
    ("gaps", without_gaps, "is there where rows may have gaps, and only there"),
    ("young", entry("extra", {"array in this file": "nowhere"}), "lack the array 'nowhere'"),
    ("young", entry("extra", {"bytes in this file": "pending.weights"}), "lack the bytes 'pending.weights'"),
]


@pytest.mark.parametrize(("name", "change", "message"), BROKEN, ids=[message[:40] for *_, message in BROKEN])
def test_parts_that_do_not_fit_together_are_refused(name, change, message):
    header, arrays = contents_of(MODELS[name])
    change(header, arrays)
    with pytest.raises(CheckpointError, match=f"^from_bytes: .*({message})"):
        loaded(header, arrays)


def test_a_number_of_active_atoms_that_is_not_that_of_the_factor_is_refused():
    header, arrays = contents_of(MODELS["fixed"])
    arrays["scheduled.weights"][:] = 0.0
    with pytest.raises(CheckpointError, match="0 atoms have positive weights, but the factor is that of"):
        loaded(header, arrays)


def test_kernels_that_read_other_columns_are_refused():
    header, arrays = contents_of(MODELS["fixed"])
    others, _ = contents_of(StreamingKernelPCA(2, kernel=kernels.RBF(0.3).on([7]), **SETTINGS))
    for place in range(len(header["kernels"])):
        header["kernels"][place] = others["kernels"][0]
    with pytest.raises(CheckpointError, match="column 7"):
        loaded(header, arrays)
    header["kernels"] = ["os.system('true')"] * len(header["kernels"])
    with pytest.raises(CheckpointError, match="its kernel"):
        loaded(header, arrays)


def test_infinity_comes_back():
    header, _ = contents_of(MODELS["waiting"])
    assert header["state"]["summary"] is None
    first = StreamingKernelPCA(2, kernel="linear", **SETTINGS).partial_fit(np.zeros((32, 3)))
    assert json.loads(json.dumps(contents_of(first)[0]))["state"]["summary.schedule.usual_residual"] is None
    assert loaded(*contents_of(first)).to_bytes() == first.to_bytes()
