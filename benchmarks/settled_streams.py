"""How fast is a settled stream learned?

Rows for each processor second of `partial_fit` in blocks of 512 when the atoms no longer change, on one thread; drift
test, samples, checks and copies are included, searches and refits are not.

* **the pieces**: that time relative to the sum of what no method can leave out: the distances, the exponentials, and
  one product of the kernel values with themselves (SYRK), timed alone in the same process, in turns.
* **with all**: rows a second with the searches and refits of a stream of ten million rows.
* **the pair**: relative to the rows a second of scikit-learn's Nystroem(m) and IncrementalPCA(10) at the best of
  several batch sizes.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Array, Figures, Sheet, count_atoms, is_installed, make_table, run, set_schedule, time_call
from scipy.linalg.blas import dsyrk

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF

BLOCK = 512
# Blocks of a stream of ten million rows, and the distance between its searches.
OLD_BLOCKS, SEARCH_INTERVAL = 10_000_000 // BLOCK, 1024
SIZES = {
    "whole": [(64, 8), (128, 32), (256, 32), (512, 64), (1024, 128), (256, 784)],
    "quick": [(256, 32), (512, 64)],
    "tiny": [(16, 4)],
}
N_BLOCKS = {"whole": 64, "quick": 32, "tiny": 2}
N_TURNS = {"whole": 7, "quick": 5, "tiny": 1}


def settle(m: int, d: int) -> tuple[StreamingKernelPCA, Sheet]:
    """Fill a model's budget, block by block."""
    sheet = Sheet(d)
    kernel = RBF("spread").settled(sheet.draw(2000))
    model = StreamingKernelPCA(kernel=kernel, max_atoms=m, tolerance=1e-6, refit_every=10**12)
    while not count_atoms(model) >= m:
        model.partial_fit(sheet.draw(BLOCK))
    model.partial_fit(sheet.draw(8 * BLOCK)).refit()
    return model, sheet


def compute_pieces(atoms: Array, rows: Array, gamma: float) -> Callable[[], object]:
    """Return what computes distances, exponentials and one product for a block."""
    squares, own = np.square(atoms).sum(axis=1), np.square(rows).sum(axis=1)
    values = np.empty((len(rows), len(atoms)), order="F")
    doubled = np.asfortranarray(-2.0 * atoms.T)

    def compute() -> None:
        np.matmul(rows, doubled, out=values)
        np.add(values, squares, out=values)
        np.add(values, own[:, None], out=values)
        np.multiply(values, -gamma, out=values)
        np.exp(values, out=values)
        dsyrk(1.0, values, trans=1)

    return compute


def time_pair(sheet: Sheet, rows: Array, gamma: float, m: int) -> float:
    """Return the seconds a row of scikit-learn's pair at its best batch size."""
    from sklearn.decomposition import IncrementalPCA
    from sklearn.kernel_approximation import Nystroem

    first = sheet.draw(max(2048, 2 * m))
    features = Nystroem(gamma=gamma, n_components=m, random_state=0).fit(first)
    pca, found = IncrementalPCA(10), []
    pca.partial_fit(features.transform(first))
    for size in [size for size in (256, 1024, 4096, 16384) if m <= size <= len(rows)] or [len(rows)]:
        pieces = [rows[start : start + size] for start in range(0, len(rows), size)][: max(1, 8192 // size)]
        taken = [time_call(lambda piece=piece: pca.partial_fit(features.transform(piece)))[0] for piece in pieces]
        found.append(sum(taken) / sum(map(len, pieces)))
    return min(found)


def measure_size(m: int, d: int, n_blocks: int, n_turns: int) -> Figures:
    """Measure one size, everything in turns."""
    model, sheet = settle(m, d)
    rows = sheet.draw(n_blocks * BLOCK)
    atoms, gamma = model.state_.summary.basis.atoms, model.kernel_.gamma
    compute = compute_pieces(np.asarray(atoms), rows[:BLOCK], gamma)
    taken: dict[str, list[float]] = {name: [] for name in ("one", "pieces", "refit", "searched")}

    def learn() -> None:
        # As old as a stream of ten million rows, with its next search as late as possible.
        set_schedule(model, countdown=SEARCH_INTERVAL - 1, usual_residual=np.inf, n_blocks=OLD_BLOCKS)
        model.partial_fit(rows)

    learn()
    for _ in range(n_turns):
        taken["one"].append(time_call(learn)[0])
        taken["pieces"].append(time_call(lambda: [compute() for _ in range(10)])[0] / 10)
        taken["refit"].append(time_call(model.refit)[0])
        set_schedule(model, countdown=0)
        block = sheet.draw(BLOCK)
        taken["searched"].append(time_call(lambda block=block: model.partial_fit(block))[0])
    middle = {name: float(np.median(values)) for name, values in taken.items()}
    a_row = middle["one"] / len(rows)
    search = max(middle["searched"] - a_row * BLOCK, 0.0) / (SEARCH_INTERVAL * BLOCK)
    return {
        "atoms": m,
        "features": d,
        "rows_per_second": 1.0 / a_row,
        "milliseconds": 1e3 * a_row * BLOCK,
        "pieces": a_row * BLOCK / middle["pieces"],
        "with_all": 1.0 / (a_row + search + middle["refit"] / (128 * max(m, 128))),
        "pair": time_pair(sheet, rows, gamma, m) / a_row if is_installed("sklearn") else None,
    }


def measure(size: str, data: Path | None) -> Figures:
    """Measure every size."""
    return {"sizes": [measure_size(m, d, N_BLOCKS[size], N_TURNS[size]) for m, d in SIZES[size]]}


def describe(figures: Figures) -> str:
    """Return a line for each size."""
    head = ["atoms x features", "ms a block", "rows/s", "the pieces", "with all, rows/s", "the pair"]
    rows = [
        [
            f"{line['atoms']} x {line['features']}",
            f"{line['milliseconds']:.2f}",
            f"{line['rows_per_second']:,.0f}",
            f"{line['pieces']:.2f}",
            f"{line['with_all']:,.0f}",
            f"{line['pair']:.1f}" if line["pair"] else "-",
        ]
        for line in figures["sizes"]
    ]
    return make_table(head, rows)


if __name__ == "__main__":
    run(measure, describe)
