"""What the benchmarks share: rows, clocks, memory, the data folder, tables, and the way that each is run."""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from streamkpca._core import linalg

Array = npt.NDArray[np.float64]
Figures = dict[str, Any]

MEBIBYTE = 2**20
# A whole run, one of a minute at most, and one of seconds that shows that a script works.
SIZES = ("whole", "quick", "tiny")
LIBRARIES = ("numpy", "numba", "scipy", "scikit-learn", "river", "pyod")


class Sheet:
    """A curved two-dimensional sheet in many dimensions, with noise, that does not change.

    Parameters
    ----------
    n_features : int
        Width d of the rows.
    seed : int
    """

    def __init__(self, n_features: int, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)
        self._directions = self._generator.normal(scale=1.5, size=(2, n_features))
        self._phases = self._generator.uniform(0.0, 2.0 * np.pi, n_features)

    def draw(self, count: int) -> Array:
        """Make the next rows, shape (count, d): x = sin(u D + phase) + noise, with u uniform on a square."""
        rows = self._generator.uniform(-1.0, 1.0, (count, 2)) @ self._directions
        rows += self._phases
        np.sin(rows, out=rows)
        rows += self._generator.normal(scale=0.05, size=rows.shape)
        return rows


def draw_slow(random: np.random.Generator, n: int, d: int, memory: float = 0.95) -> Array:
    """Make stationary autoregressive columns of variance 1."""
    rows = random.normal(size=(n, d))
    rows[1:] *= np.sqrt(1.0 - memory**2)
    return lfilter([1.0], [1.0, -memory], rows, axis=0)


def standardise(rows: Array, known: Array) -> Array:
    """Standardise rows by others; columns that are constant there keep their unit."""
    mean, deviation = known.mean(axis=0), known.std(axis=0)
    return (rows - mean) / np.where(deviation > 1e-9 * np.maximum(np.abs(mean), 1.0), deviation, 1.0)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let BLAS, and the OpenMP of scikit-learn if that is installed, use this many threads."""
    switches = linalg._thread_counts()
    before = [switch.get() for switch in switches]
    with ExitStack() as stack:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            pass
        else:
            stack.enter_context(threadpool_limits(count, user_api="openmp"))
        try:
            for switch in switches:
                switch.set(count)
            yield
        finally:
            for switch, threads_before in zip(switches, before, strict=True):
                switch.set(threads_before)


def time_call(call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the processor seconds that a call takes, and its result."""
    start = time.process_time()
    result = call(*arguments)
    return time.process_time() - start, result


def is_installed(name: str) -> bool:
    """Tell whether a peer can be imported."""
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def describe_machine() -> Figures:
    """Return what figures depend on besides the code."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"processor": _processor(), "cores": os.cpu_count(), "versions": versions}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    except (FileNotFoundError, StopIteration):
        return platform.processor() or platform.machine()


def resident_bytes() -> int:
    """Read the resident set of this process; its peak so far if the system tells no more."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
    return pages * os.sysconf("SC_PAGE_SIZE")


def count_atoms(model: Any) -> int:
    """Return the number of atoms of the recorded rows; 0 before the first block."""
    state = getattr(model, "state_", None)
    return 0 if state is None or state.summary is None else int(state.summary.basis.size)


def set_schedule(model: Any, **changes: float) -> None:
    """Change when a model searches for atoms next."""
    state = model.state_
    summary = replace(state.summary, schedule=replace(state.summary.schedule, **changes))
    model.state_ = replace(state, summary=summary)


def count_bytes(root: object) -> int:
    """Add up the arrays that an object holds, each counted once, and views as the memory behind them."""
    owners: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            while isinstance(thing.base, np.ndarray):
                thing = thing.base
            owners[id(thing)] = thing.nbytes
        elif isinstance(thing, dict):
            waiting.extend(thing.values())
        elif isinstance(thing, list | tuple | set):
            waiting.extend(thing)
        else:
            waiting.extend(getattr(thing, "__dict__", {}).values())
            waiting.extend(getattr(thing, name, None) for name in getattr(type(thing), "__slots__", ()))
    return sum(owners.values())


def find_files(data: Path | None, folder: str, pattern: str = "*.npz") -> list[Path]:
    """Return the files of a board in the data folder, in order; none if they are not there."""
    return [] if data is None else sorted((data / folder).glob(pattern))


def make_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; numbers have three digits."""
    lines = [[str(cell) if isinstance(cell, str) else show(cell) for cell in row] for row in [head, *rows]]
    lines.insert(1, ["---"] * len(head))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(value: Any) -> str:
    """Return a number with three digits, and with commas from 1,000 on; "-" for none."""
    if value is None or value != value:
        return "-"
    if isinstance(value, int) or abs(value) >= 1000.0:
        return f"{value:,.0f}"
    if 0.0 < abs(value) < 1e-4:
        return f"{value:.1e}"
    digits = 3 - len(str(int(abs(value)))) if abs(value) >= 1.0 else 3
    return f"{value:.{digits}f}" if abs(value) >= 0.01 or value == 0.0 else f"{value:.4f}"


def run(measure: Callable[[str, Path | None], Figures], describe: Callable[[Figures], str]) -> None:
    """Run one benchmark as a script: measure, print what the page shows, and write the figures if asked for."""
    parser = argparse.ArgumentParser(description=str(sys.modules["__main__"].__doc__).splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="quick", help="how much is measured (default quick)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="public data, one folder a board")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    with threads(1):
        figures = measure(arguments.size, arguments.data)
    print(describe(figures) if figures else "no figures: the data are not there")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
