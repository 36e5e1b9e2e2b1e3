"""The snapshot: the immutable result of a refit, which answers every query; and its novelty score."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self, TypeGuard

import numpy as np

from streamkpca._core import linalg
from streamkpca._core._loops import all_finite
from streamkpca._core.arrays import Array, Positions
from streamkpca._core.concurrency import cached_property
from streamkpca._core.linalg import solve_factor, squared_norms
from streamkpca.components._loops import score_errors
from streamkpca.components.expectation import Expectation, n_rows_wanted
from streamkpca.components.preimages import PreImages
from streamkpca.dictionary.completion import Completion
from streamkpca.dictionary.expected import ExpectedKernel
from streamkpca.errors import RowError
from streamkpca.kernels import Kernel
from streamkpca.kernels.logarithms import log_matrix
from streamkpca.kernels.program import PreparedKernel, explained_energies
from streamkpca.rows.gaps import ColumnSums, RowDistribution, gaps_in
from streamkpca.rows.parts import RowParts, Rows, parts_of

# Rows this many times as novel as the most novel of a sample are novel by their known numbers: completing them is
# wasted time.
_HOPELESS = 10.0
# Up to here one compiled call is faster than matrix products.
_FEW_ROWS = 4
_TOO_FAR = (
    "kernel: row {row} is so far away that its values overflow; "
    "leave such rows out, or choose a bounded kernel such as RBF"
)
# Along an axis, a row is explained as far as more than this share of the rows are like it. With 0.003 and 0.03, the
# mean area under the ROC curve is the same up to 0.004 on 28 tables with outliers that models were fitted to.
_SHARING = 0.01
# Pre-images are learned from at most this many rows, in time O(n^3).
_MOST_REGRESSED = 1024
# From this share of k(x, x) on that is explained, no kernel value that counts has underflowed.
_LEAST_SHARE = 1e-200
# From this explained energy on, no kernel value that counts has underflowed.
_LEAST_ENERGY = 1e-280


class NoveltyScore:
    """-e log(1 - r/e) for rows with the error r to the span of atoms, where e = k(x, x) is the same for all rows.

    Rows with other kernels score r itself. 1 - r/e is the explained share of the row's energy, |c|^2 / e with the
    coordinates c; where these underflow, it comes from logarithms of kernel values.
    """

    def __init__(self, kernel: Kernel, atoms: Array, factor: Array) -> None:
        self._program = kernel.program
        self._atoms = atoms
        # A copy, as loops would be compiled again for arrays that cannot be written to.
        self._factor = factor.copy()
        self._prepared = PreparedKernel(kernel.program, atoms) if kernel.is_compiled else None
        self._own = self._least = 0.0
        if kernel.is_stationary and len(atoms):
            self._own = float(self._program.diagonal(np.zeros((1, atoms.shape[1])))[0])
            self._least = max(_LEAST_SHARE * self._own, _LEAST_ENERGY)

    def of_rows(self, rows: Array) -> Array:
        """Score rows (n, d): (n,), O(m (d + m)) a row."""
        explained = squared_norms(solve_factor(self._factor, self._program.matrix(rows, self._atoms)))
        return self.of_errors(rows, self._program.diagonal(rows) - explained, explained)

    def measure(self, rows: Array) -> tuple[Array, Array] | None:
        """Return errors and explained energies (n,) of rows (n, d); no bit depends on the rows beside.

        None where the kernel calls functions of the caller, or an error is not finite.
        """
        return None if self._prepared is None else self._prepared.measure(rows, self._factor)

    def of_errors(self, rows: Array, errors: Array, explained: Array) -> Array:
        """Score rows (n, d) whose errors and explained energies (n,) are known."""
        if self._own == 0.0:
            return np.maximum(errors, 0.0)
        scores = np.empty(len(rows))
        if score_errors(errors, explained, self._own, self._least, scores):
            hidden = np.flatnonzero(scores < 0.0)
            scores[hidden] = self._of_logarithms(rows[hidden])
        return scores

    def _of_logarithms(self, rows: Array) -> Array:
        """Score rows far away (n, d); what exceeds the largest float, or rows whose distances do, get that float."""
        # Only kernels without functions of the caller are known to be stationary.
        assert self._prepared is not None
        values = log_matrix(self._program, self._prepared.base_values(rows))
        largest = values.max(axis=1)
        with np.errstate(all="ignore"):
            # As shares of the largest of each row.
            np.exp(values - largest[:, None], out=values)
            values[np.isneginf(largest)] = 1.0
            shares = explained_energies(self._factor, values) * self._own
            scores = -self._own * (2.0 * (largest - np.log(self._own)) + np.log(shares))
        finite: Array = np.minimum(scores, sys.float_info.max)
        return finite


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """The result of a refit, which answers every query without reading the stream. All arrays are read-only.

    Parameters
    ----------
    kernel : Kernel
        The settled kernel.
    atoms, atom_rows, weights : ndarray of shape (m, d), (m,) and (m,)
        All atoms, their positions in the stream, and their weights; zero for those that projections do not use.
    sample : ndarray of shape (r, d)
        Some rows of the data, from which pre-images are learned beside the atoms.
    active_atoms, factor, axes, mean : ndarray of shape (k, d), (k, k), (k, q) and (k,)
        The independent atoms of positive weight, the lower Cholesky factor of their kernel matrix, and principal axes
        and centre in the orthonormal basis of their span.
    span_atoms, span_factor : ndarray of shape (s, d) and (s, s)
        Rows that novelty is measured against: all atoms of a stream, the active rows of a batch.
    projection, offset : ndarray of shape (k, q) and (q,)
        A projection is k(x, active) projection - offset.
    eigenvalues, eigenvalue_bounds, explained_variance_ratio : ndarray of shape (q,), (q, 2) and (q,)
        Variances along the axes, in units of k(x, x), and their shares in the whole feature space.
    noise_variance : float or None
        sigma^2 of the weights; None without a likelihood.
    total_weight, unexplained_energy_ratio : float
        Weight of the rows, and the share of their energy that is not recorded in the basis.
    distribution : RowDistribution or None
        The distribution of gaps; None where rows have none.
    """

    kernel: Kernel
    atoms: Array
    atom_rows: Positions
    weights: Array
    sample: Array
    active_atoms: Array
    factor: Array
    span_atoms: Array
    span_factor: Array
    axes: Array
    mean: Array
    projection: Array
    offset: Array
    eigenvalues: Array
    eigenvalue_bounds: Array
    explained_variance_ratio: Array
    noise_variance: float | None
    total_weight: float
    unexplained_energy_ratio: float
    distribution: RowDistribution | None = None

    def __post_init__(self) -> None:
        # Arrays become read-only and have C order: BLAS sums others in another sequence.
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                # A view, so that an array that is shared keeps its own flags.
                value = np.ascontiguousarray(value).view()
                value.flags.writeable = False
                object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        # Without the answers prepared on demand, which another thread may be adding right now.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copies and pickles make arrays of their own, which can be written to.
        vars(self).update(state)
        self.__post_init__()

    @property
    def has_gaps(self) -> bool:
        """Whether rows that are asked about may have gaps."""
        return self.distribution is not None

    @property
    def n_features(self) -> int:
        """Number of columns of a row that is asked about."""
        return int(self.atoms.shape[1])

    def transform(self, rows: Rows) -> Array:
        """Project rows (n, d) onto the axes: (n, q), O(k (d + q)) a row."""
        if self._is_quick(rows) and self._targets is not None:
            few = self._targets.project(rows, *self._plain_axes)
            if few is not None:
                return few
        with linalg.one_blas_thread():
            return in_chunks(self._transform, rows, np.empty((len(rows), len(self.offset))), len(self.active_atoms))

    def reconstruction_error(self, rows: Rows, n_components: int | None = None, *, active_only: bool = False) -> Array:
        """Return the squared distances (n,) of rows from the span of the snapshot, never negative, O(s (d + s)) a row.

        With `n_components` None they are to the span of the span atoms, with a number to the centre plus the span of
        that many axes; with `active_only` to the span of the active atoms, Tipping's eq. (18).
        """
        if n_components is None and not active_only and (few := self._measure(rows)) is not None:
            return few[0]
        axes = self.axes[:, :n_components]
        atoms, factor = (self.active_atoms, self.factor) if active_only else (self.span_atoms, self.span_factor)

        def outside_span(chunk: Array) -> Array:
            values, energy = self._compare(chunk, atoms)
            return energy - linalg.squared_norms(linalg.solve_factor(factor, values))

        def beside_axes(chunk: Array) -> Array:
            values, energy = self._compare(chunk, self.active_atoms)
            coordinates = linalg.solve_factor(self.factor, values)
            outside = energy - linalg.squared_norms(coordinates)
            centred = coordinates - self.mean
            # Both terms are sums of squares: no digits cancel, as in a difference of squared lengths.
            return outside + linalg.squared_norms(centred - (centred @ axes) @ axes.T)

        answer = outside_span if n_components is None else beside_axes
        with linalg.one_blas_thread():
            error = in_chunks(answer, rows, np.empty(len(rows)), len(self.span_atoms))
        return np.maximum(error, 0.0, out=error)

    def unshared_error(self, rows: Rows) -> Array:
        """Return the squared distances (n,) of rows to the axes, and of what too few rows share along these.

        Along an axis where rows have the variance v, a row with the coordinate c has the share c^2 / (c^2 + 100 v) of
        c^2 for itself: 1/2 if one row in a hundred is like it and the others are at the centre.
        """
        errors = self.reconstruction_error(rows, len(self.eigenvalues))
        squares = self.transform(rows) ** 2
        total = squares + self.eigenvalues / _SHARING
        errors += (squares * np.divide(squares, total, out=np.zeros_like(squares), where=total > 0.0)).sum(axis=1)
        return errors

    def novelty(self, rows: Rows) -> Array:
        """Score how far rows (n, d) are from the span of the span atoms (n,), see `NoveltyScore`, O(s (d + s))."""
        if self._expected_kernel is not None and not self._is_quick(rows):
            with linalg.one_blas_thread():
                return in_chunks(self._novelty_with_gaps, rows, np.empty(len(rows)), 2 * len(self.span_atoms))
        return self._novelty_without_gaps(rows)

    def novelty_by_row(self, rows: Array) -> Array:
        """Score rows (n, d) one by one, O(s (d + s)) each: no bit of a score depends on the rows beside it."""
        if self.distribution is None or all_finite(rows):
            measured = self.novelty_score.measure(rows)
            if measured is not None:
                return self.novelty_score.of_errors(rows, *measured)
        return np.concatenate([self.novelty(rows[i : i + 1]) for i in range(len(rows))])

    def _novelty_with_gaps(self, rows: Array) -> Array:
        """Score rows (n, d); one with gaps as its less novel completion, so that nothing unseen makes it novel."""
        missing = gaps_in(rows)
        if missing is None or self._expected_kernel is None:
            return self._novelty_without_gaps(rows)
        has_gaps, scores = missing.any(axis=1), np.empty(len(rows))
        if not has_gaps.all():
            scores[~has_gaps] = self._novelty_without_gaps(rows[~has_gaps])
        part = np.ascontiguousarray(rows[has_gaps])
        scores[has_gaps] = self._completion(self._expected_kernel, *self._usual_novelty).of(part, missing[has_gaps])[1]
        return scores

    def _novelty_without_gaps(self, rows: Rows) -> Array:
        few = self._measure(rows)
        if few is not None:
            return self.novelty_score.of_errors(np.asarray(rows), *few)
        with linalg.one_blas_thread():
            return in_chunks(self.novelty_score.of_rows, rows, np.empty(len(rows)), len(self.span_atoms))

    def _measure(self, rows: Rows) -> tuple[Array, Array] | None:
        """Return the errors and explained energies of a few rows; None where one compiled call does not answer."""
        return self.novelty_score.measure(rows) if self._is_quick(rows) else None

    def coordinates(self, rows: Array) -> tuple[Array, Array]:
        """Return the coordinates (n, s) of rows without gaps in the span of the span atoms, and their novelty (n,)."""
        with linalg.one_blas_thread():
            values, energy = self._compare(rows, self.span_atoms)
            coordinates = linalg.solve_factor(self.span_factor, values)
            explained = linalg.squared_norms(coordinates)
            return coordinates, self.novelty_score.of_errors(rows, energy - explained, explained)

    def complete(self, rows: Array) -> Array:
        """Put numbers into the gaps of rows (n, d) that make them least novel; the rows themselves without gaps."""
        if self._expected_kernel is None:
            return rows
        return self._completion(self._expected_kernel, *self._usual_novelty).complete(rows)

    def _completion(self, expected: ExpectedKernel, usual: float, hopeless: float) -> Completion:
        return Completion(expected, self.span_atoms, self.span_factor, self._novelty_without_gaps, usual, hopeless)

    @cached_property
    def _usual_novelty(self) -> tuple[float, float]:
        """Novelty that a tenth of the sampled rows exceed, and one that no number in a gap takes back."""
        if not len(self.sample):
            return 0.0, np.inf
        novelty = self._novelty_without_gaps(self.sample.astype(np.float64, copy=False))
        return float(np.quantile(novelty, 0.9)), _HOPELESS * float(novelty.max())

    @cached_property
    def _expected_kernel(self) -> ExpectedKernel | None:
        return None if self.distribution is None else ExpectedKernel(self.kernel, self.distribution)

    @cached_property
    def expectation(self) -> Expectation:
        """What is expected of numbers, by healthy rows."""
        return Expectation(self.healthy_rows)

    @cached_property
    def healthy_rows(self) -> Array:
        """Rows (n, d) that were learned: of the sample and the atoms that are not in it, without gaps."""
        sample = self.sample.astype(np.float64, copy=False)
        # A row that is there twice would look like a neighbour without noise.
        known = {row.tobytes() for row in sample}
        others = [row.tobytes() not in known for row in self.atoms]
        return self.complete(spread_out(np.concatenate([sample, self.atoms[others]]), n_rows_wanted(self.n_features)))

    def inverse_transform(self, projections: Rows) -> Array:
        """Find rows (n, d) with given projections (n, q), see `PreImages`."""

        def answer(chunk: Array) -> Array:
            return self._pre_images.find(chunk, linalg.solve_transposed(self.factor, self.mean + chunk @ self.axes.T))

        with linalg.one_blas_thread():
            out = np.empty((len(projections), self.atoms.shape[1]))
            return in_chunks(answer, projections, out, self._pre_images.width)

    @cached_property
    def _pre_images(self) -> PreImages:
        rows = spread_out(np.concatenate([self.atoms, self.sample]), _MOST_REGRESSED)
        return PreImages(self.kernel, self.active_atoms, rows, self.transform(rows))

    def ready(self) -> Self:
        """Prepare now, in O(s^3), what the first single row would have to wait for, and return this snapshot."""
        # Cached properties are made when they are first read.
        _ = self._targets, self._plain_axes, self.novelty_score
        return self

    def _is_quick(self, rows: Rows) -> TypeGuard[Array]:
        """Tell whether one compiled call answers; it would be compiled again for arrays that cannot be written to."""
        if len(rows) > _FEW_ROWS or isinstance(rows, RowParts) or not rows.flags.writeable:
            return False
        # Rows with gaps are compared by their expected images.
        return self.distribution is None or bool(all_finite(rows))

    @cached_property
    def _targets(self) -> PreparedKernel | None:
        """The active atoms, for single rows; None where the kernel holds functions of the caller."""
        return PreparedKernel(self.kernel.program, self.active_atoms) if self.kernel.is_compiled else None

    @cached_property
    def _plain_axes(self) -> tuple[Array, Array]:
        """Projection and offset in writeable arrays: the loops would be compiled again for read-only ones."""
        return self.projection.T.copy(), self.offset.copy()

    @cached_property
    def novelty_score(self) -> NoveltyScore:
        """Scores rows without gaps by their errors to the span atoms."""
        return NoveltyScore(self.kernel, self.span_atoms, self.span_factor)

    def _transform(self, chunk: Array) -> Array:
        projected: Array = self._values(chunk, self.active_atoms) @ self.projection - self.offset
        return projected

    def _values(self, rows: Array, atoms: Array) -> Array:
        """Return E k(x, z) with atoms (m, d); the values themselves of rows without gaps."""
        if self._expected_kernel is None:
            return self.kernel.program.matrix(rows, atoms)
        return self._expected_kernel.compare(rows, atoms).kernel_rows

    def _compare(self, rows: Array, atoms: Array) -> tuple[Array, Array]:
        """Return E k(x, z) with atoms (m, d), and E k(x, x)."""
        if self._expected_kernel is None:
            return self.kernel.program.matrix(rows, atoms), self.kernel.program.diagonal(rows)
        compared = self._expected_kernel.compare(rows, atoms)
        return compared.kernel_rows, compared.energy + compared.spread

    def impute(self, rows: Rows) -> Array:
        """Complete rows (n, d) so that they are least novel; without a distribution, by the atoms and the sample."""
        expected = self._expected_kernel
        if expected is None:
            seen = np.concatenate([self.atoms, self.sample])
            expected = ExpectedKernel(self.kernel, ColumnSums.of(seen, np.ones(len(seen))).distribution())
        completion = self._completion(expected, 0.0, np.inf)
        with linalg.one_blas_thread():
            width = 4 * len(self.span_atoms)
            return in_chunks(completion.complete, rows, np.empty(rows.shape), width)


def spread_out(rows: Array, count: int) -> Array:
    """Copy all rows, or that many evenly spaced ones if there are more."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), count)).astype(np.intp)]


def in_chunks(answer: Callable[[Array], Array], rows: Rows, out: Array, width: int) -> Array:
    """Fill `out` (n, ...) with the answer to each row, which takes `width` numbers; ValueError if one is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        for place, part in parts_of(rows, max(width, *out.shape[1:], 1)):
            try:
                out[place] = answer(part)
            except RowError as error:
                raise error.at(place.start + error.row) from None
            finite = np.isfinite(out[place]).all(axis=tuple(range(1, out.ndim)))
            if not finite.all():
                raise RowError(_TOO_FAR, place.start + int(np.flatnonzero(~finite)[0]))
    return out
