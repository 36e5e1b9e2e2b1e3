"""Sparse kernel PCA on endless streams.

Estimators
----------
StreamingKernelPCA : one pass, bounded memory.
KernelPCA : all rows at once, exact.
SparseKernelPCA : all rows at once, few of them active by maximum likelihood.
ApproximateKernelPCA : in the span of few rows, chosen greedily.

Functions
---------
merge : one model of many that have learned from different rows.
load : a model from a checkpoint, which `StreamingKernelPCA.save` wrote.
Checkpointer : checkpoints at intervals of rows or seconds, and the newest readable one after a crash.
warmup : all loops compiled ahead of time, for images.

Modules
-------
kernels : kernel values and their algebra.
"""

from streamkpca import kernels
from streamkpca._version import __version__
from streamkpca.components.weights import SparsityPath
from streamkpca.errors import (
    CheckpointError,
    CheckpointWarning,
    IndefiniteKernelWarning,
    NotFittedError,
    SparsityError,
    SparsityWarning,
)
from streamkpca.estimators.approximate import ApproximateKernelPCA
from streamkpca.estimators.checkpointer import Checkpointer, load
from streamkpca.estimators.exact import KernelPCA
from streamkpca.estimators.sparse import SparseKernelPCA
from streamkpca.estimators.streaming import StreamingKernelPCA, merge
from streamkpca.estimators.warmup import warmup

__all__ = [
    "ApproximateKernelPCA",
    "CheckpointError",
    "CheckpointWarning",
    "Checkpointer",
    "IndefiniteKernelWarning",
    "KernelPCA",
    "NotFittedError",
    "SparseKernelPCA",
    "SparsityError",
    "SparsityPath",
    "SparsityWarning",
    "StreamingKernelPCA",
    "__version__",
    "kernels",
    "load",
    "merge",
    "warmup",
]
