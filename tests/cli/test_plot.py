"""The command's pictures: what is drawn is what the model says, and options of one kind belong to no other."""

import json
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamkpca import StreamingKernelPCA
from streamkpca.cli.main import cli
from streamkpca.monitoring import Monitor

pytestmark = pytest.mark.slow

KINDS = ["spectrum", "atoms", "sparsity", "drift", "novelty", "projections", "contours"]
OF_ROWS = {"novelty", "projections", "contours"}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(3)
    return np.tanh(rng.normal(size=(900, 2)) @ rng.normal(size=(2, 4)))


@pytest.fixture
def folder(tmp_path, X, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("new.csv", X[600:], delimiter=",", header="a,b,c,d", comments="")
    half = StreamingKernelPCA(3, max_atoms=16, block_size=64).partial_fit(X[:300])
    half.save("half.npz", {"command": {"columns": ["a", "b", "c", "d"]}})
    half.partial_fit(X[300:600]).save("m.npz", {"command": {"columns": ["a", "b", "c", "d"]}})
    return tmp_path


@pytest.fixture
def figures(monkeypatch):
    """Collect the figures that the command writes."""
    written = []
    save = Figure.savefig

    def keep(figure, *args, **more):
        written.append(figure)
        return save(figure, *args, **more)

    monkeypatch.setattr(Figure, "savefig", keep)
    return written


def run(*args):
    return CliRunner().invoke(cli, ["plot", *map(str, args)])


def drawn(figures, *args):
    result = run(*args, "--model", "m.npz", "--save", "p.png")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout == "Picture: p.png\n"
    axes = figures[-1].axes[0]
    assert isinstance(axes, Axes)
    return axes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_every_kind_is_written_in_every_format(folder, kind, ending, start):
    files = ["new.csv"] if kind in OF_ROWS else []
    result = run(kind, *files, "--model", "m.npz", "--save", f"p.{ending}", "--json")
    assert result.exit_code == 0, result.stderr
    expected = {"picture": f"p.{ending}", "kind": kind} | ({"rows": 300} if files else {})
    assert json.loads(result.stdout) == expected
    contents = (folder / f"p.{ending}").read_bytes()
    assert contents.startswith(start)
    if ending == "svg":
        assert ET.fromstring(contents).tag.endswith("svg")


@pytest.mark.parametrize("kind", sorted(set(KINDS) - OF_ROWS))
def test_a_model_is_named_by_position_or_with_the_option(folder, kind):
    pictures = []
    for words in (["m.npz"], ["--model", "m.npz"]):
        result = run(kind, *words, "--save", "p.png")
        assert (result.exit_code, result.stdout) == (0, "Picture: p.png\n")
        pictures.append((folder / "p.png").read_bytes())
    assert pictures[0] == pictures[1]
    result = run(kind, "--save", "p.png")
    assert result.exit_code == 2
    assert "Missing argument 'MODEL'" in result.stderr


def test_a_spectrum_shows_the_eigenvalues(folder, figures):
    axes = drawn(figures, "spectrum", "--size", "5x3")
    heights = [patch.get_height() for patch in axes.patches]
    np.testing.assert_array_equal(heights, StreamingKernelPCA.load("m.npz").eigenvalues_)
    np.testing.assert_array_equal(figures[-1].get_size_inches(), [5.0, 3.0])


def test_atoms_are_named_lines_or_images(folder, figures):
    axes = drawn(figures, "atoms")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c", "d"]
    axes = drawn(figures, "atoms", "--shape", "2x2", "--most", "5")
    assert len(axes.patches) == 5
    assert axes.get_title().startswith("the 5 of largest weight, of 16 atoms")


def test_drift_takes_several_models_in_any_order(folder, figures):
    axes = drawn(figures, "drift", "half.npz")
    models = [StreamingKernelPCA.load(name) for name in ("half.npz", "m.npz")]
    medians = next(line for line in axes.lines if line.get_label() == "median of the atoms")
    np.testing.assert_array_equal(medians.get_xdata(), [300, 600])
    np.testing.assert_array_equal(medians.get_ydata(), [np.median(model.atom_origins_) for model in models])
    result = run("drift", "m.npz", "m.npz", "--save", "p.png")
    assert result.exit_code == 2
    assert "has seen 600 rows, as m.npz has" in result.stderr


def test_novelty_shows_scores_and_threshold(folder, figures, X):
    axes = drawn(figures, "novelty", "new.csv", "--quantile", "0.9")
    model = StreamingKernelPCA.load("m.npz")
    shown, level = axes.lines[0].get_ydata(), axes.lines[1].get_ydata()
    record = Monitor(model, quantile=0.9).update(X[600:])
    np.testing.assert_allclose(shown, record.novelty, rtol=1e-7)
    assert set(level) == set(record.threshold)


def test_projections_are_on_the_axes_asked_for(folder, figures, X):
    axes = drawn(figures, "projections", "new.csv", "--axes", "2,0")
    expected = StreamingKernelPCA.load("m.npz").transform(X[600:])[:, [2, 0]]
    np.testing.assert_allclose(axes.collections[0].get_offsets(), expected, atol=1e-9)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("component 2", "component 0")


def test_classes_get_colours_of_their_own(folder, figures, X):
    rows = np.column_stack([X[600:], np.arange(300) % 3])
    np.savetxt("classes.csv", rows, delimiter=",", header="a,b,c,d,kind", comments="")
    axes = drawn(figures, "projections", "classes.csv", "--labels", "kind")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1", "2"]


def write_times(X, times):
    lines = [",".join(map(repr, row)) + f",{when}" for row, when in zip(X[600:].tolist(), times, strict=True)]
    with open("timed.csv", "w") as file:
        file.write("\n".join(["a,b,c,d,when", *lines]))


def test_times_are_the_axis(folder, figures, X):
    days = np.datetime64("2024-05-01T00:00") + 600 * np.arange(300)
    write_times(X, days)
    axes = drawn(figures, "novelty", "timed.csv", "--time", "when")
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), days)
    assert axes.get_xlabel() == "time"
    figures[-1].canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    # The same moments, said with a zone.
    write_times(X, [f"{day + 120}:00+02:00" for day in days])
    axes = drawn(figures, "novelty", "timed.csv", "--time", "when")
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), days)
    write_times(X, np.arange(300) / 4)
    axes = drawn(figures, "novelty", "timed.csv", "--time", "when")
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), np.arange(300) / 4)
    axes = drawn(figures, "projections", "timed.csv", "--time", "when")
    np.testing.assert_array_equal(axes.collections[0].get_array(), np.arange(300) / 4)
    assert figures[-1].axes[1].get_ylabel() == "time"


