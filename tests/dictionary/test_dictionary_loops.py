import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary._loops import (
    CAUTIOUS_GAIN,
    DISTANCE,
    GAIN,
    SHARED_ENERGY,
    add_column,
    best_swap,
    choose_greedily,
    gram_schmidt,
    remove_direction,
    scale_values,
    subtract_outer,
    sum_of_squares,
    weigh,
)

SEEDS = st.integers(0, 10**6)


class Scene:
    """Atoms as explicit vectors, with their recorded moment."""

    def __init__(self, seed, m, width=12):
        rng = np.random.default_rng(seed)
        self.atoms = rng.normal(size=(m, width))
        self.row = rng.normal(size=width)
        past = rng.normal(size=(20, width))
        self.moment = past.T @ past

    def duals(self, kept):
        """Compute the dual vectors of some atoms, the pseudo-inverse's columns; zeros for the other atoms."""
        vectors = np.zeros_like(self.atoms)
        vectors[kept] = np.linalg.pinv(self.atoms[kept]).T
        return vectors

    def quantities(self, kept):
        """Compute inner products P and recorded moments Q of the dual vectors."""
        vectors = self.duals(kept)
        return vectors @ vectors.T, vectors @ self.moment @ vectors.T


@given(SEEDS, st.integers(0, 6), st.integers(0, 6))
def test_subtract_outer_agrees_with_numpy(seed, n, m):
    rng = np.random.default_rng(seed)
    before, left, right = rng.normal(size=(n, m)), rng.choice([0.0, 1.5, -2.0], n), rng.normal(size=m)
    matrix = before.copy()
    subtract_outer(matrix, left, right)
    np.testing.assert_allclose(matrix, before - np.outer(left, right), atol=1e-14)
    np.testing.assert_array_equal(matrix[left == 0.0], before[left == 0.0])


@given(SEEDS, st.integers(1, 7))
def test_add_column_gives_the_gram_matrix_of_the_changed_columns(seed, k):
    rng = np.random.default_rng(seed)
    columns, vector, multiples = rng.normal(size=(9, k)), rng.normal(size=9), rng.normal(size=k)
    products = columns.T @ columns
    add_column(products, columns.T @ vector, vector @ vector, multiples)
    changed = columns + np.outer(vector, multiples)
    np.testing.assert_allclose(products, changed.T @ changed, atol=1e-10)


@given(SEEDS, st.integers(1, 7), st.data())
def test_remove_direction_gives_the_dual_vectors_of_the_others(seed, m, data):
    atom = data.draw(st.integers(0, m - 1))
    scene = Scene(seed, m)
    precision, recorded = scene.quantities(np.arange(m))
    remove_direction(atom, precision[atom] / precision[atom, atom], precision, recorded)
    expected = scene.quantities(np.delete(np.arange(m), atom))
    np.testing.assert_allclose(precision, expected[0], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(recorded, expected[1], rtol=1e-7, atol=1e-6)
    for matrix in (precision, recorded):
        assert not matrix[atom].any()
        assert not matrix[:, atom].any()


def orthonormalise(gram, threshold=None):
    size = len(gram)
    threshold = np.zeros(size) if threshold is None else np.asarray(threshold, dtype=float)
    factor = np.full((size, size), np.nan)
    accepted = np.full(size, -1, dtype=np.int64)
    count = gram_schmidt(np.ascontiguousarray(gram), threshold, factor, accepted)
    return factor[:count, :count], list(accepted[:count])


def rows_of(seed, size, width):
    return np.random.default_rng(seed).normal(size=(size, width))


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 12))
def test_dependent_rows_are_left_out_and_the_others_span_them(seed, rank, size):
    rows = rows_of(seed, size, rank)
    gram = rows @ rows.T
    factor, accepted = orthonormalise(gram, 1e-9 * np.diagonal(gram))
    assert accepted == list(range(min(rank, size)))
    np.testing.assert_allclose(factor @ factor.T, gram[np.ix_(accepted, accepted)], rtol=1e-8, atol=1e-8)
    assert np.all(np.triu(factor, 1) == 0.0)


