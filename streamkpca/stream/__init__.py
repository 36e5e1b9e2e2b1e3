"""The method on a stream: an immutable state, and functions that make the next one.

`State` holds everything that a model has learned, as arrays and scalars: `StreamingKernelPCA.state_`. `advance` learns
rows, `forget` makes old ones count less, `merge` unites streams, `fit` learns the first rows in two passes, and `axes`
fits weights and axes. None of them changes its arguments.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkpca.stream.state import State, axes
    from streamkpca.stream.transitions import advance, fit, forget, merge, refit

__all__ = ["State", "advance", "axes", "fit", "forget", "merge", "refit"]

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import what is asked for: the command's help reads `parameters`, and must not load the compiled loops."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{'state' if name in ('State', 'axes') else 'transitions'}"), name)
