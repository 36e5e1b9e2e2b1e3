"""Pre-images: rows whose images in feature space are near given points there."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.concurrency import cached_property
from streamkpca.kernels import RBF, Kernel, Linear
from streamkpca.kernels.gradients import is_of_squared_distances
from streamkpca.kernels.units import Features
from streamkpca.kernels.widths import typical_distance

# Iteration stops where a step gains less than this share of the inner product with the point.
_PRECISION = 1e-10
_MOST_STEPS = 100
_MOST_HALVINGS = 6

# Share of the nearest row's inner product with the point that a guess must have.
_NEAR_ENOUGH = 0.5

# Rounding of a sum of shares that add up to one.
_ROUNDING = 1e-14

# Ridge penalties that are tried, as shares of the mean eigenvalue that they are added to.
_PENALTIES = np.geomspace(1e-10, 1.0, 21)


_DISTANCES = RBF(1.0).program


@dataclass(frozen=True, eq=False)
class PreImages:
    """Finds rows for points in feature space, given as combinations of the images of `atoms` (k, d) and by projections.

    It learns from `rows` (p, d) and their `projections` (p, q).

    References
    ----------
    .. [1] S. Mika et al., "Kernel PCA and de-noising in feature spaces", NIPS 11, 1999, eq. (10). There for RBF
       kernels; here for every smooth function of squared distances, also over several sets of columns, and with steps
       that never lose.
    .. [2] G. Bakir, J. Weston, B. Schölkopf, "Learning to find pre-images", NIPS 16, 2004.
    """

    kernel: Kernel
    atoms: Array
    rows: Array
    projections: Array

    @property
    def width(self) -> int:
        """How many numbers finding one row takes."""
        # Several arrays as wide as the rows of the regression and as the atoms are in use at once.
        return 2 * len(self.rows) + (2 + len(self.kernel.program.base_matrices)) * len(self.atoms)

    def find(self, projections: Array, combinations: Array) -> Array:
        """Find rows (n, d) for points with these projections (n, q) and coefficients over the atoms' images (n, k).

        Notes
        -----
        Regression guesses the row from the projections [2]_. For kernels of squared distances fixed-point iteration
        goes on from there, or from the best atom where that is nearer, to a row whose image is nearest [1]_. Its result
        is taken where the guess has less than half of its inner product with the point: guesses far from all rows go
        wrong without bound, the others recover rows better. O(p^3) once and O(n p (q + d)), and O(n k d) for each of at
        most 100 steps.
        """
        program = self.kernel.program
        guessed = self._ridge.predict(projections)
        if not (len(self.atoms) and self.kernel.is_stationary and is_of_squared_distances(program)):
            return guessed
        nearness = combinations @ program.gram(self.atoms)
        best = np.argmax(nearness, axis=1)
        reached = np.einsum("ij,ij->i", combinations, program.matrix(guessed, self.atoms))
        is_nearer = nearness[np.arange(len(best)), best] > reached
        start = np.where(is_nearer[:, None], self.atoms[best], guessed)
        found, most = _iterate(self.kernel, self.atoms, combinations, start)
        return np.where((reached >= _NEAR_ENOUGH * most)[:, None], guessed, found)

    @cached_property
    def _ridge(self) -> "_Ridge":
        d = self.rows.shape[1]
        compared = [matrix.features for matrix in self.kernel.program.base_matrices]
        return _Ridge(self.projections, self.rows, _finest_units(_columns_and_units(compared, d), d))


class _Ridge:
    """Kernel ridge regression from projections to rows, with the penalty that predicts left-out rows best.

    The kernel is a linear one, for which rows are linear in the projections, plus an RBF of the typical distance.
    Errors of features count in their units.
    """

    def __init__(self, projections: Array, rows: Array, units: Array) -> None:
        self._mean = rows.mean(axis=0)
        # The origin of the projections does not matter, but inner products would lose their digits to it: rows 1e6 from
        # the origin, not centred, were found again at 40 times their range.
        self._centre = projections.mean(axis=0)
        projections = projections - self._centre
        # One over the mean squared distance of two projections.
        gamma = 0.5 / typical_distance(projections, squared=True)
        self._kernel = gamma * Linear() + RBF(gamma)
        self._projections = projections
        # Orthogonal to constants, which the mean covers.
        gram = self._kernel.program.gram(projections)
        self._offsets = gram.mean(axis=0)
        gram = gram - self._offsets - self._offsets[:, None] + self._offsets.mean()
        lengths, vectors = eigh(gram)
        lengths = np.maximum(lengths, 0.0)
        along = vectors.T @ (rows - self._mean)
        in_units = along / units
        unit = float(lengths.mean()) or 1.0

        def error_left_out(penalty: float) -> float:
            # In shares not fitted, no digits cancel where nearly everything is. The mean fits 1 / p of each row.
            kept = penalty / (lengths + penalty)
            residual = vectors @ (kept[:, None] * in_units)
            not_fitted = np.einsum("ij,j,ij->i", vectors, kept, vectors) - 1.0 / len(rows)
            return float(np.sum((residual / np.maximum(not_fitted, _ROUNDING)[:, None]) ** 2))

        penalty = min(_PENALTIES * unit, key=error_left_out)
        self._coefficients = vectors @ (along / (lengths + penalty)[:, None])

    def predict(self, projections: Array) -> Array:
        values = self._kernel.program.matrix(projections - self._centre, self._projections)
        centred = values - values.mean(axis=1)[:, None] - self._offsets + self._offsets.mean()
        predicted: Array = self._mean + centred @ self._coefficients
        return predicted


def _iterate(kernel: Kernel, atoms: Array, combinations: Array, start: Array) -> tuple[Array, Array]:
    """Move rows uphill in their inner product sum_i c_i k(x, z_i) with the points; return the rows and the products.

    No step loses. At the maximum x_f sum_i c_i k'_i = sum_i c_i k'_i z_if for each feature f, with k' the derivative of
    the kernel by the squared distance, summed over the sets of columns that contain f, each times 1 / u_f^2 with the
    unit u_f there.
    """
    found, reached, moving = start.copy(), np.empty(len(start)), np.arange(len(start))
    seen = _columns_and_units([matrix.features for matrix in kernel.program.base_matrices], atoms.shape[1])
    finest = _finest_units(seen, atoms.shape[1])
    for _ in range(_MOST_STEPS):
        rows, c = found[moving], combinations[moving]
        values, slopes = kernel.program.differentiate(rows, atoms)
        before = np.einsum("ij,ij->i", c, values)
        pulls, weights = np.zeros_like(rows), np.zeros_like(rows)
        for (chosen, units), slope in zip(seen, slopes, strict=True):
            shares = -c * slope
            sums = shares.sum(axis=1)[:, None]
            # As shares of the largest 1 / u^2 of a feature.
            stiffness = (finest[chosen] / units) ** 2
            pulls[:, chosen] += shares @ atoms[:, chosen] * stiffness
            weights[:, chosen] += sums * stiffness
        # Where the weights add up to zero or less there is no fixed point to go to.
        usable = weights > np.finfo(np.float64).tiny
        step = np.divide(pulls, weights, out=rows.copy(), where=usable) - rows
        after = np.full(len(rows), -np.inf)
        for _ in range(_MOST_HALVINGS):
            tried = np.flatnonzero(~(after >= before))
            if not len(tried):
                break
            there = kernel.program.matrix(rows[tried] + step[tried], atoms)
            after[tried] = np.einsum("ij,ij->i", c[tried], there)
            step[tried[~(after[tried] >= before[tried])]] *= 0.5
        better = after >= before
        found[moving[better]] = (rows + step)[better]
        reached[moving] = np.where(better, after, before)
        moving = moving[better & (after - before > _PRECISION * np.abs(after))]
        if not len(moving):
            break
    return found, reached


def _columns_and_units(compared: Sequence[Features], n_features: int) -> list[tuple[Positions, Array]]:
    """Return the columns that each base matrix compares, and their units."""
    found = []
    for features in compared:
        columns = np.arange(n_features) if features.columns is None else np.array(features.columns)
        found.append((columns, np.ones(len(columns)) if features.divisors is None else features.divisors))
    return found


def _finest_units(seen: list[tuple[Positions, Array]], n_features: int) -> Array:
    """Return the smallest unit that each feature has in any view; 1 where it is in none."""
    finest = np.full(n_features, np.inf)
    for chosen, units in seen:
        finest[chosen] = np.minimum(finest[chosen], units)
    return np.where(np.isfinite(finest), finest, 1.0)
