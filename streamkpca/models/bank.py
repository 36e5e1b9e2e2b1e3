"""One store for many monitors or models, one for each key, the least recently used of them on the disk."""

import json
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from streamkpca._core.parameters import check_integer
from streamkpca.errors import name_errors
from streamkpca.rows.validation import arrow_table, is_arrow_table

__all__ = ["Bank"]

Key = str | int

_FILE: Final = "bank.sqlite3"
_LONGEST_KEY: Final = 1000
# One process has the file. Writes go ahead into a journal, which is flushed to the disk when a generation ends. A state
# has the generation in which it was written, and the newest of a key counts; NULL removes the key. Keys are JSON.
_OPEN: Final = """PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS facts (id PRIMARY KEY, generation, extra);
CREATE TABLE IF NOT EXISTS states (key, generation, n_events, state, PRIMARY KEY (key, generation));
CREATE INDEX IF NOT EXISTS by_generation ON states (generation);
INSERT OR IGNORE INTO facts VALUES (0, 0, 'null');
DELETE FROM states WHERE generation > (SELECT generation FROM facts)"""
_NEWEST: Final = """FROM states WHERE state NOTNULL AND n_events >= ?
AND generation = (SELECT max(generation) FROM states AS other WHERE other.key = states.key)"""
_DELETE_OLDER: Final = """DELETE FROM states
WHERE state ISNULL OR (generation < :now AND key IN (SELECT key FROM states WHERE generation = :now))"""


