import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import Scene, rbf, residual_gram

from streamkpca.dictionary.basis import AtomStats

SEEDS = st.integers(0, 10**6)


def brute_profit(scene, candidate, atom):
    """Compute the profit of one swap by the definition: distances of all rows to the spans before and after."""
    rows = np.vstack([scene.past, scene.atoms, scene.rows])
    m = len(scene.atoms)
    a = np.concatenate([scene.past_weights, np.ones(m), scene.weights])
    shares = a / a.sum()
    swapped = np.vstack([np.delete(scene.atoms, atom, axis=0), scene.rows[[candidate]]])
    before, after = (np.diagonal(residual_gram(rows, span)) for span in (scene.atoms, swapped))
    # The sample holds all rows, so their normalised weights are their shares of the stream.
    return shares @ (before - after)


@given(SEEDS, st.integers(1, 6), st.integers(1, 8))
def test_the_profit_is_what_the_stream_would_gain(seed, m, b):
    scene = Scene(seed, m, b)
    candidate, atom, profit = scene.swap_search().best()
    # The moments may show an atom to be worth more than the sample does, never less.
    assert profit <= brute_profit(scene, candidate, atom) + 1e-8
    scene.atom_stats = AtomStats(scene.atom_stats.positions, scene.atom_stats.weights, np.zeros(m))
    candidate, atom, profit = scene.swap_search().best()
    assert profit == pytest.approx(brute_profit(scene, candidate, atom), abs=1e-8)


@given(SEEDS, st.integers(1, 6), st.integers(2, 8), st.data())
def test_a_search_after_a_swap_equals_one_that_starts_from_it(seed, m, b, data):
    scene = Scene(seed, m, b)
    candidate, atom = data.draw(st.integers(0, b - 1)), data.draw(st.integers(0, m - 1))
    search = scene.swap_search()
    search.apply(candidate, atom)
    atoms = scene.atoms.copy()
    atoms[atom] = scene.rows[candidate]
    K = rbf(atoms, atoms)
    np.testing.assert_allclose(search._precision, np.linalg.inv(K), atol=1e-6 * np.linalg.norm(np.linalg.inv(K)))
    np.testing.assert_allclose(search._gram, residual_gram(scene.rows, atoms), atol=1e-7)
    # The columns over the sample: coefficients over the atoms, residual products with the candidates.
    sampled = scene.selection_sample.rows
    both = residual_gram(np.vstack([sampled, scene.rows]), atoms)
    seen = np.hstack([np.linalg.solve(K, rbf(atoms, sampled)).T, both[: len(sampled), len(sampled) :]])
    sums = (seen * scene.selection_sample.normalised_weights()[:, None]).T @ seen
    np.testing.assert_allclose(search._sums, sums, atol=1e-6 * max(np.abs(sums).max(), 1.0))
    assert search.best()[0] != candidate


def test_an_atom_that_has_seen_many_rows_is_worth_what_is_recorded():
    """A pattern of one row in a thousand may have no row in the sample, but the moments record it."""
    scene = Scene(0, 2, 1)
    pattern = np.full((1, 3), 30.0)
    scene.atoms = np.vstack([scene.atoms[:1], pattern])
    scene.basis, _ = scene.basis.empty(scene.basis.kernel, 3).extend(scene.atoms)
    often = scene.basis.project(np.vstack([np.repeat(pattern, 20, axis=0), np.repeat(scene.past, 600, axis=0)]))
    scene.moments = type(scene.moments).zero(2).add(often.coordinates, often.energy, np.ones(len(often.rows)))
    scene.total_weight = float(len(often.rows))
    scene.atom_stats = AtomStats(scene.atom_stats.positions, scene.atom_stats.weights, np.zeros(2))
    by_sample = scene.swap_search()
    assert by_sample.best()[1] == 1
    scene.atom_stats = AtomStats(
        scene.atom_stats.positions, scene.atom_stats.weights, np.full(2, float(len(often.rows)))
    )
    by_moments = scene.swap_search()
    assert by_moments.best()[2] < by_sample.best()[2]


def test_rows_that_depend_on_the_atoms_are_not_admitted():
    scene = Scene(0, 3, 2)
    scene.rows[:] = scene.atoms[:2]
    assert scene.swap_search().best() == (-1, -1, 0.0)


def test_atom_stats_follow_their_atoms():
    stats = AtomStats(np.array([3, 8]), np.array([1.0, 2.0]), np.array([5.0, 4.0]))
    joined = stats.advance(1.0).decay(0.5).join(np.array([9]), np.array([1.0]), np.array([0.0]))
    left = joined.without(np.array([0]))
    assert left.positions.tolist() == [8, 9]
    assert left.weights.tolist() == [1.0, 1.0]
    assert left.weight_since_admission.tolist() == [2.5, 0.0]
