"""What several test files compare with."""

from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca import kernels
from streamkpca.components.spectrum import covariance_divisor

Array = npt.NDArray[np.float64]

EXACT: dict[str, Any] = {"max_atoms": None, "tolerance": 0.0}


def given_in_pieces(model: Any, X: Array, weights: Array | None, pieces: list[int]) -> Any:
    """Hand rows over in pieces of these sizes."""
    for start, size in zip(np.cumsum([0, *pieces[:-1]]), pieces, strict=True):
        piece = slice(start, start + size)
        model.partial_fit(X[piece], sample_weight=None if weights is None else weights[piece])
    return model


def mean_energy(X: Array, weights: Array | None, kernel: kernels.Kernel) -> float:
    """Average k(x, x), the scale of everything measured in feature space."""
    return float(np.average(kernel.diagonal(X), weights=weights))


def assert_same_columns(ours: Array, theirs: Array, eigenvalues: Array, scale: float, *, tolerance: float) -> None:
    """Compare projections up to sign where eigenvalues are far enough apart to make axes unique."""
    gaps = -np.diff(np.concatenate([[np.inf], eigenvalues]))
    apart = np.minimum(gaps[:-1], gaps[1:]) > 1e-3 * scale
    ours, theirs = ours[:, :-1][:, apart], theirs[:, :-1][:, apart]
    theirs = theirs * np.where((ours * theirs).sum(axis=0) < 0.0, -1.0, 1.0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.sqrt(scale))


def rounding_of(model: Any) -> float:
    """Say what rounding may have moved of an eigenvalue, by the model's own account.

    Atoms that nearly depend on each other are known to so many digits less, whatever is done with them.
    """
    moments = model._stream.completed(model._settings("rounding_of")).moments
    divisor = covariance_divisor(moments, center=model.center)
    return moments.losses.rounding / divisor if divisor else 0.0
