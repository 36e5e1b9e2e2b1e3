"""What the benchmarks share: rows, memory, the description of the machine, and the file for figures."""

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core import linalg

Array = npt.NDArray[np.float64]

MEBIBYTE = 2**20
LIBRARIES = ("numpy", "numba", "scipy")
PEERS = ("scikit-learn", "river", "pyod", "nystrompca")


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


def surroundings() -> dict[str, Any]:
    """Print and return what figures depend on besides the code: processor, threads, versions, and the load."""
    tasks = Path("/proc/self/task")
    found: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "blas_threads": linalg.blas_threads(),
        "process_threads": len(list(tasks.iterdir())) if tasks.exists() else None,
        "versions": {"python": platform.python_version()},
    }
    for name in LIBRARIES + PEERS:
        try:
            found["versions"][name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    load = "unknown" if found["load"] is None else f"{found['load']:.1f}"
    print(
        f"{found['processor']}, {found['cores']} cores, load {load}; {found['blas_threads']} BLAS threads, "
        f"{found['process_threads'] or 'unknown'} threads in the process"
    )
    print(", ".join(f"{name} {version}" for name, version in found["versions"].items()), flush=True)
    return found


def processor() -> str:
    """Return the processor's name, if the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    except (FileNotFoundError, StopIteration):
        return platform.processor() or platform.machine()


def write_figures(path: Path | None, where: dict[str, Any], figures: dict[str, Any]) -> None:
    """Write figures, and what they depend on, to a file if one was asked for."""
    if path is not None:
        path.write_text(json.dumps({"surroundings": where} | figures, indent=2) + "\n")


def resident_bytes() -> int:
    """Read the resident set of this process; its peak so far if the system tells no more."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        try:
            import resource
        except ModuleNotFoundError:
            raise SystemExit(
                f"{Path(sys.argv[0]).stem}: expected /proc/self/statm or the resource module but this system has "
                "neither; run it on Linux or macOS"
            ) from None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
    return pages * os.sysconf("SC_PAGE_SIZE")


def n_atoms(model: Any) -> int:
    """Return the number of atoms of the recorded rows; 0 before the first block."""
    state = getattr(model, "state_", None)
    return 0 if state is None or state.summary is None else int(state.summary.basis.size)


def set_schedule(model: Any, **changes: float) -> None:
    """Change when a model searches for atoms next."""
    state = model.state_
    summary = replace(state.summary, schedule=replace(state.summary.schedule, **changes))
    model.state_ = replace(state, summary=summary)


def state_bytes(root: object) -> int:
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
