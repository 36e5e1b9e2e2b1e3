"""Noise variances that leave a number of candidates active, or the fewest that hold nearly all variance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.components.spectrum import leading_eigenpairs, leading_sum
from streamkpca.components.weights import WeightFit

# The least noise variance of a search, as a share of the largest.
_LEAST_SHARE = 1e-10
# Factor of the noise variance from one fit to the next, until enough candidates are active.
_COARSE_STEP = 0.5
# Factor of the noise variance from one fit to the next, near the number of candidates that is wanted.
_FINE_STEP = 0.97
# Fits near the noise variance that a search starts from.
_FITS_NEAR_START = 8
# Fits of a whole search.
_MOST_FITS = 100


@dataclass(frozen=True, slots=True, eq=False)
class NoiseSearch:
    """The noise variance of a search for a number of active candidates, and the fit there.

    `exact` is false where the fit has the largest smaller number that the search met.
    """

    noise_variance: float
    fit: WeightFit
    exact: bool


def least_noise_variance(second_moment: Array) -> float:
    """Return the least noise that is searched, above zero; the likelihood loses the digits that separate it from S."""
    return max(_LEAST_SHARE * float(np.trace(second_moment)), float(np.finfo(float).tiny))


def noise_variance_for(
    n_active: int, fit_at: Callable[..., WeightFit], second_moment: Array, *, start: tuple[Array, float] | None = None
) -> NoiseSearch:
    """Search for the noise variance that leaves exactly this many of p candidates active, from 1 to p.

    ``fit_at(noise_variance, initial_weights=None)`` is `fit_weights` of the candidates and the second moment (r, r).
    `start` holds the weights (p,) and the noise variance of the last search, for data that resemble its data. Its noise
    is tried first, then steps of 3 % from there, and between them.

    Where eight fits are not enough, and without a start, the search begins at the largest eigenvalue, where nothing is
    active. The noise is halved until at least as many are active as wanted; the last halving is repeated in steps of
    3 %, and if the count jumps over the wanted one between two of them, they are bisected until they are within one
    part in 1e6. The count is not monotone in the noise, so several ranges may leave as many; this finds the noisiest
    that is not narrower than a step, or else the nearest count below.
    """
    least = least_noise_variance(second_moment)
    if start is not None:
        near, noise = start
        too_few, too_many = np.inf, 0.0
        for _ in range(_FITS_NEAR_START):
            fit = fit_at(max(noise, least), initial_weights=near)
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
        fit = fit_at(noise, initial_weights=warm)
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


# The loss falls about as this power of the noise: as powers of 1.4 to 7 on six data sets.
_LOSS_ORDER = 3.0
# Part of the allowed loss that is aimed at. One atom of a hundred is about a tenth.
_AIM = 0.85
# Part of the allowed loss from which on a start is kept.
_KEPT = 0.7
# Least part of the allowed loss that counts.
_COUNTED = 1e-3
# The search ends when the noise variances on both sides are within this factor.
_NARROW = 1.01
# Fits of such a search.
_MOST_FITS_TO_HOLD = 30


class _Trial(NamedTuple):
    """A noise variance, the share of variance that the candidates active there lose, and their number."""

    noise_variance: float
    loss: float
    n_active: int


def fewest_that_hold(
    n_components: int,
    most_lost: float,
    fit_at: Callable[..., WeightFit],
    second_moment: Array,
    span_of: Callable[[Array], Array],
    *,
    start: tuple[Array, float] | None = None,
) -> NoiseSearch | None:
    """Search for the noise variance that leaves the fewest active whose span holds nearly all variance on q axes.

    Within the span, the sum of the q largest eigenvalues of the second moment (r, r) may be less by the share
    `most_lost`, and at least as many candidates must be active as there are axes with variance. `span_of` takes weights
    (p,) and returns orthonormal rows (k, r). None where no noise variance leaves enough. `fit_at` and `start` are as
    for `noise_variance_for`.

    The search begins at the noise of `start`, or else at the (q + 1)-th eigenvalue, and interpolates between the
    logarithms of noise and loss. It ends where the noisier end of a bracket loses too much, and leaves at most one
    candidate less or is within 1 %; sooner where as many are active as axes, or with a start where at least seven
    tenths of the allowance are lost.
    """
    least = least_noise_variance(second_moment)
    eigenvalues = leading_eigenpairs(second_moment, min(n_components + 1, len(second_moment)))[0]
    held_by_all = float(eigenvalues[:n_components].sum())
    n_needed = int(np.count_nonzero(eigenvalues[:n_components] > least))
    # Nothing is active at the largest eigenvalue.
    noisy = _Trial(max(float(eigenvalues[0]), least), 1.0, 0)
    quiet = found = None
    weights, noise = start or (None, float(eigenvalues[n_components]) if n_components < len(eigenvalues) else least)
    noise = min(max(noise, least), noisy.noise_variance)
    for n_fits in range(1, _MOST_FITS_TO_HOLD + 1):
        fit = fit_at(noise, initial_weights=weights)
        weights, n_active, span = fit.weights, len(fit.active), span_of(fit.weights)
        held = leading_sum(span @ second_moment @ span.T, n_components)
        loss = max(1.0 - held / held_by_all, _COUNTED * most_lost)
        if n_active < n_needed or loss > most_lost:
            if noise == least:
                break
            # Too few to span the axes count as a loss for which the noise is halved.
            noisy = _Trial(noise, loss if n_active >= n_needed else max(loss, 2.0**_LOSS_ORDER * most_lost), n_active)
        else:
            quiet = _Trial(noise, loss, n_active)
            if found is None or n_active <= len(found.fit.active):
                found = NoiseSearch(noise, fit, exact=True)
            if n_active == n_needed or (start is not None and loss >= _KEPT * most_lost):
                break
        if quiet and (quiet.n_active <= noisy.n_active + 1 or noisy.noise_variance <= _NARROW * quiet.noise_variance):
            break
        noise = max(_next_noise(noisy, quiet, _AIM * most_lost, bisect=n_fits % 3 == 0), least)
    return found


def _next_noise(noisy: _Trial, quiet: _Trial | None, aim: float, *, bisect: bool) -> float:
    """Return the noise where a loss near `aim` is expected: within the bracket, or down to a quarter of its one end."""
    highest = np.log(noisy.noise_variance)
    lowest = highest - np.log(4.0) if quiet is None else np.log(quiet.noise_variance)
    if quiet is None or noisy.n_active == 0:
        end = noisy if quiet is None else quiet
        expected = np.log(end.noise_variance) + np.log(aim / end.loss) / _LOSS_ORDER
    else:
        expected = lowest + (highest - lowest) * np.log(aim / quiet.loss) / np.log(noisy.loss / quiet.loss)
    if bisect and quiet is not None:
        expected = 0.5 * (lowest + highest)
    margin = min(0.1 * (highest - lowest), 0.015)
    return float(np.exp(np.clip(expected, lowest + margin, highest - margin)))
