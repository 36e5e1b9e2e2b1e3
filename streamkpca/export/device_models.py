"""States of devices that learn, as models, and models as states of devices."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from streamkpca._core.arrays import Positions
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.reservoir import positions_outside
from streamkpca.dictionary.basis import AtomStats, Basis
from streamkpca.dictionary.moments import Moments, ProjectionLoss, RecordedMoments, RowSums
from streamkpca.errors import name_errors, not_fitted
from streamkpca.export.device_state import DeviceState, encode, origin_of, read, values_of
from streamkpca.models.streaming import StreamingKernelPCA, check_template
from streamkpca.stream.schedule import ResidualTrend, SearchSchedule
from streamkpca.stream.state import record_pending
from streamkpca.stream.summary import Summary

# Rounding in single precision, in units of that in double.
_SINGLE = float(np.finfo(np.float32).eps / np.finfo(np.float64).eps)
# Kernel values of a device's atoms are those of the model to this share of the largest.
_SAME_KERNEL = 1e-3
# Atoms that differ by less than this, in the kernel's units, are one atom.
_SAME_ATOM = 1e-6
# A row has no less of a device's means: see kpca_gain in c_learning.c.
_LEAST_GAIN = 2.0**-20
# No device learns more.
_MOST_ROWS = 2**60
# Rows of less than this share of the weight cannot be told from rounding.
_LEAST_SHARE = 1e-7


@name_errors
def from_device(data: bytes, model: StreamingKernelPCA, *, since: bytes | None = None) -> StreamingKernelPCA:
    """Make a model of the rows that a device has learned, from a state that it saved.

    Parameters
    ----------
    data : bytes
        What ``<name>_save`` wrote.
    model : StreamingKernelPCA
        The model that the device began with: that of `to_c`, or the one sent to it since by `to_device`. With `since`,
        any model of the same kernel.
    since : bytes, optional
        An earlier state of the same device, or the one that was sent to it, to learn of the rows after it alone.

    Returns
    -------
    StreamingKernelPCA
        A model of the device's own rows, in its atoms and with the parameters of `model`. Merge it with `model` and
        with those of other devices: ``streamkpca.merge(model, *devices)``.

    Raises
    ------
    TypeError, ValueError
        `model` is no StreamingKernelPCA; the bytes are cut short, a bit has flipped, the device began with another
        model, or `since` is no earlier state of it.

    Notes
    -----
    The rows of `model` are subtracted, which the device counts among its own. Moments are accurate to single precision,
    relative to all rows that the device counts. If it has replaced atoms, directions that less than nothing would be
    left along are set to zero, and the account of energy counts that as lost; `eigenvalue_bounds_` are then wide. A
    device keeps no sample of rows: thresholds and certificates of a union rest on the sample of `model`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA, merge
    >>> from streamkpca.export import from_device, to_device
    >>> from streamkpca.kernels import RBF
    >>> rows = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = StreamingKernelPCA(2, kernel=RBF(0.3), max_atoms=16).partial_fit(rows)
    >>> device = from_device(to_device(model), model)
    >>> device.n_samples_seen_, merge(model, device).n_samples_seen_
    (0, 500)
    """
    check_template(model)
    state, settings = model.state_, model.settings()
    device, begun = read(data), record_pending(state, settings)
    _check_same(device, begun, settings.half_life)
    before: RowSums
    if since is None:
        n_before, n_refused, old_basis, before = begun.n_rows, 0, begun.basis, begun.moments
        if device.values["origin"] != origin_of(begun):
            raise _refuse(f"this model of {n_before:,} rows at its beginning", "one that began with another")
    else:
        earlier = read(since)
        _check_earlier(earlier, device)
        n_before, n_refused = earlier.n_rows, earlier.values["n_refused"]
        old_basis, _, before = _sums_of(earlier, begun.basis)
    basis, kept, every = _sums_of(device, begun.basis)
    n_new = device.n_rows - n_before
    if not 0 <= n_new < _MOST_ROWS:
        raise _refuse("an account of its rows", f"one of {n_new:,} rows")
    own = _later(every, before.map(old_basis.vectors_in(basis).T), n_new, settings.half_life)
    recorded = float(np.trace(own.second))
    # Some of what was lost was the model's.
    removed = min(max(device.lost_by_removal, 0.0), max(own.energy - recorded, 0.0))
    losses = ProjectionLoss(
        other_arrival=own.energy - recorded - removed,
        other_removal=removed,
        # One atom a row can be replaced, and lengths of losses add up; no row loses more than it had.
        other_length=min(math.sqrt(removed * n_new), math.sqrt(recorded + removed) + math.sqrt(recorded)),
        rounding=_SINGLE * basis.rounding_amplification * device.sums.energy,
    )
    age = np.minimum(device.weight_since_admission[kept], own.total_weight)
    empty = model.without_rows()
    summary = replace(
        begun.without_rows(),
        basis=basis,
        record=RecordedMoments(Moments(**vars(own), losses=losses)),
        atom_stats=AtomStats(positions_outside(basis.atoms), np.zeros(basis.size), age),
        n_rows=n_new,
        schedule=SearchSchedule(),
        trend=ResidualTrend(),
    )
    n_rejected = max(device.values["n_refused"] - n_refused, 0)
    empty.state_ = replace_fields(empty.state_, summary=summary, n_rejected=n_rejected)
    return empty


@name_errors
def to_device(model: StreamingKernelPCA, data: bytes | None = None) -> bytes:
    """Write what a model has learned as a state that a device loads in place of its own.

    Parameters
    ----------
    model : StreamingKernelPCA
        With the kernel and the `max_atoms` of the device's first model, such as the union of a fleet.
    data : bytes, optional
        The newest state that the device has saved, which the new one continues: a device that has saved another one
        since does not take it. Without `data`, the state is for a device that has saved none.

    Returns
    -------
    bytes
        For ``<name>_load``, from the slot that ``<name>_slot`` names. The rows of `model` then count as the device's,
        and `from_device` takes `model` next time, or these bytes as `since`. Its level of novelty is that of the device
        or of the model, the higher one, until it has followed its rows; the relation stays that of the C file.

    Raises
    ------
    TypeError, ValueError
        The bytes are damaged, or the model has other features, another kernel, half-life or `max_atoms`; or as `to_c`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.export import to_device
    >>> from streamkpca.kernels import RBF
    >>> rows = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = StreamingKernelPCA(2, kernel=RBF(0.3), max_atoms=16).partial_fit(rows)
    >>> state = to_device(model)
    >>> to_device(model.partial_fit([[1.0, 2.0, 3.0]]), state) == state
    False
    """
    check_template(model)
    if not hasattr(model, "snapshot_"):
        raise not_fitted(type(model).__name__, "to_device")
    if data is None:
        return encode(values_of(model) | {"is_sent": 1})
    settings, device = model.settings(), read(data)
    begun = record_pending(model.state_, settings)
    _check_same(device, begun, settings.half_life)
    # Numbers start again at 0, as on the device.
    later = {name: (device.values[name] + 1) % 2**32 for name in ("sequence", "seed")}
    # A union explains each place worse than the atoms that were found there, and knows no rows of devices.
    return encode(values_of(model, like=device.values) | later | {"parent": device.values["crc"], "is_sent": 1})


def _refuse(what: str, got: object) -> ValueError:
    remedy = "pass the model that the device began with: that of to_c, or the one sent to it since"
    return ValueError(f"expected the state of a device with {what} but got {got}; {remedy}")


def _check_same(device: DeviceState, begun: Summary, half_life: float | None) -> None:
    """Refuse a device of another width, half-life or kernel than a model's."""
    kernel, n_features = begun.basis.kernel, begun.basis.atoms.shape[1]
    if device.atoms.shape[1] != n_features:
        raise _refuse(f"{n_features} features", device.atoms.shape[1])
    if np.float32(half_life or 0.0) != np.float32(device.values["half_life"]):
        raise _refuse(f"half_life={half_life}", device.values["half_life"] or None)
    expected = kernel.matrix(device.atoms, device.atoms)
    apart = np.abs(device.factor @ device.factor.T - expected).max()
    if not apart <= _SAME_KERNEL * np.abs(expected).max():
        raise _refuse(f"the kernel {kernel!r}", f"kernel values that differ by up to {apart:.3g}")


