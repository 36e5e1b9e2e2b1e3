"""How the noise variance sets the number of active candidates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.params import check_integer, check_real
from streamkpca._core.triangular import independent_span
from streamkpca.components.likelihood import Array, checked_moment, make_problem
from streamkpca.components.spectrum import leading_eigenpairs
from streamkpca.components.weights import WeightFit, fit_weights

_LEAST_SHARE = 1e-10
_COARSE_STEP, _FINE_STEP = 0.5, 0.97
_FITS_NEAR_START = 8


@dataclass(frozen=True, slots=True, eq=False)
class NoiseSearch:
    """The noise variance that leaves so many candidates active.

    Parameters
    ----------
    noise_variance : float
    fit : WeightFit
        The weights there.
    exact : bool
        Whether `fit` has the number of active candidates that was asked for; otherwise it has the largest
        smaller number that the search met.
    """

    noise_variance: float
    fit: WeightFit
    exact: bool


@dataclass(frozen=True, slots=True, eq=False)
class SparsityPath:
    """Fits along a range of noise variances.

    Parameters
    ----------
    noise_variances : ndarray of shape (n,)
        As given.
    weights : ndarray of shape (n, p)
    n_active : ndarray of int, shape (n,)
        How many weights are not zero.
    mean_log_likelihoods : ndarray of shape (n,)
    captured_variances : ndarray of shape (n,)
        Trace of the data's covariance within the span of the active candidates.
    mean_reconstruction_errors : ndarray of shape (n,)
        Mean squared distance of the data to that span.
    converged : ndarray of bool, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import SparseKernelPCA
    >>> from streamkpca.kernels import RBF
    >>> model = SparseKernelPCA(2, kernel=RBF(1.0)).fit(np.linspace(0.0, 3.0, 30)[:, None])
    >>> path = model.sparsity_path()
    >>> sparse_enough = path.n_active <= 5
    >>> round(float(path.noise_variances[sparse_enough].min()), 3)  # the least noise that leaves 5 rows
    0.071
    """

    noise_variances: Array
    weights: Array
    n_active: npt.NDArray[np.intp]
    mean_log_likelihoods: Array
    captured_variances: Array
    mean_reconstruction_errors: Array
    converged: npt.NDArray[np.bool_]


def automatic_noise_variance(second_moment: Any, n_components: int) -> float:
    """Choose the noise variance that leaves so many axes above the noise.

    Parameters
    ----------
    second_moment : array-like of shape (r, r)
        Covariance of the data in an orthonormal basis.
    n_components : int
        Number q of axes that are to stand out.

    Returns
    -------
    float
        The (q + 1)-th eigenvalue, but at least 1e-10 times the trace. That is also the answer when q >= r,
        where every axis is to stand out and all eigenvalues that are left are zero. For a second moment of
        zero, which no noise variance can make active, it is the smallest normal number.

    Raises
    ------
    TypeError, ValueError
        Not a symmetric finite matrix of a positive size; less than one component.

    Notes
    -----
    Eigenvalues below the floor are noise in any case: they come from products of numbers with sixteen digits,
    and the likelihood loses as many digits as noise and trace are apart. O(r^3).

    References
    ----------
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13 (2001): axes whose eigenvalue
    exceeds sigma^2 are kept, the others are explained by the noise.

    Examples
    --------
    >>> from streamkpca.components.noise import automatic_noise_variance
    >>> automatic_noise_variance([[3.0, 0.0], [0.0, 1.0]], 1)
    1.0
    >>> automatic_noise_variance([[3.0, 0.0], [0.0, 1.0]], 2)
    4e-10
    """
    where = "automatic_noise_variance"
    n_components = check_integer("n_components", n_components, least=1, where=where)
    moment = checked_moment(where, second_moment)
    trace = float(np.trace(moment))
    r = len(moment)
    next_eigenvalue = 0.0
    if n_components < r:
        next_eigenvalue = float(leading_eigenpairs(moment, n_components + 1)[0][-1])
    return max(next_eigenvalue, _LEAST_SHARE * trace, float(np.finfo(float).tiny))


def noise_variance_for(
    n_active: int,
    features: Any,
    second_moment: Any,
    *,
    start: tuple[Array, float] | None = None,
    tolerance: float = 1e-10,
    max_fits: int = 100,
) -> NoiseSearch:
    """Search for the noise variance that leaves exactly so many candidates active.

    Parameters
    ----------
    n_active : int
        How many weights shall not be zero, from 1 to p.
    features : array-like of shape (p, r)
        Coordinates of the candidates in an orthonormal basis.
    second_moment : array-like of shape (r, r)
        Covariance of the data in that basis.
    start : (ndarray of shape (p,), float), optional
        Weights and noise variance of the last search, for data that resemble its data.
    tolerance : float
        Of each fit, as for `fit_weights`.
    max_fits : int
        Most fits to spend on the search, besides up to eight near the start.

    Returns
    -------
    NoiseSearch
        Where the count jumps over `n_active`, the nearest below, with ``exact=False``.

    Raises
    ------
    TypeError, ValueError
        As `fit_weights`; also a count outside 1 to p.

    Notes
    -----
    With a start, its noise is tried first, then steps of 3 % from there, and between them: data that changed little
    need one fit or a few. Where eight do not do, and without a start, the search begins at the largest eigenvalue,
    where nothing is active. The noise is halved until as many are active as wanted (or it reaches the floor of
    `automatic_noise_variance`); the last halving is gone over in steps of 3 %, and if the count jumps over the
    wanted one between two of them, they are bisected on the logarithmic scale until they are within one part in
    1e6. Each fit starts from the weights at the noisy end. The count is not monotone in the noise, so several
    ranges may leave as many; this finds the noisiest that is not narrower than a step.

    References
    ----------
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13 (2001), sets the noise by the
    number of kernels that remain.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.components.noise import noise_variance_for
    >>> found = noise_variance_for(2, np.eye(3), np.diag([4.0, 2.0, 1.0]))
    >>> found.exact, found.fit.active
    (True, array([0, 1]))
    >>> 1.0 <= found.noise_variance < 2.0
    True
    """
    where = "noise_variance_for"
    n_active = check_integer("n_active", n_active, least=1, where=where)
    max_fits = check_integer("max_fits", max_fits, least=1, where=where)
    moment = checked_moment(where, second_moment)
    floor = automatic_noise_variance(moment, len(moment))
    problem = make_problem(where, features, moment, floor)
    p = len(problem.features)
    if n_active > p:
        raise ValueError(f"{where}: n_active is {n_active} but features has {p} rows; ask for at most {p}")

    if start is not None:
        near, noise = start
        too_few, too_many = np.inf, 0.0
        for _ in range(_FITS_NEAR_START):
            fit = fit_weights(problem.features, moment, max(noise, floor), initial_weights=near, tolerance=tolerance)
            if len(fit.active) == n_active:
                return NoiseSearch(max(noise, floor), fit, exact=True)
            if len(fit.active) > n_active:
                too_many = noise
                noise = min(noise / _FINE_STEP, float(np.sqrt(noise * too_few)))
            else:
                too_few = noise
                noise = max(noise * _FINE_STEP, float(np.sqrt(noise * too_many)))

    noisy = max(float(leading_eigenpairs(moment, 1)[0][0]), floor)
    quiet: float | None = None
    best_noise, best = noisy, fit_weights(problem.features, moment, noisy, tolerance=tolerance)
    warm, step = best.weights, _COARSE_STEP
    coarse: tuple[float, WeightFit] | None = None
    for _ in range(max_fits - 1):
        if len(best.active) == n_active or (noisy == floor if quiet is None else noisy <= quiet * (1.0 + 1e-6)):
            break
        noise = max(step * noisy, floor) if quiet is None else float(np.sqrt(noisy * quiet))
        fit = fit_weights(problem.features, moment, noise, initial_weights=warm, tolerance=tolerance)
        count = len(fit.active)
        if count >= n_active and step == _COARSE_STEP:
            # The count is not monotone: only small steps find the noisiest of the ranges that leave so many.
            step = _FINE_STEP
            if count == n_active:
                coarse = noise, fit
            continue
        if count > n_active:
            quiet = noise
            continue
        noisy, warm = noise, fit.weights
        if count >= len(best.active):
            best_noise, best = noise, fit
    if coarse is not None and len(best.active) != n_active:
        best_noise, best = coarse
    return NoiseSearch(best_noise, best, exact=len(best.active) == n_active)


def sparsity_path(
    features: Any,
    second_moment: Any,
    noise_variances: Any,
    *,
    describe_span: Callable[[Array], tuple[float, float]] | None = None,
    tolerance: float = 1e-10,
    max_rounds: int | None = None,
) -> SparsityPath:
    """Fit weights along a range of noise variances, each from the weights of the one before.

    Parameters
    ----------
    features : array-like of shape (p, r)
        Coordinates of the candidates in an orthonormal basis.
    second_moment : array-like of shape (r, r)
        Covariance of the data in that basis.
    noise_variances : array-like of shape (n,)
        In the order in which they are to be visited; descending noise adds candidates one after
        another.
    describe_span : callable, optional
        Given the weights (p,), returns the variance that the span of the active candidates captures and the mean
        squared distance of the data to it. By default the active rows of `features` span it, and data have
        no other variance than `second_moment`.
    tolerance, max_rounds : float, int
        Of each fit, as for `fit_weights`.

    Returns
    -------
    SparsityPath

    Raises
    ------
    TypeError, ValueError
        As `fit_weights`; also a range that is empty or has more than one axis.

    Notes
    -----
    By default the captured variance is tr(U^T S U) for an orthonormal basis U of the active candidates.
    O(k r min(k, r)) a fit for it.

    References
    ----------
    M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13 (2001): sparsity against noise.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.components.noise import sparsity_path
    >>> path = sparsity_path(np.eye(3), np.diag([4.0, 2.0, 1.0]), [5.0, 3.0, 1.5])
    >>> path.n_active, path.captured_variances
    (array([0, 1, 2]), array([0., 4., 6.]))
    """
    where = "sparsity_path"
    moment = checked_moment(where, second_moment)
    noises = np.atleast_1d(np.asarray(noise_variances))
    if noises.ndim != 1 or not noises.size:
        raise ValueError(
            f"{where}: noise_variances must be a list of at least one number, got shape {noises.shape}; "
            "pass for example np.geomspace(1.0, 1e-3, 20)"
        )
    values = [check_real("noise_variances", v, least=0.0, open_below=True, where=where) for v in noises.tolist()]
    phi = make_problem(where, features, moment, max(values)).features
    fits: list[WeightFit] = []
    weights: Array | None = None
    for noise in values:
        fit = fit_weights(phi, moment, noise, initial_weights=weights, tolerance=tolerance, max_rounds=max_rounds)
        weights = fit.weights
        fits.append(fit)

    def describe(weights: Array) -> tuple[float, float]:
        captured = second_moment_within(independent_span(phi[weights > 0.0])[2], moment)
        return captured, max(float(np.trace(moment)) - captured, 0.0)

    captured, errors = np.array([(describe_span or describe)(fit.weights) for fit in fits]).T
    return SparsityPath(
        noise_variances=np.array(values),
        weights=np.array([fit.weights for fit in fits]),
        n_active=np.array([len(fit.active) for fit in fits], dtype=np.intp),
        mean_log_likelihoods=np.array([fit.mean_log_likelihood for fit in fits]),
        captured_variances=captured,
        mean_reconstruction_errors=errors,
        converged=np.array([fit.converged for fit in fits]),
    )


def second_moment_within(rotation: Array, second_moment: Array) -> float:
    """Compute the trace of a second moment within a span.

    Parameters
    ----------
    rotation : ndarray of shape (k, r)
        Orthonormal rows.
    second_moment : ndarray of shape (r, r)

    Returns
    -------
    float
    """
    return float(np.einsum("ij,ij->", rotation @ second_moment, rotation))
