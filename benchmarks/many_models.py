"""Claim: a bank holds a hundred thousand models in the memory of a thousand, and its cost is that of misses.

Each of 1,000, 10,000 and 100,000 keys gets a model of 32 atoms of 8 features, all from one template, and at most 1,000
are in memory. Every key learns its first rows; then come visits, a few rows of one key each, a thousand to a call. The
keys of visits follow Zipf's law, as those of customers do, or come in turns, as those of sensors do: then every visit
is a miss as soon as there are more keys than models in memory. Rows are scored before they are learned.

* **misses**: visits whose model had to be read from the disk, as a share.
* **rows/s**: rows scored and learned, by processor time, and **by the clock**, which includes waiting for the disk:
  each model that is displaced is written, synced, and read again before it replaces its old file.
* **grown MiB**: the resident set beyond that of the process before the first bank was opened.
* **a model**: bytes of its arrays in memory, without those that a score prepares, and of its file.
* **peers**: plain dictionaries of models that stay in memory, of ours and of River's half-space trees (25 trees, as
  River has by default), with 1,000 keys and the same visits; River gets one row at a time, which is its only way, and a
  tenth of the visits. Their bytes are what the resident set grew by for each key.

At the end, a table projects a million keys, each visited once an hour, and no visit finds its model in memory.

Run::

    OPENBLAS_NUM_THREADS=1 python benchmarks/many_models.py
    OPENBLAS_NUM_THREADS=1 python benchmarks/many_models.py --keys 1000 10000
    python benchmarks/many_models.py --tiny

A hundred thousand keys take 3 GB of disk and half an hour. The exit code is 0 if the largest bank grew the process by
at most 32 MiB and 500 bytes a key more than the smallest, and a model takes at most a fifth of the memory of River's;
else 1. A tiny run always gives 0.
"""

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import MEBIBYTE, Sheet, resident_bytes, state_bytes, surroundings, threads, write_figures

from streamkpca import ModelBank, StreamingKernelPCA

Array = npt.NDArray[np.float64]
Keys = npt.NDArray[np.int64]

FEATURES, ATOMS = 8, 32
VISIT_ROWS, CALL_VISITS = 8, 1000
# Exponent of Zipf's law, and bounds.
ZIPF = 1.1
MOST_GROWN, MOST_BYTES_A_KEY = 32 * MEBIBYTE, 500
MOST_OF_RIVERS = 0.2
PROJECTED_KEYS = 1_000_000


def template() -> StreamingKernelPCA:
    """Learn the first rows; without sparse weights, which take most of the time of a small model's first score."""
    model = StreamingKernelPCA(
        2, max_atoms=ATOMS, block_size=32, reservoir_size=0, noise_variance=None, axes="ritz", random_state=0
    )
    return model.partial_fit(Sheet(FEATURES).draw(4096))


def visits(n_keys: int, count: int, order: str, generator: np.random.Generator) -> list[Keys]:
    """Draw the keys of visits, a call at a time; popular keys are scattered among all."""
    if order == "in turns":
        keys = np.arange(count) % n_keys
    else:
        shares = np.arange(1, n_keys + 1) ** -ZIPF
        keys = generator.permutation(n_keys)[generator.choice(n_keys, count, p=shares / shares.sum())]
    return [keys[start : start + CALL_VISITS] for start in range(0, count, CALL_VISITS)]


def visited(bank: ModelBank, calls: list[Keys], sheet: Sheet) -> dict[str, float]:
    """Score and learn the rows of visits."""
    n_visits = sum(map(len, calls))
    read, written = bank.n_read_, bank.n_written_
    processor = clock = 0.0
    for keys in calls:
        of_rows, rows = keys.repeat(VISIT_ROWS), sheet.draw(len(keys) * VISIT_ROWS)
        processor_start, start = time.process_time(), time.perf_counter()
        bank.update(of_rows, rows)
        processor += time.process_time() - processor_start
        clock += time.perf_counter() - start
    n_read, n_written = bank.n_read_ - read, bank.n_written_ - written
    return {
        "visits": n_visits,
        "misses": n_read / n_visits,
        "written": n_written / n_visits,
        "rows_per_second": n_visits * VISIT_ROWS / processor,
        "rows_per_clock_second": n_visits * VISIT_ROWS / clock,
        "seconds_a_visit": processor / n_visits,
        "clock_seconds_a_visit": clock / n_visits,
    }


