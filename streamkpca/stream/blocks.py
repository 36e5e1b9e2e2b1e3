"""Blocks: rows that wait until one is full, what it is seen from the basis, and blocks prepared ahead in threads."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca.dictionary.basis import Basis, Projected
from streamkpca.dictionary.moments import RowSums

Array = npt.NDArray[np.float64]

_LEAST_CAPACITY = 32


class RowBuffer(NamedTuple):
    """Pending rows and their weights, at the beginning of two buffers.

    Parameters
    ----------
    n_rows : int
    row_buffer : ndarray of shape (capacity, d)
        In single precision where the stream keeps rows so.
    weight_buffer : ndarray of shape (capacity,)

    Notes
    -----
    A value: whoever holds one sees the same rows for ever. Rows are appended in place, behind the first `n_rows`, which
    no earlier holder reads; so only the newest may be appended to. Buffers double until a block fits, so that a block
    size that is never reached takes no memory.
    """

    n_rows: int
    row_buffer: Array
    weight_buffer: Array

    @classmethod
    def empty(cls, n_features: int, dtype: str = "float64") -> Self:
        """Return a buffer without rows that keeps them in this precision."""
        return cls(0, np.empty((0, n_features), dtype=dtype), np.empty(0))

    @property
    def rows(self) -> Array:
        """The rows in double precision, (n_rows, d)."""
        return self.kept_rows.astype(np.float64, copy=False)

    @property
    def kept_rows(self) -> Array:
        """The rows as they are kept, (n_rows, d)."""
        return self.row_buffer[: self.n_rows]

    @property
    def weights(self) -> Array:
        """The weights of the rows, (n_rows,)."""
        return self.weight_buffer[: self.n_rows]

    def joined(self, rows: Array, weights: Array | float, most: int) -> Self:
        """Append rows, in place where there is room; `most` bounds the capacity."""
        stop = self.n_rows + len(rows)
        newer = self if stop <= len(self.weight_buffer) else self._moved(min(max(2 * stop, _LEAST_CAPACITY), most))
        newer.row_buffer[self.n_rows : stop] = rows
        newer.weight_buffer[self.n_rows : stop] = weights
        return type(self)(stop, newer.row_buffer, newer.weight_buffer)

    def decayed(self, factor: float) -> Self:
        """Let all rows count `factor` times what they did."""
        weights = self.weight_buffer.copy()
        weights[: self.n_rows] *= factor
        return type(self)(self.n_rows, self.row_buffer, weights)

    def _moved(self, capacity: int) -> Self:
        rows, weights = np.empty((capacity, self.row_buffer.shape[1]), self.row_buffer.dtype), np.empty(capacity)
        rows[: self.n_rows], weights[: self.n_rows] = self.kept_rows, self.weights
        return type(self)(self.n_rows, rows, weights)


class BlockCutter:
    """Pending rows and new ones, cut into blocks.

    Parameters
    ----------
    pending : RowBuffer
    rows, weights : ndarray of shape (n, d) and (n,)
    block_size : int

    Attributes
    ----------
    n_blocks : int
        Number of full blocks. Only the first is a copy, where rows were pending; the others are views.
    """

    def __init__(self, pending: RowBuffer, rows: Array, weights: Array, block_size: int) -> None:
        self.n_blocks = (pending.n_rows + len(rows)) // block_size
        self._rows, self._weights, self._size = rows, weights, block_size
        self._n_missing = block_size - pending.n_rows
        self._first = rows[: self._n_missing], weights[: self._n_missing]
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
        return self._rows[piece], self._weights[piece]


class Block:
    """Rows seen from the basis as it is when this is made.

    Parameters
    ----------
    basis : Basis
    rows, weights : ndarray of shape (B, d) and (B,)
        Decayed weights, where rows fade.

    Attributes
    ----------
    rows, weights : ndarray
    sums : RowSums
        Over kernel values against the atoms where `Basis.is_well_conditioned`, else over coordinates.
    unexplained : float
        Energy of the block outside the span; rounding may make it negative.

    Notes
    -----
    Coordinates are c(x) = L^-1 k_Z(x), and sums over their products follow from sums over products of kernel values:
    the product with L^-1 is due once for many blocks instead of once a row, which saves a third of the work. The block
    leaves sum a k(x,x) - <K^-1, sum a k_Z k_Z^T> unexplained. Where the atoms are so close to each other that rounding
    would show, coordinates are made and summed at once.

    O(B m (d + m)). Nothing is changed: blocks can be made in other threads, and thrown away.
    """

    def __init__(self, basis: Basis, rows: Array, weights: Array) -> None:
        self.rows, self.weights = rows, weights
        self._basis = basis.copy()
        self._row_energy, self._kernel_rows = basis.compare(rows)
        if basis.is_well_conditioned:
            self.sums = RowSums.of(self._kernel_rows, self._row_energy, weights)
            recorded = float(np.vdot(basis.precision, self.sums.second))
        else:
            coordinates = basis.coordinates(self._kernel_rows.copy())
            self.sums = RowSums.of(coordinates, self._row_energy, weights)
            recorded = float(np.trace(self.sums.second))
        self.unexplained = self.sums.energy - recorded

    @property
    def mean_residual(self) -> float:
        """Weighted mean of the squared distances to the span, never negative."""
        return max(self.unexplained, 0.0) / self.sums.total_weight

    def is_seen_from(self, basis: Basis) -> bool:
        """Tell whether the basis still has the atoms that this block was compared with."""
        return self._basis.factor is basis.factor

    def projected(self) -> Projected:
        """Return the rows' coordinates, O(B m^2)."""
        return Projected(self.rows, self._row_energy, self._basis.coordinates(self._kernel_rows.copy()))


