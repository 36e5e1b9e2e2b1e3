"""Constructor parameters and containers of answers by scikit-learn's conventions, without importing scikit-learn."""

import html
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.kernels import Kernel, kernel_from

Array = npt.NDArray[np.float64]
Names = npt.NDArray[np.object_]

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


def changed_parameters(estimator: Any) -> dict[str, Any]:
    """Return the arguments that differ from the defaults."""
    kind: type = type(estimator)
    known = constructor_parameters(kind)
    given = zip(known, argument_reader(kind)(estimator), strict=True)
    return {name: value for name, value in given if repr(value) != repr(known[name].default)}


def resolved_parameters(estimator: Any, params: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Turn nested names such as kernel__gamma into whole parameters, replacing each kernel by a changed copy."""
    kind: type = type(estimator)
    known = constructor_parameters(kind)
    own = {name: value for name, value in params.items() if "__" not in name}
    for name, value in params.items():
        whole, _, path = name.partition("__")
        if whole not in known:
            raise ValueError(f"{where}: {name!r} is not a parameter; the parameters are {', '.join(known)}")
        if path:
            kernel = own.get(whole, getattr(estimator, whole))
            if not isinstance(kernel, Kernel) and not (whole == "kernel" and isinstance(kernel, str)):
                raise ValueError(f"{where}: {whole}={kernel!r} has no parameter {path!r}; only kernels have them")
            own[whole] = kernel_from(kernel, where=where).with_parameter(path, value, where=where)
    return own


def html_table(estimator: Any) -> str:
    """Return a table of an estimator's parameters in HTML, those that differ from the defaults in bold."""
    changed = changed_parameters(estimator)

    def cell(text: str, name: str) -> str:
        return f"<td><b>{html.escape(text)}</b></td>" if name in changed else f"<td>{html.escape(text)}</td>"

    lines = "".join(
        f"<tr>{cell(name, name)}{cell(repr(value), name)}</tr>"
        for name, value in estimator.get_params(deep=False).items()
    )
    return f"<details><summary><code>{html.escape(repr(estimator))}</code></summary><table>{lines}</table></details>"


def metadata_request(estimator: Any) -> Any:
    """Return scikit-learn's record of the metadata that an estimator's methods request."""
    # A program that uses the routing has imported scikit-learn; it is never imported here.
    routing = sys.modules.get("sklearn.utils.metadata_routing")
    if routing is None:
        raise ImportError(
            f"{type(estimator).__name__}: metadata routing needs scikit-learn; install it with "
            "pip install 'streamkpca[sklearn]', and import it first"
        )
    request = routing.MetadataRequest(owner=type(estimator).__name__)
    for method in ("fit", "partial_fit", "score"):
        if hasattr(estimator, method):
            getattr(request, method).add_request(param="sample_weight", alias=None)
    return request


def wanted_container(own: str | None) -> str:
    """Return the container of projections: an estimator's own choice, or else that of scikit-learn's configuration."""
    if own is not None:
        return own
    # A program that configures scikit-learn has imported it.
    sklearn = sys.modules.get("sklearn")
    kind: str = "default" if sklearn is None else sklearn.get_config()["transform_output"]
    return kind


def contained(values: Array, columns: Names, kind: str, X: Any, where: str) -> Any:
    """Put projections (n, q) into a DataFrame of pandas or polars, with the index of X if that is a pandas table."""
    try:
        library = importlib.import_module(kind)
    except ImportError:
        raise ImportError(
            f"{where}: set_output(transform={kind!r}) needs {kind}; pip install 'streamkpca[{kind}]'"
        ) from None
    if kind == "polars":
        return library.DataFrame(values, schema=list(columns), orient="row")
    return library.DataFrame(values, columns=columns, index=getattr(X, "index", None) if hasattr(X, "iloc") else None)
