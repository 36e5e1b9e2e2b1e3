import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import Scene, residual_gram

from streamkpca.dictionary import selection
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import Moments
from streamkpca.dictionary.selection import (
    Choice,
    candidates_in,
    choose_below_budget,
    choose_by_tolerance,
    choose_swaps,
    choose_to_shrink,
    sample_gram,
)
from streamkpca.kernels import RBF, Cosine, Linear, Polynomial

SEEDS = st.integers(0, 10**6)
NO_POSITIONS = np.empty(0, dtype=np.int64)


@given(SEEDS, st.integers(0, 5), st.integers(1, 12), st.floats(1e-6, 0.9))
def test_the_tolerance_is_kept_and_the_last_row_was_needed(seed, m, b, tolerance):
    scene = Scene(seed, m, b)
    target = tolerance * scene.weights.sum()
    choice = choose_by_tolerance(scene.basis, scene.block, scene.weights, target)
    assert len(choice.removed) == 0
    chosen = list(choice.admitted)
    assert len(set(chosen)) == len(chosen)

    def unexplained(rows):
        R = residual_gram(scene.rows, np.vstack([scene.atoms, scene.rows[rows]]))
        return scene.weights @ np.diagonal(R)

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


def test_of_candidates_that_gain_the_same_the_farthest_is_chosen():
    # In the last dimension of a linear kernel every row explains all that is left.
    rows = np.random.default_rng(0).normal(size=(400, 3))
    basis = Basis.empty(Linear(), 3)
    choice = choose_by_tolerance(basis, basis.project(rows), np.ones(400), 1e-3)
    basis, _ = basis.extended(rows[choice.admitted])
    assert basis.size == 3
    assert np.linalg.cond(basis.factor) < 10.0
    gains = np.array([1.0, 3.0, 3.0 * (1.0 + 1e-9), 3.0, -np.inf])
    assert selection.largest_gain(gains, np.array([9.0, 1.0, 0.5, 2.0, 9.0])) == 3
    assert selection.largest_gain(-gains[:4], np.ones(4)) == 0
    assert selection.largest_gain(np.array([1.0, 1.1]), np.array([5.0, 1.0])) == 1


def test_a_kernel_of_finite_rank_needs_as_many_atoms_as_its_rank():
    scene = Scene(1, 0, 40, kernel=Polynomial(2, gamma=1.0))
    assert len(choose_by_tolerance(scene.basis, scene.block, scene.weights, 0.0).admitted) == 10


@given(SEEDS, st.integers(0, 6), st.integers(1, 12), st.integers(1, 4))
def test_below_the_budget_rows_that_explain_the_stream_are_admitted(seed, m, b, more):
    scene = Scene(seed, m, b)
    choice = fill(scene, m + more)
    assert len(choice.removed) == 0
    assert len(set(choice.admitted.tolist())) == len(choice.admitted) <= min(more, b)
    if len(choice.admitted):
        residual = scene.residual()
        gains = residual.cautious_gains(scene.total_weight) if m else residual.gains()
        assert gains[choice.admitted[0]] == pytest.approx(gains.max())


def fill(scene, max_atoms, tolerance=1e-3):
    return choose_below_budget(
        scene.basis,
        scene.block,
        scene.weights,
        max_atoms=max_atoms,
        least_gain=tolerance / max_atoms,
        total_weight=scene.total_weight,
    )


def swap(scene):
    """Choose swaps; admitted rows are given by their positions in the block."""
    candidates = candidates_in(scene.selection_sample, scene.start)
    choice, _ = choose_swaps(
        scene.basis, scene.atom_stats, scene.moments, scene.selection_sample, candidates, scene.total_weight
    )
    return Choice(candidates.positions[choice.admitted] - scene.start, choice.removed, choice.profit)


def test_the_first_atom_may_explain_nothing_but_itself():
    assert fill(Scene(0, 0, 1), 3).admitted.tolist() == [0]


@given(SEEDS, st.integers(1, 6), st.integers(2, 12))
def test_swaps_keep_the_number_of_atoms(seed, m, b):
    scene = Scene(seed, m, b)
    # The sample includes the atoms' own rows, so the moments must too: the search compares shares of the two.
    seen = scene.basis.project(scene.atoms)
    scene.moments = scene.moments.add(seen.coordinates, seen.energy, np.ones(m))
    choice = swap(scene)
    assert len(choice.removed) == len(choice.admitted) == len(set(choice.admitted.tolist()))
    assert np.all(np.diff(choice.removed) > 0)
    assert set(choice.removed.tolist()) <= set(range(m))
    if not choice:
        return
    # The sampled rows are explained better than before; the atoms count with their shares of the stream.
    kept = np.vstack([np.delete(scene.atoms, choice.removed, axis=0), scene.rows[choice.admitted]])
    others = np.vstack([scene.past, scene.rows])
    a = np.concatenate([scene.past_weights, scene.weights])
    left = [a @ np.diagonal(residual_gram(others, atoms)) + ones(atoms, scene) for atoms in (scene.atoms, kept)]
    assert left[1] < left[0]


def ones(atoms, scene):
    """Sum what the old atoms, each of weight one, have outside the span."""
    return float(np.trace(residual_gram(scene.atoms, atoms)))


