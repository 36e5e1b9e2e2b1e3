"""Claim: at 5 % of lost numbers a model still finds faults, gives no more false alarms, and learns half as fast.

The arguments are npz files, or folders of them: streams with train, test and test_label, or the Tennessee Eastman
process (d00, d01_te, d02_te ...; the rows from 160 on are faulty; d00_te, if it is there, has no fault). Numbers of
train and of test are blanked: **at random**, or **in bursts** of one sensor, each 20 to 100 rows long. The same numbers
are lost for every method. The default model of a Monitor (RBF kernel in standardised units) learns train
and scores test; methods differ in what they do with a lost number:

* **complete rows**: nothing is lost. The reference.
* **marginal**: ``on_missing="marginal"``; gaps are integrated out, `impute` completes rows.
* **skip rows**: ``on_missing="skip"``; rows with a gap are not learned. In test they get the least score and no alarm.
* **mean**, **last value**: the column's mean in train, or the last number before it, then the model of complete rows.
* **IterativeImputer**: scikit-learn's, by default (ten rounds of Bayesian ridge regression), on standardised columns,
  then the model of complete rows. It is slow, so it is fitted to at most 2,000 rows of train, evenly spaced.

Then a **Monitor** by default sees the same rows; it goes on learning those of test that are normal, as it does.

Columns: average precision (AP); the share of healthy rows of test that are alarms at the quantile .99 (false) and that
of anomalous rows (found); the root mean square error of what is put in the gaps of healthy rows of test (RMSE) and of
all rows (all), in standard deviations that the columns have in train, without columns that are constant there; rows
learned in a second: of train by a new model with the refit at its end (new), and of rows like them by the same model
when it is settled (settled); rows scored in a second (score). Seconds are processor time and include imputation.
Figures are means over seeds, the rates the best of them; a seed is that of the blanks and of the model's samples, for
the reference too, because other samples alone change average precision by some hundredths. Scores and alarms of a plant
are means over its faults; d00_te counts among its healthy rows.

Run::

    python benchmarks/sensors_that_drop_out.py tep.npz folder
    python benchmarks/sensors_that_drop_out.py --tiny

The exit code is 0 if these hold for the model with ``on_missing="marginal"``, at 5 % of lost numbers of either kind,
and 1 otherwise: in the mean over the streams of each family it loses at most .02 of average precision against complete
rows, its false alarms are at most 2 % or, where complete rows give more, at most a quarter more than these, it finds at
least four fifths of the anomalous rows that complete rows find, and it learns (new) at least half as many rows in a
second (geometric mean over streams).
"""

import argparse
import copy
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from common import surroundings, threads, write_figures

from streamkpca import StreamingKernelPCA
from streamkpca.cli.reports import average_precision
from streamkpca.kernels import RBF

QUANTILE = 0.99
SHARES = (1, 5, 20)
CHECKED = 5
LEAST_BURST, LONGEST_BURST = 20, 100
FAULTS = (1, 2, 4, 5, 6, 7, 8, 10)
FAULTY_FROM = 160
IMPUTER_ROWS = 2000
SETTLED_ROWS = 8192
COMPLETE, MARGINAL, SKIP = "complete rows", "marginal", "skip rows"
COLUMNS = ("AP", "false", "found", "RMSE", "all", "new", "settled", "score")
RATES = ("new", "settled", "score")
MOST_LOST, MOST_FALSE, LEAST_SPEED = 0.02, 2.0 * (1.0 - QUANTILE), 0.5
# Shares of a thousand healthy rows, of which neighbours resemble each other, differ by so much by chance. An alarm less
# is no gain if it is a fault's: a threshold far too high finds nothing, with the same average precision.
BY_CHANCE, LEAST_FOUND = 1.25, 0.8
Array = np.ndarray
OnMissing = Literal["raise", "skip", "marginal"]
Filler = Callable[[Array], Array]


@dataclass(frozen=True)
class Source:
    """Rows to learn, and what is to be judged afterwards: rows and whether they are anomalous, by name."""

    family: str
    name: str
    train: Array
    tests: dict[str, tuple[Array, Array]]
    max_atoms: int = 256


@dataclass(frozen=True)
class Blanked:
    """A source whose train and tests have gaps."""

    train: Array
    tests: dict[str, Array]


@dataclass(frozen=True)
class Way:
    """What is done with a lost number: the model's `on_missing`, or a filler that is made of train."""

    on_missing: OnMissing = "raise"
    filler: Callable[[Array], Filler] | None = None


