"""The odd one of a fleet: which machines differ from their fellows, and in which features, from moments alone.

The moments of all machines are those of c(x), the coordinates of rows in the basis of common atoms. Where feature j
moves by h, c(x) moves by h r(x); its response r = dc/dx_j at the atoms follows from the kernel. Let g be the mean
response of a feature in coordinates that are whitened by the covariance within machines, of length 1, and t(x) the
largest principal components there. Statistics of a machine tell what the other features do not explain of this one: its
offset, the mean of g.c(x); its slopes, the regression of g.c(x) on t(x), which faults of gain and phase change; its
noise, the logarithm of the mean square that this regression leaves along all responses of the feature. With a linear
kernel, g.c(x) is the error of the best linear prediction of x_j by the others. The last statistic is the logarithm of
the share of energy outside the span of the atoms.
"""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import digamma, polygamma
from scipy.stats import t as student

from streamkpca._core.arrays import Array, Flags
from streamkpca.dictionary.basis import Basis
from streamkpca.errors import name_errors
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.stream.state import record_pending
from streamkpca.stream.step import record_block

__all__ = ["OddMachine", "find_odd_machines"]

# Of fewer machines, none can be told from the others.
_LEAST_MACHINES = 5
# Moments of fewer rows, counted as their weights allow, are too vague.
_LEAST_ROWS = 200
# At least this many machines, and this share of the fleet, are a kind.
_LEAST_KIND = 5
_LEAST_KIND_SHARE = 0.2
# Two kinds are this many deviations apart along an axis; halves of one normal kind are 2.7 apart.
_KINDS_APART = 5.5
# Axes along which kinds may differ, and the largest standard score that they are made of.
_N_AXES = 3
_LARGEST_SCORE = 6.0
# A machine is far from all others if its nearest fellow is this many times as far as usual.
_FAR_FROM_ALL = 1.5
# At most this many principal components, with at least this share of the variance, are what features are regressed on.
_N_SLOPES = 6
_LEAST_COMPONENT = 0.01
# Directions of a feature's responses that noise is measured along.
_N_DIRECTIONS = 8
# Share of the variance that is added along every direction: with 1e-2, phases of 0.1 rad were missed.
_RIDGE = 1e-4
# The same where noise is measured. On a torus whose machines had moved their atoms, 0.33 of the noisy ones were found
# with 1e-4, 0.83 with 1e-3.
_NOISE_RIDGE = 1e-3
# Features move by this share of their deviation among the atoms.
_STEP = 0.1
# Statistics beyond this many deviations do not decide what is usual.
_MOST_DEVIATIONS = 3.5
# Scores are judged by Student's t with at most this many degrees of freedom: healthy ones are not quite normal.
_MOST_DOF = 15.0
# Shares of the variance that may fall with the number of rows.
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
# In the second round, machines up to this rarity decide what is usual.
_USUAL = 20.0
# Features are named from this rarity on,
_NAMED = 20.0
# and beside others with this share of their score.
_LEAST_SHARE = 0.25


class OddMachine(NamedTuple):
    """What is odd about a machine.

    Parameters
    ----------
    name : object
        Its key in the mapping that `find_odd_machines` was given.
    rarity : float
        Healthy fleets of this size of which one has a machine as odd; 1 is usual, NaN is of too few rows to tell.
    features : tuple
        Names or positions of the features in which it differs, the clearest first; empty where it does not, and where
        it differs in what the atoms leave unexplained alone.

    Examples
    --------
    >>> from streamkpca.fleet import OddMachine
    >>> OddMachine("pump 3", 4000.0, ("flow",)).rarity > 200
    True
    """

    name: Any
    rarity: float
    features: tuple[Any, ...]


