"""Are the odd ones among many machines found, from what they have learned alone?

Simulated plants: a **ring** (all sensors are sines of one angle and of twice the angle), a **torus** (of two angles)
and **factors** (linear in three slow factors), each with noise of a tenth of its deviation. A gateway learns 4,000
rows, and each machine 1,000 to 20,000 rows of its own, beginning with the gateway's atoms. In **equal** plants healthy
machines differ by their rows alone; in **varied** ones each sensor of each machine has a phase, gain and offset of its
own. Faults concern one to three sensors; smaller ones are **small**. Fleets of 10, 40 and 200 have one faulty machine.

* **found**: faulty machines with a `rarity` of 200 or more; **sensor**: found ones whose first feature is faulty.
* **false**: healthy machines with such a rarity, for each healthy fleet.
* **several**: found where three in ten are faulty. **kinds**: found where every second machine is of another kind.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Array, Figures, draw_slow, make_table, run, time_call

from streamkpca import StreamingKernelPCA
from streamkpca.fleet import OddMachine, find_odd_machines

NOISE, STUCK = 0.1, 0.3
LARGE = {"phase": 0.2, "gain": 0.15, "noise": 0.5, "stuck": STUCK, "drift": 0.5}
SMALL = {"phase": 0.1, "gain": 0.05, "noise": 0.1}
RARE = 200.0


class Plant(NamedTuple):
    """A kind of plant, its sensors, the atoms and rows of its machines, and how much healthy machines vary."""

    kind: str
    sensors: int
    atoms: int
    rows: tuple[int, int]
    varied: float = 0.0


PLANTS = (
    Plant("ring", 8, 48, (2000, 2000)),
    Plant("ring", 24, 96, (1000, 4000)),
    Plant("torus", 12, 96, (4000, 20_000)),
    Plant("factors", 8, 48, (1000, 1000)),
    Plant("factors", 24, 64, (1000, 20_000)),
    Plant("ring", 16, 64, (2000, 8000), 0.01),
    Plant("factors", 12, 48, (1000, 4000), 0.01),
)


class Maker:
    """The rows of a plant's machines; those of the other kind differ in three sensors."""

    def __init__(self, plant: Plant, random: np.random.Generator, *, small: float = 1.0) -> None:
        d = plant.sensors
        self.plant, self.random, self.small = plant, random, small
        self.sizes, self.loads = random.uniform(0.5, 2.0, d), random.normal(size=(3, d))
        self.phases = random.uniform(0.0, 2.0 * np.pi, (2, d))
        self.moved = random.choice(d, 3, replace=False)
        self.turned = random.normal(size=(3, 3))

    def rows(self, fault: tuple[str, float] | None = None, *, other_kind: bool = False) -> tuple[Array, Array]:
        """Make the rows of a machine (n, d), and return its faulty sensors, too."""
        random, plant, d = self.random, self.plant, self.plant.sensors
        n = max(int(random.integers(plant.rows[0], plant.rows[1] + 1) * self.small), 300)
        sensors = random.choice(d, random.integers(1, 4), replace=False) if fault else np.empty(0, dtype=int)
        name, size = fault or ("", 0.0)
        signs, own = random.choice([-1.0, 1.0], len(sensors)), plant.varied * random.normal(size=(3, d))
        late, gain, noise = own[0], 1.0 + own[1], np.full(d, NOISE)
        late[sensors] += size * signs * (name == "phase")
        late[self.moved] += 0.5 * other_kind
        gain[sensors] *= 1.0 + size * signs * (name == "gain")
        noise[sensors] *= 1.0 + size * (name == "noise")
        if plant.kind == "factors":
            loads = self.loads + late * np.roll(self.loads, 1, axis=0)
            loads[:, self.moved] += 0.3 * other_kind * self.turned
            deviation, rows = np.sqrt((self.loads**2).sum(axis=0)), draw_slow(random, n, 3) @ loads
        else:
            n_angles = 1 + (plant.kind == "torus")
            steps = 2.0 * np.pi / 80.0 * (np.array([1.0, 0.37])[:n_angles] + 0.5 * draw_slow(random, n, n_angles, 0.9))
            angles = (random.uniform(0.0, 2.0 * np.pi, n_angles) + np.cumsum(steps, axis=0))[:, np.arange(d) % n_angles]
            first, second = self.phases
            deviation = 0.74 * self.sizes
            rows = self.sizes * (np.sin(angles + first + late) + 0.3 * np.sin(2.0 * (angles + late) + second))
        rows = rows * gain + deviation * (0.3 * own[2] + noise * random.normal(size=(n, d)))
        if name == "stuck":
            start = n - int(n * size)
            rows[start:, sensors] = rows[start, sensors]
        elif name == "drift":
            rows[:, sensors] += np.linspace(0.0, 1.0, n)[:, None] * size * deviation[sensors] * signs
        return rows, sensors


class Machines(NamedTuple):
    """What the machines of a plant have learned: healthy ones, ones of the other kind, and faulty ones by fault."""

    healthy: list[StreamingKernelPCA]
    others: list[StreamingKernelPCA]
    faulty: list[tuple[tuple[str, float], set[int], StreamingKernelPCA]]


