"""Long runs: memory, threads, open files and caches stay as they are after a warm start.

HYPOTHESIS_PROFILE=nightly makes 10^6 calls and 10^3 merges, copies, files and refits.
"""

import copy
import functools
import gc
import itertools
import os
import pickle
import threading
import tracemalloc

import numba
import numpy as np
import pytest

import streamkpca
from streamkpca import Checkpointer, KernelPCA, StreamingKernelPCA, kernels
from streamkpca.monitoring import Monitor

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_CALLS = 1_000_000 if NIGHTLY else 1000
N_COPIES = 1000 if NIGHTLY else 8
ROWS = np.random.default_rng(8).normal(size=(6000, 3))
SMALL = {"max_atoms": 8, "block_size": 32, "reservoir_size": 20, "refit_every": 512}
# What one of these calls keeps would be at least an object of Python, 16 bytes; numba and pytest take some, once.
MOST_A_CALL = 8
MOST_ONCE = 100_000


def new_model(**settings):
    return StreamingKernelPCA(2, **{"kernel": kernels.RBF(0.3), **SMALL, **settings})


def one_by_one():
    """Give the rows in turn, for ever; `itertools.cycle` would keep the views."""
    while True:
        for start in range(len(ROWS)):
            yield ROWS[start : start + 1]


def n_cached():
    """Count what caches of functions hold, and the machine code that loops have been compiled to."""
    found = 0
    for thing in gc.get_objects():
        # By its type alone: asking abstract classes would fill their caches.
        if type(thing) is functools._lru_cache_wrapper and thing.__module__.startswith("streamkpca"):
            found += thing.cache_info().currsize
        elif type(thing) is numba.core.registry.CPUDispatcher and thing.__module__.startswith("streamkpca"):
            found += len(thing.overloads)
    return found


@pytest.fixture(autouse=True)
def traced():
    """Trace memory from before a model is made, as what it replaces later would not be missed otherwise."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


class Held:
    """What the process holds right now."""

    def __init__(self):
        gc.collect()
        self.memory = tracemalloc.get_traced_memory()[0]
        self.threads = threading.active_count()
        self.descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        self.cached = n_cached()


def held_after(act, n_calls, n_warm):
    """Call a function many times after a warm start, and check that nothing grows; return what grew."""
    for _ in range(n_warm):
        act()
    before = Held()
    for _ in range(n_calls):
        act()
    after = Held()
    grown = after.memory - before.memory
    assert grown < MOST_ONCE + MOST_A_CALL * n_calls, f"{grown} bytes in {n_calls} calls"
    assert after.threads == before.threads
    assert after.descriptors == before.descriptors
    assert after.cached == before.cached
    return f"{n_calls} calls, {grown:+} bytes"


def test_queries_of_single_rows_keep_nothing():
    model, rows = new_model().partial_fit(ROWS[:2000]), one_by_one()
    queries = {
        "transform": (model.transform, N_CALLS),
        "novelty": (model.novelty, N_CALLS),
        # A pre-image takes up to 40 ms while memory is traced.
        "inverse_transform": (lambda row: model.inverse_transform(row[:, :2]), N_CALLS // 1000),
    }
    for query, (ask, n_calls) in queries.items():
        print(f"{query}: {held_after(lambda ask=ask: ask(next(rows)), n_calls, 10)}")


def test_learning_single_rows_keeps_nothing():
    rows = one_by_one()
    # From here on the samples are full, and the scale is final.
    model = new_model(kernel="rbf").partial_fit(ROWS)
    print(f"partial_fit: {held_after(lambda: model.partial_fit(next(rows)), N_CALLS, 600)}")
    forgetting = new_model(half_life=500.0, missing="skip").partial_fit(ROWS)
    bad = itertools.cycle([ROWS[:1], np.full((1, 3), np.nan)])
    print(f"skipping: {held_after(lambda: forgetting.partial_fit(next(bad)), N_CALLS // 10, 600)}")


def test_a_monitor_keeps_nothing():
    monitor, rows = Monitor(new_model()), one_by_one()
    # The scores that thresholds come from fill up with 1,000 alarms and rows.
    monitor.update(ROWS)
    print(f"monitor: {held_after(lambda: monitor.update(next(rows)), N_CALLS // 10, 100)}")


def test_copies_files_merges_and_refusals_keep_nothing(tmp_path):
    model, other = new_model().partial_fit(ROWS[:2000]), new_model().partial_fit(ROWS[2000:4000])
    whole, path = new_model().partial_fit(ROWS), tmp_path / "model.npz"

    def saved():
        model.save(path)
        streamkpca.load(path).transform(ROWS[:1])

    checkpoints = Checkpointer(tmp_path / "generation.npz", keep=2)

    def refused():
        with pytest.raises(FileNotFoundError):
            model.save(tmp_path / "missing" / "model.npz")
        with pytest.raises(TypeError, match="extra"):
            model.save(path, {1: 2})
        for act in (model.partial_fit, model.transform, model.novelty):
            with pytest.raises(ValueError, match="NaN"):
                act(np.full((1, 3), np.nan))

    acts = {
        "deepcopy": lambda: copy.deepcopy(model).transform(ROWS[:1]),
        "pickle": lambda: pickle.loads(pickle.dumps(model)).partial_fit(ROWS[:40]),
        "files": saved,
        "generations": lambda: checkpoints.save(model),
        "refused": refused,
        "merge": lambda: streamkpca.merge(model, other),
        "merge into": lambda: whole.merge(model),
        "refit": lambda: model.refit().transform(ROWS[:1]),
        "fit": lambda: new_model().fit(ROWS[:200]).novelty_threshold(),
        "other kernels": lambda: new_model(kernel=kernels.RBF(np.random.default_rng().uniform(0.1, 1.0))).fit(
            ROWS[:40]
        ),
        "batch": lambda: KernelPCA(2, kernel=kernels.RBF(0.3)).fit(ROWS[:40]).novelty(ROWS[:1]),
    }
    for name, act in acts.items():
        print(f"{name}: {held_after(act, N_COPIES, 2)}")
    assert whole.n_atoms_ <= 8
    assert len(list(tmp_path.iterdir())) == 3
