"""Page's cumulative sum: whether a level has changed, and since when."""

from typing import NamedTuple, Self


class Cusum(NamedTuple):
    """Page's cumulative sum [1]_ of what observations exceed an allowance by: a `total` that never falls below zero.

    It was zero before the last `n` observations, which are all that it knows of.

    .. [1] E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954.
    """

    total: float = 0.0
    n: int = 0

    def add(self, excess: float, n: int = 1) -> Self:
        """Add the sum over n observations that all exceed the allowance, or all fall below it."""
        total = max(self.total + excess, 0.0)
        return type(self)(total, self.n + n if total > 0.0 else 0)