def learn(maker: Maker, n_healthy: int, n_faulty: int) -> Machines:
    """Let the machines of a plant learn; the gateway has seen rows of both kinds."""
    first = np.concatenate([maker.rows(other_kind=kind)[0][:1000] for kind in (False, True, False, True)])
    model = StreamingKernelPCA(2, max_atoms=maker.plant.atoms, noise_variance=None, reservoir_size=0)
    begun = model.partial_fit(maker.random.permutation(first))

    def learn_rows(rows: Array) -> StreamingKernelPCA:
        return begun.without_rows().partial_fit(rows)

    faulty = []
    for fault in [*LARGE.items(), *SMALL.items()]:
        for _ in range(n_faulty):
            rows, sensors = maker.rows(fault)
            faulty.append((fault, set(sensors.tolist()), learn_rows(rows)))
    healthy = [learn_rows(maker.rows()[0]) for _ in range(n_healthy)]
    return Machines(
        healthy, [learn_rows(maker.rows(other_kind=True)[0]) for _ in range(max(n_healthy // 4, 10))], faulty
    )


def draw_some(models: list[Any], count: int, random: np.random.Generator) -> list[Any]:
    """Draw some without replacement."""
    return [models[i] for i in random.choice(len(models), count, replace=False)]


def is_found(machine: OddMachine) -> bool:
    """Tell whether a machine is as odd as one in 200 healthy fleets."""
    return machine.rarity >= RARE


def judge_fleets(
    machines: Machines, sizes: tuple[int, ...], n_fleets: int, random: np.random.Generator
) -> dict[str, Any]:
    """Compare fleets of the machines of one plant."""
    n_false, counted = 0, 0
    for size in sizes:
        for _ in range(max(n_fleets * 10 // size, 2)):
            fleet = dict(enumerate(draw_some(machines.healthy, size, random)))
            n_false += sum(map(is_found, find_odd_machines(fleet)))
            counted += 1
    lines: dict[str, list[tuple[bool, bool, bool]]] = {}
    for number, ((name, size), sensors, model) in enumerate(machines.faulty):
        healthy = draw_some(machines.healthy, sizes[number % len(sizes)] - 1, random)
        found = find_odd_machines({**dict(enumerate(healthy)), "faulty": model})
        it = next(machine for machine in found if machine.name == "faulty")
        is_right = bool(it.features) and it.features[0] in sensors
        lines.setdefault(f"{name} {size:g}", []).append((is_found(it), found[0] is it, is_right))
    large = [machine for machine in machines.faulty if machine[0] in LARGE.items()]
    several, kinds, false_kinds = [], [], 0
    for _ in range(n_fleets // 10 or 1):
        size = min(sizes[-1], 20)
        n_odd = 3 * size // 10
        fleet = dict(enumerate(draw_some(machines.healthy, size - n_odd, random)))
        fleet |= {-1 - i: faulty[2] for i, faulty in enumerate(draw_some(large, n_odd, random))}
        several += [is_found(machine) for machine in find_odd_machines(fleet) if machine.name < 0]
        fleet = dict(
            enumerate(draw_some(machines.healthy, size // 2, random) + draw_some(machines.others, size // 2, random))
        )
        fleet[-1] = draw_some(large, 1, random)[0][2]
        found = find_odd_machines(fleet)
        kinds += [is_found(machine) for machine in found if machine.name < 0]
        false_kinds += sum(is_found(machine) for machine in found if machine.name >= 0)
    return {
        "fleets": counted,
        "false": n_false / counted,
        "faults": {
            name: {
                "machines": len(line),
                "found": float(np.mean([is_there for is_there, _, _ in line])),
                "top": float(np.mean([is_first for _, is_first, _ in line])),
                "sensor": float(np.mean([right for is_there, _, right in line if is_there] or [np.nan])),
            }
            for name, line in lines.items()
        },
        "several": float(np.mean(several)),
        "kinds": float(np.mean(kinds)),
        "false_kinds": false_kinds / len(kinds),
    }


def time_comparison(models: list[StreamingKernelPCA], count: int) -> float:
    """Return the processor time of a comparison of many states."""
    fleet = {i: models[i % len(models)] for i in range(count)}
    return time_call(find_odd_machines, fleet)[0]


# Plants, share of the usual rows, sizes of fleets, healthy machines, faulty ones of a fault, fleets, states compared.
AMOUNTS = {
    "whole": (PLANTS, 1.0, (10, 40, 200), 240, 6, 50, 1000),
    "quick": (PLANTS[:2], 0.5, (10, 40), 60, 2, 20, 1000),
    "tiny": (PLANTS[:1], 0.3, (10,), 16, 2, 3, 50),
}


def measure(size: str, data: Path | None) -> Figures:
    """Judge the fleets of every plant."""
    plants, small, sizes, n_healthy, n_faulty, n_fleets, n_states = AMOUNTS[size]
    found: Figures = {}
    seconds = 0.0
    for number, plant in enumerate(plants):
        random = np.random.default_rng(number)
        machines = learn(Maker(plant, random, small=small), n_healthy, n_faulty)
        title = f"{plant.kind} {plant.sensors}, {'varied' if plant.varied else 'equal'}"
        found[title] = judge_fleets(machines, sizes, n_fleets, random)
        seconds = seconds or time_comparison(machines.healthy, n_states)
    return {"plants": found, "seconds": seconds, "n_states": n_states}


def describe(figures: Figures) -> str:
    """Return a line for each plant."""

    def average(line: Figures, faults: dict[str, float], figure: str) -> float:
        return float(np.nanmean([line["faults"][f"{name} {size:g}"][figure] for name, size in faults.items()]))

    rows = [
        [
            title,
            *(f"{average(line, LARGE, figure):.2f}" for figure in ("found", "sensor")),
            f"{average(line, SMALL, 'found'):.2f}",
            f"{line['false']:.4f}",
            f"{line['several']:.2f}",
            f"{line['kinds']:.2f}",
        ]
        for title, line in figures["plants"].items()
    ]
    table = make_table(["plant, sensors", "found", "sensor", "small found", "false", "several", "kinds"], rows)
    return f"{table}\n\nComparing {figures['n_states']:,} machines takes {figures['seconds']:.2f} s."


if __name__ == "__main__":
    run(measure, describe)
