"""Ways to damage a checkpoint, and models to damage."""

import io
import json

import numpy as np

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.checkpoint.archive import read_archive, write_archive

ROWS = np.random.default_rng(7).normal(size=(200, 3))
PROBE = np.random.default_rng(8).normal(size=(5, 3))


def models():
    """Make models so that every optional part of a checkpoint exists in one and is missing in another."""
    small = {"max_atoms": 6, "block_size": 16, "reservoir_size": 10, "refit_every": 32}
    fading = StreamingKernelPCA(2, half_life=60.0, atoms="rows", **small).partial_fit(ROWS[:150])
    # Axes on demand, which differ from the scheduled ones; then pending rows.
    fading.refit().partial_fit(ROWS[150:155])
    exact = StreamingKernelPCA(
        3, kernel=kernels.Polynomial(2, gamma=0.5, coef0=1.0), max_atoms=None, tolerance=0.0, block_size=16
    ).partial_fit(ROWS[:70], sample_weight=np.linspace(0.1, 2.0, 70))
    fitted = StreamingKernelPCA(2, kernel=kernels.RBF(0.3), axes="likelihood", **small).fit(ROWS)
    moved = StreamingKernelPCA(2, kernel=kernels.Linear() + kernels.RBF(0.3), **small).partial_fit(ROWS[:150])
    waiting = StreamingKernelPCA(2, block_size=64).partial_fit(ROWS[:20])
    return {
        "fading": fading,
        "exact": exact,
        "fitted": fitted,
        "moved": moved,
        "waiting": waiting,
        "empty": StreamingKernelPCA(2),
    }


def unpacked(data):
    """Return the header and the arrays of a checkpoint."""
    return read_archive(io.BytesIO(data))


def repacked(header, arrays):
    """Make a well-formed checkpoint with correct checksums and any contents."""
    buffer = io.BytesIO()
    listed = {name: [array.dtype.newbyteorder("<").str, array.shape] for name, array in arrays.items()}
    write_archive(buffer, json.dumps({**header, "arrays": listed}).encode(), arrays)
    return buffer.getvalue()


def entries(header, path=()):
    """Yield the paths of all entries of a header, objects before their entries."""
    if path:
        yield path
    if isinstance(header, dict):
        for name in header:
            yield from entries(header[name], (*path, name))


def with_entry(header, path, value):
    """Copy a header and put a value into one of its places."""
    copied = json.loads(json.dumps(header))
    place = copied
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return copied


def flipped_bits(data, rng):
    changed = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 1, 2, 8, 100]))):
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def truncated(data, rng):
    return data[: rng.integers(len(data))] if rng.random() < 0.8 else data[rng.integers(1, len(data)) :]


def padded(data, rng):
    noise = rng.bytes(int(rng.choice([1, 22, 1000])))
    return [data + noise, noise + data, data + bytes(22), data + data][rng.integers(4)]


def spliced(data, rng):
    """Take out a piece, write one twice, or exchange two."""
    first, second, third, fourth = sorted(int(cut) for cut in rng.integers(len(data) + 1, size=4))
    pieces = data[:first], data[first:second], data[second:third], data[third:fourth], data[fourth:]
    order = [(0, 1, 3, 4), (0, 1, 1, 2, 3, 4), (0, 3, 2, 1, 4), (1, 0, 2, 3, 4), (4, 3)][rng.integers(5)]
    return b"".join(pieces[piece] for piece in order)


def overwritten(data, rng):
    length = int(rng.choice([1, 2, 4, 8, 64, 512, 4096]))
    place = int(rng.integers(len(data)))
    fill = [bytes(length), b"\xff" * length, rng.bytes(length), data[:length]][rng.integers(4)]
    return (data[:place] + fill + data[place + length :])[: len(data)]


# Changes of bytes, none of which may go unnoticed.
DAMAGES = {function.__name__: function for function in (flipped_bits, truncated, padded, spliced, overwritten)}


def changed_arrays(values):
    """Yield replacements of an array, of the same type and of others."""
    for number in (np.nan, np.inf, -1, 1e300, 5e-324, 2**62):
        if values.size and (values.dtype.kind == "f" or number in (-1, 2**62)):
            changed = values.copy()
            with np.errstate(over="ignore"):
                changed.flat[changed.size // 2] = number
            yield changed
    yield from (-values, np.zeros_like(values), values[::-1], values[:-1], values.T[:1], values[None][0].ravel())
    yield values.astype(np.int64 if values.dtype.kind == "f" else np.float64)
    yield np.concatenate([values, np.ones((1, *values.shape[1:]), dtype=values.dtype)])


# Replacements of an entry of the header.
CHANGED_ENTRIES = [
    ("null", None), ("true", True), ("false", False), ("0", 0), ("1", 1), ("-1", -1), ("1.5", 1.5), ("-0.5", -0.5),
    ("5e-324", 5e-324), ("1e300", 1e300), ("1e308", 1.7e308), ("2^31", 2**31), ("2^62", 2**62), ("2^63", 2**63),
    ("10^400", 10**400), ("text", "x"), ("number as text", "1"), ("nan as text", "nan"), ("NaN", float("nan")),
    ("Infinity", float("inf")), ("empty list", []), ("list", [1, 2]), ("empty object", {}), ("object", {"a": 1}),
    ("long text", "x" * 1000), ("nested", json.loads("[" * 200 + "]" * 200)), ("surrogate", "\ud800"),
]  # fmt: skip
