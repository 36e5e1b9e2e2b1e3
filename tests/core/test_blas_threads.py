import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA
from streamkpca._core import linalg as blas
from streamkpca._core.linalg import one_blas_thread

threadpoolctl = pytest.importorskip("threadpoolctl", reason="the oracle; comes with scikit-learn, extra sklearn")


class Count:
    """A thread count that remembers what it was set to."""

    def __init__(self, threads):
        self.threads = threads

    def get(self):
        return self.threads

    def set(self, threads):
        self.threads = threads


@pytest.fixture
def counts(monkeypatch):
    fakes = [Count(4), Count(2)]
    monkeypatch.setattr(blas, "_thread_counts", lambda: fakes)
    return fakes


def threads_of(counts):
    return [count.threads for count in counts]


def test_the_thread_counts_are_those_of_the_libraries_in_use():
    pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["internal_api"] == "openblas"]
    assert sorted(count.get() for count in blas._thread_counts()) == sorted(pools)


def test_one_thread_is_used_inside_and_the_old_number_afterwards(counts):
    with one_blas_thread():
        assert threads_of(counts) == [1, 1]
        with one_blas_thread():
            assert threads_of(counts) == [1, 1]
        assert threads_of(counts) == [1, 1]
    assert threads_of(counts) == [4, 2]


def test_an_error_restores_the_threads(counts):
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert threads_of(counts) == [4, 2]


def test_overlapping_calls_restore_what_the_first_found(counts):
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with one_blas_thread():
            entered.set()
            leave.wait()

    other = threading.Thread(target=hold)
    with one_blas_thread():
        other.start()
        entered.wait()
    assert threads_of(counts) == [1, 1]
    leave.set()
    other.join()
    assert threads_of(counts) == [4, 2]


def test_fits_and_queries_run_on_one_thread(counts):
    seen = []

    def spy(X, Y):
        seen.append(threads_of(counts))
        return X @ Y.T

    from streamkpca.kernels import Custom

    rows = np.random.default_rng(0).normal(size=(20, 2))
    model = StreamingKernelPCA(2, kernel=Custom(spy), block_size=8)
    for ask in (
        lambda: model.partial_fit(rows[:3]),
        lambda: model.transform(rows),
        lambda: model.partial_fit(rows),
        lambda: model.fit(rows),
        model.refit,
        lambda: model.transform(rows),
        lambda: model.reconstruction_error(rows),
    ):
        ask()
    assert seen
    assert all(threads == [1, 1] for threads in seen)
    assert threads_of(counts) == [4, 2]


@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_threads():
    code = (
        "import json, numpy as np\n"
        "from streamkpca import ApproximateKernelPCA, StreamingKernelPCA\n"
        "X = np.random.default_rng(0).normal(size=(3000, 20))\n"
        "model = StreamingKernelPCA(5, max_atoms=128).partial_fit(X)\n"
        "arrays = (model.transform(X), model.reconstruction_error(X), model.eigenvalues_, model.weights_)\n"
        # Enough rows and atoms for moves with threads of their own.
        "arrays += (model.atoms_, model.fit(X).atoms_, ApproximateKernelPCA(5).fit(X).atoms_)\n"
        "print(json.dumps([array.tobytes().hex()[:4000] for array in arrays]))\n"
    )
    answers = []
    for threads in ("1", "2"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        answers.append(json.loads(run.stdout))
    assert answers[0] == answers[1]
