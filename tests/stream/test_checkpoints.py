"""Archives, headers, and the agreement between the parts of a stream."""

import io
import json
import zipfile
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from streamkpca import CheckpointError, StreamingKernelPCA, kernels
from streamkpca.dictionary.moments import ProjectionLoss
from streamkpca.stream.blocks import SearchSchedule
from streamkpca.stream.checkpoint.archive import Archive, write_archive
from streamkpca.stream.checkpoint.header import HeaderFields, numbers_in

ROWS = np.random.default_rng(0).normal(size=(300, 3))


def archive_of(header: Any, arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    write_archive(file, header, arrays)
    return file.getvalue()


def parts_of(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "header.json"}
        return json.loads(archive["header.json"]), arrays


@pytest.fixture(scope="module")
def checkpoint() -> bytes:
    return saved("rows")


@pytest.fixture(scope="module")
def moved_checkpoint() -> bytes:
    return saved("moved")


def saved(atoms: Any) -> bytes:
    model = StreamingKernelPCA(2, kernel=kernels.RBF(0.3), max_atoms=8, atoms=atoms, block_size=32, reservoir_size=20)
    model.partial_fit(ROWS).refit()
    assert set(model.atom_rows_ < 0) == {atoms == "moved"}
    return model.to_bytes({"offset": 3})


# Archives


def test_what_is_written_is_read():
    arrays = {
        "empty": np.empty((0, 3)),
        "matrix": np.arange(6.0).reshape(2, 3).T,
        "positions": np.arange(4),
        "big": np.arange(3, dtype=">f8"),
        "none": np.empty(0, dtype=np.int64),
    }
    data = archive_of({"b": [1, None, "ü"], "a": 0.1}, arrays)
    assert data == archive_of({"a": 0.1, "b": [1, None, "ü"]}, dict(reversed(arrays.items())))
    archive = Archive(io.BytesIO(data))
    assert archive.header == {"a": 0.1, "b": [1, None, "ü"]}
    read = archive.read({name: (array.dtype.newbyteorder("<").str, array.shape) for name, array in arrays.items()})
    with np.load(io.BytesIO(data), allow_pickle=False) as theirs:
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array)
            np.testing.assert_array_equal(theirs[name], array)
            assert read[name].flags.writeable
            assert read[name].flags.c_contiguous


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({}, "'x.npy', which is no part of a checkpoint"),
        ({"x": ("<f8", (2,)), "y": ("<f8", (2,))}, "'y.npy' is missing"),
        ({"x": ("<f8", (3,))}, r"'x.npy' has shape \(2,\) but should have \(3,\)"),
        ({"x": ("<i8", (2,))}, "'x.npy' holds numbers of type <f8 but should hold <i8"),
    ],
)
def test_arrays_must_be_those_that_are_expected(expected, message):
    with pytest.raises(CheckpointError, match=message):
        Archive(io.BytesIO(archive_of({}, {"x": np.zeros(2)}))).read(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "its header is not a JSON object"),
        ('{"a": 1, "a": 2}', "its header is not JSON: a key occurs twice"),
        ('{"a": NaN}', "NaN is not a finite number"),
        ('{"a": 1e999}', "1e999 is not a finite number"),
        ('{"a": "\u00fc"}', "its header is not JSON"),
        ("[" * 100_000, "its header is not"),
        ('{"a": [' + "0," * 300_000 + "0]}", "holds about .* values; at most"),
        (" " * 5_000_000, "its header has 5000000 bytes; at most"),
        ('{"a": ' + "1" * 10_000 + "}", "its header is not JSON"),
    ],
    ids=["list", "twice", "nan", "inf", "letters", "deep", "many", "long", "digits"],
)
def test_a_bad_header_is_refused(text, message):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("header.json", text.encode("utf-8"))
    with pytest.raises(CheckpointError, match=message):
        Archive(file)


def with_member(name: str, data: bytes, compression: int = zipfile.ZIP_STORED) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("header.json", "{}")
        archive.writestr(name, data, compress_type=compression)
    return file


