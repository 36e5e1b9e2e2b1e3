import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import streamkpca
from streamkpca._core.jit import jit

pytestmark = pytest.mark.slow

PACKAGE = Path(streamkpca.__file__).parent
CODE = """
import warnings
warnings.simplefilter("error")
import numpy as np
from streamkpca import StreamingKernelPCA
model = StreamingKernelPCA(2, kernel="linear", block_size=4, max_atoms=3)
X = np.arange(24.0).reshape(8, 3) % 7
# The loop for a few rows takes longer to compile than all others together: five rows do not need it.
print(np.abs(model.fit(X).transform(X[:5])).round(8).tolist())
"""
NOTICE = "compiling loops for some seconds, once for this installation (all in advance: streamkpca warmup)\n"
jitted = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="the jit is off")


def run(code, *, folder=PACKAGE.parent, **environment):
    """Run code in a new interpreter that finds the package in a folder."""
    variables = os.environ | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"} | environment
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def run_from(folder, *, home):
    """Run the example with a copy of the package, and make sure that it was the copy that ran."""
    code = f"import streamkpca; assert streamkpca.__file__.startswith({str(folder)!r})\n{CODE}"
    return run(code, folder=folder, HOME=str(home), XDG_CACHE_HOME=str(home))


def add_up(values):
    total = 0.0
    for value in values:
        total += value
    return total


def test_nan_and_infinity_are_not_compiled_away():
    @jit
    def classify(value):
        if value != value:
            return 1
        if np.isinf(value):
            return 2
        return 0

    assert [classify(value) for value in (0.5, float("nan"), float("inf"), -float("inf"))] == [0, 1, 2, 2]


@jitted
def test_division_by_zero_is_infinity_as_in_numpy():
    @jit
    def divide(a, b):
        return a / b

    assert divide(1.0, 0.0) == float("inf")
    assert np.isnan(divide(0.0, 0.0))


@jitted
def test_loops_release_the_interpreter_lock():
    assert jit(add_up).targetoptions["nogil"]


@jitted
def test_a_loop_with_an_underscore_serves_loops_and_refuses_python():
    @jit
    def _double(value):
        return 2.0 * value

    @jit
    def quadruple(value):
        return _double(_double(value))

    for _ in range(2):
        with pytest.raises(TypeError, match="expected a call from a compiled loop"):
            _double(1.5)
        assert quadruple(1.5) == 6.0


@jitted
@pytest.mark.engines
def test_a_package_in_a_read_only_folder_works(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    shutil.copytree(PACKAGE, tmp_path / "streamkpca", ignore=shutil.ignore_patterns("__pycache__"))
    # A file in place of the cache folder keeps even root from writing there.
    blocked = tmp_path / "streamkpca" / "__pycache__"
    blocked.write_text("")
    found = run_from(tmp_path, home=blocked / "home")
    # Nothing can be kept, so every process compiles, and says so once.
    assert found.stderr == NOTICE
    assert found.stdout == run(CODE).stdout != ""


def test_without_the_jit_the_answers_are_the_same():
    found = run(CODE, NUMBA_DISABLE_JIT="1")
    assert found.stderr == ""
    assert found.stdout == run(CODE).stdout != ""


def compiled_with(cache):
    """Run the example with a cache folder; count what was loaded from it and what had to be compiled."""
    count = (
        "from streamkpca.kernels import _loops\n"
        "loops = [loop for loop in vars(_loops).values() if hasattr(loop, 'stats')]\n"
        "print(*(sum(sum(c.values()) for c in counts) for counts in"
        " ([loop.stats.cache_hits for loop in loops], [loop.stats.cache_misses for loop in loops])))"
    )
    found = run(f"{CODE}\n{count}", NUMBA_CACHE_DIR=str(cache))
    answer, counts = found.stdout.splitlines()
    hits, misses = map(int, counts.split())
    assert found.stderr == (NOTICE if misses else "")
    return answer, hits, misses


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Fill a cache folder; return it with the answer and with how many specialisations were compiled."""
    cache = tmp_path_factory.mktemp("cache")
    answer, hits, misses = compiled_with(cache)
    assert hits == 0 < misses
    return cache, answer, misses


@jitted
@pytest.mark.engines
def test_truncated_cache_files_are_replaced(filled, tmp_path):
    full, answer, misses = filled
    cache = shutil.copytree(full, tmp_path / "cache")
    # Damage the index of one loop and the machine code of the next; keep half of a file, or nothing.
    for i, index in enumerate(sorted(cache.rglob("*.nbi"))):
        for file in [index] if i % 2 else index.parent.glob(f"{index.stem}.*.nbc"):
            os.truncate(file, file.stat().st_size // 2 if i % 4 < 2 else 0)
    again, _, compiled_again = compiled_with(cache)
    assert (again, compiled_again) == (answer, misses)
    last, hits, misses = compiled_with(cache)
    assert (last, misses) == (answer, 0)
    assert hits > 0


@jitted
@pytest.mark.engines
def test_machine_code_of_other_types_is_not_run(filled, tmp_path):
    full, answer, _ = filled
    cache = shutil.copytree(full, tmp_path / "cache")
    # Two processes that compile at once can leave an index that names the wrong file: replace one loop's code by
    # another's.
    (source,) = cache.rglob("_loops.mirror_lower*.nbc")
    (place,) = cache.rglob("_loops.run_program*.1.nbc")
    shutil.copy(source, place)
    again, _, compiled_again = compiled_with(cache)
    assert again == answer
    assert compiled_again > 0
    assert compiled_with(cache)[::2] == (answer, 0)


@jitted
def test_a_full_disk_does_not_stop_a_loop(monkeypatch):
    loop = jit(add_up)

    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop._cache._cache, "load_overload", lambda *arguments: None)
    monkeypatch.setattr(loop._cache._cache, "save_overload", refuse)
    assert loop(np.ones(3)) == 3.0
    assert loop._cache.unsaved == 1
