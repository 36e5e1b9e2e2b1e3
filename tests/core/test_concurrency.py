import copy
import gc
import pickle
import threading
from pathlib import Path

import pytest

import streamkpca
from streamkpca._core import concurrency
from streamkpca._core.concurrency import WriteLock, cached_property


def is_free(lock):
    """Return whether another thread could write."""
    found = []
    thread = threading.Thread(target=lambda: found.append(lock.held.acquire(blocking=False)))
    thread.start()
    thread.join()
    return found[0]


def test_one_thread_writes_at_a_time_and_may_enter_twice():
    lock = WriteLock()
    with lock.held, lock.held:
        assert not is_free(lock)
    assert is_free(lock)


@pytest.mark.parametrize("clone", [copy.deepcopy, copy.copy, lambda lock: pickle.loads(pickle.dumps(lock))])
def test_copies_have_locks_of_their_own(clone):
    lock = WriteLock()
    with lock.held:
        assert is_free(clone(lock))


def test_locks_are_forgotten_with_their_models():
    gc.collect()
    before = len(concurrency._LOCKS)
    locks = [WriteLock() for _ in range(5)]
    assert len(concurrency._LOCKS) == before + 5
    del locks
    gc.collect()
    assert len(concurrency._LOCKS) == before


class Slow:
    def __init__(self):
        self.n_calls, self.started, self.finish = 0, threading.Event(), threading.Event()

    @cached_property
    def result(self):
        """Compute slowly."""
        self.n_calls += 1
        self.started.set()
        self.finish.wait(30)
        return [self.n_calls]


def test_other_threads_do_not_wait_for_it_and_one_result_is_kept():
    slow, other, found = Slow(), Slow(), []
    other.finish.set()
    thread = threading.Thread(target=lambda: found.append(slow.result))
    thread.start()
    slow.started.wait(30)
    assert other.result == [1], "an object of the same class"
    again = threading.Thread(target=lambda: found.append(slow.result))
    again.start()
    slow.finish.set()
    thread.join()
    again.join()
    assert found[0] is found[1] is slow.result


def test_no_module_uses_the_cached_property_that_locks():
    for path in Path(streamkpca.__file__).parent.rglob("*.py"):
        assert "functools import cached_property" not in path.read_text(encoding="utf-8"), path
