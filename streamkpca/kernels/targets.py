"""Rows that a kernel compares with again and again, laid out for one row on the other side."""

from itertools import chain

import numpy as np

from streamkpca import kernel_loops as loops
from streamkpca.kernels.planes import Array, Base, Plane, unit_rows
from streamkpca.kernels.programs import Program
from streamkpca.kernels.views import View

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
        all_columns = tuple(range(rows.shape[1]))
        owned = [np.array(all_columns if plane.view.columns is None else plane.view.columns) for plane in planes]
        bounds, columns = np.cumsum([0, *map(len, owned)]), np.concatenate(owned)
        # Rows in units are laid out as the parts are, and divided at once: a loop would divide for each target.
        self._view = None
        if any(plane.view.units for plane in planes):
            units = [plane.view.units or (1.0,) * len(own) for plane, own in zip(planes, owned, strict=True)]
            chosen = tuple(columns.tolist())
            self._view = View(None if chosen == all_columns else chosen, tuple(chain.from_iterable(units)))
            columns = np.arange(len(columns))
        steps = [program.depth, len(program.codes), len(planes), *program.codes, *program.operands]
        layout = [*(_BASES[plane.base] for plane in planes), *bounds, *columns]
        parts = np.concatenate([_part(plane, rows) for plane in planes])
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
        finite = loops.project_rows(*self._prepared, self._seen(X), axes, offset, out)
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
        return out if loops.measure_rows(*self._prepared, self._seen(X), inverse, out) else None

    def _seen(self, X: Array) -> Array:
        return X if self._view is None else self._view.of(X)


def _part(plane: Plane, rows: Array) -> Array:
    seen = plane.view.of(rows)
    return np.ascontiguousarray((unit_rows(seen) if plane.base is Base.COSINE else seen).T)
