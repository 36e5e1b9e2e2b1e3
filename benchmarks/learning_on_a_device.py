"""Claim: a model that learns in C, in single precision, finds what the stream in Python finds, and what fits beside it.

A gateway learns the first rows, writes one C file (`to_c` with `learns=True`) and stops. The C file, compiled here for
the host, then scores every row and learns it, as a device would: the rest of train first, and test after it. Its scores
of test and its account of energy are compared with

* **float64**: the gateway's model going on in Python, which scores each block of 32 rows before it learns it, and moves
  atoms; **frozen** learns nothing more;
* **the same atoms**: the state of the device come home (`from_device`), which answers in double precision;

and with methods that makers of sensors and toolkits for microcontrollers offer, each in as many bytes as the state of
the device, in numbers of 4 bytes, on rows that are scaled to 0..1 by the gateway's. They score a row and then learn it:

* **z-scores**: the largest distance of a column to its mean, in standard deviations of all rows so far;
* **k-means**: the distance to the nearest centre. The gateway finds the centres (k-means++, 20 rounds of Lloyd), then
  the nearest centre moves to the mean of its rows, as in MacQueen's;
* **k-nearest**: the distance to the third nearest row of a sample, which is uniform over all rows so far;
* **half-space trees**: as Tan, Ting and Liu, "Fast anomaly detection for streaming data", IJCAI 2011: trees of depth 6
  with windows of 250 rows, as many as fit (8 bytes a node).

The arguments are as those of `novelty_on_unseen_streams.py`: npz files with train, test and test_label, or folders of
them; ``--plant FILE`` adds the Tennessee Eastman process, ``--made N`` N made streams of each family.

Run::

    python benchmarks/learning_on_a_device.py ../shared/data/asd ../shared/data/smd --plant ../shared/data/tep/tep.npz
    python benchmarks/learning_on_a_device.py --tiny

Tables have means over gateways with three seeds (``--seeds``), and over the streams of a family. **Left by rows that
come** is the share of its energy that a row leaves before it is learned, **account** the share that all rows have left
when they were learned, and with atoms since. A device replaces an atom only after as many rows as the atom's
record deserves, so where rows change for good it follows later than the stream in Python, whose sample holds rows of
all times.

The exit code is 0 if the bounds hold, which come last, and 1 otherwise: for each given family, and on average for made
ones, average precision at most .02 below float64's, and with the same atoms off by at most .02, and energy left by
3 %, beyond the 1e-5 of a row's energy that single precision can tell.
"""

import argparse
import ctypes
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import surroundings, threads, write_figures
from made_streams import FAMILIES, Stream, made
from novelty_on_unseen_streams import read_plant, read_streams, scaled
from scipy.cluster.vq import kmeans2

from streamkpca import StreamingKernelPCA
from streamkpca.cli.reports import average_precision
from streamkpca.export import from_device, to_c
from streamkpca.export.device_state import MEMORY, read, record_size, shape_of

Array = np.ndarray
# A peer learns the gateway's rows and then scores and learns later ones, in so many numbers of 4 bytes.
Peer = Callable[[Array, Array, int], Array]
NEIGHBOUR, DEPTH, WINDOW = 3, 6, 250
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
# Single precision tells shares of a row's energy to this.
SINGLE = 1e-5
# Instructions a row, mean of 32 atoms and 16 features on a Cortex-M4F, as .ci/processors counts them.
INSTRUCTIONS = 21_600.0
# An instruction takes one cycle, and more for loads, branches, divisions and roots.
CYCLES = 1.3
VOLTS = 3.0
# Clock in MHz, and uA/MHz while a Cortex-M4F runs from flash: nRF52832, product specification, key features; STM32L412,
# datasheet DS12469, features, with its linear regulator.
CHIPS = {"nRF52832": (64.0, 58.0), "STM32L412": (80.0, 79.0)}


