"""What a fit over a dask collection makes of its partitions: runs that are learned side by side, then a tree of merges.

Notation: r runs, p partitions.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from streamkpca.adapters.dask_blocks import summarise_part
from streamkpca.adapters.partitions import merge_summaries, runs_of
from streamkpca.streaming import StreamingKernelPCA

try:
    from dask.core import get_deps
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
    The longest path has p / r steps and log r merges. A partition is loaded in the task that learns it: schedulers do
    first what can be done at once, and would load all partitions while the first ones are learned.
    """
    shared = delayed(template)
    level, steps = [], set()
    for run in runs_of(len(parts), n_streams):
        summary = None
        for number in run:
            summary = delayed(summarise_part)(shared, parts[number], weights[number], names, summary)
            steps.add(summary.key)
        level.append(summary)
    while len(level) > 1:
        groups = [level[start : start + split_every] for start in range(0, len(level), split_every)]
        level = [delayed(merge_summaries)(shared, group) if len(group) > 1 else group[0] for group in groups]
    (whole,) = level
    return _with_loads_in_steps(whole, steps)


class _Fused:
    """Some tasks that are one: calls them one after another, with the answers of `needs`.

    Parameters
    ----------
    nodes : sequence of dask's tasks
        Each after those that it depends on.
    needs : sequence of keys
        Of the answers that other tasks have.
    """

    def __init__(self, nodes: Sequence[Any], needs: Sequence[Hashable]) -> None:
        self._nodes = nodes
        self._needs = needs

    def __call__(self, *answers: Any) -> Any:
        known = dict(zip(self._needs, answers, strict=True))
        for node in self._nodes:
            known[node.key] = node(known)
        return known[self._nodes[-1].key]


def _with_loads_in_steps(whole: Any, steps: set[Hashable]) -> Any:
    """Take into each step the tasks that nobody else depends on; what is shared, or in memory, stays outside."""
    graph = dict(whole.__dask_optimize__(whole.__dask_graph__(), whole.__dask_keys__()))
    needed_by = get_deps(graph)[1]
    fused = {}
    for step in filter(lambda key: _is_callable(graph, key), steps):
        taken = [step]
        for key in taken:
            alone = [need for need in graph[key].dependencies if needed_by[need] == {key}]
            taken += [need for need in alone if need not in steps and _is_callable(graph, need)]
        needs = list(dict.fromkeys(need for key in taken for need in graph[key].dependencies if need not in taken))
        fused[step] = (_Fused([graph[key] for key in reversed(taken)], needs), *needs)
    rebuild, arguments = whole.__dask_postpersist__()
    return rebuild(graph | fused, *arguments)


def _is_callable(graph: dict[Hashable, Any], key: Hashable) -> bool:
    """Whether a task can be called with what it depends on.

    Tuples cannot, nor can what waits for a Future, nor what distributed runs in its own way, which says so.
    """
    node = graph[key]
    if getattr(node, "block_fusion", False):
        return False
    return hasattr(node, "dependencies") and node.dependencies <= graph.keys()
