"""Claim: a stream is learned quickly from its first row on, and its atoms are better than the best rows.

Two figures are printed for each method when a stream has had 10^3.3, 10^4, 10^4.5, 10^5 ... rows: seconds so far, and
the share of the energy sum k(x, x) that the span of its m atoms leaves unexplained. The energy is that of rows held
apart, of the stream so far (of the present, if it drifts), by one formula for every method, outside the clock. The
kernel is the same for all: RBF of the default width, settled on the first 2,048 rows.

* **moved** and **rows**: `partial_fit` of `StreamingKernelPCA` with ``atoms="moved"`` and ``atoms="rows"``, everything
  else at its default. **fit, moved** and **fit, rows**: `fit` of all rows so far.
* **Nystroem**: scikit-learn's Nystroem(m), fitted to the first rows, and IncrementalPCA(10), in batches of the size
  that is fastest here. **trees**: River's half-space trees, which have a time but no energy.
* **greedy** (`ApproximateKernelPCA` with ``atoms="rows"``), **k-means** (scikit-learn's centres) and **pivots**
  (randomly pivoted Cholesky; Chen, Epperly, Tropp, Webber 2025) see all rows so far at once, up to 100,000. In a
  drifting stream they see its last eight half-lives, each row with the weight that the half-life leaves it.

The streams:

* generated, 256 atoms: x = sin(u D + phase) + noise, 32 features, u uniform on a cube of four dimensions. 256 rows
  chosen greedily leave about .04 of it.
* drifting, 256 atoms: the same, while every phase moves at a speed of its own, .2 radians in a half-life of 10,000 rows
  (standard deviation).
* a file with one table named train, 128 atoms: the rows in the order of time.
* a file with X_train and y_train, 100 atoms: the rows drawn ten times, shuffled, and sorted by class.

The last table has one line for each number of atoms, after 10,000 generated rows.

The bounds, on one thread, over Nystroem's seconds on the generated stream: moved 3 times after 10,000 rows and .6
after 100,000, rows 4.5 and 1.4. Over what greedy leaves unexplained at the end: moved .9 if the rows are in no order, 1
in the order of time or class, and 1.4 if they drift. And 128 moved atoms leave at most what 142 rows leave (a ninth
more), whether one pass or greedy chose the rows.

Run, for files of the server machine dataset and of USPS digits::

    python benchmarks/young_streams_are_quick.py machine-1-6.npz usps.npz --plot pictures
    python benchmarks/young_streams_are_quick.py --rows 1000000
    python benchmarks/young_streams_are_quick.py --threads 2
    python benchmarks/young_streams_are_quick.py --tiny

Seconds are processor time on one thread, or with ``--threads 2`` those of the clock. The exit code is 0 if all bounds
of the last lines hold, and 1 otherwise.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Array, surroundings, threads, write_figures
from scipy.linalg import cholesky, solve_triangular

from streamkpca import ApproximateKernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF, Kernel

MARKS = [1995, 10_000, 31_623, 100_000, 316_228, 1_000_000]
# The methods that see all rows at once take minutes and gigabytes beyond.
MOST_AT_ONCE = 100_000
HALF_LIFE, DRIFT = 10_000, 0.2
N_APART, N_SETTLING = 2000, 2048
BATCHES = [256, 1024, 4096, 16384]
BUDGETS = [32, 64, 96, 128, 192, 256]
ROWS_OF_BUDGETS = 10_000
RIDGE = 1e-10
# Seconds over those of Nystroem and IncrementalPCA, at 10,000 and at 100,000 generated rows.
MOST_TIMES = {("moved", 10_000): 3.0, ("moved", 100_000): 0.6, ("rows", 10_000): 4.5, ("rows", 100_000): 1.4}
# What moved atoms leave over what greedy rows leave: of rows in no order, in the order of time or class, and drifting.
MOST_OF_GREEDY, MOST_IN_ORDER, MOST_DRIFTING = 0.9, 1.0, 1.4
# Moved atoms over the rows, chosen by one pass or greedily, that leave as much.
COMPARED_ATOMS, MOST_ATOMS = 128, 0.9

Figures = dict[str, dict[str, float]]


class Case(NamedTuple):
    """A stream: rows, what is held apart at a mark, and how it is learned."""

    rows: Array
    apart: Callable[[int], Array]
    atoms: int
    half_life: float | None = None


class Curved:
    """Rows x = sin(u D + phase) + noise, with u uniform on a cube, whose phases may move."""

    def __init__(self, seed: int, speed: float = 0.0, n_features: int = 32, n_dimensions: int = 4) -> None:
        self._generator = np.random.default_rng(seed)
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


def curved_case(seed: int, n_rows: int, atoms: int, half_life: float | None) -> Case:
    """Make the generated stream, drifting if it has a half-life."""
    source = Curved(seed, 0.0 if half_life is None else DRIFT / half_life)
    rows = source.draw(np.arange(n_rows, dtype=np.float64))
    if half_life is None:
        same = source.draw(np.zeros(N_APART))
        return Case(rows, lambda mark: same, atoms)
    present = {mark: source.draw(np.full(N_APART, float(mark))) for mark in marks_of(n_rows)}
    return Case(rows, present.__getitem__, atoms, half_life)


def split(rows: Array, order: np.ndarray, apart: np.ndarray, n_rows: int, atoms: int) -> Case:
    """Make a stream of rows in an order, without those held apart, of which a mark has those before it."""
    held = np.isin(order, np.flatnonzero(apart))
    learned = np.flatnonzero(~held)[:n_rows]

    def before(mark: int) -> Array:
        # Rows drawn several times count once.
        return rows[np.unique(order[: learned[mark - 1] + 1][held[: learned[mark - 1] + 1]])]

    return Case(np.ascontiguousarray(rows[order[learned]]), before, atoms)


def file_cases(path: Path, seed: int, n_rows: int) -> Iterator[tuple[str, Case]]:
    """Yield the streams of a file; a tenth of its rows, at most 2,000, are held apart."""
    rng = np.random.default_rng(seed)
    with np.load(path) as arrays:
        names = set(arrays.files)
        if not (names & {"train"} or names >= {"X_train", "y_train"}):
            raise SystemExit(
                f"young_streams_are_quick: expected {path} to hold X_train and y_train, or train, but it has "
                f"{', '.join(arrays.files)}; save the rows under one of these names"
            )
        in_time = "train" in names
        rows = arrays["train" if in_time else "X_train"].astype(np.float64, order="C")
        classes = None if in_time else arrays["y_train"]
    apart = np.zeros(len(rows), dtype=bool)
    apart[rng.choice(len(rows), min(len(rows) // 10, N_APART), replace=False)] = True
    if classes is None:
        yield path.stem, split(rows, np.arange(len(rows)), apart, n_rows, 128)
        return
    drawn = rng.permutation(np.tile(np.arange(len(rows)), 10))
    yield f"{path.stem}, shuffled", split(rows, drawn, apart, n_rows, 100)
    drawn = drawn[np.argsort(classes[drawn], kind="stable")]
    yield f"{path.stem}, sorted", split(rows, drawn, apart, n_rows, 100)


def marks_of(n_rows: int) -> list[int]:
    """Return the marks within a stream, and its end."""
    return [*(mark for mark in MARKS if mark < n_rows), n_rows]


def unexplained(kernel: Kernel, atoms: Array, rows: Array) -> float:
    """Measure the share of the rows' energy outside the span of atoms, 1 - |L^-1 k(Z, X)|^2 / sum k(x, x)."""
    gram = kernel.matrix(atoms)
    # Centres of k-means may meet, and so may rows that were drawn twice.
    factor = cholesky(gram + RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram)), lower=True)
    coordinates = solve_triangular(factor, kernel.matrix(atoms, rows), lower=True)
    return 1.0 - float(np.vdot(coordinates, coordinates) / kernel.diagonal(rows).sum())


