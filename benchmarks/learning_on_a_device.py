"""Does a model that learns in C, in single precision, find what the stream in Python finds?

A gateway learns the first third of train, writes the C file of a device that learns (32 atoms) and stops. The file,
compiled here for the host, scores every later row and then learns it. Average precision on test, means over the streams
of a family, of:

* **device**; **Python**: the gateway's model going on, which scores each block of 32 rows before it learns it;
  **frozen** learns nothing more; **rounding**: by how much the device's last state differs in double precision.
* Methods in as many bytes as the device's state, on scaled rows, which score a row and then learn it: the largest
  **z-score** of a column; **k-means**, the distance to the nearest centre, which moves; **k-nearest**, the distance to
  the third nearest of a uniform sample; **half-space trees** (Tan, Ting, Liu 2011).
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import Array, Figures, make_table, run
from detection_metrics import average_precision
from real_streams import Stream, read_families
from scipy.cluster.vq import kmeans2

from streamkpca import StreamingKernelPCA
from streamkpca.export import from_device, to_c_learner
from streamkpca.export.device_state import MEMORY, layout_of

# A peer learns the gateway's rows and then scores and learns later ones, in so many numbers of 4 bytes.
Peer = Callable[[Array, Array, int], Array]
NEIGHBOUR, DEPTH, WINDOW = 3, 6, 250
# A C compiler, without which nothing is measured.
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
# Instructions a row, mean of 32 atoms and 16 features on a Cortex-M4F, as .ci/processors counts them.
INSTRUCTIONS = 21_600.0
# An instruction takes one cycle, and more for loads, branches, divisions and roots.
CYCLES = 1.3
VOLTS = 3.0
# Clock in MHz, and uA/MHz while a Cortex-M4F runs from flash: nRF52832, product specification, key features; STM32L412,
# datasheet DS12469, features, with its linear regulator.
CHIPS = {"nRF52832": (64.0, 58.0), "STM32L412": (80.0, 79.0)}


def score_by_deviation(first: Array, later: Array, n_numbers: int) -> Array:
    """Score by the largest distance of a column to the mean of the rows before, in their standard deviations."""
    del n_numbers
    rows = np.vstack([first, later])
    count = np.arange(1, len(rows) + 1)[:, None]
    mean = np.cumsum(rows, axis=0) / count
    deviation = np.sqrt(np.maximum(np.cumsum(rows**2, axis=0) / count - mean**2, 1e-6))
    before = slice(len(first) - 1, -1)
    return (np.abs(later - mean[before]) / deviation[before]).max(axis=1)


def score_by_centre(first: Array, later: Array, n_numbers: int) -> Array:
    """Score by the distance to the nearest centre, which then moves."""
    k = min(n_numbers // (first.shape[1] + 1), len(first) // 4)
    centres, nearest = kmeans2(first, k, iter=20, minit="++", rng=np.random.default_rng(0), missing="raise")
    counts, scores = np.bincount(nearest, minlength=k), np.empty(len(later))
    for i, row in enumerate(later):
        squares = ((centres - row) ** 2).sum(axis=1)
        j = int(squares.argmin())
        scores[i] = np.sqrt(squares[j])
        counts[j] += 1
        centres[j] += (row - centres[j]) / counts[j]
    return scores


def score_by_neighbour(first: Array, later: Array, n_numbers: int) -> Array:
    """Score by the distance to the third nearest row of a uniform sample."""
    random = np.random.default_rng(0)
    k = min(n_numbers // first.shape[1], len(first))
    kept, scores = first[random.choice(len(first), k, replace=False)].copy(), np.empty(len(later))
    for i, row in enumerate(later):
        squares = ((kept - row) ** 2).sum(axis=1)
        scores[i] = np.sqrt(np.partition(squares, NEIGHBOUR - 1)[NEIGHBOUR - 1])
        place = random.integers(len(first) + i + 1)
        if place < k:
            kept[place] = row
    return scores


def score_by_mass(first: Array, later: Array, n_numbers: int) -> Array:
    """Score by the mass of the half-spaces that a row falls in, of the window before."""
    random, n_nodes, d = np.random.default_rng(0), 2 ** (DEPTH + 1) - 1, first.shape[1]
    n_trees = max(n_numbers // (2 * n_nodes), 1)
    columns = random.integers(d, size=(n_trees, n_nodes))
    splits = np.empty((n_trees, n_nodes))
    for tree in range(n_trees):
        # Workspaces as in the paper: about a random point of each column, wide enough for all of 0..1.
        middle = random.uniform(size=d)
        width = 2.0 * np.maximum(middle, 1.0 - middle)
        lows, highs = {0: middle - width}, {0: middle + width}
        for node in range(n_nodes):
            low, high, column = lows.pop(node), highs.pop(node), columns[tree, node]
            splits[tree, node] = 0.5 * (low[column] + high[column])
            for child in (2 * node + 1, 2 * node + 2):
                lows[child], highs[child] = low.copy(), high.copy()
                (highs if child % 2 else lows)[child][column] = splits[tree, node]
    trees = np.arange(n_trees)
    least, mass = 0.1 * WINDOW, np.zeros((n_trees, n_nodes))
    rows, scores = np.vstack([first, later]), np.zeros(len(first) + len(later))
    for start in range(0, len(rows), WINDOW):
        window = rows[start : start + WINDOW]
        node, seen = np.zeros((len(window), n_trees), dtype=int), np.zeros((n_trees, n_nodes))
        score, is_open = np.zeros(len(window)), np.ones((len(window), n_trees), dtype=bool)
        for depth in range(DEPTH + 1):
            known = mass[trees, node]
            np.add.at(seen, (np.broadcast_to(trees, node.shape), node), 1.0)
            # A row stops where few rows of the window before were, or at a leaf.
            ends = is_open & ((known <= least) | (depth == DEPTH))
            score += (known * 2.0**depth * ends).sum(axis=1)
            is_open &= ~ends
            if depth < DEPTH:
                right = np.take_along_axis(window, columns[trees, node], axis=1) > splits[trees, node]
                node = 2 * node + 1 + right
        scores[start : start + WINDOW] = -score
        mass = seen
    return scores[len(first) :]


PEERS: dict[str, Peer] = {
    "z-scores": score_by_deviation,
    "k-means": score_by_centre,
    "k-nearest": score_by_neighbour,
    "half-space trees": score_by_mass,
}


def learn_first(rows: Array, n_atoms: int, seed: int) -> StreamingKernelPCA:
    """Learn the first rows."""
    return StreamingKernelPCA(1, max_atoms=n_atoms, block_size=32, random_state=seed).partial_fit(rows).refit()


def go_on(model: StreamingKernelPCA, rows: Array) -> Array:
    """Score each block, and then learn it."""
    scores = np.empty(len(rows))
    for first in range(0, len(rows), model.block_size):
        block = rows[first : first + model.block_size]
        scores[first : first + len(block)] = model.novelty(block)
        model.partial_fit(block)
    return scores


def run_device(model: StreamingKernelPCA, rows: Array, n_last: int) -> tuple[Array, Array, bytes]:
    """Score each row, and then learn it, by the C file; return the last rows' scores by the last state, and that."""
    saved = bytearray(layout_of(model.max_atoms, rows.shape[1]).itemsize)

    def write(slot: int, at: int, data: Any, count: int) -> int:
        saved[at : at + count] = bytes(data[:count])
        return slot & 0

    call = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_uint32
    )
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "device.c", Path(folder) / "device.so"
        source.write_text(to_c_learner(model, name="device"), encoding="ascii")
        flags = "-std=c99 -O2 -ffp-contract=off -shared -fPIC".split()
        subprocess.run([COMPILER or "cc", *flags, str(source), "-o", str(library), "-lm"], check=True)
        device = ctypes.CDLL(str(library))
        device.device_novelty.restype = ctypes.c_float
        single = np.ascontiguousarray(rows, dtype=np.float32)
        places = [ctypes.c_void_p(single.ctypes.data + i * single.strides[0]) for i in range(len(single))]
        scores = np.empty(len(rows))
        for i, place in enumerate(places):
            scores[i] = device.device_novelty(place)
            device.device_update(place)
        last = np.array([device.device_novelty(place) for place in places[-n_last:]])
        # Nothing was saved before, which a device finds out before it saves.
        device.device_load(call(lambda *_: -1))
        kept = device.device_save(call(write))
    assert kept == 0
    return scores, last, bytes(saved)


