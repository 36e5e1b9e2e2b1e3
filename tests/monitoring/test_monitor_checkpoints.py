"""Checkpoints of monitors: they go on as if never stopped, and what makes no sense is refused."""

import copy
from importlib import import_module

import numpy as np
import pytest
from streams_to_watch import assert_same_records, eventful_rows, normal_rows, small_model

import streamkpca
from streamkpca import StreamingKernelPCA
from streamkpca.changes import ChangeDetector
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Custom
from streamkpca.models import saving
from streamkpca.models.saving import SavedWithModel
from streamkpca.monitoring import Monitor

PARAMETERS = {"accept_after": 60, "max_gap": 5.0, "quantile": 0.95}


def test_files_hold_parameters_extra_data_and_the_model(tmp_path):
    monitor = Monitor(small_model(), **PARAMETERS)
    path = tmp_path / "plant.npz"
    monitor.save(path, extra={"offset": [1, "a"]})
    assert Monitor.load(path).extra_ == {"offset": [1, "a"]}
    monitor.update(eventful_rows(), time=np.arange(float(len(eventful_rows()))))
    monitor.save(path)
    loaded = Monitor.load(path)
    assert loaded.extra_ is None
    assert {name: getattr(loaded, name) for name in PARAMETERS} == PARAMETERS
    assert loaded.to_bytes() == monitor.to_bytes() == path.read_bytes()
    X = monitor.stack(eventful_rows())
    np.testing.assert_array_equal(StreamingKernelPCA.load(path).novelty(X), monitor.model.novelty(X))


def test_rows_too_wide_for_relations_save_no_matrix_for_them():
    X = np.random.default_rng(0).normal(size=(80, 1025))
    monitor = Monitor(StreamingKernelPCA(max_atoms=8, reservoir_size=8))
    monitor.update(X)
    assert len(monitor.to_bytes()) < 1025 * 1025 * 8
    assert Monitor.from_bytes(monitor.to_bytes()).to_bytes() == monitor.to_bytes()


def test_load_returns_what_was_saved(tmp_path):
    model = small_model().partial_fit(normal_rows(100))
    for saved in (model, Monitor(model), ChangeDetector(model)):
        saved.save(tmp_path / "saved.npz", {"offset": 1})
        loaded = streamkpca.load(tmp_path / "saved.npz")
        assert (type(loaded), loaded.extra_) == (type(saved), {"offset": 1})
        assert loaded.to_bytes({"offset": 1}) == (tmp_path / "saved.npz").read_bytes()
    # A dictionary of the caller may have the same key.
    model.save(tmp_path / "saved.npz", {"monitor": "pump 7"})
    assert streamkpca.load(tmp_path / "saved.npz").extra_ == {"monitor": "pump 7"}


def test_load_knows_all_classes_that_are_saved_with_a_model():
    kinds = SavedWithModel.__subclasses__()
    known = {entry: getattr(import_module(module), name) for entry, (module, name) in saving._CLASSES.items()}
    assert known == {kind._entry: kind for kind in kinds}


def test_a_monitor_that_does_not_learn_is_restored():
    model = small_model().partial_fit(normal_rows(700))
    monitor = Monitor(model, learn="none", accept_after=40)
    fresh = Monitor.from_bytes(monitor.to_bytes())
    rows = eventful_rows()
    assert_same_records(fresh.update(rows), monitor.update(rows))
    assert Monitor.from_bytes(monitor.to_bytes()).to_bytes() == fresh.to_bytes()
    # It may be too young to go on.
    young = Monitor(small_model())
    young.learn = "none"
    assert Monitor.from_bytes(young.to_bytes()).learn == "none"


def test_an_open_event_is_explained_by_the_model_as_it_is():
    monitor = Monitor(StreamingKernelPCA(max_atoms=32, noise_variance=None))
    monitor.update(np.concatenate([normal_rows(990), normal_rows(3) + 9.0]))
    monitor.model.refit()
    restored = Monitor.from_bytes(monitor.to_bytes())
    assert restored.events_ == monitor.events_
    assert restored.reset().to_bytes() == monitor.reset().to_bytes()


def test_kernels_with_functions_are_passed_again():
    kernel = Custom(lambda X, Y: X @ Y.T + 1.0)
    monitor = Monitor(small_model(kernel))
    monitor.update(normal_rows(200))
    loaded = Monitor.from_bytes(monitor.to_bytes(), kernel=kernel)
    assert_same_records(loaded.update(normal_rows(50)), monitor.update(normal_rows(50)))


