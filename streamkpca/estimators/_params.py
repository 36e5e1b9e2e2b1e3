"""Parameters of estimators: scikit-learn's conventions without scikit-learn."""

import html
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamkpca.kernels import Kernel, kernel_from

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


class Parameterized:
    """Base of what has parameters: a constructor that stores its arguments under their own names.

    Notes
    -----
    Parameters of kernels are parameters too: ``kernel__gamma``, or ``kernel__left__gamma`` of a sum. They are set by
    replacing the kernel, for kernels are values.
    """

    @classmethod
    @cache
    def _parameters(cls) -> Mapping[str, inspect.Parameter]:
        signature = inspect.signature(cls.__init__).parameters
        return MappingProxyType({name: parameter for name, parameter in signature.items() if name != "self"})

    @classmethod
    @cache
    def _reader(cls) -> Callable[[Any], tuple[Any, ...]]:
        return operator.attrgetter(*cls._parameters())

    def _arguments(self) -> tuple[Any, ...]:
        """Return the constructor's arguments in their order."""
        return self._reader()(self)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments.

        Parameters
        ----------
        deep : bool
            Those of kernels too, as ``kernel__gamma``.

        Returns
        -------
        dict

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> params = StreamingKernelPCA(kernel=RBF(0.5)).get_params()
        >>> params["kernel"], params["kernel__gamma"]
        (RBF(gamma=0.5), 0.5)
        """
        params = dict(zip(self._parameters(), self._arguments(), strict=True))
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
            Names and values, as scikit-learn's convention wants it. Of a kernel's parameters, ``kernel__gamma``, a
            changed copy of the kernel is set; also where the kernel is given by name.

        Returns
        -------
        Estimator
            This one.

        Raises
        ------
        TypeError, ValueError
            A name is not a parameter, or a kernel refuses a value; nothing is set then.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> StreamingKernelPCA(kernel=RBF(0.5)).set_params(n_components=3, kernel__gamma=2.0)
        StreamingKernelPCA(n_components=3, kernel=RBF(gamma=2.0))
        """
        where = f"{type(self).__name__}.set_params"
        known = self._parameters()
        own = {name: value for name, value in params.items() if "__" not in name}
        for name, value in params.items():
            whole, _, path = name.partition("__")
            if whole not in known:
                raise ValueError(f"{where}: {name!r} is not a parameter; the parameters are {', '.join(known)}")
            if path:
                kernel = own.get(whole, getattr(self, whole))
                if not isinstance(kernel, Kernel) and not (whole == "kernel" and isinstance(kernel, str)):
                    raise ValueError(f"{where}: {whole}={kernel!r} has no parameter {path!r}; only kernels have any")
                own[whole] = kernel_from(kernel, where=where).with_parameter(path, value, where=where)
        for name, value in own.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self._changed().items()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """Show the parameters in a notebook, those that were changed in bold."""
        changed = self._changed()
        lines = "".join(
            f"<tr><td>{_bold(name, name in changed)}</td><td>{_bold(repr(value), name in changed)}</td></tr>"
            for name, value in self.get_params(deep=False).items()
        )
        return f"<details><summary><code>{html.escape(repr(self))}</code></summary><table>{lines}</table></details>"

    def _changed(self) -> dict[str, Any]:
        """Return the arguments that are not the defaults."""
        defaults = {name: parameter.default for name, parameter in self._parameters().items()}
        return {
            name: value for name, value in self.get_params(deep=False).items() if repr(value) != repr(defaults[name])
        }

    # What only scikit-learn asks for, or those who use it: it is loaded then, and never imported from here.

    def __sklearn_tags__(self) -> Any:
        utils = sys.modules["sklearn.utils"]
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
            input_tags=utils.InputTags(),
        )

    def get_metadata_routing(self) -> Any:
        """Say which of scikit-learn's routed metadata this estimator asks for.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRequest

        Raises
        ------
        ImportError
            scikit-learn is not installed, or not loaded.

        Examples
        --------
        >>> import sklearn.utils.metadata_routing
        >>> from streamkpca import KernelPCA
        >>> KernelPCA().set_fit_request(sample_weight=True).get_metadata_routing().fit.requests
        {'sample_weight': True}
        """
        if "_metadata_request" not in vars(self):
            routing = sys.modules.get("sklearn.utils.metadata_routing")
            if routing is None:
                raise ImportError(
                    f"{type(self).__name__}: routing metadata is scikit-learn's business; install it, "
                    "pip install 'streamkpca[sklearn]', and import it first"
                )
            request = routing.MetadataRequest(owner=type(self).__name__)
            for method in ("fit", "partial_fit", "score"):
                if hasattr(self, method):
                    getattr(request, method).add_request(param="sample_weight", alias=None)
            self._metadata_request = request
        return self._metadata_request

    def set_fit_request(self, *, sample_weight: bool | str | None = None) -> Self:
        """Ask scikit-learn to route sample weights to `fit`, or not to, or under another name.

        Parameters
        ----------
        sample_weight : bool, str or None
            True: pass it. False: do not. None: refuse it where it is given. A name: pass what has that name.

        Returns
        -------
        Estimator
            This one.

        Raises
        ------
        ImportError
            As `get_metadata_routing`.

        Examples
        --------
        >>> import sklearn
        >>> from sklearn.pipeline import make_pipeline
        >>> from streamkpca import KernelPCA
        >>> with sklearn.config_context(enable_metadata_routing=True):
        ...     model = make_pipeline(KernelPCA(1, kernel="linear").set_fit_request(sample_weight=True))
        ...     model = model.fit([[1.0], [3.0]], sample_weight=[1.0, 0.5])
        >>> model[-1].total_weight_
        1.5
        """
        return self._request("fit", sample_weight)

    def set_partial_fit_request(self, *, sample_weight: bool | str | None = None) -> Self:
        """Ask scikit-learn to route sample weights to `partial_fit`; as `set_fit_request`.

        Parameters
        ----------
        sample_weight : bool, str or None
            True: pass it. False: do not. None: refuse it where it is given. A name: pass what has that name.

        Returns
        -------
        Estimator
            This one.

        Raises
        ------
        ImportError
            As `get_metadata_routing`.

        Examples
        --------
        >>> import sklearn.utils.metadata_routing
        >>> from streamkpca import StreamingKernelPCA
        >>> model = StreamingKernelPCA().set_partial_fit_request(sample_weight="trust")
        >>> model.get_metadata_routing().partial_fit.requests
        {'sample_weight': 'trust'}
        """
        return self._request("partial_fit", sample_weight)

    def set_score_request(self, *, sample_weight: bool | str | None = None) -> Self:
        """Ask scikit-learn to route sample weights to `score`; as `set_fit_request`.

        Parameters
        ----------
        sample_weight : bool, str or None
            True: pass it. False: do not. None: refuse it where it is given. A name: pass what has that name.

        Returns
        -------
        Estimator
            This one.

        Raises
        ------
        ImportError
            As `get_metadata_routing`.

        Examples
        --------
        >>> import sklearn.utils.metadata_routing
        >>> from streamkpca import KernelPCA
        >>> KernelPCA().set_score_request(sample_weight=False).get_metadata_routing().score.requests
        {'sample_weight': False}
        """
        return self._request("score", sample_weight)

    def _request(self, method: str, alias: bool | str | None) -> Self:
        getattr(self.get_metadata_routing(), method).add_request(param="sample_weight", alias=alias)
        return self


def _bold(text: str, is_bold: bool) -> str:
    return f"<b>{html.escape(text)}</b>" if is_bold else html.escape(text)
