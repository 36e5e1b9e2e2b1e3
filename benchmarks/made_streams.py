"""Made streams: ten families of rows with faults, the same for the same seed, so that no real stream decides alone.

`made` returns a stream of a family, `healthy` rows of it without faults. The last functions spoil healthy rows:
`with_isolated` by rows that a model finds so and so novel, `with_gross_fault` soon after the first row, `contaminated`
by a share of odd rows. Healthy rows do not depend on the faults put in, but plants and rooms take time to recover.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

Array = np.ndarray
Random = np.random.Generator
Spots = list[tuple[int, int]]


@dataclass(frozen=True)
class Stream:
    """Rows to learn, rows to judge, and what is known about them."""

    family: str
    name: str
    train: Array
    test: Array
    labels: Array
    ordered: bool = True


@dataclass(frozen=True)
class Family:
    """How the rows of a family are made.

    `make` returns rows (n, d) with faults in the given [start, end). The `share` of the rows of test (and of train, if
    `taught`) is faulty, in runs with a length between the two `lengths`. `spared` is the part of test without faults,
    from one share of its rows to another. A `lasting` family changes for good.
    """

    make: Callable[[Random, int, Spots, int], Array]
    train: int = 3000
    test: int = 4000
    share: float = 0.1
    lengths: tuple[int, int] = (20, 100)
    taught: bool = False
    ordered: bool = True
    spared: tuple[float, float] = (0.0, 0.0)
    lasting: bool = False


def slow(random: Random, n: int, d: int, memory: float = 0.95) -> Array:
    """Make stationary autoregressive columns of variance 1."""
    rows = random.normal(size=(n, d))
    rows[1:] *= np.sqrt(1.0 - memory**2)
    return lfilter([1.0], [1.0, -memory], rows, axis=0)


def following(values: Array, share: float) -> Array:
    """Follow values with a delay, from the first on."""
    return lfilter([share], [1.0, share - 1.0], values, zi=[(1.0 - share) * values[0]])[0]


def spoil(random: Random, rows: Array, spot: tuple[int, int], kinds: list[str], size: float) -> None:
    """Spoil one to three columns in a spot, by `size` standard deviations that they have in the first 500 rows."""
    start, end = spot
    columns = random.choice(rows.shape[1], random.integers(1, 4), replace=False)
    by = size * random.uniform(0.7, 1.3) * rows[:500, columns].std(axis=0) * random.choice([-1.0, 1.0], len(columns))
    kind = random.choice(kinds)
    if kind == "step":
        rows[start:end, columns] += by
    elif kind == "stuck":
        rows[start:end, columns] = rows[start, columns]
    elif kind == "ramp":
        rows[start:end, columns] += np.linspace(0.0, 1.0, end - start)[:, None] * by
    else:
        rows[start:end, columns] += by * random.normal(size=(end - start, len(columns)))


def gauss(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make independent rows, with independent or with correlated columns."""
    if variant:
        rows = random.normal(size=(n, 5)) @ random.normal(size=(5, 15)) + 0.3 * random.normal(size=(n, 15))
    else:
        rows = random.normal(size=(n, 8))
    for spot in spots:
        spoil(random, rows, spot, ["step"], 2.5 if variant else 5.0)
    return rows


