"""The whole algorithm in plain numpy: slow, obvious, and without one line of the package.

Where the package keeps clever quantities up to date, this file goes back to the definition. Every row of the stream is
kept, and so is what the summary would have recorded of it: a vector in the span of the atoms, as coefficients over
them. Spans are handled by solving with kernel matrices; nothing is orthonormalised, updated or deflated.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Function = Callable[[Array, Array], Array]

SWAP_FACTOR = 1.2
DEPENDENT = 1e-10
LONGEST_PAUSE = 32


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
    """Project rows orthogonally onto the span of the atoms: the coefficients over the atoms, a row each."""
    return np.linalg.solve(kernel(atoms, atoms), kernel(atoms, rows)).T


def residual_gram(kernel: Function, atoms: Array, rows: Array) -> Array:
    """Inner products of what the rows have outside the span of the atoms."""
    if not len(atoms):
        return kernel(rows, rows)
    return kernel(rows, rows) - kernel(rows, atoms) @ coefficients_over(kernel, atoms, rows).T


def gain(column: Array, j: int, weights: Array) -> float:
    """Energy that a block would win from its row j, given that row's column of the residual Gram matrix."""
    return float(sum(a * r**2 / column[j] for a, r in zip(weights, column, strict=True)))


def cautious_gain(column: Array, j: int, weights: Array) -> float:
    """Energy a unit of weight that the other rows would win from row j, less one standard error of that mean."""
    x, a = np.delete(column**2 / column[j], j), np.delete(weights, j)
    if not a.any():
        return -np.inf
    mean = np.average(x, weights=a)
    deviation = np.sqrt(np.average((x - mean) ** 2, weights=a))
    return float(mean - deviation * np.sqrt((a**2).sum()) / a.sum())


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
    """What a stream has taught, without any economy."""

    def __init__(self, kernel: Function, n_features: int, *, max_atoms: int | None, tolerance: float) -> None:
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.tolerance = tolerance
        self.rows = np.empty((0, n_features))
        self.weights = np.empty(0)
        self.atoms: list[int] = []
        self.counts_from: dict[int, int] = {}
        self.recorded = np.empty((0, 0))
        self.n_removed = 0
        self.n_put_off = 0
        self.pause, self.wait, self.usual_residual = 1, 0, np.inf

    # The stream

    def advance(self, rows: Array, weights: Array) -> None:
        """Take in a block."""
        if self.max_atoms is not None and len(self.atoms) > self.max_atoms:
            kept, recorded = list(self.atoms), self.recorded
            while len(kept) > self.max_atoms:
                loss = self.loss_rates(kept, recorded, until=len(self.rows))
                rest = [atom for atom in kept if atom != min(kept, key=lambda atom: loss[atom])]
                kept, recorded = rest, self.reprojected(recorded, kept, rest)
            self.become(kept, [])
        block = range(len(self.rows), len(self.rows) + len(rows))
        self.rows = np.concatenate([self.rows, rows])
        self.weights = np.concatenate([self.weights, weights])
        self.become(*self.search(block))
        self.recorded = np.concatenate([self.recorded, self.project(self.atoms, rows)])

    def recount(self) -> None:
        """Record every row again in the span of the final atoms."""
        self.recorded = self.project(self.atoms, self.rows)
        self.counts_from = dict.fromkeys(self.atoms, 0)

    def search(self, block: range) -> tuple[list[int], list[int]]:
        """Decide which atoms stay and which rows of the block join them."""
        a = self.weights[block]
        energy = np.diagonal(self.kernel(self.rows[block], self.rows[block]))
        residual = np.maximum(np.diagonal(self.residual_gram(self.atoms, block)), 0.0)
        if not a.any() or (self.tolerance > 0.0 and a @ residual <= self.tolerance * (a @ energy)):
            return self.atoms, []
        if self.max_atoms is None:
            return self.atoms, self.search_by_tolerance(block)
        mean = np.average(residual, weights=a)
        variance = np.average((residual - mean) ** 2, weights=a)
        if self.wait > 0 and mean - 3.0 * np.sqrt(variance * (a**2).sum()) / a.sum() <= self.usual_residual:
            self.wait -= 1
            self.n_put_off += 1
            return self.atoms, []
        stayed, joined = self.search_within_budget(block, self.max_atoms)
        self.pause = 1 if joined or stayed != self.atoms else min(2 * self.pause, LONGEST_PAUSE)
        self.wait, self.usual_residual = self.pause - 1, float(mean)
        return stayed, joined

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

    def search_within_budget(self, block: range, max_atoms: int) -> tuple[list[int], list[int]]:
        """Choose rows that are worth a place; recorded vectors are projected anew after every removal."""
        stayed, joined, recorded = list(self.atoms), [], self.recorded
        total = sum(a * self.kernel(row[None], row[None])[0, 0] for a, row in zip(self.weights, self.rows, strict=True))
        mean_energy = total / self.weights.sum()
        while True:
            atoms = stayed + joined
            R = self.residual_gram(atoms, block)
            worth = cautious_gain if atoms else gain
            gains = {row: worth(R[:, j], j, self.weights[block]) for j, row in self.candidates(R, block, joined)}
            if not gains:
                break
            best = max(gains, key=lambda row: gains[row])
            if len(atoms) < max_atoms:
                if gains[best] <= 0.0 or (atoms and gains[best] * max_atoms <= self.tolerance * mean_energy):
                    break
            else:
                if not stayed:
                    break
                block_recorded = self.project(atoms, self.rows[block])
                loss = self.loss_rates(atoms, np.concatenate([recorded, block_recorded]), until=block.stop)
                weakest = min(stayed, key=lambda atom: loss[atom])
                if gains[best] <= SWAP_FACTOR * loss[weakest]:
                    break
                rest = [atom for atom in atoms if atom != weakest]
                recorded = self.reprojected(recorded, atoms, rest)
                stayed.remove(weakest)
            joined.append(best)
            recorded = np.pad(recorded, ((0, 0), (0, 1)))
        return stayed, joined

    def candidates(self, R: Array, block: range, joined: list[int]) -> list[tuple[int, int]]:
        """Rows that could become atoms: weight, no atom yet, and independent of those."""
        energy = np.diagonal(self.kernel(self.rows[block], self.rows[block]))
        return [
            (j, row)
            for j, row in enumerate(block)
            if self.weights[row] > 0.0 and row not in joined and R[j, j] > DEPENDENT * energy[j]
        ]

    def loss_rates(self, atoms: list[int], recorded: Array, *, until: int) -> dict[int, float]:
        """Energy a unit of weight that re-projection onto the other atoms would give up, for each atom."""
        K = self.kernel(self.rows[atoms], self.rows[atoms])
        rates = {}
        for place, atom in enumerate(atoms):
            rest = [other for other in atoms if other != atom]
            given_up = recorded - np.insert(self.reprojected(recorded, atoms, rest), place, 0.0, axis=1)
            energy = np.einsum("ni,ij,nj->n", given_up, K, given_up)
            # A newcomer counts from its own block, where it is not asked.
            since = self.counts_from.get(atom, 0)
            rates[atom] = float(self.weights[:until] @ energy / self.weights[since:until].sum())
        return rates

    def become(self, stayed: list[int], joined: list[int]) -> None:
        """Change the atoms: recorded vectors lose what only those that go spanned; newcomers have recorded nothing."""
        n_blocked = len(self.recorded)
        self.n_removed += len(self.atoms) - len(stayed)
        self.recorded = self.reprojected(self.recorded, self.atoms, stayed)
        self.recorded = np.pad(self.recorded, ((0, 0), (0, len(joined))))
        self.atoms = stayed + joined
        self.counts_from.update(dict.fromkeys(joined, n_blocked))

    # Spans

    def project(self, atoms: list[int], rows: Array) -> Array:
        """Coefficients of the rows' projections over the atoms."""
        return coefficients_over(self.kernel, self.rows[atoms], rows)

    def residual_gram(self, atoms: list[int], block: range) -> Array:
        """Inner products of what a block has outside the span."""
        return residual_gram(self.kernel, self.rows[atoms], self.rows[block])

    def reprojected(self, recorded: Array, atoms: list[int], rest: list[int]) -> Array:
        """Project vectors over some atoms onto the span of a part of these."""
        if rest == atoms:
            return recorded
        inner = recorded @ self.kernel(self.rows[atoms], self.rows[rest])
        return np.linalg.solve(self.kernel(self.rows[rest], self.rows[rest]), inner.T).T

    # What it knows

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
        """Copy the stream and let the copy take in a block that is not full."""
        twin = copy(self)
        twin.counts_from = dict(self.counts_from)
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
    two_passes: bool = False,
) -> NaiveStream:
    """Take in a stream block by block, the rows left at its end included."""
    stream = NaiveStream(kernel, rows.shape[1], max_atoms=max_atoms, tolerance=tolerance)
    for start in range(0, len(rows), block_size):
        stream.advance(rows[start : start + block_size], weights[start : start + block_size])
    if two_passes:
        stream.recount()
    return stream
