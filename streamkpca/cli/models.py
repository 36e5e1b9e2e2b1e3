"""Models in files: reading, merging and exporting them, checks before the work begins, and saving while it goes on."""

import json
import os
import re
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from streamkpca._core.files import SHARED, check_target, write_durably
from streamkpca._core.locks import try_lock
from streamkpca.checkpoint.archive import HEADER
from streamkpca.cli.console import BadInput, one_line, print_warning
from streamkpca.cli.options import SaveInterval, given_options, shown
from streamkpca.cli.results import STANDARD_OUTPUT, is_among
from streamkpca.cli.tables import Chunk, Table
from streamkpca.cli.tables.columns import list_names
from streamkpca.cli.tables.signatures import contents_of, contents_of_zip
from streamkpca.kernels.equality import category_columns
from streamkpca.models.streaming import StreamingKernelPCA, merge

_HEAD_BYTES = 512
_CONTROLS = set(range(32)) - set(b"\t\n\r\f")
_LONGEST_LOCK = 30.0
# Functions in exported C files begin with it.
DEFAULT_NAME: Final = "streamkpca"


def learned_columns(model: StreamingKernelPCA) -> list[str] | None:
    """Return the names of the columns that a fitted model has learned, if the command noted or a DataFrame had them."""
    noted = own_notes(model.extra_).get("columns")
    names = getattr(model, "feature_names_in_", noted)
    return None if names is None or len(names) * n_lags(model) != model.n_features_in_ else list(names)


