"""Blocks of rows, put in order of time, made wide, cut, and with counters subtracted: each a function of blocks."""

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.tables.errors import TableError
from streamkpca.tables.numbers import Floats
from streamkpca.tables.reader import Counts
from streamkpca.tables.times import find_wrong_stamps

# Kinds of rows that are not wanted.
OTHER_TAG = "another tag"
NO_KEY = "no machine"
# The most numbers of a table that is put in order of time in memory: 256 MB.
_MOST_SORTED = 2**25
_ARRAYS = ("rows", "numbers", "texts", "times", "labels", "keys", "after")


@dataclass(frozen=True)
class Block:
    """Rows of a table between two stages; see `Part` and `Batch`.

    texts (n, d): what stands in cells that are taken for gaps: text that is no number, or a number that stands for a
    gap. keys (n,): tag or machine of a row. state: what counters need to go on after these rows.
    """

    rows: Counts
    numbers: Floats
    texts: npt.NDArray[Any]
    times: npt.NDArray[Any] | None
    labels: Floats | None
    keys: Any
    after: Counts
    bad: Sequence[tuple[int, str, str]]
    state: list[list[float | None]] | None = None

    def __getitem__(self, part: Any) -> "Block":
        arrays: Any = {name: None if (a := getattr(self, name)) is None else a[part] for name in _ARRAYS}
        return replace(self, **arrays)


def _join(blocks: Sequence[Block]) -> Block:
    """Put blocks one after the other."""
    parts = {name: [getattr(block, name) for block in blocks] for name in _ARRAYS}
    arrays: Any = {name: None if part[0] is None else np.concatenate(part) for name, part in parts.items()}
    return Block(**arrays, bad=[one for block in blocks for one in block.bad])


def choose_key(blocks: Iterator[Block], key: str) -> Iterator[Block]:
    """Keep the rows of one machine."""
    for block in blocks:
        bad = [(int(row), NO_KEY, "names no machine") for row in block.rows[block.keys == ""]]
        yield replace(block[block.keys == key], bad=[*block.bad, *bad])


def sort_by_time(blocks: Iterator[Block], path: str, n_columns: int) -> Iterator[Block]:
    """Put all rows in order of time, in memory."""
    parts, n = list[Block](), 0
    for block in blocks:
        parts.append(block)
        n += len(block.rows)
        if n * n_columns > _MOST_SORTED:
            raise TableError(f"{path}: its rows are not in order of time, and too many to sort here; sort the file")
    if parts:
        whole = _join(parts)
        times: Any = whole.times
        order = np.argsort(times, kind="stable")
        if np.mean(times[1:] < times[:-1]) > 0.5:
            # The newest come first within one time, too.
            order = len(order) - 1 - np.argsort(times[::-1], kind="stable")
        yield whole[order]


def widen(blocks: Iterator[Block], tags: Sequence[str]) -> Iterator[Block]:
    """Make one row of the values of all tags, in their order; it ends where a tag comes that stood before.

    Within one time, tags come in any order. The number and the time of a row are those of its first tag.
    """
    places, rest = {tag: j for j, tag in enumerate(tags)}, list[Block]()
    for block in blocks:
        known = [i for i, key in enumerate(block.keys) if key in places]
        others = np.delete(np.arange(len(block.rows)), known)
        what = "is none of the tags of the first rows"
        bad = [(int(block.rows[i]), OTHER_TAG, f"{block.keys[i][:40]!r} {what}") for i in others]
        long = replace(_join([*rest, block[np.array(known, int)]]), bad=[*block.bad, *bad])
        columns, times = [places[key] for key in long.keys], long.times
        starts, seen, last = list[int](), set[int](), 0
        for i, j in enumerate(columns):
            if not seen or j in seen or (j < last and (times is None or times[i] != times[starts[-1]])):
                starts.append(i)
                seen = set()
            seen.add(j)
            last = j
        # A row without some tags may go on in the next block.
        end = starts.pop() if 0 < len(seen) < len(tags) else len(columns)
        rest = [replace(long[end:], bad=[])]
        yield _spread(long[:end], columns[:end], starts, len(tags))
    if rest and len(rest[0].rows):
        yield _spread(rest[0], [places[key] for key in rest[0].keys], [0], len(tags))