@name_errors
def find_odd_machines(states: Mapping[Any, StreamingKernelPCA]) -> list[OddMachine]:
    """Find the machines that differ from their fellows, and the features in which they do, from moments alone.

    Parameters
    ----------
    states : mapping of name to StreamingKernelPCA
        What each machine has learned from its own rows. The models began with one model: as its `without_rows`, or as
        states of devices that `from_device` reads. At least 5 machines have each seen 200 rows.

    Returns
    -------
    list of OddMachine
        All machines, the oddest first, and those with too few rows to tell last.

    Raises
    ------
    TypeError, ValueError
        A state is no model, has another kernel, half-life or other features than most, or there are fewer machines.
    NotFittedError
        A model has seen no row.

    How much healthy machines differ is learned from the fleet itself, by variances that are moderated as in [1]_; odd
    machines, which may be many, are left out there. Machines of several kinds are compared within their kind, which is
    at least 5 machines, and a fifth of the fleet, that differ alike from the others. Machines may see different numbers
    of rows, but should see about the same loads. Moments in other atoms are projected onto those that most have.

    A feature must move the atoms' coordinates: choose a wide kernel, and at least two atoms for each feature.
    O(N m^2 (d + m)) for N machines, m atoms and d features.

    References
    ----------
    .. [1] G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
       experiments", Statistical Applications in Genetics and Molecular Biology 3, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA, fleet
    >>> random = np.random.default_rng(0)
    >>> def rows(late=0.0):
    ...     angle = random.uniform(0, 2 * np.pi, size=(1000, 1)) - [[0.0, 1.0, 2.0, 3.0 + late]]
    ...     return np.sin(angle) + 0.1 * random.normal(size=angle.shape)
    >>> begun = StreamingKernelPCA(2, max_atoms=24).partial_fit(rows())
    >>> states = {f"pump {i}": begun.without_rows().partial_fit(rows(0.2 * (i == 3))) for i in range(8)}
    >>> name, rarity, features = fleet.find_odd_machines(states)[0]
    >>> name, rarity > 200, features
    ('pump 3', True, (3,))
    """
    machines = _read(states)
    told = [machine for machine in machines if machine.n_rows >= _LEAST_ROWS]
    n = len(told)
    if n < _LEAST_MACHINES:
        raise ValueError(
            f"expected at least {_LEAST_MACHINES} machines that have each seen {_LEAST_ROWS} rows but got {n} such "
            f"of {len(machines)}; among fewer, none can be told from the others"
        )
    found = [OddMachine(machine.name, math.nan, ()) for machine in machines if machine.n_rows < _LEAST_ROWS]
    for kind in _kinds(_Fleet.of(told), max(_LEAST_KIND, math.ceil(_LEAST_KIND_SHARE * n))):
        compared = _Compared.of(kind)
        for place, (machine, rarity) in enumerate(zip(kind.machines, compared.rarity(n).tolist(), strict=True)):
            changed = tuple(kind.features[j] for j in compared.find_changed(place, n))
            found.append(OddMachine(machine.name, rarity, changed))
    return sorted(found, key=lambda machine: (math.isnan(machine.rarity), -machine.rarity))


class _Machine(NamedTuple):
    """Means of a machine's moments in a basis, which tell as much as `n_rows` rows of equal weight."""

    name: Any
    like: tuple[Any, ...]
    basis: Basis
    n_rows: float
    mean: Array
    covariance: Array
    unexplained: float
    is_projected: bool = False

    @classmethod
    def of(cls, name: Any, model: StreamingKernelPCA) -> "_Machine":
        """Read a model, its pending rows included, without a search for atoms where it has some."""
        state, settings = model.state_, model.settings()
        if state.summary is None:
            summary = record_pending(state, settings)
        else:
            pending = state.pending
            summary = record_block(state.summary, pending.rows, pending.weights, settings.half_life)
        moments, names = summary.moments, state.names
        weight = max(moments.total_weight, 1e-300)
        mean = moments.first / weight
        return cls(
            name=name,
            like=(range(state.n_features) if names is None else tuple(names), settings.half_life, summary.basis.kernel),
            basis=summary.basis,
            n_rows=summary.record.n_effective,
            mean=mean,
            covariance=moments.second / weight - np.outer(mean, mean),
            unexplained=max(moments.losses.on_arrival, 0.0) / max(moments.energy, 1e-300),
        )

    def project_onto(self, basis: Basis) -> "_Machine":
        """Return the moments in another basis."""
        if np.array_equal(self.basis.atoms, basis.atoms):
            return self
        across = self.basis.vectors_in(basis)
        mean, covariance = self.mean @ across, across.T @ self.covariance @ across
        return self._replace(basis=basis, mean=mean, covariance=covariance, is_projected=True)


def _read(states: Any) -> list[_Machine]:
    """Read all machines, and refuse those that cannot be compared with most."""
    if not isinstance(states, Mapping):
        raise TypeError(f"expected a mapping of names to models but got {type(states).__name__}; name the machines")
    machines = []
    for name, model in states.items():
        if not isinstance(model, StreamingKernelPCA):
            raise TypeError(
                f"expected {name!r} to be a StreamingKernelPCA but got {type(model).__name__}; read the state of a "
                "device with from_device"
            )
        machines.append(_Machine.of(name, model))
    for place, what in enumerate(("features", "half_life", "kernel")):
        usual = Counter(machine.like[place] for machine in machines).most_common(1)
        for machine in machines:
            if machine.like[place] != usual[0][0]:
                raise ValueError(
                    f"expected {machine.name!r} to have the {what} of most machines, {usual[0][0]!r:.200}, but got "
                    f"{machine.like[place]!r:.200}; compare machines that began with one model"
                )
    return machines


