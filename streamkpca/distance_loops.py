"""Compiled loops for distances between rows.

Notation: n left rows and m right rows of d features; a block is the part of an (n, m) result that starts at
``(row, column)``.
"""

from typing import Any

from streamkpca._jit import jit

_TILE = 256

# Below this share of |x|^2 + |y|^2 a squared distance from inner products has lost too many digits. Rounding
# leaves an error of a few 1e-16 of that sum, so what is kept is right to about 1e-13.
_CANCELLED = 1e-2


@jit
def direct_distances(X: Any, Yt: Any, squared: Any, target: Any, row: Any, column: Any) -> None:
    """Write squared or absolute (L1) distances, each a sum over the features.

    Parameters
    ----------
    X : ndarray of shape (rows, d)
        Left rows.
    Yt : ndarray of shape (d, columns)
        Right rows, transposed, so that the inner loop runs along memory.
    squared : bool
        Sum (x - y)^2, else abs(x - y).
    target : ndarray of shape (n, m)
        Takes the block.
    row, column : int
        Where the block starts.
    """
    rows, d = X.shape
    columns = Yt.shape[1]
    for i in range(rows):
        for start in range(0, columns, _TILE):
            width = min(_TILE, columns - start)
            sums = target[row + i, column + start : column + start + width]
            for j in range(width):
                sums[j] = 0.0
            for k in range(d):
                value = X[i, k]
                others = Yt[k, start : start + width]
                if squared:
                    for j in range(width):
                        sums[j] += (value - others[j]) * (value - others[j])
                else:
                    for j in range(width):
                        sums[j] += abs(value - others[j])


@jit
def finish_squared_distances(X: Any, Y: Any, xx: Any, yy: Any, target: Any, row: Any, column: Any) -> None:
    """Turn inner products of centred rows into squared distances, right to nearly the last digit.

    Parameters
    ----------
    X, Y : ndarray of shape (rows, d), (columns, d)
        The rows themselves, not centred.
    xx, yy : ndarray of shape (rows,), (columns,)
        Squared norms of the centred rows.
    target : ndarray of shape (n, m)
        Its block holds the inner products of the centred rows and takes the distances.
    row, column : int
        Where the block starts.

    Notes
    -----
    (x - y)^2 = x^2 + y^2 - 2 x y cancels where x and y are close compared with their distance to the centre.
    Those entries are summed anew from the differences: O(d) each, and rare unless the rows form clusters.
    The test is written so that infinities and NaN, from overflow, fail it.
    """
    rows, d = X.shape
    columns = Y.shape[0]
    for i in range(rows):
        own = xx[i]
        for start in range(0, columns, _TILE):
            width = min(_TILE, columns - start)
            block = target[row + i, column + start : column + start + width]
            norms = yy[start : start + width]
            kept = 0
            for j in range(width):
                total = own + norms[j]
                distance = total - 2.0 * block[j]
                block[j] = distance
                kept += 1 if distance > _CANCELLED * total else 0
            if kept == width:
                continue
            for j in range(width):
                if not block[j] > _CANCELLED * (own + norms[j]):
                    distance = 0.0
                    for k in range(d):
                        difference = X[i, k] - Y[start + j, k]
                        distance += difference * difference
                    block[j] = distance


@jit
def mirror_lower(square: Any, row: Any, column: Any, rows: Any, columns: Any) -> None:
    """Copy what a block holds below the diagonal onto its mirror image.

    Parameters
    ----------
    square : ndarray of shape (n, n)
        Changed in place.
    row, column, rows, columns : int
        Where the block starts, and its extent.

    Notes
    -----
    Tiles of 8 x 8 are one cache line wide on both sides, and writes run along memory.
    """
    for top in range(row, row + rows, 8):
        for left in range(column, column + columns, 8):
            for j in range(left, min(left + 8, column + columns)):
                for i in range(max(top, j + 1), min(top + 8, row + rows)):
                    square[j, i] = square[i, j]
