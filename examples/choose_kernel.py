"""Which kernel, and how wide?
===========================

It depends on what the model is for. Candidates are cross-validated by two figures, neither of which needs labels:

* **Telling odd rows from usual ones**: the area under the ROC curve of `novelty` for rows that the model has not seen
  and for copies of them in which one number is another row's. 0.5 is chance.
* **Reconstructing rows from few axes**: `score`, the R^2 of rows that are found again from their projections.

They choose differently. PCA has the least squared error of all linear methods, so a kernel can hardly reconstruct rows
better, and wide kernels come near it; on scikit-learn's digits, too, no kernel does. But odd rows are not far from the
axes only: where features depend on each other in curved ways, a local kernel tells them from usual rows and PCA's
squared prediction error (SPE), a dashed line in the picture, does not. The default width is made for that.

The rows are 20 sensors that depend on two causes, or the first two-dimensional array of an npz file. Kernels are
parameters of scikit-learn's GridSearchCV, and so are theirs (``kernel__gamma``).

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
    from sklearn.decomposition import PCA
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GridSearchCV, KFold
except ModuleNotFoundError as error:
    raise SystemExit(f'choose_kernel.py needs {error.name}; pip install "streamkpca[plots,sklearn]"') from None

Array = npt.NDArray[np.float64]
MOST_ROWS = 3000
COLORS = {"RBF, five widths": "#0072B2", "other kernels": "#D55E00"}


def make_rows(n: int = MOST_ROWS, n_sensors: int = 20) -> Array:
    """Make rows of sensors, each of which depends on the same two causes along a curve of its own."""
    random = np.random.default_rng(0)
    slopes, phases = random.normal(size=(2, n_sensors)), random.uniform(0.0, 2.0 * np.pi, n_sensors)
    causes = random.uniform(-1.0, 1.0, size=(n, 2))
    rows: Array = np.sin(3.0 * causes @ slopes + phases) + random.normal(scale=0.05, size=(n, n_sensors))
    return rows


def read_rows(path: Path) -> Array:
    """Read rows: a limited number of them, evenly spaced."""
    with np.load(path, allow_pickle=False) as file:
        rows = next(file[name] for name in file.files if file[name].ndim == 2).astype(float)
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int)]


def with_foreign_numbers(rows: Array) -> Array:
    """Copy rows, with one number of each replaced by that of another row."""
    random = np.random.default_rng(1)
    copies, each = rows.copy(), np.arange(len(rows))
    columns = random.integers(rows.shape[1], size=len(rows))
    copies[each, columns] = rows[random.permutation(len(rows)), columns]
    return copies[(copies != rows).any(axis=1)]


def area(usual: Array, odd: Array) -> float:
    """Return the area under the ROC curve of the scores of usual and of odd rows."""
    return float(roc_auc_score(np.repeat([0, 1], [len(usual), len(odd)]), np.concatenate([usual, odd])))


def tells_odd_rows(model: Any, rows: Array, y: Any = None) -> float:
    """Measure how well novelty tells rows from copies with a foreign number."""
    return area(model.novelty(rows), model.novelty(with_foreign_numbers(rows)))


def finds_rows_again(model: Any, rows: Array, y: Any = None) -> float:
    """Measure how well rows are reconstructed from their projections."""
    return float(model.score(rows))


def area_of_pca(rows: Array, n_components: int, folds: int) -> float:
    """Measure PCA's squared prediction error as `tells_odd_rows` measures novelty."""
    areas = []
    for learned, held_out in KFold(folds).split(rows):
        pca = PCA(n_components).fit(rows[learned])
        sets = rows[held_out], with_foreign_numbers(rows[held_out])
        areas.append(area(*(((each - pca.inverse_transform(pca.transform(each))) ** 2).sum(axis=1) for each in sets)))
    return float(np.mean(areas))


