"""The part of a model that an export writes: its kernel, and the few tables that its answers are computed from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.errors import NotFittedError, not_fitted
from streamkpca.kernels import Kernel
from streamkpca.kernels.program import Base
from streamkpca.models.approximate import ApproximateKernelPCA
from streamkpca.models.exact import KernelPCA
from streamkpca.models.sparse import SparseKernelPCA
from streamkpca.models.streaming import StreamingKernelPCA

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Formula:
    """A fitted model without its past: everything that answers rows.

    Attributes
    ----------
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
        The model's class, the number of atoms, and the rows that it learned.
    feature_names : list of str or None
        None where the first rows came without names.
    """

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


def formula_of(model: Any, *, where: str, language: str, single: str | None) -> Formula:
    """Take from a fitted model of this library the tables that its answers need, or say why it cannot be exported.

    `where` (the caller), `language` (of the export) and `single` (the name of single precision, if that is wanted) are
    for the error texts.
    """
    if not isinstance(model, StreamingKernelPCA | KernelPCA | SparseKernelPCA | ApproximateKernelPCA):
        got = f"the class {model.__name__}" if isinstance(model, type) else f"an object of type {type(model).__name__}"
        raise TypeError(
            f"{where}: expected a fitted model (StreamingKernelPCA, KernelPCA, SparseKernelPCA or "
            f"ApproximateKernelPCA) but got {got}; from a pipeline, pass the step that is the model"
        )
    try:
        fitted: Any = model.snapshot_
    except NotFittedError:
        raise not_fitted(type(model).__name__, where) from None
    if fitted.has_gaps:
        raise ValueError(
            f"{where}: expected a model of complete rows but this one takes rows with gaps (on_missing='marginal'), "
            f"which are not written in {language}; export a model that has learned the rows as impute completes them, "
            "or with on_missing='skip', and give it complete rows"
        )
    if not fitted.kernel.is_compiled:
        raise ValueError(
            f"{where}: expected a kernel made of formulas but {fitted.kernel!r} calls a function of yours, which "
            f"cannot be written in {language}; combine the kernels of streamkpca.kernels without Custom"
        )
    axis_atoms, span, factor = fitted.active_atoms, fitted.span_atoms, fitted.span_factor
    if not len(span):
        raise ValueError(
            f"{where}: expected a model that keeps at least one row but this one keeps none: k(x, x) was 0 for all "
            "rows so far; fit it to rows that differ from zero"
        )
    rows, positions = _united(span, axis_atoms)
    # KernelPCA may keep equal rows several times: they become one row with the sum of their coefficients. A model
    # without axes gets one row with no coefficients.
    axis_rows, sums = np.unique(positions, return_inverse=True) if len(positions) else (np.array([0]), positions)
    projection = np.zeros((len(axis_rows), len(fitted.offset)))
    np.add.at(projection, sums, fitted.projection)
    if single is not None:
        _check_single_categories(fitted.kernel, rows, where=where, single=single)
    names = getattr(model, "feature_names_in_", None)
    return Formula(
        kernel=fitted.kernel,
        rows=rows,
        axis_rows=axis_rows,
        projection=projection,
        offset=fitted.offset,
        factor=factor,
        facts=_facts(model, fitted),
        feature_names=None if names is None else [str(name) for name in names],
    )


def _check_single_categories(kernel: Kernel, rows: Array, *, where: str, single: str) -> None:
    """Refuse categories that numbers of single precision cannot tell apart."""
    for matrix in kernel.program.base_matrices:
        codes = matrix.view.selected(rows)
        if matrix.base is Base.EQUAL and (codes.astype(np.float32) != codes).any():
            raise ValueError(
                f'{where}: expected categories that single precision can tell apart, for dtype="{single}", but some '
                "are beyond it; give the model whole numbers below 2**24 for categories, or use double precision"
            )


def _united(span: Array, axis_atoms: Array) -> tuple[Array, Positions]:
    """Join two tables into one that holds each row once, the first table first; return the positions of the second."""
    known: dict[bytes, int] = {}
    _, positions = [
        np.array([known.setdefault(row.tobytes(), len(known)) for row in part], dtype=np.int64)
        for part in (span, axis_atoms)
    ]
    # A copy, because compiled loops would be compiled again for read-only arrays.
    return np.frombuffer(b"".join(known)).reshape(len(known), -1).copy(), positions


def _facts(model: Any, fitted: Any) -> dict[str, str]:
    facts = {
        "estimator": type(model).__name__,
        "n_atoms": str(len(fitted.atoms)),
        "total_weight": repr(float(fitted.total_weight)),
    }
    # Only streams count rows; batch estimators have the sum of their weights alone.
    n_seen = getattr(model, "n_samples_seen_", None)
    return facts if n_seen is None else {**facts, "n_samples_seen": str(n_seen)}
