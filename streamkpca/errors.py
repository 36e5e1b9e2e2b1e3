"""Exceptions and warnings of the library."""

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from traceback import walk_tb
from types import FrameType, FunctionType
from typing import Any, TypeVar, cast

Known = TypeVar("Known")
Target = TypeVar("Target", bound=Callable[..., Any])

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "IndefiniteKernelWarning",
    "NotFittedError",
    "SparsityError",
    "SparsityWarning",
]


class NotFittedError(ValueError, AttributeError):
    """Raised when a model is used before it has seen any rows.

    Examples
    --------
    >>> from streamkpca import KernelPCA
    >>> KernelPCA().transform([[1.0]])
    Traceback (most recent call last):
        ...
    streamkpca.errors.NotFittedError: transform needs a fitted KernelPCA, but this one has seen no rows yet; ...
    """


class IndefiniteKernelWarning(UserWarning):
    """Issued when kernel values cannot be inner products.

    The energy account stays exact then, but tolerances and bounds no longer hold.

    Examples
    --------
    >>> import warnings
    >>> from streamkpca import KernelPCA
    >>> from streamkpca.kernels import Sigmoid
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = KernelPCA(1, kernel=Sigmoid(gamma=1.0, coef0=-1.0)).fit([[0.0], [1.0], [2.0]])
    >>> [warning.category.__name__ for warning in caught]
    ['IndefiniteKernelWarning']
    """


class CheckpointError(ValueError):
    """Raised when a checkpoint cannot be read: it is damaged, inconsistent, of a later format, or no checkpoint at all.

    Examples
    --------
    >>> from streamkpca import StreamingKernelPCA
    >>> StreamingKernelPCA.from_bytes(b"a letter")
    Traceback (most recent call last):
        ...
    streamkpca.errors.CheckpointError: from_bytes: this is not a checkpoint: it has only 8 bytes
    """


class CheckpointWarning(UserWarning):
    """Issued when a checkpoint cannot be read and an older one is tried.

    Examples
    --------
    >>> import pathlib, tempfile, warnings
    >>> from streamkpca import Checkpointer, StreamingKernelPCA
    >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True, action="always") as caught:
    ...     checkpoints = Checkpointer(pathlib.Path(folder, "plant.npz"))
    ...     older = checkpoints.save(StreamingKernelPCA())
    ...     n_bytes = checkpoints.save(StreamingKernelPCA()).write_bytes(b"")
    ...     model = checkpoints.latest()
    >>> [warning.category.__name__ for warning in caught]
    ['CheckpointWarning']
    """


class SparsityError(ValueError):
    """Raised when the requested noise variance or number of active atoms leaves no axes to compute.

    Examples
    --------
    >>> from streamkpca import SparseKernelPCA
    >>> SparseKernelPCA(1, kernel="linear", noise_variance=100.0).fit([[0.0], [1.0]])
    Traceback (most recent call last):
        ...
    streamkpca.errors.SparsityError: noise_variance=100 leaves no atom active: the largest ...
    """


class SparsityWarning(UserWarning):
    """Issued when the requested sparsity cannot be reached exactly, or not yet.

    Examples
    --------
    >>> import warnings
    >>> from streamkpca import SparseKernelPCA
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = SparseKernelPCA(1, kernel="linear", n_active=2, center=False).fit([[0.0], [1.0]])
    >>> [warning.category.__name__ for warning in caught], model.n_active_  # the origin explains nothing
    (['SparsityWarning'], 1)
    """


class RowError(ValueError):
    """A row is refused; `{row}` in the text stands for its position, `row`."""

    place = ""

    def __init__(self, text: str, row: int) -> None:
        super().__init__(text, row)
        self.row = row

    def __str__(self) -> str:
        return str(self.args[0]).replace("{row}", str(self.row))

    def at(self, row: int) -> "RowError":
        """Return the same error with the position of the row among all rows of a call, not only of those at hand."""
        return RowError(self.args[0].removeprefix(self.place), row)


