"""Changes of distribution: run lengths that are kept, changes that are found, and what the detector says of them."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from streamkpca import StreamingKernelPCA
from streamkpca.changes import ChangeDetector
from streamkpca.errors import CheckpointError, NotFittedError
from streamkpca.kernels import RBF
from streamkpca.monitoring import Monitor

HEALTHY, D = 1000, 4


def draw(kind, n, seed):
    """Draw healthy rows (n, D)."""
    noise = np.random.default_rng(seed).normal(size=(n + 200, D))
    rho = {"iid": 0.0, "ar": 0.8}[kind]
    rows = lfilter([np.sqrt(1.0 - rho**2)], [1.0, -rho], noise, axis=0)[200:]
    return rows


def model_of(rows):
    return StreamingKernelPCA(max_atoms=32, block_size=256).partial_fit(rows)


@functools.cache
def ready(kind):
    """Return a detector that knows what healthy rows are like."""
    model = model_of(draw(kind, 600, 1))
    detector = ChangeDetector(model, run_length=1000, n_healthy=HEALTHY)
    detector.update(draw(kind, HEALTHY, 2))
    return detector.to_bytes()


def detector_of(kind="iid"):
    return ChangeDetector.from_bytes(ready(kind))


@pytest.mark.parametrize("kind", ["iid", "ar"])
def test_run_length_is_kept(kind):
    n = 20_000
    alarms = 0
    for seed in range(2):
        size = {"iid": HEALTHY, "ar": 4 * HEALTHY}[kind]
        model = model_of(draw(kind, 600, seed))
        detector = ChangeDetector(model, run_length=1000, n_healthy=size)
        detector.update(draw(kind, size, 100 + seed))
        alarms += len(detector.update(draw(kind, n, 200 + seed)).changes)
    # A factor of three, as documented.
    assert 2 * n / 3000 <= alarms < 2 * 3 * n / 1000


CHANGES = {
    "mean of one": lambda rows, random: rows + 2.0 * (np.arange(D) == 1),
    "mean of all": lambda rows, random: rows + 0.7,
    "spread of one": lambda rows, random: rows * np.where(np.arange(D) == 2, 3.0, 1.0),
    "less spread": lambda rows, random: rows * np.where(np.arange(D) == 2, 0.2, 1.0),
    "few wide rows": lambda rows, random: rows * np.where(random.random((len(rows), 1)) < 0.3, 3.0, 1.0),
    "heavy tails": lambda rows, random: random.laplace(scale=2.0, size=rows.shape),
    "uniform": lambda rows, random: random.uniform(-4.0, 4.0, size=rows.shape),
    "correlation": lambda rows, random: np.column_stack([rows[:, 0], 0.9 * rows[:, 0] + 0.4 * rows[:, 1], rows[:, 2:]]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_found(name):
    detector, random = detector_of(), np.random.default_rng(5)
    detector.run_length = 3_000
    assert not detector.update(draw("iid", 200, 11)).changes
    changes = detector.update(CHANGES[name](draw("iid", 600, 12), random)).changes
    change, n = changes[0], HEALTHY + 200
    assert n < change.detected <= n + 300
    assert abs(change.start - n) <= 60
    assert 0.0 < change.confidence <= 1.0
    assert change.run_length >= 3_000
    assert detector.change_detected_.start == changes[-1].start


@pytest.mark.parametrize(
    ("name", "feature", "direction", "after"),
    [
        ("mean of one", 1, "mean up", 2.0),
        ("less spread", 2, "spread down", 0.2),
        ("correlation", 0, "correlation up", 0.9),
    ],
)
def test_what_moved_is_named(name, feature, direction, after):
    detector = detector_of()
    changes = detector.update(CHANGES[name](draw("iid", 600, 12), np.random.default_rng(5))).changes
    found = [shift for shift in detector.change_detected_.features if shift.direction == direction]
    assert changes
    assert found
    assert found[0].feature == feature
    assert abs(found[0].after - after) < 0.7
    assert (found[0].other == 1) == (name == "correlation")


def test_a_change_that_lasts_is_reported_once_and_gets_surer():
    detector = detector_of()
    moved = draw("iid", 900, 3) + 1.0
    (first,) = detector.update(moved[:20]).changes
    assert not detector.update(moved[20:]).changes
    later = detector.change_detected_
    assert (later.start, later.detected) == (first.start, first.detected)
    assert later.last > HEALTHY + 800
    assert later.confidence >= first.confidence
    # Once it is over, and has been for long, the next one is another one.
    assert len(detector.update(np.concatenate([draw("iid", 300, 4), moved])).changes) >= 1
    assert detector.change_detected_.start > HEALTHY + 900


@given(cuts=st.lists(st.integers(0, 1300), max_size=8))
def test_cuts_do_not_matter(cuts):
    rows = np.concatenate([draw("iid", 1100, 3), draw("iid", 200, 4) * [1.0, 4.0, 1.0, 1.0]])
    whole, cut = detector_of(), detector_of()
    record = whole.update(rows)
    edges = [0, *sorted(cuts), len(rows)]
    parts = [cut.update(rows[i:j]) for i, j in itertools.pairwise(edges) if j > i]
    np.testing.assert_array_equal(record.run_length, np.concatenate([part.run_length for part in parts]))
    assert record.changes == tuple(change for part in parts for change in part.changes)
    assert whole.to_bytes() == cut.to_bytes()


def test_healthy_rows_may_come_in_any_cut():
    rows = draw("iid", 450, 3)
    whole = ChangeDetector(model_of(rows), run_length=1000, n_healthy=300)
    cut = ChangeDetector(model_of(rows), run_length=1000, n_healthy=300)
    whole.update(rows)
    for i in range(0, 450, 70):
        cut.update(rows[i : i + 70])
    assert whole.to_bytes() == cut.to_bytes()


@pytest.mark.parametrize("n", [0, 500, HEALTHY, HEALTHY + 77, HEALTHY + 400])
def test_checkpoints_go_on_to_the_bit(n, tmp_path):
    rows = np.concatenate([draw("iid", HEALTHY, 2), draw("iid", 500, 4) * [1.0, 2.0, 1.0, 1.0]])
    model = model_of(draw("iid", 600, 1))
    detector = ChangeDetector(model, run_length=1000, n_healthy=HEALTHY)
    if n:
        detector.update(rows[:n])
    detector.save(tmp_path / "kept.npz", extra={"offset": n})
    loaded = ChangeDetector.load(tmp_path / "kept.npz")
    assert loaded.extra_ == {"offset": n}
    expected, found = detector.update(rows[n:]), loaded.update(rows[n:])
    np.testing.assert_array_equal(expected.run_length, found.run_length)
    assert expected.changes == found.changes
    assert detector.to_bytes() == loaded.to_bytes()


def test_other_files_and_damaged_records_are_refused(tmp_path):
    model = model_of(draw("iid", 300, 1))
    model.save(tmp_path / "model.npz")
    with pytest.raises(CheckpointError, match="it holds no change detector"):
        ChangeDetector.load(tmp_path / "model.npz")
    Monitor(model).save(tmp_path / "monitor.npz")
    with pytest.raises(CheckpointError, match="it holds no change detector"):
        ChangeDetector.load(tmp_path / "monitor.npz")
    damages = {
        "n_rows": 3,
        "averages": np.zeros((5, 3)),
        "chart.power": np.zeros((5, 5)),
        "chart.rates": "fast",
        "chart.columns.middle": np.zeros(3),
        "chart.columns.projection.coordinate_mean": np.zeros(2),
        "chart.columns.projection.least_novelty": 0.0,
        "chart.moments.deviation": np.zeros(D),
        "chart.precision": np.ones((5, 3)),
        "change.last": 10_000,
        "change.features": [{"feature": "x", "direction": "sideways", "before": 0.0, "after": 1.0, "other": None}],
        "names": ["x"],
    }
    detector = detector_of()
    detector.update(np.concatenate([draw("iid", 300, 3), draw("iid", 300, 4) + 1.0]))
    for key, value in damages.items():
        record = detector._record()
        assert key in record["state"]
        record["state"][key] = value
        with pytest.raises(CheckpointError, match="makes no sense"):
            ChangeDetector.from_bytes(detector.model.to_bytes({"changes": record, "extra": None}))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_refused_rows_change_nothing(bad):
    detector = detector_of()
    before, rows = detector.to_bytes(), draw("iid", 10, 3)
    rows[7, 2] = bad
    with pytest.raises(ValueError, match="row 7"):
        detector.update(rows)
    with pytest.raises(ValueError, match="features"):
        detector.update(rows[:, :3])
    assert detector.to_bytes() == before


def test_a_row_out_of_range_is_named_by_its_place_among_all():
    model = StreamingKernelPCA(kernel="linear").partial_fit(draw("iid", 300, 1))
    rows = draw("iid", 2500, 2)
    rows[2207] = 1e80
    with pytest.raises(ValueError, match="for row 2207"):
        ChangeDetector(model, run_length=1000).update(rows)


def test_healthy_rows_without_a_variance_are_refused():
    rows = draw("iid", 2200, 3)
    model = StreamingKernelPCA(kernel=RBF(0.3), max_atoms=8).partial_fit(rows[:100])
    detector = ChangeDetector(model, run_length=1000)
    detector.update(rows[100:200])
    before, rows[205, 1] = detector.to_bytes(), -1e300
    with pytest.raises(ValueError, match=r"up to 1e\+140 but row 5 has -1e\+300 in feature 1"):
        detector.update(rows[200:])
    assert detector.to_bytes() == before
    assert detector.update(rows[206:1500]).run_length.max() > 1.0
    far = detector.update([[0.0, 1e300, 0.0, 0.0]] * 30)
    assert far.is_change[0]
    assert ChangeDetector.from_bytes(detector.to_bytes()).to_bytes() == detector.to_bytes()


def test_too_few_healthy_rows_are_refused():
    model = model_of(draw("iid", 300, 1))
    with pytest.raises(ValueError, match="cannot tell what happens once in 100,000; give n_healthy=3,334"):
        ChangeDetector(model, run_length=100_000, n_healthy=1000)
    with pytest.raises(ValueError, match="n_healthy must be at least 200"):
        ChangeDetector(model, n_healthy=20)
    assert [ChangeDetector(model, run_length=r).n_healthy for r in (1e3, 1e4, 1e5)] == [1000, 5000, 20_000]


@pytest.mark.parametrize(("name", "said"), [("model", "cannot"), ("n_healthy", "cannot"), ("run_length", "must be")])
def test_what_levels_come_from_cannot_change_and_others_are_checked(name, said):
    detector = detector_of()
    with pytest.raises((AttributeError, ValueError), match=f"{name} {said} .*(begin a new ChangeDetector with|100)"):
        setattr(detector, name, 1)


def test_rows_that_resemble_each_other_too_much_bring_a_warning():
    slow = np.cumsum(np.random.default_rng(0).normal(size=(500, D)), axis=0)
    detector = ChangeDetector(model_of(slow), run_length=5000, n_healthy=500)
    with pytest.warns(UserWarning, match="resemble each other so much"):
        detector.update(slow)


def test_other_models_are_refused():
    with pytest.raises(TypeError, match="expected a StreamingKernelPCA but got int"):
        ChangeDetector(3)
    with pytest.raises(ValueError, match="the model has seen no rows"):
        ChangeDetector(StreamingKernelPCA())
    with pytest.raises(NotFittedError, match="change_detected_"):
        _ = ChangeDetector(model_of(draw("iid", 300, 1))).change_detected_


def test_the_model_is_frozen():
    model = model_of(draw("iid", 600, 1))
    detector = ChangeDetector(model, run_length=1000, n_healthy=300)
    model.partial_fit(draw("iid", 600, 2) + 5.0)
    detector.update(draw("iid", 400, 3))
    assert detector.model.n_samples_seen_ == 600


@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_constant_features_and_huge_offsets(offset):
    def with_constant(rows):
        return np.column_stack([rows + offset, np.full(len(rows), 3.0 * offset)])

    model = model_of(with_constant(draw("iid", 600, 1)))
    detector = ChangeDetector(model, run_length=1000, n_healthy=500)
    detector.update(with_constant(draw("iid", 500, 2)))
    alarms = len(detector.update(with_constant(draw("iid", 3000, 3))).changes)
    assert alarms <= 15
    moved = with_constant(draw("iid", 300, 4))
    moved[:, D] += 10.0
    detector.update(moved)
    assert detector.change_detected_.features[0][:2] == (D, "mean up")


def test_rows_that_never_vary_may_begin_to():
    rows = np.full((300, 2), 5.0)
    model = model_of(rows[:100] + np.eye(100, 2))
    detector = ChangeDetector(model, run_length=300, n_healthy=300)
    detector.update(rows)
    assert not detector.update(rows).changes
    assert detector.update(np.add(rows, [0.0, 9.0])).changes
    assert ChangeDetector.from_bytes(detector.to_bytes()).to_bytes() == detector.to_bytes()
    assert detector.change_detected_.features[0][:2] == (1, "mean up")


@pytest.mark.parametrize(("n_features", "kernel"), [(1, "rbf"), (2, "linear"), (40, "rbf")])
def test_narrow_and_wide_rows(n_features, kernel):
    random = np.random.default_rng(0)
    model = StreamingKernelPCA(kernel=kernel, max_atoms=32).partial_fit(random.normal(size=(500, n_features)))
    detector = ChangeDetector(model, run_length=500, n_healthy=500)
    assert len(detector.update(random.normal(size=(3500, n_features))).changes) <= 25
    rows = random.normal(size=(200, n_features))
    rows[:, n_features // 2] += 4.0
    changes = [*detector.update(rows).changes, detector.change_detected_]
    found = itertools.chain.from_iterable(change.features for change in changes)
    assert any(shift[:2] == (n_features // 2, "mean up") for shift in found)


def test_names_are_kept():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(draw("iid", 400, 1), columns=["flow", "heat", "load", "speed"])
    detector = ChangeDetector(model_of(draw("iid", 300, 2)), run_length=500, n_healthy=300)
    detector.update(frame)
    frame["heat"] += 3.0
    detector.update(frame)
    assert detector.change_detected_.features[0].feature == "heat"


def test_a_restart_takes_the_new_rows_for_healthy_ones():
    detector = detector_of()
    moved = draw("iid", 4000, 9) + 2.0
    assert detector.update(moved[:500]).changes
    assert "healthy rows" in repr(detector.restart())
    assert len(detector.update(moved[500:]).changes) < 12
    assert "healthy rows" not in repr(detector)