def test_each_row_has_its_own_threshold():
    gram = np.diag([1.0, 1.0, 1.0])
    assert orthonormalise(gram, [1.0, 0.5, 2.0])[1] == [1]


def test_nan_and_negative_squared_lengths_are_refused():
    gram = np.eye(4)
    gram[0, 0], gram[2, 2] = math.nan, -1.0
    factor, accepted = orthonormalise(gram)
    assert accepted == [1, 3]
    assert np.isfinite(factor).all()


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_values_are_scaled_summed_and_weighed(precision):
    rng = np.random.default_rng(3)
    values = rng.normal(size=(5, 4))
    coefficients = rng.normal(size=(5, 4)).astype(precision)
    roots, lengths, scaled = rng.uniform(0.0, 2.0, 5), rng.uniform(0.5, 2.0, 4), np.empty((5, 4), precision)
    scale_values(values, roots, lengths, scaled)
    np.testing.assert_allclose(scaled, roots[:, None] * values / lengths, rtol=4 * np.finfo(precision).eps)
    assert sum_of_squares(scaled) == pytest.approx((scaled.astype(np.float64) ** 2).sum(), rel=1e-14)
    weighed, sizes = values.copy(), np.ones(4)
    weigh(weighed, coefficients, roots, sizes)
    np.testing.assert_allclose(weighed, roots[:, None] * coefficients * values, rtol=1e-14)
    np.testing.assert_allclose(sizes, 1.0 + np.abs(weighed).sum(axis=0), rtol=1e-14)


def test_the_best_swap_is_that_of_all_pairs():
    rng = np.random.default_rng(4)
    m, n = 3, 4
    columns = rng.normal(size=(20, m + n))
    sums, pivots, v = columns.T @ columns / 20, np.array([0.5, 0.0, 2.0, 1.0]), rng.normal(size=(n, m))
    precision, own, shares, recorded = rng.uniform(0.5, 2.0, (4, m))
    own *= 0.1
    own_gains, found = rng.uniform(0.0, 0.1, n), np.empty(2, dtype=np.int64)
    profits = np.full((n, m), -np.inf)
    for c in np.flatnonzero(pivots):
        for j in range(m):
            t, after = sums[m + c, m + c] / pivots[c], precision[j] + v[c, j] ** 2 / pivots[c]
            alone = sums[j, j] - own[j]
            squares = alone - 2.0 * v[c, j] * sums[m + c, j] / pivots[c] + v[c, j] ** 2 * t / pivots[c]
            loss = max(squares, 0.0) / after
            cost = max(loss + shares[j] / after, recorded[j] * min(loss / (alone / precision[j]), 1.0))
            profits[c, j] = t + own_gains[c] * pivots[c] - cost - 1e-9
    profit = best_swap(sums, pivots, v, precision, own, shares, recorded, own_gains, 1e-9, found)
    assert profit == pytest.approx(profits.max(), rel=1e-12)
    assert tuple(found) == np.unravel_index(np.argmax(profits), profits.shape)


# The greedy choice of rows


def slow_values(vectors, weights, energy, rule, shares, *, is_first):
    """Value each row by the definition, from the parts (n, width) of the rows outside the span."""
    R, values = vectors @ vectors.T, np.full(len(weights), -np.inf)
    for j in np.flatnonzero((np.diagonal(R) > 1e-10 * energy) & (weights > 0.0)):
        gains = R[j] ** 2 / R[j, j]
        values[j] = weights @ gains
        if rule == DISTANCE:
            values[j] = R[j, j]
        elif rule == SHARED_ENERGY:
            values[j] = weights @ R[j] ** 2 / energy[j]
        elif rule == CAUTIOUS_GAIN and not is_first:
            others = np.arange(len(weights)) != j
            a, x = weights[others], gains[others]
            mean = np.average(x, weights=a)
            spread = np.average((x - mean) ** 2, weights=a)
            values[j] = mean - np.sqrt(spread * (a**2).sum()) / a.sum() + shares[j] * R[j, j]
    return values


