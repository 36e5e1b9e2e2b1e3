"""The whole algorithm in plain numpy: slow, obvious, and without a line of the package.

Where the package updates clever quantities, this file goes back to the definition. It keeps every row of the stream,
and what the summary would have recorded of it: a vector in the span of the atoms, as coefficients over them. Spans are
handled by solving with kernel matrices; nothing is orthonormalised, updated or deflated. Gradients are complex steps,
and a descent keeps its whole inverse Hessian.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag

Array = npt.NDArray[np.float64]

DEPENDENT = 1e-10
SAME_GAIN = 1e-6
PAUSE, LEAST_PAUSE, MOVING_PAUSE, LEAST_MOVING_PAUSE, LONGEST_PAUSE, UNUSUAL = 0.25, 0.0, 1.5, 0.25, 1024, 0.05
MOST_ROUNDS, WORTH_ANOTHER_ROUND = 10, 0.03
MOST_CANDIDATES, MOVING_CANDIDATES, SCREENING_ROWS, MOST_JUDGED = 2048, 512, 1024, 128
NEGLIGIBLE, TIE = 1e-12, 1e-12
SAMPLED_ROWS_PER_ATOM, LEAST_SAMPLED_ROWS, MOST_SAMPLED_ROWS = 50, 1024, 10240
FIRST_BLOCKS, MEMORY, ALLOWANCE, LARGEST_STEP, SIGNAL = 8, 64, 0.5, 4.0, 10.0
ROWS_TO_MOVE, DECIDING_ROWS, JUDGING_ROWS, SWAPPING_ROWS, EVALUATIONS = 4, 16, 1024, 4, 4
HORIZON, OPTIMISM = 2.0, 2.5
NEAREST, LEAST_LEFT, FIRST_LENGTH = 24, 0.03, 1.25
RIDGE, STEPS_KEPT, LEAST_GAIN, SHORTER, LEAST_CURVATURE = 1e-9, 5, 1e-4, 0.3, 1e-6
WORTH_ANOTHER_STEP, EXPLAINED = 1e-3, 1e-6
LEAST_VARIANCE_SHARE = 1e-9
ROWS_TO_SETTLE, COMPARED_ROWS, KNOWN_ROWS, LEAST_HELD_OUT = 4096, 1024, 128, 16
KNOWN_RANK, UNRESOLVED, NEARLY, CHANCE, NEAR = 1e-11, 1e-12, 0.9, 0.25, 0.2
BEYOND_CHANCE = 3.0 / np.sqrt(8.0)


@dataclass(frozen=True)
class Function:
    """A kernel k of squared distances or of inner products t, for real and for complex rows.

    `slope` is dk/dt, and `tangent` is |d phi(x) / dx_f|^2 in units of |dk/dt| near the row x.
    """

    values: Callable[[Any, Any], Any]
    slope: Callable[[Array, Array], Array]
    tangent: float = 1.0

    def __call__(self, X: Any, Y: Any) -> Any:
        """Kernel values of all pairs of rows."""
        return self.values(X, Y)


def linear() -> Function:
    """x.y."""
    return polynomial(1, 1.0, 0.0)


def polynomial(degree: int, gamma: float, coef0: float) -> Function:
    """(gamma x.y + coef0)^degree."""
    return Function(
        lambda X, Y: (gamma * X @ Y.T + coef0) ** degree,
        lambda X, Y: degree * gamma * (gamma * X @ Y.T + coef0) ** (degree - 1),
    )


def rbf(gamma: float) -> Function:
    """exp(-gamma |x - y|^2)."""

    def values(X: Any, Y: Any) -> Any:
        return np.exp(-gamma * ((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=2))

    return Function(values, lambda X, Y: -gamma * values(X, Y), tangent=2.0)


def energy_of(kernel: Function, rows: Any) -> Any:
    """k(x, x), row by row."""
    return np.array([kernel(row[None], row[None])[0, 0] for row in rows])


def coefficients_over(kernel: Function, atoms: Array, rows: Array) -> Array:
    """Project rows orthogonally onto the span of the atoms; return coefficients over the atoms, row by row."""
    return np.linalg.solve(kernel(atoms, atoms), kernel(atoms, rows)).T


def residual_gram(kernel: Function, atoms: Array, rows: Array) -> Array:
    """Inner products of what the rows have outside the span of the atoms."""
    if not len(atoms):
        return kernel(rows, rows)
    return kernel(rows, rows) - kernel(rows, atoms) @ coefficients_over(kernel, atoms, rows).T


def gain(column: Array, j: int, weights: Array) -> float:
    """Energy that row j would explain of its block, given the row's column of the residual Gram matrix."""
    return float(sum(a * r**2 / column[j] for a, r in zip(weights, column, strict=True)))


def farthest_of_best(gains: dict[int, float], R: Array) -> int:
    """Of the rows that gain most, up to a millionth, the one farthest from the span."""
    most = max(gains.values())
    return max((j for j in gains if gains[j] >= most - SAME_GAIN * abs(most)), key=lambda j: R[j, j])


def cautious_gain(products: Array, pivot: float, weights: Array, share: float) -> float:
    """Energy per unit of weight of the stream that a row would explain.

    The other rows, of these residual inner products with it, represent the stream, less one standard error of their
    mean; the row itself counts with its share.
    """
    if not weights.any():
        return -np.inf
    x = products**2 / pivot
    mean = np.average(x, weights=weights)
    deviation = np.sqrt(np.average((x - mean) ** 2, weights=weights))
    return float(mean - deviation * np.sqrt((weights**2).sum()) / weights.sum() + share * pivot)


