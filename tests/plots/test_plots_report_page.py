"""A page of events for a browser."""

import re

import numpy as np
import pytest

from streamkpca.monitoring import Monitor
from streamkpca.plots import write_report

pytest.importorskip("bokeh")


def test_page_holds_events_and_asks_no_server(tmp_path):
    random = np.random.default_rng(0)
    rows = np.repeat(random.normal(size=(3000, 2)), 2, axis=1) + 0.1 * random.normal(size=(3000, 4))
    rows[2500:2520, 3] += 3.0
    monitor = Monitor()
    record = monitor.update(rows)
    path = tmp_path / "report.html"
    write_report(monitor, path, rows=rows, rarity=record.rarity, title="<a>", command="watch a.csv --model a.npz")
    page = path.read_text(encoding="utf-8")
    assert "<h1>&lt;a&gt;</h1>" in page
    assert "feature 3" in page
    assert page.count('<tr tabindex="0"') == len(monitor.report().lines) > 0
    assert re.search(r"watch a\.csv --model a\.npz --accept \d+", page)
    assert not re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)\s*=", page)
    with pytest.raises(ValueError, match="expected 3000 rarities"):
        write_report(monitor, path, rows=rows, rarity=[1.0])
    assert path.read_text(encoding="utf-8") == page
