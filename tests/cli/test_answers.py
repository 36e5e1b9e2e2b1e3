"""What commands answer with a saved model: `info`, `merge`, `fleet`, `export`."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import SMALL, fact, refused, run

from streamkpca import StreamingKernelPCA, load
from streamkpca.export import to_c, to_c_learner
from streamkpca.monitoring import Monitor
from streamkpca.tables import Reading

RANDOM = np.random.default_rng(7)
ANGLES = RANDOM.uniform(0.0, 2.0 * np.pi, 600)
WHOLE = np.round(np.column_stack([np.cos(ANGLES), np.sin(ANGLES), RANDOM.normal(size=600)]), 6)
GAPPED = np.where(RANDOM.random(WHOLE.shape) < 0.1, np.nan, WHOLE)
GAPPED[40] = np.nan


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(WHOLE, columns=["a", "b", "c"])
    table["when"] = pd.date_range("2024-05-01", periods=600, freq="h").strftime("%Y-%m-%dT%H:%M")
    table["kind"] = np.arange(600) % 3
    table.to_csv("rows.csv", index=False)
    pd.DataFrame(GAPPED, columns=["a", "b", "c"]).to_csv("gaps.csv", index=False)
    return tmp_path


@pytest.fixture
def model(folder):
    result = run("fit", "rows.csv", "--drop", "kind", "--time", "when", "--model", "m.npz", *SMALL)
    assert result.exit_code == 0, result.stderr
    return load("m.npz")


# Models in files


def test_info_shows_what_a_model_is(model):
    found = json.loads(run("info", "m.npz", "--json").stdout)
    assert (found["rows"], found["columns"], found["column_names"]) == (600, 3, ["a", "b", "c"])
    assert found["eigenvalues"] == model.eigenvalues_.tolist()
    assert found["parameters"]["max_atoms"] == 20
    assert found["learned_from"] == [str(Path("rows.csv").resolve())]
    load("m.npz").set_params(half_life=86_400.0).save(
        "m.npz", {"offset": 7, "command": {"reading": Reading(("a", "\x1b[2J", "c"))._asdict()}}
    )
    output = run("info", "m.npz").stdout
    assert fact(output, "extra") == "offset 7"
    assert fact(output, "column names") == "a, \\x1b[2J, c"
    assert fact(output, "half life") == "86400"
    assert fact(output, "max atoms") == "20"
    StreamingKernelPCA().save("empty.npz")
    assert fact(run("info", "empty.npz").stdout, "rows") == "0"
    refused(run("info", "rows.csv"), "rows.csv")


def test_models_of_other_columns_are_not_merged(model):
    pd.DataFrame(WHOLE[:, ::-1], columns=["c", "b", "a"]).to_csv("turned.csv", index=False)
    pd.DataFrame(WHOLE, columns=["a", "b", "c"]).to_csv("straight.csv", index=False)
    for name in ("straight", "turned"):
        options = ["--model", f"{name}.npz", "--kernel", '{"type": "RBF", "gamma": 0.5}', *SMALL]
        assert run("fit", f"{name}.csv", *options).exit_code == 0
    refused(
        run("merge", "straight.npz", "turned.npz", "--out", "o.npz"),
        "turned.npz: expected a model of the columns a, b, c but got c, b, a; learn the same ones in the same order",
    )


def test_the_odd_machine_of_a_fleet_is_shown_with_its_columns(folder):
    rng, names = np.random.default_rng(0), ["flow", "heat", "load"]

    def rows(late=0.0):
        angle = rng.uniform(0.0, 2.0 * np.pi, size=(800, 1)) - [0.0, 1.0, 2.0 + late]
        return pd.DataFrame(np.sin(angle) + 0.1 * rng.normal(size=angle.shape), columns=names)

    rows().to_csv("rows.csv", index=False)
    assert run("fit", "rows.csv", "--model", "plant.npz", *SMALL).exit_code == 0
    begun = load("plant.npz")
    machines = [f"{name}.npz" for name in "abcdefg"]
    for name in machines:
        begun.without_rows().partial_fit(rows(0.3 * (name == "d.npz")).to_numpy()).save(name)
    begun.without_rows().partial_fit(rows().to_numpy()[:20]).save("new.npz")
    lines = run("fleet", "plant.npz", *machines, "new.npz").stdout.splitlines()
    assert lines[0] == "8 machines, 1 odd; too few rows to tell: new.npz"
    assert lines[1].startswith("  d.npz: once in ")
    assert "load" in lines[1]
    assert len(lines) == 2
    found = json.loads(run("fleet", "plant.npz", *machines, "new.npz", "--json").stdout)["machines"]
    assert (found[0]["name"], found[0]["rarity"] > 200, found[-1]) == (
        "d.npz",
        True,
        {"name": "new.npz", "rarity": None, "features": []},
    )
    refused(run("fleet", "plant.npz", "a.npz"), "Error: expected at least 5 machines")
    refused(run("fleet", "plant.npz", *machines, "./a.npz"), "./a.npz: is given twice", code=2)


def test_a_model_is_exported(model):
    onnx = pytest.importorskip("onnx")
    assert run("export", "m.npz", "m.onnx").exit_code == 0
    outputs = {output.name for output in onnx.load("m.onnx").graph.output}
    assert outputs == {"projection", "reconstruction_error", "novelty", "rarity", "expected", "terms"}
    result = run("export", "m.npz", "m.c", "--double", "--name", "plant")
    expected = to_c(model, name="plant", dtype="double").encode()
    assert Path("m.c").read_bytes() == expected
    assert result.stdout == "Written: m.c\n"
    refused(run("export", "m.npz", "m.txt"), ".onnx or .c", code=2)
    refused(run("export", "m.npz", "o.onnx", "--name", "plant"), "leave out --name", code=2)
    refused(run("export", "m.npz", "o.c", "--name", "not a name"), "not a name")
    refused(run("export", "m.npz", "m.npz"), "is read as input", code=2)
    assert not Path("o.c").exists()


def test_what_watch_has_saved_is_exported_also_where_rows_had_gaps(folder):
    pytest.importorskip("onnx")
    rows = np.random.default_rng(0).normal(size=(600, 3))
    rows[::7, 1] = np.nan
    np.save("gaps.npy", rows)
    assert run("watch", "gaps.npy", "--model", "w.npz").exit_code == 0
    saved = Monitor.load("w.npz").model
    for out, expected in {"w.c": to_c(saved, dtype="float"), "l.c": to_c_learner(saved)}.items():
        assert run("export", "w.npz", out, *["--learns"] * (out == "l.c")).exit_code == 0
        assert Path(out).read_text(encoding="utf-8") == expected
    assert run("export", "w.npz", "w.onnx").exit_code == 0
    run("watch", "gaps.npy", "--period", "20", "--model", "two.npz")
    refused(run("export", "two.npz", "two.c"), "two.npz: this model sees each row with its phase")
    refused(run("export", "w.npz", "x.onnx", "--learns"), "leave out --learns", code=2)
    refused(run("export", "w.npz", "x.c", "--return-period", "9"), "leave out --return-period", code=2)
    assert run("export", "w.npz", "x.c", "--learns", "--return-period", "1000").exit_code == 0
    assert "Once in 1000 healthy rows" in Path("x.c").read_text(encoding="utf-8")
