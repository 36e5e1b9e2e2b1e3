"""Many small models, one for each key, the least recently used of them on the disk."""

import copy
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.locks import lock_folder
from streamkpca._core.parameters import check_integer
from streamkpca.checkpoint.archive import read_header
from streamkpca.errors import CheckpointError
from streamkpca.models.streaming import StreamingKernelPCA, check_template
from streamkpca.rows.validation import as_sample_weight, checked_rows

__all__ = ["ModelBank"]

Array = npt.NDArray[np.float64]
Key = str | int

_TEMPLATE: Final = "template.npz"
_SUFFIX: Final = ".npz"
# Letters of a file's name that name its folder: 4,096 folders keep each of them short with a million keys.
_N_FOLDER_LETTERS: Final = 3
_LONGEST_KEY: Final = 1000


@dataclass
class _Entry:
    """A model in memory, and whether its file lacks rows that it has learned."""

    model: StreamingKernelPCA
    is_changed: bool


class ModelBank:
    """One small model for each key, such as a sensor or a customer, in bounded memory.

    The models used last stay in memory; the others are checkpoints in a folder, which are read when their keys come
    again.

    Parameters
    ----------
    template : StreamingKernelPCA
        Its parameters are those of every model. If it has learned rows, every model begins with its kernel and its
        atoms, and counts none of its rows. Otherwise every model settles a width of its own. The template is not
        changed.
    max_models : int, default=1000
        Most models in memory. One of 32 atoms takes some hundred kilobytes.
    folder : path-like
        Where the models are stored; it is made if its parent exists. It also stores the template, with which a bank is
        opened again. One process may use it at a time.

    Attributes
    ----------
    n_in_memory_ : int
        Number of models in memory.
    n_read_, n_written_ : int
        Checkpoints read and written since the bank was opened.

    Raises
    ------
    TypeError, ValueError
        A parameter is invalid, or the folder is that of a bank with another template.
    OSError
        The folder cannot be made or written, or another process uses it (`BlockingIOError`).
    CheckpointError
        The folder's template is damaged.

    Notes
    -----
    A model is written when others displace it from memory, on `save` and on `close`. Each file is replaced in one step:
    whatever kills the process, the newest checkpoint of each key is whole, but rows learned since are lost unless the
    source repeats them. The file of a key has a name made of digits, so keys are never paths.

    A score after new rows makes the axes of the model anew. Without sparse weights (``noise_variance=None``) that took
    .8 ms for 32 atoms instead of 11.

    Rows of different keys are independent: the model of a key depends on its rows in their order alone, however many
    models are in memory.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from streamkpca import ModelBank, StreamingKernelPCA
    >>> random = np.random.default_rng(0)
    >>> keys, rows = random.integers(20, size=4000), random.normal(size=(4000, 3))
    >>> template = StreamingKernelPCA(2, max_atoms=8, block_size=64, reservoir_size=0).partial_fit(rows)
    >>> with tempfile.TemporaryDirectory() as folder, ModelBank(template, max_models=5, folder=folder) as bank:
    ...     scores = bank.learn(keys, rows).score(keys[:3], rows[:3])
    ...     len(bank), bank.n_in_memory_, scores.shape
    (20, 5, (3,))
    """

    def __init__(self, template: StreamingKernelPCA, *, max_models: int = 1000, folder: str | os.PathLike[str]) -> None:
        where = "ModelBank"
        check_template(template, where)
        self.max_models = check_integer("max_models", max_models, least=1, where=where)
        self.folder = Path(os.fsdecode(folder))
        self.folder.mkdir(exist_ok=True)
        self._lock = RLock()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._n_read = self._n_written = 0
        self._owner = lock_folder(self.folder)
        if self._owner is None:
            raise BlockingIOError(
                f"{where}: {self.folder} is used by another bank; close that one first, or choose another folder"
            )
        try:
            self._template = self._opened(template)
        except BaseException:
            self._owner.close()
            raise

    @property
    def n_in_memory_(self) -> int:
        """Number of models in memory.

        Examples
        --------
        >>> import tempfile
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn(["a", "b", "a"], [[1.0], [2.0], [3.0]]).n_in_memory_
        2
        """
        return len(self._entries)

    @property
    def n_read_(self) -> int:
        """Number of checkpoints read since the bank was opened.

        Examples
        --------
        >>> import tempfile
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> template = StreamingKernelPCA(1)
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(template, max_models=1, folder=folder) as bank:
        ...     bank.learn(["a", "b"], [[1.0], [2.0]]).learn(["a"], [[3.0]]).n_read_
        1
        """
        return self._n_read

    @property
    def n_written_(self) -> int:
        """Number of checkpoints written since the bank was opened.

        Examples
        --------
        >>> import tempfile
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn(["a", "b"], [[1.0], [2.0]]).save().save().n_written_
        2
        """
        return self._n_written

    def learn(self, keys: Any, X: Any, sample_weight: Any = None) -> Self:
        """Let the model of each key learn its rows, in their order.

        Parameters
        ----------
        keys : sequence of n strings or integers
            The key of each row; new ones begin a model.
        X : array-like of shape (n, d)
            There may be no rows.
        sample_weight : array-like of shape (n,), float or None
            Weight of each row; 1 by default.

        Returns
        -------
        ModelBank
            This bank.

        Raises
        ------
        TypeError, ValueError
            The keys, rows or weights are invalid; no model has then learned any of the rows. Or a kernel refuses
            the rows of a key, or they have other features than its model; then the keys before it in the call have
            learned theirs.
        OSError, CheckpointError
            A model cannot be written or read; it stays in memory, or on the disk.

        Notes
        -----
        Beside what the models learn, a key that is not in memory costs reading one checkpoint, and writing that of the
        model which it displaces. Calls that bring many rows of few keys are the fastest.

        Examples
        --------
        >>> import tempfile
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn(["pump", "fan", "pump"], [[1.0], [2.0], [3.0]]).model("pump").n_samples_seen_
        2
        """
        where = "ModelBank.learn"
        with self._lock:
            if not len(X):
                _groups(keys, 0, where)
                return self
            finite, gaps = self._template.on_bad_rows == "raise", self._template.on_missing != "raise"
            rows = checked_rows(X, where, *self._width(), finite=finite, gaps=gaps)
            weights = as_sample_weight(sample_weight, len(rows), where=where, all_zero=True)
            for key, positions in _groups(keys, len(rows), where):
                entry = self._entry(key)
                entry.model.partial_fit(rows[positions], sample_weight=weights[positions])
                entry.is_changed = True
        return self

    def score(self, keys: Any, X: Any) -> Array:
        """Score how novel each row is to the model of its key.

        Parameters
        ----------
        keys : sequence of n strings or integers
            The key of each row.
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
            `StreamingKernelPCA.novelty`, in units of k(x, x).

        Raises
        ------
        TypeError, ValueError
            The keys or rows are invalid, or a key has no model.
        OSError, CheckpointError
            A model cannot be written or read.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> rows = np.random.default_rng(0).normal(size=(1000, 2))
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(2), folder=folder) as bank:
        ...     bank = bank.learn(["warm"] * 500 + ["cold"] * 500, np.r_[rows[:500] + 20.0, rows[500:] - 20.0])
        ...     scores = bank.score(["warm", "cold"], [[20.0, 20.0], [20.0, 20.0]])
        >>> bool(scores[0] < scores[1])
        True
        """
        where = "ModelBank.score"
        with self._lock:
            groups = _groups(keys, len(X), where)
            if not groups:
                return np.empty(0)
            rows = checked_rows(X, where, *self._width(), gaps=self._template.on_missing == "marginal")
            for key, _ in groups:
                self._require(key, where)
            scores = np.empty(len(rows))
            for key, positions in groups:
                scores[positions] = self._entry(key).model.novelty(rows[positions])
        return scores

    def model(self, key: Key) -> StreamingKernelPCA:
        """Return a copy of the model of a key, for all other questions.

        Parameters
        ----------
        key : str or int

        Returns
        -------
        StreamingKernelPCA

        Raises
        ------
        TypeError, ValueError
            This is no key, or it has no model.

        Examples
        --------
        >>> import tempfile
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn([7, 7], [[1.0], [2.0]]).model(7).n_samples_seen_
        2
        """
        with self._lock:
            key = _checked_key(key, "ModelBank.model")
            self._require(key, "ModelBank.model")
            return copy.copy(self._entry(key).model)

    def remove(self, key: Key) -> None:
        """Remove the model of a key from memory and from the disk.

        Parameters
        ----------
        key : str or int

        Raises
        ------
        TypeError, ValueError
            This is no key, or it has no model.

        Examples
        --------
        >>> import tempfile
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn(["a", "b"], [[1.0], [2.0]]).remove("a")
        ...     list(bank)
        ['b']
        """
        with self._lock:
            key = _checked_key(key, "ModelBank.remove")
            self._require(key, "ModelBank.remove")
            self._path(key).unlink(missing_ok=True)
            self._entries.pop(key, None)

    def save(self) -> Self:
        """Write every model that has learned rows since it was written.

        Returns
        -------
        ModelBank
            This bank.

        Raises
        ------
        OSError
            A file cannot be written; its old contents stay, and models not written yet stay in memory.

        Examples
        --------
        >>> import tempfile
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn(["a", "b"], [[1.0], [2.0]]).save().n_written_
        2
        """
        with self._lock:
            self._require_open("ModelBank.save")
            for key, entry in self._entries.items():
                self._write(key, entry)
        return self

    def close(self) -> None:
        """Save, and let other banks use the folder.

        Raises
        ------
        OSError
            As `save`; the bank then stays open.

        Examples
        --------
        >>> import tempfile
        >>> from streamkpca import ModelBank, StreamingKernelPCA
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ModelBank(StreamingKernelPCA(1), folder=folder).learn(["a"], [[1.0]]).close()
        ...     with ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...         "a" in bank
        True
        """
        with self._lock:
            if self._owner is not None:
                self.save()
                self._owner.close()
                self._owner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return isinstance(key, str | int) and (key in self._entries or self._path(key).exists())

    def __len__(self) -> int:
        """Count the keys, which lists the folder."""
        with self._lock:
            return sum(1 for _ in self._stored()) + sum(not self._path(key).exists() for key in self._entries)

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys, in no order; those that are not in memory are read from the heads of their files."""
        with self._lock:
            known = list(self._entries)
        yield from known
        for path in self._stored():
            key = _key_of(path)
            if key not in known:
                yield key

    def _opened(self, template: StreamingKernelPCA) -> StreamingKernelPCA:
        """Return the template that the folder has, which must be this one, or store it there."""
        own, path = template.without_rows(), self.folder / _TEMPLATE
        if not path.exists():
            own.save(path)
            return own
        stored = StreamingKernelPCA.load(path, kernel=own.kernel_to_load_with)
        for name, value in own.get_params(deep=False).items():
            if getattr(stored, name) != value:
                raise ValueError(
                    f"ModelBank: {self.folder} is the folder of models with {name}={getattr(stored, name)!r}, but the "
                    f"template has {name}={value!r}; choose another folder, or set the parameter"
                )
        return stored

    def _width(self) -> tuple[int | None, Any]:
        """Return the number and names of features, if they are known."""
        stream = getattr(self._template, "state_", None)
        return (None, None) if stream is None else (stream.n_features, stream.names)

    def _require_open(self, where: str) -> None:
        if self._owner is None:
            raise ValueError(f"{where}: the bank is closed; open another one of its folder")

    def _require(self, key: Key, where: str) -> None:
        self._require_open(where)
        if key not in self:
            raise ValueError(f"{where} expected keys that have models but got {key!r}; let it learn rows of that key")

    def _entry(self, key: Key) -> _Entry:
        """Return the model of a key, read or begun, as the one used last; write and drop those used least recently."""
        self._require_open("ModelBank")
        entry = self._entries.get(key)
        if entry is None:
            path = self._path(key)
            if path.exists():
                model = StreamingKernelPCA.load(path, kernel=self._template.kernel_to_load_with)
                if model.extra_ != {"key": key}:
                    raise CheckpointError(f"ModelBank: {path} is not the model of {key!r}; restore it, or remove it")
                self._n_read += 1
            else:
                model = copy.copy(self._template)
            entry = self._entries[key] = _Entry(model, is_changed=False)
        self._entries.move_to_end(key)
        while len(self._entries) > self.max_models:
            oldest = next(iter(self._entries))
            self._write(oldest, self._entries[oldest])
            del self._entries[oldest]
        return entry

    def _write(self, key: Key, entry: _Entry) -> None:
        if entry.is_changed:
            path = self._path(key)
            path.parent.mkdir(exist_ok=True)
            entry.model.save(path, {"key": key})
            entry.is_changed = False
            self._n_written += 1

    def _path(self, key: Key) -> Path:
        digits = sha256(f"{type(key).__name__} {key}".encode(errors="surrogatepass")).hexdigest()[:32]
        return self.folder / digits[:_N_FOLDER_LETTERS] / f"{digits}{_SUFFIX}"

    def _stored(self) -> Iterator[Path]:
        for folder in sorted(self.folder.iterdir()):
            if folder.is_dir():
                yield from sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX)


def _groups(keys: Any, n_rows: int, where: str) -> list[tuple[Key, npt.NDArray[np.int64]]]:
    """Return each key and the positions of its rows, in the order in which keys appear."""
    listed = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    if len(listed) != n_rows:
        raise ValueError(f"{where} expected one key for each of {n_rows} rows but got {len(listed)}")
    groups: dict[Key, list[int]] = {}
    for position, key in enumerate(listed):
        groups.setdefault(_checked_key(key, where), []).append(position)
    return [(key, np.array(positions)) for key, positions in groups.items()]


def _checked_key(key: Any, where: str) -> Key:
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, bool) or not isinstance(key, str | int) or len(str(key)) > _LONGEST_KEY:
        raise TypeError(
            f"{where} expected keys that are strings or integers of at most {_LONGEST_KEY} characters but got "
            f"{key!r:.80}; write others as strings"
        )
    return key


def _key_of(path: Path) -> Key:
    """Read the key from the head of a model's file."""
    with open(path, "rb") as file:
        extra = read_header(file).get("extra")
    key = extra.get("key") if isinstance(extra, dict) else None
    if not isinstance(key, str | int):
        raise CheckpointError(f"ModelBank: {path} is not the model of a key; remove it from the folder")
    return key
