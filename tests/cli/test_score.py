"""`score` with a monitor: events, lasting changes, units, thresholds in order of time, and hints of one line."""

import json
import re
import warnings

import click
import numpy as np
import pytest
from click.testing import CliRunner
from commands import SMALL, fact, refused, run
from pyarrow import csv

from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.console import OneLineErrors
from streamkpca.cli.hints import Spread
from streamkpca.cli.main import cli
from streamkpca.kernels import RBF, Linear
from streamkpca.monitoring import Monitor

NAMES = ["heat", "flow", "load"]


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(5)
    rows = np.repeat(rng.normal(size=(1400, 1)), 3, axis=1) + 0.1 * rng.normal(size=(1400, 3))
    rows[900:920, 1] += 4.0
    rows[1000, 2] += 3.0
    return np.round(rows, 6)


def write(name, X, *, names=NAMES, times=None):
    lines = [",".join(map(repr, row)) for row in X.tolist()]
    if times is not None:
        lines = [f"{when},{line}" for when, line in zip(times, lines, strict=True)]
    head = [] if names is None else [",".join((["when"] if times is not None else []) + list(names))]
    with open(name, "w") as file:
        file.write("\n".join([*head, *lines]) + "\n")


@pytest.fixture
def folder(tmp_path, X, monkeypatch):
    monkeypatch.chdir(tmp_path)
    times = [f"2024-05-{1 + i // 288:02}T{i % 288 // 12:02}:{i % 12 * 5:02}" for i in range(len(X))]
    write("old.csv", X[:800], times=times[:800])
    write("new.csv", X[800:], times=times[800:])
    return tmp_path


def scores(*args, code=0):
    result = run("score", *args, "--json")
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout.splitlines()[-1])["scores"], result.stderr


TRAIN = ["new.csv", "--train", "old.csv", "--time", "when"]


def test_an_event_has_its_rows_times_peak_and_columns(folder, X):
    found, _ = scores(*TRAIN)
    event = max(found["events"], key=lambda event: event["alarms"])
    assert (event["first_row"], event["last_row"], event["is_open"]) == (100, 119, False)
    assert (event["first_time"], event["last_time"]) == ("2024-05-04T03:00", "2024-05-04T04:35")
    assert event["alarms"] >= 19
    assert event["features"][0]["feature"] == "flow"
    peak = found["most_novel"][0]
    assert (event["peak_row"], event["peak"], event["peak_time"]) == (peak["row"], peak["novelty"], peak["time"])
    assert peak["features"][0]["feature"] == "flow"
    assert 0.0 < peak["features"][0]["share"] <= 1.0
    assert found["number_of_events"] == len(found["events"])


def test_events_come_first(folder):
    output = run("score", *TRAIN).stdout
    places = [output.index(title) for title in ("Events", "Most novel rows", "Novelty of new.csv", "Learned")]
    assert places == sorted(places)
    line = next(line for line in output.splitlines() if line.strip().startswith("100 "))
    assert "2024-05-04T03:00" in line
    assert "flow " in line


def test_columns_without_names_are_called_by_their_positions(folder, X):
    write("old_plain.csv", X[:800], names=None)
    write("new_plain.csv", X[800:], names=None)
    found, _ = scores("new_plain.csv", "--train", "old_plain.csv", "--drop", "0")
    assert max(found["events"], key=lambda event: event["alarms"])["features"][0]["feature"] == "1"


@pytest.mark.parametrize("options", [[], ["--lags", "3", "--smoothing", "0.3"]])
def test_the_size_of_chunks_changes_nothing(folder, options):
    saved = []
    for chunk_rows in ("7", "4096"):
        found, _ = scores(*TRAIN, *options, "--chunk-rows", chunk_rows, "--save", "o.csv")
        table = csv.read_csv("o.csv").to_pandas()
        saved.append((found, table[[name for name in table if not name.startswith("component")]]))
    (first, rows), (second, others) = saved
    for found in (first, second):
        # Explained by the model of the moment.
        del found["most_novel"]
    assert first.pop("mean_novelty") == pytest.approx(second.pop("mean_novelty"))
    assert first == second
    assert rows.equals(others)


def test_lags_and_smoothing_are_those_of_the_monitor(folder, X):
    run("score", *TRAIN, *SMALL, "--lags", "2", "--smoothing", "0.25", "--quantile", "0.95", "--save", "o.csv")
    table = csv.read_csv("o.csv").to_pandas()
    assert table.columns.tolist()[:6] == ["row", "when", "novelty", "smoothed", "threshold", "alarm"]
    model = StreamingKernelPCA(3, kernel=RBF().in_units("auto"), max_atoms=20, block_size=64, refit_every=128)
    monitor = Monitor(model, lags=2, smoothing=0.25, quantile=0.95, learn="all")
    monitor.update(X[:800])
    model.refit()
    monitor.forget_alarms().learn = "normal"
    record = monitor.update(X[800:])
    for name, values in zip(("novelty", "smoothed", "threshold", "alarm"), record, strict=True):
        np.testing.assert_allclose(table[name], values, rtol=1e-9)