def _spread(long: Block, columns: Sequence[int], starts: Sequence[int], n_tags: int) -> Block:
    """Put the one number of each row into its column, in wide rows that begin at some of them."""
    first = np.array(starts, int)
    ends = np.append(first[1:], len(columns))[: len(first)]
    which = np.repeat(np.arange(len(first)), ends - first)
    numbers, texts = np.full((len(first), n_tags), np.nan), np.full((len(first), n_tags), None, object)
    numbers[which, columns], texts[which, columns] = long.numbers[:, 0], long.texts[:, 0]
    return replace(long[first], numbers=numbers, texts=texts, after=long.after[ends - 1])


def cut(blocks: Iterator[Block], n_rows: int) -> Iterator[Block]:
    """Cut blocks into smaller ones, with the bad rows before the end of each."""
    for block in blocks:
        bad = sorted(block.bad)
        for begin in range(0, max(len(block.rows), 1), n_rows):
            part, rest = block[begin : begin + n_rows], block.rows[begin + n_rows :]
            n_bad = bisect(bad, (int(rest[0]),)) if len(rest) else len(bad)
            yield replace(part, bad=bad[:n_bad])
            bad = bad[n_bad:]


def mend_clock(blocks: Iterator[Block], step: Any, tell: Callable[[int, Any], None]) -> Iterator[Block]:
    """Give rows whose clock was wrong once the time a usual `step` after the row before, and tell of these."""
    last, was_wrong = np.datetime64("NaT", "ns"), False
    for block in blocks:
        times: Any = block.times
        if len(block.rows):
            is_wrong = find_wrong_stamps(times, last, step)
            # The second row in a row shows that the clock was set.
            is_wrong[0] &= not was_wrong
            was_wrong = bool(is_wrong[-1])
            for i in np.flatnonzero(is_wrong):
                tell(int(block.rows[i]), times[i])
                times = times.copy()
                times[i] = (times[i - 1] if i else last) + step
            last = times[-1]
        yield replace(block, times=times)


def subtract_counters(blocks: Iterator[Block], columns: Sequence[int], state: Any) -> Iterator[Block]:
    """Replace counters by what they rise or fall in a row, from zero on where they begin again.

    What they have risen over a gap is shared by its rows. A counter that goes on where it was before it began again
    did not begin again. The state holds the last values, their ages in rows, and what came before a beginning.
    """
    nothing = [np.nan] * len(columns)
    last, since, before = np.array(state or [nothing, [0.0] * len(columns), nothing], float)
    for block in blocks:
        numbers, places = block.numbers.copy(), np.arange(len(block.rows) + 1)[:, np.newaxis]
        values = np.vstack([last, numbers[:, columns]])
        # The place of the latest value that is known, at each row.
        known = np.maximum.accumulate(np.where(np.isnan(values), 0, places))
        filled = np.take_along_axis(values, known, axis=0)
        age = places - known + np.where(known == 0, since, 0.0)
        begins = values[1:] < 0.5 * filled[:-1]
        earlier = np.vstack([before, np.where(begins, filled[:-1], np.nan)])
        earlier = np.take_along_axis(earlier, known, axis=0)
        rises = values[1:] - np.where(values[1:] >= earlier[:-1], earlier[:-1], filled[:-1])
        numbers[:, columns] = np.where(begins, values[1:], rises) / (age[:-1] + 1.0)
        last, since, before = filled[-1], age[-1], earlier[-1]
        kept = [[None if np.isnan(one) else float(one) for one in ones] for ones in (last, since, before)]
        yield replace(block, numbers=numbers, state=kept)