class _Fleet(NamedTuple):
    """Machines with moments in one basis, the features that its kernel sees, and responses to them (d, m, m)."""

    machines: list[_Machine]
    features: list[Any]
    responses: Array

    @classmethod
    def of(cls, machines: list[_Machine]) -> "_Fleet":
        """Project the moments onto the atoms that most machines have; where all differ, onto those of a usual one."""
        by_atoms: dict[bytes, list[_Machine]] = {}
        for machine in machines:
            by_atoms.setdefault(machine.basis.atoms.tobytes(), []).append(machine)
        most = max(map(len, by_atoms.values()))
        tied = sorted((group[0] for group in by_atoms.values() if len(group) == most), key=lambda one: one.unexplained)
        basis = tied[len(tied) // 2].basis
        responses = _responses(basis)
        seen = np.flatnonzero(responses.any(axis=(1, 2)))
        names = machines[0].like[0]
        return cls([machine.project_onto(basis) for machine in machines], [names[j] for j in seen], responses[seen])


def _responses(basis: Basis) -> Array:
    """Return dc/dx_j at the atoms by central differences, per deviation of feature j among them; (d, m, m)."""
    m, d = basis.atoms.shape
    spread = basis.atoms.std(axis=0)
    spread[spread == 0.0] = spread.max() or 1.0
    moved = np.tile(basis.atoms, (2, d, 1, 1))
    for j, step in enumerate(_STEP * spread):
        moved[:, j, :, j] += [[step], [-step]]
    forward, back = basis.project(moved.reshape(-1, d)).coordinates.reshape(2, d, m, m)
    responses: Array = (forward - back) / (2.0 * _STEP)
    return responses


def _kinds(fleet: _Fleet, least: int) -> list[_Fleet]:
    """Part a fleet where its machines fall into groups of at least `least` along an axis of their differences."""
    if len(fleet.machines) < 2 * least or not fleet.features:
        return [fleet]
    compared = _Compared.of(fleet, n_rounds=1)
    scores = (compared.differences / compared.scales).reshape(len(fleet.machines), -1)
    scores = np.clip(scores, -_LARGEST_SCORE, _LARGEST_SCORE)
    # Machines that have no near fellow are odd, and do not decide on the axes.
    nearest = np.sort(cdist(scores, scores), axis=1)[:, 1]
    some = scores[nearest <= _FAR_FROM_ALL * np.median(nearest)]
    _, _, axes = np.linalg.svd(some - some.mean(axis=0), full_matrices=False)
    for axis in axes[:_N_AXES]:
        apart, middle = _split(np.sort(some @ axis), least)
        if apart > _KINDS_APART:
            is_first = scores @ axis <= middle
            parts = (list(compress(fleet.machines, members)) for members in (is_first, ~is_first))
            return [kind for part in parts for kind in _kinds(fleet._replace(machines=part), least)]
    return [fleet]


def _split(values: Array, least: int) -> tuple[float, float]:
    """Part sorted values into two groups of least variance: how many deviations apart, and the point between them."""
    n = len(values)
    if n < 2 * least:
        return 0.0, 0.0
    sizes = np.arange(least, n - least + 1)
    sums, squares = np.cumsum(values), float(values @ values)
    first, second = sums[sizes - 1] / sizes, (sums[-1] - sums[sizes - 1]) / (n - sizes)
    within = squares - sizes * first**2 - (n - sizes) * second**2
    best = int(within.argmin())
    deviation = math.sqrt(max(float(within[best]), 1e-300) / (n - 2))
    return float(second[best] - first[best]) / deviation, float(first[best] + second[best]) / 2.0


class _Compared(NamedTuple):
    """Statistics of N machines beside those of their fellows.

    The `differences`, in units of their `scales`, have the probabilities `log_p`, all (N, d, 2 + k): offset, noise,
    slopes. `overlaps` (d, d) are the inner products of the features' mean responses, and `log_p_unexplained` (N,)
    belongs to the energy outside the span.
    """

    differences: Array
    scales: Array
    log_p: Array
    overlaps: Array
    log_p_unexplained: Array

    @classmethod
    def of(cls, fleet: _Fleet, n_rounds: int = 2) -> "_Compared":
        """Compare machines of one kind; after the first round, odd ones do not decide what is usual."""
        n_rows = np.array([machine.n_rows for machine in fleet.machines])
        is_projected = np.array([machine.is_projected for machine in fleet.machines])
        log_p_unexplained = np.zeros(len(n_rows))
        if 2 * is_projected.sum() <= len(is_projected):
            unexplained = np.log([max(machine.unexplained, 1e-12) for machine in fleet.machines])[:, None]
            log_p_unexplained = _log_p(*_standardise_apart(unexplained, n_rows, is_projected))[:, 0]
        usual = np.ones(len(n_rows), dtype=bool)
        for _ in range(n_rounds):
            values, overlaps = _statistics(fleet, usual)
            columns = [_standardise(values[:, :, k], n_rows) for k in range(values.shape[2])]
            columns[1] = _standardise_apart(values[:, :, 1], n_rows, is_projected)
            differences, scales, dof = (np.stack(parts, axis=2) for parts in zip(*columns, strict=True))
            log_p = _log_p(differences, scales, dof)
            compared = cls(differences, scales, log_p, overlaps, log_p_unexplained)
            rarity = compared.rarity(len(n_rows))
            usual = rarity <= max(_USUAL, float(np.median(rarity)))
        return compared

    def rarity(self, n_machines: int) -> Array:
        """Return for each machine in how many healthy fleets of `n_machines` one is as odd; (N,)."""
        least = np.minimum(self.log_p.min(axis=(1, 2), initial=0.0), self.log_p_unexplained)
        rarity: Array = np.exp(-np.minimum(least + math.log((self.log_p[0].size + 1) * n_machines), 0.0))
        return rarity

    def find_changed(self, place: int, n_machines: int) -> list[int]:
        """Return the features in which a machine differs, the clearest first."""
        differences, overlaps = self.differences[place].copy(), self.overlaps
        least = float(student.isf(0.5 / (_NAMED * (differences.size + 1) * n_machines), _MOST_DOF))
        found: list[int] = []
        for _ in range(len(differences)):
            scores = np.abs(differences / self.scales[place]).max(axis=1)
            scores[found] = 0.0
            best = int(scores.argmax())
            if scores[best] < least:
                break
            least = max(least, _LEAST_SHARE * float(scores[best]))
            found.append(best)
            # Others show a part of what this one does, as far as their responses overlap.
            excess = np.expm1(np.minimum(differences[:, 1], 50.0))
            excess -= overlaps[best] ** 2 * excess[best]
            differences -= np.outer(overlaps[best], differences[best])
            differences[:, 1] = np.log1p(np.maximum(excess, -0.9))
        return found


def _statistics(fleet: _Fleet, usual: Flags) -> tuple[Array, Array]:
    """Compute offset, noise and slopes of each machine (N, d, 2 + k), and the overlaps of features' responses (d, d).

    Coordinates are whitened by the mean covariance of the usual machines.
    """
    chosen = [machine for machine, is_usual in zip(fleet.machines, usual, strict=True) if is_usual]
    within = np.mean([machine.covariance for machine in chosen], axis=0)
    centre = np.median([machine.mean for machine in chosen], axis=0)
    variances, axes = np.linalg.eigh(within)
    # At least what rounding leaves of rows that are all equal.
    total = max(float(np.trace(within)), 1e-12 * float(centre @ centre), 1e-300)
    n_slopes = min(_N_SLOPES, int((variances > _LEAST_COMPONENT * total).sum()))
    variances = np.maximum(variances, 0.0)
    smoother = axes / np.sqrt(variances + _NOISE_RIDGE * total)
    axes /= np.sqrt(variances + _RIDGE * total)
    components = axes[:, len(axes) - n_slopes :]
    means = (fleet.responses @ axes).mean(axis=1)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-300)
    _, lengths, directions = np.linalg.svd(fleet.responses @ smoother, full_matrices=False)
    along = (lengths[:, :_N_DIRECTIONS, None] * directions[:, :_N_DIRECTIONS]) @ smoother.T
    mean_axes = means @ axes.T
    values = np.empty((len(fleet.machines), len(means), 2 + components.shape[1]))
    for own, machine in zip(values, fleet.machines, strict=True):
        shared = machine.covariance @ components
        # A machine that is far from all atoms has no covariance.
        slopes = np.linalg.pinv(components.T @ shared, hermitian=True) @ shared.T
        noise = np.einsum("jrm,jrm->j", along @ (machine.covariance - shared @ slopes), along)
        own[:, 0] = mean_axes @ (machine.mean - centre)
        own[:, 1] = np.log(np.maximum(noise, 1e-300))
        own[:, 2:] = mean_axes @ slopes.T
    return values, means @ means.T


