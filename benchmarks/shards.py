"""Do many machines learn a stream as well as one, and how much faster?

Rows on a curved sheet of 32 features, shuffled or sorted by their first one, are cut into shards of neighbours; 128
atoms. A template learns the first rows; every worker begins with its atoms, learns its shard, and sends its state; the
states are merged in pairs, all pairs of a level at once. Workers run in turns in one process: seconds are processor
time, and those of k workers are the template's, the slowest worker's and one merge a level.

* **times as fast**: the seconds of one stream, without template or merge, divided by those of k workers.
* **not shared**: the seconds of k workers beyond a k-th of those of one stream. They do not grow with the rows.
* **moved**: bytes of all states sent to workers and back.
* **left**: the energy of other rows outside the span of the atoms, relative to that left by one stream in this order.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import MEBIBYTE, Array, Figures, Sheet, make_table, run, time_call

from streamkpca import StreamingKernelPCA
from streamkpca.adapters.partition import FIRST_ROWS
from streamkpca.aggregate import Aggregate
from streamkpca.kernels import RBF

# Rows, features, atoms and shards.
SIZES = {
    "whole": (1_600_000, 32, 128, (2, 4, 16)),
    "quick": (400_000, 32, 128, (2, 4)),
    "tiny": (16_000, 4, 8, (2, 4)),
}


def merge_two(first: bytes, second: bytes) -> bytes:
    """Merge two states that were sent here."""
    return Aggregate.from_bytes(first).merge(Aggregate.from_bytes(second)).to_bytes()


def merge_all(states: list[bytes]) -> tuple[float, Aggregate]:
    """Merge neighbours level by level; return the seconds of the slowest merge of each level, added up."""
    seconds = 0.0
    while len(states) > 1:
        merged = [time_call(merge_two, *pair) for pair in zip(states[::2], states[1::2], strict=True)]
        seconds += max(taken for taken, _ in merged)
        states = [state for _, state in merged]
    return seconds, Aggregate.from_bytes(states[0])


def learn_shard(empty: bytes, rows: Array) -> bytes:
    """Do the work of one machine: read the template's state, learn a shard, and write the state."""
    return Aggregate.from_bytes(empty).add(rows).to_bytes()


def learn_shards(make: Callable[[], StreamingKernelPCA], rows: Array, apart: Array, k: int) -> Figures:
    """Learn k shards from a common template."""
    begin, template = time_call(lambda: make().partial_fit(rows[:FIRST_ROWS]))
    empty = Aggregate(template).to_bytes()
    parts = [time_call(learn_shard, empty, shard) for shard in np.array_split(rows, k)]
    merging, whole = merge_all([state for _, state in parts])
    finishing, model = time_call(whole.finish)
    return {
        "shards": k,
        "seconds": begin + max(taken for taken, _ in parts) + merging + finishing,
        "moved_bytes": k * len(empty) + sum(len(state) for _, state in parts),
        "left": float(model.reconstruction_error(apart).mean()),
    }


def measure(size: str, data: Path | None) -> Figures:
    """Learn both orders by one stream and by shards."""
    n, d, m, shards = SIZES[size]
    sheet = Sheet(d)
    rows, apart = sheet.draw(n), sheet.draw(4000)
    kernel = RBF("spread").settled(rows[:2000])

    def make() -> StreamingKernelPCA:
        return StreamingKernelPCA(kernel=kernel, max_atoms=m, tolerance=1e-6, random_state=0)

    # Loops are compiled or loaded before the clock starts.
    make().partial_fit(rows[:4096]).refit()
    orders: Figures = {}
    for order in ("shuffled", "sorted"):
        given = rows if order == "shuffled" else rows[np.argsort(rows[:, 0])]
        seconds, one = time_call(lambda given=given: make().partial_fit(given))
        left = float(one.reconstruction_error(apart).mean())
        orders[order] = [
            line
            | {
                "times_as_fast": seconds / line["seconds"],
                "not_shared": line["seconds"] - seconds / line["shards"],
                "left": line["left"] / left,
            }
            for line in (learn_shards(make, given, apart, k) for k in shards)
        ]
    return {"rows": n, "orders": orders}


def describe(figures: Figures) -> str:
    """Return a line for each order and number of shards."""
    rows = [
        [
            f"{order}, {line['shards']} shards",
            f"{line['times_as_fast']:.2f}",
            f"{line['not_shared']:.2f} s",
            f"{line['moved_bytes'] / MEBIBYTE:.1f} MiB",
            f"{line['left']:.2f}",
        ]
        for order, lines in figures["orders"].items()
        for line in lines
    ]
    return make_table([f"{figures['rows']:,} rows", "times as fast", "not shared", "moved", "left"], rows)


if __name__ == "__main__":
    run(measure, describe)
