"""What objects show in notebooks: well-formed HTML that tells what was learned, and runs nothing."""

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF, Linear
from streamkpca.monitoring import Monitor

ESTIMATORS = [ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA]
ROWS = np.random.default_rng(0).normal(size=(60, 3))


class Page(HTMLParser):
    """The text and the tags of a page; tags that do not match raise an error."""

    def __init__(self, shown: Any) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(shown._repr_html_())
        self.close()
        self.text = " ".join(self.text.split())
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not any(name.startswith("on") for name, _ in attrs)
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_estimator_tells_whether_it_is_fitted(estimator: Any) -> None:
    model = estimator(2, kernel=RBF(0.5) * Linear())
    before = Page(model)
    assert "not fitted" in before.text
    assert f"parameters {model!r}" in before.text
    after = Page(model.fit(pd.DataFrame(ROWS, columns=["load", "heat", "flow"])))
    assert "not fitted" not in after.text
    assert "3: load, heat, flow" in after.text
    assert f"{model.explained_variance_ratio_.sum():.1%} by 2 axes" in after.text


def test_a_stream_tells_its_rows_and_its_drift() -> None:
    model = StreamingKernelPCA(2, kernel=RBF(0.5), max_atoms=8, block_size=32, on_bad_rows="skip")
    rows = np.concatenate([ROWS, np.full((1, 3), np.nan), ROWS])
    page = Page(model.partial_fit(rows)).text
    assert "rows 121, of which 1 rejected" in page
    assert "drift none" in page
    for _ in range(20):
        model.partial_fit(ROWS)
    text = Page(model.partial_fit(np.tile(ROWS + 5.0, (6, 1)))).text
    assert f"signalled at row {model.last_drift_row_:,}" in text
    assert "weight of the rows 1" in Page(StreamingKernelPCA().partial_fit(ROWS[:1])).text


def test_a_monitor_tells_its_threshold_and_events() -> None:
    monitor = Monitor()
    assert "no rows yet" in Page(monitor).text
    rows = np.random.default_rng(1).normal(size=(600, 3))
    rows[500] = 30.0
    monitor.update(rows)
    page = Page(monitor).text
    assert "600 rows" in page
    assert f"events {monitor.n_events_}" in page
    assert "lasting change none" in page
    assert "StreamingKernelPCA" in page


def test_texts_of_users_are_escaped_and_nothing_runs() -> None:
    names = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b"]
    page = Page(KernelPCA(2).fit(pd.DataFrame(ROWS, columns=names)))
    assert {"script", "img"}.isdisjoint(page.tags)
    assert "<script>alert(1)</script>" in page.text
    assert "script" not in Page(StreamingKernelPCA(kernel="<script>")).tags
