"""A monitor, its model and its events are drawn as they are, and notebooks show each picture."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from streamkpca import StreamingKernelPCA, plots
from streamkpca.monitoring import Monitor

pytest.importorskip("matplotlib", reason="pictures; needs the extra plots")
RANDOM = np.random.default_rng(0)
ROWS = np.repeat(RANDOM.normal(size=(1500, 2)), 2, axis=1) + 0.1 * RANDOM.normal(size=(1500, 4))
ROWS[1200:1230, 3] += 3.0


@pytest.fixture(scope="module", params=[1, 2], ids=["rows", "lags"])
def monitor(request):
    watched = Monitor(lags=request.param)
    watched.update(ROWS[:1000])
    watched.update(ROWS[1000:])
    return watched


def worst(monitor):
    return max(monitor.events_, key=lambda event: event.severity)


def test_a_monitor_is_drawn_by_its_last_answers(monitor):
    axes = plots.draw_novelty(monitor)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), monitor.record_.rarity)
    spans = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches]
    # Of the rows since 1,000.
    assert any(abs(span.x0 - 200.0) < 1.0 and abs(span.x1 - 229.0) < 3.0 for span in spans)
    with pytest.raises(AttributeError, match="files do not hold it"):
        plots.draw_novelty(Monitor.from_bytes(monitor.to_bytes()))


def test_a_model_is_drawn_with_its_shares_and_bounds(monitor):
    axes = plots.draw_spectrum(monitor.model)
    assert len(axes.patches) == len(monitor.model.eigenvalues_)
    assert "share explained" in axes.get_title()
    with pytest.raises(AttributeError, match="eigenvalues_"):
        plots.draw_spectrum(StreamingKernelPCA())


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
    assert "2026-Mar-01" in figure.axes[0].xaxis.get_offset_text().get_text()


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