def name_of(params: dict[str, Any], default: float) -> str:
    """Name a candidate, with few digits."""
    if "kernel__gamma" not in params:
        return repr(params["kernel"]).partition("(")[0] + (
            f", degree {params['kernel'].degree}" if isinstance(params["kernel"], Polynomial) else ""
        )
    gamma = params["kernel__gamma"]
    return f"RBF, gamma {gamma:.2g}" + (" (default)" if np.isclose(gamma, default) else "")


def save_picture(path: Path, results: dict[str, Any], default: float, linear: float) -> None:
    """Draw both figures for each kernel; the one that tells odd rows best is on top."""
    order = np.argsort(results["mean_test_novelty"])
    params = [results["params"][place] for place in order]
    names = [name_of(candidate, default) for candidate in params]
    is_rbf = np.array(["kernel__gamma" in candidate for candidate in params])
    figure = plots.make_figure(width=10, height=1.2 + 0.32 * len(order))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, name in ((left, "novelty"), (right, "reconstruction")):
        values, deviation = results[f"mean_test_{name}"][order], results[f"std_test_{name}"][order]
        values = values if name == "novelty" else np.maximum(1.0 - values, 1e-6)
        # A logarithmic axis cannot show whiskers that end below zero.
        down = np.minimum(deviation, 0.9 * values)
        for chosen, label in ((is_rbf, "RBF, five widths"), (~is_rbf, "other kernels")):
            whiskers = np.array([down[chosen], deviation[chosen]])
            axes.errorbar(
                values[chosen], np.flatnonzero(chosen), xerr=whiskers, fmt="o", color=COLORS[label], capsize=3,
                label=label,
            )  # fmt: skip
        axes.grid(axis="x", which="both", linewidth=0.4, color="#cccccc")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    left.axvline(linear, color="#555555", linestyle="--", linewidth=1.2, label="PCA's SPE")
    left.set_yticks(range(len(order)), names)
    for tick, candidate in zip(left.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if "default" in candidate else "normal")
    left.set(title="telling odd rows: more is better", xlabel="area under the ROC curve, .5 is chance")
    right.set(title="reconstructing rows: less is better", xlabel="share of the variance that is missed", xscale="log")
    right.xaxis.set_major_formatter("{x:g}")
    right.xaxis.set_minor_locator(LogLocator(subs=(3.0,)))
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Choose a kernel by cross-validation.")
    parser.add_argument("file", type=Path, nargs="?", help="npz file with rows (default: made sensors)")
    parser.add_argument("--components", type=int, default=10, help="number of axes (default 10)")
    parser.add_argument("--atoms", type=int, default=128, help="budget of atoms (default 128)")
    parser.add_argument("--folds", type=int, default=3, help="of the cross-validation (default 3)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture (default: this one)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    try:
        rows = make_rows() if arguments.file is None else read_rows(arguments.file)
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
        scoring={"novelty": tells_odd_rows, "reconstruction": finds_rows_again},
        refit="novelty",
    ).fit(rows)

    results = search.cv_results_
    linear = area_of_pca(rows, min(arguments.components, rows.shape[1] - 1), arguments.folds)
    print(f"{len(rows):,} rows of {rows.shape[1]} features, {arguments.folds} folds, {arguments.components} axes")
    print("\narea under the ROC curve for rows with a foreign number, R^2 of rows found again, kernel")
    for place in np.argsort(-results["mean_test_novelty"]):
        figures = [
            f"{results[f'mean_test_{name}'][place]:6.3f} +- {results[f'std_test_{name}'][place]:.3f}"
            for name in ("novelty", "reconstruction")
        ]
        print(f"{figures[0]}  {figures[1]}  {name_of(results['params'][place], default)}")
    print(f"{linear:6.3f}  PCA's squared prediction error beside the axes")
    print(f"\nbest for telling odd rows: {search.best_estimator_.kernel_}")
    save_picture(arguments.out / "choose_kernel.png", results, default, linear)
    print(f"picture: {arguments.out / 'choose_kernel.png'}")


if __name__ == "__main__":
    main()
