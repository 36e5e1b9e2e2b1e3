"""Certificates: bounds of the eigenvalues, which are certain, and from a random sample how much is captured."""

import math

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.reservoir import Reservoir
from streamkpca.components.snapshot import Snapshot
from streamkpca.components.spectrum import covariance_divisor, recorded_variance
from streamkpca.dictionary.moments import Moments, RowSums

# Share of the mean energy that rounding may move eigenvalues by, beyond the rounding in the account of losses.
_ROUNDING = 1e-9

# Bets risk at most this share of what they stand to lose, so that no single row ruins them.
_LARGEST_BET = 0.75

# Ends of an interval in [0, 1] are found to this: where one row is a billion times the average, seven digits are left.
_PRECISION = 1e-16


def eigenvalue_bounds(moments: Moments, active: Moments, eigenvalues: Array, *, center: bool) -> Array:
    """Bound the eigenvalues that kernel PCA of all rows would have; (q, 2), valid for positive definite kernels.

    `moments` are of the rows in the span of all atoms, `active` the same in a part of that span, and `eigenvalues` (q,)
    the largest of the covariance in that part, descending, around the mean if `center`.

    Notes
    -----
    Let the rows of A be the weighted rows in feature space. A = A1 + F + S: the part recorded in the active span, the
    part known to be orthogonal to it, and the other losses; see `ProjectionLoss`. The rows of A1 and F are orthogonal
    to each other, so the i-th eigenvalue of A1 + F is at least that of A1 and at most |F|^2 more. By Weyl's inequality
    (R. A. Horn, C. R. Johnson, "Topics in Matrix Analysis", 1991, theorem 3.3.16) its i-th singular value is within |S|
    of that of A. The i-th eigenvalue is also at most 1/i of the whole variance. Centring projects the columns of A and
    so takes nothing from the argument.
    """
    divisor = covariance_divisor(moments, center=center)
    if divisor == 0.0:
        return np.zeros((len(eigenvalues), 2))
    beside = recorded_variance(moments, center=center) - recorded_variance(active, center=center)
    orthogonal = (max(beside, 0.0) + moments.losses.orthogonal) / divisor
    distance = moments.losses.other_distance / math.sqrt(divisor)
    rounding = (_ROUNDING * abs(moments.energy) + moments.losses.rounding) / divisor

    lower = np.maximum(np.sqrt(eigenvalues) - distance, 0.0) ** 2 - rounding
    upper = (np.sqrt(eigenvalues + orthogonal) + distance) ** 2
    # This much of the true mean is certain: the recorded one, less what the other losses may have held against it.
    centre = moments.centre(center=center)
    certain = max(math.sqrt(moments.total_weight) * float(np.linalg.norm(centre)) - moments.losses.other_distance, 0.0)
    whole = (moments.energy - certain**2) / divisor / np.arange(1, len(eigenvalues) + 1)
    lower = np.maximum(lower, 0.0)
    # Only an indefinite kernel, whose variances may be negative, gets the ends the wrong way round.
    return np.column_stack([lower, np.maximum(np.minimum(upper, whole) + rounding, lower)])


def captured_energy(snapshot: Snapshot, reservoir: Reservoir, totals: RowSums, confidence: float) -> Array:
    """Return an interval, in [0, 1], for the share of the stream's energy in the span of the atoms.

    As the largest k(x, x) is known, the share is a number times the mean of the bounded residual / largest energy.
    """
    if totals.mean_energy <= 0.0:
        return np.ones(2)
    residual = np.minimum(snapshot.reconstruction_error(reservoir.rows) / totals.largest_energy, 1.0)
    lost = mean_interval(residual, reservoir.weights, totals.total_weight, confidence=confidence)
    # A decayed row may have been larger than the present ones by more than a float can express.
    mean = max(totals.mean_energy / totals.largest_energy, 1e-300)
    captured: Array = np.clip(1.0 - lost[::-1] / mean, 0.0, 1.0)
    return captured


def mean_interval(values: Array, weights: Array, total_weight: float, *, confidence: float) -> Array:
    """Return an interval that holds the weighted mean of a finite population with at least this confidence.

    `values` (k,) from 0 to 1 are rows drawn without replacement, in the order of the draws, each with a probability in
    proportion to its weight among those that were left. The interval is a single point once everything was drawn.

    Notes
    -----
    If the mean were mu, then given the draws so far the next one would have the mean mu_t = (N mu - sum_{s<t} a_s x_s)
    / (N - sum_{s<t} a_s). A player who bets on x_t > mu_t with stakes fixed before the draw plays a fair game: the
    capital prod_t (1 + b_t (x_t - mu_t)) exceeds 2 / (1 - confidence) at any time with probability (1 - confidence) / 2
    at most (Ville). The interval holds all mu with which neither this player nor the one who bets on x_t < mu_t gets
    that rich: I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by betting", Journal of the
    Royal Statistical Society B 86, 2024, theorem 3, with the stakes of its section 3.3.
    """
    before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
    left = total_weight - before
    drawn = np.concatenate([[0.0], np.cumsum(weights * values)])
    remaining = max(total_weight - float(weights.sum()), 0.0)
    # Rows that were not drawn have values between 0 and 1.
    lowest = drawn[-1] / total_weight
    highest = lowest + remaining / total_weight
    # Where a whole population was drawn, rounding leaves the last rows no weight to divide by.
    playing = left > 1e-9 * total_weight
    values, left, drawn = values[playing], left[playing], drawn[:-1][playing]
    stakes = _stakes(values, confidence)
    enough = math.log(2.0 / (1.0 - confidence))

    # Here and not above: scipy.optimize takes a quarter as long to load as numba and scipy.linalg together, and nothing
    # else needs it.
    from scipy.optimize import brentq

    def excess(mean: float, direction: float) -> float:
        expected = np.clip((total_weight * mean - drawn) / left, 0.0, 1.0)
        at_stake = np.maximum(expected if direction > 0.0 else 1.0 - expected, 1e-300)
        growth = np.log1p(direction * np.minimum(stakes, _LARGEST_BET / at_stake) * (values - expected))
        return float(np.max(np.cumsum(growth), initial=0.0)) - enough

    # The capital falls with mu for the player who bets upwards, and rises for the other one.
    low, high = lowest, highest
    if excess(low, 1.0) > 0.0:
        low = high if excess(high, 1.0) > 0.0 else brentq(excess, low, high, args=(1.0,), xtol=_PRECISION)
    if excess(high, -1.0) > 0.0:
        high = low if excess(lowest, -1.0) > 0.0 else brentq(excess, lowest, high, args=(-1.0,), xtol=_PRECISION)
    return np.array([min(low, high), max(low, high)])


def _stakes(values: Array, confidence: float) -> Array:
    """Return the stake of each draw from those before it: sqrt(2 log(2/alpha) / (k variance)), shape (k,)."""
    k = len(values)
    counts = np.arange(1, k + 1)
    means = (0.5 + np.cumsum(values)) / (counts + 1)
    variances = (0.25 + np.cumsum((values - means) ** 2)) / (counts + 1)
    known = np.concatenate([[0.25], variances[:-1]])[:k]
    stakes: Array = np.sqrt(2.0 * math.log(2.0 / (1.0 - confidence)) / (k * np.maximum(known, 1e-30)))
    return stakes
