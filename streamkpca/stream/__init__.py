"""The method on a stream: an immutable state, and functions that make the next one.

`State` holds everything that a model has learned, as arrays and scalars: `StreamingKernelPCA.state_`. `advance` learns
rows, `forget` makes old ones count less, `merge` unites streams, `fit` learns the first rows in two passes, and `axes`
fits weights and axes. None of them changes its arguments.
"""

from streamkpca.stream.state import State, axes
from streamkpca.stream.transitions import advance, fit, forget, merge, refit

__all__ = ["State", "advance", "axes", "fit", "forget", "merge", "refit"]
