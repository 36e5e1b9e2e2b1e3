"""Saving a model while it learns: when its file is written, and the command's notes beside it."""

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamkpca._core.files import TEMPORARY
from streamkpca.cli.console import BadInput, one_line
from streamkpca.cli.tables import Chunk, Table
from streamkpca.estimators.streaming import StreamingKernelPCA

# Key of the command's own notes in a model's `extra_`.
NOTES: Final = "command"
# Length of all offsets as text: a model that learns a file a day must not grow for ever.
_MOST_LETTERS = 2**19


class SaveInterval(NamedTuple):
    """How often a model is saved while it learns, in rows or in seconds."""

    rows: int | None = None
    seconds: float | None = None


class Autosave:
    """A model's file while the model learns: when to write it, and what to note beside it.

    The next whole file replaces the last one at once, so readers always find a model. A `path` of
    None saves nothing. `before` is the `extra_` of a model that continues; it is kept, and must be a dictionary.
    """

    def __init__(self, path: str | None, interval: SaveInterval, before: Any = None) -> None:
        if not isinstance(before, dict | None):
            raise BadInput(
                f"{path}: expected the object saved beside the model (extra) to be a dictionary, to which notes can be "
                f"added, but got {before!r}; save the model again from Python with a dictionary"
            )
        self.path = path
        self.interval = interval
        self._extra: dict[str, Any] = dict(before or {})
        self._notes: dict[str, Any] = dict(own_notes(before))
        self._saved_rows, self._saved_at = 0, time.monotonic()
        if path is not None:
            _remove_leftovers(Path(os.path.realpath(path)))

    def note(self, table: Table, chunk: Chunk) -> None:
        """Note the columns, and up to where the table was learned."""
        names = table.columns.feature_names
        if "columns" not in self._notes and table.columns.named and len(set(names)) == len(names):
            self._notes["columns"] = list(names)
        if chunk.offset is not None:
            offsets = self._notes.setdefault("places", {})
            # The newest stands last.
            offsets.pop(key := os.path.realpath(table.source), None)
            offsets[key] = chunk.offset

    def offset_in(self, file: str) -> dict[str, Any] | None:
        """Return the offset up to which a file was learned, for `Table.seek`; None for one that never was."""
        offset: dict[str, Any] | None = self._notes.get("places", {}).get(os.path.realpath(file))
        return offset

    def save(self, model: StreamingKernelPCA) -> None:
        """Save the model in place of its last file, which stays if writing fails, with the notes in its `extra_`."""
        self._forget_old_offsets()
        model.extra_ = self._extra | {NOTES: self._notes} if self._notes else self._extra or None
        if self.path is not None:
            with one_line(self.path):
                model.save(self.path, model.extra_)
        self._saved_rows, self._saved_at = model.n_samples_seen_, time.monotonic()

    def _forget_old_offsets(self) -> None:
        offsets = self._notes.get("places", {})
        lengths = {file: len(json.dumps({file: offset})) for file, offset in offsets.items()}
        excess = sum(lengths.values()) - _MOST_LETTERS
        for file, length in lengths.items():
            if excess > 0:
                del offsets[file]
                excess -= length

    def save_if_due(self, model: StreamingKernelPCA) -> None:
        """Save the model if enough rows have come since the last time, or any rows and enough seconds."""
        new = model.n_samples_seen_ - self._saved_rows
        many = self.interval.rows is not None and new >= self.interval.rows
        late = self.interval.seconds is not None and time.monotonic() - self._saved_at >= self.interval.seconds
        if many or (late and new):
            self.save(model)


def _remove_leftovers(path: Path) -> None:
    """Remove half-written files of killed processes; only one process writes a model at a time."""
    # .<name of the model>.<16 random digits>.tmp
    name = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{16}" + re.escape(TEMPORARY))
    # A folder that cannot be listed may still take the model.
    with suppress(OSError):
        for file in path.parent.iterdir():
            if name.fullmatch(file.name):
                file.unlink(missing_ok=True)


def n_passed(offset: dict[str, Any]) -> int:
    """Count the lines or rows before an offset, which others may have written; 0 if it does not tell."""
    # The line of an offset is the next one to read.
    line, row = offset.get("line"), offset.get("row")
    return line - 1 if isinstance(line, int) else row if isinstance(row, int) else 0


def own_notes(extra: Any) -> dict[str, Any]:
    """Return the command's notes in an `extra_`, which others may have written; only notes of the right form.

    ``columns``: names of the learned columns. ``places``: offsets up to which files were learned, by path.
    """
    notes = extra.get(NOTES) if isinstance(extra, dict) else None
    found: dict[str, Any] = {}
    if isinstance(notes, dict):
        columns = notes.get("columns")
        if isinstance(columns, list) and columns and all(isinstance(name, str) for name in columns):
            found["columns"] = columns
        offsets = notes.get("places")
        if isinstance(offsets, dict) and all(isinstance(offset, dict) for offset in offsets.values()):
            found["places"] = dict(offsets)
    return found
