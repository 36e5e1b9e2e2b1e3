"""Does it rank the outliers of a table above its peers?

ADBench's tables [1]_, whose columns are standardised by the rows that are learned; areas under the ROC curve in
percent, means over the tables.

* **contaminated**: all rows are learned, and the same rows are judged: by `OutlierDetector`.
* **clean**: the first half of the rows that are no outliers is learned; the other half and all outliers are judged, as
  in [2]_: by `StreamingKernelPCA().novelty`.

The best of the 26 methods of [2]_ has a mean of 84.7 on 43 tables of ADBench, clean; 28 of them are here, with at most
10,000 rows and 300 columns. The settings of `OutlierDetector` were chosen on these tables and on changed ones: with
fewer rows, or with more outliers. Ranks are among the methods of the row, 1 for the best, means over the tables.

.. [1] S. Han et al., "ADBench: anomaly detection benchmark", NeurIPS 2022.
.. [2] V. Livernoche et al., "On diffusion modeling for anomaly detection", ICLR 2024.
"""

from pathlib import Path

import numpy as np
from common import Array, Figures, Sheet, find_files, make_table, run, standardise, time_call
from detection_metrics import auroc
from peers import Peer, choose_peers
from scipy.stats import rankdata

from streamkpca import OutlierDetector, StreamingKernelPCA

# The highest mean of the 26 methods of Livernoche et al. on 43 clean tables.
BEST_PUBLISHED = 84.7
# What is meant for tables with outliers among the rows that are learned, and for tables without.
OURS = {"contaminated": "OutlierDetector", "clean": "StreamingKernelPCA"}
# Tables with many outliers have at least this share of them.
MANY = 0.15
# Wider tables are left out, and in a quick run longer ones, too.
MOST_COLUMNS = 300
MOST_ROWS = {"whole": 10_000, "quick": 2500, "tiny": 1000}
N_TIMED = {"whole": 10_000, "quick": 10_000, "tiny": 1000}


def detect(train: Array) -> tuple[Array, object]:
    """Score by an OutlierDetector."""
    model = OutlierDetector().fit(train)
    return model.decision_scores_, lambda rows: -model.score_samples(rows)


def score_novelty(train: Array) -> tuple[Array, object]:
    """Score by the novelty of a model of the rows."""
    model = StreamingKernelPCA().fit(train)
    return model.novelty(train), model.novelty


def judge(method: Peer, rows: Array, labels: Array) -> tuple[float, float]:
    """Return the areas under the ROC curve in percent, contaminated and clean."""
    contaminated = auroc(labels, method(standardise(rows, rows))[0])
    healthy = np.flatnonzero(~labels)
    known, others = healthy[: len(healthy) // 2], np.concatenate([healthy[len(healthy) // 2 :], np.flatnonzero(labels)])
    _, score = method(standardise(rows[known], rows[known]))
    return 100.0 * contaminated, 100.0 * auroc(labels[others], score(standardise(rows[others], rows[known])))


def measure(size: str, data: Path | None) -> Figures:
    """Judge every method on every table."""
    methods = {"OutlierDetector": detect, "StreamingKernelPCA": score_novelty}
    methods |= choose_peers(
        "5th neighbour", "50th neighbour", "isolation forest", "LOF", "Mahalanobis", "pyod KPCA", "ECOD", "HBOS"
    )
    tables: Figures = {}
    shares: dict[str, float] = {}
    for path in find_files(data, "adbench"):
        with np.load(path) as table:
            rows, labels = table["X"].astype(float), table["y"].ravel() != 0
        if rows.shape[1] <= MOST_COLUMNS and len(rows) <= MOST_ROWS[size]:
            shares[path.stem] = float(labels.mean())
            tables[path.stem] = {name: judge(method, rows, labels) for name, method in methods.items()}
    if not tables:
        return {}
    rows = Sheet(32).draw(N_TIMED[size])
    seconds = float(np.median([time_call(OutlierDetector().fit_predict, rows)[0] for _ in range(3)]))
    groups = {
        "contaminated": (0, list(tables)),
        "contaminated, 15% outliers and more": (0, [name for name in tables if shares[name] >= MANY]),
        "contaminated, fewer": (0, [name for name in tables if shares[name] < MANY]),
        "clean": (1, list(tables)),
    }
    means: Figures = {}
    ranks: Figures = {}
    for kind, (place, chosen) in groups.items():
        areas = np.array([[tables[title][name][place] for name in methods] for title in chosen]).reshape(
            -1, len(methods)
        )
        if len(areas):
            means[kind] = dict(zip(methods, areas.mean(axis=0).tolist(), strict=True))
            ranks[kind] = dict(zip(methods, rankdata(-areas, axis=1).mean(axis=0).tolist(), strict=True))
    head = {"n_tables": len(tables), **means, "ranks": ranks}
    return {**head, "seconds": seconds, "n_timed": len(rows), "tables": tables}


def describe(figures: Figures) -> str:
    """Return the means, the tables one by one, and the time."""
    names = list(figures["contaminated"])
    published = {"clean": f"{BEST_PUBLISHED:.1f} on 43 tables"}
    rows = []
    for kind, ranks in figures["ranks"].items():
        rows.append([kind, *(f"{figures[kind][name]:.1f}" for name in names), published.get(kind, "-")])
        rows.append([f"{kind}: rank", *(f"{ranks[name]:.1f}" for name in names), "-"])
    table = make_table([f"{figures['n_tables']} tables", *names, "best of 26 published"], rows)
    peers, lines = [name for name in names if name not in OURS.values()], []
    for title, found in figures["tables"].items():
        line = [title]
        for place, ours in enumerate(OURS.values()):
            best = max(peers, key=lambda name, found=found, place=place: found[name][place])
            line += [f"{found[ours][place]:.1f}", f"{best} {found[best][place]:.1f}"]
        lines.append(line)
    head = [f"{kind}: {part}" for kind, ours in OURS.items() for part in (ours, "best peer of this table")]
    seconds = f"{figures['seconds']:.2f} s for {figures['n_timed']:,} rows of 32 columns"
    one_by_one = make_table(["table", *head], lines)
    return f"{table}\n\n{one_by_one}\n\n`OutlierDetector().fit_predict` takes {seconds}."


if __name__ == "__main__":
    run(measure, describe)
