"""The columns of a table, the choice among them, and the error for a file that cannot be read."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

from streamkpca._core.concurrency import cached_property
from streamkpca.cli.undisturbed import undisturbed
from streamkpca.cli.wording import Worded

_SHOWN_NAMES = 8
_SHOWN_LETTERS = 60
_MOST_COMPARED = 1000
_POSITION = re.compile(r"[+-]?[0-9]{1,9}")
# A table of more columns has rows and columns exchanged, or is none.
_MOST_COLUMNS = 2**20


class TableError(Worded):
    """Raised when a file cannot be read as rows of numbers.

    The message is one line, even where column names hold line ends: where, what is wrong, and what to do about it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


@contextmanager
def reading_errors(source: str) -> Iterator[None]:
    """Turn whatever numpy, zipfile, the decompressors and pyarrow raise into a one-line TableError that names the file.

    They raise nearly anything over bytes that make no sense: OverflowError, KeyError, struct.error, ...
    """
    try:
        yield
    except Worded:
        # Also from a handler of signals, which may save a model while rows are awaited.
        raise
    except Exception as error:
        raise TableError(
            f"{source}: cannot be read ({reason_of(error)}); check that the file is complete and has the format it "
            "claims"
        ) from None


def reason_of(error: Exception) -> str:
    """Return the first line of what a library says of a file."""
    if isinstance(error, MemoryError):
        return "it claims to need more memory than there is"
    reason = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0]
    if not reason or isinstance(error, LookupError | TypeError | AssertionError | AttributeError | RecursionError):
        # A library stumbled over what it did not expect.
        return "its parts contradict each other"
    return str(reason).rstrip(".:")[:200]


def need_pyarrow(source: str) -> ModuleType:
    """Import pyarrow with the parsers that text, Parquet and Arrow need."""
    try:
        with undisturbed():
            import pyarrow
            import pyarrow.csv
            import pyarrow.json
            import pyarrow.parquet

            # Otherwise pyarrow imports it when it converts the first rows.
            with suppress(ImportError):
                import_module("pandas")
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
    categories : sequence of str
        Columns that hold categories, by name or position: text in them becomes numbers.
    category_features : collection of int
        The same, by positions among the columns that are read, as a model has learned them.
    """

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    labels: str | None = None
    time: str | None = None
    learned: Sequence[str] = ()
    categories: Sequence[str] = ()
    category_features: Collection[int] = ()


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
    categories : frozenset of int
        Positions of the columns that hold categories.
    """

    names: tuple[str, ...]
    features: tuple[int, ...]
    labels: int | None
    time: int | None
    named: bool
    categories: frozenset[int] = frozenset()

    @property
    def category_features(self) -> list[int]:
        """Positions of the categories among the chosen columns."""
        return [i for i, j in enumerate(self.features) if j in self.categories]

    @property
    def wanted(self) -> tuple[int, ...]:
        """Positions of all columns to read as numbers: features, then labels."""
        return self.features if self.labels is None else (*self.features, self.labels)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the chosen columns."""
        return tuple(self.names[j] for j in self.features)

    def called(self, j: int) -> str:
        """Write the name of column j in an error."""
        return f"column {short(self.names[j])!r}"

    def option(self, j: int) -> str:
        """Write column j as an option takes it: by position if its name is blank, odd, repeated, or has a comma."""
        name = self.names[j]
        odd = not name.strip() or "," in name or not name.isprintable() or name.startswith("-")
        return str(j) if odd or len(name) > _SHOWN_LETTERS or self.names.count(name) > 1 else name


def choose_columns(source: str, names: Sequence[str], choice: Choice, *, named: bool) -> Columns:
    """Apply a choice to the names of a table's columns; refuse a column that is absent, and a choice of none.

    Examples
    --------
    >>> choose_columns("a.csv", ["time", "x", "y"], Choice(time="time"), named=True).feature_names
    ('x', 'y')
    """
    check_width(source, len(names))
    finder = _Finder(source, names)
    dropped = {finder.find(wanted) for wanted in choice.drop}
    label = None if choice.labels is None else finder.find(choice.labels)
    time = None if choice.time is None else finder.find(choice.time)
    if choice.columns:
        chosen = [finder.find(wanted) for wanted in choice.columns]
    elif choice.learned and named:
        missing = next((name for name in choice.learned if name not in finder.positions), None)
        if missing is not None:
            raise TableError(
                f"{source}: expected the columns that were learned but there is no {short(missing)!r}; it has "
                f"{len(names)}: {list_names(names)}; name the {len(choice.learned)} to read, in the learned order, "
                "with --columns"
            )
        chosen = [finder.find(wanted) for wanted in choice.learned]
    else:
        chosen = [j for j in range(len(names)) if j != time]
    features = tuple(j for j in dict.fromkeys(chosen) if j not in dropped and j != label)
    if not features:
        raise TableError(
            f"{source}: no column is left of {list_names(names)}; "
            "choose others with --columns, --drop, --time or --labels"
        )
    categories = {finder.find(wanted) for wanted in choice.categories}
    for j in sorted(categories - set(features)):
        raise TableError(
            f"{source}: column {short(names[j])!r} holds categories (--category) but is not read; name it in --columns "
            "too, or leave it out of --category"
        )
    categories |= {features[i] for i in choice.category_features if i < len(features)}
    return Columns(tuple(names), features, label, time, named, frozenset(categories))


def check_width(source: str, n_columns: int) -> None:
    """Refuse a table of more columns than any has."""
    if n_columns > _MOST_COLUMNS:
        count = f"{n_columns:,}" if n_columns < 2**64 else "more than 2^64"
        raise TableError(
            f"{source}: has {count} columns, but at most {_MOST_COLUMNS:,} are read; check that rows and columns are "
            "not exchanged"
        )


class _Finder:
    """Finds columns by name or position."""

    def __init__(self, source: str, names: Sequence[str]) -> None:
        self._source, self._names = source, names

    @cached_property
    def positions(self) -> dict[str, int]:
        """The first column of each name: thousands of them are found at once."""
        return {name: j for j, name in reversed(list(enumerate(self._names)))}

    @cached_property
    def _repeated(self) -> set[str]:
        counts = Counter(self._names) if len(self.positions) < len(self._names) else {}
        return {name for name, count in counts.items() if count > 1}

    def find(self, wanted: str) -> int:
        """Return the position of a column."""
        n = len(self._names)
        if wanted in self._repeated:
            positions = [str(j) for j, name in enumerate(self._names) if name == wanted]
            raise TableError(
                f"{self._source}: {len(positions)} columns are named {short(wanted)!r}; give the position instead: "
                f"{list_names(positions)}"
            )
        if wanted in self.positions:
            return self.positions[wanted]
        position = int(wanted) if _POSITION.fullmatch(wanted) else n
        if not -n <= position < n:
            similar = get_close_matches(wanted, self._names[:_MOST_COMPARED], 1)
            meant = f"did you mean {similar[0]!r}? " if similar else ""
            raise TableError(
                f"{self._source}: no column {short(wanted)!r}; {meant}it has {n:,}: {list_names(self._names)}; "
                "give one of these names or a position, counting from 0"
            )
        return position % n


def list_names(names: Sequence[str]) -> str:
    """List the first of some names."""
    shown = ", ".join(map(short, names[:_SHOWN_NAMES]))
    return shown if len(names) <= _SHOWN_NAMES else f"{shown}, ..."


def short(text: str) -> str:
    """Cut text from a file to a length that an error can quote."""
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."
