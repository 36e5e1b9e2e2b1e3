"""Compiled loops of the input checks."""

from typing import Any

import numpy as np

from streamkpca._core.jit import jit

_LARGEST = float(np.finfo(np.float64).max)


@jit
def all_finite(rows: Any) -> Any:
    """Return whether every number of (n, d) rows is finite.

    Notes
    -----
    By comparison alone: arithmetic such as x - x may be folded to 0 where sums are reordered. The loop over a row
    never exits early, so that it can use vector instructions.
    """
    n, d = rows.shape
    for i in range(n):
        count = 0
        for j in range(d):
            count += 1 if abs(rows[i, j]) <= _LARGEST else 0
        if count < d:
            return False
    return True
