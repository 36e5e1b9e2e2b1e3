"""Many small models, one for each key, the least recently used of them on the disk."""

import copy
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.files import TEMPORARY, lock_folder
from streamkpca._core.parameters import check_integer
from streamkpca.checkpoint.archive import read_header
from streamkpca.errors import CheckpointError
from streamkpca.models.streaming import StreamingKernelPCA, check_template
from streamkpca.rows.validation import as_sample_weight, checked_parts

__all__ = ["ModelBank"]

Array = npt.NDArray[np.float64]
Key = str | int

_TEMPLATE: Final = "template.npz"
_SUFFIX: Final = ".npz"
# Letters of a file's name that name its folder: 4,096 folders keep each of them short with a million keys.
_N_FOLDER_LETTERS: Final = 3
_LONGEST_KEY: Final = 1000


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
    A key is a string of at most 1,000 characters or an integer; members of a `StrEnum` are the strings that they
    equal. The model of a key depends on its rows in their order alone, however many models are in memory.

    A model is written when others displace it from memory, on `save` and on `close`. Whatever kills the process, the
    newest checkpoint of each key is whole, but rows learned since are lost unless the source repeats them.

    A call takes the models in memory first, and reads and writes every other one once: calls with many rows of few keys
    are the fastest. A score after new rows makes the axes anew, which ``noise_variance=None`` speeds up.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from streamkpca import ModelBank, StreamingKernelPCA
    >>> random = np.random.default_rng(0)
    >>> keys, rows = random.integers(20, size=4000), random.normal(size=(4000, 3))
    >>> template = StreamingKernelPCA(2, max_atoms=8, block_size=64, reservoir_size=0).partial_fit(rows)
    >>> with tempfile.TemporaryDirectory() as folder, ModelBank(template, max_models=5, folder=folder) as bank:
    ...     scores = bank.learn(keys, rows).save().score(keys[:3], rows[:3])
    ...     len(bank), bank.n_in_memory_, scores.shape
    (20, 5, (3,))
    """

    def __init__(self, template: StreamingKernelPCA, *, max_models: int = 1000, folder: str | os.PathLike[str]) -> None:
        where = "ModelBank"
        check_template(template, where)
        self.max_models = check_integer("max_models", max_models, least=1, where=where)
        self.folder = Path(os.fsdecode(folder))
        self.folder.mkdir(exist_ok=True)
        self.n_read_ = self.n_written_ = 0
        self._lock = RLock()
        self._models: OrderedDict[Key, StreamingKernelPCA] = OrderedDict()
        # The keys of models whose files lack rows that they have learned.
        self._changed: set[Key] = set()
        self._owner = lock_folder(self.folder)
        if self._owner is None:
            raise BlockingIOError(
                f"{where}: {self.folder} is used by another bank; close that one first, or choose another folder"
            )
        try:
            self._remove_leftovers()
            self._template = self._opened(template)
        except BaseException:
            self._owner.close()
            raise

    @property
    def n_in_memory_(self) -> int:
        """Number of models in memory."""
        return len(self._models)

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
            The keys, rows or weights are invalid; nothing has then been learned. Or a kernel refuses the rows of a key,
            or they have other features than its model; then other keys of the call may have learned theirs.
        OSError, CheckpointError
            A model cannot be written or read; it stays in memory, or on the disk.
        """
        self._learn(keys, X, sample_weight, "ModelBank.learn")
        return self

    def update(self, keys: Any, X: Any, sample_weight: Any = None) -> Array:
        """Score each row by the model that its key has before the call, and then learn the rows.

        Parameters
        ----------
        keys, X, sample_weight : array-like
            As for `learn`.

        Returns
        -------
        ndarray of shape (n,)
            As `score`; NaN for the rows of a key without a model, and for rows that models leave out when they learn.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn(["pump", "pump"], [[1.0], [2.0]]).update(["pump", "fan"], [[1.0], [1.0]]).round(3)
        array([ 0., nan])
        """
        return self._learn(keys, X, sample_weight, "ModelBank.update", is_scored=True)

    def score(self, keys: Any, X: Any) -> Array:
        """Score how novel each row is to the model of its key.

        Parameters
        ----------
        keys, X : array-like
            As for `learn`.

        Returns
        -------
        ndarray of shape (n,)
            `StreamingKernelPCA.novelty`, in units of k(x, x).

        Raises
        ------
        TypeError, ValueError, OSError, CheckpointError
            As `learn`, or a key has no model.
        """
        where = "ModelBank.score"
        with self._lock:
            groups, scores = self._groups(keys, len(X), where), np.empty(len(X))
            if groups:
                rows = checked_parts(X, where, *self._width(), gaps=self._template.on_missing == "marginal")[:]
            for key, _ in groups:
                self._require(key, where)
            for key, positions in groups:
                model = self._models[key] = self._taken(key)
                scores[positions] = model.novelty(rows[positions])
        return scores

    def model(self, key: Key) -> StreamingKernelPCA:
        """Return a copy of the model of a key, for all other questions.

        Parameters
        ----------
        key : str or int
            ValueError if it has no model.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn([7, 7], [[1.0], [2.0]]).model(7).n_samples_seen_
        2
        """
        with self._lock:
            key = self._require(_checked_key(key, "ModelBank.model"), "ModelBank.model")
            model = self._models[key] = self._taken(key)
            return copy.copy(model)

    def remove(self, key: Key) -> None:
        """Remove the model of a key from memory and from the disk.

        Parameters
        ----------
        key : str or int
            ValueError if it has no model.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, ModelBank(StreamingKernelPCA(1), folder=folder) as bank:
        ...     bank.learn(["a", "b"], [[1.0], [2.0]]).remove("a")
        ...     list(bank)
        ['b']
        """
        with self._lock:
            key = self._require(_checked_key(key, "ModelBank.remove"), "ModelBank.remove")
            self._path(key).unlink(missing_ok=True)
            self._models.pop(key, None)
            self._changed.discard(key)

    def save(self) -> Self:
        """Write every model that has learned rows since it was written.

        Returns
        -------
        ModelBank
            This bank.

        Raises
        ------
        OSError
            A file cannot be written: it stays as it was, and the model in memory.
        """
        with self._lock:
            self._require_open("ModelBank.save")
            for key in list(self._changed):
                self._write(key)
        return self

    def close(self) -> None:
        """Save, and let other banks use the folder; if a file cannot be written, the bank stays open.

        Examples
        --------
        >>> import tempfile
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

    def __exit__(self, *error: object) -> None:
        self.close()

    def __contains__(self, key: object) -> bool:
        try:
            known = _checked_key(key, "ModelBank")
        except TypeError:
            return False
        with self._lock:
            return known in self._models or self._path(known).exists()

    def __len__(self) -> int:
        """Count the keys, which lists the folder."""
        with self._lock:
            return sum(1 for _ in self._stored()) + sum(not self._path(key).exists() for key in self._models)

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys, in no order; those that are not in memory are read from the heads of their files."""
        with self._lock:
            known = list(self._models)
        yield from known
        for path in self._stored():
            key = _key_of(path)
            if key not in known:
                yield key

    def _learn(self, keys: Any, X: Any, sample_weight: Any, where: str, *, is_scored: bool = False) -> Array:
        """Learn rows and return their scores before that, which are NaN unless `is_scored`."""
        with self._lock:
            groups, scores = self._groups(keys, len(X), where), np.full(len(X), np.nan)
            if not groups:
                return scores
            finite, gaps = self._template.on_bad_rows == "raise", self._template.on_missing != "raise"
            rows = checked_parts(X, where, *self._width(), finite=finite, gaps=gaps)[:]
            weights = as_sample_weight(sample_weight, len(rows), where=where, all_zero=True)
            is_left_out = np.isinf(rows) if self._template.on_missing == "marginal" else ~np.isfinite(rows)
            is_answered = ~np.logical_or.reduce(is_left_out, axis=1)
            for key, positions in groups:
                asked = positions[is_answered[positions]]
                is_known, model = key in self, self._taken(key)
                if is_scored and is_known and len(asked):
                    scores[asked] = model.novelty(rows[asked])
                model.partial_fit(rows[positions], sample_weight=weights[positions])
                # A new model is kept once it has learned rows, so that refused ones leave no key behind.
                self._models[key] = model
                self._changed.add(key)
        return scores

    def _groups(self, keys: Any, n_rows: int, where: str) -> list[tuple[Key, npt.NDArray[np.int64]]]:
        """Return each key and the positions of its rows: first the keys whose models are in memory."""
        self._require_open(where)
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise TypeError(f"{where} expected a sequence of keys, one for each row, but got {keys!r:.80}; pass a list")
        listed = keys.tolist() if isinstance(keys, np.ndarray) and keys.dtype.kind in "iuUO" else list(keys)
        if len(listed) != n_rows:
            raise ValueError(f"{where} expected one key for each of {n_rows} rows but got {len(listed)}")
        groups: dict[Key, list[int]] = {}
        for position, key in enumerate(listed):
            groups.setdefault(_checked_key(key, where), []).append(position)
        order = sorted(groups, key=lambda key: key not in self._models)
        return [(key, np.array(groups[key])) for key in order]

    def _width(self) -> tuple[int | None, Any]:
        """Return the number and names of features, if they are known."""
        return getattr(self._template, "n_features_in_", None), getattr(self._template, "feature_names_in_", None)

    def _require_open(self, where: str) -> None:
        if self._owner is None:
            raise ValueError(f"{where}: the bank is closed; open another one of its folder")

    def _require(self, key: Key, where: str) -> Key:
        self._require_open(where)
        if key not in self:
            raise ValueError(f"{where} expected keys that have models but got {key!r}; let it learn rows of that key")
        return key

    def _taken(self, key: Key) -> StreamingKernelPCA:
        """Return the model of a key, from memory, from the disk, or begun; the caller keeps it as the one used last."""
        if key in self._models:
            self._models.move_to_end(key)
            return self._models[key]
        while len(self._models) >= self.max_models:
            oldest = next(iter(self._models))
            self._write(oldest)
            del self._models[oldest]
        path = self._path(key)
        if not path.exists():
            return copy.copy(self._template)
        model = StreamingKernelPCA.load(path, kernel=self._template.kernel_to_load_with)
        if model.extra_ != {"key": key}:
            raise CheckpointError(f"ModelBank: {path} is not the model of {key!r}; restore it, or remove it")
        self.n_read_ += 1
        return model

    def _write(self, key: Key) -> None:
        if key in self._changed:
            path = self._path(key)
            path.parent.mkdir(exist_ok=True)
            self._models[key].save(path, {"key": key})
            self._changed.remove(key)
            self.n_written_ += 1

    def _path(self, key: Key) -> Path:
        # Digits, so keys are never paths.
        digits = sha256(f"{type(key).__name__} {key}".encode(errors="surrogatepass")).hexdigest()[:32]
        return self.folder / digits[:_N_FOLDER_LETTERS] / f"{digits}{_SUFFIX}"

    def _stored(self) -> Iterator[Path]:
        return self.folder.glob(f"*/*{_SUFFIX}")

    def _opened(self, template: StreamingKernelPCA) -> StreamingKernelPCA:
        """Return the template that the folder has, which must be this one, or store it there."""
        own, path = template.without_rows(), self.folder / _TEMPLATE
        kernel = own.kernel_to_load_with
        if kernel is not None and not kernel.is_settled:
            raise ValueError(
                f"ModelBank expected a kernel that files can hold, or one whose scale is settled, but got {kernel!r}; "
                "let the template learn some rows first, or give the scale as a number"
            )
        if not path.exists():
            own.save(path)
            return own
        stored = StreamingKernelPCA.load(path, kernel=kernel)
        for name, value in own.get_params(deep=False).items():
            if getattr(stored, name) != value:
                raise ValueError(
                    f"ModelBank: {self.folder} is the folder of models with {name}={getattr(stored, name)!r}, but the "
                    f"template has {name}={value!r}; choose another folder, or set the parameter"
                )
        return stored

    def _remove_leftovers(self) -> None:
        """Remove files that were half written when a process was killed; the lock says that none is writing."""
        for path in self.folder.rglob(f"*{TEMPORARY}"):
            path.unlink(missing_ok=True)


def _checked_key(key: Any, where: str) -> Key:
    """Return a key as exactly a string or an integer: subclasses may look otherwise in files than in memory."""
    if isinstance(key, str) and len(key) <= _LONGEST_KEY:
        return str.__str__(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool | np.timedelta64):
        return int(key)
    raise TypeError(
        f"{where} expected keys that are strings or integers of at most {_LONGEST_KEY} characters but got "
        f"{key!r:.80}; write others as strings"
    )


def _key_of(path: Path) -> Key:
    """Read the key from the head of a model's file."""
    with open(path, "rb") as file:
        extra = read_header(file).get("extra")
    key = extra.get("key") if isinstance(extra, dict) else None
    if not isinstance(key, str | int):
        raise CheckpointError(f"ModelBank: {path} is not the model of a key; remove it from the folder")
    return key
