"""Ahead-of-time compilation of all loops, so that later processes find them in the cache."""

import copy
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.jit import n_unsaved
from streamkpca.kernels import RBF, Cosine, Kernel, Laplacian, Linear
from streamkpca.models.approximate import ApproximateKernelPCA
from streamkpca.models.exact import KernelPCA
from streamkpca.models.outliers import OutlierDetector
from streamkpca.models.sparse import SparseKernelPCA
from streamkpca.models.streaming import StreamingKernelPCA, merge
from streamkpca.rows.gaps import WIDEST_TOGETHER
from streamkpca.stream.state import latest_axes

# Kernels and numbers of features: squared distances by products; by sums, below nine features; with one feature, where
# numpy takes a column for a row; and several base matrices at once. The rest of a
# kernel is a program, and all programs run in one loop.
_CASES: tuple[tuple[Kernel, int], ...] = (
    (RBF(0.3), 12),
    (RBF(0.3), 3),
    (RBF(0.3), 1),
    (Cosine() + Laplacian("spread").on([0]) * Linear(), 3),
)

# Rows of a block.
_BLOCK = 24
# Blocks that each stream learns.
_N_BLOCKS = 4
# Atoms of each model.
_MAX_ATOMS = 6


class Warmth(NamedTuple):
    """The result of `warmup`.

    Parameters
    ----------
    ready, compiled, unsaved : int
        Compiled specialisations (a loop for certain types) that this process holds, those that it had to compile, and
        those that could not be saved to the cache.
    folder : Path or None
        The cache folder; None if no folder is writable, so that every process compiles for itself.
    """

    ready: int
    compiled: int
    unsaved: int
    folder: Path | None


def warmup() -> Warmth:
    """Compile every loop that ordinary use needs, for container images and installers: later processes compile nothing.

    Returns
    -------
    Warmth

    It fits tiny streams and batches, and discards them: half a minute with an empty cache, seconds with a full one.

    Later processes find the machine code if they run the same versions of Python, numba and this package from the same
    folder, on the same kind of processor, and may write to the cache folder, which ``NUMBA_CACHE_DIR`` names. Set
    ``NUMBA_CPU_NAME=generic`` in an image that runs on other processors than it is built on.

    Examples
    --------
    >>> from streamkpca import warmup
    >>> warmup().ready > 0
    True
    """
    with warnings.catch_warnings():
        # With so few rows there may be no active atom; that warning is irrelevant here.
        warnings.simplefilter("ignore")
        for kernel, n_features in _CASES:
            for rows, weights in _batches(n_features):
                _use_streams(kernel, rows, weights)
                _use_batches(kernel, rows, weights)
        gapped = StreamingKernelPCA(1, kernel=RBF(0.3), max_atoms=_MAX_ATOMS, block_size=_BLOCK, missing="marginal")
        # Columns of rows with gaps are taken together or, if there are many, apart.
        for n_features in (3, WIDEST_TOGETHER + 1):
            for rows, _ in _batches(n_features):
                rows = np.where(np.eye(len(rows), n_features) > 0.0, np.nan, rows)
                _ask(copy.copy(gapped).partial_fit(rows), rows)
        _use_monitoring(StreamingKernelPCA(1, kernel=RBF(0.3), max_atoms=_MAX_ATOMS).partial_fit(np.eye(4, 2)))
        OutlierDetector().fit(np.random.default_rng(0).normal(size=(40, 2))).predict(np.eye(2))
        # Rows without energy give no atoms.
        _ask(StreamingKernelPCA(1, kernel=Linear()).partial_fit(np.zeros((2, 2))), np.zeros((2, 2)))
    return warmth()


