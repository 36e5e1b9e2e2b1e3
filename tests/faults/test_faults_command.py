"""The command under logs that rotate, kills, signals, closed streams, two processes on one model, and odd options.

Each row counts once,
or a warning tells what was lost; nothing ends in a traceback. HYPOTHESIS_PROFILE=nightly kills and
rotates a hundred times as often, and tries every option with every odd value.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from apart import Command
from click.testing import CliRunner
from commands import COMMAND
from corruptions import CHANGED_ENTRIES, DAMAGES, ROWS, entries, models, repacked, unpacked, with_entry

import streamkpca
from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.main import cli
from streamkpca.cli.tables import TableError, open_table
from streamkpca.cli.tables import source as sources
from streamkpca.kernels import RBF
from streamkpca.monitoring import Monitor

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_KILLS = 600 if NIGHTLY else 12
N_SIGNALS = 300 if NIGHTLY else 8
N_STORMS = 40 if NIGHTLY else 2
N_ROTATIONS = 60 if NIGHTLY else 20
# Every n-th option with its value, and every n-th odd model file, is tried.
EVERY_OPTION, EVERY_MODEL = (1, 1) if NIGHTLY else (160, 30)

SMALL = ["--components", "2", "--max-atoms", "8", "--block-size", "32", "--refit-every", "64"]
PARAMETERS: dict[str, Any] = {"max_atoms": 8, "block_size": 32, "refit_every": 64}
DATA = np.round(np.random.default_rng(6).normal(size=(4000, 3)), 5)
LINES = [",".join(map(repr, row)) + "\n" for row in DATA.tolist()]
HEADER = "a,b,c\n"
STOPPED = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty folder to work in, with the compiled loops loaded."""
    monkeypatch.chdir(tmp_path)
    learned(200)
    return tmp_path


def learned(n: int) -> StreamingKernelPCA:
    return StreamingKernelPCA(2, kernel=RBF().in_units("auto"), **PARAMETERS).partial_fit(DATA[:n]).refit()


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def assert_plain(lines: list[str], *, refused: bool = False) -> None:
    """Check that standard error holds lines of the command alone, one of them no warning if it refused."""
    text = "\n".join(lines)
    assert all(line.startswith("streamkpca: ") for line in lines), text
    assert "mistake of its own" not in text
    assert "Traceback" not in text
    assert not refused or sum(not line.startswith("streamkpca: warning: ") for line in lines) == 1, text


# Kills and signals


