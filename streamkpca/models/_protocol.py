"""What scikit-learn expects of every estimator, without importing it: parameters, names of features, tags."""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache, wraps
from typing import Any, ClassVar, Self, TypeVar

from streamkpca._core.arrays import Names
from streamkpca.errors import name_errors, require
from streamkpca.kernels import Kernel, kernel_from
from streamkpca.kernels.kinds import KERNELS

Kind = TypeVar("Kind", bound=type)

# Letters of an unknown name that an error prints: untrusted files name parameters too.
_LONGEST_NAME = 100


@cache
def constructor_parameters(kind: type) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's constructor by name."""
    return inspect.signature(kind).parameters


@name_errors
class Parameterised(ABC):
    """Base of all estimators: the constructor's arguments, stored by their names, can be read, changed and shown.

    Parameters of kernels are parameters too: ``kernel__gamma``, or ``kernel__left__gamma`` of a sum.

    Examples
    --------
    >>> from streamkpca import KernelPCA
    >>> model = KernelPCA().set_params(n_components=3, kernel__gamma=2.0)
    >>> model.get_params()
    {'n_components': 3, 'kernel': RBF(gamma=2.0), 'center': True, 'kernel__gamma': 2.0}
    >>> import pandas
    >>> model.fit(pandas.DataFrame({"flow": [1.0, 2.0]})).n_features_in_, model.feature_names_in_.tolist()
    (1, ['flow'])
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments.

        Parameters
        ----------
        deep : bool
            Include the parameters of kernels, as ``kernel__gamma``.
        """
        kind: type = type(self)
        params = {name: getattr(self, name) for name in constructor_parameters(kind)}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Kernel):
                    params |= {f"{name}__{path}": part for path, part in value.parameters().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments; they are checked when they are used.

        Parameters
        ----------
        **params
            Names and values. A kernel's parameter, such as ``kernel__gamma``, replaces the kernel by a changed copy.

        Raises
        ------
        TypeError, ValueError
            A name is not a parameter, or a kernel refuses a value; then nothing is set.
        """
        kind: type = type(self)
        known = constructor_parameters(kind)
        changed = {name: value for name, value in params.items() if "__" not in name}
        for name, value in params.items():
            whole, _, path = name.partition("__")
            if whole not in known:
                kernel = params.get("kernel", getattr(self, "kernel", None))
                raise ValueError(advice_on(name, value, known, kernel))
            if path:
                kernel = changed.get(whole, getattr(self, whole))
                if not isinstance(kernel, Kernel) and not (whole == "kernel" and isinstance(kernel, str)):
                    raise ValueError(f"{whole}={kernel!r} has no parameter {path!r}; only kernels have them")
                changed[whole] = kernel_from(kernel).with_parameter(path, value)
        for name, value in changed.items():
            setattr(self, name, value)
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._find_width("n_features_in_")[0]

    @property
    def feature_names_in_(self) -> Names:
        """Names of the features, if the first rows came with names."""
        names = self._find_width("feature_names_in_")[1]
        if names is None:
            raise AttributeError(
                f"{type(self).__name__} has no feature_names_in_: its first rows came without column names"
            )
        return names

    @abstractmethod
    def _width(self) -> tuple[int, Names | None] | None:
        """Return the number and names of the features; None before the first row."""

    def _find_width(self, request: str) -> tuple[int, Names | None]:
        return require(self._width(), type(self).__name__, request)

    # Only scikit-learn calls these, so it is loaded by then.

    _sklearn_type: ClassVar[str | None] = None

    def __sklearn_is_fitted__(self) -> bool:
        return self._width() is not None

    def __sklearn_tags__(self) -> Any:
        utils = sys.modules["sklearn.utils"]
        return utils.Tags(
            estimator_type=self._sklearn_type,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags() if hasattr(self, "transform") else None,
            input_tags=utils.InputTags(sparse=True),
        )

    def __getstate__(self) -> dict[str, Any]:
        # A copy, made in one step: pickle and deepcopy iterate over what they get, while another thread may set
        # attributes.
        return vars(self).copy()

    def __repr__(self) -> str:
        kind: type = type(self)
        known, given = constructor_parameters(kind), self.get_params(deep=False)
        shown = [f"{name}={value!r}" for name, value in given.items() if repr(value) != repr(known[name].default)]
        return f"{kind.__name__}({', '.join(shown)})"


def explain_unknown_arguments(kind: Kind) -> Kind:
    """Decorate a class, so that its constructor's error for an unknown argument names the remedy."""
    init = kind.__init__  # type: ignore[misc]

    @wraps(init)
    def explained(self: Any, *args: Any, **arguments: Any) -> None:
        known = constructor_parameters(kind)
        for name, value in arguments.items():
            if name not in known:
                raise TypeError(advice_on(name, value, known, arguments.get("kernel")))
        init(self, *args, **arguments)

    kind.__init__ = explained  # type: ignore[misc]
    return kind


def advice_on(name: str, value: Any, known: Collection[str], kernel: Any = None) -> str:
    """Say that a name is not a parameter, and suggest a kernel's parameter, if there is a kernel, or a similar name."""
    given = KERNELS.get(kernel) if isinstance(kernel, str) else type(kernel)
    for kind in (given, KERNELS["rbf"], *KERNELS.values()) if "kernel" in known else ():
        if kind is not None and kind in KERNELS.values() and name in (field.name for field in fields(kind)):  # type: ignore[arg-type]
            return f"{name!r} is a parameter of kernels; pass it within one: kernel={kind.__name__}({name}={value!r})"
    name = name[:_LONGEST_NAME]
    similar = get_close_matches(name, known, n=1)
    meant = f"did you mean {similar[0]!r}? " if similar else ""
    return f"{name!r} is not a parameter; {meant}the parameters are {', '.join(known)}"
