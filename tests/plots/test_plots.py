"""Pictures are drawn from the data passed, on the Axes given, and never on those of pyplot."""

import functools
import sys
from pathlib import Path

import matplotlib.colors
import matplotlib.style
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images

from streamkpca import StreamingKernelPCA, plots
from streamkpca.kernels import RBF, Linear, Matern

BASELINES = Path(__file__).parents[1] / "baseline_images"


def pixels(axes):
    canvas_figure = axes.figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(canvas_figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


RNG = np.random.default_rng(0)
ROWS = np.random.default_rng(1).normal([0.0, 2.0], size=(400, 2))


@functools.cache
def model():
    """Fit two features, the second of which depends on the square of the first."""
    rows = ROWS.copy()
    rows[:, 1] += rows[:, 0] ** 2
    return StreamingKernelPCA(3, kernel=RBF(0.2), max_atoms=20, block_size=64).partial_fit(rows)


@functools.cache
def drifting():
    """Count rows, and make up the rows of atoms that are replaced while a stream drifts.

    A model's own choice between candidates of nearly equal gain depends on rounding, and so on the processor.
    """
    rng = np.random.default_rng(2)
    counts, atom_rows = list(range(100, 2100, 100)), []
    present = rng.choice(100, size=12, replace=False)
    for count in counts:
        leaving = rng.choice(12, size=min(3, count // 400), replace=False)
        present = np.append(np.delete(present, leaving), rng.integers(count - 100, count, len(leaving)))
        atom_rows.append(present)
    return counts, atom_rows


PICTURES = {
    "spectrum with bounds": lambda ax: plots.draw_spectrum(
        model().eigenvalues_, explained=model().explained_variance_ratio_, bounds=model().eigenvalue_bounds_, ax=ax
    ),
    "atoms as images": lambda ax: plots.draw_atoms(
        np.random.default_rng(3).random((30, 16)), weights=np.arange(30) % 7, shape=(4, 4), most=12, ax=ax
    ),
    "atoms as lines": lambda ax: plots.draw_atoms(np.random.default_rng(3).random((30, 16)), ax=ax),
    "contours of a component": lambda ax: plots.draw_contours(model(), ROWS, component=0, ax=ax),
    "contours of the error": lambda ax: plots.draw_contours(model(), ROWS, ax=ax),
    "contours of a function": lambda ax: plots.draw_contours(lambda rows: rows[:, 0] * rows[:, 1], ROWS, ax=ax),
    "contributions of a row": lambda ax: plots.draw_contributions(
        [0.1, 0.9, 0.3, 0.0], names=["load", "heat", "flow", "valve"], ax=ax
    ),
    "contributions of rows": lambda ax: plots.draw_contributions(
        np.random.default_rng(4).gamma(0.3, size=(20, 38)), n_features=8, ax=ax
    ),
    "sparsity path": lambda ax: plots.draw_sparsity_path(model().sparsity_path(), ax=ax),
    "drift of atoms": lambda ax: plots.draw_atom_drift(*drifting(), ax=ax),
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
    "novelty of atoms": lambda ax: plots.draw_novelty(
        np.where(np.arange(200) % 10 == 0, 1e-16, 0.1 + 0.05 * np.sin(np.arange(200.0) / 9)),
        threshold=np.where(np.arange(200) < 100, 0.13, np.inf),
        labels=np.arange(200) // 190,
        ax=ax,
    ),
    "contrast of widths": lambda ax: plots.draw_width_scores(
        RBF().width_scores(ROWS @ [[1.0, 2.0, 3.0], [2.0, -1.0, 1.0]]), chosen=RBF(0.03), ax=ax
    ),
    "contrast of two widths": lambda ax: plots.draw_width_scores(
        {
            "left__gamma": [[3.0, 0.6], [0.5, 0.7], [0.1, 0.9]],
            "right__length_scale": [[0.1, 0.5], [3.0, 0.75], [20.0, 0.7]],
        },
        chosen=RBF(0.5) + Matern(length_scale=3.0),
        ax=ax,
    ),
    "contours with gaps": lambda ax: plots.draw_contours(
        lambda rows: np.where(rows[:, 0] > -1.0, rows[:, 0] + rows[:, 1], np.nan), ROWS, ax=ax
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
    if name != "atoms as images":
        assert axes.get_xlabel()
        assert axes.get_ylabel()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_makes_its_own_axes_and_no_global_figure(name):
    axes = PICTURES[name](None)
    assert isinstance(axes.figure, Figure)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_the_spectrum_shows_variances_and_the_share_explained_so_far():
    axes = plots.draw_spectrum([3.0, 1.0], explained=[0.6, 0.2])
    assert [bar.get_height() for bar in axes.patches] == [3.0, 1.0]
    assert [text.get_text() for text in axes.texts] == ["60%", "80%"]


def test_alarms_are_rows_above_the_threshold():
    axes = plots.draw_novelty([0.1, 0.9, 0.2, 0.8], threshold=[0.5, 0.5, 0.1, 0.9])
    (alarms,) = [line for line in axes.lines if line.get_label() == "alarm"]
    assert alarms.get_xdata().tolist() == [1, 2]


def test_the_largest_contributions_come_first_with_their_shares():
    axes = plots.draw_contributions([[0.0, 3.0, 1.0, 0.0], [0.0, 5.0, 1.0, 0.0]], n_features=1, names="abcd")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "3 others"]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [4.0, 1.0])
    assert [text.get_text() for text in axes.texts] == ["80%", "20%"]
    assert axes.yaxis_inverted()


def test_one_feature_more_is_drawn_rather_than_a_bar_of_one_other():
    axes = plots.draw_contributions([1.0, 2.0, 3.0], n_features=2)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2", "1", "0"]


def charts(axes=None, n=300):
    t2, spe = RNG.gamma(1.0, 2.0, size=n), RNG.gamma(2.0, 0.1, size=n)
    t2[n // 2 :: 3] *= 10.0
    labels = np.arange(n) >= n // 2
    return plots.draw_control_chart(t2, spe, limits=(12.0, 0.8), labels=labels, axes=axes)


def test_control_charts_have_two_panels_with_their_limits():
    upper, lower = charts()
    assert upper.figure is lower.figure
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("$T^2$", "SPE")
    assert (upper.get_xlabel(), lower.get_xlabel()) == ("", "row")
    for panel, limit in ((upper, 12.0), (lower, 0.8)):
        (line,) = [line for line in panel.lines if line.get_label() == "threshold"]
        assert set(line.get_ydata()) == {limit}
    assert upper.get_legend() is None
    assert lower.get_legend() is not None
    assert upper.get_shared_x_axes().joined(upper, lower)


def test_control_charts_are_drawn_on_the_axes_given():
    panels = Figure().subplots(1, 2)
    before = pixels(panels[0]).copy()
    assert charts(panels) == tuple(panels)
    assert (pixels(panels[0]) != before).any(axis=2).mean() > 0.02


def test_control_charts_need_no_limits():
    upper, lower = plots.draw_control_chart([1.0, 2.0], [0.0, 0.1])
    assert not [line for line in upper.lines if line.get_label() == "threshold"]
    assert lower.get_legend() is None


def test_wide_kernels_are_on_the_right_and_the_width_in_use_is_marked():
    axes = plots.draw_width_scores({"gamma": [[4.0, 0.6], [1.0, 0.7], [0.25, 0.9]]}, chosen=RBF(0.5))
    curve, line, mark, chance = axes.lines
    assert curve.get_xdata().tolist() == [0.25, 1.0, 4.0]
    assert curve.get_ydata().tolist() == [0.6, 0.7, 0.9]
    assert line.get_xdata()[0] == mark.get_xdata()[0] == 2.0
    # Half-way between two of the widths that were compared.
    assert mark.get_ydata()[0] == pytest.approx(0.8)
    assert chance.get_ydata()[0] == 0.5
    assert axes.get_xlabel() == "1 / gamma"
    assert axes.get_legend() is None
    lengths = plots.draw_width_scores({"left__length_scale": [[4.0, 0.6], [1.0, 0.7]]})
    assert lengths.lines[0].get_xdata().tolist() == [1.0, 4.0]
    assert lengths.get_xlabel() == "length scale"
    assert len(lengths.lines) == 2


def test_scores_that_are_none_are_refused():
    with pytest.raises(ValueError, match="draw_width_scores expected scores of at least one width but got none"):
        plots.draw_width_scores(Linear().width_scores(ROWS))
    with pytest.raises(ValueError, match=r"expected pairs of a width and an area for 'gamma' but got shape \(3,\)"):
        plots.draw_width_scores({"gamma": [1.0, 2.0, 3.0]})
    for bad in ([0.0, 0.5], [np.inf, 0.5], [1.0, 1.5], [1.0, np.nan]):
        with pytest.raises(ValueError, match="expected widths above 0 and areas between 0 and 1 for 'gamma'"):
            plots.draw_width_scores({"gamma": [bad]})
    for other in (RBF(), Matern(length_scale=1.0)):
        with pytest.raises(ValueError, match=r"expected a kernel whose 'gamma' is a number but got .*pass the kernel_"):
            plots.draw_width_scores({"gamma": [[1.0, 0.5]]}, chosen=other)


def test_no_peak_is_lost_in_a_long_series():
    scores = np.full(100_000, 0.01)
    scores[77_777] = 5.0
    axes = plots.draw_novelty(scores)
    assert axes.dataLim.ymax >= 5.0


def test_zero_and_missing_scores_do_not_break_the_logarithmic_scale():
    axes = plots.draw_novelty(np.zeros(10))
    assert np.isfinite(axes.get_ylim()).all()
    assert np.isfinite(plots.draw_novelty([np.nan, 0.0, 1.0]).get_ylim()).all()


def test_atoms_that_are_no_rows_any_more_are_left_out():
    with_moved = plots.draw_atom_drift([100, 200], [[3, -1, 50], [50, -1, -1, 120]])
    without = plots.draw_atom_drift([100, 200], [[3, 50], [50, 120]])
    assert [text.get_text() for text in with_moved.get_legend().get_texts()] == [
        text.get_text() for text in without.get_legend().get_texts()
    ]
    np.testing.assert_array_equal(pixels(with_moved), pixels(without))


def test_scores_of_atoms_do_not_squeeze_the_others():
    scores = np.array([1e-16, 0.1, 0.2, 0.3, 0.0, np.nan])
    axes = plots.draw_novelty(scores)
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), [1.5e-5, 0.1, 0.2, 0.3, 1.5e-5, np.nan])
    assert axes.get_ylabel() == "novelty, at least 1.5e-05"
    assert plots.draw_novelty(scores[1:4]).get_ylabel() == "novelty"


EMPTY_OR_ODD = {
    "novelty of nothing": lambda: plots.draw_novelty([], threshold=0.5, labels=[]),
    "novelty unknown": lambda: plots.draw_novelty([np.nan], threshold=[np.inf]),
    "novelty without end": lambda: plots.draw_novelty([np.inf, -1.0, 1.0], threshold=0.0),
    "projections of nothing": lambda: plots.draw_projections(np.empty((0, 2))),
    "projections of one row": lambda: plots.draw_projections([[1.0, 2.0]], groups=[0], highlight=[True]),
    "projections unknown": lambda: plots.draw_projections([[np.nan, 1.0], [np.inf, 2.0]], color=[np.nan, np.nan]),
    "contributions of zero": lambda: plots.draw_contributions([0.0, 0.0]),
    "contribution of one feature": lambda: plots.draw_contributions([2.0]),
    "spectrum of nothing": lambda: plots.draw_spectrum([], explained=[], bounds=np.empty((0, 2))),
    "spectrum of zeros": lambda: plots.draw_spectrum([0.0, 0.0], explained=[np.nan, np.nan]),
    "atoms all alike": lambda: plots.draw_atoms(np.ones((1, 4)), weights=[0.0], shape=(2, 2)),
    "lines without weight": lambda: plots.draw_atoms(np.ones((3, 1)), weights=np.zeros(3)),
    "contours around one row": lambda: plots.draw_contours(lambda rows: rows[:, 0], [[1.0, 2.0]]),
    "contours of a constant": lambda: plots.draw_contours(lambda rows: np.full(len(rows), -3.0), ROWS),
    "contours of nothing known": lambda: plots.draw_contours(lambda rows: np.full(len(rows), np.nan), ROWS),
    "contours without end": lambda: plots.draw_contours(
        lambda rows: np.where(rows[:, 0] > 0.0, rows[:, 0], np.inf), ROWS
    ),
    "drift of moved atoms alone": lambda: plots.draw_atom_drift([10, 20], [[-1], [-1, -1]]),
    "drift of no atoms": lambda: plots.draw_atom_drift([10, 20], [[], []]),
    "path at no noise": lambda: plots.draw_sparsity_path(model().sparsity_path([0.1]), noise_variance=0.0),
}


@pytest.mark.parametrize("name", EMPTY_OR_ODD)
def test_empty_and_odd_data_give_a_picture(name):
    axes = EMPTY_OR_ODD[name]()
    assert np.isfinite([axes.get_xlim(), axes.get_ylim()]).all()
    assert len(np.unique(pixels(axes).reshape(-1, 4), axis=0)) > 1


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.draw_novelty([[1.0, 2.0]]), r"draw_novelty expected one score for each row but got .* \(1, 2\)"),
        (lambda: plots.draw_novelty([1.0, 2.0], time=[1]), r"draw_novelty expected 2 times but got .* \(1,\)"),
        (lambda: plots.draw_novelty([1.0, 2.0], labels=[1]), r"draw_novelty expected 2 labels but got .* \(1,\)"),
        (lambda: plots.draw_novelty([1.0], threshold=[1.0, 2.0]), r"draw_novelty expected 1 thresholds but got"),
        (lambda: plots.draw_projections(np.ones((3, 1))), r"components \(0, 1\) but got an array of shape \(3, 1\)"),
        (lambda: plots.draw_projections(np.ones(3)), r"components \(0, 1\) but got an array of shape \(3,\); choose"),
        (lambda: plots.draw_projections(np.ones((3, 2)), color=[1.0]), "draw_projections expected 3 colours but got"),
        (lambda: plots.draw_projections(np.ones((3, 2)), groups=[1]), "draw_projections expected 3 groups but got"),
        (lambda: plots.draw_projections(np.ones((3, 2)), highlight=[True]), "draw_projections expected 3 marks but"),
        (
            lambda: plots.draw_projections(np.ones((2, 2)), groups=[0, 1], group_names=["a"]),
            "draw_projections expected 2 names of groups but got",
        ),
        (lambda: plots.draw_spectrum([np.inf]), r"draw_spectrum expected finite numbers, .* but got \[inf\]; pass"),
        (lambda: plots.draw_spectrum([[1.0]]), "draw_spectrum expected finite numbers, one for each axis, but got"),
        (
            lambda: plots.draw_contributions(1.0),
            r"draw_contributions expected contributions of shape \(d,\) or \(n, d\)",
        ),
        (lambda: plots.draw_contributions([]), r"draw_contributions expected contributions of shape .* but got \(0,\)"),
        (lambda: plots.draw_contributions([np.nan]), "draw_contributions expected finite numbers of at least 0; pass"),
        (lambda: plots.draw_contributions([-1.0]), "draw_contributions expected finite numbers of at least 0; pass"),
        (
            lambda: plots.draw_contributions([1.0], names="ab"),
            "draw_contributions expected 1 names of features but got",
        ),
        (lambda: plots.draw_contributions([1.0], n_features=0), "draw_contributions: n_features must be at least 1"),
        (lambda: plots.draw_control_chart([1.0], [1.0, 2.0]), "draw_control_chart expected 1 values of SPE but got"),
        (lambda: plots.draw_control_chart([1.0], [1.0], time=[1, 2]), "draw_control_chart expected 1 times but got"),
        (
            lambda: plots.draw_control_chart([1.0], [1.0], axes=[None]),
            "draw_control_chart expected 2 axes, .* but got 1",
        ),
        (lambda: plots.draw_atoms(np.eye(4), most=0), "draw_atoms: most must be at least 1, got 0"),
        (lambda: plots.draw_atoms(np.eye(4), shape=(-2, -2)), r"features for shape \(-2, -2\) but got 4"),
        (lambda: plots.draw_atoms(np.eye(4), feature_names=["a"]), "draw_atoms expected 4 names of features but got"),
        (
            lambda: plots.draw_contours(np.sum, ROWS, resolution=1),
            "draw_contours: resolution must be at least 2, got 1",
        ),
        (lambda: plots.draw_contours(np.sum, ROWS, feature_names=["a"]), "draw_contours expected 2 names of features"),
    ],
)
def test_data_that_cannot_be_drawn_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "streamkpca\[plots\]"'):
        plots.draw_spectrum([1.0])


