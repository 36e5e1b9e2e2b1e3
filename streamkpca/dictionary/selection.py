"""Selection: which rows to admit as atoms, which atoms to remove, and which row should replace which atom."""

from dataclasses import dataclass

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.linalg import KERNEL_ROUNDING, LEAST_PIVOT
from streamkpca._core.reservoir import Draws, Reservoir
from streamkpca.dictionary import _loops as loops
from streamkpca.dictionary.basis import (
    AtomStats,
    Basis,
    Projected,
    reveals_indefinite_kernel,
    rounding_error,
    warn_indefinite,
)
from streamkpca.dictionary.moments import Moments, gram_of

# Losses and gains below this share of k(x, x) are rounding.
_NEGLIGIBLE = 1e-12

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
        rows = sample.part(part)
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


# Squares of residuals below this share of the largest k(x, x) of a block would underflow.
_LEAST_SHARE = 1e-150

# Candidates of a search, sampled rows that screen them, and how many of them the whole sample then judges. With half as
# many rows to screen them, the unexplained energy of a curved sheet was larger by another percent.
MOST_CANDIDATES = 2048
SCREENING_ROWS = 1024
_MOST_JUDGED = 128
_CANDIDATES_AT_ONCE = 256

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


def choose_by_tolerance(basis: Basis, block: Projected, weights: Array, tolerated: float) -> Choice:
    """Choose few rows, greedily, that leave at most the energy `tolerated` of a block of weights (B,) unexplained.

    If it is 0, every row that is independent to working precision is admitted, the largest pivot first.
    """
    rule = loops.GAIN if tolerated > 0.0 else loops.DISTANCE
    return _choose_rows(basis, block, weights, rule, len(weights), (1.0, 0.0, tolerated or -1.0))


def choose_below_budget(
    basis: Basis,
    block: Projected,
    weights: Array,
    *,
    max_atoms: int,
    least_gain: float,
    total_weight: float,
) -> Choice:
    """Choose rows that gain more than `least_gain` while the basis has fewer than `max_atoms`.

    `total_weight` is that of the stream, this block of weights (B,) included.
    """
    # A block cannot add more atoms than it has rows, so a generous budget takes no memory before it is used.
    most = min(max_atoms - basis.size, len(weights))
    return _choose_rows(basis, block, weights, loops.CAUTIOUS_GAIN, most, (total_weight, least_gain, -1.0))


def _choose_rows(
    basis: Basis, block: Projected, weights: Array, rule: int, most: int, limits: tuple[float, float, float]
) -> Choice:
    """Choose at most `most` rows of a block by a rule and limits of `choose_greedily`; O(B^2 (d + m + most))."""
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
    total_weight, least_gain, tolerated = limits
    scaled = (total_weight, least_gain / unit, tolerated / unit, LEAST_PIVOT, KERNEL_ROUNDING)
    count, lowest = loops.choose_greedily(
        gram, rows, weights, energy, residual, rule, scaled, coordinates, factor, atom_energy, chosen
    )
    if lowest < 0.0:
        warn_indefinite(lowest * unit)
    return Choice(chosen[:count], _NO_POSITIONS)