def z_scores(first: Array, later: Array, n_numbers: int) -> Array:
    """Score by the largest distance of a column to the mean of the rows before, in their standard deviations."""
    del n_numbers
    rows = np.vstack([first, later])
    count = np.arange(1, len(rows) + 1)[:, None]
    mean = np.cumsum(rows, axis=0) / count
    deviation = np.sqrt(np.maximum(np.cumsum(rows**2, axis=0) / count - mean**2, 1e-6))
    before = slice(len(first) - 1, -1)
    return (np.abs(later - mean[before]) / deviation[before]).max(axis=1)


def k_means(first: Array, later: Array, n_numbers: int) -> Array:
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


def k_nearest(first: Array, later: Array, n_numbers: int) -> Array:
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


def half_space_trees(first: Array, later: Array, n_numbers: int) -> Array:
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
    "z-scores": z_scores,
    "k-means": k_means,
    "k-nearest": k_nearest,
    "half-space trees": half_space_trees,
}


class Judged(NamedTuple):
    """Scores of rows before they are learned, the share of energy that the account calls unexplained, seconds a row.

    `last` are the scores of the last rows by what was learned in the end.
    """

    scores: Array
    unexplained: float
    seconds: float
    last: Array

    @property
    def left(self) -> float:
        """Mean share of its energy that a row leaves when it comes; a score is minus the logarithm of the rest."""
        return float(-np.expm1(-self.scores).mean())


def gateway(rows: Array, n_atoms: int, seed: int) -> StreamingKernelPCA:
    """Learn the first rows."""
    return StreamingKernelPCA(1, max_atoms=n_atoms, block_size=32, random_state=seed).partial_fit(rows).refit()


def in_python(model: StreamingKernelPCA, rows: Array, n_last: int) -> Judged:
    """Score each block, and then learn it."""
    scores, start = np.empty(len(rows)), time.process_time()
    for first in range(0, len(rows), model.block_size):
        block = rows[first : first + model.block_size]
        scores[first : first + len(block)] = model.novelty(block)
        model.partial_fit(block)
    seconds = (time.process_time() - start) / len(rows)
    return Judged(scores, model.refit().unexplained_energy_ratio_, seconds, model.novelty(rows[-n_last:]))


def on_a_device(model: StreamingKernelPCA, rows: Array, n_last: int) -> tuple[Judged, bytes]:
    """Score each row, and then learn it, by the C file; return the state of the device, too."""
    saved = bytearray(record_size(model.max_atoms, rows.shape[1]))

    def write(slot: int, at: int, data: Any, count: int) -> int:
        saved[at : at + count] = bytes(data[:count])
        return slot & 0

    call = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_uint32
    )
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "device.c", Path(folder) / "device.so"
        source.write_text(to_c(model, name="device", learns=True), encoding="ascii")
        flags = "-std=c99 -O2 -ffp-contract=off -shared -fPIC".split()
        subprocess.run([COMPILER or "cc", *flags, str(source), "-o", str(library), "-lm"], check=True)
        device = ctypes.CDLL(str(library))
        device.device_novelty.restype = ctypes.c_float
        single = np.ascontiguousarray(rows, dtype=np.float32)
        places = [ctypes.c_void_p(single.ctypes.data + i * single.strides[0]) for i in range(len(single))]
        scores, start = np.empty(len(rows)), time.process_time()
        for i, place in enumerate(places):
            scores[i] = device.device_novelty(place)
            device.device_update(place)
        seconds = (time.process_time() - start) / len(rows)
        last = np.array([device.device_novelty(place) for place in places[-n_last:]])
        # Nothing was saved before, which a device finds out before it saves.
        device.device_load(call(lambda *_: -1))
        kept = device.device_save(call(write))
    assert kept == 0
    state = read(bytes(saved))
    return Judged(scores, (state.lost_on_arrival + state.lost_by_removal) / state.energy, seconds, last), bytes(saved)


COLUMNS = ("device", "float64", "frozen", *PEERS)


