"""Rows as exports compare them: the columns that each base matrix sees, centred, in units, or of length 1."""

from dataclasses import dataclass

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca.export.formula import Formula
from streamkpca.kernels.program import Base, PairwiseMatrix, unit_rows

# Its square is finite in single precision.
LARGEST_SINGLE = 1e18


@dataclass(frozen=True, eq=False)
class Segment:
    """Numbers of a row from position `start` on, which one or several base matrices compare.

    They are the columns (all, if None) less the centre (c,), divided by units (c,), and scaled to length 1 with
    `is_unit`. With `single`, units are rounded, for rows and atoms alike.
    """

    start: int
    width: int
    columns: Positions | None
    centre: Array | None
    units: Array | None
    is_unit: bool
    single: bool

    def of(self, rows: Array) -> Array:
        """Return the numbers (n, width) of rows (n, d)."""
        seen: Array = rows if self.columns is None else rows[:, self.columns]
        if self.centre is not None:
            seen = seen - self.centre
        if self.units is not None:
            seen = seen / (self.units.astype(np.float32).astype(np.float64) if self.single else self.units)
        return unit_rows(seen) if self.is_unit else seen


class RowSegments:
    """The segments of a formula's rows, one beside the other, and the rows of the formula in this form.

    `atoms` (m, p) are these rows; with `single` they take part in single precision, but are not rounded yet.
    """

    def __init__(self, formula: Formula, *, single: bool) -> None:
        self.single = single
        self.matrices = formula.kernel.program.base_matrices
        self.segments: list[Segment] = []
        known: dict[object, Segment] = {}
        self.of_matrix = []
        for matrix in self.matrices:
            # Rounding atoms far from the origin would spoil the distances between them.
            is_centred = single and matrix.base in (Base.SQUARED, Base.ABSOLUTE)
            key = matrix.features, matrix.base is Base.COSINE, is_centred
            if key not in known:
                known[key] = self._segment(matrix, formula.rows, is_centred=is_centred)
                self.segments.append(known[key])
            self.of_matrix.append(known[key])
        self.width = sum(segment.width for segment in self.segments)
        # Numbers beyond single precision are refused where they are written.
        with np.errstate(all="ignore"):
            self.atoms: Array = np.concatenate([segment.of(formula.rows) for segment in self.segments], axis=1)

    def _segment(self, matrix: PairwiseMatrix, rows: Array, *, is_centred: bool) -> Segment:
        features, columns = matrix.features, matrix.features.select(rows)
        centre = centre_of(columns) if is_centred else np.zeros(1)
        return Segment(
            start=sum(segment.width for segment in self.segments),
            width=features.width(rows.shape[1]),
            columns=None if features.columns is None else np.array(features.columns, dtype=np.int64),
            centre=centre if centre.any() else None,
            units=features.divisors,
            is_unit=matrix.base is Base.COSINE,
            single=self.single,
        )


def centre_of(rows: Array) -> Array:
    """Choose the point that is subtracted from rows (m, d) before their distances are taken, a number a column.

    It is the mean where that exceeds the spread, and 0 where rounding an atom loses no more than rounding its
    difference to the mean does.
    """
    mean = rows.mean(axis=0)
    centre: Array = np.where(np.abs(mean) > np.abs(rows - mean).max(axis=0), mean, 0.0)
    with np.errstate(all="ignore"):
        return centre.astype(np.float32).astype(np.float64)
