"""Alarms for a server
===================

Learn the healthy half of a server's metrics, then score the other half.

PATH is a machine of the Server Machine Dataset (Su et al., KDD 2019) as npz: `train` and `test` of shape (n, 38), one
reading a minute, and `test_label`, 1 in anomalous minutes. The model sees `train` once, stays unchanged from then on,
and scores `test`. A row's novelty is its squared distance in feature space to the span of the atoms.

Three choices, and why:

* Columns are standardised by the mean and deviation of `train`, so that no column counts more because of its unit. Some
  are constant there; a deviation below one hundredth of the published range [0, 1] is replaced by that hundredth. So
  constant columns stay in, and one that begins to move is novel.
* Standardised values are clipped at 5 deviations: otherwise a single column that settles at a new level would dominate
  all others for good.
* The rational quadratic kernel falls like a power of the distance. Under an RBF kernel all rows that are far away are
  equally novel to many decimals, healthy and anomalous ones alike, and no threshold can separate them.

The alarm threshold is a quantile of the novelty of `train`; labels are used only for the figures. The choices above
are the same for all machines, but were made with three of them in view: the figures show what to expect of the method
and are not a benchmark. A model that stays unchanged keeps reporting a lasting change as novel; one that continues to
learn (`partial_fit`) adapts to it, and to lasting anomalies too.

Run it in any folder (needs the extras ``plots`` and ``sklearn``)::

    python server_monitoring.py machine-1-6.npz
    python server_monitoring.py machine-1-6.npz --atoms 256 --kernel '{"type": "RBF", "gamma": "median"}'
"""

import argparse
import time
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamkpca import StreamingKernelPCA, plots
from streamkpca.kernels import kernel_from

try:
    from sklearn.metrics import average_precision_score, roc_auc_score
except ModuleNotFoundError as error:
    raise SystemExit(f'server_monitoring.py needs {error.name}; pip install "streamkpca[plots,sklearn]"') from None

Array = npt.NDArray[np.float64]
LEAST_DEVIATION = 0.01
CLIP = 5.0
KERNEL = '{"type": "RationalQuadratic", "length_scale": "median"}'
MINUTES_A_DAY = 1440


def load_machine(path: Path) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Load the rows to learn, the rows to score, and which of these are anomalous."""
    with np.load(path) as arrays:
        missing = {"train", "test", "test_label"} - set(arrays.files)
        if missing:
            raise SystemExit(
                f"server_monitoring: {path} has no array {', '.join(sorted(missing))}, it has "
                f"{', '.join(arrays.files)}; pass a machine of the Server Machine Dataset"
            )
        train, test = (arrays[name].astype(np.float64, order="C") for name in ("train", "test"))
        return train, test, arrays["test_label"] > 0


def standardise(train: Array, test: Array) -> tuple[Array, Array]:
    """Bring columns to one scale, learned from `train`, and clip values beyond the limit."""
    mean, deviation = train.mean(axis=0), np.maximum(train.std(axis=0), LEAST_DEVIATION)
    return np.clip((train - mean) / deviation, -CLIP, CLIP), np.clip((test - mean) / deviation, -CLIP, CLIP)


def segments(anomalous: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Find the runs of anomalous rows as (first, one after the last)."""
    edges = np.flatnonzero(np.diff(anomalous.astype(np.int8), prepend=0, append=0))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def save_picture(path: Path, title: str, novelty: Array, threshold: float, spans: list[tuple[int, int]]) -> None:
    """Draw the novelty of the scored rows over time, the labelled segments shaded."""
    figure = plots.make_figure(width=12, height=4.4)
    axes = figure.add_subplot()
    for i, (start, stop) in enumerate(spans):
        # The thin edge keeps segments of one minute visible.
        axes.axvspan(
            start / MINUTES_A_DAY,
            stop / MINUTES_A_DAY,
            color="#D55E00",
            alpha=0.25,
            linewidth=0.6,
            label="labelled anomaly" if i == 0 else None,
        )
    plots.draw_novelty(novelty, time=np.arange(len(novelty)) / MINUTES_A_DAY, threshold=threshold, ax=axes)
    # Novelty lies between 0 and k(x, x) = 1, and the values that matter are near 1.
    axes.set_yscale("linear")
    axes.set_xlabel("days since scoring began")
    axes.set_title(title, fontsize="medium")
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Learn one half of a server's readings, score the other.")
    parser.add_argument("path", type=Path, help="npz file with the arrays train, test and test_label")
    parser.add_argument("--atoms", type=int, default=128, help="budget of atoms (default 128)")
    parser.add_argument("--kernel", default=KERNEL, help=f"a name or JSON (default {KERNEL})")
    parser.add_argument(
        "--quantile", type=float, default=0.999, help="share of the learned rows below the threshold (default 0.999)"
    )
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture (default: this one)")
    arguments = parser.parse_args()
    try:
        train, test, anomalous = load_machine(arguments.path)
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        # A folder, a picture, an array of objects, ...
        raise SystemExit(
            f"server_monitoring: {arguments.path} cannot be read as an npz file ({type(error).__name__}); "
            "pass a machine of the Server Machine Dataset"
        ) from None
    train, test = standardise(train, test)

    model = StreamingKernelPCA(kernel=kernel_from(arguments.kernel, where="--kernel"), max_atoms=arguments.atoms)
    start = time.perf_counter()
    model.partial_fit(train).refit()
    learning_seconds = time.perf_counter() - start
    familiar = model.novelty(train)
    threshold = float(np.quantile(familiar, arguments.quantile))
    start = time.perf_counter()
    novelty = model.novelty(test)
    scoring_seconds = time.perf_counter() - start

    alarms, spans = novelty > threshold, segments(anomalous)
    auroc, precision = roc_auc_score(anomalous, novelty), average_precision_score(anomalous, novelty)
    lines = [
        ("rows learned, rows scored", f"{len(train):,}, {len(test):,}"),
        ("kernel", str(model.kernel_)),
        ("atoms", str(model.n_atoms_)),
        ("energy that the atoms do not explain, learned rows", f"{model.reconstruction_error(train).mean():.1%}"),
        ("seconds to learn, to score (first run compiles)", f"{learning_seconds:.2f}, {scoring_seconds:.2f}"),
        ("area under the ROC curve", f"{auroc:.3f} (chance 0.500)"),
        ("average precision", f"{precision:.3f} (chance {anomalous.mean():.3f})"),
        (f"threshold, {arguments.quantile:.1%} of the learned rows are below", f"{threshold:.5f}"),
        ("anomalous rows with an alarm", f"{alarms[anomalous].mean():.1%}"),
        ("labelled segments with an alarm", f"{sum(alarms[a:b].any() for a, b in spans)} of {len(spans)}"),
        ("other rows with an alarm", f"{alarms[~anomalous].mean():.2%}"),
    ]
    for name, value in lines:
        print(f"{name:<52} {value}")

    arguments.out.mkdir(parents=True, exist_ok=True)
    picture = arguments.out / f"{arguments.path.stem}_novelty.png"
    title = f"{arguments.path.stem}: novelty by the minute, AUROC {auroc:.3f}, average precision {precision:.3f}"
    save_picture(picture, title, novelty, threshold, spans)
    print(f"\npicture: {picture}")


if __name__ == "__main__":
    main()
