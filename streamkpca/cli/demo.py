"""The demonstration: a simulated plant with faults, and a model that learns it while it looks for them."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca import plots
from streamkpca._core.parameters import check_integer
from streamkpca.cli.reports import auroc, average_precision
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.plots.canvas import GROUP_COLORS, LINE, finish, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Array = npt.NDArray[np.float64]

N_SENSORS = 24
BLOCK_ROWS = 1000
FAULT_KINDS = ("healthy", "stuck", "spike", "decoupled")

_N_STATES = 3
_N_WAVES = 12
_N_HIDDEN = 16
_DAY = 144.0
_NOISE = 0.02
_DRIFT_ROWS = 100_000.0
# The stream begins healthy, so that a model can learn what is normal.
_HEALTHY_BLOCKS = 2
_FAULT_CHANCE = 0.25

_MEMORY_ROWS = 20_000
# Robust standard deviations above the median, both of the logarithm: a quantile would rise with the faults themselves.
_ALARM_DEVIATIONS = 4.0
# A fault counts as found when this share of its rows raises an alarm: a single row may do so by chance.
_FOUND_SHARE = 0.1
# Points of a curve in the picture.
_CURVE_POINTS = 500


class PlantBlock(NamedTuple):
    """Consecutive rows of the simulated plant.

    rows (n, 24): sensor readings, each in units of its own nominal range. faults (n,): positions in `FAULT_KINDS`; 0 is
    healthy.
    """

    rows: Array
    faults: npt.NDArray[np.int8]


def simulate_plant(n_rows: int, *, seed: int = 0) -> Iterator[PlantBlock]:
    """Simulate `n_rows` readings of a plant, one row every ten minutes, in blocks of `BLOCK_ROWS`.

    Notes
    -----
    Three states (the load, which follows the day; the product; the weather) are sums of waves with unrelated periods. A
    fixed random network of tanh units maps them to 24 sensors, so the readings lie near a curved sheet of three
    dimensions, with noise of 0.02. The sheet drifts by tanh(row / 100,000) of a fixed random step. Faults come at
    random in about a quarter of the blocks and stay inside one block:

    * stuck: two sensors repeat a reading,
    * spike: two sensors jump, for 3 to 12 rows,
    * decoupled: four sensors report what they would in another state of the plant; each reading alone is normal.

    A row depends only on the seed and its own position: a shorter stream is the beginning of a longer one. Another seed
    is another plant with other faults. O(BLOCK_ROWS) memory.

    Examples
    --------
    >>> blocks = list(simulate_plant(2500, seed=1))
    >>> [block.rows.shape for block in blocks]
    [(1000, 24), (1000, 24), (500, 24)]
    >>> int(sum(block.faults.sum() for block in blocks[:2]))
    0
    """
    total = check_integer("n_rows", n_rows, least=1, where="simulate_plant")
    plant = _Plant(check_integer("seed", seed, least=0, where="simulate_plant"))
    for start in range(0, total, BLOCK_ROWS):
        block = plant.block(start // BLOCK_ROWS)
        kept = min(BLOCK_ROWS, total - start)
        yield PlantBlock(block.rows[:kept], block.faults[:kept])


class _Plant:
    """The fixed random parts of one simulated plant."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = np.random.default_rng((seed, 0))
        slowest = np.array([1.0, 1.5, 3.0]) * _DAY
        self._frequencies = 2 * np.pi / (slowest * rng.uniform(0.3, 1.0, (_N_WAVES, _N_STATES)))
        self._frequencies[0] = 2 * np.pi / slowest
        self._phases = rng.uniform(0, 2 * np.pi, (_N_WAVES, _N_STATES))
        amplitudes = rng.uniform(0.2, 1.0, (_N_WAVES, _N_STATES))
        amplitudes[0] = 2.0
        self._amplitudes = amplitudes / np.sqrt((amplitudes**2).sum(axis=0) / 2)
        self._input = rng.normal(0, 0.5, (_N_STATES, _N_HIDDEN))
        self._bias = rng.normal(0, 0.5, _N_HIDDEN)
        self._drift = rng.normal(0, 0.3, _N_HIDDEN)
        self._output = rng.normal(0, 1 / np.sqrt(_N_HIDDEN), (_N_HIDDEN, N_SENSORS))

    def block(self, index: int) -> PlantBlock:
        rng = np.random.default_rng((self._seed, 1, index))
        time = index * BLOCK_ROWS + np.arange(BLOCK_ROWS, dtype=np.float64)
        noise = rng.normal(0, _NOISE, (BLOCK_ROWS, N_SENSORS))
        rows = self._readings(time) + noise
        faults = np.zeros(BLOCK_ROWS, dtype=np.int8)
        if index >= _HEALTHY_BLOCKS and rng.random() < _FAULT_CHANCE:
            kind = int(rng.integers(1, len(FAULT_KINDS)))
            length = int(rng.integers(3, 13) if FAULT_KINDS[kind] == "spike" else rng.integers(40, 160))
            first = int(rng.integers(0, BLOCK_ROWS - length))
            part = slice(first, first + length)
            faults[part] = kind
            if FAULT_KINDS[kind] == "stuck":
                sensors = rng.choice(N_SENSORS, 2, replace=False)
                rows[part, sensors] = rows[first, sensors]
            elif FAULT_KINDS[kind] == "spike":
                sensors = rng.choice(N_SENSORS, 2, replace=False)
                rows[part, sensors] += rng.choice((-1.0, 1.0), 2) * rng.uniform(0.5, 1.0, 2)
            else:
                sensors = rng.choice(N_SENSORS, 4, replace=False)
                elsewhere = time[part] + rng.uniform(5 * _DAY, 10 * _DAY)
                rows[part, sensors] = self._readings(elsewhere)[:, sensors] + noise[part, sensors]
        return PlantBlock(rows, faults)

    def _readings(self, time: Array) -> Array:
        waves = np.sin(time[:, None, None] * self._frequencies + self._phases)
        states = (waves * self._amplitudes).sum(axis=1)
        drift = np.tanh(time / _DRIFT_ROWS)[:, None] * self._drift
        readings: Array = np.tanh(states @ self._input + self._bias + drift) @ self._output
        return readings


