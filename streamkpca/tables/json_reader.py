"""JSON lines."""

import json
import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow

from streamkpca.tables.bad_rows import NO_JSON
from streamkpca.tables.columns import Asked
from streamkpca.tables.csv_reader import LOOK_ROWS, LineReader, Rows, decode, look_at_beginning
from streamkpca.tables.errors import TableError
from streamkpca.tables.source import Source, spell


class JsonReader(LineReader):
    """Rows of JSON, one a line: objects, whose keys are the columns.

    Names of values inside others have a point between. A key that is absent or null is a gap. The columns are those of
    the first lines and, where gaps are learned, those that are known.
    """

    def __init__(self, source: Source, asked: Asked) -> None:
        self._sample = look_at_beginning(source, LOOK_ROWS if asked.looks else 1, quotes=False)
        rows, fault = list[dict[str, Any]](), ""
        for i, text in enumerate(decode(self._sample).split("\n")[:1000], start=1):
            try:
                rows += [_row(text)] if text.strip() else []
            except ValueError as error:
                fault = fault or f"{source.name}, line {i}: {error}"
        if not rows or decode(self._sample).lstrip().startswith("["):
            remedy = f"for an array of rows, jq -c '.[]' {shlex.quote(str(source.path))} | streamkpca watch -"
            raise TableError(f"{fault}; {remedy}")
        more = asked.known.columns if asked.on_missing == "marginal" else ()
        super().__init__(source, list(dict.fromkeys(chain(*rows, more))), named=True, total=source.size)

    def _read(self, texts: Sequence[str], wanted: Sequence[int]) -> Rows:
        rows, kept, bad = list[dict[str, Any]](), list[int](), []
        for i, text in enumerate(texts):
            try:
                rows.append(_row(text))
                kept.append(i)
            except ValueError as error:
                bad.append((i, NO_JSON, str(error)))
        return np.array(kept, int), {j: _column([row.get(self.names[j]) for row in rows]) for j in wanted}, bad


def _row(line: str) -> dict[str, Any]:
    try:
        # A float of any number of digits is known, if need be as infinity.
        row = json.loads(line, parse_int=float)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"is not JSON ({error}); write one object a line") from None
    if not isinstance(row, dict) or not row:
        raise ValueError(f"expected an object with values but got {line[:40]!r}")
    return dict(_flatten(row, ""))


def _flatten(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the values inside an object or array, by names with points between."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        if isinstance(inner, dict | list) and inner:
            yield from _flatten(inner, f"{name}{key}.")
        else:
            yield f"{name}{key}", inner


def _column(values: list[Any]) -> Any:
    """Make cells of what stands in JSON: numbers, or else text."""
    if all(value is None or type(value) is float for value in values):
        return pyarrow.array(values, pyarrow.float64())
    return pyarrow.array([None if value is None else spell(value) for value in values], pyarrow.string())
