"""Compiled loops of the checks of input."""

from typing import Any

from streamkpca._jit import jit


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
    x - x is 0 unless x is infinite or NaN. A row takes no early exit, so that its loop can use vector instructions.
    """
    n, d = rows.shape
    for i in range(n):
        differences = 0.0
        for j in range(d):
            differences += abs(rows[i, j] - rows[i, j])
        if not differences == 0.0:
            return False
    return True
