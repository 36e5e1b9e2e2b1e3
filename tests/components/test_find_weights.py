import numpy as np
import pytest

from streamkpca.components.refit import Candidates, RefitSettings, find_weights
from streamkpca.dictionary.moments import Moments
from streamkpca.errors import SparsityError, SparsityWarning


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
