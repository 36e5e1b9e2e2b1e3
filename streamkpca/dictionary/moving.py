"""Atoms that move: from rows of the stream to points that leave less of it unexplained.

`Unexplained` is what atoms leave unexplained of a sample, with its gradient; `descend` moves along it.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from streamkpca._core.arrays import Array, Flags, Positions
from streamkpca._core.linalg import apply_inverse, blas_threads, inverse_factor, lower_self_product
from streamkpca.dictionary._loops import scale_values, sum_of_squares, weigh
from streamkpca.dictionary.basis import Basis
from streamkpca.kernels import Kernel
from streamkpca.kernels.gradients import (
    curvature_by_rows,
    gradient_by_rows,
    is_of_squared_distances,
    own_gradient,
)
from streamkpca.kernels.program import Program

# Rounding in single precision.
_SINGLE = float(np.finfo(np.float32).eps)
# Share of what is unexplained from which on rounding shows.
_VISIBLE = 1e-2

# Added to k(z, z) of each atom, as a share of it, so that atoms that meet leave the factor finite.
_RIDGE = 1e-9

# Numbers in an array of kernel values of rows with the atoms, which bounds the memory: 2 MB for each of four arrays.
_VALUES_AT_ONCE = 2**18
# Multiplications of an evaluation; with fewer, threads cost more than they save.
_WORTH_THREADS = 2**25
# Multiplications of an evaluation; with fewer, single precision saves too little for the digits that it costs.
_WORTH_ROUNDING = 2**22

# Steps that the descent remembers; 20 gained nothing over 5 on eight data sets.
_MEMORY = 5

# A step must gain at least this share of what the gradient promises.
_LEAST_GAIN = 1e-4
# The length of a step that gains less is multiplied by this.
_SHORTER = 0.3

# The descent ends when a step gains less than this share of what is unexplained.
_WORTHWHILE = 1e-3
# The descent ends when less than this share of the energy, of which the ridge is a part, is unexplained.
_EXPLAINED = 1e-6

# The span of this many atoms near each holds most of what that of all atoms holds of the directions in which it can
# move; with 64, steps gained as much.
_NEAREST = 24
# Most numbers of their derivatives: 16 MB.
_MOST_NUMBERS = 2**21
# Share of a direction that is left at least beside the span of the nearest atoms.
_LEAST_LEFT = 0.03

# Length of the first step, in multiples of Newton's: curvatures are known from above, as atoms farther away and all
# rows span more. With 2, images of digits were overshot.
_FIRST_LENGTH = 1.25

# Curvatures below this share of the largest one of their feature are raised to it: an atom that explains nothing has
# none.
_LEAST_CURVATURE = 1e-6


_NOTHING = np.zeros(0)


class Evaluation(NamedTuple):
    """Share of energy outside the span of atoms (m, d); its gradient there and estimated curvature, or none."""

    value: float
    gradient: Array
    curvature: Array


class _Sums(NamedTuple):
    """Sums over some rows: `second` of coordinates (lower half), `slopes` of |B dk| by matrix, `values` of |B k|."""

    explained: float
    second: Array
    gradient: Array
    slopes: Array
    values: Array

    def plus(self, other: "_Sums") -> "_Sums":
        return _Sums(*map(operator.add, self, other))


class Unexplained:
    """The energy of weighted rows that atoms leave unexplained, as a function of the atoms.

    The kernel is settled and positive definite; `map_parts` applies a function to each of some slices, in order, as
    `map` does; with `single`, products are taken in single precision, at half the time, while rounding does not show.

    f(Z) = 1/E sum_n a_n [k(x_n, x_n) - |C_n|^2] with coordinates C = L^-1 k_Z(X) of shape (m, n), K = L L^T and
    E = sum_n a_n k(x_n, x_n). With B = L^-T C, df / dk_Z(X) = -2 B diag(a) / E and df / dK = B diag(a) B^T / E [1]_,
    [2]_; the kernel's derivatives carry both on to Z. Second derivatives are estimated as Gauss and Newton do, for each
    atom alone: 2 sum_n a_n B_in^2 / E times the squared length of the derivative of phi(z_i), from |k'| / |k|.

    Kernel values are divided by the lengths of rows and atoms, so that no scale leaves the range of single precision.
    Rounding adds |L^-1|^2 eps^2 to |C_n|^2 / k(x_n, x_n), where B = K^-1 k_Z(X) would lose the digits of |K^-1| eps.

    O(n m (m + d)). Sums over parts of the rows are added in order, whatever the number of threads.

    References
    ----------
    .. [1] E. Snelson, Z. Ghahramani, "Sparse Gaussian processes using pseudo-inputs", NIPS 18, 2006.
    .. [2] M. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009: f is the
       trace in its bound.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: Array,
        weights: Array,
        map_parts: Callable[..., Iterable[_Sums]] = map,
        *,
        single: bool = False,
    ) -> None:
        self.program = kernel.program
        energy = float(weights @ self.program.diagonal(rows))
        self._rows, self._roots = rows, np.sqrt(weights / energy)
        self._map = map_parts
        self._single = single

    def __call__(self, atoms: Array, *, value_only: bool = False) -> Evaluation | None:
        """Evaluate at atoms (m, d); None where their kernel matrix is not finite and positive definite."""
        part_of = self._explain if value_only else self._part
        with np.errstate(all="ignore"):
            own_values, own_slopes = self.program.differentiate(atoms, atoms)
            lengths = np.sqrt(np.diagonal(own_values))
            own_values /= np.outer(lengths, lengths)
            try:
                factor = cholesky(own_values + _RIDGE * np.eye(len(atoms)), lower=True, overwrite_a=True)
            except (LinAlgError, ValueError):
                return None
            inverse = inverse_factor(factor)
            # Four arrays hold values with the atoms if there is one base matrix, and others copies of the rows.
            n_arrays = max(len(self.program.base_matrices) // 2, 1)
            height = max(_VALUES_AT_ONCE // max(len(atoms) * n_arrays, atoms.shape[1]), 64)
            slices = [slice(start, start + height) for start in range(0, len(self._rows), height)]
            while True:
                used = inverse.astype("f4" if self._single else "f8")
                sums_over = partial(part_of, atoms=atoms, inverse=used, lengths=lengths)
                total = reduce(_Sums.plus, self._map(sums_over, slices))
                value = 1.0 - total.explained
                if not self._single or np.vdot(inverse, inverse) * _SINGLE**2 <= _VISIBLE * value:
                    break
                self._single = False
            if value_only:
                return Evaluation(value, _NOTHING, _NOTHING) if np.isfinite(value) else None
            # L^-T (sum c c^T) L^-1, symmetric.
            lower = total.second.astype(np.float64)
            half = apply_inverse(inverse, lower + np.tril(lower, -1).T, transposed=True)
            second = apply_inverse(inverse, np.ascontiguousarray(half.T), transposed=True)
            weighted = second / np.outer(lengths, lengths)
            gradient, curvature = total.gradient / lengths[:, None], np.zeros(atoms.shape)
            for p, matrix in enumerate(self.program.base_matrices):
                gradient = gradient - gradient_by_rows(matrix, atoms, atoms, weighted * own_slopes[p])
                steepness = total.slopes[p] / np.maximum(total.values, np.finfo(np.float64).tiny)
                curvature += curvature_by_rows(matrix, atoms, steepness)
            curvature *= 2.0 * np.diagonal(second)[:, None]
            # Each feature by itself, as their units may differ by any factor.
            curvature = np.maximum(curvature, _LEAST_CURVATURE * curvature.max(axis=0))
            # Features that the kernel does not see have no gradient either.
            curvature[curvature == 0.0] = 1.0
            evaluation = Evaluation(value, -2.0 * gradient, curvature)
        return evaluation if np.isfinite(value) and all(np.isfinite(array).all() for array in evaluation[1:]) else None

    def _part(self, part: slice, atoms: Array, inverse: Array, lengths: Array) -> _Sums:
        rows, roots = self._rows[part], self._roots[part]
        values, slopes = self.program.differentiate(rows, atoms)
        coordinates = self._coordinates(values, roots, inverse, lengths)
        explained, second = sum_of_squares(coordinates), lower_self_product(coordinates)
        coefficients = apply_inverse(inverse, coordinates, transposed=True)
        gradient = np.zeros(atoms.shape)
        slope_sums, value_sums = np.zeros((len(slopes), len(atoms))), np.zeros(len(atoms))
        weigh(values, coefficients, roots, value_sums)
        for p, matrix in enumerate(self.program.base_matrices):
            weigh(slopes[p], coefficients, roots, slope_sums[p])
            gradient += gradient_by_rows(matrix, rows, atoms, slopes[p])
        return _Sums(explained, second, gradient, slope_sums, value_sums)

    def _explain(self, part: slice, atoms: Array, inverse: Array, lengths: Array) -> _Sums:
        values = self.program.matrix(self._rows[part], atoms)
        coordinates = self._coordinates(values, self._roots[part], inverse, lengths)
        return _Sums(sum_of_squares(coordinates), *[_NOTHING] * 4)

    def _coordinates(self, values: Array, roots: Array, inverse: Array, lengths: Array) -> Array:
        """Turn kernel values (n, m) into coordinates times the roots (n,) of the rows' shares, as precise as L^-1."""
        shares = np.empty(values.shape, inverse.dtype)
        scale_values(values, roots, lengths, shares)
        return apply_inverse(inverse, shares)


def move_basis(basis: Basis, rows: Array, weights: Array, *, n_evaluations: int) -> tuple[Basis, Positions, Flags]:
    """Move the atoms so that they leave less unexplained of rows (n, d) of weights (n,).

    Returns the new basis, the positions (k,) of its atoms in the old one, as atoms may have met, and which have moved.
    """
    atoms = descend(basis.kernel, basis.atoms, basis.complete(rows), weights, n_evaluations=n_evaluations)
    moved, kept = Basis.empty(basis.kernel, atoms.shape[1], basis.distribution).extend(atoms)
    return moved, kept, (moved.atoms != basis.atoms[kept]).any(axis=1)


def descend(kernel: Kernel, atoms: Array, rows: Array, weights: Array, *, n_evaluations: int) -> Array:
    """Move atoms (m, d) so that they leave less unexplained of rows (n, d) of weights (n,); return them.

    L-BFGS (J. Nocedal, S. Wright, "Numerical Optimization", 2006, algorithms 7.4 and 3.1) with the curvature of each
    atom, less what its neighbours span, as the first guess of the Hessian. Where that is not known, twice as many steps
    are taken. No step loses, so atoms that nothing improves stay, to the bit.
    """
    if not (len(atoms) and weights @ kernel.program.diagonal(rows) > 0.0):
        return atoms
    n, m, d = len(rows), *atoms.shape
    size = n * m * (m + d)
    n_threads, single = blas_threads() if size >= _WORTH_THREADS else 1, size >= _WORTH_ROUNDING
    if n_threads == 1:
        return _descend(Unexplained(kernel, rows, weights, single=single), atoms, n_evaluations)
    with ThreadPoolExecutor(n_threads) as pool:
        return _descend(Unexplained(kernel, rows, weights, pool.map, single=single), atoms, n_evaluations)


def _descend(unexplained: Unexplained, atoms: Array, n_evaluations: int) -> Array:
    here = unexplained(atoms)
    spanned = _span_atoms(unexplained.program, atoms) if here is not None and n_evaluations > 1 else None
    steps: deque[tuple[Array, Array]] = deque(maxlen=_MEMORY)
    # Without what neighbours span, a step gains half as much.
    n_left, length = (n_evaluations - 1) * (2 if spanned is None else 1), _FIRST_LENGTH
    while here is not None and here.value > _EXPLAINED and n_left > 0:
        with np.errstate(over="ignore", invalid="ignore"):
            direction = _newton_direction(here, steps, spanned)
        # Weights that have nearly faded have curvatures whose inverse leaves the range of numbers.
        if not np.isfinite(direction).all():
            break
        slope = float(np.vdot(here.gradient, direction))
        n_left -= 1
        there = unexplained(atoms - length * direction, value_only=not n_left)
        if there is None or there.value > here.value - _LEAST_GAIN * length * slope:
            length *= _SHORTER
            continue
        step, gained = -length * direction, here.value - there.value
        if not n_left:
            return atoms + step
        change = there.gradient - here.gradient
        if np.vdot(step, change) > 0.0:
            steps.append((step, change))
        atoms, here, length = atoms + step, there, 1.0
        if gained < _WORTHWHILE * here.value:
            break
    return atoms


def _span_atoms(program: Program, atoms: Array) -> tuple[Array, Array] | None:
    """Return G and (K - G G^T)^-1 G, (m, s, d) each, for a kernel of squared distances; else None.

    G are the inner products of an atom's derivatives, in units of their lengths, with the s nearest atoms, and K those
    of these atoms with each other. The directions in which phi(z_i) already is in the span of the others have the
    curvature of I - G^T K^-1 G, whose inverse is I + G^T (K - G G^T)^-1 G: there the atom can go far.
    """
    size = min(_NEAREST, len(atoms), _MOST_NUMBERS // atoms.size)
    if not (is_of_squared_distances(program) and size):
        return None
    with np.errstate(all="ignore"):
        values, slopes = program.differentiate(atoms, atoms)
        own = np.diagonal(values)
        lengths = np.outer(np.sqrt(own), np.sqrt(own))
        values = values / lengths
        near = np.argpartition(-values, size - 1, axis=1)[:, :size]
        along, squares = np.zeros((*near.shape, atoms.shape[1])), np.zeros(atoms.shape)
        for matrix, slope in zip(program.base_matrices, slopes, strict=True):
            near_slopes = np.take_along_axis(slope / lengths, near, axis=1)
            along += near_slopes[:, :, None] * own_gradient(matrix, atoms, near)
            squares += curvature_by_rows(matrix, atoms, np.abs(np.diagonal(slope) / own))
        # Features that the kernel does not see have derivatives of length 0, and so they seem at a cusp.
        along = np.where(along == 0.0, 0.0, along / np.sqrt(squares)[:, None])
        left = (1.0 + _LEAST_LEFT) * values[near[:, :, None], near[:, None]] - along @ along.transpose(0, 2, 1)
        left += _RIDGE * np.eye(size)
        try:
            # The lengths are not known at a cusp, nor where units mix features.
            np.linalg.cholesky(np.where(np.isfinite(left), left, -1.0))
        except LinAlgError:
            return None
        return along, np.linalg.inv(left) @ along


def _newton_direction(
    here: Evaluation, steps: deque[tuple[Array, Array]], spanned: tuple[Array, Array] | None
) -> Array:
    """Multiply the gradient by the inverse Hessian that the last steps, the curvature and the span suggest."""

    def apply(slope: Array) -> Array:
        if spanned is None:
            return slope / here.curvature
        roots = np.sqrt(here.curvature)
        part = slope / roots
        return (part + ((spanned[1] @ part[:, :, None]).transpose(0, 2, 1) @ spanned[0])[:, 0]) / roots

    direction = here.gradient.copy()
    shares = []
    for step, change in reversed(steps):
        share = np.vdot(step, direction) / np.vdot(step, change)
        direction -= share * change
        shares.append(share)
    direction = apply(direction)
    if steps:
        step, change = steps[-1]
        direction *= np.vdot(step, change) / np.vdot(change, apply(change))
    for (step, change), share in zip(steps, reversed(shares), strict=True):
        direction += step * (share - np.vdot(change, direction) / np.vdot(step, change))
    return direction
