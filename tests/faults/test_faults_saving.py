"""Saving that is killed, interrupted, or fails on a full disk: a readable file stays, and at most one interval is lost.

HYPOTHESIS_PROFILE=nightly kills 1,000 processes.
"""

import errno
import gc
import os
import signal
import time
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from apart import FORKS
from interrupts import interrupted_at

from streamkpca import Checkpointer, StreamingKernelPCA, load
from streamkpca._core import files

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_KILLS = 1000 if NIGHTLY else 20
INTERVAL = 20
ROWS = np.random.default_rng(3).normal(size=(4000, 3))

pytestmark = FORKS


def new_model():
    return StreamingKernelPCA(2, max_atoms=6, block_size=32, reservoir_size=20, refit_every=64)


def learned(n_rows):
    return new_model().partial_fit(np.take(ROWS, np.arange(n_rows), axis=0, mode="wrap")) if n_rows else new_model()


def consume(path, reports):
    """Learn and save endlessly, from where the last process was killed, and report each start and end of a save."""
    checkpoints = Checkpointer(path, every_rows=INTERVAL, keep=2)
    model = checkpoints.latest() or new_model()
    offset = model.extra_["offset"] if model.extra_ else 0
    while True:
        rows = np.take(ROWS, np.arange(offset, offset + INTERVAL), axis=0, mode="wrap")
        offset += INTERVAL
        model.partial_fit(rows)
        os.write(reports, f"+{offset}\n".encode())
        assert checkpoints.save_if_due(model, {"offset": offset})
        os.write(reports, f"={offset}\n".encode())


def test_killed_while_saving_loses_at_most_one_interval(tmp_path):
    rng, outcomes, confirmed = np.random.default_rng(5), Counter[str](), 0
    path = tmp_path / "m.npz"
    never_stopped, n_rows = new_model(), 0
    for _ in range(N_KILLS):
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                consume(path, send)
            finally:
                os._exit(1)
        os.close(send)
        # Some time after it has begun for the third time or so.
        said = b""
        while said.count(b"+") < rng.integers(1, 4):
            part = os.read(receive, 4096)
            assert part, "the child gave up"
            said += part
        time.sleep(rng.uniform(0.0, 0.004))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        while part := os.read(receive, 4096):
            said += part
        os.close(receive)
        confirmed = max([confirmed, *(int(line[1:]) for line in said.split() if line.startswith(b"="))])
        begun = max(int(line[1:]) for line in said.split() if line.startswith(b"+"))
        outcomes["half written files"] += any(name.name.endswith(".tmp") for name in tmp_path.iterdir())
        # Warnings are errors: the newest file is always readable.
        model = Checkpointer(path).latest()
        found = 0 if model is None else model.extra_["offset"]
        assert found in (confirmed, begun), "more than one interval is lost"
        outcomes["had just replaced" if found > confirmed else "had not replaced" if begun > confirmed else "idle"] += 1
        # The next save of the generation that was being written removes what is left of it.
        assert sum(name.name.endswith(".tmp") for name in tmp_path.iterdir()) <= 1
        if model is not None:
            while n_rows < found:
                never_stopped.partial_fit(np.take(ROWS, np.arange(n_rows, n_rows + INTERVAL), axis=0, mode="wrap"))
                n_rows += INTERVAL
            assert model.to_bytes() == never_stopped.to_bytes()
        confirmed = found
    assert model is not None
    Checkpointer(path).save(model)
    assert all(name.suffix == ".npz" for name in tmp_path.iterdir())
    print(f"{N_KILLS} processes killed: {dict(outcomes)}; {confirmed} rows learned on the way")


@contextmanager
def kept(folder):
    """Save a model; afterwards it must still be there, and nothing else."""
    learned(100).save(folder / "m.npz", "old")
    before = (folder / "m.npz").read_bytes()
    yield learned(3000).set_params(max_atoms=64).partial_fit(ROWS)
    assert (folder / "m.npz").read_bytes() == before
    assert os.listdir(folder) == ["m.npz"]
    assert load(folder / "m.npz").extra_ == "old"


class Failing:
    """A file on a disk that fails at the n-th operation."""

    left = 0

    def __init__(self, file):
        self._file = file

    @classmethod
    def count(cls):
        cls.left -= 1
        if cls.left == 0:
            raise OSError(errno.EIO, "Input/output error")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._file.close()
        self.count()

    def __getattr__(self, name):
        method = getattr(self._file, name)
        if name not in ("write", "flush"):
            return method

        def counted(*arguments):
            self.count()
            return method(*arguments)

        return counted


def test_a_disk_that_fails_at_any_moment_leaves_the_old_file(tmp_path, monkeypatch):
    originals = {name: getattr(os, name) for name in ("open", "fsync", "replace", "fchmod")}
    n_failed = n_replaced = 0

    def counted(function, wrap=lambda value: value):
        def call(*arguments, **named):
            Failing.count()
            return wrap(function(*arguments, **named))

        return call

    with kept(tmp_path) as model:
        new = model.to_bytes("new")
        old = (tmp_path / "m.npz").read_bytes()
        for moment in range(1, 100_000):
            Failing.left = moment
            with monkeypatch.context() as patch:
                patch.setattr(files, "open", counted(open, Failing), raising=False)
                for name, original in originals.items():
                    patch.setattr(files.os, name, counted(original))
                try:
                    model.save(tmp_path / "m.npz", "new")
                except OSError as error:
                    assert error.errno == errno.EIO  # noqa: PT017
                    n_failed += 1
                else:
                    break
            assert os.listdir(tmp_path) == ["m.npz"]
            found = (tmp_path / "m.npz").read_bytes()
            n_replaced += found == new
            assert found in (old, new)
            (tmp_path / "m.npz").write_bytes(old)
        assert (tmp_path / "m.npz").read_bytes() == new
        (tmp_path / "m.npz").write_bytes(old)
    assert n_failed > 20
    # When the file is closed.
    assert n_replaced == 1


# Where it strikes between the opening of a file and the statement that closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_interrupted_at_any_line_the_old_file_or_the_new_is_there(kind, tmp_path):
    old, model, path = learned(100), learned(150), tmp_path / "m.npz"
    allowed = {old.to_bytes("x"), model.to_bytes("x")}
    outcomes = Counter[str]()
    moment = 0
    while True:
        # Most lines are those of the check of what will be written.
        moment += 1 if NIGHTLY else 37
        old.save(path, "x")
        interrupted = interrupted_at(moment, kind, lambda: model.save(path, "x"))
        assert path.read_bytes() in allowed
        outcomes["old" if path.read_bytes() == old.to_bytes("x") else "new"] += 1
        leftovers = [name for name in os.listdir(tmp_path) if name != "m.npz"]
        outcomes["leftovers"] += len(leftovers)
        for name in leftovers:
            (tmp_path / name).unlink()
        if not interrupted:
            break
    # Archives that could not be closed say so when they are collected: here, not in the middle of a later test.
    gc.collect()
    # Where it strikes the very lines that clean up.
    assert outcomes["leftovers"] <= 4
    assert path.read_bytes() == model.to_bytes("x")