@dataclass
class Scene:
    """Weighted rows, and what atoms leave unexplained of them."""

    kernel: Function
    rows: Array
    weights: Array

    @property
    def energy(self) -> float:
        """Weighted sum of k(x, x)."""
        return float(self.weights @ energy_of(self.kernel, self.rows))

    def coefficients(self, atoms: Any) -> Any:
        """Coefficients (m, n) over the atoms, with a ridge that leaves atoms free to meet."""
        ridge = RIDGE * energy_of(self.kernel, atoms).real
        return np.linalg.solve(self.kernel(atoms, atoms) + np.diag(ridge), self.kernel(atoms, self.rows))

    def unexplained(self, atoms: Any) -> Any:
        """Return the share of the energy that the atoms leave unexplained."""
        explained = (self.coefficients(atoms) * self.kernel(atoms, self.rows)).sum(axis=0)
        return 1.0 - self.weights @ explained / self.energy

    def gradient(self, atoms: Array) -> Array:
        """Differentiate `unexplained` by each number of the atoms: complex steps, which cancel no digits."""
        gradient = np.empty(atoms.shape)
        for place in np.ndindex(*atoms.shape):
            aside = atoms.astype(complex)
            aside[place] += 1e-30j
            gradient[place] = self.unexplained(aside).imag / 1e-30
        return gradient

    def curvature(self, atoms: Array) -> Array:
        """Second derivatives by each number of the atoms, as Gauss and Newton estimate them for an atom alone."""
        B, energy = self.coefficients(atoms), energy_of(self.kernel, atoms)
        steepness = np.abs(B * self.kernel.slope(atoms, self.rows)) @ self.weights
        steepness /= np.abs(B * self.kernel(atoms, self.rows)) @ self.weights
        by_atom = 2.0 * (B**2 @ self.weights) / self.energy * energy * self.kernel.tangent * steepness
        by_atom = np.maximum(by_atom, LEAST_CURVATURE * by_atom.max())
        return np.repeat(by_atom[:, None], atoms.shape[1], axis=1)

    def inverse_span(self, atoms: Array) -> Array:
        """Inverses (m, d, d) of what the nearest atoms leave of the squares of an atom's unit derivatives."""
        d, energy = atoms.shape[1], energy_of(self.kernel, atoms)
        K = self.kernel(atoms, atoms) / np.sqrt(np.outer(energy, energy))
        inverses = np.tile(np.eye(d), (len(atoms), 1, 1))
        for i, atom in enumerate(atoms):
            near = np.argsort(-K[i])[:NEAREST]
            length = np.sqrt(self.kernel.tangent * np.abs(self.kernel.slope(atom[None], atom[None])[0, 0]) * energy[i])
            G = np.empty((len(near), d))
            for f in range(d):
                aside = atom.astype(complex)
                aside[f] += 1e-30j
                G[:, f] = self.kernel(aside[None], atoms[near])[0].imag / 1e-30 / np.sqrt(energy[near]) / length
            left = (1.0 + LEAST_LEFT) * K[np.ix_(near, near)] - G @ G.T + RIDGE * np.eye(len(near))
            inverses[i] += G.T @ np.linalg.solve(left, G)
        return inverses


def descend(scene: Scene, atoms: Array, n_evaluations: int) -> Array:
    """Move atoms to where they leave less unexplained: BFGS, the inverse Hessian multiplied out from the last steps."""
    steps: list[tuple[Array, Array]] = []
    value, gradient, length = scene.unexplained(atoms), scene.gradient(atoms), FIRST_LENGTH
    spanned, n_steps = np.tile(np.eye(atoms.shape[1]), (len(atoms), 1, 1)), 2 * (n_evaluations - 1)
    if scene.kernel.tangent == 2.0:
        # Of squared distances, where atoms can go far in what their neighbours span.
        spanned, n_steps = scene.inverse_span(atoms), n_evaluations - 1
    for _ in range(n_steps):
        if value <= EXPLAINED:
            break
        roots = np.diag(1.0 / np.sqrt(scene.curvature(atoms).ravel()))
        inverse = roots @ block_diag(*spanned) @ roots
        if steps:
            s, y = steps[-1]
            inverse = inverse * (s @ y) / (y @ inverse @ y)
        for s, y in steps:
            change = np.eye(atoms.size) - np.outer(s, y) / (s @ y)
            inverse = change @ inverse @ change.T + np.outer(s, s) / (s @ y)
        direction = (inverse @ gradient.ravel()).reshape(atoms.shape)
        there = atoms - length * direction
        gained = value - scene.unexplained(there)
        if gained < LEAST_GAIN * length * (gradient * direction).sum():
            length *= SHORTER
            continue
        s, y = (there - atoms).ravel(), (scene.gradient(there) - gradient).ravel()
        if s @ y > 0.0:
            steps = [*steps, (s, y)][-STEPS_KEPT:]
        atoms, value, gradient, length = there, value - gained, scene.gradient(there), 1.0
        if gained < WORTH_ANOTHER_STEP * value:
            break
    return atoms


def apart(kernel: Function, atoms: Array) -> list[int]:
    """Places of the atoms that are independent of those before them."""
    kept: list[int] = []
    for place, atom in enumerate(atoms):
        outside = residual_gram(kernel, atoms[kept], atom[None])[0, 0]
        if outside > DEPENDENT * kernel(atom[None], atom[None])[0, 0]:
            kept.append(place)
    return kept


@dataclass(eq=False)
class Atom:
    """A row of the stream, by its position, or a point that has moved from there.

    `seen` are the rows that came since it was admitted, `column` its kernel values with the rows, as far as known.
    """

    origin: int
    point: Array
    has_moved: bool = False
    seen: set[int] = field(default_factory=set)
    column: Array = field(default_factory=lambda: np.empty(0))


