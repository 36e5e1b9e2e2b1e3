"""Categories given as text: numbers that stand for them, the same in every model and process."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Names of so many categories are kept, and none that is longer: a stream of ever new ones needs no more memory.
MOST_NAMES, LONGEST_NAME = 4096, 200
# Codes are whole numbers from here to twice as many, exact in float64 and apart from the numbers that people give.
_FIRST = 2**52
# Codes of texts remembered while rows are converted.
_MOST_REMEMBERED = 2**16


def category_code(text: str) -> float:
    """Return the number that stands for a category given as text.

    Parameters
    ----------
    text : str

    Returns
    -------
    float
        A whole number from 2^52 to 2^53, which depends on the text alone; or the number that the text spells, if it is
        how Python prints that number: ``"7"`` is 7, but ``"007"`` and ``"7.50"`` are text.

    Notes
    -----
    The first 52 bits of the BLAKE2b digest of 8 bytes of the text in UTF-8. Of a million categories, two have the same
    code with a probability of 1e-4. Models convert text by themselves; exports to C and ONNX take these numbers.

    Examples
    --------
    >>> category_code("open"), category_code("7")
    (8864860346949399.0, 7.0)
    """
    number = _number_in(text)
    if number is not None:
        return number
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return float(_FIRST + (int.from_bytes(digest, "little") >> 12))


def _number_in(text: str) -> float | None:
    """Return the finite number that a text spells as Python prints it; None if it spells none."""
    if not text or len(text) > 30 or text[-1] not in "0123456789":
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    is_plain = np.isfinite(number) and (repr(number) == text or (number == int(number) and str(int(number)) == text))
    return number if is_plain else None


def kept_names(texts: Iterable[str]) -> dict[str, float]:
    """Return the codes of categories that are short enough, of the 4,096 smallest codes, by these.

    Which these are does not depend on the order or the grouping of the texts.
    """
    coded = sorted((category_code(text), text) for text in set(texts) if len(text) <= LONGEST_NAME)
    return {text: code for code, text in coded[:MOST_NAMES]}


class CategoryReader:
    """Turns text in columns of categories into codes, and notes the texts that it has seen.

    Parameters
    ----------
    columns_of : callable
        The columns that hold categories, among so many.
    """

    def __init__(self, columns_of: Callable[[int], Collection[int]]) -> None:
        self._columns_of = columns_of
        self._codes: dict[Any, float] = {}
        self._texts: dict[str, None] = {}

    def columns(self, d: int) -> list[int]:
        """Return the columns that hold categories, of d."""
        return sorted(column for column in self._columns_of(d) if column < d)

    def names_with(self, known: Mapping[str, float]) -> dict[str, float]:
        """Return the texts known and seen, with their codes, as far as they are kept."""
        if self._texts.keys() <= known.keys():
            return dict(known)
        return kept_names([*known, *self._texts])

    @property
    def has_seen_text(self) -> bool:
        """Whether any cell held text."""
        return bool(self._texts)

    def rows(self, values: Any, numbers: Callable[[Any], Array], where: str, name: str) -> Array | None:
        """Turn a table, or rows of cells of any kind, into numbers; None where no column of categories holds text.

        `numbers` converts the other columns; `where` and `name` say in errors who was given what.
        """
        is_table = hasattr(values, "columns") and hasattr(values, "to_numpy")
        cells = values if is_table else _rows_of_objects(values)
        if cells is None:
            return None
        n, d = cells.shape
        columns = [column for column in self.columns(d) if not (is_table and _is_numeric(cells, column))]
        if not columns:
            return None
        rows, rest = np.empty((n, d)), sorted(set(range(d)) - set(columns))
        for column in columns:
            try:
                rows[:, column] = self.coded(_cells_of(cells, column), n)
            except TypeError as error:
                raise TypeError(f"{where}: column {column} of {name} holds no categories ({error})") from None
        if rest:
            rows[:, rest] = numbers(cells.iloc[:, rest] if hasattr(cells, "iloc") else cells[:, rest])
        return rows

    def coded(self, cells: Iterable[Any], n: int) -> Array:
        """Turn n cells into codes: text by its digest, numbers as they are, missing ones into NaN."""
        return np.fromiter(map(self._code, cells), dtype=np.float64, count=n)

    def _code(self, cell: Any) -> float:
        if type(cell) is str:
            known = self._codes.get(cell)
            return self._noted(cell) if known is None else known
        if isinstance(cell, str):
            return self._code(str(cell))
        if isinstance(cell, Real | np.bool_):
            return float(cell)
        # pandas' NA and NaT are no numbers, and unequal to everything.
        if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
            return np.nan
        raise TypeError(f"a category must be text or a number, not {type(cell).__name__}")

    def _noted(self, text: str) -> float:
        if len(self._codes) >= _MOST_REMEMBERED:
            self._codes.clear()
        self._codes[text] = code = category_code(text)
        if code < _FIRST:
            return code
        if len(text) <= LONGEST_NAME:
            self._texts[text] = None
            if len(self._texts) > 4 * MOST_NAMES:
                self._texts = dict.fromkeys(kept_names(self._texts))
        return code


def _rows_of_objects(values: Any) -> npt.NDArray[np.object_] | None:
    """Return rows of cells of any kind if some are text, beside which numpy would make numbers text."""
    kind = getattr(getattr(values, "dtype", None), "kind", "O")
    if kind not in "OSU" or not isinstance(values, list | tuple | np.ndarray):
        return None
    try:
        cells = np.asarray(values, dtype=object)
    except ValueError:
        return None
    return cells if cells.ndim == 2 and any(isinstance(cell, str) for cell in cells.ravel()) else None


def _cells_of(table: Any, column: int) -> Iterable[Any]:
    """Return the cells of a column of a table of pandas or polars, or of an array."""
    if hasattr(table, "iloc"):
        cells: Iterable[Any] = table.iloc[:, column]
    else:
        cells = table.to_series(column) if hasattr(table, "to_series") else table[:, column]
    return cells


def _is_numeric(table: Any, column: int) -> bool:
    """Say whether a column of a table of pandas or polars is of a type of numbers."""
    if hasattr(table, "iloc"):
        return getattr(table.dtypes.iloc[column], "kind", "O") in "fiubc"
    dtype = table.dtypes[column]
    return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
