"""How long does a new process wait for its first answer?

Every measurement is a process of its own, with a fresh copy of the package whose modules are compiled to bytecode, as
an installer leaves them. A first answer is the import, `partial_fit` of 2,000 rows of 8 features, and `transform` of
one row. With a full cache nothing is compiled; with an empty one, as after the installation, the loops that this needs
are. Seconds from the start of the process to its end, medians, and processor seconds, which other work on the machine
changes less.
"""

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import Figures, make_table, run

import streamkpca

N_TURNS = {"whole": 7, "quick": 3, "tiny": 1}

_CLOCK = """
import json, time
{work}
print(json.dumps({{"cpu": time.process_time()}}))
"""
# Few rows and a model of fewer loops for a tiny run, and five rows asked, for which that of single rows is not needed.
_ANSWER = """
import numpy as np
from streamkpca import StreamingKernelPCA
rows = np.random.default_rng(0).normal(size=({n_rows}, 8))
StreamingKernelPCA(4{options}).partial_fit(rows).transform(rows[:{n_asked}])
"""


def copy_package(folder: Path) -> Path:
    """Copy the package as an installer would, without compiled loops."""
    package = Path(streamkpca.__file__).parent
    shutil.copytree(package, folder / "streamkpca", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder, quiet=1)
    return folder


def time_process(work: str, install: Path, cache: Path, **variables: str) -> dict[str, float]:
    """Run a process to its end."""
    hidden = ("NUMBA_CACHE", "PYTHONDONTWRITE", "PYTHONPYCACHE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    paths = {"PYTHONPATH": str(install), "PYTHONSAFEPATH": "1", "NUMBA_CACHE_DIR": str(cache)}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _CLOCK.format(work=work)],
        env=inherited | paths | variables,
        cwd=install,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found | {"seconds": time.perf_counter() - start}


def measure(size: str, data: Path | None) -> Figures:
    """Time imports and first answers by turns."""
    is_tiny = size == "tiny"
    answer = _ANSWER.format(
        n_rows=200 if is_tiny else 2000,
        n_asked=5 if is_tiny else 1,
        options=', kernel="linear", noise_variance=None' if is_tiny else "",
    )
    # Loops that are hardly optimised are compiled in a quarter of the time.
    variables = {"NUMBA_OPT": "1"} if is_tiny else {}
    works = {
        "import numba, scipy.linalg": "import numba, scipy.linalg",
        "from streamkpca import *": "from streamkpca import *",
        "first answer, full cache": answer,
    }
    with tempfile.TemporaryDirectory(prefix="cold_start_") as name:
        install, cache = copy_package(Path(name) / "install"), Path(name) / "cache"
        empty = time_process(answer, install, cache, **variables)
        turns = [
            {title: time_process(work, install, cache, **variables) for title, work in works.items()}
            for _ in range(N_TURNS[size])
        ]
    lines = {
        title: {column: float(np.median([turn[title][column] for turn in turns])) for column in ("seconds", "cpu")}
        for title in works
    }
    return {"lines": lines | {"first answer, empty cache": empty}}


def describe(figures: Figures) -> str:
    """Return a line for each kind of process."""
    lines = figures["lines"].items()
    rows = [[f"`{title}`" if "import" in title else title, line["seconds"], line["cpu"]] for title, line in lines]
    return make_table(["process", "seconds", "processor seconds"], rows)


if __name__ == "__main__":
    run(measure, describe)
