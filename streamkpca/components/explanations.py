"""Explanations: how the distance between a row and its projection is shared among the features."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array, Indices
from streamkpca._core.concurrency import cached_property
from streamkpca.kernels import Kernel
from streamkpca.kernels.program import (
    Base,
    PairwiseMatrix,
    has_gradients,
    own_gradients,
    unit_rows,
    values_and_gradients,
)
from streamkpca.kernels.views import FeatureView

_INNER_PRODUCTS = (Base.INNER, Base.COSINE)

# The steepness of a kernel is an average over the pairs of at most this many atoms.
_MOST_ATOMS = 256


@dataclass(frozen=True, eq=False)
class Explainer:
    """Shares the distances between rows and combinations of the images of `atoms` (m, d) among the features.

    Notes
    -----
    A projection is sum_i c_i phi(z_i). Where the kernel is a function of inner products, feature j gets the square of
    (k'(x, x) x_j - sum_i c_i k'(x, z_i) z_ij), half the derivative of the squared distance; with a linear kernel these
    are the contributions to SPE [1]_. Where the kernel is a function of distances, feature j gets the square of the
    mean distance sum_i |c_i| |x_j - z_ij| / sum_i |c_i|, or the mean itself for L1 distances; for categories, |x_j -
    z_ij| is 1 where they differ. Features are taken in the kernel's units. If the kernel consists of several inner
    products or distances, each counts by how steeply the kernel depends on it between atoms. Functions of the caller,
    which have no derivatives, count as distances.

    Where the units are a matrix W, a difference e = x - z has the squared length sum_j e_j (W^T W e)_j, and the size of
    the term counts for feature j: the product of |W_j e_j|, the length if no other feature differed, and of |(W^T W
    e)_j| / |W_j|, the length that a change of feature j alone can take away, with the columns W_j [2]_.

    References
    ----------
    .. [1] P. Miller, R. E. Swanson, C. E. Heckler, "Contribution plots: a missing link in multivariate quality
       control", Applied Mathematics and Computer Science 8, 1998.
    .. [2] C. F. Alcala, S. J. Qin, "Analysis and generalization of fault diagnosis methods for process monitoring",
       Journal of Process Control 21, 2011: the terms are partial decomposition contributions, the squares of the
       factors diagonal and reconstruction-based contributions.
    """

    kernel: Kernel
    atoms: Array

    def shares(self, rows: Array, combinations: Array) -> Array:
        """Return the share (n, d) of each feature, given rows (n, d) and coefficients over the atoms (n, m).

        They add up to 1. Features that the kernel does not see have none; where no other differs, these share equally.
        """
        matrices = self.kernel.program.base_matrices
        n, d = rows.shape
        derivatives = self._derivatives(rows)
        parts = [
            (_columns(matrix.view, d), self._differences(p, rows, combinations, derivatives))
            for p, matrix in enumerate(matrices)
        ]
        # As shares of the largest of a row: the squares of large numbers would overflow.
        largest = np.max([part.max(axis=1, initial=0.0) for _, part in parts], axis=0)[:, None]
        unit = np.where(largest > 0.0, largest, 1.0)
        shares, seen = np.zeros((n, d)), np.zeros(d)
        for matrix in matrices:
            seen[_seen_columns(matrix.view, d)] = 1.0
        for columns, part in parts:
            shares[:, columns] += (part / unit) ** 2
        total = shares.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, shares / np.where(total > 0.0, total, 1.0), seen / seen.sum())

    def _derivatives(self, rows: Array) -> tuple[Array, list[Array]] | None:
        """Return the derivatives of k(x, x) (b, n) and of k(x, z) (b, n, m) by inner products; None if none is used."""
        program = self.kernel.program
        if not has_gradients(program) or all(matrix.base not in _INNER_PRODUCTS for matrix in program.base_matrices):
            return None
        return own_gradients(program, rows), values_and_gradients(program, rows, self.atoms)[1]

    def _differences(
        self, p: int, rows: Array, combinations: Array, derivatives: tuple[Array, list[Array]] | None
    ) -> Array:
        """Return the roots (n, c) of the shares of the features that a base matrix sees."""
        program = self.kernel.program
        matrix, steepness = program.base_matrices[p], self.steepness[p]
        origin, of_atoms = self._atom_numbers[p]
        sides = list(zip(_numbers_of(matrix, rows, origin), of_atoms, strict=True))
        if derivatives is None or matrix.base not in _INNER_PRODUCTS:
            sizes = np.abs(combinations)
            unequal = matrix.base is Base.EQUAL
            apart = _geometric_mean([_mean_differences(*side, sizes, unequal=unequal) for side in sides])
            roots: Array = np.sqrt(steepness) * (np.sqrt(apart) if matrix.base is Base.ABSOLUTE else apart)
            return roots
        own, slopes = derivatives[0][p], derivatives[1][p]
        weights = combinations * slopes
        apart = _geometric_mean([np.abs(own[:, None] * seen - weights @ atoms) for seen, atoms in sides])
        return apart / np.sqrt(steepness) if steepness > 0.0 else np.zeros_like(apart)

    @cached_property
    def _atom_numbers(self) -> list[tuple[Array | None, list[Array]]]:
        """For each base matrix, what distances are measured from, and the numbers of the atoms."""
        origins = [(matrix, matrix.origin(self.atoms)) for matrix in self.kernel.program.base_matrices]
        return [(origin, _numbers_of(matrix, self.atoms, origin)) for matrix, origin in origins]

    @cached_property
    def steepness(self) -> Array:
        """How much the kernel changes with each base matrix (b,), on average over pairs of atoms; 1 if unknown."""
        program, m = self.kernel.program, len(self.atoms)
        count = len(program.base_matrices)
        if count == 1 or not m or not has_gradients(program):
            return np.ones(count)
        some = np.ascontiguousarray(self.atoms[:: -(-m // _MOST_ATOMS)])
        return np.array([np.abs(slope).mean() for slope in values_and_gradients(program, some, some)[1]])


def _columns(view: FeatureView, d: int) -> Indices:
    columns: Any = range(d) if view.columns is None else view.columns
    return np.array(columns, dtype=np.intp)


def _seen_columns(view: FeatureView, d: int) -> Indices:
    """Return the columns that a view depends on."""
    columns = _columns(view, d)
    return columns if view.matrix is None else columns[view.matrix.column_lengths > 0.0]


def _numbers_of(matrix: PairwiseMatrix, rows: Array, origin: Array | None) -> list[Array]:
    """Return numbers (n, c) for the features of rows (n, d), in which they are compared: two where a matrix is used."""
    view, is_cosine = matrix.view, matrix.base is Base.COSINE
    seen = view.of(rows, origin)
    if view.matrix is None:
        return [unit_rows(seen) if is_cosine else seen]
    alone = view.selected(rows) * view.matrix.column_lengths
    if is_cosine:
        # Nothing is longer than its largest number times the root of their count.
        largest = np.abs(seen).max(axis=1, keepdims=True, initial=0.0)
        largest[largest == 0.0] = 1.0
        scaled = seen / largest
        lengths = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
        alone, seen = alone / largest / np.where(lengths > 0.0, lengths, 1.0), unit_rows(seen)
    return [alone, seen @ view.matrix.unit_columns]


def _geometric_mean(sizes: list[Array]) -> Array:
    """Return the geometric mean of one array or two, of numbers that are not negative."""
    return sizes[0] if len(sizes) == 1 else np.sqrt(sizes[0]) * np.sqrt(sizes[1])


def _mean_differences(rows: Array, atoms: Array, weights: Array, *, unequal: bool = False) -> Array:
    """Return the weighted mean over atoms (m, c) of their absolute differences from rows (n, c): (n, c).

    With `unequal` a difference counts as 1: the share of atoms with another category.
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
        if unequal:
            np.not_equal(atoms, row, out=apart)
        else:
            np.subtract(atoms, row, out=apart)
            np.abs(apart, out=apart)
        np.matmul(share, apart, out=mean)
    return means