# Errors that checks raise; others tell their place themselves.
_REFUSALS = {TypeError, ValueError, RowError, ImportError, MemoryError, FileNotFoundError, IsADirectoryError}
# Methods that are called by other means than their names, so that the class alone is the place.
_UNNAMED = {"__init__", "__post_init__", "__setattr__", "__contains__"}


def name_errors(target: Target) -> Target:
    """Let errors begin with what users called, such as "KernelPCA.fit: ", and hold it as their attribute `place`."""
    if not isinstance(target, type):
        return cast(Target, _name_errors_of(target))
    for name, member in list(vars(target).items()):
        if isinstance(member, FunctionType) and (name in _UNNAMED or not name.startswith("_")):
            setattr(target, name, _name_errors_of(member))
        elif isinstance(member, classmethod) and not name.startswith("_"):
            setattr(target, name, classmethod(_name_errors_of(member.__func__)))
    return target


def _name_errors_of(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if type(error) in _REFUSALS and error.args and isinstance(error.args[0], str):
                _add_place(error, function, args[0] if args else kwargs.get("self"))
            raise

    return call


def _add_place(error: Exception, function: Callable[..., Any], first: Any) -> None:
    """Put the place, a function called with this first argument, before the text of an error of this package."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    text = error.args[0].removeprefix(getattr(error, "place", ""))
    # Python names the function itself where it refuses wrong arguments.
    if not _is_of_package(frame) or text.startswith(f"{function.__qualname__}("):
        return
    place = f"{_name_of(function, first)}: "
    vars(error)["place"] = place
    error.args = (place + text, *error.args[1:])
    if isinstance(error, ImportError):
        error.msg = error.args[0]


def _name_of(function: Callable[..., Any], first: Any) -> str:
    """Return what users call: a function, a method of the class of the first argument, or that class."""
    name = function.__name__
    if "." in function.__qualname__:
        owner = first.__name__ if isinstance(first, type) else type(first).__name__
        return owner if name in _UNNAMED else f"{owner}.{name}"
    # Each adapter has functions of the same names.
    package, _, module = function.__module__.rpartition(".")
    return f"{module}.{name}" if package == "streamkpca.adapters" else name


def _is_of_package(frame: FrameType) -> bool:
    # Code that was made by `exec` may have no name.
    return str(frame.f_globals.get("__name__")).startswith("streamkpca.")


def text_of(error: Exception) -> str:
    """Return what an error says without its place, to be quoted in another error."""
    return str(error).removeprefix(getattr(error, "place", ""))


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line that called this package, whatever lies between."""
    level, frame = 2, sys._getframe(1)
    while _is_of_package(frame) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def plainly(text: str) -> str:
    """Return a text that quotes a file, at most 500 characters of it and none that a terminal would obey."""
    kept = text if len(text) <= 500 else f"{text[:300]} ... {text[-195:]}"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in kept)


def require(value: Known | None, estimator: str, request: str) -> Known:
    """Return what an estimator has, or refuse a request to one that has seen no rows."""
    if value is None:
        raise not_fitted(estimator, request)
    return value


# What fits an estimator; others are fitted by `fit` alone.
_CALLS = {
    "Monitor": "'update'",
    "ChangeDetector": "'update'",
    "StreamingKernelPCA": "'fit' or 'partial_fit'",
    "OutlierDetector": "'fit' or 'partial_fit'",
}


def not_fitted(estimator: str, request: str) -> NotFittedError:
    """Make the error of a request that needs a fitted model, of scikit-learn's class too, if that is loaded."""
    calls = _CALLS.get(estimator, "'fit'")
    message = f"{request} needs a fitted {estimator}, but this one has seen no rows yet; call {calls} first"
    peer = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", None)
    if peer is None:
        return NotFittedError(message)
    both: type[NotFittedError] = type("NotFittedError", (NotFittedError, peer), {"__module__": __name__})
    return both(message)
