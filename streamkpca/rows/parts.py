"""Rows that are converted a part at a time, so that a call on many rows needs little memory beside them."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# A part of 2,048 rows against 256 atoms is 4 MiB of kernel values. Twice as much was no faster.
_PART_NUMBERS = 2**19
_MOST_ROWS, _LEAST_ROWS = 2048, 8


class RowParts:
    """Rows (n, d) of a large table or array, given as C-contiguous float64 where they are sliced.

    Parameters
    ----------
    shape : tuple of two int
    take : callable
        The first and last position of some rows in, these rows out.
    """

    def __init__(self, shape: tuple[int, int], take: Callable[[int, int], Array]) -> None:
        self.shape = shape
        self._take = take

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, piece: slice) -> Array:
        start, stop, _ = piece.indices(len(self))
        return self._take(start, max(start, stop))

    def mapped(self, change: Callable[[Array], Array]) -> "RowParts":
        """Return rows of the same shape, changed when they are taken."""
        return RowParts(self.shape, lambda start, stop: change(self._take(start, stop)))

    def since(self, first: int) -> "RowParts":
        """Return the rows from a position on."""
        shape = len(self) - first, self.shape[1]
        return RowParts(shape, lambda start, stop: self._take(first + start, first + stop))


Rows = Array | RowParts


def rows_in_part(width: int) -> int:
    """Return how many rows are handled at a time if each takes `width` numbers: 4 MiB, a power of two."""
    count = max(_PART_NUMBERS // max(width, 1), _LEAST_ROWS)
    return int(min(1 << (count.bit_length() - 1), _MOST_ROWS))


def parts_of(rows: Rows, width: int = 0) -> Iterator[tuple[slice, Array]]:
    """Yield the rows in parts, each with its place among them; `width` is given where rows need more than d numbers."""
    step = rows_in_part(max(width, rows.shape[1]))
    for start in range(0, len(rows), step):
        place = slice(start, min(start + step, len(rows)))
        yield place, rows[place]
