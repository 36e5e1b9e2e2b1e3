"""Sparse weights for the rows that axes may be made of."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from streamkpca.errors import SparsityError, SparsityWarning
from streamkpca.factor import independent_span, squared_norms
from streamkpca.likelihood import fit_weights
from streamkpca.moments import Moments
from streamkpca.parameters import check_choice, check_flag, check_integer, check_n_components, check_real, is_real
from streamkpca.sparsity import (
    SparsityPath,
    automatic_noise_variance,
    noise_variance_for,
    second_moment_within,
    sparsity_path,
)
from streamkpca.spectrum import RANK_TOLERANCE, covariance_divisor, leading_eigenpairs, principal_axes, total_variance

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Weights of the last fit are no start for the next where the rows have faded to a variance so much smaller.
_LARGEST_FADING = 1e12


@dataclass(frozen=True)
class RefitSettings:
    """How axes are made from moments.

    Parameters
    ----------
    n_components : int or float
        Number q of axes, or share of the variance to explain.
    center : bool
        Subtract the mean.
    noise_variance : float, "auto" or None
        sigma^2 of the likelihood; "auto" takes the (q + 1)-th eigenvalue, halved while fewer than q candidates are
        active; None: no likelihood, all are active.
    n_active : int or None
        Look for the noise variance that leaves so many candidates active, instead.
    axes : {"ritz", "likelihood"}
        Best axes in the span of the active candidates, or those of the likelihood's own model.
    """

    n_components: int | float
    center: bool
    noise_variance: float | Literal["auto"] | None = None
    n_active: int | None = None
    axes: Literal["ritz", "likelihood"] = "ritz"

    @classmethod
    def checked(
        cls, *, n_components: Any, center: Any, noise_variance: Any, n_active: Any, axes: Any, where: str
    ) -> Self:
        """Check the parameters of an estimator.

        Parameters
        ----------
        n_components, center, noise_variance, n_active, axes : object
            As the caller gave them.
        where : str
            Who asks, for the error text.

        Returns
        -------
        RefitSettings

        Raises
        ------
        TypeError, ValueError
            One of them makes no sense, or both a noise variance and a number of active atoms are named.
        """
        if n_active is not None:
            n_active = check_integer("n_active", n_active, least=1, where=where)
            if is_real(noise_variance):
                raise ValueError(
                    f"{where}: noise_variance={noise_variance!r} and n_active={n_active!r} both decide how many atoms "
                    "stay active; set one of them and leave the other at its default"
                )
        if isinstance(noise_variance, str):
            if noise_variance != "auto":
                raise ValueError(
                    f"{where}: noise_variance must be a positive number, 'auto' or None, got {noise_variance!r}"
                )
        elif noise_variance is not None:
            noise_variance = check_real("noise_variance", noise_variance, least=0.0, open_below=True, where=where)
        check_choice("axes", axes, choices=("ritz", "likelihood"), where=where)
        if axes == "likelihood" and noise_variance is None and n_active is None:
            raise ValueError(
                f"{where}: axes='likelihood' needs a likelihood, but noise_variance=None asks for none; set "
                "noise_variance to 'auto' or a number, or n_active"
            )
        return cls(
            n_components=check_n_components(n_components, where=where),
            center=check_flag("center", center, where=where),
            noise_variance=noise_variance,
            n_active=n_active,
            axes=axes,
        )


@dataclass(frozen=True)
class Candidates:
    """Rows that axes may be made of.

    Parameters
    ----------
    rows : ndarray of shape (p, d)
    positions : ndarray of shape (p,) of int64
        Their positions in the stream or data set.
    coordinates : ndarray of shape (p, r)
        In the orthonormal basis that the moments are held in.
    are_atoms : bool
        They are the atoms of that basis: independent, with lower triangular coordinates.
    """

    rows: Array
    positions: Positions
    coordinates: Array
    are_atoms: bool


def find_weights(
    candidates: Candidates, moments: Moments, settings: RefitSettings, start: tuple[Array, float] | None = None
) -> tuple[Array, float | None]:
    """Find the weights of candidates and the noise variance that they were found with.

    Parameters
    ----------
    candidates : Candidates
    moments : Moments
    settings : RefitSettings
    start : (ndarray of shape (p,), float), optional
        Weights and noise variance to start from, the last refit's.

    Returns
    -------
    weights : ndarray of shape (p,)
        Ones where no likelihood was asked, where nothing varies, or where "auto" has no more candidates than axes.
    noise_variance : float or None
        None where the weights are ones for one of these reasons.

    Raises
    ------
    SparsityError
        No weight is positive, or there are fewer candidates than `n_active`.
    """
    p = len(candidates.rows)
    everyone = np.ones(p)
    features, covariance = _centred(candidates, moments, center=settings.center)
    nothing_varies = _nothing_varies(covariance, moments, center=settings.center)
    if nothing_varies or (settings.noise_variance is None and settings.n_active is None):
        return everyone, None

    if start is not None and not start[0] @ squared_norms(features) <= _LARGEST_FADING * np.trace(covariance):
        start = None
    last_weights = None if start is None else start[0]
    if settings.n_active is not None:
        if settings.n_active > p:
            raise SparsityError(
                f"n_active={settings.n_active} is more than the {p} candidates there are so far; ask for fewer"
            )
        search = noise_variance_for(settings.n_active, features, covariance, start=start)
        if not search.exact:
            warnings.warn(
                f"no noise variance leaves exactly n_active={settings.n_active} of {p} candidates; the nearest below "
                f"is {len(search.fit.active)}, at noise_variance={search.noise_variance:.4g}",
                SparsityWarning,
                stacklevel=2,
            )
        weights, noise_variance = search.fit.weights, search.noise_variance
    elif settings.noise_variance == "auto":
        q = _n_axes(moments, settings)
        if p <= q:
            return everyone, None
        weights, noise_variance = _automatic_weights(features, covariance, q, last_weights)
    else:
        assert isinstance(settings.noise_variance, float)
        noise_variance = settings.noise_variance
        weights = fit_weights(features, covariance, noise_variance, initial_weights=last_weights).weights
    if weights.any():
        return weights, noise_variance
    squares = np.maximum(squared_norms(features), np.finfo(float).tiny)
    most = float(np.max(np.einsum("ij,jk,ik->i", features, covariance, features, optimize=True) / squares))
    raise SparsityError(
        f"noise_variance={noise_variance:.4g} leaves no atom active: along none of them is there more variance than "
        f"{most:.4g}; choose a smaller one, or 'auto'"
    )


def _n_axes(moments: Moments, settings: RefitSettings) -> int:
    """Return how many axes are wanted; a share of the variance is counted with all candidates."""
    q = settings.n_components
    if isinstance(q, float):
        variance = total_variance(moments, center=settings.center)
        q = len(principal_axes(moments, q, center=settings.center, variance=variance).eigenvalues)
    return q


def _automatic_weights(features: Array, covariance: Array, q: int, start: Array | None) -> tuple[Array, float]:
    """Take the (q + 1)-th eigenvalue as noise; halve it while it leaves too few candidates to span q axes.

    Where variance is spread evenly over many axes, no candidate alone may rise above that eigenvalue.
    """
    noise_variance = automatic_noise_variance(covariance, q)
    while True:
        weights = fit_weights(features, covariance, noise_variance, initial_weights=start).weights
        if np.count_nonzero(weights) >= q:
            return weights, noise_variance
        floor = automatic_noise_variance(covariance, len(covariance))
        if noise_variance <= floor:
            return weights, noise_variance
        noise_variance, start = max(0.5 * noise_variance, floor), weights


def trace_sparsity(candidates: Candidates, moments: Moments, noise_variances: Any, *, center: bool) -> SparsityPath:
    """Fit weights along a range of noise variances and say what each leaves.

    Parameters
    ----------
    candidates : Candidates
    moments : Moments
    noise_variances : array-like of shape (n,) or None
        In the order in which they are visited. None: 20 values, from just below the largest eigenvalue down to a
        thousandth of it.
    center : bool
        Measure around the mean.

    Returns
    -------
    SparsityPath
        Captured variances and mean reconstruction errors are those of the span of the active candidates.

    Raises
    ------
    SparsityError
        The rows do not vary.
    TypeError, ValueError
        A noise variance is not a positive number.
    """
    features, covariance = _centred(candidates, moments, center=center)
    if _nothing_varies(covariance, moments, center=center):
        raise SparsityError("sparsity_path: the rows do not vary, so no noise variance says anything about them")
    if noise_variances is None:
        largest = float(leading_eigenpairs(covariance, 1)[0][0])
        noise_variances = np.geomspace(0.999 * largest, 1e-3 * largest, 20)

    def describe_span(weights: Array) -> tuple[float, float]:
        # Axes are made of the candidates themselves, which the likelihood sees centred.
        rotation = independent_span(candidates.coordinates[weights > 0.0])[2]
        inside = second_moment_within(rotation, moments.second)
        return second_moment_within(rotation, covariance), (moments.energy - inside) / moments.total_weight

    return sparsity_path(features, covariance, noise_variances, describe_span=describe_span)


def _nothing_varies(covariance: Array, moments: Moments, *, center: bool) -> bool:
    """Say whether the covariance is but the rounding of moments that cancel: one row, or a constant stream."""
    rounding = RANK_TOLERANCE * max(len(covariance), 1) * moments.mean_energy
    return covariance_divisor(moments, center=center) == 0.0 or bool(np.trace(covariance) <= rounding)


def _centred(candidates: Candidates, moments: Moments, *, center: bool) -> tuple[Array, Array]:
    """Return what the likelihood sees: the candidates' coordinates and the rows' covariance, around the same point."""
    mean = moments.centre(center=center)
    covariance = moments.second / (moments.total_weight or 1.0) - np.outer(mean, mean)
    return candidates.coordinates - mean, covariance
