"""Which kernel, and how wide? Cross-validated by the one figure that compares kernels.

`score` is R^2 in input space: how well rows are found again from their projections. So kernels with different feature
spaces can be compared, and scikit-learn's GridSearchCV does it: kernels are parameters, and so are theirs
(``kernel__gamma``). Rows are scikit-learn's digits, or the first two-dimensional array of an npz file.

Run it in any folder (needs the extras ``plots`` and ``sklearn``)::

    python choose_kernel.py
    python choose_kernel.py usps.npz --components 20
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from streamkpca import StreamingKernelPCA, plots
from streamkpca.kernels import RBF, Laplacian, Linear, Matern, Polynomial

Array = npt.NDArray[np.float64]
MOST_ROWS = 2000


def read_rows(path: Path | None) -> Array:
    """Read rows, no more than some evenly spaced."""
    if path is None:
        rows = load_digits().data
    else:
        with np.load(path, allow_pickle=False) as file:
            rows = next(file[name] for name in file.files if file[name].ndim == 2).astype(float)
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int)]


def save_picture(path: Path, results: dict[str, Any], default: float) -> None:
    """Draw the scores of RBF kernels over gamma, and the other kernels as lines across."""
    figure = plots.make_figure(width=8, height=4.5)
    axes = figure.add_subplot()
    found = list(zip(results["params"], results["mean_test_score"], results["std_test_score"], strict=True))
    widths = [(params["kernel__gamma"], mean, std) for params, mean, std in found if "kernel__gamma" in params]
    gamma, mean, spread = np.array(sorted(widths)).T
    axes.errorbar(gamma, mean, spread, marker="o", color="#0072B2", label="RBF", capsize=3)
    others = [(params["kernel"], mean) for params, mean, _ in found if "kernel__gamma" not in params]
    colors = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000")
    for (kernel, mean), color in zip(others, colors, strict=False):
        axes.axhline(mean, color=color, linewidth=1.2, linestyle="--", label=repr(kernel))
    axes.axvline(default, color="#999999", linewidth=0.8, linestyle=":", label="gamma='spread'")
    axes.set(xscale="log", xlabel="gamma", ylabel="R^2 of rows found again", title="cross-validated score of kernels")
    axes.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Choose a kernel by cross-validation.")
    parser.add_argument("file", type=Path, nargs="?", help="npz file with rows (default: scikit-learn's digits)")
    parser.add_argument("--components", type=int, default=10, help="number of axes (default 10)")
    parser.add_argument("--atoms", type=int, default=128, help="budget of atoms (default 128)")
    parser.add_argument("--folds", type=int, default=3, help="of the cross-validation (default 3)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture (default: this one)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    rows = read_rows(arguments.file)
    default = RBF().settled(rows).gamma
    assert isinstance(default, float)
    search = GridSearchCV(
        StreamingKernelPCA(arguments.components, max_atoms=arguments.atoms),
        [
            {"kernel": [RBF()], "kernel__gamma": list(default * np.geomspace(0.1, 10.0, 5))},
            {"kernel": [Linear(), Polynomial(2), Polynomial(3), Matern(1.5), Laplacian()]},
        ],
        cv=arguments.folds,
    ).fit(rows)

    results = search.cv_results_
    print(f"{len(rows):,} rows of {rows.shape[1]} features, {arguments.folds} folds, {arguments.components} axes")
    order = np.argsort(-results["mean_test_score"])
    for place in order:
        params = results["params"][place]
        name = repr(
            params["kernel"].with_parameter("gamma", params["kernel__gamma"]) if len(params) > 1 else params["kernel"]
        )
        print(f"{results['mean_test_score'][place]:7.3f} +- {results['std_test_score'][place]:.3f}  {name}")
    print(f"best: {search.best_estimator_.kernel_}")
    save_picture(arguments.out / "choose_kernel.png", results, default)
    print(f"picture: {arguments.out / 'choose_kernel.png'}")


if __name__ == "__main__":
    main()
