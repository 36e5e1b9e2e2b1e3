"""The summary of a stream, and how weights decay."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.components.refit import RefitSettings
from streamkpca.dictionary.selection import Choice
from streamkpca.kernels import RBF
from streamkpca.stream.parameters import Settings
from streamkpca.stream.step import advance_block, record_block, search_block, shrink
from streamkpca.stream.summary import Summary, clamp_decay, decay_weights

SEEDS = st.integers(0, 10**6)


def blocks_of(seed, count, size, d=3):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(size, d)), rng.uniform(0.5, 2.0, size)) for _ in range(count)]


def settings_of(max_atoms, tolerance):
    given = {"half_life": None, "block_size": 8, "refit_every": 32, "reservoir_size": 0, "random_state": 0}
    refit = RefitSettings(2, True, noise_variance=None)
    return Settings(kernel=RBF(0.3), max_atoms=max_atoms, tolerance=tolerance, refit=refit, **given)


def summary_of(blocks, *, max_atoms=None, tolerance=0.05, kernel=None):
    summary = Summary.empty(RBF(0.3) if kernel is None else kernel, blocks[0][0].shape[1])
    for rows, weights in blocks:
        summary = advance_block(summary, rows, weights, settings_of(max_atoms, tolerance))
    return summary


def assert_conserved(summary):
    moments = summary.moments
    assert np.trace(moments.second) + moments.losses.total == pytest.approx(moments.energy, rel=1e-10)


@given(SEEDS, st.integers(1, 6), st.integers(2, 10), st.sampled_from([None, 1, 3, 8]))
def test_the_account_balances_after_every_block(seed, count, size, max_atoms):
    blocks = blocks_of(seed, count, size)
    summary = Summary.empty(RBF(0.3), 3)
    for i, (rows, weights) in enumerate(blocks):
        summary = advance_block(summary, rows, weights, settings_of(max_atoms, 0.05))
        seen = blocks[: i + 1]
        assert_conserved(summary)
        assert summary.n_rows == size * (i + 1)
        assert summary.moments.total_weight == pytest.approx(sum(w.sum() for _, w in seen))
        assert summary.moments.energy == pytest.approx(sum(w.sum() for _, w in seen))
        assert 1 <= summary.basis.size <= (max_atoms or size * count)
        assert len(summary.atom_stats.weight_since_admission) == len(summary.atom_stats.positions) == summary.basis.size
        everything = np.vstack([rows for rows, _ in seen])
        np.testing.assert_array_equal(everything[summary.atom_stats.positions], summary.basis.atoms)
        if max_atoms is None:
            assert summary.moments.losses.total <= 0.05 * summary.moments.energy


@given(SEEDS, st.integers(2, 6))
def test_exposure_is_the_weight_since_the_block_that_admitted_the_atom(seed, count):
    summary, exposure = Summary.empty(RBF(0.3), 3), {}
    for rows, weights in blocks_of(seed, count, 6):
        summary = advance_block(summary, rows, weights, settings_of(4, 0.05))
        stats = summary.atom_stats
        exposure = {atom: exposure.get(atom, 0.0) + weights.sum() for atom in stats.positions.tolist()}
        np.testing.assert_allclose(stats.weight_since_admission, list(exposure.values()))


def test_without_atoms_coming_or_going_the_moments_are_plain_sums():
    blocks = blocks_of(0, 4, 12)
    first, rest = blocks[0], blocks[1:]
    summary = summary_of([first], tolerance=0.0)
    size = summary.basis.size
    for rows, weights in rest:
        summary = record_block(summary, rows, weights, None)
    rows, weights = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    c = summary.basis.project(rows).coordinates
    assert summary.basis.size == size == 12
    np.testing.assert_allclose(summary.moments.second, np.einsum("n,ni,nj->ij", weights, c, c), atol=1e-9)
    np.testing.assert_allclose(summary.moments.first, weights @ c, atol=1e-9)


def test_recounting_keeps_the_atoms_and_forgets_the_rest():
    blocks = blocks_of(0, 3, 8)
    summary = summary_of(blocks, max_atoms=5)
    atoms, rows = summary.basis.atoms.copy(), summary.atom_stats.positions.copy()
    summary = summary.reset_counts()
    assert summary.moments.total_weight == summary.n_rows == 0
    np.testing.assert_array_equal(summary.basis.atoms, atoms)
    np.testing.assert_array_equal(summary.atom_stats.positions, rows)
    for block in blocks:
        summary = record_block(summary, *block, None)
    assert_conserved(summary)
    assert summary.moments.losses.by_removal == 0.0
    assert summary.n_rows == 24


@pytest.mark.parametrize("removed", [[0], [0, 1], [0, 1, 2]])
def test_atoms_that_are_swapped_hand_on_what_they_share_with_the_new_ones(removed):
    """Images under a wide kernel differ by little, so any atom explains most of any row."""
    kernel, (X, a), (rows, weights) = RBF(1e-3), *blocks_of(0, 1, 64), *blocks_of(1, 1, 3)
    summary = summary_of([(X, a)], max_atoms=3, kernel=kernel).solve()
    choice = Choice(np.arange(len(removed)), np.array(removed))
    swapped = summary.apply_choice(choice, rows, 1000 + np.arange(3), weights)
    assert_conserved(swapped)
    assert swapped.basis.size == 3
    # The oracle: projections of all rows onto the old span, and of these onto the new one.
    old, new = summary.basis.atoms, swapped.basis.atoms
    onto_old = kernel.matrix(new, old) @ np.linalg.solve(kernel.matrix(old), kernel.matrix(old, X))
    kept = np.einsum("ij,ij->j", onto_old, np.linalg.solve(kernel.matrix(new), onto_old))
    assert swapped.moments.losses.total == pytest.approx(a @ (1.0 - kept), rel=1e-5)
    assert swapped.moments.losses.total < 0.01 * a.sum()


def test_a_summary_shrinks_to_a_lowered_budget():
    blocks = blocks_of(0, 4, 20)
    summary = summary_of(blocks[:3], max_atoms=15)
    assert summary.basis.size > 4
    summary = shrink(summary, 4)
    assert summary.basis.size == 4
    assert_conserved(summary)
    summary = advance_block(summary, *blocks[3], settings_of(4, 0.05))
    assert summary.basis.size <= 4
    assert_conserved(summary)
    assert summary.moments.losses.by_removal > 0.0


@pytest.mark.parametrize("moves_atoms", [False, True])
@pytest.mark.parametrize("max_atoms", [6, 3])
def test_a_selection_sample_is_sorted_once_and_stored_once(max_atoms, moves_atoms):
    # More rows than the sample holds; a search reads it, and so does a budget that shrinks.
    summary = Summary.empty(RBF(0.3), 3, max_atoms=6)
    for rows, weights in blocks_of(0, 40, 50):
        summary = advance_block(summary, rows, weights, settings_of(6, 0.0))
    sample = summary.selection_sample.sort()
    summary = replace(summary, selection_sample=sample.add(rows, weights, summary.n_rows, np.full(50, 1e-9)))
    assert summary.selection_sample.unsorted_draws
    if max_atoms < 6:
        summary = shrink(summary, max_atoms)
    else:
        block = summary.prepare(*blocks_of(1, 1, 50)[0])
        summary = search_block(summary, block, max_atoms, 0.0, moves_atoms=moves_atoms)
    assert len(summary.selection_sample) == summary.selection_sample.size
    assert summary.selection_sample._drawn is summary.selection_sample.sorted_draws


# Decay


@given(st.floats(0.5, 50.0), st.integers(1, 9))
def test_weights_halve_every_half_life(half_life, b):
    factor, weights = decay_weights(np.full(b, 3.0), half_life)
    assert factor == pytest.approx(2.0 ** (-b / half_life))
    np.testing.assert_allclose(weights, 3.0 * 2.0 ** (-np.arange(b)[::-1] / half_life))
    assert decay_weights(weights, None)[1] is weights


def test_rows_whose_decay_underflows_weigh_nothing():
    factor, weights = decay_weights(np.ones(5), 1e-3)
    assert factor == 0.0
    assert weights.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]


@given(st.floats(0.0, 1.0), st.floats(1e-119, 1e100))
def test_forgetting_leaves_the_least_total_weight(factor, total):
    possible = clamp_decay(factor, total, 1e-120)
    assert factor <= possible <= 1.0
    assert possible * total >= 1e-120 * (1.0 - 1e-12)
    assert possible == factor or possible * total == pytest.approx(1e-120)
    assert clamp_decay(factor, 0.0, 1e-120) == 1.0
