"""Rows with gaps in the command: read from every format as NaN, learned and scored by models that take them."""

import json

import numpy as np
import pandas as pd
import pytest
from commands import SMALL, refused, run

from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.hints import Spread
from streamkpca.cli.models import WatchedModel
from streamkpca.cli.tables import TableError, open_table
from streamkpca.kernels import category_code

RANDOM = np.random.default_rng(7)
ANGLES = RANDOM.uniform(0.0, 2.0 * np.pi, 600)
WHOLE = np.round(np.column_stack([np.cos(ANGLES), np.sin(ANGLES), RANDOM.normal(size=600)]), 6)
GAPPED = np.where(RANDOM.random(WHOLE.shape) < 0.1, np.nan, WHOLE)
GAPPED[40] = np.nan
USED = GAPPED[~np.isnan(GAPPED).all(axis=1)]
N_EMPTY = len(GAPPED) - len(USED)
FORMATS = ["rows.csv", "rows.tsv", "rows.jsonl", "bare.jsonl", "rows.npy", "rows.npz", "rows.parquet", "rows.arrow"]
LEARNING = ["--on-missing", "marginal", "--kernel", "RBF(0.5)", *SMALL]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(GAPPED, columns=["a", "b", "c"])
    table.to_csv("rows.csv", index=False)
    table.to_csv("rows.tsv", index=False, sep="\t", na_rep="n/a")
    table.to_json("rows.jsonl", orient="records", lines=True, double_precision=15)
    (tmp_path / "bare.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in GAPPED.tolist()))
    np.save("rows.npy", GAPPED)
    np.savez("rows.npz", rows=GAPPED, other=np.zeros(3))
    table.to_parquet("rows.parquet", index=False)
    table.to_feather("rows.arrow", compression="uncompressed")
    return tmp_path


@pytest.fixture
def model(folder):
    result = run("fit", "rows.csv", "--model", "m.npz", *LEARNING)
    assert result.exit_code == 0, result.stderr
    return load("m.npz")


def read(path, **options):
    table = open_table(str(path), **options)
    return table, np.concatenate([chunk.rows for chunk in table.chunks(50)])


def written(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("file", FORMATS)
def test_every_format_gives_gaps_as_nan_and_leaves_out_rows_without_a_number(folder, file):
    table = open_table(file, on_missing="marginal")
    found = []
    for chunk in table.chunks(50):
        found += chunk.rows.tolist()
        later = open_table(file, on_missing="marginal")
        later.seek(chunk.offset)
        rest = [row for part in later.chunks(70) for row in part.rows.tolist()] if len(found) < len(USED) else []
        np.testing.assert_array_equal(found + rest, USED)
    assert table.n_skipped == N_EMPTY
    assert table.first_skipped.endswith("no column has a value")


@pytest.mark.parametrize("file", FORMATS)
def test_rows_with_gaps_can_be_left_out_where_other_bad_rows_stop(folder, file):
    table, rows = read(file, on_missing="skip")
    complete = ~np.isnan(GAPPED).any(axis=1)
    np.testing.assert_array_equal(rows, GAPPED[complete])
    assert table.n_skipped == (~complete).sum()


@pytest.mark.parametrize("on_missing", ["skip", "marginal"])
@pytest.mark.parametrize(
    ("name", "bad", "fault"),
    [
        ("x.csv", ["a,b", "1,2", ",3", ",inf", "4,5"], "line 4: column 'b' is infinite"),
        ("x.csv", ["a,b", "1,2", ",3", ",up", "4,5"], "line 4: column 'b' holds text"),
        ("x.csv", ["a,b", "1,2", ",3", "1,2,3", "4,5"], "line 4: expected 2 fields"),
        ("x.jsonl", ['{"a": 1, "b": 2}', '{"b": 3}', '{"a": null, "b": 1e999}'], "line 3: column 'b' is infinite"),
        ("x.jsonl", ['{"a": 1, "b": 2}', '{"b": 3, "a": NaN}', '{"b": ""}'], "line 3: column 'b' holds text"),
        ("x.jsonl", ["[1, 2]", "[null, 2]", "[null, Infinity]"], "line 3: column '1' is infinite"),
    ],
)
def test_gaps_do_not_hide_what_else_is_wrong_with_a_row(tmp_path, on_missing, name, bad, fault):
    path = written(tmp_path / name, *bad)
    with pytest.raises(TableError, match=fault):
        read(path, on_missing=on_missing)
    table, rows = read(path, on_missing=on_missing, on_bad_rows="skip")
    assert np.isfinite(rows).any(axis=1).all()
    assert table.n_skipped == (2 if on_missing == "skip" else 1)


def test_infinity_in_an_array_is_refused_beside_gaps(tmp_path):
    np.save(tmp_path / "x.npy", [[1.0, np.nan], [np.nan, np.nan], [np.nan, np.inf]])
    with pytest.raises(TableError, match=r"row 2 \(from 0\): column '1' is infinite; leave the column out"):
        read(tmp_path / "x.npy", on_missing="marginal")
    table, rows = read(tmp_path / "x.npy", on_missing="marginal", on_bad_rows="skip")
    np.testing.assert_array_equal(rows, [[1.0, np.nan]])
    assert table.n_skipped == 2
    assert table.first_skipped.endswith("row 1 (from 0): no column has a value")


def test_missing_labels_are_no_gaps(tmp_path):
    np.savez(tmp_path / "x.npz", rows=[[1.0, np.nan], [2.0, 3.0]], label=[0, np.nan])
    path = written(tmp_path / "x.csv", "a,b,label", "1,,0", "2,3,")
    for table in (tmp_path / "x.npz", path):
        options = {"labels": "label", "array": "rows" if table.suffix == ".npz" else None, "on_missing": "marginal"}
        with pytest.raises(TableError, match=r"column 'label' (is missing|has no value)") as caught:
            read(table, **options)
        assert "--on-missing" not in str(caught.value)
        np.testing.assert_array_equal(read(table, **options, on_bad_rows="skip")[1], [[1.0, np.nan]])


def test_a_refused_gap_is_told_with_both_remedies(folder):
    for file in ("rows.csv", "rows.jsonl", "rows.npy", "rows.parquet"):
        result = run("fit", file)
        refused(result, "(--drop ", "(--on-bad-rows skip)", "(--on-missing marginal)")


def test_categories_may_be_missing(tmp_path):
    codes = [[1.0, category_code("on")], [2.0, np.nan], [3.0, np.nan], [np.nan, category_code("off")]]
    texts = written(tmp_path / "x.csv", "a,s", "1,on", "2,", "3,n/a", ",off")
    objects = written(
        tmp_path / "x.jsonl", '{"a": 1, "s": "on"}', '{"a": 2}', '{"a": 3, "s": "n/a"}', '{"a": null, "s": "off"}'
    )
    for path in (texts, objects):
        np.testing.assert_array_equal(read(path, categories=["s"], on_missing="marginal")[1], codes)


def test_a_learned_column_may_be_absent_from_the_first_object(tmp_path):
    path = written(tmp_path / "x.jsonl", '{"a": 1}', '{"b": 2, "a": 3}')
    table, rows = read(path, on_missing="marginal", learned=["b", "a"])
    np.testing.assert_array_equal(rows, [[np.nan, 1.0], [2.0, 3.0]])
    assert table.columns.feature_names == ("b", "a")
    with pytest.raises(TableError, match="there is no 'b'"):
        read(path, learned=["b", "a"])


def test_wide_tables_have_gaps_too(tmp_path):
    X = np.arange(3.0 * 1200).reshape(3, 1200)
    X[1, [0, 700]] = X[2, 3] = np.nan
    pd.DataFrame(X).to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(read(tmp_path / "x.csv", on_missing="marginal", header=True)[1], X)


def test_an_unknown_value_of_on_missing_is_refused():
    with pytest.raises(TableError, match="on_missing: expected 'raise', 'skip' or 'marginal' but got 'mean'"):
        open_table("<text>", on_missing="mean")


def test_what_columns_hold_is_measured_between_the_gaps():
    spread = Spread()
    for part in np.array_split(USED, [1, 2, 100]):
        spread.add(part)
    assert spread.n_rows == len(USED)
    np.testing.assert_allclose(spread.mean, np.nanmean(USED, axis=0), atol=1e-12)
    scaled = Spread()
    scaled.add(np.column_stack([USED * [1.0, 1.0, 1e4], np.where(np.isnan(USED[:, 0]), np.nan, 5.0)]))
    assert scaled.constant == [3]
    assert scaled.dominating()[0] == 1


def test_the_command_learns_what_python_learns(folder, model):
    in_python = StreamingKernelPCA(3, on_missing="marginal", kernel=model.kernel, max_atoms=20, block_size=64)
    in_python.set_params(refit_every=128).partial_fit(USED).refit()
    assert model.on_missing == "marginal"
    np.testing.assert_array_equal(model.novelty(GAPPED[:40]), in_python.novelty(GAPPED[:40]))


def test_skipped_rows_are_counted_and_told(folder):
    result = run("fit", "rows.csv", "--json", *LEARNING)
    assert json.loads(result.stdout)["rows_skipped"] == N_EMPTY
    assert f"{N_EMPTY} row" in result.stderr
    assert "no column has a value" in result.stderr
    result = run("fit", "rows.csv", "--json", "--on-missing", "skip", *SMALL)
    assert json.loads(result.stdout)["rows_skipped"] == np.isnan(GAPPED).any(axis=1).sum()


def test_saved_models_answer_rows_with_gaps_without_an_option(folder, model):
    result = run("transform", "rows.jsonl", "--model", "m.npz", "--save", "out.csv")
    assert result.exit_code == 0, result.stderr
    out = pd.read_csv("out.csv")
    np.testing.assert_allclose(out["novelty"], model.novelty(USED), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(out.filter(like="component"), model.transform(USED), rtol=1e-9, atol=1e-15)
    result = run("score", "rows.npy", "--model", "m.npz", "--json")
    assert json.loads(result.stdout)["scores"]["rows"] == len(USED)
    result = run("fit", "rows.parquet", "--model", "m.npz", "--resume", "--json")
    assert json.loads(result.stdout)["new_rows"] == len(USED)


def test_models_that_take_no_gaps_go_on_refusing_them(folder):
    pd.DataFrame(WHOLE, columns=["a", "b", "c"]).to_csv("whole.csv", index=False)
    assert run("fit", "whole.csv", "--model", "m.npz", *SMALL).exit_code == 0
    for command in (["transform"], ["score"], ["fit", "--resume"]):
        refused(run(*command, "rows.csv", "--model", "m.npz"), "rows.csv, line 4", "has no value", "--on-bad-rows skip")
    refused(
        run("fit", "rows.csv", "--model", "m.npz", "--resume", "--on-missing", "marginal"), "leave out --on-missing"
    )


def test_a_model_that_leaves_gaps_out_goes_on_with_that(folder):
    assert run("fit", "rows.csv", "--model", "m.npz", "--on-missing", "skip", *SMALL).exit_code == 0
    result = run("fit", "rows.npy", "--model", "m.npz", "--resume", "--json")
    assert json.loads(result.stdout)["rows_skipped"] == np.isnan(GAPPED).any(axis=1).sum()


@pytest.mark.parametrize("lags", [1, 2])
def test_rows_with_gaps_are_learned_first_and_scored(folder, lags):
    result = run(
        "score", "rows.csv", "--train", "rows.npy", "--lags", lags, "--json", "--save-model", "m.npz", *LEARNING
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["scores"]["rows"] == len(USED)
    assert found["scores"]["rows_skipped"] == N_EMPTY
    assert np.isfinite(found["scores"]["mean_novelty"])
    result = run("score", "rows.csv", "--model", "m.npz", "--json")
    assert json.loads(result.stdout)["scores"]["rows"] == len(USED)


@pytest.mark.parametrize("kind", ["novelty", "projections", "contours"])
def test_rows_with_gaps_are_drawn(folder, model, kind):
    over = ["--over", "a,b"] if kind == "contours" else []
    result = run("plot", kind, "rows.csv", "--model", "m.npz", "--save", "x.png", "--json", *over)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == len(USED)


def test_a_followed_model_is_kept_if_its_successor_takes_no_gaps(folder, model, capsys):
    watched = WatchedModel("m.npz")
    StreamingKernelPCA(2).partial_fit(pd.DataFrame(WHOLE, columns=["a", "b", "c"])).save("m.npz")
    assert watched.newer() is None
    assert "was learned with --on-missing raise; keeping the model as it was" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_impute_writes_what_python_completes(folder, model, form):
    result = run("impute", "rows.csv", "rows.jsonl", "--model", "m.npz", "--save", f"out.{form}", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 2 * len(USED)
    assert json.loads(result.stdout)["rows_skipped"] == 2 * N_EMPTY
    reader = {"csv": pd.read_csv, "jsonl": pd.read_json, "parquet": pd.read_parquet}[form]
    found = reader(f"out.{form}", **({"lines": True} if form == "jsonl" else {}))
    assert found.columns.tolist() == ["row", "a", "b", "c"]
    assert found["row"].tolist() == list(range(2 * len(USED)))
    np.testing.assert_allclose(found[["a", "b", "c"]][: len(USED)], model.impute(USED), rtol=1e-6, atol=1e-9)


def test_impute_keeps_times_and_numbers_columns_without_names_of_their_own(folder):
    written(folder / "x.csv", "when,a,a", *(f"t{i},{i % 7},{i % 5}" for i in range(200)))
    assert run("fit", "x.csv", "--drop", "when", "--model", "m.npz", *SMALL).exit_code == 0
    written(folder / "y.csv", "when,a,a", "mon,,3", "tue,2,1")
    result = run("impute", "y.csv", "--model", "m.npz", "--time", "when")
    header, first, second = result.stdout.splitlines()
    assert header == '"row","when","0","1"'
    assert first.startswith('0,"mon",')
    assert first.endswith(",3")
    assert second == '1,"tue",2,1'


def test_impute_refuses_categories_and_infinity(folder, model):
    written(folder / "bad.csv", "a,b,c", "1,,inf")
    refused(run("impute", "bad.csv", "--model", "m.npz"), "bad.csv, line 2: column 'c' is infinite")
    written(folder / "s.csv", "a,s", *(f"{i},{'xy'[i % 2]}" for i in range(50)))
    assert run("fit", "s.csv", "--category", "s", "--model", "s.npz", *SMALL).exit_code == 0
    refused(run("impute", "s.csv", "--model", "s.npz"), "impute: s.npz compares categories", "use StreamingKernelPCA")
