"""JSON lines: one row a line, an object or an array."""

import json
from typing import Any

import numpy as np

from streamkpca.cli.tables.columns import Choice, Columns, TableError, choose_columns, need_pyarrow
from streamkpca.cli.tables.reader import Array, Time, category_cell
from streamkpca.cli.tables.source import Source
from streamkpca.cli.tables.text import BadRecord, Parsed, Records, TextTable


class _Spelled(str):
    """A number as it is spelled in the text."""


# With more columns Python is faster than pyarrow, which takes 30 us and 2.5 KB for each column of a block.
_FEW_COLUMNS = 5000
# The value of a key that a record holds twice.
_TWICE = object()


class JsonTable(TextTable):
    """Rows of JSON, one a line: objects, or arrays without names.

    The first row's keys are the columns; where gaps are taken, so are those that were learned. In later rows the order
    of keys is free and keys that are not wanted may come and go. A wanted key that is absent or null is missing; one
    that is repeated makes a bad row. true and false are 1 and 0. All arrays must have the length of the first one.
    """

    _format = "JSON lines"

    def __init__(self, source: Source, *, choice: Choice, skips: bool = False, on_missing: str = "raise") -> None:
        super().__init__(source, skips=skips, on_missing=on_missing)
        first = self._look_first()
        self._objects = isinstance(first, dict)
        names = list(first) if isinstance(first, dict) else [str(j) for j in range(len(first))]
        if self._objects and on_missing == "marginal":
            names = list(dict.fromkeys([*names, *choice.learned]))
        self.columns = choose_columns(source.name, names, choice, named=self._objects)
        # A column that begins with true or false is likely to continue with them.
        known = first if isinstance(first, dict) else {}
        self._flags = {name for name, value in known.items() if isinstance(value, bool)}
        self._texts = {name for name, value in known.items() if type(value) is str}
        time = self.columns.time
        # Times that are not text, or are also features, are read one by one, to keep them as they are spelled.
        self._spelled_times = time is not None and (
            type(known.get(names[time])) is not str or time in self.columns.wanted
        )

    def _look_first(self) -> dict[str, Any] | list[Any]:
        """Find the first line that is a row."""
        found: list[dict[str, Any] | list[Any]] = []

        def look(head: bytes, final: bool = False) -> bool:
            records, _, _ = self._records(head, line=1, final=final)
            for i in range(len(records)):
                try:
                    found.append(_row(records.one(i)))
                    return True
                except BadRecord as bad:
                    if not self.skips:
                        raise TableError(
                            f"{self.source}, line {records.lines[i]}: {bad.what}; "
                            "give one object or array of numbers a line, or add --header or --no-header if this is CSV"
                        ) from None
            return False

        head = self._source.peek(look)
        if not found and not look(head, final=True):
            raise TableError(f"{self.source}: none of its lines is a JSON object or array; give a table with rows")
        return found[0]

    def _n_header_records(self, records: Records) -> int:
        del records
        return 0

    def _parse_fast(self, records: Records) -> Parsed | None:
        if self._spelled_times or (self._objects and len(self.columns.names) > _FEW_COLUMNS):
            return self._parse_slowly(records)
        # A line that is not one whole row must not be offset by another that is two, and a line that is only null
        # makes pyarrow 26 read outside of its memory.
        if not _framed(records, b"{}" if self._objects else b"[]"):
            return None
        return self._parse_objects(records) if self._objects else self._parse_arrays(records)

    def _parse_objects(self, records: Records) -> Parsed | None:
        arrow = need_pyarrow(self.source)
        block, names = records.joined, [self.columns.names[j] for j in self.columns.wanted]
        time = None if self.columns.time is None else self.columns.names[self.columns.time]
        categories = {self.columns.names[j] for j in self.columns.categories}
        types = {name: arrow.bool_() if name in self._flags else arrow.float64() for name in names}
        types |= dict.fromkeys(categories & self._texts, arrow.string())
        if time is not None:
            types[time] = arrow.string()
        try:
            table = arrow.json.read_json(
                arrow.BufferReader(block),
                read_options=arrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=arrow.json.ParseOptions(
                    explicit_schema=arrow.schema(list(types.items())), unexpected_field_behavior="ignore"
                ),
            )
        except arrow.ArrowInvalid:
            return None
        values: Array = np.empty((table.num_rows, len(names)))
        for j, name in enumerate(names):
            column = table.column(name)
            is_text = arrow.types.is_string(column.type)
            values[:, j] = self._coded(column.to_pylist()) if is_text else column.cast(arrow.float64()).to_numpy()
        return self._screen_fast(values, None if time is None else table.column(time).to_pylist(), records)

    def _parse_arrays(self, records: Records) -> Parsed | None:
        block = records.joined
        if b'"' in block:
            # numpy would convert text to numbers.
            return None
        try:
            rows = json.loads(b"[" + block.replace(b"\n", b",").strip(b"\r, ") + b"]", parse_int=float)
            values: Array = np.array(rows, dtype=np.float64)
        except (ValueError, TypeError, RecursionError):
            return None
        if values.shape != (len(records), len(self.columns.names)):
            return None
        return self._screen_fast(values[:, list(self.columns.wanted)], None, records)

    def _parse_one(self, record: str) -> tuple[list[float], Time]:
        row = _row(record)
        if isinstance(row, dict) is not self._objects:
            raise BadRecord(f"expected {'an object' if self._objects else 'an array'} (as in the first line)")
        names = self.columns.names
        if isinstance(row, list):
            if len(row) != len(names):
                raise BadRecord(f"expected {len(names)} values (as in the first line) but found {len(row)}")
            row = dict(zip(names, row, strict=True))
        numbers = [self._value(row.get(names[j]), j) for j in self.columns.wanted]
        time = None if self.columns.time is None else row.get(names[self.columns.time])
        if time is not None:
            # JSON can escape half a surrogate pair, which no text can hold.
            try:
                text = time if isinstance(time, str) else json.dumps(time)
            except RecursionError:
                raise BadRecord("is nested too deeply") from None
            time = text.encode("utf-8", "replace").decode()
        return numbers, time

    def _value(self, value: Any, j: int) -> float:
        is_text = isinstance(value, str) and not isinstance(value, _Spelled)
        if j in self.columns.categories and is_text:
            if category_cell(value) is not None:
                return float(self._coded([value])[0])
            if self.on_missing != "raise":
                return self._gap(f"{self.columns.called(j)} has no value", j)
        if value is None or (isinstance(value, _Spelled) and value == "NaN"):
            return self._gap(f"{self.columns.called(j)} has no value", j)
        return _number(value, self.columns, j)


