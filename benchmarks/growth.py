"""How do time and memory grow with atoms, features, axes and rows?

One of atoms m, features d, axes q and rows n grows; the others stay. In the first three sweeps all atoms are active,
models take turns, and medians count; schedules of searches and refits are those of an old stream. In the sweep of rows
everything is at its default, searches and refits included.

* **record** is `partial_fit` in bulk, **transform** is in bulk too, **refit** is `refit()`, and **state** the bytes of
  the arrays that the model's stream holds, each counted once.
* The exponents are slopes of logarithms over the upper half of a sweep: as measured, beside those of m^2 + m d
  (record), m (d + q) (transform), m^3 (refit) and m (d + m) (state) at the same points. Overheads make small sizes grow
  more slowly than the formula.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import MEBIBYTE, Figures, Sheet, count_atoms, count_bytes, make_table, run, set_schedule, time_call

from streamkpca import StreamingKernelPCA

BLOCK = 512
# A call is repeated until so much time has passed.
ENOUGH_SECONDS = 0.1
# An old stream searches one block in this many.
RAREST = 1024
QUANTITIES = {"record": "us a row", "transform": "us a row", "refit": "ms", "state": "MiB"}
SWEEPS = {
    "whole": {
        "m": [(m, 32, 10) for m in (32, 64, 128, 256, 512, 1024)],
        "d": [(64, d, 10) for d in (32, 64, 128, 256, 512, 1024)],
        "q": [(256, 32, q) for q in (4, 8, 16, 32, 64, 128)],
    },
    "quick": {
        "m": [(m, 32, 10) for m in (32, 64, 128, 256)],
        "d": [(64, d, 10) for d in (32, 64, 128, 256)],
        "q": [(128, 32, q) for q in (4, 8, 16, 32)],
    },
    "tiny": {
        "m": [(m, 8, 4) for m in (4, 8, 16, 32)],
        "d": [(16, d, 4) for d in (4, 8, 16, 32)],
        "q": [(16, 8, q) for q in (1, 2, 4, 8)],
    },
}
# Rounds, blocks of a round, searches, and the rows of the marks.
AMOUNTS = {
    "whole": (5, 8, 3, [2**i for i in range(15, 21)]),
    "quick": (3, 4, 1, [2**i for i in range(14, 18)]),
    "tiny": (1, 2, 1, [1024, 2048, 4096, 8192]),
}
THEORY: dict[str, Callable[[float, float, float], float]] = {
    "record": lambda m, d, q: m * m + m * d,
    "transform": lambda m, d, q: m * (d + q),
    "refit": lambda m, d, q: m**3,
    "state": lambda m, d, q: m * (d + m),
}


def fit_exponent(sizes: Iterable[float], values: Iterable[float]) -> float:
    """Fit value = c size^a by least squares of logarithms, over the upper half of the sizes, and return a."""
    x, y = np.log(list(sizes)), np.log(list(values))
    upper = slice(len(x) // 2, None)
    return float(np.polyfit(x[upper], y[upper], 1)[0])


def time_processor(call: Callable[[], object]) -> float:
    """Return the processor seconds of a call."""
    return time_call(call)[0]


def time_often(call: Callable[[], object]) -> float:
    """Time a call that changes nothing: the median of five if it is quick."""
    seconds = [time_processor(call)]
    while sum(seconds) < ENOUGH_SECONDS and len(seconds) < 5:
        seconds.append(time_processor(call))
    return float(np.median(seconds))


def settle(m: int, d: int, q: int, n_searches: int) -> tuple[StreamingKernelPCA, Sheet, float]:
    """Fill a model's budget, search some blocks, and set the schedules of an old stream; also time one search."""
    sheet = Sheet(d)
    model = StreamingKernelPCA(q, max_atoms=m, noise_variance=None, tolerance=0.0, refit_every=10**12)
    while not count_atoms(model) >= m:
        model.partial_fit(sheet.draw(BLOCK))
    searches = []
    for _ in range(n_searches):
        rows = sheet.draw(BLOCK)
        set_schedule(model, countdown=0)
        searches.append(time_processor(lambda rows=rows: model.partial_fit(rows)))
    set_schedule(model, countdown=RAREST - 1, usual_residual=np.inf)
    model.state_ = replace(model.state_, n_rows_at_refit=10**12)
    return model, sheet, float(np.median(searches))


