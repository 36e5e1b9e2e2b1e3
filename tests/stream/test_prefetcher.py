"""Looking ahead: the same blocks in the same order, whoever looks at them, and nothing left running."""

import threading
import time

import numpy as np
import pytest
from comparisons import state

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.stream import blocks as prefetcher
from streamkpca.stream import state as stream
from streamkpca.stream.blocks import BlockPrefetcher


def looked_at(n_threads, n_blocks, *, calm=lambda number: 99, pause=0.0):
    """Ask for blocks in order; return them and who looked at each."""
    lookers = {}

    def look(number):
        lookers[number] = threading.current_thread()
        time.sleep(pause)
        return f"block {number}"

    with BlockPrefetcher(n_threads) as ahead:
        blocks = [ahead.block(i, min(i + calm(i), n_blocks) - 1, look) for i in range(n_blocks)]
    return blocks, lookers


def test_one_thread_looks_at_nothing_ahead():
    assert looked_at(1, 5) == ([None] * 5, {})


@pytest.mark.parametrize("n_threads", [2, 3, 7])
@pytest.mark.parametrize("n_blocks", [2, 5, 40])
def test_blocks_come_in_order_whoever_looks_at_them(n_threads, n_blocks):
    blocks, lookers = looked_at(n_threads, n_blocks, pause=0.001)
    assert blocks == [f"block {i}" for i in range(n_blocks)]
    assert len(lookers) == n_blocks
    assert len(set(lookers.values())) <= n_threads


def test_this_thread_helps_and_so_do_others():
    _, lookers = looked_at(2, 30, pause=0.005)
    shares = [list(lookers.values()).count(thread) for thread in set(lookers.values())]
    assert len(shares) == 2
    assert threading.current_thread() in lookers.values()
    assert min(shares) >= 8


def test_what_is_not_calm_is_not_looked_at():
    blocks, lookers = looked_at(2, 12, calm=lambda number: 3 if number < 4 else 0)
    assert blocks[:4] == [f"block {i}" for i in range(4)]
    # Looked at already when the calm ended.
    assert max(lookers) <= 6
    assert blocks[7:] == [None] * 5


def test_an_error_comes_through_and_nothing_is_left_running():
    def look(number):
        if number == 3:
            raise ZeroDivisionError
        return number

    def ask():
        with BlockPrefetcher(3) as ahead:
            for i in range(8):
                ahead.block(i, 7, look)

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        ask()
    assert threading.active_count() == before


@pytest.mark.parametrize("settings", [{"max_atoms": 12}, {"max_atoms": None, "tolerance": 0.2}, {"half_life": 40.0}])
def test_bits_do_not_depend_on_looking_ahead(monkeypatch, settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 3))[rng.integers(7, size=2600)] + rng.normal(scale=0.2, size=(2600, 3))
    X[2000:] += 1.0
    monkeypatch.setattr(stream, "_WORTH_A_THREAD", 0)
    models, ahead = [], []
    original = prefetcher.BlockPrefetcher.block

    def spy(*arguments):
        block = original(*arguments)
        ahead.append(block is not None)
        return block

    monkeypatch.setattr(prefetcher.BlockPrefetcher, "block", spy)
    for n_threads in (1, 3):
        monkeypatch.setattr(stream, "blas_threads", lambda n_threads=n_threads: n_threads)
        options = {"max_atoms": 12, "block_size": 8, "refit_every": 64, "noise_variance": None} | settings
        models.append(StreamingKernelPCA(3, kernel=kernels.RBF(0.3), **options))
        ahead.clear()
        models[-1].partial_fit(X[:5]).partial_fit(X[5:])
    assert sum(ahead) >= 5
    assert state(models[0]) == state(models[1])


def test_functions_of_the_caller_are_asked_by_one_thread(monkeypatch):
    lookers = set()

    def inner(X, Y):
        lookers.add(threading.current_thread())
        return X @ Y.T

    monkeypatch.setattr(stream, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(stream, "blas_threads", lambda: 4)
    X = np.random.default_rng(0).normal(size=(3000, 2))
    StreamingKernelPCA(2, kernel=kernels.Custom(inner), max_atoms=None, block_size=8).partial_fit(X)
    assert lookers == {threading.current_thread()}