@dataclass
class Axes:
    """Principal axes as combinations of atoms."""

    kernel: Function
    atoms: Array
    eigenvalues: Array
    combinations: Array
    mean: Array

    def transform(self, rows: Array) -> Array:
        """Inner products of rows, less the mean, with the axes."""
        centre = self.mean @ self.kernel(self.atoms, self.atoms)
        return (self.kernel(rows, self.atoms) - centre) @ self.combinations

    def reconstruction_error(self, rows: Array, n_components: int | None = None) -> Array:
        """Squared distances to the span of the atoms, or to the mean plus the first axes."""
        energy = np.array([self.kernel(row[None], row[None])[0, 0] for row in rows])
        if n_components is None:
            return np.maximum(np.diagonal(residual_gram(self.kernel, self.atoms, rows)), 0.0)
        mean_energy = self.mean @ self.kernel(self.atoms, self.atoms) @ self.mean
        to_mean = energy - 2.0 * self.kernel(rows, self.atoms) @ self.mean + mean_energy
        return to_mean - (self.transform(rows)[:, :n_components] ** 2).sum(axis=1)


class NaiveStream:
    """The state that a stream leaves, without any economy."""

    def __init__(
        self,
        kernel: Function,
        n_features: int,
        *,
        max_atoms: int | None,
        tolerance: float,
        half_life: float | None = None,
        atoms: str = "moved",
        seed: int = 0,
    ) -> None:
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.tolerance = tolerance
        self.half_life = half_life
        self.mode = atoms
        self.seed = seed
        self.sample_size = MOST_SAMPLED_ROWS
        if max_atoms is not None:
            self.sample_size = min(max(SAMPLED_ROWS_PER_ATOM * max_atoms, LEAST_SAMPLED_ROWS), MOST_SAMPLED_ROWS)
        self.rows = np.empty((0, n_features))
        self.energies = np.empty(0)
        self.weights = np.empty(0)
        self.arrival = np.empty(0)
        self.atoms: list[Atom] = []
        self.recorded = np.empty((0, 0))
        self.n_removed = 0
        self.n_put_off = 0
        self.n_drifts = 0
        self.n_replays = self.n_moves = self.n_refused = 0
        self.start_anew()

    def start_anew(self) -> None:
        """Reset the search schedule and the detection of drift."""
        self.countdown, self.usual_residual, self.spread, self.n_blocks = 0, np.inf, 0.0, 0
        self.n_rows_searched = 0
        self.start_new_level()

    def start_new_level(self) -> None:
        """Reset the detection of drift."""
        self.shares: list[float] = []
        self.level = self.variance = self.cusum_up = self.cusum_down = 0.0

    @property
    def moves_atoms(self) -> bool:
        """Whether atoms move."""
        return self.mode == "moved" and self.max_atoms is not None

    # The stream

    def advance(self, rows: Array, weights: Array) -> None:
        """Take in a block."""
        if self.max_atoms is not None:
            self.shrink(self.max_atoms)
        block = self.take(rows, weights)
        if self.atoms:
            self.watch(block)
        if self.max_atoms is None:
            if not self.is_explained(block):
                self.become(self.atoms, self.search_by_tolerance(block))
            self.record(block)
        elif self.is_explained(block) or not self.is_due(block):
            self.record(block)
        else:
            self.search(block, self.max_atoms)

    def take(self, rows: Array, weights: Array) -> range:
        """Take in the rows, their weights and their times in the race, but record nothing."""
        if self.half_life is not None:
            self.forget(2.0 ** (-len(rows) / self.half_life))
            weights = weights * 2.0 ** (-np.arange(len(rows))[::-1] / self.half_life)
        block = range(len(self.rows), len(self.rows) + len(rows))
        contents = sum(int(bits) for bits in rows.view(np.uint64).ravel()) % 2**64
        _, times = np.random.default_rng([self.seed, block.start, contents]).standard_exponential((2, len(rows)))
        self.rows = np.concatenate([self.rows, rows])
        self.energies = np.concatenate([self.energies, energy_of(self.kernel, rows)])
        self.weights = np.concatenate([self.weights, weights])
        with np.errstate(divide="ignore"):
            self.arrival = np.concatenate([self.arrival, np.log(times) - np.log(weights)])
        return block

    def record(self, block: range) -> None:
        """Record a block in the span of the atoms."""
        for atom in self.atoms:
            atom.seen |= set(block)
        self.recorded = np.concatenate([self.recorded, self.project(self.rows[block])])

    def forget(self, factor: float) -> None:
        """Multiply the weights of all rows by a factor."""
        self.weights = self.weights * factor
        self.arrival = self.arrival - np.log(factor)

    def merge(self, other: Self) -> None:
        """Take in the rows of another stream as if they had come after these."""
        offset, n = len(self.rows), len(self.rows) + len(other.rows)
        self.rows = np.concatenate([self.rows, other.rows])
        self.energies = np.concatenate([self.energies, other.energies])
        self.weights = np.concatenate([self.weights, other.weights])
        self.arrival = np.concatenate([self.arrival, other.arrival])
        self.sample_size = min(self.sample_size, other.sample_size)
        for atom in self.atoms:
            atom.seen |= set(range(offset, n))
        atoms = list(self.atoms)
        for atom in other.atoms:
            if self.is_independent(atoms, atom):
                seen = {offset + row for row in atom.seen} | set(range(offset))
                atoms.append(Atom(offset + atom.origin, atom.point, atom.has_moved, seen))
        recorded = np.pad(self.recorded, ((0, 0), (0, len(atoms) - len(self.atoms))))
        theirs = self.reprojected(other.recorded, other.atoms, atoms)
        self.atoms, self.recorded = atoms, np.concatenate([recorded, theirs])
        self.start_anew()
        if self.max_atoms is not None and len(self.atoms) > self.max_atoms:
            self.shrink(self.max_atoms)
            if self.moves_atoms:
                self.move()

    def shrink(self, max_atoms: int) -> None:
        """Remove atoms one by one, each time the one whose loss costs the sample least."""
        kept, sample = list(self.atoms), self.selection_sample()
        while len(kept) > max_atoms:
            costs = [
                loss + self.share(atom, 0.0) * outside
                for atom, (loss, outside) in zip(kept, self.sampled_losses(kept, *sample), strict=True)
            ]
            tie = min(costs) + TIE * max(self.energies[atom.origin] for atom in self.atoms)
            tied = [atom for atom, cost in zip(kept, costs, strict=True) if cost <= tie]
            kept.remove(max(tied, key=lambda atom: atom.origin))
        self.become(kept, [])

    def watch(self, block: range) -> None:
        """Page's test on the unexplained shares of blocks; a rise makes searches frequent again."""
        a, energy, residual = self.weights[block], self.energies[block], self.residuals(self.atoms, block)
        variation = self.variation(block)
        if variation == 0.0:
            return
        share = max(a @ residual, 0.0) / variation
        error = self.standard_error(a @ residual / a.sum(), a, energy) * a.sum() / variation
        share = max(share, self.tolerance)
        value = share
        if len(self.shares) >= FIRST_BLOCKS:
            deviation = max(np.sqrt(self.variance), error, 1e-9)
            step = float(np.clip((share - self.level) / deviation, -LARGEST_STEP, LARGEST_STEP))
            self.cusum_up = max(0.0, self.cusum_up + step - ALLOWANCE)
            self.cusum_down = max(0.0, self.cusum_down - step - ALLOWANCE)
            value = self.level + step * deviation
            if max(self.cusum_up, self.cusum_down) >= SIGNAL:
                if self.cusum_up >= SIGNAL:
                    self.n_drifts += 1
                    self.search_at_once(block)
                self.start_new_level()
                value = share
        self.shares.append(value)
        gain = 1.0 / min(len(self.shares), MEMORY)
        self.variance = (1.0 - gain) * (self.variance + gain * (value - self.level) ** 2)
        self.level += gain * (value - self.level)

    def search_at_once(self, block: range) -> None:
        """Search a block now if it leaves more than usual; be at most half as old as the rows that still count."""
        past = self.weights[: block.start]
        rows_that_count = past.sum() ** 2 / (past**2).sum()
        if self.mean_residual(block) > (1.0 + UNUSUAL) * self.usual_residual:
            self.countdown = 0
        self.n_blocks = min(self.n_blocks, int(rows_that_count / 2 / len(block)))

    def standard_error(self, mean: float, a: Array, energy: Array) -> float:
        """Predict the standard error of a block's mean residual from the last spread, or the largest possible."""
        mean = max(mean, 0.0)
        most = energy[a > 0.0].max()
        deviation = min(self.spread * mean, np.sqrt(mean * max(most - mean, 0.0)))
        return float(deviation * np.sqrt((a**2).sum()) / a.sum())

    def recount(self) -> None:
        """Record every row again in the span of the final atoms."""
        self.recorded = self.project(self.rows)
        for atom in self.atoms:
            atom.seen = set(range(len(self.rows)))

    def variation(self, block: range) -> float:
        """Energy that tolerances refer to: the block's share of the variance of all rows around their mean.

        The mean is that of the vectors recorded and of the block's projections; without atoms, of the rows themselves.
        """
        a = self.weights[block]
        if not a.any():
            return 0.0
        if self.atoms:
            vectors = np.concatenate([self.recorded, self.project(self.rows[block])])
            sums = self.weights @ vectors
            squared_sum = float(sums @ self.gram(self.atoms) @ sums)
        else:
            squared_sum = float(self.weights @ self.kernel(self.rows, self.rows) @ self.weights)
        total = self.weights.sum()
        variance = max(self.energy - squared_sum / total, LEAST_VARIANCE_SHARE * abs(self.energy)) / total
        return min(variance * a.sum(), abs(a @ self.energies[block]))

    def is_explained(self, block: range) -> bool:
        """Return whether a block leaves nothing to explain."""
        a, residual = self.weights[block], np.maximum(self.residuals(self.atoms, block), 0.0)
        explained = bool(a @ residual <= self.tolerance * self.variation(block))
        return not a.any() or (self.tolerance > 0.0 and explained)

    def is_due(self, block: range) -> bool:
        """Return whether to search a block: after the pause, or earlier if it is explained worse than usual."""
        self.n_blocks += 1
        n_paused = (block.start - self.n_rows_searched) // len(block)
        if self.countdown == 0:
            return True
        a, mean = self.weights[block], self.mean_residual(block)
        error = self.standard_error(mean, a, self.energies[block])
        least = LEAST_MOVING_PAUSE if self.moves_atoms else LEAST_PAUSE
        excess, usual = mean - 2.0 * error - self.usual_residual, self.usual_residual
        # The worse a block is explained, the sooner it is searched.
        if excess > UNUSUAL * usual and excess * (n_paused + 1) >= usual * least * (self.n_blocks - 1 - n_paused):
            return True
        # The first rows after a search show how much it leaves.
        if block.start == self.n_rows_searched:
            self.usual_residual = min(self.usual_residual, mean + error)
        self.countdown -= 1
        self.n_put_off += 1
        return False

    def search(self, block: range, max_atoms: int) -> None:
        """Search a block for atoms, record it and move the atoms."""
        residual, n_atoms = np.maximum(self.residuals(self.atoms, block), 0.0), len(self.atoms)
        mean = np.average(residual, weights=self.weights[block])
        is_worse = self.mean_residual(block) > (1.0 + UNUSUAL) * self.usual_residual
        if n_atoms < max_atoms:
            self.become(self.atoms, self.fill(block, max_atoms))
        # A move right after the choice of atoms leaves a swap little to find, and so do many rows that neither fade nor
        # are explained worse than usual.
        is_worse |= self.half_life is not None or len(self.selection_sample()[0]) < DECIDING_ROWS * len(self.atoms)
        if len(self.atoms) == max_atoms and (not self.moves_atoms or (n_atoms == max_atoms and is_worse)):
            self.swap(block, mean)
        in_block = self.mean_residual(block)
        self.record(block)
        if self.moves_atoms:
            self.move()
        everything = self.selection_sample()[0]
        pause: float = PAUSE
        if self.moves_atoms:
            # Later moves lose some of what is recorded, and need a cause.
            pause = MOVING_PAUSE if len(everything) < self.sample_size else np.inf
            if self.half_life is not None:
                n_counting = self.weights.sum() ** 2 / (self.weights @ self.weights)
                pause = min(pause, n_counting / len(block) / self.n_blocks)
        fills = n_atoms < len(self.atoms) < max_atoms
        self.countdown = 0 if fills else int(min(pause * self.n_blocks, LONGEST_PAUSE))
        deviation = np.sqrt(np.average((residual - mean) ** 2, weights=self.weights[block]))
        self.spread = float(deviation / mean) if mean > 0.0 else 0.0
        sample, normalised = self.selection_sample(SCREENING_ROWS)
        in_sample = float(normalised @ np.maximum(self.residuals(self.atoms, sample), 0.0))
        # Atoms that have moved for the sampled rows explain later ones less well.
        optimism = 1.0 + OPTIMISM * len(self.atoms) / len(everything)
        self.usual_residual = optimism * in_sample if self.moves_atoms else max(in_block, in_sample)
        self.n_rows_searched = block.stop

    def search_by_tolerance(self, block: range) -> list[Atom]:
        """Choose rows until the block is explained."""
        a, tolerated = self.weights[block], self.tolerance * self.variation(block)
        joined: list[Atom] = []
        while True:
            R = self.residual_gram(self.atoms + joined, block)
            if self.tolerance > 0.0 and a @ np.diagonal(R) <= tolerated:
                return joined
            gains = {j: gain(R[:, j], j, a) for j in self.candidates(R, block, joined)}
            if not gains:
                return joined
            joined.append(self.atom(block[farthest_of_best(gains, R)]))

    def fill(self, block: range, max_atoms: int) -> list[Atom]:
        """Choose rows that are worth an atom below the budget."""
        joined: list[Atom] = []
        least_gain = self.tolerance * self.variation(block) / self.weights[block].sum() / max_atoms
        while len(self.atoms) + len(joined) < max_atoms:
            atoms = self.atoms + joined
            R, a, total_weight = self.residual_gram(atoms, block), self.weights[block], self.weights.sum()
            gains = {
                j: cautious_gain(np.delete(R[:, j], j), R[j, j], np.delete(a, j), a[j] / total_weight)
                if atoms
                else gain(R[:, j], j, a)
                for j in self.candidates(R, block, joined)
            }
            best = farthest_of_best(gains, R) if gains else None
            if best is None or gains[best] <= 0.0:
                break
            if atoms and gains[best] <= least_gain:
                break
            joined.append(self.atom(block[best]))
        return joined

    def swap(self, block: range, mean: float) -> None:
        """Let rows sampled since the last search replace atoms, each time the pair that gains most.

        Atoms that move find their places themselves: one round, by a part of the sample, is enough for them, and a row
        counts for itself only by what it weighs beyond the mean.
        """
        whole, most = self.selection_sample()[0], MOST_CANDIDATES
        sample, n_rounds, usual_weight = self.selection_sample(), MOST_ROUNDS, 0.0
        if self.moves_atoms:
            most, n_rounds, usual_weight = MOVING_CANDIDATES, 1, float(self.weights[whole].mean())
            sample = self.selection_sample(max(SWAPPING_ROWS * len(self.atoms), SCREENING_ROWS))
        candidates = [self.atom(row) for row in whole if row >= self.n_rows_searched][:most]
        for _ in range(n_rounds):
            present = {atom.origin for atom in self.atoms if not atom.has_moved}
            gains = {new: self.sampled_gain(new, usual_weight) for new in candidates if new.origin not in present}
            candidates = [new for new in sorted(gains, key=lambda new: -gains[new]) if gains[new] > 0.0]
            waiting, candidates = candidates[:MOST_JUDGED], candidates[: 4 * MOST_JUDGED]
            atoms, recorded, total_profit = list(self.atoms), self.recorded, 0.0
            while waiting:
                offers = {new: self.offer(atoms, recorded, new, block, *sample, usual_weight) for new in waiting}
                best = max(waiting, key=lambda new: offers[new][0])
                profit, rival = offers[best]
                if profit <= 0.0:
                    break
                rest = without(atoms, rival)
                recorded = np.pad(self.reprojected(recorded, atoms, rest), ((0, 0), (0, 1)))
                atoms = [*rest, best]
                waiting.remove(best)
                total_profit += profit
            if atoms == self.atoms:
                break
            self.become([atom for atom in self.atoms if atom in atoms], [new for new in atoms if new not in self.atoms])
            if total_profit <= WORTH_ANOTHER_ROUND * mean:
                break

    def sampled_gain(self, new: Atom, usual_weight: float) -> float:
        """Cautious gain of a row, as a part of the sample shows it."""
        sample, normalised = self.selection_sample(SCREENING_ROWS)
        pivot = self.outside(self.atoms, new)
        if self.weights[new.origin] == 0.0 or not self.is_independent(self.atoms, new):
            return -np.inf
        K, others = self.gram(self.atoms), np.array(sample) != new.origin
        along = np.linalg.solve(K, self.kernel(self.points(self.atoms), new.point[None]))[:, 0]
        products = self.columns([new])[0] - along @ self.columns(self.atoms)
        return cautious_gain(products[sample][others], pivot, normalised[others], self.share(new, usual_weight))

    def offer(
        self,
        atoms: list[Atom],
        recorded: Array,
        new: Atom,
        block: range,
        sample: list[int],
        normalised: Array,
        usual_weight: float,
    ) -> tuple[float, Atom]:
        """Return what the stream gains if a row replaces the cheapest atom, and that atom."""
        if not self.is_independent(atoms, new):
            return -np.inf, new
        *losses, (won, pivot) = self.sampled_losses([*atoms, new], sample, normalised)
        win = won + self.share(new, usual_weight) * pivot
        costs = {}
        past = self.weights[: block.start]
        for place, (atom, (lost, outside)) in enumerate(zip(atoms, losses, strict=True)):
            loss = max(lost, 0.0)
            costs[atom] = loss + self.share(atom, usual_weight) * outside
            seen = self.weights[sorted(atom.seen)].sum()
            # The moments count if they record more rows of average weight than the sample has.
            if atom in self.atoms and seen * past.sum() / max((past**2).sum(), 1e-300) > len(sample):
                alone, _ = self.sampled_losses(atoms, sample, normalised)[place]
                record = self.recorded_loss(atoms, recorded, atom) / seen
                in_sample = alone > NEGLIGIBLE * self.energies[block].max()
                costs[atom] = max(costs[atom], record * (min(loss / alone, 1.0) if in_sample else 1.0))
        rival = min(atoms, key=lambda atom: costs[atom])
        return float(win - costs[rival] - NEGLIGIBLE), rival

    def share(self, atom: Atom, usual_weight: float) -> float:
        """Share of the stream that an atom's row counts for by itself."""
        return float(max(self.weights[atom.origin] - usual_weight, 0.0) / self.weights.sum())

    def move(self, *, decided_by_all: bool = False) -> None:
        """Move the atoms to where they leave less unexplained, if that outweighs what they lose of what is recorded."""
        sample, stands_for = self.sample()
        if len(sample) < ROWS_TO_MOVE * max(len(self.atoms), 1):
            return
        holds_all = len(sample) < self.sample_size
        n = DECIDING_ROWS * len(self.atoms)
        n = min(max(n, JUDGING_ROWS), len(sample)) if holds_all else min(n, len(sample) // 2)
        n = len(sample) if decided_by_all else n
        judging = slice(JUDGING_ROWS) if holds_all else slice(n, n + JUDGING_ROWS)
        scene = Scene(self.kernel, self.rows[sample[:n]], stands_for[:n])
        there = descend(scene, self.points(self.atoms), EVALUATIONS)
        moved = [
            Atom(atom.origin, point, atom.has_moved or bool((point != atom.point).any()), set(atom.seen))
            for atom, point in zip(self.atoms, there, strict=True)
        ]
        moved = [moved[place] for place in apart(self.kernel, there)]
        if np.array_equal(self.points(moved), self.points(self.atoms)):
            moved = self.atoms
        a = stands_for[judging]
        left, leaves = (self.residuals(atoms, sample[judging]) for atoms in (self.atoms, moved))
        gained = a @ (left - leaves) / a.sum() * self.weights.sum()
        if holds_all:
            if gained > 0.0:
                self.atoms = moved
                self.n_replays += 1
            self.recount()
        else:
            recorded, before = self.reprojected(self.recorded, self.atoms, moved), self.recorded_energy
            kept = float(self.weights @ self.lengths(recorded, moved))
            if HORIZON * gained <= before - kept:
                self.n_refused += 1
                return
            self.atoms, self.recorded = moved, recorded
            self.n_moves += 1

    def sample(self, most: int = MOST_SAMPLED_ROWS) -> tuple[list[int], Array]:
        """Return the first rows to arrive, at most so many, and the weights that they stand for."""
        running = np.flatnonzero(self.weights > 0.0)
        size = min(self.sample_size, most)
        first = running[np.argsort(self.arrival[running], kind="stable")][:size]
        a = self.weights[first]
        if len(first) == size:
            a = a / -np.expm1(-a * np.exp(self.arrival[first[-1]]))
            a[-1] = 0.0
        return first.tolist(), a

    def selection_sample(self, most: int = MOST_SAMPLED_ROWS) -> tuple[list[int], Array]:
        """Return the first rows to arrive, at most so many, and their normalised weights."""
        sample, a = self.sample(most)
        return sample, a / a.sum()

    def sampled_losses(self, atoms: list[Atom], sample: list[int], normalised: Array) -> list[tuple[float, float]]:
        """Return for each atom what the sample would lose without it, and its squared distance to the others.

        An atom's own row is left out; the row that an atom has moved from counts as if it had come along.
        """
        K, cross, rows = self.gram(atoms), self.columns(atoms)[:, sample], np.array(sample)
        explained = (cross * np.linalg.solve(K, cross)).sum(axis=0)
        losses = []
        for place, atom in enumerate(atoms):
            rest = np.arange(len(atoms)) != place
            others, products = K[np.ix_(rest, rest)], K[rest, place]
            outside = K[place, place] - products @ np.linalg.solve(others, products)
            lost = explained - (cross[rest] * np.linalg.solve(others, cross[rest])).sum(axis=0)
            losses.append((float(normalised @ lost - normalised[rows == atom.origin].sum() * outside), float(outside)))
        return losses

    def recorded_loss(self, atoms: list[Atom], recorded: Array, atom: Atom) -> float:
        """Energy that the recorded vectors would lose if projected onto the other atoms."""
        rest, place = without(atoms, atom), atoms.index(atom)
        lost = recorded - np.insert(self.reprojected(recorded, atoms, rest), place, 0.0, axis=1)
        return float(self.weights[: len(recorded)] @ self.lengths(lost, atoms))

    def candidates(self, R: Array, block: range, joined: list[Atom]) -> list[int]:
        """Places in the block of rows that could become atoms: with weight, and independent of the atoms."""
        taken = {atom.origin for atom in joined}
        return [
            j
            for j, row in enumerate(block)
            if self.weights[row] > 0.0 and row not in taken and R[j, j] > DEPENDENT * self.energies[row]
        ]

    def become(self, stayed: list[Atom], joined: list[Atom]) -> None:
        """Change the atoms: recorded vectors are projected onto the new span, which may hold all of the old one."""
        self.n_removed += len(self.atoms) - len(stayed)
        self.recorded = self.reprojected(self.recorded, self.atoms, stayed + joined)
        self.atoms = stayed + joined

    # Spans

    def points(self, atoms: list[Atom]) -> Array:
        """Where atoms are."""
        return np.array([atom.point for atom in atoms]).reshape(len(atoms), self.rows.shape[1])

    def gram(self, atoms: list[Atom]) -> Array:
        """Kernel values of atoms with each other."""
        return np.asarray(self.kernel(self.points(atoms), self.points(atoms)))

    def atom(self, row: int) -> Atom:
        """Make an atom of a row."""
        return Atom(row, self.rows[row])

    def columns(self, atoms: list[Atom]) -> Array:
        """Kernel values of atoms with all rows, each computed once."""
        for atom in atoms:
            if len(atom.column) < len(self.rows):
                new = self.kernel(atom.point[None], self.rows[len(atom.column) :])[0]
                atom.column = np.concatenate([atom.column, new])
        return np.array([atom.column for atom in atoms]).reshape(len(atoms), len(self.rows))

    def residuals(self, atoms: list[Atom], rows: list[int] | range) -> Array:
        """Squared distances of rows to the span of atoms."""
        cross = self.columns(atoms)[:, list(rows)]
        explained = cross * np.linalg.solve(self.gram(atoms), cross) if atoms else cross
        return np.asarray(self.energies[list(rows)] - explained.sum(axis=0))

    def mean_residual(self, block: range) -> float:
        """Weighted mean of the residuals of a block's rows."""
        return float(np.average(np.maximum(self.residuals(self.atoms, block), 0.0), weights=self.weights[block]))

    def outside(self, atoms: list[Atom], atom: Atom) -> float:
        """Squared distance of an atom to the span of others."""
        return float(residual_gram(self.kernel, self.points(atoms), atom.point[None])[0, 0])

    def is_independent(self, atoms: list[Atom], atom: Atom) -> bool:
        """Return whether an atom is outside the span of others."""
        return self.outside(atoms, atom) > DEPENDENT * energy_of(self.kernel, atom.point[None])[0]

    def project(self, rows: Array) -> Array:
        """Coefficients of the rows' projections over the atoms."""
        return coefficients_over(self.kernel, self.points(self.atoms), rows)

    def residual_gram(self, atoms: list[Atom], block: range) -> Array:
        """Residual inner products of a block's rows."""
        return residual_gram(self.kernel, self.points(atoms), self.rows[block])

    def reprojected(self, recorded: Array, atoms: list[Atom], others: list[Atom]) -> Array:
        """Project vectors, given over some atoms, onto the span of others."""
        if others == atoms:
            return recorded
        inner = recorded @ self.kernel(self.points(atoms), self.points(others))
        return np.linalg.solve(self.gram(others), inner.T).T

    def lengths(self, recorded: Array, atoms: list[Atom]) -> Array:
        """Squared lengths of vectors given over atoms."""
        return np.einsum("ni,ij,nj->n", recorded, self.gram(atoms), recorded)

    # Answers

    @property
    def energy(self) -> float:
        """Weighted sum of k(x, x)."""
        return float(self.weights @ self.energies)

    @property
    def recorded_energy(self) -> float:
        """Weighted squared lengths of the recorded vectors."""
        return float(self.weights @ self.lengths(self.recorded, self.atoms))

    @property
    def positions(self) -> list[int]:
        """Positions of the atoms' rows; the complements of those that atoms have moved from."""
        return [~atom.origin if atom.has_moved else atom.origin for atom in self.atoms]

    def recorded_gram(self) -> Array:
        """Inner products of the recorded vectors, shape (n, n)."""
        return np.asarray(self.recorded @ self.gram(self.atoms) @ self.recorded.T)

    def with_pending(self, rows: Array, weights: Array) -> Self:
        """Return a copy that has taken in a block that is not full."""
        twin = deepcopy(self)
        if len(rows):
            twin.advance(rows, weights)
        elif self.max_atoms is not None:
            twin.shrink(self.max_atoms)
        return twin

    def axes(self, n_components: int, *, center: bool) -> Axes:
        """Kernel PCA of the recorded vectors by their own (n, n) Gram matrix."""
        a, n = self.weights, len(self.weights)
        mean = a / a.sum() if center else np.zeros(n)
        centring = np.eye(n) - np.outer(np.ones(n), mean)
        divisor = a.sum() - (a**2).sum() / a.sum() if center else a.sum()
        root = np.sqrt(a)
        values, vectors = np.linalg.eigh(np.outer(root, root) * (centring @ self.recorded_gram() @ centring.T))
        values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
        combinations = (centring @ self.recorded).T @ (root[:, None] * vectors) / np.sqrt(values)
        return Axes(self.kernel, self.points(self.atoms), values / divisor, combinations, mean @ self.recorded)


def without(atoms: list[Atom], atom: Atom) -> list[Atom]:
    """All atoms but one."""
    return [other for other in atoms if other is not atom]


def learn(rows: Array, weights: Array, kernel: Function, *, block_size: int, **settings: Any) -> NaiveStream:
    """Take in a stream block by block, including an incomplete block at its end."""
    stream = NaiveStream(kernel, rows.shape[1], **settings)
    for block in blocks_of(rows, block_size):
        stream.advance(rows[block], weights[block])
    return stream


def fit(
    rows: Array, weights: Array, kernel: Function, *, block_size: int, half_life: float | None = None, **settings: Any
) -> NaiveStream:
    """Choose atoms in a first pass, with a budget from a sample of all rows in random order; record in a second."""
    if settings["max_atoms"] is None:
        stream = learn(rows, weights, kernel, block_size=block_size, half_life=half_life, **settings)
    else:
        stream = NaiveStream(kernel, rows.shape[1], half_life=half_life, **settings)
        for block in blocks_of(rows, block_size):
            stream.take(rows[block], weights[block])
        sample, stands_for = stream.sample()
        order = np.argsort(sample)[np.random.default_rng(stream.seed).permutation(len(sample))]
        chooser = NaiveStream(kernel, rows.shape[1], **settings)
        chooser.sample_size = len(sample) + 1
        for block in blocks_of(order, block_size):
            chooser.advance(rows[sample][order[block]], stands_for[order[block]])
        if chooser.moves_atoms:
            chooser.move(decided_by_all=True)
        stream.atoms = [Atom(sample[order[atom.origin]], atom.point, atom.has_moved) for atom in chooser.atoms]
        stream.n_replays = chooser.n_replays
    stream.recount()
    return stream


def widths_of(rows: Array, weights: Array) -> Array:
    """Gamma of the RBF kernel for the sum of the features' variances, and for distances up to 32 times as large."""
    mean = np.average(rows, axis=0, weights=weights)
    spread = float(np.average((rows - mean) ** 2, axis=0, weights=weights).sum())
    return np.array([1.0 / ((spread or 1.0) * 10.0 ** (step / 2)) for step in range(7)])


def held_out_share(n: int) -> tuple[list[int], list[int]]:
    """Places, among n rows, of the known rows and of those held out, in quarters."""
    places = [int(place) for place in np.linspace(0, n - 1, min(n, COMPARED_ROWS))]
    known = [place for place in places if 4 * place // n % 2 == 0]
    held_out = [place for place in places if 4 * place // n % 2 == 1]
    return [known[int(i)] for i in np.linspace(0, len(known) - 1, min(len(known), KNOWN_ROWS))], held_out


def explained_shares(kernel: Function, known: Array, rows: Array) -> Array:
    """Share of each row's energy inside the span of the known rows, those left out that hardly differ from others."""
    spanning: list[int] = []
    largest = energy_of(kernel, known).max()
    while len(spanning) < len(known):
        outside = np.diagonal(residual_gram(kernel, known[spanning], known))
        if outside.max() <= KNOWN_RANK * largest:
            break
        spanning.append(int(np.argmax(outside)))
    factor = np.linalg.cholesky(kernel(known[spanning], known[spanning]))
    inside = np.linalg.solve(factor, kernel(known[spanning], rows))
    shares = (inside**2).sum(axis=0) / energy_of(kernel, rows)
    return np.where(shares > 1.0 - UNRESOLVED, 1.0, shares)


def contrast(kernel: Function, rows: Array, weights: Array) -> float:
    """Area under the ROC curve of copies in which one number is that of another row.

    Copies are found as rows that are explained less well.
    """
    known, held_out = held_out_share(len(rows))
    X, a = rows[held_out], weights[held_out]
    varying = [column for column in range(rows.shape[1]) if len(X) and len(set(X[:, column])) > 1]
    if len(held_out) < LEAST_HELD_OUT or not varying:
        return 0.5
    random = np.random.default_rng(0)
    columns, donors = random.choice(varying, 2 * len(X)), random.integers(len(X), size=2 * len(X))
    copies, copied = [], []
    for number, (column, donor) in enumerate(zip(columns, donors, strict=True)):
        copy = X[number % len(X)].copy()
        copy[column] = X[donor, column]
        if copy[column] != X[number % len(X), column]:
            copies.append(copy)
            copied.append(number % len(X))
    if not copies:
        return 0.5
    usual, odd = (explained_shares(kernel, rows[known], part) for part in (X, np.array(copies)))
    found = 0.0
    for explained, row in zip(odd, copied, strict=True):
        found += a[row] * (a[usual > explained].sum() + 0.5 * a[usual == explained].sum()) / a.sum()
    return float(found / a[copied].sum())


def settled_gamma(rows: Array, weights: Array) -> float:
    """Gamma of the narrowest RBF kernel whose contrast is nearly the best, beyond chance."""
    rows, weights = rows[weights > 0.0], weights[weights > 0.0]
    gammas = widths_of(rows, weights)
    excess = [max(contrast(rbf(gamma), rows, weights) - 0.5, 0.0) for gamma in gammas]
    n_held_out = max(len(held_out_share(len(rows))[1]), 1)
    if max(excess) < BEYOND_CHANCE / np.sqrt(n_held_out):
        return float(gammas[0])
    wanted = NEARLY * max(excess) - CHANCE / np.sqrt(n_held_out)
    first = [value >= wanted for value in excess].index(True)
    if first == 0:
        return float(gammas[0])
    before = max(excess[:first])
    share = (wanted - before) / (excess[first] - before)
    return float(gammas[first - 1] ** (1.0 - share) * gammas[first] ** share)


def gamma_of_stream(rows: Array, weights: Array, block_size: int) -> float:
    """Gamma that a stream arrives at, settled after 1, 2, 4 ... blocks and after so many rows that it is final."""
    first = int(np.flatnonzero(weights)[0]) // block_size * block_size
    rows, weights = rows[first:], weights[first:]
    if len(rows) < block_size:
        return settled_gamma(rows, weights)
    gamma = 0.0
    for n_blocks in range(1, len(rows) // block_size + 1):
        n = n_blocks * block_size
        if n_blocks in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) or n >= ROWS_TO_SETTLE:
            other = settled_gamma(rows[:n], weights[:n])
            if abs(other - gamma) > NEAR * max(gamma, other):
                gamma = other
        if n >= ROWS_TO_SETTLE:
            break
    return gamma


def blocks_of(rows: Array, block_size: int) -> list[slice]:
    """Cut rows into blocks, the last one perhaps shorter."""
    return [slice(start, start + block_size) for start in range(0, len(rows), block_size)]
