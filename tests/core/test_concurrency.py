import copy
import gc
import os
import pickle
import signal
import threading

import pytest

from streamkpca._core.concurrency import WriteLock


def is_free(lock):
    """Say whether another thread could write."""
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_child_process_starts_with_free_locks():
    lock, held, done = WriteLock(), threading.Event(), threading.Event()

    def hold():
        with lock.held:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        with lock.held:
            os._exit(7)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 7


def test_locks_are_forgotten_with_their_models():
    from streamkpca._core import concurrency as write_lock

    gc.collect()
    before = len(write_lock._EVERY)
    locks = [WriteLock() for _ in range(5)]
    assert len(write_lock._EVERY) == before + 5
    del locks
    gc.collect()
    assert len(write_lock._EVERY) == before
