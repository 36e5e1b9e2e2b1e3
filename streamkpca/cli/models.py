"""Models in files: read, saved while learning goes on, never lost between two processes; and what they have learned."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import click
import numpy as np

from streamkpca import StreamingKernelPCA, load
from streamkpca._core.files import lock_folder
from streamkpca.cli.console import print_facts
from streamkpca.monitoring import Monitor
from streamkpca.monitoring.periods import n_features_of
from streamkpca.tables import Batch, Reading, Table

# Key of the command's own notes in what is saved beside a model.
NOTES: Final = "command"
# Variances below this share of the largest are rounding.
_ROUNDING = 1e-12
# A model that learns a file a day must not grow for ever.
_MOST_PLACES = 1000


class Saved(NamedTuple):
    """A model from a file, the monitor that was saved with it, and what the user saved beside them.

    reading: how the learned columns are read; without columns if these have no names. places: where each file that was
    learned goes on. results: up to where the results of rows were written last.
    """

    model: StreamingKernelPCA
    monitor: Monitor | None = None
    extra: Any = None
    reading: Reading = Reading()
    places: Mapping[str, dict[str, Any]] = MappingProxyType({})
    results: Mapping[str, Any] = MappingProxyType({})

    @property
    def n_columns(self) -> int:
        """The number of columns of a single row, without its predecessors and its phase."""
        n, monitor = self.model.n_features_in_, self.monitor
        return n_features_of(n, monitor.period) if monitor else n


def n_learned(model: StreamingKernelPCA) -> int:
    """Count the rows that a model has seen; 0 before the first."""
    return int(getattr(model, "n_samples_seen_", 0))


def read_saved(path: str, *, fitted: bool = True, alone: bool = False) -> Saved:
    """Read a model and what was saved with it; refuse one without rows (`fitted`) or of more than columns (`alone`)."""
    found = load(path)
    if not isinstance(found, StreamingKernelPCA | Monitor):
        raise ValueError(f"{path}: holds a {type(found).__name__}, which only Python goes on with; give another file")
    model, monitor = (found.model, found) if isinstance(found, Monitor) else (found, None)
    if fitted and not n_learned(model):
        raise ValueError(f"{path}: this model has not learned any rows yet; run streamkpca fit FILE --model {path}")
    extra = found.extra_
    notes = extra.get(NOTES) if isinstance(extra, dict) else None
    # Others may have written it.
    notes = notes if isinstance(notes, dict) else {}
    places: Any = notes.get("places")
    if not isinstance(places, dict) or not all(isinstance(place, dict) for place in places.values()):
        places = {}
    reading = _reading_of(notes.get("reading"))
    if not reading.columns:
        reading = reading._replace(columns=tuple(getattr(model, "feature_names_in_", ())))
    results = notes.get("results")
    saved = Saved(model, monitor, extra, reading, places, results if isinstance(results, dict) else {})
    if alone and n_learned(model) and saved.n_columns != model.n_features_in_:
        raise ValueError(
            f"{path}: this model sees each row with its phase (--period of watch), "
            "which only watch and score add to rows; give a model without these"
        )
    return saved


def _reading_of(notes: Any) -> Reading:
    """Take how columns are read from what was saved, or nothing of it if that makes no sense."""
    try:
        (columns, time, form, differences, gaps, wide, quality) = (notes[name] for name in Reading._fields)
        return Reading(
            tuple(map(str, columns)),
            tuple(map(str, time)),
            None if form is None else str(form),
            tuple(map(str, differences)),
            {str(name): tuple(map(float, one)) for name, one in gaps.items()},
            None if wide is None else (str(wide[0]), str(wide[1])),
            {str(name): tuple(map(str, one)) for name, one in quality.items() if one},
        )
    except (AttributeError, LookupError, TypeError, ValueError):
        return Reading()


class Autosave:
    """The file of a model that learns: when it is saved, and the notes beside it. A `path` of None saves nothing.

    The file is not replaced if another process has saved a model there since it was opened. `learner` is what is saved,
    the model or the monitor that `saved` holds or goes on with.
    """

    def __init__(self, path: str | None, seconds: float, saved: Saved, learner: StreamingKernelPCA | Monitor) -> None:
        self.path, self._seconds, self._known = path, seconds, path and _state_of(path)
        self._learner, self.reading, self.places = learner, saved.reading, dict(saved.places)
        self.results = saved.results
        self._extra = {} if saved.extra is None else saved.extra
        if path and not isinstance(self._extra, dict):
            raise ValueError(
                f"{path}: expected the object saved beside the model (extra) to be a dictionary, to which notes "
                f"can be added, but got {self._extra!r}; save the model again from Python with a dictionary"
            )
        self._n_new, self._saved_at = 0, time.monotonic()

    def note(self, table: Table, batch: Batch) -> None:
        """Note the columns, and up to where the table was learned; save the model if enough seconds have passed."""
        self._n_new += len(batch.rows)
        if not self.reading.columns:
            known = table.reading if table.reader.named else table.reading._replace(columns=(), wide=None)
            self.reading = known._replace(gaps=table.look.sentinels)
        elif table.reading.time:
            self.reading = self.reading._replace(time=table.reading.time, time_format=table.reading.time_format)
        if batch.position is not None:
            # The newest stands last.
            self.places.pop(key := os.path.realpath(table.path), None)
            self.places[key] = batch.position
            while len(self.places) > _MOST_PLACES:
                del self.places[next(iter(self.places))]
        if self._n_new and time.monotonic() - self._saved_at >= self._seconds:
            self.save()

    def save(self) -> None:
        """Save the model in place of its last file, which stays if writing fails."""
        self._n_new, self._saved_at = 0, time.monotonic()
        if self.path is None:
            return
        target = Path(os.path.realpath(self.path))
        extra = with_notes(self._extra, self.reading, self.places, self.results)
        # One process at a time looks at the file and replaces it.
        with lock_folder(target.parent):
            if _state_of(self.path) in (None, self._known):
                self._learner.save(self.path, extra)
                self._known = _state_of(self.path)
                return
        kept = target.with_name(f"{target.stem}-{os.getpid()}{target.suffix}")
        self._learner.save(str(kept), extra)
        raise ValueError(
            f"{self.path}: another process has saved a model there since this one began; to lose neither, this one's "
            f"model was saved as {kept}; let one process at a time learn into a file"
        )


def _state_of(path: str) -> tuple[int, int, int, int] | None:
    """Return what tells a file from one that replaced it; None if there is none."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
    return None


