"""Every benchmark runs small, writes its figures, and its claim holds there too."""

import json
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import run_apart, run_here

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


# These start processes, or measure the memory of their process, which must hold nothing but the package.
APART = {"cold_start.py"}


def run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if script in APART:
        return run_apart(folder, str(BENCHMARKS / script), *arguments)
    return run_here(folder, BENCHMARKS / script, *arguments)


def figures(folder: Path, script: str, *arguments: str) -> tuple[str, dict[str, Any]]:
    done = run(folder, script, *arguments, "--json", "figures.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "figures.json").read_text())
    where = found["surroundings"]
    # The figures say what they were measured with.
    assert where["cores"] >= 1
    assert where["processor"] in done.stdout
    assert {"python", "numpy", "numba", "scipy"} <= set(where["versions"])
    return done.stdout, found


def test_novelty_on_unseen_streams(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "folder" / "family").mkdir(parents=True)
    rows = {
        "train": rng.normal(size=(100, 4)),
        "test": rng.normal(size=(200, 4)),
        "test_label": np.arange(200) % 50 < 3,
    }
    rows["test"][rows["test_label"]] += 3.0
    np.savez(tmp_path / "folder" / "family" / "one.npz", **rows)
    np.savez(tmp_path / "folder" / "family" / "two.npz", **rows)
    np.savez(tmp_path / "folder" / "family" / "a-plant.npz", d00=rows["train"])
    np.savez(tmp_path / "folder" / "family" / "holes.npz", **(rows | {"train": np.full((9, 4), np.nan)}))
    plant = {name: rng.normal(size=(200, 4)) for name in ("d00", "d00_te", "d01_te", "d02_te")}
    plant["d01_te"][160:] += 5.0
    np.savez(tmp_path / "plant.npz", **plant)
    options = ("folder", "--streams", "1", "--unordered", "family", "--plant", "plant.npz", "--tiny")
    output, found = figures(tmp_path, "novelty_on_unseen_streams.py", *options)
    assert "a-plant.npz: expected the arrays train, test and test_label but it has d00" in output
    assert "holes.npz: values that are not finite" in output
    for kind in ("alone", "context"):
        titles = {"made ring/seed 0", "made drift/seed 0", "family/one", "plant/fault 1", "plant/fault 2"}
        assert set(found["streams"][kind]["Monitor"]) == titles
        for method, table in found["streams"][kind].items():
            for figure in ("AP", "AUROC", "at 1%", "healthy", "covered"):
                assert all(0.0 <= line[figure] <= 1.0 for line in table.values())
                families = found["families"][kind][method]
                assert found["macro"][kind][method][figure] == pytest.approx(
                    np.mean([line[figure] for line in families.values()])
                )
            # A score that is drawn by lot would be at .1.
            assert table["made ring/seed 0"]["AP"] > 0.3
        gain = [found["macro"][kind][method]["AP"] for method in ("Monitor", "Monitor, frozen")]
        assert found["bounds"][f"AP, learning less frozen, {kind}"][0] == pytest.approx(gain[0] - gain[1])
    monitor = found["streams"]["alone"]["Monitor"]
    assert monitor["plant/fault 1"]["at 1%"] > 0.9 > 0.2 > monitor["plant/fault 2"]["at 1%"]
    # Rows without order have no context, no delay and no volume.
    assert found["streams"]["alone"]["LOF"]["family/one"] == found["streams"]["context"]["LOF"]["family/one"]
    assert found["streams"]["alone"]["LOF"]["family/one"]["delay"] is None
    usual = {"made ring/seed 0", "made drift/seed 0", "family/one", "plant/no fault"}
    assert set(found["healthy"]["Monitor"]) == usual
    assert found["bounds"]["false alarms, median"][0] == np.median(list(found["healthy"]["Monitor"].values()))
    assert set(found["promises"]) == {"moved", "tenfold", "young", "speed"}
    assert found["holds"] is all(low <= value <= (high or np.inf) for value, low, high in found["bounds"].values())


def test_alarms_by_contract(tmp_path: Path) -> None:
    plant = {name: np.random.default_rng(0).normal(size=(600, 4)) for name in ("d00", "d00_te", "d01_te")}
    np.savez(tmp_path / "plant.npz", **plant)
    rows = {"train": plant["d00"], "test": plant["d00_te"], "test_label": np.arange(600) // 10 == 50}
    (tmp_path / "family").mkdir()
    np.savez(tmp_path / "family" / "one.npz", **rows)
    _, found = figures(tmp_path, "alarms_by_contract.py", "plant.npz", "family", "--tiny")
    assert set(found["promise"]) == {"memory 0.9", "heavy", "made slow"}
    assert found["faults"].keys() == {"plant", "family", "made slow"}
    assert found["kept"]["contract"] == 1.0 > found["kept"]["threshold"]


def test_learning_on_a_device(tmp_path: Path) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("the benchmark compiles C; needs a C compiler")
    output, found = figures(tmp_path, "learning_on_a_device.py", "--tiny")
    assert set(found["streams"]) == {"made ring/seed 0", "made drift/seed 0"}
    for table in found["streams"].values():
        assert 4000 < table["ram"] < 8192
        peers = {"z-scores", "k-means", "k-nearest", "half-space trees"}
        assert set(table["AP"]) == {"device", "float64", "frozen"} | peers
        assert all(0.0 <= value <= 1.0 for value in [*table["AP"].values(), *table["left"].values()])
        # Single precision is not what a device loses by.
        assert table["rounding"]["AP"] < 0.02
        assert table["rounding"]["left"] < 0.03
    # Scores that are drawn by lot would be at .1.
    assert min(found["streams"]["made ring/seed 0"]["AP"][name] for name in ("device", "float64")) > 0.5
    assert all(cost["milliseconds"] < 1.0 for cost in found["cost"].values())
    assert "nRF52832" in output


def test_which_feature(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {"train": rng.normal(size=(300, 4)), "test": rng.normal(size=(120, 4)), "test_label": np.zeros(120)}
    for start, feature in ((10, 2), (50, 0)):
        rows["test"][start : start + 8, feature] += 20.0
        rows["test_label"][start : start + 8] = 1
    (tmp_path / "plant" / "interpretation_label").mkdir(parents=True)
    np.savez(tmp_path / "plant" / "one.npz", **rows)
    # One event with both ends, the other without its last row.
    (tmp_path / "plant" / "interpretation_label" / "one.txt").write_text("10-17:3\n50-58:1\n")
    _, found = figures(tmp_path, "which_feature.py", "plant", "--tiny")
    assert set(found["means"]) == {"ring", "curve", "arc", "sheet", "linear", "modes", "apart", "plant"}
    assert found["means"]["plant"] == {name: [1.0, 1.0] for name in ("causes", "z-scores", "left out")}
    assert len(found["checks"]) == 12


def test_ingest_runs_near_gemm(tmp_path: Path) -> None:
    output, found = figures(tmp_path, "ingest_runs_near_gemm.py", "--tiny")
    (size,) = found["sizes"]
    assert size["rows_per_second"] > size["rows_per_second_with_all"] > 1000.0
    assert size["useful_share"] > 0.0
    assert size["gain"] > 0.0
    assert output.splitlines()[-1].startswith("NEAR GEMM: ")


def test_a_year_in_an_hour(tmp_path: Path) -> None:
    output, found = figures(tmp_path, "a_year_in_an_hour.py", "--tiny")
    assert output.splitlines()[-1].startswith("FLAT: ")
    assert [mark["rows"] for mark in found["marks"]] == [10_240, 20_480, 30_720]
    assert found["drift"] < 1e-9
    for mark in found["marks"]:
        assert mark["unexplained"] < 1.2 * mark["unexplained_at_once"]
        assert 0.0 <= mark["certified_least"] <= mark["certified_most"] <= 1.0
    later = found["marks"][1:]
    assert all(mark["unexplained"] < mark["unexplained_without_forgetting"] for mark in later)
    assert all(mark["old_atoms"] == 0 for mark in later)


def test_young_streams_are_quick(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2, 3], 100)
    rows = rng.normal(size=(4, 6))[classes] + rng.normal(scale=0.3, size=(400, 6))
    np.savez(tmp_path / "heaps.npz", X_train=rows, y_train=classes)
    np.savez(tmp_path / "machine.npz", train=np.cumsum(rows, axis=0) / 20.0)
    options = ("heaps.npz", "machine.npz", "--tiny", "--plot", "pictures")
    output, found = figures(tmp_path, "young_streams_are_quick.py", *options)
    assert output.splitlines()[-1].startswith("TINY: ")
    for name in ("quality-against-seconds.png", "quality-against-atoms.png"):
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")
    sizes = {"generated": [1995, 3000], "drifting": [1995, 3000], "machine": [360]}
    sizes |= {"heaps, shuffled": [1995, 3000], "heaps, sorted": [1995, 3000]}
    assert {name: [line["size"] for line in lines] for name, lines in found["streams"].items()} == sizes
    for name, lines in found["streams"].items():
        for line in lines:
            for method in ("moved", "rows", "fit, moved", "fit, rows", "greedy", "pivots"):
                assert line[method]["seconds"] >= 0.0
                assert 0.0 < line[method]["unexplained"] < 1.0
            # In a sorted stream moves wait for up to a quarter of the rows so far, and a new class has just begun.
            method = "rows" if name == "heaps, sorted" else "moved"
            assert line[method]["unexplained"] < 1.15 * line["greedy"]["unexplained"], name
        # Seconds are those since the first row.
        assert lines[0]["moved"]["seconds"] <= lines[-1]["moved"]["seconds"]
    assert [line["size"] for line in found["atoms"]] == [8, 16]
    assert found["atoms"][0]["moved"]["unexplained"] > found["atoms"][1]["moved"]["unexplained"]
    # No mark of 10,000 rows, and no 64 atoms: only the shares of what greedy leaves have bounds here.
    assert len(found["bounds"]) == len(sizes)


def test_one_row_at_a_time(tmp_path: Path) -> None:
    output, found = figures(tmp_path, "one_row_at_a_time.py", "--tiny")
    assert output.splitlines()[-1].startswith("TINY: ")
    assert found["active"] == found["atoms"] <= 128
    own = {"transform", "novelty", "reconstruction_error", "partial_fit"}
    assert own | {"empty function", "loop of that length"} <= set(found["microseconds"])
    for name, line in found["microseconds"].items():
        peers = any(library in name for library in ("River", "pyod", "transform"))
        assert line["calls"] == (2000 if name in own or not peers else 200)
        assert 0.0 < line["median"] <= line["p99"] <= line["p99.9"]
    slow = found["slowest"]
    assert slow["collection"] + slow["waited"] + slow["neither"] == slow["calls"] == 2
    # Refits come every 4,096 rows at the latest, and earlier while the stream is young.
    assert found["refits"] <= 2
    assert all(isinstance(bound["holds"], bool) for bound in found["bounds"].values())


def test_cost_grows_as_the_method_says(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    output, found = figures(tmp_path, "cost_grows_as_it_should.py", "--tiny", "--plot", "cost.png")
    assert output.splitlines()[-1].startswith("TINY: ")
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
    assert set(found["sweeps"]) == set(found["exponents"]) == {"m", "d", "q", "n"}
    for lines in found["sweeps"].values():
        assert len(lines) == 4
        assert all(line[name] > 0.0 for line in lines for name in ("record", "transform", "refit", "state"))
    assert all(line["active"] == line["m"] for line in found["sweeps"]["m"])
    # Bytes are counted, so they are exact: there are few axes, and each stored row has d features.
    state = found["exponents"]
    assert state["q"]["state"]["measured"] < 0.1
    assert 0.5 < state["d"]["state"]["measured"] <= 1.0
    assert found["exponents"]["m"]["refit"]["theory"] == pytest.approx(3.0)


def test_cold_start(tmp_path: Path) -> None:
    output, found = figures(tmp_path, "cold_start.py", "--tiny")
    assert output.splitlines()[-1].startswith("TINY: ")
    assert found["robust"] is True
    lines, starts = found["lines"], found["starts"]
    # An import that includes another takes at least its processor time, even on a busy machine.
    assert lines["import numpy"]["cpu"] < lines["from streamkpca import *"]["cpu"]
    assert lines["first answer, empty cache"]["compiled"] > 10
    assert lines["first answer, full cache"]["compiled"] == 0
    for start in starts.values():
        assert start["fine"]
        assert start["same_bits"] == start["processes"]
    # A process that starts later compiles nothing.
    assert starts["started at once"]["compiled"][-1] == 0


def test_many_machines(tmp_path: Path) -> None:
    output, found = figures(tmp_path, "many_machines.py", "--tiny")
    assert output.splitlines()[-1].startswith("TINY: ")
    assert set(found["orders"]) == {"shuffled", "sorted"}
    for order, table in found["orders"].items():
        assert [line["shards"] for line in table["lines"]] == [1, 2, 4]
        for line in table["lines"]:
            assert line["unexplained_ratio"] < 1.3, order
            assert line["moved_bytes"] > 2 * line["shards"] * 2**13
            assert 0.0 < line["times_as_fast"] < 10.0
    hours = [line["hours"] for line in found["projected"]]
    assert hours == sorted(hours, reverse=True)


def test_odd_machines_are_found(tmp_path: Path) -> None:
    output, found = figures(tmp_path, "odd_machines_are_found.py", "--tiny")
    (line,) = found["plants"].values()
    assert line["faults"]["stuck 0.3"] == {"machines": 2, "found": 1.0, "top": 1.0, "sensor": 1.0}
    assert line["false"] == 0.0
    assert found["bounds"]["seconds for 50 states"][0] < 2.0
    assert output.splitlines()[-1].startswith(("HOLDS", "FAILS"))


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("novelty_on_unseen_streams.py", [], "name npz files with train, test and test_label"),
        ("ingest_runs_near_gemm.py", ["--sizes", "256"], "expected atoms x features such as 256x32 but got '256'"),
        ("young_streams_are_quick.py", ["--rows", "100"], "expected"),
        ("one_row_at_a_time.py", ["--rows", "999"], "--rows and --settle expected at least 1000 but got 999"),
        ("cost_grows_as_it_should.py", ["--rounds", "0"], "--rounds expected at least 1 but got 0"),
        ("many_machines.py", ["--rows", "9"], "--rows expected at least 8192 but got 9"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, script: str, options: list[str], message: str) -> None:
    refused = run_here(tmp_path, BENCHMARKS / script, *options)
    assert refused.returncode == 2
    assert message in refused.stderr


def test_the_history_of_five_figures_can_be_measured() -> None:
    found = runpy.run_path(str(BENCHMARKS / "history" / "five.py"))["Streams"]
    figures_of = [name for name in vars(found) if name.startswith(("time_", "track_"))]
    assert len(figures_of) == 5
    for name in figures_of:
        streams = found()
        streams.setup()
        answer = getattr(streams, name)()
        assert answer is None or 0.0 < answer < 0.1


def test_changes_of_distribution(tmp_path: Path) -> None:
    _, found = figures(tmp_path, "changes_of_distribution.py", "--tiny")
    assert set(found["delays"]) == {"1e+03", "1e+04", "1e+05"}
    for cases in found["delays"].values():
        assert len(cases) == 8
        assert all(set(case) == {"ours", "MMDEW", "NEWMA", "Scan-B", "OKCUSUM"} for case in cases.values())
    assert found["delays"]["1e+03"]["uniform +-4"]["ours"][0] < 3.0


def test_outliers_in_a_table(tmp_path: Path) -> None:
    output, found = figures(tmp_path, "outliers_in_a_table.py", "--tiny")
    assert "holds: contaminated, less 5th neighbour" in output
    for kind in ("contaminated", "clean"):
        assert set(found["areas"][kind]) >= {"OutlierDetector", "novelty", "5th neighbour", "IsolationForest"}
        for method, areas in found["areas"][kind].items():
            assert len(areas) == len(found["tables"]) == 5
            assert found["means"][kind][method][0] == pytest.approx(np.mean(areas))
    # Rows that were learned are not novel.
    assert (
        found["means"]["contaminated"]["novelty"][0] < 0.7 < 0.9 < found["means"]["contaminated"]["OutlierDetector"][0]
    )
    assert found["holds"] is all(value >= least for value, least in found["bounds"].values())
    rng = np.random.default_rng(0)
    table = {"X": rng.normal(size=(90, 4)), "y": np.arange(90) < 5}
    table["X"][:5] += 8.0
    (tmp_path / "folder").mkdir()
    np.savez(tmp_path / "folder" / "one.npz", **table)
    np.savez(tmp_path / "folder" / "wide.npz", **table | {"X": rng.normal(size=(90, 400))})
    _, found = figures(tmp_path, "outliers_in_a_table.py", "--data", "folder", "--tiny")
    assert set(found["tables"]) == {"one"}
    assert found["means"]["contaminated"]["OutlierDetector"][0] > 0.95
