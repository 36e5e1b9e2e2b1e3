"""What does a stream cost from its first row on, and how good is what it learns?

Processor seconds since the first row on one thread, and the share of the energy sum k(x, x) of rows held apart that the
span of the atoms leaves unexplained, by one formula for all. The kernel is an RBF of the default width, settled on the
first 2,048 rows.

* **generated**: x = sin(u D + phase) + noise, 32 features, u uniform on a cube of four dimensions; 256 atoms.
* **drifting**: the same, but every phase moves, by 0.2 radians in a half-life of 10,000 rows; energy of present rows.
* **server**: a machine of SMD, 38 features in the order of time; 128 atoms.
* **USPS**: the digits, drawn ten times, shuffled; 100 atoms.

`StreamingKernelPCA` has default settings, with atoms that move and with atoms that are rows. The pair is scikit-learn's
Nystroem, fitted to the first rows, and IncrementalPCA(10), in batches of the size that is fastest here. **Greedy** is
`ApproximateKernelPCA(atoms="rows")` of all rows so far, up to 10,000.

**At equal quality** the budgets of both vary, and seconds are compared for the same energy left out: those of the pair
are interpolated, between logarithms, at the energy that our atoms leave. Its rows are drawn three times; means.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Array, Figures, find_files, is_installed, make_table, run, time_call
from scipy.linalg import cholesky, solve_triangular

from streamkpca import ApproximateKernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF, Kernel

MARKS = {"whole": (1995, 10_000, 100_000, 1_000_000), "quick": (1995, 10_000, 100_000), "tiny": (1995, 2500)}
# The batch method takes minutes beyond, and finds no more: 0.0038 of the generated rows are left by 100,000, too.
MOST_AT_ONCE = 10_000
HALF_LIFE, DRIFT = 10_000, 0.2
# A drifting stream ends here: the pair cannot forget, and only gets worse.
MOST_DRIFTING = 100_000
N_APART, N_SETTLING = 2000, 2048
# Sizes of the pair's batches that are tried.
BATCHES = (256, 1024, 4096, 16_384)
RIDGE = 1e-10
# At equal quality: the lengths of streams, our budgets, those of the pair, and how often its rows are drawn.
LENGTHS = {"whole": (10_000, 100_000), "quick": (10_000,), "tiny": (2500,)}
BUDGETS = {"whole": (64, 96, 128, 192, 256), "quick": (64, 128, 256), "tiny": (8, 16)}
PAIRS = {"whole": (64, 128, 256, 512), "quick": (64, 128, 256, 512), "tiny": (12, 16, 64)}
DRAWS = 3


class Case(NamedTuple):
    """A stream: rows, what is held apart at a mark, and how it is learned."""

    rows: Array
    hold_apart: Callable[[int], Array]
    atoms: int
    half_life: float | None = None


class Curved:
    """Rows x = sin(u D + phase) + noise, with u uniform on a cube, whose phases may move."""

    def __init__(self, speed: float = 0.0, n_features: int = 32, n_dimensions: int = 4) -> None:
        self._generator = np.random.default_rng(0)
        self._directions = self._generator.normal(size=(n_dimensions, n_features))
        self._phases = self._generator.uniform(0.0, 2.0 * np.pi, n_features)
        self._speeds = speed * self._generator.normal(size=n_features)

    def draw(self, times: Array) -> Array:
        """Make a row for each time."""
        rows = self._generator.uniform(-1.0, 1.0, (len(times), len(self._directions))) @ self._directions
        rows += self._phases
        if self._speeds.any():
            rows += times[:, None] * self._speeds
        np.sin(rows, out=rows)
        rows += self._generator.normal(scale=0.05, size=rows.shape)
        return rows


def make_case(n_rows: int, atoms: int, half_life: float | None = None) -> Case:
    """Make the generated stream, drifting if it has a half-life."""
    source = Curved(0.0 if half_life is None else DRIFT / half_life)
    rows = source.draw(np.arange(n_rows, dtype=np.float64))
    return Case(rows, lambda mark: source.draw(np.full(N_APART, float(mark))), atoms, half_life)


def split_rows(rows: Array, order: np.ndarray, atoms: int) -> Case:
    """Make a stream of rows in an order, without a tenth that is held apart, of which a mark has those before it."""
    apart = np.zeros(len(rows), dtype=bool)
    apart[np.random.default_rng(0).choice(len(rows), min(len(rows) // 10, N_APART), replace=False)] = True
    learned = np.flatnonzero(~apart[order])

    def hold_apart(mark: int) -> Array:
        before = order[: learned[mark - 1] + 1]
        return rows[np.unique(before[apart[before]])]

    return Case(np.ascontiguousarray(rows[order[learned]]), hold_apart, atoms)


def make_cases(size: str, data: Path | None) -> dict[str, Case]:
    """Return the streams of a run."""
    atoms = 16 if size == "tiny" else 256
    cases = {
        "generated": make_case(MARKS[size][-1], atoms),
        "drifting": make_case(min(MARKS[size][-1], MOST_DRIFTING), atoms, HALF_LIFE),
    }
    for path in find_files(data, "smd")[:1] if size == "whole" else ():
        with np.load(path) as file:
            rows = file["train"].astype(np.float64, order="C")
        cases[f"server {path.stem}"] = split_rows(rows, np.arange(len(rows)), 128)
    for path in find_files(data, "usps") if size == "whole" else ():
        with np.load(path) as file:
            rows = file["X_train"].astype(np.float64)
        order = np.random.default_rng(0).permutation(np.tile(np.arange(len(rows)), 10))
        cases["USPS, ten times"] = split_rows(rows, order, 100)
    return cases


def measure_left(kernel: Kernel, atoms: Array, rows: Array) -> float:
    """Measure the share of the rows' energy outside the span of atoms, 1 - |L^-1 k(Z, X)|^2 / sum k(x, x)."""
    gram = kernel.matrix(atoms)
    factor = cholesky(gram + RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram)), lower=True)
    coordinates = solve_triangular(factor, kernel.matrix(atoms, rows), lower=True)
    return 1.0 - float(np.vdot(coordinates, coordinates) / kernel.diagonal(rows).sum())


