"""Reading a checkpoint, and generations of checkpoints written at intervals."""

import errno
import os
import re
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamkpca._core.files import FileName, checked_name, remove_leftovers_in, stand_in
from streamkpca._core.parameters import check_integer, check_real
from streamkpca.errors import CheckpointError, CheckpointWarning
from streamkpca.kernels import Kernel
from streamkpca.models.streaming import StreamingKernelPCA


def load(path: FileName, *, kernel: Kernel | None = None) -> StreamingKernelPCA:
    """Read a model that `StreamingKernelPCA.save` wrote.

    Parameters
    ----------
    path : path-like
    kernel : Kernel, optional
        The settled kernel, needed only if it has functions of the caller, which are never stored.

    Returns
    -------
    StreamingKernelPCA
        With the `extra_` that it was saved with.

    Raises
    ------
    CheckpointError
        The file is damaged, no checkpoint, of a later format, or contradicts itself.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> from streamkpca import StreamingKernelPCA, load
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.npz")
    ...     StreamingKernelPCA(2).partial_fit(rows).save(path, extra={"offset": 1000})
    ...     model = load(path)
    >>> model.n_samples_seen_, model.extra_
    (1000, {'offset': 1000})
    """
    return StreamingKernelPCA.load(path, kernel=kernel)


