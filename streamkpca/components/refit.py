"""The refit: from candidates and moments to weights, axes, and a snapshot."""

from dataclasses import dataclass
from functools import partial
from typing import Literal, Self

import numpy as np

from streamkpca._core.arrays import Array, Indices, Positions
from streamkpca._core.linalg import independent_span, restrict_factor, solve_transposed, squared_norms
from streamkpca._core.reservoir import origins_of
from streamkpca.components import spectrum
from streamkpca.components.certificates import eigenvalue_bounds
from streamkpca.components.noise import fewest_that_hold, noise_variance_for
from streamkpca.components.snapshot import Snapshot
from streamkpca.components.weights import MOST_ROUNDS, Optimizer, fit_weights
from streamkpca.dictionary.moments import Moments
from streamkpca.errors import SparsityError, SparsityWarning, warn
from streamkpca.kernels import Kernel

# Weights of the last fit are no start for the next where the variance of the rows has decayed by more than this.
_LARGEST_DECAY = 1e12

# Share of the variance on the axes that "auto" may lose of the rows seen, to lose at most 1% of others. On held-out
# halves of three data sets with 89 to 898 rows, 100 atoms lost 0.3 to 2.7 times what they lost of the rows seen.
_MOST_LOST = 0.01 / 3.0


@dataclass(frozen=True)
class RefitSettings:
    """How a refit turns moments into axes; parameters as `SparseKernelPCA` describes them.

    `noise_variance` is None where all candidates are active without a likelihood, "auto" for the largest that leaves
    enough active to hold 99% of the variance on the axes. `n_active` searches for the noise variance instead.
    """

    n_components: int | float
    center: bool
    noise_variance: float | Literal["auto"] | None = None
    n_active: int | None = None
    axes: Literal["ritz", "likelihood"] = "ritz"
    optimizer: Optimizer = "coordinate"

    def consistent(self) -> Self:
        """Refuse parameters, each of them checked, that contradict each other."""
        if self.n_active is not None and isinstance(self.noise_variance, float):
            raise ValueError(
                f"noise_variance={self.noise_variance!r} and n_active={self.n_active!r} both decide how many "
                "atoms stay active; set one of them and leave the other at its default"
            )
        if self.axes == "likelihood" and self.noise_variance is None and self.n_active is None:
            raise ValueError(
                "axes='likelihood' needs a likelihood, but noise_variance=None asks for none; set "
                "noise_variance to 'auto' or a number, or n_active"
            )
        return self


@dataclass(frozen=True)
class Candidates:
    """Rows (p, d) that axes may be made of, with their positions (p,) in the stream or data set.

    Coordinates (p, r) are in the orthonormal basis that the moments are held in. `are_atoms` says that the rows are the
    atoms of that basis: independent, with lower triangular coordinates.
    """

    rows: Array
    positions: Positions
    coordinates: Array
    are_atoms: bool

    def span(self, active: Indices) -> tuple[Indices, Array, Array]:
        """Return the independent ones of k active candidates, their factor (k, k), and a basis (k, r) of their span."""
        if self.are_atoms:
            return active, *restrict_factor(self.coordinates, active)
        accepted, factor, rotation = independent_span(self.coordinates[active])
        return active[accepted], factor, rotation


