"""Blocks prepared ahead in threads: the same bits, no thread left running, and callers' functions in their own."""

import threading
from contextlib import closing

import numpy as np
import pytest
from comparisons import state

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.dictionary import moving
from streamkpca.stream import transitions as stream
from streamkpca.stream.transitions import BlockPrefetcher


def test_an_error_is_raised_and_no_thread_is_left_running():
    def prepare(number):
        if number == 3:
            raise ZeroDivisionError
        return number

    def request():
        with closing(BlockPrefetcher(3)) as ahead:
            for i in range(8):
                ahead.block(i, 7, prepare)

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        request()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "settings",
    [{"max_atoms": 12}, {"atoms": "rows"}, {"max_atoms": None, "tolerance": 0.2}, {"half_life": 40.0}],
    ids=repr,
)
def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch, settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 3))[rng.integers(7, size=2600)] + rng.normal(scale=0.2, size=(2600, 3))
    X[2000:] += 1.0
    monkeypatch.setattr(stream, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(moving, "_WORTH_THREADS", 0)
    monkeypatch.setattr(moving, "_VALUES_AT_ONCE", 1000)
    models, ahead = [], []
    original = BlockPrefetcher.block

    def spy(*arguments):
        block = original(*arguments)
        ahead.append(block is not None)
        return block

    monkeypatch.setattr(BlockPrefetcher, "block", spy)
    for n_threads in (1, 3):
        for module in (stream, moving):
            monkeypatch.setattr(module, "blas_threads", lambda n_threads=n_threads: n_threads)
        options = {"max_atoms": 12, "block_size": 8, "refit_every": 64, "noise_variance": None} | settings
        models.append(StreamingKernelPCA(3, kernel=kernels.RBF(0.3), **options))
        ahead.clear()
        models[-1].partial_fit(X[:5]).partial_fit(X[5:])
    assert sum(ahead) >= 5
    assert state(models[0]) == state(models[1])


def test_functions_of_the_caller_are_called_by_one_thread(monkeypatch):
    threads = set()

    def inner(X, Y):
        threads.add(threading.current_thread())
        return X @ Y.T

    monkeypatch.setattr(stream, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(stream, "blas_threads", lambda: 4)
    X = np.random.default_rng(0).normal(size=(3000, 2))
    StreamingKernelPCA(2, kernel=kernels.Custom(inner), max_atoms=None, block_size=8).partial_fit(X)
    assert threads == {threading.current_thread()}
