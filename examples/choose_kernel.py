"""Which kernel, and how wide? Candidates are cross-validated by the one figure that compares kernels.

`score` is R^2 in input space: how well rows are reconstructed from their projections. So kernels with different feature
spaces can be compared, and scikit-learn's GridSearchCV can do it: kernels are parameters, and so are theirs
(``kernel__gamma``). The rows are scikit-learn's digits, or the first two-dimensional array of an npz file.

Run it in any folder (needs the extras ``plots`` and ``sklearn``)::

    python choose_kernel.py
    python choose_kernel.py usps.npz --components 20
"""

import argparse
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca import StreamingKernelPCA, plots
from streamkpca.kernels import RBF, Laplacian, Linear, Matern, Polynomial

try:
    from matplotlib.ticker import LogLocator
    from sklearn.datasets import load_digits
    from sklearn.model_selection import GridSearchCV
except ModuleNotFoundError as error:
    raise SystemExit(f'choose_kernel.py needs {error.name}; pip install "streamkpca[plots,sklearn]"') from None

Array = npt.NDArray[np.float64]
MOST_ROWS = 2000


def read_rows(path: Path | None) -> Array:
    """Read rows: a limited number of them, evenly spaced."""
    if path is None:
        rows = load_digits().data
    else:
        with np.load(path, allow_pickle=False) as file:
            rows = next(file[name] for name in file.files if file[name].ndim == 2).astype(float)
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int)]


def name_of(params: dict[str, Any], default: float) -> str:
    """Name a candidate, with few digits."""
    if "kernel__gamma" not in params:
        return repr(params["kernel"])
    gamma = params["kernel__gamma"]
    return f"RBF(gamma={gamma:.2g})" + (", 'spread'" if np.isclose(gamma, default) else "")


def save_picture(path: Path, results: dict[str, Any], default: float) -> None:
    """Draw for each kernel the share of the variance that is not reconstructed, best on top."""
    order = np.argsort(results["mean_test_score"])
    params = [results["params"][place] for place in order]
    missed, deviation = 1.0 - results["mean_test_score"][order], results["std_test_score"][order]
    is_rbf = np.array(["kernel__gamma" in candidate for candidate in params])
    figure = plots.make_figure(width=8, height=0.5 + 0.32 * len(order))
    axes = figure.add_subplot()
    # The whiskers of a perfect fit would end below zero, which a logarithmic axis cannot show.
    down = np.minimum(deviation, 0.9 * missed)
    for chosen, label, color in [(is_rbf, "RBF, five widths", "#0072B2"), (~is_rbf, "other kernels", "#D55E00")]:
        places, ends = np.flatnonzero(chosen), np.array([down[chosen], deviation[chosen]])
        axes.errorbar(missed[chosen], places, xerr=ends, fmt="o", color=color, capsize=3, label=label)
    axes.set_yticks(range(len(order)), [name_of(candidate, default) for candidate in params])
    axes.set(xscale="log", xlabel="variance not found again, 1 - R^2: mean, deviation")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.grid(axis="x", which="both", linewidth=0.4, color="#cccccc")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper right")
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

    try:
        rows = read_rows(arguments.file)
    except (OSError, ValueError, TypeError, StopIteration, zipfile.BadZipFile) as error:
        # A folder, a picture, an array of objects, ...
        raise SystemExit(
            f"choose_kernel: {arguments.file} cannot be read as an npz file ({type(error).__name__}); "
            "pass one with an array of rows and columns"
        ) from None
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
