"""Blocks to come, compared with the atoms in other threads while the present one is worked off."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from streamkpca.block import Block


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


class Lookahead:
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