class Watch:
    """An unfitted model that scores rows of the plant before it learns them, and what it found in them.

    `novelty` and `threshold` (n,) are the scores of all rows and the alarm thresholds at the time, NaN for the first
    block; `seconds` is the time for scoring, projecting and learning.

    Notes
    -----
    Prequential: every score comes from a model that has not seen the row, so one pass both learns and measures. All
    scores are kept for that, 17 bytes a row. The model itself stays bounded.
    """

    def __init__(self, model: StreamingKernelPCA) -> None:
        self.model = model
        self.seconds = 0.0
        self._novelty: list[Array] = []
        self._threshold: list[Array] = []
        self._faults: list[npt.NDArray[np.int8]] = []
        self._n_rows = 0

    @property
    def novelty(self) -> Array:
        """Scores of all rows so far."""
        return np.concatenate(self._novelty) if self._novelty else np.empty(0)

    @property
    def threshold(self) -> Array:
        """Alarm thresholds of all rows so far."""
        return np.concatenate(self._threshold) if self._threshold else np.empty(0)

    @property
    def faults(self) -> npt.NDArray[np.int8]:
        """Faults of all rows so far."""
        return np.concatenate(self._faults) if self._faults else np.empty(0, dtype=np.int8)

    def take(self, block: PlantBlock) -> tuple[Array, Array]:
        """Score n rows, then learn them; return projections (n, q) and novelty (n,), NaN for the first block."""
        start = time.perf_counter()
        n = len(block.rows)
        if self._n_rows == 0:
            self.model.partial_fit(block.rows)
            novelty, level = np.full(n, np.nan), np.nan
            projections = self.model.transform(block.rows)
        else:
            novelty = self.model.novelty(block.rows)
            projections = self.model.transform(block.rows)
            self.model.partial_fit(block.rows)
            level = self._alarm_level()
        self.seconds += time.perf_counter() - start
        self._novelty.append(novelty)
        self._threshold.append(np.full(n, level))
        self._faults.append(block.faults)
        self._n_rows += n
        return projections, novelty

    def picture(self) -> "Figure":
        """Draw novelty over time, how far rows of each kind are from an alarm, and the spectrum."""
        figure = plots.make_figure(width=11, height=8)
        figure.suptitle("A simulated plant, learned row by row and scored before each row was learned")
        grid = figure.add_gridspec(2, 2, height_ratios=(1.1, 1))
        plots.draw_novelty(
            self.novelty,
            threshold=self.threshold,
            labels=self.faults,
            label_names=FAULT_KINDS,
            ax=figure.add_subplot(grid[0, :]),
        )
        self._draw_distances_from_an_alarm(figure.add_subplot(grid[1, 0]))
        spectrum = figure.add_subplot(grid[1, 1])
        plots.draw_spectrum(self.model.eigenvalues_, explained=self.model.explained_variance_ratio_, ax=spectrum)
        return figure

    def _draw_distances_from_an_alarm(self, axes: "Axes") -> None:
        """Draw, for each kind of rows, the share whose novelty exceeds any multiple of the threshold at the time."""
        multiples, faults = self.novelty / self.threshold, self.faults
        for kind, (name, color) in enumerate(zip(FAULT_KINDS, (LINE, *GROUP_COLORS), strict=False)):
            mine = np.sort(multiples[(faults == kind) & np.isfinite(multiples) & (multiples > 0)])
            if len(mine):
                shown = np.linspace(0, len(mine) - 1, min(len(mine), _CURVE_POINTS)).astype(int)
                alarms = float(np.mean(mine > 1.0))
                label = f"{name}: {alarms:.1%} are alarms" if alarms < 0.1 else f"{name}: {alarms:.0%} are alarms"
                axes.step(mine[shown], 1.0 - shown / len(mine), color=color, linewidth=1.5, label=label)
        axes.axvline(1.0, color=ink(axes), linewidth=0.9, linestyle="--")
        axes.set_xscale("log")
        axes.set_ylim(0.0, 1.02)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(title="rows", loc="center left", fontsize="small", title_fontsize="small", frameon=False)
        finish(
            axes, "how far rows are from an alarm", "novelty / threshold at the time", "share of rows that exceed it"
        )

    def _alarm_level(self) -> float:
        """Set the threshold of alarms from the scores of the rows just before."""
        recent = np.concatenate(self._novelty[-(_MEMORY_ROWS // BLOCK_ROWS) :])
        recent = np.log(recent[recent > 0])
        if not len(recent):
            return float("nan")
        middle = np.median(recent)
        deviation = 1.4826 * np.median(np.abs(recent - middle))
        return float(np.exp(middle + _ALARM_DEVIATIONS * deviation))

    def measure(self) -> list[tuple[str, str]]:
        """Return how well the score found the faults, as names and values to print."""
        novelty, faults, threshold = self.novelty, self.faults, self.threshold
        scored = np.isfinite(novelty)
        novelty, faults, threshold = novelty[scored], faults[scored], threshold[scored]
        if not faults.any():
            return [("faults", "none yet: the plant begins healthy; simulate more --rows")]
        with np.errstate(invalid="ignore"):
            alarms = novelty > threshold
        # A fault never crosses a block, and between two faults there is a healthy row.
        starts = np.flatnonzero(np.diff(faults, prepend=0) > 0)
        n_alarms = np.add.reduceat(alarms & (faults > 0), starts)
        found = n_alarms >= _FOUND_SHARE * np.add.reduceat(faults > 0, starts, dtype=int)
        facts = [
            ("area under ROC curve", f"{auroc(faults, novelty):.3f}"),
            ("average precision", f"{average_precision(faults, novelty):.3f} (chance {(faults > 0).mean():.3f})"),
            ("faults found", f"{found.sum()} of {len(starts)} (alarm in {_FOUND_SHARE:.0%} of their rows)"),
        ]
        for kind in range(1, len(FAULT_KINDS)):
            ours = faults[starts] == kind
            if ours.any():
                mine = (faults == 0) | (faults == kind)
                area = auroc(faults[mine], novelty[mine])
                facts.append((f"  {FAULT_KINDS[kind]}", f"{found[ours].sum()} of {ours.sum()}, AUROC {area:.3f}"))
        facts.append(("false alarms", f"{alarms[faults == 0].mean():.2%} of healthy rows"))
        return facts