# Pictures whose shapes depend on no font and no rounding; `python tests/plots/test_plots.py` draws the baselines anew.
COMPARED = [
    "spectrum with bounds",
    "atoms as images",
    "contours of a component",
    "contours of the error",
    "contours with gaps",
    "sparsity path",
    "drift of atoms",
    "novelty of atoms",
    "contrast of two widths",
]


def without_words(name, path):
    """Draw a picture without its text, which depends on the machine's fonts."""
    figure = Figure(figsize=(3, 2), dpi=60)
    axes = figure.add_axes((0.05, 0.05, 0.9, 0.9))
    PICTURES[name](axes)
    for part in figure.axes:
        part.set_axis_off()
        part.set_title("")
        for text in list(part.texts):
            text.remove()
        if part.get_legend():
            part.get_legend().remove()
    figure.savefig(path)


def baseline(name):
    return BASELINES / f"{name.replace(' ', '_')}.png"


@pytest.mark.parametrize("name", COMPARED)
def test_a_picture_looks_like_its_baseline(name, tmp_path):
    without_words(name, tmp_path / "now.png")
    assert compare_images(str(baseline(name)), str(tmp_path / "now.png"), tol=8) is None


def test_bounds_are_drawn_from_end_to_end():
    axes = plots.draw_spectrum([3.0, 1.0], bounds=[[2.0, 4.0], [0.5, 1.5]])
    assert axes.dataLim.ymax >= 4.0
    with pytest.raises(ValueError, match="draw_spectrum"):
        plots.draw_spectrum([3.0, 1.0], bounds=[[2.0, 4.0]])


