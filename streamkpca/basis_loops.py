"""Jitted loops of the orthonormal basis."""

import numpy as np
import numpy.typing as npt

from streamkpca._jit import jit


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