def find_weights(
    candidates: Candidates, moments: Moments, settings: RefitSettings, start: tuple[Array, float] | None = None
) -> tuple[Array, float | None]:
    """Find the weights (p,) of candidates and the noise variance of the fit, starting from the last ones if given.

    All weights are 1 and the noise variance is None where no likelihood is wanted or none leaves enough active.
    SparsityError if no weight is positive or `n_active` exceeds the candidates.
    """
    p = len(candidates.rows)
    ones = np.ones(p)
    mean = moments.centre(center=settings.center)
    features = candidates.coordinates - mean
    covariance = moments.second / (moments.total_weight or 1.0) - np.outer(mean, mean)
    # Without any atom, as where an indefinite kernel gives every row a negative energy, nothing varies either.
    nothing_varies = not p or _nothing_varies(covariance, moments, center=settings.center)
    if nothing_varies or (settings.noise_variance is None and settings.n_active is None):
        return ones, None

    if start is not None and not start[0] @ squared_norms(features) <= _LARGEST_DECAY * np.trace(covariance):
        start = None
    fit_at = partial(fit_weights, features, covariance, optimizer=settings.optimizer)
    if settings.n_active is not None:
        if settings.n_active > p:
            raise SparsityError(
                f"n_active={settings.n_active} is more than the {p} candidates there are so far; choose fewer"
            )
        search = noise_variance_for(settings.n_active, fit_at, covariance, start=start)
        if not search.exact:
            warn(
                f"no noise variance leaves exactly n_active={settings.n_active} of {p} candidates; the nearest below "
                f"is {len(search.fit.active)}, at noise_variance={search.noise_variance:.4g}",
                SparsityWarning,
            )
        fit, noise_variance = search.fit, search.noise_variance
    elif settings.noise_variance == "auto":
        q = _n_axes(moments, settings)
        if p <= q:
            return ones, None

        def span_of(weights: Array) -> Array:
            # As in `refit`, axes are made of the candidates themselves, while the likelihood has them centred.
            return candidates.span(np.flatnonzero(weights))[2]

        found = fewest_that_hold(q, _MOST_LOST, fit_at, covariance, span_of, start=start)
        if found is None:
            return ones, None
        fit, noise_variance = found.fit, found.noise_variance
    else:
        assert isinstance(settings.noise_variance, float)
        noise_variance = settings.noise_variance
        fit = fit_at(noise_variance, initial_weights=start[0] if start else None)
    if not fit.converged:
        remedy = "" if settings.optimizer == "coordinate" else "use optimizer='coordinate', or "
        warn(
            f"optimizer={settings.optimizer!r} did not converge within {MOST_ROUNDS[settings.optimizer]:,} rounds; "
            f"the weights are the most likely found so far; {remedy}choose a larger noise_variance",
            SparsityWarning,
        )
    if fit.weights.any():
        return fit.weights, noise_variance
    squares = np.maximum(squared_norms(features), np.finfo(float).tiny)
    most = float(np.max(np.einsum("ij,jk,ik->i", features, covariance, features, optimize=True) / squares))
    raise SparsityError(
        f"noise_variance={noise_variance:.4g} leaves no atom active: the largest variance along any atom is "
        f"{most:.4g}; choose a smaller value, or 'auto'"
    )


def _n_axes(moments: Moments, settings: RefitSettings) -> int:
    """Return the number of axes wanted; a share of the variance is counted with all candidates."""
    q = settings.n_components
    if isinstance(q, float):
        variance = spectrum.total_variance(moments, center=settings.center)
        q = len(spectrum.principal_axes(moments, q, center=settings.center, variance=variance).eigenvalues)
    return q


def _nothing_varies(covariance: Array, moments: Moments, *, center: bool) -> bool:
    """Tell whether the covariance is only the rounding of moments that cancel: one row, or a constant stream."""
    rounding = spectrum.RANK_TOLERANCE * max(len(covariance), 1) * moments.mean_energy
    return spectrum.covariance_divisor(moments, center=center) == 0.0 or bool(np.trace(covariance) <= rounding)