def npy(array: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **how)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an array in numpy's format"),
        (b"\x80\x04]\x94.", "not an array in numpy's format"),
        (npy(np.zeros(2))[:-1], "has 143 bytes, but its shape needs 144"),
        (npy(np.zeros(2)) + b"\0", "has 145 bytes"),
        (npy(np.zeros((2, 2)).T), "has shape"),
        (npy(np.asfortranarray(np.zeros((2, 1)))), "has shape"),
        (npy(np.array([None, 1]), allow_pickle=True), "not a plain array|type"),
        (npy(np.zeros(2, dtype=[("a", float)])), "not a plain array"),
        (npy(np.zeros(2), version=(2, 0)), "not an array in numpy's format"),
        (npy(np.zeros(2, dtype=">f8")), "holds numbers of type >f8 but should hold <f8"),
        (npy(np.zeros(())), "has shape"),
        (npy(np.zeros(2)).replace(b"(2,)", b"(9,)"), r"has shape \(9,\)"),
    ],
)
def test_a_member_that_is_no_plain_array_is_refused(data, message):
    with pytest.raises(CheckpointError, match=message):
        Archive(with_member("x.npy", data)).read({"x": ("<f8", (2,))})


def test_compressed_members_are_refused_before_they_are_unpacked():
    bomb = with_member("x.npy", bytes(10_000_000), zipfile.ZIP_DEFLATED)
    assert len(bomb.getvalue()) < 20_000
    with pytest.raises(CheckpointError, match=r"'x.npy' is compressed; checkpoints are not"):
        Archive(bomb)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members_are_refused():
    file = with_member("x.npy", npy(np.zeros(2)))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("x.npy", npy(np.ones(2)))
    with pytest.raises(CheckpointError, match=r"holds 'x.npy' twice"):
        Archive(file)


def test_a_long_list_of_members_is_refused_unread():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(3000):
            archive.writestr(f"{number}", b"")
    with pytest.raises(CheckpointError, match=r"its list of members has \d+ bytes"):
        Archive(file)


def test_damage_is_found_by_the_checksum(checkpoint):
    for place in range(60, len(checkpoint), 997):
        damaged = bytearray(checkpoint)
        damaged[place] ^= 0x10
        try:
            assert StreamingKernelPCA.from_bytes(bytes(damaged)).to_bytes({"offset": 3}) == checkpoint
        except CheckpointError:
            pass


# Headers


def test_numbers_of_a_dataclass_come_back_infinity_included():
    for value in (SearchSchedule(), SearchSchedule(2, 0.5, 0.1, 7, 90), ProjectionLoss(1.0, -1e-20, 3.0)):
        keys = {field.name: f"key of {field.name}" for field in fields(value)}
        text = json.dumps(numbers_in(value, keys), allow_nan=False)
        assert HeaderFields(json.loads(text), "x").numbers_of(type(value), keys) == value


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda fields: fields.value("z"), "x lacks 'z'"),
        (lambda fields: fields.integer("text"), "x.text is 'a' but should be an integer of at least 0"),
        (lambda fields: fields.integer("flag"), "x.flag is True"),
        (lambda fields: fields.integer("one", least=2), "x.one is 1 but should be an integer of at least 2"),
        (lambda fields: fields.integer("huge"), "should be an integer of at least 0, at most 1152921504606846976"),
        (lambda fields: fields.real("flag"), "should be a number"),
        (lambda fields: fields.real("vast"), "within the range of float64"),
        (lambda fields: fields.flag("one"), "x.one is 1 but should be true or false"),
        (lambda fields: fields.optional_text("one"), "should be a string or null"),
        (lambda fields: fields.optional_texts("list", 3), "should be null or a list of 3 strings"),
        (lambda fields: fields.part("one"), "x.one is 1 but should be an object"),
        (lambda fields: fields.part("list"), "but should be an object"),
    ],
)
def test_entries_are_checked(read, message):
    values = {"text": "a", "flag": True, "one": 1, "huge": 2**63, "vast": 10**400, "list": ["a"] * 50}
    with pytest.raises(CheckpointError, match=message):
        read(HeaderFields(values, "x"))


# Contradictions: each of these is a well-formed archive with correct checksums


def scaled(name: str, factor: float) -> Any:
    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name] * factor

    return change


def put(name: str, place: Any, value: float) -> Any:
    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[name][place] = value

    return change


def entry(path: str, value: Any) -> Any:
    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        *folders, name = path.split(".")
        for folder in folders:
            header = header[folder]
        header[name] = value

    return change


def copied(name: str) -> Any:
    """Let the second number be the first."""

    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[name][1] = arrays[name][0]

    return change