def _log_p(differences: Array, scales: Array, dof: Array) -> Array:
    """Return the logarithms of the probabilities of differences as large, by Student's t."""
    log_p: Array = math.log(2.0) + student.logsf(np.abs(differences / scales), dof)
    return log_p


def _standardise(values: Array, n_rows: Array, deciding: Flags | None = None) -> tuple[Array, Array, Array]:
    """Compare statistics (N, k) with those of the machines that decide what is usual, which are all by default.

    Returns differences, their scales, and the degrees of freedom of these: (N, k). A share of the variance falls with
    the rows of a machine; the fleet decides which.
    """
    decides = np.ones(len(values), dtype=bool) if deciding is None else deciding
    n = int(decides.sum())
    values = values - np.median(values[decides], axis=0)
    weights = np.ones((len(values), 1))
    if n_rows.min() < n_rows.max():
        choices = [np.sqrt(1.0 - share + share * np.median(n_rows) / n_rows)[:, None] for share in _SHARES]
        fits = [_log_likelihood(values[decides] / choice[decides], choice[decides]) for choice in choices]
        weights = choices[int(np.argmax(fits))]
    scaled = values[decides] / weights[decides]
    centre = np.median(scaled, axis=0)
    # A median of deviations tells as much about the variance as 0.37 n numbers.
    variance, dof = _moderate((1.4826 * np.median(np.abs(scaled - centre), axis=0)) ** 2, 0.37 * (n - 1.0))
    for _ in range(2):
        kept = (scaled - centre) ** 2 <= _MOST_DEVIATIONS**2 * (1.0 + 2.0 / n) * variance
        count = np.maximum(kept.sum(axis=0), 2)
        centre = np.where(kept, scaled, 0.0).sum(axis=0) / count
        squares = (np.where(kept, scaled - centre, 0.0) ** 2).sum(axis=0)
        variance, dof = _moderate(squares / (count - 1.0), count - 1.0)
    scales = np.sqrt(np.maximum(variance * (1.0 + 1.0 / count), 1e-300)) * weights
    return values - centre * weights, scales, np.broadcast_to(np.minimum(dof, _MOST_DOF), scales.shape)


