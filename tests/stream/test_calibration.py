"""Novelty of rows as if they had not been seen, and the threshold that comes of it."""

import math

import numpy as np
import pytest
from streams_to_watch import normal_rows, small_model

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF
from streamkpca.stream.calibration import Calibration, calibrate, rows_for_selection
from streamkpca.stream.state import totals_and_sample


def parts(model):
    assert getattr(model, "state_", None) is not None
    return model.state_, model.settings()


def slow_level(scores, quantile):
    """Return the ceil((k + 1) quantile)-th smallest of k scores."""
    rank = math.ceil((len(scores) + 1) * quantile - 1e-9)
    return float(np.sort(scores)[min(rank, len(scores)) - 1])


@pytest.mark.parametrize("far", [False, True])
def test_runs_of_a_young_stream_are_scored_without_their_rows(far):
    rows = normal_rows(120)
    if far:
        # So far that nothing else explains it to any digit.
        rows[50] = 100.0
    model = small_model(max_atoms=200, tolerance=0.0, block_size=1024).partial_fit(rows).refit()
    assert model.n_atoms_ == 120
    found = calibrate(*parts(model), n_least=100)
    np.testing.assert_array_equal(found.runs, np.repeat(np.arange(8), 15))
    for run in range(8):
        others = rows[found.runs != run]
        other = small_model(max_atoms=200, tolerance=0.0, block_size=1024).partial_fit(others).refit()
        np.testing.assert_allclose(found.novelty[found.runs == run], other.novelty(rows[found.runs == run]), rtol=1e-6)


@pytest.mark.parametrize(("kernel", "n"), [(RBF(), 300), (RBF().in_units("std"), 700), (RBF(), 2000)], ids=repr)
def test_thresholds_have_the_unit_of_the_scores(kernel, n):
    # The first rows are so near to each other that each further doubling settles another width.
    rows = normal_rows(n) * np.minimum(np.arange(n) / 1000.0 + 0.01, 1.0)[:, None]
    model = small_model(kernel).partial_fit(rows)
    same = small_model(model.kernel_).partial_fit(rows)
    assert same.novelty_threshold() == model.novelty_threshold()
    np.testing.assert_array_equal(same.novelty(rows), model.novelty(rows))


def test_rows_of_a_few_setpoints_are_not_novel_for_their_rounding():
    random = np.random.default_rng(0)
    setpoints = random.normal(size=(6, 3)) * 7.3
    learned, later = setpoints[random.integers(6, size=(2, 900))]
    model = small_model(RBF(0.01), max_atoms=32).partial_fit(learned).refit()
    # Each row is an atom, but for rounding, which must not decide.
    assert (model.novelty(later + 1e-15 * random.normal(size=later.shape)) <= model.novelty_threshold()).all()
    assert (model.novelty(later + 1e-4) > model.novelty_threshold()).all()


def test_the_threshold_is_the_level_of_rows_that_are_left_out_while_the_stream_is_young():
    rows = normal_rows(200)
    model = small_model(block_size=1024).partial_fit(rows).refit()
    found = calibrate(*parts(model), n_least=10)
    assert len(found.novelty) == 200
    assert found.weights.tolist() == [1.0] * 200
    for quantile in (0.5, 0.9, 0.99):
        assert model.novelty_threshold(quantile) == slow_level(found.novelty, quantile)
    # Rows that are known look nearer.
    assert np.median(found.novelty) > np.median(model.novelty(rows))


def test_rows_after_the_last_refit_are_unseen():
    rows = normal_rows(1600)
    model = small_model(reservoir_size=512, refit_every=100_000).partial_fit(rows)
    stream, settings = parts(model)
    assert stream.published is stream.scheduled
    assert 1000 < stream.n_rows_at_refit < 1600
    _, sample = totals_and_sample(stream, settings)
    later = sample.positions >= stream.n_rows_at_refit
    unseen = model.novelty(sample.rows[later & (sample.inclusion_weights() > 0.0)])
    found = calibrate(stream, settings, n_least=1).novelty
    # Products of other numbers of rows round differently.
    assert np.abs(unseen[:, None] - found).min(axis=1).max() < 1e-12