def learned_categories(model: StreamingKernelPCA) -> set[int]:
    """Return the positions of the columns that a fitted model compares as categories, among those of a single row."""
    d = model.n_features_in_
    return {column % (d // n_lags(model)) for column in category_columns(model.kernel_, d)}


def n_lags(model: StreamingKernelPCA) -> int:
    """Return how many rows the monitor saved with a model scores together; 1 without a monitor."""
    try:
        lags = model.extra_["monitor"]["parameters"]["lags"]
    except (LookupError, TypeError):
        return 1
    # Others may have written it.
    return lags if type(lags) is int and lags > 0 and model.n_features_in_ % lags == 0 else 1


def n_learned(model: StreamingKernelPCA) -> int:
    """Count the rows that a model has seen; 0 before the first."""
    return int(getattr(model, "n_samples_seen_", 0))


def read_model(path: str) -> StreamingKernelPCA:
    """Read a saved model; its kernel must not have functions, which are never stored."""
    try:
        with one_line(path):
            return StreamingKernelPCA.load(path)
    except BadInput as error:
        # The user of a command has not called load, and may have named another kind of file.
        reason = error.message.removeprefix("load: ").removeprefix(f"{path}: ")
        what = _what_else(path)
        if what is None:
            raise BadInput(f"{path}: {reason}") from None
        raise BadInput(
            f"{path}: expected a model saved by streamkpca but {what}; learn one with streamkpca fit FILE --model MODEL"
        ) from None


def _what_else(path: str) -> str | None:
    """Tell what a file is that is no model; None if it is a damaged one, or cannot be read at all."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    if not head:
        return "the file is empty"
    if found := contents_of(head):
        return f"this is {found.what}"
    if head.startswith((b"PAR1", b"ARROW1", b"\x93NUMPY")):
        return "this is a table of rows"
    if not head.startswith(b"PK"):
        is_text = not set(head) & _CONTROLS
        return "this is text" if is_text else "its beginning is not that of one"
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:
        return None
    if HEADER in names:
        return None
    if found := contents_of_zip(names):
        return f"this is {found.what}"
    return f"this is an npz file of arrays ({list_names([name.removesuffix('.npy') for name in names])})"


def read_fitted(path: str) -> StreamingKernelPCA:
    """Read a saved model that has learned rows."""
    model = read_model(path)
    if not model.__sklearn_is_fitted__():
        raise BadInput(f"{path}: this model has not learned any rows yet; run streamkpca fit FILE --model {path}")
    return model


# Device, inode, time of the last change, and size.
_State = tuple[int, int, int, int]


class ModelFile:
    """The file of a model, which is not replaced if another process has saved a model there meanwhile.

    What this process knows is the file as it was when the object was made, or last read or written through it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._known = self._state()

    def read(self) -> StreamingKernelPCA:
        """Read the model."""
        # Looked up before the file is read: one that replaces it meanwhile is another.
        self._known = self._state()
        return read_model(self.path)

    def newer(self) -> bool:
        """Tell whether another process has replaced the file since it was known, and know it from now on."""
        found = self._state()
        if found is None or found == self._known:
            return False
        self._known = found
        return True

    def replace(self, write: Callable[[str], object]) -> None:
        """Let `write` replace the file, unless another process has; then write a new one beside it, and say so."""
        target = Path(os.path.realpath(self.path))
        with only_writer(target.parent):
            if (found := self._state()) is None or found == self._known:
                with one_line(self.path):
                    write(self.path)
                self._known = self._state()
                return
        kept = target.with_name(f"{target.stem}-{os.getpid()}{target.suffix}")
        with one_line(str(kept)):
            write(str(kept))
        raise BadInput(
            f"{self.path}: another process has saved a model there since this one began; to lose neither, this one's "
            f"model was saved as {kept}; let one process at a time learn into a file"
        )

    def _state(self) -> _State | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Let one process at a time replace models in a folder, where the system can lock folders."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        deadline = time.monotonic() + _LONGEST_LOCK
        # A stopped process must not stop all others for ever.
        while try_lock(descriptor) is False and time.monotonic() < deadline:
            time.sleep(0.02)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


class WatchedModel:
    """A saved model that is read again whenever a process that learns replaces its file."""

    def __init__(self, path: str) -> None:
        self.file = ModelFile(path)
        self.model = read_fitted(path)

    def newer(self) -> StreamingKernelPCA | None:
        """Return the model if its file was replaced; warn and return None if it is of no use."""
        if not self.file.newer():
            return None
        path = self.file.path
        try:
            model = read_fitted(path)
        except BadInput as error:
            print_warning(f"{error.message}; keeping the model as it was")
            return None
        before, after = ((one.n_features_in_, learned_columns(one)) for one in (self.model, model))
        if before != after:
            print_warning(f"{path}: has other columns now; keeping the model as it was")
            return None
        if (model.on_missing == "marginal") is not (self.model.on_missing == "marginal"):
            print_warning(f"{path}: was learned with --on-missing {model.on_missing}; keeping the model as it was")
            return None
        self.model = model
        return model


def check_writable(path: str, inputs: Sequence[str], *, what: str = "the model") -> None:
    """Refuse, before the work begins, to write a whole file to standard output, to no folder, or over an input."""
    target = Path(path)
    if path == STANDARD_OUTPUT:
        raise BadInput(f"-: {what} cannot go to standard output, because its file is replaced as a whole; name a file")
    with one_line(path):
        is_misplaced = target.is_dir() or not target.absolute().parent.is_dir()
    if is_misplaced:
        raise BadInput(f"{path or repr(path)}: expected the name of a file in an existing folder")
    with one_line(path):
        check_target(path)
    if is_among(target, inputs):
        raise BadInput(f"{path}: is read as input, so {what} cannot go there; choose another name")


def check_columns(model: StreamingKernelPCA, path: str, table: Table, *, lags: int = 1) -> None:
    """Refuse a table whose number of columns is not the one that the model in `path` has learned."""
    found, expected = len(table.columns.features), model.n_features_in_ // lags
    if found != expected:
        raise BadInput(
            f"{table.source}: expected {expected} columns, as {path} has learned, but got {found}; "
            "choose them with --columns or --drop"
        )


def merge_models(paths: Sequence[str]) -> tuple[StreamingKernelPCA, dict[str, Any]]:
    """Read models and merge them; return the merged model and the notes to save beside it.

    The notes are the columns, and for each file the offset of the model that got further.
    """
    for i, path in enumerate(paths):
        if any(os.path.realpath(path) == os.path.realpath(earlier) for earlier in paths[:i]):
            raise BadInput(f"{path}: the model is given twice, so its rows would count twice; give each model once")
    models = [read_fitted(path) for path in paths]
    named = [(path, names) for path, model in zip(paths, models, strict=True) if (names := learned_columns(model))]
    for path, names in named[1:]:
        first, expected = named[0]
        if names != expected and len(names) == len(expected):
            j = next(j for j, (a, b) in enumerate(zip(expected, names, strict=True)) if a != b)
            raise BadInput(
                f"{path}: expected column {expected[j]!r} at position {j}, as {first} has learned, but got "
                f"{names[j]!r}; merge models of the same columns in the same order"
            )
    for path, model in zip(paths[1:], models[1:], strict=True):
        # The message of merge gives advice for Python.
        if model.n_features_in_ == models[0].n_features_in_ and model.kernel_ != models[0].kernel_:
            raise BadInput(
                f"{path}: expected the kernel {models[0].kernel_!r}, as {paths[0]} has learned with, but got "
                f"{model.kernel_!r}; learn all rows with one kernel, scale included: "
                f'fit --kernel "{models[0].kernel_!r}"'
            )
    offsets: dict[str, Any] = {}
    for model in models:
        for file, offset in own_notes(model.extra_).get("places", {}).items():
            offsets[file] = max(offsets.get(file, offset), offset, key=n_passed)
    notes = ({"columns": named[0][1]} if named else {}) | ({"places": offsets} if offsets else {})
    with one_line():
        return merge(*models), {NOTES: notes} if notes else {}


def export_model(model: StreamingKernelPCA, path: str, *, double: bool, name: str, quantile: float | None) -> int:
    """Write a fitted model as .onnx or .c, by the ending of `path`, in double or single precision; return its bytes.

    For C: names of functions begin with `name`, and with a `quantile` one of them tells which rows are novel.
    """
    # Imported here, because the command starts faster without it.
    from streamkpca.export import to_c, to_onnx

    suffix = Path(path).suffix.lower()
    if suffix == ".c":
        _check_c_name(name)
    elif suffix != ".onnx":
        raise BadInput(f"{path}: expected a name that ends in .onnx or .c")
    elif given := given_options({"name", "quantile"}):
        raise BadInput(f"{path}: {' and '.join(given)} concern C files only; leave them out, or export to a .c file")
    with one_line(path):
        if suffix == ".onnx":
            graph = to_onnx(model, dtype="float64" if double else "float32")
            contents = graph.SerializeToString(deterministic=True)
        else:
            threshold = None if quantile is None else model.novelty_threshold(quantile)
            contents = to_c(model, name=name, dtype="double" if double else "float", threshold=threshold).encode()
        write_durably(path, lambda file: file.write(contents), mode=SHARED)
    return len(contents)


def _check_c_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9]){0,30}", name):
        raise BadInput(
            f"--name {shown(name)}: expected the beginning of names in C, such as pump: up to 31 ASCII letters, digits "
            "and single underscores, with a letter first and no underscore last"
        )