@pytest.mark.parametrize(
    ("learn", "says", "accepted"),
    [
        ("normal", "it was learned as normal (--learn none keeps the model as it is)", True),
        ("none", "nothing was learned; --learn normal takes it for normal", False),
    ],
)
def test_a_lasting_change_is_told_with_its_row(folder, X, learn, says, accepted):
    changed = X[200:800].copy()
    changed[300:, 2] += 5.0
    write("new.csv", changed, times=range(len(changed)))
    found, said = scores(*TRAIN, "--accept-after", "100", "--learn", learn)
    change = found["changes"][0]
    assert (change["first_row"], change["first_time"], change["is_accepted"]) == (300, "300", accepted)
    assert change["features"][0]["feature"] == "load"
    line = said.splitlines()[0]
    assert line.startswith("streamkpca: warning: a lasting change since row 300 (300): 100% of the rows up to 4")
    assert says in line
    assert "lasting change" in run("score", *TRAIN, "--accept-after", "100", "--learn", learn).stdout


def test_changes_and_events_are_printed_as_they_come(folder, X):
    changed = X[200:800].copy()
    changed[100:120, 1] += 4.0
    changed[550:, 2] += 5.0
    changed = np.concatenate([changed, changed[550:], changed[550:], changed[550:]])
    write("new.csv", changed)
    write("old.csv", X[:800])
    options = ["--train", "old.csv", "--follow", "--accept-after", "100"]
    text = (folder / "new.csv").read_text()
    lines = run("score", "-", *options, stdin=text).stdout.splitlines()
    assert any(line.startswith("event ended: row 100 to row 119, ") for line in lines)
    (change,) = [line for line in lines if line.startswith("change: a lasting change since row ")]
    result = run("score", "-", *options, "--json", "--chunk-rows", "5", stdin=text)
    assert "lasting change" not in result.stderr
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert next(one["change"]["first_row"] for one in told if "change" in one) == int(re.findall(r"\d+", change)[0])
    began, ended = [one["event"] for one in told if one.get("event", {}).get("first_row") == 100]
    assert (began["is_open"], ended["is_open"]) == (True, False)
    assert began["features"][0]["feature"] == "flow"


# Units


def test_units_are_chosen_unless_the_kernel_has_numbers_or_units(folder):
    def kernel(*words):
        np.save("x.npy", np.random.default_rng(0).normal(size=(400, 3)) * [1.0, 1.0, 1000.0])
        result = run("fit", "x.npy", *words, "--model", "m.npz")
        assert result.exit_code == 0, result.stderr
        return load("m.npz"), result

    found, result = kernel()
    assert found.get_params(deep=False)["kernel"] == RBF().in_units("auto")
    assert found.kernel_.units[2] > 1000.0
    assert ", columns in units of " in fact(result.stdout, "kernel")
    assert result.stderr == ""
    for words, expected in (
        (["--units", "none"], RBF()),
        (["--units", "std"], RBF().in_units("std")),
        (["--units", "whitened", "--kernel", "linear"], Linear().in_units("whitened")),
        (["--kernel", "linear"], Linear()),
        (["--kernel", "RBF(gamma=0.5)"], RBF(gamma=0.5)),
        (["--kernel", "RBF().in_units(range)"], RBF().in_units("range")),
    ):
        assert kernel(*words)[0].get_params(deep=False)["kernel"] == expected
    refused(run("fit", "x.npy", "--units", "std", "--kernel", "RBF().in_units(range)"), "units of its own")
    refused(run("fit", "x.npy", "--units", "std", "--model", "m.npz", "--resume"), "leave out --units")
    refused(run("score", "x.npy", "--units", "std", "--model", "m.npz"), "leave out --units")
    _, result = kernel("--units", "none")
    assert "1 of 3 columns makes up 100% of all distances; try --units range" in result.stderr


# What looks wrong


def test_columns_that_never_vary_are_named(folder, X):
    write("old.csv", np.column_stack([X[:800], np.ones((800, 2))]), names=[*NAMES, "on", "off"])
    (line,) = run("fit", "old.csv").stderr.splitlines()
    assert "old.csv: 2 of 5 columns never vary" in line
    assert "(--drop on,off)" in line


@pytest.mark.parametrize(
    ("n", "says"), [(200, "fewer than 300 rows were learned (200)"), (1, "fewer than 300 rows were learned (1)")]
)
def test_few_rows_leave_the_threshold_uncertain(folder, X, n, says):
    write("old.csv", X[:n], times=range(n))
    found, said = scores(*TRAIN, "--top", "2")
    assert says in said
    assert found["rows"] == 600


