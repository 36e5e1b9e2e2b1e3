"""Does a model that runs for a year stay as good, and as small, as in its first week?

A stream of 8 features whose regime changes every 204,800 rows: rows then lie on new curved sheets, and nothing of an
old regime returns. 64 atoms, half-life 10,000 rows. Figures of the second regime and of the last:

* **resident**: the resident set of the process. **model**: the bytes of the arrays that the model holds.
* **rounding**: the largest accumulated error, relative: of the atoms' factor, of the energy account, and of the energy
  against that of the last 40 half-lives of rows, recorded anew.
* **left**: the share of the energy of fresh rows of the regime outside the span of the atoms, relative to that left by
  atoms chosen at once from 8,192 rows of this regime alone; **not forgetting**: the same of a model without half-life.
* **signal**: rows after the change until the drift was signalled. **old atoms**: those from earlier regimes.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import MEBIBYTE, Array, Figures, count_bytes, make_table, resident_bytes, run

from streamkpca import ApproximateKernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF
from streamkpca.stream.step import record_block

BLOCK = 512
N_SHEETS, N_FEATURES = 4, 8
# Of rows that are recorded anew.
N_HALF_LIVES = 40
# Rows, rows of a regime, half-life and atoms.
SIZES = {
    "whole": (4_096_000, 204_800, 10_000.0, 64),
    "quick": (409_600, 102_400, 5000.0, 64),
    "tiny": (30_720, 10_240, 1000.0, 32),
}


class Regimes:
    """Rows on curved sheets that are replaced by new ones at each change of regime.

    Parameters
    ----------
    n_features : int
        Width d of the rows.
    length : int
        Rows of a regime.
    seed : int
    """

    def __init__(self, n_features: int, length: int, seed: int = 0) -> None:
        self.n_features, self.length, self._seed = n_features, length, seed

    def block(self, start: int) -> Array:
        """Make the rows from `start` on, shape (BLOCK, d); the same start always gives the same rows."""
        return self.draw(start // self.length, [self._seed, 1, start])

    def draw(self, regime: int, seed: list[int], count: int = BLOCK) -> Array:
        """Make rows of a regime, shape (count, d)."""
        world = np.random.default_rng([self._seed, 0, regime])
        centres = world.uniform(-1.5, 1.5, (N_SHEETS, self.n_features))
        directions = world.normal(scale=0.8, size=(N_SHEETS, 2, self.n_features))
        chance = np.random.default_rng(seed)
        sheet = chance.integers(N_SHEETS, size=count)
        place = chance.uniform(-1.0, 1.0, (count, 2))
        rows = centres[sheet] + np.sin(np.einsum("ns,nsd->nd", place, directions[sheet]))
        return rows + chance.normal(scale=0.05, size=rows.shape)


def record_anew(model: StreamingKernelPCA, regimes: Regimes, done: int, half_life: float) -> float:
    """Compare the energy with that of the last rows, recorded anew in the same basis."""
    summary = model.state_.summary
    fresh = summary.reset_counts()
    first = max(0, done - int(N_HALF_LIVES * half_life) // BLOCK * BLOCK)
    for start in range(first, done, BLOCK):
        fresh = record_block(fresh, regimes.block(start), np.ones(BLOCK), half_life)
    return abs(summary.moments.energy / fresh.moments.energy - 1.0)


def follow(n_rows: int, length: int, half_life: float, atoms: int) -> Iterator[Figures]:
    """Stream the rows; yield the figures of each regime at its end."""
    regimes = Regimes(N_FEATURES, length)
    kernel = RBF(0.5)
    forgetting = StreamingKernelPCA(max_atoms=atoms, kernel=kernel, half_life=half_life)
    keeping = StreamingKernelPCA(max_atoms=atoms, kernel=kernel)
    seconds = 0.0
    signalled: int | None = None
    for start in range(0, n_rows, BLOCK):
        rows = regimes.block(start)
        began = time.process_time()
        forgetting.partial_fit(rows)
        seconds += time.process_time() - began
        keeping.partial_fit(rows)
        done = start + BLOCK
        regime_start = start - start % length
        if signalled is None and regime_start and (forgetting.last_drift_row_ or 0) > regime_start:
            signalled = forgetting.last_drift_row_ - regime_start
        if done % length:
            continue

        regime = start // length
        summary = forgetting.refit().state_.summary
        gram, factor = kernel.matrix(summary.basis.atoms, summary.basis.atoms), summary.basis.factor
        moments = summary.moments
        account = float(np.trace(moments.second)) + moments.losses.total
        rounding = [
            float(np.abs(factor @ factor.T - gram).max() / gram.max()),
            abs(account / moments.energy - 1.0),
            record_anew(forgetting, regimes, done, half_life),
        ]
        fresh = regimes.draw(regime, [0, 2, regime], 4096)
        greedy = ApproximateKernelPCA(max_atoms=atoms, kernel=kernel)
        greedy.fit(regimes.draw(regime, [0, 3, regime], 8192))
        at_once = float(greedy.reconstruction_error(fresh).mean())
        yield {
            "rows": done,
            "resident_bytes": resident_bytes(),
            "model_bytes": count_bytes(forgetting.state_),
            "rows_per_second": length / seconds,
            "rounding": max(rounding),
            "left": float(forgetting.reconstruction_error(fresh).mean()) / at_once,
            "not_forgetting": float(keeping.refit().reconstruction_error(fresh).mean()) / at_once,
            "old_atoms": int(np.count_nonzero(forgetting.atom_origins_ < regime * length)),
            "rows_to_signal": signalled,
        }
        seconds, signalled = 0.0, None


def measure(size: str, data: Path | None) -> Figures:
    """Follow the stream to its end."""
    marks = list(follow(*SIZES[size]))
    return {"marks": marks, "rounding": max(mark["rounding"] for mark in marks)}


def describe(figures: Figures) -> str:
    """Return the second regime, the last, and the largest rounding error."""
    head = ["rows", "resident, MiB", "model, MiB", "rows/s", "left", "not forgetting", "old atoms", "signal after"]
    rows = [
        [
            mark["rows"],
            f"{mark['resident_bytes'] / MEBIBYTE:.1f}",
            f"{mark['model_bytes'] / MEBIBYTE:.2f}",
            f"{mark['rows_per_second']:,.0f}",
            f"{mark['left']:.2f}",
            f"{mark['not_forgetting']:.2f}",
            mark["old_atoms"],
            mark["rows_to_signal"],
        ]
        for mark in (figures["marks"][1], figures["marks"][-1])
    ]
    return f"{make_table(head, rows)}\n\nRounding is at most {figures['rounding']:.0e} in all regimes."


if __name__ == "__main__":
    run(measure, describe)
