"""Blocks of rows: cut, compared with the atoms, prepared ahead in threads; and when a block is searched for atoms."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca.dictionary.basis import Basis, Projected
from streamkpca.dictionary.moments import RowSums
from streamkpca.rows.parts import Rows

Array = npt.NDArray[np.float64]

_LEAST_CAPACITY = 32


class RowBuffer(NamedTuple):
    """Pending rows and their weights, the first `n_rows` of two buffers, (capacity, d) and (capacity,).

    Notes
    -----
    A value: its rows never change. `joined` appends in place behind the first `n_rows`, where no earlier value reads.
    Only one value may do that, the one that takes the number of rows out of `end`, which all values of a buffer share;
    another one moves to buffers of its own. Taking is one call of a method in C, so of two threads one gets it.
    Buffers double until a block fits, so that a block size that is never reached takes no memory.
    """

    n_rows: int
    row_buffer: Array
    weight_buffer: Array
    end: list[int]

    @classmethod
    def empty(cls, n_features: int, dtype: str = "float64") -> Self:
        """Return a buffer without rows that stores them in this precision."""
        return cls(0, np.empty((0, n_features), dtype=dtype), np.empty(0), [])

    @classmethod
    def of(cls, rows: Array, weights: Array) -> Self:
        """Return a buffer of these rows (n, d), kept in their precision, and weights (n,), which are not copied."""
        return cls(len(rows), rows, weights, [])

    @property
    def rows(self) -> Array:
        """The rows in double precision, (n_rows, d)."""
        return self.kept_rows.astype(np.float64, copy=False)

    @property
    def kept_rows(self) -> Array:
        """The rows in the precision that they are stored in, (n_rows, d)."""
        return self.row_buffer[: self.n_rows]

    @property
    def weights(self) -> Array:
        """The weights of the rows, (n_rows,)."""
        return self.weight_buffer[: self.n_rows]

    def joined(self, rows: Array, weights: Array | float, most: int) -> Self:
        """Append rows, in place if they fit and no other value has; `most` bounds the capacity."""
        if not len(rows):
            return self
        stop = self.n_rows + len(rows)
        newer = self if stop <= len(self.weight_buffer) and self._takes_end() else self._moved(stop, most)
        newer.row_buffer[self.n_rows : stop] = rows
        newer.weight_buffer[self.n_rows : stop] = weights
        newer.end.append(stop)
        return type(self)(stop, *newer[1:])

    def decayed(self, factor: float, *, least: float = 0.0) -> Self:
        """Multiply all weights by `factor`; those above 0 stay at least `least`."""
        weights = np.where(self.weights > 0.0, np.maximum(factor * self.weights, least), 0.0)
        return type(self)(self.n_rows, self.row_buffer, weights, [])

    def _takes_end(self) -> bool:
        try:
            self.end.remove(self.n_rows)
        except ValueError:
            return False
        return True

    def _moved(self, least: int, most: int) -> Self:
        """Move to larger buffers, with room for at least so many rows."""
        capacity = min(max(2 * least, _LEAST_CAPACITY), most)
        rows, weights = np.empty((capacity, self.row_buffer.shape[1]), self.row_buffer.dtype), np.empty(capacity)
        rows[: self.n_rows], weights[: self.n_rows] = self.kept_rows, self.weights
        return type(self)(self.n_rows, rows, weights, [])


class BlockCutter:
    """Pending rows and new ones, (n, d) and (n,), cut into `n_blocks` full blocks and a rest.

    Of an array, only the first block is a copy, and only if rows were pending; the others are views.
    """

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
    """Rows compared with the atoms that the basis has when the block is made.

    Parameters
    ----------
    basis : Basis
    rows, weights : ndarray of shape (B, d) and (B,)
        With forgetting, decayed weights.

    Attributes
    ----------
    rows, weights : ndarray
    sums : RowSums
        Of kernel values against the atoms if `Basis.is_well_conditioned`, else of coordinates.
    unexplained : float
        Energy of the block outside the span, without the variance of what is missing; rounding may make it negative.

    Notes
    -----
    As c(x) = L^-1 k_Z(x), sums of products of coordinates follow from sums of products of kernel values. So the product
    with L^-1 is computed once for many blocks instead of for each row, which saves a third of the work. The block
    leaves sum a k(x,x) - <K^-1, sum a k_Z k_Z^T> unexplained. If the atoms are so close to each other that rounding
    would matter, coordinates are computed and summed at once.

    O(B m (d + m)). Making a block changes nothing, so it can be made in another thread, or dropped.
    """

    def __init__(self, basis: Basis, rows: Array, weights: Array) -> None:
        self.rows, self.weights = rows, weights
        self._basis = basis.copy()
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
        """Prepare the block in this thread, unless another one has begun."""
        if self._block is None and self._future.cancel():
            self._block = self._prepare(self.number)

    def result(self) -> Block:
        """Wait for the block."""
        return self._future.result() if self._block is None else self._block

    def drop(self) -> None:
        """Cancel the task if it has not begun."""
        self._future.cancel()


class BlockPrefetcher:
    """Prepares the next blocks in `n_threads` threads, including the present one, which alone prepares none ahead.

    Notes
    -----
    Comparing rows with the atoms is nearly all of the work and changes nothing, so several blocks can be compared at
    once, ahead of time. Each block is made by one thread, and blocks are recorded in the stream's order, so that the
    bits of the results do not depend on the number of threads. A block is dropped if the atoms change after it was
    prepared.

    While another thread prepares the block that is due, this one prepares a later block. An extra worker in its place
    would make more threads than cores, and the system may then suspend the one that holds the interpreter lock while
    all the others wait.
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
        """Return the block of this number, which rises by one each call, or None if it was not prepared.

        Blocks up to `last` are then prepared ahead; `prepare` compares the block of a number with the present atoms.
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


LONGEST_PAUSE = 1024
# A block may be searched before the end of the pause if, by two standard errors, it leaves more than the usual residual
# and this share of it. With .1, digits that came class by class were explained worse.
_UNUSUAL = 0.05


class Pace(NamedTuple):
    """Pauses between searches, as shares of the blocks so far: the usual one, and that before twice the usual residual.

    The gain of one more search falls as 1 / n with the number of blocks n, its cost does not. The pause before a block
    that leaves more than usual is in inverse proportion to how much more.
    """

    usual: float
    unusual: float


# Moves cost more than the search for rows, and adapt the atoms to a regime that may soon end: without a pause, metrics
# of a server took three times as long and were explained no better; if the pause did not fall with the residual,
# classes of rows that came one after the other were explained half as well.
# Once the sample does not hold all rows any more, a move loses some of the recorded moments, and needs a cause.
ROWS_PACE, MOVING_PACE, SETTLED_PACE = Pace(0.25, 0.0), Pace(1.5, 0.25), Pace(np.inf, 0.25)


def mean_and_spread(residual: Array, weights: Array) -> tuple[float, float]:
    """Return the mean of residuals (B,), and their standard deviation in units of the mean (0 if that is 0)."""
    mean = float(np.average(residual, weights=weights))
    if mean == 0.0:
        return 0.0, 0.0
    counting = weights > 0.0
    # A row that has nearly faded may exceed the mean by more than can be squared.
    relative = np.minimum(residual[counting] / mean, 1e100)
    return mean, float(np.sqrt(np.average((relative - 1.0) ** 2, weights=weights[counting])))


@dataclass(frozen=True)
class SearchSchedule:
    """When to search for atoms: ever more rarely, but at once when the stream is explained worse.

    Parameters
    ----------
    countdown : int
        Blocks until the next search.
    usual_residual : float
        Mean residual of rows after the last search.
    spread : float
        Standard deviation of residuals before the last search, in units of their mean.
    n_blocks : int
        Blocks since the stream began, or since the last drift.
    n_rows_searched : int
        Rows of the stream up to the last search; the later ones are candidates of the next.
    """

    countdown: int = 0
    usual_residual: float = np.inf
    spread: float = 0.0
    n_blocks: int = 0
    n_rows_searched: int = 0

    def standard_error(self, block: Block) -> float:
        """Predict the standard error of a block's mean residual from the spread at the last search.

        Notes
        -----
        Residuals from 0 to e with mean r have a variance of at most r (e - r) [1]_: if almost nothing is explained any
        more, they can spread little.

        References
        ----------
        .. [1] R. Bhatia, C. Davis, "A better bound on the variance", American Mathematical Monthly 107, 2000.
        """
        mean, most = block.mean_residual, block.sums.largest_energy
        deviation = min(self.spread * mean, np.sqrt(mean * max(most - mean, 0.0)))
        return float(deviation * np.sqrt(block.sums.total_squared_weight) / block.sums.total_weight)

    def is_due(self, block: Block, n_rows: int, pace: Pace) -> bool:
        """Tell whether to search a block that follows on `n_rows` rows.

        That is at the end of the usual pause, or earlier if its rows are explained worse than usual, and the sooner the
        worse they are.
        """
        if self.countdown == 0:
            return True
        n_paused = (n_rows - self.n_rows_searched) // len(block.rows)
        excess = block.mean_residual - 2.0 * self.standard_error(block) - self.usual_residual
        if not excess > _UNUSUAL * self.usual_residual:
            return False
        return excess * (n_paused + 1) >= self.usual_residual * pace.unusual * (self.n_blocks - n_paused)

    def reset_after_drift(self, n_blocks: int) -> Self:
        """Return the schedule after a drift: search at once, then as in a stream of at most `n_blocks` blocks."""
        return type(self)(n_blocks=min(self.n_blocks, n_blocks), n_rows_searched=self.n_rows_searched)

    def skipped(self, block: Block, n_rows: int) -> Self:
        """Return the schedule after a block that was not searched and follows on `n_rows` rows."""
        usual = self.usual_residual
        if n_rows == self.n_rows_searched:
            usual = min(usual, block.mean_residual + self.standard_error(block))
        return replace(self, countdown=self.countdown - 1, usual_residual=usual, n_blocks=self.n_blocks + 1)

    def searched(self, n_rows: int, usual_residual: float, spread: float, pace: Pace, *, again: bool = False) -> Self:
        """Return the schedule after a search, at row `n_rows`; `again` has the next block searched too."""
        n_blocks = self.n_blocks + 1
        pause = 0 if again else int(min(pace.usual * n_blocks, LONGEST_PAUSE))
        return type(self)(pause, usual_residual, spread, n_blocks, n_rows)
