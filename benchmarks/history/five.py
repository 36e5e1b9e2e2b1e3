"""Five figures that every commit is measured by with asv: young and settled learning, one row, many rows, quality.

The other benchmarks compare with peers in one run; these compare the library with its own past on one machine::

    pip install asv virtualenv
    asv run --config benchmarks/history/asv.conf.json v0.1.0..main
    asv publish --config benchmarks/history/asv.conf.json
"""

import os

# One thread, as more would measure the machine's other work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF


def stream(n: int, d: int = 16, seed: int = 0) -> np.ndarray:
    """Return rows (n, d) of a curved sheet in noise."""
    random = np.random.default_rng(seed)
    angles = random.uniform(0.0, 6.0, size=(n, 2))
    waves = np.sin(angles @ random.normal(size=(2, d)) + random.uniform(0.0, 6.0, size=d))
    rows: np.ndarray = waves + 0.1 * random.normal(size=(n, d))
    return rows


class Streams:
    """One model of 128 atoms; the loops are compiled before anything is measured."""

    timeout = 300

    def setup(self) -> None:
        """Learn 30,000 rows."""
        self.rows, self.later = stream(30_000), stream(20_000, seed=1)
        self.model = StreamingKernelPCA(8, kernel=RBF(0.1), max_atoms=128).partial_fit(self.rows)
        self.model.novelty(self.later[:1])

    def time_young_stream(self) -> None:
        """Learn the first 4,096 rows by default, width included."""
        StreamingKernelPCA(8, max_atoms=128).partial_fit(self.rows[:4096])

    def time_settled_stream(self) -> None:
        """Learn 20,000 more rows."""
        self.model.partial_fit(self.later)

    def time_one_row(self) -> None:
        """Score 100 rows one by one."""
        for i in range(100):
            self.model.novelty(self.later[i : i + 1])

    def time_many_rows(self) -> None:
        """Score 20,000 rows at once."""
        self.model.novelty(self.later)

    def track_unexplained_energy(self) -> float:
        """Return the share of the stream's energy that 128 atoms leave unexplained."""
        return float(self.model.unexplained_energy_ratio_)
