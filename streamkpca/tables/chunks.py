"""Some rows of a table, what stands beside them, and the places between them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Time = str | int | float | None


@dataclass(frozen=True)
class Places:
    """Where reading stands after each of some rows.

    Attributes
    ----------
    common : mapping
        What all these places share: what tells the file from another.
    counted : mapping of str to ndarray of shape (n,)
        What is counted, after each row.
    """

    common: Mapping[str, Any]
    counted: Mapping[str, Counts]

    def __getitem__(self, part: slice) -> "Places":
        return Places(self.common, {name: counts[part] for name, counts in self.counted.items()})

    @property
    def last(self) -> dict[str, Any]:
        """The place after the last row."""
        return {**self.common, **{name: int(counts[-1]) for name, counts in self.counted.items()}}


class Chunk(NamedTuple):
    """Some consecutive rows of a table.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        Finite, C-contiguous float64.
    labels : ndarray of shape (n,), or None
        The label column, where one was asked for.
    position : int
        How much of the table's `total` has been read by now.
    times : list, or None
        The time column, where one was asked for: text as it stands in text files, ISO 8601 for time stamps of
        Parquet, Arrow and numpy, numbers for numbers; None where it is missing.
    places : Places or None
        The places after each row; None where a table cannot be read again.
    """

    rows: Array
    labels: Array | None
    position: int
    times: list[Time] | None = None
    places: Places | None = None

    @property
    def place(self) -> dict[str, Any] | None:
        """What `Table.go_on` needs to go on after this chunk: a small dict that JSON can hold."""
        return None if self.places is None else self.places.last

    def cut(self, part: slice) -> "Chunk":
        """Take some of the rows, with all that stands beside them.

        Parameters
        ----------
        part : slice
            Which rows.

        Returns
        -------
        Chunk
        """
        labels = None if self.labels is None else self.labels[part]
        times = None if self.times is None else self.times[part]
        places = None if self.places is None else self.places[part]
        return Chunk(self.rows[part], labels, self.position, times, places)


class Block(NamedTuple):
    """Rows as a format reads them, bad ones left out.

    Attributes
    ----------
    values : ndarray of shape (n, len(columns.wanted))
        Finite numbers.
    times : list of length n, or None
        The time column.
    position : int
        How much of the table's `total` has been read.
    places : Places or None
        The place after each row.
    bad : sequence of int
        For every row left out, how many rows of the block came before it.
    reason : str or None
        What is wrong with the first row left out.
    """

    values: Array
    times: list[Time] | None
    position: int
    places: Places | None
    bad: Sequence[int] | Counts = ()
    reason: str | None = None


def time_values(column: npt.NDArray[Any], zone: str = "") -> list[Time]:
    """Turn an array of times into what stands beside rows.

    Parameters
    ----------
    column : ndarray of shape (n,)
        Numbers, texts, or numpy's dates and times.
    zone : str
        What to write after a time.

    Returns
    -------
    list
        Dates and times in ISO 8601, None where there is none.

    Examples
    --------
    >>> time_values(np.array(["2024-05-01T10:00", "NaT"], dtype="datetime64[s]"), "Z")
    ['2024-05-01T10:00:00Z', None]
    """
    if column.dtype.kind != "M":
        values: list[Time] = column.tolist()
        return values
    return [None if text == "NaT" else f"{text}{zone}" for text in np.datetime_as_string(column).tolist()]


def regroup(chunks: Iterable[Chunk], n_rows: int) -> Iterator[Chunk]:
    """Cut rows anew, so that every chunk but the last has the same number of them.

    Parameters
    ----------
    chunks : iterable of Chunk
        Rows as they came.
    n_rows : int
        Rows of each chunk.

    Yields
    ------
    Chunk
    """
    held: list[Chunk] = []
    n_held = 0
    for chunk in chunks:
        start = 0
        while n_held + len(chunk.rows) - start >= n_rows:
            stop = start + n_rows - n_held
            yield _join([*held, chunk.cut(slice(start, stop))])
            held, n_held, start = [], 0, stop
        if start < len(chunk.rows):
            held.append(chunk.cut(slice(start, None)))
            n_held += len(held[-1].rows)
    if held:
        yield _join(held)


def _join(chunks: list[Chunk]) -> Chunk:
    last = chunks[-1]
    if len(chunks) == 1:
        return last
    labels = None if last.labels is None else np.concatenate([c.labels for c in chunks if c.labels is not None])
    times = None if last.times is None else [time for c in chunks for time in c.times or ()]
    return last._replace(rows=np.concatenate([chunk.rows for chunk in chunks]), labels=labels, times=times)
