"""Greedy pursuit against the plain greedy method, which keeps the whole residual matrix at every step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary import greedy
from streamkpca.dictionary.greedy import pursue
from streamkpca.kernels import RBF

SEEDS = st.integers(0, 10**6)
KERNEL = RBF(0.3)
CRITERIA = st.sampled_from(["residual", "original"])


def scene(seed, n, d=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.uniform(0.2, 2.0, n)


def ran(rows, weights, *, kernel=KERNEL, m=5, criterion="residual", n_candidates=None):
    random = np.random.default_rng(0)
    return pursue(kernel, rows, weights, m, criterion, tolerance=0.0, n_candidates=n_candidates, random=random)


class Naive:
    """The residual Gram matrix of all rows, deflated one atom at a time: O(n^2) each, and O(n^3) in all."""

    def __init__(self, K, weights, criterion):
        self.K, self.R, self.weights, self.criterion = K, K.copy(), weights, criterion

    def gains(self):
        residual, energy = np.diagonal(self.R), np.diagonal(self.K)
        usable = (residual > 1e-9 * energy) & (self.weights > 0.0)
        divisor = residual if self.criterion == "residual" else energy
        return np.where(usable, self.R**2 @ self.weights / np.where(usable, divisor, 1.0), -np.inf)

    def admit(self, row):
        self.R = self.R - np.outer(self.R[row], self.R[row]) / self.R[row, row]


def assert_greedy(pursuit, K, weights, criterion, pools=None):
    """Check that every atom was the best candidate when it was chosen."""
    naive = Naive(K, weights, criterion)
    for i, row in enumerate(pursuit.atoms):
        gains = naive.gains()
        best = gains if pools is None else gains[pools[i]]
        assert pools is None or row in pools[i]
        assert gains[row] >= best.max() * (1 - 1e-6)
        naive.admit(row)
    np.testing.assert_allclose(pursuit.residual, np.diagonal(naive.R), atol=1e-6 * np.diagonal(K).max())


@given(SEEDS, st.integers(1, 30), st.integers(1, 8), CRITERIA)
def test_each_atom_is_the_best_of_all_rows(seed, n, m, criterion):
    rows, weights = scene(seed, n)
    pursuit = ran(rows, weights, m=m, criterion=criterion)
    assert len(set(pursuit.atoms)) == len(pursuit.atoms) == min(n, m)
    assert_greedy(pursuit, RBF(0.3).matrix(rows), weights, criterion)


@given(SEEDS, st.integers(2, 30), st.integers(1, 15), st.integers(1, 10), CRITERIA)
def test_each_atom_is_the_best_of_its_pool(seed, n, m, size, criterion):
    rows, weights = scene(seed, n)
    pools, drawn = [], greedy._draw

    def spy(energy, residual, *arguments):
        # Nothing but the rounding of later directions is left of an atom.
        pools.append((np.count_nonzero(residual < 1e-20), drawn(energy, residual, *arguments)))
        return pools[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(greedy, "_draw", spy)
        pursuit = ran(rows, weights, m=m, criterion=criterion, n_candidates=size)
    assert all(len(set(pool)) == len(pool) <= size for _, pool in pools)
    assert len(pursuit.atoms) == min(n, m)
    # A pool serves ten atoms, or until it is used up.
    begun = [at for at, _ in pools]
    assert set(begun) >= set(range(0, len(pursuit.atoms), 10))
    assert all(at % 10 == 0 or set(pools[i - 1][1]) <= set(pursuit.atoms[:at]) for i, at in enumerate(begun))
    turns = [pools[np.searchsorted(begun, i, side="right") - 1][1] for i in range(len(pursuit.atoms))]
    assert_greedy(pursuit, RBF(0.3).matrix(rows), weights, criterion, turns)


@pytest.mark.parametrize("n_candidates", [None, 4])
def test_rows_of_weight_zero_and_repeats_are_not_chosen(n_candidates):
    rows, weights = scene(4, 12)
    rows[6:] = rows[:6]
    weights[[0, 6]] = 0.0
    pursuit = ran(rows, weights, m=12, n_candidates=n_candidates)
    assert sorted(row % 6 for row in pursuit.atoms) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("scale", [1e-250, 1e-160, 1e-80, 1e80, 1e138])
@pytest.mark.parametrize("n_candidates", [None, 12])
def test_the_choice_does_not_depend_on_the_scale_of_the_kernel(scale, n_candidates):
    rows, weights = scene(5, 30)
    plain = ran(rows, weights, m=10, n_candidates=n_candidates)
    scaled = ran(rows, weights, kernel=scale * RBF(0.3), m=10, n_candidates=n_candidates)
    assert scaled.atoms.tolist() == plain.atoms.tolist()
    np.testing.assert_allclose(scaled.residual / scale, plain.residual, atol=1e-9)