# Key of the command's own notes in a model's `extra_`.
NOTES: Final = "command"
# Length of all offsets as text: a model that learns a file a day must not grow for ever.
_MOST_LETTERS = 2**19


class Autosave:
    """A model's file while the model learns: when to write it, and what to note beside it.

    The next whole file replaces the last one at once, so readers always find a model. A `path` of
    None saves nothing. `before` is the `extra_` of a model that continues; it is kept, and must be a dictionary. `file`
    is the one that it was read from.
    """

    def __init__(
        self, path: str | None, interval: SaveInterval, before: Any = None, file: ModelFile | None = None
    ) -> None:
        if not isinstance(before, dict | None):
            raise BadInput(
                f"{path}: expected the object saved beside the model (extra) to be a dictionary, to which notes can be "
                f"added, but got {before!r}; save the model again from Python with a dictionary"
            )
        self.path = path
        self.interval = interval
        self._file = file or (None if path is None else ModelFile(path))
        self._extra: dict[str, Any] = dict(before or {})
        self._notes: dict[str, Any] = dict(own_notes(before))
        self._saved_rows, self._saved_at = 0, time.monotonic()

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
        if self._file is not None:
            self._file.replace(lambda path: model.save(path, model.extra_))
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


def n_passed(offset: dict[str, Any]) -> int:
    """Count the lines or rows before an offset, which others may have written; 0 if it does not tell."""
    # The line of an offset is the next one to read.
    line, row = offset.get("line"), offset.get("row")
    return line - 1 if isinstance(line, int) else row if isinstance(row, int) else 0


def saved_beside(extra: Any) -> Any:
    """Return the object that the user of a model or of a monitor, whose state is saved beside the model, gave it."""
    return extra.get("extra") if isinstance(extra, dict) and "monitor" in extra else extra


def own_notes(extra: Any) -> dict[str, Any]:
    """Return the command's notes in an `extra_`, which others may have written; only notes of the right form.

    ``columns``: names of the learned columns. ``places``: offsets up to which files were learned, by path.
    """
    extra = saved_beside(extra)
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
