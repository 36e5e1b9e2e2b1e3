"""A monitor, its model and its events are drawn as they are, over times of any kind; notebooks show each picture."""

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from streamkpca import StreamingKernelPCA, plots
from streamkpca.monitoring import Cause, Change, Event, Monitor

pytest.importorskip("matplotlib", reason="pictures; needs the extra plots")
RANDOM = np.random.default_rng(0)
ROWS = np.repeat(RANDOM.normal(size=(1500, 2)), 2, axis=1) + 0.1 * RANDOM.normal(size=(1500, 4))
ROWS[1200:1230, 3] += 3.0


@pytest.fixture(scope="module")
def monitor():
    watched = Monitor()
    watched.update(ROWS[:1000])
    watched.update(ROWS[1000:])
    return watched


def worst(monitor):
    return max(monitor.events_, key=lambda event: event.severity)


def test_a_monitor_is_drawn_by_its_last_answers(monitor):
    axes = plots.draw_novelty(monitor)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), monitor.record_.rarity)
    spans = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches]
    # Rows count from the first of the stream, as those of its events do.
    assert any(abs(span.x0 - 1200.0) < 1.0 and abs(span.x1 - 1229.0) < 3.0 for span in spans)
    with pytest.raises(AttributeError, match="files do not hold it"):
        plots.draw_novelty(Monitor.from_bytes(monitor.to_bytes()))


def test_an_event_is_drawn_with_what_was_expected(monitor):
    event = worst(monitor)
    figure = plots.draw_event(monitor, event, ROWS[1100:], first=1100)
    axes = figure.axes[0]
    expected, value = (line.get_ydata() for line in axes.lines)
    rows = axes.lines[0].get_xdata()
    during = (rows >= 1200) & (rows < 1230)
    assert axes.get_ylabel() == "feature 3"
    np.testing.assert_array_equal(value, ROWS[rows, 3])
    # The healthy value of both sensors of a pair differs by noise of .1 each.
    assert np.abs(expected - (value - 3.0 * during)).mean() < 0.4
    assert plots.draw_event(monitor, event, ROWS, time=np.arange(1500) / 60).axes[0].get_xlabel() == "time"


def test_features_have_one_panel_each_and_long_names_fit_beside_it():
    names = ["north.compressor_2.bearing_temperature $x^$", "flow"]
    rows = pd.DataFrame(ROWS[:, 2:], columns=names)
    times = np.datetime64("2026-03-01") + np.arange(1500) * np.timedelta64(1, "s")
    monitor = Monitor()
    monitor.update(rows, time=times)
    event = worst(monitor)
    causes = (event.features[0]._replace(feature=names[0]),)
    figure = plots.draw_event(monitor, replace(event, features=causes), rows, time=times)
    figure.savefig(io.BytesIO())
    assert len(figure.axes) == 1
    label = figure.axes[0].yaxis.label.get_window_extent()
    assert label.height < 1.1 * figure.axes[0].get_window_extent().height
    assert figure.axes[0].get_xlabel().startswith("time, from 2026-03-01 00:")


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS[:1210], {}, "expected the rows of the event"),
        (ROWS, {"first": 1300}, "expected the rows of the event"),
        (ROWS, {"time": [0.0]}, "expected 1500 times"),
        (ROWS, {"n_features": 0}, "n_features"),
        (ROWS[:, :3], {}, "expected the 4 features of the monitor but got 3; pass its rows"),
    ],
)
def test_rows_that_are_not_those_of_an_event_are_refused(monitor, rows, options, message):
    with pytest.raises(ValueError, match=message):
        plots.draw_event(monitor, worst(monitor), rows, **options)


def test_notebooks_show_pictures_as_the_last_line_of_a_cell(monitor):
    for drawn in (plots.draw_novelty(monitor), plots.draw_event(monitor, worst(monitor), ROWS)):
        assert drawn._repr_png_().startswith(b"\x89PNG")