def sweep_sizes(sizes: list[tuple[int, int, int]], *, n_rounds: int, n_blocks: int, n_searches: int) -> list[Figures]:
    """Measure settled models of several (m, d, q) in turns; return medians of the rounds."""
    models = []
    for i, (m, d, q) in enumerate(sizes):
        if i and (m, d) == sizes[i - 1][:2]:
            model, sheet, search = copy.deepcopy(models[-1][0]), models[-1][1], models[-1][2]
            model.set_params(n_components=q)
        else:
            model, sheet, search = settle(m, d, q, n_searches)
        models.append((model, sheet, search))
    rounds = []
    for _ in range(n_rounds + 1):
        seconds = []
        for model, sheet, _ in models:
            rows = sheet.draw(n_blocks * BLOCK)
            record = time_processor(lambda model=model, rows=rows: model.partial_fit(rows))
            refit = time_often(model.refit)
            transform = time_often(lambda model=model, rows=rows: model.transform(rows))
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
            "state": count_bytes(model.state_) / MEBIBYTE,
            "search": 1e3 * search,
        }
        for (m, d, q), (model, _, search), found in zip(sizes, models, medians, strict=True)
    ]


def sweep_rows(model: StreamingKernelPCA, sheet: Sheet, marks: list[int], n_rounds: int) -> list[Figures]:
    """Feed one model and measure it at each mark; the time per row counts from the mark before."""
    lines, done = [], 0
    for mark in marks:
        seconds, began = 0.0, done
        while done < mark:
            rows = sheet.draw(min(16 * BLOCK, mark - done))
            seconds += time_processor(lambda rows=rows: model.partial_fit(rows))
            done += len(rows)
        rows = sheet.draw(16 * BLOCK)
        model.transform(rows[:1])
        transform = np.median([time_processor(lambda rows=rows: model.transform(rows)) for _ in range(n_rounds)])
        # Axes at the marks are published from a copy, so that the stream is not disturbed.
        twin = copy.deepcopy(model)
        lines.append(
            {
                "n": mark,
                "active": model.n_active_,
                "record": seconds / (mark - began) * 1e6,
                "transform": float(transform) / len(rows) * 1e6,
                "refit": float(np.median([time_processor(twin.refit) for _ in range(n_rounds)])) * 1e3,
                "state": count_bytes(model.state_) / MEBIBYTE,
            }
        )
    return lines


def compare(variable: str, lines: list[Figures]) -> dict[str, dict[str, float]]:
    """Fit exponents to the measured figures and to the formulas at the same points."""
    sizes = [line[variable] for line in lines]
    found = {}
    for quantity, formula in THEORY.items():
        theory = 0.0
        if variable != "n":
            theory = fit_exponent(sizes, [formula(line["m"], line["d"], line["q"]) for line in lines])
        found[quantity] = {"measured": fit_exponent(sizes, [line[quantity] for line in lines]), "theory": theory}
    return found


def measure(size: str, data: Path | None) -> Figures:
    """Sweep every size, and the rows of one stream."""
    n_rounds, n_blocks, n_searches, marks = AMOUNTS[size]
    sweeps = {
        variable: sweep_sizes(points, n_rounds=n_rounds, n_blocks=n_blocks, n_searches=n_searches)
        for variable, points in SWEEPS[size].items()
    }
    sheet = Sheet(8 if size == "tiny" else 32)
    model = StreamingKernelPCA(max_atoms=32 if size == "tiny" else 256)
    sweeps["n"] = sweep_rows(model, sheet, marks, n_rounds)
    return {"sweeps": sweeps, "exponents": {variable: compare(variable, lines) for variable, lines in sweeps.items()}}


NAMES = {"m": "atoms m", "d": "features d", "q": "axes q", "n": "rows n"}


def describe(figures: Figures) -> str:
    """Return the ends of every sweep, and its exponents."""
    rows = []
    for variable, lines in figures["sweeps"].items():
        for line in (lines[0], lines[-1]):
            rows.append([f"{NAMES[variable]} = {line[variable]:,}", *(line[quantity] for quantity in QUANTITIES)])
        pairs = [figures["exponents"][variable][quantity] for quantity in QUANTITIES]
        rows.append(["exponent (formula)", *(f"{pair['measured']:.2f} ({pair['theory']:.2f})" for pair in pairs)])
    return make_table(["", *(f"{quantity}, {unit}" for quantity, unit in QUANTITIES.items())], rows)


if __name__ == "__main__":
    run(measure, describe)