def test_old_streams_judge_by_rows_that_atoms_were_not_chosen_from():
    rows = normal_rows(6000)
    model = small_model(reservoir_size=512).partial_fit(rows)
    stream, settings = parts(model)
    _, sample = totals_and_sample(stream, settings)
    _, _, chosen_from = rows_for_selection(stream)
    unseen = (sample.positions >= stream.n_rows_at_refit) | ~np.isin(sample.positions, chosen_from)
    # The last row that was drawn only tells how much the others count.
    unseen &= sample.inclusion_weights() > 0.0
    assert np.count_nonzero(unseen) >= 100
    np.testing.assert_array_equal(calibrate(stream, settings, n_least=100).novelty, model.novelty(sample.rows[unseen]))
    assert model.novelty_threshold() == slow_level(model.novelty(sample.rows[unseen]), 0.99)
    assert len(np.unique(calibrate(stream, settings, n_least=100).runs)) == np.count_nonzero(unseen)


@pytest.mark.parametrize("n", [300, 1000])
def test_fresh_rows_exceed_the_threshold_as_often_as_they_should(n):
    shares = []
    for seed in range(4):
        random = np.random.default_rng([n, seed])
        model = small_model(RBF(), max_atoms=32).partial_fit(random.normal(size=(n, 6)))
        shares.append(np.mean(model.novelty(random.normal(size=(3000, 6))) > model.novelty_threshold(0.95)))
    assert 0.025 <= np.mean(shares) <= 0.09


@pytest.mark.parametrize(
    ("parameters", "n"),
    [
        ({}, 1),
        ({"max_atoms": None}, 2),
        ({}, 3),
        ({"half_life": 100.0}, 50),
        ({"max_atoms": None}, 65),
        ({"atoms": "rows"}, 700),
        ({}, 1500),
    ],
    ids=str,
)
def test_thresholds_do_not_change_the_model_and_are_the_same_again(parameters, n):
    rows = normal_rows(n)
    whole, pieces = small_model(**parameters).partial_fit(rows), small_model(**parameters)
    data = whole.to_bytes()
    level = whole.novelty_threshold()
    assert 0.0 <= level < np.inf
    assert whole.to_bytes() == data
    assert whole.novelty_threshold() == level
    assert StreamingKernelPCA.from_bytes(data).novelty_threshold() == level
    for piece in np.array_split(rows, min(7, n)):
        pieces.partial_fit(piece)
    assert pieces.novelty_threshold() == level
    assert pieces.to_bytes() == data


@pytest.mark.parametrize("n", [64, 600])
def test_rows_that_are_all_alike_have_a_threshold_of_nothing(n):
    model = small_model().partial_fit(np.full((n, 3), 2.0))
    assert model.novelty_threshold() == pytest.approx(0.0, abs=1e-9)


def test_rows_of_weight_zero_do_not_count():
    rows = normal_rows(300)
    weights = np.where(np.arange(300) % 2, 1.0, 0.0)
    far = np.where(weights[:, None] > 0.0, rows, 50.0)
    model = small_model().partial_fit(far, sample_weight=weights)
    assert model.novelty_threshold() < model.novelty([[50.0, 50.0, 50.0]])[0]
    found = calibrate(*parts(model), n_least=10)
    assert (found.weights > 0.0).all()


def test_without_a_sample_an_old_stream_has_runs_of_single_rows():
    model = small_model(reservoir_size=0).partial_fit(normal_rows(2000))
    found = calibrate(*parts(model), n_least=100)
    assert len(np.unique(found.runs)) == len(found.runs) >= 100


def test_the_level_is_the_conformal_one():
    def level(values, weights, rarity):
        return Calibration(np.array(values), np.array(weights), np.arange(len(values)), np.empty((0, 0))).level(rarity)

    values = np.random.default_rng(0).permutation(np.arange(1.0, 100.0))
    assert level(values, np.ones(99), 10.0) == 90.0
    assert level(values, np.ones(99), 10.6) == 91.0
    assert level(values, np.ones(99), 1000.0) == 99.0
    # The newcomer weighs 10 / 4 = 2.5: half of 6.5 is just beyond the first value.
    assert level([1.0, 2.0], [3.0, 1.0], 1.85) == 1.0
    assert level([1.0, 2.0], [3.0, 1.0], 2.0) == 2.0