def _check_earlier(earlier: DeviceState, device: DeviceState) -> None:
    """Refuse a state that the device of another one cannot have had before."""
    is_same = earlier.digest == device.digest and earlier.values["origin"] == device.values["origin"]
    # Numbers start again at 0.
    n_saves = (device.values["sequence"] - earlier.values["sequence"]) % 2**32
    if not is_same or earlier.n_rows > device.n_rows or n_saves >= 2**31:
        what = f"{earlier.n_rows:,} rows and save {earlier.values['sequence']}" if is_same else "another beginning"
        raise ValueError(
            f"expected since to be an earlier state of the device, which has {device.n_rows:,} rows and save "
            f"{device.values['sequence']}, but got one of {what}; pass what this device saved or was sent before, or "
            "leave since out for all of its rows"
        )


def _sums_of(device: DeviceState, begun: Basis) -> tuple[Basis, Positions, RowSums]:
    """Return the basis of a device's atoms, see `_basis_of`, and the sums over all rows that it counts."""
    basis, kept = _basis_of(device, begun)
    sums = device.sums
    totals = sums.total_weight, sums.total_squared_weight, sums.energy, sums.largest_energy
    if not min(totals) >= 0.0 < sums.total_weight:
        raise _refuse("an account of its rows", f"the totals {totals}")
    return basis, kept, sums.map(solve_triangular(basis.factor, device.factor[kept], lower=True))