def reversed_rows(name: str) -> Any:
    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name][::-1].copy()

    return change


def indefinite(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Keep trace and symmetry, and make an eigenvalue negative."""
    second = arrays["settled.second"]
    second[0, 1] = second[1, 0] = 2.0 * np.sqrt(second[0, 0] * second[1, 1])


def unpublished(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    header["stream"]["published"] = None
    for name in [name for name in arrays if name.startswith("published.")]:
        del arrays[name]


BROKEN = [
    (entry("format", "else"), "not a checkpoint of a stream"),
    (entry("version", 4), "its format has version 4, and this release reads up to 3; install a later streamkpca"),
    (entry("version", 0), "header.version is 0"),
    (entry("parameters.max_atoms", -1), "its parameters are refused: .*max_atoms must be at least 1"),
    (entry("parameters.strange", 1), "its parameters are refused"),
    (entry("parameters.kernel", {"expression": "os.system('true')"}), "its kernel is not known"),
    (entry("stream.summary.kernel", "RBF(gamma=0.31)"), "is not that of its atoms' kernel matrix"),
    (entry("stream.summary.kernel", "RBF(gamma='scale')"), "is not settled"),
    (entry("stream.summary.kernel", "RBF(gamma=0.3).on([7])"), "uses column 7"),
    (entry("stream.n_features", 4), r"has shape .* but should have"),
    (entry("stream.block_size", 5), "12 rows are pending for a block of 5"),
    (entry("stream.n_rejected", 301), "301 of 300 rows were rejected"),
    (entry("stream.n_rows_at_refit", 301), "later than the last row"),
    (entry("stream.summary.n_rows", 280), "outside the 280 rows"),
    (entry("stream.summary.n_atoms", 7), "has shape"),
    (entry("stream.summary.n_atoms", 10**12), "has shape"),
    (entry("stream.summary.last_drift", 10**6), "last_drift is later than the last row"),
    (entry("stream.summary.losses.fresh_arrival", 5.0), "energy is not conserved"),
    (entry("stream.summary.losses.rounding", -1.0), "a length is negative"),
    (entry("stream.summary.settled.total_weight", -1.0), "a total weight is negative"),
    (entry("stream.summary.settled.total_weight", 0.0), "squared weights exceed"),
    (entry("stream.summary.trend.variance", -1.0), "trend: the variance or a sum is negative"),
    (entry("stream.summary.pace.wait", 10**6), "pace: the next search is too far away"),
    (entry("stream.summary.pace.searched", 10**6), "pace: a search is later than the last row"),
    (entry("stream.summary.jury.size", 3), "rows but has room for 3"),
    (entry("stream.scheduled.total_weight", None), "should be a number"),
    (entry("stream.scheduled.noise_variance", -0.5), "noise_variance is -0.5"),
    (entry("stream.scheduled.n_k", 1), "has shape|are recorded as active"),
    (put("atoms.factor", (0, 0), -1.0), "a pivot that is not positive"),
    (put("atoms.factor", (0, 1), 1e-9), "not lower triangular"),
    (put("atoms.rows", (0, 0), np.nan), "atoms.rows: a number is not finite"),
    (scaled("atoms.factor", 1.0 + 1e-6), "not that of its atoms' kernel matrix"),
    (reversed_rows("atoms.rows"), "not that of its atoms' kernel matrix"),
    (scaled("atoms.energy", 1.1), "atoms.energy does not follow"),
    (put("atoms.positions", 0, -289), "outside the 288 rows"),
    (put("atoms.positions", 0, 288), "outside the 288 rows"),
    (copied("atoms.positions"), "one occurs twice"),
    (put("atoms.weights", 0, -3.0), "a number is negative"),
    (indefinite, "settled.second is not positive semidefinite"),
    (put("settled.second", (0, 1), 0.123), "is not symmetric"),
    (scaled("settled.second", 2.0), "energy is not conserved"),
    (scaled("settled.first", 2.0), "not positive semidefinite around its mean"),
    (reversed_rows("jury.keys"), "not in the order of the draws"),
    (put("reservoir.positions", 0, 10**9), "outside the 288 rows"),
    (put("pending.rows", (0, 0), np.inf), "pending.rows: a number is not finite"),
    (put("pending.weights", 0, -1.0), "a number is negative"),
    (scaled("jury.rows", 2.0), "atoms and jury hold different rows"),
    (scaled("atoms.rows", -1.0), "atoms and jury hold different rows from the same position"),
    (scaled("scheduled.atoms", -1.0), "hold different rows from the same position"),
    (scaled("reservoir.weights", 1e3), "reservoir: its rows weigh more than the stream"),
    (scaled("atoms.exposure", 1e3), "more weight since an atom's admission than in the stream"),
    (entry("stream.summary.reservoir.size", 10**6), "its size is 1000000 but reservoir_size is 20"),
    (entry("stream.summary.settled.total_squared_weight", 1e-9), "cannot sum to 1e-09"),
    (entry("stream.summary.settled.total_weight", 1e200), "the total weight cannot be squared"),
    (entry("stream.summary.settled.total_weight", 1e103), "288 rows cannot weigh 1e\\+103"),
    (
        entry("stream.summary.settled.largest_energy", 0.5),
        "largest_energy is 0.5, but|energy up to 0.5 cannot have",
    ),
    (entry("stream.summary.losses.stale_length", 1e300), "a length cannot be squared"),
    (entry("stream.summary.trend.level", 1e300), "the level cannot be squared"),
    (entry("stream.summary.pace.usual_residual", -1.0), "pace: a residual is negative"),
    (entry("stream.n_rows_at_refit", 0), "n_rows_at_refit is 0, but there are axes of a scheduled refit"),
    (entry("stream.n_rows_before", 10**6), "n_rows_before exceeds the number of rows"),
    (unpublished, "axes were refitted but never published"),
    (entry("stream.scheduled.kernel", "RBF(gamma=0.31)"), "scheduled: the kernel is not that of the stream"),
    (entry("stream.scheduled.unexplained_energy_ratio", 1.5), "unexplained_energy_ratio is above 1"),
    (put("scheduled.atom_rows", 0, 10**9), "outside the 300 rows"),
    (put("published.mean", 0, 1e300), "is longer than any row"),
    (put("pending.weights", 0, 1e101), "a row cannot weigh 1e\\+101"),
    (scaled("scheduled.projection", 1.01), "projection is not that of its axes"),
    (scaled("scheduled.axes", 1.01), "axes does not follow"),
    (scaled("scheduled.factor", 1.01), "not that of its atoms' kernel matrix"),
    (scaled("published.offset", 2.0), "offset is not the projection of its mean"),
    (reversed_rows("scheduled.eigenvalues"), "eigenvalues are not in descending order"),
    (scaled("scheduled.eigenvalues", -1.0), "a number is negative"),
    (scaled("scheduled.explained_variance_ratio", 30.0), "sums to more than 1"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_contradiction_is_found(checkpoint: bytes, change: Any, message: str) -> None:
    header, arrays = parts_of(checkpoint)
    assert archive_of(header, arrays) == checkpoint
    change(header, arrays)
    with pytest.raises(CheckpointError, match=f"^from_bytes: .*({message})"):
        StreamingKernelPCA.from_bytes(archive_of(header, arrays))


# Of atoms that have moved, nothing but the factor and the moments tells where they should be.
BROKEN_MOVED = [
    (put("atoms.positions", 0, -289), "outside the 288 rows"),
    (put("atoms.positions", 0, 288), "outside the 288 rows"),
    (reversed_rows("atoms.rows"), "not that of its atoms' kernel matrix"),
    (put("atoms.rows", (0, 0), np.inf), "atoms.rows: a number is not finite"),
    (put("atoms.rows", (0, 0), 1.5), "not that of its atoms' kernel matrix"),
    (scaled("atoms.factor", 1.0 + 1e-6), "not that of its atoms' kernel matrix"),
    (scaled("atoms.energy", 1.1), "atoms.energy does not follow"),
    (scaled("settled.second", 1.01), "energy is not conserved"),
    (put("scheduled.atom_rows", 0, -301), "outside the 300 rows"),
    (put("scheduled.atom_rows", 0, 300), "outside the 300 rows"),
    (scaled("published.atoms", 1.01), "not that of its atoms' kernel matrix"),
    (entry("parameters.atoms", "fixed"), "its parameters are refused: .*atoms must be one of"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN_MOVED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_contradiction_of_moved_atoms_is_found(moved_checkpoint: bytes, change: Any, message: str) -> None:
    test_a_contradiction_is_found(moved_checkpoint, change, message)


def without_weight(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Let no row of the first block count."""
    arrays["settling.weights"][:32] = 0.0


def shorter(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Leave out the last of the rows that settle the scale."""
    header["stream"]["n_settling"] -= 1
    for name in ("settling.rows", "settling.weights"):
        arrays[name] = arrays[name][:-1]


# A stream whose scale is settled again when more rows have come.
BROKEN_YOUNG = [
    (put("settling.rows", (0, 0), np.nan), "settling.rows: a number is not finite"),
    (put("settling.rows", (0, 0), 0.5), "hold different rows from the same position"),
    (put("settling.weights", 0, -1.0), "settling.weights: a number is negative"),
    (put("settling.weights", 0, 1e101), "settling.weights: a row cannot weigh 1e\\+101"),
    (without_weight, "settling.weights: no row of the first block counts"),
    (shorter, "settling: 287 rows are kept of 288"),
    (entry("stream.kernel", "RBF(gamma=0.3)"), "settling: the kernel has a scale already"),
    (entry("stream.n_settling", None), "'settling.rows.npy', which is no part of a checkpoint"),
    (entry("stream.n_settling", -1), "n_settling is -1"),
    (entry("stream.n_settling", 4), "has shape"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN_YOUNG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_contradiction_of_rows_that_settle_the_scale_is_found(change: Any, message: str) -> None:
    model = StreamingKernelPCA(2, max_atoms=8, block_size=32, reservoir_size=288).partial_fit(ROWS)
    test_a_contradiction_is_found(model.to_bytes(), change, message)


def test_a_moved_atom_may_not_be_called_a_row_that_is_kept_elsewhere(moved_checkpoint: bytes) -> None:
    header, arrays = parts_of(moved_checkpoint)
    arrays["atoms.positions"] = ~arrays["atoms.positions"]
    with pytest.raises(CheckpointError, match="atoms and jury hold different rows from the same position"):
        StreamingKernelPCA.from_bytes(archive_of(header, arrays))


@pytest.mark.parametrize("name", ["jury.positions", "reservoir.positions"])
def test_rows_of_samples_cannot_have_moved(checkpoint: bytes, name: str) -> None:
    header, arrays = parts_of(checkpoint)
    arrays[name][0] = ~arrays[name][0]
    with pytest.raises(CheckpointError, match="outside the 288 rows"):
        StreamingKernelPCA.from_bytes(archive_of(header, arrays))


def test_answers_before_the_first_block_come_back() -> None:
    """They have a scale of their own, settled on the pending rows."""
    waiting = StreamingKernelPCA(2).partial_fit(ROWS[:20]).refit()
    merged = StreamingKernelPCA(2, block_size=64).partial_fit(ROWS[:30])
    merged.merge(StreamingKernelPCA(2, block_size=64).partial_fit(ROWS[30:60])).partial_fit(ROWS[60:70])
    assert merged.kernel_ != StreamingKernelPCA(2, block_size=64).partial_fit(ROWS[:70]).kernel_
    for model in (waiting, merged):
        again = StreamingKernelPCA.from_bytes(model.to_bytes())
        np.testing.assert_array_equal(again.transform(ROWS), model.transform(ROWS))
        assert again.partial_fit(ROWS).to_bytes() == model.partial_fit(ROWS).to_bytes()


def test_the_end_of_a_large_archive_is_accepted_at_one_offset_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    data = archive_of({}, {"x": np.zeros(100)})
    monkeypatch.undo()
    assert b"PK\x06\x06" in data
    np.testing.assert_array_equal(Archive(io.BytesIO(data)).read({"x": ("<f8", (100,))})["x"], 0.0)
    end = data.index(b"PK\x06\x06")
    for moved in (data[: end + 56] + b"more" + data[end + 56 :], data.replace(b"PK\x06\x06", b"PK\x06\x05")):
        with pytest.raises(CheckpointError, match="end of a large zip archive is not where it should be"):
            Archive(io.BytesIO(moved))


def test_a_kernel_is_not_taken_for_code_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamkpca.kernels import registry as expressions

    model = StreamingKernelPCA(2, block_size=32).partial_fit(ROWS)

    def fail(*arguments: Any, **named: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(expressions.ast, "parse", fail)
    with pytest.raises(MemoryError):
        model.to_bytes()
