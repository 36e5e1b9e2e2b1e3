"""Freed memory is kept for as long as it is asked for, in processes that return it at once."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# Each round maps or reuses 1 MiB, too little for huge pages. Only the system knows which of both it did.
SCRIPT = """
import resource, sys
import numpy as np
from streamkpca._core.memory import freed_memory_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.empty(2**17).fill(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = [faults()]
first, second = freed_memory_kept(), freed_memory_kept()
with first:
    second.__enter__()
    found.append(faults())
# The other call still goes on.
found.append(faults())
second.__exit__(None, None, None)
found.append(faults())
print(*found)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
@pytest.mark.parametrize(
    ("variables", "is_kept"),
    [
        ({"MALLOC_TRIM_THRESHOLD_": "65536"}, [False, True, True, False]),
        ({"MALLOC_MMAP_THRESHOLD_": "65536"}, [False, True, True, False]),
        ({"MALLOC_TRIM_THRESHOLD_": "134217728", "MALLOC_MMAP_THRESHOLD_": "33554432"}, [True] * 4),
    ],
)
def test_memory_is_kept_until_the_last_call_ends(variables: dict[str, str], is_kept: list[bool]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=clean | variables, capture_output=True, text=True, check=True
    )
    assert [int(count) < 5000 for count in done.stdout.split()] == is_kept, done.stdout


def test_nothing_changes_where_the_environment_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamkpca._core import memory

    def refuse(thresholds: list[int]) -> None:
        raise AssertionError(thresholds)

    monkeypatch.setattr(memory, "_set", refuse)
    for variables in ({}, {"MALLOC_TRIM_THRESHOLD_": "much"}):
        memory._thresholds.cache_clear()
        with monkeypatch.context() as patched:
            for name in memory._VARIABLES:
                patched.delenv(name, raising=False)
            for name, value in variables.items():
                patched.setenv(name, value)
            with memory.freed_memory_kept():
                pass
    memory._thresholds.cache_clear()
