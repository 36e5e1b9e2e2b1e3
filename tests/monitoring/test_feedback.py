"""What a user says of events: those that were fine raise no alarm again, and faults always do."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca.errors import CheckpointError
from streamkpca.monitoring import Monitor

N_HEALTHY = 5000


def healthy_rows(n, d=6, seed=0):
    """Return rows of d sensors that follow two hidden numbers, with noise."""
    random = np.random.default_rng(seed)
    mixing = np.random.default_rng(d).normal(size=(2, d))
    return random.normal(size=(n, 2)) @ mixing + 0.3 * random.normal(size=(n, d))


def broken_rows(n, feature, seed=1):
    """Return rows of which one sensor reads too high, by its relation and by its place."""
    rows = healthy_rows(n, seed=seed)
    rows[:, feature] += 8.0
    return rows


def watching(seed=0):
    """Return a monitor that knows healthy rows and has met one event, of sensor 2."""
    monitor = Monitor()
    monitor.update(healthy_rows(N_HEALTHY, seed=seed))
    monitor.update(broken_rows(20, 2, seed + 1))
    monitor.update(healthy_rows(40, seed=seed + 2))
    return monitor, max(monitor.events_, key=lambda event: event.n_alarms)


@pytest.mark.parametrize("seed", [0, 10, 20])
def test_after_accept_alike_rows_raise_no_alarm_and_others_do(seed):
    monitor, event = watching(seed)
    assert event.features[0].feature == 2
    assert monitor.accept(event) is monitor
    alike = monitor.update(broken_rows(400, 2, seed + 3))
    assert alike.is_alarm.mean() <= 0.02
    other = copy.deepcopy(monitor).update(broken_rows(40, 4, seed + 4))
    assert other.is_alarm.mean() >= 0.95
    opposite = healthy_rows(40, seed=seed + 5)
    opposite[:, 2] -= 8.0
    assert monitor.update(opposite).is_alarm.mean() >= 0.95


@pytest.mark.parametrize("judge", ["accept", "confirm", "accept_after"])
def test_a_long_event_that_was_judged_hides_no_others(judge):
    monitor = Monitor(accept_after=300 if judge == "accept_after" else None)
    monitor.update(np.concatenate([healthy_rows(N_HEALTHY), broken_rows(1000, 2), healthy_rows(40, seed=2)]))
    if judge != "accept_after":
        getattr(monitor, judge)(max(monitor.events_, key=lambda event: event.n_alarms))
    other = healthy_rows(40, seed=3) + 2.5 * (np.arange(6) == 4)
    assert monitor.update(other).is_alarm.mean() > 0.5


def test_the_last_word_on_an_event_counts():
    monitor, event = watching()
    monitor.accept(event).confirm(event)
    assert monitor.update(broken_rows(400, 2, 3)).is_alarm.mean() >= 0.95
    monitor.accept(event)
    assert monitor.update(broken_rows(400, 2, 4)).is_alarm.mean() <= 0.02


@pytest.mark.parametrize("seed", [0, 10, 20])
def test_after_confirm_alike_rows_are_alarms_however_frequent_and_are_not_learned(seed):
    monitor, event = watching(seed)
    silent, _ = watching(seed)
    monitor.confirm(event)
    n_learned = monitor._state.n_learned
    found = np.concatenate([monitor.update(broken_rows(500, 2, seed + k)).is_alarm for k in range(3, 11)])
    assert found.mean() >= 0.95
    assert monitor._state.n_learned == n_learned
    monitor.learn = "all"
    monitor.update(broken_rows(500, 2, seed + 11))
    assert monitor._state.n_learned <= n_learned + 25
    other = monitor.update(broken_rows(40, 4, seed + 12))
    assert other.is_alarm.mean() >= 0.95
    forgotten = np.concatenate([silent.update(broken_rows(500, 2, seed + k)).is_alarm for k in range(3, 11)])
    assert forgotten[-500:].mean() < 0.5


def test_a_young_monitor_learns_a_fault_and_a_confirmed_one_never():
    monitor = Monitor()
    monitor.update(healthy_rows(1024))
    n_before = monitor._state.n_learned
    # They wait for the end of their chunk when the event is confirmed.
    monitor.update(broken_rows(32, 2))
    wiser = copy.deepcopy(monitor)
    wiser.confirm(max(wiser.events_, key=lambda event: event.n_alarms))
    for watched, n_learned in ((monitor, 384), (wiser, 0)):
        watched.update(broken_rows(480, 2, 5))
        # Of healthy rows, one chunk of four is held out.
        assert watched._state.n_learned - n_before == pytest.approx(n_learned, abs=25)


def test_a_confirmed_fault_is_never_learned_however_long_it_lasts_and_whatever_change_follows():
    monitor = Monitor(accept_after=300)
    monitor.update(healthy_rows(N_HEALTHY))
    monitor.update(broken_rows(240, 2))
    n_learned = monitor._state.n_learned
    monitor.confirm(max(monitor.events_, key=lambda event: event.n_alarms))
    assert monitor.update(broken_rows(1200, 2, 2)).is_alarm.mean() >= 0.95
    assert (monitor.change_detected_, monitor._state.n_learned) == (None, n_learned)
    monitor.update(broken_rows(280, 4, 3))
    assert monitor.change_detected_.is_accepted
    assert n_learned < monitor._state.n_learned <= n_learned + 280


def test_confirmed_faults_are_told_beyond_the_budget_and_take_nothing_from_it():
    monitor = Monitor(most_events=1e-6).fit(healthy_rows(N_HEALTHY))
    monitor.update(broken_rows(20, 2))
    event = max(monitor.events_, key=lambda event: event.n_alarms)
    monitor.confirm(event)
    needed = monitor._state.alarms.counters[2]
    for k in range(30):
        record = monitor.update(np.concatenate([broken_rows(1, 2, k), healthy_rows(30, seed=k)]))
        assert record.is_alarm[0]
    assert monitor._state.alarms.counters[2] <= needed + 0.3


def test_an_open_event_is_closed_by_what_is_said_of_it():
    monitor = Monitor()
    monitor.update(healthy_rows(N_HEALTHY))
    monitor.update(broken_rows(20, 2))
    assert monitor.events_[-1].is_open
    monitor.accept(monitor.events_[-1])
    assert (monitor.events_[-1].is_open, monitor.events_[-1].feedback) == (False, "accepted")
    assert not monitor.update(broken_rows(20, 2, 2)).is_alarm.any()


def test_events_that_are_unknown_are_refused_and_change_nothing():
    monitor, event = watching()
    before = monitor.to_bytes()
    for other in (Monitor(), monitor):
        with pytest.raises(ValueError, match=r"of the event at row 9,999,999 no rows are kept"):
            other.accept(replace(event, start=9_999_999, group=-1))
    for other in (3, None, [event]):
        with pytest.raises(TypeError, match=r"^Monitor\.accept: expected an Event but got .*of monitor\.events_$"):
            monitor.accept(other)
    assert monitor.to_bytes() == before


def test_a_monitor_that_does_not_learn_takes_what_is_said():
    monitor, event = watching()
    monitor.learn = "none"
    model = monitor.model.to_bytes()
    monitor.accept(event)
    assert monitor.model.to_bytes() == model
    assert monitor.update(broken_rows(200, 2, 5)).is_alarm.mean() <= 0.02


@settings(max_examples=10)
@given(st.sets(st.integers(1, 299), max_size=4).map(sorted), st.booleans())
def test_what_was_said_is_noted_and_saved_and_cuts_do_not_matter(cuts, is_fault):
    whole, event = watching()
    pieces, same = watching()
    rows = np.concatenate([broken_rows(150, 2, 5), healthy_rows(150, seed=6)])
    for monitor, given_event in ((whole, event), (pieces, same)):
        (monitor.confirm if is_fault else monitor.accept)(given_event)
    pieces = Monitor.from_bytes(pieces.to_bytes())
    said = [other.feedback for other in pieces.events_ if other.start == event.start]
    assert said == ["confirmed" if is_fault else "accepted"]
    whole.update(rows)
    for part in np.split(rows, cuts):
        pieces.update(part)
    assert whole.to_bytes() == pieces.to_bytes()


def test_a_file_with_other_rows_of_events_is_refused():
    monitor, _ = watching()
    state = monitor._state
    monitor._state = state.__class__(**{**vars(state), "log": state.log._replace(sizes=state.log.sizes + 1)})
    with pytest.raises(CheckpointError, match="closed events have too many or too few rows"):
        Monitor.from_bytes(monitor.to_bytes())
