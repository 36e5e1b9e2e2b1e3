"""The base of the four estimators of axes: queries and fitted attributes."""

import importlib
import sys
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from streamkpca._core.arrays import Array, Flags, Names, Positions
from streamkpca._core.parameters import check_choice, check_integer
from streamkpca._core.reservoir import are_outside, origins_of
from streamkpca.components.expectation import RANGE, n_rows_wanted
from streamkpca.components.snapshot import Snapshot, in_chunks
from streamkpca.errors import RowError, name_errors, require, warn
from streamkpca.kernels import Kernel, kernel_from
from streamkpca.models._protocol import Parameterised
from streamkpca.rows import validation
from streamkpca.rows.parts import Rows, parts_of

# Rows of a batch that its snapshot samples: the default size of a stream's reservoir.
SAMPLE: Final = 512
_NONE = np.empty(0)
# Fewer axes than the default number are no surprise: tables may have fewer rows or features.
_FEW_AXES = 10


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a batch fit, in one attribute, so that readers in other threads never see parts of two fits."""

    snapshot: Snapshot
    names: Names | None
    singular_values: Array


def check_batch(kernel: Any, X: Any, sample_weight: Any) -> tuple[Kernel, Array, Array, Names | None]:
    """Check the arguments of a batch fit; return the settled kernel, the rows, their weights and the columns' names."""
    X, kernel = validation.arrow_table(X), kernel_from(kernel)
    rows = validation.check_parts(X, learner="fit a StreamingKernelPCA with")[:]
    weights = validation.as_sample_weight(sample_weight, len(rows))
    return kernel.settled(rows, weights), rows, weights, validation.feature_names(X)


def warn_of_empty_axes(eigenvalues: Array, where: str) -> None:
    """Warn of columns of zeros in projections, where there are many."""
    q, rank = len(eigenvalues), int(np.count_nonzero(eigenvalues))
    # As many axes as rows are asked for on purpose; centring takes one of them.
    if q > max(rank + 1, _FEW_AXES):
        warn(
            f"{where}: n_components is {q} but the rows that the model keeps have {rank} axes with variance, so "
            f"{q - rank} columns of projections are zero; pass n_components={max(rank, 1)}, or keep more rows",
        )


