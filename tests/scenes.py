"""A block of rows before a basis with a past, and its residuals in plain numpy."""

import numpy as np

from streamkpca.basis import Basis
from streamkpca.kernels import RBF
from streamkpca.moments import Moments
from streamkpca.residual_gram import ResidualGram
from streamkpca.selection import Rivals, choose_within_budget


def rbf(X, Y, gamma=0.3):
    return np.exp(-gamma * ((X[:, None] - Y[None]) ** 2).sum(axis=2))


def residual_gram(rows, atoms):
    """Compute what rows have outside the span of atoms, from kernel matrices alone."""
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
        self.basis = Basis(RBF(0.3) if kernel is None else kernel, d)
        self.basis.extend(self.atoms)
        seen = self.basis.project(self.past)
        self.moments = Moments.zero(m).add(seen.coordinates, seen.energy, self.past_weights)
        self.exposure = np.full(m, self.past_weights.sum())
        self.block = self.basis.project(self.rows)

    def residual(self, more=0):
        return ResidualGram(self.basis, self.block, self.weights, self.basis.size + more)

    def weakest(self):
        interpolation = self.basis.interpolation(self.block.coordinates)
        return self.rivals(self.basis.size).weakest(interpolation, self.weights)

    def rivals(self, max_atoms):
        return Rivals(self.basis, self.moments, self.exposure, max_atoms)

    def within_budget(self, max_atoms, tolerance=1e-3):
        return choose_within_budget(
            self.basis, self.moments, self.exposure, self.block, self.weights, max_atoms=max_atoms, tolerance=tolerance
        )
