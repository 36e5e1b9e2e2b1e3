"""How the noise variance decides how many candidates are active: chosen, searched for, or followed along a path."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.params import check_real
from streamkpca._core.triangular import independent_span
from streamkpca.components.likelihood import Array
from streamkpca.components.spectrum import leading_eigenpairs
from streamkpca.components.weights import Optimiser, WeightFit, fit_weights

_LEAST_SHARE = 1e-10
_COARSE_STEP, _FINE_STEP = 0.5, 0.97
_FITS_NEAR_START, _MOST_FITS = 8, 100


@dataclass(frozen=True, slots=True, eq=False)
class NoiseSearch:
    """The noise variance of a search for a number of active candidates, and the fit there.

    Where `exact` is false, the fit has the largest smaller number that the search met.
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


def automatic_noise_variance(second_moment: Array, n_components: int) -> float:
    """Return the (q + 1)-th eigenvalue of a second moment (r, r), so that the likelihood keeps q axes, in O(r^3).

    It is at least 1e-10 times the trace, which is also the answer when q >= r: eigenvalues below that are noise in any
    case, for they come from products of numbers with sixteen digits, and the likelihood loses as many digits as noise
    and trace are apart. For a second moment of zero it is the smallest normal number.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.components.noise import automatic_noise_variance
    >>> automatic_noise_variance(np.diag([3.0, 1.0]), 1), automatic_noise_variance(np.diag([3.0, 1.0]), 2)
    (1.0, 4e-10)
    """
    next_eigenvalue = 0.0
    if n_components < len(second_moment):
        next_eigenvalue = float(leading_eigenpairs(second_moment, n_components + 1)[0][-1])
    return max(next_eigenvalue, _LEAST_SHARE * float(np.trace(second_moment)), float(np.finfo(float).tiny))


def noise_variance_for(
    n_active: int,
    features: Array,
    second_moment: Array,
    *,
    optimiser: Optimiser = "coordinate",
    start: tuple[Array, float] | None = None,
) -> NoiseSearch:
    """Search for the noise variance that leaves exactly this many of the candidates (p, r) active, from 1 to p.

    `start` holds the weights (p,) and the noise variance of the last search, for data that resemble its data.

    Notes
    -----
    Tipping's experiments (2001) set the noise by the number of kernels that remain.

    With a start, its noise is tried first, then steps of 3 % from there, and between them: data that changed little
    need one fit or a few. Where eight are not enough, and without a start, the search begins at the largest eigenvalue,
    where nothing is active. The noise is halved until at least as many are active as wanted (or it reaches the least
    value of `automatic_noise_variance`); the last halving is repeated in steps of 3 %, and if the count jumps over the
    wanted one between two of them, they are bisected on the logarithmic scale until they are within one part in
    1e6. Each fit starts from the weights at the noisy end; at most a hundred follow the eight near a start.
    The count is not monotone in the noise, so several ranges may leave as many; this finds the noisiest that is not
    narrower than a step. Where the count jumps over the wanted one the nearest below is returned.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.components.noise import noise_variance_for
    >>> found = noise_variance_for(2, np.eye(3), np.diag([4.0, 2.0, 1.0]))
    >>> found.exact, found.fit.active, 1.0 <= found.noise_variance < 2.0
    (True, array([0, 1]), True)
    """
    least = automatic_noise_variance(second_moment, len(second_moment))

    def fit_at(noise: float, weights: Array | None = None) -> WeightFit:
        return fit_weights(features, second_moment, noise, optimiser=optimiser, initial_weights=weights)

    if start is not None:
        near, noise = start
        too_few, too_many = np.inf, 0.0
        for _ in range(_FITS_NEAR_START):
            fit = fit_at(max(noise, least), near)
            if len(fit.active) == n_active:
                return NoiseSearch(max(noise, least), fit, exact=True)
            if len(fit.active) > n_active:
                too_many = noise
                noise = min(noise / _FINE_STEP, float(np.sqrt(noise * too_few)))
            else:
                too_few = noise
                noise = max(noise * _FINE_STEP, float(np.sqrt(noise * too_many)))

    noisy = max(float(leading_eigenpairs(second_moment, 1)[0][0]), least)
    quiet: float | None = None
    best_noise, best = noisy, fit_at(noisy)
    warm, step = best.weights, _COARSE_STEP
    coarse: tuple[float, WeightFit] | None = None
    for _ in range(_MOST_FITS - 1):
        if len(best.active) == n_active or (noisy == least if quiet is None else noisy <= quiet * (1.0 + 1e-6)):
            break
        noise = max(step * noisy, least) if quiet is None else float(np.sqrt(noisy * quiet))
        fit = fit_at(noise, warm)
        count = len(fit.active)
        if count >= n_active and step == _COARSE_STEP:
            # The count is not monotone: only small steps find the noisiest of the ranges with the same count.
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
    features: Array,
    second_moment: Array,
    noise_variances: Any,
    *,
    optimiser: Optimiser = "coordinate",
    describe_span: Callable[[Array], tuple[float, float]] | None = None,
) -> SparsityPath:
    """Fit weights (p,) along a range of noise variances, each from the weights of the one before.

    `describe_span` takes the weights and returns the variance that the span of the active candidates captures and the
    mean squared distance of the data to it. By default the active rows of `features` span it, in O(k r min(k, r)) a
    fit, and the data have no other variance than `second_moment`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.components.noise import sparsity_path
    >>> path = sparsity_path(np.eye(3), np.diag([4.0, 2.0, 1.0]), [5.0, 3.0, 1.5])
    >>> path.n_active, path.captured_variances
    (array([0, 1, 2]), array([0., 4., 6.]))
    """
    where = "sparsity_path"
    noises = np.atleast_1d(np.asarray(noise_variances))
    if noises.ndim != 1 or not noises.size:
        raise ValueError(
            f"{where}: noise_variances must be a list of at least one number, got shape {noises.shape}; "
            "pass for example np.geomspace(1.0, 1e-3, 20)"
        )
    values = [check_real("noise_variances", v, least=0.0, open_below=True, where=where) for v in noises.tolist()]
    fits: list[WeightFit] = []
    weights: Array | None = None
    for noise in values:
        fits.append(fit_weights(features, second_moment, noise, optimiser=optimiser, initial_weights=weights))
        weights = fits[-1].weights

    def describe(weights: Array) -> tuple[float, float]:
        captured = second_moment_within(independent_span(features[weights > 0.0])[2], second_moment)
        return captured, max(float(np.trace(second_moment)) - captured, 0.0)

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
    """Compute the trace of a second moment (r, r) within the span of orthonormal rows (k, r)."""
    return float(np.einsum("ij,ij->", rotation @ second_moment, rotation))
