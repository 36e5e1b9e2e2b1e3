"""Limits of control charts: Hotelling's T^2 along the axes, and the squared prediction error (SPE) beside them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Rounding of a reconstruction error, as a share of the mean of k(x, x): no limit is below it.
_ROUNDING = 1e-12


class ControlLimits(NamedTuple):
    """Limits that rows like those learned exceed with a chosen probability, see `StreamingKernelPCA.control_limits`.

    Attributes
    ----------
    t2 : float
        Limit of Hotelling's T^2.
    spe : float
        Limit of the squared prediction error, in units of k(x, x).
    """

    t2: float
    spe: float


@dataclass(frozen=True)
class ResidualSpectrum:
    """The variance beside q axes: sums of recorded eigenvalues, of their squares and cubes, and the part not recorded.

    `mean_energy` is the mean of k(x, x), and `n_effective` the number of rows of equal weight that tell as much.
    """

    moments: tuple[float, float, float]
    lost: float
    mean_energy: float
    n_effective: float

    @classmethod
    def of(cls, eigenvalues: Array, lost: float, mean_energy: float, n_effective: float) -> "ResidualSpectrum":
        """Take the moments of recorded eigenvalues, of which rounding may have made some negative."""
        recorded = np.maximum(eigenvalues, 0.0)
        first, second, third = (float((recorded**power).sum()) for power in (1, 2, 3))
        return cls((first, second, third), max(lost, 0.0), mean_energy, n_effective)

    def spe_limit(self, quantile: float) -> float:
        """Return the limit of SPE. Variance that is not recorded counts by its mean."""
        return max(self.lost + spe_limit(*self.moments, quantile), _ROUNDING * self.mean_energy)


def t2_limit(n_axes: int, n_rows: float, quantile: float) -> float:
    """Return the limit of T^2 of a new row along axes and variances learned from `n_rows` > `n_axes` rows.

    N. D. Tracy, J. C. Young, R. L. Mason, "Multivariate control charts for individual observations", Journal of Quality
    Technology 24, 1992.
    """
    # Not above: nothing else needs this module, which takes a while to load.
    from scipy.special import fdtri

    if n_axes == 0:
        return 0.0
    scale = n_axes * (n_rows**2 - 1.0) / (n_rows * (n_rows - n_axes))
    return scale * float(fdtri(n_axes, n_rows - n_axes, quantile))


def spe_limit(first: float, second: float, third: float, quantile: float) -> float:
    """Return the limit of a weighted sum of squared normal numbers, given the sums of weights, their squares and cubes.

    A power of the sum is nearly normal: J. E. Jackson, G. S. Mudholkar, "Control procedures for residuals associated
    with principal component analysis", Technometrics 21, 1979, eq. (3.4). Where that has no value, the sum is taken for
    a multiple of chi^2 with the same mean and variance: G. E. P. Box, Annals of Mathematical Statistics 25, 1954,
    theorem 3.1.
    """
    from scipy.special import chdtri, ndtri

    if first <= 0.0 or second <= 0.0:
        return max(first, 0.0)
    power = 1.0 - 2.0 * first * third / (3.0 * second**2)
    base = 1.0 + power * float(ndtri(quantile)) * math.sqrt(2.0 * second) / first
    base += second * power * (power - 1.0) / first**2
    if abs(power) > 1e-6 and base > 0.0:
        return float(first * base ** (1.0 / power))
    return second / first * float(chdtri(first**2 / second, 1.0 - quantile))