def refit(
    kernel: Kernel,
    candidates: Candidates,
    moments: Moments,
    settings: RefitSettings,
    sample: Array,
    previous: Snapshot | None = None,
) -> Snapshot:
    """Fit weights and axes to the moments of rows and make a snapshot of them.

    The search for weights and noise starts from those of the `previous` snapshot, whose axes also decide the signs.
    `sample` holds some rows of the data, (r, d), for pre-images. SparsityError if no candidate stays active or there
    are fewer than `n_active`. O(p^3) for the axes, besides the cost of the likelihood.
    """
    weights, noise_variance = find_weights(candidates, moments, settings, _last_fit(candidates, previous))
    active = np.flatnonzero(weights)
    used, factor, rotation = candidates.span(active)
    variance = spectrum.total_variance(moments, center=settings.center)
    inside = moments if len(used) == len(rotation.T) and candidates.are_atoms else moments.rotate(rotation)
    if settings.axes == "likelihood" and noise_variance is not None:
        found = spectrum.likelihood_axes(
            weights[active],
            candidates.coordinates[active] - moments.centre(center=settings.center),
            rotation,
            inside,
            noise_variance,
            settings.n_components,
            center=settings.center,
            variance=variance,
        )
        # Bounds concern the rows, whatever the axes are: they start from the variances along the best axes of the span.
        n_found = len(found.eigenvalues)
        best = spectrum.principal_axes(inside, n_found, center=settings.center, variance=variance)
    else:
        found = spectrum.principal_axes(inside, settings.n_components, center=settings.center, variance=variance)
        best = found
    active_atoms = candidates.rows[used]
    # Novelty is the distance to the span of all atoms of a stream: with 32 of 256 atoms active the average
    # precision on a simulated plant's faults fell from 0.75 to 0.30. A batch has no atoms but the active ones.
    span = (candidates.rows, candidates.coordinates) if candidates.are_atoms else (active_atoms, factor)
    # A row of kernel values times L^-T is its coordinates, so L^-T axes are coefficients over the atoms.
    projection = solve_transposed(factor, found.axes.T).T
    signs = _signs(kernel, active_atoms, projection, previous)
    shares = found.explained_variance_ratio
    if kernel.is_positive_definite:
        # Parts of a whole, except for rounding: that of many small eigenvalues can exceed that of their sum.
        shares = shares / max(1.0, float(shares.sum()))
    axes, projection = found.axes * signs, projection * signs
    return Snapshot(
        kernel=kernel,
        atoms=candidates.rows,
        atom_rows=candidates.positions,
        weights=weights,
        sample=sample,
        active_atoms=active_atoms,
        factor=factor,
        span_atoms=span[0],
        span_factor=span[1],
        axes=axes,
        mean=found.mean,
        projection=projection,
        offset=found.mean @ axes,
        eigenvalues=found.eigenvalues,
        eigenvalue_bounds=eigenvalue_bounds(moments, inside, best.eigenvalues, center=settings.center),
        explained_variance_ratio=shares,
        noise_variance=noise_variance,
        total_weight=moments.total_weight,
        unexplained_energy_ratio=max(moments.losses.total, 0.0) / moments.energy if moments.energy > 0.0 else 0.0,
    )


def _last_fit(candidates: Candidates, previous: Snapshot | None) -> tuple[Array, float] | None:
    """Return weights and noise variance of the last refit, weights matched by the rows that the candidates began as."""
    if previous is None or previous.noise_variance is None:
        return None
    weights = np.zeros(len(candidates.rows))
    _, now, then = np.intersect1d(origins_of(candidates.positions), origins_of(previous.atom_rows), return_indices=True)
    weights[now] = previous.weights[then]
    return weights, previous.noise_variance


def _signs(kernel: Kernel, atoms: Array, projection: Array, previous: Snapshot | None) -> Array:
    """Choose the sign of each axis so that projections do not flip from one refit to the next.

    An axis points the way of the old axis with which it has the largest inner product; without old axes, its largest
    coefficient is positive.
    """
    similarity = projection
    if previous is not None and len(previous.active_atoms) and len(atoms):
        # A copy, as loops would be compiled again for arrays that cannot be written to.
        similarity = previous.projection.T @ kernel.program.matrix(previous.active_atoms.copy(), atoms) @ projection
    return spectrum.deciding_signs(similarity)
