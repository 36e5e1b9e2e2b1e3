"""Compiled loops of the checks of input."""

from typing import Any

import numpy as np

from streamkpca._core.jit import jit

_LARGEST = float(np.finfo(np.float64).max)


@jit
def largest_asymmetry(square: Any) -> Any:
    """Return the largest difference between an entry and its mirror image.

    Parameters
    ----------
    square : ndarray of shape (m, m)
        Finite.

    Returns
    -------
    float

    Notes
    -----
    Tiles of 8 x 8 are one cache line wide on both sides.
    """
    m = len(square)
    largest = 0.0
    for top in range(0, m, 8):
        for left in range(0, top + 1, 8):
            for i in range(top, min(top + 8, m)):
                for j in range(left, min(left + 8, i)):
                    largest = max(largest, abs(square[i, j] - square[j, i]))
    return largest


@jit
def all_finite(rows: Any) -> Any:
    """Say whether every number is finite.

    Parameters
    ----------
    rows : ndarray of shape (n, d)

    Returns
    -------
    bool

    Notes
    -----
    By comparison alone: arithmetic such as x - x may be folded to 0 where sums are reordered. A row takes no early
    exit, so that its loop can use vector instructions.
    """
    n, d = rows.shape
    for i in range(n):
        count = 0
        for j in range(d):
            count += 1 if abs(rows[i, j]) <= _LARGEST else 0
        if count < d:
            return False
    return True