def blank(rows: Array, share: float, kind: str, rng: np.random.Generator) -> Array:
    """Return a copy of rows (n, d) with this share of NaN, at random or in bursts of one column."""
    n, d = rows.shape
    count = round(share * n * d)
    if kind == "random":
        lost = np.zeros(n * d, dtype=bool)
        lost[rng.choice(n * d, count, replace=False)] = True
        lost = lost.reshape(n, d)
    else:
        lost = np.zeros((n, d), dtype=bool)
        while (missing := count - int(lost.sum())) > 0:
            column, start = int(rng.integers(d)), int(rng.integers(n))
            length = int(rng.integers(LEAST_BURST, LONGEST_BURST + 1))
            fresh = np.flatnonzero(~lost[start : start + length, column])[:missing]
            lost[start + fresh, column] = True
    return np.where(lost, np.nan, rows)


def blanked(source: Source, share: float, kind: str, seed: int) -> Blanked:
    """Blank the rows of a source."""
    rng = np.random.default_rng([seed, round(1000 * share)])
    train = blank(source.train, share, kind, rng)
    return Blanked(train, {name: blank(rows, share, kind, rng) for name, (rows, _) in source.tests.items()})


def by_mean(train: Array) -> Filler:
    """Fill gaps with the means of columns."""
    mean = np.nanmean(train, axis=0)
    return lambda rows: np.where(np.isnan(rows), mean, rows)


def by_last_value(train: Array) -> Filler:
    """Fill each gap with the number before it; those before the first number with the mean of train."""
    mean = np.nanmean(train, axis=0)

    def fill(rows: Array) -> Array:
        known = ~np.isnan(rows)
        last = np.maximum.accumulate(np.where(known, np.arange(len(rows))[:, None], -1), axis=0)
        return np.where(last >= 0, np.take_along_axis(rows, np.maximum(last, 0), axis=0), mean)

    return fill


def by_iterative_imputer(train: Array) -> Filler:
    """Fill gaps by scikit-learn's regressions of each column on the others."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    mean, scale = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    chosen = np.linspace(0, len(train) - 1, min(len(train), IMPUTER_ROWS)).astype(int)
    model = IterativeImputer(random_state=0, keep_empty_features=True)
    with warnings.catch_warnings():
        # Ten rounds are what it does by default, whether it has converged or not.
        warnings.simplefilter("ignore")
        model.fit((train[chosen] - mean) / scale)

    def fill(rows: Array) -> Array:
        filled = model.transform((rows - mean) / scale) * scale + mean
        # What is known stays as it is, to the last digit.
        return np.where(np.isnan(rows), filled, rows)

    return fill


WAYS = {
    COMPLETE: Way(),
    MARGINAL: Way("marginal"),
    SKIP: Way("skip"),
    "mean": Way(filler=by_mean),
    "last value": Way(filler=by_last_value),
    "IterativeImputer": Way(filler=by_iterative_imputer),
}


def new_model(on_missing: OnMissing, seed: int, max_atoms: int) -> StreamingKernelPCA:
    """Make the model that a Monitor has by default, but for the seed of its samples."""
    return StreamingKernelPCA(
        kernel=RBF().in_units("std"),
        max_atoms=max_atoms,
        noise_variance=None,
        on_missing=on_missing,
        random_state=seed,
    )


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time of a call, and its result."""
    start = time.process_time()
    result = work()
    return max(time.process_time() - start, 1e-9), result


def judged(labels: Array, scores: Array, is_alarm: Array) -> dict[str, float]:
    """Return what scores and alarms are worth; figures about rows that do not occur are NaN."""
    return {
        "AP": average_precision(labels, scores),
        "false": float(is_alarm[~labels].mean()) if not labels.all() else math.nan,
        "found": float(is_alarm[labels].mean()) if labels.any() else math.nan,
    }


def errors(source: Source, gappy: Blanked, filled: dict[str, Array]) -> dict[str, float]:
    """Return the root mean square error in the gaps of test, in standard deviations of train."""
    scale = source.train.std(axis=0)
    varies = scale > 1e-12 * np.abs(source.train).max(axis=0)
    of_healthy, of_all = [], []
    for name, (rows, labels) in source.tests.items():
        lost = np.isnan(gappy.tests[name]) & varies
        squares = ((filled[name] - rows) / np.where(varies, scale, 1.0)) ** 2
        of_healthy.append(squares[lost & ~labels[:, None]])
        of_all.append(squares[lost])
    healthy, every = np.concatenate(of_healthy), np.concatenate(of_all)
    return {
        "RMSE": math.sqrt(healthy.mean()) if len(healthy) else math.nan,
        "all": math.sqrt(every.mean()) if len(every) else math.nan,
    }


