"""Explanations: how the distance between a row and its projection is shared among the features."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import cached_property
from streamkpca.kernels import Kernel
from streamkpca.kernels.gradients import has_gradients, own_gradients, values_and_gradients
from streamkpca.kernels.program import Base, PairwiseMatrix, unit_rows

Array = npt.NDArray[np.float64]

_INNER_PRODUCTS = (Base.INNER, Base.COSINE)

# The steepness of a kernel is an average over the pairs of at most this many atoms.
_MOST_ATOMS = 256


@dataclass(frozen=True, eq=False)
class Explainer:
    """Shares the distances between rows and combinations of the images of `atoms` (m, d) among the features.

    Notes
    -----
    A projection is sum_i c_i phi(z_i). Where the kernel is a function of inner products, feature j gets the square of
    (k'(x, x) x_j - sum_i c_i k'(x, z_i) z_ij), half the derivative of the squared distance; k' is the derivative by the
    inner product. With a linear kernel this is the row less its projection, and its squares are the contributions to
    SPE [1]_. Where the kernel is a function of distances, the row is compared with the atoms in proportion to |c_i|:
    feature j gets the square of the mean distance sum_i |c_i| |x_j - z_ij| / sum_i |c_i|, or the mean itself for L1
    distances. Features are taken in the kernel's units. If the kernel consists of several inner products or distances,
    each counts by how steeply the kernel depends on it between atoms. Kernels with functions of the caller, which have
    no derivatives, are treated as if they were made of distances.

    Pre-images and derivatives were tried for distances too. In the most novel row of 51 events of server metrics, at
    several widths, the first feature was right in 35% to 69% of them, against 77% to 88% for this mixture and
    41% to 65% for the nearest atom. O(m d) for each row.

    References
    ----------
    .. [1] P. Miller, R. E. Swanson, C. E. Heckler, "Contribution plots: a missing link in multivariate quality
       control", Applied Mathematics and Computer Science 8, 1998.
    """

    kernel: Kernel
    atoms: Array

    def shares(self, rows: Array, combinations: Array) -> Array:
        """Return the share (n, d) of each feature, given rows (n, d) and coefficients over the atoms (n, m).

        They add up to 1. Features that the kernel does not see have none; where no other differs, these share equally.
        """
        matrices = self.kernel.program.base_matrices
        n, d = rows.shape
        parts = [
            (self._columns(matrix, d), self._differences(p, rows, combinations)) for p, matrix in enumerate(matrices)
        ]
        # As shares of the largest of a row: the squares of large numbers would overflow.
        largest = np.max([part.max(axis=1, initial=0.0) for _, part in parts], axis=0)[:, None]
        unit = np.where(largest > 0.0, largest, 1.0)
        shares, seen = np.zeros((n, d)), np.zeros(d)
        for columns, part in parts:
            shares[:, columns] += (part / unit) ** 2
            seen[columns] = 1.0
        total = shares.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, shares / np.where(total > 0.0, total, 1.0), seen / seen.sum())

    def _differences(self, p: int, rows: Array, combinations: Array) -> Array:
        """Return the roots (n, c) of what the features that a base matrix sees get."""
        program = self.kernel.program
        matrix, steepness = program.base_matrices[p], self.steepness[p]
        seen, atoms = matrix.view.of(rows), matrix.view.of(self.atoms)
        if matrix.base not in _INNER_PRODUCTS or not has_gradients(program):
            apart = _mean_differences(seen, atoms, np.abs(combinations))
            roots: Array = np.sqrt(steepness) * (np.sqrt(apart) if matrix.base is Base.ABSOLUTE else apart)
            return roots
        if matrix.base is Base.COSINE:
            seen, atoms = unit_rows(seen), unit_rows(atoms)
        own, slopes = own_gradients(program, rows)[p], values_and_gradients(program, rows, self.atoms)[1][p]
        apart = np.abs(own[:, None] * seen - (combinations * slopes) @ atoms)
        return apart / np.sqrt(steepness) if steepness > 0.0 else np.zeros_like(apart)

    @cached_property
    def steepness(self) -> Array:
        """How much the kernel changes with each base matrix (b,), on average over pairs of atoms; 1 if unknown."""
        program, m = self.kernel.program, len(self.atoms)
        count = len(program.base_matrices)
        if count == 1 or not m or not has_gradients(program):
            return np.ones(count)
        some = np.ascontiguousarray(self.atoms[:: -(-m // _MOST_ATOMS)])
        return np.array([np.abs(slope).mean() for slope in values_and_gradients(program, some, some)[1]])

    @staticmethod
    def _columns(matrix: PairwiseMatrix, d: int) -> npt.NDArray[np.intp]:
        columns: Any = range(d) if matrix.view.columns is None else matrix.view.columns
        return np.array(columns, dtype=np.intp)


def _mean_differences(rows: Array, atoms: Array, weights: Array) -> Array:
    """Return the weighted mean over atoms (m, c) of their absolute differences from rows (n, c): (n, c).

    Weights (n, m) are not negative; atoms of a row without weights, which is too far away for them, count equally.
    """
    if not len(atoms):
        return np.zeros_like(rows)
    largest = weights.max(axis=1, keepdims=True)
    shares = np.divide(weights, largest, out=np.ones_like(weights), where=largest > 0.0)
    shares /= shares.sum(axis=1, keepdims=True)
    apart, means = np.empty_like(atoms), np.empty_like(rows)
    # Row by row, the differences stay in the processor's cache.
    for row, share, mean in zip(rows, shares, means, strict=True):
        np.subtract(atoms, row, out=apart)
        np.abs(apart, out=apart)
        np.matmul(share, apart, out=mean)
    return means