def _standardise_apart(values: Array, n_rows: Array, is_projected: Flags) -> tuple[Array, Array, Array]:
    """Compare statistics (N, k) that are smaller where moments were projected, which differs from machine to machine.

    Odd machines replace atoms. So if most others did not, projected moments count where they are larger than whole
    ones; else the few whole ones are compared with projected ones, but for what is common to them.
    """
    if 2 * is_projected.sum() <= len(is_projected):
        differences, scales, dof = _standardise(values, n_rows, ~is_projected)
        return np.where(is_projected[:, None], np.maximum(differences, 0.0), differences), scales, dof
    differences, scales, dof = _standardise(values, n_rows, is_projected)
    common = np.maximum(differences.min(axis=0, where=~is_projected[:, None], initial=np.inf), 0.0)
    return differences - np.where(is_projected[:, None], 0.0, common), scales, dof


def _log_likelihood(scaled: Array, weights: Array) -> float:
    """Return the log likelihood of statistics divided by weights, with the tails of Student's t of 4."""
    n, k = scaled.shape
    square = np.maximum(1.4826 * np.median(np.abs(scaled), axis=0), 1e-150) ** 2
    tails = 2.5 * np.log1p(scaled**2 / (4.0 * square)).sum()
    return float(-k * np.log(weights).sum() - 0.5 * n * np.log(square).sum() - tails)


def _moderate(variances: Array, dof: Any) -> tuple[Array, Array]:
    """Draw variances (k,) towards their common one, as in Smyth (2004); return degrees of freedom, too."""
    dof = np.broadcast_to(dof, variances.shape)
    if len(variances) < 2:
        return variances, dof
    logs = np.log(np.maximum(variances, 1e-300)) - digamma(0.5 * dof) + np.log(0.5 * dof)
    excess = float(logs.var(ddof=1) - polygamma(1, 0.5 * dof).mean())
    # Half of the prior's degrees of freedom; its trigamma function is the excess, and nearly 1 / y + 1 / (2 y^2).
    half = 50.0 if excess <= 0.02 else (1.0 + math.sqrt(1.0 + 2.0 * excess)) / (2.0 * excess)
    prior = math.exp(float(logs.mean()) + float(digamma(half)) - math.log(half))
    return (2.0 * half * prior + dof * variances) / (2.0 * half + dof), 2.0 * half + dof
