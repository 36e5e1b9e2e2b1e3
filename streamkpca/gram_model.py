"""The Gaussian model seen through inner products of the candidates that have a weight."""

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dtrtri

from streamkpca._cached import cached_property

Array = npt.NDArray[np.float64]

# The smallest eigenvalue of G is 1; what is solved with its factor may be wrong by k * epsilon * its largest.
_LARGEST_ERROR = 1e-8


class GramModel:
    r"""Likelihood of k weights, and how it changes with each, at O(k^3) however long the features are.

    Parameters
    ----------
    gram : ndarray of shape (k, k)
        K = Phi Phi^T of these candidates.
    moment_gram : ndarray of shape (k, k)
        T = Phi S Phi^T.
    weights : ndarray of shape (k,)
        In units of the noise variance, positive.

    Attributes
    ----------
    gram, moment_gram, weights : ndarray
    is_reliable : bool
        Whether G could be inverted to eight digits. If not, nothing else is known but `gain`.
    gain : float
        What the weights add to the mean log-likelihood; minus infinity where that is not known.
    precision : ndarray of shape (k, k)
        P = W^1/2 G^-1 W^1/2 with G = I + W^1/2 K W^1/2.

    Notes
    -----
    By Woodbury's identity C^-1 = (I + Phi^T W Phi)^-1 = I - Phi^T P Phi, and by Sylvester's \|C\| = \|G\|, hence

        -(log \|C\| + tr(C^-1 S)) / 2 = -tr(S) / 2 + (tr(P T) - log \|G\|) / 2.

    The second term is `gain`.
    """

    def __init__(self, gram: Array, moment_gram: Array, weights: Array) -> None:
        self.gram, self.moment_gram, self.weights = gram, moment_gram, weights
        k = len(weights)
        roots = np.sqrt(weights)
        self._scaling = roots[:, None] * roots
        self._scaled = gram * self._scaling
        G = self._scaled.copy()
        G.flat[:: k + 1] += 1.0
        # Not a number is not reliable either.
        self.is_reliable = bool(k * np.finfo(float).eps * G.diagonal().max(initial=0.0) < _LARGEST_ERROR)
        factor, failed = dpotrf(G) if self.is_reliable and k else (G, 0)
        self.is_reliable = self.is_reliable and not failed
        self.gain = -np.inf
        if not self.is_reliable:
            return
        inverse_factor = dtrtri(factor)[0] if k else factor
        self._inverse = inverse_factor @ inverse_factor.T
        self.precision = self._inverse * self._scaling
        self.gain = 0.5 * float(np.vdot(self.precision, moment_gram)) - float(np.log(factor.diagonal()).sum())

    @cached_property
    def scaled_matrices(self) -> tuple[Array, Array]:
        """W^1/2 A W^1/2 and W^1/2 Q W^1/2, with A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T, shape (k, k).

        They are free of the units of weights and features. No digits cancel, as they would in A = K - K P K: they are
        G^-1 (G - I) and G^-1 W^1/2 T W^1/2 G^-1.
        """
        return self._inverse @ self._scaled, self._inverse @ (self.moment_gram * self._scaling) @ self._inverse

    def solve(self, gram: Array, moment_gram: Array) -> tuple[Array, Array]:
        """Express C^-1 phi and S C^-1 phi of any candidates by these.

        Parameters
        ----------
        gram, moment_gram : ndarray of shape (k, n)
            Columns of K and T for n candidates, in the rows of these k.

        Returns
        -------
        X : ndarray of shape (k, n)
            C^-1 phi = phi - Phi^T X.
        V : ndarray of shape (k, n)
            Phi S C^-1 phi = T - T_kk X.
        """
        X = self.precision @ gram
        return X, moment_gram - self.moment_gram @ X

    def explained_away(self, columns: Array) -> Array:
        """Multiply by I - K P = W^-1/2 G^-1 W^1/2, without the digits that the difference loses to large weights.

        Parameters
        ----------
        columns : ndarray of shape (k, n)
            Of K, or V of `solve`.

        Returns
        -------
        ndarray of shape (k, n)
            Rows of A = Phi C^-1 Phi^T, or of Q = Phi C^-1 S C^-1 Phi^T.
        """
        roots = np.sqrt(self.weights)[:, None]
        product: Array = self._inverse @ (roots * columns) / roots
        return product
