"""Models in single precision: how large the rounding errors of their answers are, and what keeps them small."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from streamkpca.export.model import Formula
from streamkpca.kernels.logarithms import log_values
from streamkpca.kernels.program import Arithmetic, Base, PairwiseMatrix, unit_rows

Array = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

# Rounding is measured on up to three times as many rows.
_ROWS = 48
_EPS = float(np.finfo(np.float32).eps)
# Its square is finite in single precision.
LARGEST_SINGLE = 1e18


@dataclass(frozen=True)
class Rounding:
    """Rounding errors of the answers, measured in single precision; NaN where the model's numbers are beyond that.

    `projection` is the largest error of a projection, relative to the root of k(x, x), or of its mean over the atoms if
    that is larger. `error` is the largest error of a reconstruction error, relative to k(x, x), and `novelty` that of a
    novelty score, relative to k(x, x) plus the score. All were measured on `n_rows` rows.
    """

    projection: float
    error: float
    novelty: float
    n_rows: int

    def in_double(self) -> "Rounding":
        """Return what to expect in double precision: the same number of roundings, each of them smaller."""
        ratio = float(np.finfo(np.float64).eps) / _EPS
        return Rounding(self.projection * ratio, self.error * ratio, self.novelty * ratio, self.n_rows)


def measure_rounding(formula: Formula) -> Rounding:
    """Answer some rows in single precision, and compare with double precision.

    Notes
    -----
    O(m (d + m)) a row. The rows are points halfway between two atoms, a quarter beyond one, and atoms with columns
    of other atoms: atoms themselves are explained too easily. In 36 fits with twelve kernels this was between a half
    and three times of what fresh rows showed, and what double precision lost, in units of its own rounding, was the
    same to a factor of 2: atoms that nearly depend on each other amplify rounding alike in any precision.
    """
    with np.errstate(all="ignore"):
        singles = _probes(formula.rows).astype(np.float32)
        rows = singles.astype(np.float64)
        program = formula.kernel.program
        own = np.abs(program.diagonal(rows))
        level = float(np.abs(program.diagonal(formula.rows)).mean())
        bases = [_base_matrix(matrix, rows, formula.rows) for matrix in program.base_matrices]
        values = program.evaluate(bases, _SingleArithmetic())
        projected = values[:, formula.axis_rows] @ formula.projection.astype(np.float32)
        projected -= formula.offset.astype(np.float32)
        errors = program.diagonal(rows).astype(np.float32)
        for coordinate in _coordinates(formula, values):
            errors = errors - coordinate * coordinate
        beside = np.abs(projected - formula.transform(rows)).max(axis=1) / np.sqrt(np.maximum(own, level))
        off = np.abs(np.maximum(errors, 0.0) - formula.reconstruction_error(rows)) / np.where(own > 0.0, own, 1.0)
        return Rounding(
            float(beside.max()), float(off.max()), _error_of_novelty(formula, rows, bases, errors), len(rows)
        )


def _error_of_novelty(formula: Formula, rows: Array, bases: list[Singles], errors: Singles) -> float:
    """Score rows (n, d) in single precision; return the largest error, relative to k(x, x) and the score together."""
    expected, own = formula.novelty(rows), formula.own_value()
    found = errors
    if own:
        logs = log_values(formula.kernel.program, bases, _SingleArithmetic(), np.logaddexp, most=LARGEST_SINGLE)
        largest = logs[:, : formula.n_span].max(axis=1, keepdims=True)
        explained = np.float32(0.0)
        for coordinate in _coordinates(formula, np.exp(logs - largest)):
            explained = explained + coordinate * coordinate
        share = np.float32(2.0) * largest[:, 0] + np.log(explained) - np.float32(np.log(own))
        found = np.float32(-own) * share
    scale = np.abs(formula.kernel.program.diagonal(rows)) + expected
    off = np.abs(np.maximum(found, 0.0) - expected) / np.where(scale > 0.0, scale, 1.0)
    return float(off.max())


def _coordinates(formula: Formula, values: Singles) -> Singles:
    """Solve for the coordinates (s, n) of rows with kernel values (n, m); NaN if single precision has no factor."""
    factor, known = formula.factor.astype(np.float32), values[:, : formula.n_span].T
    if not factor.diagonal().all():
        return np.full_like(known, np.nan)
    found: Singles = solve_triangular(factor, known, lower=True, check_finite=False)
    return found


def single_centre(rows: Array) -> Array:
    """Choose what single precision subtracts from rows (m, d) before it takes their distances, a number a column.

    It is the mean where that exceeds the spread, as a single precision number, and 0 where rounding an atom loses no
    more than rounding its difference to the mean does.
    """
    mean = rows.mean(axis=0)
    centre: Array = np.where(np.abs(mean) > np.abs(rows - mean).max(axis=0), mean, 0.0)
    return centre.astype(np.float32).astype(np.float64)


def single_units(units: Array) -> Array:
    """Round units to single precision, for rows and atoms alike; those beyond it become 0 or infinite."""
    with np.errstate(all="ignore"):
        return units.astype(np.float32).astype(np.float64)


def _probes(rows: Array) -> Array:
    atoms = rows[np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(np.intp)]
    parts = []
    for shift in range(1, _ROWS // len(atoms) + 1):
        others = np.roll(atoms, shift, axis=0)
        mixed = np.stack([np.roll(column, shift * j) for j, column in enumerate(atoms.T)], axis=1)
        parts += [0.5 * atoms + 0.5 * others, 1.25 * atoms - 0.25 * others, mixed]
    return np.concatenate(parts)


def _base_matrix(matrix: PairwiseMatrix, rows: Array, atoms: Array) -> Singles:
    rows, atoms = matrix.view.selected(rows), matrix.view.selected(atoms)
    if matrix.base in (Base.SQUARED, Base.ABSOLUTE):
        centre = single_centre(atoms)
        rows, atoms = rows - centre, atoms - centre
    if matrix.view.matrix is not None:
        factors = single_units(matrix.view.matrix.entries)
        rows = (rows.astype(np.float32) @ factors.T.astype(np.float32)).astype(np.float64)
        atoms = atoms @ factors.T
    elif matrix.view.divisors is not None:
        units = single_units(matrix.view.divisors)
        rows, atoms = (rows / units).astype(np.float32).astype(np.float64), atoms / units
    if matrix.base is Base.COSINE:
        rows, atoms = unit_rows(rows), unit_rows(atoms)
    if matrix.base is Base.EQUAL:
        return np.array([(row == atoms).sum(axis=1) for row in rows], dtype=np.float32)
    left, right = rows.astype(np.float32), atoms.astype(np.float32)
    if matrix.base in (Base.INNER, Base.COSINE):
        return left @ right.T
    # Row by row, because all differences at once would be d times the size of the result.
    power = np.square if matrix.base is Base.SQUARED else np.abs
    return np.array([power(row - right).sum(axis=1) for row in left], dtype=np.float32)


class _SingleArithmetic(Arithmetic[Singles]):
    """Steps on arrays of single precision."""

    def affine(self, x: Singles, a: float, b: float) -> Singles:
        return np.float32(a) * x + np.float32(b)

    def minimum(self, x: Singles, most: float) -> Singles:
        return np.minimum(x, np.float32(most))

    def add(self, x: Singles, y: Singles) -> Singles:
        return x + y

    def multiply(self, x: Singles, y: Singles) -> Singles:
        return x * y

    def apply(self, function: str, x: Singles) -> Singles:
        result: Singles = getattr(np, function)(x)
        return result
