"""Axes and weights of candidates against plain kernel PCA; numbers of active ones that can be had, or are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.components.refit import Candidates, RefitSettings, find_weights, refit
from streamkpca.components.weights import fit_weights
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import Moments
from streamkpca.errors import SparsityError, SparsityWarning
from streamkpca.kernels import RBF

SEEDS = st.integers(0, 10**6)
KERNEL = RBF(0.3)


class Scene:
    """Rows seen from the span of some atoms, which are the candidates."""

    def __init__(self, seed, n, m):
        rng = np.random.default_rng(seed)
        self.rows, self.weights = rng.normal(size=(n, 3)), rng.uniform(0.5, 2.0, n)
        self.see(rng.normal(size=(m, 3)), 7 + np.arange(m))

    def see(self, atoms, positions):
        basis, _ = Basis.empty(KERNEL, 3).extend(atoms)
        seen = basis.project(self.rows)
        self.moments = Moments.zero(basis.size).add(seen.coordinates, seen.energy, self.weights)
        self.candidates = Candidates(basis.atoms, positions, basis.factor, are_atoms=True)

    def refit(self, previous=None, *, center=True, noise_variance=None):
        settings = RefitSettings(2, center, noise_variance=noise_variance)
        return refit(KERNEL, self.candidates, self.moments, settings, self.candidates.rows[:3], previous)


def best_axes(scene, active, *, center):
    """Plain kernel PCA of the projections of all rows on the span of the active atoms."""
    K, cross = KERNEL.matrix(active), KERNEL.matrix(scene.rows, active)
    values, vectors = np.linalg.eigh(K)
    keep = values > 1e-10 * values[-1]
    c = cross @ vectors[:, keep] / np.sqrt(values[keep])
    a = scene.weights
    mean = np.average(c, axis=0, weights=a) if center else np.zeros(c.shape[1])
    divisor = a.sum() - a @ a / a.sum() if center else a.sum()
    covariance = np.einsum("n,ni,nj->ij", a, c - mean, c - mean) / divisor
    eigenvalues, axes = np.linalg.eigh(covariance)
    return eigenvalues[::-1], (c - mean) @ axes[:, ::-1]


@given(SEEDS, st.integers(6, 25), st.integers(3, 8), st.booleans(), st.sampled_from([None, "auto", 0.02]))
def test_ritz_axes_are_the_best_in_the_span_of_the_active_atoms(seed, n, m, center, noise_variance):
    scene = Scene(seed, n, m)
    try:
        snapshot = scene.refit(center=center, noise_variance=noise_variance)
    except SparsityError:
        return
    np.testing.assert_array_equal(snapshot.active_atoms, scene.candidates.rows[snapshot.weights > 0.0])
    eigenvalues, projected = best_axes(scene, snapshot.active_atoms, center=center)
    q = min(2, len(snapshot.active_atoms))
    np.testing.assert_allclose(snapshot.eigenvalues[:q], eigenvalues[:q], atol=1e-8)
    if np.min(-np.diff(np.append(eigenvalues, 0.0))[:q]) > 1e-4:
        ours = snapshot.transform(scene.rows)[:, :q]
        np.testing.assert_allclose(np.abs(ours), np.abs(projected[:, :q]), atol=1e-5)
    assert snapshot.total_weight == pytest.approx(scene.weights.sum())
    inside = np.einsum("ij,ji->i", *_projection(scene, scene.candidates.rows))
    lost = scene.weights @ (1.0 - inside)
    assert snapshot.unexplained_energy_ratio == pytest.approx(lost / scene.weights.sum(), abs=1e-8)
    variance = scene.weights.sum() - (scene.moments.first @ scene.moments.first / scene.weights.sum() if center else 0)
    divisor = (
        scene.weights.sum() - scene.weights @ scene.weights / scene.weights.sum() if center else snapshot.total_weight
    )
    np.testing.assert_allclose(snapshot.explained_variance_ratio, snapshot.eigenvalues * divisor / variance, rtol=1e-8)


def _projection(scene, atoms):
    cross = KERNEL.matrix(scene.rows, atoms)
    return cross, np.linalg.solve(KERNEL.matrix(atoms), cross.T)


def test_the_past_is_found_by_position_in_the_stream():
    scene = Scene(4, 40, 6)
    first = scene.refit(noise_variance=0.05)
    order = np.array([3, 0, 5, 4, 1, 2])
    scene.see(scene.candidates.rows[order], 7 + order)
    # Started from the maximum itself, in another order, it is still there, and axes keep their signs.
    again = scene.refit(first, noise_variance=0.05)
    np.testing.assert_allclose(again.weights, first.weights[order], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(again.transform(scene.rows), first.transform(scene.rows), atol=1e-3)


# Weights


def settings_of(n_components=2, center=True, noise_variance="auto", n_active=None):
    return RefitSettings(n_components, center, noise_variance=noise_variance, n_active=n_active)


def drawn(seed, n=40, r=4, p=None):
    """Rows of unlike variances in an orthonormal basis, and candidates: the first p of the rows."""
    rng = np.random.default_rng(seed)
    c = rng.normal(size=(n, r)) * 0.5 ** np.arange(r) + rng.normal(size=r)
    weights = rng.uniform(0.5, 2.0, n)
    beyond = rng.uniform(0.0, 0.1, n)
    moments = Moments.zero(r).add(c, np.einsum("ij,ij->i", c, c) + beyond, weights)
    rows = c[: p or n]
    return Candidates(rows, np.arange(len(rows)), rows, are_atoms=False), moments, c, weights


def covariance(c, weights, *, center):
    mean = np.average(c, axis=0, weights=weights) if center else np.zeros(c.shape[1])
    return np.einsum("n,ni,nj->ij", weights, c - mean, c - mean) / weights.sum(), mean


@pytest.mark.parametrize("center", [True, False])
def test_automatic_noise_of_a_share_leaves_the_axes_that_explain_it(center):
    candidates, moments, c, a = drawn(3, r=8)
    S, _ = covariance(c, a, center=center)
    eigenvalues = np.linalg.eigvalsh(S)[::-1]
    total = np.trace(S) + (moments.energy - np.trace(moments.second)) / moments.total_weight
    q = int(np.flatnonzero(np.cumsum(eigenvalues) >= 0.8 * total)[0] + 1)
    found = find_weights(candidates, moments, settings_of(n_components=0.8, center=center))
    expected = find_weights(candidates, moments, settings_of(n_components=q, center=center))
    assert found[1] == expected[1]
    np.testing.assert_array_equal(*(weights for weights, _ in (found, expected)))


@pytest.mark.parametrize("noise_variance", [None, "auto", 1e-3])
def test_without_variance_or_a_likelihood_all_weights_are_equal(noise_variance):
    c = np.tile([[0.3, 0.1]], (5, 1))
    moments = Moments.zero(2).add(c, np.einsum("ij,ij->i", c, c), np.ones(5))
    candidates = Candidates(c, np.arange(5), c, are_atoms=False)
    weights, noise = find_weights(candidates, moments, settings_of(noise_variance=noise_variance))
    assert (weights.tolist(), noise) == ([1.0] * 5, None)
    candidates, moments, *_ = drawn(0)
    weights, noise = find_weights(candidates, moments, settings_of(noise_variance=None))
    assert (weights.tolist(), noise) == ([1.0] * 40, None)


@pytest.mark.parametrize(("n_active", "noise_variance"), [(1, None), (4, "auto"), (7, None)])
def test_exactly_this_many_stay_active(n_active, noise_variance):
    candidates, moments, *_ = drawn(1, r=8)
    settings = settings_of(n_active=n_active, noise_variance=noise_variance)
    weights, noise = find_weights(candidates, moments, settings)
    assert np.count_nonzero(weights) == n_active
    assert noise > 0.0


def test_a_number_that_no_noise_leaves_is_a_warning():
    # In two dimensions only a few rows ever get a weight.
    candidates, moments, *_ = drawn(0, r=2)
    with pytest.warns(SparsityWarning, match="no noise variance leaves exactly n_active=30 of 40 candidates; the near"):
        weights, _ = find_weights(candidates, moments, settings_of(n_active=30))
    assert 0 < np.count_nonzero(weights) < 30


def test_impossible_numbers_are_refused():
    candidates, moments, *_ = drawn(0, p=9)
    with pytest.raises(SparsityError, match="n_active=10 is more than the 9 candidates there are so far"):
        find_weights(candidates, moments, settings_of(n_active=10))
    with pytest.raises(
        SparsityError,
        match=r"noise_variance=50 leaves no atom active: the largest variance along any atom is .*choose",
    ):
        find_weights(candidates, moments, settings_of(noise_variance=50.0))


# The start of the next refit


def last_weights(first, positions):
    """Find the last weight of each atom by the row that it is or began as; 0 for an atom that is new."""
    known = dict(zip(first.atom_rows.tolist(), first.weights.tolist(), strict=True))
    return np.array([known.get(p if p >= 0 else -1 - p, 0.0) for p in positions.tolist()])


@pytest.mark.parametrize("seed", range(4))
def test_a_refit_starts_from_the_last_weights_of_the_same_atoms(seed):
    scene = Scene(seed, 200, 9)
    atoms, first = scene.candidates.rows, scene.refit(noise_variance=0.02)
    # In another order, some of them moved; one is new.
    order = np.random.default_rng(seed).permutation(9)
    positions = np.where(np.arange(9) % 3 == 0, -1 - (7 + order), 7 + order)
    scene.see(atoms[order], positions)
    # Weights that no step improves stay as they are, to the last bit.
    again = scene.refit(first, noise_variance=0.02)
    np.testing.assert_array_equal(again.weights, last_weights(first, positions))
    assert (again.weights != scene.refit(noise_variance=0.02).weights).any()

    rows, positions = atoms[order].copy(), positions.copy()
    rows[4], positions[4] = scene.rows[0], 3
    scene.see(rows, positions)
    mean = scene.moments.first / scene.moments.total_weight
    covariance = scene.moments.second / scene.moments.total_weight - np.outer(mean, mean)
    start = last_weights(first, positions)
    expected = fit_weights(scene.candidates.coordinates - mean, covariance, 0.02, initial_weights=start).weights
    np.testing.assert_array_equal(scene.refit(first, noise_variance=0.02).weights, expected)


def test_a_search_for_noise_starts_from_that_of_the_last_refit():
    scene = Scene(0, 300, 30)
    first = scene.refit(noise_variance="auto")
    # The same rows: what held enough of the variance holds it still.
    assert scene.refit(first, noise_variance="auto").noise_variance == first.noise_variance
