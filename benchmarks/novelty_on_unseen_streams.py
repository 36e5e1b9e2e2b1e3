"""Claim: the Monitor by default ranks anomalies above its peers, on streams that it was not made for.

The arguments are npz files with train, test and test_label, or folders of them; the folder of a file is its family.
Every method learns the rows of train; then those of test are scored.

* **Monitor** is `streamkpca.monitoring.Monitor` by default. It sees the rows as they are (``--monitor-units``), scores
  those of test and learns them if they are normal; **Monitor, frozen** learns nothing after train.
* **StreamingKernelPCA** scores blocks of 256 rows and then learns them all.
* The peers see rows that are scaled to 0..1 by train, as their users do (``--units``): the distance to the **5th
  neighbour** in train, **LOF**, **pyod's KPCA** of 1,000 rows, evenly spaced, because it keeps the kernel matrix of
  all, the **Mahalanobis** distance (relative ridge 1e-6), **PCA SPE** and **PCA T^2** of the axes that explain 90 %,
  scikit-learn's **IsolationForest**, River's **half-space trees**, which go on learning, and scikit-learn's **one-class
  SVM** of at most 5,000 rows, evenly spaced.

Each is measured as it is, and with context: three rows stacked, and an exponentially weighted score (.3 new). Families
without an order in time (``--unordered``) get no context. An alarm is a score above the method's own threshold: that of
the Monitor, `novelty_threshold()` for a plain model, and for peers, and plain models with context, the .99 quantile of
their scores of train.

Columns: average precision, area under the ROC curve, volume under the precision-recall surface (buffers of up to 100
rows); rows from the start of an anomalous segment to its first alarm (a segment without alarm counts with its length),
and the same in minutes; runs of alarms that touch no anomalous row, for 1,000 healthy rows and for each day; the share
of healthy rows that are alarms; the share of anomalous segments with an alarm; microseconds of processor time a row of
test. Minutes and days need ``--rows-per-day``. Last come means over families of the means over their streams.

``--plant FILE`` adds the Tennessee Eastman process (npz with d00, d00_te, d01_te ...; rows from 160 on are faulty). All
methods are taught d00 alone, standardised by it. Columns: share of the faulty rows above the limit that leaves 1 % of
d00_te above it, mean over the faults 1, 2, 4 to 8 and 10; then the false alarms on d00_te and that share at each
method's own threshold; as it is, with three rows stacked (PCA becomes dynamic PCA, DPCA), and with context.

Run::

    python benchmarks/novelty_on_unseen_streams.py folder --rows-per-day asd=288 --plant tep.npz
    python benchmarks/novelty_on_unseen_streams.py --tiny

The exit code is 0 if the Monitor's mean average precision with context is above that of every peer, and 1 otherwise.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import surroundings, threads, write_figures
from detection_metrics import judge_alarms, segments, vus_pr
from scipy.signal import lfilter

from streamkpca import StreamingKernelPCA
from streamkpca.cli.reports import auroc, average_precision
from streamkpca.kernels import RBF

BLOCK = 256
QUANTILE = 0.99
FAULTS = (1, 2, 4, 5, 6, 7, 8, 10)
FAULTY_FROM = 160
COLUMNS = ("AP", "AUROC", "VUS-PR", "delay", "minutes", "false/k", "false/d", "healthy", "covered", "us/row")
Array = np.ndarray


@dataclass(frozen=True)
class Context:
    """What a score may know besides one row."""

    lags: int = 1
    smoothing: float | None = None


ALONE, STACKED, CONTEXT = Context(), Context(lags=3), Context(lags=3, smoothing=0.3)


@dataclass(frozen=True)
class Stream:
    """Rows to learn, rows to judge, and what is known about them."""

    family: str
    name: str
    train: Array
    test: Array
    labels: Array
    rows_per_day: float | None = None
    ordered: bool = True


@dataclass(frozen=True)
class Verdict:
    """Scores and alarms of rows, and the processor time that they took."""

    scores: Array
    is_alarm: Array
    seconds: float


# A method learns train and then judges test, whose rows follow those of train.
Method = Callable[[Array, Array, Context], Verdict]
# A peer learns rows, and returns their scores and what scores others.
Peer = Callable[[Array], tuple[Array, Callable[[Array], Array]]]


def stack(rows: Array, lags: int) -> Array:
    """Put each row beside the rows before it, the newest first; the first row stands for those before it."""
    n = len(rows)
    return np.hstack([rows[np.maximum(np.arange(n) - lag, 0)] for lag in range(lags)])


def smooth(scores: Array, context: Context) -> Array:
    """Return exponentially weighted scores, from the first score on."""
    if context.smoothing is None:
        return scores
    old = 1.0 - context.smoothing
    return lfilter([context.smoothing], [1.0, -old], scores, zi=[old * scores[0]])[0]


def scaling(train: Array, units: str) -> Callable[[Array], Array]:
    """Return what scales rows as train says; columns that are constant there keep their unit."""
    if units == "none":
        return lambda rows: rows
    origin, width = (
        (train.min(axis=0), np.ptp(train, axis=0)) if units == "range" else (train.mean(axis=0), train.std(axis=0))
    )
    width = np.where(width > 1e-12 * np.abs(train).max(axis=0), width, 1.0)
    return lambda rows: (rows - origin) / width


def monitor(*, learn: str, whitened: bool = False) -> Method:
    """Judge by a Monitor that goes on learning normal rows, or none."""

    def judge(train: Array, test: Array, context: Context) -> Verdict:
        from streamkpca.monitoring import Monitor

        model = StreamingKernelPCA(kernel=RBF().in_units("whitened")) if whitened else StreamingKernelPCA()
        options = {"lags": context.lags, "smoothing": context.smoothing, "quantile": QUANTILE, "learn": learn}
        if learn == "none":
            judging = Monitor(model.partial_fit(stack(train, context.lags)), **options)
            # It learns nothing from them, but they are the rows before those of test.
            judging.update(train[-BLOCK:])
        else:
            judging = Monitor(model, **options) if whitened else Monitor(**options)
            judging.update(train)
        start = time.process_time()
        record = judging.update(test)
        seconds = time.process_time() - start
        scores = np.asarray(record.smoothed, dtype=np.float64)
        # A row without a score yet is not known to be novel.
        unknown = np.isnan(scores)
        scores = np.where(unknown, scores[~unknown].min(initial=0.0), scores)
        return Verdict(scores, np.asarray(record.is_alarm, dtype=bool), seconds)

    return judge


def plain(train: Array, test: Array, context: Context) -> Verdict:
    """Judge blocks by the model's novelty, and learn each afterwards."""
    rows = stack(np.vstack([train, test]), context.lags)
    model = StreamingKernelPCA().partial_fit(rows[: len(train)])
    past = -model.score_samples(rows[: len(train)]) if context.smoothing is not None else np.empty(0)
    scores, is_alarm = np.empty(len(test)), np.empty(len(test), dtype=bool)
    start = time.process_time()
    for first in range(0, len(test), BLOCK):
        block, part = rows[len(train) :][first : first + BLOCK], slice(first, first + BLOCK)
        scores[part] = -model.score_samples(block)
        is_alarm[part] = scores[part] > model.novelty_threshold(QUANTILE)
        model.partial_fit(block)
    if context.smoothing is not None:
        past = smooth(past, context)
        scores = smooth(np.concatenate([past[-1:], scores]), context)[1:]
        is_alarm = scores > np.quantile(past, QUANTILE)
    return Verdict(scores, is_alarm, time.process_time() - start)


