"""Everything that writes files, at odd targets, on full disks and two at once: nothing else is damaged.

HYPOTHESIS_PROFILE=nightly reads and saves a thousand times.
"""

import os
import signal
import stat
import time
from collections import Counter

import numpy as np
import pytest
from apart import FORKS, in_a_child
from click.testing import CliRunner

from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.commands import cli
from streamkpca.monitoring import Monitor

resource = pytest.importorskip("resource", reason="there are no limits of files' lengths")

N_SAVES = 1000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 20
ROWS = np.random.default_rng(8).normal(size=(200, 3))

pytestmark = FORKS


def new_model(n_rows=100):
    model = StreamingKernelPCA(2, kernel="linear", max_atoms=6, block_size=32, reservoir_size=20, refit_every=64)
    return model.partial_fit(ROWS[:n_rows])


MODEL = new_model()


def run(*args):
    """Run the command, and raise what it prints as its error."""
    done = CliRunner().invoke(cli, args)
    if done.exit_code:
        raise OSError(0, done.stderr.splitlines()[-1])


# What writes, and the ending of the file.
WRITERS = {
    "model": ("npz", lambda target: MODEL.save(target)),
    "monitor": ("npz", lambda target: Monitor(MODEL).save(target)),
    "export": ("c", lambda target: run("export", "a.npz", str(target))),
    "table": ("csv", lambda target: run("score", "rows.csv", "--model", "a.npz", "--save", str(target))),
}
every_writer = pytest.mark.parametrize(("ending", "write"), WRITERS.values(), ids=WRITERS.keys())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make an empty folder for targets, beside one of what the command reads."""
    sources, targets = tmp_path / "sources", tmp_path / "targets"
    sources.mkdir()
    targets.mkdir()
    MODEL.save(sources / "a.npz")
    np.savetxt(sources / "rows.csv", ROWS[:80], delimiter=",", header="x,y,z", comments="")
    monkeypatch.chdir(sources)
    return targets


def fail_at(length, write, target):
    """Write while a file can have so many bytes only, and tell the error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, resource.RLIM_INFINITY))
    with pytest.raises(OSError, match="File too large") as caught:
        write(target)
    assert str(target) in str(caught.value)


@every_writer
def test_a_full_disk_leaves_the_old_file_or_none(ending, write, folder):
    target = folder / f"t.{ending}"
    write(target)
    # Results replace nothing but results.
    old = target.read_bytes()
    length = len(old) // 2
    assert in_a_child(lambda report: fail_at(length, write, target), seconds=120) == (0, [])
    assert target.read_bytes() == old
    target.unlink()
    assert in_a_child(lambda report: fail_at(length, write, target), seconds=120) == (0, [])
    assert os.listdir(folder) == []


@every_writer
def test_links_and_rights_of_a_replaced_file_stay(ending, write, folder):
    real, link = folder / f"real.{ending}", folder / f"link.{ending}"
    link.symlink_to(real.name)
    # First the link dangles.
    write(link)
    assert not link.stat().st_mode & 0o002
    old = real.read_bytes()
    for mode in (0o600, 0o664):
        real.chmod(mode)
        write(link)
        assert real.read_bytes() == old
        assert stat.S_IMODE(real.lstat().st_mode) == mode
        assert os.readlink(link) == real.name
        assert sorted(os.listdir(folder)) == [link.name, real.name]


@every_writer
def test_a_device_is_written_into(ending, write, folder):
    target = folder / f"null.{ending}"
    target.symlink_to(os.devnull)
    write(target)
    assert os.readlink(target) == os.devnull
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


ACCEPTED = {
    "not UTF-8": lambda folder: os.fsencode(folder) + b"/\xff\xfe\n.npz",
    "escaped bytes": lambda folder: f"{folder}/\udcff.npz",
    "shell": lambda folder: f"{folder}/$(x) `y` *?[a]{{b}}'\"\\.npz",
    "four bytes a letter": lambda folder: f"{folder}/{'😀' * 63}",
    "255 letters": lambda folder: f"{folder}/{'n' * 255}",
    "folder twice": lambda folder: f"{folder}//./m.npz",
}

REFUSED = {
    "empty": (lambda folder: "", "No such file or directory"),
    "folder": (lambda folder: folder / "folder", "Is a directory"),
    "folder with a slash": (lambda folder: f"{folder}/folder/", "Is a directory"),
    "in a file": (lambda folder: f"{folder}/file/m.npz", "Not a directory"),
    "missing folder": (lambda folder: os.fsencode(f"{folder}/missing/m.npz"), "No such file or directory"),
    "loop": (lambda folder: folder / "loop", "Too many levels of symbolic links"),
    "NUL": (lambda folder: f"{folder}/a\0b", "NUL character|null byte"),
    "256 letters": (lambda folder: f"{folder}/{'n' * 256}", "File name too long"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_names_are_names(name, folder):
    target = ACCEPTED[name](folder)
    for extra in ("first", "second"):
        MODEL.save(target, extra)
        assert load(target).extra_ == extra
        assert len(os.listdir(folder)) == 1


@pytest.mark.parametrize("name", REFUSED)
def test_odd_targets_are_refused_by_the_name_that_was_given(name, folder):
    (folder / "folder").mkdir()
    (folder / "file").write_text("mine")
    (folder / "loop").symlink_to("loop")
    make, message = REFUSED[name]
    with pytest.raises((OSError, ValueError), match=message) as caught:
        MODEL.save(make(folder))
    assert ".tmp" not in str(caught.value)
    if isinstance(caught.value, OSError):
        assert caught.value.filename == os.fspath(make(folder))
    assert sorted(os.listdir(folder)) == ["file", "folder", "loop"]
    assert (folder / "file").read_text() == "mine"


def test_two_processes_that_save_to_one_path_leave_whole_files(folder):
    path, models = folder / "m.npz", [new_model(100), new_model(150), new_model(199)]
    allowed = [model.to_bytes() for model in models]
    models[0].save(path)
    children = []
    for model in models[1:]:
        child = os.fork()
        if child == 0:
            try:
                while True:
                    model.save(path)
            finally:
                os._exit(1)
        children.append(child)
    found = Counter[int]()
    try:
        deadline = time.monotonic() + 120.0
        # Both must have come to write, whatever the scheduler does.
        while found.total() < N_SAVES or not (found[1] and found[2]):
            found[allowed.index(path.read_bytes())] += 1
            assert time.monotonic() < deadline
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_bytes() in allowed
