"""Columns of categories in the command: read from every format, compared as equal or not, kept in the model."""

import json

import numpy as np
import pandas as pd
import pytest
from commands import SMALL, refused, run

from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.tables import open_table
from streamkpca.kernels import RBF, Equal, category_code

RANDOM = np.random.default_rng(3)
STATES = RANDOM.choice(["idle", "very busy", "7", 'a "quoted", one'], 600)
LOADS = np.round(RANDOM.normal(size=600) + 5.0 * (STATES == "idle"), 6)
TABLE = pd.DataFrame({"load": LOADS, "state": STATES, "heat": np.round(RANDOM.normal(size=600), 6)})
CODED = np.column_stack([LOADS, [category_code(state) for state in STATES], TABLE["heat"]])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("rows.csv", index=False)
    TABLE.to_json("rows.jsonl", orient="records", lines=True)
    TABLE.to_parquet("rows.parquet", index=False)
    TABLE.astype({"state": "category"}).to_feather("rows.arrow", compression="uncompressed")
    return tmp_path


@pytest.mark.parametrize("file", ["rows.csv", "rows.jsonl", "rows.parquet", "rows.arrow"])
def test_every_format_gives_the_codes_that_python_gives(folder, file):
    table = open_table(file, categories=["state"])
    rows = np.concatenate([chunk.rows for chunk in table.chunks(100)])
    np.testing.assert_array_equal(rows, CODED)
    assert table.category_reader.names_with({}).keys() == {"idle", "very busy", 'a "quoted", one'}
    assert table.columns.category_features == [1]


def test_odd_rows_and_missing_categories_are_found(folder):
    text = 'load,state,heat\n1, idle ,0\n2,n/a,0\n3,busy,x\n4,"idle",0\n'
    (folder / "odd.csv").write_text(text)
    table = open_table("odd.csv", categories=["state"], on_bad_rows="skip")
    (chunk,) = table.chunks(100)
    np.testing.assert_array_equal(chunk.rows, [[1.0, category_code("idle"), 0.0], [4.0, category_code("idle"), 0.0]])
    assert table.n_skipped == 2
    assert table.first_skipped == "odd.csv, line 3: column 'state' has no value ('n/a')"
    (folder / "odd.jsonl").write_text('{"a": 1, "b": "x"}\n{"a": 2, "b": 7}\n{"a": 3, "b": null}\n{"a": 4, "b": "7"}\n')
    table = open_table("odd.jsonl", categories=["b"], on_bad_rows="skip")
    (chunk,) = table.chunks(100)
    np.testing.assert_array_equal(chunk.rows, [[1.0, category_code("x")], [2.0, 7.0], [4.0, 7.0]])
    wide = ",".join(f"c{i}" for i in range(200)) + "\n" + ",".join(["1"] * 199 + ["on"]) + "\n"
    (folder / "wide.csv").write_text(wide)
    (chunk,) = open_table("wide.csv", categories=["c199"]).chunks(10)
    assert chunk.rows[0, -1] == category_code("on")


def test_a_model_learns_categories_and_knows_its_own_when_it_scores(folder):
    result = run("fit", "rows.csv", "--category", "state", "--kernel", "RBF(0.5)", "--model", "m.npz", *SMALL)
    assert result.exit_code == 0, result.stderr
    assert "of all distances" not in result.stderr
    model = load("m.npz")
    assert model.kernel == RBF(0.5).on([0, 2]) * Equal().on([1]).exp()
    assert model.categories_.keys() == {"idle", "very busy", 'a "quoted", one'}
    settings = {"n_components": 3, "max_atoms": 20, "block_size": 64, "refit_every": 128, "random_state": 0}
    peer = StreamingKernelPCA(kernel=model.kernel, **settings).partial_fit(TABLE).refit()
    np.testing.assert_array_equal(model.atoms_, peer.atoms_)
    # The columns come in another order, and hold a category that was never learned.
    (folder / "new.csv").write_text("state,heat,load\nidle,0,5\non fire,0,5\n")
    done = run("transform", "new.csv", "--model", "m.npz", "--save", "out.jsonl")
    assert done.exit_code == 0, done.stderr
    known, unseen = (json.loads(line)["novelty"] for line in (folder / "out.jsonl").read_text().splitlines())
    np.testing.assert_allclose([known, unseen], peer.novelty([[5.0, "idle", 0.0], [5.0, "on fire", 0.0]]), rtol=1e-9)
    assert known < unseen
    again = run("fit", "rows.parquet", "--resume", "--model", "m.npz")
    assert again.exit_code == 0, again.stderr
    assert load("m.npz").n_samples_seen_ == 1200


def test_alarms_name_the_column_of_an_unseen_category(folder):
    new = TABLE.iloc[:50].copy()
    new.loc[20, "state"] = "on fire"
    new.to_csv("new.csv", index=False)
    result = run("score", "new.csv", "--train", "rows.csv", "--category", "state", "--lags", "2", "--json", *SMALL)
    assert result.exit_code == 0, result.stderr
    top = json.loads(result.stdout)["scores"]["most_novel"][0]
    assert top["row"] in (20, 21)
    assert "state" in str(top["features"][0])


def test_categories_that_are_not_read_or_cannot_be_told_apart_are_refused(folder):
    refused(run("fit", "rows.csv", "--category", "state", "--drop", "state"), "'state' holds categories", "--columns")
    refused(run("fit", "rows.csv", "--category", "stat"), "no column 'stat'; did you mean 'state'?")
    refused(run("fit", "rows.csv", "--category", "state", "--dtype", "float32"), "--dtype float32 cannot tell")
    refused(run("fit", "rows.parquet"), "column 'state' holds", "or compare it as categories (--category state)")


def test_a_kernel_that_compares_categories_itself_stays_as_it_is(folder):
    given = "RBF(0.1).on([0]) + Equal().on([1])"
    assert run("fit", "rows.csv", "--category", "state", "--kernel", given, "--model", "m.npz").exit_code == 0
    assert load("m.npz").kernel == RBF(0.1).on([0]) + Equal().on([1])
    assert run("fit", "rows.csv", "--columns", "state", "--category", "state", "--model", "s.npz").exit_code == 0
    assert load("s.npz").kernel == Equal().on([0]).exp()
