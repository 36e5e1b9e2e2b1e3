"""Claim: refits take a tenth of a stream's time or less.

A refit finds weights and axes and publishes them, O(m^3) for m atoms; recording a row takes m (2 d + m) operations.
At the default schedule a refit comes every 128 rows an atom, but no sooner than after 16,384 rows. The table gives,
for each number of atoms, with and without the likelihood (noise_variance "auto" and None):

* **cold**: the first refit of the atoms, and **warm**: the next, which starts from the last weights.
* **record**: time to learn the rows between two refits; the atoms are settled and no search is due.
* **share**: the share of warm refits in the time of both.

Run::

    python benchmarks/refit_is_cheap.py
    python benchmarks/refit_is_cheap.py --tiny

The exit code is 0 if every share is at most .10, and 1 otherwise.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import Sheet, n_atoms, surroundings, write_figures
from ingest_runs_near_gemm import BLOCK, seconds, settled

from streamkpca import StreamingKernelPCA
from streamkpca._core.linalg import one_blas_thread
from streamkpca.kernels import RBF
from streamkpca.stream import axes

MOST_SHARE = 0.10
SIZES = [(32, 8), (64, 8), (128, 32), (256, 32), (512, 64), (1024, 64)]


def measure(m: int, n_features: int, noise_variance: str | None, repeats: int) -> dict[str, float]:
    """Measure one number of atoms."""
    sheet = Sheet(n_features)
    kernel = RBF("median").settled(sheet.draw(2000))
    model = StreamingKernelPCA(kernel=kernel, max_atoms=m, tolerance=1e-6, noise_variance=noise_variance)
    while not n_atoms(model) >= m:
        model.partial_fit(sheet.draw(BLOCK))
    model.partial_fit(sheet.draw(4 * BLOCK))
    settings = model.set_params(refit_every=10**12).settings()
    interval = int(model.set_params(refit_every="auto").settings().refit_interval(m))
    rows = sheet.draw(32 * BLOCK)
    model.set_params(refit_every=10**12)
    taken: dict[str, list[float]] = {"cold": [], "warm": [], "record": []}
    with one_blas_thread():
        for _ in range(repeats):
            settled(model)
            taken["record"].append(seconds(lambda: model.partial_fit(rows)) * interval / len(rows))
            cold = replace(model.state_, scheduled=None)
            taken["cold"].append(seconds(lambda cold=cold: axes(cold, settings)))
            settled(model)
            # The next refit sees a few more rows.
            model.partial_fit(rows[: 8 * BLOCK])
            warm = model.state_
            taken["warm"].append(seconds(lambda warm=warm: axes(warm, settings)))
    middle = {name: float(np.median(values)) for name, values in taken.items()}
    return {
        "atoms": m,
        "features": n_features,
        "likelihood": noise_variance is not None,
        "active": model.n_active_,
        "interval": interval,
        **middle,
        "share": middle["warm"] / (middle["warm"] + middle["record"]),
    }


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Measure refits against recording.")
    parser.add_argument("--repeats", type=int, default=5, help="turns; figures are medians (default 5)")
    parser.add_argument("--tiny", action="store_true", help="16 atoms of 4 features, two turns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    sizes, repeats = ([(16, 4)], 2) if arguments.tiny else (SIZES, arguments.repeats)
    where = surroundings()
    columns = ["atoms", "features", "noise", "active", "cold ms", "warm ms", "record ms", "rows", "share"]
    print(" ".join(f"{column:>9}" for column in columns))
    results = []
    for m, n_features in sizes:
        for noise_variance in ("auto", None):
            figures = measure(m, n_features, noise_variance, repeats)
            cells = [f"{m}", f"{n_features}", str(noise_variance), f"{figures['active']}"]
            cells += [f"{1e3 * figures[name]:.1f}" for name in ("cold", "warm", "record")]
            cells += [f"{figures['interval']:,}", f"{figures['share']:.3f}"]
            print(
                " ".join(f"{cell:>9}" for cell in cells) + ("  *" if figures["share"] > MOST_SHARE else ""), flush=True
            )
            results.append(figures)
    n_missed = sum(figures["share"] > MOST_SHARE for figures in results)
    print(
        f"CHEAP: no share exceeds {MOST_SHARE}" if n_missed == 0 else f"DEAR: {n_missed} shares exceed {MOST_SHARE} (*)"
    )
    write_figures(arguments.json, where, {"sizes": results})
    return 0 if n_missed == 0 or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
