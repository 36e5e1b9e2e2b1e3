"""The Gaussian model seen through inner products of the candidates that have a weight."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtri

from streamkpca._core._loops import largest_asymmetry
from streamkpca._core.concurrency import cached_property
from streamkpca.errors import SparsityError

Array = npt.NDArray[np.float64]

# The smallest eigenvalue of the covariance is 1; a Cholesky factor may be wrong by r * epsilon * its largest.
_CHOLESKY_ERROR = 1e-8
_SMALLEST_SQUARE = 1e-250
_LARGEST_SQUARE = 1e140


@dataclass(frozen=True, slots=True)
class Problem:
    """What the likelihood depends on besides the weights, in units of the noise variance.

    Parameters
    ----------
    features : ndarray of shape (p, r)
        Coordinates of the candidates.
    second_moment : ndarray of shape (r, r)
        Second moment of the data, divided by the noise variance.
    """

    features: Array
    second_moment: Array


@dataclass(frozen=True, slots=True)
class Statistics:
    """Likelihood and its derivatives for given weights, computed from scratch.

    Parameters
    ----------
    unit_log_likelihood : float
        -(log|C| + tr(C^-1 S)) / 2: the mean log-likelihood but for its constant -r/2 log(2 pi sigma^2).
    half_solved : ndarray of shape (p, r)
        Phi R^-1 with the triangular factor R^T R = C.
    solved, moment_solved : ndarray of shape (p, r)
        Phi C^-1 and Phi C^-1 S.
    diagonal_A, diagonal_Q : ndarray of shape (p,)
        Diagonals of A = Phi C^-1 Phi^T and Q = Phi C^-1 S C^-1 Phi^T.
    """

    unit_log_likelihood: float
    half_solved: Array
    solved: Array
    moment_solved: Array
    diagonal_A: Array
    diagonal_Q: Array

    def matrices(self) -> tuple[Array, Array]:
        """Compute A and Q in full.

        Returns
        -------
        A, Q : ndarray of shape (p, p)
        """
        return self.half_solved @ self.half_solved.T, self.moment_solved @ self.solved.T


def statistics(problem: Problem, weights: Array) -> Statistics:
    """Compute the likelihood and what its derivatives need.

    Parameters
    ----------
    problem : Problem
    weights : ndarray of shape (p,)
        In units of the noise variance.

    Returns
    -------
    Statistics

    Notes
    -----
    C = I + Phi^T W Phi. From C^-1 = I - C^-1 Phi^T W Phi follows tr(C^-1 S) = tr S - sum_i w_i (Phi C^-1 S)_i
    . phi_i, which spares solving for S. O(r^3 + p r^2).
    """
    features, second_moment = problem.features, problem.second_moment
    active = np.flatnonzero(weights)
    log_determinant = 0.0
    half_solved = solved = features
    if active.size:
        factor = covariance_factor(np.sqrt(weights[active])[:, None] * features[active])
        log_determinant = 2.0 * float(np.log(np.abs(np.diagonal(factor))).sum())
        half_solved = solve_triangular(factor, features.T, trans="T", check_finite=False).T
        solved = solve_triangular(factor, half_solved.T, check_finite=False).T
    moment_solved = solved @ second_moment
    explained = np.einsum("i,ij,ij->", weights[active], moment_solved[active], features[active])
    trace = float(np.trace(second_moment) - explained)
    return Statistics(
        unit_log_likelihood=-0.5 * (log_determinant + trace),
        half_solved=half_solved,
        solved=solved,
        moment_solved=moment_solved,
        diagonal_A=np.einsum("ij,ij->i", half_solved, half_solved),
        diagonal_Q=np.einsum("ij,ij->i", moment_solved, solved),
    )


def covariance_factor(scaled: Array) -> Array:
    """Factor I + F^T F = R^T R, by QR of [I; F] where squaring F would cost too many digits.

    Parameters
    ----------
    scaled : ndarray of shape (k, r)
        F.

    Returns
    -------
    ndarray of shape (r, r)
        R, upper triangular.
    """
    r = scaled.shape[1]
    covariance = scaled.T @ scaled
    covariance.flat[:: r + 1] += 1.0
    if r * np.finfo(float).eps * covariance.diagonal().max() < _CHOLESKY_ERROR:
        return np.asarray(cholesky(covariance, overwrite_a=True, check_finite=False))
    return np.asarray(np.linalg.qr(np.vstack([np.eye(r), scaled]), mode="r"))


def posterior_variances(weights: Array, diagonal_A: Array) -> Array:
    """Compute the diagonal of the posterior covariance W - W A W; rounding never makes it negative.

    Parameters
    ----------
    weights, diagonal_A : ndarray of shape (p,)

    Returns
    -------
    ndarray of shape (p,)
    """
    return weights * np.maximum(1.0 - weights * diagonal_A, 0.0)


def make_problem(where: str, features: Any, second_moment: Any, noise_variance: float) -> Problem:
    """Check features and second moment, and divide by the noise variance.

    Parameters
    ----------
    where : str
        Who asks, for the error text.
    features : array-like of shape (p, r)
        Rows shorter than 1e-125 become zero: their weights would overflow.
    second_moment : array-like of shape (r, r)
    noise_variance : float
        Finite and positive.

    Returns
    -------
    Problem

    Raises
    ------
    TypeError, ValueError
        Not finite real matrices, shapes that do not fit, a second moment that is not symmetric or has a
        negative trace, features too large to be squared.
    SparsityError
        A noise variance below the rounding error of the second moment.
    """
    phi = _finite(where, "features", features, 2)
    moment = checked_moment(where, second_moment)
    r = phi.shape[1]
    if 0 in phi.shape:
        raise ValueError(
            f"{where}: features has shape {phi.shape}; at least one candidate and one coordinate are needed"
        )
    if moment.shape != (r, r):
        raise ValueError(
            f"{where}: second_moment has shape {moment.shape} but features has {r} columns; "
            f"expected ({r}, {r}), both in coordinates of the same basis"
        )
    trace = float(np.trace(moment))
    least = float(np.finfo(float).eps) * trace
    if noise_variance < least:
        raise SparsityError(
            f"{where}: noise_variance must be at least {least:.3g}, the rounding error of second_moment, got "
            f"{noise_variance:.3g}; automatic_noise_variance gives one that is large enough"
        )
    with np.errstate(over="ignore"):
        squared_lengths = np.square(phi).sum(axis=1)
    if squared_lengths.max() > _LARGEST_SQUARE:
        raise ValueError(
            f"{where}: features has entries up to {np.abs(phi).max():.3g}, whose powers overflow; divide "
            "features by some length, second_moment and noise_variance by its square"
        )
    if squared_lengths.min() < _SMALLEST_SQUARE:
        phi = np.where(squared_lengths[:, None] < _SMALLEST_SQUARE, 0.0, phi)
    return Problem(phi, moment / noise_variance)


def checked_moment(where: str, second_moment: Any) -> Array:
    """Check a second moment.

    Parameters
    ----------
    where : str
        Who asks, for the error text.
    second_moment : array-like of shape (r, r)

    Returns
    -------
    ndarray of shape (r, r)

    Raises
    ------
    TypeError, ValueError
        Not a finite real matrix, empty, not square, not symmetric, or with a negative trace.
    """
    moment = _finite(where, "second_moment", second_moment, 2)
    if moment.shape[0] != moment.shape[1] or not moment.size:
        raise ValueError(
            f"{where}: second_moment has shape {moment.shape} but must be square and not empty; "
            "pass the mean of c c^T over the data's coordinates c"
        )
    if largest_asymmetry(moment) > 1e-8 * np.abs(moment).max():
        raise ValueError(
            f"{where}: second_moment is not symmetric; pass (M + M.T) / 2 if that is rounding, or look for a mistake"
        )
    trace = float(np.trace(moment))
    if trace < 0.0:
        raise ValueError(f"{where}: second_moment has the negative trace {trace:g}; it cannot be a mean of squares")
    return moment


def unit_weights(where: str, weights: Any, problem: Problem, noise_variance: float) -> Array:
    """Check weights and divide them by the noise variance.

    Parameters
    ----------
    where : str
        Who asks, for the error text.
    weights : array-like of shape (p,)
    problem : Problem
    noise_variance : float

    Returns
    -------
    ndarray of shape (p,)

    Raises
    ------
    TypeError, ValueError
        Another shape, numbers that are negative or not finite, or so large that the covariance overflows.
    """
    values = _finite(where, "weights", weights, 1)
    p = len(problem.features)
    if values.shape != (p,):
        raise ValueError(f"{where}: weights has shape {values.shape} but features has {p} rows; give one weight a row")
    if values.min() < 0.0:
        position = int(values.argmin())
        raise ValueError(
            f"{where}: weights[{position}] is {values[position]} but must not be negative; "
            "use zero to leave a candidate out"
        )
    with np.errstate(over="ignore"):
        unit: Array = values / noise_variance
        if not unit @ np.square(problem.features).sum(axis=1) < _LARGEST_SQUARE:
            raise ValueError(
                f"{where}: weights up to {values.max():g} overflow with noise_variance {noise_variance:g}; "
                "scale features, second_moment and noise_variance to the size of one"
            )
    return unit


def distinct_rows(features: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Find the first of each set of equal rows.

    Parameters
    ----------
    features : ndarray of shape (p, r)

    Returns
    -------
    first : ndarray of int
        Positions of the rows that equal no earlier one, ascending.
    representative : ndarray of int, shape (p,)
        For every row, where in `first` its equal stands.
    """
    p = len(features)
    if len(np.unique(features[:, 0])) == p:
        # Nearly always true, and a tenth of the price of looking at all bytes.
        return np.arange(p), np.arange(p)
    ranks: dict[bytes, int] = {}
    first: list[int] = []
    representative = np.empty(p, dtype=np.intp)
    # Adding zero makes -0.0 and 0.0 the same bytes.
    for position, row in enumerate(features + 0.0):
        rank = ranks.setdefault(row.tobytes(), len(ranks))
        representative[position] = rank
        if rank == len(first):
            first.append(position)
    return np.array(first, dtype=np.intp), representative


def _finite(where: str, name: str, values: Any, n_axes: int) -> Array:
    """Convert to finite float64 in C order with so many axes."""
    if np.iscomplexobj(values):
        raise TypeError(f"{where}: {name} must be real but is complex; pass {name}.real")
    try:
        array = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{where}: {name} must be an array of real numbers ({error}); convert it first") from None
    if array.ndim != n_axes or np.ndim(values) != n_axes:
        raise ValueError(f"{where}: {name} must have {n_axes} axes, got {np.ndim(values)}; reshape it")
    if not np.isfinite(array).all():
        raise ValueError(f"{where}: {name} contains NaN or infinity; drop or repair such rows first")
    return array


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
