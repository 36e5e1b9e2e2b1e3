"""All candidates, seen through their inner products with the few that may have a weight."""

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from streamkpca._cached import cached_property
from streamkpca.gaussian_model import Array, Problem, Statistics, statistics
from streamkpca.gram_model import GramModel
from streamkpca.weight_newton import polish

Positions = npt.NDArray[np.intp]

# Up to so many active candidates, or so many for each coordinate, their inner products are cheaper than all features.
_FEW, _FEW_OF = 128, 0.5
# Generous for what sums of a few hundred products lose.
_ROUNDING = 64.0 * float(np.finfo(float).eps)


class CandidateGram:
    """Rows of K = Phi Phi^T and T = Phi S Phi^T, computed when first asked for, and both diagonals.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    problem : Problem
    squares, energies : ndarray of shape (p,)
        Diagonals of K and T.
    trace : float
        Trace of S.

    Notes
    -----
    p candidates, r coordinates: O(p r^2) for the diagonal of T, O(k r (p + r)) for k rows.
    """

    def __init__(self, problem: Problem) -> None:
        features, second_moment = problem.features, problem.second_moment
        p = len(features)
        self.problem = problem
        self.squares = np.einsum("ij,ij->i", features, features)
        # Only the diagonal of Phi S Phi^T is wanted, and a triangle of S gives it for half of the product.
        half = blas.dtrmm(1.0, second_moment.T, features.T, lower=1).T
        self.energies = 2.0 * np.einsum("ij,ij->i", half, features) - np.square(features) @ np.diagonal(second_moment)
        self.trace = float(np.trace(second_moment))
        self._place = np.full(p, -1)
        self._gram, self._moment_gram = np.empty((0, p)), np.empty((0, p))

    def rows(self, candidates: Positions) -> tuple[Array, Array]:
        """Return rows of both matrices.

        Parameters
        ----------
        candidates : ndarray of int of shape (k,)

        Returns
        -------
        gram, moment_gram : ndarray of shape (k, p)
        """
        missing = candidates[self._place[candidates] < 0]
        if missing.size:
            features = self.problem.features
            new = features[missing]
            self._place[missing] = len(self._gram) + np.arange(len(missing))
            self._gram = np.vstack([self._gram, new @ features.T])
            self._moment_gram = np.vstack([self._moment_gram, new @ self.problem.second_moment @ features.T])
        places = self._place[candidates]
        return self._gram[places], self._moment_gram[places]

    def weighted(self, weights: Array) -> "WeightedFew":
        """Return the model with these weights.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            In units of the noise variance, few of them not zero.

        Returns
        -------
        WeightedFew
        """
        active = np.flatnonzero(weights)
        model = None
        if active.size <= max(_FEW, _FEW_OF * self.problem.features.shape[1]):
            gram, moment_gram = self.rows(active)
            model = GramModel(gram[:, active], moment_gram[:, active], weights[active])
        return WeightedFew(self, active, weights[active], model if model and model.is_reliable else None)


