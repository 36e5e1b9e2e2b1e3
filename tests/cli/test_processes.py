"""The command in processes of its own: kills, signals, pipes whose readers leave, and logs that grow."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from commands import COMMAND, SMALL, append, learned, run

import streamkpca
from streamkpca import load
from streamkpca.monitoring import Monitor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="signals of POSIX"),
]

X = np.round(np.tanh(np.random.default_rng(2).normal(size=(900, 2)) @ np.random.default_rng(3).normal(size=(2, 3))), 6)
LINES = [",".join(map(repr, row)) + "\n" for row in X.tolist()]
HEADER = "a,b,c\n"
# Debian has it where only root looks.
LOGROTATE = shutil.which("logrotate", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(streamkpca.__file__).parents[1]))
    return tmp_path


def rows_in(path):
    return load(path).n_samples_seen_ if Path(path).exists() else 0


def wait_for(condition):
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


@contextlib.contextmanager
def running(*args, **options):
    process = subprocess.Popen(
        [*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), **options,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_follower_continues_with_each_row_once(folder):
    append("log.csv", HEADER, *LINES[:100])
    follow = ["fit", "log.csv", "--follow", "--model", "m.npz", "--resume"]
    with running(*follow, "--save-every", "0", *SMALL) as process:
        wait_for(lambda: rows_in("m.npz") == 100)
        append("log.csv", *LINES[100:250])
        wait_for(lambda: rows_in("m.npz") == 250)
        # The last one is no whole line.
        append("log.csv", *LINES[250:280], LINES[280][:9])
        time.sleep(0.5)
        process.kill()
    append("log.csv", LINES[280][9:], *LINES[281:400])
    with running(*follow, "--save-every", "0") as process:
        wait_for(lambda: rows_in("m.npz") == 400)
        append("log.csv", *LINES[400:403])
        wait_for(lambda: rows_in("m.npz") == 403)
        os.rename("log.csv", "log.1")
        append("log.csv", HEADER, *LINES[403:420])
        wait_for(lambda: rows_in("m.npz") == 420)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        assert process.returncode == 143
        assert process.stderr.read().splitlines()[-1] == "Interrupted after 420 rows"
    assert load("m.npz").to_bytes() == learned(X[:420]).to_bytes()


def test_a_watched_log_goes_on_with_each_row_once(folder):
    append("log.csv", HEADER, *LINES[:300])
    for first, n in ((300, 500), (501, 700)):
        with running("watch", "log.csv", "--follow", "--model", "m.npz", "--save", "o.csv") as process:
            # The last one is no whole line.
            append("log.csv", *LINES[first:n], LINES[n][:9])
            wait_for(lambda n=n: os.path.exists("o.csv") and f"\n{n + 1}," in Path("o.csv").read_text())
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
            assert process.returncode == 143
        append("log.csv", LINES[n][9:])
    found, whole = Monitor.load("m.npz"), Monitor()
    whole.update(X[:700])
    assert found.n_rows_ == 700
    spans = [[(event.start, event.end, event.n_alarms) for event in one.events_] for one in (found, whole)]
    assert spans[0] == spans[1]


@pytest.mark.skipif(LOGROTATE is None, reason="needs the program logrotate")
@pytest.mark.parametrize("way", ["copytruncate", "create", "nocreate"])
def test_logs_and_results_may_be_rotated_while_they_are_followed(folder, way):
    config = f"{folder}/*.csv {{\n rotate 9\n {way}\n}}\n"
    Path("rotation").write_text(config)
    # Logrotate refuses what others may write.
    os.chmod("rotation", 0o644)
    os.chmod(folder, 0o755)
    rotate = [LOGROTATE, "--force", "--state", str(folder / "state"), str(folder / "rotation")]
    append("log.csv", HEADER, *LINES[:300])
    with running("watch", "log.csv", "--follow", "--model", "m.npz", "--save", "o.csv") as process:
        n_rows = 300
        for first in (300, 500, 700):
            wait_for(lambda n=n_rows: os.path.exists("o.csv") and f"\n{n + 1}," in Path("o.csv").read_text())
            subprocess.run(rotate, check=True, timeout=60)
            n_rows = 200
            append("log.csv", HEADER, *LINES[first : first + n_rows])
        wait_for(lambda: os.path.exists("o.csv") and "\n201," in Path("o.csv").read_text())
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        said = process.stderr.read()
    assert Monitor.load("m.npz").n_rows_ == 900
    for number, n in ((3, 300), (2, 200), (1, 200), (0, 200)):
        lines = Path(f"o.csv.{number}" if number else "o.csv").read_text().splitlines()
        assert lines[0].startswith('"row","novelty"')
        assert [int(line.split(",")[0]) for line in lines[1:]] == [*range(2, n + 2)]
    told = {"copytruncate": "o.csv: was emptied or cut"}.get(way, "o.csv: was renamed or removed")
    assert said.count(told) == 3


def test_a_stopped_pipe_is_saved_and_continues_as_if_it_had_not_stopped(folder):
    with running("fit", "-", *SMALL, "--model", "m.npz", "--save-every", "0", stdin=subprocess.PIPE) as process:
        process.stdin.write(HEADER + "".join(LINES[:250]))
        process.stdin.flush()
        wait_for(lambda: rows_in("m.npz") >= 100)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        assert process.returncode == 130
        n = rows_in("m.npz")
        assert process.stderr.read() == f"Interrupted after {n} rows\n"
    assert run("fit", "-", "--model", "m.npz", "--resume", stdin=HEADER + "".join(LINES[n:])).exit_code == 0
    assert load("m.npz").to_bytes() == learned(X[:900]).to_bytes()


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("closed pipe", ""),
        pytest.param(
            "/dev/full",
            "Error: .*No space left on device.*\n",
            marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full"),
        ),
    ],
)
def test_a_reader_that_leaves_is_no_error_and_a_full_disk_is_one_line(folder, target, error):
    learned(X[:300]).save("m.npz")
    np.savetxt("x.csv", np.tile(X, (60, 1)), delimiter=",")
    if target == "closed pipe":
        receive, target = os.pipe()
        os.close(receive)
    with open(target, "wb") as written:
        args = [*COMMAND, "score", "x.csv", "--model", "m.npz", "--save", "-"]
        done = subprocess.run(args, stdout=written, stderr=subprocess.PIPE, text=True, timeout=60)
    assert re.fullmatch(error, done.stderr)
    assert done.returncode == 1


def test_alarms_come_as_rows_come(folder):
    learned(X[:600]).save("m.npz")
    append("new.csv", *LINES[600:650])
    with running("score", "new.csv", "--follow", "--model", "m.npz", "--quantile", "0.5", "--json") as process:
        first = json.loads(process.stdout.readline())
        append("new.csv", *(line.replace(",", "1,") for line in LINES[650:700]))
        assert first["kind"] == "event"
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        rest = process.stdout.read().splitlines()
        assert process.returncode == 130
    assert json.loads(rest[-1])["rows"] >= 50


def test_without_its_libraries_one_line_names_the_extra(folder):
    code = "import sys; sys.modules['click'] = None; from streamkpca.__main__ import main; main()"
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == 'streamkpca: the command needs click; pip install "streamkpca[cli]"\n'
