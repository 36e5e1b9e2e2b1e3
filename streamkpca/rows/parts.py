"""Rows part by part: large tables become dense float64 where they are sliced, and stay as they came elsewhere."""

from collections.abc import Callable, Iterator

from streamkpca._core.arrays import Array

# Numbers of a part of the rows.
_PART_NUMBERS = 2**19
# Most rows of a part: 2,048 rows against 256 atoms are 4 MiB of kernel values. Twice as many were no faster.
_MOST_ROWS = 2048
# Least rows of a part, however wide they are.
_LEAST_ROWS = 8
# Rows that take more than this, 4 MiB, are converted in parts.
CONVERTED_WHOLE = 2**19
# Single rows need an array, however wide they are.
FEW_ROWS = 8


class RowParts:
    """Rows (n, d) of a large table or array, given as C-contiguous float64 where they are sliced.

    `take` returns the rows between two positions.
    """

    def __init__(self, shape: tuple[int, int], take: Callable[[int, int], Array]) -> None:
        self.shape = shape
        self._take = take

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, piece: slice) -> Array:
        start, stop, _ = piece.indices(len(self))
        return self._take(start, max(start, stop))


Rows = Array | RowParts


def parts_of(rows: Rows, width: int = 0) -> Iterator[tuple[slice, Array]]:
    """Yield the rows in parts of 4 MiB, each with its place; `width` is given where rows need more than d numbers."""
    most = max(_PART_NUMBERS // max(width, rows.shape[1], 1), _LEAST_ROWS)
    step = min(1 << (most.bit_length() - 1), _MOST_ROWS)
    for start in range(0, len(rows), step):
        place = slice(start, min(start + step, len(rows)))
        yield place, rows[place]


def change_rows(rows: Rows, change: Callable[[Array], Array]) -> Rows:
    """Change rows (n, d); many are changed where they are sliced, so that they are not all copied."""
    n, d = rows.shape
    if isinstance(rows, RowParts) or (n > FEW_ROWS and n * d > CONVERTED_WHOLE):
        return RowParts((n, d), lambda start, stop: change(rows[start:stop]))
    return change(rows)
