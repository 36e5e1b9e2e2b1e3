"""What an export writes down: a kernel, and the few tables that a model's answers are made of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.triangular import solve_factor
from streamkpca.errors import not_fitted
from streamkpca.estimators._base import Estimator, FittedModel
from streamkpca.estimators._snapshot_base import SnapshotEstimator
from streamkpca.estimators.exact import KernelPCA
from streamkpca.kernels import Kernel

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
# Answers, rows of the axes, coefficients over them, offset, rows of the span, its factor.
_Parts = tuple[FittedModel, Array, Array, Array, Array, Array]


@dataclass(frozen=True, eq=False)
class Formula:
    """A fitted model without its past: all that answers rows.

    Parameters
    ----------
    estimator : str
        Name of the model's class.
    kernel : Kernel
        Settled, and made of formulas alone.
    rows : ndarray of shape (m, d)
        All rows that kernel values are needed with; the first s of them span what errors are measured to.
    axis_rows : ndarray of shape (k,)
        Positions of the rows that projections are made of, ascending.
    projection : ndarray of shape (k, q)
        A projection is k(x, rows[axis_rows]) projection - offset.
    offset : ndarray of shape (q,)
    factor : ndarray of shape (s, s)
        Lower Cholesky factor L of k(rows[:s], rows[:s]): the error is k(x, x) - abs(L^-1 k(rows[:s], x))^2.
    facts : dict of str to str
        What else is worth telling: the number of atoms, what the model was learned from.
    feature_names : list of str or None
        None where the first rows came without names.
    """

    estimator: str
    kernel: Kernel
    rows: Array
    axis_rows: Positions
    projection: Array
    offset: Array
    factor: Array
    facts: dict[str, str]
    feature_names: list[str] | None

    @property
    def n_features(self) -> int:
        """Number of columns of a row."""
        return int(self.rows.shape[1])

    @property
    def n_span(self) -> int:
        """Number of rows that span what errors are measured to."""
        return len(self.factor)

    def own_value(self) -> float | None:
        """Return k(x, x) where it is the same for all rows, and None where it is not."""
        return float(self.kernel.diagonal(np.zeros((1, self.n_features)))[0]) if self.kernel.is_stationary else None

    def transform(self, rows: Array) -> Array:
        """Project rows, as the model does.

        Parameters
        ----------
        rows : ndarray of shape (n, d)

        Returns
        -------
        ndarray of shape (n, q)
        """
        projected: Array = self.kernel.program.matrix(rows, self.rows[self.axis_rows]) @ self.projection - self.offset
        return projected

    def reconstruction_error(self, rows: Array) -> Array:
        """Measure squared distances to the span, as the model does.

        Parameters
        ----------
        rows : ndarray of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        coordinates = solve_factor(self.factor, self.kernel.program.matrix(rows, self.rows[: self.n_span]))
        errors = self.kernel.program.diagonal(rows) - np.einsum("ij,ij->i", coordinates, coordinates)
        clipped: Array = np.maximum(errors, 0.0)
        return clipped


def formula_of(model: Any, *, where: str, language: str) -> Formula:
    """Take from a model what its answers are made of.

    Parameters
    ----------
    model : estimator
        Of this library, fitted.
    where : str
        Who asks, for the error text.
    language : str
        What the answers shall be written in, for the error text.

    Returns
    -------
    Formula

    Raises
    ------
    TypeError
        Not an estimator of this library.
    NotFittedError
        No row was seen yet.
    ValueError
        The kernel asks functions of the caller, or no row was kept.
    """
    if not isinstance(model, SnapshotEstimator | KernelPCA):
        raise TypeError(
            f"{where}: expected a fitted model (StreamingKernelPCA, KernelPCA, SparseKernelPCA or "
            f"ApproximateKernelPCA) but got {_described(model)}; of a pipeline, pass the step that is the model"
        )
    parts = _exact_parts(model) if isinstance(model, KernelPCA) else _snapshot_parts(model)
    if parts is None:
        raise not_fitted(type(model).__name__, where)
    answers, axis_atoms, coefficients, offset, span, factor = parts
    _check_exportable(answers.kernel, where, language)
    if not len(span):
        raise ValueError(
            f"{where}: expected a model that keeps at least one row but this one keeps none: k(x, x) was 0 for all "
            "rows so far; let it learn from rows that differ from zero"
        )
    rows, (_, axis_rows) = _united(span, axis_atoms)
    # Equal rows, of which KernelPCA may keep several, become one with the sum of their coefficients.
    axis_rows, places = np.unique(axis_rows, return_inverse=True)
    projection = np.zeros((len(axis_rows), len(offset)))
    np.add.at(projection, places, coefficients)
    if not len(axis_rows):
        axis_rows, projection = np.zeros(1, dtype=np.int64), np.zeros((1, len(offset)))
    return Formula(
        estimator=type(model).__name__,
        kernel=answers.kernel,
        rows=rows,
        axis_rows=axis_rows,
        projection=projection,
        offset=offset,
        factor=factor,
        facts=_facts(model, answers),
        feature_names=_feature_names(model),
    )


def _snapshot_parts(model: SnapshotEstimator) -> _Parts | None:
    s = model._snapshot()
    return None if s is None else (s, s.active_atoms, s.projection, s.offset, s.span_atoms, s.span_factor)


def _exact_parts(model: KernelPCA) -> _Parts | None:
    e = model._snapshot()
    return None if e is None else (e, e.atoms, e.projection, e.offset, e.independent_rows, e.factor)


def _check_exportable(kernel: Kernel, where: str, language: str) -> None:
    if not kernel.is_compiled:
        raise ValueError(
            f"{where}: expected a kernel made of formulas but {kernel!r} asks a function of yours, which cannot be "
            f"written in {language}; combine the kernels of streamkpca.kernels without Custom and scaled_by"
        )


def _united(*parts: Array) -> tuple[Array, list[Positions]]:
    """Put rows of several tables into one, each row once, in the order of its first appearance."""
    places: dict[bytes, int] = {}
    positions = [
        np.array([places.setdefault(row.tobytes(), len(places)) for row in part], dtype=np.int64) for part in parts
    ]
    rows = np.frombuffer(b"".join(places)).reshape(len(places), -1)
    # Compiled loops are compiled anew for arrays that nobody can write to.
    return rows.copy(), positions


def _facts(model: Estimator, answers: FittedModel) -> dict[str, str]:
    facts = {"n_atoms": str(len(answers.atoms)), "total_weight": repr(float(answers.total_weight))}
    # Only streams count rows; batch estimators know the sum of their weights.
    n_seen = getattr(model, "n_samples_seen_", None)
    return facts if n_seen is None else {**facts, "n_samples_seen": str(n_seen)}


def _feature_names(model: Estimator) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _described(model: Any) -> str:
    return f"the class {model.__name__}" if isinstance(model, type) else f"an object of type {type(model).__name__}"
