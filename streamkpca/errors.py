"""Exceptions and warnings of the library."""

import sys


class NotFittedError(ValueError, AttributeError):
    """Raised when a model is asked before it has seen any row."""


class IndefiniteKernelWarning(UserWarning):
    """Issued when kernel values cannot be inner products.

    A positive definite kernel never gives a row a negative squared distance to the span of other rows. Where
    that happens beyond rounding, the energy account stays exact, but tolerances and bounds no longer hold.
    """


class CheckpointError(ValueError):
    """Raised when a checkpoint cannot be read: damaged, not one at all, of a later format, or without meaning."""


class CheckpointWarning(UserWarning):
    """Issued when a checkpoint cannot be read and an older one is tried."""


class SparsityError(ValueError):
    """Raised when the noise variance or number of active atoms asked for leaves nothing to make axes of."""


class SparsityWarning(UserWarning):
    """Issued when the sparsity asked for cannot be had exactly, or not yet."""


def not_fitted(estimator: str, request: str) -> NotFittedError:
    """Make the error for a request that needs a fitted model.

    Parameters
    ----------
    estimator : str
        Name of the estimator's class.
    request : str
        The method or attribute asked for.

    Returns
    -------
    NotFittedError
        Also an instance of scikit-learn's class of the same name when scikit-learn is loaded, so that code
        written for scikit-learn catches it. It is never imported for this.
    """
    message = (
        f"{request} needs a fitted {estimator}, but this one has seen no rows yet; call 'fit' or 'partial_fit' first"
    )
    peer = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", None)
    if peer is None:
        return NotFittedError(message)
    both: type[NotFittedError] = type("NotFittedError", (NotFittedError, peer), {"__module__": __name__})
    return both(message)
