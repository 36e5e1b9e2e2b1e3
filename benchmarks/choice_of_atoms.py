"""Claim: one pass within a budget chooses atoms nearly as well as methods that see all rows at once.

The figure is the share of the energy sum k(x, x) that the span of m atoms leaves unexplained, measured afterwards on
all rows, by the same formula for every method and without the model that chose them. The rows come twice: shuffled,
and sorted by class, where a method that looks only at the beginning fails.

* best rank m: what no choice can beat, from the eigenvalues of the kernel matrix.
* batch greedy: all rows at once, each time the row that explains most (Martin 2006, AKPCA).
* one pass: `StreamingKernelPCA` with max_atoms=m.
* randomly pivoted Cholesky (Chen, Epperly, Tropp, Webber 2025): all rows at once, the median of 5 seeds.
* first m rows.

Run::

    python benchmarks/choice_of_atoms.py                          # scikit-learn's digits (extra ``sklearn``)
    python benchmarks/choice_of_atoms.py usps.npz --atoms 100     # arrays X_train and y_train
    python benchmarks/choice_of_atoms.py --tiny

All rows' kernel matrix is held three times over: 1.3 GB for the 7,291 rows of USPS.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse.linalg import eigsh

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF, Kernel

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
N_SEEDS = 5
DEPENDENT = 1e-10


def unexplained(gram: Array, chosen: Positions) -> float:
    """Measure the share of trace(K) outside the span of chosen rows, 1 - |L^-1 K[chosen]|^2 / trace(K)."""
    factor = cholesky(gram[np.ix_(chosen, chosen)], lower=True)
    coordinates = solve_triangular(factor, gram[chosen], lower=True)
    return 1.0 - float(np.vdot(coordinates, coordinates) / np.trace(gram))


def best_rank(gram: Array, m: int) -> float:
    """Measure what the first m eigenvectors leave unexplained."""
    eigenvalues = eigsh(gram, k=m, v0=np.ones(len(gram)), return_eigenvectors=False)
    return 1.0 - float(eigenvalues.sum() / np.trace(gram))


def choose_greedily(gram: Array, m: int) -> Positions:
    """Choose the row of largest sum_i R_ij^2 / R_jj, take its direction out of R, and again; O(n^2 m)."""
    residual = gram.copy()
    chosen: list[int] = []
    for _ in range(m):
        own = residual.diagonal()
        free = own > DEPENDENT * gram.diagonal()
        gains = np.einsum("ij,ij->i", residual, residual) / np.where(free, own, np.inf)
        best = int(np.argmax(gains))
        along = residual[best] / np.sqrt(own[best])
        residual -= np.outer(along, along)
        chosen.append(best)
    return np.array(chosen)


def choose_randomly(gram: Array, m: int, seed: int) -> Positions:
    """Draw rows with probability proportional to what is left of them, one by one."""
    generator = np.random.default_rng(seed)
    own = gram.diagonal().copy()
    directions = np.empty((m, len(gram)))
    chosen: list[int] = []
    for i in range(m):
        pivot = int(generator.choice(len(gram), p=own / own.sum()))
        along = gram[pivot] - directions[:i, pivot] @ directions[:i]
        directions[i] = along / np.sqrt(along[pivot])
        own = np.maximum(own - directions[i] ** 2, 0.0)
        own[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen)


def choose_in_one_pass(rows: Array, kernel: Kernel, m: int, block_size: int) -> Positions:
    """Stream the rows once and return the positions of the atoms that are left at the end."""
    # The choice does not depend on the weights, so none are fitted.
    model = StreamingKernelPCA(kernel=kernel, max_atoms=m, block_size=block_size, noise_variance=None)
    return model.partial_fit(rows).refit().atom_rows_


def load_rows(path: Path | None) -> tuple[Array, npt.NDArray[np.int64]]:
    """Load rows and classes from X_train and y_train of an npz file, or scikit-learn's digits."""
    if path is None:
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    with np.load(path) as arrays:
        missing = {"X_train", "y_train"} - set(arrays.files)
        if missing:
            raise SystemExit(
                f"choice_of_atoms: {path} has no array {', '.join(sorted(missing))}, it has "
                f"{', '.join(arrays.files)}; save the rows as X_train and their classes as y_train"
            )
        return arrays["X_train"].astype(np.float64, order="C"), arrays["y_train"].astype(np.int64)


def compare(rows: Array, classes: npt.NDArray[np.int64], kernel: Kernel, m: int, block_size: int) -> dict[str, float]:
    """Measure every method; print a line as soon as it is known."""
    figures: dict[str, float] = {}

    def report(name: str, measure: Callable[[], float]) -> None:
        start = time.perf_counter()
        figures[name] = measure()
        print(f"{name:<44} {figures[name]:>8.4f} {time.perf_counter() - start:>8.1f}", flush=True)

    shuffled = np.random.default_rng(0).permutation(len(rows))
    orders = {"shuffled": shuffled, "sorted by class": shuffled[np.argsort(classes[shuffled], kind="stable")]}
    gram = kernel.matrix(rows)
    print(f"{'share of the energy left unexplained':<44} {'share':>8} {'seconds':>8}")
    report("best rank m", lambda: best_rank(gram, m))
    report("batch greedy", lambda: unexplained(gram, choose_greedily(gram, m)))
    for name, order in orders.items():
        report(
            f"one pass, {name}",
            lambda order=order: unexplained(gram, order[choose_in_one_pass(rows[order], kernel, m, block_size)]),
        )
    report(
        f"randomly pivoted Cholesky, median of {N_SEEDS}",
        lambda: float(np.median([unexplained(gram, choose_randomly(gram, m, seed)) for seed in range(N_SEEDS)])),
    )
    for name, order in orders.items():
        report(f"first m rows, {name}", lambda order=order: unexplained(gram, order[:m]))
    return figures


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Compare ways to choose the rows that stand for all others.")
    parser.add_argument("path", nargs="?", type=Path, help="npz file with X_train and y_train (default: digits)")
    parser.add_argument("--atoms", type=int, default=100, help="budget m (default 100)")
    parser.add_argument("--gamma", default="median", help='"median", "scale" or a number (default median)')
    parser.add_argument("--block-size", type=int, default=512, help="rows worked off together (default 512)")
    parser.add_argument("--tiny", action="store_true", help="300 rows, 20 atoms, blocks of 100")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    rows, classes = load_rows(arguments.path)
    m, block_size = arguments.atoms, arguments.block_size
    if arguments.tiny:
        rows, classes, m, block_size = rows[:300], classes[:300], 20, 100
    if not 0 < m < len(rows):
        parser.error(f"--atoms expected a number from 1 to {len(rows) - 1}, fewer than the rows, but got {m}")

    gamma = arguments.gamma if arguments.gamma in ("median", "scale") else float(arguments.gamma)
    # Settled on all rows, so that the order of the rows does not change the kernel.
    kernel = RBF(gamma).settled(rows)
    print(f"{len(rows):,} rows of {rows.shape[1]} features, {kernel}, m = {m} atoms, blocks of {block_size}")
    figures = compare(rows, classes, kernel, m, block_size)
    if arguments.json:
        record = {
            "rows": len(rows),
            "kernel": repr(kernel),
            "atoms": m,
            "block_size": block_size,
            "unexplained": figures,
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
