"""The part of a model that an export writes: its kernel, and the few tables that its answers are computed from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import solve_factor
from streamkpca.components.novelty import NoveltyScore
from streamkpca.errors import not_fitted
from streamkpca.kernels import Kernel
from streamkpca.kernels.equality import category_columns
from streamkpca.models._base import Estimator, FittedModel
from streamkpca.models._snapshot_base import SnapshotEstimator
from streamkpca.models.exact import KernelPCA

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
# Fitted model, rows of the axes, coefficients over them, offset, rows of the span, its factor.
_Parts = tuple[FittedModel, Array, Array, Array, Array, Array]


@dataclass(frozen=True, eq=False)
class Formula:
    """A fitted model without its past: everything that answers rows.

    Attributes
    ----------
    estimator : str
        Name of the model's class.
    kernel : Kernel
        Settled, and without functions of the user.
    rows : ndarray of shape (m, d)
        All rows that kernel values are needed with. The first s of them span the space that errors are measured to.
    axis_rows : ndarray of shape (k,)
        Positions of the rows that projections are computed from, ascending.
    projection : ndarray of shape (k, q)
        A projection is k(x, rows[axis_rows]) projection - offset.
    offset : ndarray of shape (q,)
    factor : ndarray of shape (s, s)
        Lower Cholesky factor L of k(rows[:s], rows[:s]): the error is k(x, x) - abs(L^-1 k(rows[:s], x))^2.
    facts : dict of str to str
        The number of atoms, and what the model was learned from.
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
        """Number of rows that span the space that errors are measured to."""
        return len(self.factor)

    def own_value(self) -> float | None:
        """Return k(x, x) if it is the same for all rows, and None if not."""
        return float(self.kernel.diagonal(np.zeros((1, self.n_features)))[0]) if self.kernel.is_stationary else None

    def transform(self, rows: Array) -> Array:
        """Project rows (n, d), as the model does."""
        projected: Array = self.kernel.program.matrix(rows, self.rows[self.axis_rows]) @ self.projection - self.offset
        return projected

    def reconstruction_error(self, rows: Array) -> Array:
        """Measure squared distances of rows (n, d) to the span, as the model does."""
        coordinates = solve_factor(self.factor, self.kernel.program.matrix(rows, self.rows[: self.n_span]))
        errors = self.kernel.program.diagonal(rows) - np.einsum("ij,ij->i", coordinates, coordinates)
        clipped: Array = np.maximum(errors, 0.0)
        return clipped

    def novelty(self, rows: Array) -> Array:
        """Score rows (n, d), as the model does."""
        return NoveltyScore(self.kernel, self.rows[: self.n_span], self.factor).of_rows(rows)


def formula_of(model: Any, *, where: str, language: str) -> Formula:
    """Take from a fitted model of this library what its answers are computed from, or say why it cannot be exported.

    `where` (the caller) and `language` (of the export) are for the error texts.
    """
    if not isinstance(model, SnapshotEstimator | KernelPCA):
        got = f"the class {model.__name__}" if isinstance(model, type) else f"an object of type {type(model).__name__}"
        raise TypeError(
            f"{where}: expected a fitted model (StreamingKernelPCA, KernelPCA, SparseKernelPCA or "
            f"ApproximateKernelPCA) but got {got}; from a pipeline, pass the step that is the model"
        )
    parts = _exact_parts(model) if isinstance(model, KernelPCA) else _snapshot_parts(model)
    if parts is None:
        raise not_fitted(type(model).__name__, where)
    fitted, axis_atoms, coefficients, offset, span, factor = parts
    if fitted.has_gaps:
        # What is written would answer NaN where the model answers with what a row has.
        raise ValueError(
            f"{where}: expected a model of complete rows but this one takes rows with gaps (on_missing='marginal'), "
            f"which are not written in {language}; export a model that has learned the rows as impute completes them, "
            "or with on_missing='skip', and give it complete rows"
        )
    if not fitted.kernel.is_compiled:
        raise ValueError(
            f"{where}: expected a kernel made of formulas but {fitted.kernel!r} calls a function of yours, which "
            f"cannot be written in {language}; combine the kernels of streamkpca.kernels without Custom and scaled_by"
        )
    if not len(span):
        raise ValueError(
            f"{where}: expected a model that keeps at least one row but this one keeps none: k(x, x) was 0 for all "
            "rows so far; fit it to rows that differ from zero"
        )
    rows, (_, axis_rows) = _united(span, axis_atoms)
    # KernelPCA may keep equal rows several times: they become one row with the sum of their coefficients.
    axis_rows, sums = np.unique(axis_rows, return_inverse=True)
    projection = np.zeros((len(axis_rows), len(offset)))
    np.add.at(projection, sums, coefficients)
    if not len(axis_rows):
        axis_rows, projection = np.zeros(1, dtype=np.int64), np.zeros((1, len(offset)))
    return Formula(
        estimator=type(model).__name__,
        kernel=fitted.kernel,
        rows=rows,
        axis_rows=axis_rows,
        projection=projection,
        offset=offset,
        factor=factor,
        facts=_facts(model, fitted),
        feature_names=_feature_names(model),
    )


def check_single_categories(formula: Formula, *, where: str, dtypes: tuple[str, str]) -> None:
    """Refuse categories that numbers of single precision cannot tell apart; `dtypes` are the names of both types."""
    codes = formula.rows[:, sorted(category_columns(formula.kernel, formula.n_features))]
    if (codes.astype(np.float32) != codes).any():
        single, double = dtypes
        raise ValueError(
            f'{where}: expected categories that single precision can tell apart, for dtype="{single}", but some are '
            "beyond it, as the codes of text are; give the model whole numbers below 2**24 for categories, or use "
            f'dtype="{double}"'
        )


def _snapshot_parts(model: SnapshotEstimator) -> _Parts | None:
    s = model._snapshot()
    return None if s is None else (s, s.active_atoms, s.projection, s.offset, s.span_atoms, s.span_factor)


def _exact_parts(model: KernelPCA) -> _Parts | None:
    e = model._snapshot()
    return None if e is None else (e, e.atoms, e.projection, e.offset, e.independent_rows, e.factor)


def _united(*parts: Array) -> tuple[Array, list[Positions]]:
    """Join tables into one that holds each row once, in the order of first appearance; return the positions of each."""
    known: dict[bytes, int] = {}
    positions = [
        np.array([known.setdefault(row.tobytes(), len(known)) for row in part], dtype=np.int64) for part in parts
    ]
    # A copy, because compiled loops would be compiled again for read-only arrays.
    return np.frombuffer(b"".join(known)).reshape(len(known), -1).copy(), positions


def _facts(model: Estimator, fitted: FittedModel) -> dict[str, str]:
    facts = {"n_atoms": str(len(fitted.atoms)), "total_weight": repr(float(fitted.total_weight))}
    # Only streams count rows; batch estimators have the sum of their weights alone.
    n_seen = getattr(model, "n_samples_seen_", None)
    return facts if n_seen is None else {**facts, "n_samples_seen": str(n_seen)}


def _feature_names(model: Estimator) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]