def with_notes(
    extra: Any, reading: Reading, places: Mapping[str, Any], results: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """Return what the user saved beside a model with the command's notes."""
    notes: dict[str, Any] = {} if reading == Reading() else {"reading": reading._asdict()}
    notes |= {"places": dict(places)} if places else {}
    notes |= {"results": dict(results)} if results else {}
    return ((extra or {}) | {NOTES: notes}) if notes and isinstance(extra, dict | None) else extra


def check_target(path: str, inputs: Sequence[str] = ()) -> None:
    """Refuse, before the work begins, to write a whole file to standard output, to no folder, or over an input."""
    if path == "-":
        raise click.UsageError("-: this file is replaced as a whole, so it cannot be standard output; name a file")
    if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or "."):
        raise click.UsageError(f"{path}: expected the name of a file in an existing folder")
    if is_among(path, inputs):
        raise click.UsageError(f"{path}: is read as input; choose another name")


def is_among(path: str, files: Sequence[str]) -> bool:
    """Tell whether a file, which need not exist yet, is one of some others under whatever name."""
    # Hard links have names of their own.
    return any(
        os.path.realpath(path) == os.path.realpath(file)
        or (os.path.exists(path) and os.path.exists(file) and os.path.samefile(path, file))
        for file in files
    )


def model_facts(model: StreamingKernelPCA, columns: Sequence[str] = (), n_columns: int | None = None) -> dict[str, Any]:
    """Return what a fitted model has learned as JSON has it; rows have `n_columns`, by default all that it sees."""
    return {
        "rows": model.n_samples_seen_,
        "rows_rejected": model.n_rows_rejected_,
        "columns": n_columns or model.n_features_in_,
        "column_names": list(columns),
        "kernel": repr(model.kernel_),
        "atoms": model.n_atoms_,
        "moved_atoms": int(np.count_nonzero(model.atom_rows_ < 0)),
        "active_atoms": model.n_active_,
        "components": int(np.count_nonzero(model.eigenvalues_ > _ROUNDING * model.eigenvalues_.max(initial=0.0))),
        "total_weight": model.total_weight_,
        "noise_variance": model.noise_variance_,
        "unexplained_energy_ratio": model.unexplained_energy_ratio_,
        "drift_detected": model.drift_detected_,
        "last_drift_row": model.last_drift_row_,
        "eigenvalues": model.eigenvalues_.tolist(),
        "eigenvalue_bounds": model.eigenvalue_bounds_.tolist(),
        "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
    }


def show_model(facts: Mapping[str, Any], **more: Any) -> None:
    """Print what a model has learned, given as `model_facts` returns it, and `more` facts."""
    # The command leaves bad rows out before the model sees them: no count, unless the model has one from elsewhere.
    hidden = {"eigenvalues", "eigenvalue_bounds", *([] if facts.get("rows_rejected") else ["rows_rejected"])}
    # Units of many columns would fill the screen with digits.
    kernel = re.sub(r"\d+\.\d+(e-?\d+)?", lambda found: f"{float(found[0]):.4g}", facts.get("kernel", "")) or None
    print_facts("Learned", {name: one for name, one in facts.items() if name not in hidden} | {"kernel": kernel} | more)
