"""Jitted loops of the search for atoms."""

import numpy as np
import numpy.typing as npt

from streamkpca._core.jit import jit


@jit
def gram_schmidt(
    gram: npt.NDArray[np.float64],
    floor: npt.NDArray[np.float64],
    factor: npt.NDArray[np.float64],
    accepted: npt.NDArray[np.int64],
) -> int:
    """Orthonormalise rows that are known by their inner products alone.

    Parameters
    ----------
    gram : ndarray of shape (s, s)
        Inner products of the rows.
    floor : ndarray of shape (s,)
        A row counts as dependent when its squared distance to the rows before it is at most this.
    factor : ndarray of shape (s, s)
        Output. Row a holds the coordinates of the a-th independent row; zero above the diagonal.
    accepted : ndarray of shape (s,) of int64
        Output. Positions of the independent rows, in order.

    Returns
    -------
    int
        Number of independent rows.

    Notes
    -----
    Notation: G = gram, L = factor. L[j, l] = (G[j, l] - sum_{t<l} L[j, t] L[l, t]) / L[l, l] and
    L[j, j]^2 = G[j, j] - sum_{t<j} L[j, t]^2: classical Gram-Schmidt carried out on inner products, which is the
    Cholesky factorisation taken row by row. O(s^3 / 3).

    References
    ----------
    .. [1] S. Martin, "An approximate version of kernel PCA", ICMLA 2006: the inner-product Gram-Schmidt process.
    """
    count = 0
    for j in range(gram.shape[0]):
        pivot = gram[j, j]
        for a in range(count):
            inner = gram[j, accepted[a]]
            for t in range(a):
                inner -= factor[count, t] * factor[a, t]
            inner /= factor[a, a]
            factor[count, a] = inner
            pivot -= inner * inner
        # Written so that a NaN pivot is refused too.
        if pivot > floor[j]:
            factor[count, count] = np.sqrt(pivot)
            for t in range(count + 1, gram.shape[0]):
                factor[count, t] = 0.0
            accepted[count] = j
            count += 1
    return count


Array = npt.NDArray[np.float64]


@jit
def add_rank_one(
    gram: Array, left: Array, right: Array, scale: float, weights: Array, squares: Array, fourths: Array
) -> None:
    """Change residual inner products by one direction and sum their powers anew.

    Parameters
    ----------
    gram : ndarray of shape (s, n)
        Residual inner products R of s candidates with n rows; overwritten by R + l r^T.
    left : ndarray of shape (s,)
        l: the candidates' coordinates along the direction, negated when it joins the span.
    right : ndarray of shape (n,)
        r: the rows' coordinates along the direction.
    scale : float
        Factor that keeps powers of R in range.
    weights : ndarray of shape (n,)
        Row weights a.
    squares, fourths : ndarray of shape (s,)
        Output: sum_i a_i (scale R_ji)^2 and sum_i a_i (scale R_ji)^4 for each candidate j.

    Notes
    -----
    One pass over R, O(s n): the update is bound by memory, so the sums that the next choice needs come free.
    """
    for j in range(gram.shape[0]):
        multiple = left[j]
        square_sum = 0.0
        fourth_sum = 0.0
        for i in range(gram.shape[1]):
            value = gram[j, i] + multiple * right[i]
            gram[j, i] = value
            square = (scale * value) * (scale * value)
            square_sum += weights[i] * square
            fourth_sum += weights[i] * square * square
        squares[j] = square_sum
        fourths[j] = fourth_sum


@jit
def subtract_outer(matrix: Array, left: Array, right: Array) -> None:
    """Subtract l r^T from a matrix in place.

    Parameters
    ----------
    matrix : ndarray of shape (n, m)
        Overwritten.
    left : ndarray of shape (n,)
    right : ndarray of shape (m,)
    """
    for i in range(matrix.shape[0]):
        multiple = left[i]
        if multiple != 0.0:
            for j in range(matrix.shape[1]):
                matrix[i, j] -= multiple * right[j]


@jit
def add_column(products: Array, column: Array, square: float, multiples: Array) -> None:
    """Change the Gram matrix of some columns by adding multiples of one vector to them.

    Parameters
    ----------
    products : ndarray of shape (k, k)
        Inner products of columns a_i; overwritten by those of a_i + g_i c.
    column : ndarray of shape (k,)
        (a_i, c) before the change.
    square : float
        (c, c).
    multiples : ndarray of shape (k,)
        g.
    """
    k = len(products)
    for i in range(k):
        multiple = multiples[i]
        # (a_i + g_i c, c): with it the row takes one pass.
        shifted = column[i] + multiple * square
        for j in range(k):
            products[i, j] += shifted * multiples[j] + multiple * column[j]


@jit
def remove_direction(place: int, share: Array, precision: Array, recorded: Array) -> None:
    """Take an atom out of the dual quantities of all others.

    Parameters
    ----------
    place : int
        Of the atom j that goes.
    share : ndarray of shape (m,)
        P_i = P_ij / P_jj.
    precision : ndarray of shape (m, m)
        P = K^-1, the inner products of the dual vectors w_i; overwritten.
    recorded : ndarray of shape (m, m)
        Q, the recorded second moment between dual vectors; overwritten.

    Notes
    -----
    The dual vectors of the others become orthogonal to w_j: w_i <- w_i - (P_ij / P_jj) w_j. Row and column j of
    both end as zeros. O(m^2).
    """
    m = precision.shape[0]
    pivot = precision[place, place]
    moment = recorded[place, place]
    cross = recorded[place].copy()
    for i in range(m):
        for j in range(m):
            precision[i, j] -= pivot * share[i] * share[j]
            recorded[i, j] += share[i] * share[j] * moment - share[i] * cross[j] - cross[i] * share[j]
    for i in range(m):
        # Zero but for rounding, which would come back as the moment of a direction that no longer exists.
        precision[place, i] = precision[i, place] = 0.0
        recorded[place, i] = recorded[i, place] = 0.0


@jit
def insert_direction(place: int, share: Array, inverse_pivot: float, precision: Array) -> None:
    """Put a new atom into the inner products of the dual vectors.

    Parameters
    ----------
    place : int
        Free place for the new atom p; its row and column are zero.
    share : ndarray of shape (m,)
        (phi_p, w_i) over the length of the new direction r.
    inverse_pivot : float
        1 over that length.
    precision : ndarray of shape (m, m)
        P; overwritten.

    Notes
    -----
    w_p = r / |r|^2 and w_i <- w_i - (phi_p, w_i) r / |r|^2. Nothing is recorded along r yet, so Q stays. O(m^2).
    """
    m = precision.shape[0]
    change = -share
    change[place] = inverse_pivot
    for i in range(m):
        for j in range(m):
            precision[i, j] += change[i] * change[j]
