"""Rows that a kernel compares with again and again, laid out for one row on the other side."""

import numpy as np

from streamkpca import kernel_loops as loops
from streamkpca.kernels.planes import Array, Base, Plane, unit_rows
from streamkpca.kernels.programs import Program

_BASES = {
    Base.INNER: loops.INNER,
    Base.COSINE: loops.COSINE,
    Base.SQUARED: loops.SQUARED,
    Base.ABSOLUTE: loops.ABSOLUTE,
}


class Targets:
    """A kernel program with its right side prepared.

    Parameters
    ----------
    program : Program
        Without functions of the caller.
    rows : ndarray of shape (m, d)

    Notes
    -----
    With few rows on the left, matrix products and numpy's calls cost more than the arithmetic: this goes from the row
    to the answer in one compiled call.
    """

    def __init__(self, program: Program, rows: Array) -> None:
        planes = program.planes
        owned = [np.arange(rows.shape[1]) if plane.columns is None else np.array(plane.columns) for plane in planes]
        steps = [program.depth, len(program.codes), len(planes), *program.codes, *program.operands]
        layout = [*(_BASES[plane.base] for plane in planes), *np.cumsum([0, *map(len, owned)]), *np.concatenate(owned)]
        parts = np.concatenate([_part(plane, rows[:, columns]) for plane, columns in zip(planes, owned, strict=True)])
        self._prepared = np.array(steps + layout, dtype=np.int64), program.constants, parts

    def project(self, X: Array, axes: Array, offset: Array) -> Array | None:
        """Project rows onto axes, k(x, Z) P - offset.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        axes : ndarray of shape (q, m)
            P, transposed.
        offset : ndarray of shape (q,)

        Returns
        -------
        ndarray of shape (n, q), or None
            None where an answer is not finite.
        """
        out = np.empty((len(X), len(offset)))
        finite = loops.project_rows(*self._prepared, X, axes, offset, out)
        return out if finite else None

    def measure(self, X: Array, inverse: Array) -> Array | None:
        """Measure squared distances of rows to the span of the targets.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        inverse : ndarray of shape (m, m)
            Lower triangular L^-1, with L L^T = k(targets, targets).

        Returns
        -------
        ndarray of shape (n,), or None
            None where an answer is not finite.
        """
        out = np.empty(len(X))
        return out if loops.measure_rows(*self._prepared, X, inverse, out) else None


def _part(plane: Plane, rows: Array) -> Array:
    return np.ascontiguousarray((unit_rows(rows) if plane.base is Base.COSINE else rows).T)
