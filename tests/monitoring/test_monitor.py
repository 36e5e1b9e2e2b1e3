"""Laws of the monitor: cuts, refusals, declared rows, what is learned, odd streams, threads and copies."""

import copy
import itertools
import math
import pickle
import threading
from datetime import timedelta
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from streams_to_watch import assert_same_records, eventful_rows, joined, normal_rows, small_model, updated

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF, Linear, Polynomial, Sigmoid
from streamkpca.monitoring import Change, Monitor

# Parameters of monitors, and of their models.
CASES = {
    "plain": ({}, {}),
    "all learned": ({"learn": "all", "accept_after": 150}, {}),
    "change accepted": ({"accept_after": 60}, {}),
    "few rows a level": ({"quantile": 0.9, "accept_after": 32}, {}),
    "a scale that is settled again": ({}, {"kernel": RBF().in_units("std")}),
    "bad rows": ({"max_gap": 5.0, "accept_after": 60}, {"missing": "skip"}),
    "gaps": ({"learn": "all", "max_gap": 5.0}, {"missing": "marginal"}),
    "a budget": ({"most_events": 1 / 200, "quantile": 0.95}, {"missing": "skip"}),
    "a budget in time": ({"most_events": "900/day", "quantile": 0.95, "max_gap": 5.0}, {"missing": "skip"}),
    "a period in rows": ({"period": 24, "max_gap": 5.0}, {"missing": "skip"}),
    "a period in time": ({"period": 24.0, "max_gap": 5.0, "ignore": {0: "above"}}, {"missing": "skip"}),
}


def fitted_model(n, **parameters):
    return small_model(**parameters).partial_fit(normal_rows(n, seed=0))


# Cuts


@given(st.sampled_from(sorted(CASES)), st.integers(1, 1100), st.lists(st.integers(1, 1100), max_size=9).map(sorted))
@example("bad rows", 1100, list(range(1, 1100)))
@example("gaps", 1100, [2, 640])
@example("change accepted", 1100, [64, 640, 860])
@example("a budget", 1100, [33, 301, 626])
@example("a budget in time", 1100, [33, 301, 626])
@example("a period in rows", 1100, [1, 31, 400, 625])
@example("a period in time", 1100, [1, 31, 400, 625])
def test_any_cuts_and_any_stops_give_the_same_records_and_bytes(case, stop, cuts):
    # Declared rows change when the chunks do, or in the middle of one.
    declared = {"plain": (0, 96), "all learned": (70, 300), "gaps": (625, 700), "a budget": (33, 300)}.get(case, (0, 0))
    rows, (parameters, of_model) = eventful_rows(), CASES[case]
    times = np.arange(1100.0)
    if "scale" in case:
        rows[:64] *= 0.05
    if "missing" in of_model:
        rows[[0, 1, 63, 64, 500, 625, 626, 1050], [0, 1, 2, 0, 1, 2, 0, 1]] = [np.nan, np.inf] * 4
        rows[900:945] = np.nan
        times += 100.0 * np.cumsum(np.isin(np.arange(1100), [2, 70, 400, 630, 812, 1080]))
    whole, pieces, stopped = (Monitor(small_model(**of_model), **parameters) for _ in range(3))

    def update(monitor, cuts, restores=False):
        edges, records = sorted({0, stop, *(cut for cut in (*declared, *cuts) if cut < stop)}), []
        for start, end in itertools.pairwise(edges):
            monitor = Monitor.from_bytes(monitor.to_bytes()) if restores else monitor
            is_healthy = declared[0] <= start < declared[1]
            records.append(monitor.update(rows[start:end], time=times[start:end], healthy=is_healthy))
        return monitor, joined(records)

    whole, expected = update(whole, [])
    pieces, record = update(pieces, cuts)
    assert_same_records(record, expected)
    stopped, record = update(stopped, cuts[:9], restores=True)
    assert_same_records(record, expected)
    for monitor in (pieces, stopped):
        assert monitor.events_ == whole.events_
        assert monitor.change_detected_ == whole.change_detected_
        assert monitor.to_bytes() == whole.to_bytes()
    if stop > 700:
        assert np.isfinite(expected.threshold[-1])
        assert expected.is_alarm.any()


# Reading, and refusals


def test_reading_changes_nothing():
    rows = eventful_rows()
    one, other = Monitor(small_model()), Monitor(small_model())
    for piece in np.array_split(rows, 23):
        one.update(piece)
        other.update(piece)
        assert one.n_events_ == len(one.events_)
        assert one.change_detected_ is None or isinstance(one.change_detected_, Change)
        one.stack(piece)
        one.model.novelty(one.stack(piece))
        one.to_bytes()
        assert one.n_rows_ == other.n_rows_
    assert one.to_bytes() == other.to_bytes()


