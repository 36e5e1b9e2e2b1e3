"""How well do its atoms approximate a kernel matrix, beside randomly pivoted Cholesky?

The gallery of [1]_: 10,000 points and an RBF kernel of a given standard deviation. The figure is the trace of what the
Nystroem approximation with k atoms leaves, relative to the trace of the matrix.

* **RPCholesky**: rows drawn in proportion to what is left of them, median of five draws; **greedy**: the row of which
  most is left. Both compute kernel values of all rows for each choice.
* **batch** and **batch, moved**: `ApproximateKernelPCA`, whose atoms are rows, or move.
* **one pass** and **one pass, moved**: `StreamingKernelPCA`, which sees each row once, in random order.

The last line counts the matrices and k at which ours leaves at most as much as RPCholesky. Where less than a millionth
is left, the sample of rows that judges swaps in one pass is too small to tell, and at 1e-11 rounding decides.

.. [1] Y. Chen, E. N. Epperly, J. A. Tropp, R. J. Webber, "Randomly pivoted Cholesky", Comm. Pure Appl. Math. 2025,
   arXiv 2207.06503, Fig. 1.
"""

from pathlib import Path

import numpy as np
from common import Array, Figures, find_files, make_table, run
from scipy.linalg import solve_triangular

from streamkpca import ApproximateKernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF, Kernel

N_POINTS = {"whole": 10_000, "quick": 4000, "tiny": 600}
SIZES = {"whole": (10, 30, 50, 100, 150), "quick": (20, 100), "tiny": (5, 10)}
N_DRAWS = {"whole": 5, "quick": 3, "tiny": 1}
# The width of the USPS digits in Tipping's paper.
USPS_GAMMA = 0.00206
OURS = ("batch", "batch, moved", "one pass", "one pass, moved")


def draw_smile(n: int, random: np.random.Generator) -> Array:
    """Draw a face: an outline, a mouth, and two eyes full of points."""
    n_eye, n_mouth = int(np.ceil(np.sqrt(n))), n // 10
    radius, angle = np.sqrt(random.random((2, n_eye))), random.uniform(0.0, 2.0 * np.pi, (2, n_eye))
    eyes = [[r * np.cos(a) + x, r * np.sin(a) + 4.0] for r, a, x in zip(radius, angle, (-4.0, 4.0), strict=True)]
    along = np.linspace(-5.0, 5.0, n_mouth)
    turn = np.linspace(0.0, 2.0 * np.pi, n - 2 * n_eye - n_mouth)
    parts = [*eyes, [along, along**2 / 16.0 - 5.0], [10.0 * np.cos(turn), 10.0 * np.sin(turn)]]
    return np.hstack([np.array(part) for part in parts]).T


def draw_spiral(n: int) -> Array:
    """Draw a spiral with most points in its middle."""
    times = np.linspace(0.0, 2.0, n) ** 6
    return np.exp(0.2 * times)[:, None] * np.column_stack([np.cos(times), np.sin(times)])


def draw_exponential_spiral(n: int) -> Array:
    """Draw a spiral whose radius falls exponentially."""
    times = np.arange(n)
    radius = np.exp(-1e-3 * n * (times / n) ** 1.5)
    return radius[:, None] * np.column_stack([np.cos(5e-3 * times), np.sin(5e-3 * times)])


def draw_outliers(n: int, random: np.random.Generator) -> Array:
    """Draw a cloud in 20 dimensions, and 50 points far away."""
    points = 0.5 * random.normal(size=(n, 20)) / np.sqrt(20.0)
    points[random.choice(n, 50, replace=False)] += 100.0 * random.normal(size=(50, 20))
    return points


def draw_gallery(n: int, random: np.random.Generator) -> dict[str, tuple[Array, float]]:
    """Return points and the standard deviation of the kernel, by the name of the matrix."""
    smile = draw_smile(n, random)
    gallery = {
        "smile, 2": (smile, 2.0),
        "smile, 0.2": (smile, 0.2),
        "spiral": (draw_spiral(n), 1000.0),
        "exponential spiral": (draw_exponential_spiral(n), 0.02),
        "outliers": (draw_outliers(n, random), 1.0),
    }
    return gallery | {f"normal, {d}": (random.normal(size=(n, d)), float(np.sqrt(d))) for d in (2, 10, 100)}


