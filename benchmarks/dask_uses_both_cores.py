"""Claim: a fit over a dask Array on two processes takes at most .6 of the time of one stream in memory.

Rows lie on a curved sheet; the workers make and keep them before the clock starts. The same fit, and the same
answers by blocks, run in turns on a cluster of one process and on one of two, and the same rows go
through `partial_fit` in this process. Each worker has one thread, and BLAS has one everywhere. The fit must give the
same bytes on both clusters, and on dask's schedulers of threads and of one thread.

* **seconds**: wall clock, the shortest of the rounds: other work on the machine only adds to it.
* **busiest**: processor time of the worker that took most, in that round. It does not count waiting, for the other
  worker or for a core that others use.
* **in memory**: the same rows through `partial_fit` in this process: one stream, no merges. Its **busiest** is the
  processor time of this process.
* **bytes**: the size of what a worker sends, one state a partition.

All partitions begin with the atoms of the first rows, which are learned alone, in this process. The workers keep freed
memory, as the manual advises.

Run, on two cores or more (needs the extra ``dask``)::

    python benchmarks/dask_uses_both_cores.py
    python benchmarks/dask_uses_both_cores.py --tiny

The exit code is 0 if the fit on two processes takes at most .6 of the time in memory, with the same bytes on every
scheduler, and 1 otherwise.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

# Before anything imports numpy; the workers inherit it.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import dask
import dask.array as da
import numpy as np
from common import Sheet, surroundings, write_figures
from dask.distributed import Client, LocalCluster, wait

from streamkpca import StreamingKernelPCA
from streamkpca.adapters import for_dask
from streamkpca.aggregate import Aggregate
from streamkpca.kernels import RBF

MOST_OF_ONE_STREAM = 0.6


def sheet_rows(n_rows: int, n_features: int, part: int) -> np.ndarray:
    """Make the rows of one partition."""
    sheet = Sheet(n_features)
    sheet._generator = np.random.default_rng([1, part])
    return sheet.draw(n_rows)


def timed(client: Client, call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Call a function; return the seconds, the processor seconds of the busiest worker, and the result."""
    before = client.run(time.process_time)
    start = time.perf_counter()
    result = call()
    taken = time.perf_counter() - start
    after = client.run(time.process_time)
    return taken, max(after[worker] - before[worker] for worker in after), result


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Fit over a dask Array on one process and on two.")
    parser.add_argument("--parts", type=int, default=32, help="partitions (default 32)")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a partition (default 100,000)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each cluster (default 3)")
    parser.add_argument(
        "--tiny", action="store_true", help="4 partitions of 2,000 rows, 16 atoms of 4 features, one round"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    if min(arguments.parts, arguments.rows, arguments.rounds) < 1:
        parser.error("--parts, --rows and --rounds expected at least 1")
    m, d, n_parts, n_rows, n_rounds = 128, 32, arguments.parts, arguments.rows, arguments.rounds
    if arguments.tiny:
        m, d, n_parts, n_rows, n_rounds = 16, 4, 4, 2000, 1
    where = surroundings()
    kernel = RBF("median").settled(sheet_rows(2000, d, n_parts))
    model = StreamingKernelPCA(kernel=kernel, max_atoms=m, tolerance=1e-6)
    found: dict[str, dict[str, list[float]]] = {}
    same_bytes: set[bytes] = set()
    batches = [sheet_rows(n_rows, d, part) for part in range(n_parts)]
    in_memory: list[tuple[float, float]] = []

    # By default dask makes workers return freed memory at once.
    kept = {"MALLOC_TRIM_THRESHOLD_": 2**27, "MALLOC_MMAP_THRESHOLD_": 2**25}
    with (
        ExitStack() as stack,
        dask.config.set({f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in kept.items()}),
    ):
        clients: dict[str, tuple[Client, Any]] = {}
        for number, name in ((1, "one process"), (2, "two processes")):
            cluster = stack.enter_context(
                LocalCluster(n_workers=number, threads_per_worker=1, processes=True, dashboard_address=":0")
            )
            client = stack.enter_context(Client(cluster, set_as_default=False))
            with client.as_current():
                blocks = [client.submit(sheet_rows, n_rows, d, part) for part in range(n_parts)]
                wait(blocks)
                rows = da.concatenate([da.from_delayed(block, (n_rows, d), dtype=np.float64) for block in blocks])
                # Every worker compiles or loads its loops before the clock starts.
                for_dask.transform(for_dask.fit(model, rows.rechunk((2000, d))[: 2000 * 8]), rows[:2000]).compute()
            clients[name] = client, rows
        for _ in range(n_rounds):
            alone = StreamingKernelPCA(kernel=kernel, max_atoms=m, tolerance=1e-6)
            start, processor_start = time.perf_counter(), time.process_time()
            for batch in batches:
                alone.partial_fit(batch)
            in_memory.append((time.perf_counter() - start, time.process_time() - processor_start))
            for name, (client, rows) in clients.items():
                with client.as_current():
                    seconds, busiest, fitted = timed(client, lambda rows=rows: for_dask.fit(model, rows))
                    same_bytes.add(fitted.to_bytes())
                    asked, _, _ = timed(
                        client,
                        lambda rows=rows, one=fitted: for_dask.transform(one, rows).sum().compute(),
                    )
                line = found.setdefault(name, {"seconds": [], "busiest": [], "asking": []})
                for column, value in (("seconds", seconds), ("busiest", busiest), ("asking", asked)):
                    line[column].append(value)

    for scheduler in ("threads", "sync"):
        with dask.config.set(scheduler=scheduler):
            local = da.concatenate([da.from_array(batch, chunks=(n_rows, d)) for batch in batches])
            same_bytes.add(for_dask.fit(model, local).to_bytes())
    state_bytes = len(Aggregate(model).add(batches[0]).to_bytes())

    table = {name: {column: min(values) for column, values in line.items()} for name, line in found.items()}
    one, two = table["one process"], table["two processes"]
    speedup = {column: one[column] / two[column] for column in one}
    print(f"{n_parts} partitions of {n_rows:,} rows, {d} features, {m} atoms, {n_rounds} rounds")
    print(f"{'':>14} {'seconds':>9} {'rows/s':>10} {'busiest':>9} {'asking':>9}")
    for name, line in table.items():
        rate = n_parts * n_rows / line["seconds"]
        print(f"{name:>14} {line['seconds']:9.2f} {rate:10,.0f} {line['busiest']:9.2f} {line['asking']:9.2f}")
    print(
        f"{'times as fast':>14} {speedup['seconds']:9.2f} {'':>10} {speedup['busiest']:9.2f} {speedup['asking']:9.2f}"
    )
    one_stream, processor = map(min, zip(*in_memory, strict=True))
    print(f"{'in memory':>14} {one_stream:9.2f} {n_parts * n_rows / one_stream:10,.0f} {processor:9.2f}")
    print(f"a state has {state_bytes:,} bytes; a partition {8 * n_rows * d:,}")
    print("all fits gave the same bytes" if len(same_bytes) == 1 else f"fits gave {len(same_bytes)} different results")
    share = two["seconds"] / one_stream
    holds = share <= MOST_OF_ONE_STREAM and len(same_bytes) == 1
    verdict = "TINY" if arguments.tiny else "HOLDS" if holds else "FAILS"
    print(
        f"{verdict}: two processes took {share:.2f} of the time of one stream (at most {MOST_OF_ONE_STREAM:g}), and "
        f"the busier one {two['busiest'] / processor:.2f} of its processor time"
    )
    record = {
        **table,
        "times_as_fast": speedup,
        "in_memory": one_stream,
        "in_memory_processor": processor,
        "share_of_one_stream": share,
        "state_bytes": state_bytes,
    }
    write_figures(arguments.json, where, {**record, "same_bytes": len(same_bytes) == 1})
    return 0 if arguments.tiny or holds else 1


if __name__ == "__main__":
    sys.exit(main())