@pytest.mark.parametrize("n_before", [0, 10, 64, 700])
def test_a_refused_call_changes_nothing(n_before):
    rows = normal_rows(1000)
    monitor = Monitor(small_model(Linear()), max_gap=10.0)
    if n_before:
        monitor.update(rows[:n_before], time=np.arange(n_before))
    data = monitor.to_bytes()
    bad = rows[n_before : n_before + 150].copy()
    bad[140, 1] = np.nan
    # Among rows that are learned, after some that are; the kernel cannot hold its square.
    far = np.where(np.isnan(bad), 1e160, bad)
    times = np.arange(150.0) + n_before
    for X, time, message in [
        (bad, times, "contains NaN"),
        (far, times, "row 140 is so far away|for row 140 of these, but the limit is"),
        (bad[:140], times, r"one time for each of 140 rows but got shape \(150,\)"),
        (bad[:140], times[:140, None], "one time for each"),
        (bad[:140], np.where(times[:140] == times[3], np.nan, times[:140]), "finite times but that of row 3 is nan"),
        (bad[:140], times[:140][::-1], "ascending times but that of row 1 is 1 before"),
        (bad[:0], times[:0], "minimum of 1 is required"),
        (bad[0], times[0], "2D array"),
    ]:
        for call in (monitor.update, partial(monitor.update, healthy=True), monitor.fit):
            with pytest.raises(ValueError, match=message):
                call(X, time=time)
        assert monitor.to_bytes() == data
    with pytest.raises(TypeError, match="times as numbers or dates but got complex128"):
        monitor.update(bad[:140], time=times[:140] + 0j)
    if n_before:
        with pytest.raises(ValueError, match="2 features"):
            monitor.update(rows[:5, :2], time=times[:5])
        with pytest.raises(ValueError, match=r"that of row 0 is 5 before.*sort the rows by time"):
            monitor.update(bad[:5], time=times[:5] - 6.0)
    assert monitor.to_bytes() == data
    never = Monitor(small_model(Linear()), max_gap=10.0)
    never.update(rows, time=np.arange(1000))
    monitor.update(rows[n_before:], time=np.arange(n_before, 1000))
    assert monitor.to_bytes() == never.to_bytes()


@pytest.mark.parametrize("learn", ["normal", "none"])
def test_a_model_that_has_learned_brings_the_relation_too(learn):
    # So many rows that a monitor learns no more of them.
    rows = np.repeat(np.random.default_rng(0).normal(size=(7000, 2)), 2, axis=1)
    rows += 0.1 * np.random.default_rng(1).normal(size=rows.shape)
    rows[6500:, 3] += 1.0
    monitor = Monitor(StreamingKernelPCA(kernel=RBF().in_units("std"), noise_variance=None).partial_fit(rows[:6000]))
    monitor.learn = learn
    assert monitor.update(rows[6000:6500]).is_alarm.mean() < 0.03
    assert monitor.update(rows[6500:6510]).is_alarm.all()
    event = monitor.events_[-1]
    assert (event.kind, event.features[0].feature) == ("relation", 3)


def test_a_refused_first_call_leaves_a_model_that_has_learned_as_it_was():
    model = fitted_model(150)
    data = model.to_bytes()
    monitor = Monitor(model)
    for X, time in [([[1.0, 2.0]], None), ([[1.0, 2.0, np.nan]], None), ([[1.0, 2.0, 3.0]], [np.nan])]:
        with pytest.raises(ValueError, match=r"2 features|NaN|finite times"):
            monitor.update(X, time=time)
        assert model.to_bytes() == data


