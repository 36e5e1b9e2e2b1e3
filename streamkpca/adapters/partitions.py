"""A distributed fit: a pure summary of each partition, and merges of summaries. For Dask, Spark, or any framework.

Every function here depends on its arguments alone. So a lost part can be computed again, to the byte, and the result
depends only on the rows, their partitions and the order of merges, not on where and when parts are processed.
"""

import copy
import secrets
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.validation import as_rows
from streamkpca.estimators.streaming import StreamingKernelPCA, merge
from streamkpca.kernels import Kernel

__all__ = [
    "NamedRows",
    "finish",
    "merge_summaries",
    "rows_of_records",
    "runs_of",
    "summarise",
    "template_of",
]

Array = npt.NDArray[np.float64]

# Summaries need no axes, so they compute as few as possible, as rarely as possible.
_NO_AXES = {"n_components": 1, "noise_variance": None, "n_active": None, "axes": "ritz", "refit_every": 2**31}


class NamedRows:
    """Rows with named columns, like a DataFrame but without a library for it.

    Parameters
    ----------
    names : sequence of str
        Names of the columns.
    rows : ndarray of shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters.partitions import NamedRows
    >>> StreamingKernelPCA(1).partial_fit(NamedRows(["load", "heat"], np.eye(2))).feature_names_in_
    array(['load', 'heat'], dtype=object)
    """

    def __init__(self, names: Sequence[str], rows: npt.NDArray[Any]) -> None:
        self.columns = list(names)
        self.shape = rows.shape
        self._rows = rows

    def __len__(self) -> int:
        return int(self.shape[0])

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return the rows without column names.

        Returns
        -------
        ndarray of shape (n, d)

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.adapters.partitions import NamedRows
        >>> NamedRows(["load", "heat"], np.eye(2)).to_numpy()
        array([[1., 0.],
               [0., 1.]])
        """
        return self._rows


def template_of(model: StreamingKernelPCA, first_rows: Any = None, sample_weight: Any = None) -> StreamingKernelPCA:
    """Make the empty model from which every partition is learned: the same kernel, scale and seed for all.

    Parameters
    ----------
    model : StreamingKernelPCA
        Only its parameters are used, not what it has learned.
    first_rows : array-like of shape (n, d), optional
        Rows that settle the kernel's scale. The first `block_size` rows of positive weight give the scale that a single
        stream would have.
    sample_weight : array-like of shape (n,), float or None
        Weight of each of these rows; 1 by default.

    Returns
    -------
    StreamingKernelPCA
        A model without rows, to be sent to every worker.

    Raises
    ------
    TypeError, ValueError
        A parameter is not valid, or the scale is not settled and there are no rows to settle it on.

    Examples
    --------
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters.partitions import template_of
    >>> from streamkpca.kernels import RBF
    >>> template_of(StreamingKernelPCA(5, kernel=RBF("scale")), [[1.0], [3.0]]).kernel
    RBF(gamma=1.0)
    """
    where = "template_of"
    settings = model._settings(where)
    kernel = settings.kernel
    if not kernel.is_settled:
        if first_rows is None or len(first_rows) == 0:
            raise ValueError(
                f"{where} expected rows that settle the scale of {kernel!r} but got none; pass the first rows, or a "
                "kernel with a given scale"
            )
        # In the type that a stream stores rows in; a DataFrame becomes an array here.
        kernel = kernel.settled(as_rows(first_rows, where=where).astype(model.dtype), sample_weight)
    seed = secrets.randbits(63) if settings.random_state is None else settings.random_state
    parameters = model.get_params(deep=False) | _NO_AXES | {"kernel": kernel, "random_state": seed}
    return StreamingKernelPCA(**parameters)


def runs_of(n_parts: int, n_streams: int) -> list[range]:
    """Group partitions into runs of neighbours, each to be learned by one stream.

    Parameters
    ----------
    n_parts : int
        Number of partitions, at least 1.
    n_streams : int
        Number of runs wanted, at least 1.

    Returns
    -------
    list of range
        The positions of each run's partitions, in order: min(n_parts, n_streams) runs, whose lengths differ by at most
        one.

    Notes
    -----
    A stream pays for its search for atoms once: of 800,000 rows with 128 atoms and 32 features, the first 100,000 took
    4.1 s and the last 100,000 took 0.14 s. So runs should be long: no more of them than there are cores.

    Examples
    --------
    >>> from streamkpca.adapters.partitions import runs_of
    >>> runs_of(8, 3)
    [range(0, 3), range(3, 6), range(6, 8)]
    """
    n_runs = min(n_parts, n_streams)
    length, n_longer = divmod(n_parts, n_runs)
    starts = [i * length + min(i, n_longer) for i in range(n_runs + 1)]
    return [range(*ends) for ends in pairwise(starts)]


def summarise(
    template: StreamingKernelPCA, batches: Iterable[tuple[Any, Any]], *, before: bytes | None = None
) -> bytes:
    """Learn a partition and return its summary; with `before`, the summary of all partitions so far.

    Parameters
    ----------
    template : StreamingKernelPCA
        From `template_of`.
    batches : iterable of (rows, sample_weight)
        Arguments of `partial_fit`, in order; batches may be empty. The result does not depend on how a partition is cut
        into batches.
    before : bytes, optional
        Summary of the partitions before this one, from which the stream continues.

    Returns
    -------
    bytes
        The model as `StreamingKernelPCA.to_bytes` writes it; without rows, an empty model.

    Raises
    ------
    CheckpointError
        `before` is damaged.
    TypeError, ValueError
        As `StreamingKernelPCA.partial_fit`.

    Notes
    -----
    Partitions learned one after another give the same bytes as all their rows in one partition. Reading and writing a
    summary took 8 ms with 128 atoms and 32 features.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters.partitions import summarise, template_of
    >>> rows = np.random.default_rng(0).normal(size=(2000, 3))
    >>> template = template_of(StreamingKernelPCA(max_atoms=32), rows[:512])
    >>> first = summarise(template, [(rows[:1000], None)])
    >>> summarise(template, [(rows[1000:], None)], before=first) == summarise(template, [(rows, None)])
    True
    """
    model = copy.copy(template) if before is None else _read(template, before)
    for rows, weights in batches:
        if len(rows):
            model.partial_fit(rows, sample_weight=weights)
    return model.to_bytes()


def merge_summaries(template: StreamingKernelPCA, summaries: Sequence[bytes]) -> bytes:
    """Merge the summaries of neighbouring partitions, in their order.

    Parameters
    ----------
    template : StreamingKernelPCA
        From `template_of`.
    summaries : sequence of bytes
        From `summarise` or this function.

    Returns
    -------
    bytes
        The summary of all their rows as one stream. With a half-life, the weights of earlier rows decay by the number
        of all later rows.

    Raises
    ------
    CheckpointError
        A summary is damaged.

    Examples
    --------
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters.partitions import merge_summaries, summarise, template_of
    >>> template = template_of(StreamingKernelPCA(1, kernel="linear"))
    >>> parts = [summarise(template, [([[x], [2.0 * x]], None)]) for x in (1.0, 2.0, 4.0)]
    >>> StreamingKernelPCA.from_bytes(merge_summaries(template, parts)).n_samples_seen_
    6
    """
    models = [_read(template, summary) for summary in summaries]
    if template.half_life is not None:
        n_later = 0
        for model in reversed(models):
            # The factor may underflow to 0, which `forget` refuses; the smallest normal number takes its place.
            model.forget(max(0.5 ** (n_later / template.half_life), np.finfo(np.float64).tiny))
            n_later += getattr(model, "n_samples_seen_", 0)
    # A single model is not merged: that would publish axes, which cannot be read back while its rows wait for their
    # first block.
    fitted = [model for model in models if hasattr(model, "n_samples_seen_")]
    return (merge(*fitted) if len(fitted) > 1 else (fitted or models)[0]).to_bytes()


def finish(model: StreamingKernelPCA, template: StreamingKernelPCA, summary: bytes) -> StreamingKernelPCA:
    """Make a model from the summary of all rows.

    Parameters
    ----------
    model : StreamingKernelPCA
        The new model takes its parameters; it is not changed itself.
    template : StreamingKernelPCA
        From `template_of`.
    summary : bytes
        Summary of all partitions, from `merge_summaries`.

    Returns
    -------
    StreamingKernelPCA
        A new model with its axes published; it can learn more rows.

    Raises
    ------
    ValueError
        There were no rows, or all of them had weight 0.

    Examples
    --------
    The three steps, which any framework can distribute:

    >>> from streamkpca import KernelPCA, StreamingKernelPCA
    >>> from streamkpca.adapters.partitions import finish, merge_summaries, summarise, template_of
    >>> model = StreamingKernelPCA(1, kernel="linear")
    >>> template = template_of(model)
    >>> parts = [summarise(template, [(rows, None)]) for rows in ([[-2.0, 0.0], [2.0, 0.0]], [[0.0, -1.0], [0.0, 1.0]])]
    >>> finish(model, template, merge_summaries(template, parts)).eigenvalues_.round(3)
    array([2.667])
    >>> KernelPCA(1, kernel="linear").fit([[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]]).eigenvalues_.round(3)
    array([2.667])
    """
    whole = StreamingKernelPCA(**(model.get_params(deep=False) | {"kernel": template.kernel}))
    whole.merge(_read(template, summary))
    stream = whole._stream
    if stream is None or not whole.total_weight_:
        raise ValueError(
            f"{type(model).__name__}.fit: found 0 rows to learn from in all partitions; pass at least 1 finite row of "
            "positive weight"
        )
    # The parameter stays as the caller gave it, and the stream continues with the settled scale.
    whole.kernel = model.kernel
    stream.kernel = whole._settings("finish").kernel
    return whole


def rows_of_records(records: Iterable[Any], names: Sequence[str] | None = None) -> Any:
    """Turn records into rows.

    Parameters
    ----------
    records : iterable of dict, or of array-likes of shape (d,) or (n, d)
    names : sequence of str, optional
        Names of the features if records are dicts; the keys of the first record by default.

    Returns
    -------
    NamedRows, or ndarray of shape (n, d)
        Features missing from a dict are NaN.

    Raises
    ------
    ValueError
        A dict has a feature that is not among the names.

    Examples
    --------
    >>> from streamkpca.adapters.partitions import rows_of_records
    >>> rows = rows_of_records([{"load": 0.5, "heat": 20.0}, {"heat": 21.0}])
    >>> rows.columns, rows.to_numpy()
    (['load', 'heat'], array([[ 0.5, 20. ],
           [ nan, 21. ]]))
    """
    given = list(records)
    if not given or not isinstance(given[0], Mapping):
        return np.vstack(given) if given else np.empty((0, 0))
    names = list(given[0] if names is None else names)
    known = set(names)
    for record in given:
        if unexpected := [name for name in record if name not in known]:
            raise ValueError(
                f"rows_of_records expected the features {', '.join(map(str, names))} (set by the first record) but got "
                f"{', '.join(map(str, unexpected))} too; drop what is not a feature, or name it in the "
                "first record"
            )
    return NamedRows(names, np.array([[record.get(name, np.nan) for name in names] for record in given]))


def _read(template: StreamingKernelPCA, summary: bytes) -> StreamingKernelPCA:
    # A summary cannot store a kernel with user functions, but the template has the settled kernel.
    assert isinstance(template.kernel, Kernel)
    return StreamingKernelPCA.from_bytes(summary, kernel=template.kernel)
