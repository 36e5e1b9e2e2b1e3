import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import streamkpca
from streamkpca._jit import jit

PACKAGE = Path(streamkpca.__file__).parent
CODE = """
import warnings
warnings.simplefilter("error")
import numpy as np
from streamkpca import StreamingKernelPCA
model = StreamingKernelPCA(2, kernel="linear", block_size=4, max_atoms=3)
print(np.abs(model.fit(np.arange(24.0).reshape(8, 3) % 7).transform([[1.0, 2.0, 3.0]])).round(8).tolist())
"""
jitted = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="the jit is off")


def run(code, *, folder=PACKAGE.parent, **environment):
    """Run code in a fresh interpreter that finds the package in a folder."""
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


def test_a_jitted_loop_computes_what_python_computes():
    values = np.linspace(0.0, 1.0, 10)
    assert jit(add_up)(values) == pytest.approx(add_up(values))
    values.flags.writeable = False
    assert jit(add_up)(values) == pytest.approx(add_up(values))


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
def test_loops_give_the_interpreter_lock_away():
    assert jit(add_up).targetoptions["nogil"]


@jitted
def test_where_nothing_can_be_cached_loops_still_compile(monkeypatch):
    njit, asked = numba.njit, []

    def refuse(*arguments, **options):
        asked.append(options)
        if options.get("cache"):
            # Numba raises this on decoration, before anything is compiled.
            raise RuntimeError("cannot cache function 'add_up': no locator available for file 'nowhere'")
        return njit(*arguments, **options)

    monkeypatch.setattr(numba, "njit", refuse)
    assert jit(add_up)(np.ones(4)) == 4.0
    cached, plain = asked
    assert cached.pop("cache") is True
    assert plain == cached


@jitted
def test_a_copy_that_nobody_may_write_to_works(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    shutil.copytree(PACKAGE, tmp_path / "streamkpca", ignore=shutil.ignore_patterns("__pycache__"))
    # A file in the place of the cache folder stops even root.
    blocked = tmp_path / "streamkpca" / "__pycache__"
    blocked.write_text("")
    found = run_from(tmp_path, home=blocked / "home")
    assert found.stderr == ""
    assert found.stdout == run(CODE).stdout != ""


def test_without_the_jit_the_answers_are_the_same():
    found = run(CODE, NUMBA_DISABLE_JIT="1")
    assert found.stderr == ""
    assert found.stdout == run(CODE).stdout != ""