def lowest(scores: Array) -> Array:
    """Give rows without a score the least of the others."""
    unknown = np.isnan(scores)
    return np.where(unknown, scores[~unknown].min(initial=0.0), scores)


def by_model(source: Source, gappy: Blanked, way: Way, seed: int) -> dict[str, float]:
    """Judge one model of train, which learns nothing later."""
    train, model = gappy.train, new_model(way.on_missing, seed, source.max_atoms)
    fill: Filler = lambda rows: rows  # noqa: E731

    def learn() -> Array:
        nonlocal fill
        if way.filler is not None:
            fill = way.filler(train)
        rows = fill(train)
        model.partial_fit(rows)
        model.refit()
        return rows

    if way.on_missing == "skip" and np.isnan(train).any(axis=1).all():
        return dict.fromkeys(COLUMNS, math.nan) | mean_of(
            [
                judged(labels, np.zeros(len(labels)), np.zeros(len(labels), dtype=bool))
                for _, labels in source.tests.values()
            ]
        )
    seconds, learned = seconds_of(learn)
    found = {"new": len(train) / seconds}
    threshold = model.novelty_threshold(QUANTILE)
    figures, filled, n_scored, seconds = [], dict[str, Array](), 0, 0.0
    for name, (_, labels) in source.tests.items():
        rows = gappy.tests[name]

        def score(rows: Array = rows) -> tuple[Array, Array]:
            completed = fill(rows)
            if way.on_missing != "skip":
                return completed, model.novelty(completed)
            scores, whole = np.full(len(rows), np.nan), ~np.isnan(rows).any(axis=1)
            if whole.any():
                scores[whole] = model.novelty(rows[whole])
            return completed, scores

        taken, (filled[name], scores) = seconds_of(score)
        seconds, n_scored = seconds + taken, n_scored + len(rows)
        with np.errstate(invalid="ignore"):
            is_alarm = scores > threshold
        figures.append(judged(labels, lowest(scores), is_alarm))
        if way.on_missing == "marginal" and np.isnan(rows).any():
            filled[name] = model.impute(rows)
    found |= mean_of(figures) | {"score": n_scored / seconds}
    found |= {"RMSE": math.nan, "all": math.nan} if way.on_missing == "skip" else errors(source, gappy, filled)
    again = np.tile(learned, (math.ceil(SETTLED_ROWS / len(train)), 1))
    model.partial_fit(again)
    # Imputing them took as long as before.
    found["settled"] = len(again) / (
        seconds_of(lambda: model.partial_fit(again))[0] + seconds_of(lambda: fill(train))[0] * len(again) / len(train)
    )
    return found


def by_monitor(source: Source, gappy: Blanked, way: Way, seed: int) -> dict[str, float]:
    """Judge a Monitor that has learned train, and learns rows of test that are normal."""
    from streamkpca.monitoring import Monitor

    fill: Filler = (lambda rows: rows) if way.filler is None else way.filler(gappy.train)
    skips = way.on_missing == "skip"
    figures = []
    monitor = Monitor(new_model(way.on_missing, seed, source.max_atoms))
    rows = fill(gappy.train)
    monitor.update(rows[~np.isnan(rows).any(axis=1)] if skips else rows)
    for name, (_, labels) in source.tests.items():
        rows, judging = fill(gappy.tests[name]), copy.deepcopy(monitor)
        asked = ~np.isnan(rows).any(axis=1) if skips else np.ones(len(rows), dtype=bool)
        scores, is_alarm = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=bool)
        if asked.any():
            record = judging.update(rows[asked])
            scores[asked], is_alarm[asked] = record.rarity, record.is_alarm
        figures.append(judged(labels, lowest(scores), is_alarm))
    return mean_of(figures)


def monitors_take_gaps() -> bool:
    """Tell whether a Monitor scores a row with a gap."""
    from streamkpca.monitoring import Monitor

    rows = np.random.default_rng(0).normal(size=(200, 3))
    rows[150, 0] = np.nan
    try:
        return bool(np.isfinite(Monitor(new_model("marginal", 0, 8)).update(rows).novelty[150]))
    except ValueError:
        return False


