"""The simulated plant: the same for the same seed, faults where they are said to be."""

import json

import numpy as np
import pytest
from commands import fact, run
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from streamkpca.cli.demo import BLOCK_ROWS, FAULT_KINDS, N_SENSORS, simulate_plant


def stream(n_rows, seed=0):
    rows, faults = zip(*simulate_plant(n_rows, seed=seed), strict=True)
    return np.concatenate(rows), np.concatenate(faults)


@given(st.integers(1, 3500), st.integers(0, 5))
def test_a_shorter_stream_is_the_beginning_of_a_longer_one(n_rows, seed):
    short, long = stream(n_rows, seed), stream(3500, seed)
    for a, b in zip(short, long, strict=True):
        assert len(a) == n_rows
        np.testing.assert_array_equal(a, b[:n_rows])


def test_the_stream_begins_healthy_and_has_all_faults():
    rows, faults = stream(60_000)
    assert rows.shape == (60_000, N_SENSORS)
    assert np.isfinite(rows).all()
    assert not faults[: 2 * BLOCK_ROWS].any()
    assert set(np.unique(faults)) == set(range(len(FAULT_KINDS)))
    assert 0.002 < (faults > 0).mean() < 0.05


def test_a_stuck_sensor_repeats_its_reading():
    rows, faults = stream(60_000)
    stuck = np.flatnonzero(faults == FAULT_KINDS.index("stuck"))
    first = stuck[np.diff(stuck, prepend=-9) > 1]
    assert len(first)
    for row in first:
        assert ((rows[row : row + 20] == rows[row]).all(axis=0)).sum() == 2


@pytest.mark.slow
def test_the_demo_learns_says_it_is_simulated_and_writes_its_files(tmp_path):
    result = run("demo", "--rows", "3000", "--seed", "5", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("Simulating 3,000 rows of a plant with 24 sensors; the first run also compiles")
    assert "a monitor found the faults of this simulated plant" in result.stdout
    assert fact(result.stdout, "area under ROC curve") > "0.8"
    table = parquet.read_table(tmp_path / "out" / "projections.parquet")
    assert table.num_rows == 3000
    assert table.column_names[:5] == ["row", "label", "novelty", "rarity", "alarm"]
    picture = (tmp_path / "out" / "picture.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 50_000


def test_a_demo_too_short_for_faults_says_so(tmp_path):
    found = json.loads(run("demo", "--rows", "700", "--out", tmp_path, "--json").stdout)
    # The monitor learns no rows that are held out.
    assert 350 < found["model"]["rows"] < 700
    assert "none yet" in found["faults"]["faults"]
