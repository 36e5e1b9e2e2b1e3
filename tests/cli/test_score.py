"""`score`: what a monitor finds, by rows, times and columns of the file; thresholds that go on; news as they come."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import SMALL, fact, learned, refused, run, small_model
from pyarrow import csv

from streamkpca import StreamingKernelPCA, load
from streamkpca.monitoring import Monitor

NAMES = ["heat", "flow", "load"]
TRAIN = ["new.csv", "--train", "old.csv", "--time", "when"]


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(5)
    rows = np.repeat(rng.normal(size=(1400, 1)), 3, axis=1) + 0.1 * rng.normal(size=(1400, 3))
    rows[900:920, 1] += 4.0
    rows[1000, 2] += 3.0
    return np.round(rows, 6)


def write(name, X, *, names=NAMES, first=None):
    lines = [",".join(map(repr, row)) for row in X.tolist()]
    if first is not None:
        whens = (np.datetime64("2024-05-01T00:00") + (first + i) * np.timedelta64(5, "m") for i in range(len(X)))
        lines = [f"{when},{line}" for when, line in zip(whens, lines, strict=True)]
    head = [] if names is None else [",".join((["when"] if first is not None else []) + list(names))]
    Path(name).write_text("\n".join([*head, *lines]) + "\n")


@pytest.fixture
def folder(tmp_path, X, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("old.csv", X[:800], first=0)
    write("new.csv", X[800:], first=800)
    return tmp_path


def scores(*args):
    result = run("score", *args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])["scores"], result.stderr


def saved_model(X, path="m.npz"):
    learned(X).save(path, {"command": {"columns": NAMES}})
    return load(path)


def table_of(path):
    strings = csv.ConvertOptions(column_types={"when": pa.string()})
    return csv.read_csv(path, convert_options=strings).to_pandas()


def test_an_event_has_its_rows_times_peak_and_columns(folder):
    found, _ = scores(*TRAIN)
    event = max(found["events"], key=lambda event: event["alarms"])
    # Lines of the file, the header included.
    assert (event["first_row"], event["last_row"], event["is_open"]) == (102, 121, False)
    assert (event["first_time"], event["last_time"]) == ("2024-05-04T03:00", "2024-05-04T04:35")
    assert event["alarms"] >= 19
    assert next(iter(event["features"])) == "flow"
    peak = found["most_novel"][0]
    assert (event["peak_row"], event["peak"], event["peak_time"]) == (peak["row"], peak["novelty"], peak["time"])
    assert 0.5 < peak["features"]["flow"] <= 1.0
    assert found["number_of_events"] == len(found["events"])
    assert (found["rows"], found["rows_skipped"]) == (600, 0)


def test_rows_are_those_of_the_file_where_others_were_left_out(folder, X):
    lines = Path("new.csv").read_text().splitlines()
    lines[5:5] = ["2024-01-01,no,numbers,here", "short"]
    Path("new.csv").write_text("\n".join(lines) + "\n")
    found, said = scores(*TRAIN, "--on-bad-rows", "skip", "--save", "o.csv")
    assert max(found["events"], key=lambda event: event["alarms"])["first_row"] == 104
    assert "2 rows left out, the first: new.csv, line 6" in said
    assert table_of("o.csv")["row"].tolist() == [2, 3, 4, 5, *range(8, 604)]


@pytest.mark.parametrize("chunk_rows", [7, 4096])
def test_results_say_what_the_monitor_says_whatever_the_chunks(folder, X, chunk_rows):
    options = ["--lags", "2", "--smoothing", "0.25", "--quantile", "0.95", "--chunk-rows", chunk_rows]
    found, _ = scores(*TRAIN, *SMALL, *options, "--save", "o.csv")
    table = table_of("o.csv")
    names = ["novelty", "smoothed", "threshold", "alarm"]
    assert table.columns.tolist()[:6] == ["row", "when", *names]
    model = small_model()
    monitor = Monitor(model, lags=2, smoothing=0.25, quantile=0.95, learn="all")
    monitor.update(X[:800])
    model.refit()
    monitor.forget_alarms().learn = "normal"
    for name, values in zip(names, monitor.update(X[800:])[:4], strict=True):
        np.testing.assert_allclose(table[name], values, rtol=1e-9)
    events = [(event.start - 798, event.end - 799, event.n_alarms) for event in monitor.events_ if event.start >= 800]
    assert [(event["first_row"], event["last_row"], event["alarms"]) for event in found["events"]] == events
    np.testing.assert_array_equal(table["row"], np.arange(2, 602))
    assert table["when"][0].startswith("2024-05-03T18:40")


def test_events_come_first_for_people(folder):
    output = run("score", *TRAIN).stdout
    places = [output.index(title) for title in ("events\n", "Most novel rows", "Novelty of new.csv", "Learned")]
    assert places == sorted(places)
    line = next(line for line in output.splitlines() if line.strip().startswith("102 "))
    assert "2024-05-04T03:00" in line
    assert "flow 1" in line


def test_labels_measure_how_well_novelty_finds_faults(folder, X):
    strange = X[800:].copy()
    strange[:60, 1] += 9.0
    labelled = np.column_stack([strange, np.arange(600) < 60])
    write("new.csv", labelled, names=[*NAMES, "fault"])
    write("old.csv", X[:800])
    # Columns that were not learned do not matter.
    assert scores("new.csv", "--train", "old.csv")[0]["rows"] == 600
    write("old.csv", np.column_stack([X[:800], np.zeros(800)]), names=[*NAMES, "fault"])
    for train in (["--train", "old.csv"], ["--model", "m.npz"]):
        saved_model(X[:800])
        result = run("score", "new.csv", *train, "--labels", "fault", "--learn", "none")
        assert result.exit_code == 0, result.stderr
        assert fact(result.stdout, "anomalous rows") == "60"
        assert fact(result.stdout, "area under roc curve") == "1"
        assert fact(result.stdout, "average precision") == "1"


@pytest.mark.parametrize(("learn", "accepted"), [("normal", True), ("none", False)])
def test_a_lasting_change_is_told_with_its_row(folder, X, learn, accepted):
    changed = X[200:800].copy()
    changed[300:, 2] += 5.0
    write("new.csv", changed, first=0)
    found, said = scores(*TRAIN, "--accept-after", "100", "--learn", learn)
    change = found["changes"][0]
    assert (change["first_row"], change["is_accepted"]) == (302, accepted)
    assert change["first_time"] == "2024-05-02T01:00"
    assert next(iter(change["features"])) == "load"
    done = "was learned as normal" if accepted else "was not learned (--learn)"
    assert f"Warning: a lasting change {done}: first row 302, first time 2024-05-02T01:00" in said


def test_alarms_events_and_changes_are_printed_as_they_come(folder, X):
    changed = X[200:800].copy()
    changed[100:120, 1] += 4.0
    changed[550:, 2] += 5.0
    write("new.csv", np.concatenate([changed, changed[550:], changed[550:], changed[550:]]))
    write("old.csv", X[:800])
    options = ["--train", "old.csv", "--follow", "--accept-after", "100"]
    text = Path("new.csv").read_text()
    lines = run("score", "-", *options, stdin=text).stdout.splitlines()
    assert any(line.startswith("event: first row 102, last row 121, ") for line in lines)
    assert any(line.startswith("alarm: row 102, novelty ") for line in lines)
    assert sum(line.startswith("change: first row ") for line in lines) == 1
    result = run("score", "-", *options, "--json", "--chunk-rows", "5", stdin=text)
    assert "lasting change" not in result.stderr
    told = [json.loads(line) for line in result.stdout.splitlines()]
    began, ended = [one["event"] for one in told if one.get("event", {}).get("first_row") == 102]
    assert (began["is_open"], ended["is_open"]) == (True, False)
    assert sum("alarm" in one for one in told) == told[-1]["scores"]["alarms"]
    assert [one["change"] for one in told if "change" in one] == told[-1]["scores"]["changes"]


@pytest.mark.parametrize(
    ("n", "says"),
    # A monitor learns 32 rows at a time.
    [(200, "fewer than 300 rows were learned (192)"), (40, "only 32 rows were learned, too few for a threshold")],
)
def test_few_learned_rows_are_told(folder, X, n, says):
    write("old.csv", X[:n], first=0)
    write("new.csv", X[800:820], first=800)
    assert says in scores(*TRAIN)[1]


def test_many_alarms_are_told(folder, X):
    rows = X[800:].copy()
    rows[::3, 2] += 8.0
    write("new.csv", rows, first=800)
    assert "% of the rows are alarms; if these rows are normal, learn them (--learn all)" in scores(*TRAIN)[1]


# Saved models and monitors


def test_a_saved_monitor_goes_on(folder, X):
    write("first.csv", X[800:1100])
    write("second.csv", X[1100:])
    write("both.csv", X[800:])
    write("old.csv", X[:800])
    options = ["--train", "old.csv", "--smoothing", "0.3", "--lags", "3"]
    result = run("score", "first.csv", *options, "--save-model", "m.npz")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith("Model: m.npz\n")
    info = json.loads(run("info", "m.npz", "--json").stdout)
    assert info["monitor"] == {"quantile": 0.99, "lags": 3, "smoothing": 0.3, "learn": "normal", "accept_after": 1000}
    assert info["column_names"] == NAMES
    refused(
        run("score", "second.csv", "--model", "m.npz", "--quantile", "0.9"),
        "of its own; leave out --quantile",
        code=2,
    )
    second, _ = scores("second.csv", "--model", "m.npz", "--save-model", "m.npz", "--save", "o.csv")
    assert (second["rows"], second["lags"]) == (300, 3)
    assert all(event["first_row"] >= 2 for event in second["events"])
    run("score", "both.csv", *options, "--save", "all.csv")
    later, whole = table_of("o.csv"), table_of("all.csv")
    np.testing.assert_allclose(later["smoothed"], whole["smoothed"][300:], rtol=1e-9)
    np.testing.assert_array_equal(later["alarm"], whole["alarm"][300:])


@pytest.mark.parametrize("lags", [1, 2])
def test_rows_with_gaps_are_learned_and_scored(folder, X, lags):
    gapped = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    np.save("old.npy", gapped[:800])
    np.save("new.npy", gapped[800:])
    words = ["--on-missing", "marginal", "--lags", lags, "--save-model", "w.npz", *SMALL]
    found, _ = scores("new.npy", "--train", "old.npy", *words)
    n = int((~np.isnan(gapped[800:]).all(axis=1)).sum())
    assert (found["rows"], found["rows_skipped"]) == (n, 600 - n)
    # Rows of arrays are counted from 0.
    assert max(found["events"], key=lambda event: event["alarms"])["first_row"] in range(98, 103)
    assert scores("new.npy", "--model", "w.npz")[0]["rows"] == n


@pytest.mark.parametrize(
    ("args", "part", "code"),
    [
        (["new.csv"], "either --train FILE", 2),
        (["new.csv", "--train", "old.csv", "--model", "m.npz"], "either --train FILE", 2),
        (["new.csv", "--train", "-"], "write it to a file", 2),
        (["new.csv", "--model", "old.csv"], "old.csv", 1),
        (["new.csv", "--model", "absent.npz"], "absent.npz", 1),
        (["new.csv", "--model", "empty.npz"], "has not learned any rows yet", 1),
        (["new.csv", "--model", "m.npz", "--save", "m.npz"], "is read as input", 2),
        (["new.csv", "--model", "m.npz", "--save", "o.txt"], "o.txt", 1),
        (["new.csv", "--model", "m.npz", "--save-model", "new.csv"], "is read as input", 2),
        (["absent.csv", "--train", "old.csv"], "absent.csv", 1),
        (["new.csv", "--model", "m.npz", "--lags", "2"], "lags=2", 1),
    ],
)
def test_wrong_use_is_refused(folder, X, args, part, code):
    saved_model(X[:100])
    StreamingKernelPCA().save("empty.npz")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    refused(run("score", *args), part, code=code)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
