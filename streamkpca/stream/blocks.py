"""Blocks of rows: cut, compared with the atoms, and prepared ahead in threads."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.dictionary.basis import Basis, Projected
from streamkpca.dictionary.moments import RowSums
from streamkpca.rows.validation import Rows

# Pieces of a buffer, beyond which they are united: each call that adds a row copies the list of them.
_MOST_PIECES = 256


class RowBuffer(NamedTuple):
    """Rows and weights in the pieces, (k, d) and (k,), that they came in; the first piece may be empty. A value."""

    n_rows: int
    row_pieces: tuple[Array, ...]
    weight_pieces: tuple[Array, ...]

    @classmethod
    def empty(cls, n_features: int, dtype: str = "float64") -> Self:
        """Return a buffer without rows that stores them in this precision."""
        return cls.of(np.empty((0, n_features), dtype=dtype), np.empty(0))

    @classmethod
    def of(cls, rows: Array, weights: Array) -> Self:
        """Return a buffer of these rows (n, d), kept in their precision, and weights (n,), which are not copied."""
        return cls(len(rows), (rows,), (weights,))

    @property
    def rows(self) -> Array:
        """The rows in double precision, (n_rows, d)."""
        return self.kept_rows.astype(np.float64, copy=False)

    @property
    def kept_rows(self) -> Array:
        """The rows in the precision that they are stored in, (n_rows, d)."""
        return np.concatenate(self.row_pieces)

    @property
    def weights(self) -> Array:
        """The weights of the rows, (n_rows,)."""
        return np.concatenate(self.weight_pieces)

    def join(self, rows: Array, weights: Array | float) -> Self:
        """Append copies of rows (n, d) and of their weights (n,), or one weight for all."""
        if not len(rows):
            return self
        begun = self if len(self.row_pieces) < _MOST_PIECES else self.of(self.kept_rows, self.weights)
        kept, counts = rows.astype(self.row_pieces[0].dtype, order="C"), np.empty(len(rows))
        counts[:] = weights
        return type(self)(self.n_rows + len(rows), (*begun.row_pieces, kept), (*begun.weight_pieces, counts))

    def decay(self, factor: float, *, least: float = 0.0) -> Self:
        """Multiply all weights by `factor`; those above 0 stay at least `least`."""
        weights = self.weights
        return self.of(self.kept_rows, np.where(weights > 0.0, np.maximum(factor * weights, least), 0.0))

    def __reduce__(self) -> tuple[Any, ...]:
        # Equal models have equal pickles, however their rows were cut.
        return type(self).of, (self.kept_rows, self.weights)


class BlockCutter:
    """Pending rows and new ones, (n, d) and (n,), cut into `n_blocks` full blocks and a rest, mostly views."""

    def __init__(self, pending: RowBuffer, rows: Rows, weights: Array, block_size: int) -> None:
        self.n_blocks = (pending.n_rows + len(rows)) // block_size
        self._rows, self._weights, self._size = rows, weights, block_size
        self._n_missing = block_size - pending.n_rows
        self._first = rows[: self._n_missing], np.ascontiguousarray(weights[: self._n_missing])
        if pending.n_rows:
            self._first = (
                np.concatenate([pending.rows, self._first[0]]),
                np.concatenate([pending.weights, self._first[1]]),
            )

    def block(self, number: int) -> tuple[Array, Array]:
        """Return the rows and weights of a block; those of number `n_blocks` are the rest."""
        if number == 0:
            return self._first
        start = self._n_missing + (number - 1) * self._size
        piece = slice(start, start + self._size)
        return self._rows[piece], np.ascontiguousarray(self._weights[piece])


class Block:
    """Rows (B, d) of decayed weights (B,), compared with the atoms of a basis.

    Attributes
    ----------
    rows, weights : ndarray
    sums : RowSums
        Sums of kernel values against the atoms if `Basis.is_well_conditioned`, else of coordinates.
    unexplained : float
        Energy of the block outside the span, without the variance of gaps; rounding may make it negative.

    As c(x) = L^-1 k_Z(x), sums over kernel values are enough: the product with L^-1 is computed once for many blocks,
    which saves a third of the work. The block leaves sum a k(x,x) - <K^-1, sum a k_Z k_Z^T> unexplained. If rounding
    would matter, coordinates are summed at once. O(B m (d + m)).
    """

    def __init__(self, basis: Basis, rows: Array, weights: Array) -> None:
        self.rows, self.weights = rows, weights
        self._basis = basis
        self._kernel_rows, self._row_energy, spread = basis.compare(rows)
        # The account holds what is expected of k(x, x), but no atom could explain the variance of what is missing.
        energy, apart = (self._row_energy + spread, spread) if len(spread) else (self._row_energy, None)
        if basis.is_well_conditioned:
            self.sums = RowSums.of(self._kernel_rows, energy, weights, apart)
            recorded = float(np.vdot(basis.precision, self.sums.second))
        else:
            coordinates = basis.coordinates(self._kernel_rows.copy())
            self.sums = RowSums.of(coordinates, energy, weights, apart)
            recorded = float(np.trace(self.sums.second))
        self.unexplained = self.sums.energy - recorded - self.sums.spread

    @property
    def mean_residual(self) -> float:
        """Weighted mean of the rows' squared distances to the span; never negative."""
        return max(self.unexplained, 0.0) / self.sums.total_weight

    def is_current_for(self, basis: Basis) -> bool:
        """Tell whether the basis still has the atoms that this block was compared with."""
        return self._basis.factor is basis.factor and self._basis.distribution is basis.distribution

    def project(self) -> Projected:
        """Return the rows' coordinates, O(B m^2)."""
        return Projected(self.rows, self._row_energy, self._basis.coordinates(self._kernel_rows.copy()))


class BlockPrefetcher:
    """Prepares the next blocks in `n_threads` threads, while the present one records those before.

    Blocks are recorded in the stream's order, so no bit depends on the number of threads. A block is dropped if the
    atoms change after it was prepared.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_ahead = 2 * n_threads
        self._pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None
        self._blocks: deque[Future[Block]] = deque()

    def close(self) -> None:
        """Wait for the blocks that have begun, and drop the rest."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def block(self, number: int, last: int, prepare: Callable[[int], Block]) -> Block | None:
        """Return the block of this number, which rises by one each call, or None if it was not prepared.

        Blocks up to `last` are then prepared ahead; `prepare` compares the block of a number with the present atoms.
        """
        if self._pool and last > number:
            for ahead in range(number + len(self._blocks), min(last, number + self._n_ahead) + 1):
                self._blocks.append(self._pool.submit(prepare, ahead))
        return self._blocks.popleft().result() if self._blocks else None