class _Task:
    """A block that a thread will prepare, or has prepared."""

    def __init__(self, number: int, prepare: Callable[[int], Block], pool: ThreadPoolExecutor) -> None:
        self.number = number
        self._prepare = prepare
        self._future = pool.submit(prepare, number)
        self._block: Block | None = None

    @property
    def is_done(self) -> bool:
        return self._block is not None or self._future.done()

    def help(self) -> None:
        """Prepare the block here and now, unless another thread has begun."""
        if self._block is None and self._future.cancel():
            self._block = self._prepare(self.number)

    def result(self) -> Block:
        """Wait for the block."""
        return self._future.result() if self._block is None else self._block

    def drop(self) -> None:
        """Do not begin any more."""
        self._future.cancel()


class BlockPrefetcher:
    """Compares the next blocks with the atoms in `n_threads` threads, this one among them; with one, none ahead.

    Notes
    -----
    Comparing rows with the atoms is nearly all of the work and changes nothing, so it can be done ahead of time, for
    blocks side by side; recording stays in order. Each block is made by one thread and its sums are added in the
    stream's order, so that answers are the same bits whatever the number of threads. Should the atoms change meanwhile,
    a block that was prepared too early is thrown away.

    While another thread prepares the block that is due, this one works at a later block: with more threads than cores,
    the one that holds the interpreter lock is put to sleep, and all the others wait.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self._pool = ThreadPoolExecutor(n_threads - 1) if n_threads > 1 else None
        self._tasks: deque[_Task] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for the tasks that have begun, and drop the rest."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def block(self, number: int, last: int, prepare: Callable[[int], Block]) -> Block | None:
        """Return a block and have later ones prepared; None if this one was not.

        Parameters
        ----------
        number : int
            The block that is due; one more at each call.
        last : int
            The last block that is worth preparing; none is begun if that is not after `number`.
        prepare : callable
            Takes a number and compares that block with the atoms as they are now.
        """
        while self._tasks and self._tasks[0].number < number:
            self._tasks.popleft().drop()
        if self._pool and last > number:
            first = self._tasks[-1].number + 1 if self._tasks else number
            for ahead in range(first, min(last, number + 2 * self._n_threads) + 1):
                self._tasks.append(_Task(ahead, prepare, self._pool))
        if not self._tasks or self._tasks[0].number != number:
            return None
        due = self._tasks.popleft()
        for task in (due, *self._tasks):
            if due.is_done:
                break
            task.help()
        return due.result()
