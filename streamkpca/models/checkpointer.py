"""Generations of checkpoints that are written at intervals."""

import os
import re
import time
from pathlib import Path
from typing import Any

from streamkpca._core.files import FileName
from streamkpca._core.parameters import check_integer, check_real
from streamkpca.errors import CheckpointError, CheckpointWarning, name_errors, warn
from streamkpca.kernels import Kernel
from streamkpca.models.saving import load
from streamkpca.models.streaming import StreamingKernelPCA


@name_errors
class Checkpointer:
    """Saves a model or a `Monitor` at intervals, and finds the newest readable generation after a crash.

    Parameters
    ----------
    path : path-like
        ``models/plant.npz`` gives ``models/plant-00000001.npz`` and so on; the folder must exist.
    every_rows : int or None, default=None
        Rows after which `save_if_due` saves.
    every_seconds : float or None, default=None
        Seconds after which `save_if_due` saves, if rows came. With neither interval, only `save` saves.
    keep : int, default=3
        Number of generations to keep.

    Notes
    -----
    Only one process may write at a time. Numbering continues from the newest generation, readable or not.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> from streamkpca import Checkpointer, StreamingKernelPCA
    >>> rows = np.random.default_rng(0).normal(size=(3000, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints = Checkpointer(pathlib.Path(folder, "model.npz"), every_rows=1000)
    ...     model = checkpoints.latest() or StreamingKernelPCA(2)
    ...     for start in range(0, 3000, 100):
    ...         model = model.partial_fit(rows[start : start + 100])
    ...         saved = checkpoints.save_if_due(model, extra={"offset": start + 100})
    ...     checkpoints.latest().extra_, checkpoints.save(model).name, checkpoints.seconds_since_save < 60.0
    ...     [path.name for path in checkpoints.generations]
    ({'offset': 3000}, 'model-00000004.npz', True)
    ['model-00000004.npz', 'model-00000003.npz', 'model-00000002.npz']
    """

    def __init__(
        self, path: FileName, *, every_rows: int | None = None, every_seconds: float | None = None, keep: int = 3
    ) -> None:
        self._every_rows = None if every_rows is None else check_integer("every_rows", every_rows, least=1)
        self._every_seconds = (
            None if every_seconds is None else check_real("every_seconds", every_seconds, least=0.0, open_below=True)
        )
        self._keep = check_integer("keep", keep, least=1)
        self._path = _check_path(path)
        self._name = re.compile(re.escape(self._path.stem) + r"-([0-9]{8,})" + re.escape(self._path.suffix))
        self._saved_rows, self._saved_at = 0, time.monotonic()

    @property
    def generations(self) -> list[Path]:
        """The existing files, newest first."""
        numbered = ((self._number(path), path) for path in self._path.parent.iterdir())
        return [path for number, path in sorted(numbered, reverse=True) if number]

    @property
    def seconds_since_save(self) -> float:
        """Seconds since this process saved, read the newest generation, or started; for a service's health check."""
        return time.monotonic() - self._saved_at

    def save(self, model: Any, extra: Any = None) -> Path:
        """Write a new generation, return its file, and remove the oldest ones beyond `keep`.

        If that fails, as `StreamingKernelPCA.save` does, the older ones stay.

        Parameters
        ----------
        model : StreamingKernelPCA or Monitor
        extra : object, optional
            As for `StreamingKernelPCA.save`.
        """
        older = self.generations
        number = self._number(older[0]) + 1 if older else 1
        path = self._path.with_name(f"{self._path.stem}-{number:08d}{self._path.suffix}")
        n_rows = _rows_of(model)
        model.save(path, extra)
        self._saved_rows, self._saved_at = n_rows, time.monotonic()
        for old in older[self._keep - 1 :]:
            old.unlink(missing_ok=True)
        return path

    def save_if_due(self, model: Any, extra: Any = None) -> Path | None:
        """Save if `every_rows` rows have come since the last save, or any rows and `every_seconds` seconds.

        Parameters
        ----------
        model, extra
            As for `save`.

        Returns
        -------
        Path or None
            The file; None if no save was due.
        """
        new = _rows_of(model) - self._saved_rows
        enough = self._every_rows is not None and new >= self._every_rows
        late = self._every_seconds is not None and self.seconds_since_save >= self._every_seconds
        return self.save(model, extra) if enough or (late and new) else None

    def latest(self, *, kernel: Kernel | None = None) -> Any:
        """Read the newest generation that can be read, as `streamkpca.load` does; None if there is none.

        Parameters
        ----------
        kernel : Kernel, optional
            As for `load`.

        Raises
        ------
        CheckpointError
            There are generations, but none can be read. Each that cannot brings a `CheckpointWarning`.
        """
        generations = self.generations
        for path in generations:
            try:
                model = load(path, kernel=kernel)
            except (CheckpointError, OSError) as error:
                warn(f"{error}; an older generation is tried", CheckpointWarning)
            else:
                self._saved_rows, self._saved_at = _rows_of(model), time.monotonic()
                return model
        if generations:
            raise CheckpointError(
                f"Checkpointer.latest: none of {len(generations)} generations of {self._path} can be read; restore one "
                "from a backup, or move them away to start anew"
            )
        return None

    def _number(self, path: Path) -> int:
        found = self._name.fullmatch(path.name)
        return int(found[1]) if found else 0


def _check_path(path: FileName) -> Path:
    """Follow links to a path in an existing folder, to whose name numbers can be added."""
    found = Path(os.path.realpath(os.fsdecode(path)))
    if found.is_dir():
        raise IsADirectoryError(f"expected the name of a file but got {path!r}; name a file in a folder")
    if not found.parent.is_dir():
        raise FileNotFoundError(f"expected {found.parent} to be a folder; create it first")
    return found


def _rows_of(model: Any) -> int:
    # A model that has seen no rows lacks the attribute.
    return int(getattr(model, "n_samples_seen_" if isinstance(model, StreamingKernelPCA) else "n_rows_", 0))
