"""Claim: memory does not grow with the stream.

Ten million rows of 32 features go through one model with a budget of 256 atoms. They are made block by block, so that
nothing else in the process holds rows. After every tenth of the stream the script prints the resident set of the
process and the speed; the last line tells how much the resident set grew from the first of these marks to the last.

Run::

    python benchmarks/memory_is_flat.py
    python benchmarks/memory_is_flat.py --tiny

The exit code is 0 if memory stayed flat and 1 if it grew.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import MEBIBYTE, resident_bytes, state_bytes, surroundings, write_figures

from streamkpca import StreamingKernelPCA

CHUNK = 10_000
N_MARKS = 10
# The rows of the benchmark take 256 bytes each, so keeping even one number of each row would exceed this by far.
# The slack is what the allocator may hold back; it matters only in short runs.
BYTES_A_ROW, SLACK = 1.0, 8 * MEBIBYTE
MOST_ABOVE, MOST_OF_SENSOR = 64 * MEBIBYTE, MEBIBYTE


class DriftingSheet:
    """A curved two-dimensional sheet in many dimensions, with noise, that bends slowly as rows arrive.

    Parameters
    ----------
    n_features : int
        Width d of the rows.
    n_rows : int
        Length of the stream, over which the bends turn by half a circle.
    seed : int
    """

    def __init__(self, n_features: int, n_rows: int, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)
        self._directions = self._generator.normal(scale=1.5, size=(2, n_features))
        self._phases = self._generator.uniform(0.0, 2.0 * np.pi, n_features)
        self._turns = self._generator.uniform(-np.pi, np.pi, n_features) / n_rows
        self._position = 0

    def draw(self, count: int) -> npt.NDArray[np.float64]:
        """Make the next rows, shape (count, d): x = sin(u D + phase(t)) + noise, with u uniform on a square."""
        rows = self._generator.uniform(-1.0, 1.0, (count, 2)) @ self._directions
        rows += self._phases + np.arange(self._position, self._position + count)[:, None] * self._turns
        np.sin(rows, out=rows)
        rows += self._generator.normal(scale=0.05, size=rows.shape)
        self._position += count
        return rows


def measure(n_rows: int, n_features: int, max_atoms: int) -> list[dict[str, float]]:
    """Stream the rows and print a line at each mark; return the lines as numbers."""
    sheet = DriftingSheet(n_features, n_rows)
    model = StreamingKernelPCA(max_atoms=max_atoms)
    marks = []
    print(f"{'rows':>12} {'resident MiB':>13} {'rows/s':>9} {'atoms':>6} {'unexplained':>12}", flush=True)
    done = 0
    for mark in range(1, N_MARKS + 1):
        started_at, seconds, resident = done, 0.0, 0
        while done < mark * n_rows // N_MARKS:
            rows = sheet.draw(min(CHUNK, mark * n_rows // N_MARKS - done))
            start = time.perf_counter()
            model.partial_fit(rows)
            seconds += time.perf_counter() - start
            done += len(rows)
            resident = max(resident, resident_bytes())
        line = {
            "rows": done,
            "resident_bytes": resident,
            "rows_per_second": (done - started_at) / seconds,
            "atoms": model.n_atoms_,
            "unexplained_energy_ratio": model.unexplained_energy_ratio_,
        }
        marks.append(line)
        print(
            f"{done:>12,} {resident / MEBIBYTE:>13.1f} {line['rows_per_second']:>9,.0f} {model.n_atoms_:>6} "
            f"{model.unexplained_energy_ratio_:>12.4f}",
            flush=True,
        )
    return marks


def measure_sensor() -> int:
    """Learn and answer as a sensor would, 32 atoms of 8 features in blocks of 32; return the bytes of the model."""
    sheet = DriftingSheet(8, 100_000)
    model = StreamingKernelPCA(max_atoms=32, block_size=32)
    for _ in range(100):
        model.partial_fit(sheet.draw(1000)).score_samples(sheet.draw(1))
    return state_bytes(model.state_)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Show that memory does not grow with the stream.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="length of the stream (default 10,000,000)")
    parser.add_argument("--features", type=int, default=32, help="width of the rows (default 32)")
    parser.add_argument("--atoms", type=int, default=256, help="budget of atoms (default 256)")
    parser.add_argument("--tiny", action="store_true", help="20,000 rows and 32 atoms, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    n_rows, max_atoms = (20_000, 32) if arguments.tiny else (arguments.rows, arguments.atoms)
    if n_rows < N_MARKS:
        parser.error(f"--rows expected at least {N_MARKS} but got {n_rows}; a mark needs a row")

    where = surroundings()
    before = resident_bytes()
    print(f"{n_rows:,} rows of {arguments.features} features, budget {max_atoms} atoms")
    print("resident MiB: the highest since the line before; rows/s: partial_fit alone, without making the rows")
    marks = measure(n_rows, arguments.features, max_atoms)

    above = max(mark["resident_bytes"] for mark in marks) - before
    print(f"above the imports: {above / MEBIBYTE:.1f} MiB (at most {MOST_ABOVE / MEBIBYTE:.0f} at 256 atoms x 32)")
    sensor = measure_sensor()
    print(f"a sensor's model (32 atoms x 8, blocks of 32) holds {sensor / MEBIBYTE:.2f} MiB (at most 1)")
    first, last = marks[0], marks[-1]
    growth, rows = last["resident_bytes"] - first["resident_bytes"], last["rows"] - first["rows"]
    flat = growth <= BYTES_A_ROW * rows + SLACK and sensor <= MOST_OF_SENSOR
    print(
        f"{'FLAT' if flat else 'GROWS'}: {growth / MEBIBYTE:+.1f} MiB ({growth / first['resident_bytes']:+.1%}) from "
        f"{first['rows']:,} to {last['rows']:,} rows, {growth / rows:+.3f} bytes a row; "
        f"the rows themselves take {8 * arguments.features}"
    )
    figures = {
        "features": arguments.features,
        "max_atoms": max_atoms,
        "growth_bytes": growth,
        "above_imports_bytes": above,
        "sensor_bytes": sensor,
        "flat": flat,
        "marks": marks,
    }
    write_figures(arguments.json, where, figures)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
