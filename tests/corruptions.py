"""Ways to damage a file, and what must hold for a file that loads nevertheless."""

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.errors import CheckpointError

AnyArray = npt.NDArray[Any]
Generator = np.random.Generator
Mutation = Callable[[bytes, Generator], bytes]

ROWS = np.random.default_rng(7).normal(size=(200, 3))
PROBE = np.random.default_rng(8).normal(size=(5, 3))

# Limits of the numbers in a zip archive, and just beyond.
_EDGES = [0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFE, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF, 2**62, 2**63, 2**64 - 1]


def models() -> dict[str, StreamingKernelPCA]:
    """Make models so that every optional part of a checkpoint exists in one and is missing in another."""
    small: dict[str, Any] = {"max_atoms": 6, "block_size": 16, "reservoir_size": 10, "refit_every": 32}
    fading = StreamingKernelPCA(2, half_life=60.0, atoms="rows", **small).partial_fit(ROWS[:150])
    # Axes on demand, which differ from the scheduled ones; then pending rows.
    fading.refit().partial_fit(ROWS[150:155])
    exact = StreamingKernelPCA(
        3, kernel=kernels.Polynomial(2, gamma=0.5, coef0=1.0), max_atoms=None, tolerance=0.0, block_size=16
    ).partial_fit(ROWS[:70], sample_weight=np.linspace(0.1, 2.0, 70))
    fitted = StreamingKernelPCA(2, kernel=kernels.RBF(0.3), axes="likelihood", **small).fit(ROWS)
    moved = StreamingKernelPCA(2, kernel=kernels.Linear() + kernels.RBF(0.3), **small).partial_fit(ROWS[:150])
    waiting = StreamingKernelPCA(2, block_size=64, dtype="float32").partial_fit(ROWS[:20])
    return {
        "fading": fading,
        "exact": exact,
        "fitted": fitted,
        "moved": moved,
        "waiting": waiting,
        "empty": StreamingKernelPCA(2),
    }


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Return the header and the arrays of a checkpoint."""
    with np.load(io.BytesIO(data)) as archive:
        return json.loads(archive["header.json"]), {name: archive[name] for name in archive.files if "json" not in name}


def repacked(header: Any, arrays: dict[str, Any], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Make a well-formed archive with correct checksums and any contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        archive.writestr("header.json", text)
        for name, values in arrays.items():
            archive.writestr(f"{name}.npy", values if isinstance(values, bytes) else as_npy(values))
    return buffer.getvalue()


def as_npy(values: AnyArray, shape: str | None = None) -> bytes:
    """Write an array as numpy does, with the shape that is claimed."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values, version=(1, 0), allow_pickle=True)
    data = buffer.getvalue()
    if shape is None:
        return data
    length = struct.unpack("<H", data[8:10])[0]
    text = f"{{'descr': '{values.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}".ljust(length - 1) + "\n"
    return data[:8] + struct.pack("<H", len(text)) + text.encode() + data[10 + length :]


class Bomb:
    """An object that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('unpickled')",)


def entries(header: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all entries of a header, objects before their entries."""
    if path:
        yield path
    if isinstance(header, dict):
        for name in header:
            yield from entries(header[name], (*path, name))


