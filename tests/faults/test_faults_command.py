"""The command under logs that rotate, kills, signals, closed streams and two processes on one model.

Each row counts once, or a warning tells what was lost; nothing ends in a traceback. HYPOTHESIS_PROFILE=nightly kills
and rotates many times as often.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from apart import Command
from commands import COMMAND, assert_plain

import streamkpca
from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.main import cli
from streamkpca.cli.tables import TableError, open_table
from streamkpca.cli.tables import source as sources
from streamkpca.kernels import RBF

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_KILLS = 600 if NIGHTLY else 12
N_SIGNALS = 300 if NIGHTLY else 8
N_STORMS = 40 if NIGHTLY else 2
N_ROTATIONS = 60 if NIGHTLY else 20

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


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


# Kills and signals


def rows_from(start: int, stop: int) -> str:
    return "".join(LINES[i % len(LINES)] for i in range(start, stop))


def test_killed_at_random_moments_each_row_is_learned_once(folder: Path) -> None:
    """Killed after some saves, and a moment more: the moments fall before, between and in the middle of saves."""
    rng, outcomes = np.random.default_rng(1), Counter[str]()
    log, model, n_written = folder / "log.csv", folder / "m.npz", 0
    log.write_text(HEADER)
    fit = ["fit", "log.csv", "--model", "m.npz", "--resume", "--save-every", "40", "--chunk-rows", "20"]

    def state() -> tuple[int, int] | None:
        return (model.stat().st_ino, model.stat().st_mtime_ns) if model.exists() else None

    def started() -> Command:
        return Command(folder, *fit, *([] if model.exists() else SMALL))

    for _ in range(N_KILLS):
        more = int(rng.integers(40, 240))
        append(log, rows_from(n_written, n_written + more))
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
    print(f"{N_KILLS} kills: {dict(outcomes)}; {n_written:,} rows learned in the end")
    rows = DATA[np.arange(n_written) % len(DATA)]
    expected = StreamingKernelPCA(2, kernel=RBF().in_units("auto"), **PARAMETERS).partial_fit(rows).refit()
    assert load(model).to_bytes() == expected.to_bytes()
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
            # Once all is learned, it may be printing its report.
            told = {f"interrupted after {n_rows:,} rows"} | ({"interrupted"} if n_rows == len(LINES) else set())
            assert code == 0 or process.said()[-1].removeprefix("streamkpca: ") in told
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
        first = Command(folder, "fit", "-", "--model", "m.npz", *resumed, stdin=receive, other_end=send, name="first")
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
    score = Command(folder, "score", "-", "--model", "m.npz", "--save-model", "m.npz", stdin=receive, other_end=send)
    os.close(receive)
    os.write(send, (HEADER + "".join(LINES[300:350])).encode())
    time.sleep(0.5)
    learned(250).save("m.npz")
    os.close(send)
    assert score.wait() == 2
    assert "m.npz: another process has saved a model there" in score.said()[-1]
    assert load("m.npz").n_samples_seen_ == 250
    # A monitor learns rows with a delay, so that those of an event can be left out.
    assert 200 < load(folder / f"m-{score.pid}.npz").n_samples_seen_ <= 250


# Logs that rotate


class Storm(threading.Thread):
    """A writer of numbered rows that rotates its log; the last row is -1.

    With `patience`, it rotates only what the reader of `got` has read.
    """

    def __init__(self, path: Path, how: str, seed: int, got: list[int], *, patience: bool) -> None:
        super().__init__(daemon=True)
        self.path, self.how, self.got, self.patience = path, how, got, patience
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
                is_torn = self.how != "empty" and self.rng.random() < 0.3
                cut = int(self.rng.integers(1, len(line))) if is_torn else len(line)
                for part in (line[:cut], line[cut:]):
                    file.write(part.encode())
                    if part and self.rng.random() < 0.5:
                        time.sleep(0.01 * self.rng.random())
                self.written.append(number)
                number += 1
            if self.patience:
                wait_for(lambda: self.got and self.got[-1] == self.written[-1])
            else:
                time.sleep(0.003)
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
        # The last file is there until it is read.
        file.write(b"-1,-0.5\n")
        file.close()

    def _begun(self) -> Any:
        file = self.path.open("ab", buffering=0)
        file.write(b"x,y\n")
        return file


@pytest.mark.parametrize("how", ["move", "remove", "empty"])
@pytest.mark.parametrize("patience", [True, False])
def test_a_storm_of_rotations_loses_no_row_silently(
    tmp_path: Path, how: str, patience: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were there when the follower looked count once; of others, files that are still there are told."""
    monkeypatch.setattr(sources.FollowedFile, "poll_seconds", 0.002 if patience else 0.05)
    outcomes = Counter[str]()
    for seed in range(N_STORMS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        told: list[str] = []
        got: list[int] = []
        storm = Storm(folder / "log", how, seed, got, patience=patience)
        storm.start()
        for chunk in open_table(str(folder / "log"), follow=True, tell=told.append, on_bad_rows="skip").chunks(100):
            np.testing.assert_array_equal(chunk.rows[:, 1], chunk.rows[:, 0] + 0.5)
            got += chunk.rows[:, 0].astype(int).tolist()
            if -1 in got:
                break
        storm.join()
        assert storm.error is None
        assert got.pop() == -1
        assert got == sorted(set(got)), "a row counted twice, or out of order"
        # Files that had gone before it began to look are none of its concern.
        missing = set(storm.written) - set(got) - set(range(min(got, default=0)))
        outcomes.update(read=len(got), missing=len(missing), told=len(told), rotations=N_ROTATIONS)
        assert not (patience and missing)
        if how == "empty":
            assert all("was emptied after byte" in line for line in told)
            assert told or not missing
        elif how == "move":
            files = [line.split(": had the name")[0] for line in told if "had the name" in line]
            assert missing <= {row for file in files for row in rows_in(Path(file))}, "missing rows were not told"
    print(f"{how}, {'patient' if patience else 'hasty'}: {dict(outcomes)}")


def rows_in(path: Path) -> list[int]:
    return [int(line.split(",")[0]) for line in path.read_text().splitlines()[1:]]


def test_a_name_that_passes_to_a_folder_or_a_pipe_is_told_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources.FollowedFile, "poll_seconds", 0.01)
    log, told, got = tmp_path / "log", list[str](), list[float]()
    log.write_text("x\n1\n")

    def change() -> None:
        for number, make in enumerate((Path.mkdir, os.mkfifo, lambda path: path.symlink_to(tmp_path / "nowhere"))):
            wait_for(lambda number=number: got and got[-1] == number + 1)
            log.rename(tmp_path / f"old{number}")
            make(log)
            wait_for(lambda number=number: len(told) > min(number, 1))
            append(tmp_path / f"old{number}", f"{10 * number + 20}\n")
            wait_for(lambda number=number: got[-1] == 10 * number + 20)
            log.rmdir() if log.is_dir() else log.unlink()
            log.write_text(f"x\n{number + 2}\n")
        wait_for(lambda: got[-1] == 4)
        append(log, "-1\n")

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    for chunk in open_table(str(log), follow=True, tell=told.append).chunks(1):
        got += chunk.rows.ravel().tolist()
        if got[-1] == -1 or not thread.is_alive():
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
    append(tmp_path / "log.1", "9\n")
    threading.Timer(0.2, append, (log, "3\n")).start()
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
