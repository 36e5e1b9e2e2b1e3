"""The benchmarks' figures of detection agree with a published implementation and with counts."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

METRICS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "detection_metrics.py"))
segments, vus_pr, judge_alarms = METRICS["segments"], METRICS["vus_pr"], METRICS["judge_alarms"]
auroc, average_precision = METRICS["auroc"], METRICS["average_precision"]


def made(count, runs):
    """Make labels, and scores without a generator, so that any program can make the same."""
    rows = np.arange(count)
    labels = np.zeros(count, dtype=int)
    for start, end in runs:
        labels[start:end] = 1
    return labels, np.sin(0.7 * rows) + np.cos(0.013 * rows**1.5) + 0.8 * labels


THREE = [(100, 130), (300, 301), (420, 470)]
EDGES = [(0, 25), (60, 75), (90, 99), (560, 600)]


@pytest.mark.parametrize(
    ("count", "runs", "window", "digits", "published"),
    [
        (600, THREE, 20, None, 0.38813207247639786),
        (600, THREE, 100, None, 0.5193212741060635),
        (600, EDGES, 50, None, 0.5818841960090019),
        (600, EDGES, 30, 0, 0.4401569094014264),
        (180, [(50, 70), (75, 78)], 11, None, 0.4758255918829002),
        (180, [(50, 70), (75, 78)], 0, None, 0.408641738114594),
    ],
    ids=["short-buffers", "buffers-that-touch", "runs-at-the-ends", "ties", "fewer-rows-than-thresholds", "no-buffer"],
)
def test_volume_is_that_of_the_authors_code(count, runs, window, digits, published):
    # The figures come from TSB-AD 1.5, generate_curve(labels, scores, window, version="opt", thre=250).
    labels, scores = made(count, runs)
    if digits is not None:
        scores = np.round(scores, digits)
    assert vus_pr(labels, scores, window=window) == pytest.approx(published, rel=1e-12)


def test_volume_depends_on_ranks_alone():
    labels, scores = made(600, THREE)
    assert vus_pr(labels, np.exp(3.0 * scores)) == pytest.approx(vus_pr(labels, scores), rel=1e-12)


def test_volume_needs_anomalous_rows_and_scores_that_are_numbers():
    assert math.isnan(vus_pr([0, 0, 0], [1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="scores that are not NaN"):
        vus_pr([0, 1], [1.0, np.nan])
    with pytest.raises(ValueError, match="of one length"):
        vus_pr([0, 1, 1], [1.0, 2.0])


def test_segments_are_runs_of_labels():
    assert segments([1, 0, 2, 2, 0, 0, 1]).tolist() == [[0, 1], [2, 4], [6, 7]]
    assert segments([0, 0]).shape == (0, 2)


def test_alarms_are_counted():
    labels = [0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0]
    alarms = [1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1]
    found = judge_alarms(labels, alarms)
    assert found.delay == (2 + 2) / 2  # two rows late, and a segment of two rows that was missed
    assert found.covered == 0.5
    assert found.false_rows == 5 / 7
    assert found.false_events == 3 / 7  # the run that goes on after the first segment touches it
    quiet = judge_alarms(labels, np.zeros(13))
    assert (quiet.delay, quiet.covered, quiet.false_rows, quiet.false_events) == (3.0, 0.0, 0.0, 0.0)
    healthy = judge_alarms([0, 0], [0, 1])
    assert math.isnan(healthy.delay)
    assert math.isnan(healthy.covered)
    assert healthy.false_events == 0.5


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=60))
def test_areas_under_curves_agree_with_scikit_learn(pairs):
    labels, scores = (np.array(column) for column in zip(*pairs, strict=True))
    if labels.any():
        assert average_precision(labels, scores) == pytest.approx(average_precision_score(labels, scores))
    if labels.any() and not labels.all():
        assert auroc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))


def test_without_both_kinds_of_rows_there_is_no_area():
    assert np.isnan(auroc([0, 0], [1, 2]))
    assert np.isnan(auroc([1, 1], [1, 2]))
    assert np.isnan(average_precision([0, 0], [1, 2]))
    assert average_precision([1, 1], [1, 2]) == 1
