"""The containers that projections come in: arrays, or tables of pandas and polars."""

import importlib
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Names = npt.NDArray[np.object_]

KINDS = ("default", "pandas", "polars")


def wanted_container(own: str | None) -> str:
    """Say which container is wanted: an estimator's own, or else that of scikit-learn's configuration.

    Parameters
    ----------
    own : str or None

    Returns
    -------
    str
    """
    if own is not None:
        return own
    # Who has configured scikit-learn has loaded it.
    sklearn = sys.modules.get("sklearn")
    kind: str = "default" if sklearn is None else sklearn.get_config()["transform_output"]
    return kind


def contained(values: Array, columns: Names, kind: str, X: Any, where: str) -> Any:
    """Put projections into a container.

    Parameters
    ----------
    values : ndarray of shape (n, q)
    columns : ndarray of str of shape (q,)
    kind : str
        ``"pandas"`` or ``"polars"``.
    X : object
        What was projected: a pandas table passes its index on.
    where : str
        Who asks, for the error text.

    Returns
    -------
    DataFrame

    Raises
    ------
    ImportError
        The library is not installed.
    """
    try:
        library = importlib.import_module(kind)
    except ImportError:
        raise ImportError(
            f"{where}: set_output(transform={kind!r}) needs {kind}; pip install 'streamkpca[{kind}]'"
        ) from None
    if kind == "polars":
        return library.DataFrame(values, schema=list(columns), orient="row")
    return library.DataFrame(values, columns=columns, index=getattr(X, "index", None) if hasattr(X, "iloc") else None)
