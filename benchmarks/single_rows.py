"""What does a single row cost?

A model of 128 atoms, 32 features and 10 axes that has learned two million rows. Then rows come one at a time; each is
projected, scored and learned, and every call is timed alone, so that blocks that fill, refits and the first answer
after a refit count. Microseconds of the clock; peers take turns in the same process, on a tenth of the rows.

* scikit-learn's `KernelPCA` of 4,000 rows, and `Nystroem` of 128 rows with `IncrementalPCA`;
* River's `HalfSpaceTrees`, from dicts that were made and scaled before; pyod's `KPCA` of 1,000 rows;
* **a loop of that length** takes as long as one transform and touches almost no memory: its tail is the machine's.

How long is the longest stall? New models and monitors with their defaults learn 20,000 rows of 8 or 32 features in
blocks of 32, and every call is timed, in milliseconds: searches for a width and for atoms, moves and refits count.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import Array, Figures, Sheet, is_installed, make_table, run

from streamkpca import StreamingKernelPCA
from streamkpca.monitoring import Monitor

Nanoseconds = npt.NDArray[np.int64]
Call = Callable[[Any], object]

N_FEATURES, N_COMPONENTS, N_ATOMS = 32, 10, 128
CHUNK = 20_000
# Rows of a turn: the model gets ten times as many as each peer, because its blocks and refits are rare.
TURN, PEER_TURN = 2000, 200
# The first rows of each turn do not count for any method: the caches still hold the data of the others.
UNCOUNTED = 20
WARM_UP = 3000
# Rows learned before, rows that come one at a time, and rows of the peers.
AMOUNTS = {"whole": (2_000_000, 100_000, 4000), "quick": (200_000, 10_000, 2000), "tiny": (20_000, 2000, 500)}
N_PYOD_ROWS = 1000
# Rows of a stream that is learned in small blocks, and rows of a block.
N_STALL_ROWS = {"whole": 20_000, "quick": 20_000, "tiny": 1280}
STALL_BLOCK = 32


class Spin:
    """A loop of a given number of steps that touches almost no memory."""

    def __init__(self) -> None:
        self.n_steps = 200

    def run(self, row: object) -> None:
        """Run the loop."""
        for _ in range(self.n_steps):
            pass

    def match(self, own: Nanoseconds, other: Nanoseconds) -> None:
        """Set the number of steps so that the loop takes as long as another call, from the times of both."""
        self.n_steps = max(1, round(self.n_steps * float(np.median(other) / np.median(own))))


def time_rows(calls: Sequence[Call], arguments: Sequence[Any]) -> Nanoseconds:
    """Time each call alone, all calls for a row before the next row; shape (calls, rows)."""
    clock = time.perf_counter_ns
    found = np.empty((len(calls), len(arguments)), dtype=np.int64)
    for i, argument in enumerate(arguments):
        for j, call in enumerate(calls):
            start = clock()
            call(argument)
            found[j, i] = clock() - start
    return found


def fit_peers(rows: Array, gamma: float) -> dict[str, Call]:
    """Fit the peers that take a row as an array."""
    peers: dict[str, Call] = {}
    if is_installed("sklearn"):
        from sklearn.decomposition import IncrementalPCA, KernelPCA
        from sklearn.kernel_approximation import Nystroem
        from sklearn.pipeline import make_pipeline

        exact = KernelPCA(N_COMPONENTS, kernel="rbf", gamma=gamma, eigen_solver="arpack", random_state=0)
        nystroem = Nystroem(kernel="rbf", gamma=gamma, n_components=min(N_ATOMS, len(rows)), random_state=0)
        peers["KernelPCA transform"] = exact.fit(rows).transform
        peers["Nystroem + IncrementalPCA transform"] = (
            make_pipeline(nystroem, IncrementalPCA(N_COMPONENTS)).fit(rows).transform
        )
    if is_installed("pyod"):
        from pyod.models.kpca import KPCA

        detector = KPCA(n_components=N_COMPONENTS, gamma=gamma, random_state=0).fit(rows[:N_PYOD_ROWS])
        peers["pyod KPCA score"] = detector.decision_function
    return peers


def grow_trees(rows: Array) -> tuple[dict[str, Call], Callable[[Array], list[Any]]]:
    """Make River's half-space trees, if it is installed, and the function that turns rows into dicts."""
    low, high = rows.min(axis=0), rows.max(axis=0)

    def make_dicts(chunk: Array) -> list[Any]:
        scaled = np.clip((chunk - low) / (high - low), 0.0, 1.0)
        return [dict(enumerate(row)) for row in scaled.tolist()]

    if not is_installed("river"):
        return {}, make_dicts
    from river.anomaly import HalfSpaceTrees

    trees = HalfSpaceTrees(seed=0)
    for row in make_dicts(rows):
        trees.learn_one(row)
    return {"half-space trees score": trees.score_one, "half-space trees learn": trees.learn_one}, make_dicts


