"""A page of events for a browser."""

import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from streamkpca.monitoring import Monitor
from streamkpca.plots import write_report

pytest.importorskip("bokeh", reason="pages are drawn by Bokeh; needs the extra report")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def watched(n=3000, d=4):
    """Watch rows of which one sensor is wrong for a while."""
    random = np.random.default_rng(0)
    rows = np.repeat(random.normal(size=(n, 2)), d // 2, axis=1) + 0.1 * random.normal(size=(n, d))
    rows[n - 500 : n - 480, 3] += 3.0
    monitor = Monitor()
    return monitor, rows, monitor.update(rows)


def test_page_holds_events_and_asks_no_server(tmp_path):
    monitor, rows, record = watched()
    path = tmp_path / "report.html"
    notes = ["time: none & nothing"]
    given = {"rows": rows, "rarity": record.rarity, "title": "<a>", "notes": notes}
    write_report(monitor, path, **given, command="watch a.csv --model a.npz")
    page = path.read_text(encoding="utf-8")
    assert "<h1>&lt;a&gt;</h1>" in page
    assert "time: none &amp; nothing" in page
    lines = monitor.report().lines
    assert page.count("<tr>") == 1 + len(lines) > 1
    events = json.loads(re.search(r"events = (\[.*\]);", page)[1])
    (fault,) = (one for one in events if one["span"] is not None and 2500 <= one["span"][0] < 2520)
    number = next(line.worst for line in lines if line.events[line.worst].start == fault["span"][0])
    assert fault["commands"] == [f"watch a.csv --model a.npz --{verb} {number}" for verb in ("accept", "confirm")]
    band = fault["panels"][0]
    assert (band["column"], band["x"][0]) == (3, fault["span"][0] - 50)
    # The value was 3 above what the other sensor of the pair lets expect.
    at = band["x"].index(2510)
    assert band["low"][at] < rows[2510, 3] - 3.0 < band["high"][at] < rows[2510, 3]
    assert not re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)\s*=", page)
    with pytest.raises(ValueError, match="expected 3000 rarities"):
        write_report(monitor, path, rows=rows, rarity=[1.0])
    assert path.read_text(encoding="utf-8") == page


def test_tables_are_drawn_over_their_times(tmp_path):
    monitor, rows, _ = watched()
    when = pd.date_range("2026-05-01", periods=3000, freq="min")
    table = pd.DataFrame(rows, columns=["a", "b", "c", "d"]).assign(when=when)
    monitor = Monitor()
    monitor.update(table, time="when")
    path = tmp_path / "report.html"
    write_report(monitor, path, rows=table, time="when")
    page = path.read_text(encoding="utf-8")
    assert "<li>2026-05-01 00:00:00 to 2026-05-03 01:59:00. 3,000 rows were judged" in page
    assert 'names = ["a", "b", "c", "d"]' in page
    events = json.loads(re.search(r"events = (\[.*\]);", page)[1])
    fault = when[2500].value / 1e6
    assert any(one["span"] is not None and 0 <= one["span"][0] - fault < 20 * 60_000.0 for one in events)
    write_report(monitor, path, rows=table.set_index("when"))
    assert json.loads(re.search(r"events = (\[.*\]);", path.read_text(encoding="utf-8"))[1]) == events


def test_rows_are_checked_as_update_checks_them(tmp_path):
    _, rows, _ = watched()
    path, table = tmp_path / "report.html", pd.DataFrame(rows, columns=["a", "b", "c", "d"])
    named = Monitor().fit(table[:1000])
    named.update(table[1000:])
    # The latest rows, unless `first` says which.
    write_report(named, path, rows=table[2000:])
    assert "<li>row 2,000 to row 2,999." in path.read_text(encoding="utf-8")
    write_report(named, path, rows=rows[1000:1500], first=1000)
    assert 'names = ["a", "b", "c", "d"]' in path.read_text(encoding="utf-8")
    page = path.read_bytes()
    time = np.arange(3000)[::-1]
    for given, message in (
        ({"rows": table, "first": 5}, "expected rows among the 3,000 of the monitor"),
        ({"rows": table[::2], "first": -5}, "first must be at least 0"),
        ({"rows": table[list("dcba")]}, "columns"),
        ({"rows": rows[:, 0]}, "expected a 2D array"),
        ({"rows": rows, "names": ["a"]}, "expected 4 names"),
        ({"rows": rows, "time": time}, "time"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            write_report(named, path, **given)
    assert path.read_bytes() == page


def test_long_streams_have_short_pages(tmp_path):
    monitor, rows, record = watched(n=40_000, d=40)
    write_report(monitor, tmp_path / "short.html", rows=rows[-5000:], rarity=record.rarity[-5000:], first=35_000)
    write_report(monitor, tmp_path / "long.html", rows=rows, rarity=record.rarity)
    short, long = ((tmp_path / f"{name}.html").stat().st_size for name in ("short", "long"))
    # Most of it is Bokeh.
    assert max(short, long) < 5_000_000


@pytest.mark.documents
@pytest.mark.skipif(CHROMIUM is None, reason="needs the browser Chromium")
def test_a_click_in_a_browser_shows_the_sensor_of_an_event(tmp_path):
    monitor, rows, record = watched()
    path = tmp_path / "report.html"
    write_report(monitor, path, rows=rows, rarity=record.rarity)
    found = """<script>setTimeout(() => {
        const find = name => Bokeh.documents[0].get_model_by_name(name);
        document.querySelectorAll("th")[0].click();
        document.querySelector("tbody tr").click();
        const told = {title: find("panel0").title.text, span: [find("span").start, find("span").end],
            low: Array.from(find("band0").data.low), chosen: document.querySelectorAll("tr.chosen").length,
            first: document.querySelector("tbody td").textContent, wide: document.documentElement.scrollWidth};
        document.title = JSON.stringify(told);
    }, 1000)</script></body>"""
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", found), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=390,900", "--virtual-time-budget=8000"]
    command = [CHROMIUM, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    told = json.loads(re.search(r"<title>(\{.*\})</title>", dom)[1])
    lines = {line.worst: line.events[line.worst] for line in monitor.report().lines}
    event = lines[max(lines)]
    # A click on the first head sorts by number, the latest first.
    assert (told["first"], told["chosen"]) == (f"{max(lines):,}", 1)
    assert told["title"] == f"feature {event.features[0].feature}"
    assert told["span"][0] <= event.start <= event.end <= told["span"][1] < told["span"][0] + 1000
    assert np.isfinite(told["low"]).all()
    assert len(told["low"]) > 100
    # Nothing but the table, which scrolls by itself, is wider than a telephone.
    assert told["wide"] <= 500