def test_a_useful_row_replaces_a_useless_atom():
    scene = Scene(0, 1, 20)
    scene.atoms = scene.selection_sample.rows[scene.selection_sample.positions == 30] + 50.0
    scene.basis = Basis.empty(RBF(0.3), 3)
    scene.basis, _ = scene.basis.extended(scene.atoms)
    scene.block = scene.basis.project(scene.rows)
    scene.moments = Moments.zero(1).add(np.zeros((30, 1)), np.ones(30), np.ones(30))
    choice = swap(scene)
    assert choice.removed.tolist() == [0]
    assert len(choice.admitted) == 1


def test_an_outlier_does_not_replace_a_useful_atom():
    scene = Scene(0, 1, 20)
    scene.rows[7] = 100.0
    scene.block = scene.basis.project(scene.rows)
    assert 7 not in swap(scene).admitted


@given(SEEDS, st.integers(2, 6), st.data())
def test_shrinking_keeps_the_strongest(seed, m, data):
    budget = data.draw(st.integers(1, m))
    scene = Scene(seed, m, 4)
    choice = choose_to_shrink(
        scene.basis, scene.atom_stats, scene.selection_sample, budget, total_weight=scene.total_weight
    )
    assert len(choice.admitted) == 0
    assert len(choice.removed) == m - budget
    if budget == m - 1:
        others = np.vstack([scene.past, scene.rows])
        a = np.concatenate([scene.past_weights, scene.weights])
        losses = []
        for j in range(m):
            rest = np.delete(scene.atoms, j, axis=0)
            losses.append(
                a @ np.diagonal(residual_gram(others, rest)) + np.diagonal(residual_gram(scene.atoms, rest)).sum()
            )
        assert losses[choice.removed[0]] == pytest.approx(min(losses), abs=1e-7)


def test_a_choice_is_true_when_anything_changes():
    assert not Choice(NO_POSITIONS, NO_POSITIONS)
    assert Choice(np.array([1]), NO_POSITIONS)
    assert Choice(NO_POSITIONS, np.array([1]))


@pytest.mark.parametrize(
    "kernel", [Linear(), Cosine(), Polynomial(2, gamma=1.0), Polynomial(3, gamma=1 / 3), RBF(0.01), RBF(0.3)], ids=repr
)
@pytest.mark.parametrize("budget", [None, 20])
def test_positive_definite_kernels_cause_no_warning(kernel, budget):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed, size in product(range(4), (2, 16, 128)):
            rows = np.random.default_rng(seed).normal(size=(384, 3))
            basis, weights = Basis.empty(kernel, 3), np.ones(size)
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                block = basis.project(part)
                if budget == basis.size:
                    break
                if budget is None:
                    choice = choose_by_tolerance(basis, block, weights, 0.0)
                else:
                    choice = choose_below_budget(
                        basis,
                        block,
                        weights,
                        max_atoms=budget,
                        least_gain=0.0,
                        total_weight=float(start + size),
                    )
                basis, _ = basis.extended(part[choice.admitted])


@given(SEEDS, st.integers(1, 6), st.integers(2, 12))
def test_candidates_are_screened_by_their_cautious_gains(seed, m, b):
    scene = Scene(seed, m, b)
    scene.rows[0] = scene.atoms[0]
    scene.selection_sample = scene.selection_sample.first(24)
    candidates = candidates_in(scene.selection_sample, scene.start)
    sample, a = scene.selection_sample, scene.selection_sample.normalised_weights()
    expected = []
    for row, position, weight in zip(candidates.rows, candidates.positions, candidates.weights, strict=True):
        R = residual_gram(np.vstack([row, sample.rows]), scene.atoms)
        others = sample.positions != position
        x = R[0, 1:][others] ** 2 / R[0, 0]
        mean = np.average(x, weights=a[others])
        variance = np.average((x - mean) ** 2, weights=a[others])
        error = np.sqrt(variance * (a[others] @ a[others])) / a[others].sum()
        expected.append(mean - error + weight * R[0, 0] / scene.total_weight if R[0, 0] > 1e-10 else -np.inf)
    _, promising = choose_swaps(scene.basis, scene.atom_stats, scene.moments, sample, candidates, scene.total_weight)
    order = [row for row in np.argsort(-np.array(expected)) if expected[row] > 0.0]
    assert promising.positions.tolist() == candidates.positions[order].tolist()


def test_atoms_are_no_candidates():
    scene = Scene(0, 3, 8)
    candidates = candidates_in(scene.selection_sample, 30)
    assert set(scene.atom_stats.positions) < set(candidates.positions)
    choice, promising = choose_swaps(
        scene.basis, scene.atom_stats, scene.moments, scene.selection_sample, candidates, scene.total_weight
    )
    assert not set(scene.atom_stats.positions) & set(promising.positions)
    assert not set(scene.atom_stats.positions) & set(candidates.positions[choice.admitted])


@pytest.mark.parametrize("atoms", [1, 6])
def test_sums_over_kernel_values_equal_sums_over_projections(monkeypatch, atoms):
    scene = Scene(2, atoms, 5)
    arguments = scene.basis, scene.selection_sample, scene.block, 1.0
    by_values = sample_gram(*arguments)
    monkeypatch.setattr(selection, "_LEAST_ACCURACY", 0.0)
    by_projections = sample_gram(*arguments)
    np.testing.assert_allclose(by_values, by_projections, rtol=0, atol=1e-9 * np.abs(by_projections).max())
    assert not np.array_equal(by_values, by_projections)
