"""Rows with gaps, completed so that they are least novel."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamkpca._core.arrays import Array, Flags, Indices
from streamkpca._core.linalg import solve_factor, solve_transposed, squared_norms
from streamkpca.dictionary.expected import ExpectedKernel
from streamkpca.kernels.gradients import gradient_by_rows
from streamkpca.rows.gaps import gaps_in

# Steps of a descent; on a circle the third left nothing to gain.
_MOST_STEPS = 6
# A row that gains less than this share stops.
_LEAST_GAIN = 0.2


@dataclass(frozen=True, eq=False)
class Completion:
    """Puts numbers into gaps: the expected ones or those of the nearest atom, moved from there to where they fit.

    Takes atoms (m, d), the lower Cholesky factor (m, m) of their kernel matrix, and a function that scores complete
    rows. Rows up to the novelty `usual` keep the expected numbers; from `hopeless` on, none are moved.

    Notes
    -----
    Expected numbers may lie where no row is, as the centre of a circle does, and the nearest atom is only near. From
    the better of the two, the missing numbers of local kernels descend along the squared distance r to the span, whose
    least value is 0, by steps of 2 r / |r'|^2 as Newton would take to a root of even order; no step loses. O(n m (m +
    d)) for each of at most six steps of n rows.
    """

    expected: ExpectedKernel
    atoms: Array
    factor: Array
    novelty: Callable[[Array], Array]
    usual: float = -np.inf
    hopeless: float = -np.inf

    def complete(self, rows: Array) -> Array:
        """Complete rows (n, d), some of which may have gaps; return the rows themselves if none has."""
        missing = gaps_in(rows)
        if missing is None:
            return rows
        has_gaps, out = missing.any(axis=1), rows.copy()
        out[has_gaps] = self.of(np.ascontiguousarray(rows[has_gaps]), missing[has_gaps])[0]
        return out

    def of(self, rows: Array, missing: Flags) -> tuple[Array, Array]:
        """Complete rows (n, d), each of which has gaps; return them and their novelty (n,)."""
        whole = self.expected.distribution.complete(rows)
        scores = self.novelty(whole)
        unusual = np.flatnonzero(scores > self.usual)
        if len(unusual) and len(self.atoms):
            nearest = self.expected.distribution.borrow(rows[unusual], self.atoms)
            self._replace_where_less_novel(whole, scores, unusual, nearest)
        left = np.flatnonzero((scores > self.usual) & (scores < self.hopeless))
        if len(left) and len(self.atoms) and self.expected.kernel.is_stationary:
            self._replace_where_less_novel(whole, scores, left, self._descend(whole[left], missing[left]))
        return whole, scores

    def _replace_where_less_novel(self, whole: Array, scores: Array, places: Indices, found: Array) -> None:
        """Put rows (k, d) at places (k,) of completed rows (n, d) of scores (n,), where they are less novel."""
        scored = self.novelty(found)
        is_less = scored < scores[places]
        whole[places] = np.where(is_less[:, None], found, whole[places])
        scores[places] = np.where(is_less, scored, scores[places])

    def _descend(self, rows: Array, missing: Flags) -> Array:
        """Move the missing numbers of rows (n, d) so that these come nearer to the span."""
        scale = np.where(self.expected.distribution.scale > 0.0, self.expected.distribution.scale, 1.0)
        found, moving, free = rows.copy(), np.arange(len(rows)), missing * scale
        with np.errstate(all="ignore"):
            residual, gradient = self._outside(rows)
            share = np.ones(len(rows))
            for _ in range(_MOST_STEPS):
                slope = gradient * free[moving]
                length = 2.0 * share * residual / squared_norms(slope)
                # No step is longer than the spread of a column: far away, distances hardly change. Where no missing
                # number matters, as one of a constant column, a step of 0/0 would spoil the products of all rows.
                length = np.fmin(length, 1.0 / np.maximum(np.abs(slope).max(axis=1), 1e-300))
                tried = found[moving] - (length[:, None] * slope) * free[moving]
                there, gradient_there = self._outside(tried)
                gains = there < residual
                found[moving[gains]] = tried[gains]
                # A row that gains little has arrived; a first step that gains nothing was too long, and is tried again.
                goes_on = np.where(gains, there < (1.0 - _LEAST_GAIN) * residual, share == 1.0)
                share = np.where(gains, 1.0, 0.3)[goes_on]
                gradient = np.where(gains[:, None], gradient_there, gradient)[goes_on]
                residual = np.where(gains, there, residual)[goes_on]
                moving = moving[goes_on]
                if not len(moving):
                    break
        return found

    def _outside(self, rows: Array) -> tuple[Array, Array]:
        """Return the squared distances (n,) of rows to the span, and their gradients (n, d)."""
        program = self.expected.kernel.program
        values, slopes = program.differentiate(rows, self.atoms)
        coordinates = solve_factor(self.factor, values)
        combinations = solve_transposed(self.factor, coordinates)
        gradient = np.zeros(rows.shape)
        for matrix, slope in zip(program.base_matrices, slopes, strict=True):
            weights = np.ascontiguousarray((-2.0 * combinations * slope).T)
            gradient += gradient_by_rows(matrix, self.atoms, rows, weights)
        return program.diagonal(rows) - squared_norms(coordinates), gradient
