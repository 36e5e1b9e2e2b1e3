"""The command under kills, signals and other processes on its model: each row counts once, and no model is lost.

HYPOTHESIS_PROFILE=nightly kills and stops many times as often.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from apart import FORKS, Command
from commands import COMMAND, assert_plain

import streamkpca
from streamkpca import StreamingKernelPCA, load
from streamkpca.kernels import RBF

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_KILLS = 600 if NIGHTLY else 8
N_SIGNALS = 300 if NIGHTLY else 6

SMALL = ["--components", "2", "--max-atoms", "8", "--block-size", "32", "--refit-every", "64"]
PARAMETERS = {"max_atoms": 8, "block_size": 32, "refit_every": 64}
DATA = np.round(np.random.default_rng(6).normal(size=(4000, 3)), 5)
LINES = [",".join(map(repr, row)) + "\n" for row in DATA.tolist()]
HEADER = "a,b,c\n"
STOPPED = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

pytestmark = FORKS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give an empty folder to work in, with the compiled loops loaded."""
    monkeypatch.chdir(tmp_path)
    learned(DATA[:200])
    return tmp_path


def learned(rows):
    return StreamingKernelPCA(2, kernel=RBF().in_units("std"), **PARAMETERS).partial_fit(rows).refit()


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def test_killed_at_random_moments_each_row_is_learned_once(folder):
    """Killed after some saves, and a moment more: the moments fall before, between and in the middle of saves."""
    rng, outcomes = np.random.default_rng(1), Counter[str]()
    log, model, n_written = folder / "log.csv", folder / "m.npz", 0
    log.write_text(HEADER)
    fit = ["fit", "log.csv", "--model", "m.npz", "--resume", "--save-every", "0", "--chunk-rows", "40"]

    def state():
        return (model.stat().st_ino, model.stat().st_mtime_ns) if model.exists() else None

    def started():
        return Command(folder, *fit, *([] if model.exists() else SMALL))

    for _ in range(N_KILLS):
        more = int(rng.integers(40, 240))
        with log.open("a") as file:
            file.write("".join(LINES[i % len(LINES)] for i in range(n_written, n_written + more)))
        n_written += more
        before = load(model).n_samples_seen_ if model.exists() else 0
        process = started()
        for _ in range(int(rng.integers(0, 4))):
            known = state()
            wait_for(lambda process=process, known=known: process.ended() or state() != known)
        time.sleep(rng.uniform(0.0, 0.03))
        if not process.ended():
            process.send(signal.SIGKILL)
        outcomes["killed" if process.wait() == -signal.SIGKILL else "done"] += 1
        assert_plain(process.said())
        after = load(model).n_samples_seen_ if model.exists() else 0
        assert before <= after <= n_written
        outcomes["saved more" if after > before else "saved nothing"] += 1
    assert min(outcomes["killed"], outcomes["saved more"]) > 0
    process = started()
    assert process.wait() == 0, process.said()
    assert load(model).to_bytes() == learned(DATA[np.arange(n_written) % len(DATA)]).to_bytes()


def test_signals_at_random_moments_leave_a_whole_model_and_a_plain_line(folder):
    rng, outcomes = np.random.default_rng(2), Counter[str]()
    (folder / "log.csv").write_text(HEADER + "".join(LINES))
    for number in range(N_SIGNALS):
        kind = list(STOPPED)[number % 3]
        (folder / "m.npz").unlink(missing_ok=True)
        args = ["fit", "log.csv", "--model", "m.npz", "--chunk-rows", "40", *SMALL]
        if number % 2:
            args += ["--follow", "--save-every", "0.1"]
        process = Command(folder, *args)
        time.sleep(rng.uniform(0.0, 0.4))
        if not process.ended():
            process.send(kind)
        code = process.wait()
        outcomes[f"{kind.name}: {code}"] += 1
        # Before the handlers are there, a signal ends the process as it would any other.
        assert code in {0, 130, STOPPED[kind], -kind}, process.said()
        assert_plain(process.said())
        if (folder / "m.npz").exists():
            n_rows = load("m.npz").n_samples_seen_
            assert code == 0 or process.said()[-1] in (f"Interrupted after {n_rows:,} rows", "Interrupted")
            again = Command(folder, "fit", "log.csv", "--model", "m.npz", "--resume")
            assert again.wait() == 0, again.said()
            assert load("m.npz").n_samples_seen_ == len(LINES)
    print(f"{N_SIGNALS} signals: {dict(sorted(outcomes.items()))}")


def test_processes_that_save_at_once_replace_no_model_that_they_have_not_seen(folder):
    """Each learns other rows; the rows in all files that are left are those of all processes."""
    outcomes, n = Counter[str](), 4
    for _ in range(20 if NIGHTLY else 2):
        for path in folder.glob("m*.npz"):
            path.unlink()
        processes = []
        for number in range(n):
            os.mkfifo(folder / f"{number}.csv")
            args = ["fit", f"{number}.csv", "--model", "m.npz", "--save-every", "0", "--chunk-rows", "8", *SMALL]
            processes.append(Command(folder, *args, name=f"process{number}"))
        # Opened once all have begun, as they look for the model before they read: one that begins when another is done
        # has seen its model.
        pipes = [open(folder / f"{number}.csv", "w", encoding="utf-8") for number in range(n)]
        for number, pipe in enumerate(pipes):
            with pipe:
                pipe.write(HEADER + "".join(LINES[500 * number : 500 * number + 64 + number]))
            (folder / f"{number}.csv").unlink()
        codes = [process.wait() for process in processes]
        outcomes.update(f"code {code}" for code in codes)
        for process, code in zip(processes, codes, strict=True):
            assert code in (0, 1)
            assert_plain(process.said(), refused=code == 1)
        whole = {load(path).n_samples_seen_ for path in folder.glob("m*.npz")}
        finished = {64 + number for number, code in enumerate(codes) if code == 0}
        # One that was refused has kept its own in a file of its own, as far as it had come.
        assert finished <= whole
        assert len(list(folder.glob("m-*.npz"))) == codes.count(1)
    print(f"{n} processes at once: {dict(outcomes)}")


def test_no_home_no_unicode_and_no_cache_are_borne(tmp_path):
    """In a process of its own, whose streams are encoded as the environment says."""
    (tmp_path / "\u00e9.csv").write_text("\u6e29\u5ea6,b\u00e9,c\n" + "".join(LINES[:100]), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(streamkpca.__file__).parents[1])}
    environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "NUMBA_CACHE_DIR": "/proc/nowhere"}
    environment.pop("HOME", None)
    args = [*COMMAND, "fit", str(tmp_path / "\u00e9.csv"), "--model", str(tmp_path / "m.npz"), *SMALL]
    done = subprocess.run(args, env=environment, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert b"column names" in done.stdout
    assert load(tmp_path / "m.npz").n_samples_seen_ == 100
