"""Feedback: rows of events that were fine or faults, and which later rows are like them."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca.monitoring.causes import Healthy

# Numbers that are this many deviations from healthy ones, or fewer, say nothing about the kind of an event.
_USUAL = 3.0
# Two rows are alike if they differ by less than this share of the larger one.
_LARGEST_DIFFERENCE = 0.5
# Rows of events that are known, and numbers of them, at most; the latest are kept.
_MOST_ROWS, _MOST_NUMBERS = 2048, 200_000


@dataclass(frozen=True)
class KnownEvents:
    """Rows (k, D) of events that a user has judged, and which of these were faults; a value.

    Notes
    -----
    The signature of a row has, for each of its features, how far it is from healthy ones: alone, and given the
    others by linear prediction. Of each distance x only log(1 + |x| - 3) counts, with its sign, and nothing below
    3. A row is like a known one if their signatures differ by less than half of the longer one; the nearest
    decides.
    """

    rows: Array
    are_faults: Flags

    @classmethod
    def none(cls, width: int) -> Self:
        """Return no events, of rows of so many numbers."""
        return cls(np.empty((0, width)), np.zeros(0, dtype=bool))

    def add(self, rows: Array, is_fault: bool) -> Self:
        """Add the rows (n, D) of an event."""
        most = min(_MOST_ROWS, max(_MOST_NUMBERS // rows.shape[1], len(rows)))
        are_faults = np.concatenate([np.full(len(rows), is_fault), self.are_faults])
        # The newest stand first: of two equal rows, the last word counts.
        return type(self)(np.concatenate([rows, self.rows])[:most], are_faults[:most])

    def recognise(self, rows: Array, healthy: Healthy) -> tuple[Flags, Flags]:
        """Tell which rows (n, D) are like those of events that were fine, and which like those of faults: (n,)."""
        known, found = _signatures(self.rows, healthy), _signatures(rows, healthy)
        lengths, known_lengths = np.linalg.norm(found, axis=1), np.linalg.norm(known, axis=1)
        differences = np.array([np.linalg.norm(known - signature, axis=1) for signature in found])
        nearest = np.argmin(differences, axis=1)
        is_like = differences.min(axis=1) < _LARGEST_DIFFERENCE * np.maximum(lengths, known_lengths[nearest])
        return is_like & ~self.are_faults[nearest], is_like & self.are_faults[nearest]


def _signatures(rows: Array, healthy: Healthy) -> Array:
    """Return the signatures (n, s) of rows (n, D)."""
    distances = np.concatenate(healthy.measure(rows), axis=1)
    signatures: Array = np.sign(distances) * np.log1p(np.maximum(np.abs(distances) - _USUAL, 0.0))
    return signatures
