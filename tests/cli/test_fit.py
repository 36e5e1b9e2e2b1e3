"""`fit` learns what the library learns, each row of a file once, and never loses a model."""

import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import SMALL, append, fact, learned, refused, run
from pyarrow import parquet

from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.models import Autosave, Saved
from streamkpca.monitoring import Monitor
from streamkpca.tables import Asked, Table

HEADER = "when,a,b,c\n"
FIT = ["fit", "log.csv", "--time", "when", "--model", "m.npz", "--resume"]


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(2)
    return np.round(np.tanh(rng.normal(size=(900, 2)) @ rng.normal(size=(2, 3))), 6)


@pytest.fixture(scope="module")
def lines(X):
    return [
        f"2024-05-{1 + i // 100:02}T{i % 24:02}:00,{','.join(map(repr, row))}\n" for i, row in enumerate(X.tolist())
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def facts(*args, stdin=None):
    result = run(*args, "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def same(path, model):
    return load(path).to_bytes() == model.to_bytes()


@pytest.mark.parametrize(
    ("source", "chunk"), [("x.csv", "7"), ("x.csv", "4096"), ("x.npy", "100"), ("x.parquet", "64")]
)
def test_fit_learns_what_the_library_learns(folder, X, source, chunk):
    np.savetxt("x.csv", X, delimiter=",", fmt="%.6f")
    np.save("x.npy", X)
    parquet.write_table(pa.table(dict(zip("abc", X.T, strict=True))), "x.parquet")
    result = run("fit", source, *SMALL, "--chunk-rows", chunk, "--model", "m.npz")
    assert (result.exit_code, result.stderr) == (0, "")
    assert same("m.npz", learned(X))
    assert fact(result.stdout, "rows") == "900"
    assert fact(result.stdout, "new rows") == "900"
    assert result.stdout.endswith("Model: m.npz\n")


def test_several_files_and_a_pipe_are_one_stream(folder, X, lines):
    append("a.csv", HEADER, *lines[:300])
    np.save("b.npy", X[300:500])
    rest = HEADER + "".join(lines[500:])
    found = facts("fit", "a.csv", "b.npy", "-", *SMALL, "--model", "m.npz", stdin=rest)
    assert found["new_rows"] == 900
    assert same("m.npz", learned(X))


def test_columns_of_text_and_of_numbers_of_rows_are_named_and_left_out(folder, X):
    Path("x.csv").write_text("ms,a,note,b\n" + "".join(f"{10 * i},{i % 7},ok,{i % 5}\n" for i in range(100)))
    result = run("fit", "x.csv", *SMALL, "--model", "m.npz")
    told = "Warning: x.csv: columns left out, "
    assert result.stderr == f"{told}text: note\n{told}numbering rows: ms\n"
    piped = run("fit", "-", *SMALL, "--model", "p.npz", stdin=Path("x.csv").read_text())
    assert [fact(it.stdout, "column names") for it in (result, piped)] == ["a, b", "ms, a, b"]


def test_a_model_finds_its_columns_by_name(folder, X, lines):
    append("log.csv", HEADER, *lines[:600])
    facts("fit", "log.csv", *SMALL, "--time", "when", "--model", "m.npz")
    swapped = np.column_stack([X[600:, 2], np.zeros(300), X[600:, :2]])
    np.savetxt("new.csv", swapped, delimiter=",", fmt="%.6f", header="c,more,a,b", comments="")
    assert facts("fit", "new.csv", "--model", "m.npz", "--resume")["model"]["rows"] == 900
    assert same("m.npz", learned(X))
    refused(run("fit", "new.csv", "--columns", "a,nope", "--model", "m.npz", "--resume"), "new.csv", "nope")
    np.savetxt("narrow.csv", X[:, :2], delimiter=",")
    refused(run("fit", "narrow.csv", "--model", "m.npz", "--resume"), "narrow.csv", "3", "2")


def test_bad_rows_are_counted_with_their_place(folder):
    Path("x.csv").write_text("a,b\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(60)) + "1,oops\n2\n3,4\n")
    refused(run("fit", "x.csv", *SMALL), "x.csv, line 62", "--missing skip")
    result = run("fit", "x.csv", "--on-bad-rows", "skip", *SMALL, "--json")
    assert "Warning: rows left out: 2 (1 a gap, 1 other number of cells), the first: x.csv, line 62" in result.stderr
    found = json.loads(result.stdout)
    assert (found["new_rows"], found["rows_skipped"], len(found["skipped"])) == (61, 2, 2)
    shown = run("fit", "x.csv", "--on-bad-rows", "skip", *SMALL).stdout
    assert re.search(r"rows skipped +2\n", shown)
    assert "rejected" not in shown


def test_gaps_are_refused_left_out_or_learned(folder, X):
    gapped = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    gapped[40] = np.nan
    np.save("x.npy", gapped)
    refused(run("fit", "x.npy", *SMALL), "--missing marginal")
    whole = ~np.isnan(gapped).any(axis=1)
    found = facts("fit", "x.npy", "--missing", "skip", *SMALL)
    assert (found["model"]["rows"], found["rows_skipped"]) == (whole.sum(), (~whole).sum())
    some = gapped[~np.isnan(gapped).all(axis=1)]
    found = facts("fit", "x.npy", "--missing", "marginal", *SMALL, "--model", "m.npz")
    assert (found["model"]["rows"], found["rows_skipped"]) == (len(some), len(X) - len(some))
    model = load("m.npz")
    expected = learned(X).set_params(missing="marginal")
    expected = StreamingKernelPCA(**expected.get_params(deep=False)).partial_fit(some).refit()
    np.testing.assert_array_equal(model.novelty(some[:40]), expected.novelty(some[:40]))
    # The saved model takes gaps without an option.
    assert facts("fit", "x.npy", "--model", "m.npz", "--resume")["model"]["rows"] == len(some)


# Going on


def test_a_file_that_was_learned_adds_nothing_and_another_is_refused(folder, X, lines):
    append("log.csv", HEADER, *lines[:300])
    facts(*FIT, *SMALL)
    found = facts(*FIT)
    assert (found["new_rows"], found["model"]["rows"]) == (0, 300)
    assert same("m.npz", learned(X[:300]))
    before = Path("m.npz").read_bytes()
    Path("log.csv").write_text(HEADER + "".join(lines[400:800]))
    refused(run(*FIT), "log.csv", "(--from-start)")
    assert Path("m.npz").read_bytes() == before
    assert facts(*FIT, "--from-start")["model"]["rows"] == 700


def test_each_row_of_every_file_is_learned_once(folder, X, lines):
    append("log.csv", HEADER, *lines[:200])
    np.save("b.npy", X[200:500])
    assert facts(*FIT, *SMALL)["new_rows"] == 200
    assert facts("fit", "b.npy", "--model", "m.npz", "--resume")["new_rows"] == 300
    append("log.csv", *lines[500:900])
    assert facts(*FIT, "--chunk-rows", "50")["new_rows"] == 400
    assert facts("fit", "b.npy", "--model", "m.npz", "--resume")["new_rows"] == 0
    assert same("m.npz", learned(X))
    assert len(facts("info", "m.npz")["learned_from"]) == 2


def test_a_model_that_learns_a_file_a_day_does_not_grow_for_ever(folder, monkeypatch):
    monkeypatch.setattr("streamkpca.cli.models._MOST_PLACES", 10)
    model = StreamingKernelPCA()
    saver = Autosave("m.npz", math.inf, Saved(model), model)
    for day in range(30):
        Path(f"{day}.csv").write_text("a,b\n1,2\n")
        table = Table(f"{day}.csv", Asked())
        saver.note(table, next(table.batches(10)))
    assert [os.path.basename(path) for path in saver.places] == [f"{day}.csv" for day in range(20, 30)]


def test_what_others_saved_beside_a_model_is_kept(folder, X):
    np.save("x.npy", X)
    learned(X).save("m.npz", {"offset": 7})
    found = facts("fit", "x.npy", "--model", "m.npz", "--resume")
    assert found["model"]["rows"] == 1800
    assert load("m.npz").extra_["offset"] == 7
    learned(X).save("m.npz", [1])
    refused(run("fit", "x.npy", "--model", "m.npz", "--resume"), "to be a dictionary", "[1]")
    odd = {"command": {"columns": [1], "places": {"x": 3}}}
    learned(X).save("m.npz", odd)
    assert facts("fit", "x.npy", "--model", "m.npz", "--resume")["new_rows"] == 900
    # Thresholds belong to the model as it was.
    monitor = Monitor(learned(X))
    monitor.update(X[:64])
    monitor.save("m.npz")
    refused(run("fit", "x.npy", "--model", "m.npz", "--resume"), "m.npz: it has a monitor, whose events", "watch")
    assert Monitor.load("m.npz").model.n_samples_seen_ == monitor.model.n_samples_seen_


# What looks wrong, and wrong use


@pytest.mark.parametrize(
    ("args", "part", "code"),
    [
        (["fit", "absent.csv"], "absent.csv: no such file", 1),
        (["fit", "x.npy", "--resume"], "(--model FILE); leave out --resume", 2),
        (["fit", "x.npy", "--save-every", "0"], "leave out --save-every", 2),
        (["fit", "x.npy", "--model", "m.npz", "--from-start"], "leave out --from-start", 2),
        (["fit", "x.npy", "--model", "x.npy"], "is read as input", 2),
        (["fit", "x.npy", "--model", "link.npy"], "is read as input", 2),
        (["fit", "x.npy", "--model", "absent/m.npz"], "in an existing folder", 2),
        (["fit", "x.npy", "--model", "-"], "cannot be standard output", 2),
        (["fit", "-", "-"], "can be read only once", 2),
        (["fit", "x.npy", "x.npy", "--follow"], "--follow never reaches the end of x.npy", 2),
        (["fit", "x.npy", "--follow"], "leave --follow out", 1),
        (["fit", "x.npy", "--model", "x.csv", "--resume"], "x.csv", 1),
        (["fit", "x.npy", "--n-active", "9", "--max-atoms", "8"], "n_active", 1),
        (["fit", "-"], "standard input", 1),
    ],
)
def test_wrong_use_is_refused(folder, X, args, part, code):
    np.save("x.npy", X)
    Path("x.csv").write_text("a,b\n1,2\n")
    os.link("x.npy", "link.npy")
    refused(run(*args, stdin=""), part, code=code)
    assert not Path("m.npz").exists()
