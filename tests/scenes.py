"""A basis that has seen some rows, a block of new rows, and its residuals in plain numpy."""

import numpy as np

from streamkpca._core.reservoir import Draws, Reservoir, arrival_times
from streamkpca.dictionary.basis import AtomStats, Basis
from streamkpca.dictionary.moments import Moments
from streamkpca.dictionary.selection import Swaps, SwapSearch
from streamkpca.kernels import RBF


def rbf(X, Y, gamma=0.3):
    return np.exp(-gamma * ((X[:, None] - Y[None]) ** 2).sum(axis=2))


def residual_gram(rows, atoms):
    """Compute the residual Gram matrix of rows from kernel matrices alone."""
    if not len(atoms):
        return rbf(rows, rows)
    cross = rbf(rows, atoms)
    return rbf(rows, rows) - cross @ np.linalg.solve(rbf(atoms, atoms), cross.T)


class Scene:
    """A basis with the moments of some past rows, and a block."""

    def __init__(self, seed, m, b, *, kernel=None, d=3):
        rng = np.random.default_rng(seed)
        self.atoms, self.rows, self.past = (rng.normal(size=(n, d)) for n in (m, b, 30))
        self.weights = rng.uniform(0.2, 2.0, b)
        self.past_weights = rng.uniform(0.2, 2.0, 30)
        self.basis = Basis.empty(RBF(0.3) if kernel is None else kernel, d)
        self.basis, _ = self.basis.extend(self.atoms)
        seen = self.basis.project(self.past)
        self.moments = Moments.zero(m).add(seen.coordinates, seen.energy, self.past_weights)
        # Positions in the stream: past rows, then atoms of unit weight, then the block.
        self.atom_stats = AtomStats(30 + np.arange(m), np.ones(m), np.full(m, self.past_weights.sum()))
        self.start = 30 + m
        self.selection_sample = Reservoir.empty(2048, d)
        for rows, weights, start in (
            (self.past, self.past_weights, 0),
            (self.atoms, np.ones(m), 30),
            (self.rows, self.weights, self.start),
        ):
            self.selection_sample = self.selection_sample.add(rows, weights, start, arrival_times(0, start, rows, 1)[0])
        self.total_weight = self.past_weights.sum() + m + self.weights.sum()
        self.block = self.basis.project(self.rows)

    def swap_search(self, rows=None):
        chosen = np.arange(len(self.rows)) if rows is None else np.array(rows)
        positions = self.start + chosen
        candidates = Draws(self.rows[chosen], positions, self.weights[chosen], np.zeros(len(chosen)))
        return Swaps(self.search(), candidates)

    def search(self) -> SwapSearch:
        return SwapSearch(self.basis, self.atom_stats, self.moments, self.selection_sample, self.total_weight)
