"""Pictures: drawn on the Axes given, on none of pyplot's, from what was passed."""

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from streamkpca import plots


def pixels(axes):
    canvas_figure = axes.figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(canvas_figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


RNG = np.random.default_rng(0)
PICTURES = {
    "spectrum": lambda ax: plots.draw_spectrum([3.0, 2.0, 0.5], explained=[0.5, 0.3, 0.1], ax=ax),
    "projections by row": lambda ax: plots.draw_projections(RNG.normal(size=(200, 3)), components=(0, 2), ax=ax),
    "projections by group": lambda ax: plots.draw_projections(
        RNG.normal(size=(200, 2)), groups=RNG.integers(0, 12, 200), ax=ax
    ),
    "projections, many": lambda ax: plots.draw_projections(
        RNG.normal(size=(20_000, 2)), color=RNG.normal(size=20_000), highlight=RNG.random(20_000) < 0.5, ax=ax
    ),
    "novelty": lambda ax: plots.draw_novelty(
        np.r_[np.nan, RNG.random(99)], threshold=0.9, labels=RNG.integers(0, 3, 100), ax=ax
    ),
    "novelty, many": lambda ax: plots.draw_novelty(
        RNG.random(50_000), threshold=np.full(50_000, 0.99), time=np.arange(50_000) * 60, ax=ax
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_on_the_axes_given(name):
    axes = Figure().add_subplot()
    blank = pixels(axes).copy()
    assert PICTURES[name](axes) is axes
    changed = (pixels(axes) != blank).any(axis=2).mean()
    assert changed > 0.02
    assert axes.get_title()
    assert axes.get_xlabel()
    assert axes.get_ylabel()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_makes_its_own_axes_and_no_global_figure(name):
    axes = PICTURES[name](None)
    assert isinstance(axes.figure, Figure)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_the_spectrum_shows_variances_and_what_they_explain_together():
    axes = plots.draw_spectrum([3.0, 1.0], explained=[0.6, 0.2])
    assert [bar.get_height() for bar in axes.patches] == [3.0, 1.0]
    assert [text.get_text() for text in axes.texts] == ["60%", "80%"]


def test_alarms_are_rows_above_the_threshold():
    axes = plots.draw_novelty([0.1, 0.9, 0.2, 0.8], threshold=[0.5, 0.5, 0.1, 0.9])
    (alarms,) = [line for line in axes.lines if line.get_label() == "alarm"]
    assert alarms.get_xdata().tolist() == [1, 2]


def test_no_peak_is_lost_in_a_long_series():
    scores = np.full(100_000, 0.01)
    scores[77_777] = 5.0
    axes = plots.draw_novelty(scores)
    assert axes.dataLim.ymax >= 5.0


def test_a_score_of_zero_or_none_does_not_break_the_logarithm():
    axes = plots.draw_novelty(np.zeros(10))
    assert np.isfinite(axes.get_ylim()).all()
    assert np.isfinite(plots.draw_novelty([np.nan, 0.0, 1.0]).get_ylim()).all()


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "streamkpca\[plots\]"'):
        plots.draw_spectrum([1.0])
