"""What every fitted estimator tells of what it has learned."""

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamkpca.errors import not_fitted
from streamkpca.kernels import Kernel
from streamkpca.parameterized import Parameterized
from streamkpca.validation import Names

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

    def inverse_transform(self, projections: Array) -> Array:
        """Find rows with given projections."""

    def reconstruction_error(self, rows: Array, n_components: int | None = None, *, active_only: bool = False) -> Array:
        """Measure distances to what the model can represent."""


class Learned(Parameterized, ABC):
    """Base of all estimators: attributes that exist once it is fitted.

    Notes
    -----
    A subclass has two hooks: `_answers`, the published answers, and `_width`, what is known of the rows.
    """

    @abstractmethod
    def _answers(self) -> Answers | None:
        """Return the answers to queries; None before the first row."""

    @abstractmethod
    def _width(self) -> tuple[int, Names | None] | None:
        """Return number and names of the features; None before the first row."""

    @property
    def eigenvalues_(self) -> Array:
        """Variances along the axes, largest first, in units of k(x, x); shape (q,).

        Examples
        --------
        >>> from streamkpca import KernelPCA
        >>> model = KernelPCA(2, kernel="linear").fit([[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
        >>> model.eigenvalues_.round(3)  # of 3 degrees of freedom
        array([2.667, 0.667])
        """
        return self._fitted("eigenvalues_").eigenvalues

    @property
    def explained_variance_ratio_(self) -> Array:
        """Share of each axis in the variance of the whole feature space; shape (q,).

        Examples
        --------
        >>> from streamkpca import KernelPCA
        >>> model = KernelPCA(2, kernel="linear").fit([[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
        >>> model.explained_variance_ratio_.round(3)
        array([0.8, 0.2])
        """
        return self._fitted("explained_variance_ratio_").explained_variance_ratio

    @property
    def atoms_(self) -> Array:
        """Rows that the model keeps; shape (m, d).

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> StreamingKernelPCA(1, kernel=RBF(1.0)).fit([[0.0], [0.0], [5.0], [0.0]]).atoms_
        array([[0.],
               [5.]])
        """
        return self._fitted("atoms_").atoms

    @property
    def n_atoms_(self) -> int:
        """Number of rows that the model keeps.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import RBF
        >>> StreamingKernelPCA(1, kernel=RBF(1.0)).fit([[0.0], [0.0], [5.0], [0.0]]).n_atoms_
        2
        """
        return len(self._fitted("n_atoms_").atoms)

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its scale settled.

        Examples
        --------
        >>> from streamkpca import KernelPCA
        >>> from streamkpca.kernels import RBF
        >>> KernelPCA(1, kernel=RBF("scale")).fit([[1.0], [3.0]]).kernel_  # one over the variance
        RBF(gamma=1.0)
        """
        return self._fitted("kernel_").kernel

    @property
    def total_weight_(self) -> float:
        """Weight of the rows behind the answers.

        Examples
        --------
        >>> from streamkpca import KernelPCA
        >>> KernelPCA(1, kernel="linear").fit([[1.0], [3.0]], sample_weight=[1.0, 0.5]).total_weight_
        1.5
        """
        return self._fitted("total_weight_").total_weight

    @property
    def n_features_in_(self) -> int:
        """Number of features.

        Examples
        --------
        >>> from streamkpca import KernelPCA
        >>> KernelPCA(1, kernel="linear").fit([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]]).n_features_in_
        3
        """
        return self._known_width("n_features_in_")[0]

    @property
    def feature_names_in_(self) -> Names:
        """Names of the features, where the first rows came with names.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamkpca import KernelPCA
        >>> KernelPCA(1, kernel="linear").fit(pd.DataFrame({"load": [1.0, 2.0], "heat": [3.0, 4.0]})).feature_names_in_
        array(['load', 'heat'], dtype=object)
        """
        names = self._known_width("feature_names_in_")[1]
        if names is None:
            raise AttributeError(
                f"{type(self).__name__} has no feature_names_in_: its first rows came without column names"
            )
        return names

    def __sklearn_is_fitted__(self) -> bool:
        return self._width() is not None

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
