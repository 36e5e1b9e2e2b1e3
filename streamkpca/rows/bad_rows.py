"""Rows with NaN or infinity that a stream leaves out, or keeps as rows with gaps; `validation` refuses the others."""

import numpy as np

from streamkpca._core._loops import all_finite
from streamkpca._core.arrays import Array, Flags
from streamkpca.rows.validation import RowParts, Rows, change_rows, parts_of


def usable_rows(rows: Array, *, gaps: bool) -> Flags:
    """Tell which rows (n, d) a model can use: those of finite numbers; with `gaps`, those of some, and NaN."""
    finite = np.isfinite(rows)
    usable = finite.any(axis=1) & ~np.isinf(rows).any(axis=1) if gaps else finite.all(axis=1)
    return np.asarray(usable)


def without_bad_rows(rows: Rows, weights: Array | float, *, gaps: bool = False) -> tuple[Rows, Array | float, int]:
    """Give rows with NaN or infinity weight zero, and zeros in their places; return also how many they were.

    With `gaps`, NaN are gaps: only rows with infinity, or without any number, are bad.
    """
    if not isinstance(rows, RowParts) and all_finite(rows):
        return rows, weights, 0
    good = np.concatenate([usable_rows(part, gaps=gaps) for _, part in parts_of(rows)])
    n_bad = len(rows) - int(np.count_nonzero(good))
    if not n_bad and not gaps:
        return rows, weights, 0

    def clean(part: Array) -> Array:
        kept = np.where(usable_rows(part, gaps=gaps)[:, None], part, 0.0)
        # One NaN for all: what sets the others apart would decide which rows are drawn into samples.
        return np.where(np.isnan(kept), np.nan, kept)

    return change_rows(rows, clean), np.where(good, weights, 0.0) if n_bad else weights, n_bad