def _basis_of(device: DeviceState, begun: Basis) -> tuple[Basis, Positions]:
    """Return the basis of a device's atoms, and the positions of those that are independent in double precision.

    Atoms that are those of the model, up to rounding, are taken from there: states of a fleet share them.
    """
    scale = device.values["scale"].astype(np.float64)
    offsets = np.abs((device.atoms[:, None] - begun.atoms) * scale).max(axis=2)
    nearest = offsets.argmin(axis=1)
    sizes = 1.0 + np.abs((device.atoms - device.values["centre"]) * scale).max(axis=1)
    is_known = offsets.min(axis=1) <= _SAME_ATOM * sizes
    if is_known.all() and np.array_equal(nearest, np.arange(begun.size)):
        return begun, nearest
    atoms = np.where(is_known[:, None], begun.atoms[nearest], device.atoms)
    return Basis.empty(begun.kernel, atoms.shape[1]).extend(atoms)


def _later(every: RowSums, before: RowSums, n_new: int, half_life: float | None) -> RowSums:
    """Return the sums over the n new rows of a device, given those over all and over the earlier ones, in one basis.

    Directions that less than nothing is left along get none.
    """
    decay = 1.0 if half_life is None else 2.0 ** (-n_new / half_life)
    weight = every.total_weight - decay * before.total_weight
    share = _share_before(before.total_weight, n_new, half_life)
    if not n_new or weight <= _LEAST_SHARE * every.total_weight or share >= 1.0 - _LEAST_SHARE:
        return RowSums.zero(len(every.first))

    def mean(whole: Any, part: Any) -> Any:
        return (whole / every.total_weight - share * part / before.total_weight) / (1.0 - share)

    first, second = mean(every.first, before.first), mean(every.second, before.second)
    values, vectors = np.linalg.eigh(second - np.outer(first, first))
    if values[0] < 0.0:
        covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
        second = 0.5 * (covariance + covariance.T) + np.outer(first, first)
    return RowSums(
        total_weight=weight,
        total_squared_weight=max(every.total_squared_weight - decay**2 * before.total_squared_weight, 0.0),
        energy=weight * max(mean(every.energy, before.energy), 0.0),
        largest_energy=every.largest_energy,
        first=weight * first,
        second=weight * second,
    )


def _share_before(weight: float, n_new: int, half_life: float | None) -> float:
    """Return the share in a device's means of the rows before n new ones.

    With all rows of weight W so far, a new one has the share 1 / W, but no less than `_LEAST_GAIN`.
    """
    most, n_growing = 1.0 / _LEAST_GAIN, n_new
    if half_life is None:
        n_growing = int(np.clip(most - weight, 0, n_new))
        share = weight / (weight + n_growing)
    else:
        fading = -math.expm1(-math.log(2.0) / half_life)
        if fading < _LEAST_GAIN:
            # The weight tends to 1 / fading.
            left = (1.0 / fading - most) / max(1.0 / fading - weight, 1.0 / fading - most)
            n_growing = min(int(-half_life * math.log2(left)), n_new)
        decay = 2.0 ** (-n_growing / half_life)
        share = decay * weight / (decay * weight + (1.0 - decay) / fading)
    return float(share * (1.0 - _LEAST_GAIN) ** (n_new - n_growing))
