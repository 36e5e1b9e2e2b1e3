import threading
from pathlib import Path

import streamkpca
from streamkpca._core.concurrency import cached_property


class Slow:
    def __init__(self) -> None:
        self.n_calls, self.started, self.go_on = 0, threading.Event(), threading.Event()

    @cached_property
    def result(self) -> list[int]:
        """Take its time."""
        self.n_calls += 1
        self.started.set()
        self.go_on.wait(30)
        return [self.n_calls]


def test_it_is_worked_out_once_and_kept():
    slow = Slow()
    slow.go_on.set()
    assert slow.result is slow.result
    assert slow.n_calls == 1
    assert vars(slow)["result"] == [1]
    assert isinstance(Slow.result, cached_property)
    assert Slow.result.__doc__ == "Take its time."


def test_others_do_not_wait_meanwhile_and_one_result_stays():
    slow, other, found = Slow(), Slow(), []
    other.go_on.set()
    thread = threading.Thread(target=lambda: found.append(slow.result))
    thread.start()
    slow.started.wait(30)
    assert other.result == [1], "an object of the same class"
    again = threading.Thread(target=lambda: found.append(slow.result))
    again.start()
    slow.go_on.set()
    thread.join()
    again.join()
    assert found[0] is found[1] is slow.result


def test_nobody_takes_the_property_that_locks():
    for path in Path(streamkpca.__file__).parent.rglob("*.py"):
        assert "functools import cached_property" not in path.read_text(encoding="utf-8"), path
