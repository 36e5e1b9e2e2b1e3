"""The account of what projections gave up, and how far that can have moved the singular values."""

import math
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class Losses:
    """Energy outside the span, kept apart by what it says of the eigenvalues.

    Parameters
    ----------
    fresh_arrival, fresh_removal : float
        Energy that rows had outside the span when they came, and that went with removed atoms, since the span last
        grew. All of it is orthogonal to the present span.
    stale_arrival, stale_removal : float
        The same from before the span last grew: directions that came later need not be orthogonal to it.
    stale_length : float
        Bound of the Frobenius norm of what went with removed atoms before the span last grew.
    rounding : float
        Bound of what rounding may have moved from one direction to another, besides.

    Notes
    -----
    With A the weighted rows in feature space and A^ what is recorded of them, A = A^ + F + S. The rows of F, fresh
    losses, are orthogonal to the span that the rows of A^ lie in; those of S, stale losses, need not be. |F|^2 is
    `fresh`. Stale arrivals are of different rows, so their squares add up; stale removals may be of the same rows, so
    only their lengths add up, one for each time that the span grew after atoms were removed: |S| <= `stale_distance`.
    """

    fresh_arrival: float = 0.0
    fresh_removal: float = 0.0
    stale_arrival: float = 0.0
    stale_removal: float = 0.0
    stale_length: float = 0.0
    rounding: float = 0.0

    @property
    def on_arrival(self) -> float:
        """Energy of what rows had outside the span when they came."""
        return self.fresh_arrival + self.stale_arrival

    @property
    def by_removal(self) -> float:
        """Energy that the recorded rows had along directions that went with removed atoms."""
        return self.fresh_removal + self.stale_removal

    @property
    def total(self) -> float:
        """Energy that projections gave up."""
        return self.on_arrival + self.by_removal

    @property
    def fresh(self) -> float:
        """Energy orthogonal to the present span, never negative."""
        return max(self.fresh_arrival + self.fresh_removal, 0.0)

    @property
    def stale_distance(self) -> float:
        """Bound of the Frobenius norm of the stale losses."""
        return math.sqrt(max(self.stale_arrival, 0.0)) + self.stale_length

    def arrived(self, energy: float, rounding: float = 0.0) -> Self:
        """Enter what rows have outside the span when they come."""
        return replace(self, fresh_arrival=self.fresh_arrival + energy, rounding=self.rounding + rounding)

    def rounded(self, energy: float) -> Self:
        """Enter what rounding may have moved."""
        return replace(self, rounding=self.rounding + energy)

    def removed(self, energy: float) -> Self:
        """Enter what goes with removed atoms."""
        return replace(self, fresh_removal=self.fresh_removal + energy)

    def span_grown(self) -> Self:
        """Call all losses stale: the new directions need not be orthogonal to them."""
        return type(self)(
            stale_arrival=self.on_arrival,
            stale_removal=self.by_removal,
            stale_length=self.stale_length + math.sqrt(max(self.fresh_removal, 0.0)),
            rounding=self.rounding,
        )

    def decayed(self, factor: float) -> Self:
        """Let all rows count `factor` times what they did."""
        return type(self)(
            self.fresh_arrival * factor,
            self.fresh_removal * factor,
            self.stale_arrival * factor,
            self.stale_removal * factor,
            self.stale_length * math.sqrt(factor),
            self.rounding * factor,
        )

    def merged(self, other: Self) -> Self:
        """Add the losses of other rows, both seen from a span that may be larger than either's own."""
        own, others = self.span_grown(), other.span_grown()
        return type(self)(
            stale_arrival=own.stale_arrival + others.stale_arrival,
            stale_removal=own.stale_removal + others.stale_removal,
            stale_length=math.hypot(own.stale_length, others.stale_length),
            rounding=own.rounding + others.rounding,
        )