def autoregressive(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make sensors of three slow causes."""
    rows = slow(random, n, 3) @ random.normal(size=(3, 10 + 5 * variant))
    rows += 0.2 * random.normal(size=rows.shape)
    for spot in spots:
        spoil(random, rows, spot, ["step", "stuck", "noise"], 0.8)
    return rows


def _circling(random: Random, n: int, d: int, moving: float) -> Array:
    """Make sensors around a ring, whose phases move by so many radians in all."""
    turned = np.cumsum(2 * np.pi / 80 * (1.0 + 0.5 * slow(random, n, 1, 0.9)[:, 0]))[:, None]
    phases, second = random.uniform(0.0, 2 * np.pi, (2, d))
    phases = phases + np.linspace(0.0, moving, n)[:, None] * random.uniform(-1.0, 1.0, d)
    rows = random.uniform(0.5, 2.0, d) * (np.sin(turned + phases) + 0.3 * np.sin(2 * turned + second))
    return rows + 0.08 * random.normal(size=(n, d))


def ring(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make sensors around a ring that turns irregularly."""
    rows = _circling(random, n, 6 + 6 * variant, 0.0)
    for spot in spots:
        spoil(random, rows, spot, ["step", "stuck", "noise"], 0.5)
    return rows


def clusters(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make rows of several kinds in no order, with far rows everywhere or in few directions."""
    d, count = 9, 6
    kinds = random.choice(count, n, p=random.dirichlet(np.full(count, 1.0)))
    centres, spreads = random.normal(scale=3.0, size=(count, d)), random.uniform(0.2, 1.0, (count, d))
    rows = centres[kinds] + spreads[kinds] * random.normal(size=(n, d))
    far = random.normal(size=(n, d))
    if variant:
        far = 0.3 * far + random.normal(size=(5, d))[random.integers(5, size=n)]
    for start, end in spots:
        rows[start:end] += 6.0 * random.uniform(0.3, 3.0) * far[start:end] / np.linalg.norm(far[start:end])
    return rows


def drifting(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make sensors whose offsets, or whose phases on a ring, move slowly all the time."""
    if variant:
        rows = _circling(random, n, 10, 1.5)
    else:
        rows = slow(random, n, 3, 0.9) @ random.normal(size=(3, 12)) + 0.2 * random.normal(size=(n, 12))
        rows += np.linspace(0.0, 3.0, n)[:, None] * random.uniform(-1.0, 1.0, 12)
    for spot in spots:
        spoil(random, rows, spot, ["step", "stuck", "ramp"], 1.2)
    return rows


def plant(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make a plant with controllers, in many units: disturbances that they hide, and faults in small directions."""
    d, k = ((24, 6), (44, 10))[variant]
    basis = np.linalg.qr(random.normal(size=(k, k)))[0]
    passing = basis @ np.diag(np.linspace(0.6, 0.97, k)) @ basis.T
    outputs, disturbed = random.normal(size=(k // 2, k)) / np.sqrt(k), np.zeros((n, k))
    noise, state, sums = 0.3 * random.normal(size=(n, k)), np.zeros(k), np.zeros(k // 2)
    causes = np.empty((n, k + k // 2))
    mixing, units = random.normal(size=(k + k // 2, d)), 10.0 ** random.uniform(-2.0, 3.0, d)
    blur, origin = 0.15 * random.normal(size=(n, d)), random.normal(scale=3.0, size=d)
    kinds = [("disturbance", "step", "ramp")[i % 3] for i in range(len(spots))]
    for kind, (start, end) in zip(kinds, spots, strict=True):
        if kind == "disturbance":
            disturbed[start:end] = 0.5 * random.choice([-1.0, 1.0], k) * (random.permutation(k) < 2)
    for i in range(n):
        controlled = outputs @ state
        sums = sums + 0.02 * controlled
        causes[i] = [*state, *(controlled + sums)]
        state = passing @ state - 0.2 * outputs.T @ (controlled + sums) + noise[i] + disturbed[i]
    measured = causes @ mixing
    measured /= measured[:500].std(axis=0)
    measured += blur
    variances, axes = np.linalg.eigh(np.cov(measured[:1000].T))
    for kind, (start, end) in zip(kinds, spots, strict=True):
        if kind != "disturbance":
            small = random.integers(d // 3)
            shape = np.ones(end - start) if kind == "step" else np.linspace(0.0, 1.0, end - start)
            measured[start:end] += 5.0 * np.sqrt(variances[small]) * np.outer(shape, axes[:, small])
    return units * (measured + origin)


def servers(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make gauges, counters, slow and nearly constant columns of a server with days and bursts."""
    each = (4, 7)[variant]
    times = np.arange(n) / 720
    bursts = lfilter([1.0], [1.0, -0.8], (random.random(n) < 0.01) * (random.pareto(2.0, n) + 0.3))
    usual = 0.4 * np.sin(2 * np.pi * (times + random.random())) + 0.2 * slow(random, n, 1, 0.98)[:, 0]
    demand = (np.exp(usual) + np.minimum(bursts, 8.0))[:, None]
    gauges = demand ** random.uniform(0.3, 1.2, each) * np.exp(0.1 * random.normal(size=(n, each)))
    counters = random.poisson(demand * 10.0 ** random.uniform(-1.0, 1.5, each)).astype(float)
    memory = lfilter([0.01], [1.0, -0.99], demand * random.uniform(0.5, 2.0, each), axis=0)
    memory += 0.02 * slow(random, n, each, 0.9) + (np.arange(n)[:, None] % random.integers(200, 600, each)) / 1000
    still = (random.random((n, each)) < 0.001) * random.uniform(0.0, 0.2, (n, each))
    heavy = np.abs(random.standard_t(2.5, size=(n, each)))
    rows = np.hstack([gauges, counters, memory, still, heavy])
    highest = np.maximum(rows.max(axis=0), 1e-3)
    for i, (start, end) in enumerate(spots):
        # Gauges and counters rise, memory leaks, columns that stood still move.
        part, size = i % 4, random.uniform(1.0, 4.0)
        columns = part * each + random.choice(each, random.integers(1, 4), replace=False)
        if part < 2:
            rows[start:end, columns] += size * (rows[start:end, columns] + rows[:, columns].std(axis=0))
        elif part == 2:
            rows[start:end, columns] += size * np.linspace(0.1, 0.3, end - start)[:, None]
        else:
            rows[start:end, columns] = 0.15 * size * random.random((end - start, len(columns)))
    return rows / highest


def occupancy(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make a room on changing days: temperature, humidity, light, carbon dioxide, moisture, and the heating."""
    day, times = 480, np.arange(n) / 480
    weather, clouds = slow(random, n // day + 2, 1, 0.3)[:, 0], random.uniform(0.2, 1.0, n // day + 2)
    weather = np.interp(times, np.arange(len(weather)), weather)
    sun = np.maximum(np.sin(2 * np.pi * (times - 0.25)), 0.0) * np.interp(times, np.arange(len(clouds)), clouds)
    outside = 5.0 + 4.0 * weather + 5.0 * np.sin(2 * np.pi * (times - 0.4))
    people, window = np.zeros(n), np.zeros(n)
    if variant:
        for morning in range(int(0.35 * day), n, day):
            begin = morning + random.integers(-20, 20)
            people[begin : begin + random.integers(150, 220)] = random.integers(1, 3)
    for start, end in spots:
        (window if variant else people)[start:end] = 1.0
    breath, opened = following(people, 0.03), following(window, 0.1)
    heated, temperature, inside = np.empty(n), np.empty(n), 20.0
    for i in range(n):
        heated[i] = inside < 20.0 if i == 0 or abs(inside - 20.0) > 0.4 else heated[i - 1]
        flow = 0.004 * (outside[i] - inside) * (1.0 + 3.0 * opened[i])
        inside += flow + 0.12 * heated[i] + 0.04 * sun[i] + 0.03 * breath[i]
        temperature[i] = inside
    humidity = 30.0 + 2.0 * following(weather, 0.02) + 3.0 * breath - 6.0 * opened - 0.8 * (temperature - 20.0)
    light = 400.0 * sun + 350.0 * (people > 0) + 3.0 * random.random(n)
    carbon = 420.0 + 450.0 * breath * (1.0 - 0.7 * opened) + 8.0 * slow(random, n, 1, 0.9)[:, 0]
    temperature += 0.1 * random.normal(size=n)
    humidity += 0.3 * random.normal(size=n)
    moisture = 3.8e-6 * humidity * 10.0 ** (7.5 * temperature / (237.3 + temperature)) * 6.11
    return np.column_stack([temperature, humidity, light, carbon, moisture, heated])


def regime(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make sensors that change for good after two thirds of the rows, in half of the columns or in all."""
    d, change = 12 + 6 * variant, int(0.62 * n)
    causes, mixing, other = slow(random, n, 3, 0.8), random.normal(size=(3, d)), random.normal(size=(3, d))
    other[:, : 0 if variant else d // 2] = mixing[:, : 0 if variant else d // 2]
    rows = np.tanh(causes @ mixing)
    rows[change:] = np.tanh(causes[change:] @ other) + 1.5 * (other != mixing)[0] * random.choice([-1.0, 1.0], d)
    rows += 0.1 * random.normal(size=(n, d))
    for spot in spots:
        spoil(random, rows, spot, ["step", "stuck", "noise"], 0.9)
    return rows


def sines(random: Random, n: int, spots: Spots, variant: int) -> Array:
    """Make mixtures of sines; in a spot, some columns miss one of their periods."""
    d, count = 8 + 8 * variant, 4
    times = np.arange(n)[:, None]
    waves = np.sin(2 * np.pi * times / random.uniform(15.0, 120.0, count) + random.uniform(0.0, 6.0, count))
    amplitudes = random.uniform(0.2, 1.2, (count, d))
    rows = waves @ amplitudes + 0.1 * random.normal(size=(n, d))
    for start, end in spots:
        columns, missing = random.choice(d, random.integers(1, 4), replace=False), random.integers(count)
        rows[start:end, columns] -= np.outer(waves[start:end, missing], amplitudes[missing, columns])
    return rows


FAMILIES = {
    "gauss": Family(gauss, share=0.03, lengths=(1, 1), ordered=False),
    "slow": Family(autoregressive),
    "ring": Family(ring),
    "clusters": Family(clusters, test=5000, share=0.07, lengths=(1, 1), taught=True, ordered=False),
    "drift": Family(drifting, test=6000, share=0.25, lengths=(100, 500)),
    "plant": Family(plant, test=7000, share=0.35, lengths=(200, 800)),
    "servers": Family(servers, train=4000, test=6000, share=0.06, lengths=(5, 200)),
    "occupancy": Family(occupancy, train=5760, test=3840, share=0.1, lengths=(30, 150)),
    "regime": Family(regime, test=7000, share=0.07, spared=(0.3, 0.7), lasting=True),
    "sines": Family(sines, taught=True),
}


def placed(random: Random, first: int, n: int, share: float, lengths: tuple[int, int]) -> Spots:
    """Place runs of rows, apart from each other, between two rows; short ones as often as long ones, on a log scale."""
    shortest, longest = np.log([lengths[0], lengths[1] + 1])
    each = np.arange(lengths[0], lengths[1] + 1)
    mean = float(each @ np.log1p(1.0 / each)) / (longest - shortest)
    count = max(round(share * (n - first) / mean), 1)
    slot, spots = (n - first) / count, Spots()
    for number in range(count):
        length = min(int(np.exp(random.uniform(shortest, longest))), max(int(0.8 * slot), 1))
        start = first + int(number * slot + random.random() * max(0.9 * slot - length, 0.0))
        spots.append((start, start + length))
    return spots


def made(name: str, seed: int, *, faults: bool = True, size: float = 1.0) -> Stream:
    """Make a stream of a family, with or without faults, with this share of its usual number of rows."""
    family = FAMILIES[name]
    train, test = (int(size * rows) for rows in (family.train, family.test))
    n, placing = train + test, np.random.default_rng([seed, 1])
    spots = Spots()
    if faults:
        spots += placed(placing, 0, train, family.share, family.lengths) if family.taught else []
        spots += placed(placing, train, n, family.share, family.lengths)
        early, late = (train + share * test for share in family.spared)
        spots = [(start, end) for start, end in spots if end <= early or start >= late]
    labels = np.zeros(n, dtype=bool)
    for start, end in spots:
        labels[start:end] = True
    rows = family.make(np.random.default_rng([seed, *name.encode()]), n, spots, seed % 2)
    return Stream(f"made {name}", f"seed {seed}", rows[:train], rows[train:], labels[train:], ordered=family.ordered)


def healthy(name: str, seed: int, n: int) -> Array:
    """Make rows of a family without faults."""
    return FAMILIES[name].make(np.random.default_rng([seed, *name.encode()]), n, [], seed % 2)


def with_isolated(
    rows: Array, novelty: Callable[[Array], Array], level: float, *, same: bool, share: float = 0.07, seed: int = 0
) -> tuple[Array, Array]:
    """Move single rows until a model's novelty of each is `level`, in the same or in random directions; with labels.

    Directions are drawn in units of the columns. Where no distance up to 1,000 gives the level, the row stays as it is.
    """
    random, out, labels = np.random.default_rng([seed, 2]), rows.copy(), np.zeros(len(rows), dtype=bool)
    labels[[start for start, _ in placed(random, 0, len(rows), share, (1, 1))]] = True
    chosen = rows[labels]
    directions = random.normal(size=(1 if same else len(chosen), rows.shape[1]))
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True) * rows.std(axis=0)
    near, far = np.full((2, len(chosen)), np.log([[1e-2], [1e3]]))
    reached = novelty(chosen + 1e3 * directions) >= level
    for _ in range(30):
        middle = (near + far) / 2
        above = novelty(chosen + np.exp(middle)[:, None] * directions) > level
        near, far = np.where(above, near, middle), np.where(above, middle, far)
    out[labels] = np.where(reached[:, None], chosen + np.exp(far)[:, None] * directions, chosen)
    labels[labels] = reached
    return out, labels


def with_gross_fault(rows: Array, *, first: int = 256, last: int = 512, seed: int = 0) -> tuple[Array, Array]:
    """Shift three columns by ten standard deviations in some rows; with labels."""
    random, out, labels = np.random.default_rng([seed, 3]), rows.copy(), np.zeros(len(rows), dtype=bool)
    columns = random.choice(rows.shape[1], min(3, rows.shape[1]), replace=False)
    out[first:last, columns] += 10.0 * rows[:, columns].std(axis=0) * random.choice([-1.0, 1.0], len(columns))
    labels[first:last] = True
    return out, labels


def contaminated(rows: Array, *, runs: bool, share: float = 0.1, first: int = 0, seed: int = 0) -> tuple[Array, Array]:
    """Shift a share of the rows from `first` on, alone or in runs, by 3 to 30 standard deviations; with labels."""
    random, out, labels = np.random.default_rng([seed, 4]), rows.copy(), np.zeros(len(rows), dtype=bool)
    for start, end in placed(random, first, len(rows), share, (20, 100) if runs else (1, 1)):
        by = random.normal(size=rows.shape[1])
        out[start:end] += 10.0 ** random.uniform(0.5, 1.5) * by / np.linalg.norm(by) * rows.std(axis=0)
        labels[start:end] = True
    return out, labels
