"""Models and results between commands: columns by name, formats, pipes, signals, full disks, completion."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.shell_completion import ShellComplete
from commands import COMMAND, SMALL, fact, refused, run
from pyarrow import csv, feather, ipc, parquet

import streamkpca
from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.console import BadInput, print_json
from streamkpca.cli.main import cli
from streamkpca.cli.models import Autosave
from streamkpca.cli.options import SaveInterval
from streamkpca.cli.signals import SignalGuard
from streamkpca.kernels import RBF
from streamkpca.kernels.registry import KERNELS, kernel_from
from streamkpca.monitoring import Monitor

pytestmark = pytest.mark.slow

PARAMETERS = {"max_atoms": 20, "block_size": 64, "refit_every": 128}
NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(1)
    return np.round(np.tanh(rng.normal(size=(800, 2)) @ rng.normal(size=(2, 3))), 6)


def write_csv(path, names, rows):
    np.savetxt(path, rows, delimiter=",", fmt="%.6f", header=",".join(names), comments="")


@pytest.fixture
def folder(tmp_path, X, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # For processes that start here.
    monkeypatch.setenv("PYTHONPATH", str(Path(streamkpca.__file__).parents[1]))
    write_csv("old.csv", NAMES, X[:600])
    write_csv("new.csv", NAMES, X[600:])
    assert run("fit", "old.csv", *SMALL, "--model", "m.npz").exit_code == 0
    return tmp_path


@pytest.fixture(scope="module")
def expected(X):
    return StreamingKernelPCA(3, kernel=RBF().in_units("auto"), **PARAMETERS).partial_fit(X[:600]).refit()


def shell(*args, **options):
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, timeout=120, **options)


# Columns by name


def test_a_model_finds_its_columns_by_name(folder, X, expected):
    rows = np.column_stack([np.arange(200), X[600:, 2], X[600:, 0], np.ones(200), X[600:, 1]])
    write_csv("more.csv", ["row", "c", "a", "bad", "b"], rows)
    assert run("transform", "more.csv", "--model", "m.npz", "--save", "o.parquet").exit_code == 0
    np.testing.assert_allclose(parquet.read_table("o.parquet")["novelty"], expected.novelty(X[600:]), rtol=1e-9)
    scored = run("score", "more.csv", "--model", "m.npz", "--labels", "bad", "--json")
    assert json.loads(scored.stdout)["scores"]["anomalous_rows"] == 200
    result = run("fit", "more.csv", "--model", "m.npz", "--resume", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["model"]["column_names"] == NAMES
    whole = StreamingKernelPCA(3, **PARAMETERS).partial_fit(X).refit()
    np.testing.assert_allclose(load("m.npz").transform(X), whole.transform(X), rtol=1e-9, atol=1e-12)


def test_a_missing_column_is_named(folder, X):
    write_csv("fewer.csv", ["a", "c", "x"], X)
    for command in (["score"], ["transform"], ["fit", "--resume"]):
        refused(
            run(*command, "fewer.csv", "--model", "m.npz"),
            "fewer.csv",
            "the columns that were learned but there is no 'b'",
        )
    assert run("score", "fewer.csv", "--model", "m.npz", "--columns", "a,x,c").exit_code == 0


def test_files_without_names_are_taken_by_position(folder, X, expected):
    np.save("new.npy", X[600:])
    result = run("transform", "new.npy", "--model", "m.npz")
    found = csv.read_csv(io.BytesIO(result.stdout.encode()))
    np.testing.assert_allclose(found["novelty"], expected.novelty(X[600:]), rtol=1e-9)


def test_names_from_a_dataframe_count_too(folder, X):
    pandas = pytest.importorskip("pandas")
    StreamingKernelPCA(2).partial_fit(pandas.DataFrame(X, columns=["c", "b", "a"])).save("other.npz", {"offset": 3})
    assert json.loads(run("info", "other.npz", "--json").stdout)["column_names"] == ["c", "b", "a"]
    # Goes on with its names, and keeps what was beside it.
    assert run("fit", "new.csv", "--model", "other.npz", "--resume").exit_code == 0
    saved = load("other.npz")
    assert saved.extra_["offset"] == 3
    assert saved.extra_["command"]["columns"] == ["c", "b", "a"]
    whole = StreamingKernelPCA(2).partial_fit(np.concatenate([X, X[600:, ::-1]]))
    np.testing.assert_allclose(saved.transform(X), whole.refit().transform(X), rtol=1e-9, atol=1e-12)


def test_the_extra_of_a_model_is_never_lost(folder, X):
    StreamingKernelPCA(2).partial_fit(X).save("other.npz", [1, 2])
    refused(run("fit", "new.csv", "--model", "other.npz", "--resume"), "to be a dictionary", "[1, 2]")
    assert load("other.npz").extra_ == [1, 2]
    StreamingKernelPCA(2).partial_fit(X).save("other.npz", {"command": {"columns": [1, 2, 3]}})
    assert run("score", "new.csv", "--model", "other.npz").exit_code == 0


def test_the_file_to_learn_sets_the_columns_of_the_file_to_score(folder, X):
    write_csv("more.csv", ["c", "bad", "b", "x", "a"], X[600:, [2, 0, 1, 0, 0]])
    found = run("score", "more.csv", "--train", "old.csv", "--labels", "bad", *SMALL, "--save", "o.csv")
    assert found.exit_code == 0, found.stderr
    model = StreamingKernelPCA(3, **PARAMETERS).partial_fit(X[:600]).refit()
    np.testing.assert_allclose(csv.read_csv("o.csv")["novelty"], model.novelty(X[600:]), rtol=1e-9)


def test_a_merged_model_continues_at_the_further_offset(folder, X):
    kernel = ["--kernel", "RBF(gamma=0.5)", "--block-size", "64"]
    for name, n in (("x", 100), ("y", 300)):
        write_csv("log.csv", NAMES, X[:n])
        assert run("fit", "log.csv", *kernel, "--model", f"{name}.npz").exit_code == 0
    for models in (["x.npz", "y.npz"], ["y.npz", "x.npz"]):
        assert run("merge", *models, "--out", "xy.npz").exit_code == 0
        write_csv("log.csv", NAMES, X[:350])
        found = json.loads(run("fit", "log.csv", "--model", "xy.npz", "--resume", "--json").stdout)
        assert (found["new_rows"], found["model"]["rows"]) == (50, 450)


def test_merged_models_keep_their_names(folder, X):
    for name, names in (("x", NAMES), ("y", NAMES), ("z", NAMES[::-1])):
        write_csv(f"{name}.csv", names, X)
        assert run("fit", f"{name}.csv", "--kernel", "RBF(gamma=0.5)", "--model", f"{name}.npz").exit_code == 0
    assert json.loads(run("merge", "x.npz", "y.npz", "--out", "xy.npz", "--json").stdout)["column_names"] == NAMES
    assert load("xy.npz").extra_["command"]["columns"] == NAMES
    refused(run("merge", "x.npz", "z.npz", "--out", "o.npz"), "z.npz: expected column 'a' at position 0", "got 'c'")


# Results


def read_results(form, contents):
    if form == "jsonl":
        return pa.Table.from_pylist([json.loads(line) for line in contents.splitlines()])
    file = io.BytesIO(contents)
    if form == "arrows":
        return ipc.open_stream(file).read_all()
    return {"csv": csv.read_csv, "parquet": parquet.read_table, "arrow": feather.read_table}[form](file)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow", "arrows"])
@pytest.mark.parametrize("by", ["ending", "option"])
def test_results_are_written_in_every_format(folder, X, expected, form, by):
    name, option = (f"o.{form}", []) if by == "ending" else ("o.out", ["--format", form])
    result = run("transform", "new.csv", "--model", "m.npz", "--chunk-rows", "64", "--save", name, *option, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == {"rows": 200, "saved": name, "rows_skipped": 0, "first_skipped": None}
    table = read_results(form, (folder / name).read_bytes())
    assert table.column_names == ["row", "novelty", "component_0", "component_1", "component_2"]
    np.testing.assert_array_equal(table["row"], np.arange(200))
    np.testing.assert_allclose(table["novelty"], expected.novelty(X[600:]), rtol=1e-9)
    np.testing.assert_allclose(table["component_2"], expected.transform(X[600:])[:, 2], rtol=1e-9, atol=1e-12)
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrows"])
@pytest.mark.parametrize("command", ["transform", "score"])
def test_standard_output_takes_results_and_nothing_else(folder, X, expected, form, command):
    done = shell(command, "new.csv", "--model", "m.npz", "--format", form, "--save", "-")
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    np.testing.assert_allclose(read_results(form, done.stdout)["novelty"], expected.novelty(X[600:]), rtol=1e-9)


def test_transform_prints_a_json_object_for_each_row(folder, X, expected):
    lines = [json.loads(line) for line in run("transform", "new.csv", "--model", "m.npz", "--json").stdout.splitlines()]
    np.testing.assert_allclose([line["novelty"] for line in lines], expected.novelty(X[600:]), rtol=1e-9)


def test_alarms_are_counted(folder, X, expected):
    found = json.loads(run("score", "new.csv", "--model", "m.npz", "--quantile", "0.8", "--json").stdout)["scores"]
    record = Monitor(expected, quantile=0.8).update(X[600:])
    assert found["threshold"] == pytest.approx(record.threshold[-1])
    assert found["alarms"] == np.count_nonzero(record.is_alarm)
    assert f"{found['alarms']} (" in run("score", "new.csv", "--model", "m.npz", "--quantile", "0.8").stdout


def test_a_model_without_a_sample_raises_alarms_too(folder, X):
    StreamingKernelPCA(2, reservoir_size=0).partial_fit(X[:600]).save("none.npz")
    found = json.loads(run("score", "new.csv", "--model", "none.npz", "--quantile", "0.5", "--json").stdout)["scores"]
    assert 0 < found["alarms"] < 200


@pytest.mark.parametrize(
    "args",
    [
        ["demo", "--rows", "800", "--out", "d"],
        ["fit", "old.csv"],
        ["score", "new.csv", "--train", "old.csv"],
        ["transform", "new.csv", "--model", "m.npz", "--save", "o.csv"],
        ["info", "m.npz"],
        ["info", "empty.npz"],
        ["merge", "m.npz", "n.npz", "--out", "o.npz"],
        ["export", "m.npz", "o.c"],
        ["completion", "fish"],
        ["warmup"],
        ["plot", "spectrum", "m.npz", "--save", "o.png"],
    ],
)
def test_every_command_prints_json(folder, args):
    StreamingKernelPCA(4).save("empty.npz")
    shutil.copy("m.npz", "n.npz")
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    assert json.loads(line)


def test_numbers_that_json_lacks_are_null(capsys):
    print_json({"a": [1.5, float("nan"), (float("inf"),)], "b": {"c": -float("inf")}, "d": "NaN"})
    assert json.loads(capsys.readouterr().out) == {"a": [1.5, None, [None]], "b": {"c": None}, "d": "NaN"}


def test_info_shows_the_parameters_of_a_model_without_rows(folder):
    StreamingKernelPCA(4).save("empty.npz")
    assert json.loads(run("info", "empty.npz", "--json").stdout)["parameters"]["n_components"] == 4
    assert "seen no rows yet" in run("info", "empty.npz").stdout


@pytest.mark.parametrize(
    "place", [{}, {"line": "x"}, {"row": None, "line": [1]}, {"line": -1, "byte": -7, "head": [1, 1]}]
)
def test_notes_written_by_others_do_no_harm(folder, X, place):
    old = os.path.realpath("old.csv")
    notes = {"columns": ["a", "\x1b[2J", "[bold]c"], "places": {old: place}}
    StreamingKernelPCA(2).partial_fit(X).save("odd.npz", {"command": notes, "\x1b": "\x1b[2J"})
    result = run("info", "odd.npz")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert fact(result.stdout, "column names") == "a, \\x1b[2J, [bold]c"
    refused(run("score", "new.csv", "--model", "odd.npz"), "there is no '\\x1b[2J'")
    result = run("fit", "old.csv", "--columns", "a,b,c", "--model", "odd.npz", "--resume")
    refused(result, "old.csv: ", "(--from-start)")


def test_info_shows_up_to_where_files_were_learned(folder):
    np.save("x.npy", np.zeros((70, 3)))
    assert run("fit", "x.npy", "--model", "m.npz", "--resume").exit_code == 0
    output = run("info", "m.npz").stdout
    assert f"learned from        {os.path.realpath('old.csv')}, up to line 601\n" in output
    assert f"learned from        {os.path.realpath('x.npy')}, up to row 70\n" in output


# Standard streams that are closed, full or terminals


def test_a_closed_pipe_of_results_is_no_error(folder):
    np.savetxt("long.csv", np.tile(np.loadtxt("old.csv", delimiter=",", skiprows=1), (200, 1)), delimiter=",")
    for form in ("csv", "jsonl", "arrows"):
        process = subprocess.Popen(
            [*COMMAND, "transform", "long.csv", "--model", "m.npz", "--format", form],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout.read(20)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(timeout=60) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
@pytest.mark.parametrize("args", [["info", "m.npz"], ["transform", "new.csv", "--model", "m.npz"], ["--help"]])
def test_a_full_disk_is_one_line(folder, args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "streamkpca: standard output: No space left on device; make room, or write elsewhere"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("o.csv", ["transform", "new.csv", "--model", "m.npz", "--save"]),
        ("o.jsonl", ["fit", "old.csv", "--save"]),
    ],
)
def test_results_for_a_device_that_is_full_are_refused(folder, name, args):
    # tests/faults/test_faults_files.py fills disks.
    os.symlink("/dev/full", name)
    refused(run(*args, name), f"{name}: No space left on device; make room")
    assert os.readlink(name) == "/dev/full"


def test_a_closed_pipe_of_help_is_no_error(folder):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as pipe:
        done = subprocess.run([*COMMAND, "--help"], stdout=pipe, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("args", [["fit", "old.csv", *SMALL, "--model", "n.npz"], ["info", "m.npz"]])
def test_commands_work_without_standard_output(folder, args):
    closed = f"{sys.executable} -m streamkpca {' '.join(args)} >&-"
    done = subprocess.run(closed, shell=True, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    if "fit" in args:
        assert load("n.npz").n_samples_seen_ == 600


def test_reading_or_writing_a_closed_stream_is_refused(folder):
    for line, part in (
        ("transform new.csv --model m.npz >&-", "standard output is closed"),
        ("fit - <&-", "standard input is closed"),
    ):
        done = subprocess.run(
            f"{sys.executable} -m streamkpca {line}", shell=True, stderr=subprocess.PIPE, text=True, timeout=60
        )
        assert done.returncode == 2
        (said,) = done.stderr.splitlines()
        assert part in said


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_a_progress_bar_leaves_standard_output_alone(folder, X, follow):
    ours, theirs = os.openpty()
    # A dumb terminal gets no bar at all.
    environment = os.environ | {"TERM": "xterm"}
    command = [*COMMAND, "score", "-", *follow, "--model", "m.npz", "--json", "--quantile", "0.5"]
    text = (folder / "new.csv").read_bytes()
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=theirs, env=environment, timeout=60)
    os.close(theirs)
    shown = b""
    # The terminal's end is an error on some systems, and nothing on others.
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["scores"]["rows"] == 200
    assert lines[-1]["scores"]["alarms"] > 10
    assert sum("alarm" in line for line in lines) == (lines[-1]["scores"]["alarms"] if follow else 0)
    assert (b"scoring" in shown) == (not follow)


# Signals, and models that are saved in between


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_continues_as_if_it_had_not_stopped(folder, X, signum, code):
    def reset():
        signal.signal(signal.SIGINT, signal.default_int_handler)

    process = subprocess.Popen(
        [*COMMAND, "fit", "-", *SMALL, "--model", "part.npz", "--save-every", "100"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=reset,
    )  # fmt: skip
    text = (folder / "old.csv").read_bytes().splitlines(keepends=True)
    process.stdin.write(b"".join(text[:251]))
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not (folder / "part.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signum)
    process.wait(timeout=60)
    said = process.stderr.read().decode()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
    assert (process.returncode, said) == (code, "streamkpca: interrupted after 250 rows\n")
    assert load("part.npz").n_samples_seen_ == 250
    rest = text[0] + b"".join(text[251:])
    assert run("fit", "-", "--model", "part.npz", "--resume", stdin=rest).exit_code == 0
    assert load("part.npz").to_bytes(load("part.npz").extra_) == load("m.npz").to_bytes(load("part.npz").extra_)


def test_a_terminated_command_exits_with_143():
    signals = SignalGuard()
    before = signal.getsignal(signal.SIGTERM)
    with signals.installed():
        assert signal.getsignal(signal.SIGTERM) == signals.receive
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signals.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) == before


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


def test_a_model_is_saved_when_it_is_due(folder, X, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("streamkpca.cli.models.time", clock)
    model = StreamingKernelPCA(2).partial_fit(X[:100])

    def is_saved(autosave):
        (folder / "k.npz").unlink(missing_ok=True)
        autosave.save_if_due(model)
        return (folder / "k.npz").exists()

    by_rows, by_time = Autosave("k.npz", SaveInterval(rows=150)), Autosave("k.npz", SaveInterval(seconds=30.0))
    assert not is_saved(by_rows)
    assert not is_saved(by_time)
    model.partial_fit(X[100:150])
    assert is_saved(by_rows)
    assert not is_saved(by_rows)
    clock.now = 30.0
    assert is_saved(by_time)
    clock.now = 90.0
    # Nothing is new.
    assert not is_saved(by_time)
    assert not is_saved(Autosave("k.npz", SaveInterval()))


def test_files_left_by_a_killed_process_are_removed(folder):
    left, others = f".n.npz.{'0f' * 8}.tmp", [f".m.npz.{'0f' * 8}.tmp", ".n.npz.tmp", f".n.npz.{'0f' * 8}.tmp.bak"]
    for name in (left, *others):
        Path(name).touch()
    assert run("fit", "old.csv", *SMALL, "--model", "n.npz").exit_code == 0
    assert sorted(path.name for path in folder.glob(".*")) == sorted(others)


@pytest.mark.parametrize("interval", ["0", "-5", "1.5", "soon", "5 d", "0s"])
def test_an_unclear_save_interval_is_refused(folder, interval):
    refused(
        run("fit", "old.csv", "--model", "m.npz", "--save-every", interval), "neither a number of rows", "Try --help"
    )


def test_a_save_interval_needs_a_model(folder):
    refused(run("fit", "old.csv", "--save-every", "5m"), "name a file for it with --model")


def test_a_model_that_cannot_be_saved_is_an_error(folder, X):
    saver = Autosave("absent/m.npz", SaveInterval())
    with pytest.raises(BadInput, match="absent"):
        saver.save(StreamingKernelPCA(2).partial_fit(X))


# Completion and help


def completions(*words):
    complete = ShellComplete(cli, {}, "streamkpca", "_STREAMKPCA_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_shells_complete_commands_options_and_values():
    assert completions("p") == ["plot"]
    assert completions("plot", "s") == ["spectrum", "sparsity"]
    assert completions("fit", "--ker") == ["--kernel"]
    assert completions("fit", "--kernel", "r") == ["rational_quadratic", "rbf"]
    assert completions("fit", "--axes", "") == ["ritz", "likelihood"]
    assert completions("fit", "--dtype", "float3") == ["float32"]
    assert completions("fit", "--noise-variance", "") == ["auto", "none"]
    assert completions("score", "--random-state", "n") == ["none"]
    assert completions("transform", "--format", "a") == ["arrow", "arrows"]
    complete = ShellComplete(cli, {}, "streamkpca", "_STREAMKPCA_COMPLETE")
    for words in (
        ["fit"],
        ["fit", "--model"],
        ["info"],
        ["plot", "novelty"],
        ["plot", "spectrum"],
        ["score", "--train"],
    ):
        assert [item.type for item in complete.get_completions(words, "")] == ["file"]


def test_kernels_that_are_completed_are_known():
    assert {name: type(kernel_from(name, where="--kernel")) for name in KERNELS} == KERNELS


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_completion_script_names_its_shell(name):
    result = run("completion", name)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("# To install: ")
    assert f"_STREAMKPCA_COMPLETE={name}_complete" in result.stdout
    refused(run("completion", "cmd"), "cmd")


def test_bash_completes_with_the_script(folder):
    (folder / "bin").mkdir()
    command = folder / "bin" / "streamkpca"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m streamkpca "$@"\n')
    command.chmod(0o755)
    ask = (
        'eval "$(streamkpca completion bash)"; COMP_WORDS=(streamkpca plot nov); COMP_CWORD=2;'
        ' _streamkpca_completion streamkpca nov plot; echo "${COMPREPLY[@]}"; complete -p streamkpca'
    )
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ask], capture_output=True, text=True, timeout=120, env=os.environ | {"PATH": path}
    )
    assert done.stderr == ""
    found, registered = done.stdout.splitlines()
    assert found == "novelty"
    assert "_streamkpca_completion" in registered
