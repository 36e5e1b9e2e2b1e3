"""Positions of rows in a stream: of rows that moved as atoms, and of rows from outside the stream."""

from collections import Counter
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Positions from here on are of rows that a stream knows but has not counted: those of the template that it began with.
# They follow from the contents of the rows and the number of equal ones before, so that streams of one template agree.
_OUTSIDE: Final = 2**62


def positions_outside(rows: Array) -> Positions:
    """Return distinct positions for rows (n, d) of no stream, which the rows and their order determine."""
    n_equal: Counter[bytes] = Counter()
    digests = []
    for row in np.ascontiguousarray(rows, dtype="<f8"):
        content = row.tobytes()
        digests.append(blake2b(content + n_equal[content].to_bytes(8, "little"), digest_size=8).digest())
        n_equal[content] += 1
    contents = np.frombuffer(b"".join(digests), dtype="<u8") % _OUTSIDE
    return contents.astype(np.int64) + _OUTSIDE


def origins_of(positions: Positions) -> Positions:
    """Return the positions of the rows that atoms are, or began as: those of atoms that moved are complements."""
    return np.where(positions < 0, ~positions, positions)


def are_outside(positions: Positions) -> npt.NDArray[np.bool_]:
    """Tell which positions are of rows that the stream has not counted."""
    return origins_of(positions) >= _OUTSIDE


def shifted(positions: Positions, count: int) -> Positions:
    """Return positions in a stream that has `count` more rows at its beginning."""
    return np.where(are_outside(positions), positions, np.where(positions < 0, positions - count, positions + count))
