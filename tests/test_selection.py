import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import Scene, residual_gram

from streamkpca.basis import Basis
from streamkpca.kernels import RBF, Cosine, Linear, Polynomial
from streamkpca.moments import Moments
from streamkpca.selection import Choice, choose_by_tolerance, choose_to_shrink, choose_within_budget

SEEDS = st.integers(0, 10**6)
NOBODY = np.empty(0, dtype=np.int64)


@given(SEEDS, st.integers(0, 5), st.integers(1, 12), st.floats(1e-6, 0.9))
def test_the_tolerance_is_kept_by_no_more_rows_than_needed(seed, m, b, tolerance):
    scene = Scene(seed, m, b)
    choice = choose_by_tolerance(scene.basis, scene.block, scene.weights, tolerance)
    assert len(choice.removed) == 0
    chosen = list(choice.admitted)
    assert len(set(chosen)) == len(chosen)

    def unexplained(rows):
        R = residual_gram(scene.rows, np.vstack([scene.atoms, scene.rows[rows]]))
        return scene.weights @ np.diagonal(R)

    target = tolerance * scene.weights.sum()
    assert unexplained(chosen) <= target + 1e-7
    if chosen:
        assert unexplained(chosen[:-1]) > target - 1e-7
        gains = scene.residual().gains()
        assert gains[chosen[0]] == pytest.approx(gains.max())


def test_tolerance_zero_takes_every_independent_row_and_no_other():
    scene = Scene(1, 2, 8)
    scene.rows[5], scene.rows[6] = scene.rows[4], scene.atoms[0]
    scene.block = scene.basis.project(scene.rows)
    choice = choose_by_tolerance(scene.basis, scene.block, scene.weights, 0.0)
    admitted = set(choice.admitted.tolist())
    assert admitted in ({0, 1, 2, 3, 4, 7}, {0, 1, 2, 3, 5, 7})


@given(SEEDS, st.integers(0, 4), st.integers(1, 10))
def test_tolerance_zero_takes_the_largest_pivot_first(seed, m, b):
    scene = Scene(seed, m, b)
    chosen = choose_by_tolerance(scene.basis, scene.block, scene.weights, 0.0).admitted
    for i, row in enumerate(chosen):
        left = np.diagonal(residual_gram(scene.rows, np.vstack([scene.atoms, scene.rows[chosen[:i]]])))
        assert left[row] >= left.max() - 1e-6


def test_of_a_finite_rank_it_takes_as_many_as_the_rank():
    scene = Scene(1, 0, 40, kernel=Polynomial(2, gamma=1.0))
    assert len(choose_by_tolerance(scene.basis, scene.block, scene.weights, 0.0).admitted) == 10


def brute_loss_rates(scene):
    """Energy that past and block rows have along the direction that only one atom spans."""
    everything = np.vstack([scene.past, scene.rows])
    weights = np.concatenate([scene.past_weights, scene.weights])
    rates = []
    for j in range(len(scene.atoms)):
        with_it = residual_gram(everything, scene.atoms)
        without = residual_gram(everything, np.delete(scene.atoms, j, axis=0))
        rates.append(weights @ np.diagonal(without - with_it) / weights.sum())
    return np.array(rates)


@given(SEEDS, st.integers(1, 6), st.integers(1, 8))
def test_the_weakest_atom_is_the_one_whose_loss_costs_least(seed, m, b):
    scene = Scene(seed, m, b)
    rates = brute_loss_rates(scene)
    place, rate = scene.weakest()
    assert rate == pytest.approx(rates.min(), abs=1e-7)
    assert rates[place] == pytest.approx(rates.min(), abs=1e-7)


def test_an_atom_is_measured_by_the_rows_it_has_seen():
    scene = Scene(3, 4, 5)
    _, rate = scene.weakest()
    scene.exposure = 2 * scene.exposure + scene.weights.sum()
    assert scene.weakest()[1] == pytest.approx(rate / 2)


