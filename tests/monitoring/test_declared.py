"""Healthy rows that are declared, states that are not learned, and what comes back."""

import copy

import numpy as np
import pytest
from streams_to_watch import assert_same_records, normal_rows, small_model

from streamkpca.monitoring import Monitor

FAULT = np.array([0.0, 20.0, 0.0])
SHIFT = np.array([8.0, -8.0, 8.0])


def two_states(n, length, seed=0):
    """Return rows of a machine that is in one of two states by turns, each for `length` rows."""
    return normal_rows(n, seed=seed) + SHIFT * (np.arange(n) // length % 2)[:, None]


def test_declared_rows_raise_no_alarm_and_are_learned_but_for_wild_ones():
    rows = normal_rows(1600)
    rows[800:1200] += SHIFT
    rows[[300, 900, 1500], [0, 1, 2]] = 1e7
    monitor = Monitor()
    record = monitor.update(rows, healthy=True)
    assert not record.is_alarm.any()
    assert monitor.events_ == []
    # Chunks of 32 to 64 rows, of which the second and every fourth are held out.
    assert 0.72 * 1600 <= monitor._state.n_learned <= 0.76 * 1600
    # Another state is as healthy, and the wild numbers hide no fault.
    assert not Monitor().fit(rows).update(normal_rows(200, seed=3) + SHIFT).is_alarm.any()
    assert monitor.update(normal_rows(20, seed=2) + FAULT).is_alarm.all()


def test_a_declared_history_counts_as_grown():
    rows = normal_rows(1200)
    told, guessing = Monitor().fit(rows[:1000]), Monitor()
    guessing.update(rows[:1000])
    # What comes then is learned on need alone: another state is not, which a young monitor takes in.
    for monitor, low, high in ((told, 0, 20), (guessing, 300, 400)):
        before = monitor._state.n_learned
        monitor.update(normal_rows(512, seed=1) + SHIFT)
        assert low <= monitor._state.n_learned - before <= high


def test_fit_is_as_rows_declared_to_a_new_monitor_and_forgets_what_was_before():
    rows, more = normal_rows(900), normal_rows(300, seed=1)
    used, fresh = Monitor(small_model()), Monitor(small_model())
    used.update(normal_rows(700, seed=5) + 3.0)
    assert used.fit(rows) is used
    fresh.update(rows, healthy=True)
    assert_same_records(used.update(more), fresh.update(more))
    assert used.to_bytes() == fresh.to_bytes()
    assert used.n_rows_ == 1200


def test_rows_are_predicted_as_a_recording_of_their_own_and_nothing_is_learned():
    monitor = Monitor().fit(normal_rows(1500))
    rows, before = normal_rows(100, seed=1), monitor.to_bytes()
    rows[50:60] += SHIFT
    scores, decisions, answers = monitor.score_samples(rows), monitor.decision_function(rows), monitor.predict(rows)
    assert monitor.to_bytes() == before
    rarity = copy.copy(monitor).reset().update(rows[:28]).rarity
    np.testing.assert_allclose(scores[:28], -np.log(rarity), rtol=1e-12)
    np.testing.assert_allclose(decisions, scores + np.log(1.0 / 0.003), rtol=1e-9)
    np.testing.assert_array_equal(answers, np.where(decisions < 0.0, -1, 1))
    assert (answers[50:60] == -1).all()
    assert (answers == 1).mean() > 0.8


@pytest.mark.parametrize("start", [0, 71, 360, 480])
def test_a_young_monitor_is_not_locked_into_the_state_that_it_began_in(start):
    monitor = Monitor()
    monitor.update(two_states(3000 + start, 360)[start:])
    assert monitor._state.n_learned >= 0.6 * 3000


def test_a_state_that_is_not_learned_is_told_soon_and_learned_once_it_is_accepted():
    monitor = Monitor().fit(normal_rows(1500))
    monitor.update(normal_rows(512, seed=1) + SHIFT)
    change = monitor.change_detected_
    assert (change.is_accepted, 1500 - 2 <= change.start <= 1500 + 2, change.detected <= 2012) == (False, True, True)
    assert "not learned: a fault, or another state?" in str(change)
    before = monitor._state.n_learned
    monitor.accept(change)
    assert monitor.change_detected_.is_accepted
    assert monitor._state.n_learned >= before + 0.6 * 300
    record = monitor.update(normal_rows(400, seed=2) + SHIFT)
    assert (record.rarity >= record.threshold).mean() <= 0.03
    # Nor has it forgotten the first.
    record = monitor.update(normal_rows(400, seed=3))
    assert (record.rarity >= record.threshold).mean() <= 0.03
    with pytest.raises(ValueError, match=r"of the change at row .* no rows are kept"):
        monitor.accept(change)


def test_after_the_return_from_another_state_faults_are_found_as_if_it_had_never_been():
    found = []
    for has_state in (True, False):
        monitor = Monitor().fit(normal_rows(3000))
        if has_state:
            monitor.update(normal_rows(2000, seed=1) + SHIFT)
        # The means of the last rows come back within some dozen rows, and what is counted within two chunks.
        monitor.update(normal_rows(300, seed=2))
        rows = normal_rows(4000, seed=3)
        rows[250::250, 1] += 6.0
        found.append(monitor.update(rows).is_alarm[250::250].mean())
    assert found[1] >= 0.85
    assert found[0] >= found[1] - 0.07


def test_a_lone_sensor_that_becomes_noisy_is_found():
    random = np.random.default_rng(0)
    rows = np.sin(0.02 * np.arange(5000)) + 0.2 * random.normal(size=5000)
    rows[4000:4060] += random.normal(size=60)
    monitor = Monitor().fit(rows[:3000, None])
    record = monitor.update(rows[3000:, None])
    assert record.is_alarm[1010:1060].mean() > 0.3
    assert any(4000 <= event.start < 4020 for event in monitor.events_)
