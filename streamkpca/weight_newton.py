"""Newton's method for the weights that are not zero."""

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from streamkpca.gram_model import Array, GramModel

_MOST_STEPS = 16
_MOST_HALVINGS = 6
# Where candidates depend on each other the curvature is singular, and the gradient across nothing but rounding.
_RIDGE = 1e-8


def polish(model: GramModel, least_gain: float) -> tuple[npt.NDArray[np.intp], GramModel]:
    r"""Maximise over all weights of a model together; those that would become negative leave it.

    Parameters
    ----------
    model : GramModel
        A reliable one.
    least_gain : float
        Stop when the next step promises no larger one.

    Returns
    -------
    kept : ndarray of int
        Positions of the weights that are still positive.
    model : GramModel
        Of these. It is reliable, and its likelihood is not below the first one's.

    Notes
    -----
    With A and Q scaled by W^1/2 on both sides, the derivatives by relative changes of the weights are

        gradient (Q_ii - A_ii) / 2,  curvature -(A o (Q - A / 2))_ij

    (o: entry by entry). Far from a maximum minus the curvature may be indefinite; its expectation under the model, for
    which Q = A, is not. A step is halved until it raises the likelihood. O(k^3) a step; near a maximum every step
    doubles the number of digits, where steps along one weight after another take hundreds.

    References
    ----------
    J. Nocedal and S. Wright, "Numerical Optimization", 2nd ed. (2006), sections 3.4 and 16.7; expected curvature as in
    Fisher's method of scoring.
    """
    kept = np.arange(len(model.weights))
    for _ in range(_MOST_STEPS):
        if not kept.size:
            break
        step, promised = _relative_step(model)
        if not promised > least_gain:
            break
        for halvings in range(_MOST_HALVINGS):
            proposal = model.weights * np.maximum(1.0 + 0.5**halvings * step, 0.0)
            remaining = np.flatnonzero(proposal)
            block = np.ix_(remaining, remaining)
            proposed = GramModel(model.gram[block], model.moment_gram[block], proposal[remaining])
            if proposed.gain > model.gain:
                break
        else:
            break
        kept, model = kept[remaining], proposed
    return kept, model


def _relative_step(model: GramModel) -> tuple[Array, float]:
    """Return Newton's step and what it promises to gain."""
    A, Q = model.scaled_matrices
    gradient = 0.5 * (Q.diagonal() - A.diagonal())
    for curvature in (A * (Q - 0.5 * A), 0.5 * A * A):
        curvature.flat[:: len(A) + 1] *= 1.0 + _RIDGE
        factor, failed = dpotrf(curvature)
        if not failed:
            step = dpotrs(factor, gradient)[0]
            return step, 0.5 * float(gradient @ step)
    return np.zeros_like(gradient), 0.0
