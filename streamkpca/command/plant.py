"""A simulated plant: correlated sensors, a slow drift and labelled faults, as an endless stream."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca.parameters import check_integer

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
# The stream begins healthy: whoever learns from it needs a moment to see what is normal.
_HEALTHY_BLOCKS = 2
_FAULT_CHANCE = 0.25


class PlantBlock(NamedTuple):
    """Consecutive rows of the simulated plant.

    Attributes
    ----------
    rows : ndarray of shape (n, 24)
        Sensor readings, each in units of its own nominal range.
    faults : ndarray of shape (n,), int8
        Position in `FAULT_KINDS`; 0 is healthy.
    """

    rows: Array
    faults: npt.NDArray[np.int8]


def simulate_plant(n_rows: int, *, seed: int = 0) -> Iterator[PlantBlock]:
    """Simulate the readings of a plant, one row every ten minutes, a block at a time.

    Parameters
    ----------
    n_rows : int
        How many rows.
    seed : int
        Another seed is another plant with other faults.

    Yields
    ------
    PlantBlock
        `BLOCK_ROWS` rows, the last block perhaps fewer.

    Notes
    -----
    Three states (the load, which follows the day; the product; the weather) are sums of waves of unrelated
    periods. A fixed random network of tanh units maps them to 24 sensors, so the readings lie near a curved
    sheet of three dimensions, with noise of 0.02. The sheet drifts by tanh(row / 100,000) of a fixed random
    step. Faults come at random in about a quarter of the blocks and stay inside one block:

    * stuck: two sensors repeat a reading,
    * spike: two sensors jump, for 3 to 12 rows,
    * decoupled: four sensors report what they would in another state of the plant; each reading alone is
      normal.

    A row depends on the seed and its own position only: a shorter stream is the beginning of a longer one,
    and no state is carried. O(BLOCK_ROWS) memory.

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