def summarise(nanoseconds: Nanoseconds) -> dict[str, float]:
    """Summarise calls in microseconds."""
    median, p99, p999 = np.quantile(nanoseconds, [0.5, 0.99, 0.999]) / 1e3
    mean = float(nanoseconds.mean()) / 1e3
    return {"median": float(median), "mean": mean, "p99": float(p99), "p99.9": float(p999)}


def time_blocks(make: Callable[[], Any], name: str, n_features: int, n_rows: int) -> dict[str, float]:
    """Time each block of a new stream, in milliseconds, after another one whose loops are compiled."""
    rows = Sheet(n_features).draw(n_rows)
    blocks = [rows[i : i + STALL_BLOCK] for i in range(0, n_rows, STALL_BLOCK)]
    for _ in range(2):
        nanoseconds = time_rows([getattr(make(), name)], blocks)[0]
    median, p999, most = np.quantile(nanoseconds, [0.5, 0.999, 1.0]) / 1e6
    return {"median": float(median), "p99.9": float(p999), "maximum": float(most)}


def measure(size: str, data: Path | None) -> Figures:
    """Time the model and its peers in turns."""
    n_before, n_rows, n_peer_rows = AMOUNTS[size]
    sheet = Sheet(N_FEATURES)
    model = StreamingKernelPCA(n_components=N_COMPONENTS, max_atoms=N_ATOMS, noise_variance=None, tolerance=1e-6)
    for start in range(0, n_before, CHUNK):
        model.partial_fit(sheet.draw(min(CHUNK, n_before - start)))
    peer_rows = sheet.draw(n_peer_rows)
    peers = fit_peers(peer_rows, model.kernel_.gamma)
    trees, make_dicts = grow_trees(peer_rows)
    own: dict[str, Call] = {
        "transform": model.transform,
        "novelty": model.novelty,
        "partial_fit": model.partial_fit,
    }
    # Everything runs for a while before it counts: loops compile, caches fill, trees reach their second window.
    warm = sheet.draw(min(WARM_UP, n_rows))
    rows = [warm[i : i + 1] for i in range(len(warm))]
    loop = Spin()
    loop.match(time_rows([loop.run], rows)[0], time_rows(list(own.values()), rows)[0])
    for call in peers.values():
        time_rows([call], rows[:PEER_TURN])
    found: dict[str, list[Nanoseconds]] = {}

    def note(calls: dict[str, Call], arguments: Sequence[Any]) -> None:
        for name, nanoseconds in zip(calls, time_rows(list(calls.values()), arguments), strict=True):
            found.setdefault(name, []).append(nanoseconds[UNCOUNTED:])

    for start in range(0, n_rows, TURN):
        chunk = sheet.draw(UNCOUNTED + min(TURN, n_rows - start))
        rows = [chunk[i : i + 1] for i in range(len(chunk))]
        note(own, rows)
        note({"a loop of that length": loop.run}, rows)
        loop.match(found["a loop of that length"][-1], found["transform"][-1])
        note(trees, make_dicts(chunk[: UNCOUNTED + PEER_TURN]))
        for name, call in peers.items():
            note({name: call}, rows[: UNCOUNTED + PEER_TURN])
    streams: dict[str, tuple[Callable[[], Any], str]] = {
        "model": (StreamingKernelPCA, "partial_fit"),
        "monitor": (Monitor, "update"),
    }
    stalls = {
        f"{name}, {n_features} features": time_blocks(make, call, n_features, N_STALL_ROWS[size])
        for name, (make, call) in streams.items()
        for n_features in (8, 32)
    }
    microseconds = {name: summarise(np.concatenate(parts)) for name, parts in found.items()}
    return {"microseconds": microseconds, "blocks": stalls}


def describe(figures: Figures) -> str:
    """Return a line for each call."""
    columns = ["median", "mean", "p99", "p99.9"]
    lines = figures["microseconds"].items()
    table = make_table(
        ["microseconds", *columns], [[name, *(line[column] for column in columns)] for name, line in lines]
    )
    if "blocks" not in figures:
        return table
    columns = ["median", "p99.9", "maximum"]
    stalls = [[name, *(line[column] for column in columns)] for name, line in figures["blocks"].items()]
    return f"{table}\n\n{make_table(['milliseconds of a block', *columns], stalls)}"


if __name__ == "__main__":
    run(measure, describe)