@name_errors
class Estimator(Parameterised):
    """Base of the estimators of axes; a subclass has `fit`, and stores its arguments by their names.

    Methods that learn return the model itself. Questions, and attributes that end in an underscore, raise
    `NotFittedError` before the first row. Questions raise TypeError or ValueError if X is not a finite real array with
    the features of the fitted rows.

    Examples
    --------
    What a fit has found:

    >>> import pandas as pd
    >>> from streamkpca import KernelPCA
    >>> X = pd.DataFrame([[-2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]], columns=["load", "heat"])
    >>> model = KernelPCA(2, kernel="linear").fit(X)
    >>> model.eigenvalues_.round(3), model.explained_variance_ratio_.round(3)
    (array([2.667, 0.667]), array([0.8, 0.2]))
    >>> model.n_atoms_, model.atoms_.shape, model.total_weight_, model.unexplained_energy_ratio_
    (4, (4, 2), 4.0, 0.0)
    >>> model.kernel_, model.n_features_in_, model.feature_names_in_
    (Linear(), 2, array(['load', 'heat'], dtype=object))
    >>> model.snapshot_.eigenvalues is model.eigenvalues_
    True

    Projections as a table, and what they keep of the rows:

    >>> model = KernelPCA(1, kernel="linear").set_output(transform="pandas")
    >>> list(model.fit_transform(X)) == list(model.get_feature_names_out())
    True
    >>> round(model.score(X), 3), model.reconstruction_error([[3.0, 5.0]], n_components=1).round(6)
    (0.793, array([25.]))

    Sparse models have weights. The energy of the second row, 0.125, is below the noise:

    >>> from streamkpca import SparseKernelPCA
    >>> model = SparseKernelPCA(1, kernel="linear", noise_variance=0.5, center=False).fit([[2.0, 0.0], [0.0, 0.5]])
    >>> model.weights_.round(3), model.active_, model.n_active_, model.noise_variance_
    (array([0.375, 0.   ]), array([ True, False]), 1, 0.5)

    Atoms of a stream move, and bounds tell what they miss:

    >>> from streamkpca import StreamingKernelPCA, kernels
    >>> model = StreamingKernelPCA(1, kernel=kernels.RBF(0.5), max_atoms=1).fit([[0.0], [1.0], [0.0], [1.0]])
    >>> model.atoms_.round(2), model.atom_rows_, model.atom_origins_, model.eigenvalue_bounds_.round(2)
    (array([[0.5]]), array([-1]), array([2]), array([[0.  , 0.29]]))
    """

    _published: Fitted | None = None

    def _snapshot(self) -> Snapshot | None:
        """Return the published model; None before the first row."""
        return None if self._published is None else self._published.snapshot

    def _width(self) -> tuple[int, Names | None] | None:
        return None if self._published is None else (self._published.snapshot.n_features, self._published.names)

    @abstractmethod
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to rows, as if it had seen none before."""

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Return the projections (n, q) of rows onto the axes that are fitted to them.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        """
        # A stream is read once.
        X = validation.arrow_table(X)
        return self.fit(X, y, sample_weight).transform(X)

    def _publish(self, snapshot: Snapshot, names: Names | None, singular_values: Array = _NONE) -> Self:
        self._published = Fitted(snapshot, names, singular_values)
        warn_of_empty_axes(snapshot.eigenvalues, f"{type(self).__name__}.fit")
        return self

    # Queries

    @property
    def snapshot_(self) -> Snapshot:
        """The fitted axes, of a young stream those of all rows so far, as an immutable value."""
        return self._require_fitted("snapshot_")

    def transform(self, X: Any) -> Array:
        """Project rows onto the principal axes.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, q)
            Coordinates along the axes, or a DataFrame of them, see `set_output`. Columns beyond the rank are zero.
        """
        answers, rows = self._ask("transform", X)
        projections = answers.transform(rows)
        kind = vars(self).get("_sklearn_output_config", {}).get("transform")
        if kind is None and "sklearn" in sys.modules:
            # A program that configures scikit-learn has imported it.
            kind = sys.modules["sklearn"].get_config()["transform_output"]
        if kind in (None, "default"):
            return projections
        table: Array = _make_table(projections, self.get_feature_names_out(), kind, X)
        return table

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the container of projections.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None
            "default" means arrays. None changes nothing. Without a choice, that of scikit-learn holds, if it is loaded.
        """
        if transform is not None:
            choices = ("default", "pandas", "polars")
            # Under the name that scikit-learn's clone copies.
            self._sklearn_output_config = {"transform": check_choice("transform", transform, choices=choices)}
        return self

    def inverse_transform(self, X: Any) -> Array:
        """Find rows with given projections: pre-images.

        Parameters
        ----------
        X : array-like of shape (n, q)
            Projections, as `transform` returns them.

        Returns
        -------
        ndarray of shape (n, d)
            Rows whose images in feature space are near the points with these projections.

        Raises
        ------
        ValueError
            X has not one column for each axis.

        Notes
        -----
        A regression from projections to rows guesses the row [2]_. For kernels of Euclidean distances a fixed-point
        iteration moves it to a local optimum of the distance in feature space [1]_, where that is nearer.

        References
        ----------
        .. [1] S. Mika et al., "Kernel PCA and de-noising in feature spaces", NIPS 11, 1999.
        .. [2] G. Bakir, J. Weston, B. Schölkopf, "Learning to find pre-images", NIPS 16, 2004.

        Examples
        --------
        >>> from streamkpca import KernelPCA, kernels
        >>> angle = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
        >>> model = KernelPCA(4, kernel=kernels.RBF(0.5)).fit(np.column_stack([np.cos(angle), np.sin(angle)]))
        >>> model.inverse_transform(model.transform([[1.2, 0.0]])).round(2) + 0.0  # a row beside a circle
        array([[1., 0.]])
        """
        answers = self._require_fitted("inverse_transform")
        projections = validation.check_parts(X, None, None)
        q = len(answers.eigenvalues)
        if projections.shape[1] != q:
            raise ValueError(
                f"expected projections onto {q} axes but got {projections.shape[1]} columns; pass what "
                "transform returns"
            )
        return answers.inverse_transform(projections)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Measure how well rows can be recovered from their projections; the one score that compares kernels.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        float
            R^2 of ``inverse_transform(transform(X))`` over all features: 1 is perfect, the mean alone scores 0.

        Raises
        ------
        ValueError
            All rows are equal.
        """
        del y
        answers, rows = self._ask("score", X)
        weights = validation.as_sample_weight(sample_weight, len(rows))
        # From the first row, so that the sums keep their digits far from the origin.
        origin = rows[:1][0]
        away = sum(weights[place] @ (part - origin) for place, part in parts_of(rows))
        mean = origin + away / weights.sum()
        spread = lost = 0.0
        for place, part in parts_of(rows):
            try:
                found = answers.inverse_transform(answers.transform(part))
            except RowError as error:
                raise error.at(place.start + error.row) from None
            spread += float(weights[place] @ ((part - mean) ** 2).sum(axis=1))
            lost += float(weights[place] @ ((part - found) ** 2).sum(axis=1))
        if spread == 0.0:
            raise ValueError(
                "expected rows that differ but all are equal; R^2 is a share of their variance, so pass rows that vary"
            )
        return 1.0 - lost / spread

    def reconstruction_error(self, X: Any, n_components: int | None = None, *, active_only: bool = False) -> Array:
        """Measure how far rows are, in feature space, from the subspace that the model represents.

        Parameters
        ----------
        X : array-like of shape (n, d)
        n_components : int, optional
            None: to the span of the rows that the model keeps (all atoms of a stream; the active rows of
            SparseKernelPCA). A number: to the centre plus the span of the first `n_components` axes.
        active_only : bool
            To the span of the active rows alone, eq. (18) of [1]_.

        Returns
        -------
        ndarray of shape (n,)
            Squared distances, in units of k(x, x); never negative.

        Raises
        ------
        ValueError
            The model has fewer axes.

        References
        ----------
        .. [1] M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001.
        """
        answers, rows = self._ask("reconstruction_error", X)
        if n_components is not None:
            n_components, q = check_integer("n_components", n_components, least=0), len(answers.eigenvalues)
            if n_components > q:
                raise ValueError(
                    f"n_components is {n_components} but the model has {q} axes; "
                    "ask for fewer, or fit with a larger n_components"
                )
        return answers.reconstruction_error(rows, n_components, active_only=active_only)

    def novelty(self, X: Any) -> Array:
        """Score how novel rows are, on a scale that goes on growing where reconstruction errors do not.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
            In units of k(x, x); never negative and always finite. High scores mark novel rows.

        Notes
        -----
        With a kernel of the difference of two rows, k(x, x) is the same number e for all rows, and the reconstruction
        error r [1]_ never exceeds it. The score is -e log(1 - r/e), minus the logarithm of the share of the row's
        energy that the model explains. It ranks rows as r does, and far away it grows with the distance to the nearest
        atoms: with RBF as ``2 gamma |x - z|^2 e``. With any other kernel, the score is r. O(m (d + m)) with m atoms.

        A row that the model keeps scores 0, and rows near it score little. So fit models to healthy rows;
        `OutlierDetector` finds the outliers among the rows that it is fitted to.

        References
        ----------
        .. [1] M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001, eq. (18).

        Examples
        --------
        >>> from streamkpca import KernelPCA, kernels
        >>> model, rows = KernelPCA(1, kernel=kernels.RBF(1.0)).fit([[0.0], [1.0]]), [[0.0], [1.5], [9.0], [90.0]]
        >>> model.novelty(rows).round(1), model.reconstruction_error(rows).round(1)
        (array([0.00000e+00, 4.00000e-01, 1.27900e+02, 1.58419e+04]), array([0. , 0.4, 1. , 1. ]))
        """
        answers, rows = self._ask("novelty", X)
        return answers.novelty(rows)

    def expected(self, X: Any, feature: str | int) -> Any:
        """Tell what value of a feature is expected, given the others of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Numbers that are not trusted may be NaN, and those of the feature do not matter.
        feature : str or int
            Its name, or its position.

        Returns
        -------
        ndarray of shape (n, 3)
            The expected value and the ends of a range, two standard deviations from it, in which about nine in ten
            healthy values lie; in the feature's units.

        Raises
        ------
        TypeError, ValueError
            There is no such feature.

        Notes
        -----
        Atoms and sampled rows count by how well they agree with the row, by the product over the other features of
        Student's t density with four degrees of freedom, so a few wrong numbers do not matter. Within the distances
        between neighbours, the value follows the others linearly. O(m d) a row.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 3000)
        >>> model = StreamingKernelPCA().partial_fit(np.sin(angle[:, None] + np.arange(6)))
        >>> row = np.sin(1.0 + np.arange(6))
        >>> row[2] = 3.0  # sin(3) = 0.14 would be right
        >>> model.expected([row], 2).round(2)  # the value, and its range
        array([[0.14, 0.14, 0.14]])
        """
        answers, rows = self._ask("expected", X)
        names = self._find_width("expected")[1]
        if isinstance(feature, str):
            if names is None or feature not in names:
                raise ValueError(f"there is no feature {feature!r}; the model knows {names}")
            feature = names.tolist().index(feature)
        column = np.array([check_integer("feature", feature, least=0, most=rows.shape[1] - 1)])

        def answer(part: Array) -> Array:
            value, spread = answers.expectation.predict(part, column)
            return np.hstack([value, value - RANGE * spread, value + RANGE * spread])

        return in_chunks(answer, rows, np.empty((len(rows), 3)), 3 * n_rows_wanted(rows.shape[1]))

    def score_samples(self, X: Any) -> Array:
        """Score how well the axes explain rows, of the fit or others.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
            At most 0, in units of k(x, x). Low scores mark rows that are unlike most others.

        Notes
        -----
        The score is minus the reconstruction error to all axes, and minus what few rows have for themselves on these:
        with the coordinate c on an axis where rows have the variance v, c^2 / (c^2 + 100 v) of c^2.

        So fitted rows that are outliers have low scores, where their `novelty` is 0 if the model keeps them. On 28
        tables that were fitted with their outliers, the mean area under the ROC curve is 0.81 by this score, 0.63 by
        novelty, and 0.84 by `OutlierDetector`. After a fit to rows without outliers, novelty is better.

        Examples
        --------
        >>> from streamkpca import KernelPCA, kernels
        >>> rows = np.append(np.linspace(-1.0, 1.0, 50), 9.0)[:, None]
        >>> model = KernelPCA(3, kernel=kernels.RBF(0.5)).fit(rows)
        >>> bool(model.score_samples(rows).argmin() == 50), model.novelty(rows[50:]).round(6)
        (True, array([0.]))
        """
        answers, rows = self._ask("score_samples", X)
        return -answers.unshared_error(rows)

    def get_feature_names_out(self, input_features: Any = None) -> Names:
        """Return the names of the columns of a projection, shape (q,).

        Parameters
        ----------
        input_features : object
            Ignored, as components mix all features; accepted for scikit-learn.

        Raises
        ------
        NotFittedError
            The model has seen no rows.
        """
        del input_features
        q = len(self._require_fitted("get_feature_names_out").eigenvalues)
        return np.array([f"{type(self).__name__.lower()}{i}" for i in range(q)], dtype=object)

    # Fitted attributes

    @property
    def eigenvalues_(self) -> Array:
        """Variances along the axes, largest first, in units of k(x, x); shape (q,).

        scikit-learn's `KernelPCA` has n - 1 times these, for n rows of weight 1; its `PCA` has these as
        ``explained_variance_``.
        """
        return self._require_fitted("eigenvalues_").eigenvalues

    @property
    def explained_variance_ratio_(self) -> Array:
        """Share of the variance in feature space that each axis explains; shape (q,)."""
        return self._require_fitted("explained_variance_ratio_").explained_variance_ratio

    @property
    def atoms_(self) -> Array:
        """Rows that the model keeps; shape (m, d)."""
        return self._require_fitted("atoms_").atoms

    @property
    def n_atoms_(self) -> int:
        """Number of rows that the model keeps."""
        return len(self._require_fitted("n_atoms_").atoms)

    @property
    def atom_rows_(self) -> Positions:
        """Positions of the atoms in the stream, counted from 0; -1 for one that is no row of it; shape (m,)."""
        positions = self._require_fitted("atom_rows_").atom_rows
        return _mark_outside(positions, np.maximum(positions, -1))

    @property
    def atom_origins_(self) -> Positions:
        """Positions of the rows that the atoms began as, counted from 0; -1 for no row of this stream; shape (m,)."""
        positions = self._require_fitted("atom_origins_").atom_rows
        return _mark_outside(positions, origins_of(positions))

    @property
    def weights_(self) -> Array:
        """Weight of each atom in the axes; shape (m,)."""
        return self._require_fitted("weights_").weights

    @property
    def active_(self) -> Flags:
        """Atoms that projections use; shape (m,)."""
        return self._require_fitted("active_").weights > 0.0

    @property
    def n_active_(self) -> int:
        """Number of atoms that projections use."""
        return int(np.count_nonzero(self._require_fitted("n_active_").weights))

    @property
    def noise_variance_(self) -> float | None:
        """Noise variance sigma^2 of the likelihood, in units of k(x, x); None without a likelihood."""
        return self._require_fitted("noise_variance_").noise_variance

    @property
    def eigenvalue_bounds_(self) -> Array:
        """Lower and upper bounds of the eigenvalues that kernel PCA of all rows up to the last refit has: (q, 2).

        If the kernel is positive definite, they hold by the energy account and Weyl's inequality, up to rounding: 1e-9
        of the mean of k(x, x), and more if atoms nearly depend on each other. Every swap of atoms widens them.
        """
        return self._require_fitted("eigenvalue_bounds_").eigenvalue_bounds

    @property
    def unexplained_energy_ratio_(self) -> float:
        """Share of the stream's energy that is not recorded in the basis."""
        return self._require_fitted("unexplained_energy_ratio_").unexplained_energy_ratio

    @property
    def kernel_(self) -> Kernel:
        """The kernel, its scale settled."""
        return self._require_fitted("kernel_").kernel

    @property
    def total_weight_(self) -> float:
        """Weight of the rows that the axes were fitted to."""
        return self._require_fitted("total_weight_").total_weight

    # Checks

    def _require_fitted(self, request: str) -> Snapshot:
        return require(self._snapshot(), type(self).__name__, request)

    def _ask(self, method: str, X: Any) -> tuple[Snapshot, Rows]:
        """Return the model that answers, and the rows that a method is asked about, checked."""
        answers = self._require_fitted(method)
        # Another thread may be fitting rows of another width, so take the width from the model that answers.
        width = answers.atoms.shape[1]
        if validation.is_plain(X, width):
            return answers, X
        _, names = self._find_width(method)
        gaps = method in ("expected", "impute") or (answers.has_gaps and method != "score")
        return answers, validation.check_parts(X, width, names, gaps=gaps)


def _mark_outside(positions: Positions, rows: Positions) -> Positions:
    """Return rows (m,), with -1 where the positions are of rows that the stream has not counted."""
    marked = np.where(are_outside(positions), -1, rows)
    marked.flags.writeable = False
    return marked


def _make_table(values: Array, columns: Names, kind: str, X: Any) -> Any:
    """Put projections (n, q) into a DataFrame of pandas or polars, with the index of X if that is a pandas table."""
    try:
        library = importlib.import_module(kind)
    except ImportError:
        raise ImportError(f"set_output(transform={kind!r}) needs {kind}; pip install 'streamkpca[{kind}]'") from None
    if kind == "polars":
        return library.DataFrame(values, schema=list(columns), orient="row")
    return library.DataFrame(values, columns=columns, index=getattr(X, "index", None) if hasattr(X, "iloc") else None)
