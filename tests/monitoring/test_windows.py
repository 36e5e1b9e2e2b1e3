"""Windows: statistics against a plain oracle, and monitors with them: cuts, gaps, files, causes, what they add."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams_to_watch import Array, assert_same_records, normal_rows, small_model, updated

from streamkpca import StreamingKernelPCA
from streamkpca.errors import CheckpointError
from streamkpca.kernels import RBF
from streamkpca.monitoring import Monitor
from streamkpca.monitoring.windows import Windows, _as_rare, _rarity
from streamkpca.rows._loops import window_statistics

WINDOWS = (1, 8)


def statistics(rows: Array, length: int) -> Array:
    """Return mean, deviation and range of each full window, computed from its rows alone."""
    found = []
    for end in range(length, len(rows) + 1):
        window = rows[end - length : end]
        few = 2 * (~np.isnan(window)).sum(axis=0) < length
        window = np.where(few, 0.0, window)
        parts = [np.nanmean(window, axis=0), np.nanstd(window, axis=0), np.nanmax(window, 0) - np.nanmin(window, 0)]
        found.append(np.concatenate([np.where(few, np.nan, part) for part in parts]))
    return np.array(found)


def measured(rows: Array, length: int, first: int | None = None) -> Array:
    """Return the statistics of windows that end with row `first` or later, by the loop, of the rows that it needs."""
    first = length - 1 if first is None else first
    origin = max(first - first % length - length, 0)
    out = np.empty((len(rows) - first, 3 * rows.shape[1]))
    window_statistics(rows[origin:].copy(), origin, first, length, out)
    return out


@given(st.integers(2, 9), st.integers(1, 40), st.integers(1, 3), st.integers(0, 99), st.sampled_from([0.0, 1e9, -1e12]))
def test_statistics_are_those_of_each_window_alone(length: int, more: int, d: int, seed: int, offset: float) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(length + more, d)) + offset
    rows[random.random(rows.shape) < 0.3] = np.nan
    expected, found = statistics(rows - offset, length), measured(rows, length)
    found[:, :d] -= offset
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14 * abs(offset) + 1e-12)
    first = int(random.integers(length - 1, len(rows)))
    assert measured(rows, length, first).tobytes() == measured(rows, length)[first - length + 1 :].tobytes()


def test_statistics_do_not_drift_and_hold_after_huge_numbers() -> None:
    rows = np.random.default_rng(0).normal(size=(9_000, 2)) + 1e7
    rows[5000] = 1e15
    np.testing.assert_allclose(measured(rows, 64)[6000:, 2:4], statistics(rows[6000:], 64)[:, 2:4], rtol=1e-7)
    assert (measured(np.full((500, 1), 0.1), 32)[:, 1:] == 0.0).all()


def faulty_rows(n: int = 900) -> Array:
    """Return rows whose second feature spreads for a while, and one odd row."""
    rows = normal_rows(n)
    rows[700:760, 1] *= 0.05
    rows[600, 0] += 9.0
    return rows


def watching(**given: Any) -> Monitor:
    model = small_model(noise_variance=None, **given.pop("model", {}))
    return Monitor(model, **{"lags": 2, "windows": WINDOWS, **given})


@given(st.lists(st.integers(1, 899), max_size=4).map(sorted))
@settings(max_examples=3)
def test_answers_do_not_depend_on_cuts(cuts: list[int]) -> None:
    expected, found = WHOLE, watching(smoothing=0.3)
    assert_same_records(updated(found, faulty_rows(), cuts), expected[1])
    assert found.to_bytes() == expected[0].to_bytes()
    assert found.events_ == expected[0].events_


def whole() -> tuple[Monitor, Any]:
    monitor = watching(smoothing=0.3)
    return monitor, monitor.update(faulty_rows())


WHOLE = whole()


@pytest.mark.parametrize("learn", ["normal", "all"])
def test_monitors_go_on_as_if_never_stopped(learn: str) -> None:
    rows = faulty_rows()
    rows[690:, 2] += 15.0
    rows[[90, 500]] = np.nan
    rows[::60, 0] = np.nan
    times = np.arange(900.0) + 50.0 * (np.arange(900) >= 555)
    given: dict[str, Any] = {"learn": learn, "lags": 2, "accept_after": 60, "max_gap": 5.0}
    never, stopped = (watching(model={"on_missing": "marginal"}, **given) for _ in range(2))
    for start, stop in zip([0, 550, 707], [550, 707, 900], strict=True):
        expected = never.update(rows[start:stop], time=times[start:stop])
        stopped = Monitor.from_bytes(stopped.to_bytes())
        assert_same_records(stopped.update(rows[start:stop], time=times[start:stop]), expected)
    assert stopped.to_bytes() == never.to_bytes()
    assert stopped.events_ == never.events_
    if learn == "normal":
        assert never.change_detected_ is not None
        assert never.change_detected_.features[0].feature == 2


def test_windows_find_what_no_row_shows_and_name_feature_and_statistic() -> None:
    rows = np.random.default_rng(1).normal(size=(4000, 3))
    rows[3400:3500, 1] *= 0.05
    kernel = RBF("spread").in_units("auto")
    models = [StreamingKernelPCA(kernel=kernel, max_atoms=64, noise_variance=None) for _ in range(2)]
    monitor, plain = Monitor(models[0], windows=[16, 64], smoothing=0.1), Monitor(models[1], smoothing=0.1)
    found, without = monitor.update(rows), plain.update(rows)
    assert found.is_alarm[3400:3500].mean() > 0.3 > 0.05 > without.is_alarm[3400:3500].mean()
    # Before 512 rows are learned, rows alone count.
    assert found.novelty[:512].tobytes() == without.novelty[:512].tobytes()
    assert found.is_alarm[1500:3400].mean() < 0.03
    # The windows have passed, and what is smoothed with them.
    assert found.is_alarm[3600:3800].mean() < 0.05
    event = max((e for e in monitor.events_ if 3400 <= e.start < 3500), key=lambda e: e.n_alarms)
    cause = event.features[0]
    assert cause.feature == 1
    assert cause.statistic.partition(" over ")[0] in ("standard deviation", "range")
    assert cause.direction == "below"
    assert cause.name in [f"{s} of 1 over {w} rows" for s in ("standard deviation", "range") for w in (16, 64)]
    assert monitor.events_frame()["feature"].isin([cause.name]).any()


def test_rare_rows_stay_out_of_windows() -> None:
    windows = Windows((4,), small_model())
    state = windows.begin(1)
    state.scales[0] = [0.0, 1.0, 100.0]
    rows = np.arange(12.0)[:, None]
    novelty = np.where(np.isin(np.arange(12), [5, 6]), 1e9, 0.0)
    stacked, _, after = windows.followed(state, rows, rows, novelty)
    found = stacked[:, 1:]
    both = Windows((1, 4), small_model())
    short, _, _ = both.followed(state._replace(scales=np.full((3, 3), np.nan)), rows, rows, np.zeros(12))
    np.testing.assert_array_equal(short[:, 1:2], rows)
    assert np.isnan(short[:3, 2:]).all()
    assert np.isnan(found[[0, 1, 2, 5, 6]]).all()
    np.testing.assert_allclose(found[7], [(2 + 3 + 4 + 7) / 4, np.std([2, 3, 4, 7]), 5.0])
    assert after.n_kept == 10
    assert state.n_kept == 0


@given(st.floats(-300, 300), st.floats(0.1, 3), st.floats(1, 10), st.lists(st.floats(-20, 600), min_size=2, max_size=9))
def test_rarity_rises_with_the_score_and_can_be_undone(
    upper: float, slope: float, index: float, logs: list[float]
) -> None:
    scale, ordered = np.array([upper, slope, index]), np.sort(logs)
    rarity = _rarity(np.exp(ordered), scale)
    assert (rarity >= 0.0).all()
    assert (np.diff(rarity) >= 0.0).all()
    at_upper = _rarity(np.exp([max(upper, -20.0)]), scale)[0]
    assert upper < -20.0 or at_upper == pytest.approx(-np.log(0.15))
    back = np.log(_as_rare(rarity, scale))
    ordinary = (rarity > 1e-6) & (ordered < 290.0)
    np.testing.assert_allclose(back[ordinary], ordered[ordinary], rtol=1e-6, atol=1e-6)


def test_scores_are_shares_of_healthy_rows_over_all_models() -> None:
    rows, monitor = normal_rows(1500), watching()
    record = monitor.update(rows)
    assert (record.novelty[-200:] >= 1.0).all()
    state, scorer = monitor._state, monitor._scorer
    assert state is not None
    windows, scales, own = scorer.windows, state.windows.scales, np.concatenate([rows[-1:], rows[-2:-1]], axis=1)
    stacked, found, _ = windows.followed(state.windows, rows[-1:], own, scorer.novelty(own))
    rarity = windows.rarities(scorer.novelty(own), stacked[:, own.shape[1] :], scales)
    assert np.isfinite(rarity).all()
    expected = np.exp(np.sqrt((rarity**2).mean()) / 4)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(windows.combined(scorer.novelty(own), None, scales), np.exp(rarity[0] / 4), rtol=1e-12)
    level = windows.level(1, float(expected), scales)
    np.testing.assert_allclose(_rarity(np.array([level]), scales[1]), 4 * np.log(expected))


def test_scores_stay_rarities_through_a_lasting_change() -> None:
    rows = normal_rows(1400)
    rows[900:] += 6.0
    monitor = watching(accept_after=60)
    record = monitor.update(rows)
    assert monitor.change_detected_ is not None
    assert monitor.change_detected_.is_accepted
    assert (record.novelty[800:] >= 1.0).all()
    assert record.is_alarm[900:960].all()
    assert record.is_alarm[1300:].mean() < 0.1


def test_gaps_begin_windows_anew() -> None:
    windows = Windows((4,), small_model())
    rows = np.arange(9.0)[:, None]
    _, _, state = windows.followed(windows.begin(1), rows, rows, np.zeros(9))
    stacked, _, _ = windows.followed(state.cleared(), rows, rows, np.zeros(9))
    assert np.isnan(stacked[:3, 1:]).all()
    np.testing.assert_allclose(stacked[3:, 1], np.arange(6) + 1.5)
    monitor = watching(max_gap=1.0)
    monitor.update(normal_rows(40), time=np.arange(40.0))
    assert monitor._state is not None
    monitor.update(normal_rows(3), time=[60.0, 61.0, 62.0])
    assert monitor._state.windows.n_kept == 3
    assert monitor.reset_context()._state.windows.n_kept == 0


def test_short_streams_are_scored_by_their_rows() -> None:
    rows = normal_rows(300)
    long, plain = Monitor(small_model(), windows=(16, 4000)), Monitor(small_model())
    assert_same_records(long.update(rows), plain.update(rows))


def test_windows_go_with_periods_lags_and_contracts() -> None:
    given: dict[str, Any] = {"model": {"kernel": RBF("median")}, "lags": 2, "period": 24, "false_alarms": 0.01}
    one, other = watching(**given), watching(**given)
    rows = faulty_rows(700)
    assert_same_records(updated(one, rows, [100, 101, 640]), other.update(rows))
    restored = Monitor.from_bytes(one.to_bytes())
    assert restored.to_bytes() == other.to_bytes()
    assert_same_records(restored.update(rows[:50]), other.update(rows[:50]))


def test_refused_calls_change_nothing() -> None:
    monitor = watching()
    monitor.update(normal_rows(500))
    before = monitor.to_bytes()
    rows = normal_rows(300)
    rows[290] = np.nan
    with pytest.raises(ValueError, match=r"Monitor\.update"):
        monitor.update(rows)
    assert monitor.to_bytes() == before


@pytest.mark.parametrize(
    ("windows", "error", "message"),
    [
        (16, TypeError, r"expected windows to be 'auto' or lengths in rows, such as \(16, 64\), got 16"),
        ("long", TypeError, "got 'long'"),
        ((0, 16), ValueError, "a length of windows"),
        ((1, 16), ValueError, r"of 4 rows or more, or shorter than lags=1, but got \[1, 16\]; set lags=3"),
        ((2.5,), TypeError, "a length of windows"),
        ((5000,), ValueError, "a length of windows"),
        ((16, 16), ValueError, r"at most 8 different lengths of windows but got \[16, 16\]"),
        (range(2, 11), ValueError, "at most 8 different lengths"),
    ],
)
def test_bad_lengths_are_refused(windows: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Monitor(windows=windows)


def test_windows_that_would_never_learn_are_refused() -> None:
    monitor = Monitor(small_model().partial_fit(normal_rows(100)), windows=(4,), learn="none")
    with pytest.raises(ValueError, match="begin with learn='normal'"):
        monitor.update(normal_rows(10))
    monitor.learn = "normal"
    monitor.update(normal_rows(10))


def test_lengths_are_sorted_fixed_and_optional() -> None:
    assert Monitor(windows=[64, 16]).windows == Monitor(windows=(16, 64)).windows == (16, 64)
    assert Monitor(windows=()).windows is None
    with pytest.raises(AttributeError, match="windows cannot change"):
        Monitor(windows=(4,)).windows = (8,)


def test_damaged_files_are_refused() -> None:
    monitor = watching()
    monitor.update(normal_rows(400))
    good = monitor._record()
    other = Windows(WINDOWS, small_model(on_missing="marginal")).record()
    wrong = [{"windows": good["windows"][:1]}, {"windows": other}, {"windows": "x"}]
    wrong.append({"parameters": {**good["parameters"], "windows": None}})
    wrong.append({"state": {**good["state"], "windows.scales": np.zeros((2, 3))}})
    wrong.append({"state": {**good["state"], "windows.n_kept": -1}})
    for change in wrong:
        with pytest.raises(CheckpointError):
            Monitor.from_bytes(monitor.model.to_bytes({"monitor": {**good, **change}, "extra": None}))


@pytest.mark.parametrize("n_before", [0, 400])
def test_parameters_of_the_model_may_be_set_before_and_during_the_stream(n_before: int) -> None:
    rows, monitor = normal_rows(1200), watching()
    if n_before:
        monitor.update(rows[:n_before])
    monitor.model.set_params(max_atoms=8, n_components=1)
    loaded = Monitor.from_bytes(monitor.to_bytes())
    assert_same_records(loaded.update(rows[n_before:]), monitor.update(rows[n_before:]))
    assert loaded.to_bytes() == monitor.to_bytes() == Monitor.from_bytes(monitor.to_bytes()).to_bytes()


def test_rows_may_be_declared_to_have_gaps_before_the_first_one() -> None:
    rows, monitor = normal_rows(800), watching()
    rows[100:300:7, 0] = np.nan
    monitor.model.set_params(on_missing="marginal")
    monitor.update(rows)
    assert Monitor.from_bytes(monitor.to_bytes()).to_bytes() == monitor.to_bytes()


def test_the_rarest_scores_stay_finite_over_any_threshold() -> None:
    assert np.isfinite(_as_rare(np.array([1e9]), np.array([0.0, 5.0, 1.0])) / 1e-150).all()
