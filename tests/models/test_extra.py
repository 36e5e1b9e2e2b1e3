"""Data saved beside a model come back as they were, or are refused."""

from enum import IntEnum, StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import Checkpointer, StreamingKernelPCA, load
from streamkpca.errors import CheckpointError
from streamkpca.monitoring import Monitor

MODEL = StreamingKernelPCA(1, kernel="linear").partial_fit([[1.0, 2.0], [2.0, 0.0], [0.0, 1.0]])
MONITOR = Monitor(MODEL)


def by_monitor(extra, folder):
    MONITOR.save(folder / "m.npz", extra)
    return Monitor.load(folder / "m.npz").extra_


# Saving and reading again.
WAYS = {
    "save": lambda extra, folder: (MODEL.save(folder / "m.npz", extra), load(folder / "m.npz").extra_)[1],
    "to_bytes": lambda extra, folder: StreamingKernelPCA.from_bytes(MODEL.to_bytes(extra)).extra_,
    "Checkpointer": lambda extra, folder: load(Checkpointer(folder / "m.npz").save(MODEL, extra)).extra_,
    "Monitor.save": by_monitor,
    "Monitor.to_bytes": lambda extra, folder: Monitor.from_bytes(MONITOR.to_bytes(extra)).extra_,
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


class Topic(StrEnum):
    PLANT = "plant"


class Partition(IntEnum):
    FIRST = 0


def nested(n_levels):
    found = 1
    for level in range(n_levels):
        found = [found] if level % 2 else {"a": found}
    return found


@every_way
def test_odd_data_come_back(way, tmp_path):
    extra = {
        "": [None, 0, True, 2**80, -0.0, 1e-320, "\ud800", "\0", {}, [[]]],
        "d": nested(60),
        "extra": {"monitor": 1},
    }
    found = way(extra, tmp_path)
    assert repr(found) == repr(extra), "also the types"
    assert way(None, tmp_path) is None


@every_way
def test_arrays_come_back(way, tmp_path):
    extra = {
        "rows": np.array([[1.0, np.nan], [np.inf, 2.0]]),
        "more": [np.arange(3), np.ones(2, bool), np.float32([1]), np.uint8([[0, 255]])],
    }
    found = way(extra, tmp_path)
    for array, given_one in zip([found["rows"], *found["more"]], [extra["rows"], *extra["more"]], strict=True):
        np.testing.assert_array_equal(array, given_one)
        assert array.dtype == given_one.dtype


@every_way
def test_bytes_come_back_and_take_no_more_room(way, tmp_path):
    extra = {"model": bytes(range(256)) * 400, "more": [b"", {"a": b"\0"}]}
    assert repr(way(extra, tmp_path)) == repr(extra), "also the types"
    assert len(MODEL.to_bytes(extra)) - len(MODEL.to_bytes()) < 1.02 * len(extra["model"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_json_data_come_back(extra):
    found = StreamingKernelPCA.from_bytes(MODEL.to_bytes(extra)).extra_
    assert repr(found) == repr(extra) or found == extra


def test_tuples_come_back_as_lists_and_named_constants_as_their_values(tmp_path):
    found = WAYS["save"]({Topic.PLANT: (Partition.FIRST, (np.float64(0.5), Topic.PLANT))}, tmp_path)
    assert found == {"plant": [0, [0.5, "plant"]]}
    assert [type(value) for value in (*found, *found["plant"])] == [str, int, list]


circle = []
circle.append(circle)


@every_way
@pytest.mark.parametrize(
    ("extra", "error", "message"),
    [
        ({"a": [{0: 2}]}, TypeError, "the key 0 has the type int; write it as text"),
        ({"array in this file": 1}, ValueError, "stands for an array; choose another"),
        ({"a": {1, 2}}, TypeError, "set is not JSON"),
        ([float("nan")], ValueError, "Out of range float"),
        (np.array([None]), TypeError, "an array has the type object and 1 axes; convert it to float64"),
        (nested(66), ValueError, "nested more than 64 levels deep"),
        (circle, ValueError, "nested more than 64 levels deep"),
        ("x" * 20_000, ValueError, "the header's text would have 2"),
    ],
    ids=["key", "reserved", "set", "NaN", "objects", "deep", "circle", "long"],
)
def test_data_that_could_not_be_read_again_are_refused(way, extra, error, message, tmp_path, monkeypatch):
    way("old", tmp_path)
    monkeypatch.setattr("streamkpca.checkpoint.archive._LARGEST_HEADER", 20_000)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        error, match=rf"(StreamingKernelPCA|Checkpointer|Monitor)\.\w+: expected extra to be JSON data .*{message}"
    ):
        way(extra, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_that_is_nested_too_deep_is_refused():
    text = MODEL.to_bytes("here")
    for n_levels in (200, 200_000):
        with pytest.raises(CheckpointError):
            StreamingKernelPCA.from_bytes(text.replace(b'"here"', b"[" * n_levels + b"]" * n_levels))
