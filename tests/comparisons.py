"""Comparisons that several test files use."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from streamkpca import kernels
from streamkpca.components.spectrum import covariance_divisor
from streamkpca.stream.state import record_pending

EXACT = {"max_atoms": None, "tolerance": 0.0}


def given_in_pieces(model, X, weights, pieces):
    """Pass rows in pieces of these sizes."""
    for start, size in zip(np.cumsum([0, *pieces[:-1]]), pieces, strict=True):
        piece = slice(start, start + size)
        model.partial_fit(X[piece], sample_weight=None if weights is None else weights[piece])
    return model


def mean_energy(X, weights, kernel):
    """Average k(x, x), the scale of everything measured in feature space."""
    return float(np.average(kernel.diagonal(X), weights=weights))


def assert_same_columns(ours, theirs, eigenvalues, scale, *, tolerance):
    """Compare projections up to sign where eigenvalues are far enough apart to make axes unique."""
    gaps = -np.diff(np.concatenate([[np.inf], eigenvalues]))
    apart = np.minimum(gaps[:-1], gaps[1:]) > 1e-3 * scale
    ours, theirs = ours[:, :-1][:, apart], theirs[:, :-1][:, apart]
    theirs = theirs * np.where((ours * theirs).sum(axis=0) < 0.0, -1.0, 1.0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.sqrt(scale))


def rounding_of(model):
    """Return how far rounding may have moved an eigenvalue, by the model's own account.

    Atoms that nearly depend on each other are known to so many digits less, whatever is done with them.
    """
    moments = record_pending(model.state_, model.settings()).moments
    divisor = covariance_divisor(moments, center=model.center)
    return moments.losses.rounding / divisor if divisor else 0.0


def bits(value):
    """All parts of a value, arrays as bytes; numbers in single precision as the doubles that they are."""
    if isinstance(value, np.ndarray):
        value = value.astype(np.float64) if value.dtype == np.float32 else value
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, kernels.Kernel):
        return {field.name: bits(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return tuple(bits(part) for part in value)
    if hasattr(value, "__dict__") and not isinstance(value, kernels.Kernel):
        return {name: bits(part) for name, part in vars(value).items()}
    return value


def state(model):
    """Return all that the future of a model depends on."""
    return bits_of_stream(model.state_)


def bits_of_stream(stream):
    """Return the summary, the snapshot, pending rows and the schedule, to the bit."""
    return {
        "summary": bits(stream.summary),
        "scheduled": bits(stream.scheduled),
        "published": bits(stream.published),
        "rows": bits(stream.pending.rows),
        "weights": bits(stream.pending.weights),
        "refit": stream.n_rows_at_refit,
    }


def assert_energy_is_conserved(summary):
    moments = summary.moments
    account = np.trace(moments.second) + moments.losses.total
    assert account == pytest.approx(moments.energy, rel=1e-10, abs=0.0)
    # Not negative but for rounding, which grows as atoms come close to each other, and is accounted for.
    least = -1e-10 * moments.energy - moments.losses.rounding
    assert moments.losses.on_arrival >= least
    assert moments.losses.by_removal >= least
