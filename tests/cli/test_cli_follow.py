"""Files that grow: learned on from where it stopped, followed, scored as rows come; times and bad rows beside them."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from commands import COMMAND, SMALL, refused, run
from pyarrow import csv, parquet

import streamkpca
from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.models import _MOST_LETTERS, Autosave
from streamkpca.cli.options import SaveInterval
from streamkpca.cli.results import ResultWriter
from streamkpca.cli.tables import open_table
from streamkpca.kernels import RBF
from streamkpca.monitoring import Monitor

pytestmark = pytest.mark.slow

PARAMETERS = {"max_atoms": 20, "block_size": 64, "refit_every": 128}
HEADER = "when,a,b,c\n"


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(2)
    return np.round(np.tanh(rng.normal(size=(900, 2)) @ rng.normal(size=(2, 3))), 6)


@pytest.fixture(scope="module")
def lines(X):
    return [
        f"2024-05-{1 + i // 100:02}T{i % 24:02}:00," + ",".join(map(repr, row)) + "\n"
        for i, row in enumerate(X.tolist())
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # For processes that start here.
    monkeypatch.setenv("PYTHONPATH", str(Path(streamkpca.__file__).parents[1]))
    return tmp_path


def append(name, lines):
    with open(name, "a") as file:
        file.write("".join(lines))


def facts(*args, stdin=None):
    result = run(*args, "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def learned(X, n):
    return StreamingKernelPCA(3, kernel=RBF().in_units("auto"), **PARAMETERS).partial_fit(X[:n]).refit()


def same(path, model):
    return load(path).to_bytes() == model.to_bytes()


# Going on in a file


def test_each_row_of_a_file_that_grew_is_learned_once(folder, X, lines):
    append("log.csv", [HEADER, *lines[:300]])
    fit = ["fit", "log.csv", "--time", "when", "--model", "m.npz", "--resume"]
    assert facts(*fit, *SMALL)["new_rows"] == 300
    append("log.csv", lines[300:700])
    assert facts(*fit)["new_rows"] == 400
    assert same("m.npz", learned(X, 700))
    found = facts(*fit)
    assert (found["new_rows"], found["model"]["rows"]) == (0, 700)
    assert same("m.npz", learned(X, 700))
    assert "700, 0 of them new" in run(*fit).stdout
    assert facts(*fit, "--from-start")["new_rows"] == 700
    assert load("m.npz").n_samples_seen_ == 1400


def test_every_file_has_its_own_offset(folder, X, lines):
    append("a.csv", [HEADER, *lines[:200]])
    np.save("b.npy", X[200:500])
    for _ in range(2):
        fit = ["fit", "a.csv", "b.npy", "--time", "0", "--model", "m.npz", "--resume"]
        # Position 0 is the time of one and a number of the other.
        refused(run(*fit), "b.npy", "expected 3 columns", "got 2")
    assert facts("fit", "b.npy", *SMALL, "--model", "m.npz", "--resume")["new_rows"] == 300
    assert facts("fit", "a.csv", "--time", "when", "--model", "m.npz", "--resume")["new_rows"] == 200
    append("a.csv", lines[200:210])
    found = facts("fit", "a.csv", "--drop", "when", "--model", "m.npz", "--resume")
    assert (found["new_rows"], found["model"]["rows"]) == (10, 510)
    assert facts("fit", "b.npy", "--model", "m.npz", "--resume")["new_rows"] == 0


def test_another_file_of_the_same_name_is_refused(folder, lines):
    append("log.csv", [HEADER, *lines[:300]])
    fit = ["fit", "log.csv", "--time", "when", "--model", "m.npz", "--resume"]
    facts(*fit, *SMALL)
    before = Path("m.npz").read_bytes()
    Path("log.csv").write_text(HEADER + "".join(lines[400:800]))
    refused(run(*fit), "log.csv", "it begins with other text", "begin anew (--from-start)")
    assert Path("m.npz").read_bytes() == before
    assert facts(*fit, "--from-start")["new_rows"] == 400
    refused(run("fit", "log.csv", "--model", "m.npz", "--from-start"), "give --resume")


def test_a_model_that_learns_a_file_a_day_does_not_grow_for_ever(folder, X):
    saver = Autosave("m.npz", SaveInterval())
    names = ",".join(f"column_{j}" * 20 for j in range(100))
    model = StreamingKernelPCA(2).partial_fit(X)
    for day in range(60):
        Path(f"{day}.csv").write_text(names + "\n" + ",".join(["1"] * 100) + "\n")
        table = open_table(f"{day}.csv")
        saver.note(table, next(table.chunks(10)))
        # As large as a table of many columns makes it.
        saver._notes["places"][os.path.realpath(f"{day}.csv")]["names"] = [names]
    saver.save(model)
    places = load("m.npz").extra_["command"]["places"]
    assert len(json.dumps(places)) <= _MOST_LETTERS
    assert 10 < len(places) < 60
    assert os.path.realpath("59.csv") in places
    assert os.path.realpath("0.csv") not in places


# Following


@contextlib.contextmanager
def running(*args, **options):
    process = subprocess.Popen(
        [*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), **options,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition):
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def rows_in(path):
    return load(path).n_samples_seen_ if Path(path).exists() else 0


def test_a_killed_follower_continues_with_each_row_once(folder, X, lines):
    append("log.csv", [HEADER, *lines[:100]])
    follow = ["fit", "log.csv", "--follow", "--time", "when", "--model", "m.npz", "--resume", "--save-every", "50"]
    with running(*follow, *SMALL) as process:
        wait_for(lambda: rows_in("m.npz") == 100)
        append("log.csv", lines[100:250])
        wait_for(lambda: rows_in("m.npz") == 250)
        # These are learned but not saved.
        append("log.csv", lines[250:280])
        time.sleep(0.5)
        process.kill()
    append("log.csv", [*lines[280:400], lines[400][:20]])
    with running(*follow) as process:
        wait_for(lambda: rows_in("m.npz") == 400)
        append("log.csv", [lines[400][20:], *lines[401:420]])
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        assert process.returncode == 143
        assert process.stderr.read() == "streamkpca: interrupted after 420 rows\n"
    assert same("m.npz", learned(X, 420))


def test_a_model_is_saved_in_time_while_no_rows_come(folder, X, lines):
    append("log.csv", [HEADER, *lines[:100]])
    args = ["fit", "log.csv", "--follow", "--time", "when", "--model", "m.npz", "--save-every", "1s", *SMALL]
    with running(*args) as process:
        wait_for(lambda: rows_in("m.npz") == 100)
        append("log.csv", lines[100:103])
        # Nothing comes after them.
        wait_for(lambda: rows_in("m.npz") == 103)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        assert process.returncode == 130
    assert same("m.npz", learned(X, 103))


def test_a_rotated_log_is_learned_from_its_beginning(folder, X, lines):
    append("log.csv", [HEADER, *lines[:100]])
    follow = ["fit", "log.csv", "--follow", "--time", "when", "--model", "m.npz", "--resume", "--save-every", "1s"]
    with running(*follow, *SMALL) as process:
        wait_for(lambda: rows_in("m.npz") == 100)
        os.rename("log.csv", "log.1")
        append("log.csv", [HEADER, *lines[100:160]])
        wait_for(lambda: rows_in("m.npz") == 160)
        process.kill()
    # Again, while no process follows it.
    os.rename("log.csv", "log.2")
    append("log.csv", [HEADER, *lines[160:200]])
    with running(*follow) as process:
        wait_for(lambda: rows_in("m.npz") == 200)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        said = process.stderr.read().splitlines()
    assert "log.csv: expected the file that was read up to byte" in said[0]
    assert said[0].startswith("streamkpca: warning: ")
    assert said[0].endswith("learning it from its beginning")
    assert said[1:] == ["streamkpca: interrupted after 200 rows"]
    assert same("m.npz", learned(X, 200))


@pytest.fixture
def model(folder, X, lines):
    append("old.csv", [HEADER, *lines[:600]])
    facts("fit", "old.csv", "--time", "when", *SMALL, "--model", "m.npz")
    return load("m.npz")


@pytest.mark.parametrize("as_json", [False, True])
def test_alarms_come_as_rows_come(model, X, lines, as_json):
    append("new.csv", [HEADER, *lines[600:610]])
    args = ["score", "new.csv", "--follow", "--model", "m.npz", "--time", "when", "--quantile", "0.8"]
    monitor = Monitor(model, quantile=0.8)
    novelty, _, threshold, is_alarm = monitor.update(X[600:])
    expected = np.flatnonzero(is_alarm)
    n_open = 0

    def next_line():
        """Pass over events."""
        nonlocal n_open
        while (line := process.stdout.readline()).startswith(("event", '{"event')):
            n_open += line.startswith("event begins") or '"is_open": true' in line
        return line

    with running(*args, *(["--json"] if as_json else [])) as process:
        for first, last in ((0, 10), (10, 150), (150, 300)):
            append("new.csv", lines[600 + first : 600 + last] if first else [])
            for row in expected[(expected >= first) & (expected < last)]:
                # This waits until the line is there, while the process waits for rows.
                line = next_line()
                when = lines[600 + row].partition(",")[0]
                if as_json:
                    found = json.loads(line)["alarm"]
                    assert (found["row"], found["time"]) == (row, when)
                    assert found["novelty"] == pytest.approx(novelty[row])
                    assert found["threshold"] == pytest.approx(threshold[row])
                else:
                    assert line == f"alarm: row {row}, time {when}, novelty {novelty[row]:.4g}\n"
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        rest = process.stdout.read()
        assert process.returncode == 130
        assert process.stderr.read() == "streamkpca: interrupted after 600 rows learned, 300 scored\n"
    assert n_open > 0
    if as_json:
        found = json.loads(rest.splitlines()[-1])["scores"]
        assert found["alarms"] == len(expected)
        assert found["number_of_events"] == monitor.n_events_
    else:
        assert "Novelty of new.csv" in rest


def test_a_replaced_model_scores_the_rows_that_follow(model, X, lines):
    append("new.csv", [HEADER, *lines[600:620]])
    args = ["score", "new.csv", "--follow", "--model", "m.npz", "--time", "when", "--quantile", "0.01", "--json"]

    def alarms(n):
        found = []
        while len(found) < n:
            found += [one["alarm"] for one in [json.loads(process.stdout.readline())] if "alarm" in one]
        return found

    with running(*args) as process:
        assert len(alarms(Monitor(model, quantile=0.01).update(X[600:620]).is_alarm.sum())) > 10
        other = StreamingKernelPCA(2, kernel=RBF(gamma=2.0), max_atoms=10).partial_fit(X)
        other.save("m.npz", {"command": {"columns": ["a", "b", "c"]}})
        append("new.csv", lines[620:640])
        monitor = Monitor(other, quantile=0.01)
        record = monitor.update(X[620:640])
        found = alarms(record.is_alarm.sum())
        rows = [alarm["row"] - 20 for alarm in found]
        np.testing.assert_allclose([alarm["novelty"] for alarm in found], record.novelty[rows], rtol=1e-9)
        np.testing.assert_allclose([alarm["threshold"] for alarm in found], record.threshold[rows], rtol=1e-9)
        # A file that cannot replace the model does not: the last good model continues.
        for damage, part in (
            (lambda: Path("m.npz").write_bytes(b"no model"), "expected a model saved by streamkpca but this is text"),
            (lambda: StreamingKernelPCA(2).partial_fit(X[:, :2]).save("m.npz"), "has other columns now"),
        ):
            damage()
            append("new.csv", lines[640:660])
            assert len(alarms(monitor.update(X[640:660]).is_alarm.sum())) > 10
            assert part in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        rest = process.stdout.read().splitlines()
        assert json.loads(rest[-1])["model"]["rows"] >= 900


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_results_come_as_rows_come(model, X, lines, form):
    append("new.csv", [HEADER, *lines[600:650]])
    args = ["transform", "new.csv", "--follow", "--model", "m.npz", "--time", "when", "--save", f"o.{form}"]

    def n_lines():
        return len(Path(f"o.{form}").read_text().splitlines()) - (form == "csv") if Path(f"o.{form}").exists() else 0

    with running(*args) as process:
        wait_for(lambda: n_lines() == 50)
        append("new.csv", lines[650:651])
        wait_for(lambda: n_lines() == 51)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        assert process.returncode == 143
    text = Path(f"o.{form}").read_text()
    if form == "csv":
        table = csv.read_csv("o.csv", convert_options=csv.ConvertOptions(column_types={"when": "string"})).to_pylist()
    else:
        table = [json.loads(line) for line in text.splitlines()]
    assert [row["when"] for row in table] == [line.partition(",")[0] for line in lines[600:651]]
    np.testing.assert_allclose([row["novelty"] for row in table], model.novelty(X[600:651]), rtol=1e-9)


def test_rows_are_projected_as_they_are_learned(folder, X, lines):
    append("log.csv", [HEADER, *lines[:130]])
    args = ["fit", "log.csv", "--follow", "--time", "when", "--save", "o.jsonl", *SMALL]

    def results():
        return [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]

    with running(*args) as process:
        wait_for(lambda: Path("o.jsonl").exists() and len(results()) == 130)
        append("log.csv", lines[130:140])
        wait_for(lambda: len(results()) == 140)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    model = StreamingKernelPCA(3, kernel=RBF().in_units("auto"), **PARAMETERS)
    novelty = [model.partial_fit(part).novelty(part) for part in (X[:130], X[130:140])]
    np.testing.assert_allclose([row["novelty"] for row in results()], np.concatenate(novelty), rtol=1e-9, atol=1e-14)


def test_following_several_files_or_binary_ones_is_refused(model, lines):
    append("a.csv", [HEADER, *lines[:5]])
    np.save("x.npy", np.zeros((5, 3)))
    refused(run("fit", "a.csv", "x.npy", "--follow"), "--follow never reaches the end of a.csv", "name one file")
    refused(run("fit", "x.npy", "--follow"), "only text can grow")
    refused(
        run("transform", "a.csv", "--follow", "--model", "m.npz", "--save", "o.parquet"), "read when it is complete"
    )


def test_a_pipe_is_followed_to_its_end(model, X, lines):
    result = run("score", "-", "--follow", "--model", "m.npz", "--json", stdin=HEADER + "".join(lines[600:]))
    assert result.exit_code == 0, result.stderr
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["scores"]["rows"] == 300
    kinds = [next(iter(json.loads(line))) for line in result.stdout.splitlines()]
    assert kinds.count("alarm") == last["scores"]["alarms"]
    told = [json.loads(line)["event"] for line in result.stdout.splitlines() if line.startswith('{"event"')]
    ended, found = ([one for one in events if not one["is_open"]] for events in (told, last["scores"]["events"]))
    assert ended == found


# Times and bad rows


def test_times_are_kept_beside_results(model, X, lines):
    append("new.csv", [HEADER, *lines[600:]])
    facts("score", "new.csv", "--model", "m.npz", "--time", "when", "--save", "o.parquet")
    table = parquet.read_table("o.parquet")
    assert table.column_names[:3] == ["row", "when", "novelty"]
    assert table["when"].to_pylist() == [line.partition(",")[0] for line in lines[600:]]
    facts("fit", "new.csv", "--time", "when", "--save", "p.parquet")
    assert parquet.read_table("p.parquet")["when"] == table["when"]
    found = facts("score", "new.csv", "--model", "m.npz", "--time", "when", "--top", "4")["scores"]["most_novel"]
    assert [one["time"] for one in found] == [lines[600 + one["row"]].partition(",")[0] for one in found]
    assert found[0]["time"] in run("score", "new.csv", "--model", "m.npz", "--time", "when").stdout


@pytest.mark.parametrize(
    ("values", "kind", "kept"),
    [
        ([3, None, 5], "int64", [3, None, 5]),
        ([3, 4.5], "double", [3.0, 4.5]),
        (["x", None], "string", ["x", None]),
        ([7, "x"], "string", ["7", "x"]),
        ([None, None], "string", [None, None]),
        ([3, 2**63], "string", ["3", str(2**63)]),
    ],
)
def test_times_of_one_type_become_a_column_of_that_type(folder, values, kind, kept):
    with ResultWriter("o.parquet", time_name="when") as writer:
        writer.write(np.zeros(len(values)), times=values)
        writer.write(np.zeros(len(values)), times=values)
    column = parquet.read_table("o.parquet")["when"]
    assert (str(column.type), column.to_pylist()) == (kind, kept * 2)


def test_results_never_overwrite_an_input_under_any_name(model, lines):
    append("new.csv", [HEADER, *lines[600:]])
    os.link("new.csv", "link.csv")
    before = Path("new.csv").read_bytes()
    for more in (["--follow", "--save", "link.csv"], ["--save", "link.csv"]):
        result = run("transform", "new.csv", "--model", "m.npz", "--time", "when", *more)
        refused(result, "is read as input", "another name")
        assert Path("new.csv").read_bytes() == before


@pytest.mark.parametrize("later", ["later", 2**63])
def test_times_that_change_their_type_are_refused(folder, later):
    def write():
        with ResultWriter("o.csv") as writer:
            for times in ([1], [later]):
                writer.write(np.zeros(1), times=times)

    with pytest.raises(ValueError, match="times were int at first but are not any more"):
        write()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", ["novelty", "row", "component_7"])
def test_a_time_column_named_like_a_result_is_renamed(model, lines, name):
    append("new.csv", [HEADER.replace("when", name), *lines[600:]])
    facts("transform", "new.csv", "--model", "m.npz", "--time", name, "--save", "o.parquet")
    assert parquet.read_table("o.parquet").column_names[:3] == ["row", "time", "novelty"]


def test_bad_rows_are_skipped_and_counted(folder, X, lines):
    bad = [*lines[:50], "2024,1,oops,3\n", *lines[50:200], "2024,1,2\n", "2024,,1,2\n", *lines[200:300]]
    append("log.csv", [HEADER, *bad])
    fit = ["fit", "log.csv", "--time", "when", *SMALL, "--model", "m.npz"]
    refused(run(*fit), "log.csv, line 52", "'b' holds text", "--on-bad-rows skip")
    result = run(*fit, "--on-bad-rows", "skip")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "streamkpca: warning: 3 rows were skipped, the first: log.csv, line 52: column 'b' holds text"
    )
    assert same("m.npz", learned(X, 300))
    for args in (
        ["fit", "log.csv"],
        ["transform", "log.csv", "--model", "m.npz", "--save", "o.csv"],
        ["score", "log.csv", "--model", "m.npz"],
    ):
        found = facts(*args, "--time", "when", "--on-bad-rows", "skip")
        found = found.get("scores", found)
        assert found["rows_skipped"] == 3
        assert found["first_skipped"].startswith("log.csv, line 52")
    picture = run("plot", "novelty", "log.csv", "--on-bad-rows", "skip", "--model", "m.npz", "--save", "n.png")
    assert "3 rows were skipped" in picture.stderr
