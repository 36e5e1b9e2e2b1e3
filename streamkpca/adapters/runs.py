"""What the doors to engines share: rows in many forms, and runs of partitions learned one after another.

The functions on states take and return the bytes of `Aggregate`, and depend on their arguments alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.aggregate import Aggregate
from streamkpca.dictionary.selection import selection_sample_size
from streamkpca.kernels import Kernel
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.rows.validation import as_rows, as_sample_weight, finite_rows, rows_with_numbers
from streamkpca.stream.transitions import ROWS_TO_SETTLE, kernel_settled_by

Array = npt.NDArray[np.float64]

_NO_ROWS = np.empty((0, 0)), np.empty(0)


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
    >>> from streamkpca.adapters.runs import NamedRows
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
        >>> from streamkpca.adapters.runs import NamedRows
        >>> NamedRows(["load", "heat"], np.eye(2)).to_numpy()
        array([[1., 0.],
               [0., 1.]])
        """
        return self._rows


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
    A state is sent on after each partition and merged once a run. So runs should be long: no more of them than there
    are cores.

    Examples
    --------
    >>> from streamkpca.adapters.runs import runs_of
    >>> runs_of(8, 3)
    [range(0, 3), range(3, 6), range(6, 8)]
    """
    n_runs = min(n_parts, n_streams)
    length, n_longer = divmod(n_parts, n_runs)
    starts = [i * length + min(i, n_longer) for i in range(n_runs + 1)]
    return [range(*ends) for ends in pairwise(starts)]


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
    >>> from streamkpca.adapters.runs import rows_of_records
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


def rows_that_settle(model: StreamingKernelPCA) -> int:
    """Return how many rows of positive weight settle the scale of a model's kernel for good."""
    return -(-ROWS_TO_SETTLE // model.block_size) * model.block_size


def rows_to_begin_with(model: StreamingKernelPCA) -> int:
    """Return how many rows a template learns, whole blocks: they settle the scale, and atoms are chosen from them.

    They fill the sample that judges atoms twice. After half as many, every later stream took a quarter longer, as its
    own search had not come to rest; after more, it was no quicker.
    """
    n_rows = max(ROWS_TO_SETTLE, 2 * selection_sample_size(model.max_atoms))
    return -(-n_rows // model.block_size) * model.block_size


def usable_rows(rows: Any, weights: Any, model: StreamingKernelPCA, count: int, where: str) -> tuple[Array, Array]:
    """Return the first `count` rows of positive weight that a model learns from, and their weights."""
    if not len(rows):
        return _NO_ROWS
    finite, gaps = model.on_bad_rows == "raise", model.on_missing != "raise"
    values = as_rows(rows, where=where, finite=finite, gaps=gaps)
    weights = as_sample_weight(weights, len(values), where=where, all_zero=True)
    good = rows_with_numbers(values) if model.on_missing == "marginal" else finite_rows(values)
    usable = np.flatnonzero((weights > 0.0) & good)[:count]
    return values[usable], weights[usable]


def answered_rows(rows: Array, model: Any) -> npt.NDArray[np.bool_]:
    """Tell which rows (n, d) a model is asked about: not those that it leaves out when it learns."""
    skips, on_missing = getattr(model, "on_bad_rows", "raise") == "skip", getattr(model, "on_missing", "raise")
    left_out = np.zeros(len(rows), dtype=bool)
    if skips:
        left_out |= np.isinf(rows).any(axis=1)
    if on_missing == "skip" or (skips and on_missing == "raise"):
        left_out |= np.isnan(rows).any(axis=1)
    return ~left_out


def template_of(model: StreamingKernelPCA, found: Sequence[tuple[Array, Array]], where: str) -> StreamingKernelPCA:
    """Return an empty model of the same parameters, whose kernel has the scale that a stream of these rows settles."""
    settings = model.settings(where)
    kernel = settings.kernel
    if not kernel.is_settled:
        parts = [part for part in found if len(part[0])]
        if not parts:
            raise ValueError(
                f"{where}: found 0 rows to learn from in all partitions; pass at least 1 finite row of positive weight"
            )
        rows, weights = map(np.concatenate, zip(*parts, strict=True))
        kernel = kernel_settled_by(rows.astype(model.dtype).astype(np.float64), weights, settings)
    return StreamingKernelPCA(**(model.get_params(deep=False) | {"kernel": kernel}))


def added(state: bytes, rows: Any, weights: Any, kernel: Kernel) -> bytes:
    """Return a state with the rows of a partition added."""
    return Aggregate.from_bytes(state, kernel=kernel).add(rows, weights).to_bytes()


def begun(state: bytes, rows: Any, weights: Any, kernel: Kernel) -> bytes:
    """Return an empty state that begins with the atoms of these rows."""
    return Aggregate.from_bytes(state, kernel=kernel).add(rows, weights).zero().to_bytes()


def merged(states: Sequence[bytes], kernel: Kernel) -> bytes:
    """Merge states in the order of their rows."""
    first, *others = (Aggregate.from_bytes(state, kernel=kernel) for state in states)
    return first.merge(*others).to_bytes()
