"""Greedy bases
============

Kernel PCA in the span of few rows, chosen one after another by the energy that they capture.

This repeats the experiments of S. Martin, "An approximate version of kernel PCA" (ICMLA 2006) on the two toy data sets
that B. Schölkopf, A. Smola and K.-R. Müller (Neural Computation 10, 1998) made for kernel PCA: a noisy parabola with a
polynomial kernel, and three clusters with a Gaussian kernel of squared width 0.1. Every row is a candidate.

There are three pictures. Two show, for each data set, the contours of the first components: exact, and from the rows
chosen (circled) by either criterion. The third shows, for both, the energy left unexplained by the number of rows,
beside the exact axes and rows taken at random, with the "singular values" of the chosen rows.

Where ours differs: the rows are drawn anew, because the source's are not published. Its criterion divides the energy
that a row's residual shares with all rows by the length of the row itself ("original"); divided by the length of the
residual ("residual") it is the energy that the row truly captures. The source uses the directions of the chosen rows
themselves; ours are the principal axes in their span.

Run it in any folder (needs the extra ``plots``)::

    python greedy_bases.py
    python greedy_bases.py --seed 1 --out pictures
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamkpca import ApproximateKernelPCA, KernelPCA, plots
from streamkpca.kernels import RBF, Kernel, Polynomial

try:
    from matplotlib import colormaps
except ModuleNotFoundError as error:
    raise SystemExit(f'greedy_bases.py needs {error.name}; pip install "streamkpca[plots]"') from None

Array = npt.NDArray[np.float64]

Criterion = Literal["residual", "original"]

CRITERIA: tuple[Criterion, ...] = ("residual", "original")
COMPONENTS = 4
RANDOM_BASES = 50
COLORS = {"residual": "#0072B2", "original": "#D55E00", "random": "#999999", "exact": "#000000"}


@dataclass(frozen=True)
class Experiment:
    """Rows, a kernel, the number of chosen rows in the contours, and the largest number in the energy curve."""

    name: str
    rows: Array
    kernel: Kernel
    few: int
    many: int


def make_experiments(seed: int) -> tuple[Experiment, Experiment]:
    """Draw the parabola and the clusters."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=100)
    parabola = np.column_stack([x, x**2 + rng.normal(scale=0.2, size=100)])
    centres = np.array([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]])
    clusters = (centres[:, None] + rng.normal(scale=0.1, size=(3, 30, 2))).reshape(-1, 2)
    return (
        # Feature space has five dimensions: x^4, x^3 y and so on.
        Experiment("parabola", parabola, Polynomial(degree=4, gamma=1.0, coef0=0.0), few=4, many=5),
        Experiment("clusters", clusters, RBF(1.0 / 0.1), few=9, many=30),
    )


def fit_greedy(experiment: Experiment, criterion: Criterion, max_atoms: int) -> ApproximateKernelPCA:
    """Choose a number of rows; every row is a candidate."""
    return ApproximateKernelPCA(
        COMPONENTS,
        max_atoms=max_atoms,
        atoms="rows",
        kernel=experiment.kernel,
        criterion=criterion,
        n_candidates=None,
    ).fit(experiment.rows)


def unexplained_shares(kernel: Kernel, rows: Array, chosen: npt.NDArray[np.int64]) -> Array:
    """Measure the energy left after each row chosen, by Martin's Gram-Schmidt on inner products; shape (m + 1,)."""
    residual = kernel.matrix(rows, rows)
    energy = np.diagonal(residual).copy()
    shares = [1.0]
    for row in chosen:
        # A row that depends on those before it adds no direction.
        if residual[row, row] > 1e-12 * energy[row]:
            residual = residual - np.outer(residual[:, row], residual[row]) / residual[row, row]
        shares.append(np.trace(residual) / energy.sum())
    return np.array(shares)


def measure_energy(experiment: Experiment, models: dict[str, ApproximateKernelPCA], seed: int) -> dict[str, Array]:
    """Measure the shares of energy left unexplained by 0, 1, ... rows or exact axes."""
    kernel, rows, most = experiment.kernel, experiment.rows, experiment.many
    exact = KernelPCA(most, kernel=kernel, center=False).fit(rows)
    rng = np.random.default_rng(seed)
    draws = [unexplained_shares(kernel, rows, rng.permutation(len(rows))[:most]) for _ in range(RANDOM_BASES)]
    shares = {name: unexplained_shares(kernel, rows, model.atom_rows_) for name, model in models.items()}
    shares["random"] = np.median(draws, axis=0)
    shares["exact"] = 1.0 - np.concatenate([[0.0], np.cumsum(exact.explained_variance_ratio_)])
    return {name: np.maximum(values, 0.0) for name, values in shares.items()}


def exact_singular_values(experiment: Experiment) -> Array:
    """Compute the singular values of the rows in feature space, largest first."""
    exact = KernelPCA(experiment.many, kernel=experiment.kernel, center=False).fit(experiment.rows)
    return np.sqrt(exact.eigenvalues_ * len(experiment.rows))


def smallest_cosine(ours: Array, theirs: Array) -> float:
    """Measure how far projections of the same rows span the same space; 1 if they do."""
    (first, _), (second, _) = np.linalg.qr(ours - ours.mean(axis=0)), np.linalg.qr(theirs - theirs.mean(axis=0))
    return float(np.linalg.svd(first.T @ second, compute_uv=False)[-1])


