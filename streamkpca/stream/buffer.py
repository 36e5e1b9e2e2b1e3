"""Rows that wait until their block is full."""

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_LEAST_CAPACITY = 32


class RowBuffer(NamedTuple):
    """Rows and weights at the beginning of two buffers.

    Parameters
    ----------
    n_rows : int
        How many rows wait.
    row_buffer : ndarray of shape (capacity, d)
        Maybe in single precision.
    weight_buffer : ndarray of shape (capacity,)

    Notes
    -----
    A value: whoever holds one sees the same rows for ever. Yet rows are appended in place, behind the first `n_rows`,
    where nobody looks who came earlier; so only the newest may be appended to. Buffers double until a block fits, so
    that a block size that is never reached takes no memory.
    """

    n_rows: int
    row_buffer: Array
    weight_buffer: Array

    @classmethod
    def none(cls, n_features: int, dtype: str = "float64") -> Self:
        """Return no rows, to be kept as so precise numbers."""
        return cls(0, np.empty((0, n_features), dtype=dtype), np.empty(0))

    @property
    def rows(self) -> Array:
        """The rows, in double precision; shape (n_rows, d)."""
        return self.kept_rows.astype(np.float64, copy=False)

    @property
    def kept_rows(self) -> Array:
        """The rows as they are kept; shape (n_rows, d)."""
        return self.row_buffer[: self.n_rows]

    @property
    def weights(self) -> Array:
        """What they count; shape (n_rows,)."""
        return self.weight_buffer[: self.n_rows]

    def joined(self, rows: Array, weights: Array | float, most: int) -> Self:
        """Append rows, in place where there is room.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
        weights : ndarray of shape (n,) or float
        most : int
            Rows of a block; there are fewer after this.

        Returns
        -------
        RowBuffer
        """
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
