"""The contrast of a kernel: how well it tells rows from copies of them in which one number is another row's."""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpstrf

from streamkpca._core.arrays import Array, Flags, Indices
from streamkpca._core.linalg import one_blas_thread, solve_factor, squared_norms
from streamkpca.kernels.program import Program

# Rows that the contrast is measured on, and those of them that span the known part. With twice as many of either, the
# width that resulted was the same within one step of the grid, on 24 streams of eight kinds.
_MOST_ROWS, _MOST_KNOWN = 1024, 128
_COPIES = 2
# Share of the best contrast, beyond chance, that is nearly the best.
_NEARLY = 0.9
# Standard errors of a contrast that are allowed for chance, and that are beyond it.
_CHANCE, _BEYOND_CHANCE = 0.5**0.5, 3.0
# With fewer held-out rows, contrasts are mostly chance.
_LEAST_HELD_OUT = 16
_RANK_TOLERANCE = 1e-11
# Smaller shares outside the span are rounding, which must not decide, and count as none.
_ROUNDING = 1e-12


class Swaps(NamedTuple):
    """Known rows (k, d), held-out rows (h, d) of weights (h,), copies (s, d), and the rows (s,) they are copies of."""

    known: Array
    held_out: Array
    weights: Array
    copies: Array
    of: Indices


def known_quarters(n: int) -> Flags:
    """Tell which of n rows are known: every other quarter, as neighbours in time resemble each other."""
    known: Flags = 4 * np.arange(n) // n % 2 == 0
    return known


def swapped(X: Array, weights: Array | None) -> Swaps:
    """Hold out half of some rows (n, d), and copy each held-out row with one number replaced by that of another."""
    chosen = np.linspace(0, len(X) - 1, min(len(X), _MOST_ROWS)).astype(np.intp)
    is_known, rows = known_quarters(len(X))[chosen], X[chosen]
    known, held_out = rows[is_known], rows[~is_known]
    n_known = min(len(known), _MOST_KNOWN)
    known = known[np.linspace(0, len(known) - 1, n_known).astype(np.intp)]
    row_weights = np.ones(len(held_out)) if weights is None else weights[chosen][~is_known]
    varying = np.flatnonzero(held_out.min(axis=0) < held_out.max(axis=0)) if len(held_out) else np.empty(0, np.intp)
    if len(held_out) < _LEAST_HELD_OUT or not len(varying):
        return Swaps(known, held_out, row_weights, held_out[:0], np.empty(0, dtype=np.intp))
    random = np.random.default_rng(0)
    of = np.tile(np.arange(len(held_out)), _COPIES)
    columns, donors = random.choice(varying, len(of)), random.integers(len(held_out), size=len(of))
    copies = held_out[of]
    copies[np.arange(len(of)), columns] = held_out[donors, columns]
    differs = (copies != held_out[of]).any(axis=1)
    return Swaps(known, held_out, row_weights, copies[differs], of[differs])


def contrast(program: Program, swaps: Swaps, share: float = 1.0) -> float:
    """Return how well copies are told from held-out rows: .5 where the kernel sees no difference, 1 where all are.

    It is the area under the ROC curve, up to a share of held-out rows that are taken for copies, stretched so that
    chance is .5 (D. McClish, "Analyzing a portion of the ROC curve", Medical Decision Making 9, 1989). By default it is
    the probability that a copy is more novel than a row. Among equal ones, a copy is in the middle. Novelty is the
    share of a row's energy outside the span of the known rows.
    """
    if not len(swaps.copies):
        return 0.5
    with one_blas_thread(), np.errstate(all="ignore"):
        gram = program.gram(swaps.known)
        factor, pivots, rank, _ = dpstrf(gram, lower=1, tol=_RANK_TOLERANCE * float(np.max(np.diagonal(gram))))
        factor = np.ascontiguousarray(np.tril(factor[:rank, :rank]))
        known = swaps.known[pivots[:rank] - 1]
        usual, odd = (_log_share(program, factor, known, rows) for rows in (swaps.held_out, swaps.copies))
    order = np.argsort(usual)
    # A copy is more novel than all rows of which a larger share is explained.
    total = np.concatenate([[0.0], np.cumsum(swaps.weights[order])])
    explained = usual[order]
    more, as_many = (np.searchsorted(explained, odd, side=side) for side in ("right", "left"))
    taken = 0.5 * (total[more] + total[as_many]) / total[-1]
    found = np.average(np.maximum(1.0 - taken / share, 0.0), weights=swaps.weights[swaps.of])
    return float(0.5 + 0.5 * (found - 0.5 * share) / (1.0 - 0.5 * share))


def least_change(contrasts: Array, n_held_out: int, kept: float = _NEARLY, share: float = 1.0) -> int:
    """Return the first of several kernels, from the usual one on, whose contrast is nearly the best.

    It exceeds chance by at least the share `kept` of what the best does, up to chance. Where even the best is within
    three standard errors of chance, the usual kernel stays. They are contrasts up to the `share` of `contrast`.
    """
    # Of copies like rows, twice as many, each is found by the largest of 1 - u / share and 0, with u in 0 to 1.
    variance = 1.5 * (share / 3.0 - share**2 / 4.0) / max(n_held_out, 1)
    error = 0.5 * np.sqrt(variance) / (1.0 - 0.5 * share)
    # Areas below one half are chance: no kernel takes copies for rows and rows for copies.
    excess = np.maximum(contrasts - 0.5, 0.0)
    if float(excess.max()) < _BEYOND_CHANCE * error:
        return 0
    return int(np.argmax(excess >= kept * float(excess.max()) - _CHANCE * error))


def _log_share(program: Program, factor: Array, known: Array, rows: Array) -> Array:
    """Return the logarithm of the share of each row's energy inside the span of the known rows."""
    values = program.matrix(rows, known)
    # Far away, squares of kernel values would underflow.
    largest = np.abs(values).max(axis=1, initial=np.finfo(float).tiny)
    inside = squared_norms(solve_factor(factor, values / largest[:, None]))
    shares: Array = np.log(inside) + 2.0 * np.log(largest) - np.log(program.diagonal(rows))
    return np.where(shares > -_ROUNDING, 0.0, shares)