def _batches(n_features: int) -> Iterator[tuple[Array, Array | None]]:
    """Yield rows and weights, writable and read-only, which are different types for numba."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(_BLOCK * _N_BLOCKS, n_features))
    # Some rows occur twice: squared distances that nearly vanish are summed by another loop.
    rows[1::8] = rows[::8]
    # The later rows lie elsewhere, so that atoms are swapped.
    rows[len(rows) // 2 :] += 3.0
    weights = random.uniform(0.5, 2.0, len(rows))
    yield rows, None
    rows.flags.writeable = weights.flags.writeable = False
    yield rows, weights


def _use_streams(kernel: Kernel, rows: Array, weights: Array | None) -> None:
    """Fit streams with and without a budget, by blocks and by single rows, and merge them."""
    for max_atoms, tolerance in ((_MAX_ATOMS, 1e-3), (None, 0.05)):
        model = StreamingKernelPCA(2, kernel=kernel, max_atoms=max_atoms, tolerance=tolerance, block_size=_BLOCK)
        model.partial_fit(rows, sample_weight=weights)
        # Less than a block: the rows stay pending.
        model.partial_fit(rows[:1]).partial_fit(rows[: _BLOCK - 2])
        model.half_life = 100.0
        model.partial_fit(rows).forget(0.5)
        _ask(model, rows)
        other = StreamingKernelPCA(**model.get_params(deep=False)).partial_fit(rows, sample_weight=weights)
        model.captured_energy(), model.novelty_threshold()
        _ask(merge(model, other), rows)


def _use_batches(kernel: Kernel, rows: Array, weights: Array | None) -> None:
    """Fit the batch estimators."""
    for model in (
        KernelPCA(2, kernel=kernel),
        SparseKernelPCA(2, kernel=kernel),
        ApproximateKernelPCA(2, kernel=kernel, max_atoms=_MAX_ATOMS, n_candidates=_BLOCK),
        ApproximateKernelPCA(2, kernel=kernel, max_atoms=2, n_candidates=None, criterion="original"),
    ):
        _ask(model.fit(rows, sample_weight=weights), rows)


def _use_monitoring(model: StreamingKernelPCA) -> None:
    """Make a chart of a few rows, and follow one; find what is expected of one; let a monitor judge some."""
    # Loading it with the estimators would make the first answer of a process a tenth later.
    from streamkpca.changes.chart import learn_chart
    from streamkpca.monitoring import Monitor

    Monitor().update(np.random.default_rng(0).normal(size=(200, 2)))
    rows, snapshot = np.random.default_rng(0).normal(size=(200, 2)), latest_axes(model.state_, model.settings())
    chart, _ = learn_chart(rows, snapshot)
    chart.follow(chart.columns.compute(snapshot, rows[:1], 0), 0.0 * chart.precision, 1.0)
    snapshot.expectation.surprise(rows[:1], 1)
    snapshot.expectation.predict(rows[:1], np.array([0]))


def _ask(model: Any, rows: Any) -> None:
    """Call all queries with one row and with many."""
    for some in (rows[:1], rows):
        model.transform(some)
        model.novelty(some)
        model.reconstruction_error(some)
        model.reconstruction_error(some, 1)
        model.reconstruction_error(some, active_only=True)


def cache_folder() -> Path | None:
    """Return the folder of this process's compiled loops; None if no folder is writable."""
    folders = {loop.stats.cache_path for loop in _loops() if loop.stats.cache_path}
    # Each package has its own folder of loops.
    return Path(os.path.commonpath(folders)) if folders else None


def warmth() -> Warmth:
    """Count the loops that this process has compiled or loaded so far."""
    loops = _loops()
    return Warmth(
        ready=sum(len(loop.overloads) for loop in loops),
        compiled=sum(sum(loop.stats.cache_misses.values()) for loop in loops),
        unsaved=sum(map(n_unsaved, loops)),
        folder=cache_folder(),
    )


def _loops() -> list[Any]:
    """Return the loops of the modules that this process has loaded; none if the jit is off."""
    names = [name for name in list(sys.modules) if name.startswith("streamkpca.") and name.endswith("._loops")]
    return [loop for name in names for loop in vars(sys.modules[name]).values() if hasattr(loop, "overloads")]
