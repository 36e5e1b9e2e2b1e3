"""Blocks to come, compared with the atoms in other threads while the present one is worked off."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.dictionary.basis import Basis, Projected
from streamkpca.dictionary.moments import RowSums

Array = npt.NDArray[np.float64]


class Block:
    """Rows seen from the basis as it is when this is made.

    Parameters
    ----------
    basis : Basis
    rows : ndarray of shape (B, d)
    weights : ndarray of shape (B,)
        Faded ones, if rows fade.

    Attributes
    ----------
    rows, weights : ndarray
    sums : RowSums
        Over kernel values against the atoms where `Basis.is_well_conditioned`, else over coordinates.
    unexplained : float
        What of that lies outside the span; rounding may make it negative.

    Notes
    -----
    Coordinates are c(x) = L^-1 k_Z(x), and sums over their products follow from the sums over those of kernel values:
    the product with L^-1 is due once for many blocks instead of once a row, which saves a third of the work. What the
    block leaves unexplained is sum a k(x,x) - <K^-1, sum a k_Z k_Z^T>. Where the atoms are so close to each other that
    rounding would show, coordinates are made and summed at once.

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
        """Say whether the basis still has the atoms that this block was compared with."""
        return self._basis.factor is basis.factor

    def projected(self) -> Projected:
        """Return the rows' coordinates, O(B m^2)."""
        return Projected(self.rows, self._row_energy, self._basis.coordinates(self._kernel_rows.copy()))


class _Task:
    """A block that some thread will look at, or has."""

    def __init__(self, number: int, look: Callable[[int], Block], pool: ThreadPoolExecutor) -> None:
        self.number = number
        self._look = look
        self._future = pool.submit(look, number)
        self._block: Block | None = None

    @property
    def is_done(self) -> bool:
        return self._block is not None or self._future.done()

    def help(self) -> None:
        """Look at the block here and now, unless another thread has begun."""
        if self._block is None and self._future.cancel():
            self._block = self._look(self.number)

    def result(self) -> Block:
        """Wait for the block."""
        return self._future.result() if self._block is None else self._block

    def drop(self) -> None:
        """Begin no more."""
        self._future.cancel()


class BlockPrefetcher:
    """A few threads that look at the next blocks, this one among them.

    Parameters
    ----------
    n_threads : int
        With one, nothing is looked at ahead.

    Notes
    -----
    Comparing rows with the atoms is nearly all of the work and changes nothing, so it can be done ahead of time, for
    blocks side by side; taking the results in stays in order. Each block is made by one thread and its sums are added
    in the stream's order, so that answers are the same bits whatever the number of threads. Should the atoms change
    meanwhile, what was made too early is thrown away.

    While the block that is due is in the hands of another thread, this one works at a later block: with more threads
    than cores, the one that holds the interpreter lock is put to sleep, and all the others wait.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self._pool = ThreadPoolExecutor(n_threads - 1) if n_threads > 1 else None
        self._tasks: deque[_Task] = deque()

    def __enter__(self) -> Self:
        """Start."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for what is begun, and drop the rest."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def block(self, number: int, last: int, look: Callable[[int], Block]) -> Block | None:
        """Return a block and have those after it looked at.

        Parameters
        ----------
        number : int
            Which block is due; one more each time.
        last : int
            Up to which one it makes sense to look ahead; nothing is begun if that is not after `number`.
        look : callable
            Takes a number and compares that block with the atoms as they are now.

        Returns
        -------
        Block or None
            None where it was not looked at.
        """
        while self._tasks and self._tasks[0].number < number:
            self._tasks.popleft().drop()
        if self._pool and last > number:
            first = self._tasks[-1].number + 1 if self._tasks else number
            for ahead in range(first, min(last, number + 2 * self._n_threads) + 1):
                self._tasks.append(_Task(ahead, look, self._pool))
        if not self._tasks or self._tasks[0].number != number:
            return None
        due = self._tasks.popleft()
        for task in (due, *self._tasks):
            if due.is_done:
                break
            task.help()
        return due.result()