class Checkpointer:
    """Saves a model at intervals of rows or seconds, and finds the newest readable generation after a crash.

    Parameters
    ----------
    path : path-like
        ``models/plant.npz`` gives ``models/plant-00000001.npz`` and so on; the folder must exist. Each file can be
        read by its owner only.
    every_rows : int or None, default=None
        Rows after which `save_if_due` saves.
    every_seconds : float or None, default=None
        Seconds after which `save_if_due` saves, if rows came. With neither interval, only `save` saves.
    keep : int, default=3
        Number of generations to keep.

    Raises
    ------
    OSError
        The folder does not exist, or `path` is a folder, or the names of the files would be too long.
    TypeError, ValueError
        An argument is not a number above 0, or no file can have this name.

    Notes
    -----
    Only one process may write at a time. Half-written files of a killed process are removed when the next one starts.
    Numbering continues from the newest generation, readable or not. What has the name of a generation but is a folder,
    a device or a pipe is neither read nor removed.

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
    ...     checkpoints.latest().extra_
    {'offset': 3000}
    """

    def __init__(
        self,
        path: FileName,
        *,
        every_rows: int | None = None,
        every_seconds: float | None = None,
        keep: int = 3,
    ) -> None:
        where = "Checkpointer"
        self._every_rows = None if every_rows is None else check_integer("every_rows", every_rows, least=1, where=where)
        self._every_seconds = (
            None
            if every_seconds is None
            else check_real("every_seconds", every_seconds, least=0.0, open_below=True, where=where)
        )
        self._keep = check_integer("keep", keep, least=1, where=where)
        self._path = _checked_path(path, where)
        self._name = re.compile(re.escape(self._path.stem) + r"-([0-9]{8,})" + re.escape(self._path.suffix))
        self._saved_rows = 0
        self._saved_at = time.monotonic()
        self._remove_leftovers()

    @property
    def generations(self) -> list[Path]:
        """The existing files, newest first.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from streamkpca import Checkpointer, StreamingKernelPCA
        >>> model = StreamingKernelPCA(1, kernel="linear").partial_fit([[1.0], [2.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoints = Checkpointer(pathlib.Path(folder, "plant.npz"), keep=2)
        ...     saved = [checkpoints.save(model) for _ in range(5)]
        ...     [path.name for path in checkpoints.generations]
        ['plant-00000005.npz', 'plant-00000004.npz']
        """
        numbered = ((self._number(path), path) for path in self._path.parent.iterdir())
        return [path for number, path in sorted(numbered, reverse=True) if number]

    @property
    def seconds_since_save(self) -> float:
        """Seconds since this process saved, read the newest generation, or started.

        Examples
        --------
        For a service's health check:

        >>> import pathlib, tempfile
        >>> from streamkpca import Checkpointer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Checkpointer(pathlib.Path(folder, "plant.npz")).seconds_since_save < 60.0
        True
        """
        return time.monotonic() - self._saved_at

    def save(self, model: StreamingKernelPCA, extra: Any = None) -> Path:
        """Save a new generation, then remove the oldest ones beyond `keep`.

        Parameters
        ----------
        model : StreamingKernelPCA
        extra : object, optional
            As for `StreamingKernelPCA.save`.

        Returns
        -------
        Path
            The new file.

        Raises
        ------
        OSError, TypeError, ValueError
            As `StreamingKernelPCA.save`; then the older generations stay.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from streamkpca import Checkpointer, StreamingKernelPCA
        >>> model = StreamingKernelPCA(1, kernel="linear").partial_fit([[1.0], [2.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Checkpointer(pathlib.Path(folder, "plant.npz")).save(model, extra={"offset": 2}).name
        'plant-00000001.npz'
        """
        older = self.generations
        path = self._generation(self._number(older[0]) + 1 if older else 1)
        n_rows = _rows_of(model)
        model.save(path, extra)
        self._note(n_rows)
        for old in older[self._keep - 1 :]:
            # What is no regular file was put there by somebody else.
            if old.is_file():
                old.unlink(missing_ok=True)
        return path

    def save_if_due(self, model: StreamingKernelPCA, extra: Any = None) -> Path | None:
        """Save if `every_rows` rows have come since the last save, or any rows and `every_seconds` seconds.

        Parameters
        ----------
        model : StreamingKernelPCA
        extra : object, optional
            As for `StreamingKernelPCA.save`.

        Returns
        -------
        Path or None
            None if no save was due.

        Raises
        ------
        OSError, TypeError, ValueError
            As `save`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from streamkpca import Checkpointer, StreamingKernelPCA
        >>> model = StreamingKernelPCA(1, kernel="linear")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoints = Checkpointer(pathlib.Path(folder, "plant.npz"), every_rows=3)
        ...     [checkpoints.save_if_due(model.partial_fit([[float(i)]])) is not None for i in range(7)]
        [False, False, True, False, False, True, False]
        """
        new = _rows_of(model) - self._saved_rows
        enough = self._every_rows is not None and new >= self._every_rows
        late = self._every_seconds is not None and self.seconds_since_save >= self._every_seconds
        return self.save(model, extra) if enough or (late and new) else None

    def latest(self, *, kernel: Kernel | None = None) -> StreamingKernelPCA | None:
        """Read the newest generation that can be read.

        Parameters
        ----------
        kernel : Kernel, optional
            As for `load`.

        Returns
        -------
        StreamingKernelPCA or None
            None if there is no generation.

        Raises
        ------
        CheckpointError
            There are generations, but none can be read; starting anew silently would be worse.

        Warns
        -----
        CheckpointWarning
            For each generation that cannot be read.

        Examples
        --------
        If a crash leaves half a file, the generation before it is read:

        >>> import pathlib, tempfile, warnings
        >>> from streamkpca import Checkpointer, StreamingKernelPCA
        >>> model = StreamingKernelPCA(1, kernel="linear").partial_fit([[1.0], [2.0]])
        >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        ...     checkpoints = Checkpointer(pathlib.Path(folder, "plant.npz"))
        ...     whole, newest = checkpoints.save(model, extra="whole"), checkpoints.save(model, extra="newest")
        ...     n_bytes = newest.write_bytes(newest.read_bytes()[:1000])
        ...     checkpoints.latest().extra_
        'whole'
        """
        generations = self.generations
        for path in generations:
            try:
                if not path.is_file():
                    # To read a pipe would take for ever.
                    raise OSError(errno.EINVAL, "expected a regular file", os.fspath(path))
                model = StreamingKernelPCA.load(path, kernel=kernel)
            except (CheckpointError, OSError) as error:
                warnings.warn(f"{error}; an older generation is tried", CheckpointWarning, stacklevel=2)
            else:
                self._note(_rows_of(model))
                return model
        if generations:
            raise CheckpointError(
                f"Checkpointer.latest: none of {len(generations)} generations of {self._path} can be read; restore one "
                "from a backup, or move them away to start anew"
            )
        return None

    def _note(self, n_rows: int) -> None:
        self._saved_rows, self._saved_at = n_rows, time.monotonic()

    def _number(self, path: Path) -> int:
        found = self._name.fullmatch(path.name)
        return int(found[1]) if found else 0

    def _generation(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.stem}-{number:08d}{self._path.suffix}")

    def _remove_leftovers(self) -> None:
        folder, generations = self._path.parent, self.generations
        newest = self._number(generations[0]) if generations else 0
        # The files of long names have digests in place of them, from which the number cannot be read.
        latest = {stand_in(str(folder), self._generation(number).name) for number in (newest, newest + 1)}
        remove_leftovers_in(folder, lambda found: found in latest or self._number(Path(found)) > 0)


def _checked_path(path: FileName, where: str) -> Path:
    """Follow links to a path in an existing folder, to whose name numbers can be added."""
    name = checked_name(path)
    folder, last = os.path.split(name)
    if last in ("", os.curdir, os.pardir) or os.path.isdir(name):
        raise IsADirectoryError(f"{where}: expected the name of a file but got {path!r}; name a file in a folder")
    found = Path(os.path.realpath(name))
    if not found.parent.is_dir():
        raise FileNotFoundError(f"{where}: expected {folder or found.parent} to be a folder; create it first")
    # A name that is too long for the numbers should be refused before anything is learned.
    with suppress(FileNotFoundError):
        os.lstat(found.with_name(f"{found.stem}-00000001{found.suffix}"))
    return found


def _rows_of(model: StreamingKernelPCA) -> int:
    return model.n_samples_seen_ if model.__sklearn_is_fitted__() else 0
