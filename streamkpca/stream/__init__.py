"""The method on a stream, without a model: an immutable state, and functions that make the next one.

`State` holds all that a stream has taught, as arrays and scalars. No function changes its arguments.

parameters : the table of parameters, and `Settings`, their checked values
state : `State`; `axes` of all its rows, `latest_axes`, those last published; `check_range`, whether a kernel takes rows
transitions : `advance` learns rows, `fit` the first ones in two passes; `refit`, `forget`, `merge`
step : the step by one block of rows, and the search for better atoms
schedule : when a block is searched for atoms: pauses between searches, and a test for drifts
summary : what is kept of full blocks: atoms, moments and samples
calibration : `calibrate` scores rows of the stream as if they were new
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
