"""Sparse kernel PCA on endless streams.

Estimators
----------
StreamingKernelPCA : one pass, bounded memory.
KernelPCA : all rows at once, exact.
SparseKernelPCA : all rows at once, few of them active by maximum likelihood.
ApproximateKernelPCA : in the span of few rows, chosen greedily.
OutlierDetector : the outliers of a table, found among its own rows.

Functions
---------
merge : one model of many that have learned from different rows.
load : what `save` wrote: a model, a monitor or a change detector.
Checkpointer : checkpoints at intervals of rows or seconds, and the newest readable one after a crash.
Bank : one monitor or model for each key, the least recently used of them on the disk.
warmup : all loops compiled ahead of time, for images.

Modules
-------
kernels : kernel values and their algebra.
stream : the method without a model: an immutable state, and functions that make the next one.
monitoring : a stream watched: rarity, alarms, events.
changes : whether the distribution of a stream has changed.
aggregate : a fit in the four verbs of engines that split work.
fleet : the machines that differ from their fellows, from moments alone.
export : models as C files and ONNX graphs, and devices that learn.
plots : pictures of rarities, events and projections.
adapters : River, Dask, Spark and Ray.
errors : what is raised and warned of.
"""

from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING

from streamkpca._version import __version__

if TYPE_CHECKING:
    from streamkpca import kernels
    from streamkpca.compilation import warmup
    from streamkpca.models.approximate import ApproximateKernelPCA
    from streamkpca.models.bank import Bank
    from streamkpca.models.checkpointer import Checkpointer
    from streamkpca.models.exact import KernelPCA
    from streamkpca.models.outliers import OutlierDetector
    from streamkpca.models.saving import load
    from streamkpca.models.sparse import SparseKernelPCA
    from streamkpca.models.streaming import StreamingKernelPCA, merge

__all__ = [
    "ApproximateKernelPCA",
    "Bank",
    "Checkpointer",
    "KernelPCA",
    "OutlierDetector",
    "SparseKernelPCA",
    "StreamingKernelPCA",
    "__version__",
    "kernels",
    "load",
    "merge",
    "warmup",
]

# The names above by the modules that hold them; a test compares them with the imports for type checkers.
_HOMES = {
    "compilation": "warmup",
    "models.approximate": "ApproximateKernelPCA",
    "models.bank": "Bank",
    "models.checkpointer": "Checkpointer",
    "models.exact": "KernelPCA",
    "models.outliers": "OutlierDetector",
    "models.sparse": "SparseKernelPCA",
    "models.saving": "load",
    "models.streaming": "StreamingKernelPCA merge",
}
# The parts of the package that they are made of, which are attributes too.
_PARTS = set("_core checkpoint compilation components dictionary kernels models rows stream".split())
# Modules beside these, which are imported when they are asked for.
_MODULES = {"aggregate", "changes", "errors", "fleet", "monitoring"}
_LOADING = RLock()

# Type checkers would take any name for an attribute of a module with `__getattr__`.
if not TYPE_CHECKING:

    def __getattr__(name):
        """Import all names when the first is asked for: numba alone takes longer to load than help of the command."""
        if name in _MODULES:
            return import_module(f"streamkpca.{name}")
        if name not in __all__ and name not in _PARTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Threads that import one package from different ends at once get a half-made module, or a deadlock error.
        with _LOADING:
            for home, names in _HOMES.items():
                module = import_module(f"streamkpca.{home}")
                globals().update({public: getattr(module, public) for public in names.split()})
        return globals()[name]


def __dir__() -> list[str]:
    """List all names, imported or not."""
    return sorted((globals().keys() | set(__all__) | _PARTS | _MODULES) - {"RLock", "TYPE_CHECKING", "import_module"})
