"""The method on a stream, without a model: an immutable state, and functions that make the next one.

`Settings` are checked parameters. `State` holds everything that a stream has taught, as arrays and scalars. `advance`
learns rows, `fit` the first rows in two passes, `forget` makes old ones count less, and `merge` unites streams. `axes`
fits weights and axes to all rows, `refit` publishes them, and `latest_axes` gives those that are published. `calibrate`
scores rows of the stream as if they were new, and `check_range` refuses rows that no kernel value can be computed for.
None of them changes its arguments.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkpca.stream.calibration import Calibration, calibrate
    from streamkpca.stream.parameters import Settings
    from streamkpca.stream.state import State, axes, check_range, latest_axes
    from streamkpca.stream.transitions import advance, fit, forget, merge, refit

# The public names by the modules that hold them.
_HOMES = {
    "calibration": ("Calibration", "calibrate"),
    "parameters": ("Settings",),
    "state": ("State", "axes", "check_range", "latest_axes"),
    "transitions": ("advance", "fit", "forget", "merge", "refit"),
}

__all__ = [
    "Calibration",
    "Settings",
    "State",
    "advance",
    "axes",
    "calibrate",
    "check_range",
    "fit",
    "forget",
    "latest_axes",
    "merge",
    "refit",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import what is asked for: the command's help reads `parameters`, and must not load the compiled loops."""
        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{home}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return __all__