class Ours:
    """A streaming model; its atoms are those of a copy that also has the rows of its last block."""

    def __init__(self, kernel: Kernel, case: Case, atoms: str) -> None:
        self._model = StreamingKernelPCA(kernel=kernel, max_atoms=case.atoms, atoms=atoms, half_life=case.half_life)

    def learn(self, rows: Array) -> None:
        """Learn the next rows."""
        self._model.partial_fit(rows)

    def read_atoms(self) -> Array:
        """Return the atoms now."""
        return copy.deepcopy(self._model).refit().atoms_


class Pair:
    """Nystroem, fitted to the first rows, and IncrementalPCA of its features."""

    def __init__(self, kernel: RBF, case: Case, batch: int, seed: int = 0) -> None:
        from sklearn.decomposition import IncrementalPCA
        from sklearn.kernel_approximation import Nystroem

        self._features = Nystroem(gamma=kernel.gamma, n_components=case.atoms, random_state=seed)
        self._pca, self._batch = IncrementalPCA(10), batch

    def learn(self, rows: Array) -> None:
        """Learn the next rows in batches; a short rest joins the batch before."""
        if not hasattr(self._features, "components_"):
            self._features.fit(rows)
        edges = list(range(0, max(len(rows) - self._batch // 2, 1), self._batch))
        for start, end in zip(edges, [*edges[1:], len(rows)], strict=True):
            self._pca.partial_fit(self._features.transform(rows[start:end]))

    def read_atoms(self) -> Array:
        """Return the rows whose features the axes have."""
        return self._features.components_


def choose_batch(kernel: RBF, case: Case) -> int:
    """Find the batch size at which the pair learns its first rows fastest, after one run that loads it."""
    rows, seconds = case.rows[: BATCHES[-1]], {}
    for batch in [BATCHES[0], *(batch for batch in BATCHES if batch == BATCHES[0] or batch <= len(rows))]:
        seconds[batch] = time_call(Pair(kernel, case, batch).learn, rows)[0]
    return min(seconds, key=seconds.__getitem__)


def follow(case: Case, marks: list[int]) -> list[Figures]:
    """Learn one stream by every method in turns, from mark to mark."""
    kernel = RBF().settled(case.rows[:N_SETTLING])
    methods: dict[str, Any] = {atoms: Ours(kernel, case, atoms) for atoms in ("moved", "rows")}
    for atoms in methods:
        # Loading compiled loops is not learning.
        Ours(kernel, case, atoms).learn(case.rows[: 3 * N_SETTLING])
    if is_installed("sklearn"):
        methods["pair"] = Pair(kernel, case, choose_batch(kernel, case))
    taken, lines, start = dict.fromkeys(methods, 0.0), [], 0
    for mark in marks:
        apart, line = case.hold_apart(mark), {"n": mark}
        for name, method in methods.items():
            taken[name] += time_call(method.learn, case.rows[start:mark])[0]
            line[name] = {"seconds": taken[name], "left": measure_left(kernel, method.read_atoms(), apart)}
        if mark <= MOST_AT_ONCE and case.half_life is None:
            greedy = ApproximateKernelPCA(max_atoms=case.atoms, atoms="rows", kernel=kernel)
            seconds, fitted = time_call(greedy.fit, case.rows[:mark])
            line["greedy"] = {"seconds": seconds, "left": measure_left(kernel, fitted.atoms_, apart)}
        lines.append(line)
        start = mark
    return lines


def compare_at_equal_quality(case: Case, n: int, size: str) -> list[Figures]:
    """Learn the first n rows with several budgets, and find what the pair takes to leave as little."""
    case = case._replace(rows=case.rows[:n])
    kernel, apart = RBF().settled(case.rows[:N_SETTLING]), case.hold_apart(n)
    batch = choose_batch(kernel, case)

    def try_budget(make: Callable[[Case], Any], atoms: int) -> tuple[float, float]:
        method = make(case._replace(atoms=atoms))
        seconds = time_call(method.learn, case.rows)[0]
        return seconds, measure_left(kernel, method.read_atoms(), apart)

    draws = [
        [try_budget(lambda one, seed=seed: Pair(kernel, one, batch, seed), atoms) for seed in range(DRAWS)]
        for atoms in PAIRS[size]
    ]
    seconds, left = np.log(np.mean(draws, axis=1)).T
    lines = []
    for atoms in BUDGETS[size]:
        ours, ours_left = try_budget(lambda one: Ours(kernel, one, "moved"), atoms)
        # The pair leaves less the more rows it has.
        is_reached = left[-1] <= np.log(ours_left) <= left[0]
        pair = float(np.exp(np.interp(np.log(ours_left), left[::-1], seconds[::-1]))) if is_reached else None
        lines.append({"n": n, "atoms": atoms, "left": ours_left, "seconds": ours, "pair": pair})
    return lines


def measure(size: str, data: Path | None) -> Figures:
    """Follow every stream, and those that do not drift with several budgets."""
    streams, equal = {}, {}
    for name, case in make_cases(size, data).items():
        marks = [*(mark for mark in MARKS[size] if mark < len(case.rows)), len(case.rows)]
        streams[name] = follow(case, marks)
        if case.half_life is None and is_installed("sklearn"):
            lengths = [n for n in LENGTHS[size] if n <= len(case.rows)]
            equal[name] = [line for n in lengths for line in compare_at_equal_quality(case, n, size)]
    return {"streams": streams, "equal": equal}


COLUMNS = {
    "moved": "atoms that move",
    "rows": "atoms that are rows",
    "pair": "Nystroem + IncrementalPCA",
    "greedy": "greedy",
}


def describe(figures: Figures) -> str:
    """Return seconds and the share left, by stream and mark."""
    rows = []
    for name, lines in figures["streams"].items():
        for line in lines:
            cells = [line.get(column) for column in COLUMNS]
            rows.append([name, line["n"], *(f"{c['seconds']:.2f} s, {c['left']:.4f}" if c else "-" for c in cells)])
    table = make_table(["stream", "rows", *COLUMNS.values()], rows)
    if not figures.get("equal"):
        return table
    equal = [
        [name, line["n"], line["atoms"], f"{line['left']:.4f}", f"{line['seconds']:.2f} s", *_write_pair(line)]
        for name, lines in figures["equal"].items()
        for line in lines
    ]
    heads = ["stream", "rows", "atoms", "energy left out", "seconds", "of the pair for as little", "ours / pair"]
    return f"{table}\n\nAt equal quality:\n\n{make_table(heads, equal)}"


def _write_pair(line: Figures) -> list[str]:
    if line["pair"] is None:
        return ["not reached", "-"]
    return [f"{line['pair']:.2f} s", f"{line['seconds'] / line['pair']:.2f}"]


if __name__ == "__main__":
    run(measure, describe)
