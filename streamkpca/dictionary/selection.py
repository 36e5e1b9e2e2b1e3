"""Selection: which rows to admit as atoms, and which atoms to remove; `swaps` tells which row replaces which atom."""

from dataclasses import dataclass

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.linalg import KERNEL_ROUNDING, LEAST_PIVOT
from streamkpca._core.reservoir import Reservoir
from streamkpca.dictionary import _loops as loops
from streamkpca.dictionary.basis import AtomStats, Basis, Projected, warn_indefinite
from streamkpca.dictionary.moments import Moments, gram_of

# Sampled rows projected at a time, which limits the memory used beside the sums.
_SAMPLED_ROWS_AT_ONCE = 1024

# Sums over the sample are taken over kernel values if rounding in these moves no more than this share of the square of
# the candidates' mean residual.
_LEAST_ACCURACY = 1e-6

# Sampled rows for each atom of the budget. A choice among many rows fits a small sample better than the stream: with 20
# sampled rows for each of 200 atoms, the unexplained energy of server metrics was 1.04 times that of batch greedy; with
# 50 it is 1.02 times.
_SAMPLED_ROWS_PER_ATOM = 50
# Least sampled rows.
_LEAST_SAMPLED_ROWS = 1024
# Most sampled rows: the time of a search is in proportion.
_MOST_SAMPLED_ROWS = 10240


def selection_sample_size(max_atoms: int | None) -> int:
    """Return how many rows of the stream judge candidates and atoms, given the budget of atoms."""
    wanted = _MOST_SAMPLED_ROWS if max_atoms is None else _SAMPLED_ROWS_PER_ATOM * max_atoms
    return min(max(wanted, _LEAST_SAMPLED_ROWS), _MOST_SAMPLED_ROWS)


def sample_gram(basis: Basis, sample: Reservoir, candidates: Projected, unit: float) -> Array:
    """Return the Gram matrix (m + s, m + s), weighted by the sample, of the columns of [V R].

    V are the coefficients of the sampled rows' projections over the m atoms, R their residual inner products with the s
    candidates, in multiples of `unit`.

    With D = L^-1, sampled rows X, candidates P: V = k(X, Z) D^T D and R = k(X, P) / unit - k(X, Z) D^T c(P)^T / unit.
    So sums over kernel values are enough, and no sampled row is projected, unless that would lose too many digits.
    """
    m, size = basis.size, basis.size + len(candidates.rows)
    residual = float(candidates.residual.mean()) / unit if size > m else 0.0
    project = not basis.is_well_conditioned or basis.rounding_amplification > _LEAST_ACCURACY * residual**2
    program, weights = basis.kernel.program, sample.normalised_weights()
    sums = np.zeros((size, size))
    # The arrays are made once for all parts. Where the allocator returns memory at once, as it does in dask's workers,
    # new pages for each part made a young stream take a quarter more time.
    n_most = min(len(sample), _SAMPLED_ROWS_AT_ONCE)
    all_seen, compared = np.empty((n_most, size)), np.concatenate([basis.atoms, candidates.rows])
    for start in range(0, len(sample), _SAMPLED_ROWS_AT_ONCE):
        part = slice(start, start + _SAMPLED_ROWS_AT_ONCE)
        rows = sample.rows[part]
        seen, scale = all_seen[: len(rows)], (np.sqrt(weights[part]) / unit)[:, None]
        if project:
            sampled = basis.project(rows)
            seen[:, :m] = sampled.coordinates * np.sqrt(unit)
            seen[:, m:] = program.matrix(rows, candidates.rows)
            seen[:, m:] -= sampled.coordinates @ candidates.coordinates.T
            seen *= scale
        else:
            np.multiply(program.matrix(rows, compared), scale, out=seen)
        sums += gram_of(seen)
    # V = C D turns sums over C into sums over V.
    change = np.eye(size)
    change[:m, :m] = np.sqrt(unit) * basis.inverse if project else unit * basis.precision
    if not project:
        change[:m, m:] = -basis.inverse.T @ candidates.coordinates.T
    return change.T @ sums @ change


def normalised_weights_of(sample: Reservoir, positions: Positions) -> Array:
    """Look up the sample's normalised weights (k,) of rows by their positions in the stream, 0 outside the sample."""
    weights = np.zeros(len(positions))
    _, in_sample, found = np.intersect1d(sample.positions, positions, return_indices=True)
    weights[found] = sample.normalised_weights()[in_sample]
    return weights


# Losses that differ by less than this share of k(x, x) are equal.
_TIE = 1e-12