@name_errors
class Bank:
    """One monitor or model for each key, such as a machine, in bounded memory.

    Those used last stay in memory; the others are on the disk, and are read when their keys come again.

    Parameters
    ----------
    folder : path-like
        On a disk of this machine; it is made if its parent exists. One bank may use it at a time, in one thread.
    make : callable
        Makes what a new key begins with, such as ``Monitor``, or ``template.without_rows`` of a model: always of one
        class, which has `to_bytes`, `from_bytes`, and `update` or `partial_fit`.
    max_in_memory : int, default=1000
        Most monitors or models in memory.

    Attributes
    ----------
    extra_ : object
        What the last `save` stored beside them, such as an offset; None before the first.
    n_read_ : int
        Monitors or models read from the disk since the bank was opened.

    Raises
    ------
    OSError, TypeError, ValueError
        The folder cannot be made or written, another bank uses it, its file is damaged, or a parameter is invalid.

    Notes
    -----
    A key is a string of at most 1,000 characters or an integer. What a key has learned depends on its rows alone. A
    bank that is opened again is at its last generation, see `save`, whatever killed the process: a source that repeats
    the rows since, from the offset in `extra_`, loses none and counts none twice. If the disk is full, a call raises
    OSError, everything stays in memory or in the file, and the bank goes on once there is room.

    Examples
    --------
    Two pumps whose readings rise, one monitor in memory at a time:

    >>> import tempfile
    >>> from streamkpca import Bank
    >>> from streamkpca.monitoring import Monitor
    >>> folder, keys, rows = tempfile.TemporaryDirectory(), ["north", "south"] * 200, np.arange(800.0).reshape(400, 2)
    >>> bank = Bank(folder.name, Monitor, max_in_memory=1)
    >>> records = bank.update(keys, rows)
    >>> len(bank), records["north"].rarity.shape, all(bank.events().values())
    (2, (200,), True)

    A copy is changed and put back, another key removed, and all stored with the next offset of the source:

    >>> bank.put("north", bank.get("north").reset())
    >>> bank.remove("south")
    >>> bank.save({"offset": 400}).close()
    >>> with Bank(folder.name, Monitor) as bank:
    ...     list(bank), bank.extra_
    (['north'], {'offset': 400})
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | os.PathLike[str], make: Callable[[], Any], *, max_in_memory: int = 1000) -> None:
        self._make, self._kind = make, type(make())
        if not hasattr(self._kind, "from_bytes"):
            raise TypeError(f"expected make to return what has to_bytes and from_bytes, not {self._kind.__name__}")
        self.max_in_memory = check_integer("max_in_memory", max_in_memory, least=1)
        self.folder, self.n_read_ = Path(os.fsdecode(folder)), 0
        self._values, self._changed = OrderedDict[Key, Any](), set[Key]()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._file = sqlite3.connect(self.folder / _FILE, timeout=0.0, check_same_thread=False)
        # None once the bank is closed.
        self._generation: int | None = 0
        try:
            for statement in _OPEN.split(";"):
                self._run(statement)
            generation, extra = self._run("SELECT generation, extra FROM facts").fetchone()
        except BaseException:
            self._file.close()
            raise
        self._generation = generation + 1
        self.extra_ = json.loads(extra)

    def update(self, keys: Any, X: Any) -> dict[Key, Any]:
        """Let each key take its rows, in their order.

        Parameters
        ----------
        keys : sequence of n strings or integers
            The key of each row; new ones begin with what `make` returns.
        X : array or table of n rows
            Also a sparse matrix, or a table or stream of Arrow, which is read whole.

        Returns
        -------
        dict
            For each key, in the order of their first rows, what `update` returned for its rows, such as the record of a
            `Monitor`; without that method, the novelty of its rows before they were learned, NaN for a new key.

        Raises
        ------
        TypeError
            The keys are invalid; then no row was taken.
        ValueError, OSError, CheckpointError
            A key refuses its rows, the disk is full, or the file damaged. A note says at which key, and how many have
            taken their rows.
        """
        rows, found = _indexable(X), dict[Key, Any]()
        groups = _group(keys, len(rows))
        try:
            for key in sorted(groups, key=lambda key: key not in self._values):
                value = self._take(key)
                found[key] = _update(value, rows[groups[key]])
                # Kept once it has taken rows, so that a new key whose rows are refused leaves nothing behind.
                self._keep(key, value)
        except BaseException as error:
            error.add_note(f"Bank.update: at {key!r}; {len(found)} of {len(groups)} keys have taken their rows")
            raise
        return {key: found[key] for key in groups}

    def get(self, key: Key) -> Any:
        """Return a copy of what a key has; `put` puts it back.

        Parameters
        ----------
        key : str or int

        Raises
        ------
        KeyError
            The key has nothing.
        """
        key = _check_key(key)
        state = self._values[key].to_bytes() if key in self._values else self._read_stored(key)
        if state is None:
            raise KeyError(f"Bank.get expected a key that has something but got {key!r:.80}; let it take rows first")
        return self._kind.from_bytes(state)

    def put(self, key: Key, value: Any) -> None:
        """Let a key have a monitor or model, such as one that was changed after `get`.

        Parameters
        ----------
        key : str or int
        value : object
            It belongs to the bank from then on.

        Raises
        ------
        TypeError
            It is not of the class that `make` returns.
        """
        self._check_open()
        if type(value) is not self._kind:
            raise TypeError(f"expected a {self._kind.__name__} but got {type(value).__name__}")
        self._keep(_check_key(key), value)

    def events(self) -> dict[Key, list[Any]]:
        """Return the `events_` of all monitors that have some, by key; those that are not in memory are read."""
        stored = ((json.loads(key), state) for key, state in self._run(f"SELECT key, state {_NEWEST}", (1,)))
        found = {key: self._kind.from_bytes(state) for key, state in stored if key not in self._values} | self._values
        return {key: value.events_ for key, value in found.items() if getattr(value, "n_events_", 0)}

    def remove(self, key: Key) -> None:
        """Remove a key, if it has something; from the disk with the next `save`.

        Parameters
        ----------
        key : str or int
        """
        self._write(_check_key(key), None)
        self._values.pop(key, None)

    def save(self, extra: Any = None) -> Self:
        """Make a generation: store all keys as they are now, with `extra`, whole or not at all.

        Parameters
        ----------
        extra : object, optional
            JSON data, such as the offset of the next row in its source; `extra_` has it when the bank is opened again.
        """
        now, text = self._generation, json.dumps(extra, allow_nan=False)
        for key in list(self._changed):
            self._write(key, self._values[key])
        self._run(_DELETE_OLDER, {"now": now}, ("REPLACE INTO facts VALUES (0, ?, ?)", (now, text)))
        self.extra_, self._generation = json.loads(text), now and now + 1
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        return self

    def close(self) -> None:
        """Save, unless the last `save` had an `extra` that goes with what it stored; let other banks use the folder."""
        if self._generation is not None:
            if self.extra_ is None:
                self.save()
            self._values.clear()
            self._file.close()
            self._generation = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __contains__(self, key: object) -> bool:
        return _check_key(key) in self._values or self._read_stored(_check_key(key)) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Key]:
        stored = {json.loads(key) for (key,) in self._run(f"SELECT key {_NEWEST}", (0,))}
        return iter(stored | self._values.keys())

    def _check_open(self) -> None:
        if self._generation is None:
            raise OSError(f"Bank: {self.folder} was closed; open a bank of this folder again")

    def _run(self, statement: str, values: Any = (), *more: tuple[str, Any]) -> sqlite3.Cursor:
        """Run statements as one transaction."""
        self._check_open()
        try:
            with self._file:
                cursors = [self._file.execute(*one) for one in ((statement, values), *more)]
            return cursors[0]
        except sqlite3.Error as error:
            remedy = "open one bank of a folder, make room on its disk, or restore its file; nothing in memory is lost"
            raise OSError(f"Bank: {self.folder / _FILE}: {error}; {remedy}") from None

    def _take(self, key: Key) -> Any:
        """Return what a key has, from memory, from the disk, or begun."""
        if key in self._values:
            return self._values[key]
        state = self._read_stored(key)
        self.n_read_ += state is not None
        return self._make() if state is None else self._kind.from_bytes(state)

    def _keep(self, key: Key, value: Any) -> None:
        """Keep what a key has as that which was used last, and write what was used least recently."""
        self._values[key] = value
        self._values.move_to_end(key)
        self._changed.add(key)
        while len(self._values) > self.max_in_memory:
            oldest = next(iter(self._values))
            if oldest in self._changed:
                self._write(oldest, self._values[oldest])
            del self._values[oldest]

    def _read_stored(self, key: Key) -> bytes | None:
        query = "SELECT state FROM states WHERE key = ? ORDER BY generation DESC LIMIT 1"
        found: tuple[bytes | None] | None = self._run(query, (json.dumps(key),)).fetchone()
        return found[0] if found else None

    def _write(self, key: Key, value: Any) -> None:
        """Write what a key has into the generation to come; None removes it."""
        state = None if value is None else value.to_bytes()
        row = json.dumps(key), self._generation, getattr(value, "n_events_", 0), state
        self._run("REPLACE INTO states VALUES (?, ?, ?, ?)", row)
        self._changed.discard(key)


def _update(value: Any, rows: Any) -> Any:
    """Let a monitor or model take rows, and return what it says of them."""
    if hasattr(value, "update"):
        return value.update(rows)
    novelty = value.novelty(rows) if getattr(value, "n_samples_seen_", 0) else np.full(rows.shape[0], np.nan)
    value.partial_fit(rows)
    return novelty


class _TakenRows:
    """Rows of a table that has no length, or takes rows by other means than square brackets."""

    def __init__(self, n_rows: int, take: Callable[[list[int]], Any]) -> None:
        self._n_rows, self._take = n_rows, take

    def __len__(self) -> int:
        return self._n_rows

    def __getitem__(self, positions: list[int]) -> Any:
        return self._take(positions)


def _indexable(X: Any) -> Any:
    """Return rows that lists of positions choose from."""
    table = arrow_table(X)
    if is_arrow_table(table):
        return _TakenRows(table.num_rows, table.take)
    if hasattr(X, "iloc"):
        return _TakenRows(len(X), X.iloc.__getitem__)
    if hasattr(X, "tocsr"):
        return _TakenRows(X.shape[0], X.tocsr().__getitem__)
    return X if hasattr(X, "shape") else np.asarray(X)


def _group(keys: Any, n_rows: int) -> dict[Key, list[int]]:
    """Return each key and the positions of its rows, in the order of their first rows."""
    if isinstance(keys, str | bytes) or not hasattr(keys, "__len__") or len(keys) != n_rows:
        raise TypeError(f"expected a list of {n_rows} keys, one for each row, but got {keys!r:.80}")
    groups: dict[Key, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(_check_key(key), []).append(position)
    return groups


def _check_key(key: Any) -> Key:
    """Return a key as exactly a string or an integer: subclasses may look otherwise in files than in memory."""
    if isinstance(key, str) and len(key) <= _LONGEST_KEY:
        return str.__str__(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool | np.timedelta64):
        return int(key)
    what = f"strings or integers of at most {_LONGEST_KEY} characters"
    raise TypeError(f"expected keys that are {what} but got {key!r:.80}; write others as strings")
