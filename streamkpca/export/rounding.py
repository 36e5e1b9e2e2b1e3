"""Models in single precision: how large the rounding errors of their answers are."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from streamkpca.export.layout import LARGEST_SINGLE, Layout
from streamkpca.export.model import Formula
from streamkpca.kernels.logarithms import log_values
from streamkpca.kernels.program import Arithmetic

Array = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

# Rounding is measured on up to three times as many rows.
_ROWS = 48


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


def measure_rounding(formula: Formula) -> Rounding:
    """Answer some rows in single precision, and compare with double precision; O(m (d + m)) a row.

    The rows are points halfway between two atoms, a quarter beyond one, and atoms with columns of other atoms: atoms
    themselves are explained too easily. Their errors are between a half and three times those of fresh rows.
    """
    with np.errstate(all="ignore"):
        rows = _probes(formula.rows).astype(np.float32).astype(np.float64)
        fitted, program, steps = formula.fitted, formula.kernel.program, _SingleArithmetic()
        own = program.diagonal(rows)
        level = float(np.abs(program.diagonal(formula.rows)).mean())
        bases = Layout(formula, single=True).base_values(rows)
        values = program.evaluate(bases, steps)
        projected = values[:, formula.axis_rows] @ formula.projection.astype(np.float32)
        projected -= formula.offset.astype(np.float32)
        errors = own.astype(np.float32) - _explained(formula, values)
        novelty, k = errors, formula.own_value()
        if k:
            logs = log_values(program, bases, steps, np.logaddexp, most=LARGEST_SINGLE)
            largest = logs[:, : formula.n_span].max(axis=1, keepdims=True)
            share = 2.0 * largest[:, 0] + np.log(_explained(formula, np.exp(logs - largest))) - np.float32(np.log(k))
            novelty = -np.float32(k) * share
        try:
            answers = [answer(rows) for answer in (fitted.transform, fitted.reconstruction_error, fitted.novelty)]
        except ValueError:
            # Beside atoms of such size, values overflow in double precision too.
            return Rounding(np.nan, np.nan, np.nan, len(rows))
        own, expected = np.abs(own), answers[2]
        return Rounding(
            _largest(projected - answers[0], np.sqrt(np.maximum(own, level))[:, None]),
            _largest(np.maximum(errors, 0.0) - answers[1], own),
            _largest(np.maximum(novelty, 0.0) - expected, own + expected),
            len(rows),
        )


def _largest(errors: Array, scale: Array) -> float:
    return float(np.abs(errors / np.where(scale > 0.0, scale, 1.0)).max())


def _explained(formula: Formula, values: Singles) -> Singles:
    """Sum the squared coordinates of rows with kernel values (n, m); NaN if single precision has no factor."""
    factor, known = formula.factor.astype(np.float32), values[:, : formula.n_span].T
    if not factor.diagonal().all():
        return np.full(len(values), np.nan, dtype=np.float32)
    coordinates: Singles = solve_triangular(factor, known, lower=True, check_finite=False)
    total: Singles = np.square(coordinates).sum(axis=0)
    return total


def _probes(rows: Array) -> Array:
    atoms = rows[np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(np.intp)]
    parts = []
    for shift in range(1, _ROWS // len(atoms) + 1):
        others = np.roll(atoms, shift, axis=0)
        mixed = np.stack([np.roll(column, shift * j) for j, column in enumerate(atoms.T)], axis=1)
        parts += [0.5 * atoms + 0.5 * others, 1.25 * atoms - 0.25 * others, mixed]
    return np.concatenate(parts)


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
