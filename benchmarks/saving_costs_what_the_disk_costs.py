"""Claim: a checkpoint is written at the disk's speed and then checked as a reader would, in a tenth of a second.

A model of 512 atoms and 64 features is saved in turns with a plain file of the same bytes, written at once and synced
to the disk. Then it is loaded in turns with reading the plain file.

* **save** gathers the state, computes checksums, writes, reads and checks what was written as a load does, and syncs
  file and folder to the disk before the file replaces the old one; **write** is the plain file: open, write, flush,
  fsync, close.
* **load** reads and checks everything: factors against kernel matrices, moments, samples, axes.
* Medians of the turns count; `--folder` decides which disk is measured.

Run::

    python benchmarks/saving_costs_what_the_disk_costs.py --folder .
    python benchmarks/saving_costs_what_the_disk_costs.py --tiny

The exit code is 0 if saving takes at most 3 times as long as writing besides the load that it makes, and loading at
most 100 ms, and 1 otherwise.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import Sheet, surroundings, write_figures
from ingest_runs_near_gemm import BLOCK, seconds

from streamkpca import StreamingKernelPCA, load
from streamkpca.kernels import RBF

MOST_RATIO, MOST_SECONDS = 3.0, 0.100


def write(path: Path, data: bytes) -> None:
    """Write a plain file and sync it to the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def measure(model: StreamingKernelPCA, folder: Path, repeats: int) -> dict[str, float]:
    """Save, write, load and read in turns."""
    data = model.to_bytes()
    plain, checkpoint = folder / "plain", folder / "checkpoint"
    write(plain, data)
    model.save(checkpoint)
    # The first load compiles the loops of the checks.
    load(checkpoint)
    turns = {
        "write": lambda: write(plain, data),
        "save": lambda: model.save(checkpoint),
        "read": lambda: plain.read_bytes(),
        "load": lambda: load(checkpoint),
    }
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(repeats):
        for name, turn in turns.items():
            taken[name].append(seconds(turn))
    return {"bytes": len(data), **{name: float(np.median(values)) for name, values in taken.items()}}


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Measure checkpoints against plain files of the same bytes.")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write (default: here)")
    parser.add_argument("--repeats", type=int, default=25, help="turns; figures are medians (default 25)")
    parser.add_argument("--tiny", action="store_true", help="16 atoms of 4 features, three turns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    (m, d), repeats = ((16, 4), 3) if arguments.tiny else ((512, 64), arguments.repeats)
    where, sheet = surroundings(), Sheet(d)
    model = StreamingKernelPCA(kernel=RBF("median").settled(sheet.draw(2000)), max_atoms=m, tolerance=1e-6)
    # Long enough to fill the selection sample, with rows left in the buffer.
    model.partial_fit(sheet.draw((4 if arguments.tiny else 48) * BLOCK + BLOCK // 2))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        figures = measure(model, Path(folder), repeats)
    ratio = (figures["save"] - figures["load"]) / figures["write"]
    print(f"{model.n_atoms_} atoms, {d} features, {figures['bytes'] / 2**20:.1f} MiB")
    for name in ("write", "save", "read", "load"):
        print(f"{name:>6} {1e3 * figures[name]:8.1f} ms")
    holds = ratio <= MOST_RATIO and figures["load"] <= MOST_SECONDS
    print(
        f"{'HOLDS' if holds else 'FAILS'}: saving without its check takes {ratio:.2f} times as long as writing "
        f"(at most {MOST_RATIO:g}), "
        f"loading {1e3 * figures['load']:.0f} ms (at most {1e3 * MOST_SECONDS:.0f})"
    )
    write_figures(arguments.json, where, {**figures, "ratio": ratio, "atoms": model.n_atoms_})
    return 0 if holds or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