def test_before_the_first_row_there_is_nothing_to_report():
    monitor = Monitor()
    assert (monitor.n_rows_, monitor.events_, monitor.n_events_) == (0, [], 0)
    assert (monitor.change_detected_, monitor.report().lines) == (None, ())
    assert monitor.reset(events=True) is monitor
    with pytest.raises(AttributeError, match="call update first"):
        _ = monitor.record_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"quantile": 1.0}, "quantile must be a finite number"),
        ({"learn": "some"}, "learn must be one of"),
        ({"accept_after": 5}, "accept_after must be at least 32"),
        ({"max_gap": 0}, "max_gap must be a finite number"),
        ({"model": "rbf"}, "expected a StreamingKernelPCA but got str"),
        ({"model": StreamingKernelPCA(max_atoms=None, reservoir_size=0)}, "reservoir_size is 0"),
        ({"end_after": 0}, "end_after must be at least 1"),
        ({"min_duration": 0}, "min_duration, in rows, must be at least 1"),
        ({"min_duration": timedelta(0)}, "min_duration must be a finite number"),
        ({"min_duration": "long"}, "min_duration must be a number"),
        ({"ignore": {"disk": "down"}}, r"ignore\['disk'\] should be 'above', 'below' or.*got 'down'"),
        ({"ignore": {"disk": -1.0}}, r"ignore\['disk'\] must be a finite number"),
        ({"ignore": {1.5: "below"}}, "a feature of ignore must be an integer"),
        ({"ignore": {0: {"above": 2.0}}}, "ignore"),
        ({"ignore": ["above"]}, "ignore"),
        ({"ignore": "above"}, "ignore"),
        ({"most_events": math.nan}, "most_events must be a finite number"),
        ({"most_events": 0}, "most_events must be a finite number"),
        ({"most_events": 2.0}, "most_events must be a finite number"),
        (
            {"most_events": "2/month"},
            r"most_events as a rate .* in a time, such as .* \(hour, day, week\), but got '2/month'",
        ),
        ({"most_events": "-1/day"}, "most_events as a rate"),
        ({"most_events": "0/day"}, "most_events must be a finite number"),
        ({"most_events": "day"}, "most_events as a rate"),
        ({"period": 1}, r"Monitor: period, in rows, must be at least 2, got 1"),
        ({"period": 2**64}, "period, in rows, must be at most"),
        ({"period": True}, "period, in rows, must be an integer"),
        ({"period": math.inf}, "period must be a finite number"),
        ({"period": timedelta(-1)}, "period must be a finite number"),
        ({"period": np.timedelta64("NaT", "s")}, "period must be a finite number"),
        ({"period": np.timedelta64(1, "M")}, "period must have a length, but months and years differ"),
        ({"period": "day"}, "period must be a number"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Monitor(**parameters)


def test_a_model_of_few_rows_gives_no_threshold_and_is_refused_unless_it_learns():
    with pytest.raises(ValueError, match="needs a model that has learned 64 rows or more, but it has seen 63"):
        Monitor(fitted_model(63), learn="none").update(normal_rows(1))
    assert np.isinf(Monitor(fitted_model(63)).update(normal_rows(1)).threshold)
    assert np.isfinite(Monitor(fitted_model(64), learn="none").update(normal_rows(1)).threshold)


def test_parameters_that_scores_were_made_with_cannot_change():
    monitor = Monitor(small_model())
    others = {"quantile": 0.9, "model": small_model(), "most_events": 0.001, "period": 12}
    for name, value in others.items():
        with pytest.raises(AttributeError, match=f"{name} cannot change.*begin a new Monitor"):
            setattr(monitor, name, value)
    with pytest.raises(ValueError, match="learn must be one of"):
        monitor.learn = "never"
    with pytest.raises(ValueError, match="at least 32"):
        monitor.accept_after = 1
    with pytest.raises(ValueError, match="max_gap"):
        monitor.max_gap = -1.0
    monitor.learn = "none"
    with pytest.raises(ValueError, match="needs a model that has learned 64 rows or more, but it has seen 0"):
        monitor.update(normal_rows(200))
    monitor.learn = "normal"
    monitor.update(normal_rows(200))
    monitor.learn, monitor.accept_after = "none", 50
    data = monitor.model.to_bytes()
    monitor.update(normal_rows(200, seed=2))
    assert monitor.model.to_bytes() == data
    monitor.model.set_params(missing="marginal")
    with pytest.raises(ValueError, match="it cannot change to or from 'marginal' within a stream"):
        monitor.update([[np.nan, 0.0, 0.0]])


# Recordings, and the last rows


def test_a_gap_begins_the_means_of_the_last_rows_anew():
    rows = normal_rows(2000)
    gapped = Monitor(max_gap=1.5).fit(rows[:1900], time=np.arange(1900.0))
    reset = copy.deepcopy(gapped)
    time = 1900.0 + np.arange(100.0) + 10.0 * (np.arange(100) >= 20)
    record = gapped.update(rows[1900:], time=time)
    parts = [reset.update(rows[1900:1920], time=time[:20]), reset.reset().update(rows[1920:], time=time[20:])]
    assert_same_records(record, joined(parts))
    # Its own numbers are expected of the first row after it: no other view is as common for each row.
    alone = [gapped.reset().update(row[None], time=[k]).rarity[0] for k, row in enumerate(rows[1920:1921])]
    assert alone == [record.rarity[20]]


def test_scores_are_those_of_the_model_before_the_chunk():
    rows = normal_rows(300)
    monitor = Monitor(small_model())
    monitor.update(rows[:256])
    expected = monitor.model.novelty(rows[256:288])
    np.testing.assert_allclose(monitor.update(rows[256:288]).novelty, expected, rtol=1e-9)


def test_early_rows_have_no_rarity_and_no_threshold():
    record = Monitor(small_model()).update(normal_rows(200))
    # The second chunk of 32 is held out, so that 64 rows are learned after 96.
    assert (record.rarity[:96] == 1.0).all()
    assert np.isinf(record.threshold[:96]).all()
    assert record.threshold[96:] == pytest.approx(1.0 / 0.003)
    assert (record.rarity[96:] >= 1.0).all()
    assert (record.rarity[96:] > 1.0).any()


# What is learned


def test_a_lasting_change_is_reported_once_and_not_accepted_without_learning():
    rows = normal_rows(1600)
    rows[600:1200, 2] += 15.0
    monitor = Monitor(fitted_model(640), accept_after=100, learn="none")
    monitor.update(rows[:900])
    change = monitor.change_detected_
    assert (change.start, change.detected, change.is_accepted) == (600, 736, False)
    assert monitor.update(rows[900:1200]).is_alarm.all()
    assert monitor.change_detected_ == change
    assert monitor.update(rows[1200:]).is_alarm.mean() < 0.1
    assert monitor.change_detected_ == change
    # Its end is noticed, so that the next one is a new one.
    more = normal_rows(5000, seed=0)
    monitor.update(more[:4400])
    monitor.update(more[:300] + np.array([0.0, 0.0, 15.0]))
    found = monitor.change_detected_
    # An alarm by chance may come a little earlier.
    assert 5960 <= found.start <= 6000


def test_a_change_that_is_learned_anyway_is_said_to_be_accepted():
    rows = normal_rows(900)
    rows[600:, 1] = 10.0 + np.arange(300) ** 2.0
    monitor = Monitor(small_model(), learn="all", accept_after=50)
    monitor.update(rows)
    change = monitor.change_detected_
    assert change.is_accepted


@pytest.mark.parametrize("n", [64, 1300])
def test_without_learning_the_model_never_changes(n):
    model = fitted_model(n)
    data = model.to_bytes()
    monitor = Monitor(model, learn="none", accept_after=50)
    record = monitor.update(eventful_rows())
    assert model.to_bytes() == data
    assert np.isfinite(record.threshold).all()
    assert record.is_alarm[800:].mean() > 0.9


def test_one_chunk_of_four_is_held_out_and_alarms_of_a_grown_monitor_are_not_learned():
    rows = eventful_rows(1100)
    normal, everything = (Monitor(fitted_model(3100), learn=learn, accept_after=10_000) for learn in ("normal", "all"))
    for monitor in (normal, everything):
        monitor.update(rows[:1024])
    # 32 chunks, of which the second and eight more are held out. Rows from 800 on are a change.
    assert everything.model.n_samples_seen_ == 3100 + 23 * 32
    n_learned = normal.model.n_samples_seen_ - 3100
    assert 0.9 * 19 * 32 <= n_learned <= 19 * 32


def test_a_slow_fault_is_not_learned():
    rows = normal_rows(2000)
    rows[1000:1500, 1] += np.linspace(0.0, 8.0, 500)
    rows[1500:, 1] += 8.0
    monitor = Monitor(fitted_model(3100))
    monitor.update(rows[:1344])
    before = monitor.model.n_samples_seen_
    monitor.update(rows[1344:])
    assert monitor.model.n_samples_seen_ - before <= 0.1 * (2000 - 1344)


def test_a_gross_fault_in_a_young_stream_is_found():
    rows = normal_rows(1280)
    rows[256:512, 1] += 15.0
    monitor = Monitor()
    is_alarm = monitor.update(rows).is_alarm
    # Its rows are common from then on.
    assert is_alarm[256:264].all()
    assert is_alarm[512:].mean() <= 0.05
    assert 256 in [event.start for event in monitor.events_]


# Odd streams


ODD = {
    "constant": np.full((300, 2), 3.0),
    "zeros": np.zeros((300, 2)),
    "one feature": np.random.default_rng(0).normal(size=(300, 1)),
    "duplicates": np.repeat(normal_rows(10), 30, axis=0),
    "two points": np.tile([[0.0, 1.0], [1.0, 0.0]], (150, 1)),
    "huge offset": normal_rows(300) + 1e9,
    "large": normal_rows(300) * 1e60,
    "tiny": normal_rows(300) * 1e-200,
    "more features than rows": np.random.default_rng(0).normal(size=(100, 150)),
    "a constant feature": np.column_stack([normal_rows(300), np.full(300, 7.0)]),
    "constant, then not": np.concatenate([np.ones((200, 2)), np.random.default_rng(0).normal(size=(200, 2))]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_streams_give_finite_scores(name):
    rows, learn = ODD[name], "all" if len(name) % 2 else "normal"
    whole, single = (Monitor(small_model(RBF().in_units("std")), learn=learn, accept_after=40) for _ in range(2))
    record = whole.update(rows)
    assert np.isfinite(record.novelty).all()
    assert np.isfinite(record.rarity).all()
    assert (record.novelty >= 0.0).all()
    assert not np.isnan(record.threshold).any()
    assert not record.is_alarm.any() or name not in ("constant", "zeros", "two points")
    assert_same_records(updated(single, rows, [*range(1, 70), 90]), record)
    assert single.to_bytes() == whole.to_bytes() == Monitor.from_bytes(whole.to_bytes()).to_bytes()


@pytest.mark.filterwarnings("ignore::streamkpca.errors.IndefiniteKernelWarning")
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_atoms": 1},
        {"block_size": 2},
        {"max_atoms": None, "tolerance": 0.05, "half_life": 100.0},
        {"half_life": 50.0},
        {"reservoir_size": 0},
        {"atoms": "rows"},
        {"n_active": 4},
        {"center": False},
        {"refit_every": 32},
        {"kernel": Linear()},
        {"kernel": Polynomial(degree=2)},
        {"kernel": Sigmoid(gamma=0.05, coef0=0.0)},
    ],
    ids=str,
)
def test_any_model_can_be_watched(parameters):
    rows = normal_rows(700)
    rows[600:620, 1] += 30.0
    monitor = Monitor(small_model(**parameters))
    record = monitor.update(rows)
    assert np.isfinite(record.threshold[-1])
    assert record.is_alarm[100:600].mean() < 0.06
    loaded = Monitor.from_bytes(monitor.to_bytes())
    more = normal_rows(100, seed=3)
    assert_same_records(loaded.update(more), monitor.update(more))


# Names, times, threads, copies


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_features_of_tables_are_named(library):
    tables = pytest.importorskip(library)
    rows = normal_rows(900)
    rows[700:720, 1] += 15.0
    names = ["flow", "heat", "load"]
    plain, named = Monitor(small_model()), Monitor(small_model())
    expected = plain.update(rows)
    frame = tables.DataFrame(dict(zip(names, rows.T, strict=True)))
    assert_same_records(named.update(frame), expected)
    assert max(named.events_, key=lambda event: event.n_alarms).features[0].feature == "heat"
    loaded = Monitor.from_bytes(named.to_bytes())
    assert loaded.events_ == named.events_
    for monitor in (named, loaded):
        with pytest.raises(ValueError, match="feature names should match"):
            monitor.update(frame[["heat", "flow", "load"]])


def test_names_come_from_a_model_that_has_learned_a_table():
    pandas = pytest.importorskip("pandas")
    rows = normal_rows(800)
    model = small_model().partial_fit(pandas.DataFrame(rows, columns=["flow", "heat", "load"]))
    monitor = Monitor(model)
    monitor.update(rows[:10] + np.array([0.0, 0.0, 40.0]))
    assert monitor.events_[0].features[0].feature == "load"


def test_copies_and_pickles_go_on_alike():
    rows = eventful_rows()
    monitor = Monitor(small_model(), accept_after=60)
    monitor.update(rows[:650])
    others = [copy.copy(monitor), copy.deepcopy(monitor), pickle.loads(pickle.dumps(monitor))]
    expected = monitor.update(rows[650:])
    for other in others:
        assert other.model is not monitor.model
        assert_same_records(other.update(rows[650:]), expected)
        assert other.to_bytes() == monitor.to_bytes()


def test_two_threads_that_update_wait_for_each_other():
    rows = normal_rows(640)
    monitor = Monitor(small_model(), learn="all")
    threads = [threading.Thread(target=lambda: [monitor.update(rows[i : i + 1]) for i in range(320)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.n_rows_ == 640
    # Of 20 chunks, the second and five more are held out.
    assert monitor.model.n_samples_seen_ == 14 * 32