N = 60
SCORES = np.r_[np.nan, np.inf, np.random.default_rng(0).random(N - 2) + 0.1]
HOURS = np.datetime64("2026-03-28T00", "s") + np.arange(N) * np.timedelta64(1, "h")
TIMES = {
    "positions": None,
    "numbers": np.arange(N) * 60.0,
    "dates": HOURS,
    "a date that is missing": np.r_[np.datetime64("NaT", "s"), HOURS[1:]],
    "a zone whose clocks change": pd.date_range("2026-03-28", periods=N, freq="h", tz="Europe/Berlin"),
    "datetimes with a zone": [datetime(2026, 3, 28, tzinfo=UTC) + timedelta(hours=i) for i in range(N)],
}
CHANGE = Change(5, 9, 0.5, (Cause("flow $x^$", 1.0, 1.0, 2.0, 1.0, 3.0, "above", 5),), False)
EVENTS = [Event(a, b, b - a, 100.0, max(a, 0), 1.0, "place", a) for a, b in ((-3, 1), (10, 11), (50, 70))]
OPTIONS = {
    "a change and events": {"changes": [CHANGE, replace(CHANGE, start=0)], "events": EVENTS},
    "no threshold yet": {"threshold": np.inf},
    "a threshold later": {"threshold": np.where(np.arange(N) < 9, np.inf, 0.9), "alarms": np.arange(N) == 3},
    "labels of any numbers": {"labels": np.tile([0, -1, 0.5, 2], 15), "threshold": 0.9},
}


def part(value, n):
    return value if np.ndim(value) == 0 or value is None or isinstance(value[0], Event | Change) else value[:n]


@pytest.mark.parametrize("hours", [2, 10, 30, 300])
def test_dates_have_room_below_a_third_of_a_page(hours):
    figure, times = plots.make_figure(width=3.6), np.datetime64("2026-03-02T16:37", "s") + np.arange(60) * hours * 60
    axes = plots.draw_novelty(np.ones(60), time=times, ax=figure.add_subplot())
    figure.savefig(io.BytesIO())
    spans = [label.get_window_extent().intervalx for label in axes.get_xticklabels()]
    assert len(spans) > 2
    assert all(one[1] < after[0] for one, after in pairwise(spans))


@pytest.mark.parametrize("n", [1, N])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("times", TIMES)
def test_scores_are_drawn_over_times_of_any_kind(times, options, n):
    shown = {name: part(value, n) for name, value in OPTIONS[options].items()}
    axes = plots.draw_novelty(SCORES[-n:], time=part(TIMES[times], n), **shown)
    axes.figure.savefig(io.BytesIO())
    assert np.isfinite([axes.get_xlim(), axes.get_ylim()]).all()
    marks = [line for line in axes.lines if line.get_label() == "lasting change"]
    assert len(marks) == (options == "a change and events")
    if options == "a change and events":
        assert axes.texts[0].get_text() == "change: flow $x^$"
        assert len(axes.patches) == (3 if n == N else 1)


@pytest.mark.parametrize("times", TIMES)
def test_an_event_of_one_row_is_drawn_over_times_of_any_kind(times):
    monitor, rows = Monitor(), np.random.default_rng(2).normal(size=(300 + N, 3))
    monitor.model.set_params(missing="marginal")
    rows[310] += 9.0
    rows[305, 1] = np.nan
    monitor.update(rows)
    event = worst(monitor)
    whole = plots.draw_event(monitor, event, rows[300:], first=300, time=TIMES[times], names=["a", "b", "c"])
    whole.savefig(io.BytesIO())
    assert {axes.get_ylabel() for axes in whole.axes} <= {"a", "b", "c"}
    assert all(len(axes.patches) == 1 for axes in whole.axes)
    rows_alone = rows[event.start : event.end]
    time = None if TIMES[times] is None else TIMES[times][event.start - 300 : event.end - 300]
    plots.draw_event(monitor, event, rows_alone, first=event.start, time=time).savefig(io.BytesIO())


def test_rows_whose_label_is_any_number_but_0_are_drawn_as_anomalies_and_named_by_it():
    scores = np.arange(1.0, 6.0)
    axes = plots.draw_novelty(scores, labels=[0, -1, 0.5, 1, 0])
    healthy = axes.lines[0].get_ydata()
    np.testing.assert_array_equal(healthy, [1.0, np.nan, np.nan, np.nan, 5.0])
    found = {dots.get_label(): dots.get_offsets()[:, 1].tolist() for dots in axes.collections}
    assert found == {"-1": [2.0], "0.5": [3.0], "anomalous": [4.0]}


def test_a_long_event_is_drawn_by_some_of_its_rows():
    monitor, rows = (
        Monitor(learn="none", model=StreamingKernelPCA(max_atoms=20).partial_fit(ROWS)),
        np.tile(ROWS, (6, 1)),
    )
    rows[1000:8000, 2] += 9.0
    monitor.update(rows)
    figure = plots.draw_event(monitor, worst(monitor), rows)
    assert len(figure.axes[0].lines[0].get_xdata()) <= 6000


def test_times_that_are_neither_numbers_nor_dates_are_refused():
    with pytest.raises(TypeError, match="draw_novelty: expected times as numbers or dates but got <U"):
        plots.draw_novelty([1.0], time=["noon"])
