"""All loops compiled ahead of time, so that later processes find them in the cache."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca._core import _loops as core_loops
from streamkpca.components import _loops as component_loops
from streamkpca.dictionary import _loops as dictionary_loops
from streamkpca.estimators.approximate import ApproximateKernelPCA
from streamkpca.estimators.exact import KernelPCA
from streamkpca.estimators.sparse import SparseKernelPCA
from streamkpca.estimators.streaming import StreamingKernelPCA, merge
from streamkpca.kernels import RBF, Cosine, Kernel, Laplacian, Linear
from streamkpca.kernels import _loops as kernel_loops

Array = npt.NDArray[np.float64]

_LOOPS = (core_loops, kernel_loops, dictionary_loops, component_loops)

# Kernels and widths of rows: squared distances by products, by sums below nine features, and with one feature, where
# numpy takes a column for a row; and several base matrices at once. A program follows them, and all programs run
# in one loop.
_CASES: tuple[tuple[Kernel, int], ...] = (
    (RBF(0.3), 12),
    (RBF(0.3), 3),
    (RBF(0.3), 1),
    (Cosine() + Laplacian("median").on([0]) * Linear(), 3),
)

_BLOCK, _N_BLOCKS, _MAX_ATOMS = 24, 4, 6


class Warmth(NamedTuple):
    """What `warmup` found or made.

    Parameters
    ----------
    ready : int
        Specialisations, of a loop to types, that this process holds.
    compiled : int
        How many of them this process had to compile; the others came from the cache.
    unsaved : int
        How many of those did not get into the cache, because the disk is full or may no longer be written to.
    folder : Path or None
        Where the cache is; None where no folder can be written to and every process compiles for itself.
    """

    ready: int
    compiled: int
    unsaved: int
    folder: Path | None


def warmup() -> Warmth:
    """Compile every loop that ordinary use needs, in the types that it is used with.

    For container images and installers: call it once where the package is installed, and processes that start there
    later compile nothing.

    Returns
    -------
    Warmth
        How many specialisations are ready, how many of them had to be compiled, and where the cache is.

    Notes
    -----
    Tiny streams and batch fits go through the public estimators, so that nobody has to keep a list of signatures;
    nothing is kept of them. Half a minute with an empty cache, some seconds with a full one.

    Later processes find the machine code if they run the same versions of Python, numba and this package from the same
    place, on the same kind of processor, and may write to the folder: numba looks into no other. It is ``__pycache__``
    beside the modules, or else in the user's cache; ``NUMBA_CACHE_DIR`` names another. For an image that is built on
    one processor and runs on others, set ``NUMBA_CPU_NAME=generic`` in it.

    Examples
    --------
    >>> from streamkpca import warmup
    >>> warmup().ready > 0
    True
    """
    with warnings.catch_warnings():
        # So few rows may leave no atom active; that is no news here.
        warnings.simplefilter("ignore")
        for kernel, n_features in _CASES:
            for rows, weights in _batches(n_features):
                _use_streams(kernel, rows, weights)
                _use_batches(kernel, rows, weights)
        # Rows without energy leave nothing to span.
        _ask(StreamingKernelPCA(1, kernel=Linear()).partial_fit(np.zeros((2, 2))), np.zeros((2, 2)))
    return warmth()


def _batches(n_features: int) -> Iterator[tuple[Array, Array | None]]:
    """Make rows and their weights: those of the caller may be read-only, and for numba that is another type."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(_BLOCK * _N_BLOCKS, n_features))
    # Some rows twice, and others close to each other: distances between them are summed anew.
    rows[1::8] = rows[::8]
    # The later rows lie elsewhere, so that atoms are exchanged.
    rows[len(rows) // 2 :] += 3.0
    weights = random.uniform(0.5, 2.0, len(rows))
    yield rows, None
    rows.flags.writeable = weights.flags.writeable = False
    yield rows, weights


def _use_streams(kernel: Kernel, rows: Array, weights: Array | None) -> None:
    """Learn streams with and without a budget, by blocks and by rows, and merge them."""
    for max_atoms, tolerance in ((_MAX_ATOMS, 1e-3), (None, 0.05)):
        model = StreamingKernelPCA(2, kernel=kernel, max_atoms=max_atoms, tolerance=tolerance, block_size=_BLOCK)
        model.partial_fit(rows, sample_weight=weights)
        # Less than a block: the rows go to a buffer.
        model.partial_fit(rows[:1]).partial_fit(rows[: _BLOCK - 2])
        model.half_life = 100.0
        model.partial_fit(rows).forget(0.5)
        _ask(model, rows)
        other = StreamingKernelPCA(**model.get_params(deep=False)).partial_fit(rows, sample_weight=weights)
        model.captured_energy(), model.novelty_threshold()
        _ask(merge(model, other), rows)


def _use_batches(kernel: Kernel, rows: Array, weights: Array | None) -> None:
    """Fit all rows at once."""
    for model in (
        KernelPCA(2, kernel=kernel),
        SparseKernelPCA(2, kernel=kernel),
        ApproximateKernelPCA(2, kernel=kernel, max_atoms=_MAX_ATOMS, n_candidates=_BLOCK),
        ApproximateKernelPCA(2, kernel=kernel, max_atoms=2, n_candidates=None, criterion="original"),
    ):
        _ask(model.fit(rows, sample_weight=weights), rows)


def _ask(model: Any, rows: Array) -> None:
    """Ask all questions, of one row and of many."""
    for some in (rows[:1], rows):
        model.transform(some)
        model.score_samples(some)
        model.reconstruction_error(some, 1)
        model.reconstruction_error(some, active_only=True)


def cache_folder() -> Path | None:
    """Say where this process keeps compiled loops.

    Returns
    -------
    Path or None
        None where no folder can be written to.
    """
    folders = {loop.stats.cache_path for loop in _loops() if loop.stats.cache_path}
    # Each package of loops has a folder of its own.
    return Path(os.path.commonpath(folders)) if folders else None


def warmth() -> Warmth:
    """Say what this process has compiled or loaded so far.

    Returns
    -------
    Warmth
    """
    loops = _loops()
    return Warmth(
        ready=sum(len(loop.overloads) for loop in loops),
        compiled=sum(sum(loop.stats.cache_misses.values()) for loop in loops),
        unsaved=sum(loop._cache.unsaved for loop in loops),
        folder=cache_folder(),
    )


def _loops() -> list[Any]:
    """Give the compiled loops; none with the jit off."""
    return [loop for module in _LOOPS for loop in vars(module).values() if hasattr(loop, "overloads")]
