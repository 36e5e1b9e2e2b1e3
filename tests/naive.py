"""The whole algorithm in plain numpy: slow, obvious, and without a line of the package.

Where the package updates clever quantities, this file goes back to the definition. It keeps every row of the stream,
and what the summary would have recorded of it: a vector in the span of the atoms, as coefficients over them. Spans are
handled by solving with kernel matrices; nothing is orthonormalised, updated or deflated.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Function = Callable[[Array, Array], Array]

DEPENDENT = 1e-10
PAUSE, LONGEST_PAUSE, UNUSUAL = 0.25, 1024, 1.05
MOST_ROUNDS, WORTH_ANOTHER_ROUND = 10, 0.03
MOST_CANDIDATES, SCREENING_ROWS, MOST_JUDGED = 2048, 1024, 128
NEGLIGIBLE, TIE = 1e-12, 1e-12
SAMPLED_ROWS_PER_ATOM, LEAST_SAMPLED_ROWS, MOST_SAMPLED_ROWS = 50, 1024, 10240
FIRST_BLOCKS, MEMORY, ALLOWANCE, LARGEST_STEP, SIGNAL = 8, 64, 0.5, 4.0, 10.0


def linear() -> Function:
    """x.y."""
    return lambda X, Y: X @ Y.T


def polynomial(degree: int, gamma: float, coef0: float) -> Function:
    """(gamma x.y + coef0)^degree."""
    return lambda X, Y: (gamma * X @ Y.T + coef0) ** degree


def rbf(gamma: float) -> Function:
    """exp(-gamma |x - y|^2)."""
    return lambda X, Y: np.exp(-gamma * ((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=2))


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
        seed: int = 0,
    ) -> None:
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.tolerance = tolerance
        self.half_life = half_life
        self.seed = seed
        self.rows = np.empty((0, n_features))
        self.weights = np.empty(0)
        self.arrival = np.empty(0)
        self.atoms: list[int] = []
        self.seen: dict[int, set[int]] = {}
        self.recorded = np.empty((0, 0))
        self._gram = np.empty((0, 0))
        self.n_removed = 0
        self.n_put_off = 0
        self.n_drifts = 0
        self.start_anew()

    def start_anew(self) -> None:
        """Reset the search schedule and the detection of drift."""
        self.reset_schedule()
        self.n_rows_searched = 0
        self.shares: list[float] = []
        self.level = self.variance = self.cusum_up = self.cusum_down = 0.0

    def reset_schedule(self) -> None:
        """Search as often as at the beginning."""
        self.countdown, self.usual_residual, self.spread, self.n_blocks = 0, np.inf, 0.0, 0

    # The stream

    def advance(self, rows: Array, weights: Array) -> None:
        """Take in a block."""
        if self.max_atoms is not None:
            self.shrink(self.max_atoms)
        if self.half_life is not None:
            self.forget(2.0 ** (-len(rows) / self.half_life))
            weights = weights * 2.0 ** (-np.arange(len(rows))[::-1] / self.half_life)
        block = range(len(self.rows), len(self.rows) + len(rows))
        contents = sum(int(bits) for bits in rows.view(np.uint64).ravel()) % 2**64
        _, times = np.random.default_rng([self.seed, block.start, contents]).standard_exponential((2, len(rows)))
        self.rows = np.concatenate([self.rows, rows])
        self.weights = np.concatenate([self.weights, weights])
        with np.errstate(divide="ignore"):
            self.arrival = np.concatenate([self.arrival, np.log(times) - np.log(weights)])
        if self.atoms:
            self.watch(block)
        self.search(block)
        for atom in self.atoms:
            self.seen[atom] |= set(block)
        self.recorded = np.concatenate([self.recorded, self.project(self.atoms, rows)])

    def forget(self, factor: float) -> None:
        """Multiply the weights of all rows by a factor."""
        self.weights = self.weights * factor
        self.arrival = self.arrival - np.log(factor)

    def merge(self, other: Self) -> None:
        """Take in the rows of another stream as if they had come after these."""
        offset, n = len(self.rows), len(self.rows) + len(other.rows)
        self.rows = np.concatenate([self.rows, other.rows])
        self.weights = np.concatenate([self.weights, other.weights])
        self.arrival = np.concatenate([self.arrival, other.arrival])
        for atom in self.atoms:
            self.seen[atom] |= set(range(offset, n))
        joined: list[int] = []
        for atom in other.atoms:
            gram = self.residual_gram(self.atoms + joined, range(offset + atom, offset + atom + 1))
            if gram[0, 0] > DEPENDENT * self.kernel(self.rows[[offset + atom]], self.rows[[offset + atom]])[0, 0]:
                joined.append(offset + atom)
                self.seen[offset + atom] = {offset + row for row in other.seen[atom]} | set(range(offset))
        recorded = np.pad(self.recorded, ((0, 0), (0, len(joined))))
        atoms = self.atoms + joined
        inner = other.recorded @ self.kernel(other.rows[other.atoms], self.rows[atoms])
        theirs = np.linalg.solve(self.kernel(self.rows[atoms], self.rows[atoms]), inner.T).T
        self.atoms, self.recorded = atoms, np.concatenate([recorded, theirs])
        self.start_anew()
        if self.max_atoms is not None:
            self.shrink(self.max_atoms)

    def shrink(self, max_atoms: int) -> None:
        """Remove atoms one by one, each time the one whose loss costs the sample least."""
        kept = list(self.atoms)
        while len(kept) > max_atoms:
            costs = {}
            for atom in kept:
                rest = [other for other in kept if other != atom]
                own = self.residuals(rest, [atom])[0] * self.weights[atom] / self.weights.sum()
                costs[atom] = self.sampled_loss(kept, atom) + own
            tie = TIE * np.diagonal(self._gram)[kept].max()
            kept.remove(max(atom for atom in kept if costs[atom] <= min(costs.values()) + tie))
        self.become(kept, [])

    def watch(self, block: range) -> None:
        """Page's test on the unexplained shares of blocks; a rise makes searches frequent again."""
        a = self.weights[block]
        energy = np.diagonal(self.kernel(self.rows[block], self.rows[block]))
        residual = np.diagonal(self.residual_gram(self.atoms, block))
        if a @ energy == 0.0:
            return
        share = max(a @ residual, 0.0) / (a @ energy)
        error = self.standard_error(a @ residual / a.sum(), a, energy) * a.sum() / (a @ energy)
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
                    self.reset_schedule()
                self.shares, self.cusum_up, self.cusum_down = [], 0.0, 0.0
                self.level = self.variance = 0.0
                value = share
        self.shares.append(value)
        gain = 1.0 / min(len(self.shares), MEMORY)
        self.variance = (1.0 - gain) * (self.variance + gain * (value - self.level) ** 2)
        self.level += gain * (value - self.level)

    def standard_error(self, mean: float, a: Array, energy: Array) -> float:
        """Predict the standard error of a block's mean residual from the last spread, or the largest possible."""
        mean = max(mean, 0.0)
        most = energy[a > 0.0].max()
        deviation = min(self.spread * mean, np.sqrt(mean * max(most - mean, 0.0)))
        return float(deviation * np.sqrt((a**2).sum()) / a.sum())

    def recount(self) -> None:
        """Record every row again in the span of the final atoms."""
        self.recorded = self.project(self.atoms, self.rows)
        self.seen = {atom: set(range(len(self.rows))) for atom in self.atoms}

    def search(self, block: range) -> None:
        """Search a block for atoms."""
        if self.is_explained(block):
            return
        if self.max_atoms is None:
            self.become(self.atoms, self.search_by_tolerance(block))
            return
        a, energy = self.weights[block], np.diagonal(self.kernel(self.rows[block], self.rows[block]))
        residual = np.maximum(np.diagonal(self.residual_gram(self.atoms, block)), 0.0)
        mean = np.average(residual, weights=a)
        self.n_blocks += 1
        if self.countdown > 0 and mean - 2.0 * self.standard_error(mean, a, energy) <= UNUSUAL * self.usual_residual:
            self.countdown -= 1
            self.n_put_off += 1
            return
        n_atoms = len(self.atoms)
        if n_atoms < self.max_atoms:
            self.become(self.atoms, self.fill(block, self.max_atoms))
        fills = n_atoms < len(self.atoms) < self.max_atoms
        if len(self.atoms) == self.max_atoms:
            self.swap(block, mean)
        self.countdown = 0 if fills else min(int(PAUSE * self.n_blocks), LONGEST_PAUSE)
        self.spread = float(np.sqrt(np.average((residual - mean) ** 2, weights=a)) / mean) if mean > 0.0 else 0.0
        sample, normalised = self.selection_sample(SCREENING_ROWS)
        in_block = a @ np.diagonal(self.residual_gram(self.atoms, block)) / a.sum()
        self.usual_residual = max(
            float(in_block), float(normalised @ np.maximum(self.residuals(self.atoms, sample), 0.0))
        )
        self.n_rows_searched = block.stop

    def is_explained(self, block: range) -> bool:
        """Return whether a block leaves nothing to explain."""
        a = self.weights[block]
        energy = np.diagonal(self.kernel(self.rows[block], self.rows[block]))
        residual = np.maximum(np.diagonal(self.residual_gram(self.atoms, block)), 0.0)
        return not a.any() or (self.tolerance > 0.0 and bool(a @ residual <= self.tolerance * (a @ energy)))

    def search_by_tolerance(self, block: range) -> list[int]:
        """Choose rows until the block is explained."""
        a = self.weights[block]
        energy = np.diagonal(self.kernel(self.rows[block], self.rows[block]))
        joined: list[int] = []
        while True:
            R = self.residual_gram(self.atoms + joined, block)
            if self.tolerance > 0.0 and a @ np.diagonal(R) <= self.tolerance * (a @ energy):
                return joined
            gains = {row: gain(R[:, j], j, a) for j, row in self.candidates(R, block, joined)}
            if not gains:
                return joined
            joined.append(max(gains, key=lambda row: gains[row]))

    def fill(self, block: range, max_atoms: int) -> list[int]:
        """Choose rows that are worth an atom below the budget."""
        joined: list[int] = []
        mean_energy = self.energy / self.weights.sum()
        while len(self.atoms) + len(joined) < max_atoms:
            atoms = self.atoms + joined
            R, a, total_weight = self.residual_gram(atoms, block), self.weights[block], self.weights.sum()
            gains = {
                row: cautious_gain(np.delete(R[:, j], j), R[j, j], np.delete(a, j), a[j] / total_weight)
                if atoms
                else gain(R[:, j], j, a)
                for j, row in self.candidates(R, block, joined)
            }
            best = max(gains, key=lambda row: gains[row], default=None)
            if best is None or gains[best] <= 0.0:
                break
            if atoms and gains[best] * max_atoms <= self.tolerance * mean_energy:
                break
            joined.append(best)
        return joined

    def swap(self, block: range, mean: float) -> None:
        """Let rows sampled since the last search replace atoms, each time the pair that gains most."""
        candidates = [row for row in self.selection_sample()[0] if row >= self.n_rows_searched][:MOST_CANDIDATES]
        for _ in range(MOST_ROUNDS):
            gains = {row: self.sampled_gain(row) for row in candidates if row not in self.atoms}
            candidates = [row for row in sorted(gains, key=lambda row: -gains[row]) if gains[row] > 0.0]
            waiting, candidates = candidates[:MOST_JUDGED], candidates[: 4 * MOST_JUDGED]
            atoms, recorded, total_profit = list(self.atoms), self.recorded, 0.0
            while waiting:
                offers = {row: self.offer(atoms, recorded, row, block) for row in waiting}
                best = max(waiting, key=lambda row: offers[row][0])
                profit, rival = offers[best]
                if profit <= 0.0:
                    break
                rest = [atom for atom in atoms if atom != rival]
                recorded = np.pad(self.reprojected(recorded, atoms, rest), ((0, 0), (0, 1)))
                atoms = [*rest, best]
                waiting.remove(best)
                total_profit += profit
            if atoms == self.atoms:
                break
            self.become([atom for atom in self.atoms if atom in atoms], [row for row in atoms if row not in self.atoms])
            if total_profit <= WORTH_ANOTHER_ROUND * mean:
                break

    def sampled_gain(self, row: int) -> float:
        """Cautious gain of a row, as a part of the sample shows it."""
        (sample, normalised), atoms = self.selection_sample(SCREENING_ROWS), np.array(self.atoms, dtype=int)
        own, others = np.array([row]), np.array(sample)
        cross = self.gram(own, atoms) @ np.linalg.solve(
            self.gram(atoms, atoms), self.gram(atoms, np.append(others, row))
        )
        products = (self.gram(own, np.append(others, row)) - cross)[0]
        pivot, energy = products[-1], self.gram(own, own)[0, 0]
        if self.weights[row] == 0.0 or pivot <= DEPENDENT * energy:
            return -np.inf
        is_other = others != row
        share = self.weights[row] / self.weights.sum()
        return cautious_gain(products[:-1][is_other], pivot, normalised[is_other], share)

    def offer(self, atoms: list[int], recorded: Array, row: int, block: range) -> tuple[float, int]:
        """Return what the stream gains if a row replaces the cheapest atom, and that atom."""
        (sample, normalised), total_weight = self.selection_sample(), self.weights.sum()
        pivot = self.residuals(atoms, [row])[0]
        if pivot <= DEPENDENT * self.gram(np.array([row]), np.array([row]))[0, 0]:
            return -np.inf, -1
        before, after = self.residuals(atoms, sample), self.residuals([*atoms, row], sample)
        own_row = np.array(sample) == row
        win = normalised @ np.where(own_row, 0.0, before - after) + self.weights[row] / total_weight * pivot
        costs = {}
        past = self.weights[: block.start]
        for atom in atoms:
            rest = [other for other in atoms if other != atom]
            without = self.residuals([*rest, row], sample)
            loss = normalised @ np.where(np.array(sample) == atom, 0.0, without - after)
            costs[atom] = loss + self.weights[atom] / total_weight * self.residuals([*rest, row], [atom])[0]
            seen = self.weights[sorted(self.seen.get(atom, set()))].sum()
            # The moments count if they record more rows of average weight than the sample has.
            if atom in self.atoms and seen * past.sum() / max((past**2).sum(), 1e-300) > len(sample):
                alone = self.sampled_loss(atoms, atom)
                record = self.recorded_loss(atoms, recorded, atom) / seen
                in_sample = alone > NEGLIGIBLE * np.diagonal(self._gram)[block].max()
                costs[atom] = max(costs[atom], record * (min(loss / alone, 1.0) if in_sample else 1.0))
        rival = min(atoms, key=lambda atom: costs[atom])
        return float(win - costs[rival] - NEGLIGIBLE), rival

    def selection_sample(self, most: int = MOST_SAMPLED_ROWS) -> tuple[list[int], Array]:
        """Return the first rows to arrive, at most so many, and their normalised weights."""
        running = np.flatnonzero(self.weights > 0.0)
        size = MOST_SAMPLED_ROWS
        if self.max_atoms is not None:
            size = min(max(SAMPLED_ROWS_PER_ATOM * self.max_atoms, LEAST_SAMPLED_ROWS), MOST_SAMPLED_ROWS)
        size = min(size, most)
        first = running[np.argsort(self.arrival[running], kind="stable")][:size]
        a = self.weights[first]
        if len(first) == size:
            a = a / -np.expm1(-a * np.exp(self.arrival[first[-1]]))
            a[-1] = 0.0
        return first.tolist(), a / a.sum()

    def sampled_loss(self, atoms: list[int], atom: int) -> float:
        """Return what the sample, the atom's own row left out, would lose without an atom."""
        sample, normalised = self.selection_sample()
        rest = [other for other in atoms if other != atom]
        lost = self.residuals(rest, sample) - self.residuals(atoms, sample)
        return float(normalised @ np.where(np.array(sample) == atom, 0.0, lost))

    def recorded_loss(self, atoms: list[int], recorded: Array, atom: int) -> float:
        """Energy that the recorded vectors would lose if projected onto the other atoms."""
        K = self.kernel(self.rows[atoms], self.rows[atoms])
        rest, place = [other for other in atoms if other != atom], atoms.index(atom)
        lost = recorded - np.insert(self.reprojected(recorded, atoms, rest), place, 0.0, axis=1)
        return float(self.weights[: len(recorded)] @ np.einsum("ni,ij,nj->n", lost, K, lost))

    def residuals(self, atoms: list[int], rows: list[int]) -> Array:
        """Squared distances of rows to the span of atoms."""
        chosen, others = np.array(atoms, dtype=int), np.array(rows)
        cross = self.gram(chosen, others)
        explained = cross * np.linalg.solve(self.gram(chosen, chosen), cross)
        return np.diagonal(self._gram)[others] - explained.sum(axis=0)

    def gram(self, left: Array, right: Array) -> Array:
        """Kernel values of rows by their positions, each computed once."""
        known = len(self._gram)
        if known < len(self.rows):
            new = self.kernel(self.rows[known:], self.rows)
            self._gram = np.block([[self._gram, new[:, :known].T], [new]])
        return self._gram[np.ix_(left, right)]

    def candidates(self, R: Array, block: range, joined: list[int]) -> list[tuple[int, int]]:
        """Rows that could become atoms: those with weight that are not atoms yet and independent of the atoms."""
        energy = np.diagonal(self.kernel(self.rows[block], self.rows[block]))
        return [
            (j, row)
            for j, row in enumerate(block)
            if self.weights[row] > 0.0 and row not in joined and R[j, j] > DEPENDENT * energy[j]
        ]

    def become(self, stayed: list[int], joined: list[int]) -> None:
        """Change the atoms: recorded vectors lose what only removed atoms span; along new atoms nothing is recorded."""
        self.n_removed += len(self.atoms) - len(stayed)
        self.recorded = self.reprojected(self.recorded, self.atoms, stayed)
        self.recorded = np.pad(self.recorded, ((0, 0), (0, len(joined))))
        self.atoms = stayed + joined
        self.seen.update({atom: set() for atom in joined})

    # Spans

    def project(self, atoms: list[int], rows: Array) -> Array:
        """Coefficients of the rows' projections over the atoms."""
        return coefficients_over(self.kernel, self.rows[atoms], rows)

    def residual_gram(self, atoms: list[int], block: range) -> Array:
        """Residual inner products of a block's rows."""
        return residual_gram(self.kernel, self.rows[atoms], self.rows[block])

    def reprojected(self, recorded: Array, atoms: list[int], rest: list[int]) -> Array:
        """Project vectors, given over some atoms, onto the span of some of these."""
        if rest == atoms:
            return recorded
        inner = recorded @ self.kernel(self.rows[atoms], self.rows[rest])
        return np.linalg.solve(self.kernel(self.rows[rest], self.rows[rest]), inner.T).T

    # Answers

    @property
    def energy(self) -> float:
        """Weighted sum of k(x, x)."""
        return float(sum(a * self.kernel(x[None], x[None])[0, 0] for a, x in zip(self.weights, self.rows, strict=True)))

    @property
    def recorded_energy(self) -> float:
        """Weighted squared lengths of the recorded vectors."""
        return float(self.weights @ np.diagonal(self.recorded_gram()))

    def recorded_gram(self) -> Array:
        """Inner products of the recorded vectors, shape (n, n)."""
        return self.recorded @ self.kernel(self.rows[self.atoms], self.rows[self.atoms]) @ self.recorded.T

    def with_pending(self, rows: Array, weights: Array) -> Self:
        """Return a copy that has taken in a block that is not full."""
        twin = deepcopy(self)
        if len(rows):
            twin.advance(rows, weights)
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
        return Axes(self.kernel, self.rows[self.atoms], values / divisor, combinations, mean @ self.recorded)


def learn(
    rows: Array,
    weights: Array,
    kernel: Function,
    *,
    max_atoms: int | None,
    tolerance: float,
    block_size: int,
    half_life: float | None = None,
    two_passes: bool = False,
) -> NaiveStream:
    """Take in a stream block by block, including an incomplete block at its end."""
    stream = NaiveStream(kernel, rows.shape[1], max_atoms=max_atoms, tolerance=tolerance, half_life=half_life)
    for start in range(0, len(rows), block_size):
        stream.advance(rows[start : start + block_size], weights[start : start + block_size])
    if two_passes:
        stream.recount()
    return stream
