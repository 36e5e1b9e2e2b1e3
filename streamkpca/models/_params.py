"""Constructor parameters and containers of answers by scikit-learn's conventions, without importing scikit-learn."""

import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache, wraps
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array
from streamkpca.errors import name_errors
from streamkpca.kernels import Kernel, kernel_from
from streamkpca.kernels.kinds import KERNELS

Names = npt.NDArray[np.object_]

Kind = TypeVar("Kind", bound=type)

_LONGEST_NAME = 100
KINDS = ("default", "pandas", "polars")


@cache
def constructor_parameters(kind: type) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's constructor by name."""
    signature = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    return MappingProxyType({name: parameter for name, parameter in signature.items() if name != "self"})


@cache
def argument_reader(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads the constructor's arguments from an estimator, in their order."""
    return operator.attrgetter(*constructor_parameters(kind))


def find_changed_parameters(estimator: Any) -> dict[str, Any]:
    """Return the arguments that differ from the defaults."""
    kind: type = type(estimator)
    known = constructor_parameters(kind)
    given = zip(known, argument_reader(kind)(estimator), strict=True)
    return {name: value for name, value in given if repr(value) != repr(known[name].default)}


def resolve_parameters(estimator: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Turn nested names such as kernel__gamma into whole parameters, replacing each kernel by a changed copy."""
    kind: type = type(estimator)
    known = constructor_parameters(kind)
    own = {name: value for name, value in params.items() if "__" not in name}
    for name, value in params.items():
        whole, _, path = name.partition("__")
        if whole not in known:
            given = params.get("kernel", getattr(estimator, "kernel", None))
            raise ValueError(advice_on(name, value, known, given))
        if path:
            kernel = own.get(whole, getattr(estimator, whole))
            is_name = whole == "kernel" and isinstance(kernel, str)
            if not isinstance(kernel, Kernel) and not is_name:
                raise ValueError(f"{whole}={kernel!r} has no parameter {path!r}; only kernels have them")
            own[whole] = kernel_from(kernel).with_parameter(path, value)
    return own


@name_errors
class Parameterised:
    """Base of all estimators: the constructor's arguments, stored by their names, can be read, changed and shown.

    Examples
    --------
    >>> from streamkpca import OutlierDetector
    >>> OutlierDetector(0.05).set_params(max_samples=1024)
    OutlierDetector(contamination=0.05, max_samples=1024)
    >>> from streamkpca import KernelPCA
    >>> KernelPCA().set_params(n_components=3, kernel__gamma=2.0).get_params()
    {'n_components': 3, 'kernel': RBF(gamma=2.0), 'center': True, 'kernel__gamma': 2.0}
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments.

        Parameters
        ----------
        deep : bool
            Include the parameters of kernels, as ``kernel__gamma``.
        """
        kind: type = type(self)
        params = dict(zip(constructor_parameters(kind), argument_reader(kind)(self), strict=True))
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

        Returns
        -------
        Parameterised

        Raises
        ------
        TypeError, ValueError
            A name is not a parameter, or a kernel refuses a value; then nothing is set.
        """
        for name, value in resolve_parameters(self, params).items():
            setattr(self, name, value)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A copy, made in one step: pickle and deepcopy iterate over what they get, while another thread may set
        # attributes.
        return vars(self).copy()

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in find_changed_parameters(self).items()]
        return f"{type(self).__name__}({', '.join(shown)})"


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


def advice_on(name: str, value: Any, known: Mapping[str, Any], kernel: Any) -> str:
    """Say that a name is not a parameter, and suggest a kernel's parameter or a similar name."""
    given = KERNELS.get(kernel) if isinstance(kernel, str) else type(kernel)
    for kind in (given, KERNELS["rbf"], *KERNELS.values()):
        if kind is not None and kind in KERNELS.values() and name in (field.name for field in fields(kind)):  # type: ignore[arg-type]
            return f"{name!r} is a parameter of kernels; pass it within one: kernel={kind.__name__}({name}={value!r})"
    # Untrusted files name parameters too.
    name = name[:_LONGEST_NAME]
    similar = get_close_matches(name, known, n=1)
    meant = f"did you mean {similar[0]!r}? " if similar else ""
    return f"{name!r} is not a parameter; {meant}the parameters are {', '.join(known)}"


def choose_container(own: str | None) -> str:
    """Return the container of projections: an estimator's own choice, or else that of scikit-learn's configuration."""
    if own is not None:
        return own
    # A program that configures scikit-learn has imported it.
    sklearn = sys.modules.get("sklearn")
    kind: str = "default" if sklearn is None else sklearn.get_config()["transform_output"]
    return kind


def put_in_container(values: Array, columns: Names, kind: str, X: Any) -> Any:
    """Put projections (n, q) into a DataFrame of pandas or polars, with the index of X if that is a pandas table."""
    try:
        library = importlib.import_module(kind)
    except ImportError:
        raise ImportError(f"set_output(transform={kind!r}) needs {kind}; pip install 'streamkpca[{kind}]'") from None
    if kind == "polars":
        return library.DataFrame(values, schema=list(columns), orient="row")
    return library.DataFrame(values, columns=columns, index=getattr(X, "index", None) if hasattr(X, "iloc") else None)
