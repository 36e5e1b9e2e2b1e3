"""The state of a device that learns: one table of its fields, from which the C file and Python's reader are made.

A saved state is a record of 4-byte little-endian words, the fields of `FIELDS` in their order without gaps: "u" are
unsigned integers, "f" numbers of IEEE single precision, arrays in C order, triangles row after row up to the diagonal.
With m = `max_atoms`, d = `n_features` and t = m (m + 1) / 2, the words before `sequence` are constants of the C file
(its flash), those from `sequence` on its memory, and the last word is the CRC-32 (of zlib) of all words before it.

Rows and atoms are kept as u = (x - centre) scale, and energies as shares of `unit`, such that the kernel is
``unit * exp(-|u - v|^2)`` (`kernel` 1) or ``unit * u.v`` (`kernel` 2, whose centre is 0). Moments and the account are
kept as weighted means, not sums. The first `n_atoms` of the `max_atoms` places count. `digest` is that of the
constants, so the states of all devices with the same C file can be told from others.

A device keeps two records. Its state is the whole one that continues the other; `parent` tells which. If neither does,
it is the one that was not sent, and of two saved ones that with the higher `sequence`.
"""

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.dictionary.moments import RowSums
from streamkpca.dictionary.selection import Choice
from streamkpca.export.formula import formula_of
from streamkpca.export.segments import centre_of
from streamkpca.export.views import LEAST_ROWS, MOST_FEATURES, SINGLE_ROUNDING, BothViews, fit_views, tabulate
from streamkpca.kernels import RBF, Kernel, Linear
from streamkpca.kernels.base import InUnits, Scaled
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.stream.parameters import Settings
from streamkpca.stream.state import record_pending
from streamkpca.stream.summary import Summary

# Spells "SKPC".
MAGIC = 0x4350_4B53
# Of the layout.
VERSION = 1
# Rows at a time that may become atoms.
N_CANDIDATES = 3
RBF_KERNEL = 1
LINEAR_KERNEL = 2
# Rows of which one is an alarm, by default.
RETURN_PERIOD = 100.0


class StateField(NamedTuple):
    """A field: its name, "u" or "f", its shape in terms of m, d, p = `n_candidates` and t, and its meaning."""

    name: str
    kind: str
    shape: tuple[str, ...]
    meaning: str


CONSTANTS = (
    StateField("magic", "u", (), "SKPC"),
    StateField("version", "u", (), "of this layout"),
    StateField("n_bytes", "u", (), "size of the record, with its CRC"),
    StateField("digest", "u", ("2",), "first 8 bytes of the SHA-256 of the constants below"),
    StateField("kernel", "u", (), "1 RBF, 2 linear"),
    StateField("max_atoms", "u", (), "m"),
    StateField("n_features", "u", (), "d"),
    StateField("n_candidates", "u", (), "p"),
    StateField("centre", "f", ("d",), "u = (x - centre) * scale"),
    StateField("scale", "f", ("d",), "reciprocals of the kernel's units, with the width of an RBF kernel"),
    StateField("unit", "f", (), "what energies and scores are kept in shares of"),
    StateField("half_life", "f", (), "rows until weights halve; 0: never"),
    StateField("return_period", "f", (), "rows of which each view should find one as rare as an alarm"),
    StateField("scales", "u", (), "CRC-32 of the tables of the relation and of rarities"),
    StateField("tolerance", "f", (), "share of the variance that may stay unexplained"),
)
MEMORY = (
    StateField("sequence", "u", (), "number of the save; 0 before the first"),
    StateField("parent", "u", (), "checksum of the record that this one continues; 0: of none"),
    StateField("is_sent", "u", (), "1 in a record that was made for the device, 0 in those that it saves"),
    StateField("n_atoms", "u", (), "n"),
    StateField("n_rows", "u", ("2",), "rows learned, low and high word, those before the export included"),
    StateField("n_refused", "u", (), "rows with NaN, infinity or numbers beyond 1e7 units"),
    StateField("seed", "u", (), "of the generator"),
    StateField("turn", "u", (), "atom whose loss is computed next"),
    StateField("origin", "u", (), "of the model that it began with, see origin_of"),
    StateField("threshold", "f", ("2",), "novelty and surprise above which a row is an alarm"),
    StateField("run", "f", ("2",), "alarms of each one after the other"),
    StateField("mean", "f", ("d",), "mean row as u"),
    StateField("total_weight", "f", ("2",), "N as the sum of two numbers"),
    StateField("squared_weight", "f", ("2",), "sum of squared weights as the sum of two numbers"),
    StateField("largest_energy", "f", (), "largest k(x, x)"),
    StateField("energy", "f", (), "mean k(x, x)"),
    StateField("lost_on_arrival", "f", (), "mean energy that rows had outside the span when they came"),
    StateField("lost_by_removal", "f", (), "mean energy lost with atoms"),
    StateField("first", "f", ("m",), "mean coordinates"),
    StateField("second", "f", ("t",), "lower triangle of the mean products of coordinates"),
    StateField("factor", "f", ("t",), "lower Cholesky factor of the kernel between atoms"),
    StateField("atoms", "f", ("m", "d"), "atoms as u"),
    StateField("weight_since_admission", "f", ("m",), "weight of the rows since an atom came"),
    StateField("loss", "f", ("m",), "energy that rows would lose without an atom, when last computed"),
    StateField("candidate_rows", "f", ("p", "d"), "rows that may become atoms, as u"),
    StateField("candidate_coordinates", "f", ("p", "m"), "their coordinates"),
    StateField("candidate_residual", "f", ("p",), "their energies outside the span; 0: the place is free"),
    StateField("candidate_count", "f", ("p",), "rows that have judged each"),
    StateField("candidate_missed", "f", ("p",), "sum of the residuals of these rows"),
    StateField("candidate_batch", "f", ("p",), "sum of the energies that the rows of the present batch would win"),
    StateField("candidate_gain", "f", ("p",), "sum over the batches before of their mean energies won"),
    StateField("candidate_square", "f", ("p",), "sum of the squares of these means"),
    StateField("waiting_row", "f", ("d",), "row that becomes the next candidate, as u"),
    StateField("waiting_weight", "f", (), "sum of the residuals of the rows that it was drawn from"),
    StateField("waiting_count", "f", (), "number of these rows"),
)
FIELDS = (*CONSTANTS, *MEMORY, StateField("crc", "u", (), "CRC-32 of all words before"))