@dataclass(frozen=True)
class SwapSearch:
    """Chooses candidates that replace atoms, see `Swaps`.

    The sample and `total_weight` include the present block, the moments do not. A row must exceed `usual_weight` to say
    anything about later rows by itself.
    """

    basis: Basis
    stats: AtomStats
    moments: Moments
    sample: Reservoir
    total_weight: float
    usual_weight: float = 0.0

    def shares(self, weights: Array) -> Array:
        """Return the shares of the stream (k,) that rows of weights (k,) stand for by themselves."""
        return np.maximum(weights - self.usual_weight, 0.0) / self.total_weight

    def choose(self, candidates: Draws) -> tuple[Choice, Draws]:
        """Choose candidates that replace atoms; return also those worth another search, best first.

        A part of the sample screens the candidates; the whole sample judges the best of them.
        """
        leading = self._screen(candidates)
        judged = leading[:_MOST_JUDGED]
        swaps: dict[int, int] = {}
        total_profit = 0.0
        if len(judged):
            swapped = Swaps(self, candidates.at(judged))
            for _ in judged:
                candidate, atom, profit = swapped.best()
                if profit <= 0.0:
                    break
                total_profit += profit
                swapped.apply(candidate, atom)
                # A candidate admitted and swapped out within one search is not recorded.
                swaps.pop(atom, None)
                swaps[atom] = candidate
        choice = Choice(judged[list(swaps.values())], np.array(sorted(swaps), dtype=np.int64), total_profit)
        return choice, candidates.at(leading[: 4 * _MOST_JUDGED])

    def _screen(self, candidates: Draws) -> Positions:
        """Find the independent candidates whose cautious gains are positive, in descending order."""
        basis, sample = self.basis, self.sample.first(SCREENING_ROWS)
        seen, sampled = basis.project(candidates.double_rows), basis.project(sample.rows)
        unit = float(np.abs(seen.energy).max(initial=0.0)) or 1.0
        rounding = rounding_error(seen.energy, seen.coordinates @ basis.inverse, basis.energy)
        least = np.maximum(rounding, np.maximum(LEAST_PIVOT * np.abs(seen.energy), _LEAST_SHARE * unit))
        independent = (seen.residual > least) & (candidates.weights > 0.0)
        independent &= ~np.isin(candidates.positions, self.stats.positions)
        pivots = np.where(independent, seen.residual / unit, 1.0)
        weights, own = sample.normalised_weights(), normalised_weights_of(sample, candidates.positions)
        squares, fourths = np.empty((2, len(pivots)))
        # A part of the candidates at a time, so that the passes over their inner products stay in the cache.
        for start in range(0, len(pivots), _CANDIDATES_AT_ONCE):
            part = slice(start, start + _CANDIDATES_AT_ONCE)
            products = basis.kernel.program.matrix(seen.rows[part], sampled.rows)
            products -= seen.coordinates[part] @ sampled.coordinates.T
            products /= unit
            if not basis.kernel.is_positive_definite:
                residual, energy = sampled.residual / unit, np.abs(sampled.energy) / unit
                independent[part] &= ~reveals_indefinite_kernel(residual, products, pivots[part], energy, unit=unit)
            products *= products
            squares[part] = products @ weights
            products *= products
            fourths[part] = products @ weights
        shares = self.shares(candidates.weights)
        gains = np.empty(len(pivots))
        loops.cautious_gains(squares, fourths, np.where(independent, pivots, 0.0), own, shares, weights, gains)
        order = np.argsort(-gains, kind="stable")
        return order[gains[order] > 0.0]