_NO_POSITIONS: Positions = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Choice:
    """The result of a search: rows that become atoms, atoms to remove, and the gain of that.

    `admitted` are positions among the rows searched, in the order of their choice; `removed` are positions of atoms,
    ascending; `profit` is the energy per unit of weight that swaps gain.
    """

    admitted: Positions
    removed: Positions
    profit: float = 0.0

    def __bool__(self) -> bool:
        """Return whether anything changes."""
        return len(self.admitted) + len(self.removed) > 0


def choose_rows(
    basis: Basis,
    block: Projected,
    weights: Array,
    *,
    tolerated: float,
    max_atoms: int | None = None,
    total_weight: float = 1.0,
) -> Choice:
    """Choose rows of a block of weights (B,) that become atoms, greedily; O(B^2 (d + m + s)) for s of them.

    Without a budget they are few rows that leave at most the energy `tolerated` unexplained, or if that is 0, every row
    that is independent to working precision, the largest pivot first. With at most `max_atoms` atoms, each row gains
    more than its part of `tolerated`; `total_weight` is that of the stream, this block included.
    """
    if max_atoms is None:
        rule, most, least_gain = loops.GAIN if tolerated > 0.0 else loops.DISTANCE, len(weights), 0.0
    else:
        # A block cannot add more atoms than it has rows, so a generous budget takes no memory before it is used.
        rule, most = loops.CAUTIOUS_GAIN, min(max_atoms - basis.size, len(weights))
        least_gain, tolerated = tolerated / float(weights.sum()) / max_atoms, 0.0
    basis.warn_if_indefinite(block)
    m, size = basis.size, basis.size + most
    # Powers of the residuals are taken in multiples of this, so that no scale of the kernel under- or overflows.
    unit = float(np.abs(block.energy).max()) or 1.0
    gram = (basis.kernel.program.gram(block.rows) - block.coordinates @ block.coordinates.T) / unit
    coordinates, factor, atom_energy = np.empty((size, len(weights))), np.empty((size, size)), np.empty(size)
    coordinates[:m], factor[:m, :m] = block.coordinates.T / np.sqrt(unit), basis.factor / np.sqrt(unit)
    atom_energy[:m] = basis.energy / unit
    residual, chosen = np.diagonal(gram).copy(), np.empty(most, dtype=np.int64)
    rows, energy = np.arange(len(weights)), block.energy / unit
    limits = (total_weight, least_gain / unit, (tolerated or -1.0) / unit, LEAST_PIVOT, KERNEL_ROUNDING)
    count, lowest = loops.choose_greedily(
        gram, rows, weights, energy, residual, rule, limits, coordinates, factor, atom_energy, chosen
    )
    if lowest < 0.0:
        warn_indefinite(lowest * unit)
    return Choice(chosen[:count], _NO_POSITIONS)


def choose_to_shrink(
    basis: Basis,
    stats: AtomStats,
    sample: Reservoir,
    max_atoms: int,
    *,
    total_weight: float,
    moments: Moments | None = None,
) -> Choice:
    """Choose the weakest atoms, judged by a sample of the stream, until at most `max_atoms` (1 or more) are left.

    Where the sample lacks most rows, as devices keep none, `moments` judge: rows are then known by their projections.

    The dual vector w_j of atom j, in the span with (phi_i, w_j) = delta_ij, points along what only j spans. Without
    the atom, rows lose the energy Q_jj / P_jj along it, with P the inner products of dual vectors and
    Q_jj = sum_i a_i (w_j, x_i)^2. O(n m^2) for n rows of the sample, and O(m^2) for each atom removed.
    """
    no_candidates = basis.project(basis.atoms[:0])
    precision = basis.precision.copy()
    if moments is None:
        recorded = sample_gram(basis, sample, no_candidates, 1.0)
        # An atom's own row counts with its share of the stream, which is known, instead of its share of the sample.
        own = stats.weights / total_weight - normalised_weights_of(sample, stats.origins)
    else:
        recorded, own = basis.inverse.T @ moments.second @ basis.inverse / total_weight, np.zeros(basis.size)
    rounding = _TIE * float(np.abs(basis.energy).max())
    left = np.arange(basis.size)
    while len(left) > max_atoms:
        loss = (np.diagonal(recorded)[left] + own[left]) / np.diagonal(precision)[left]
        # Ties go to the latest atom, so that rounding cannot decide.
        tied = left[loss <= loss.min() + rounding]
        weakest = int(tied[np.argmax(stats.origins[tied])])
        loops.remove_direction(weakest, precision[weakest] / precision[weakest, weakest], precision, recorded)
        left = left[left != weakest]
    return Choice(_NO_POSITIONS, np.setdiff1d(np.arange(basis.size), left))
