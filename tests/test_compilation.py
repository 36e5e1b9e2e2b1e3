import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from click.testing import CliRunner

import streamkpca
from streamkpca import StreamingKernelPCA, warmup
from streamkpca.cli.commands import cli
from streamkpca.compilation import Warmth

pytestmark = pytest.mark.slow

jitted = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="the jit is off")
WARM = """
from streamkpca import warmup
found = warmup()
assert found.unsaved == 0
print(found.ready, found.compiled, found.folder)
"""
# Other sizes, kernels, parameters and data than the warm-up has.
USE = """
import copy
import numpy as np
from streamkpca import (
    ApproximateKernelPCA, KernelPCA, OutlierDetector, SparseKernelPCA, StreamingKernelPCA, merge
)
from streamkpca.kernels import Matern, Polynomial, RBF
from streamkpca.monitoring import Monitor
rows = np.tanh(np.random.default_rng(7).normal(size=(300, 20)))
frozen = rows.copy()
frozen.flags.writeable = False
kernels = ["rbf", "linear", Matern(1.5, length_scale="spread"), Polynomial(2) + Matern(0.5).on([0])]
kernels.append(RBF().in_units("std"))
for X in (rows, frozen, rows[:, :5].tolist(), np.asfortranarray(rows), rows[:, :1], frozen[::2], rows.astype("f4")):
    for kernel in kernels if X is rows else kernels[:1]:
        X = np.asarray(X)
        for max_atoms in (16, None):
            model = StreamingKernelPCA(3, kernel=kernel, max_atoms=max_atoms, tolerance=0.1, block_size=100)
            model.partial_fit(X).partial_fit(X[:1]).partial_fit(X[:30], sample_weight=np.full(30, 0.5))
            model.transform(X[:1]), model.score_samples(X[:1]), model.transform(X), model.score_samples(X)
        model.max_atoms = 12
        merge(model, StreamingKernelPCA(3, kernel=model.kernel_, max_atoms=20, block_size=100).partial_fit(X))
    for model in (SparseKernelPCA(2), ApproximateKernelPCA(2, max_atoms=20), KernelPCA(2)):
        model.fit(X[:200]).transform(X[:1])
        model.score_samples(X[:1])
Monitor().update(rows)
OutlierDetector().fit(rows).predict(rows[:1])
rng = np.random.default_rng(3)
for X in (rows, np.tanh(rng.normal(size=(300, 300)))):
    X = np.where(rng.random(X.shape) < 0.01, np.nan, X)
    for kernel in ("rbf", Matern(0.5), RBF() * Polynomial(2) + RBF().on([0])):
        model = StreamingKernelPCA(3, kernel=kernel, max_atoms=16, block_size=100, missing="marginal").partial_fit(X)
        model.partial_fit(X[:1]).novelty(X), model.impute(X[:3]), merge(model, copy.deepcopy(model))
from streamkpca.compilation import warmth
found = warmth()
print(found.ready, found.compiled, found.folder)
"""


def run(code, cache):
    variables = os.environ | {"PYTHONPATH": str(Path(streamkpca.__file__).parents[1]), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    ready, compiled, folder = done.stdout.split(maxsplit=2)
    assert ("compiling loops" in done.stderr) == (int(compiled) > 0)
    assert len(done.stderr.splitlines()) <= 1
    return int(ready), int(compiled), Path(folder.strip())


def files_of(cache):
    return {path.relative_to(cache): path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}


# It compiles all loops anew, which takes a minute.
@jitted
@pytest.mark.engines
def test_after_a_warm_up_no_process_compiles_anything(tmp_path):
    ready, compiled, folder = run(WARM, tmp_path)
    assert ready == compiled > 20
    assert folder.is_relative_to(tmp_path)
    before = files_of(tmp_path)
    assert before

    used, compiled, _ = run(USE, tmp_path)
    assert compiled == 0
    assert used > 10
    assert files_of(tmp_path) == before

    again, compiled, _ = run(WARM, tmp_path)
    assert compiled == 0
    # Loops that are only called by other loops came with them.
    assert used <= again <= ready
    assert files_of(tmp_path) == before


def test_a_warm_up_leaves_nothing_behind_but_loops():
    rows = np.random.default_rng(0).normal(size=(300, 4))
    model = StreamingKernelPCA(2, max_atoms=8, block_size=50).partial_fit(rows)
    expected = model.transform(rows)
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the old global generator is what must stay
    warmup()
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    np.testing.assert_array_equal(model.transform(rows), expected)
    again = StreamingKernelPCA(2, max_atoms=8, block_size=50).partial_fit(rows)
    np.testing.assert_array_equal(again.transform(rows), expected)


def refused(*parts):
    """Check that the command reports the problem in one line."""
    result = CliRunner().invoke(cli, ["warmup"])
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    for part in parts:
        assert part in line


def test_the_command_refuses_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "blocked"))
    monkeypatch.setattr("streamkpca.cli.manage.cache_folder", lambda: tmp_path / "elsewhere")
    refused(f"NUMBA_CACHE_DIR={tmp_path / 'blocked'}: expected a folder that can be written to", "set NUMBA_CACHE_DIR")
    monkeypatch.setattr("streamkpca.cli.manage.cache_folder", lambda: None)
    refused("expected a folder for compiled loops but none can be written to", "set NUMBA_CACHE_DIR")


@jitted
def test_numba_turns_away_from_a_cache_that_cannot_be_written(tmp_path):
    # A file in the place of the folder stops even root.
    blocked = tmp_path / "file"
    blocked.write_text("")
    code = "from streamkpca.compilation import cache_folder; print(0, 0, cache_folder())"
    assert not run(code, blocked)[2].is_relative_to(blocked)
    assert run(code, tmp_path / "good")[2].is_relative_to(tmp_path / "good")


def test_the_command_reports_what_was_not_saved(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr("streamkpca.cli.manage.cache_folder", lambda: tmp_path)
    monkeypatch.setattr("streamkpca.cli.manage.warmup", lambda: Warmth(30, 20, 3, tmp_path))
    refused(str(tmp_path), "3 of 20 compiled loops could not be saved")