def measure(n_keys: int, n_visits: int, max_models: int, folder: Path, before: int) -> dict[str, Any]:
    """Fill a bank, and visit its keys in both orders."""
    sheet, generator = Sheet(FEATURES, seed=1), np.random.default_rng(n_keys)
    with ModelBank(template(), max_models=max_models, folder=folder / f"bank-{n_keys}") as bank:
        start = time.perf_counter()
        for keys in np.array_split(np.arange(n_keys), math.ceil(n_keys / CALL_VISITS)):
            bank.learn(keys.repeat(VISIT_ROWS), sheet.draw(len(keys) * VISIT_ROWS))
        begun = time.perf_counter() - start
        lines = {order: visited(bank, visits(n_keys, n_visits, order, generator), sheet) for order in ORDERS}
        grown = resident_bytes() - before
        last = bank.model(int(n_keys - 1))
        return {
            "keys": n_keys,
            "begun_seconds": begun,
            "orders": lines,
            "grown_bytes": grown,
            "state_bytes": state_bytes(last.state_),
            "file_bytes": len(last.to_bytes()),
        }


ORDERS = ("Zipf", "in turns")


def dictionary(n_keys: int, n_visits: int) -> dict[str, float]:
    """Do the same with a dictionary of our models, all in memory."""
    sheet, generator, begun = Sheet(FEATURES, seed=1), np.random.default_rng(n_keys), template().without_rows()
    before = resident_bytes()
    models = {key: StreamingKernelPCA.from_bytes(begun.to_bytes()) for key in range(n_keys)}
    for model in models.values():
        model.partial_fit(sheet.draw(VISIT_ROWS))
    keys = np.concatenate(visits(n_keys, n_visits, "in turns", generator))
    rows = [sheet.draw(VISIT_ROWS) for _ in keys]
    start = time.process_time()
    for key, part in zip(keys.tolist(), rows, strict=True):
        models[key].novelty(part)
        models[key].partial_fit(part)
    taken = time.process_time() - start
    return {"rows_per_second": len(keys) * VISIT_ROWS / taken, "bytes_a_key": (resident_bytes() - before) / n_keys}