def test_killed_at_random_moments_each_row_is_learned_once(folder: Path) -> None:
    rng, outcomes = np.random.default_rng(1), Counter[str]()
    log, n_written = folder / "log.csv", 200
    log.write_text(HEADER + "".join(LINES[:200]))
    fit = ["fit", "log.csv", "--model", "m.npz", "--resume", "--save-every", "40", "--chunk-rows", "20"]

    def settings() -> list[str]:
        return [] if (folder / "m.npz").exists() else SMALL

    for _ in range(N_KILLS):
        if n_written < len(LINES):
            more = int(rng.integers(1, max(2, 2 * len(LINES) // N_KILLS)))
            with log.open("a") as file:
                file.write("".join(LINES[n_written : n_written + more]))
            n_written = min(n_written + more, len(LINES))
        before = load("m.npz").n_samples_seen_ if (folder / "m.npz").exists() else 0
        process = Command(folder, *fit, *settings())
        time.sleep(rng.uniform(0.0, 0.25))
        process.send(signal.SIGKILL)
        outcomes["killed" if process.wait() == -signal.SIGKILL else "done"] += 1
        assert_plain(process.said())
        after = load("m.npz").n_samples_seen_ if (folder / "m.npz").exists() else 0
        assert before <= after <= n_written
        outcomes["saved more" if after > before else "saved nothing"] += 1
    process = Command(folder, *fit, *settings())
    assert process.wait() == 0, process.said()
    model = load("m.npz")
    print(f"{N_KILLS} kills: {dict(outcomes)}; {model.n_samples_seen_:,} of {n_written:,} rows learned in the end")
    assert model.n_samples_seen_ == n_written
    assert model.to_bytes() == learned(n_written).to_bytes()
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]


def test_signals_at_random_moments_leave_a_whole_model_and_a_plain_line(folder: Path) -> None:
    rng, outcomes = np.random.default_rng(2), Counter[str]()
    log = folder / "log.csv"
    log.write_text(HEADER + "".join(LINES))
    for number in range(N_SIGNALS):
        kind = list(STOPPED)[number % 3]
        (folder / "m.npz").unlink(missing_ok=True)
        args = ["fit", "log.csv", "--model", "m.npz", "--chunk-rows", "40", *SMALL]
        if number % 4 == 3:
            args += ["--follow", "--save-every", "0.1s"]
        if number % 4 == 1:
            args += ["--save", "out.csv"]
        process = Command(folder, *args)
        time.sleep(rng.uniform(0.0, 0.4))
        if not process.ended():
            process.send(kind)
        if number % 4 == 3:
            # Before the handlers are there, a signal ends the process as it would any other.
            wait_for(process.ended, 30)
        code = process.wait()
        outcomes[f"{kind.name}: {code}"] += 1
        assert code in {0, STOPPED[kind], -kind}, process.said()
        assert_plain(process.said())
        if (folder / "m.npz").exists():
            n_rows = load("m.npz").n_samples_seen_
            assert re.fullmatch(rf"streamkpca: interrupted after {n_rows:,} rows", process.said()[-1]) or code == 0
            again = Command(folder, "fit", "log.csv", "--model", "m.npz", "--resume")
            assert again.wait() == 0, again.said()
            assert load("m.npz").n_samples_seen_ == len(LINES)
        assert not (folder / "out.csv.part").exists()
    print(f"{N_SIGNALS} signals: {dict(sorted(outcomes.items()))}")


def test_a_reader_that_leaves_ends_it_quietly(folder: Path) -> None:
    (folder / "log.csv").write_text(HEADER + "".join(LINES))
    learned(500).save("m.npz")
    outcomes = Counter[int]()
    for args in (
        ["transform", "log.csv", "--model", "m.npz"],
        ["score", "log.csv", "--model", "m.npz", "--save", "-"],
        ["fit", "log.csv", *SMALL, "--save", "-"],
        ["info", "m.npz"],
        ["--help"],
    ):
        receive, send = os.pipe()
        os.close(receive)
        child = os.fork()
        if child == 0:
            os.dup2(send, 1)
            os.dup2(os.open(folder / "err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
            code = 1
            try:
                cli(args, prog_name="streamkpca")
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            sys.stderr.flush()
            os._exit(code)
        os.close(send)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        outcomes[code] += 1
        assert code == 141, (args, (folder / "err").read_text())
        assert_plain((folder / "err").read_text().splitlines())
    print(f"readers that left: {dict(outcomes)}")


# Two processes


def test_two_processes_on_one_model_lose_neither(folder: Path) -> None:
    (folder / "b.csv").write_text(HEADER + "".join(LINES[:300]))
    for began_with in (False, True):
        (folder / "m.npz").unlink(missing_ok=True)
        if began_with:
            learned(100).save("m.npz")
        receive, send = os.pipe()
        resumed = ["--resume"] if began_with else SMALL
        first = Command(folder, "fit", "-", "--model", "m.npz", *resumed, stdin=receive, name="first")
        os.close(receive)
        os.write(send, (HEADER + "".join(LINES[300:350])).encode())
        time.sleep(0.5)
        second = Command(folder, "fit", "b.csv", "--model", "m.npz", *resumed, name="second")
        assert second.wait() == 0, second.said()
        saved = (folder / "m.npz").read_bytes()
        os.close(send)
        assert first.wait() == 2
        (line,) = (line for line in first.said() if "warning" not in line)
        assert "m.npz: another process has saved a model there since this one began" in line
        assert (folder / "m.npz").read_bytes() == saved
        assert load("m.npz").n_samples_seen_ == (400 if began_with else 300)
        kept = folder / f"m-{first.pid}.npz"
        assert str(kept) in line
        assert load(kept).n_samples_seen_ == (150 if began_with else 50)


def test_processes_that_save_at_once_replace_no_model_that_they_have_not_seen(folder: Path) -> None:
    """Each learns other rows; the rows in all files that are left are those of all processes."""
    outcomes, n = Counter[str](), 4
    for _ in range(20 if NIGHTLY else 3):
        for path in folder.glob("m*.npz"):
            path.unlink()
        processes = []
        for number in range(n):
            (folder / f"{number}.csv").write_text(HEADER + "".join(LINES[500 * number : 500 * number + 64 + number]))
            args = ["fit", f"{number}.csv", "--model", "m.npz", "--save-every", "8", "--chunk-rows", "4", *SMALL]
            processes.append(Command(folder, *args, name=f"process{number}"))
        codes = [process.wait() for process in processes]
        outcomes.update(f"code {code}" for code in codes)
        for process, code in zip(processes, codes, strict=True):
            assert code in (0, 2)
            assert_plain(process.said(), refused=code == 2)
        whole = {load(path).n_samples_seen_ for path in folder.glob("m*.npz")}
        finished = {64 + number for number, code in enumerate(codes) if code == 0}
        # One that was refused has kept its own in a file of its own, as far as it had come.
        assert finished <= whole
        assert len(list(folder.glob("m-*.npz"))) == codes.count(2)
    print(f"{n} processes at once: {dict(outcomes)}")


def test_a_model_that_score_goes_on_with_is_not_replaced_if_another_has(folder: Path) -> None:
    (folder / "b.csv").write_text(HEADER + "".join(LINES[:300]))
    learned(200).save("m.npz")
    receive, send = os.pipe()
    score = Command(folder, "score", "-", "--model", "m.npz", "--save-model", "m.npz", stdin=receive)
    os.close(receive)
    os.write(send, (HEADER + "".join(LINES[300:350])).encode())
    time.sleep(0.5)
    learned(250).save("m.npz")
    os.close(send)
    assert score.wait() == 2
    assert "m.npz: another process has saved a model there" in score.said()[-1]
    assert load("m.npz").n_samples_seen_ == 250
    assert load(folder / f"m-{score.pid}.npz").n_samples_seen_ == 250


# Logs that rotate


class Storm(threading.Thread):
    """A writer of numbered rows that rotates its log; the last row is -1."""

    def __init__(self, path: Path, how: str, seed: int, *, pause: float, torn: bool) -> None:
        super().__init__()
        self.path, self.how, self.pause, self.torn = path, how, pause, torn
        self.rng = np.random.default_rng(seed)
        self.written: list[int] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error

    def _write(self) -> None:
        number, file = 0, self._begun()
        for rotation in range(N_ROTATIONS):
            for _ in range(int(self.rng.integers(1, 6))):
                line = f"{number},{number}.5\n"
                cut = int(self.rng.integers(1, len(line))) if self.torn and self.rng.random() < 0.3 else len(line)
                for part in (line[:cut], line[cut:]):
                    file.write(part.encode())
                    if part and self.rng.random() < 0.5:
                        time.sleep(self.pause * self.rng.random() / 4)
                self.written.append(number)
                number += 1
            time.sleep(self.pause)
            if self.how == "empty":
                # Copied and emptied, as logrotate's copytruncate does.
                os.truncate(self.path, 0)
                file.write(b"x,y\n")
                continue
            if self.how == "move":
                self.path.rename(self.path.with_name(f"log.{rotation}"))
            else:
                # The next file may get the same inode.
                self.path.unlink()
            file.close()
            file = self._begun()
        time.sleep(max(self.pause, 0.1))
        file.write(b"-1,-0.5\n")
        file.close()

    def _begun(self) -> Any:
        file = self.path.open("ab", buffering=0)
        file.write(b"x,y\n")
        return file


@pytest.mark.parametrize("how", ["move", "remove", "empty"])
@pytest.mark.parametrize("pace", ["slow", "fast"])
def test_a_storm_of_rotations_loses_no_row_silently(
    tmp_path: Path, how: str, pace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slower than the follower looks, every row counts once; faster, what is missing was told."""
    monkeypatch.setattr(sources.FollowedFile, "poll_seconds", 0.01)
    outcomes = Counter[str]()
    for seed in range(N_STORMS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        told: list[str] = []
        storm = Storm(folder / "log", how, seed, pause=0.08 if pace == "slow" else 0.003, torn=how != "empty")
        storm.start()
        got: list[int] = []
        table = open_table(str(folder / "log"), follow=True, tell=told.append, on_bad_rows="skip")
        for chunk in table.chunks(100):
            np.testing.assert_array_equal(chunk.rows[:, 1], chunk.rows[:, 0] + 0.5)
            got += chunk.rows[:, 0].astype(int).tolist()
            if -1 in got:
                break
        storm.join()
        assert storm.error is None
        assert got.pop() == -1
        assert got == sorted(set(got)), "a row counted twice, or out of order"
        missing = sorted(set(storm.written) - set(got))
        outcomes.update(read=len(got), missing=len(missing), told=len(told), rotations=N_ROTATIONS)
        if how == "empty":
            assert len(told) >= (N_ROTATIONS // 2 if pace == "slow" else 1)
            assert all("was emptied after byte" in line for line in told)
            assert pace == "fast" or not missing
        elif how == "move":
            in_told = {
                int(line.split(",")[0])
                for path in (Path(line.split(": had the name")[0]) for line in told if "had the name" in line)
                for line in path.read_text().splitlines()[1:]
            }
            assert set(missing) <= in_told, "rows are missing that no warning told"
            assert pace == "fast" or not missing
        else:
            # Removed files leave nothing to tell of; slow ones are all seen.
            assert pace == "fast" or not missing
    print(f"{how}, {pace}: {dict(outcomes)}")


def test_a_name_that_passes_to_a_folder_or_a_pipe_is_told_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources.FollowedFile, "poll_seconds", 0.01)
    log, told, got = tmp_path / "log", list[str](), list[float]()
    log.write_text("x\n1\n")

    def change() -> None:
        for number, make in enumerate((Path.mkdir, os.mkfifo, lambda path: path.symlink_to(tmp_path / "nowhere"))):
            wait_for(lambda number=number: len(got) > number)
            log.rename(tmp_path / f"old{number}")
            make(log)
            wait_for(lambda number=number: len(told) > min(number, 1))
            with (tmp_path / f"old{number}").open("a") as file:
                file.write(f"{10 * number + 20}\n")
            wait_for(lambda number=number: got[-1] == 10 * number + 20)
            log.rmdir() if log.is_dir() else log.unlink()
            log.write_text(f"x\n{number + 2}\n")
        wait_for(lambda: got[-1] == 4)
        with log.open("a") as file:
            file.write("-1\n")

    thread = threading.Thread(target=change)
    thread.start()
    for chunk in open_table(str(log), follow=True, tell=told.append).chunks(1):
        got += chunk.rows.ravel().tolist()
        if got[-1] == -1:
            break
    thread.join()
    assert got == [1, 20, 2, 30, 3, 40, 4, -1]
    assert ["folder" in told[0], "no regular file" in told[1], len(told)] == [True, True, 2]


def test_what_a_late_writer_adds_to_an_old_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.FollowedFile, "poll_seconds", 0.01)
    log, told = tmp_path / "log", list[str]()
    log.write_text("x\n1\n")
    chunks = open_table(str(log), follow=True, tell=told.append).chunks(5)
    assert next(chunks).rows.tolist() == [[1.0]]
    log.rename(tmp_path / "log.1")
    log.write_text("x\n2\n")
    assert next(chunks).rows.tolist() == [[2.0]]
    with (tmp_path / "log.1").open("a") as file:
        file.write("9\n")
    threading.Timer(0.2, lambda: log.open("a").write("3\n")).start()
    assert next(chunks).rows.tolist() == [[3.0]]
    chunks.close()
    assert told == [
        f"{log}: 2 bytes were written to an earlier file of that name after a newer one had begun; they are not read"
    ]


@pytest.mark.parametrize("trickled", [False, True])
def test_a_rotated_log_of_equal_beginning_is_not_taken_for_the_one_learned(folder: Path, trickled: bool) -> None:
    """Rows of one width, and a header that came before the first row: the offset fits the new file by chance."""
    rows = [f"{i % 10},{i % 7},{i % 3}\n" for i in range(400)]
    log = folder / "log.csv"
    log.write_text(HEADER if trickled else HEADER + "".join(rows[:100]))
    table = open_table(str(log), follow=True)
    chunks = table.chunks(50)
    if trickled:
        threading.Timer(0.3, lambda: log.write_text(HEADER + "".join(rows[:100]))).start()
    offsets = [next(chunks).offset for _ in range(2)]
    chunks.close()
    log.rename(folder / "log.1")
    log.write_text(HEADER + "".join(rows[200:400]))
    later = open_table(str(log))
    for offset in offsets:
        with pytest.raises(TableError, match="expected the file that was read up to byte"):
            later.seek(offset)
    again = open_table("log.1")
    again.seek(offsets[0])
    assert sum(len(chunk.rows) for chunk in again.chunks(20)) == 50


def test_following_commands_count_each_row_of_a_rotating_log(folder: Path) -> None:
    (folder / "log.csv").write_text(HEADER + "".join(LINES[:100]))
    learned(300).save("m.npz", {"command": {"columns": ["a", "b", "c"]}})
    fit = Command(folder, "fit", "log.csv", "--follow", "--model", "f.npz", "--save-every", "0.1s", *SMALL, name="fit")
    score = Command(folder, "score", "log.csv", "--follow", "--model", "m.npz", "--json", name="score")
    n = 100
    for rotation in range(30 if NIGHTLY else 4):
        time.sleep(0.5)
        (folder / "log.csv").rename(folder / f"log.csv.{rotation}")
        (folder / "log.csv").write_text(HEADER + "".join(LINES[n : n + 25]))
        n += 25
    wait_for(lambda: (folder / "f.npz").exists() and load("f.npz").n_samples_seen_ == n)
    time.sleep(0.5)
    for process in (fit, score):
        process.send(signal.SIGTERM)
        assert process.wait() == 143, process.said()
        assert_plain(process.said())
    assert fit.said() == [f"streamkpca: interrupted after {n} rows"]
    found = json.loads(score.out.read_text().splitlines()[-1])
    assert found["scores"]["rows"] == n
    assert load("f.npz").to_bytes() == learned(n).to_bytes()


# Surroundings


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_harm_no_file(folder: Path, closed: tuple[int, ...]) -> None:
    (folder / "x.csv").write_text(HEADER + "".join(LINES[:200]))
    process = Command(folder, "fit", "x.csv", "--model", "m.npz", "--save", "o.csv", *SMALL, closed=closed)
    assert process.wait() == 0, process.said()
    assert load("m.npz").to_bytes() == learned(200).to_bytes()
    assert len((folder / "o.csv").read_text().splitlines()) == 201
    process = Command(folder, "transform", "-", "--model", "m.npz", closed=closed)
    assert process.wait() == 2
    if 2 not in closed:
        assert_plain(process.said(), refused=True)


ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "no home, C": {"HOME": None, "LANG": "C", "LC_ALL": "C"},
    "no home, no Unicode": {"HOME": None, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "Latin-1": {"PYTHONIOENCODING": "latin-1", "HOME": "/nowhere"},
    "no cache, no terminal": {"NUMBA_CACHE_DIR": "/proc/nowhere", "TERM": None, "COLUMNS": "1"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS if NIGHTLY else ["no home, no Unicode"])
def test_no_home_no_unicode_and_a_read_only_folder_are_borne(tmp_path: Path, name: str) -> None:
    """In processes of their own, whose streams are encoded as the environment says."""
    (tmp_path / "\u00e9.csv").write_text("\u6e29\u5ea6,b\u00e9,c\n" + "".join(LINES[:100]))
    environment = os.environ | {"PYTHONPATH": str(Path(streamkpca.__file__).parents[1])}
    for key, value in ENVIRONMENTS[name].items():
        environment.pop(key, None)
        if value is not None:
            environment[key] = value
    writable = os.access("/sys", os.W_OK) and not Path("/sys").is_dir()
    for cwd, out in (("/sys", tmp_path / "m.npz"), ("/sys", "m.npz")):
        args = [*COMMAND, "fit", str(tmp_path / "\u00e9.csv"), "--model", str(out), *SMALL]
        done = subprocess.run(args, cwd=cwd, env=environment, capture_output=True, timeout=300, check=False)
        lines = done.stderr.decode("latin-1").splitlines()
        assert_plain(lines, refused=done.returncode == 2)
        assert done.returncode == (0 if out != "m.npz" or writable else 2), lines
        if done.returncode == 0:
            assert b"column names" in done.stdout
    assert load(tmp_path / "m.npz").n_samples_seen_ == 100


# Odd options and models

VALUES = [
    "", "0", "-1", "1", "2", "1.5", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 30, "9" * 5000, "x", "none",
    "auto", "None",
    "True", " ", "  1", "1_0", "\u0663", "\u00bd", "a,b", "a", "t", "l", "0,1", "0,0", "1,2,3", "a,a", ",", ";", "\t",
    '"', "\\",
    "\u00e9", "\x1b[31m", "\n", "--", "-", ".", "..", "/", "/dev/null", "/dev/full", "/no/such/file", "m.npz",
    "x.csv", "x.npz",
    "o.csv", "o.parquet", "o.arrow", "o.png", "o.c", "x" * 5000, "*/", "%s", "{}", "{0}", "[bold]", "[/]", "rbf",
    "RBF()",
    "RBF(gamma=1e-300)", "RBF(gamma=1e300)", "RBF().on([0])", "Linear()**3", "1e-300*RBF()", "3", "7x4", "0x0",
    "1e-3x2", "1s",
    "5", "1h", "0.0000001s", "9" * 400 + "s", "range", "std", "csv", "jsonl", "r", "\udcff",
]  # fmt: skip
BASES: dict[str, list[str]] = {
    "fit": ["x.csv", "--drop", "t,l", "--max-atoms", "8"],
    "score": ["x.csv", "--drop", "t,l", "--model", "m.npz"],
    "transform": ["x.csv", "--drop", "t,l", "--model", "m.npz"],
    "info": ["m.npz"],
    "merge": ["m.npz", "--out", "o.npz"],
    "export": ["m.npz", "o.c"],
    "demo": ["--rows", "1000", "--out", "d"],
    "completion": ["bash"],
    "plot spectrum": ["m.npz", "--save", "o.svg"],
    "plot atoms": ["m.npz", "--save", "o.svg"],
    "plot sparsity": ["m.npz", "--save", "o.svg"],
    "plot drift": ["m.npz", "--save", "o.svg"],
    "plot novelty": ["x.csv", "--drop", "t,l", "--model", "m.npz", "--save", "o.svg"],
    "plot projections": ["x.csv", "--drop", "t,l", "--model", "m.npz", "--save", "o.svg"],
    "plot contours": ["x.csv", "--drop", "t,l", "--model", "m.npz", "--save", "o.svg"],
}


def command_lines() -> Iterator[list[str]]:
    for name, base in BASES.items():
        command: click.Command = cli
        for word in name.split():
            assert isinstance(command, click.Group)
            command = command.commands[word]
        for parameter in command.params:
            if parameter.name == "follow":
                continue
            if isinstance(parameter, click.Argument):
                yield from ([*name.split(), value, *base[1:]] for value in VALUES)
            elif isinstance(parameter, click.Option) and parameter.is_flag:
                yield from ([*name.split(), *base, one] for one in (*parameter.opts, *parameter.secondary_opts))
            else:
                yield from ([*name.split(), *base, parameter.opts[-1], value] for value in VALUES)


def run_plainly(args: list[str]) -> int:
    """Run the command, and check that it ends as it should."""
    result = CliRunner().invoke(cli, args, input=b"")
    assert result.exception is None or isinstance(result.exception, SystemExit), (args, result.exception)
    assert result.exit_code in (0, 2), args
    assert_plain(result.stderr.splitlines(), refused=result.exit_code == 2)
    assert "\x1b" not in result.stdout + result.stderr
    assert len(result.stderr) < 12_000
    return result.exit_code


def write_table() -> None:
    with open("x.csv", "w") as file:
        file.write("t,a,b,c,l\n")
        for i, line in enumerate(LINES[:80]):
            file.write(f"2024-01-01T00:{i // 60:02}:{i % 60:02},{line.rstrip()},{i % 2}\n")
    np.savez("x.npz", r=DATA[:80], l=np.zeros(80))


@pytest.mark.filterwarnings("ignore")
def test_any_value_of_any_option_is_used_or_refused_in_a_line(folder: Path) -> None:
    write_table()
    assert run_plainly(["fit", "x.csv", "--drop", "t,l", "--model", "m.npz", "--max-atoms", "8"]) == 0
    model, outcomes, tried = Path("m.npz").read_bytes(), Counter[int](), 0
    for number, args in enumerate(command_lines()):
        if number % EVERY_OPTION:
            continue
        tried += 1
        outcomes[run_plainly(args)] += 1
        # Results may have gone over them.
        write_table()
        Path("m.npz").write_bytes(model)
    print(f"{tried} command lines: {outcomes[0]} done, {outcomes[2]} refused")
    assert min(outcomes[0], outcomes[2]) > 0


OFFSETS: list[Any] = [
    {}, {"format": "CSV"}, {"format": "CSV", "head": [10**12, 0], "byte": 5, "line": 2},
    {"format": "CSV", "head": None},
    {"format": "CSV", "head": [5, "x"], "byte": 5, "line": 2},
    {"format": "CSV", "head": [5, 0], "byte": -5, "line": 2},
    {"format": "CSV", "head": [0, 0], "byte": 2**59, "line": 2},
    {"format": "CSV", "head": [0, 0], "byte": 6, "line": -1},
    {"format": "CSV", "head": [0, 0], "byte": 6, "line": 2, "tail": [10**12, 1]},
    {"format": ["x"], "byte": 6, "line": 2},
    {"format": "CSV", "head": [0, 0], "byte": 6, "line": 2, "tail": "x"}, {"format": "npy", "row": 5, "names": 3},
    {"format": "CSV", "head": [0, 0], "byte": "6", "line": 2}, {"line": 10**18, "row": "x"}, {"line": [], "row": {}},
]  # fmt: skip
MONITORS: list[Any] = [
    None, [], "x", {}, {"parameters": None}, {"parameters": {}}, {"parameters": {"lags": "x"}},
    {"parameters": {"lags": 0}},
    {"parameters": {"lags": 10**9}}, {"parameters": {"lags": -1}}, {"parameters": {"lags": 2.5}},
    {"parameters": {"lags": 1, "quantile": [], "smoothing": {}, "learn": 5, "accept_after": None}},
]  # fmt: skip


def odd_models() -> Iterator[tuple[str, bytes]]:
    """Yield files given as models: damaged, foreign, and whole ones whose notes make no sense."""
    rng = np.random.default_rng(8)
    good = {name: model.to_bytes({"offset": 1}) for name, model in models().items()}
    monitor = Monitor(StreamingKernelPCA(2, max_atoms=6, block_size=16, reservoir_size=10), lags=2)
    monitor.update(ROWS)
    monitor.save("monitor.npz", {"command": {"columns": ["a", "b", "c"]}})
    good["monitor"] = Path("monitor.npz").read_bytes()
    for number in range(20 if NIGHTLY else 3):
        for kind, damage in DAMAGES.items():
            for name, data in good.items():
                yield f"{name}, {kind}, {number}", damage(data, rng)
    header, arrays = unpacked(good["fitted"])
    places = [{"command": {"places": {os.path.realpath("x.csv"): offset}}} for offset in OFFSETS]
    names = [
        ["a", "a", "b"],
        ["\x1b[31m", "*/", "\ud800"],
        [""] * 3,
        ["$\\frac", "$x$", "_a"],
        ["a" * 10_000] * 3,
        [1],
        "abc",
    ]
    columns = [{"command": {"columns": one}} for one in names]
    beside = [{"monitor": one} for one in MONITORS] + [{"monitor": one, "extra": columns[0]} for one in MONITORS]
    for extra in [
        None,
        0,
        True,
        "x" * 1000,
        [],
        [1],
        {},
        {"command": None},
        {"command": []},
        *places,
        *columns,
        *beside,
    ]:
        yield f"extra {json.dumps(extra)[:60]}", repacked(with_entry(header, ("extra",), extra), arrays)
    header, arrays = unpacked(good["monitor"])
    for place in entries(header["extra"], ("extra",)):
        for change, new in CHANGED_ENTRIES:
            yield f"{place} {change}", repacked(with_entry(header, place, new), arrays)
    for foreign in (
        b"",
        b"PK\x05\x06" + bytes(18),
        b"\x89PNG\r\n\x1a\n",
        b"a,b\n1,2\n",
        bytes(1000),
        b"\x93NUMPY\x01\x00",
    ):
        yield f"foreign {foreign[:9]!r}", foreign


USES = [
    ["info", "m.npz"],
    ["info", "m.npz", "--json"],
    ["score", "x.csv", "--model", "m.npz"],
    ["score", "x.csv", "--model", "m.npz", "--save-model", "o.npz", "--json"],
    ["transform", "x.csv", "--model", "m.npz", "--save", "o.csv"],
    ["fit", "x.csv", "--model", "m.npz", "--resume"],
    ["export", "m.npz", "o.c"],
    ["merge", "m.npz", "good.npz", "--out", "o.npz"],
    ["plot", "spectrum", "m.npz", "--save", "o.svg"],
    ["plot", "atoms", "m.npz", "--save", "o.svg"],
    ["plot", "drift", "m.npz", "--save", "o.svg"],
    ["plot", "novelty", "x.csv", "--model", "m.npz", "--save", "o.svg"],
    ["plot", "contours", "x.csv", "--model", "m.npz", "--save", "o.svg"],
]


@pytest.mark.filterwarnings("ignore")
def test_any_file_given_as_a_model_is_used_or_refused_in_a_line(folder: Path) -> None:
    (folder / "x.csv").write_text(HEADER + "".join(LINES[:60]))
    models()["fitted"].save("good.npz")
    outcomes, tried = Counter[int](), 0
    for number, (_, data) in enumerate(odd_models()):
        for use, args in enumerate(USES):
            if (number * 5 + use) % EVERY_MODEL:
                continue
            tried += 1
            Path("m.npz").write_bytes(data)
            outcomes[run_plainly(args)] += 1
    print(f"{tried} uses of odd models: {outcomes[0]} done, {outcomes[2]} refused")
    assert min(outcomes[0], outcomes[2]) > 0
