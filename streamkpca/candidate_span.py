"""All candidates, seen from the span of the few that may have a weight."""

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, cho_solve

from streamkpca.gaussian_model import Array, Problem, covariance_factor, statistics

Positions = npt.NDArray[np.intp]

# Generous for what sums of a few hundred products lose.
_ROUNDING = 64.0 * float(np.finfo(float).eps)
# Beyond this share of the candidates, going on in spans costs more than all at once.
_MOST_CHOSEN = 0.7


class CandidateSpan:
    """Candidates chosen so far, an orthonormal basis of their span, and what all others need to be judged from it.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    chosen : ndarray of int
        Positions of the chosen candidates, in the order in which they came.

    Notes
    -----
    Notation: p candidates, r coordinates, b columns of the basis B (r, b); the first product with the second moment
    costs O(p r^2), a choice of k more O(p r k + r b^2), judging all candidates O(p b^2).
    """

    def __init__(self, problem: Problem) -> None:
        features, second_moment = problem.features, problem.second_moment
        p, r = features.shape
        self._problem = problem
        self._squares = np.einsum("ij,ij->i", features, features)
        # Only the diagonal of Phi S Phi^T is wanted, and a triangle of S gives it for half of the product.
        half = blas.dtrmm(1.0, second_moment.T, features.T, lower=1).T
        self._energies = 2.0 * np.einsum("ij,ij->i", half, features) - np.square(features) @ np.diagonal(second_moment)
        self._trace = float(np.trace(second_moment))
        self.chosen: Positions = np.empty(0, dtype=np.intp)
        self._basis, self._coordinates, self._crossed = np.empty((r, 0)), np.empty((p, 0)), np.empty((p, 0))
        self._moment = np.empty((0, 0))

    def choose(self, candidates: Positions) -> None:
        """Add candidates, or all when these make them most, and extend the basis by what is new in them.

        Parameters
        ----------
        candidates : ndarray of int
            None of them chosen before.
        """
        if not candidates.size:
            return
        features, second_moment = self._problem.features, self._problem.second_moment
        p = len(features)
        self.chosen = np.concatenate([self.chosen, candidates])
        if len(self.chosen) > _MOST_CHOSEN * p:
            self.chosen = np.concatenate([self.chosen, np.setdiff1d(np.arange(p), self.chosen)])
            self._coordinates, self._moment = features, second_moment
            return
        # Householder's columns are orthonormal even where the candidates are dependent; Gram-Schmidt's would not be.
        joined = np.linalg.qr(np.hstack([self._basis, features[candidates].T]))[0]
        new = joined[:, self._basis.shape[1] :]
        moved = second_moment @ new
        self._coordinates = np.hstack([self._coordinates, features @ new])
        self._crossed = np.hstack([self._crossed, features @ moved])
        across = self._basis.T @ moved
        self._moment = np.block([[self._moment, across], [across.T, new.T @ moved]])
        self._basis = np.hstack([self._basis, new])

    def problem(self) -> Problem:
        """Return the problem of the chosen candidates alone, in coordinates of the basis.

        Returns
        -------
        Problem
            With k chosen: features of shape (k, b), second moment of shape (b, b).

        Notes
        -----
        Without weights elsewhere the covariance is the identity outside the span, so this problem's likelihood
        differs from the whole one by `log_likelihood_beyond` whatever the weights.
        """
        return Problem(self._coordinates[self.chosen], self._moment)

    def log_likelihood_beyond(self) -> float:
        """Return what the coordinates outside the span add to the likelihood: minus half of their second moment."""
        return -0.5 * (self._trace - float(np.trace(self._moment)))

    def gains_of_others(self, weights: Array, least_gain: float) -> Array:
        r"""Compute how much a weight for one more candidate would raise the mean log-likelihood.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            In units of the noise variance, zero for all that are not chosen.
        least_gain : float
            Gains above this have to be told from those below.

        Returns
        -------
        ndarray of shape (p,)
            Zero for those that are chosen or have nothing to gain.

        Notes
        -----
        With c = B^T phi, Z = I - (I + sum_i w_i c_i c_i^T)^-1 and z = Z c is C^-1 phi = phi - B z, hence

            s = phi^T phi - c . z,  q = phi^T S phi - 2 (B^T S phi) . z + z^T (B^T S B) z,

        and the gain is (x - log(1 + x)) / 2 with x = q / s - 1 > 0. An error of x near 0 costs its square. Where the
        differences lose too many digits for that, all is computed anew from triangular factors.
        """
        gains = np.zeros(len(weights))
        others = self._squares > 0.0
        others[self.chosen] = False
        if not others.any():
            return gains
        c = self._coordinates
        scaled = np.sqrt(weights[self.chosen])[:, None] * c[self.chosen]
        z = c - cho_solve((covariance_factor(scaled), False), c.T, check_finite=False).T if self.chosen.size else c
        s = self._squares - np.einsum("ij,ij->i", c, z)
        q = self._energies + np.einsum("ij,ij->i", z @ self._moment - 2.0 * self._crossed, z)
        lost = _ROUNDING * (self._squares + self._energies)[others]
        if not (lost * lost <= least_gain * s[others] * np.abs(s[others])).all():
            found = statistics(self._problem, weights)
            s, q = found.diagonal_A, found.diagonal_Q
        excess = np.maximum(q[others] / s[others] - 1.0, 0.0)
        gains[others] = 0.5 * (excess - np.log1p(excess))
        return gains