def mean_of(tables: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each column over the tables that have the figure."""
    known: dict[str, list[float]] = {}
    for table in tables:
        for key, value in table.items():
            known.setdefault(key, []).append(value)
    return {key: float(np.nanmean(v)) if not np.isnan(v).all() else math.nan for key, v in known.items()}


def over_seeds(tables: list[dict[str, float]]) -> dict[str, float]:
    """Return means over seeds; of rates, the best, which other work on the machine delayed least."""
    return mean_of(tables) | {
        key: max(table[key] for table in tables) for key in RATES if key in tables[0] and not math.isnan(tables[0][key])
    }


def over_sources(tables: list[dict[str, float]]) -> dict[str, float]:
    """Return means over the sources of a family; of rates, geometric ones."""
    means = mean_of(tables)
    for key in RATES:
        rates = [table[key] for table in tables if not math.isnan(table.get(key, math.nan))]
        if rates:
            means[key] = math.exp(float(np.mean(np.log(rates))))
    return means


def heading(text: str) -> str:
    """Write the names of the columns."""
    return f"{text:>34}" + "".join(f"{key:>9}" for key in COLUMNS)


def line(name: str, figures: dict[str, float]) -> str:
    """Write one line of a table."""
    cells = []
    for key in COLUMNS:
        value = figures.get(key, math.nan)
        cells.append("-" if math.isnan(value) else f"{value:,.0f}" if key in RATES else f"{value:.3f}")
    return f"{name:>34}" + "".join(f"{cell:>9}" for cell in cells)


def made_sources() -> list[Source]:
    """Make a small machine and a small plant, for a test run."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(2, 8))

    def rows(n: int) -> Array:
        hidden = np.cumsum(rng.normal(size=(n, 2)), axis=0)
        return np.asarray(np.sin(0.3 * hidden) @ mixing + 0.05 * rng.normal(size=(n, 8)))

    labels = np.arange(200) % 50 > 40
    test = rows(200)
    test[labels, :3] += 2.0
    faulty = rows(220)
    faulty[FAULTY_FROM:, :4] += 2.0
    since = np.arange(220) >= FAULTY_FROM
    healthy = (rows(100), np.zeros(100, dtype=bool))
    return [
        Source("made", "machine", rows(600), {"test": (test, labels)}, max_atoms=32),
        Source("plant", "made", rows(300), {"d00_te": healthy, "d01_te": (faulty, since)}, max_atoms=32),
    ]


def read_sources(paths: list[Path], parser: argparse.ArgumentParser) -> list[Source]:
    """Read the files that were named, in order of family and name."""
    sources = []
    for path in [found for given in paths for found in (sorted(given.rglob("*.npz")) if given.is_dir() else [given])]:
        with np.load(path) as file:
            arrays = {name: np.ascontiguousarray(file[name], dtype=np.float64) for name in file.files}
        family = path.resolve().parent.name
        if {"train", "test", "test_label"} <= set(arrays):
            labels = arrays["test_label"].ravel() != 0
            sources.append(Source(family, path.stem, arrays["train"], {"test": (arrays["test"], labels)}))
        elif "d00" in arrays:
            names = ["d00_te", *(f"d{number:02}_te" for number in FAULTS)]
            tests = {
                name: (arrays[name], (np.arange(len(arrays[name])) >= FAULTY_FROM) & (name != "d00_te"))
                for name in names
                if name in arrays
            }
            sources.append(Source(family, path.stem, arrays["d00"], tests))
        else:
            parser.error(f"{path}: expected train, test and test_label, or d00, d01_te ..., but it has {list(arrays)}")
    return sources


def parse() -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure what lost numbers cost, and what to do about them.")
    parser.add_argument("paths", nargs="*", type=Path, help="npz files of streams or of a plant, or folders of them")
    parser.add_argument("--share", type=int, action="append", help="percent of lost numbers; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="number of seeds")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="methods whose name contains this")
    parser.add_argument("--no-monitor", action="store_true", help="leave out the Monitor")
    parser.add_argument("--tiny", action="store_true", help="one seed, 5 %% and two small streams, made up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    if not arguments.paths and not arguments.tiny:
        parser.error("name npz files with train, test and test_label, or folders of them, or try --tiny")
    if arguments.tiny:
        arguments.seeds, arguments.share = 1, [CHECKED]
    return arguments, parser


def chosen_ways(only: list[str]) -> dict[str, Way]:
    """Return the methods that were asked for and can be imported; always the reference."""
    ways = {name: way for name, way in WAYS.items() if name == COMPLETE or not only or any(t in name for t in only)}
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        print(f"left out: {error}")
        ways.pop("IterativeImputer", None)
    return ways


Figures = dict[str, dict[str, dict[str, float]]]


def measure(
    source: Source, ways: dict[str, Way], shares: list[int], seeds: int, detectors: dict[str, Callable[..., Any]]
) -> Figures:
    """Return figures by kind of blanks and method, and print them as they come."""
    results: Figures = {}
    whole = Blanked(source.train, {name: rows for name, (rows, _) in source.tests.items()})
    reference = {
        detector: over_seeds([judge(source, whole, ways[COMPLETE], seed) for seed in range(seeds)])
        for detector, judge in detectors.items()
    }
    for share in shares:
        for kind in ("random", "bursts"):
            title = f"{share} % {kind}"
            print("\n" + heading(f"{source.family}/{source.name}, {title}"), flush=True)
            results[title] = {}
            for detector, judge in detectors.items():
                for name, way in ways.items():
                    found = (
                        reference[detector]
                        if name == COMPLETE
                        else over_seeds(
                            [
                                judge(source, blanked(source, share / 100, kind, seed), way, seed)
                                for seed in range(seeds)
                            ]
                        )
                    )
                    results[title][detector + name] = found
                    print(line(detector + name, found), flush=True)
    return results


def verdict(families: dict[str, Figures]) -> tuple[bool, dict[str, bool]]:
    """Check the claim and print how it stands."""
    checks: dict[str, bool] = {}
    for family, tables in families.items():
        for title, lines in tables.items():
            if not title.startswith(f"{CHECKED} %") or MARGINAL not in lines:
                continue
            ours, whole = lines[MARGINAL], lines[COMPLETE]
            lost, speed = whole["AP"] - ours["AP"], ours["new"] / whole["new"]
            most, least = max(MOST_FALSE, BY_CHANCE * whole["false"]), LEAST_FOUND * whole["found"]
            for what, holds in (
                (f"loses {lost:.3f} of average precision, at most {MOST_LOST:.3f} allowed", lost <= MOST_LOST),
                (f"gives {ours['false']:.3f} false alarms, at most {most:.3f} allowed", ours["false"] <= most),
                (
                    f"finds {ours['found']:.3f} of the anomalous rows, at least {least:.3f} wanted",
                    ours["found"] >= least,
                ),
                (f"learns at {speed:.2f} of the speed, at least {LEAST_SPEED} wanted", speed >= LEAST_SPEED),
            ):
                checks[f"{family}, {title}: {what}"] = holds
    for what, holds in checks.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    return all(checks.values()), checks


def known(value: Any) -> Any:
    """Replace NaN, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: known(part) for key, part in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def main() -> int:
    """Run the benchmark."""
    arguments, parser = parse()
    sources = (made_sources() if arguments.tiny else []) + read_sources(arguments.paths, parser)
    where = surroundings()
    ways = chosen_ways(arguments.only)
    shares = arguments.share or list(SHARES)
    detectors: dict[str, Callable[..., dict[str, float]]] = {"": by_model}
    if not arguments.no_monitor:
        if monitors_take_gaps():
            detectors["Monitor, "] = by_monitor
        else:
            print("left out: the Monitor, which skips rows with gaps")
    by_source: dict[str, Figures] = {}
    with threads(1):
        # Compiled loops are loaded before anything is timed.
        first = made_sources()[-1]
        for way in ways.values():
            by_model(first, blanked(first, 0.0 if way is ways[COMPLETE] else 0.05, "random", 0), way, 0)
        for source in sources:
            title = f"{source.family}/{source.name}"
            by_source[title] = measure(source, ways, shares, arguments.seeds, detectors)
    families: dict[str, Figures] = {}
    for family in dict.fromkeys(source.family for source in sources):
        members = [by_source[f"{source.family}/{source.name}"] for source in sources if source.family == family]
        families[family] = {}
        for title in members[0]:
            families[family][title] = {
                name: over_sources([member[title][name] for member in members]) for name in members[0][title]
            }
            if len(members) > 1:
                print("\n" + heading(f"mean of {family}, {title}"))
                for name, found in families[family][title].items():
                    print(line(name, found))
    print()
    holds, checks = verdict(families)
    print(f"{'HOLDS' if holds else 'FAILS'}: {sum(checks.values())} of {len(checks)} bounds hold")
    write_figures(
        arguments.json, where, known({"sources": by_source, "families": families, "checks": checks, "holds": holds})
    )
    return 0 if holds or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