def _row(record: str) -> dict[str, Any] | list[Any]:
    try:
        row = json.loads(
            record, parse_int=_Spelled, parse_float=_Spelled, parse_constant=_Spelled, object_pairs_hook=_mark_repeated
        )
    except RecursionError:
        raise BadRecord("is nested too deeply") from None
    except ValueError as error:
        raise BadRecord(f"is not JSON ({error})") from None
    if not isinstance(row, dict | list):
        raise BadRecord(f"expected an object or an array but found {record[:40]!r}")
    if not row:
        raise BadRecord("is an object or array without values")
    if any("\ud800" <= letter <= "\udfff" for key in row if isinstance(key, str) for letter in key):
        raise BadRecord("has half a surrogate pair in a key")
    return row


def _mark_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        seen: set[str] = set()
        row |= {key: _TWICE for key, _ in pairs if key in seen or seen.add(key)}  # type: ignore[func-returns-value]
    return row


def _framed(records: Records, marks: bytes) -> bool:
    """Tell whether every record begins and ends with these two marks."""
    codes = np.frombuffer(records.text, np.uint8)
    ends = records.ends - (codes[records.ends - 1] == ord("\n"))
    ends -= codes[ends - 1] == ord("\r")
    return bool((codes[records.starts] == marks[0]).all() and (codes[ends - 1] == marks[1]).all())


def _number(value: Any, columns: Columns, j: int) -> float:
    if value is _TWICE:
        raise BadRecord(f"{columns.called(j)} is repeated", columns.option(j))
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, _Spelled):
        what = "text" if isinstance(value, str) else "an object" if isinstance(value, dict) else "an array"
        # A long or deep value is not written out whole for the sake of its beginning.
        shown = f" ({json.dumps(value)[:40]})" if isinstance(value, str) else ""
        raise BadRecord(
            f"{columns.called(j)} holds {what}{shown} but numbers are required", columns.option(j), text=True
        )
    number = float(value)
    if not np.isfinite(number):
        raise BadRecord(f"{columns.called(j)} is infinite", columns.option(j))
    return number
