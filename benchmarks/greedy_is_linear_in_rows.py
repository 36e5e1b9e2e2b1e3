"""Claim: greedy choice of atoms from all rows takes time linear in the rows and at most quadratic in the atoms.

`ApproximateKernelPCA` chooses 25 to 200 atoms among 7,500 to 60,000 rows of 32 features. Each fit runs in a process of
its own, so that its peak memory can be measured alone. The kernel matrix of all rows would take 27 GiB at 60,000 rows;
the fit must stay below 2 GiB.

Run::

    python benchmarks/greedy_is_linear_in_rows.py
    python benchmarks/greedy_is_linear_in_rows.py --tiny

The exit code is 0 if the claim holds and 1 if not; a tiny run, too short to tell, always gives 0.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import surroundings, write_figures

from streamkpca import ApproximateKernelPCA
from streamkpca.kernels import RBF

Array = npt.NDArray[np.float64]

GIBIBYTE = 2**30
N_FEATURES = 32
MOST_BYTES = 2 * GIBIBYTE
# A fit that takes less is repeated, and the shortest time counts.
ENOUGH_SECONDS = 2.0
# Tolerance for the noise of timing, 1.10 and 1.16 on a busy machine; growth like the kernel matrix would show as 2.
MOST_ROW_EXPONENT, MOST_ATOM_EXPONENT = 1.3, 2.1


def draw_rows(n_rows: int, seed: int = 0) -> Array:
    """Make rows on a curved six-dimensional sheet, with noise, shape (n, 32)."""
    random = np.random.default_rng(seed)
    directions, phases = random.normal(size=(6, N_FEATURES)), random.uniform(0.0, 2.0 * np.pi, N_FEATURES)
    rows = np.sin(random.uniform(-1.0, 1.0, (n_rows, 6)) @ directions + phases)
    return rows + random.normal(scale=0.1, size=rows.shape)


def peak_bytes() -> int:
    """Read the highest resident set of this process so far."""
    try:
        # Unlike ru_maxrss this begins at zero with the process, so it leaves out the memory of its parent.
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    except (FileNotFoundError, StopIteration):
        try:
            import resource
        except ModuleNotFoundError:
            raise SystemExit(
                "greedy_is_linear_in_rows: expected /proc/self/status or the resource module but this system has "
                "neither; run it on Linux or macOS"
            ) from None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def fit_once(n_rows: int, n_atoms: int) -> dict[str, Any]:
    """Fit in this process; return time, peak memory and the energy that the atoms leave unexplained."""
    rows = draw_rows(n_rows)
    kernel = RBF(gamma=1.0 / N_FEATURES)
    ApproximateKernelPCA(2, max_atoms=2, kernel=kernel).fit(rows[:50])  # loops compile on first use
    seconds: list[float] = []
    while not seconds or (sum(seconds) < ENOUGH_SECONDS and len(seconds) < 5):
        start = time.perf_counter()
        model = ApproximateKernelPCA(10, max_atoms=n_atoms, kernel=kernel)
        model.fit(rows)
        seconds.append(time.perf_counter() - start)
    return {
        "rows": n_rows,
        "atoms": model.n_atoms_,
        "seconds": min(seconds),
        "peak_bytes": peak_bytes(),
        "unexplained_energy_ratio": model.unexplained_energy_ratio_,
    }


def fit_apart(n_rows: int, n_atoms: int) -> dict[str, Any]:
    """Fit in a process of its own."""
    command = [sys.executable, *sys.orig_argv[1 : sys.orig_argv.index(sys.argv[0])], __file__]
    done = subprocess.run([*command, "--fit", str(n_rows), str(n_atoms)], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def exponents(lines: list[dict[str, Any]]) -> tuple[float, float]:
    """Fit seconds = c rows^a atoms^b by least squares of logarithms and return a and b."""
    rows, atoms, seconds = (np.log([line[name] for line in lines]) for name in ("rows", "atoms", "seconds"))
    solution = np.linalg.lstsq(np.column_stack([rows, atoms, np.ones(len(lines))]), seconds, rcond=None)[0]
    return float(solution[0]), float(solution[1])


def measure(row_counts: list[int], atom_counts: list[int]) -> list[dict[str, Any]]:
    """Fit all pairs, print a line for each, and return the lines."""
    print(f"{'rows':>8} {'atoms':>6} {'seconds':>9} {'peak GiB':>9} {'unexplained':>12}", flush=True)
    lines = []
    for n_rows in row_counts:
        for n_atoms in atom_counts:
            line = fit_apart(n_rows, n_atoms)
            lines.append(line)
            print(
                f"{n_rows:>8,} {line['atoms']:>6} {line['seconds']:>9.2f} {line['peak_bytes'] / GIBIBYTE:>9.2f} "
                f"{line['unexplained_energy_ratio']:>12.4f}",
                flush=True,
            )
    return lines


def print_table(lines: list[dict[str, Any]], row_counts: list[int], atom_counts: list[int]) -> None:
    """Print seconds as a table of rows by atoms."""
    seconds = {(line["rows"], line["atoms"]): line["seconds"] for line in lines}
    print("\nseconds   " + "".join(f"{f'{m} atoms':>11}" for m in atom_counts))
    for n in row_counts:
        print(f"{n:>10,}" + "".join(f"{seconds[n, m]:>11.2f}" for m in atom_counts))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Show how the greedy choice of atoms grows with rows and atoms.")
    parser.add_argument("--tiny", action="store_true", help="at most 4,000 rows and 20 atoms, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--fit", type=int, nargs=2, metavar=("ROWS", "ATOMS"), help="one fit; prints its figures")
    arguments = parser.parse_args()
    if arguments.fit is not None:
        print(json.dumps(fit_once(*arguments.fit)))
        return 0
    row_counts, atom_counts = (
        ([2000, 4000], [10, 20]) if arguments.tiny else ([7500, 15000, 30000, 60000], [25, 50, 100, 200])
    )

    where = surroundings()
    print(f"ApproximateKernelPCA, {N_FEATURES} features, RBF kernel; seconds without compiling")
    lines = measure(row_counts, atom_counts)
    print_table(lines, row_counts, atom_counts)
    in_rows, in_atoms = exponents(lines)
    largest = lines[-1]
    below = largest["peak_bytes"] < MOST_BYTES
    holds = in_rows <= MOST_ROW_EXPONENT and in_atoms <= MOST_ATOM_EXPONENT and below
    print(
        f"\n{'TINY' if arguments.tiny else 'HOLDS' if holds else 'FAILS'}: seconds grow as rows^{in_rows:.2f} and "
        f"atoms^{in_atoms:.2f}; {largest['rows']:,} rows x {largest['atoms']} atoms peak at "
        f"{largest['peak_bytes'] / GIBIBYTE:.2f} GiB, {'below' if below else 'not below'} {MOST_BYTES // GIBIBYTE}"
    )
    figures = {"row_exponent": in_rows, "atom_exponent": in_atoms, "holds": holds, "fits": lines}
    write_figures(arguments.json, where, figures)
    return 0 if holds or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
