"""The face that all estimators share: parameters, checks of queries, answers."""

import inspect
import operator
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from streamkpca.errors import not_fitted
from streamkpca.kernels import Kernel
from streamkpca.parameters import check_integer
from streamkpca.validation import Names, checked_rows, is_plain

Array = npt.NDArray[np.float64]


class Answers(Protocol):
    """What a fitted model can be asked; implementations never change once made."""

    @property
    def kernel(self) -> Kernel:
        """The settled kernel."""

    @property
    def atoms(self) -> Array:
        """Rows kept, shape (m, d)."""

    @property
    def eigenvalues(self) -> Array:
        """Variances along the axes, shape (q,)."""

    @property
    def explained_variance_ratio(self) -> Array:
        """Shares of the total variance, shape (q,)."""

    @property
    def total_weight(self) -> float:
        """Weight of the rows behind the answers."""

    def transform(self, rows: Array) -> Array:
        """Project rows."""

    def reconstruction_error(self, rows: Array, n_components: int | None = None, *, active_only: bool = False) -> Array:
        """Measure distances to what the model can represent."""


class Estimator(ABC):
    """Base of all estimators: scikit-learn's conventions without scikit-learn.

    Notes
    -----
    A subclass has a constructor that stores its arguments under their own names, `fit`, and two hooks: `_answers`,
    the published answers, and `_width`, what is known of the rows.
    """

    n_components: int | float

    @abstractmethod
    def _answers(self) -> Answers | None:
        """Return the answers to queries; None before the first row."""

    @abstractmethod
    def _width(self) -> tuple[int, Names | None] | None:
        """Return number and names of the features; None before the first row."""

    # Parameters

    @classmethod
    @cache
    def _parameters(cls) -> Mapping[str, inspect.Parameter]:
        signature = inspect.signature(cls.__init__).parameters
        return MappingProxyType({name: parameter for name, parameter in signature.items() if name != "self"})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments.

        Parameters
        ----------
        deep : bool
            Accepted for scikit-learn; no parameter is an estimator.

        Returns
        -------
        dict
        """
        del deep
        return dict(zip(self._parameters(), self._arguments(), strict=True))

    @classmethod
    @cache
    def _reader(cls) -> Callable[[Any], tuple[Any, ...]]:
        return operator.attrgetter(*cls._parameters())

    def _arguments(self) -> tuple[Any, ...]:
        """Return the constructor's arguments in their order."""
        return self._reader()(self)

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments; they are checked when they are used.

        Parameters
        ----------
        **params
            Names and values, as scikit-learn's convention wants it.

        Returns
        -------
        Estimator
            This one.

        Raises
        ------
        ValueError
            A name is not a parameter; nothing is set then.
        """
        known = self._parameters()
        for name in params:
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__}.set_params: {name!r} is not a parameter; "
                    f"the parameters are {', '.join(known)}"
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        shown = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in self._parameters().items()
            if repr(getattr(self, name)) != repr(parameter.default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    # Learning

    @abstractmethod
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from rows, forgetting what was learned before."""

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit to rows and project them.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : array-like of shape (n,), float or None
            What each row counts; 1 by default.

        Returns
        -------
        ndarray of shape (n, q)

        Raises
        ------
        TypeError, ValueError
            As `fit`.
        """
        return self.fit(X, y, sample_weight).transform(X)

    # Queries

    def transform(self, X: Any) -> Array:
        """Project rows onto the principal axes.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, q)
            Coordinates along the axes; columns beyond the rank are zero. A row's answer does not depend on the other
            rows of the call, up to rounding.

        Raises
        ------
        NotFittedError
            No row was seen yet.
        TypeError, ValueError
            X is not a finite real array of the right width.
        """
        answers = self._fitted("transform")
        return answers.transform(self._query(X, "transform", answers))

    def reconstruction_error(self, X: Any, n_components: int | None = None, *, active_only: bool = False) -> Array:
        """Measure how far rows are, in feature space, from what the model can represent.

        Parameters
        ----------
        X : array-like of shape (n, d)
        n_components : int, optional
            None: squared distance to the span of the rows that the model keeps (all atoms of a stream; the active
            rows of SparseKernelPCA). A number: squared distance to the centre plus the span of the first so many axes,
            all in the span of the active rows.
        active_only : bool
            Measure to the span of the active rows alone [1]_, where the model keeps more than these.

        Returns
        -------
        ndarray of shape (n,)
            In units of k(x, x); never negative.

        Raises
        ------
        NotFittedError
            No row was seen yet.
        TypeError, ValueError
            X is not a finite real array of the right width, or there are not so many axes.

        References
        ----------
        .. [1] M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001, eq. (18).
        """
        answers = self._fitted("reconstruction_error")
        rows = self._query(X, "reconstruction_error", answers)
        if n_components is not None:
            where = f"{type(self).__name__}.reconstruction_error"
            n_components = check_integer("n_components", n_components, least=0, where=where)
            if n_components > len(answers.eigenvalues):
                raise ValueError(
                    f"{where}: n_components is {n_components} but the model has {len(answers.eigenvalues)} axes; "
                    "ask for fewer, or fit with a larger n_components"
                )
        return answers.reconstruction_error(rows, n_components, active_only=active_only)

    def score_samples(self, X: Any) -> Array:
        """Score how familiar rows are: the higher, the better the model represents them.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
            Minus `reconstruction_error(X)`: at most 0, in units of k(x, x). Low scores are novel.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `reconstruction_error`.
        """
        answers = self._fitted("score_samples")
        return -answers.reconstruction_error(self._query(X, "score_samples", answers))

    def get_feature_names_out(self, input_features: Any = None) -> Names:
        """Name the columns of a projection.

        Parameters
        ----------
        input_features : object
            Accepted for scikit-learn and ignored: components mix all features.

        Returns
        -------
        ndarray of str objects, shape (q,)
        """
        del input_features
        q = len(self._fitted("get_feature_names_out").eigenvalues)
        return np.array([f"{type(self).__name__.lower()}{i}" for i in range(q)], dtype=object)

    @property
    def eigenvalues_(self) -> Array:
        """Variances along the axes, largest first, in units of k(x, x); shape (q,)."""
        return self._fitted("eigenvalues_").eigenvalues

    @property
    def explained_variance_ratio_(self) -> Array:
        """Share of each axis in the variance of the whole feature space; shape (q,)."""
        return self._fitted("explained_variance_ratio_").explained_variance_ratio

    @property
    def atoms_(self) -> Array:
        """Rows that the model keeps; shape (m, d)."""
        return self._fitted("atoms_").atoms

    @property
    def n_atoms_(self) -> int:
        """Number of rows that the model keeps."""
        return len(self._fitted("n_atoms_").atoms)

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its scale settled."""
        return self._fitted("kernel_").kernel

    @property
    def total_weight_(self) -> float:
        """Weight of the rows behind the answers."""
        return self._fitted("total_weight_").total_weight

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._known_width("n_features_in_")[0]

    @property
    def feature_names_in_(self) -> Names:
        """Names of the features, where the first rows came with names."""
        names = self._known_width("feature_names_in_")[1]
        if names is None:
            raise AttributeError(
                f"{type(self).__name__} has no feature_names_in_: its first rows came without column names"
            )
        return names

    def __sklearn_is_fitted__(self) -> bool:
        return self._width() is not None

    def __sklearn_tags__(self) -> Any:
        # Only scikit-learn asks, so it is loaded, and this library goes on without importing it.
        utils = sys.modules["sklearn.utils"]
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
            input_tags=utils.InputTags(),
        )

    def _fitted(self, request: str) -> Answers:
        answers = self._answers()
        if answers is None:
            raise not_fitted(type(self).__name__, request)
        return answers

    def _known_width(self, request: str) -> tuple[int, Names | None]:
        width = self._width()
        if width is None:
            raise not_fitted(type(self).__name__, request)
        return width

    def _query(self, X: Any, method: str, answers: Answers) -> Array:
        # The width is that of the answers in hand: another thread may be fitting other rows.
        width = answers.atoms.shape[1]
        if is_plain(X, width):
            plain: Array = X
            return plain
        _, names = self._known_width(method)
        return checked_rows(X, f"{type(self).__name__}.{method}", width, names)
