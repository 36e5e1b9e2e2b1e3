"""Claim: time and memory grow with atoms, features, axes and rows as the method says, and no faster.

With m atoms, all of them active, d features and q axes, recording a row takes m^2 + m d multiplications, projecting it
m (d + q), a refit m^3, and the state m (d + m) numbers. One of m, d, q and the number of rows n grows at a time. Models
are settled first: once the budget is full and a few blocks have been searched, the schedules of search and refits are
set to those of a stream of millions of rows, so that recording is measured alone; the search has a column of its
own. Only n really grows: one model at the default settings, searches and refits included.

Each exponent is fitted by least squares of logarithms over the upper half of its sweep, both for the measured times and
for the formula at the same points. A slower growth than the formula's is no fault: on small sizes the cost
of calls and of kernel values hides it.

At the end two models at the default settings are merged, and a table projects 10^12 rows on 1 to 1,000 machines.

Run::

    OPENBLAS_NUM_THREADS=1 python benchmarks/cost_grows_as_it_should.py --plot cost.png
    python benchmarks/cost_grows_as_it_should.py --tiny

The exit code is 0 if nothing grows faster than it should and 1 if something does; a tiny run always gives 0.
"""

import argparse
import copy
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import MEBIBYTE, Sheet, n_atoms, set_schedule, state_bytes, surroundings, write_figures

from streamkpca import StreamingKernelPCA, merge

Array = npt.NDArray[np.float64]

BLOCK = 512
# Tolerance for the noise of timing and for caches that large matrices outgrow.
MOST_ABOVE = 0.3
ENOUGH_SECONDS = 0.1
# An old stream searches one block in this many.
RAREST = 1024
QUANTITIES = {
    "record": ("record", "us a row"),
    "transform": ("transform", "us a row"),
    "refit": ("refit", "ms"),
    "state": ("state", "MiB"),
}
NAMES = {"m": "atoms m", "d": "features d", "q": "axes q", "n": "rows n"}
THEORY: dict[str, Callable[[float, float, float], float]] = {
    "record": lambda m, d, q: m * m + m * d,
    "transform": lambda m, d, q: m * (d + q),
    "refit": lambda m, d, q: m**3,
    "state": lambda m, d, q: m * (d + m),
}

Line = dict[str, Any]


