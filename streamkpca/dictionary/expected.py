"""Kernel values of rows with gaps: their expectations, the missing numbers being normal given the others of the row.

RBF and Linear have closed forms, in any units, on any columns, and times any number. Others take the expected row.
"""

from typing import Any, NamedTuple

import numpy as np

from streamkpca._core._loops import tilt_apart, tilt_together
from streamkpca._core.arrays import Array, Flags
from streamkpca._core.concurrency import cached_property
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.base import Kernel
from streamkpca.kernels.program import Base, Program
from streamkpca.rows.gaps import RowDistribution, gaps_in

# Rows with gaps that are integrated at a time.
_CHUNK = 256


class Compared(NamedTuple):
    """Rows (n, d) compared with atoms; a row with gaps counts as its expected image.

    `kernel_rows` (n, m) are E k(x, z) with atoms z; `energy` (n,) is the squared length of the image; `spread` (n,) is
    E k(x, x) less that length, the variance of the image.
    """

    kernel_rows: Array
    energy: Array
    spread: Array


class ClosedForm(NamedTuple):
    """c exp(-width D) of a squared distance D, or c S of an inner product S, whose width is 0."""

    coefficient: float
    width: float


def closed_form(program: Program) -> ClosedForm | None:
    """Return the form of a kernel whose expectations are known; None of any other kernel."""
    base = program.base_matrices[0].base
    if len(program.base_matrices) > 1 or base not in (Base.INNER, Base.SQUARED):
        return None
    factor, width = 1.0, 0.0
    for code, (a, b) in zip(program.codes[1:].tolist(), program.constants[1:].tolist(), strict=True):
        if code == loops.AFFINE and b == 0.0:
            factor *= a
        elif code == loops.EXP and base is Base.SQUARED and width == 0.0:
            factor, width = 1.0, -factor
        else:
            return None
    return ClosedForm(factor, width) if (width > 0.0) == (base is Base.SQUARED) else None


class ExpectedKernel:
    """A settled kernel of rows with gaps against complete atoms, given the distribution of complete rows."""

    def __init__(self, kernel: Kernel, distribution: RowDistribution) -> None:
        self.kernel, self.distribution = kernel, distribution
        self._program = kernel.program
        self._form = closed_form(self._program)

    def compare(self, rows: Array, atoms: Array) -> Compared:
        """Evaluate the kernel for rows (n, d) with themselves and with atoms (m, d), integrating over gaps.

        O(n m (d + g^2)) for g gaps of a row, and O(m d^2) once; the values of a row depend on no other row.
        """
        missing = gaps_in(rows)
        if missing is None:
            return self._plain(rows, atoms)
        out = Compared(np.empty((len(rows), len(atoms))), np.empty(len(rows)), np.zeros(len(rows)))
        has_gaps = missing.any(axis=1)
        self._put(out, ~has_gaps, self._plain(rows[~has_gaps], atoms))
        places = np.flatnonzero(has_gaps)
        for start in range(0, len(places), _CHUNK):
            some = places[start : start + _CHUNK]
            whole = self.distribution.complete(rows[some])
            if self._form is None:
                self._put(out, some, self._plain(whole, atoms))
            elif self._form.width:
                self._put(out, some, self._gaussian(self._form, whole, missing[some], atoms))
            else:
                plain = self._plain(whole, atoms)
                spread = self._form.coefficient * self._variances(missing[some])
                self._put(out, some, plain._replace(spread=spread))
        return out

    def _plain(self, rows: Array, atoms: Array) -> Compared:
        """Evaluate the kernel for complete rows."""
        return Compared(self._program.matrix(rows, atoms), self._program.diagonal(rows), np.zeros(len(rows)))

    def _put(self, out: Compared, places: Any, found: Compared) -> None:
        for target, values in zip(out, found, strict=True):
            target[places] = values

    @cached_property
    def _metric(self) -> Array:
        """The metric (d, d) for columns in scales; its diagonal (d,) if metric and precision are diagonal."""
        features, scale = self._program.base_matrices[0].features, self.distribution.scale
        columns = slice(None) if features.columns is None else np.array(features.columns)
        diagonal = np.zeros(len(scale))
        diagonal[columns] = 1.0 if features.divisors is None else 1.0 / features.divisors**2
        if self.distribution.is_independent:
            return diagonal * scale**2
        return np.diag(diagonal) * scale * scale[:, None]

    @cached_property
    def _precision(self) -> Array:
        distribution = self.distribution
        return np.eye(len(distribution.mean)) if distribution.is_independent else distribution.precision

    def _gaussian(self, form: ClosedForm, rows: Array, missing: Flags, atoms: Array) -> Compared:
        """Integrate c exp(-width D) over the gaps of rows (b, d), each of which has some and is completed."""
        distribution = self.distribution
        stiffness = form.width * self._metric
        # Columns that never vary have no scale, and their gaps no variance.
        unit = np.where(distribution.scale > 0.0, distribution.scale, 1.0)

        def pull(rows: Array) -> Array:
            away = (rows - distribution.mean) / unit
            return away * stiffness if stiffness.ndim == 1 else away @ stiffness

        starts = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
        gaps = np.nonzero(missing)[1].astype(np.int64)
        tilts, own = np.empty((len(rows), len(atoms))), np.empty(len(rows))
        with np.errstate(all="ignore"):
            exponent = -(form.width * self._program.base_values(np.ascontiguousarray(rows), atoms)[0])
            pulls = pull(rows), np.ascontiguousarray(pull(atoms).T)
            if stiffness.ndim == 1:
                tilt_apart(starts, gaps, stiffness, *pulls, tilts, own)
            else:
                tilt_together(starts, gaps, self._precision, stiffness, *pulls, tilts, own)
            exponent += tilts
            np.exp(np.minimum(exponent, 0.0, out=exponent), out=exponent)
            exponent *= form.coefficient
            energy = form.coefficient * np.exp(own)
        return Compared(exponent, energy, np.maximum(form.coefficient - energy, 0.0))

    def _variances(self, missing: Flags) -> Array:
        """Return the sum of the variances of x in the base matrix' units, for rows with gaps (b, d)."""
        metric = np.diag(self._metric) if self._metric.ndim == 1 else self._metric
        blocks = [np.ix_(gaps, gaps) for gaps in map(np.flatnonzero, missing)]
        return np.array([np.trace(np.linalg.solve(self._precision[block], metric[block])) for block in blocks])
