"""Rows that cannot be used, and cells without a number: refused, or left out and counted, in the order of the file."""

from collections import Counter
from typing import Any

import numpy as np

from streamkpca.tables.asked import Asked, Reading
from streamkpca.tables.blocks import Block
from streamkpca.tables.errors import TableError, drop_hint, short
from streamkpca.tables.numbers import Bools
from streamkpca.tables.reader import COMMENT, NAMES_AGAIN, Reader

# Kinds of rows that lack something.
_NO_TIME = "no time"
_NO_LABEL = "no label"
_NO_NUMBER = "no number"
_A_GAP = "a gap"
_SHOWN = 5
_SKIP = "correct such rows, or skip them (--on-bad-rows skip)"
_FILL = "fill such gaps, skip these rows (--missing skip), or learn with the gaps (--missing marginal)"
# Rows at the end without a number of a column that are told: a count, and a share of all rows, as a column that has
# a number a day has none in some rows at the end.
_LEAST_SILENT = 50
_LEAST_SHARE_SILENT = 0.1


class BadRows:
    """The rows of a table that are left out, and its cells that hold no number.

    n_read, n_left_out: rows so far. n_wrong_clocks: rows whose clock was wrong. kinds, examples: how many rows of each
    kind were left out, and the first of them. odd_cells: by column, how many cells held something else than a number.
    """

    def __init__(self, reader: Reader, reading: Reading, asked: Asked) -> None:
        self._reader, self._path, self._unit, self._notes = reader, reader.source.name, reader.unit, reader.source.notes
        self._reading, self._asked = reading, asked
        self.n_read, self.n_left_out, self.n_wrong_clocks, self.examples = 0, 0, 0, list[str]()
        self.kinds, self.odd_cells, self._first_odd = Counter[str](), Counter[str](), dict[str, str]()
        # The last number of each column: how many rows came before it, and its row.
        self._latest = np.zeros((2, len(reading.columns)), np.int64)

    def screen(self, block: Block) -> Block:
        """Leave out rows with faults or gaps, as the options say; refuse or count them."""
        gaps, none = np.isnan(block.numbers), np.zeros(len(block.rows), bool)
        faults: dict[str, Any] = {
            _NO_TIME: none if block.times is None else ~np.isfinite(block.times),
            _NO_LABEL: none if block.labels is None else np.isnan(block.labels),
            _NO_NUMBER: gaps.all(axis=1),
            _A_GAP: none if self._asked.missing == "marginal" else gaps.any(axis=1),
        }
        out = np.any(list(faults.values()), axis=0)
        found: list[tuple[int, str, str | int]] = list(block.bad)
        for i in map(int, np.flatnonzero(out)):
            found.append((int(block.rows[i]), next(kind for kind, is_so in faults.items() if is_so[i]), i))
        for row, kind, what in sorted(found):
            self._leave_out(block, row, kind, what)
        self.n_read += len(block.rows) + len(block.bad)
        kept = block[~out] if out.any() else block
        if len(kept.rows):
            self._count_odd_cells(kept)
            self._note_numbers(kept)
        return kept

    def describe(self) -> list[str]:
        """Say how many rows were left out, which columns had cells without a number, and which ended."""
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in self.kinds.items())
        left_out = [f"rows left out: {self.n_left_out:,} ({kinds}), the first: {one}" for one in self.examples[:1]]
        n_kept = self.n_read - self.n_left_out
        least = max(_LEAST_SILENT, _LEAST_SHARE_SILENT * n_kept)
        places = zip(self._reading.columns, *self._latest.tolist(), strict=True)
        ended = [
            f"{self._path}, column {short(name)!r}: no number after {self._unit} {row:,}"
            for name, n, row in places
            if n_kept - n > least
        ]
        if n := self._reader.n_replaced:
            left_out.append(
                f"{self._path}: bytes that are no text, in its code: {n:,}; where they stand, cells are gaps"
            )
        return [*left_out, *map(self._describe_odd_cells, self.odd_cells), *ended]

    def _leave_out(self, block: Block, row: int, kind: str, what: str | int) -> None:
        """Refuse a row, or count it: row `what` of a block, or a line that is no row for the reason `what`."""
        remedy = _FILL if kind in (_NO_NUMBER, _A_GAP) else _SKIP
        # Comments and the like are no rows of the table, so they never stop it.
        is_passed = kind in (COMMENT, NAMES_AGAIN) or (remedy == _FILL and self._asked.missing != "raise")
        stops = self._asked.on_bad_rows == "raise" and not is_passed
        self.n_left_out += 1
        self.kinds[kind] += 1
        is_shown, tells = len(self.examples) < _SHOWN, self._tells(self.kinds[kind] - 1, self.kinds[kind])
        if stops or is_shown or tells:
            where = f"{self._path}, {self._unit} {row}{' (from 0)' if self._unit == 'row' else ''}"
            told = f"{where}: {what if isinstance(what, str) else self._describe(block, what, kind)}"
            if stops:
                raise TableError(f"{told}; {remedy}")
            self.examples += [told] if is_shown else []
            self._notes += [f"{told}; left out, {self.kinds[kind]:,} so far"] if tells else []

    def _tells(self, before: int, now: int) -> bool:
        """Tell whether a count of a growing file is told: the first, and whenever it has one more digit."""
        return self._asked.follow and (not before or len(str(before)) < len(str(now)))

    def _describe(self, block: Block, i: int, kind: str) -> str:
        """Say what is wrong with row i of a block."""
        if kind == _NO_TIME:
            form = self._reading.time_format
            return f"column {short(' '.join(self._reading.time))!r} has no time in the form {form}"
        if kind == _NO_LABEL:
            return f"column {short(str(self._asked.labels))!r} has no number ({drop_hint(str(self._asked.labels))})"
        j = int(np.argmax(np.isnan(block.numbers[i])))
        name = self._reading.columns[j]
        return f"column {short(name)!r} {_describe_cell(block.texts[i, j])} ({drop_hint(name)})"

    def _count_odd_cells(self, block: Block) -> None:
        j, i = np.nonzero(np.isnan(block.numbers.T))
        is_odd: Bools = np.array([text is not None for text in block.texts[i, j]], bool)
        i, j = i[is_odd], j[is_odd]
        for c, first, n in zip(*np.unique(j, return_index=True, return_counts=True), strict=True):
            name, before = self._reading.columns[c], self.odd_cells[self._reading.columns[c]]
            self.odd_cells[name] += int(n)
            cell = _describe_cell(block.texts[i[first], c])
            self._first_odd.setdefault(name, f"{self._unit} {block.rows[i[first]]} {cell}")
            if self._tells(before, self.odd_cells[name]):
                self._notes.append(self._describe_odd_cells(name))

    def _describe_odd_cells(self, name: str) -> str:
        n, first = self.odd_cells[name], self._first_odd[name]
        return f"{self._path}, column {short(name)!r}: cells taken for gaps: {n:,}, the first: {first}"

    def _note_numbers(self, block: Block) -> None:
        known = ~np.isnan(block.numbers)
        seen = known.any(axis=0)
        last = len(known) - 1 - known[::-1, seen].argmax(axis=0)
        self._latest[:, seen] = self.n_read - self.n_left_out - len(known) + last, block.rows[last]


def _describe_cell(text: str | float | None) -> str:
    if text is None:
        return "has no value"
    if isinstance(text, str):
        return f"holds {short(text)!r}, which is no number"
    return f"holds {text:g} (if that is a reading: --gaps none)"
