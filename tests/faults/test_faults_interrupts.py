"""Exceptions and Ctrl-C in the middle of a change: the state is that of before or after, and the stream continues.

HYPOTHESIS_PROFILE=nightly interrupts at a thousand moments of each change.
"""

import copy
import os
import threading
from collections import Counter

import numpy as np
import pytest
from interrupts import count_lines, interrupted_at

from streamkpca import StreamingKernelPCA, kernels
from streamkpca._core import linalg as _blas

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
MOST_MOMENTS = 1000 if NIGHTLY else 12
ROWS = np.random.default_rng(4).normal(size=(300, 3))
SMALL = {"max_atoms": 6, "block_size": 16, "reservoir_size": 10, "refit_every": 32}


def begun(**settings):
    return StreamingKernelPCA(2, **{**SMALL, **settings}).partial_fit(ROWS[:70])


OTHER = begun(kernel=kernels.RBF(0.3)).partial_fit(ROWS[100:140])
BAD = ROWS[100:105].copy()
BAD[2] = np.nan

# Methods that change a model.
CHANGES = {
    "first rows": (StreamingKernelPCA(2, **SMALL), lambda model: model.partial_fit(ROWS[:5])),
    "rows that wait": (begun(), lambda model: model.partial_fit(ROWS[100:104])),
    "a row": (begun(), lambda model: model.partial_fit(ROWS[100:101])),
    "bad rows": (begun(missing="skip"), lambda model: model.partial_fit(BAD)),
    "a block": (begun(half_life=50.0), lambda model: model.partial_fit(ROWS[100:116], sample_weight=np.arange(16) / 8)),
    "blocks": (begun(), lambda model: model.partial_fit(ROWS[100:150])),
    "exact blocks": (begun(max_atoms=None, tolerance=0.0), lambda model: model.partial_fit(ROWS[100:140])),
    "refit": (begun(), lambda model: model.refit()),
    "forget": (begun(), lambda model: model.forget(0.5)),
    "merge": (begun(kernel=kernels.RBF(0.3)), lambda model: model.merge(OTHER)),
    "fit": (begun(), lambda model: model.fit(ROWS[100:150])),
    "fewer atoms": (begun().set_params(max_atoms=3), lambda model: model.partial_fit(ROWS[100:120])),
    "answers": (begun(), lambda model: model.transform(ROWS)),
    "first answers": (StreamingKernelPCA(2).partial_fit(ROWS[:20]), lambda model: model.score_samples(ROWS)),
    "certificates": (begun(), lambda model: model.captured_energy()),
}


def is_free(model):
    """Tell whether another thread can write."""
    thread = threading.Thread(target=lambda: model.set_params(**model.get_params()), daemon=True)
    thread.start()
    thread.join(60.0)
    return not thread.is_alive()


@pytest.mark.parametrize("name", CHANGES)
def test_interrupted_at_any_line_nothing_is_half_done(name, monkeypatch):
    model, change = CHANGES[name]
    before = model.to_bytes()
    never = copy.deepcopy(model)
    n_lines = count_lines(lambda: change(never))
    after = never.to_bytes()
    goes_on = [copy.deepcopy(one).partial_fit(ROWS[200:250]).to_bytes() for one in (model, never)]
    outcomes = Counter[str]()
    moments = np.unique(np.linspace(1, n_lines, MOST_MOMENTS).astype(int)).tolist()
    for count, moment in enumerate(moments):
        broken = copy.deepcopy(model)
        # An interrupt between two methods of a context manager leaves the number of BLAS threads at one; see _blas.
        monkeypatch.setattr(_blas, "_depth", 0)
        kind = (KeyboardInterrupt, MemoryError)[count % 2]
        outcomes["interrupted"] += interrupted_at(moment, kind, lambda broken=broken: change(broken))
        found = broken.to_bytes()
        assert found in (before, after)
        done = found == after
        outcomes["after" if done else "before"] += 1
        assert is_free(broken)
        broken.set_params(**never.get_params())
        if count % 5 == 0:
            if not done:
                twin = copy.deepcopy(broken)
                change(twin)
                assert twin.to_bytes() == after
            assert broken.partial_fit(ROWS[200:250]).to_bytes() == goes_on[done]
    print(f"{name}: {n_lines} lines: {dict(outcomes)}")