@pytest.mark.parametrize(
    ("change", "part"),
    [(lambda t: [*t[:5], "soon", *t[6:]], "row 5 (from 0) has 'soon'"), (lambda t: t[::-1], "row 1 (from 0) has 298")],
)
def test_times_without_order_or_meaning_are_refused(folder, X, change, part):
    write_times(X, change(list(range(300))))
    result = run("novelty", "timed.csv", "--time", "when", "--model", "m.npz", "--save", "p.png")
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr
    assert "leave --time out" in result.stderr


def test_contours_are_over_the_columns_asked_for(folder, figures, X):
    axes = drawn(figures, "contours", "new.csv", "--over", "d,1", "--component", "2")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("d", "b")
    assert axes.get_title().startswith("component 2")
    np.testing.assert_allclose(axes.lines[0].get_xydata(), X[600:][:, [3, 1]], rtol=1e-12)


def test_contours_keep_an_even_selection_of_many_rows(folder, figures):
    rows = np.zeros((9000, 4))
    rows[:, 0] = np.arange(9000)
    np.save("many.npy", rows)
    axes = drawn(figures, "contours", "many.npy", "--chunk-rows", "700")
    x = axes.lines[0].get_xdata()
    assert 400 <= len(x) <= 1000
    assert len(set(np.diff(x))) == 1
    assert x[0] == 0.0


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["spectrum", "--shape", "4x4"], ["--shape", "Try --help"]),
        (["spectrum", "half.npz"], ["Expected one model but got half.npz, m.npz"]),
        (["novelty"], ["FILE"]),
        (["novelty", "new.csv", "--axes", "0,1"], ["--axes"]),
        (["novelty", "new.csv", "--quantile", "2"], ["quantile"]),
        (["projections", "new.csv", "--axes", "0"], ["'0' is not two components"]),
        (["projections", "new.csv", "--axes", "0,7"], ["expected components from 0 to 2", "got 7"]),
        (["contours", "new.csv", "--over", "a,z"], ["expected a column that the model has learned but got 'z'"]),
        (["contours", "new.csv", "--over", "a,a"], ["choose two"]),
        (["contours", "new.csv", "--component", "3"], ["expected components from 0 to 2"]),
        (["atoms", "--shape", "3x3"], ["--shape 3x3: expected rows of 9 columns but m.npz has learned 4"]),
        (["atoms", "--shape", "0x4"], ["'0x4' is not a height and a width"]),
        (["spectrum", "--size", "big"], ["'big' is not two sizes"]),
        (["spectrum", "--size", "0x3"], ["'0x3' is not two sizes"]),
        (["spectrum", "--size", "nanxnan"], ["'nanxnan' is not two sizes"]),
        (["spectrum", "--size", "5x101"], ["'5x101' is not two sizes"]),
        (["maps"], ["maps"]),
    ],
)
def test_wrong_use_is_refused_in_one_line(folder, args, parts):
    result = run(*args, "--model", "m.npz", "--save", "p.png")
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    for part in parts:
        assert part in line
    assert not (folder / "p.png").exists()


@pytest.mark.parametrize(
    ("save", "part"),
    [
        ("p.txt", "pictures are written as .png, .svg, .pdf"),
        ("absent/p.png", "in an existing folder"),
        ("new.csv", "pictures are written as"),
    ],
)
def test_a_path_that_cannot_take_a_picture_is_refused(folder, save, part):
    result = run("novelty", "new.csv", "--model", "m.npz", "--save", save)
    assert result.exit_code == 2
    assert part in result.stderr


def test_without_matplotlib_one_line_names_the_extra(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    result = run("spectrum", "--model", "m.npz", "--save", "p.png")
    assert result.exit_code == 2
    assert 'pip install "streamkpca[plots]"' in result.stderr