def split(stream: Stream, n_atoms: int) -> tuple[Array, Array]:
    """Return the gateway's rows, and those that come later."""
    n_first = max(len(stream.train) // 3, 2 * n_atoms)
    return stream.train[:n_first], np.vstack([stream.train[n_first:], stream.test])


def learned(stream: Stream, n_atoms: int, seed: int) -> dict[str, dict[str, float]]:
    """Return average precision on test by our methods, what is left unexplained, and times."""
    first, later = split(stream, n_atoms)
    model, n_test = gateway(first, n_atoms, seed), len(stream.test)
    device, state = on_a_device(model, later, n_test)
    # The state that came home has the device's atoms, and answers in double precision.
    home = from_device(state, model).novelty(stream.test)
    frozen = model.novelty(later)
    judged = {
        "device": device,
        "frozen": Judged(frozen, model.unexplained_energy_ratio_, 0.0, frozen[-n_test:]),
        "float64": in_python(model, later, n_test),
    }
    left = -float(np.expm1(-home).mean())
    return {
        "AP": {name: average_precision(stream.labels, one.scores[-n_test:]) for name, one in judged.items()},
        "left": {name: one.left for name, one in judged.items()},
        "unexplained": {name: one.unexplained for name, one in judged.items()},
        "microseconds": {name: 1e6 * one.seconds for name, one in judged.items()},
        "rounding": {
            "AP": abs(average_precision(stream.labels, device.last) - average_precision(stream.labels, home)),
            "left": max(abs(-float(np.expm1(-device.last).mean()) / left - 1.0) - SINGLE / left, 0.0),
        },
    }


def compare(stream: Stream, n_atoms: int, n_seeds: int) -> dict[str, Any]:
    """Return what `learned` does, as means over seeds, and the average precision of peers, with the bytes they have."""
    first, later = split(stream, n_atoms)
    ram = 4 * sum(math.prod(shape_of(field, n_atoms, first.shape[1])) for field in MEMORY)
    runs = [learned(stream, n_atoms, seed) for seed in range(n_seeds)]
    figures: dict[str, Any] = {
        figure: {name: float(np.mean([run[figure][name] for run in runs])) for name in table}
        for figure, table in runs[0].items()
    }
    for name, peer in PEERS.items():
        scores = peer(scaled(first, first, "range"), scaled(later, first, "range"), ram // 4)
        figures["AP"][name] = average_precision(stream.labels, scores[-len(stream.test) :])
    return {"features": first.shape[1], "ram": ram, **figures}


def energy_per_row(instructions: float) -> dict[str, dict[str, float]]:
    """Derive what a row costs on each chip: milliseconds and microjoules."""
    megacycles = instructions * CYCLES / 1e6
    return {
        chip: {"milliseconds": 1e3 * megacycles / clock, "microjoules": megacycles * current * VOLTS}
        for chip, (clock, current) in CHIPS.items()
    }


def means(found: dict[str, dict[str, Any]], figure: str) -> dict[str, dict[str, float]]:
    """Return the means of a figure over the streams of each family, by family and method."""
    families: dict[str, list[dict[str, float]]] = {}
    for title, figures in found.items():
        families.setdefault(title.partition("/")[0], []).append(figures[figure])
    return {
        family: {name: float(np.mean([table[name] for table in tables])) for name in tables[0]}
        for family, tables in families.items()
    }


def show(title: str, table: dict[str, dict[str, float]], columns: tuple[str, ...]) -> None:
    """Print a table by family and method, and the means over families."""
    print(f"\n{title:>24}" + "".join(f"{name[:11]:>12}" for name in columns))
    everything = {name: float(np.mean([line[name] for line in table.values()])) for name in columns}
    for family, line in [*table.items(), ("mean", everything)]:
        print(f"{family:>24}" + "".join(f"{line[name]:12.4f}" for name in columns), flush=True)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Compare learning in C with the stream in Python and with peers.")
    parser.add_argument("paths", nargs="*", type=Path, help="npz files with train, test and test_label, or folders")
    parser.add_argument(
        "--plant", type=Path, metavar="FILE", help="Tennessee Eastman process: npz with d00, d00_te ..."
    )
    parser.add_argument("--made", type=int, nargs="?", const=1, default=0, metavar="N", help="made streams of a family")
    parser.add_argument("--atoms", type=int, default=32, metavar="M", help="atoms (32)")
    parser.add_argument(
        "--instructions", type=float, default=INSTRUCTIONS, metavar="N", help="instructions a row, for the energy"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="gateways, of whose figures the means count (3)"
    )
    parser.add_argument("--tiny", action="store_true", help="two small made streams")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    if not (arguments.paths or arguments.plant or arguments.made or arguments.tiny):
        parser.error("name npz files with train, test and test_label, or folders of them, or try --made or --tiny")
    arguments.streams, arguments.unordered = None, []
    streams = read_streams(arguments, parser)
    given = {stream.family for stream in streams} | ({"plant"} if arguments.plant else set())
    streams += read_plant(arguments.plant)[0] if arguments.plant else []
    size, seeds = (0.2, 1) if arguments.tiny else (1.0, arguments.made)
    names = ["ring", "drift"] if arguments.tiny else [*FAMILIES]
    streams += [made(name, seed, size=size) for seed in range(seeds) for name in names]
    where, found = surroundings(), dict[str, dict[str, Any]]()
    if COMPILER is None:
        raise SystemExit("learning_on_a_device: expected a C compiler named cc, gcc or clang; install one")
    with threads(1):
        for stream in streams:
            title = f"{stream.family}/{stream.name}"
            figures = found[title] = compare(stream, arguments.atoms, 1 if arguments.tiny else arguments.seeds)
            precision = ", ".join(f"{name} {value:.3f}" for name, value in figures["AP"].items())
            print(f"{title}: {figures['features']} features in {figures['ram']} bytes; {precision}", flush=True)
    tables = {figure: means(found, figure) for figure in ("AP", "left", "unexplained", "microseconds", "rounding")}
    show("average precision", tables["AP"], COLUMNS)
    show("left by rows that come", tables["left"], COLUMNS[:3])
    show("unexplained, account", tables["unexplained"], COLUMNS[:2])
    show("float32 beside float64", tables["rounding"], ("AP", "left"))
    show("microseconds a row here", tables["microseconds"], COLUMNS[:2])
    cost = energy_per_row(arguments.instructions)
    print(f"\nA row of 16 features takes {arguments.instructions:,.0f} instructions with 32 atoms; derived from these:")
    for chip, found_cost in cost.items():
        print(f"{chip:>24}{found_cost['milliseconds']:8.2f} ms{found_cost['microjoules']:8.1f} uJ")
    bounds = {}
    groups = {family: [family] for family in sorted(given)}
    if drawn := [family for family in tables["AP"] if family not in given]:
        groups["made, mean"] = drawn
    for group, families in groups.items():
        for name, figure, most in (
            ("AP of float64 less the device's", lambda f: tables["AP"][f]["float64"] - tables["AP"][f]["device"], 0.02),
            ("AP by the same atoms, off by", lambda f: tables["rounding"][f]["AP"], 0.02),
            ("energy left by the same atoms, off by", lambda f: tables["rounding"][f]["left"], 0.03),
        ):
            bounds[f"{group}, {name}"] = float(np.mean([figure(family) for family in families])), most
    print()
    for name, (value, most) in bounds.items():
        print(f"{'HOLDS' if value <= most else 'FAILS'}: {name} {value:.4f}, asked at most {most}")
    holds = all(value <= most for value, most in bounds.values())
    rest = {"streams": found, "means": tables, "cost": cost, "bounds": bounds, "holds": holds}
    write_figures(arguments.json, where, rest)
    return 0 if holds or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
