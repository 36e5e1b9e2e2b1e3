"""The first rows of a file: cells by columns, and the forms in which these are read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow

from streamkpca.tables.errors import TableError, list_names, short
from streamkpca.tables.numbers import Floats, Form, find_forms, read_numbers
from streamkpca.tables.reader import Reader
from streamkpca.tables.times import join_texts

# The first rows of more columns are not looked at.
MOST_COLUMNS = 2000


class Sample:
    """The first rows of a file: cells by columns, and the forms in which these are read."""

    def __init__(self, reader: Reader, *, decimal: str | None) -> None:
        self.path, self.names, self.named = reader.source.name, reader.names, reader.named
        part, mark = reader.sample(), reader.dialect.get("delimiter", ",")
        self.cells, self.n_rows, self.is_whole = part.cells, len(part.rows), reader.source.rereadable
        forms = find_forms([*self.cells.values()], delimiter=mark, decimal=decimal)
        # Dates of a file with types are no numbers, and may be the time.
        are_dates = [pyarrow.types.is_temporal(cells.type) for cells in self.cells.values()]
        forms = [None if is_date else form for form, is_date in zip(forms, are_dates, strict=True)]
        self.forms = dict(zip(self.names, forms, strict=True))
        marks = {form.decimal for form in forms if form}
        if "delimiter" in reader.dialect and len(marks) == 1:
            reader.dialect["decimal"] = marks.pop()

    def check(self, names: Sequence[str]) -> list[str]:
        """Return names of columns, and refuse those that there are not."""
        for name in names:
            if name not in self.cells:
                what = f"no column {short(name)!r}; it has {len(self.names):,}: {list_names(self.names)}"
                raise TableError(f"{self.path}: {what}; give one of these names, or rename the file's columns")
        return [*names]

    def numbers(self, name: str) -> Floats:
        """Read the numbers of a column, none of very many columns."""
        if len(self.names) > MOST_COLUMNS:
            return np.full(self.n_rows, np.nan)[:0]
        return read_numbers(self.cells[name], self.forms[name] or Form())[0]

    def texts(self, name: str) -> npt.NDArray[Any]:
        """Read the text of a column."""
        return np.array(join_texts([self.cells[name]]).fill_null("").to_pylist(), object)
