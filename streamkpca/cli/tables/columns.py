"""The columns of a table, the choice among them, and the error for a file that cannot be read."""

import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
)
_SHOWN_NAMES = 8


class TableError(ValueError):
    """Raised when a file cannot be read as rows of numbers.

    The message is one line, even where column names hold line ends: where, what is wrong, and what to do about it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


@contextmanager
def reading_errors(source: str) -> Iterator[None]:
    """Turn errors of numpy, zipfile, the decompressors and pyarrow into a one-line TableError that names the file."""
    try:
        yield
    except TableError:
        raise
    except _UNREADABLE as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise TableError(
            f"{source}: cannot be read ({reason}); check that the file is complete and has the format it claims"
        ) from None


def need_pyarrow(source: str) -> ModuleType:
    """Import pyarrow with the parsers that text, Parquet and Arrow need."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.json
        import pyarrow.parquet
    except ImportError:
        raise TableError(f'{source}: reading it needs pyarrow; pip install "streamkpca[cli]"') from None
    module: ModuleType = pyarrow
    return module


@dataclass(frozen=True)
class Choice:
    """The columns a caller asks for, before anything is known of the file.

    Attributes
    ----------
    columns : sequence of str
        Columns to read, by name or by position from 0; a name wins over a position. All columns if empty.
    drop : sequence of str
        Columns to leave out.
    labels : str, optional
        Column that is no feature but marks the anomalous rows.
    time : str, optional
        Column to keep beside the rows, unchanged. It is a feature only if `columns` names it too.
    learned : sequence of str
        Names of the columns to read, in this order, from a file with column names, if `columns` is empty.
    """

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    labels: str | None = None
    time: str | None = None
    learned: Sequence[str] = ()


@dataclass(frozen=True)
class Columns:
    """The columns of a table and the choice among them.

    Attributes
    ----------
    names : tuple of str
        All columns of the file; their positions as text if the file has no names.
    features : tuple of int
        Positions of the chosen columns, in the order of the choice.
    labels, time : int or None
        Positions of the label column and of the time column.
    named : bool
        Whether the names come from the file.
    """

    names: tuple[str, ...]
    features: tuple[int, ...]
    labels: int | None
    time: int | None
    named: bool

    @property
    def wanted(self) -> tuple[int, ...]:
        """Positions of all columns to read as numbers: features, then labels."""
        return self.features if self.labels is None else (*self.features, self.labels)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the chosen columns."""
        return tuple(self.names[j] for j in self.features)

    def option(self, j: int) -> str:
        """Write column j as an option takes it: by position if its name is blank, repeated, or contains a comma."""
        name = self.names[j]
        return str(j) if not name.strip() or "," in name or self.names.count(name) > 1 else name


def choose_columns(source: str, names: Sequence[str], choice: Choice, *, named: bool) -> Columns:
    """Apply a choice to the names of a table's columns; refuse a column that is absent, and a choice of none.

    Examples
    --------
    >>> choose_columns("a.csv", ["time", "x", "y"], Choice(time="time"), named=True).feature_names
    ('x', 'y')
    """
    dropped = {_find_column(source, names, wanted) for wanted in choice.drop}
    label = None if choice.labels is None else _find_column(source, names, choice.labels)
    time = None if choice.time is None else _find_column(source, names, choice.time)
    if choice.columns:
        chosen = [_find_column(source, names, wanted) for wanted in choice.columns]
    elif choice.learned and named:
        missing = next((name for name in choice.learned if name not in names), None)
        if missing is not None:
            raise TableError(
                f"{source}: expected the columns that were learned but there is no {missing!r}; it has {len(names)}: "
                f"{_list_names(names)}; name the {len(choice.learned)} to read, in the learned order, with --columns"
            )
        chosen = [_find_column(source, names, wanted) for wanted in choice.learned]
    else:
        chosen = [j for j in range(len(names)) if j != time]
    features = tuple(j for j in dict.fromkeys(chosen) if j not in dropped and j != label)
    if not features:
        raise TableError(
            f"{source}: no column is left of {_list_names(names)}; "
            "choose others with --columns, --drop, --time or --labels"
        )
    return Columns(tuple(names), features, label, time, named)


def _find_column(source: str, names: Sequence[str], wanted: str) -> int:
    if wanted in names:
        if names.count(wanted) > 1:
            raise TableError(f"{source}: {names.count(wanted)} columns are named {wanted!r}; give the position instead")
        return names.index(wanted)
    try:
        position = int(wanted)
    except ValueError:
        position = len(names)
    if not -len(names) <= position < len(names):
        raise TableError(
            f"{source}: no column {wanted!r}; it has {len(names)}: {_list_names(names)}; "
            "give one of these names or a position, counting from 0"
        )
    return position % len(names)


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown}, ..."