def save_contours(path: Path, experiment: Experiment, models: dict[str, KernelPCA | ApproximateKernelPCA]) -> None:
    """Draw contours of each component, one model a line, with the signs of the first model."""
    rows = experiment.rows
    low, high = rows.min(axis=0) - 0.25, rows.max(axis=0) + 0.25
    grid = np.meshgrid(np.linspace(low[0], high[0], 121), np.linspace(low[1], high[1], 121))
    points = np.column_stack([axis.ravel() for axis in grid])
    figure = plots.make_figure(width=11, height=8.2)
    panels = figure.subplots(len(models), COMPONENTS, sharex=True, sharey=True)
    reference = next(iter(models.values())).transform(rows)
    for line, (name, model) in zip(panels, models.items(), strict=True):
        signs = np.where((model.transform(rows) * reference).sum(axis=0) < 0.0, -1.0, 1.0)
        surfaces = (model.transform(points) * signs).T.reshape(-1, *grid[0].shape)
        for i, (panel, surface) in enumerate(zip(line, surfaces, strict=True)):
            draw_surface(panel, grid, surface)
            panel.plot(*rows.T, ".", color="black", markersize=2.5)
            if isinstance(model, ApproximateKernelPCA):
                panel.plot(*model.atoms_.T, "o", color="#009E73", fillstyle="none", markersize=9, markeredgewidth=1.6)
            panel.set_title(f"component {i}: {model.explained_variance_ratio_[i]:.1%} of variance", fontsize="small")
            panel.set(xticks=[], yticks=[])
        line[0].set_ylabel(name)
    figure.savefig(path, dpi=130)


def draw_surface(panel: Any, grid: tuple[Array, ...], surface: Array) -> None:
    """Draw contours that are dense around zero: polynomials grow fast away from the rows."""
    most = np.abs(surface).max()
    steps = np.linspace(0.0, 1.0, 8)[1:] ** 1.5 * most
    levels = np.concatenate([-steps[::-1], [0.0], steps])
    shades = np.linspace(0.08, 0.92, len(levels) - 1)
    panel.contourf(*grid, surface, levels, colors=colormaps["RdBu_r"](shades))
    panel.contour(*grid, surface, levels, colors="#333333", linewidths=0.4)


def save_energy(path: Path, measured: list[tuple[Experiment, dict[str, Array], dict[str, Array]]]) -> None:
    """Draw the energy left unexplained and the singular values against the number of rows."""
    figure = plots.make_figure(width=11, height=7.6)
    for line, (experiment, shares, singular_values) in zip(figure.subplots(2, 2), measured, strict=True):
        left, right = line
        for name, color in COLORS.items():
            style = "--" if name == "exact" else "-"
            label = {"exact": "exact axes", "random": f"random rows, median of {RANDOM_BASES}"}.get(name, name)
            known = shares[name] > 1e-10
            left.plot(np.flatnonzero(known), shares[name][known], style, color=color, marker=".", label=label)
            if name in singular_values:
                values = singular_values[name]
                right.plot(np.arange(1, len(values) + 1), values, style, color=color, marker=".", label=label)
        left.set(xlabel="rows chosen", ylabel="share of energy left unexplained", yscale="log")
        right.set(xlabel="row chosen", ylabel="singular value", yscale="log")
        for panel in line:
            panel.set_title(experiment.name, fontsize="medium")
            panel.spines[["top", "right"]].set_visible(False)
            panel.legend(fontsize="small", frameon=False)
            panel.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Approximate kernel PCA of two toy data sets (Martin 2006).")
    parser.add_argument("--seed", type=int, default=0, help="draw of the rows (default 0)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the pictures (default: this one)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    measured, pictures = [], []
    for experiment in make_experiments(arguments.seed):
        exact = KernelPCA(COMPONENTS, kernel=experiment.kernel).fit(experiment.rows)
        few: dict[str, ApproximateKernelPCA] = {name: fit_greedy(experiment, name, experiment.few) for name in CRITERIA}
        many: dict[str, ApproximateKernelPCA] = {
            name: fit_greedy(experiment, name, experiment.many) for name in CRITERIA
        }
        shares = measure_energy(experiment, many, arguments.seed)
        singular_values = {name: model.singular_values_ for name, model in many.items()}
        singular_values["exact"] = exact_singular_values(experiment)
        measured.append((experiment, shares, singular_values))

        print(f"{experiment.name}: {len(experiment.rows)} rows, {experiment.kernel}")
        for name, model in few.items():
            cosine = smallest_cosine(model.transform(experiment.rows)[:, :2], exact.transform(experiment.rows)[:, :2])
            chosen = f"{model.n_atoms_} rows by {name}"
            print(f"  cosine of the first two axes with the exact, {chosen:<21} {cosine:.4f}")
        print(f"  {'':>4}   {'share of energy left unexplained':^39}   {'singular value':^29}")
        print(
            "  rows   "
            + "".join(f"{name:>10}" for name in shares)
            + "  "
            + "".join(f"{n:>10}" for n in singular_values)
        )
        for m in [m for m in (1, 2, 3, 4, 5, 6, 9, 12, 15, 20, 25, 30) if m <= experiment.many]:
            energy = "".join(f"{values[m]:>10.5f}" for values in shares.values())
            print(f"  {m:>4}   {energy}  " + "".join(f"{values[m - 1]:>10.4f}" for values in singular_values.values()))
        print()

        pictures.append(arguments.out / f"greedy_bases_{experiment.name}.png")
        lines = {f"exact, all {len(experiment.rows)} rows": exact}
        save_contours(pictures[-1], experiment, lines | {f"{experiment.few} rows by {n}": few[n] for n in CRITERIA})
    pictures.append(arguments.out / "greedy_bases_energy.png")
    save_energy(pictures[-1], measured)
    print("pictures:", ", ".join(str(picture) for picture in pictures))


if __name__ == "__main__":
    main()