def test_models_without_a_monitor_are_refused(tmp_path):
    model = small_model().partial_fit(normal_rows(10))
    for extra in (None, [1], {"offset": 1}, "monitor"):
        with pytest.raises(CheckpointError, match="it holds no monitor"):
            Monitor.from_bytes(model.to_bytes(extra))
    model.save(tmp_path / "model.npz")
    with pytest.raises(CheckpointError, match=r"load: .*model.npz: it holds no monitor"):
        Monitor.load(tmp_path / "model.npz")
    with pytest.raises(CheckpointError, match="from_bytes"):
        Monitor.from_bytes(b"nothing of the kind")


def test_wide_rows_are_saved(tmp_path):
    rows = np.random.default_rng(0).normal(size=(45, 2000))
    monitor = Monitor(small_model(max_atoms=4), accept_after=60)
    monitor.update(rows[:40])
    assert monitor._record()["state"]["waiting.stacked"].shape == (8, 6000)
    monitor.save(tmp_path / "wide.npz")
    loaded = Monitor.load(tmp_path / "wide.npz")
    assert loaded.to_bytes() == monitor.to_bytes()
    assert_same_records(loaded.update(rows[40:]), monitor.update(rows[40:]))


# What makes no sense


def watched():
    """Return a monitor with closed events, an open one, rows that wait, rows left out, a sum and a change."""
    rows = eventful_rows(1180)
    rows[860:890, 1] += 40.0
    rows[1100:] += 60.0
    # Of so many rows that a change is left out until it is accepted.
    model = small_model().partial_fit(normal_rows(3200, seed=1))
    monitor = Monitor(model, accept_after=40, max_gap=5.0)
    monitor.update(rows[:1100], time=np.arange(1100.0))
    monitor.accept_after = 1000
    monitor.update(rows[1100:], time=np.arange(1100.0, 1180.0))
    return monitor


MONITOR = watched()
RECORD = MONITOR._record()


def restored(record):
    return Monitor.from_bytes(MONITOR.model.to_bytes({"monitor": record, "extra": None}))


def test_the_record_has_all_parts():
    state = RECORD["state"]
    assert state["log.closed"]
    assert {
        "log.current.start",
        "log.rows.times",
        "changes",
        "waiting.stacked",
        "views.scales",
        "views.relation.precision",
        "cusum.excess",
    } <= set(state)
    assert len(state["left_out"])
    assert restored(RECORD).to_bytes() == MONITOR.to_bytes()


def assert_refused_or_harmless(record):
    """Try to go on with a monitor of a changed record."""
    try:
        data = MONITOR.model.to_bytes({"monitor": record, "extra": None})
    except (TypeError, ValueError):
        return
    try:
        monitor = Monitor.from_bytes(data)
    except CheckpointError:
        return
    last = monitor._state.last_time if monitor._state else None
    monitor.update(normal_rows(40), time=np.maximum(np.arange(2000.0, 2040.0), last or 0.0))
    assert all(event.n_alarms >= 1 for event in monitor.events_)
    Monitor.from_bytes(monitor.to_bytes())


@pytest.mark.parametrize("name", sorted(RECORD["state"]))
def test_parts_that_make_no_sense_are_refused_or_harmless(name):
    array = np.arange(12.0)
    values = [None, -1, 1.5, "a", [], {}, [[]], True, 1e300, 2**61, [[1.0, 2.0]], array, array.reshape(4, 3) * np.nan]
    for value in values:
        assert_refused_or_harmless({**RECORD, "state": {**RECORD["state"], name: value}})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["parameters"], {"end_after": 0}),
        (["parameters", "learn"], "one"),
        (["parameters", "most_events"], "often"),
        (["parameters", "period"], 24),
        (["state", "last_time"], "now"),
        (["state", "n_features"], -3),
        (["state", "views.scales", 0, "logs"], np.array([2.0, 1.0])),
        (["state", "log.current.features"], -3),
        (["state", "changes", 0, "features", 0, "direction"], "sideways"),
        (["state", "changes", 0, "features", 0, "feature"], -1),
        (["state", "log.rows.times", 0], "now"),
        (["state", "waiting.is_learnable"], np.zeros(3)),
        (["state", "cusum.excess"], "one"),
    ],
    ids=str,
)
def test_missing_and_impossible_numbers_are_refused(path, value):
    for removed in (True, False):
        record = copy.deepcopy(RECORD)
        parent = record
        for key in path[:-1]:
            parent = parent[key]
        if removed:
            del parent[path[-1]]
        else:
            parent[path[-1]] = value
        with pytest.raises(CheckpointError, match="its monitor makes no sense"):
            restored(record)


def test_records_of_another_shape_or_another_model_are_refused():
    others = [(MONITOR.model, record) for record in (None, [], {}, {"parameters": {}, "state": None})]
    for model, record in [*others, (small_model(), RECORD), (small_model().partial_fit(normal_rows(100, 4)), RECORD)]:
        with pytest.raises(CheckpointError, match="its monitor makes no sense"):
            Monitor.from_bytes(model.to_bytes({"monitor": record, "extra": None}))