N_ATOMS = 32
FAMILIES = {"whole": ("asd", "smd", "tep"), "quick": ("asd", "tep"), "tiny": ("asd",)}


def compare(stream: Stream) -> Figures:
    """Return average precision on test by every method, and the bytes that they have."""
    n_first, n_test = max(len(stream.train) // 3, 2 * N_ATOMS), len(stream.test)
    first, later = stream.train[:n_first], np.vstack([stream.train[n_first:], stream.test])
    layout = layout_of(N_ATOMS, first.shape[1])
    ram = sum(layout[field.name].itemsize for field in MEMORY)
    model = learn_first(first, N_ATOMS, 0)
    frozen = model.novelty(stream.test)
    device, last, state = run_device(model, later, n_test)
    # The state that came home has the device's atoms, and answers in double precision.
    home = from_device(state, model).novelty(stream.test)
    scores = {"device": device, "Python": go_on(model, later), "frozen": frozen}
    low, span = first.min(axis=0), np.ptp(first, axis=0)
    scaled = [(rows - low) / np.where(span > 0.0, span, 1.0) for rows in (first, later)]
    scores |= {name: peer(*scaled, ram // 4) for name, peer in PEERS.items()}
    found = {name: average_precision(stream.labels, values[-n_test:]) for name, values in scores.items()}
    rounding = abs(average_precision(stream.labels, last) - average_precision(stream.labels, home))
    return {"ram": ram, "precision": found, "rounding": rounding}


def measure(size: str, data: Path | None) -> Figures:
    """Compare the methods on every stream."""
    streams = {family: found for family, found in read_families(data, size).items() if family in FAMILIES[size]}
    if not streams or COMPILER is None:
        return {}
    families: Figures = {}
    for family, members in streams.items():
        found = [compare(stream) for stream in members]
        precision = {name: float(np.mean([one["precision"][name] for one in found])) for name in found[0]["precision"]}
        families[family] = {"ram": found[0]["ram"], "rounding": max(one["rounding"] for one in found)}
        families[family]["precision"] = precision
    megacycles = INSTRUCTIONS * CYCLES / 1e6
    energy = {
        chip: {"milliseconds": 1e3 * megacycles / clock, "microjoules": megacycles * current * VOLTS}
        for chip, (clock, current) in CHIPS.items()
    }
    return {"families": families, "energy": energy}


def describe(figures: Figures) -> str:
    """Return a line for each family, and what a row costs."""
    names = list(next(iter(figures["families"].values()))["precision"])
    rows = [
        [family, found["ram"], *(f"{found['precision'][name]:.3f}" for name in names), f"{found['rounding']:.4f}"]
        for family, found in figures["families"].items()
    ]
    energy = "; ".join(
        f"{chip} {of['milliseconds']:.2f} ms and {of['microjoules']:.1f} uJ" for chip, of in figures["energy"].items()
    )
    table = make_table(["family", "bytes", *names, "rounding"], rows)
    return (
        f"{table}\n\nWith 16 features a row takes {INSTRUCTIONS:,.0f} instructions on a Cortex-M4F. Derived from what "
        f"makers state of code in flash, without sensors, radio and sleep: {energy}."
    )


if __name__ == "__main__":
    run(measure, describe)
