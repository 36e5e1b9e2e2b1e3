import errno
import os

import numpy as np
import pytest

from streamkpca import Checkpointer, StreamingKernelPCA
from streamkpca._core import files
from streamkpca.errors import CheckpointError, CheckpointWarning
from streamkpca.monitoring import Monitor

ROWS = np.random.default_rng(0).normal(size=(500, 2))


@pytest.fixture
def model():
    return StreamingKernelPCA(2, max_atoms=8, block_size=32).partial_fit(ROWS[:100])


def names(folder):
    return sorted(os.listdir(folder))


def test_generations_are_counted_and_the_oldest_go(tmp_path, model):
    checkpoints = Checkpointer(tmp_path / "plant.npz", keep=2)
    assert checkpoints.latest() is None
    assert checkpoints.generations == []
    for number in range(1, 5):
        assert checkpoints.save(model, number).name == f"plant-0000000{number}.npz"
        assert names(tmp_path) == [f"plant-0000000{n}.npz" for n in range(max(number - 1, 1), number + 1)]
    again = Checkpointer(tmp_path / "plant.npz", keep=2)
    assert again.latest().extra_ == 4
    assert again.save(model).name == "plant-00000005.npz"
    assert [path.name for path in again.generations] == ["plant-00000005.npz", "plant-00000004.npz"]


def test_other_files_are_left_alone_and_numbers_grow(tmp_path, model):
    others = ["plant.npz", "plant-1.npz", "plant-00000001.csv", "a-plant-00000001.npz", ".plant-00000001.npz.tmp"]
    for other in others:
        (tmp_path / other).write_text("mine")
    model.save(tmp_path / "plant-99999999.npz")
    checkpoints = Checkpointer(tmp_path / "plant.npz", keep=1)
    for _ in range(3):
        checkpoints.save(model)
    assert names(tmp_path) == sorted([*others, "plant-100000002.npz"])


def test_it_saves_at_intervals_of_rows(tmp_path):
    checkpoints = Checkpointer(tmp_path / "m.npz", every_rows=100, keep=9)
    model, saved = StreamingKernelPCA(2, max_atoms=8, block_size=32), []
    assert checkpoints.save_if_due(model) is None
    for start in range(0, 500, 30):
        model.partial_fit(ROWS[start : start + 30])
        if checkpoints.save_if_due(model, model.n_samples_seen_):
            saved.append(model.n_samples_seen_)
    assert saved == [120, 240, 360, 480]
    again = Checkpointer(tmp_path / "m.npz", every_rows=100)
    model = again.latest()
    assert model.n_samples_seen_ == model.extra_ == 480
    assert again.save_if_due(model) is None, "what was read is saved already"
    assert again.save_if_due(model.partial_fit(ROWS[:100])) is not None


def test_it_keeps_monitors(tmp_path):
    checkpoints, monitor = Checkpointer(tmp_path / "m.npz", every_rows=100), Monitor()
    assert checkpoints.latest() is None
    assert checkpoints.save_if_due(monitor) is None
    monitor.update(ROWS[:99])
    assert checkpoints.save_if_due(monitor) is None
    monitor.update(ROWS[99:100])
    assert checkpoints.save_if_due(monitor, "x") is not None
    again = checkpoints.latest()
    assert (again.to_bytes(), again.extra_) == (monitor.to_bytes(), "x")


def test_it_saves_at_intervals_of_seconds(tmp_path, model, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("streamkpca.models.checkpointer.time.monotonic", lambda: now[0])
    checkpoints = Checkpointer(tmp_path / "m.npz", every_seconds=60)
    now[0] += 59.0
    assert checkpoints.save_if_due(model) is None
    assert checkpoints.seconds_since_save == 59.0
    now[0] += 1.0
    assert checkpoints.save_if_due(model) is not None
    assert checkpoints.seconds_since_save == 0.0
    now[0] += 600.0
    assert checkpoints.save_if_due(model) is None, "nothing is new"
    model.partial_fit(ROWS[:1])
    assert checkpoints.save_if_due(model) is not None


def test_the_newest_readable_generation_is_found(tmp_path, model):
    checkpoints = Checkpointer(tmp_path / "m.npz")
    for number in (1, 2, 3):
        checkpoints.save(model, number)
    newest, middle, oldest = checkpoints.generations
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(CheckpointWarning, match=r"m-00000003.npz: it is damaged, or not whole.*; an older generation"):
        assert checkpoints.latest().extra_ == 2
    middle.write_bytes(b"")
    with pytest.warns(CheckpointWarning, match="an older generation is tried") as caught:
        assert checkpoints.latest().extra_ == 1
    assert len(caught) == 2
    assert checkpoints.save(model, 4).name == "m-00000004.npz", "a damaged generation is counted"
    oldest.write_bytes(b"")
    (tmp_path / "m-00000004.npz").write_bytes(b"PK")
    with (
        pytest.warns(CheckpointWarning),
        pytest.raises(CheckpointError, match=r"none of 4 generations of .*m.npz can be read; restore one from a"),
    ):
        checkpoints.latest()


def test_a_save_that_fails_leaves_everything(tmp_path, model, monkeypatch):
    checkpoints = Checkpointer(tmp_path / "m.npz", every_rows=1, keep=1)
    checkpoints.save(model, "first")

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", fail)
    model.partial_fit(ROWS)
    with pytest.raises(OSError, match="Input/output"):
        checkpoints.save_if_due(model)
    assert names(tmp_path) == ["m-00000001.npz"]
    monkeypatch.undo()
    assert checkpoints.latest().extra_ == "first"
    assert checkpoints.save_if_due(model) is not None, "still due"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"every_rows": 0}, ValueError, "Checkpointer: every_rows must be at least 1, got 0"),
        ({"every_seconds": 0.0}, ValueError, "every_seconds must be a finite number"),
        ({"keep": 0}, ValueError, "keep must be at least 1"),
    ],
)
def test_arguments_are_checked(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        Checkpointer(tmp_path / "m.npz", **arguments)


def test_odd_places_are_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected .*nowhere to be a folder; create it first"):
        Checkpointer(tmp_path / "nowhere" / "m.npz")
    with pytest.raises(IsADirectoryError, match="expected the name of a file but got"):
        Checkpointer(tmp_path)
