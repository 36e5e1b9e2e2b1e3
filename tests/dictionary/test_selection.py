from dataclasses import replace

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
    choose_to_shrink,
    sample_gram,
)
from streamkpca.errors import IndefiniteKernelWarning
from streamkpca.kernels import RBF, Linear, Sigmoid

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
    assert_best(scene, chosen, gains)


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
    basis, _ = basis.extend(rows[choice.admitted])
    assert basis.size == 3
    assert np.linalg.cond(basis.factor) < 10.0


@given(SEEDS, st.integers(0, 6), st.integers(1, 12), st.integers(1, 4))
def test_below_the_budget_rows_that_explain_the_stream_are_admitted(seed, m, b, more):
    scene = Scene(seed, m, b)
    choice = fill(scene, m + more)
    assert len(choice.removed) == 0
    assert len(set(choice.admitted.tolist())) == len(choice.admitted) <= min(more, b)
    rules = [gains, *[cautious_gains] * more] if m == 0 else [cautious_gains] * more
    for i in range(len(choice.admitted)):
        assert_best(scene, choice.admitted[: i + 1], rules[i], first=i)
    # The search ends where no row is worth an atom.
    if len(choice.admitted) < min(more, b):
        left = cautious_gains(scene, np.vstack([scene.atoms, scene.rows[choice.admitted]]))
        assert left.max() <= 1e-3 / (m + more) + 1e-7


def gains(scene, atoms):
    """Compute what each row would explain of the block."""
    R = residual_gram(scene.rows, atoms)
    pivots = np.diagonal(R)
    return np.where(pivots > 1e-9, R**2 @ scene.weights / np.maximum(pivots, 1e-9), -np.inf)


def cautious_gains(scene, atoms):
    """Compute what each row explains of the others less one standard error, and its own share."""
    R, found = residual_gram(scene.rows, atoms), np.full(len(scene.rows), -np.inf)
    for j in np.flatnonzero(np.diagonal(R) > 1e-9) if len(R) > 1 else ():
        x, a = np.delete(R[j], j) ** 2 / R[j, j], np.delete(scene.weights, j)
        mean = np.average(x, weights=a)
        error = np.sqrt(np.average((x - mean) ** 2, weights=a) * (a @ a)) / a.sum()
        found[j] = mean - error + scene.weights[j] * R[j, j] / scene.total_weight
    return found


def assert_best(scene, chosen, rule, first=0):
    """Check that each row from number `first` on was the best when it was chosen."""
    for i in range(first, len(chosen)):
        found = rule(scene, np.vstack([scene.atoms, scene.rows[chosen[:i]]]))
        assert found[chosen[i]] == pytest.approx(found.max(), abs=1e-7)


def test_a_row_alone_in_its_block_explains_nothing_of_the_stream():
    assert len(fill(Scene(0, 2, 1), 9).admitted) == 0


def test_rows_of_weight_zero_atoms_and_dependent_rows_are_not_admitted():
    scene = Scene(4, 3, 6)
    scene.rows[1], scene.rows[4], scene.weights[0] = scene.atoms[2], scene.rows[3], 0.0
    scene.block = scene.basis.project(scene.rows)
    by_gain = choose_by_tolerance(scene.basis, scene.block, scene.weights, 1e-12)
    for choice in (by_gain, choose_by_tolerance(scene.basis, scene.block, scene.weights, 0.0), fill(scene, 9, 0.0)):
        assert set(choice.admitted.tolist()) <= {2, 3, 4, 5}
        assert not {3, 4} <= set(choice.admitted.tolist())


def test_admitted_rows_are_independent_beyond_rounding():
    # The atoms are so close that projections onto them have few correct digits: the last residual is below rounding.
    basis = Basis.empty(Linear(), 3)
    basis, _ = basis.extend(np.array([[1.0, 0.0, 0.0], [1.0, 1e-5, 0.0]]))
    rows = np.array([[1.0, 0.0, 1e-1], [1.0, 3e4, 1e-5]])
    assert choose_by_tolerance(basis, basis.project(rows), np.ones(2), 0.0).admitted.tolist() == [0]
    assert len(choose_by_tolerance(basis, basis.project(rows[1:]), np.ones(1), 0.0).admitted) == 0


def test_residuals_whose_squares_underflow_gain_nothing():
    rows = np.array([[1.0, 0.0], [0.5, 1.0], [1e-160, 1e-160]])
    basis = Basis.empty(Linear(), 2)
    assert sorted(choose_by_tolerance(basis, basis.project(rows), np.ones(3), 0.0).admitted) == [0, 1]


def test_the_warning_of_an_indefinite_kernel_names_a_remedy():
    # By itself no row shows it in the second case, as k(x, x) > 0, but k(x, y)^2 > k(x, x) k(y, y).
    for kernel, rows in (
        (Sigmoid(1.0, coef0=-1.0), np.random.default_rng(0).normal(size=(30, 2))),
        (Sigmoid(1.0), np.array([[1.0], [10.0]])),
    ):
        basis = Basis.empty(kernel, rows.shape[1])
        with pytest.warns(IndefiniteKernelWarning, match="not positive definite.*squared distance.*RBF or Polynomial"):
            choice = choose_by_tolerance(basis, basis.project(rows), np.ones(len(rows)), 0.0)
    assert len(choice.admitted) < 2


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
    choice, _ = scene.search().choose(candidates)
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
    scene.basis, _ = scene.basis.extend(scene.atoms)
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
    _, promising = replace(scene.search(), sample=sample).choose(candidates)
    order = [row for row in np.argsort(-np.array(expected)) if expected[row] > 0.0]
    assert promising.positions.tolist() == candidates.positions[order].tolist()


def test_atoms_are_no_candidates():
    scene = Scene(0, 3, 8)
    candidates = candidates_in(scene.selection_sample, 30)
    assert set(scene.atom_stats.positions) < set(candidates.positions)
    choice, promising = scene.search().choose(candidates)
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