def test_ten_learned_rows_are_enough_to_score(folder, X):
    write("old.csv", X[:10], times=range(10))
    found, said = scores(*TRAIN, "--learn", "none", "--save", "o.csv")
    assert "fewer than 300 rows were learned (10)" in said
    assert csv.read_csv("o.csv").num_rows == found["rows"]


def test_many_alarms_are_told(folder, X):
    rows = X[800:].copy()
    rows[::3, 2] += 8.0
    write("new.csv", rows, times=range(len(rows)))
    _, said = scores(*TRAIN)
    assert "% of the rows are alarms; if these rows are normal, learn them (--learn all)" in said


def test_single_rows_suggest_smoothing(folder, X):
    rows = X[800:].copy()
    rows[15::25, 2] += 8.0
    write("new.csv", rows, times=range(len(rows)))
    assert "--smoothing 0.3 keeps those that last" in scores(*TRAIN)[1]
    assert "--smoothing 0.3" not in scores(*TRAIN, "--smoothing", "0.5")[1]


def test_spread_is_that_of_all_rows(X):
    spread = Spread()
    for part in np.array_split(X * [1.0, 0.0, 500.0], 7):
        spread.add(part)
    assert spread.constant == [1]
    n, share = spread.dominating()
    assert n == 1
    variances = X.var(axis=0) * [1.0, 0.0, 500.0**2]
    assert share == pytest.approx(variances[2] / variances.sum())
    assert Spread().dominating() is None
    assert Spread().constant == []


def test_a_warning_is_printed_once():
    @click.group(cls=OneLineErrors)
    def group():
        pass

    @group.command()
    def warn():
        warnings.simplefilter("always")
        for line in range(2):
            warnings.warn_explicit("odd rows", UserWarning, "x.py", line)

    assert CliRunner().invoke(group, ["warn"]).stderr == "streamkpca: warning: odd rows\n"


# Saved monitors


def test_a_saved_monitor_goes_on(folder, X):
    write("first.csv", X[800:1100])
    write("second.csv", X[1100:])
    write("both.csv", X[800:])
    write("old.csv", X[:800])
    options = ["--train", "old.csv", "--smoothing", "0.3"]
    result = run("score", "first.csv", *options, "--save-model", "m.npz")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith("Model: m.npz\n")
    assert fact(run("info", "m.npz").stdout, "monitor") == (
        "quantile 0.99, lags 1, smoothing 0.3, learn normal, accept after 1000"
    )
    assert json.loads(run("info", "m.npz", "--json").stdout)["column_names"] == NAMES
    refused(run("score", "second.csv", "--model", "m.npz", "--quantile", "0.9"), "of its own; leave out --quantile")
    second, _ = scores("second.csv", "--model", "m.npz", "--save-model", "m.npz", "--save", "o.csv")
    assert second["rows"] == 300
    run("score", "both.csv", *options, "--save", "all.csv")
    later, whole = csv.read_csv("o.csv"), csv.read_csv("all.csv")
    np.testing.assert_allclose(later["smoothed"], whole["smoothed"].to_numpy()[300:], rtol=1e-9)
    np.testing.assert_array_equal(later["alarm"], whole["alarm"].to_numpy()[300:])
    assert second["threshold"] == pytest.approx(whole["threshold"].to_numpy()[-1])
    # A model that goes on to learn by itself is one without a monitor.
    assert run("fit", "second.csv", "--model", "m.npz", "--resume").exit_code == 0
    assert "monitor" not in load("m.npz").extra_
    assert run("plot", "novelty", "second.csv", "--model", "m.npz", "--save", "p.png").exit_code == 0


def test_lags_of_a_saved_monitor_are_kept(folder, X):
    write("old.csv", X[:800])
    write("new.csv", X[800:])
    result = run("score", "new.csv", "--train", "old.csv", "--lags", "3", "--save-model", "m.npz")
    assert result.exit_code == 0, result.stderr
    assert fact(result.stdout, "columns") == "3, of 3 rows together"
    assert fact(run("info", "m.npz").stdout, "column names") == "heat, flow, load"
    found, _ = scores("new.csv", "--model", "m.npz")
    assert (found["lags"], found["rows"]) == (3, 600)
    write("narrow.csv", X[:, :2], names=None)
    refused(run("score", "narrow.csv", "--model", "m.npz"), "expected 3 columns, as m.npz has learned, but got 2")


def test_shells_complete_the_new_options():
    from click.shell_completion import ShellComplete

    complete = ShellComplete(cli, {}, "streamkpca", "_STREAMKPCA_COMPLETE")
    values = [item.value for item in complete.get_completions(["score", "--units"], "")]
    assert values == ["auto", "none", "range", "std", "whitened"]
    assert [item.value for item in complete.get_completions(["score", "--learn"], "n")] == ["normal", "none"]
    assert "--accept-after" in [item.value for item in complete.get_completions(["plot", "novelty"], "--acc")]
