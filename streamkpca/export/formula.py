"""The part of a model that an export writes: its kernel, and the few tables that its answers are computed from."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca.errors import NotFittedError, not_fitted
from streamkpca.kernels import Kernel
from streamkpca.models.approximate import ApproximateKernelPCA
from streamkpca.models.exact import KernelPCA
from streamkpca.models.sparse import SparseKernelPCA
from streamkpca.models.streaming import StreamingKernelPCA

# Steps of single precision in the deviation of a column, at least: with 8 of them the novelty of rows was off by a
# tenth, with 4 by a fifth, and with one it said nothing.
_LEAST_STEPS = 4.0
# Steps of double precision up to which a column is constant but for rounding.
_ROUNDING_STEPS = 16.0


@dataclass(frozen=True, eq=False)
class Formula:
    """A fitted model without its past: everything that answers rows.

    `rows` (m, d) span the space that errors are measured to: with `factor` L (m, m) of k(rows, rows), these are k(x, x)
    - |L^-1 k(rows, x)|^2. Projections are k(x, rows[axis_rows]) projection - offset, with positions (k,), ascending,
    `projection` (k, q) and `offset` (q,). `facts` are the model's class, the number of atoms, and the rows that it
    learned; `feature_names` None where the first rows came without names.
    """

    kernel: Kernel
    rows: Array
    axis_rows: Positions
    projection: Array
    offset: Array
    factor: Array
    facts: dict[str, str]
    feature_names: list[str] | None

    def own_value(self) -> float | None:
        """Return k(x, x) if it is the same for all rows, and None if not."""
        return float(self.kernel.diagonal(np.zeros((1, self.rows.shape[1])))[0]) if self.kernel.is_stationary else None

    def mean_value(self) -> float:
        """Return the mean size of k(x, x) over the rows."""
        return float(np.abs(self.kernel.diagonal(self.rows)).mean())


def formula_of(model: Any, *, language: str, single: bool) -> Formula:
    """Take from a fitted model the tables that its answers need, or say why none can be written in `language`.

    Rows of `single` precision must tell apart what the model does.
    """
    if not isinstance(model, StreamingKernelPCA | KernelPCA | SparseKernelPCA | ApproximateKernelPCA):
        got = f"the class {model.__name__}" if isinstance(model, type) else f"an object of type {type(model).__name__}"
        raise TypeError(
            "expected a fitted model (StreamingKernelPCA, KernelPCA, SparseKernelPCA or "
            f"ApproximateKernelPCA) but got {got}; from a pipeline, pass the step that is the model"
        )
    try:
        fitted: Any = model.snapshot_
    except NotFittedError:
        raise not_fitted(type(model).__name__, f"to_{language.lower()}") from None
    if not fitted.kernel.is_compiled:
        raise ValueError(
            f"expected a kernel made of formulas but {fitted.kernel!r} calls a function of yours, which "
            f"cannot be written in {language}; combine the kernels of streamkpca.kernels without Custom"
        )
    # A copy, because compiled loops would be compiled again for read-only arrays.
    rows, n_active = fitted.span_atoms.copy(), len(fitted.active_atoms)
    if not len(rows):
        raise ValueError(
            "expected a model that keeps at least one row but this one keeps none: k(x, x) was 0 for all "
            "rows so far; fit it to rows that differ from zero"
        )
    if single:
        _check_steps(np.concatenate([rows, fitted.sample]))
    axis_rows, projection = np.arange(n_active), fitted.projection
    if not n_active:
        # A model without axes gets one row with no coefficients.
        axis_rows, projection = np.array([0]), np.zeros((1, len(fitted.offset)))
    elif n_active < len(rows):
        axis_rows = np.flatnonzero(fitted.weights)
    names, n_seen = getattr(model, "feature_names_in_", None), getattr(model, "n_samples_seen_", None)
    facts = {
        "estimator": type(model).__name__,
        "n_atoms": str(len(fitted.atoms)),
        "total_weight": repr(float(fitted.total_weight)),
        # Only streams count rows; batch estimators have the sum of their weights alone.
        **({} if n_seen is None else {"n_samples_seen": str(n_seen)}),
    }
    return Formula(
        kernel=fitted.kernel,
        rows=rows,
        axis_rows=axis_rows,
        projection=projection,
        offset=fitted.offset,
        factor=fitted.span_factor,
        facts=facts,
        feature_names=None if names is None else [str(name) for name in names],
    )


def _check_steps(rows: Array) -> None:
    """Refuse columns of rows (m, d) that vary by hardly more than the steps between numbers of single precision."""
    with np.errstate(all="ignore"):
        largest, spread = np.abs(rows).max(axis=0), rows.std(axis=0)
        steps = np.spacing(largest.astype(np.float32)).astype(np.float64)
    for j in np.flatnonzero((spread < _LEAST_STEPS * steps) & (spread > _ROUNDING_STEPS * np.spacing(largest)))[:1]:
        raise ValueError(
            f"expected numbers of single precision but feature {j} varies by {spread[j]:.3g} near {rows[0, j]:.6g}, "
            f"where these are {steps[j]:.3g} apart; subtract a constant from it, or use double precision"
        )