def trees(n_keys: int, n_visits: int) -> dict[str, float] | None:
    """Do the same with River's half-space trees, one row at a time; None if River is not installed."""
    try:
        from river.anomaly import HalfSpaceTrees
    except ImportError:
        return None
    sheet, generator = Sheet(FEATURES, seed=1), np.random.default_rng(n_keys)
    names = [f"x{i}" for i in range(FEATURES)]
    limits = dict.fromkeys(names, (-1.5, 1.5))
    before = resident_bytes()
    models = {key: HalfSpaceTrees(limits=limits, window_size=32, seed=0) for key in range(n_keys)}
    for model in models.values():
        for row in sheet.draw(VISIT_ROWS).tolist():
            model.learn_one(dict(zip(names, row, strict=True)))
    grown = resident_bytes() - before
    keys = np.concatenate(visits(n_keys, n_visits, "in turns", generator))
    records = [[dict(zip(names, row, strict=True)) for row in sheet.draw(VISIT_ROWS).tolist()] for _ in keys]
    start = time.process_time()
    for key, part in zip(keys.tolist(), records, strict=True):
        for record in part:
            models[key].score_one(record)
            models[key].learn_one(record)
    taken = time.process_time() - start
    return {"rows_per_second": len(keys) * VISIT_ROWS / taken, "bytes_a_key": grown / n_keys}


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Keep one model for each of many keys.")
    parser.add_argument("--keys", type=int, nargs="+", default=[1000, 10_000, 100_000], help="numbers of keys")
    parser.add_argument("--visits", type=int, default=20_000, help="visits in each order (default 20,000)")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure (default: for temporary files)")
    parser.add_argument("--tiny", action="store_true", help="10 and 30 keys, 20 models in memory, 40 visits")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    sizes, n_visits, max_models = arguments.keys, arguments.visits, 1000
    if min(*sizes, n_visits) < 1:
        parser.error("--keys and --visits expected at least 1")
    if arguments.tiny:
        sizes, n_visits, max_models = [10, 30], 40, 20
    with threads(1):
        where = surroundings()
        # Loops are compiled or loaded before anything is measured.
        template().without_rows().partial_fit(Sheet(FEATURES).draw(100)).novelty(Sheet(FEATURES).draw(3))
        print(f"{ATOMS} atoms, {FEATURES} features, {max_models:,} models in memory, visits of {VISIT_ROWS} rows")
        print(f"{'keys':>8} {'visits':>9} {'misses':>7} {'rows/s':>9} {'by the clock':>13} {'grown MiB':>10}")
        found, before = [], resident_bytes()
        for n_keys in sizes:
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                found.append(line := measure(n_keys, n_visits, max_models, Path(folder), before))
            for order, figures in line["orders"].items():
                print(
                    f"{n_keys:8,} {order:>9} {figures['misses']:7.3f} {figures['rows_per_second']:9,.0f} "
                    f"{figures['rows_per_clock_second']:13,.0f} {line['grown_bytes'] / MEBIBYTE:10.1f}",
                    flush=True,
                )
        last = found[-1]
        print(f"a model has {last['state_bytes']:,} bytes in memory, and {last['file_bytes']:,} in its file")
        n_peers = min(1000, sizes[0])
        peers = {"a dictionary of models": dictionary(n_peers, n_visits)}
        if (rivers := trees(n_peers, max(n_visits // 10, 1))) is not None:
            peers["River's half-space trees"] = rivers
        for name, peer in peers.items():
            print(f"{name}: {peer['rows_per_second']:,.0f} rows/s, {peer['bytes_a_key']:,.0f} bytes a key")
    projected = project(last)
    print(f"\n{PROJECTED_KEYS:,} keys, each visited once an hour, every visit a miss:")
    for name, value in projected.items():
        print(f"  {name}: {value:,.1f}")

    fits = last["grown_bytes"] - found[0]["grown_bytes"] <= MOST_GROWN + MOST_BYTES_A_KEY * last["keys"]
    share = found[0]["grown_bytes"] / min(sizes[0], max_models) / rivers["bytes_a_key"] if rivers else 0.0
    is_small = share <= MOST_OF_RIVERS
    verdict = "TINY" if arguments.tiny else "HOLDS" if fits and is_small else "FAILS"
    most = max(line["grown_bytes"] for line in found) / MEBIBYTE
    line_end = "River is not installed"
    if rivers is not None:
        rate = found[0]["orders"]["in turns"]["rows_per_second"] / rivers["rows_per_second"]
        line_end = f"a model takes {share:.2f} of the memory of River's, at {rate:.2f} times its rate"
    print(f"{verdict}: the process grew by at most {most:.0f} MiB; {line_end}")
    write_figures(arguments.json, where, {"banks": found, "peers": peers, "projected": projected})
    return 0 if arguments.tiny or (fits and is_small) else 1


def project(line: dict[str, Any]) -> dict[str, float]:
    """Project a million keys from the visits in turns of the largest bank."""
    visit = line["orders"]["in turns"]
    return {
        "GB on the disk": PROJECTED_KEYS * line["file_bytes"] / 1e9,
        "cores": PROJECTED_KEYS * visit["seconds_a_visit"] / 3600,
        "processes that wait for the disk": PROJECTED_KEYS * visit["clock_seconds_a_visit"] / 3600,
        "MB/s written": PROJECTED_KEYS * line["file_bytes"] / 3600 / 1e6,
    }


if __name__ == "__main__":
    sys.exit(main())
