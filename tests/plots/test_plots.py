"""Pictures are drawn from the data passed, on the Axes given, and never on those of pyplot."""

import sys

import matplotlib.colors
import matplotlib.style
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from streamkpca import plots

RNG = np.random.default_rng(0)


def pixels(axes):
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


# The kind of each picture, its data and its options.
PICTURES = {
    "novelty": ("novelty", np.r_[np.nan, RNG.random(99)], {"threshold": 0.9, "labels": RNG.integers(0, 3, 100)}),
    "novelty of atoms": (
        "novelty",
        np.where(np.arange(200) % 10 == 0, 1e-16, 0.1 + 0.05 * np.sin(np.arange(200.0) / 9)),
        {"threshold": np.where(np.arange(200) < 100, 0.13, np.inf), "labels": np.arange(200) // 190},
    ),
    "novelty, many": (
        "novelty",
        RNG.random(50_000),
        {"name": "SPE", "threshold": np.full(50_000, 0.99), "time": np.arange(50_000) * 60},
    ),
}


def drawn(name, axes):
    kind, values, options = PICTURES[name]
    return getattr(plots, f"draw_{kind}")(values, **options, ax=axes)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_on_the_axes_given_or_on_new_ones_without_pyplot(name):
    axes = Figure().add_subplot()
    blank = pixels(axes).copy()
    assert drawn(name, axes) is axes
    assert (pixels(axes) != blank).any(axis=2).mean() > 0.02
    assert axes.get_title()
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert isinstance(drawn(name, None).figure, Figure)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_alarms_are_rows_above_the_threshold():
    axes = plots.draw_novelty([0.1, 0.9, 0.2, 0.8], threshold=[0.5, 0.5, 0.1, 0.9])
    (alarms,) = [line for line in axes.lines if line.get_label() == "alarm"]
    assert alarms.get_xdata().tolist() == [1, 2]


def test_a_single_row_and_its_threshold_are_marks():
    score, level = plots.draw_novelty([0.5], threshold=2.0).lines
    assert (score.get_marker(), level.get_marker()) == (".", "_")
    assert {line.get_marker() for line in plots.draw_novelty([0.5, 0.4], threshold=2.0).lines} <= {"", "None"}


def test_values_between_gaps_are_marks():
    axes = plots.draw_novelty([1.0, np.nan, 2.0, np.nan, 3.0, 4.0])
    (line,) = [one for one in axes.lines if len(one.get_xdata()) == 6]
    assert (line.get_marker(), list(line.get_markevery())) == (".", [0, 2])


def test_no_peak_is_lost_in_a_long_series():
    scores = np.full(100_000, 0.01)
    scores[77_777] = 5.0
    for labels in (None, np.ones(100_000)):
        assert pixels(axes := plots.draw_novelty(scores, labels=labels)).any()
        assert axes.get_ylim()[1] >= 5.0


def test_scores_of_atoms_do_not_squeeze_the_others():
    scores = np.array([1e-16, 0.1, 0.2, 0.3, 0.0, np.nan])
    axes = plots.draw_novelty(scores)
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), [1.5e-5, 0.1, 0.2, 0.3, 1.5e-5, np.nan])
    assert axes.get_ylabel() == "novelty, at least 1.5e-05"
    assert plots.draw_novelty(scores[1:4]).get_ylabel() == "novelty"


EMPTY_OR_ODD = {
    "novelty of nothing": lambda: plots.draw_novelty([], threshold=0.5, labels=[]),
    "novelty of zeros": lambda: plots.draw_novelty(np.zeros(10)),
    "novelty unknown": lambda: plots.draw_novelty([np.nan], threshold=[np.inf]),
    "novelty without end": lambda: plots.draw_novelty([np.inf, -1.0, 1.0], threshold=0.0),
}


@pytest.mark.parametrize("name", EMPTY_OR_ODD)
def test_empty_and_odd_data_give_a_picture(name):
    axes = EMPTY_OR_ODD[name]()
    assert np.isfinite([axes.get_xlim(), axes.get_ylim()]).all()
    assert len(np.unique(pixels(axes).reshape(-1, 4), axis=0)) > 1


REFUSED = [
    ("novelty", ([[1.0, 2.0]],), {}, r"expected one score for each row but got .* \(1, 2\)"),
    ("novelty", ([1.0, 2.0],), {"time": [1]}, r"expected 2 times but got .* \(1,\)"),
    ("novelty", ([1.0, 2.0],), {"labels": [1]}, r"expected 2 labels but got .* \(1,\)"),
    ("novelty", ([1.0],), {"threshold": [1.0, 2.0]}, "expected 1 thresholds but got"),
    ("novelty", ([0.1, 0.2],), {"labels": [0, np.nan]}, "expected numbers as labels but got NaN or infinity"),
]


@pytest.mark.parametrize(("name", "values", "options", "message"), REFUSED)
def test_data_that_cannot_be_drawn_are_refused_and_nothing_is_drawn(name, values, options, message):
    axes = Figure().add_subplot()
    with pytest.raises(ValueError, match=f"draw_{name}:? .*{message}|draw_{name}:? {message}"):
        getattr(plots, f"draw_{name}")(*values, **options, ax=axes)
    assert not axes.has_data()


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "streamkpca\[plots\]"'):
        plots.draw_novelty([1.0])


def contrast_of(color, background):
    """Return the contrast of two colours by the definition of WCAG 2, from 1 to 21."""

    def luminance(name):
        parts = np.array(matplotlib.colors.to_rgb(name))
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(color), luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("style", ["default", "dark_background", "Solarize_Light2"])
def test_text_and_lines_show_on_any_background(style):
    for name in ("novelty of atoms", "novelty"):
        with matplotlib.style.context(style):
            axes = Figure().add_subplot()
            drawn(name, axes)
        shown = [text.get_color() for text in axes.texts] + [line.get_color() for line in axes.lines]
        assert shown
        # Graphics need a contrast of 3; colours of the data are chosen for white, and a little paler on cream.
        assert min(contrast_of(color, axes.get_facecolor()) for color in shown if color != "none") >= 2.5
