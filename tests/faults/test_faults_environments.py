"""Where the library runs: pools of processes, small stacks, signals, interpreters' options, subinterpreters."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numpy as np
import pytest

import streamkpca
from streamkpca import StreamingKernelPCA, kernels

PACKAGE = Path(streamkpca.__file__).parent
ROWS = np.random.default_rng(0).normal(size=(3000, 3))
PROBE = ROWS[:7]
SMALL = {"max_atoms": 8, "block_size": 32, "reservoir_size": 20, "kernel": kernels.RBF(0.3)}
CODE = """
import json
import numpy as np
from streamkpca import StreamingKernelPCA, kernels
rows = np.random.default_rng(0).normal(size=(300, 3))
model = StreamingKernelPCA(2, max_atoms=8, block_size=32, reservoir_size=20, kernel=kernels.RBF(0.3))
model.partial_fit(rows)
print(json.dumps([model.novelty(rows[:7]).tolist(), model.transform(rows[:7]).ravel().tolist()]))
"""


def new_model():
    return StreamingKernelPCA(2, **SMALL)


def in_thread(act, *, stack):
    """Run a function in a thread with a stack of so many bytes."""
    found = []
    before = threading.stack_size(stack)
    try:
        thread = threading.Thread(target=lambda: found.append(act()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found, "the thread raised an error"
    return found[0]


def test_a_small_stack_is_enough():
    """Musl and macOS give threads 128 to 512 KiB; the loops are compiled beforehand, which takes more."""

    def act():
        learning = new_model().partial_fit(ROWS[:2000])
        learning.novelty(ROWS)
        learning.inverse_transform(learning.transform(PROBE))
        learning.novelty_threshold()
        return StreamingKernelPCA.from_bytes(learning.to_bytes()).partial_fit(ROWS[2000:]).to_bytes()

    assert act() == in_thread(act, stack=256 * 1024)
    deep = kernels.RBF(0.3)
    for _ in range(150):
        deep = 0.999 * deep
    assert in_thread(lambda: repr(deep), stack=256 * 1024) == repr(deep)
    assert in_thread(lambda: new_model().set_params(kernel=deep).partial_fit(ROWS[:100]).to_bytes(), stack=256 * 1024)


def test_options_of_the_interpreter_change_no_answer(tmp_path):
    """An isolated interpreter without asserts and docstrings, with checks, another hash and no locale."""
    site = Path(np.__file__).parent.parent
    code = f"import sys; sys.path[:0] = [{str(PACKAGE.parent)!r}, {str(site)!r}]\n{CODE}"
    done = subprocess.run(
        [sys.executable, "-I", "-OO", "-X", "dev", "-c", code],
        env=os.environ | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    model = new_model().partial_fit(np.random.default_rng(0).normal(size=(300, 3)))
    novelty, projections = json.loads(done.stdout)
    np.testing.assert_allclose(novelty, model.novelty(PROBE), rtol=1e-9)
    np.testing.assert_allclose(projections, model.transform(PROBE).ravel(), rtol=1e-9, atol=1e-12)


SUBINTERPRETER = f"""
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
try:
    interpreters.run_string(interpreters.create(), {CODE!r})
except Exception as error:
    print("refused:", type(error).__name__, error)
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="without compiled loops nothing waits")
def test_a_subinterpreter_is_refused():
    """Numba's loops release the interpreter lock, and would wait for it for ever."""
    variables = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-W", "ignore", "-c", SUBINTERPRETER]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert "ImportError" in done.stdout
    assert "this is a subinterpreter" in done.stdout
