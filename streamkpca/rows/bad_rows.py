"""Bad rows, which hold NaN or infinity: refused, or kept out of everything that is learned by weight zero.

With gaps, NaN is a number that is missing, and only infinity, or no number at all, makes a row bad.
"""

import numpy as np

from streamkpca._core._loops import all_finite
from streamkpca._core.arrays import Array, Flags, Names
from streamkpca.rows.parts import RowParts, Rows, change_rows, parts_of


def check_finite(
    rows: Rows, *, gaps: bool = False, learner: str = "", name: str = "X", names: Names | None = None
) -> None:
    """Refuse rows (n, d) with infinity, or NaN without `gaps`; say where the first is, by `names`, and how many."""
    first, remedy, n_bad = "", "drop or impute such rows first", 0
    for place, part in parts_of(rows):
        if all_finite(part):
            continue
        numbers: Flags = ~np.isinf(part) if gaps else np.isfinite(part)
        if numbers.all():
            continue
        if not first:
            row, column = (int(i) for i in np.argwhere(~numbers)[0])
            is_gap = np.isnan(part[row, column])
            where = f"row {place.start + row}, column {column if names is None else repr(names[column])}"
            first = f"{name} contains {'NaN' if is_gap else 'infinity'} (first at {where}; "
            if learner:
                remedy += f', or {learner} missing="skip" to leave them out'
                remedy += ', missing="marginal" to use what they have' if is_gap else ""
        n_bad += len(part) - int(numbers.all(axis=1).sum())
    if first:
        raise ValueError(f"{first}{n_bad} of {len(rows)} rows are not finite); {remedy}")


def usable_rows(rows: Array, *, gaps: bool) -> Flags:
    """Tell which rows (n, d) a model can use: those of finite numbers; with `gaps`, those of some, and NaN."""
    finite = np.isfinite(rows)
    usable = finite.any(axis=1) & ~np.isinf(rows).any(axis=1) if gaps else finite.all(axis=1)
    return np.asarray(usable)


def leave_out(rows: Rows, weights: Array | float, *, gaps: bool = False) -> tuple[Rows, Array | float, int]:
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