def layout_of(m: int, d: int) -> np.dtype[np.void]:
    """Return the layout of a record for m atoms and d features."""
    sizes = {"m": m, "d": d, "p": N_CANDIDATES, "t": m * (m + 1) // 2, "2": 2}
    kinds = {"u": "<u4", "f": "<f4"}
    return np.dtype([(field.name, kinds[field.kind], tuple(sizes[one] for one in field.shape)) for field in FIELDS])


def encode(values: dict[str, Any]) -> bytes:
    """Write a record of fields, and its magic, version, size, digest and CRC; ValueError beyond single precision."""
    layout = layout_of(int(values["max_atoms"]), int(values["n_features"]))
    record = np.zeros((), layout)
    for name, value in {**values, "magic": MAGIC, "version": VERSION, "n_bytes": layout.itemsize}.items():
        with np.errstate(over="ignore"):
            record[name] = value
        if not np.isfinite(record[name]).all():
            raise _beyond(name)
    record["digest"] = np.frombuffer(_digest(record.tobytes(), layout), "<u4")
    body = record.tobytes()[:-4]
    return body + zlib.crc32(body).to_bytes(4, "little")


def _beyond(name: str) -> ValueError:
    return ValueError(f"expected numbers of single precision but {name} is beyond it; scale the features")


def place_of(layout: np.dtype[np.void], name: str) -> int:
    """Return the byte at which a field begins."""
    assert layout.fields is not None
    return int(layout.fields[name][1])


def _digest(record: bytes, layout: np.dtype[np.void]) -> bytes:
    """Return the digest of the constants at the beginning of a record, 8 bytes."""
    constants = record[place_of(layout, "kernel") : place_of(layout, "sequence")]
    return hashlib.sha256(constants).digest()[:8]


def decode(record: bytes) -> dict[str, Any]:
    """Read all fields of a record as they are, float32; ValueError if it is not whole, or a bit has flipped."""

    def refuse(what: str) -> ValueError:
        return ValueError(f"expected the saved state of a device but {what}; save it on the device again")

    if not isinstance(record, bytes | bytearray | memoryview):
        raise TypeError(f"expected bytes but got {type(record).__name__}; read the file that holds them")
    if len(record) < 4 * len(FIELDS) or int.from_bytes(record[:4], "little") != MAGIC:
        raise refuse(f"the {len(record)} bytes do not begin as one")
    _, version, n_bytes, _, _, kernel, m, d, p = np.frombuffer(record, "<u4", 9).tolist()
    if version != VERSION:
        raise refuse(f"its layout is version {version}, not {VERSION}")
    # No layout is made of sizes beyond the record's.
    layout = layout_of(m, d) if 4 * (m + 1) * (m + d) <= len(record) else None
    if layout is None or p != N_CANDIDATES or not n_bytes == len(record) == layout.itemsize:
        raise refuse(f"it has {len(record)} bytes, and says {n_bytes}")
    if zlib.crc32(record[:-4]) != int.from_bytes(record[-4:], "little") or _digest(record, layout) != record[12:20]:
        raise refuse("its checksum is another")
    found = np.frombuffer(record, layout)[0]
    values = {name: found[name] if found[name].ndim else found[name].item() for name in layout.names or ()}
    if kernel not in (RBF_KERNEL, LINEAR_KERNEL) or not 1 <= values["n_atoms"] <= m:
        raise refuse(f"it holds {values['n_atoms']} of at most {m} atoms, and the kernel {kernel}")
    if not all(np.isfinite(value).all() for value in values.values()):
        raise refuse("it holds NaN or infinity")
    if min(values["unit"], *values["scale"]) <= 0.0:
        raise refuse("its unit or a scale is not positive")
    return values


def triangle(packed: Array, n: int) -> Array:
    """Unpack the leading n rows of a lower triangle: (n, n), zero above the diagonal."""
    lower = np.zeros((n, n))
    lower[np.tril_indices(n)] = packed[: n * (n + 1) // 2]
    return lower


def pack(lower: Array, m: int) -> Array:
    """Pack a lower triangle (n, n) as that of m rows, with zeros after it: (m (m + 1) / 2,)."""
    return pad(lower[np.tril_indices(len(lower))], m * (m + 1) // 2)


def pad(values: Array, count: int) -> Array:
    """Append zeros to values (n, ...) up to a count."""
    return np.concatenate([values, np.zeros((count - len(values), *values.shape[1:]))])


@dataclass(frozen=True, eq=False)
class DeviceState:
    """The atoms of a device and its sums over rows, in the caller's units, in float64: n atoms, d features.

    `sums` are in the coordinates of `factor`; `values` are all fields as saved.
    """

    digest: bytes
    atoms: Array
    factor: Array
    sums: RowSums
    lost_by_removal: float
    weight_since_admission: Array
    n_rows: int
    values: dict[str, Any]


def read(record: bytes) -> DeviceState:
    """Read a record; ValueError if it is none, or a bit has flipped."""
    values = decode(record)
    n, unit, weight = values["n_atoms"], values["unit"], float(values["total_weight"].sum(dtype=np.float64))
    second = triangle(values["second"], n) * unit * weight
    return DeviceState(
        digest=record[12:20],
        atoms=values["atoms"][:n] / values["scale"].astype(np.float64) + values["centre"],
        factor=triangle(values["factor"], n) * np.sqrt(unit),
        sums=RowSums(
            total_weight=weight,
            total_squared_weight=float(values["squared_weight"].sum(dtype=np.float64)),
            energy=values["energy"] * unit * weight,
            largest_energy=values["largest_energy"] * unit,
            first=values["first"][:n].astype(np.float64) * np.sqrt(unit) * weight,
            second=second + np.tril(second, -1).T,
        ),
        lost_by_removal=values["lost_by_removal"] * unit * weight,
        weight_since_admission=values["weight_since_admission"][:n].astype(np.float64),
        n_rows=int(values["n_rows"][0]) + (int(values["n_rows"][1]) << 32),
        values=values,
    )


# No atom has a residual below this share of k(x, x), 16 units in its last place: with 1e-4, slow sensors under a wide
# kernel kept too few atoms, and their faults were missed.
LEAST_RESIDUAL = 2e-6


def kernel_of_device(kernel: Kernel, n_features: int) -> tuple[int, Array, float]:
    """Return the kind of a kernel, its scale (d,) and its unit as a device has them; refuse other kernels."""
    scale, unit, inner = np.ones(n_features), 1.0, kernel
    while isinstance(inner, InUnits | Scaled):
        if isinstance(inner, Scaled):
            unit, inner = unit * inner.scale, inner.kernel
        elif isinstance(inner.units, tuple):
            scale, inner = scale / np.array(inner.units), inner.kernel
        else:
            break
    if isinstance(inner, RBF):
        return RBF_KERNEL, scale * np.sqrt(float(inner.gamma)), unit
    if isinstance(inner, Linear):
        return LINEAR_KERNEL, scale, unit
    raise ValueError(
        f"expected an RBF or linear kernel, with a unit for each feature, but got {kernel!r}, which devices "
        "do not learn with; give the model such a kernel, or export it without learning, by to_c"
    )


def origin_of(summary: Summary) -> int:
    """Return a number that tells what a model has learned from what others have: the CRC-32 of its rows and atoms."""
    with np.errstate(over="ignore"):
        atoms = np.ascontiguousarray(summary.basis.atoms, dtype="<f4")
    return zlib.crc32(atoms.tobytes(), summary.n_rows % 2**32)


def values_of(
    model: StreamingKernelPCA, *, return_period: float = RETURN_PERIOD, like: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the values of fields for a device that begins with what a model has learned; others are 0.

    With the values of a state as `like`, the constants are those of this state, so its device takes the record, once
    it has a higher `sequence` than what the device has saved. Its relation stays that of the device, and its level of
    novelty is that of the device or of the model, the higher one.
    """
    settings, m = _check_learner(model)
    begun = record_pending(model.state_, settings)
    summary, views = _leave_out_dependent(begun.solve()), fit_views(model)
    constants = _constants_of(
        summary, settings, return_period if views is None else return_period * views.rarity_divisor
    )
    if like is not None:
        _check_like(like, constants, summary.basis.kernel)
        constants = {name: like[name] for name in constants}
    constants = _round_constants(constants)
    if like is not None:
        judged = _levels_like(like, views, constants)
    elif views is not None:
        judged = _first_levels(views, constants)
    else:
        raise ValueError(
            f"expected a model with a sample of {LEAST_ROWS} rows or more, and of {MOST_FEATURES} features at "
            f"most, for a device that learns, but got one of {begun.n_rows} rows and {model.n_features_in_} features; "
            "let it learn more rows, or set reservoir_size"
        )
    counts = {"n_rows": [begun.n_rows % 2**32, begun.n_rows >> 32], "seed": 1, "origin": origin_of(begun)}
    return constants | judged | counts | _sums_of(summary, constants, m)


def _check_learner(model: StreamingKernelPCA) -> tuple[Settings, int]:
    """Refuse a model that no device could go on with; return its settings and its budget of atoms."""
    m = model.settings().max_atoms if isinstance(model, StreamingKernelPCA) else None
    if m is None:
        raise ValueError(
            "expected a StreamingKernelPCA with a budget of atoms, for a device that learns, but got "
            f"{model!r}; set max_atoms, such as 32"
        )
    # For its refusals: no row was seen, or no atom is kept.
    formula_of(model, language="C", single=True)
    return model.settings(), m


def _constants_of(summary: Summary, settings: Settings, return_period: float) -> dict[str, Any]:
    """Return what never changes on a device, in double precision."""
    basis, moments = summary.basis, summary.moments
    d = basis.atoms.shape[1]
    kind, scale, unit = kernel_of_device(basis.kernel, d)
    if kind == LINEAR_KERNEL:
        # As shares of the mean, no power of an energy leaves the range of single precision.
        weight = moments.total_weight
        scale = scale * np.sqrt(unit * weight / moments.energy)
        unit = moments.energy / weight
    return {
        "kernel": kind,
        "max_atoms": settings.max_atoms,
        "n_features": d,
        "n_candidates": N_CANDIDATES,
        "centre": centre_of(basis.atoms) if kind == RBF_KERNEL else np.zeros(d),
        "scale": scale,
        "unit": unit,
        "half_life": settings.half_life or 0.0,
        "return_period": return_period,
        "tolerance": settings.tolerance,
    }


def _check_like(like: dict[str, Any], constants: dict[str, Any], kernel: Kernel) -> None:
    """Refuse a model of another kernel, width or budget than the device has."""
    fits = [constants[name] == like[name] for name in ("kernel", "max_atoms", "n_features")]
    own, theirs = (np.multiply(of["scale"], np.sqrt(of["unit"])) for of in (constants, like))
    if not all(fits) or not np.allclose(own, theirs, rtol=1e-5, atol=0.0):
        raise ValueError(
            f"expected the device's kernel, {like['n_features']} features and max_atoms={like['max_atoms']} but "
            f"got {kernel!r}, {constants['n_features']} and {constants['max_atoms']}; set max_atoms and learn or merge "
            "again, or write a new C file"
        )


def _round_constants(constants: dict[str, Any]) -> dict[str, Any]:
    """Round constants to those of the device; refuse divisors that would become zero."""
    with np.errstate(over="ignore"):
        rounded = {name: np.asarray(value, dtype=np.float32).astype(np.float64) for name, value in constants.items()}
    for name in ("unit", "scale"):
        if np.min(rounded[name]) < np.finfo(np.float32).tiny:
            raise _beyond(name)
    return rounded


def _levels_like(like: dict[str, Any], views: BothViews | None, constants: dict[str, Any]) -> dict[str, Any]:
    """Return the levels of alarms that go on from those of a device, whose relation stays."""
    levels = {name: like[name] for name in ("scales", "mean", "threshold")}
    if views is not None:
        # The relation of the device may be another one, but both know novelty in one kernel's units.
        levels["threshold"] = np.maximum(like["threshold"], _levels(views, constants) * [1.0, 0.0])
    return levels


def _first_levels(views: BothViews, constants: dict[str, Any]) -> dict[str, Any]:
    """Return the levels of alarms that a device begins with, and what its tables are checked by."""
    tables = b"".join(table.tobytes() for table in device_tables(views, constants).values())
    mean = (views.relation.mean - constants["centre"]) * constants["scale"]
    return {"scales": zlib.crc32(tables), "mean": mean, "threshold": _levels(views, constants)}


def _sums_of(summary: Summary, constants: dict[str, Any], m: int) -> dict[str, Any]:
    """Return the atoms and the sums over rows, in the units of a device with room for m atoms."""
    basis, moments, unit = summary.basis, summary.moments, float(constants["unit"])
    weight = moments.total_weight
    return {
        "n_atoms": basis.size,
        "total_weight": in_two(weight),
        "squared_weight": in_two(moments.total_squared_weight),
        "largest_energy": moments.largest_energy / unit,
        "energy": moments.energy / weight / unit,
        "lost_on_arrival": moments.losses.on_arrival / weight / unit,
        "lost_by_removal": moments.losses.by_removal / weight / unit,
        "first": pad(moments.first / weight / np.sqrt(unit), m),
        "second": pack(moments.second / weight / unit, m),
        "factor": pack(basis.factor / np.sqrt(unit), m),
        "atoms": pad((basis.atoms - constants["centre"]) * constants["scale"], m),
        "weight_since_admission": pad(np.minimum(summary.atom_stats.weight_since_admission, weight), m),
    }


def _leave_out_dependent(summary: Summary) -> Summary:
    """Leave out atoms whose residuals single precision cannot tell from rounding; their energy counts as lost."""
    while True:
        pivots = np.diagonal(summary.basis.factor) ** 2 / summary.basis.energy
        if pivots.min() > LEAST_RESIDUAL:
            return summary
        weakest = np.array([int(pivots.argmin())])
        summary = summary.apply_choice(Choice(weakest[:0], weakest), summary.basis.atoms[:0], weakest[:0], np.empty(0))


def _levels(views: BothViews, constants: dict[str, Any]) -> Array:
    """Return the novelty and the surprise (2,) above which a row is an alarm at first, as a device has them."""
    place, relation = (scale.level(float(constants["return_period"])) for scale in views.scales)
    return np.maximum([place / constants["unit"], relation], SINGLE_ROUNDING)


def device_tables(views: BothViews, constants: dict[str, Any]) -> dict[str, Array]:
    """Return the tables of `c_rarity.c` for a device, in single precision; levels are shares of its own first ones."""
    tables = tabulate(views, float(constants["unit"]), single=True)
    tables["levels"] -= np.log(_levels(views, constants) * [constants["unit"], 1.0])[:, None]
    with np.errstate(over="ignore"):
        tables["inverse_scales"] = 1.0 / (views.relation.scale * constants["scale"])
        tables = {name: table.astype(np.float32) for name, table in tables.items()}
    for name, table in tables.items():
        if not np.isfinite(table).all():
            raise _beyond(name)
    return tables


def in_two(value: float) -> Array:
    """Write a number as the sum of two of single precision."""
    with np.errstate(over="ignore"):
        high = float(np.float32(value))
    return np.array([high, value - high])
