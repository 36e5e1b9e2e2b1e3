"""The demonstration: a simulated plant with faults, and a monitor that learns it while it looks for them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np
import numpy.typing as npt

from streamkpca import StreamingKernelPCA, plots
from streamkpca.cli.console import Signals, print_facts, print_json
from streamkpca.cli.reading import progress_bar
from streamkpca.cli.reports import auroc, average_precision, model_facts, show_model, write_picture
from streamkpca.cli.tables import Writer
from streamkpca.monitoring import Monitor
from streamkpca.plots.canvas import GROUP_COLORS, LINE, finish

if TYPE_CHECKING:
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
    plant = _Plant(seed)
    for start in range(0, n_rows, BLOCK_ROWS):
        block = plant.block(start // BLOCK_ROWS)
        kept = min(BLOCK_ROWS, n_rows - start)
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
            sensors = rng.choice(N_SENSORS, 4 if FAULT_KINDS[kind] == "decoupled" else 2, replace=False)
            if FAULT_KINDS[kind] == "stuck":
                rows[part, sensors] = rows[first, sensors]
            elif FAULT_KINDS[kind] == "spike":
                rows[part, sensors] += rng.choice((-1.0, 1.0), 2) * rng.uniform(0.5, 1.0, 2)
            else:
                elsewhere = time[part] + rng.uniform(5 * _DAY, 10 * _DAY)
                rows[part, sensors] = self._readings(elsewhere)[:, sensors] + noise[part, sensors]
        return PlantBlock(rows, faults)

    def _readings(self, time: Array) -> Array:
        waves = np.sin(time[:, None, None] * self._frequencies + self._phases)
        states = (waves * self._amplitudes).sum(axis=1)
        drift = np.tanh(time / _DRIFT_ROWS)[:, None] * self._drift
        readings: Array = np.tanh(states @ self._input + self._bias + drift) @ self._output
        return readings


class Found(NamedTuple):
    """What a monitor says of n rows, and the faults, (n,) each."""

    rarity: Array
    threshold: Array
    is_alarm: npt.NDArray[np.bool_]
    faults: npt.NDArray[np.int8]


def run_demo(rows: int, seed: int, out: str, as_json: bool) -> None:
    """Simulate a plant, watch it as a stream, and measure how well a monitor finds its faults."""
    Path(out).mkdir(parents=True, exist_ok=True)
    table, picture = str(Path(out, "projections.parquet")), str(Path(out, "picture.png"))
    monitor, signals, parts = Monitor(), Signals(), list[Found]()
    model = monitor.model
    start = time.perf_counter()
    with signals.handled(), Writer(table) as writer, progress_bar(rows, "watching") as bar:
        for block in signals.until_stopped(simulate_plant(rows, seed=seed)):
            record = monitor.update(block.rows)
            parts.append(Found(record.rarity, record.threshold, record.is_alarm, block.faults))
            numbers = np.arange(writer.n_rows, writer.n_rows + len(block.rows))
            columns: dict[str, npt.ArrayLike] = {"row": numbers, "label": block.faults, "novelty": record.novelty}
            columns |= {"rarity": record.rarity, "alarm": record.is_alarm}
            columns |= {f"component_{i}": column for i, column in enumerate(model.transform(block.rows).T)}
            writer.write(columns)
            bar.update(len(block.rows))
    seconds = time.perf_counter() - start
    signals.leave_if_stopped(f"after {writer.n_rows:,} of {rows:,} rows")
    found = Found(*map(np.concatenate, zip(*parts, strict=True)))
    measures = measured(found)
    write_picture(drawn(found, model), picture, dots_per_inch=120)
    if as_json:
        files = {"projections": table, "picture": picture}
        print_json({"model": model_facts(model), "seconds": seconds, "faults": measures, **files})
    else:
        show_model(model_facts(model))
        speed = {"time": f"{seconds:.2f} s, {rows / seconds:,.0f} rows/s"}
        title = "How well a monitor found the faults of this simulated plant (each row scored before it was learned)"
        print_facts(title, speed | measures)
        click.echo(f"Projections and scores: {table}\nPicture: {picture}")


def measured(found: Found) -> dict[str, str]:
    """Return how well rarities and alarms found the faults, as names and values to print."""
    rarity, _, alarms, faults = found
    if not faults.any():
        return {"faults": "none yet: the plant begins healthy; simulate more --rows"}
    # A fault never crosses a block, and between two faults there is a healthy row.
    starts = np.flatnonzero(np.diff(faults, prepend=0) > 0)
    n_alarms = np.add.reduceat(alarms & (faults > 0), starts)
    is_found = n_alarms >= _FOUND_SHARE * np.add.reduceat(faults > 0, starts, dtype=int)
    facts = {
        "area under ROC curve": f"{auroc(faults, rarity):.3f}",
        "average precision": f"{average_precision(faults, rarity):.3f} (chance {(faults > 0).mean():.3f})",
        "faults found": f"{is_found.sum()} of {len(starts)} (alarm in {_FOUND_SHARE:.0%} of their rows)",
    }
    for kind in range(1, len(FAULT_KINDS)):
        ours, mine = faults[starts] == kind, (faults == 0) | (faults == kind)
        if ours.any():
            area = auroc(faults[mine], rarity[mine])
            facts[f"  {FAULT_KINDS[kind]}"] = f"{is_found[ours].sum()} of {ours.sum()}, AUROC {area:.3f}"
    return facts | {"false alarms": f"{alarms[faults == 0].mean():.2%} of healthy rows"}


def drawn(found: Found, model: StreamingKernelPCA) -> "Figure":
    """Draw rarities over time, how rare rows of each kind are, and the spectrum."""
    figure = plots.make_figure(width=11, height=8)
    figure.suptitle("A simulated plant, learned row by row and scored before each row was learned")
    grid = figure.add_gridspec(2, 2, height_ratios=(1.1, 1))
    rarity, threshold, is_alarm, faults = found
    plots.draw_novelty(
        rarity,
        name="rarity",
        threshold=threshold,
        alarms=is_alarm,
        labels=faults,
        label_names=FAULT_KINDS,
        ax=figure.add_subplot(grid[0, :]),
    )
    axes = figure.add_subplot(grid[1, 0])
    for kind, (name, color) in enumerate(zip(FAULT_KINDS, (LINE, *GROUP_COLORS), strict=False)):
        of_kind = np.sort(rarity[faults == kind])
        if len(of_kind):
            shown = np.linspace(0, len(of_kind) - 1, min(len(of_kind), _CURVE_POINTS)).astype(int)
            label = f"{name}: {np.mean(is_alarm[faults == kind]):.1%} are alarms"
            axes.step(of_kind[shown], 1.0 - shown / len(of_kind), color=color, linewidth=1.5, label=label)
    axes.axvline(threshold[-1], color="0.5", linewidth=0.9, linestyle="--")
    axes.set(xscale="log", ylim=(0.0, 1.02))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title="rows", loc="center left", fontsize="small", title_fontsize="small", frameon=False)
    finish(axes, "how rare rows are", "rarity: once in so many healthy rows", "share of rows as rare or rarer")
    shares, bottom = model.explained_variance_ratio_, figure.add_subplot(grid[1, 1])
    plots.draw_spectrum(model.eigenvalues_, explained=shares, ax=bottom)
    return figure
