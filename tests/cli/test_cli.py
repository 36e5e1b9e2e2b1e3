"""The command as a shell user meets it: results, exit codes, one-line errors, Ctrl-C."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import click
import numpy as np
import pyarrow as pa
import pytest
from commands import COMMAND, SMALL, fact, refused, run
from pyarrow import csv, parquet

from streamkpca import StreamingKernelPCA, __version__, load
from streamkpca.cli.console import show_progress
from streamkpca.cli.results import ResultWriter
from streamkpca.cli.signals import SignalGuard
from streamkpca.kernels import RBF
from streamkpca.monitoring import Monitor


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return np.round(np.tanh(rng.normal(size=(600, 2)) @ rng.normal(size=(2, 4))), 6)


@pytest.fixture
def files(tmp_path, X):
    names = [f"c{j}" for j in range(4)]
    np.savetxt(tmp_path / "plain.csv", X, delimiter=",", fmt="%.6f")
    np.savetxt(tmp_path / "named.csv", X, delimiter=",", fmt="%.6f", header=",".join(names), comments="")
    np.save(tmp_path / "x.npy", X)
    np.savez_compressed(tmp_path / "x.npz", rows=X, train=X[:400], test=X[400:], label=np.arange(200) < 20)
    parquet.write_table(pa.table(dict(zip(names, X.T, strict=True))), tmp_path / "x.parquet")
    return tmp_path


def shell(*args, **options):
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, timeout=120, **options)


@pytest.fixture(scope="module")
def expected(X):
    return small_model().partial_fit(X).refit()


def small_model():
    return StreamingKernelPCA(3, kernel=RBF().in_units("auto"), max_atoms=20, block_size=64, refit_every=128)


def watched(X, n_learned, **options):
    """Let a monitor learn the first rows as normal and go through the others."""
    monitor = Monitor(small_model(), **options)
    learn, monitor.learn = monitor.learn, "all"
    monitor.update(X[:n_learned])
    monitor.model.refit()
    monitor.forget_alarms().learn = learn
    return monitor, monitor.update(X[n_learned:])


@pytest.mark.parametrize("source", ["plain.csv", "named.csv", "x.npy", "x.npz", "x.parquet"])
@pytest.mark.parametrize("chunk", ["7", "4096"])
def test_fit_learns_what_the_library_learns(files, X, expected, source, chunk):
    out = files / "out.parquet"
    array = ["--array", "rows"] if source == "x.npz" else []
    result = run("fit", files / source, *SMALL, *array, "--chunk-rows", chunk, "--save", out)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert fact(result.stdout, "rows") == "600"
    assert fact(result.stdout, "columns") == "4"
    assert fact(result.stdout, "kernel") == f"{expected.kernel_.kernel!r}, columns as they are"
    table = parquet.read_table(out).to_pandas()
    assert table.columns.tolist() == ["row", "novelty", "component_0", "component_1", "component_2"]
    np.testing.assert_array_equal(table["row"], np.arange(600))
    np.testing.assert_allclose(table["novelty"], expected.novelty(X), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(table.iloc[:, 2:], expected.transform(X), rtol=1e-9, atol=1e-12)
    assert not list(files.glob(".*.tmp"))


def test_fit_prints_every_component(files, expected):
    result = run("fit", files / "x.npy", *SMALL)
    for i, (value, share) in enumerate(zip(expected.eigenvalues_, expected.explained_variance_ratio_, strict=True)):
        assert re.search(rf"^ *{i} +{value:.4g} +{share:.2%} ", result.stdout, re.MULTILINE)


def test_fit_reads_several_files_as_one_stream(files, X, expected):
    np.savetxt(files / "head.csv", X[:250], delimiter=",", fmt="%.6f")
    np.save(files / "tail.npy", X[250:])
    out = files / "out.csv"
    result = run("fit", files / "head.csv", files / "tail.npy", *SMALL, "--save", out)
    assert result.exit_code == 0, result.stderr
    table = csv.read_csv(out).to_pandas()
    np.testing.assert_allclose(table["novelty"], expected.novelty(X), rtol=1e-9, atol=1e-14)


@pytest.mark.slow
def test_fit_takes_rows_from_a_pipe(files, expected):
    with (files / "named.csv").open() as rows:
        result = shell("fit", "-", *SMALL, stdin=rows)
    assert result.returncode == 0, result.stderr
    assert fact(result.stdout, "rows") == "600"
    assert fact(result.stdout, "kernel") == f"{expected.kernel_.kernel!r}, columns as they are"
    assert result.stderr == ""


def test_rows_of_a_pipe_are_projected_as_they_are_learned(files, X):
    out = files / "out.parquet"
    text = (files / "plain.csv").read_bytes()
    result = run("fit", "-", *SMALL, "--chunk-rows", 100, "--save", out, stdin=text)
    assert result.exit_code == 0, result.stderr
    model = small_model()
    novelty = [model.partial_fit(part).novelty(part) for part in np.split(X, 6)]
    np.testing.assert_allclose(
        parquet.read_table(out)["novelty"].to_numpy(), np.concatenate(novelty), rtol=1e-9, atol=1e-14
    )


def test_a_kernel_expression_and_the_other_options_reach_the_model(files):
    kernel = "2.0 * RBF(gamma=0.5) + Linear().on([0, 1])"
    result = run(
        "fit", files / "x.npy", "--kernel", kernel, "--max-atoms", "none", "--tolerance", "0.01", "--no-center",
        "--noise-variance", "auto", "--components", "2", "--columns", "3,1", "--drop", "9",
    )  # fmt: skip
    refused(result, "no column '9'")
    result = run(
        "fit", files / "x.npy", "--kernel", kernel, "--max-atoms", "none", "--tolerance", "0.01", "--no-center",
        "--noise-variance", "auto", "--components", "2", "--columns", "3,1",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert fact(result.stdout, "columns") == "2"
    assert "RBF(gamma=0.5)" in fact(result.stdout, "kernel")
    assert "of at most" not in fact(result.stdout, "atoms")


OTHERS = {
    "--components": ("0.5", 0.5),
    "--kernel": ("RBF(gamma=0.5)", RBF(gamma=0.5)),
    "--max-atoms": ("none", None),
    "--atoms": ("rows", "rows"),
    "--tolerance": ("0.25", 0.25),
    "--noise-variance": ("none", None),
    "--n-active": ("4", 4),
    "--axes": ("likelihood", "likelihood"),
    "--no-center": (None, False),
    "--half-life": ("500", 500.0),
    "--block-size": ("32", 32),
    "--refit-every": ("96", 96),
    "--reservoir-size": ("64", 64),
    "--random-state": ("none", None),
    "--dtype": ("float32", "float32"),
}


def test_the_command_offers_every_parameter_of_the_model(files):
    words = [word for name, (text, _) in OTHERS.items() for word in (name, text) if word is not None]
    assert run("fit", files / "x.npy", *words, "--model", files / "m.npz").exit_code == 0
    found = load(files / "m.npz").get_params(deep=False)
    names = {"--components": "n_components", "--no-center": "center"}
    expected = {names.get(name, name[2:].replace("-", "_")): value for name, (_, value) in OTHERS.items()}
    # Bad rows and rows with gaps are left out as files are read; `test_cli_gaps` has the models that learn gaps.
    assert found == expected | {"on_bad_rows": "raise", "on_missing": "raise"}


def test_the_command_has_the_defaults_of_the_model(files):
    assert run("fit", files / "x.npy", "--model", files / "m.npz").exit_code == 0
    assert load(files / "m.npz").get_params(deep=False) == StreamingKernelPCA(kernel=RBF().in_units("auto")).get_params(
        deep=False
    )


@pytest.mark.parametrize("name", OTHERS)
def test_a_parameter_cannot_change_when_a_model_continues(files, name):
    model = files / "m.npz"
    assert run("fit", files / "x.npy", *SMALL, "--model", model).exit_code == 0
    words = [word for word in (name, OTHERS[name][0]) if word is not None]
    refused(run("fit", files / "x.npy", *words, "--model", model, "--resume"), "leave out", name)
    refused(run("score", files / "x.npy", *words, "--model", model), "has its parameters already; leave out", name)


def test_score_finds_the_rows_unlike_those_learned(files, X):
    strange = X[400:].copy()
    strange[:20] = X[400:420, ::-1] + 2
    np.savez(files / "s.npz", train=X[:400], test=strange, label=np.arange(200) < 20)
    out = files / "out.csv"
    result = run(
        "score", files / "s.npz", "--array", "test", "--train", files / "s.npz", "--train-array", "train",
        "--labels", "label", "--top", "20", "--save", out, *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert fact(result.stdout, "area under ROC curve") == "1.000"
    assert fact(result.stdout, "average precision") == "1.000 (chance 0.100)"
    rows = re.findall(r"^ +(\d+) +[\d.e-]+  +\d \d+%", result.stdout.partition("Most novel rows")[2], re.MULTILINE)
    assert sorted(map(int, rows)) == list(range(20))
    table = csv.read_csv(out).to_pandas()
    np.testing.assert_array_equal(table["label"], np.arange(200) < 20)
    _, record = watched(np.concatenate([X[:400], strange]), 400)
    np.testing.assert_allclose(table["novelty"], record.novelty, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(table["threshold"], record.threshold, rtol=1e-9)
    np.testing.assert_array_equal(table["alarm"], record.is_alarm)


@pytest.mark.parametrize("train_has_labels", [True, False])
def test_score_leaves_a_label_column_out_of_both_files(files, X, train_has_labels):
    rows = "\n".join(",".join(map(repr, row)) + f",{i % 2}" for i, row in enumerate(X[400:].tolist()))
    (files / "new.csv").write_text("c0,c1,c2,c3,bad\n" + rows)
    (files / "old.csv").write_text("c0,c1,c2,c3,bad\n" + rows)
    train = files / ("old.csv" if train_has_labels else "named.csv")
    result = run("score", files / "new.csv", "--train", train, "--labels", "bad", *SMALL)
    assert result.exit_code == 0, result.stderr
    assert fact(result.stdout, "anomalous rows") == "100 (50.00%)"


def test_score_reads_a_pipe_but_does_not_learn_from_one(files):
    text = (files / "plain.csv").read_bytes()
    result = run("score", "-", "--train", files / "plain.csv", *SMALL, stdin=text)
    assert result.exit_code == 0, result.stderr
    assert "Novelty of -" in result.stdout
    refused(run("score", files / "plain.csv", "--train", "-"), "--train -", "write it to a file")


@pytest.mark.slow
def test_the_demo_learns_says_it_is_simulated_and_writes_its_files(tmp_path):
    result = run("demo", "--rows", "3000", "--seed", "5", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "simulated plant, not real data" in result.stdout
    assert fact(result.stdout, "area under ROC curve") > "0.8"
    table = parquet.read_table(tmp_path / "out" / "projections.parquet")
    assert table.num_rows == 3000
    assert table.column_names[:3] == ["row", "label", "novelty"]
    picture = (tmp_path / "out" / "picture.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 50_000
    assert result.stderr.splitlines()[0].startswith("streamkpca: simulating 3,000 rows of a plant with 24 sensors")


def test_a_demo_too_short_for_faults_says_so(tmp_path):
    result = run("demo", "--rows", "700", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "none yet" in fact(result.stdout, "faults")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["standard input", "empty"]),
        ("a,b\n", ["standard input", "no rows"]),
        ("t,x\n10:00,1\n", ["line 2", "'t' holds text", "--drop t"]),
        ("a,b\n1,2\n1,\n", ["line 3", "'b' has no value"]),
        ("a,b\n1,2\n1,2,3\n", ["line 3", "expected 2 fields"]),
        ("a,b\n1,inf\n", ["line 2", "infinite"]),
    ],
)
def test_bad_rows_are_refused_in_one_line(text, parts):
    refused(run("fit", "-", stdin=text), *parts)


def test_skipping_every_row_is_refused_with_advice_to_drop_columns():
    result = run("fit", "-", "--on-bad-rows", "skip", stdin="station,x\nA,1\nB,2\n")
    refused(result, "(2 skipped, the first: ", "; leave columns that are not numbers out (--drop A,B,...), or give a")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["absent.csv"], ["absent.csv: no such file"]),
        (["x.npy", "narrow.csv"], ["narrow.csv", "expected 4 columns", "got 2"]),
        (["x.npz"], ["choose one of its arrays with --array: rows, train, test, label"]),
        (["x.npy", "--array", "rows"], ["leave --array out"]),
        (["x.npy", "--kernel", "nonsense"], ["nonsense", "rbf"]),
        (["x.npy", "--kernel", "RBF(gamma=-1)"], ["gamma"]),
        (["x.npy", "--kernel", "RBF().on([7])"], ["7"]),
        (["x.npy", "--components", "0"], ["fit: --components must be at least 1, got 0"]),
        (["x.npy", "--components", "many"], ["--components", "Try --help"]),
        (["x.npy", "--max-atoms", "few"], ["--max-atoms", "expected a whole number or 'none' but got 'few'"]),
        (
            ["x.npy", "--noise-variance", "low"],
            ["--noise-variance", "expected a number, 'auto' or 'none' but got 'low'"],
        ),
        (["x.npy", "--tolerance", "nan"], ["fit: --tolerance must be", "nan"]),
        (["x.npy", "--axes", "best"], ["--axes", "'ritz', 'likelihood'"]),
        (["x.npy", "--random-state", "dice"], ["--random-state", "expected a whole number or 'none' but got 'dice'"]),
        (["x.npy", "--n-active", "9", "--max-atoms", "8"], ["fit: --n-active 9 atoms", "--max-atoms 8"]),
        (["absent.npy", "--block-size", "1"], ["fit: --block-size must be at least 2, got 1"]),
        (["x.npy", "--save", "out.txt"], ["written as .csv, .jsonl, .parquet"]),
        (["named.csv", "--save", "named.csv"], ["is read as input", "another name"]),
        (["x.npy", "--save", "absent/out.csv"], ["absent/out.csv", "No such file"]),
        (["-", "-"], ["only once"]),
        (["x.npy", "--nonsense"], ["--nonsense", "Try --help"]),
        ([], ["FILE", "Try --help"]),
    ],
)
def test_wrong_use_is_refused_in_one_line(files, monkeypatch, args, parts):
    (files / "narrow.csv").write_text("1,2\n")
    monkeypatch.chdir(files)
    refused(run("fit", *args), *parts)
    assert not list(files.glob(".*.tmp"))


def test_a_bad_row_leaves_no_results_behind(files):
    with (files / "plain.csv").open("a") as file:
        file.write("1,2,3,oops\n")
    result = run("fit", "-", *SMALL, "--save", files / "o.csv", stdin=(files / "plain.csv").read_bytes())
    refused(result, "line 601", "oops")
    assert not list(files.glob("o.csv*"))


def test_warnings_are_one_line(files):
    result = shell("fit", files / "x.npy", "--kernel", "Sigmoid(gamma=5, coef0=-3)", *SMALL)
    assert result.returncode == 0, result.stderr
    assert result.stderr
    assert all(line.startswith("streamkpca: warning: ") for line in result.stderr.splitlines())


def test_warmup_prints_what_it_did_and_where_the_cache_is():
    done = run("warmup")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert int(fact(done.stdout, "compiled")) + int(fact(done.stdout, "from the cache")) > 20
    assert "Cache: " in done.stdout


def test_version_and_help():
    assert __version__ in run("--version").stdout
    for command in ([], ["demo"], ["fit"], ["plot"]):
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert "Usage" in result.stdout
        # The character that keeps click from joining lines is not for readers.
        assert "\b" not in result.stdout
        assert "\\b" not in result.stdout
    assert run().exit_code == 2


def interrupted(process, begun):
    """Press Ctrl-C once work has begun, and return what the process said."""
    deadline = time.monotonic() + 60
    while not begun() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def has_bytes(*paths):
    return any(path.exists() and path.stat().st_size > 0 for path in paths)


def default_interrupt():
    # Tests may themselves run in the background, where Ctrl-C is ignored and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.slow
def test_ctrl_c_on_a_slow_pipe_prints_how_far_it_got(files):
    read_end, write_end = os.pipe()
    out = files / "out.csv"
    process = subprocess.Popen(
        [*COMMAND, "fit", "-", *SMALL, "--chunk-rows", "600", "--save", str(out)], stdin=read_end,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default_interrupt,
    )  # fmt: skip
    os.close(read_end)
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write((files / "plain.csv").read_bytes())
        pipe.flush()
        # The pipe stays open and silent: the process waits for more when Ctrl-C comes.
        code, stdout, stderr = interrupted(process, lambda: has_bytes(*files.glob(".out.csv.*.tmp")))
    assert code == 130, stderr
    assert stderr.splitlines() == ["streamkpca: interrupted after 600 rows"]
    assert fact(stdout, "rows") == "600"
    assert len(out.read_text().splitlines()) == 601


@pytest.mark.slow
def test_ctrl_c_during_the_demo(tmp_path):
    args = ["demo", "--rows", "50000000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default_interrupt
    )
    code, stdout, stderr = interrupted(process, lambda: has_bytes(*tmp_path.glob(".projections.parquet.*.tmp")))
    assert code == 130, stderr
    assert re.fullmatch(r"streamkpca: interrupted after [\d,]+ of 50,000,000 rows", stderr.splitlines()[-1])
    assert "Learned" in stdout
    assert (tmp_path / "picture.png").exists()


def test_a_closed_pipe_is_no_error(files):
    process = subprocess.Popen(
        [*COMMAND, "fit", str(files / "x.npy"), *SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 141


def test_a_missing_extra_is_named_in_one_line(monkeypatch):
    code = (
        "import sys; sys.modules['rich'] = None\nfrom streamkpca.__main__ import main\nsys.argv = ['x', 'demo']\nmain()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr == 'streamkpca: the command needs rich; pip install "streamkpca[cli]"\n'


def press_ctrl_c(signals, *, times):
    for _ in range(times):
        signals.receive(signal.SIGINT, None)


def test_ctrl_c_waits_for_deferring_work():
    signals, done = SignalGuard(), []

    def work():
        with signals.deferred():
            press_ctrl_c(signals, times=1)
            done.append("all of it")
        done.append("more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c(signals, times=1)


def test_a_second_ctrl_c_aborts_at_once():
    signals = SignalGuard()
    with pytest.raises(click.Abort), signals.deferred():
        press_ctrl_c(signals, times=2)


def test_the_handler_of_ctrl_c_is_installed_and_restored():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signals = SignalGuard()
        with signals.installed():
            assert signal.getsignal(signal.SIGINT) == signals.receive
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_ctrl_c_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with SignalGuard().installed():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_progress_is_silent_without_a_terminal(capfd):
    with show_progress("learning", 10) as report:
        report(5, 5, 1)
    assert capfd.readouterr() == ("", "")


def test_a_result_writer_without_rows_leaves_no_file(tmp_path):
    with ResultWriter(tmp_path / "a.parquet"):
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


# Models in files


@pytest.fixture
def model(files):
    result = run("fit", files / "x.npy", *SMALL, "--model", files / "plant.npz")
    assert result.exit_code == 0, result.stderr
    assert f"Model: {files / 'plant.npz'}" in result.stdout
    return files / "plant.npz"


def test_a_saved_model_is_what_was_learned(model, expected, X):
    again = load(model)
    assert again.n_samples_seen_ == 600
    np.testing.assert_allclose(again.transform(X), expected.transform(X), rtol=1e-9, atol=1e-12)


def test_a_model_continues_where_it_stopped(files, X, model):
    np.save(files / "head.npy", X[:250])
    np.save(files / "tail.npy", X[250:])
    parts = files / "parts.npz"
    assert run("fit", files / "head.npy", *SMALL, "--model", parts, "--resume").exit_code == 0
    result = run("fit", files / "tail.npy", "--model", parts, "--resume")
    assert result.exit_code == 0, result.stderr
    assert fact(result.stdout, "rows").startswith("600")
    whole = StreamingKernelPCA(3, max_atoms=20, block_size=64, refit_every=128).partial_fit(X)
    np.testing.assert_array_equal(load(parts).refit().transform(X), whole.refit().transform(X))
    refused(run("fit", files / "x.npy", *SMALL, "--model", parts, "--resume"), "leave out --components, --max-atoms")


def test_a_saved_model_scores_and_projects(files, model, expected, X):
    out = files / "out.csv"
    result = run("score", files / "x.npy", "--model", model, "--save", out, "--top", "3")
    assert result.exit_code == 0, result.stderr
    np.testing.assert_allclose(csv.read_csv(out).to_pandas()["novelty"], expected.novelty(X), rtol=1e-9)
    out = files / "out.parquet"
    result = run("transform", files / "named.csv", "--model", model, "--save", out)
    assert result.stdout.startswith("Projections and scores of 600 rows")
    table = parquet.read_table(out).to_pandas()
    np.testing.assert_allclose(table.iloc[:, 2:], expected.transform(X), rtol=1e-9, atol=1e-12)


def test_score_prints_what_it_found_before_the_model(files, model):
    output = run("score", files / "x.npy", "--model", model).stdout
    places = [output.index(title) for title in ("Most novel rows", "Novelty of ", "Learned", "Components")]
    assert places == sorted(places)


def test_json_output_is_one_object(files, model):
    found = json.loads(run("info", model, "--json").stdout)
    assert (found["rows"], found["columns"], found["atoms"], found["rows_rejected"]) == (600, 4, 20, 0)
    assert found["parameters"]["max_atoms"] == 20
    assert len(found["eigenvalue_bounds"]) == 3
    fitted = json.loads(run("fit", files / "x.npy", *SMALL, "--json").stdout)
    assert fitted["model"]["atoms"] == 20
    scored = json.loads(run("score", files / "x.npy", "--model", model, "--top", "2", "--json").stdout)
    assert scored["scores"]["rows"] == 600
    assert [line["novelty"] for line in scored["scores"]["most_novel"]] == sorted(
        (line["novelty"] for line in scored["scores"]["most_novel"]), reverse=True
    )
    other = shutil.copy(model, files / "other.npz")
    merged = json.loads(run("merge", model, other, "--out", files / "o.npz", "--json").stdout)
    assert merged["rows"] == 1200


def test_a_saved_model_is_exported(files, model):
    onnx = pytest.importorskip("onnx")
    result = run("export", model, files / "plant.onnx")
    assert result.exit_code == 0, result.stderr
    assert {output.name for output in onnx.load(files / "plant.onnx").graph.output} == {
        "projection",
        "reconstruction_error",
        "novelty",
    }
    assert run("export", model, files / "plant.c", "--double", "--name", "plant", "--quantile", "0.9").exit_code == 0
    text = (files / "plant.c").read_text()
    assert all(
        f"plant_{function}(" in text for function in ("transform", "reconstruction_error", "novelty", "is_novel")
    )


def test_info_shows_what_was_saved_beside_the_model(files, model):
    load(model).set_params(half_life=1000.0).save(model, extra={"offset": 7})
    output = run("info", model).stdout
    assert fact(output, "saved beside it") == '{"offset": 7}'
    assert fact(output, "half-life") == "1,000 rows"
    assert fact(output, "atoms") == "20 of at most 20, 20 of them moved from their rows"


def test_merged_models_are_one(files, X):
    kernel = "RBF(gamma=0.5)"
    for name, rows in (("east", X[:200]), ("west", X[200:])):
        np.save(files / f"{name}.npy", rows)
        assert (
            run("fit", files / f"{name}.npy", *SMALL, "--kernel", kernel, "--model", files / f"{name}.npz").exit_code
            == 0
        )
    result = run("merge", files / "east.npz", files / "west.npz", "--out", files / "both.npz")
    assert result.exit_code == 0, result.stderr
    assert load(files / "both.npz").n_samples_seen_ == 600
    assert run("fit", files / "east.npy", *SMALL, "--kernel", "linear", "--model", files / "other.npz").exit_code == 0
    refused(
        run("merge", files / "east.npz", files / "other.npz", "--out", files / "both.npz"),
        "other.npz: expected the kernel RBF(gamma=0.5), as",
        "east.npz has learned with, but got Linear(",
        'fit --kernel "RBF(gamma=0.5)"',
    )


def test_models_merge_with_the_kernel_that_a_refused_merge_names(files, X):
    for name, rows in (("one", X[:200]), ("two", X[200:])):
        np.save(files / f"{name}.npy", rows)
        assert run("fit", files / f"{name}.npy", *SMALL, "--model", files / f"{name}.npz").exit_code == 0
    merge = ("merge", files / "one.npz", files / "two.npz", "--out", files / "both.npz")
    result = run(*merge)
    refused(result, "two.npz: expected the kernel RBF(gamma=")
    kernel = result.stderr.rstrip().split('--kernel "')[1].rstrip('"')
    assert run("fit", files / "two.npy", *SMALL, "--kernel", kernel, "--model", files / "two.npz").exit_code == 0
    assert run(*merge).exit_code == 0
    assert load(files / "both.npz").n_samples_seen_ == 600


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["score", "x.npy"], ["either --train FILE", "or --model FILE"]),
        (["score", "x.npy", "--train", "x.npy", "--model", "plant.npz"], ["either --train FILE"]),
        (["score", "x.npy", "--model", "x.npy"], ["x.npy: expected a model saved by streamkpca but this is a table"]),
        (["score", "x.npy", "--model", "absent.npz"], ["absent.npz", "No such file"]),
        (["score", "narrow.csv", "--model", "plant.npz"], ["expected 4 columns, as plant.npz has learned, but got 2"]),
        (["score", "x.npy", "--model", "plant.npz", "--max-atoms", "9"], ["has its parameters already", "--max-atoms"]),
        (["score", "x.npy", "--model", "plant.npz", "--quantile", "1"], ["--quantile", "below 1 but got '1'"]),
        (["score", "x.npy", "--model", "plant.npz", "--format", "csv"], ["--format needs results"]),
        (["transform", "x.npy", "--model", "plant.npz", "--format", "parquet"], ["parquet can only be read when"]),
        (["transform", "x.npy", "--model", "plant.npz", "--format", "csv", "--json"], ["--format csv is not JSON"]),
        (["transform", "-", "--model", "plant.npz"], ["standard input: the file is empty"]),
        (["transform", "x.npy", "--save", "o.csv"], ["--model"]),
        (["fit", "x.npy", "--resume"], ["name it with --model FILE"]),
        (["fit", "narrow.csv", "--model", "plant.npz", "--resume"], ["expected 4 columns, as plant.npz has learned"]),
        (["fit", "x.npy", "--model", "x.npy"], ["is read as input", "another name"]),
        (["fit", "x.npy", "--model", "absent/m.npz"], ["expected the name of a file in an existing folder"]),
        (["fit", "x.npy", "--model", "."], ["expected the name of a file"]),
        (["fit", "x.npy", "--model", "-"], ["cannot go to standard output"]),
        (["info", "x.parquet"], ["x.parquet: expected a model saved by streamkpca but this is a table of rows"]),
        (["score", "x.npy", "--model", "empty.npz"], ["this model has not learned any rows yet"]),
        (["merge", "plant.npz", "plant.npz", "--out", "o.npz"], ["plant.npz: the model is given twice", "count twice"]),
        (
            ["merge", "plant.npz", "x.npz", "--out", "o.npz"],
            ["x.npz: expected a model", "this is an npz file of arrays ("],
        ),
        (["merge", "plant.npz"], ["--out"]),
        (["export", "plant.npz", "plant.txt"], [".onnx or .c"]),
        (["export", "plant.npz", "o.c", "--name", "not a name"], ["not a name"]),
        (["export", "plant.npz", "o.c", "--quantile", "2"], ["quantile"]),
        (["export", "plant.npz", "plant.npz"], ["is read as input"]),
        (["fit", "x.npy", "--model", "plant.npz", "--save", "plant.npz", "--format", "csv"], ["or holds the model"]),
    ],
)
def test_wrong_use_of_models_is_refused_in_one_line(files, model, monkeypatch, args, parts):
    (files / "narrow.csv").write_text("1,2\n")
    StreamingKernelPCA().save(files / "empty.npz")
    before = model.read_bytes()
    monkeypatch.chdir(files)
    refused(run(*args), *parts)
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        (["1,2"], "only 1 row was learned, too few for any component; learn more rows"),
        (["1,2", "3,5"], "only 2 rows were learned, too few for 3 components; learn more rows, or ask for fewer"),
        (["1,2"] * 50, "the 50 rows that were learned do not vary, so there are no components"),
    ],
    ids=["one row", "few rows", "equal rows"],
)
def test_rows_that_give_no_components_say_so(tmp_path, rows, hint):
    (tmp_path / "rows.csv").write_text("a,b\n" + "\n".join(rows) + "\n")
    result = run("fit", tmp_path / "rows.csv", *SMALL)
    assert result.exit_code == 0
    assert hint in result.stderr