def beside(peer: Peer, units: str) -> Method:
    """Judge by a peer of scaled rows."""

    def judge(train: Array, test: Array, context: Context) -> Verdict:
        scale = scaling(train, units)
        rows = stack(scale(np.vstack([train, test])), context.lags)
        past, score = peer(rows[: len(train)])
        past = smooth(past, context)
        start = time.process_time()
        scores = score(rows[len(train) :])
        scores = smooth(np.concatenate([past[-1:], scores]), context)[1:]
        return Verdict(scores, scores > np.quantile(past, QUANTILE), time.process_time() - start)

    return judge


def evenly(rows: Array, count: int) -> Array:
    """Return at most so many rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), count)).astype(int)]


def fifth_neighbour(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by the distance to the 5th nearest row of train, other than the row itself."""
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=5).fit(train)
    return model.kneighbors()[0][:, -1], lambda rows: model.kneighbors(rows)[0][:, -1]


def local_outlier_factor(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by scikit-learn's local outlier factor."""
    from sklearn.neighbors import LocalOutlierFactor

    model = LocalOutlierFactor(n_neighbors=min(20, len(train) - 1), novelty=True).fit(train)
    return -model.negative_outlier_factor_, lambda rows: -model.score_samples(rows)


def pyods_kernel_pca(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by pyod's kernel PCA of some of the rows."""
    from pyod.models.kpca import KPCA

    model = KPCA(random_state=0).fit(evenly(train, 1000))
    return model.decision_function(train), model.decision_function


def mahalanobis(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by the squared Mahalanobis distance to the mean."""
    mean, covariance = train.mean(axis=0), np.atleast_2d(np.cov(train.T))
    covariance[np.diag_indices_from(covariance)] += 1e-6 * np.trace(covariance) / len(covariance)
    factor = np.linalg.inv(np.linalg.cholesky(covariance)).T

    def score(rows: Array) -> Array:
        return (((rows - mean) @ factor) ** 2).sum(axis=1)

    return score(train), score


def principal_axes(statistic: str) -> Peer:
    """Score by the squared distance to the axes that explain 90 % ("SPE"), or by T^2 on them."""

    def peer(train: Array) -> tuple[Array, Callable[[Array], Array]]:
        mean = train.mean(axis=0)
        _, singular, axes = np.linalg.svd(train - mean, full_matrices=False)
        share = np.cumsum(singular**2) / max((singular**2).sum(), 1e-300)
        count = int(np.searchsorted(share, 0.9)) + 1
        axes, variances = axes[:count], np.maximum(singular[:count] ** 2 / (len(train) - 1), 1e-300)

        def score(rows: Array) -> Array:
            centred = rows - mean
            coordinates = centred @ axes.T
            if statistic == "SPE":
                return ((centred - coordinates @ axes) ** 2).sum(axis=1)
            return (coordinates**2 / variances).sum(axis=1)

        return score(train), score

    return peer


def isolation_forest(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by scikit-learn's forest."""
    from sklearn.ensemble import IsolationForest

    model = IsolationForest(random_state=0).fit(train)
    return -model.score_samples(train), lambda rows: -model.score_samples(rows)


def half_space_trees(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score a row by River's trees, and then learn it."""
    from river import anomaly, compose, preprocessing

    model = compose.Pipeline(preprocessing.MinMaxScaler(), anomaly.HalfSpaceTrees(seed=0))
    names = [str(column) for column in range(train.shape[1])]

    def score(rows: Array) -> Array:
        scores = np.empty(len(rows))
        for i, row in enumerate(rows.tolist()):
            features = dict(zip(names, row, strict=True))
            scores[i] = model.score_one(features)
            model.learn_one(features)
        return scores

    return score(train), score


def one_class_svm(train: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Score by scikit-learn's one-class support vector machine of some of the rows."""
    from sklearn.svm import OneClassSVM

    model = OneClassSVM().fit(evenly(train, 5000))
    return -model.decision_function(train), lambda rows: -model.decision_function(rows)


PEERS: dict[str, tuple[str, Peer]] = {
    "5th neighbour": ("sklearn", fifth_neighbour),
    "LOF": ("sklearn", local_outlier_factor),
    "pyod's KPCA": ("pyod", pyods_kernel_pca),
    "Mahalanobis": ("numpy", mahalanobis),
    "PCA SPE": ("numpy", principal_axes("SPE")),
    "PCA T^2": ("numpy", principal_axes("T^2")),
    "IsolationForest": ("sklearn", isolation_forest),
    "half-space trees": ("river", half_space_trees),
    "one-class SVM": ("sklearn", one_class_svm),
}
OURS: dict[str, Method] = {
    "Monitor": monitor(learn="normal"),
    "Monitor, frozen": monitor(learn="none"),
    "StreamingKernelPCA": plain,
}


def scaled(method: Method, units: str) -> Method:
    """Let a method see scaled rows."""

    def judge(train: Array, test: Array, context: Context) -> Verdict:
        scale = scaling(train, units)
        return method(scale(train), scale(test), context)

    return judge


def installed(names: Iterable[str]) -> set[str]:
    """Return the libraries that can be imported, and report the others."""
    found = set()
    for name in sorted(set(names)):
        try:
            __import__(name)
            found.add(name)
        except ImportError as error:
            print(f"left out: {error}")
    return found


def figures_of(stream: Stream, verdict: Verdict) -> dict[str, float]:
    """Return the figures of one method on one stream, by column."""
    alarms = judge_alarms(stream.labels, verdict.is_alarm)
    day = math.nan if stream.rows_per_day is None else stream.rows_per_day
    # Segments are runs of neighbours, which mean nothing without an order.
    volume, delay = (vus_pr(stream.labels, verdict.scores), alarms.delay) if stream.ordered else (math.nan, math.nan)
    values = (
        average_precision(stream.labels, verdict.scores),
        auroc(stream.labels, verdict.scores),
        volume,
        delay,
        delay * 1440.0 / day,
        1000.0 * alarms.false_events,
        day * alarms.false_events,
        alarms.false_rows,
        alarms.covered,
        1e6 * verdict.seconds / len(stream.test),
    )
    return dict(zip(COLUMNS, values, strict=True))


def line(name: str, figures: dict[str, float]) -> str:
    """Write one line of a table."""
    places = dict.fromkeys(COLUMNS, 1) | dict.fromkeys(("AP", "AUROC", "VUS-PR", "healthy", "covered"), 3)
    cells = ("-" if math.isnan(figures[key]) else f"{figures[key]:.{places[key]}f}" for key in COLUMNS)
    return f"{name:>30}" + "".join(f"{cell:>9}" for cell in cells)


def heading(text: str) -> str:
    """Write the names of the columns."""
    return f"{text:>30}" + "".join(f"{key:>9}" for key in COLUMNS)


def mean_of(tables: list[dict[str, float]]) -> dict[str, float]:
    """Return means by column over the tables that have the figure."""
    means = {}
    for key in COLUMNS:
        known = [table[key] for table in tables if not math.isnan(table[key])]
        means[key] = float(np.mean(known)) if known else math.nan
    return means


def compare(
    streams: list[Stream], methods: dict[str, Method], *, quiet: bool
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Return the figures by context, method and stream, and print them as they come."""
    results: dict[str, dict[str, dict[str, dict[str, float]]]] = {
        kind: {name: {} for name in methods} for kind in ("alone", "context")
    }
    for stream in streams:
        title = f"{stream.family}/{stream.name}"
        count = len(segments(stream.labels))
        print(
            f"\n{title}: {len(stream.train):,} and {len(stream.test):,} rows of {stream.test.shape[1]}, "
            f"{np.mean(stream.labels):.1%} anomalous in {count} segments",
            flush=True,
        )
        if not quiet:
            print(heading(""))
        for name, method in methods.items():
            for kind, context in (("alone", ALONE), ("context", CONTEXT if stream.ordered else ALONE)):
                if kind == "context" and not stream.ordered:
                    results[kind][name][title] = results["alone"][name][title]
                    continue
                found = figures_of(stream, method(stream.train, stream.test, context))
                results[kind][name][title] = found
                if not quiet:
                    print(line(name if kind == "alone" else "in context", found), flush=True)
    return results


def by_family(found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the means over the streams of each family."""
    families: dict[str, list[dict[str, float]]] = {}
    for title, figures in found.items():
        families.setdefault(title.partition("/")[0], []).append(figures)
    return {family: mean_of(tables) for family, tables in families.items()}


def fault_detection(plant: dict[str, Array], methods: dict[str, Method]) -> dict[str, dict[str, dict[str, float]]]:
    """Return detection by method and kind of context, and print it."""
    train = plant["d00"]
    faults = [number for number in FAULTS if f"d{number:02}_te" in plant]
    kinds = {"alone": ALONE, "3 rows": STACKED, "context": CONTEXT}
    print(f"\nplant: {len(train)} rows of {train.shape[1]} taught; faults {', '.join(map(str, faults))}")
    print(f"{'':>30}" + "".join(f"{kind:>27}" for kind in kinds))
    print(f"{'':>30}" + f"{'at 1%':>11}{'false':>8}{'found':>8}" * len(kinds))
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name, method in methods.items():
        results[name] = {}
        for kind, context in kinds.items():
            healthy = method(train, plant["d00_te"], context)
            limit = np.quantile(healthy.scores, QUANTILE)
            verdicts = [method(train, plant[f"d{number:02}_te"], context) for number in faults]
            rates = [float(np.mean(verdict.scores[FAULTY_FROM:] > limit)) for verdict in verdicts]
            results[name][kind] = {
                "at 1%": float(np.mean(rates)),
                "false": float(np.mean(healthy.is_alarm)),
                "found": float(np.mean([np.mean(verdict.is_alarm[FAULTY_FROM:]) for verdict in verdicts])),
            } | {f"fault {number}": rate for number, rate in zip(faults, rates, strict=True)}
        cells = (f"{r['at 1%']:11.3f}{r['false']:8.3f}{r['found']:8.3f}" for r in results[name].values())
        print(f"{name:>30}" + "".join(cells), flush=True)
    return results


def made_stream(seed: int) -> Stream:
    """Make a small machine with faults, for a test run."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(2, 8))
    hidden = lfilter([0.6], [1.0, -0.8], rng.normal(size=(410, 2)), axis=0)
    rows = np.tanh(hidden @ mixing) + 0.02 * rng.normal(size=(410, 8))
    labels = np.zeros(210, dtype=bool)
    for start in range(40, 210, 60):
        labels[start : start + 12] = True
    rows[200:][labels, :3] += 0.7
    return Stream("made" if seed < 2 else "others", f"stream {seed}", rows[:200], rows[200:], labels)


def made_plant() -> dict[str, Array]:
    """Make a small plant with two faults, for a test run."""
    rng = np.random.default_rng(5)
    mixing = rng.normal(size=(3, 6))
    plant = {
        name: rng.normal(size=(n, 3)) @ mixing + 0.1 * rng.normal(size=(n, 6))
        for name, n in (("d00", 100), ("d00_te", 100), ("d01_te", 180), ("d02_te", 180))
    }
    plant["d01_te"][FAULTY_FROM:, 0] += 1.5
    plant["d02_te"][FAULTY_FROM:, 1] *= 2.0
    return plant


def read_streams(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Stream]:
    """Read the streams that were named, in order of family and name."""
    wanted = {"train", "test", "test_label"}
    paths = [
        (path, named)
        for given in arguments.paths
        for path, named in ([(p, False) for p in sorted(given.rglob("*.npz"))] if given.is_dir() else [(given, True)])
    ]
    streams, counts = list[Stream](), dict[str, int]()
    for path, named in paths:
        family = path.resolve().parent.name
        if arguments.streams is not None and counts.get(family, 0) >= arguments.streams:
            continue
        with np.load(path) as file:
            if not wanted <= set(file.files):
                message = f"{path}: expected the arrays train, test and test_label but it has {', '.join(file.files)}"
                if named:
                    parser.error(message)
                print(f"left out: {message}")
                continue
            train, test = (np.ascontiguousarray(file[name], dtype=np.float64) for name in ("train", "test"))
            labels = file["test_label"].ravel() != 0
        if not (np.isfinite(train).all() and np.isfinite(test).all()) or not 0 < labels.sum() < len(labels):
            print(f"left out: {path}: values that are not finite, or labels of one kind only")
            continue
        counts[family] = counts.get(family, 0) + 1
        streams.append(Stream(family, path.stem, train, test, labels))
    return streams


def described(streams: list[Stream], arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Stream]:
    """Add to streams what the command line says about their families."""
    days: dict[str, float] = {}
    for text in arguments.rows_per_day:
        family, equals, number = text.rpartition("=")
        try:
            days[family if equals else ""] = float(number)
        except ValueError:
            parser.error(f"--rows-per-day: expected a number, or FAMILY=NUMBER, but got {text}")
    return [
        replace(
            stream,
            rows_per_day=days.get(stream.family, days.get("")),
            ordered=stream.family not in arguments.unordered,
        )
        for stream in streams
    ]


def parse() -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compare novelty scores and alarms on labelled streams.")
    parser.add_argument("paths", nargs="*", type=Path, help="npz files with train, test and test_label, or folders")
    parser.add_argument(
        "--plant", type=Path, metavar="FILE", help="Tennessee Eastman process: npz with d00, d00_te ..."
    )
    parser.add_argument("--units", choices=("range", "std", "none"), default="range", help="units of peers' rows")
    parser.add_argument("--monitor-units", choices=("range", "std", "none"), default="none", help="units of our rows")
    parser.add_argument(
        "--rows-per-day", action="append", default=[], metavar="[FAMILY=]N", help="give minutes and false alarms a day"
    )
    parser.add_argument(
        "--unordered", action="append", default=[], metavar="FAMILY", help="rows without order in time: no context"
    )
    parser.add_argument("--streams", type=int, metavar="N", help="at most so many streams of each family")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="methods whose name contains this")
    parser.add_argument("--without", action="append", default=[], metavar="TEXT", help="leave out such methods")
    parser.add_argument("--quiet", action="store_true", help="print no tables for single streams")
    parser.add_argument("--tiny", action="store_true", help="three small streams and a small plant, made up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    if not arguments.paths and not arguments.tiny and arguments.plant is None:
        parser.error("name npz files with train, test and test_label, or folders of them, or try --tiny")
    return arguments, parser


def chosen(arguments: argparse.Namespace, methods: dict[str, Method]) -> dict[str, Method]:
    """Return the methods that were asked for."""
    return {
        name: method
        for name, method in methods.items()
        if (not arguments.only or any(text in name for text in arguments.only))
        and not any(text in name for text in arguments.without)
    }


def known(value: Any) -> Any:
    """Replace NaN, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: known(part) for key, part in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def main() -> int:
    """Run the benchmark."""
    arguments, parser = parse()
    streams = [made_stream(seed) for seed in (0, 1, 2)] if arguments.tiny else []
    streams = described(streams + read_streams(arguments, parser), arguments, parser)
    where = surroundings()
    libraries = installed(library for library, _ in PEERS.values())
    peers = {name: peer for name, (library, peer) in PEERS.items() if library in libraries}

    figures: dict[str, Any] = {}
    holds = True
    with threads(1):
        if streams:
            ours = {name: scaled(method, arguments.monitor_units) for name, method in OURS.items()}
            methods = ours | {name: beside(peer, arguments.units) for name, peer in peers.items()}
            results = compare(streams, chosen(arguments, methods), quiet=arguments.quiet)
            families = {
                kind: {name: by_family(found) for name, found in table.items()} for kind, table in results.items()
            }
            macro = {
                kind: {name: mean_of(list(tables.values())) for name, tables in table.items()}
                for kind, table in families.items()
            }
            names = list(dict.fromkeys(stream.family for stream in streams))
            print(f"\n{'average precision':>30}" + "".join(f"{family[:12]:>16}" for family in names) + f"{'mean':>16}")
            print(f"{'':>30}" + f"{'alone':>8}{'context':>8}" * (len(names) + 1))
            for method, tables in families["alone"].items():
                cells = [(tables[f]["AP"], families["context"][method][f]["AP"]) for f in names]
                cells.append((macro["alone"][method]["AP"], macro["context"][method]["AP"]))
                print(f"{method:>30}" + "".join(f"{a:8.3f}{b:8.3f}" for a, b in cells))
            for kind, title in (("alone", "means over families, as it is"), ("context", "with context")):
                print("\n" + heading(title))
                for method, found in macro[kind].items():
                    print(line(method, found))
            figures = {"streams": results, "families": families, "macro": macro}
            precision = {name: found["AP"] for name, found in macro["context"].items()}
            rivals = [name for name in precision if name in PEERS]
            best = max(rivals, key=lambda name: precision[name]) if rivals else None
            if "Monitor" in precision:
                holds = best is None or precision["Monitor"] > precision[best]
                print(
                    f"{'HOLDS' if holds else 'FAILS'}: the Monitor's mean average precision with context is "
                    f"{precision['Monitor']:.3f}"
                    + (f", that of the best peer, {best}, {precision[best]:.3f}" if best else "; no peer was run")
                )
        if arguments.tiny or arguments.plant is not None:
            plant = made_plant() if arguments.plant is None else dict(np.load(arguments.plant))
            methods = OURS | {"Monitor, whitened": monitor(learn="normal", whitened=True)}
            methods |= {name: beside(peer, "none") for name, peer in peers.items()}
            scale = scaling(plant["d00"], "std")
            plant = {name: scale(np.asarray(rows, dtype=np.float64)) for name, rows in plant.items()}
            figures["plant"] = fault_detection(plant, chosen(arguments, methods))
    write_figures(arguments.json, where, known(figures) | {"holds": holds})
    return 0 if holds or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
