"""What is saved beside a model comes back as it was, or is refused."""

import io
import sys
import zipfile
from collections.abc import Callable
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import Checkpointer, CheckpointError, StreamingKernelPCA, load
from streamkpca.monitoring import Monitor

MODEL = StreamingKernelPCA(1, kernel="linear").partial_fit([[1.0, 2.0], [2.0, 0.0], [0.0, 1.0]])
MONITOR = Monitor(MODEL)
DEEPEST = 64


def by_monitor(extra: Any, folder: Path) -> Any:
    MONITOR.save(folder / "m.npz", extra)
    return Monitor.load(folder / "m.npz").extra_


# How it is saved and read again.
WAYS: dict[str, Callable[[Any, Path], Any]] = {
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


def nested(n_levels: int, wrap: Callable[[Any], Any]) -> Any:
    found: Any = 1
    for _ in range(n_levels):
        found = wrap(found)
    return found


def depth(value: Any) -> int:
    n_levels = 0
    while isinstance(value, list | dict):
        value = next(iter(value)) if isinstance(value, list) else value["a"]
        n_levels += 1
    return n_levels


def with_header(text: bytes) -> bytes:
    """Write a checkpoint whose header is another text."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", text)
    return packed.getvalue()


def at_depth(n_frames: int, act: Callable[[], Any]) -> Any:
    return act() if n_frames == 0 else at_depth(n_frames - 1, act)


@every_way
@pytest.mark.parametrize(
    "extra",
    [
        None, 0, True, 2**80, -0.0, 1e-320, "", "\ud800", "\0", "😀", "extra", [], {}, [[], {}], {"": 0},
        {"monitor": 1}, {"0": 7, "true": 1}, {"extra": {"monitor": {"extra": []}}}, {"a": [1, 1.0, "1", None, False]},
    ],
    ids=repr,
)  # fmt: skip
def test_json_data_come_back(way: Callable[[Any, Path], Any], extra: Any, tmp_path: Path) -> None:
    found = way(extra, tmp_path)
    assert found == extra
    assert repr(found) == repr(extra), "also the types"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_json_data_come_back(extra: Any) -> None:
    found = StreamingKernelPCA.from_bytes(MODEL.to_bytes(extra)).extra_
    assert repr(found) == repr(extra) or found == extra


@every_way
def test_tuples_come_back_as_lists_and_named_constants_as_what_they_are(
    way: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    found = way({Topic.PLANT: (Partition.FIRST, (np.float64(0.5), Topic.PLANT))}, tmp_path)
    assert found == {"plant": [0, [0.5, "plant"]]}
    assert [type(value) for value in (*found, *found["plant"])] == [str, int, list]


@every_way
@pytest.mark.parametrize(
    "key",
    [0, -1, True, None, 0.5, float("nan"), 2**70, Partition.FIRST, (0, 1), b"0", np.int64(3), frozenset()],
    ids=repr,
)
@pytest.mark.parametrize("wrap", [lambda bad: bad, lambda bad: {"offsets": [1, (bad,)]}], ids=["outside", "inside"])
def test_keys_that_are_no_strings_are_refused(
    way: Callable[[Any, Path], Any], key: Any, wrap: Callable[[Any], Any], tmp_path: Path
) -> None:
    way("old", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TypeError, match=r"expected extra to be JSON .* the key .* has the type .*; write it as text"):
        way(wrap({"a": 1, key: 2}), tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@every_way
@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["lists", "dictionaries"])
def test_what_is_nested_too_deep_is_refused_however_deep_the_stack_is(
    way: Callable[[Any, Path], Any], wrap: Callable[[Any], Any], tmp_path: Path
) -> None:
    assert depth(way(nested(DEEPEST, wrap), tmp_path)) == DEEPEST
    used = len([*_frames()])
    free = sys.getrecursionlimit() - used
    # Enough is left for saving and reading a model, but not for a parser that goes deeper.
    assert depth(at_depth(free - 250, lambda: way(nested(DEEPEST, wrap), tmp_path))) == DEEPEST
    for n_levels in (DEEPEST + 2, 100, 400, 5000, 200_000):
        with pytest.raises(ValueError, match=f"nested more than {DEEPEST} levels deep"):
            way(nested(n_levels, wrap), tmp_path)


def _frames() -> Any:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def test_what_holds_itself_is_refused() -> None:
    for extra in ([], {}):
        extra.append(extra) if isinstance(extra, list) else extra.update(a=extra)
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            MODEL.to_bytes(extra)


def test_what_would_be_written_many_times_is_refused() -> None:
    extra: Any = 1
    for _ in range(50):
        extra = [extra, extra]
    with pytest.raises(ValueError, match="holds more than 262144 values; keep large data in a separate file"):
        MODEL.to_bytes(extra)


@pytest.mark.parametrize(
    "text",
    [b"[" * 67 + b"]" * 67, b'{"a":' * 400 + b"1" + b"}" * 400, b"[" * 200_000, b'["]]]]",' * 70 + b"1" + b"]" * 70],
    ids=["lists", "objects", "open", "brackets in strings"],
)
def test_a_header_that_is_nested_too_deep_is_refused(text: bytes) -> None:
    data = with_header(b'{"extra":' + text + b"}")
    for n_frames in (0, 600):
        with pytest.raises(CheckpointError, match="nested more than 66 levels deep"):
            at_depth(n_frames, lambda: StreamingKernelPCA.from_bytes(data))


def test_brackets_in_strings_are_not_nested() -> None:
    extra = ["[" * 1000, '"[' * 100, "\\", '\\"[', {"{" * 100: "]"}]
    assert StreamingKernelPCA.from_bytes(MODEL.to_bytes(extra)).extra_ == extra
