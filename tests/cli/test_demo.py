"""The demonstration is `watch` on a simulated machine: it finds the three faults, and names their sensors."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from commands import fact, run
from pyarrow import csv

from streamkpca.cli.demo import SENSORS, simulate_week


def test_each_fault_stays_in_the_range_that_its_sensor_has_in_each_cycle():
    times, readings, is_fault = simulate_week()
    edges = np.flatnonzero(np.diff(is_fault, prepend=False, append=False)).reshape(-1, 2)
    assert [str(times[first])[:13] for first, _ in edges] == ["2026-03-04T09", "2026-03-06T02", "2026-03-07T14"]
    for first, end in edges:
        assert end - first == 120
        low, high = readings[first - 60 : first].min(axis=0), readings[first - 60 : first].max(axis=0)
        reach = 0.1 * (high - low)
        assert ((readings[first:end] > low - reach) & (readings[first:end] < high + reach)).all()


@pytest.mark.slow
def test_the_demo_shows_the_line_of_watch_that_finds_the_faults_of_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--out", "out")
    assert result.exit_code == 0, result.stderr
    words = shlex.split(re.search("As you would:\n(.*)\n", result.stderr)[1])
    assert words[:3] == ["streamkpca", "watch", str(Path("out", "machine.csv"))]
    causes = re.findall(r"^  (\w+): .* since (2026-03-\d\d \d\d)", result.stdout, re.MULTILINE)
    assert {*causes} >= {("flow", "2026-03-04 09"), ("pressure", "2026-03-07 14"), ("temperature", "2026-03-06 02")}
    # Nothing else is shown, but that the pressure went to its other side an hour later.
    assert {*causes} <= {("flow", "2026-03-04 09"), ("pressure", "2026-03-07 14"), ("pressure", "2026-03-07 15")} | {
        ("temperature", f"2026-03-06 0{hour}") for hour in (2, 3)
    }
    assert (fact(result.stdout, "labelled faults"), fact(result.stdout, "faults with an alarm")) == ("3", "3")
    assert float(fact(result.stdout, "alarms in other rows")) < 0.01
    assert Path("out", "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "<table>" in Path("out", "report.html").read_text(encoding="utf-8")
    table = csv.read_csv(Path("out", "machine.csv"))
    assert table.column_names == ["time", *SENSORS, "fault"]
    assert table.num_rows == 10_080
    again = run(*words[1:])
    assert again.stdout == result.stdout
