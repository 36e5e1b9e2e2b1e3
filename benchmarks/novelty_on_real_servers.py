"""Claim: novelty at default settings finds more server faults than its peers do, without tuning per machine.

The arguments are files of the server machine dataset: npz with train, test and test_label. Every method sees the
rows of train in their original scale; then those of test are scored.

* **streaming**: `StreamingKernelPCA()` as it is, and with ``kernel=RBF("median")``. Blocks of 256 rows are scored and
  then learned, as a service does. **frozen** learns nothing after train.
* River's half-space trees (score, then learn, row by row; features scaled to 0..1 by River) and one-class SVM
  (standardised by River).
* scikit-learn's PCA: squared distance to the first axes that explain 90 %, and to the first 10.
* scikit-learn's IsolationForest.
* pyod's KPCA, fitted to 1,000 evenly spaced rows, because it keeps the kernel matrix of all.

Columns: area under the ROC curve and average precision, for each machine; the last two are means over machines.

Run::

    python benchmarks/novelty_on_real_servers.py machine-1-6.npz machine-2-1.npz machine-3-4.npz
    python benchmarks/novelty_on_real_servers.py --tiny

The exit code is 0 if the mean average precision of the streaming default is above that of every peer, and 1 otherwise.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import surroundings, write_figures

from streamkpca import StreamingKernelPCA
from streamkpca.cli.reports import auroc, average_precision
from streamkpca.kernels import RBF

BLOCK = 256
Array = np.ndarray
Method = Callable[[Array, Array], Array]


def streaming(kernel: Any, *, learn: bool) -> Method:
    """Score blocks, and learn each afterwards if asked to."""

    def score(train: Array, test: Array) -> Array:
        model = StreamingKernelPCA(kernel=kernel).partial_fit(train)
        scores = np.empty(len(test))
        for start in range(0, len(test), BLOCK):
            block = test[start : start + BLOCK]
            scores[start : start + BLOCK] = model.novelty(block)
            if learn:
                model.partial_fit(block)
        return scores

    return score


def by_river(make: Callable[[], Any]) -> Method:
    """Score a row, then learn it."""

    def score(train: Array, test: Array) -> Array:
        model, names, scores = make(), range(train.shape[1]), []
        for row in train:
            model.learn_one(dict(zip(names, row, strict=True)))
        for row in test:
            features = dict(zip(names, row, strict=True))
            scores.append(model.score_one(features))
            model.learn_one(features)
        return np.array(scores)

    return score


def beside_axes(n_components: float) -> Method:
    """Score by the squared distance to the first principal axes."""

    def score(train: Array, test: Array) -> Array:
        from sklearn.decomposition import PCA

        model = PCA(n_components).fit(train)
        return ((test - model.inverse_transform(model.transform(test))) ** 2).sum(axis=1)

    return score


def isolation_forest(train: Array, test: Array) -> Array:
    """Score by scikit-learn's forest."""
    from sklearn.ensemble import IsolationForest

    return -IsolationForest(random_state=0).fit(train).score_samples(test)


def pyods_kernel_pca(train: Array, test: Array) -> Array:
    """Score by pyod's kernel PCA of some of the rows."""
    from pyod.models.kpca import KPCA

    some = train[np.linspace(0, len(train) - 1, min(len(train), 1000)).astype(int)]
    return KPCA(random_state=0).fit(some).decision_function(test)


def peers() -> Iterator[tuple[str, Method]]:
    """Yield the peers that are installed, and report which are not."""
    try:
        from river import anomaly, compose, preprocessing

        trees = lambda: compose.Pipeline(preprocessing.MinMaxScaler(), anomaly.HalfSpaceTrees(seed=0))  # noqa: E731
        machine = lambda: compose.Pipeline(preprocessing.StandardScaler(), anomaly.OneClassSVM())  # noqa: E731
        yield "River's half-space trees", by_river(trees)
        yield "River's one-class SVM", by_river(machine)
    except ImportError as error:
        print(f"left out: {error}")
    try:
        import sklearn  # noqa: F401

        yield "PCA, 90 %", beside_axes(0.9)
        yield "PCA, 10 axes", beside_axes(10)
        yield "IsolationForest", isolation_forest
    except ImportError as error:
        print(f"left out: {error}")
    try:
        import pyod  # noqa: F401

        yield "pyod's KPCA, 1,000 rows", pyods_kernel_pca
    except ImportError as error:
        print(f"left out: {error}")


def made_machine(seed: int) -> tuple[Array, Array, Array]:
    """Make a small machine with faults, for a test run."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(2, 12))
    train, test = (np.tanh(rng.normal(size=(n, 2)) @ mixing) + 0.02 * rng.normal(size=(n, 12)) for n in (800, 400))
    faulty = np.arange(400) % 40 < 4
    test[faulty, :3] += 0.8
    return train, test, faulty


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Compare novelty scores on labelled server metrics.")
    parser.add_argument("files", nargs="*", type=Path, help="npz files with train, test and test_label")
    parser.add_argument("--tiny", action="store_true", help="two small machines, made up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    if not arguments.files and not arguments.tiny:
        parser.error("name npz files with train, test and test_label, or try --tiny")
    machines = {}
    if arguments.tiny:
        machines = {f"made {seed}": made_machine(seed) for seed in (0, 1)}
    for path in arguments.files:
        with np.load(path) as file:
            if not {"train", "test", "test_label"} <= set(file.files):
                parser.error(
                    f"{path}: expected the arrays train, test and test_label but it has {', '.join(file.files)}"
                )
            machines[path.stem] = file["train"].astype(float), file["test"].astype(float), file["test_label"] != 0

    where = surroundings()
    methods: dict[str, Method] = {
        "streaming": streaming("rbf", learn=True),
        "streaming, median": streaming(RBF("median"), learn=True),
        "frozen": streaming("rbf", learn=False),
        "frozen, median": streaming(RBF("median"), learn=False),
    }
    ours = len(methods)
    methods |= dict(peers())
    print(f"{'':>26}" + "".join(f"{name:>16}" for name in machines) + f"{'mean':>16}{'seconds':>9}")
    print(f"{'':>26}" + f"{'AUROC':>9}{'AP':>7}" * (len(machines) + 1))
    results = {}
    for name, method in methods.items():
        start = time.perf_counter()
        pairs = []
        for train, test, labels in machines.values():
            scores = method(train, test)
            pairs.append((auroc(labels, scores), average_precision(labels, scores)))
        seconds = time.perf_counter() - start
        mean = tuple(float(value) for value in np.mean(pairs, axis=0))
        results[name] = {"machines": dict(zip(machines, pairs, strict=True)), "mean": mean, "seconds": seconds}
        print(f"{name:>26}" + "".join(f"{a:9.3f}{p:7.3f}" for a, p in [*pairs, mean]) + f"{seconds:9.1f}", flush=True)
    precision = {name: result["mean"][1] for name, result in results.items()}
    rivals = list(precision)[ours:]
    best = max(rivals, key=lambda name: precision[name]) if rivals else None
    holds = best is None or precision["streaming"] > precision[best]
    print(
        f"{'HOLDS' if holds else 'FAILS'}: the default's mean average precision is {precision['streaming']:.3f}"
        + (f", that of the best peer, {best}, {precision[best]:.3f}" if best else "; no peer is installed")
    )
    write_figures(arguments.json, where, {"methods": results, "holds": holds})
    return 0 if holds or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
