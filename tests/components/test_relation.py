"""The relation view against ridge regressions of each column on the others, and moments against numpy's."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.components.relation import Relation, RowMoments

SEEDS = st.integers(0, 10**6)
RIDGE = 0.01


def correlated_rows(seed, n=60, d=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)


def with_gaps(rows, seed, share=0.3):
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


def moments_of(rows):
    return RowMoments.none(rows.shape[1]).add(rows)


def relation_of(rows, healthy=None):
    return Relation.fit(moments_of(rows), rows if healthy is None else healthy)


def ridge_residual(known, row, j):
    """Return what a standardised row has in column j beyond its ridge regression on the others that it has."""
    others = [k for k in np.flatnonzero(~np.isnan(row)) if k != j]
    penalised = np.vstack([known[:, others], np.sqrt(RIDGE * len(known)) * np.eye(len(others))])
    slopes = np.linalg.lstsq(penalised, np.append(known[:, j], np.zeros(len(others))), rcond=None)[0]
    return row[j] - row[others] @ slopes


# Moments


@given(SEEDS, st.integers(1, 40), st.integers(0, 3), st.booleans())
def test_moments_of_parts_in_any_order_are_those_of_all_rows(seed, n, n_cuts, has_gaps):
    rows = correlated_rows(seed, n, 3)
    rows = with_gaps(rows, seed) if has_gaps else rows
    parts = np.array_split(rows, n_cuts + 1)
    whole = moments_of(rows)
    merged = RowMoments.none(3)
    for part in parts[::-1]:
        merged = moments_of(part).merge(merged)
    for j in range(3):
        for k in range(3):
            both = rows[~np.isnan(rows[:, [j, k]]).any(axis=1)]
            for moments in (whole, merged):
                assert np.broadcast_to(moments.weights, (3, 3))[k, j] == len(both)
                away = both - (both.mean(axis=0) if len(both) else 0.0)
                expected = away[:, j] @ away[:, k]
                assert moments.scatter[k, j] == pytest.approx(expected, abs=1e-10)
                if len(both):
                    assert np.broadcast_to(moments.means, (3, 3))[k, j] == pytest.approx(both[:, j].mean())


def test_huge_offsets_that_move_lose_no_digits():
    rows = correlated_rows(0, 400)
    # Rounded, so that sums with the offset are exact. The means of parts are known to 1e-4.
    rows = np.round(rows * 2.0**10) / 2.0**10
    moments = RowMoments.none(4)
    for part in np.array_split(rows, 7):
        moments = moments.add(part + 2.0**40)
    np.testing.assert_allclose(moments.deviation, rows.std(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.correlation, np.corrcoef(rows.T), atol=1e-5)
    jump = RowMoments.none(1).add(np.zeros((1, 1))).add(rows[:, :1] + 2.0**40)
    assert jump.deviation[0] == pytest.approx(np.append(rows[:, 0] + 2.0**40, 0.0).std())


def test_numbers_that_are_all_the_same_do_not_vary():
    assert moments_of(np.full((1000, 2), [0.1, 1e9 + 0.1])).deviation.tolist() == [0.0, 0.0]


def test_correlations_of_pairs_are_made_those_of_some_rows():
    # Three pairs of columns agree, agree and disagree, each in rows of their own.
    x, gap = np.array([-1.0, 1.0]), np.full(2, np.nan)
    rows = np.vstack([np.column_stack(three) for three in ((x, x, gap), (gap, x, x), (x, gap, -x))])
    correlation = moments_of(rows).correlation
    assert np.linalg.eigvalsh(correlation).min() > -1e-12
    np.testing.assert_allclose(np.diagonal(correlation), 1.0)
    # Those nearest to 1, 1 and -1 are 1/2, 1/2 and -1/2.
    np.testing.assert_allclose(correlation[[0, 1, 0], [1, 2, 2]], [0.5, 0.5, -0.5], atol=1e-9)


# Predictions


@given(SEEDS, st.integers(1, 5), st.booleans())
def test_residuals_are_those_of_ridge_regressions_on_the_others_that_are_there(seed, d, has_gaps):
    known, rows = correlated_rows(seed, 60, d), 3.0 * correlated_rows(seed, 20, d)
    rows = with_gaps(rows, seed) if has_gaps else rows
    mean, scale = known.mean(axis=0), known.std(axis=0)
    standard, rows_standard = (known - mean) / scale, (rows - mean) / scale
    relation = relation_of(known)
    residuals = relation.residuals(rows)
    for i, j in np.ndindex(*rows.shape):
        if np.isnan(rows[i, j]):
            assert np.isnan(residuals[i, j])
        else:
            assert residuals[i, j] == pytest.approx(ridge_residual(standard, rows_standard[i], j), abs=1e-8)


@given(SEEDS, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_several_numbers_are_predicted_by_the_others_that_are_there(seed, k, n_others, has_gaps):
    known, rows = correlated_rows(seed, 60, k + n_others), 3.0 * correlated_rows(seed, 20, k + n_others)
    rows = with_gaps(rows, seed) if has_gaps else rows
    relation, columns = relation_of(known), np.random.default_rng(seed).permutation(k + n_others)[:k]
    means, deviations = relation.predict(rows, columns)
    covariance = np.linalg.inv(relation.precision)
    for row, found in zip((rows - relation.mean) / relation.scale, means, strict=True):
        there = np.setdiff1d(np.flatnonzero(~np.isnan(row)), columns)
        weights = np.linalg.solve(covariance[np.ix_(there, there)], row[there])
        standard = (found - relation.mean[columns]) / relation.scale[columns]
        np.testing.assert_allclose(standard, covariance[np.ix_(columns, there)] @ weights, rtol=1e-6, atol=1e-6)
    # The deviation of one alone is that of its residuals; without others less is known.
    block = relation.precision[np.ix_(columns, columns)]
    added = np.diagonal(np.linalg.inv(block)) - 1.0 / np.diagonal(block)
    expected = relation.scale[columns] * np.sqrt(relation.deviations[columns] ** 2 + added)
    np.testing.assert_allclose(deviations, expected, rtol=1e-6)


def test_terms_compare_residuals_with_their_quantile_over_healthy_rows():
    known, healthy, rows = (correlated_rows(0)[part] for part in (slice(20), slice(20, 50), slice(50, 60)))
    relation = relation_of(known, healthy)
    units = np.quantile(np.abs(relation.residuals(healthy)), 0.99, axis=0)
    terms = np.log(1.0 + (relation.residuals(rows) / units) ** 2)
    np.testing.assert_allclose(relation.terms(rows), terms)
    np.testing.assert_allclose(relation.score(rows), terms.sum(axis=1))


def test_units_of_healthy_rows_with_gaps_are_those_that_one_row_in_a_hundred_passes():
    known, healthy = correlated_rows(0, 500, 4), with_gaps(correlated_rows(0, 3000, 4)[500:], 1)
    passed = relation_of(known, healthy).terms(healthy) > np.log(2.0)
    np.testing.assert_allclose(passed.sum(axis=0) / (~np.isnan(healthy)).sum(axis=0), 0.01, atol=0.001)


def test_gaps_widen_the_units_of_predictions():
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    rows = np.column_stack([x, x + 0.1 * rng.normal(size=2000), rng.normal(size=2000)])
    relation = relation_of(rows)
    alone = np.array([[3.0, np.nan, np.nan]])
    # Without the second column, 3 is beyond the quantile of the first, and no more.
    np.testing.assert_allclose(relation.terms(alone), [[np.log(1.0 + (3.0 / 2.5758) ** 2), 0.0, 0.0]], rtol=0.15)
    assert relation.terms(np.array([[3.0, 0.0, 0.0]]))[0, 0] > 2.0 * relation.terms(alone)[0, 0]
    assert relation.score(np.full((1, 3), np.nan)).tolist() == [0.0]


def test_features_without_healthy_numbers_take_the_unit_of_normal_residuals():
    rows = np.random.default_rng(0).normal(size=(4000, 2)) @ [[1.0, 0.9], [0.0, 0.4]]
    measured = relation_of(rows)
    for healthy in (rows[:0], np.full((3, 2), np.nan)):
        np.testing.assert_allclose(relation_of(rows, healthy).units, measured.units, rtol=0.1)


def test_rows_of_a_part_are_scored_by_the_relation_of_the_others():
    rows = correlated_rows(0, 200, 3)
    relation, scores = Relation.fit_in_parts(rows)
    np.testing.assert_allclose(relation.precision, relation_of(rows).precision)
    first = replace(relation_of(rows[50:], rows[:50]), units=relation.units)
    np.testing.assert_allclose(scores[:50], first.score(rows[:50]))


# Rows that are hard


def test_a_constant_that_moves_is_surprising_but_finite():
    rows = np.column_stack([correlated_rows(0, 200, 2), np.full(200, 40.0), np.zeros(200)])
    relation = relation_of(rows)
    still, moved = rows[:1], rows[:1] + np.array([0.0, 0.0, 4.0, 0.0])
    assert relation.terms(still)[0, 2:].tolist() == [0.0, 0.0]
    # A tenth of its size, where a hundredth is the unit.
    np.testing.assert_allclose(relation.terms(moved)[0, 2:], [np.log(101.0), 0.0])
    np.testing.assert_allclose(relation.terms(moved)[0, :2], relation.terms(still)[0, :2])
    far = np.array([[1e308, -1e308, 1e308, 1e308]])
    assert np.isfinite(relation.terms(far)).all()
    assert np.isfinite(relation.score(far)).all()


def test_rounding_far_below_the_noise_is_no_surprise():
    rows = np.random.default_rng(0).normal(size=(500, 1)) @ np.ones((1, 3))
    relation = relation_of(rows)
    assert relation.units.max() < 0.03
    rounded = rows.astype(np.float32).astype(float)
    np.testing.assert_allclose(relation.score(rounded), relation.score(rows), atol=1e-3)
    # Columns that repeated each other, and differ by half a deviation.
    assert relation.score(rows[:1] + np.array([0.5, 0.0, 0.0]))[0] > 10.0


@given(SEEDS, st.integers(1, 12))
def test_more_columns_than_rows_give_finite_answers(seed, n):
    rows = correlated_rows(seed, n, 12)
    relation = relation_of(rows)
    assert np.isfinite(relation.score(correlated_rows(seed + 1, 5, 12))).all()
    assert np.isfinite(relation.precision).all()


@given(SEEDS, st.sampled_from([1, 3, 8, 33]), st.booleans())
def test_no_bit_of_an_answer_depends_on_other_rows(seed, d, has_gaps):
    known = correlated_rows(seed, 50, d)
    rows = 2.0 * correlated_rows(seed + 1, 17, d)
    rows = with_gaps(rows, seed) if has_gaps else rows
    relation = relation_of(known)
    for ask in (relation.residuals, relation.terms, relation.score):
        whole = ask(rows)
        assert np.array_equal(whole, np.concatenate([ask(rows[i : i + 1]) for i in range(17)]), equal_nan=True)
        assert np.array_equal(whole[::-1], ask(rows[::-1]), equal_nan=True)