class WeightedFew:
    """The model with weights for few candidates: its likelihood, and how that changes with the weight of any.

    Parameters
    ----------
    candidates : CandidateGram
    active : ndarray of int of shape (k,)
        Positions of the candidates that have a weight.
    weights : ndarray of shape (k,)
        Theirs.
    model : GramModel or None
        Of these; None where inner products cost or lose too much. All is computed from triangular factors then, in
        O(r^3 + p r^2).

    Attributes
    ----------
    active : ndarray of int
    """

    def __init__(self, candidates: CandidateGram, active: Positions, weights: Array, model: GramModel | None) -> None:
        self.active, self._active_weights = active, weights
        self._candidates, self._model = candidates, model
        self._loses_digits = False

    @property
    def weights(self) -> Array:
        """Weights of all candidates, shape (p,)."""
        weights = np.zeros(len(self._candidates.squares))
        weights[self.active] = self._active_weights
        return weights

    @property
    def can_be_polished(self) -> bool:
        """Whether Newton's method is for these weights."""
        return self._model is not None

    @cached_property
    def log_likelihood(self) -> float:
        """Mean log-likelihood but for its constant."""
        if self._model:
            return self._model.gain - 0.5 * self._candidates.trace
        return self._statistics.unit_log_likelihood

    def reweighted(self, weights: Array) -> "WeightedFew":
        """Return the model with other weights, shape (p,)."""
        return self._candidates.weighted(weights)

    def polished(self, least_gain: float) -> "WeightedFew":
        """Maximise over the weights that are not zero; some may become zero.

        Parameters
        ----------
        least_gain : float
            Gains below this do not count.

        Returns
        -------
        WeightedFew
            Nowhere less likely than this.
        """
        if not self._model:
            return self
        kept, model = polish(self._model, least_gain)
        return WeightedFew(self._candidates, self.active[kept], model.weights, model)

    def diagonals(self, least_gain: float) -> tuple[Array, Array]:
        r"""Compute what decides the gain of changing any one weight.

        Parameters
        ----------
        least_gain : float
            Gains above this have to be told from those below.

        Returns
        -------
        diagonal_A, diagonal_Q : ndarray of shape (p,)
            Of A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T.

        Notes
        -----
        With X and V of `GramModel.solve` these are K_ii - K_i . X_i and T_ii - (T_i + V_i) . X_i: O(p k^2). The gain of
        a new weight is (x - log(1 + x)) / 2 with x = Q_ii / A_ii - 1 > 0, so an error of x near 0 costs its square.
        Where the differences lose too many digits for that, all is computed anew from triangular factors.
        """
        squares, energies = self._candidates.squares, self._candidates.energies
        if not self.active.size:
            return squares.copy(), energies.copy()
        if not self._model:
            return self._statistics.diagonal_A, self._statistics.diagonal_Q
        gram, moment_gram = self._candidates.rows(self.active)
        X, V = self._model.solve(gram, moment_gram)
        a = squares - np.einsum("ij,ij->j", gram, X)
        q = energies - np.einsum("ij,ij->j", moment_gram + V, X)
        # Entries of X may be large where active candidates resemble each other.
        reach = np.sqrt(squares[self.active] + energies[self.active]) @ np.abs(X)
        lost = _ROUNDING * (squares + energies + reach * reach)
        lost[self.active] = 0.0
        self._loses_digits = not (lost * lost <= least_gain * a * np.abs(a)).all()
        if self._loses_digits:
            return self._statistics.diagonal_A, self._statistics.diagonal_Q
        A, Q = self._model.scaled_matrices
        a[self.active] = A.diagonal() / self._model.weights
        q[self.active] = Q.diagonal() / self._model.weights
        return a, q

    def matrices(self, newcomers: Positions) -> tuple[Array, Array]:
        """Compute A and Q among the active and others, in the way in which `diagonals` were computed last.

        Parameters
        ----------
        newcomers : ndarray of int of shape (n,)
            None of them active.

        Returns
        -------
        A, Q : ndarray of shape (k + n, k + n)
            The active first.
        """
        working, k = np.concatenate([self.active, newcomers]), self.active.size
        if not self._model or self._loses_digits:
            found = self._statistics
            half = found.half_solved[working]
            return half @ half.T, found.moment_solved[working] @ found.solved[working].T
        # Indexing would give columns one after another, for which the loop would be compiled once more.
        gram, moment_gram = (rows.take(working, axis=1) for rows in self._candidates.rows(working))
        if not k:
            return gram, moment_gram
        X, V = self._model.solve(gram[:k], moment_gram[:k])
        across_A, across_Q = self._model.explained_away(gram[:k]), self._model.explained_away(V)
        A = gram - gram[:k].T @ X
        Q = moment_gram - moment_gram[:k].T @ X - X.T @ V
        A[:k], A[:, :k] = across_A, across_A.T
        Q[:k], Q[:, :k] = across_Q, across_Q.T
        scales = np.sqrt(self._model.weights)
        A[:k, :k], Q[:k, :k] = (matrix / np.outer(scales, scales) for matrix in self._model.scaled_matrices)
        return A, Q

    @cached_property
    def _statistics(self) -> Statistics:
        return statistics(self._candidates.problem, self.weights)