def test_atoms_without_weight_come_last():
    axes = plots.draw_atoms(np.eye(6), weights=[0.0, 1.0, 2.0, 0.0, 3.0, 0.5], shape=(2, 3), most=4)
    assert axes.get_title() == "the 4 of largest weight, of 6 atoms (4 active)"
    with pytest.raises(ValueError, match=r"expected atoms of 8 features for shape \(2, 4\) but got 6"):
        plots.draw_atoms(np.eye(6), shape=(2, 4))


def test_contours_are_titled_by_what_they_show():
    assert "component 0" in plots.draw_contours(model(), ROWS, component=0).get_title()
    assert "error" in plots.draw_contours(model(), ROWS).get_title()
    with pytest.raises(ValueError, match="draw_contours"):
        plots.draw_contours(model(), ROWS, component=9)
    with pytest.raises(ValueError, match=r"draw_contours expected two of the features 0 to 1 but got \(0, 7\)"):
        plots.draw_contours(model(), ROWS, features=(0, 7))


def contrast_of(color, background):
    """Return the contrast of two colours by the definition of WCAG 2, from 1 to 21."""

    def luminance(name):
        parts = np.array(matplotlib.colors.to_rgb(name))
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(color), luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("style", ["default", "dark_background", "Solarize_Light2"])
@pytest.mark.parametrize(
    "name", ["spectrum with bounds", "novelty", "drift of atoms", "contributions of a row", "sparsity path"]
)
def test_text_and_lines_show_on_any_background(name, style):
    with matplotlib.style.context(style):
        axes = Figure().add_subplot()
        PICTURES[name](axes)
    background = axes.get_facecolor()
    shown = [text.get_color() for text in axes.texts] + [line.get_color() for line in axes.lines]
    assert shown
    # Graphics need a contrast of 3; colours of the data are chosen for white, and a little paler on cream.
    assert min(contrast_of(color, background) for color in shown if color != "none") >= 2.5


def test_labels_and_components_that_are_not_whole_numbers_are_refused():
    with pytest.raises(ValueError, match="draw_novelty expected whole numbers as labels but got NaN or infinity"):
        plots.draw_novelty([0.1, 0.2], labels=[0, np.nan])
    with pytest.raises(ValueError, match=r"draw_projections expected projections with the components \(0, 0.5\)"):
        plots.draw_projections([[0.0, 1.0], [1.0, 0.0]], components=(0, 0.5))
    assert plots.draw_projections([[0.0, 1.0], [1.0, 0.0]], components=(0, 1.0)).get_xlabel() == "component 0"


if __name__ == "__main__":
    BASELINES.mkdir(exist_ok=True)
    for picture in COMPARED:
        without_words(picture, baseline(picture))