def with_entry(header: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Copy a header and put a value into one of its places."""
    copied: dict[str, Any] = json.loads(json.dumps(header))
    place = copied
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return copied


def without_entry(header: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """Copy a header and take out one of its places."""
    copied = with_entry(header, path, None)
    place = copied
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return copied


def load_or_refuse(data: bytes) -> StreamingKernelPCA | None:
    """Load a model, or return None if it is refused; any other error fails the test."""
    try:
        return StreamingKernelPCA.from_bytes(data)
    except CheckpointError:
        return None


def assert_legitimate(model: StreamingKernelPCA) -> None:
    """Check that a model answers, learns, and can be saved again, unless its parameters ask for too much."""
    try:
        _assert_goes_on(model)
    except (MemoryError, ValueError) as error:
        many = isinstance(model.n_components, int) and model.n_components > 2**30
        if not many and "cannot change within a stream" not in str(error):
            raise


def _assert_goes_on(model: StreamingKernelPCA) -> None:
    if model.__sklearn_is_fitted__() and model.n_features_in_ == PROBE.shape[1]:
        for answer in (model.transform(PROBE), model.score_samples(PROBE), model.eigenvalues_):
            assert np.isfinite(answer).all()
    data = model.to_bytes()
    assert StreamingKernelPCA.from_bytes(data).to_bytes() == data
    if not model.__sklearn_is_fitted__() or model.n_features_in_ == PROBE.shape[1]:
        # As many rows as fill a block of these models.
        model.partial_fit(ROWS[:64])
        assert np.isfinite(model.transform(PROBE)).all()
        data = model.to_bytes()
        assert StreamingKernelPCA.from_bytes(data).to_bytes() == data


def flipped_bits(data: bytes, rng: Generator) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 1, 2, 8, 100]))):
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def flipped_structure(data: bytes, rng: Generator) -> bytes:
    """Flip bits where few bytes are: in the list of members and around signatures."""
    changed = bytearray(data)
    marks = [place for sign in (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06") for place in _places(data, sign)]
    place = int(rng.choice(marks)) + int(rng.integers(60))
    changed[min(place, len(changed) - 1)] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def lying_number(data: bytes, rng: Generator) -> bytes:
    """Put an extreme number where the archive keeps a size, a position, a count."""
    changed = bytearray(data)
    signature, fields = _FIELDS[rng.integers(len(_FIELDS))]
    place = int(rng.choice(_places(data, signature)))
    offset, width = fields[rng.integers(len(fields))]
    number = int(_EDGES[rng.integers(len(_EDGES))]) if rng.random() < 0.7 else int(rng.integers(2**31))
    changed[place + offset : place + offset + width] = (number % 256**width).to_bytes(width, "little")
    return bytes(changed)


def truncated(data: bytes, rng: Generator) -> bytes:
    return data[: rng.integers(len(data))] if rng.random() < 0.8 else data[rng.integers(1, len(data)) :]


def padded(data: bytes, rng: Generator) -> bytes:
    noise = rng.bytes(int(rng.choice([1, 22, 1000])))
    return [data + noise, noise + data, data + bytes(22), data + data][rng.integers(4)]


def spliced(data: bytes, rng: Generator) -> bytes:
    """Take out a piece, write one twice, or exchange two."""
    first, second, third, fourth = sorted(int(cut) for cut in rng.integers(len(data) + 1, size=4))
    pieces = data[:first], data[first:second], data[second:third], data[third:fourth], data[fourth:]
    order = [(0, 1, 3, 4), (0, 1, 1, 2, 3, 4), (0, 3, 2, 1, 4), (1, 0, 2, 3, 4), (4, 3)][rng.integers(5)]
    return b"".join(pieces[piece] for piece in order)


def overwritten(data: bytes, rng: Generator) -> bytes:
    length = int(rng.choice([1, 2, 4, 8, 64, 512, 4096]))
    place = int(rng.integers(len(data)))
    fill = [bytes(length), b"\xff" * length, rng.bytes(length), data[:length]][rng.integers(4)]
    return (data[:place] + fill + data[place + length :])[: len(data)]


# Changes of bytes that break checksums: the same model must load, or none.
DAMAGES: dict[str, Mutation] = {
    function.__name__: function
    for function in (flipped_bits, flipped_structure, lying_number, truncated, padded, spliced, overwritten)
}

# Offsets and widths of numbers after each signature.
_FIELDS = [
    (b"PK\x03\x04", [(4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)]),
    (b"PK\x01\x02", [(4, 2), (6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)]),
    (b"PK\x05\x06", [(4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)]),
]


def _places(data: bytes, signature: bytes) -> list[int]:
    found, place = [], data.find(signature)
    while place >= 0:
        found.append(place)
        place = data.find(signature, place + 1)
    return found


def changed_array(values: AnyArray) -> Iterator[tuple[str, Any]]:
    """Yield replacements of an array; bytes are members that numpy would not write."""
    if values.size:
        for name, number in (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf), ("huge", 1e300), ("tiny", 5e-324)):
            if values.dtype == np.float64 or (values.dtype.kind == "f" and not np.isfinite(number)):
                yield f"one {name}", _with_one(values, number)
        yield "one negative", _with_one(values, -1)
        yield "one larger", _with_one(values, values.flat[0] + (1 if values.dtype.kind == "i" else 0.5))
        yield "largest integer", _with_one(values, 2**62) if values.dtype.kind == "i" else values + 1.0
        yield "negated", -values
        yield "zeros", np.zeros_like(values)
        yield "scaled", values * (2 if values.dtype.kind == "i" else 1.001)
        yield "reversed", values[::-1].copy()
        yield "swapped", _swapped(values)
        if values.ndim == 2:
            yield "columns reversed", values[:, ::-1].copy()
            yield "transposed", values.T.copy()
            yield "Fortran", np.asfortranarray(values)
    yield "float32", values.astype(np.float32)
    yield "other kind", values.astype(np.int64 if values.dtype.kind == "f" else np.float64)
    yield "big-endian", values.astype(values.dtype.newbyteorder(">"))
    yield "complex", values.astype(complex)
    yield "objects", values.astype(object)
    yield "pickle", np.full(values.shape, Bomb(), dtype=object)
    yield "bare pickle", pickle.dumps(Bomb())
    yield "text", values.astype("U20")
    yield "structured", np.zeros(values.shape, dtype=[("x", "<f8")])
    yield "0-d", np.array(values.sum(), dtype=values.dtype)
    yield "one axis more", values[None]
    yield "flat", values.reshape(-1) if values.ndim == 2 else values[:, None]
    yield "one row more", np.concatenate([values, np.ones((1, *values.shape[1:]), dtype=values.dtype)])
    yield "one row less", values[:-1] if len(values) else np.ones((1, *values.shape[1:]), dtype=values.dtype)
    for shape in ("(4611686018427387904,)", "(-1,)", "()", "(9999999999999999999999,)", "(1e9,)", "(10**9,)"):
        yield f"claimed {shape}", as_npy(values, shape)
    yield "later format", b"\x93NUMPY\x03\x00" + as_npy(values)[8:]
    yield "cut", as_npy(values)[:-1]
    yield "more", as_npy(values) + b"\0"
    yield "no array", b""


# Replacements of an entry of the header.
CHANGED_ENTRIES: list[tuple[str, Any]] = [
    ("null", None), ("true", True), ("false", False), ("0", 0), ("1", 1), ("-1", -1), ("1.5", 1.5), ("-0.5", -0.5),
    ("5e-324", 5e-324), ("1e300", 1e300), ("1e308", 1.7e308), ("2^31", 2**31), ("2^62", 2**62), ("2^63", 2**63),
    ("10^400", 10**400), ("text", "x"), ("number as text", "1"), ("nan as text", "nan"), ("NaN", float("nan")),
    ("Infinity", float("inf")), ("empty list", []), ("list", [1, 2]), ("empty object", {}), ("object", {"a": 1}),
    ("long text", "x" * 1000), ("nested", json.loads("[" * 200 + "]" * 200)), ("surrogate", "\ud800"),
]  # fmt: skip


def _with_one(values: AnyArray, number: Any) -> AnyArray:
    changed = values.copy()
    changed.flat[len(changed.flat) // 2] = number
    return changed


def _swapped(values: AnyArray) -> AnyArray:
    changed = values.copy()
    flat = changed.reshape(-1)
    flat[[0, -1]] = flat[[-1, 0]]
    return changed