class Swaps:
    """Candidate rows that may replace atoms, judged by a sample of the stream.

    Let R be the residual inner products of sampled rows (i) and candidates (c), V the coefficients of the sampled rows'
    projections over the atoms, v those of the candidate's projection, P = K^-1 and t_i = R_ic / R_cc. The energy that
    row i gains from candidate c is R_ic^2 / R_cc, and what it then loses without atom j is

        (V_ij - t_i v_j)^2 / (P_jj + v_j^2 / R_cc).

    When the sample judges a candidate or an atom, its own row is left out and counts with its share of the stream,
    a / N, less `usual_weight` / N. An atom that has seen more rows than the sample has is worth at least what the
    moments record: a rare pattern that keeps coming back may have no row in the sample.

    Every mean over the sample is an entry of the Gram matrix of the columns of [V R], and a swap adds multiples of one
    column to the others: O(n (m + s) (d + m + s)) to make for n sampled rows, and O((m + s)^2) for each swap.
    """

    def __init__(self, search: SwapSearch, candidates: Draws) -> None:
        basis, stats, moments, sample = search.basis, search.stats, search.moments, search.sample
        seen = basis.project(candidates.double_rows)
        # Powers of the residuals are taken in multiples of this, so that no scale of the kernel under- or overflows.
        unit = self._unit = float(np.abs(seen.energy).max()) or 1.0
        inverse = basis.inverse
        self._n_atoms = basis.size
        self._sums = sample_gram(basis, sample, seen, unit)
        self._gram = (basis.kernel.program.gram(seen.rows) - seen.coordinates @ seen.coordinates.T) / unit
        self._coefficients = seen.coordinates @ inverse
        self._energy = seen.energy / unit
        self._precision = basis.precision * unit
        self._recorded = inverse.T @ moments.second @ inverse

        self._normalised_weights = normalised_weights_of(sample, stats.origins)
        self._candidate_normalised_weights = normalised_weights_of(sample, candidates.positions)
        self._shares = search.shares(stats.weights)
        self._candidate_shares = search.shares(candidates.weights)
        # The moments count for an atom only if they record more rows of average weight for it than the sample has.
        rows_seen = stats.weight_since_admission * moments.total_weight / max(moments.total_squared_weight, 1e-300)
        self._weight_since_admission = np.where(rows_seen > len(sample), stats.weight_since_admission, np.inf)
        self._free = np.ones(len(seen.rows), dtype=bool)
        self._may_be_indefinite = not basis.kernel.is_positive_definite

    def best(self) -> tuple[int, int, float]:
        """Find the candidate and the atom whose swap gains most, and its gain of energy per unit of weight."""
        precision = np.diagonal(self._precision).copy()
        found = np.full(2, -1)
        profit = loops.best_swap(
            self._sums,
            self._usable_pivots(),
            self._coefficients,
            precision,
            self._normalised_weights,
            self._shares,
            np.diagonal(self._recorded) / precision / self._weight_since_admission,
            self._candidate_shares - self._candidate_normalised_weights,
            _NEGLIGIBLE,
            found,
        )
        candidate, atom = found.tolist()
        return candidate, atom, profit * self._unit if candidate >= 0 else 0.0

    def apply(self, candidate: int, atom: int) -> None:
        """Let a candidate replace an atom."""
        m, sums, v = self._n_atoms, self._sums, self._coefficients
        pivot = self._precision[atom, atom]
        share, leaving = self._precision[atom] / pivot, v[:, atom].copy()
        loops.add_column(sums, sums[atom].copy(), sums[atom, atom], np.concatenate([-share, leaving / pivot]))
        sums[atom] = sums[:, atom] = 0.0
        loops.subtract_outer(v, leaving, share)
        loops.subtract_outer(self._gram, -leaving / pivot, leaving)
        loops.remove_direction(atom, share, self._precision, self._recorded)
        v[:, atom] = 0.0

        pivot = self._gram[candidate, candidate]
        along, entering = self._gram[candidate].copy(), v[candidate].copy()
        # The removed atom's column is zero, and becomes that of the candidate.
        multiples = np.concatenate([-entering, -along])
        multiples[atom] = 1.0
        loops.add_column(sums, sums[m + candidate] / pivot, sums[m + candidate, m + candidate] / pivot**2, multiples)
        loops.subtract_outer(v, along / pivot, entering)
        v[:, atom] = along / pivot
        loops.subtract_outer(self._gram, along / pivot, along)
        # The candidate's dual vector is r / |r|^2, and those of the others lose their share along its residual r.
        change = -entering / np.sqrt(pivot)
        change[atom] = 1.0 / np.sqrt(pivot)
        loops.subtract_outer(self._precision, -change, change)

        self._normalised_weights[atom] = self._candidate_normalised_weights[candidate]
        self._shares[atom] = self._candidate_shares[candidate]
        self._weight_since_admission[atom] = np.inf
        self._free[candidate] = False

    def _usable_pivots(self) -> Array:
        """Return residuals (s,) of candidates; 0 if admitted, dependent, or revealing an indefinite kernel."""
        residual, energy = np.diagonal(self._gram), np.abs(self._energy)
        usable = self._free & (residual > LEAST_PIVOT * energy)
        if self._may_be_indefinite:
            rows = np.flatnonzero(usable)
            usable[rows] = ~reveals_indefinite_kernel(
                residual, self._gram[rows], residual[rows], energy, unit=self._unit
            )
        return np.where(usable, residual, 0.0)


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
