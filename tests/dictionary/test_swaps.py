import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import Scene, rbf, residual_gram

from streamkpca.dictionary.swaps import AtomStats

SEEDS = st.integers(0, 10**6)


def brute_profit(scene, candidate, place):
    """Win of one exchange by the definition: distances of all rows to the spans before and after."""
    rows = np.vstack([scene.past, scene.atoms, scene.rows])
    m = len(scene.atoms)
    a = np.concatenate([scene.past_weights, np.ones(m), scene.weights])
    votes = a / a.sum()
    newcomer = scene.rows[[candidate]]
    rest = np.delete(scene.atoms, place, axis=0)
    now, then = (np.diagonal(residual_gram(rows, span)) for span in (scene.atoms, np.vstack([rest, newcomer])))
    # All rows sit in the jury: the share of the own rows is their vote.
    return votes @ (now - then)


@given(SEEDS, st.integers(1, 6), st.integers(1, 8))
def test_profit_is_what_the_stream_would_win(seed, m, b):
    scene = Scene(seed, m, b)
    candidate, place, profit = scene.exchange().best()
    # The record may say that an atom is worth more than its jury does, never less.
    assert profit <= brute_profit(scene, candidate, place) + 1e-8
    scene.atom_stats = AtomStats(scene.atom_stats.positions, scene.atom_stats.weights, np.zeros(m))
    candidate, place, profit = scene.exchange().best()
    assert profit == pytest.approx(brute_profit(scene, candidate, place), abs=1e-8)


@given(SEEDS, st.integers(1, 6), st.integers(2, 8), st.data())
def test_after_an_exchange_all_is_as_if_begun_with_it(seed, m, b, data):
    scene = Scene(seed, m, b)
    candidate, place = data.draw(st.integers(0, b - 1)), data.draw(st.integers(0, m - 1))
    exchange = scene.exchange()
    exchange.apply(candidate, place)
    atoms = scene.atoms.copy()
    atoms[place] = scene.rows[candidate]
    K = rbf(atoms, atoms)
    np.testing.assert_allclose(exchange._precision, np.linalg.inv(K), atol=1e-6 * np.linalg.norm(np.linalg.inv(K)))
    np.testing.assert_allclose(exchange._gram, residual_gram(scene.rows, atoms), atol=1e-7)
    # What the jury sees: coefficients over the atoms, residual products with the candidates.
    jurors = scene.selection_sample.rows
    both = residual_gram(np.vstack([jurors, scene.rows]), atoms)
    seen = np.hstack([np.linalg.solve(K, rbf(atoms, jurors)).T, both[: len(jurors), len(jurors) :]])
    sums = (seen * scene.selection_sample.normalised_weights()[:, None]).T @ seen
    np.testing.assert_allclose(exchange._sums, sums, atol=1e-6 * max(np.abs(sums).max(), 1.0))
    assert exchange.best()[0] != candidate


def test_an_atom_that_has_seen_much_is_worth_what_is_recorded():
    """A pattern that comes back one time in a thousand has no juror, but its atom remembers."""
    scene = Scene(0, 2, 1)
    pattern = np.full((1, 3), 30.0)
    scene.atoms = np.vstack([scene.atoms[:1], pattern])
    scene.basis = type(scene.basis)(scene.basis.kernel, 3)
    scene.basis.extend(scene.atoms)
    often = scene.basis.project(np.vstack([np.repeat(pattern, 20, axis=0), np.repeat(scene.past, 600, axis=0)]))
    scene.moments = type(scene.moments).zero(2).add(often.coordinates, often.energy, np.ones(len(often.rows)))
    scene.total_weight = float(len(often.rows))
    scene.atom_stats = AtomStats(scene.atom_stats.positions, scene.atom_stats.weights, np.zeros(2))
    witnessed = scene.exchange()
    assert witnessed.best()[1] == 1
    scene.atom_stats = AtomStats(
        scene.atom_stats.positions, scene.atom_stats.weights, np.full(2, float(len(often.rows)))
    )
    recorded = scene.exchange()
    assert recorded.best()[2] < witnessed.best()[2]


def test_rows_that_depend_on_the_atoms_are_no_candidates():
    scene = Scene(0, 3, 2)
    scene.rows[:] = scene.atoms[:2]
    assert scene.exchange().best() == (-1, -1, 0.0)


def test_tenure_goes_with_its_atoms():
    stats = AtomStats(np.array([3, 8]), np.array([1.0, 2.0]), np.array([5.0, 4.0]))
    joined = stats.advanced(1.0).decayed(0.5).joined(np.array([9]), np.array([1.0]), np.array([0.0]))
    left = joined.without(np.array([0]))
    assert left.positions.tolist() == [8, 9]
    assert left.weights.tolist() == [1.0, 1.0]
    assert left.weight_since_admission.tolist() == [2.5, 0.0]