def test_newcomers_are_safe_in_their_own_block():
    scene = Scene(3, 1, 5)
    residual, rivals = scene.residual(more=1), scene.rivals(2)
    assert (rivals.size, rivals.free_place()) == (1, 1)
    interpolation = residual.interpolation[2].copy()
    rivals.insert(1, 2, interpolation, residual.admit(2, 1)[2])
    assert rivals.size == 2
    place, rate = rivals.weakest(residual.interpolation, scene.weights)
    assert place == 0
    assert np.isfinite(rate)
    residual.release(place, *rivals.remove(place))
    assert rivals.weakest(residual.interpolation, scene.weights)[1] == np.inf
    choice = rivals.choice()
    assert (choice.admitted.tolist(), choice.removed.tolist()) == ([2], [0])


@given(SEEDS, st.integers(1, 6), st.integers(2, 12), st.integers(0, 3))
def test_choices_fit_the_budget(seed, m, b, more):
    scene = Scene(seed, m, b)
    choice = scene.within_budget(m + more)
    assert m - len(choice.removed) + len(choice.admitted) <= m + more
    assert len(set(choice.admitted.tolist())) == len(choice.admitted) <= b
    assert np.all(np.diff(choice.removed) > 0)
    assert set(choice.removed.tolist()) <= set(range(m))


def test_a_useless_atom_makes_place_for_a_useful_row():
    scene = Scene(0, 1, 20)
    far = np.full((1, 3), 50.0)
    scene.atoms = far
    scene.basis = Basis(RBF(0.3), 3)
    scene.basis.extend(far)
    scene.block = scene.basis.project(scene.rows)
    scene.moments = Moments.zero(1).add(np.zeros((30, 1)), np.ones(30), np.ones(30))
    scene.exposure = np.array([30.0])
    choice = scene.within_budget(1)
    assert choice.removed.tolist() == [0]
    assert len(choice.admitted) == 1


def test_an_outlier_buys_no_place():
    scene = Scene(0, 1, 20)
    scene.rows[7] = 100.0
    scene.block = scene.basis.project(scene.rows)
    assert 7 not in scene.within_budget(6).admitted


def test_without_any_atom_the_first_row_may_explain_itself():
    scene = Scene(0, 0, 1)
    assert scene.within_budget(3).admitted.tolist() == [0]


@given(SEEDS, st.integers(2, 6), st.data())
def test_shrinking_keeps_the_strongest(seed, m, data):
    budget = data.draw(st.integers(1, m))
    scene = Scene(seed, m, 1)
    scene.rows, scene.weights = scene.rows[:0], scene.weights[:0]
    choice = choose_to_shrink(scene.basis, scene.moments, scene.exposure, budget)
    assert len(choice.admitted) == 0
    assert len(choice.removed) == m - budget
    if budget == m - 1:
        rates = brute_loss_rates(scene)
        assert rates[choice.removed[0]] == pytest.approx(rates.min(), abs=1e-7)


def test_a_choice_is_true_when_anything_changes():
    assert not Choice(NOBODY, NOBODY)
    assert Choice(np.array([1]), NOBODY)
    assert Choice(NOBODY, np.array([1]))


@pytest.mark.parametrize(
    "kernel", [Linear(), Cosine(), Polynomial(2, gamma=1.0), Polynomial(3, gamma=1 / 3), RBF(0.01), RBF(0.3)], ids=repr
)
@pytest.mark.parametrize("budget", [None, 20])
def test_positive_definite_kernels_are_never_called_indefinite(kernel, budget):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed, size in product(range(4), (2, 16, 128)):
            rows = np.random.default_rng(seed).normal(size=(384, 3))
            basis, weights = Basis(kernel, 3), np.ones(size)
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                block = basis.project(part)
                moments = Moments.zero(basis.size).add(block.coordinates, block.energy, weights)
                if budget is None:
                    choice = choose_by_tolerance(basis, block, weights, 0.0)
                else:
                    choice = choose_within_budget(
                        basis, moments, np.ones(basis.size), block, weights, max_atoms=budget, tolerance=0.0
                    )
                if len(choice.removed):
                    basis.remove(choice.removed)
                basis.extend(part[choice.admitted])