class Ours:
    """A streaming model; its atoms are those of a copy that also has the rows of its last block."""

    def __init__(self, kernel: Kernel, case: Case, atoms: str) -> None:
        self._model = StreamingKernelPCA(kernel=kernel, max_atoms=case.atoms, atoms=atoms, half_life=case.half_life)

    def prepare(self, rows: Array) -> Any:
        """Return what `learn` takes."""
        return rows

    def learn(self, rows: Array) -> None:
        """Learn the next rows."""
        self._model.partial_fit(rows)

    def atoms(self) -> Array | None:
        """Return the atoms now."""
        return copy.deepcopy(self._model).refit().atoms_


class Pair:
    """Nystroem, fitted to the first rows, and IncrementalPCA of its features."""

    def __init__(self, kernel: RBF, case: Case, batch: int) -> None:
        from sklearn.decomposition import IncrementalPCA
        from sklearn.kernel_approximation import Nystroem

        self._features = Nystroem(gamma=kernel.gamma, n_components=case.atoms, random_state=0)
        self._pca, self._batch = IncrementalPCA(10), batch

    def prepare(self, rows: Array) -> list[Array]:
        """Cut rows into batches; a short rest joins the batch before."""
        edges = list(range(0, max(len(rows) - self._batch // 2, 1), self._batch))
        return [rows[start:end] for start, end in zip(edges, [*edges[1:], len(rows)], strict=True)]

    def learn(self, batches: list[Array]) -> None:
        """Learn the next batches."""
        if not hasattr(self._features, "components_"):
            self._features.fit(np.concatenate(batches))
        for batch in batches:
            self._pca.partial_fit(self._features.transform(batch))

    def atoms(self) -> Array | None:
        """Return the rows whose features the axes have."""
        return self._features.components_


class Trees:
    """River's half-space trees, of rows scaled to 0..1 and made into dicts before the clock starts."""

    def __init__(self, case: Case) -> None:
        from river.anomaly import HalfSpaceTrees

        self._trees = HalfSpaceTrees(seed=0)
        self._least, self._range = case.rows.min(axis=0), np.ptp(case.rows, axis=0)

    def prepare(self, rows: Array) -> list[dict[int, float]]:
        """Scale rows and make dicts of them."""
        scaled = (rows - self._least) / np.where(self._range > 0.0, self._range, 1.0)
        return [dict(enumerate(row)) for row in scaled.tolist()]

    def learn(self, rows: list[dict[int, float]]) -> None:
        """Learn row by row."""
        for row in rows:
            self._trees.learn_one(row)

    def atoms(self) -> Array | None:
        """Return nothing: there are none."""
        return None


def fitted(kernel: Kernel, case: Case, atoms: str, rows: Array) -> Array:
    """Fit a streaming model to all rows in two passes."""
    model = StreamingKernelPCA(kernel=kernel, max_atoms=case.atoms, atoms=atoms, half_life=case.half_life)
    return model.fit(rows).atoms_


def greedy(kernel: Kernel, m: int, rows: Array, weights: Array) -> Array:
    """Choose rows greedily from all."""
    return ApproximateKernelPCA(max_atoms=m, atoms="rows", kernel=kernel).fit(rows, sample_weight=weights).atoms_


def centres(kernel: Kernel, m: int, rows: Array, weights: Array) -> Array:
    """Find the centres of k-means."""
    from sklearn.cluster import KMeans

    return KMeans(m, n_init=1, random_state=0).fit(rows, sample_weight=weights).cluster_centers_


def pivots(kernel: Kernel, m: int, rows: Array, weights: Array, seed: int = 0) -> Array:
    """Draw rows one by one, with probability proportional to their weighted residuals."""
    rng = np.random.default_rng(seed)
    own = kernel.diagonal(rows).copy()
    directions, chosen = np.empty((m, len(rows))), []
    for i in range(m):
        likely = own * weights
        pivot = int(rng.choice(len(rows), p=likely / likely.sum()))
        along = kernel.matrix(rows[[pivot]], rows)[0] - directions[:i, pivot] @ directions[:i]
        directions[i] = along / np.sqrt(along[pivot])
        own = np.maximum(own - directions[i] ** 2, 0.0)
        own[pivot] = 0.0
        chosen.append(pivot)
    return rows[chosen]


def chosen_at_once(peers: set[str]) -> dict[str, Callable[[Kernel, int, Array, Array], Array]]:
    """Return the methods that see all rows at once."""
    return {"greedy": greedy} | ({"k-means": centres} if "sklearn" in peers else {}) | {"pivots": pivots}


def installed(name: str) -> bool:
    """Tell whether a peer can be imported, and print a line if not."""
    try:
        __import__(name)
    except ImportError as error:
        print(f"left out: {error}")
        return False
    return True


class Clock:
    """Times calls by the processor or by the clock, with so many threads."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self._now = time.process_time if n_threads == 1 else time.perf_counter

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
        """Return the seconds of a call, and its result."""
        with threads(self._n_threads):
            start = self._now()
            result = call(*arguments)
            return self._now() - start, result


def best_batch(kernel: RBF, case: Case, clock: Clock) -> int:
    """Find the batch size at which scikit-learn's pair learns its first rows fastest, after one run that loads it."""
    seconds = {}
    for size in [BATCHES[0], *(size for size in BATCHES if size == BATCHES[0] or size <= len(case.rows))]:
        pair = Pair(kernel, case, size)
        seconds[size] = clock(pair.learn, pair.prepare(case.rows[: BATCHES[-1]]))[0]
    return min(seconds, key=seconds.__getitem__)


def remembered(case: Case, mark: int) -> tuple[Array, Array]:
    """Return rows up to a mark, and the weights that a half-life leaves them."""
    if case.half_life is None:
        return case.rows[:mark], np.ones(mark)
    first = max(0, mark - 8 * int(case.half_life))
    return case.rows[first:mark], 0.5 ** (np.arange(mark - first)[::-1] / case.half_life)


def run(name: str, case: Case, peers: set[str], clock: Clock, *, at_once: bool) -> list[tuple[int, Figures]]:
    """Learn one stream by every method in turns, from mark to mark, and print a line for each mark."""
    kernel = RBF().settled(case.rows[:N_SETTLING])
    # Loading compiled loops is not learning.
    for atoms in ("moved", "rows"):
        warm = Ours(kernel, case, atoms)
        warm.learn(case.rows[: 3 * N_SETTLING])
        fitted(kernel, case, atoms, case.rows[: 3 * N_SETTLING])
    methods: dict[str, Any] = {atoms: Ours(kernel, case, atoms) for atoms in ("moved", "rows")}
    note = ""
    if "sklearn" in peers:
        batch = best_batch(kernel, case, clock)
        methods["Nystroem"], note = Pair(kernel, case, batch), f", Nystroem's batches of {batch:,}"
    if "river" in peers:
        methods["trees"] = Trees(case)
    choices = chosen_at_once(peers) if at_once else {}
    columns = [*methods, "fit, moved", "fit, rows", *choices]
    half_life = "" if case.half_life is None else f", half-life {case.half_life:,}"
    print(
        f"\n{name}: {case.atoms} atoms, {len(case.rows):,} rows of {case.rows.shape[1]} features{half_life}, "
        f"{kernel}{note}"
    )
    print(f"{'rows':>9} " + " ".join(f"{column:>15}" for column in columns))
    taken = dict.fromkeys(methods, 0.0)
    lines, start = [], 0
    for mark in marks_of(len(case.rows)):
        apart, line = case.apart(mark), {}
        for column, method in methods.items():
            # By pieces, as the dicts of a million rows would not fit.
            for first in range(start, mark, 100_000):
                given = method.prepare(case.rows[first : min(first + 100_000, mark)])
                taken[column] += clock(method.learn, given)[0]
            line[column] = {"seconds": taken[column]}
            found = method.atoms()
            if found is not None:
                line[column]["unexplained"] = unexplained(kernel, found, apart)
        for atoms in ("moved", "rows"):
            seconds, found = clock(fitted, kernel, case, atoms, case.rows[:mark])
            line[f"fit, {atoms}"] = {"seconds": seconds, "unexplained": unexplained(kernel, found, apart)}
        if mark <= MOST_AT_ONCE:
            rows, weights = remembered(case, mark)
            for column, choose in choices.items():
                seconds, found = clock(choose, kernel, case.atoms, rows, weights)
                line[column] = {"seconds": seconds, "unexplained": unexplained(kernel, found, apart)}
        print(f"{mark:>9,} " + " ".join(f"{cell(line.get(column)):>15}" for column in columns), flush=True)
        lines.append((mark, line))
        start = mark
    return lines


def cell(figure: dict[str, float] | None) -> str:
    """Print seconds and the share unexplained."""
    if figure is None:
        return "-"
    seconds = f"{figure['seconds']:.2f} s"
    return f"{seconds} {share(figure['unexplained'])}" if "unexplained" in figure else f"{seconds}      "


def share(value: float) -> str:
    """Print a share with four digits."""
    return f"{value:.4f}".removeprefix("0")


def by_atoms(
    case: Case, budgets: list[int], peers: set[str], clock: Clock, *, at_once: bool
) -> list[tuple[int, Figures]]:
    """Measure what different numbers of atoms leave unexplained, and print a line for each."""
    kernel = RBF().settled(case.rows[:N_SETTLING])
    choices = chosen_at_once(peers) if at_once else {}
    columns = ["moved", "rows", *choices]
    print(f"\nby the number of atoms, after {len(case.rows):,} generated rows")
    print(f"{'atoms':>9} " + " ".join(f"{column:>15}" for column in columns))
    lines = []
    for m in budgets:
        apart, line = case.apart(len(case.rows)), {}
        for atoms in ("moved", "rows"):
            method = Ours(kernel, case._replace(atoms=m), atoms)
            seconds = clock(method.learn, case.rows)[0]
            line[atoms] = {"seconds": seconds, "unexplained": unexplained(kernel, method.atoms(), apart)}
        for column, choose in choices.items():
            seconds, found = clock(choose, kernel, m, case.rows, np.ones(len(case.rows)))
            line[column] = {"seconds": seconds, "unexplained": unexplained(kernel, found, apart)}
        print(f"{m:>9} " + " ".join(f"{cell(line[column]):>15}" for column in columns), flush=True)
        lines.append((m, line))
    return lines


def medians(tables: list[list[tuple[int, Figures]]]) -> list[dict[str, Any]]:
    """Take the median of every figure over the seeds."""
    found = []
    for lines in zip(*tables, strict=True):
        size, first = lines[0]
        found.append(
            {"size": size}
            | {
                column: {name: float(np.median([line[column][name] for _, line in lines])) for name in figures}
                for column, figures in first.items()
            }
        )
    return found


def bounds(
    streams: dict[str, list[dict[str, Any]]], atoms: list[dict[str, Any]], *, timed: bool
) -> Iterator[tuple[str, float, float]]:
    """Yield what each bound is about, the figure, and the bound itself."""
    for line in streams.get("generated", []) if timed else []:
        for (column, size), most in MOST_TIMES.items():
            if line["size"] == size and "Nystroem" in line:
                ratio = line[column]["seconds"] / line["Nystroem"]["seconds"]
                yield f"{column}, time over Nystroem's at {size:,} rows", ratio, most
    for name, lines in streams.items():
        last = next((line for line in reversed(lines) if "greedy" in line), None)
        if last is not None:
            ratio = last["moved"]["unexplained"] / last["greedy"]["unexplained"]
            in_no_order = name == "generated" or name.endswith(", shuffled")
            most = MOST_OF_GREEDY if in_no_order else MOST_DRIFTING if name == "drifting" else MOST_IN_ORDER
            yield f"moved, unexplained over greedy's at {last['size']:,} rows of {name}", ratio, most
    moved = {line["size"]: line["moved"]["unexplained"] for line in atoms}
    if COMPARED_ATOMS in moved:
        for column, name in (("rows", "rows of one pass"), ("greedy", "greedy rows")):
            if column not in atoms[0]:
                continue
            # By interpolation between the budgets; both fall, and numpy wants them to rise.
            left = [-np.log(line[column]["unexplained"]) for line in atoms]
            sizes = [np.log(line["size"]) for line in atoms]
            as_many = float(np.exp(np.interp(-np.log(moved[COMPARED_ATOMS]), left, sizes)))
            yield (
                f"{COMPARED_ATOMS} moved atoms, over the {name} that leave as much",
                COMPARED_ATOMS / as_many,
                MOST_ATOMS,
            )


def draw(streams: dict[str, list[dict[str, Any]]], atoms: list[dict[str, Any]], folder: Path, unit: str) -> None:
    """Draw the share unexplained against seconds, a panel for each stream, and against the number of atoms."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
    except ModuleNotFoundError as error:
        raise SystemExit(
            f'young_streams_are_quick: --plot needs {error.name}; pip install "streamkpca[plots]"'
        ) from None
    # Colours that colour-blind readers can tell apart.
    styles = {
        "moved": ("#0072B2", "o-"),
        "rows": ("#D55E00", "s-"),
        "Nystroem": ("#555555", "v-"),
        "fit, moved": ("#56B4E9", "o:"),
        "fit, rows": ("#E69F00", "s:"),
        "greedy": ("#009E73", "^--"),
        "k-means": ("#CC79A7", "d--"),
        "pivots": ("#999999", "x--"),
    }

    def curve(ax: Any, column: str, lines: Iterable[dict[str, Any]], against: str) -> None:
        points = [
            (line["size"] if against == "size" else line[column]["seconds"], line[column]["unexplained"])
            for line in lines
            if column in line
        ]
        if points:
            colour, style = styles[column]
            ax.plot(*zip(*points, strict=True), style, color=colour, markersize=4, linewidth=1.2, label=column)

    def finish(ax: Any) -> None:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:.2g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
        ax.grid(which="major", alpha=0.3)

    folder.mkdir(parents=True, exist_ok=True)
    n_columns = min(len(streams), 3)
    n_rows = -(-len(streams) // n_columns)
    figure = Figure(figsize=(1.5 + 4.0 * n_columns, 0.7 + 3.4 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax, (name, lines) in zip(panels, streams.items(), strict=False):
        for column in styles:
            curve(ax, column, lines, "seconds")
        finish(ax)
        ax.set_title(f"{name}, {lines[0]['size']:,} to {lines[-1]['size']:,} rows", fontsize="medium")
        ax.set_xlabel(unit)
    for ax in panels[len(streams) :]:
        ax.set_axis_off()
    for ax in panels[::n_columns]:
        ax.set_ylabel("share of the energy unexplained")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.savefig(folder / "quality-against-seconds.png", dpi=120)
    if not atoms:
        return

    figure = Figure(figsize=(6.0, 4.5), layout="constrained")
    ax = figure.subplots()
    for column in styles:
        curve(ax, column, atoms, "size")
    finish(ax)
    sizes = [line["size"] for line in atoms]
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_xlabel("number of atoms")
    ax.set_ylabel("share of the energy unexplained")
    ax.legend(frameon=False)
    figure.savefig(folder / "quality-against-atoms.png", dpi=120)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Measure time and energy left unexplained while streams are young.")
    parser.add_argument("files", nargs="*", type=Path, help="npz files of rows, besides the generated streams")
    parser.add_argument("--rows", type=int, default=100_000, help="most rows of a stream (default 100,000)")
    parser.add_argument("--seeds", type=int, default=1, help="figures are medians over this many seeds (default 1)")
    parser.add_argument("--threads", type=int, default=1, help="more than 1: seconds of the clock (default 1)")
    parser.add_argument("--only-files", action="store_true", help="leave the generated streams out")
    parser.add_argument("--one-pass", action="store_true", help="leave out what sees all rows at once")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw two pictures there; needs the extra plots")
    parser.add_argument("--tiny", action="store_true", help="3,000 rows, 16 atoms, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    if min(arguments.rows - N_SETTLING, arguments.seeds - 1, arguments.threads - 1) < 0:
        parser.error(
            f"--rows expected at least {N_SETTLING:,}, --seeds and --threads at least 1, but got {arguments.rows}, "
            f"{arguments.seeds} and {arguments.threads}"
        )
    if arguments.only_files and not arguments.files:
        parser.error("--only-files expected files but got none; name npz files with train, or X_train and y_train")
    n_rows, m, budgets = (3000, 16, [8, 16]) if arguments.tiny else (arguments.rows, 256, BUDGETS)
    where, clock = surroundings(), Clock(arguments.threads)
    peers = {name for name in ("sklearn", "river") if installed(name)}
    unit = "processor seconds" if arguments.threads == 1 else f"seconds of the clock, {arguments.threads} threads"
    tables: dict[str, list[list[tuple[int, Figures]]]] = {}
    sizes: list[list[tuple[int, Figures]]] = []
    for seed in range(arguments.seeds):
        cases: list[tuple[str, Case]] = []
        if not arguments.only_files:
            cases = [
                ("generated", curved_case(seed, n_rows, m, None)),
                ("drifting", curved_case(seed, n_rows, m, HALF_LIFE)),
            ]
        for path in arguments.files:
            cases += [
                (name, case._replace(atoms=m) if arguments.tiny else case)
                for name, case in file_cases(path, seed, n_rows)
            ]
        for name, case in cases:
            tables.setdefault(name, []).append(run(name, case, peers, clock, at_once=not arguments.one_pass))
        if not arguments.only_files:
            case = curved_case(seed, min(n_rows, ROWS_OF_BUDGETS), m, None)
            sizes.append(by_atoms(case, budgets, peers, clock, at_once=not arguments.one_pass))
    streams = {name: medians(lines) for name, lines in tables.items()}
    atoms = medians(sizes)
    print(f"\nseconds are {unit}")
    held = [
        {"name": name, "ratio": ratio, "most": most, "holds": ratio <= most}
        for name, ratio, most in bounds(streams, atoms, timed=arguments.threads == 1)
    ]
    for bound in held:
        print(f"{bound['name']}: {bound['ratio']:.2f} (at most {bound['most']}){'' if bound['holds'] else ' MISSED'}")
    n_missed = sum(not bound["holds"] for bound in held)
    verdict = "TINY" if arguments.tiny else "HOLDS" if n_missed == 0 else "FAILS"
    print(f"{verdict}: {n_missed} of {len(held)} bounds are missed")
    record = {"seconds": unit, "seeds": arguments.seeds, "streams": streams, "atoms": atoms, "bounds": held}
    write_figures(arguments.json, where, record)
    if arguments.plot is not None:
        draw(streams, atoms, arguments.plot, unit)
    return 0 if n_missed == 0 or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