def pivot(kernel: Kernel, points: Array, sizes: tuple[int, ...], random: np.random.Generator | None) -> Array:
    """Return the shares of the trace that the first rows leave, drawn by what is left of them, or greedily."""
    left = kernel.diagonal(points).copy()
    trace, directions = left.sum(), np.zeros((max(sizes), len(points)))
    shares = np.zeros(max(sizes) + 1)
    for i in range(max(sizes)):
        row = int(np.argmax(left)) if random is None else int(random.choice(len(points), p=left / left.sum()))
        along = kernel.matrix(points[[row]], points)[0] - directions[:i, row] @ directions[:i]
        directions[i] = along / np.sqrt(max(along[row], np.finfo(float).tiny))
        left = np.maximum(left - directions[i] ** 2, 0.0)
        left[row] = 0.0
        shares[i + 1] = left.sum() / trace
        if not left.any():
            break
    return shares[list(sizes)]


def measure_left(kernel: Kernel, points: Array, atoms: Array) -> float:
    """Return the share of the trace outside the span of atoms, with as little jitter as a factor needs."""
    gram, jitter = kernel.matrix(atoms), 0.0
    while True:
        try:
            factor = np.linalg.cholesky(gram + jitter * np.eye(len(gram)))
            break
        except np.linalg.LinAlgError:
            jitter = max(10.0 * jitter, 1e-15)
    coordinates = solve_triangular(factor, kernel.matrix(atoms, points), lower=True)
    diagonal = kernel.diagonal(points)
    return float(np.maximum(diagonal - (coordinates**2).sum(axis=0), 0.0).sum() / diagonal.sum())


def approximate(kernel: Kernel, points: Array, k: int, order: Array) -> dict[str, float]:
    """Return what our methods leave with k atoms."""
    found = {}
    for suffix, atoms in (("", "rows"), (", moved", "moved")):
        batch = ApproximateKernelPCA(max_atoms=k, kernel=kernel, atoms=atoms).fit(points)
        model = StreamingKernelPCA(max_atoms=k, kernel=kernel, atoms=atoms, tolerance=0.0, noise_variance=None)
        stream = model.partial_fit(points[order]).refit()
        found |= {
            f"batch{suffix}": measure_left(kernel, points, batch.atoms_),
            f"one pass{suffix}": measure_left(kernel, points, stream.atoms_),
        }
    return found


def measure(size: str, data: Path | None) -> Figures:
    """Approximate every matrix with every number of atoms."""
    n, sizes, random = N_POINTS[size], SIZES[size], np.random.default_rng(0)
    gallery = draw_gallery(n, random)
    for path in find_files(data, "usps"):
        with np.load(path) as file:
            gallery["USPS digits"] = file["X_train"][:n].astype(float), float(np.sqrt(0.5 / USPS_GAMMA))
    matrices: Figures = {}
    for name, (points, deviation) in gallery.items():
        kernel, order = RBF(0.5 / deviation**2), random.permutation(len(points))
        draws = [pivot(kernel, points, sizes, np.random.default_rng(seed)) for seed in range(N_DRAWS[size])]
        drawn, greedy = np.median(draws, axis=0), pivot(kernel, points, sizes, None)
        matrices[name] = {
            str(k): {"RPCholesky": float(drawn[i]), "greedy": float(greedy[i])} | approximate(kernel, points, k, order)
            for i, k in enumerate(sizes)
        }
    cells = [found for by_k in matrices.values() for found in by_k.values()]
    wins = {name: sum(found[name] <= found["RPCholesky"] for found in cells) for name in OURS}
    return {"n_points": n, "matrices": matrices, "wins": wins, "n_cells": len(cells)}


def describe(figures: Figures) -> str:
    """Return what is left, by matrix and number of atoms."""
    columns = ["RPCholesky", "greedy", *OURS]
    rows = [
        [name, k, *(f"{found[column]:.1e}" for column in columns)]
        for name, by_k in figures["matrices"].items()
        for k, found in by_k.items()
    ]
    wins = ", ".join(f"{name} in {count}" for name, count in figures["wins"].items())
    table = make_table(["matrix", "k", *columns], rows)
    return f"{table}\n\nAt most what RPCholesky leaves, of {figures['n_cells']}: {wins}."


if __name__ == "__main__":
    run(measure, describe)
