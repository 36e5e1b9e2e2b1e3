"""What a fit over a dask collection makes of its partitions: runs that are learned side by side, then a tree of merges.

Notation: r runs, p partitions.
"""

from collections.abc import Sequence
from typing import Any

from streamkpca.adapters.dask_blocks import summarise_part
from streamkpca.adapters.partitions import merge_summaries, runs_of
from streamkpca.streaming import StreamingKernelPCA

try:
    from dask.delayed import delayed
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_dask needs {error.name}; pip install "streamkpca[dask]"') from error


def summary_of(
    template: StreamingKernelPCA,
    parts: Sequence[Any],
    weights: Sequence[Any],
    names: list[str] | None,
    *,
    n_streams: int,
    split_every: int,
) -> Any:
    """Describe how all partitions become one summary.

    Parameters
    ----------
    template : StreamingKernelPCA
        From `template_of`.
    parts, weights : sequence of p delayed partitions, and what their rows count
    names : list of str or None
        Of the features of a bag's records.
    n_streams : int
        At most so many runs of neighbouring partitions.
    split_every : int
        Summaries that are merged in one task.

    Returns
    -------
    Delayed
        Of bytes. A step of a run is a pure function of the summary before it and its partition, so that one that is
        lost is made again, and which steps there are depends on p, `n_streams` and `split_every` alone.

    Notes
    -----
    The longest path has p / r steps and log r merges.
    """
    shared = delayed(template)
    level = []
    for run in runs_of(len(parts), n_streams):
        summary = None
        for number in run:
            summary = delayed(summarise_part)(shared, parts[number], weights[number], names, summary)
        level.append(summary)
    while len(level) > 1:
        groups = [level[start : start + split_every] for start in range(0, len(level), split_every)]
        level = [delayed(merge_summaries)(shared, group) if len(group) > 1 else group[0] for group in groups]
    (whole,) = level
    return whole
