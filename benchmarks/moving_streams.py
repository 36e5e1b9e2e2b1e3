"""Does the monitor learn what moves, and come to know a state that returns?

Real healthy rows and faults, made to move: blocks of 500 healthy rows of seven streams follow each other, drawn with
replacement, with a fault of up to 100 rows every 2,000 to 6,000. After 10,000 rows half of the features begin to move,
in units of their deviations: by an **offset** that grows to 2 (each way), a **gain** that grows to 2, noise that grows
to 1 (**ageing**), or a wave of 1 (**season**, two of them).

* **learning**, **frozen**: average precision of the rarities of a default `Monitor`, and of one that learns nothing
  after the first 10,000 rows. **false events**: those that begin in 1,000 healthy rows, of both.
* **states**: half of a stream's healthy rows, then a quarter with an offset of 3 in half of its features, then the last
  quarter as it was; `Monitor(accept_after=256)`. The share of rows in alarm: the first and the last 1,000 in the new
  state, those after the return, and the same of a monitor that never left.
"""

import copy
from pathlib import Path

import numpy as np
from common import Array, Figures, make_table, run
from detection_metrics import average_precision
from real_streams import Stream, count_events, read_families

from streamkpca.monitoring import Monitor

FAMILIES = ("batadal", "cmapss", "cover", "jumpstarter2", "asd", "smd", "tep")
LEARNED = 10_000
BLOCK = 500
LONGEST = 100
N_ROWS = {"whole": 100_000, "quick": 20_000, "tiny": 11_000}
KINDS = ("steady", "offset", "gain", "ageing", "season")
# Fewer healthy rows are no half of a stream that a monitor knows.
LEAST = 5000


def draw(stream: Stream, n: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Return healthy rows in blocks, with faults among them, and which rows are faults."""
    starts = random.integers(0, max(len(stream.train) - BLOCK, 1), n // BLOCK + 1)
    rows = np.concatenate([stream.train[start : start + BLOCK] for start in starts])[:n]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], stream.labels, [False]])))
    labels, at = np.zeros(len(rows), dtype=bool), LEARNED + 500
    while at + LONGEST < len(rows):
        start, end = random.choice(edges.reshape(-1, 2))
        fault = stream.test[start : min(end, start + LONGEST)]
        rows[at : at + len(fault)], labels[at : at + len(fault)] = fault, True
        at += int(random.integers(2000, 6000))
    return rows, labels


def move(rows: Array, train: Array, kind: str, random: np.random.Generator) -> Array:
    """Return rows of which half of the features move."""
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    time = np.clip((np.arange(len(rows)) - LEARNED) / (len(rows) - LEARNED), 0.0, 1.0)[:, None]
    moves = random.permutation(rows.shape[1]) < (rows.shape[1] + 1) // 2
    signs = random.choice([-1.0, 1.0], rows.shape[1]) * moves
    if kind == "offset":
        return rows + 2.0 * time * signs * deviation
    if kind == "gain":
        return mean + (rows - mean) * (1.0 + time * moves)
    if kind == "ageing":
        return rows + time * moves * deviation * random.normal(size=rows.shape)
    return rows + np.sin(4.0 * np.pi * time) * signs * deviation if kind == "season" else rows


def judge_drift(stream: Stream, kind: str, n: int, seed: int) -> Figures:
    """Compare a monitor with one that learns nothing after the first rows."""
    random = np.random.default_rng(seed)
    rows, labels = draw(stream, n, random)
    rows, labels = move(rows, stream.train, kind, random), labels[LEARNED:]
    monitor = Monitor()
    monitor.update(rows[:LEARNED])
    frozen = copy.deepcopy(monitor)
    frozen.learn = "none"
    found = {}
    for name, it in {"learning": monitor, "frozen": frozen}.items():
        record = it.update(rows[LEARNED:])
        found[name] = average_precision(labels, record.rarity)
        found[f"{name}: false events"] = count_events(it, LEARNED, labels)[1]
    return found


def judge_states(stream: Stream, seed: int) -> list[float]:
    """Return the shares of alarms in a new state, and after the return from it."""
    random, rows = np.random.default_rng(seed), stream.train
    first, second = len(rows) // 2, 3 * len(rows) // 4
    shift = 3.0 * rows.std(axis=0) * (random.permutation(rows.shape[1]) < (rows.shape[1] + 1) // 2)
    monitor, steady = Monitor(accept_after=256), Monitor()
    for it in (monitor, steady):
        it.update(rows[:first])
    new = monitor.update(rows[first:second] + shift).is_alarm
    returned, never_left = (it.update(rows[second:]).is_alarm for it in (monitor, steady))
    return [float(part.mean()) for part in (new[:1000], new[-1000:], returned, never_left)]


def measure(size: str, data: Path | None) -> Figures:
    """Let every stream move in every way, and change its state."""
    families = read_families(data, "whole")
    streams = {name: families[name][-1] for name in FAMILIES if name in families}
    if not streams:
        return {}
    streams = streams if size == "whole" else dict(list(streams.items())[:2])
    drifts = {
        kind: {
            name: judge_drift(stream, kind, N_ROWS[size], seed) for seed, (name, stream) in enumerate(streams.items())
        }
        for kind in KINDS
    }
    means = {
        kind: {key: float(np.mean([found[key] for found in line.values()])) for key in next(iter(line.values()))}
        for kind, line in drifts.items()
    }
    states = {name: judge_states(stream, 0) for name, stream in streams.items() if len(stream.train) >= LEAST}
    return {"rows": N_ROWS[size], "means": means, "streams": drifts, "states": states}


def describe(figures: Figures) -> str:
    """Return a line for each way to move, and one for the states."""
    lines = [[kind, *found.values()] for kind, found in figures["means"].items()]
    table = make_table(["", *next(iter(figures["means"].values()))], lines)
    states = list(figures["states"].values())
    if not states:
        return table
    new, settled, returned, never_left = np.mean(states, axis=0)
    return (
        f"{table}\n\nMeans over {len(next(iter(figures['streams'].values())))} streams of {figures['rows']:,} rows. Of "
        f"a new state's first 1,000 rows {new:.1%} are alarms, of its last 1,000 {settled:.1%}, of those after the "
        f"return {returned:.1%}, and {never_left:.1%} had it never been left ({len(states)} streams)."
    )


if __name__ == "__main__":
    run(measure, describe)
