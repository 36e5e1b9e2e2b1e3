"""Claim: checking rows and tracking the offset of each costs less than reading them.

One file of every format holds the same rows of 32 numbers with all their digits. The command's `open_table` reads it in
chunks of 4,096 rows: finite float64, C-contiguous, bad rows reported by line and column, with the offset at which
reading can resume. Peers do less: they return the numbers unchecked as one float64 array a chunk, also on one thread.

* **CSV**: the streaming reader of pyarrow, which also does our parsing; `pandas.read_csv` with `chunksize`; the
  standard library's `csv`.
* **JSON lines**: the standard library's `json` line by line, and `pandas.read_json` with `chunksize`.
* **Parquet**, **Arrow stream**: pyarrow's own batches, with their columns joined into one array.
* **npy**: copies from the mapped file, which need no parsing and no check: the lower bound.

Columns: rows a second, and the peer's time divided by ours (above 1 if we are faster). The readers take turns; medians
count. A star marks a peer that reads other numbers than were written, because it rounds their last digits.

Run::

    python benchmarks/checked_tables_cost_little.py --folder .
    python benchmarks/checked_tables_cost_little.py --tiny

The exit code is 0 if pyarrow takes at least half of our time in all formats and 1 if not; a tiny run, too short to
tell, always gives 0.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from common import Array, Sheet, surroundings, write_figures
from ingest_runs_near_gemm import seconds

from streamkpca.cli.tables import open_table

N_FEATURES, CHUNK = 32, 4096
LEAST_RATIO = 0.5
Reader = Callable[[Path], Iterator[Array]]


def ours(path: Path) -> Iterator[Array]:
    """Read chunks as the command does."""
    return (batch.numbers for batch in open_table(str(path)).batches(CHUNK))


def side_by_side(batches: Iterator) -> Iterator[Array]:
    """Convert each batch of Arrow to an array."""
    for batch in batches:
        yield np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns])


def csv_by_pyarrow(path: Path) -> Iterator[Array]:
    """Stream batches of CSV."""
    from pyarrow import csv as reader

    return side_by_side(reader.open_csv(path, read_options=reader.ReadOptions(use_threads=False)))


def csv_by_pandas(path: Path) -> Iterator[Array]:
    """Read chunks of CSV."""
    import pandas as pd

    return (frame.to_numpy() for frame in pd.read_csv(path, chunksize=CHUNK))


def csv_by_python(path: Path) -> Iterator[Array]:
    """Read CSV line by line."""
    with path.open(newline="") as file:
        lines = csv.reader(file)
        next(lines)
        yield from chunked([float(cell) for cell in line] for line in lines)


def json_by_python(path: Path) -> Iterator[Array]:
    """Read JSON line by line."""
    with path.open() as file:
        yield from chunked(list(json.loads(line).values()) for line in file)


def json_by_pandas(path: Path) -> Iterator[Array]:
    """Read chunks of JSON lines."""
    import pandas as pd

    return (frame.to_numpy() for frame in pd.read_json(path, lines=True, chunksize=CHUNK))


def parquet_by_pyarrow(path: Path) -> Iterator[Array]:
    """Read batches of Parquet."""
    from pyarrow import parquet

    return side_by_side(parquet.ParquetFile(path).iter_batches(CHUNK, use_threads=False))


def arrow_by_pyarrow(path: Path) -> Iterator[Array]:
    """Read batches of an Arrow stream."""
    from pyarrow import ipc

    with path.open("rb") as file:
        yield from side_by_side(iter(ipc.open_stream(file)))


def npy_by_numpy(path: Path) -> Iterator[Array]:
    """Copy parts of a mapped file."""
    rows = np.load(path, mmap_mode="r")
    return (np.array(rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK))


def chunked(rows: Iterator[list[float]]) -> Iterator[Array]:
    """Collect single rows into arrays of a chunk."""
    held = []
    for row in rows:
        held.append(row)
        if len(held) == CHUNK:
            yield np.array(held)
            held = []
    if held:
        yield np.array(held)


PEERS: dict[str, dict[str, Reader]] = {
    "CSV": {"pyarrow": csv_by_pyarrow, "pandas": csv_by_pandas, "csv": csv_by_python},
    "JSON lines": {"json": json_by_python, "pandas": json_by_pandas},
    "Parquet": {"pyarrow": parquet_by_pyarrow},
    "Arrow stream": {"pyarrow": arrow_by_pyarrow},
    "npy": {"numpy": npy_by_numpy},
}


def write_files(folder: Path, rows: Array) -> dict[str, Path]:
    """Write the same rows in every format."""
    import pyarrow as pa
    from pyarrow import ipc, parquet

    names = [f"c{j}" for j in range(rows.shape[1])]
    paths = {name: folder / name.replace(" ", "_") for name in PEERS}
    with paths["CSV"].open("w") as file:
        file.write(",".join(names) + "\n")
        file.writelines(",".join(map(repr, row)) + "\n" for row in rows.tolist())
    with paths["JSON lines"].open("w") as file:
        file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows.tolist())
    table = pa.table(dict(zip(names, rows.T, strict=True)))
    parquet.write_table(table, paths["Parquet"])
    with ipc.new_stream(paths["Arrow stream"], table.schema) as writer:
        writer.write_table(table, max_chunksize=CHUNK)
    with paths["npy"].open("wb") as file:
        np.save(file, rows)
    return paths


def is_exact(reader: Reader, path: Path, rows: Array) -> bool:
    """Tell whether a reader returns the numbers that were written; refuse numbers that are not even close."""
    found = np.concatenate(list(reader(path)))
    np.testing.assert_allclose(found, rows, rtol=1e-9, atol=1e-12)
    return np.array_equal(found, rows)


def measure(path: Path, readers: dict[str, Reader], repeats: int) -> dict[str, float]:
    """Let readers take turns; return the seconds of each."""
    taken: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(repeats):
        for name, reader in readers.items():
            taken[name].append(seconds(lambda reader=reader: sum(len(rows) for rows in reader(path))))
    return {name: float(np.median(values)) for name, values in taken.items()}


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Measure how fast tables are read, beside others.")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write the files (default: here)")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of each file (default 200,000)")
    parser.add_argument("--repeats", type=int, default=5, help="turns; figures are medians (default 5)")
    parser.add_argument("--tiny", action="store_true", help="5,000 rows, one turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    n_rows, repeats = (5000, 1) if arguments.tiny else (arguments.rows, arguments.repeats)
    import pyarrow as pa

    pa.set_cpu_count(1)
    where, rows = surroundings(), Sheet(N_FEATURES).draw(n_rows)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    slow = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name, path in write_files(Path(folder), rows).items():
            readers = {"ours": ours} | PEERS[name]
            # A first read of each, which does not count: it imports the libraries and brings the file into the cache.
            exact = {reader: is_exact(read, path, rows) for reader, read in readers.items()}
            taken = measure(path, readers, repeats)
            ratios = {peer: taken[peer] / taken["ours"] for peer in PEERS[name]}
            figures[name] = {"seconds": taken, "exact": exact, "ratios": ratios}
            beside = ", ".join(f"{peer}{'' if exact[peer] else '*'} {ratio:.2f}" for peer, ratio in ratios.items())
            print(f"{name:>12} {n_rows / taken['ours']:12,.0f} rows/s   peers' time by ours: {beside}")
            if ratios.get("pyarrow", 1.0) < LEAST_RATIO:
                slow.append(name)
    verdict = "TINY" if arguments.tiny else "FAILS" if slow else "HOLDS"
    print(f"{verdict}: slow are {', '.join(slow) or 'none'}; pyarrow is to take at least half of the time")
    write_figures(arguments.json, where, {"rows": n_rows, "formats": figures})
    return 0 if arguments.tiny or not slow else 1


if __name__ == "__main__":
    sys.exit(main())