def chosen_by_loop(gram, weights, rule, *, most, limits, tested=True):
    n = len(gram)
    energy, residual = np.diagonal(gram).copy(), np.diagonal(gram).copy()
    coordinates, chosen = np.zeros((most, n)), np.empty(most, dtype=np.int64)
    factor, atom_energy = (np.zeros((most, most)), np.zeros(most)) if tested else (np.empty((0, 0)), np.empty(0))
    count, lowest = choose_greedily(
        gram.copy(), np.arange(n), weights, energy, residual, rule, limits, coordinates, factor, atom_energy, chosen
    )
    return chosen[:count].tolist(), residual, coordinates[:count], factor[:count, :count], lowest


@pytest.mark.parametrize("tested", [True, False])
@pytest.mark.parametrize("rule", [CAUTIOUS_GAIN, GAIN, SHARED_ENERGY, DISTANCE])
@given(SEEDS)
def test_rows_are_chosen_one_by_one_as_by_the_definition(rule, tested, seed):
    rng = np.random.default_rng(seed)
    vectors, weights = rng.normal(size=(9, 12)) / 12.0, rng.choice([0.0, 0.5, 1.0, 2.0], 9)
    gram, total, expected, left = vectors @ vectors.T, 40.0, [], vectors
    for _ in range(4):
        shares = weights / total
        values = slow_values(left, weights, np.diagonal(gram), rule, shares, is_first=not expected)
        if not values.max() > 0.0:
            break
        expected.append(int(np.argmax(values)))
        axis = left[expected[-1]] / np.linalg.norm(left[expected[-1]])
        left = left - np.outer(left @ axis, axis)
    limits = (total, 0.0, -1.0, 1e-10, 1e-15)
    found, residual, coordinates, factor, lowest = chosen_by_loop(
        gram, weights, rule, most=4, limits=limits, tested=tested
    )
    assert found == expected
    assert lowest == np.inf
    np.testing.assert_allclose(residual, (left**2).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(coordinates.T @ coordinates, gram - left @ left.T, atol=1e-12)
    if tested:
        np.testing.assert_allclose(factor @ factor.T, gram[np.ix_(found, found)], atol=1e-12)


def test_the_choice_ends_where_enough_is_explained_or_gains_are_too_small():
    gram, weights = np.diag([0.5, 0.3, 0.1, 0.05]), np.ones(4)
    assert chosen_by_loop(gram, weights, GAIN, most=4, limits=(4.0, 0.0, 0.2, 1e-10, 1e-15))[0] == [0, 1]
    assert chosen_by_loop(gram, weights, GAIN, most=4, limits=(4.0, 0.2, -1.0, 1e-10, 1e-15))[0] == [0, 1]
    assert chosen_by_loop(gram, np.zeros(4), GAIN, most=4, limits=(4.0, 0.0, -1.0, 1e-10, 1e-15))[0] == []


def test_dependent_and_indefinite_candidates_are_refused():
    twins = np.array([[1.0, 1.0 - 1e-13], [1.0 - 1e-13, 1.0]])
    assert chosen_by_loop(twins, np.ones(2), GAIN, most=2, limits=(2.0, 0.0, -1.0, 1e-16, 1e-12))[0] == [0]
    # The second row would have a negative squared distance to the span of the first, and the other way round.
    indefinite = np.array([[0.5, 0.9], [0.9, 0.5]])
    found, *_, lowest = chosen_by_loop(indefinite, np.ones(2), GAIN, most=2, limits=(2.0, 0.0, -1.0, 1e-10, 1e-15))
    assert found == []
    assert lowest == pytest.approx(0.5 - 0.81 / 0.5)