def exponent(sizes: Iterable[float], values: Iterable[float]) -> float:
    """Fit value = c size^a by least squares of logarithms, over the upper half of the sizes, and return a."""
    x, y = np.log(list(sizes)), np.log(list(values))
    upper = slice(len(x) // 2, None)
    return float(np.polyfit(x[upper], y[upper], 1)[0])


def seconds_of(call: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def steady_seconds(call: Callable[[], object]) -> float:
    """Time a call that changes nothing: the median of five if it is quick.

    A call of one millisecond either runs undisturbed or waits four for a core; on a busy machine the median of seven
    rounds once was 6 ms instead of 1.7.
    """
    seconds = [seconds_of(call)]
    while sum(seconds) < ENOUGH_SECONDS and len(seconds) < 5:
        seconds.append(seconds_of(call))
    return float(np.median(seconds))


def settled(m: int, d: int, q: int, n_searches: int) -> tuple[StreamingKernelPCA, Sheet, float]:
    """Fill a model's budget, search some blocks, and set the schedules of an old stream; also time one search."""
    sheet = Sheet(d)
    model = StreamingKernelPCA(q, max_atoms=m, noise_variance=None, tolerance=0.0, refit_every=10**12)
    while not n_atoms(model) >= m:
        model.partial_fit(sheet.draw(BLOCK))
    searches = []
    for _ in range(n_searches):
        rows = sheet.draw(BLOCK)
        set_schedule(model, countdown=0)
        searches.append(seconds_of(lambda rows=rows: model.partial_fit(rows)))
    set_schedule(model, countdown=RAREST - 1, usual_residual=np.inf)
    model.state_ = replace(model.state_, n_rows_at_refit=10**12)
    return model, sheet, float(np.median(searches))


def sweep(sizes: list[tuple[int, int, int]], *, n_rounds: int, n_blocks: int, n_searches: int) -> list[Line]:
    """Measure settled models of several (m, d, q) in turns; return medians of the rounds."""
    models = []
    for i, (m, d, q) in enumerate(sizes):
        if i and (m, d) == sizes[i - 1][:2]:
            model, sheet, search = copy.deepcopy(models[-1][0]), models[-1][1], models[-1][2]
            model.set_params(n_components=q)
        else:
            model, sheet, search = settled(m, d, q, n_searches)
        models.append((model, sheet, search))
    rounds = []
    for _ in range(n_rounds + 1):
        seconds = []
        for model, sheet, _ in models:
            rows = sheet.draw(n_blocks * BLOCK)
            record = seconds_of(lambda model=model, rows=rows: model.partial_fit(rows))
            refit = steady_seconds(model.refit)
            transform = steady_seconds(lambda model=model, rows=rows: model.transform(rows))
            seconds.append((record / len(rows) * 1e6, transform / len(rows) * 1e6, refit * 1e3))
        rounds.append(seconds)
    # The first round compiles and fills caches.
    medians = np.median(rounds[1:], axis=0)
    return [
        {
            "m": m,
            "d": d,
            "q": q,
            "active": model.n_active_,
            **dict(zip(("record", "transform", "refit"), map(float, found), strict=True)),
            "state": state_bytes(model.state_) / MEBIBYTE,
            "search": 1e3 * search,
        }
        for (m, d, q), (model, _, search), found in zip(sizes, models, medians, strict=True)
    ]


def long_stream(model: StreamingKernelPCA, sheet: Sheet, marks: list[int], n_rounds: int) -> list[Line]:
    """Feed one model and measure it at each mark; the time per row counts from the mark before."""
    lines, done = [], 0
    for mark in marks:
        seconds, began = 0.0, done
        while done < mark:
            rows = sheet.draw(min(16 * BLOCK, mark - done))
            seconds += seconds_of(lambda rows=rows: model.partial_fit(rows))
            done += len(rows)
        rows = sheet.draw(16 * BLOCK)
        model.transform(rows[:1])
        transform = np.median([seconds_of(lambda rows=rows: model.transform(rows)) for _ in range(n_rounds)])
        # Axes at the marks are published from a copy, so that the stream is not disturbed.
        twin = copy.deepcopy(model)
        lines.append(
            {
                "n": mark,
                "active": model.n_active_,
                "record": seconds / (mark - began) * 1e6,
                "transform": float(transform) / len(rows) * 1e6,
                "refit": float(np.median([seconds_of(twin.refit) for _ in range(n_rounds)])) * 1e3,
                "state": state_bytes(model.state_) / MEBIBYTE,
            }
        )
    return lines


def compare(variable: str, lines: list[Line]) -> dict[str, dict[str, float]]:
    """Fit exponents to the measured figures and to the formulas at the same points."""
    sizes = [line[variable] for line in lines]
    found = {}
    for quantity, formula in THEORY.items():
        theory = 0.0
        if variable != "n":
            theory = exponent(sizes, [formula(line["m"], line["d"], line["q"]) for line in lines])
        found[quantity] = {"measured": exponent(sizes, [line[quantity] for line in lines]), "theory": theory}
    return found


def print_sweep(variable: str, title: str, lines: list[Line], exponents: dict[str, dict[str, float]]) -> None:
    """Print the lines of a sweep, then its exponents."""
    print(f"\n{title}")
    heads = [f"{name}, {unit}" for name, unit in QUANTITIES.values()]
    searched = "search" in lines[0]
    print(
        f"{variable:>10} {'active':>7} "
        + " ".join(f"{head:>20}" for head in heads)
        + (f" {'search, ms a block':>20}" if searched else "")
    )
    for line in lines:
        columns = [*QUANTITIES, *(["search"] if searched else [])]
        print(
            f"{line[variable]:>10,} {line['active']:>7} " + " ".join(f"{line[column]:>20.3f}" for column in columns),
            flush=True,
        )
    for kind in ("measured", "theory"):
        print(f"{kind:>18} " + " ".join(f"{exponents[name][kind]:>20.2f}" for name in QUANTITIES))


def project(rows_per_second: float, merge_seconds: float, n_rows: float = 1e12) -> list[dict[str, float]]:
    """Project a long stream on many machines whose models are merged in pairs, all pairs of a level at once."""
    lines = []
    for k in (1, 10, 100, 1000):
        ingest, levels = n_rows / k / rows_per_second / 3600, math.ceil(math.log2(k))
        merging = levels * merge_seconds
        lines.append(
            {"machines": k, "ingest_hours": ingest, "merges": levels, "merge_seconds": merging}
            | {"hours": ingest + merging / 3600}
        )
    return lines


def draw(sweeps: dict[str, list[Line]], titles: dict[str, str], path: Path) -> None:
    """Draw the sweeps: a row of panels for each quantity, a column for each size that grows."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    except ModuleNotFoundError as error:
        raise SystemExit(
            f'cost_grows_as_it_should: --plot needs {error.name}; pip install "streamkpca[plots]"'
        ) from None
    figure = Figure(figsize=(11.0, 9.0), layout="constrained")
    panels = figure.subplots(len(QUANTITIES), len(sweeps), sharex="col", sharey="row", squeeze=False)
    for i, (quantity, (name, unit)) in enumerate(QUANTITIES.items()):
        for j, (variable, lines) in enumerate(sweeps.items()):
            ax = panels[i, j]
            sizes = np.array([line[variable] for line in lines], dtype=float)
            values = np.array([line[quantity] for line in lines])
            formula = THEORY[quantity]
            theory = np.array([1.0 if variable == "n" else formula(*(line[x] for x in "mdq")) for line in lines])
            # The formula has no unit, so it is drawn through the last point.
            ax.loglog(sizes, theory * (values[-1] / theory[-1]), "--", color="#D55E00", label="formula")
            ax.loglog(sizes, values, "o-", color="#0072B2", markersize=4, label="measured")
            ax.grid(which="major", alpha=0.3)
            if i == 0:
                ax.set_title(titles[variable], fontsize="medium")
            if i == len(QUANTITIES) - 1:
                ax.set_xlabel(NAMES[variable])
            if j == 0:
                ax.set_ylabel(f"{name} ({unit.replace('us', 'µs')})")
        # With powers of ten alone, a narrow axis would have a single label.
        low, high = panels[i, 0].get_ylim()
        subs = (1.0, 3.0) if high < 150.0 * low else (1.0,)
        panels[i, 0].yaxis.set_major_locator(LogLocator(subs=subs))
        panels[i, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
        panels[i, 0].yaxis.set_minor_formatter(NullFormatter())
    panels[0, 0].legend(frameon=False)
    figure.suptitle("Cost while one size grows; formulas drawn through the last point")
    figure.savefig(path, dpi=120)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Measure how time and memory grow with atoms, features, axes, rows.")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each time, by turns (default 7)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the sweeps there; needs the extra plots")
    parser.add_argument("--tiny", action="store_true", help="at most 32 atoms and 8,192 rows, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds expected at least 1 but got {arguments.rounds}; a median needs a measurement")
    if arguments.tiny:
        sizes = {
            "m": [(m, 8, 4) for m in (4, 8, 16, 32)],
            "d": [(16, d, 4) for d in (4, 8, 16, 32)],
            "q": [(16, 8, q) for q in (1, 2, 4, 8)],
        }
        n_rounds, n_blocks, n_searches, marks = 1, 2, 1, [1024, 2048, 4096, 8192]
    else:
        sizes = {
            "m": [(m, 32, 10) for m in (32, 64, 128, 256, 512, 1024)],
            "d": [(64, d, 10) for d in (32, 64, 128, 256, 512, 1024)],
            "q": [(256, 32, q) for q in (4, 8, 16, 32, 64, 128)],
        }
        n_rounds, n_blocks, n_searches = arguments.rounds, 8, 3
        marks = [2**i for i in range(15, 21)]
    fixed = {"m": "32 features, 10 axes", "d": "64 atoms, 10 axes", "q": "256 atoms, 32 features"}
    if arguments.tiny:
        fixed = {"m": "8 features, 4 axes", "d": "16 atoms, 4 axes", "q": "16 atoms, 8 features"}

    where = surroundings()
    sweeps, exponents = {}, {}
    for variable, points in sizes.items():
        sweeps[variable] = sweep(points, n_rounds=n_rounds, n_blocks=n_blocks, n_searches=n_searches)
        exponents[variable] = compare(variable, sweeps[variable])
        title = f"{NAMES[variable]}, with {fixed[variable]}; all atoms active"
        print_sweep(variable, title, sweeps[variable], exponents[variable])

    sheet = Sheet(8 if arguments.tiny else 32)
    options = {"max_atoms": 32} if arguments.tiny else {}
    model = StreamingKernelPCA(**options)
    sweeps["n"] = long_stream(model, sheet, marks, n_rounds)
    exponents["n"] = compare("n", sweeps["n"])
    title = f"rows n, default settings, {model.n_atoms_} atoms, {model.n_features_in_} features; record: all, since the"
    print_sweep("n", f"{title} line before", sweeps["n"], exponents["n"])

    other = StreamingKernelPCA(kernel=model.kernel_, **options)
    for _ in range(max(1, marks[0] // BLOCK)):
        other.partial_fit(sheet.draw(BLOCK))
    merge(model, other)
    merge_seconds = float(np.median([seconds_of(lambda: merge(model, other)) for _ in range(n_rounds)]))
    rows_per_second = 1e6 / sweeps["n"][-1]["record"]
    projection = project(rows_per_second, merge_seconds)
    print(
        f"\n10^12 rows, projected: {rows_per_second:,.0f} rows/s a machine (one process as here), "
        f"{merge_seconds:.2f} s a merge of two models of {model.n_atoms_} atoms, "
        f"{sweeps['n'][-1]['state']:.1f} MiB each"
    )
    print(f"{'machines':>9} {'ingest, hours':>14} {'merges, one after the other':>28} {'hours in all':>13}")
    for line in projection:
        merges = f"{line['merges']} ({line['merge_seconds']:.2f} s)"
        print(f"{line['machines']:>9,} {line['ingest_hours']:>14,.2f} {merges:>28} {line['hours']:>13,.2f}")

    too_fast = [
        f"{quantity} with {variable}"
        for variable, found in exponents.items()
        for quantity, pair in found.items()
        if pair["measured"] > pair["theory"] + MOST_ABOVE
    ]
    n_exponents = sum(map(len, exponents.values()))
    verdict = "TINY" if arguments.tiny else "FAILS" if too_fast else "HOLDS"
    print(
        f"\n{verdict}: {n_exponents - len(too_fast)} of {n_exponents} exponents are at most {MOST_ABOVE} above the "
        f"formula's{': too fast grow ' * bool(too_fast)}{', '.join(too_fast)}"
    )
    if arguments.plot:
        draw(sweeps, fixed | {"n": "default settings"}, arguments.plot)
    figures = {
        "sweeps": sweeps,
        "exponents": exponents,
        "rows_per_second": rows_per_second,
        "merge_seconds": merge_seconds,
        "projection": projection,
        "too_fast": too_fast,
    }
    write_figures(arguments.json, where, figures)
    return 0 if arguments.tiny or not too_fast else 1


if __name__ == "__main__":
    sys.exit(main())
