"""Outliers in a table: that they do not hide themselves, and what the names of other libraries mean."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.metrics import roc_auc_score

from streamkpca import OutlierDetector, StreamingKernelPCA, load
from streamkpca.errors import CheckpointError, NotFittedError

SEEDS = st.integers(0, 10**6)


def cloud(n=300, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def ring(n, seed=0):
    angle = np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, n)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def are_last(rows, n_outliers):
    """Tell whether the last rows of a table have the highest scores."""
    scores = OutlierDetector().fit(rows).decision_scores_
    return scores[-n_outliers:].min() > scores[:-n_outliers].max()


# Ranking


@pytest.mark.parametrize("n", [20, 60, 500, 6000])
def test_a_far_row_is_first_in_tables_of_all_sizes(n):
    assert are_last(np.vstack([cloud(n), [[9.0, -9.0, 9.0]]]), 1)


def test_equal_outliers_do_not_hide_each_other():
    assert are_last(np.vstack([cloud(300), np.full((20, 3), 6.0)]), 20)


def test_a_row_inside_a_ring_is_an_outlier():
    assert are_last(np.vstack([ring(500), [[0.0, 0.0]]]), 1)
    noise = np.random.default_rng(1).normal(scale=0.05, size=(530, 2))
    rows = np.vstack([ring(500), np.zeros((30, 2))]) + np.vstack([noise[:500], 2.0 * noise[500:]])
    assert roc_auc_score(np.arange(530) >= 500, OutlierDetector().fit(rows).decision_scores_) > 0.9


def test_a_broken_relation_between_usual_numbers_is_an_outlier():
    rows = np.linspace(-2.0, 2.0, 500)[:, None] + 0.02 * cloud(500, 6, seed=1)
    rows[-1] = [0.7, 0.7, -0.7, 0.7, 0.7, 0.7]
    assert np.abs(rows[-1]).max() < np.abs(rows).max()
    assert are_last(rows, 1)


def test_one_absurd_number_hides_no_other_outlier():
    rows = np.vstack([cloud(500), [[5.0, -5.0, 5.0]], [[1e12, 0.0, 0.0]]])
    assert are_last(rows, 2)


def test_scores_grow_far_from_all_rows():
    scores = -OutlierDetector().fit(cloud()).score_samples(np.geomspace(5.0, 1e50, 40)[:, None] * np.ones(3))
    assert (np.diff(scores) > 0.0).all()
    assert np.isfinite(scores).all()


def test_units_and_offsets_of_columns_do_not_matter():
    rows = cloud(800)
    moved = rows * [1e-6, 1.0, 1e6] + [1.0, 1e6, -1e9]
    np.testing.assert_allclose(
        OutlierDetector().fit(moved).decision_scores_, OutlierDetector().fit(rows).decision_scores_, rtol=1e-4
    )


@given(SEEDS)
def test_the_order_of_rows_hardly_matters(seed):
    rows = np.vstack([cloud(300), 2.5 * cloud(15, seed=1)])
    order = np.random.default_rng(seed).permutation(len(rows))
    scores, others = (OutlierDetector().fit(table).decision_scores_ for table in (rows, rows[order]))
    assert np.corrcoef(scores[order], others)[0, 1] > 0.98


# Hard tables


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((1, 1)),
        np.array([[0.0, 1.0], [1.0, 0.0]]),
        np.zeros((50, 3)),
        np.column_stack([cloud(100, 2), np.full(100, 7.0)]),
        np.repeat(cloud(3), 40, axis=0),
        (cloud(400, 8) > 1.5).astype(float),
        cloud(10, 40),
        cloud(100, 3) * [1e-300, 1.0, 1e150],
        cloud(100, 2).astype(np.float32),
    ],
    ids=["one", "two", "equal", "constant column", "copies", "mostly zero", "wide", "extreme units", "float32"],
)
def test_hard_tables_have_finite_scores(rows):
    detector = OutlierDetector().fit(rows)
    assert detector.decision_scores_.shape == (len(rows),)
    assert np.isfinite(detector.decision_scores_).all()
    assert np.isfinite(detector.score_samples(2.0 * rows + 1.0)).all()


# The threshold, and names of scikit-learn and PyOD


@pytest.mark.parametrize("contamination", [0.01, 0.1, 0.5])
def test_contamination_is_the_share_of_outliers(contamination):
    rows = cloud(5000)
    detector = OutlierDetector(contamination).fit(rows)
    assert detector.labels_.mean() == pytest.approx(contamination, abs=1e-3)
    assert (detector.predict(rows) == -1).mean() == pytest.approx(contamination, abs=1e-3)
    np.testing.assert_array_equal(detector.decision_scores_, OutlierDetector().fit(rows).decision_scores_)


def test_without_contamination_a_twentieth_of_the_rows_are_outliers():
    detector = OutlierDetector().fit(np.vstack([cloud(500, 8), 3.0 * cloud(25, 8, seed=1)]))
    assert detector.threshold_ == -detector.offset_
    assert detector.labels_.mean() == pytest.approx(0.05, abs=0.003)
    assert detector.labels_[500:].mean() > 0.9


def test_few_rows_that_differ_from_equal_ones_are_outliers():
    rows = np.full((100, 5), 3.3)
    rows[[7, 70], 2] = 3.4, 3.2
    np.testing.assert_array_equal(np.flatnonzero(OutlierDetector().fit(rows).labels_), [7, 70])


def test_names_of_both_libraries_agree():
    rows, others = cloud(500), cloud(40, seed=1)
    detector = OutlierDetector(0.1)
    found = detector.fit_predict(rows)
    np.testing.assert_array_equal(found, np.where(detector.labels_ == 1, -1, 1))
    np.testing.assert_array_equal(detector.decision_scores_, -detector.score_samples(rows))
    for table in (rows, others):
        decided = detector.decision_function(table)
        np.testing.assert_array_equal(decided, detector.score_samples(table) - detector.offset_)
        np.testing.assert_array_equal(detector.predict(table), np.where(decided < 0.0, -1, 1))


# Tables in parts


@given(SEEDS, st.integers(0, 4))
def test_how_calls_cut_a_table_does_not_matter(seed, n_cuts):
    rows = cloud(700)
    cuts = np.sort(np.random.default_rng(seed).integers(1, 700, n_cuts))
    whole = OutlierDetector(0.1, max_samples=200).fit(rows)
    parts = OutlierDetector(0.1, max_samples=200)
    for part in np.split(rows, cuts):
        if len(part):
            parts.partial_fit(part)
    np.testing.assert_array_equal(parts.score_samples(rows), whole.score_samples(rows))
    assert parts.n_samples_seen_ == whole.n_samples_seen_ == 700


def test_the_sample_is_drawn_evenly():
    rows = np.arange(2000.0)[:, None]
    means = [
        OutlierDetector(max_samples=100, random_state=s).partial_fit(rows)._state.sample.rows.mean() for s in range(50)
    ]
    # The deviation of such a mean is 57.7 / sqrt(1 - 1/20).
    assert abs(np.mean(means) - 999.5) < 4.0 * 57.7 / np.sqrt(50)
    assert 35.0 < np.std(means) < 80.0


@pytest.mark.parametrize("seed", range(3))
def test_rows_from_a_generator_of_the_same_seed_are_sampled_evenly(seed):
    table = np.random.default_rng(seed).random((2000, 1)).repeat(2, axis=1)
    detector = OutlierDetector(max_samples=200, random_state=seed).fit(table)
    # Means of 200 uniform numbers deviate by 0.02.
    assert abs(detector._state.sample.rows[:, 0].mean() - 0.5) < 0.1


def test_a_sample_takes_bounded_memory_and_ranks_as_all_rows():
    rows = np.vstack([cloud(20_000), 3.0 * cloud(400, seed=1)])
    labels, areas = np.arange(len(rows)) >= 20_000, []
    for size in (512, 100_000):
        detector = OutlierDetector(max_samples=size).partial_fit(rows)
        areas.append(roc_auc_score(labels, -detector.score_samples(rows)))
        assert len(detector._state.sample) == min(size, len(rows))
    assert abs(areas[0] - areas[1]) < 0.01


def test_after_parts_the_threshold_is_that_of_the_sample():
    rows = cloud(3000)
    detector = OutlierDetector(0.1).partial_fit(rows[:1000]).partial_fit(rows[1000:])
    assert detector.offset_ == OutlierDetector(0.1).fit(rows).offset_
    with pytest.raises(AttributeError, match=r"no decision_scores_: partial_fit keeps a sample .* score_samples$"):
        detector.decision_scores_  # noqa: B018
    with pytest.raises(AttributeError, match="no labels_"):
        detector.labels_  # noqa: B018


def test_a_row_alone_has_the_score_that_it_has_in_a_batch():
    rows = cloud(500, 7)
    detector = OutlierDetector().fit(rows)
    alone = np.concatenate([detector.score_samples(row[None]) for row in rows])
    np.testing.assert_array_equal(alone, -detector.decision_scores_)
    np.testing.assert_array_equal(detector.score_samples(np.asfortranarray(rows)[::-1]), alone[::-1])


def test_scores_are_mean_distances_to_two_neighbours():
    rows = cloud(120, 2)
    detector, others = OutlierDetector().fit(rows), cloud(30, 2, seed=1)
    learned = detector._state.neighbours
    standard = (others - learned.centre) / learned.units
    distances = np.linalg.norm(standard[:, None] - learned.references.T, axis=2)
    assert learned.references.shape == (2, 108)
    np.testing.assert_allclose(
        -detector.score_samples(others), np.sort(distances, axis=1)[:, [11, 23]].mean(axis=1), rtol=1e-12
    )


# Files


def test_a_loaded_detector_goes_on_as_if_it_had_never_been_stopped(tmp_path):
    frame = pd.DataFrame(cloud(600), columns=["a", "b", "c"])
    detector = OutlierDetector(0.1, max_samples=200).fit(frame)
    detector.save(tmp_path / "table.npz", extra={"offset": 600})
    found = load(tmp_path / "table.npz")
    assert (repr(found), found.extra_, found.n_samples_seen_) == (repr(detector), {"offset": 600}, 600)
    np.testing.assert_array_equal(found.labels_, detector.labels_)
    for one in (detector, found):
        one.partial_fit(frame + 0.5)
    np.testing.assert_array_equal(found.score_samples(frame), detector.score_samples(frame))
    assert found.to_bytes() == detector.to_bytes()
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(NotFittedError):
        OutlierDetector.from_bytes(OutlierDetector().to_bytes()).predict(frame)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_rows": 100}, "its sample has too few or too many rows or columns"),
        ({"names": ["a"]}, "its sample has too few or too many rows or columns"),
        ({"contamination": -1.0}, "contamination is -1.0 but should be of the kind real > 0"),
        ({"sample.keys": np.zeros(3)}, r"sample.keys has shape \(3,\)"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(changes, message):
    detector = OutlierDetector(max_samples=200).fit(cloud())
    record = detector._record()
    record["state"] |= changes
    with pytest.raises(CheckpointError, match=f"outlier detector makes no sense: .*{message}"):
        OutlierDetector.from_bytes(StreamingKernelPCA().to_bytes({"outliers": record, "extra": None}))


def test_fit_begins_anew():
    rows = cloud()
    detector = OutlierDetector().fit(rows + 100.0).fit(rows)
    np.testing.assert_array_equal(detector.decision_scores_, OutlierDetector().fit(rows).decision_scores_)


# Tables of other libraries, copies, and refusals


def test_tables_of_other_kinds_give_the_same_scores():
    rows = cloud(200)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    expected = OutlierDetector().fit(rows).decision_scores_
    for table in (frame, csr_array(rows), pa.Table.from_pandas(frame), rows.tolist()):
        np.testing.assert_array_equal(OutlierDetector().fit(table).decision_scores_, expected)
    named = OutlierDetector().fit(frame)
    assert named.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(frame[["b", "a", "c"]])
    parts = OutlierDetector().partial_fit(pa.Table.from_pandas(frame).to_reader(max_chunksize=30))
    np.testing.assert_array_equal(parts.score_samples(rows), -expected)


def test_a_random_seed_draws_anew_each_time():
    rows = cloud(600)
    first, second = (OutlierDetector(max_samples=50, random_state=None).fit(rows) for _ in range(2))
    assert (first.decision_scores_ != second.decision_scores_).any()


@pytest.mark.parametrize("rows", [[[np.nan]], [[np.inf, 1.0]], [], [["a"]], [1.0, 2.0]])
def test_a_refused_call_changes_nothing(rows):
    detector = OutlierDetector().fit(cloud())
    before = detector.decision_scores_
    for call in (detector.fit, detector.partial_fit, detector.predict):
        with pytest.raises((TypeError, ValueError)):
            call(rows)
    assert detector.decision_scores_ is before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contamination": 0.0}, r"OutlierDetector.fit: contamination must be a finite number in \(0, 0.5\], got 0.0"),
        ({"contamination": 0.6}, r"contamination must be a finite number in \(0, 0.5\], got 0.6"),
        ({"contamination": "most"}, "contamination must be one of 'auto', got 'most'"),
        ({"max_samples": 0}, "max_samples must be at least 1, got 0"),
        ({"random_state": -1}, "random_state must be at least 0, got -1"),
    ],
)
def test_parameters_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        OutlierDetector(**changes).fit(cloud())


def test_questions_before_the_first_row_are_refused():
    for ask in (lambda new: new.predict(cloud()), lambda new: new.offset_, lambda new: new.labels_):
        with pytest.raises(NotFittedError, match=r"needs a fitted OutlierDetector.*call 'fit' or 'partial_fit' first"):
            ask(OutlierDetector())
    named = OutlierDetector().fit(cloud())
    assert named.n_features_in_ == 3
    with pytest.raises(AttributeError, match="first rows came without column names"):
        named.feature_names_in_  # noqa: B018
    with pytest.raises(TypeError, match="'contaminaton' is not a parameter; did you mean 'contamination'"):
        OutlierDetector(contaminaton=0.1)
