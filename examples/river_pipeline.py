"""A pipeline of River
===================

A pipeline for a server: scale, score, detect anomalies, and adapt to lasting changes.

The pipeline works row by row, as River does. A row is scored by what came before it, classified by
`anomaly.QuantileFilter`, and learned unless it is anomalous; so faults are never learned. A lasting change would not be
learned either, and every row would be an alarm from then on. So `drift.ADWIN` watches the verdicts: when their rate has
changed and most rows are alarms, the next rows are learned whatever they are.

PATH is a machine of the Server Machine Dataset (Su et al., KDD 2019) as npz: `train` and `test` of shape (n, 38), one
reading a minute, and `test_label`, 1 in anomalous minutes; `train` is learned first and gives no alarms. Without a
path, the script makes rows: four sensors follow one load, single sensors have short faults, and half-way one of them is
calibrated anew.

Run it in any folder (needs the extras ``river``, ``plots`` and ``sklearn``)::

    python river_pipeline.py
    python river_pipeline.py machine-1-6.npz
"""

import argparse
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca import plots
from streamkpca.kernels import RationalQuadratic

try:
    from river import anomaly, compose, drift, preprocessing, stats
    from sklearn.metrics import roc_auc_score

    from streamkpca.adapters.for_river import KernelPCADetector
except ModuleNotFoundError as error:
    raise SystemExit(f'river_pipeline.py needs {error.name}; pip install "streamkpca[plots,river,sklearn]"') from None

Array = npt.NDArray[np.float64]
TRUST = 500  # rows that are learned, whatever they are, after a lasting change
CLIP = 5.0


def make_rows(n: int = 6000) -> tuple[Array, npt.NDArray[np.bool_], int]:
    """Make the readings of a server, which of them are faults, and how many come before the first verdict."""
    rng = np.random.default_rng(0)
    load = np.sin(np.arange(n) / 50)
    sensors = np.column_stack([0.5 + 0.3 * load, 0.4 - 0.2 * load, 0.5 + 0.2 * load**2, 0.3 + 0.1 * load])
    sensors[n // 2 :, 2] += 0.3
    is_fault = np.zeros(n, dtype=bool)
    for start in np.linspace(0.25 * n, 0.95 * n, 8).astype(int):
        is_fault[start : start + 15] = True
    sensors[is_fault, 1] += 0.3
    return sensors + rng.normal(scale=0.01, size=sensors.shape), is_fault, n // 6


def load_rows(path: Path) -> tuple[Array, npt.NDArray[np.bool_], int]:
    """Load the readings of a machine, which of them are anomalous, and how many come before the first verdict."""
    with np.load(path) as arrays:
        missing = {"train", "test", "test_label"} - set(arrays.files)
        if missing:
            raise SystemExit(
                f"river_pipeline: {path} has no array {', '.join(sorted(missing))}, it has {', '.join(arrays.files)}; "
                "pass a machine of the Server Machine Dataset"
            )
        train, test, label = (arrays[name] for name in ("train", "test", "test_label"))
        return np.r_[train, test].astype(np.float64), np.r_[np.zeros(len(train)), label] > 0, len(train)


def as_dicts(rows: Array) -> Iterator[dict[str, float]]:
    """Yield rows as River takes them."""
    names = [f"sensor {i}" for i in range(rows.shape[1])]
    return (dict(zip(names, row, strict=True)) for row in rows.tolist())


def clip(x: dict[str, float]) -> dict[str, float]:
    """Clip values, so that a single sensor cannot dominate all others."""
    return {name: min(max(value, -CLIP), CLIP) for name, value in x.items()}


def make_pipeline(n_atoms: int, quantile: float) -> Any:
    """Combine the parts."""
    detector = KernelPCADetector(
        kernel=RationalQuadratic(alpha=1.0, length_scale="median"), max_atoms=n_atoms, block_size=256
    )
    return compose.Pipeline(
        preprocessing.StandardScaler(), compose.FuncTransformer(clip), anomaly.QuantileFilter(detector, q=quantile)
    )


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Score and judge a server's readings one by one, with River.")
    parser.add_argument("path", type=Path, nargs="?", help="npz file with the arrays test and test_label")
    parser.add_argument("--atoms", type=int, default=64, help="budget of atoms (default 64)")
    parser.add_argument("--quantile", type=float, default=0.98, help="share of scores below an alarm (default 0.98)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture (default: this one)")
    arguments = parser.parse_args()
    name = arguments.path.stem if arguments.path else "made"
    try:
        rows, is_fault, n_learned = load_rows(arguments.path) if arguments.path else make_rows()
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        # A folder, a picture, an array of objects, ...
        raise SystemExit(
            f"river_pipeline: {arguments.path} cannot be read as an npz file ({type(error).__name__}); "
            "pass a machine of the Server Machine Dataset"
        ) from None

    pipeline, watch = make_pipeline(arguments.atoms, arguments.quantile), drift.ADWIN(clock=8)
    judge = pipeline["QuantileFilter"]
    scores, thresholds = np.full((2, len(rows)), np.nan)
    alarms = np.zeros(len(rows), dtype=bool)
    drifts: list[int] = []
    trusting_until = n_learned
    start = time.perf_counter()
    for i, x in enumerate(as_dicts(rows)):
        # Everything is new to a young detector, and to one that meets a change; such scores tell nothing.
        if i in (n_learned // 2, trusting_until):
            judge.quantile = stats.Quantile(arguments.quantile)
        if i >= n_learned:
            scores[i], thresholds[i] = pipeline.score_one(x), judge.quantile.get() or np.nan
            alarms[i] = judge.classify(scores[i])
            watch.update(int(alarms[i]))
            if watch.drift_detected and watch.estimation > 0.5:
                drifts.append(i)
                trusting_until = i + TRUST
        judge.protect_anomaly_detector = i >= trusting_until
        pipeline.learn_one(x)
    seconds = time.perf_counter() - start

    judged = np.isfinite(scores)
    lines = [
        ("rows, sensors", f"{len(rows):,}, {rows.shape[1]}"),
        ("microseconds a row, for scaling, scoring and learning", f"{1e6 * seconds / len(rows):.0f}"),
        ("lasting changes noticed at row", ", ".join(f"{i:,}" for i in drifts) or "never"),
        ("rows that were judged", f"{judged.sum():,}"),
        ("area under the ROC curve", f"{roc_auc_score(is_fault[judged], scores[judged]):.3f} (chance 0.500)"),
        ("anomalous rows with an alarm", f"{alarms[judged & is_fault].mean():.1%}"),
        ("other rows with an alarm", f"{alarms[judged & ~is_fault].mean():.2%}"),
    ]
    for what, value in lines:
        print(f"{what:<54} {value}")

    arguments.out.mkdir(parents=True, exist_ok=True)
    picture = arguments.out / f"{name}_river.png"
    figure = plots.make_figure(width=12, height=4.4)
    axes = figure.add_subplot()
    for i, row in enumerate(drifts):
        axes.axvline(row, color="black", linewidth=1.0, label="lasting change noticed" if i == 0 else None)
    names = ("healthy", "labelled anomaly")
    plots.draw_novelty(scores, threshold=thresholds, labels=is_fault, label_names=names, ax=axes)
    axes.set_title(f"{name}: scored, judged and learned row by row", fontsize="medium")
    figure.savefig(picture, dpi=130)
    print(f"\npicture: {picture}")


if __name__ == "__main__":
    main()
