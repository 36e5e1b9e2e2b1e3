"""What is saved: what is kept beside a model, such as a monitor, in one file with it; and `load`, which reads any."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from streamkpca._core.files import FileName
from streamkpca.errors import CheckpointError, name_errors, plainly, text_of
from streamkpca.kernels import Kernel
from streamkpca.models._protocol import advice_on
from streamkpca.models.streaming import StreamingKernelPCA

# Where the classes are that are saved with a model, by their entries; these modules import this one.
_CLASSES = {
    "monitor": ("streamkpca.monitoring", "Monitor"),
    "changes": ("streamkpca.changes", "ChangeDetector"),
    "outliers": ("streamkpca.models.outliers", "OutlierDetector"),
}

# What it has found in the rows so far, with their number `n_rows`.
Found = TypeVar("Found")


class ParameterCheck(NamedTuple):
    """What checks the value of a parameter, whether None means that it is not used, and whether it stays as it began.

    Those that stay are what rows were scored and judged by.
    """

    check: Callable[[str, Any], Any]
    is_optional: bool = False
    is_fixed: bool = True


@name_errors
class SavedWithModel(ABC, Generic[Found]):
    """Base of what is kept beside a model: saved as an entry of the model's `extra`, and made of it again.

    A subclass gives the name of the entry, what messages call it, its parameters, and the two hooks below.
    """

    _entry: ClassVar[str]
    _noun: ClassVar[str]
    _parameters: ClassVar[Mapping[str, ParameterCheck]]
    model: StreamingKernelPCA
    extra_: Any = None
    _state: Found | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._parameters:
            check, is_optional, is_fixed = self._parameters[name]
            if is_fixed and name in vars(self):
                raise AttributeError(
                    f"{type(self).__name__}: {name} cannot change, as rows were judged with the present one; begin a "
                    f"new {type(self).__name__} with another one"
                )
            value = value if value is None and is_optional else check(name, value)
        elif not (name.startswith("_") or hasattr(type(self), name)):
            # Parameters are set later, too, and a misspelt one would change nothing.
            raise AttributeError(f"{type(self).__name__}: {advice_on(name, value, self._parameters)}")
        object.__setattr__(self, name, value)

    @property
    def n_rows_(self) -> int:
        """Number of rows given so far."""
        state: Any = self._state
        return 0 if state is None else int(state.n_rows)

    def save(self, path: FileName, extra: Any = None) -> None:
        """Write this and its model to a file, which `streamkpca.load` reads.

        Parameters
        ----------
        path : path-like
        extra : object, optional
            JSON data, which `load` returns as `extra_`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor(end_after=30)
        >>> record = monitor.update([[1.0, 2.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor.save(pathlib.Path(folder, "plant.npz"), extra={"offset": 1})
        ...     loaded = Monitor.load(pathlib.Path(folder, "plant.npz"))
        >>> loaded.end_after, loaded.extra_, Monitor.from_bytes(monitor.to_bytes()).n_rows_
        (30, {'offset': 1}, 1)
        """
        with self.model.write_lock:
            found = self._beside(extra)
            # Refuse what could not be loaded again.
            self._restore(self.model, found, f"{type(self).__name__}.save")
            self.model.save(path, found)

    def to_bytes(self, extra: Any = None) -> bytes:
        """Return the bytes that `save` would write.

        Parameters
        ----------
        extra : object, optional
            As for `save`.
        """
        with self.model.write_lock:
            return self.model.to_bytes(self._beside(extra))

    @classmethod
    def load(cls, path: FileName, *, kernel: Kernel | None = None) -> Self:
        """Read what `save` wrote; it goes on as if it had never been stopped.

        Parameters
        ----------
        path : path-like
        kernel : Kernel, optional
            As for `StreamingKernelPCA.load`.

        Raises
        ------
        CheckpointError, OSError
            As `StreamingKernelPCA.load`; or the file holds a model alone.
        """
        model = StreamingKernelPCA.load(path, kernel=kernel)
        return cls._restore(model, model.extra_, f"load: {os.fsdecode(path)}")

    @classmethod
    def from_bytes(cls, data: bytes, *, kernel: Kernel | None = None) -> Self:
        """Read what `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
        kernel : Kernel, optional
            As for `StreamingKernelPCA.load`.
        """
        model = StreamingKernelPCA.from_bytes(data, kernel=kernel)
        return cls._restore(model, model.extra_, "from_bytes")

    @abstractmethod
    def _record(self) -> dict[str, Any]:
        """Return JSON data and arrays that, with the model, determine the future of this object."""

    @classmethod
    @abstractmethod
    def _build(cls, model: StreamingKernelPCA, record: dict[str, Any]) -> Self:
        """Make the object that `_record` recorded; any of Python's usual errors where that makes no sense."""

    def _beside(self, extra: Any) -> dict[str, Any]:
        return {self._entry: self._record(), "extra": extra}

    @classmethod
    def _restore(cls, model: StreamingKernelPCA, found: Any, source: str) -> Self:
        """Make the object of a model and of what was saved beside it."""
        if not isinstance(found, dict) or cls._entry not in found:
            raise CheckpointError(f"{source}: it holds no {cls._noun}; streamkpca.load returns what it holds")
        try:
            made = cls._build(model, found[cls._entry])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
            raise CheckpointError(f"{source}: its {cls._noun} makes no sense: {plainly(text_of(error))}") from None
        made.extra_ = found.get("extra")
        return made


def load(path: FileName, *, kernel: Kernel | None = None) -> Any:
    """Read what `save` wrote: a model, a `Monitor` or `ChangeDetector` with its model, or an `OutlierDetector`.

    It continues as if it had never been stopped. Files from strangers are safe to load, see `StreamingKernelPCA.load`.

    Parameters
    ----------
    path : path-like
    kernel : Kernel, optional
        As for `StreamingKernelPCA.load`.

    Raises
    ------
    CheckpointError, OSError
        As `StreamingKernelPCA.load`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from streamkpca import StreamingKernelPCA, load
    >>> from streamkpca.monitoring import Monitor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for one in (StreamingKernelPCA(3), Monitor()):
    ...         one.save(pathlib.Path(folder, "plant.npz"))
    ...         load(pathlib.Path(folder, "plant.npz"))
    StreamingKernelPCA(n_components=3)
    <Monitor: no rows yet, learn='normal'>
    """
    model = StreamingKernelPCA.load(path, kernel=kernel)
    for entry, (module, name) in _CLASSES.items():
        if isinstance(model.extra_, dict) and model.extra_.keys() == {entry, "extra"}:
            return getattr(import_module(module), name)._restore(model, model.extra_, f"load: {os.fsdecode(path)}")
    return model
