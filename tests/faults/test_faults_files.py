"""Everything that writes files, at odd targets, on full disks and two at once: nothing else is damaged.

HYPOTHESIS_PROFILE=nightly saves a thousand times, and fills the disk at many more lengths.
"""

import errno
import gc
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

from streamkpca import Checkpointer, StreamingKernelPCA, load
from streamkpca._core import files
from streamkpca._core.files import write_durably
from streamkpca.cli.main import cli
from streamkpca.cli.results import FORMATS, ResultWriter
from streamkpca.monitoring import Monitor

resource = pytest.importorskip("resource", reason="there are no limits of files' lengths")

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_SAVES = 1000 if NIGHTLY else 20
N_LENGTHS = 16 if NIGHTLY else 2
IS_ROOT = os.geteuid() == 0
NOBODY = 65534
ROWS = np.random.default_rng(8).normal(size=(200, 3))
SETTINGS = ["--components", "2", "--max-atoms", "6", "--block-size", "32", "--refit-every", "64", "--units", "none"]

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    # Other libraries keep threads; the children wait for none of them.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root makes device nodes, mounts and changes of owner")


def new_model(n_rows: int = 100) -> StreamingKernelPCA:
    model = StreamingKernelPCA(2, kernel="linear", max_atoms=6, block_size=32, reservoir_size=20, refit_every=64)
    return model.partial_fit(ROWS[:n_rows])


MODEL = new_model()


class Writer(NamedTuple):
    """What writes a file whose name has an ending; `act` raises, or returns what the command printed as its error."""

    ending: str
    act: Callable[[Any], str | None]
    # Of a new file; None is what the umask leaves.
    mode: int | None = None


def command(*args: str) -> Callable[[Any], str | None]:
    """Make what runs the command with the target in place of ``TO``."""

    def act(target: Any) -> str | None:
        given = [os.fspath(target) if arg == "TO" else arg for arg in args]
        result = CliRunner().invoke(cli, given)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        if result.exit_code == 0:
            return None
        assert result.exit_code == 2
        # Warnings, and what the demo tells of its progress, come before.
        lines = result.stderr.splitlines()
        assert all(line.startswith("streamkpca: ") for line in lines), lines
        return lines[-1]

    return act


def by_python(write: Callable[[Any], object]) -> Callable[[Any], str | None]:
    def act(target: Any) -> str | None:
        try:
            write(target)
        except (OSError, ValueError) as error:
            return str(error)
        return None

    return act


def monitor_saves(target: Any) -> None:
    Monitor(MODEL).save(target)


WRITERS = {
    "StreamingKernelPCA.save": Writer("npz", by_python(lambda target: MODEL.save(target)), 0o600),
    "Monitor.save": Writer("npz", by_python(monitor_saves), 0o600),
    "fit --model": Writer("npz", command("fit", "rows.csv", *SETTINGS, "--model", "TO"), 0o600),
    "merge --out": Writer("npz", command("merge", "a.npz", "b.npz", "--out", "TO"), 0o600),
    "score --save-model": Writer("npz", command("score", "rows.csv", "--model", "a.npz", "--save-model", "TO"), 0o600),
    "fit --save": Writer("csv", command("fit", "rows.csv", *SETTINGS, "--save", "TO")),
    "score --save": Writer("csv", command("score", "rows.csv", "--model", "a.npz", "--save", "TO")),
    "export c": Writer("c", command("export", "a.npz", "TO")),
    "export onnx": Writer("onnx", command("export", "a.npz", "TO")),
    "plot png": Writer("png", command("plot", "spectrum", "a.npz", "--size", "3x2", "--save", "TO")),
    "plot svg": Writer("svg", command("plot", "spectrum", "a.npz", "--size", "3x2", "--save", "TO")),
    "plot pdf": Writer("pdf", command("plot", "spectrum", "a.npz", "--size", "3x2", "--save", "TO")),
} | {
    f"transform {form}": Writer(form, command("transform", "rows.csv", "--model", "a.npz", "--save", "TO"))
    for form in FORMATS
}
every_writer = pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
# One of each way to write.
KINDS = ["StreamingKernelPCA.save", "Monitor.save", "fit --model", "export c", "plot png", "transform csv"]
KINDS = list(WRITERS) if NIGHTLY else KINDS
every_kind = pytest.mark.parametrize("writer", [WRITERS[name] for name in KINDS], ids=KINDS)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of files that commands read."""
    folder = tmp_path_factory.mktemp("sources")
    new_model().save(folder / "a.npz")
    new_model(70).save(folder / "b.npz")
    np.savetxt(folder / "rows.csv", ROWS[:80], delimiter=",", header="x,y,z", comments="")
    return folder


@pytest.fixture
def folder(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder for targets, and let relative names be those of the sources."""
    monkeypatch.chdir(sources)
    monkeypatch.setattr(files, "_READER_SECONDS", 0.05, raising=False)
    return tmp_path


def state(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Return all that is in a folder, and what may not change about it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        seen = path.lstat()
        contents = path.read_bytes() if stat.S_ISREG(seen.st_mode) else None
        found[os.fspath(path)] = seen.st_mode, seen.st_ino, seen.st_rdev, seen.st_uid, seen.st_gid, contents
    return found


def in_a_child(act: Callable[[], object], *, seconds: int = 120) -> tuple[int, str]:
    """Run a function in a process of its own; return its exit code and all that it wrote to standard error."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # What was there before is not collected with what the function leaves.
            gc.freeze()
            signal.alarm(seconds)
            os.dup2(send, 2)
            sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
            act()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            # What is closed too late complains only now.
            gc.collect()
            os._exit(code)
    os.close(send)
    with os.fdopen(receive) as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def unprivileged(act: Callable[[], object]) -> tuple[int, str]:
    """Run a function in a process without the rights of root."""

    def acting() -> None:
        if IS_ROOT:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        act()

    return in_a_child(acting)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that can be reached without the rights of root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


# Targets that are no regular files


@needs_root
@every_writer
def test_a_character_device_is_written_into(writer: Writer, folder: Path) -> None:
    target = folder / f"null.{writer.ending}"
    os.mknod(target, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    before = state(folder)
    assert writer.act(target) is None
    assert state(folder) == before


@needs_root
@every_writer
def test_a_device_that_is_full_is_told(writer: Writer, folder: Path) -> None:
    target = folder / f"full.{writer.ending}"
    os.mknod(target, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    before = state(folder)
    said = writer.act(target)
    assert said is not None
    assert "No space left on device" in said
    assert str(target) in said
    assert state(folder) == before


@every_writer
def test_a_fifo_gets_what_a_file_would_hold(writer: Writer, folder: Path) -> None:
    file, fifo = folder / f"file.{writer.ending}", folder / f"fifo.{writer.ending}"
    assert writer.act(file) is None
    os.mkfifo(fifo)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()), daemon=True)
    reader.start()
    # The reader may come later than the writer, on a busy machine.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_READER_SECONDS", 60.0, raising=False)
        said = writer.act(fifo)
    # A broken writer must not keep the reader waiting.
    with suppress(OSError):
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    reader.join(60.0)
    assert said is None
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    if writer.ending in ("pdf", "svg"):
        # Their dates and random names differ.
        assert abs(len(received[0]) - file.stat().st_size) < 100
        assert received[0][:5] == file.read_bytes()[:5]
    else:
        assert received == [file.read_bytes()]


@every_kind
def test_a_fifo_without_a_reader_is_refused(writer: Writer, folder: Path) -> None:
    target = folder / f"fifo.{writer.ending}"
    os.mkfifo(target)
    before = state(folder)
    code, said = in_a_child(lambda: print(writer.act(target), file=sys.stderr), seconds=60)
    assert code == 0
    assert f"a FIFO that no process has opened for reading in {files._READER_SECONDS:g} s" in said
    assert str(target) in said
    assert state(folder) == before


@every_kind
def test_a_reader_that_leaves_is_told(writer: Writer, folder: Path) -> None:
    target = folder / f"fifo.{writer.ending}"
    os.mkfifo(target)
    # A first reader lets the FIFO be opened; it leaves as soon as it was.
    opened = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
    original = files._opened_stream

    def leaving(name: str) -> int:
        descriptor = original(name)
        os.close(opened)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_opened_stream", leaving)
        said = writer.act(target)
    assert said is not None
    assert "Broken pipe" in said
    assert str(target) in said


@every_kind
@pytest.mark.parametrize("kind", ["socket", "folder", "block device"])
def test_what_no_file_can_be_written_into_is_refused_and_stays(writer: Writer, kind: str, folder: Path) -> None:
    target = folder / f"odd.{writer.ending}"
    with ExitStack() as stack:
        if kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(os.fspath(target))
        elif kind == "folder":
            target.mkdir()
        elif IS_ROOT:
            # No driver has this number.
            os.mknod(target, 0o666 | stat.S_IFBLK, os.makedev(240, 77))
        else:
            pytest.skip("only root makes device nodes")
        before = state(folder)
        said = writer.act(target)
        assert said is not None
        assert str(target) in said
        assert kind in said.lower() or "is a directory" in said.lower()
        assert state(folder) == before


def test_what_the_shell_appends_to_is_appended_to(folder: Path) -> None:
    log = folder / "log"
    log.write_text("before\n")

    def act() -> None:
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 1)
        write_durably("/dev/stdout", lambda file: file.write(b"by name\n"))
        write_durably("/dev/fd/1", lambda file: file.write(b"by number\n"))
        write_durably("/proc/self/fd/1", lambda file: file.write(b"by system\n"))

    assert in_a_child(act) == (0, "")
    assert log.read_text() == "before\nby name\nby number\nby system\n"
    assert os.listdir(folder) == ["log"]


# Rights, owners, links


@every_kind
def test_a_replaced_file_keeps_its_rights_and_owner(writer: Writer, folder: Path) -> None:
    target = folder / f"kept.{writer.ending}"
    wanted = {0o600, 0o640, 0o664, 0o604} if writer is WRITERS["StreamingKernelPCA.save"] else {0o600, 0o664}
    for mode in wanted:
        target.write_text("old")
        target.chmod(mode)
        if IS_ROOT:
            os.chown(target, 12345, 23456)
        before = target.stat()
        assert writer.act(target) is None
        after = target.stat()
        assert target.read_bytes() != b"old"
        assert stat.S_IMODE(after.st_mode) == mode
        assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
        assert os.listdir(folder) == [target.name]


@every_kind
def test_new_models_are_private_and_other_files_follow_the_umask(writer: Writer, folder: Path) -> None:
    for umask in (0o022, 0o000, 0o077):
        target = folder / f"new-{umask:o}.{writer.ending}"
        before = os.umask(umask)
        try:
            assert writer.act(target) is None
        finally:
            os.umask(before)
        assert stat.S_IMODE(target.stat().st_mode) == (0o666 & ~umask if writer.mode is None else writer.mode)


def test_generations_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = Checkpointer(tmp_path / "m.npz").save(MODEL)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o604, 0o666, None])
def test_an_unfinished_file_is_never_more_readable_than_the_old_or_the_new_one(mode: int | None, folder: Path) -> None:
    target = folder / "t.csv"
    if mode is not None:
        target.write_text("old")
        target.chmod(mode)
    seen = []

    def look(file: Any) -> None:
        file.write(b"new")
        file.flush()
        (temporary,) = [path for path in folder.iterdir() if path != target]
        seen.append(stat.S_IMODE(temporary.stat().st_mode))

    write_durably(target, look)
    if mode is None:
        assert seen == [0o600]
    with ResultWriter(target) as writer:
        writer.write(np.zeros(1))
        look(writer._file)
    assert all(found & ~(0o600 if mode is None else mode) & 0o077 == 0 for found in seen)
    assert len(seen) == 2


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Write an access control list as Linux keeps it: entries of a tag, rights and a number."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OWNER, USER, GROUP, MASK, OTHERS, NO_ID = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF
# The group's own right is none; in the mode stands the mask.
LIST = acl((OWNER, 6, NO_ID), (USER, 4, 4321), (GROUP, 0, NO_ID), (MASK, 4, NO_ID), (OTHERS, 0, NO_ID))


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except (OSError, AttributeError):
        pytest.skip("this file system has no such attributes")


def test_lists_of_rights_and_attributes_are_kept(folder: Path) -> None:
    target = folder / "m.npz"
    target.write_text("old")
    set_attribute(target, "user.note", b"plant 7")
    set_attribute(target, "system.posix_acl_access", LIST)
    MODEL.save(target)
    assert load(target).n_samples_seen_ == 100
    assert os.getxattr(target, "user.note") == b"plant 7"
    assert os.getxattr(target, "system.posix_acl_access") == LIST


def test_a_list_that_new_files_get_is_no_new_right_to_an_old_one(folder: Path) -> None:
    target = folder / "m.npz"
    target.write_text("old")
    target.chmod(0o640)
    set_attribute(folder, "system.posix_acl_default", LIST)
    MODEL.save(target)
    assert "system.posix_acl_access" not in os.listxattr(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_where_a_list_cannot_be_kept_the_group_gets_no_more_than_all_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = folder / "m.npz"
    target.write_text("old")
    set_attribute(target, "system.posix_acl_access", LIST)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(files.os, "setxattr", fail)
    MODEL.save(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@needs_root
def test_where_the_owner_cannot_be_kept_a_new_group_gets_no_more_than_all_others(open_folder: Path) -> None:
    target = open_folder / "m.npz"
    for mode, expected in ((0o666, 0o666), (0o662, 0o622)):
        target.write_text("old")
        os.chown(target, 0, 0)
        target.chmod(mode)

        assert unprivileged(lambda: MODEL.save(target)) == (0, "")
        found = target.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (NOBODY, NOBODY, expected)
        target.unlink()


@every_kind
def test_links_stay_links(writer: Writer, folder: Path) -> None:
    real, link = folder / f"real.{writer.ending}", folder / f"link.{writer.ending}"
    link.symlink_to(real.name)
    for _ in range(2):
        # First it dangles.
        assert writer.act(link) is None
        assert os.readlink(link) == real.name
        assert stat.S_ISREG(real.lstat().st_mode)
        assert sorted(os.listdir(folder)) == [link.name, real.name]


@every_kind
@pytest.mark.parametrize("kind", ["loop", "to a missing folder"])
def test_links_that_lead_nowhere_are_refused_and_stay(writer: Writer, kind: str, folder: Path) -> None:
    link = folder / f"link.{writer.ending}"
    link.symlink_to(link.name if kind == "loop" else "missing/x")
    before = state(folder)
    said = writer.act(link)
    assert said is not None
    assert str(link) in said
    assert "Too many levels of symbolic links" in said or "No such file or directory" in said
    assert state(folder) == before


def test_other_hard_links_keep_the_old_contents(folder: Path) -> None:
    target, other = folder / "m.npz", folder / "other.npz"
    MODEL.save(target, "old")
    os.link(target, other)
    MODEL.save(target, "new")
    assert (load(target).extra_, load(other).extra_) == ("new", "old")


# Odd names


def long_path(folder: Path, length: int) -> str:
    """Make folders so deep that a file in the innermost one has a path of this length."""
    path = os.fspath(folder)
    while length - len(path) > 300:
        path += "/" + "d" * 200
        os.mkdir(path)
    return path + "/" + "f" * (length - len(path) - 1)


ACCEPTED: dict[str, Callable[[Path], Any]] = {
    "bytes": lambda folder: os.fsencode(folder) + b"/m.npz",
    "not UTF-8": lambda folder: os.fsencode(folder) + b"/\xff\xfe\n.npz",
    "escaped bytes": lambda folder: f"{folder}/\udcff.npz",
    "path": lambda folder: folder / "m.npz",
    "tilde": lambda folder: f"{folder}/~",
    "newline": lambda folder: f"{folder}/a\nb\r.npz",
    "blank": lambda folder: f"{folder}/ ",
    "dash": lambda folder: f"{folder}/-",
    "dots": lambda folder: f"{folder}/...",
    "shell": lambda folder: f"{folder}/$(x) `y` *?[a]{{b}}'\"\\.npz",
    "control": lambda folder: f"{folder}/\x1b[31m\x07.npz",
    "right to left": lambda folder: f"{folder}/\u202egnp.npz",
    "two bytes a letter": lambda folder: f"{folder}/{'é' * 127}",
    "four bytes a letter": lambda folder: f"{folder}/{'😀' * 63}",
    "233 letters": lambda folder: f"{folder}/{'n' * 233}",
    "234 letters": lambda folder: f"{folder}/{'n' * 234}",
    "245 letters": lambda folder: f"{folder}/{'n' * 245}",
    "255 letters": lambda folder: f"{folder}/{'n' * 255}",
    "long path": lambda folder: long_path(folder, 4000),
    "folder twice": lambda folder: f"{folder}//./m.npz",
    "temporary": lambda folder: f"{folder}/.m.npz.0123456789abcdef.tmp",
}

REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda folder: "", "No such file or directory"),
    "empty bytes": (lambda folder: b"", "No such file or directory"),
    "dot": (lambda folder: ".", "Is a directory"),
    "dots": (lambda folder: "..", "Is a directory"),
    "root": (lambda folder: "/", "Is a directory"),
    "folder": (lambda folder: folder / "folder", "Is a directory"),
    "folder with a slash": (lambda folder: f"{folder}/folder/", "Is a directory"),
    "folder with a dot": (lambda folder: f"{folder}/folder/.", "Is a directory"),
    "folder with dots": (lambda folder: f"{folder}/folder/..", "Is a directory"),
    "link to a folder": (lambda folder: folder / "to-folder", "Is a directory"),
    "file with a slash": (lambda folder: f"{folder}/file/", "Not a directory"),
    "file with a dot": (lambda folder: f"{folder}/file/.", "Not a directory"),
    "in a file": (lambda folder: f"{folder}/file/m.npz", "Not a directory"),
    "beside a file": (lambda folder: f"{folder}/file/../m.npz", "Not a directory"),
    "new with a slash": (lambda folder: f"{folder}/new/", "Is a directory"),
    "new with a dot": (lambda folder: f"{folder}/new/.", "Is a directory"),
    "missing folder": (lambda folder: f"{folder}/missing/m.npz", "No such file or directory"),
    "missing folder, bytes": (lambda folder: os.fsencode(f"{folder}/missing/m.npz"), "No such file or directory"),
    "beside a missing folder": (lambda folder: f"{folder}/missing/../m.npz", "No such file or directory"),
    "loop": (lambda folder: folder / "loop", "Too many levels of symbolic links"),
    "in a loop": (lambda folder: folder / "loop" / "m.npz", "Too many levels of symbolic links"),
    "long chain": (lambda folder: folder / "chain-0", "Too many levels of symbolic links"),
    "NUL": (lambda folder: f"{folder}/a\0b", "NUL character"),
    "NUL in bytes": (lambda folder: os.fsencode(folder) + b"/\0", "NUL character"),
    "no text": (lambda folder: f"{folder}/\ud800", "surrogates not allowed"),
    "256 letters": (lambda folder: f"{folder}/{'n' * 256}", "File name too long"),
    "128 letters of two bytes": (lambda folder: f"{folder}/{'é' * 128}", "File name too long"),
    "path too long": (lambda folder: f"{folder}/{'d/' * 2100}m.npz", "File name too long"),
    "system": (lambda folder: "/proc/m.npz", "No such file or directory"),
    "file of the system": (lambda folder: f"/proc/{os.getpid()}/comm", "no file can be created in its folder"),
    "devices": (lambda folder: "/sys/kernel/m.npz", "ermi"),
    "closed descriptor": (lambda folder: "/dev/fd/987", "Bad file descriptor"),
    "command of Windows": (lambda folder: f"{folder}/C:/m.npz", "No such file or directory"),
}


@pytest.fixture
def odd(folder: Path) -> Path:
    (folder / "folder").mkdir()
    (folder / "file").write_text("mine")
    (folder / "to-folder").symlink_to("folder")
    (folder / "loop").symlink_to("loop")
    for i in range(45):
        (folder / f"chain-{i}").symlink_to(f"chain-{i + 1}")
    return folder


@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_names_are_names(name: str, folder: Path) -> None:
    target = ACCEPTED[name](folder)
    for extra in ("first", "second"):
        MODEL.save(target, extra)
        assert load(target).extra_ == extra
        assert len(os.listdir(os.path.dirname(target))) == 1
    os.unlink(target)
    with ResultWriter(os.fsdecode(target), form="csv") as writer:
        writer.write(np.zeros(1))
    assert os.path.getsize(target) > 0
    assert len(os.listdir(os.path.dirname(target))) == 1


@pytest.mark.parametrize("name", REFUSED)
def test_odd_targets_are_refused_by_the_name_that_was_given(name: str, odd: Path) -> None:
    make, message = REFUSED[name]
    target, before = make(odd), state(odd)
    with pytest.raises((OSError, ValueError), match=message) as caught:
        MODEL.save(target)
    if isinstance(caught.value, OSError):
        assert caught.value.filename == os.fspath(target)
        assert caught.value.filename2 is None
    else:
        assert repr(target) in str(caught.value)
    assert ".tmp" not in str(caught.value)
    if isinstance(target, bytes):
        target = os.fsdecode(target)
    with pytest.raises((OSError, ValueError), match=message), ResultWriter(target, form="csv") as writer:
        writer.write(np.zeros(1))
    if name not in ("NUL", "NUL in bytes", "no text"):
        # These cannot be given on a command line.
        for args in (["merge", "a.npz", "b.npz", "--out"], ["transform", "rows.csv", "--model", "a.npz", "--save"]):
            said = command(*args, "--format=csv", "TO")(target) if args[0] == "transform" else None
            said = said or command(*args, "TO")(target)
            assert said is not None
            assert "Traceback" not in said
            assert ".tmp" not in said
    assert state(odd) == before


def test_an_odd_object_is_no_path() -> None:
    for target in (3, True, None, 1.5, ["m.npz"]):
        with pytest.raises(TypeError, match=r"expected str, bytes or os\.PathLike object"):
            MODEL.save(target)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["folder", "file", "file that grows"])
@needs_root
def test_what_is_immutable_stays(kind: str, folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    target = inner / "m.npz"
    MODEL.save(target, "old")
    locked, flag = (inner, "i") if kind == "folder" else (target, "i" if kind == "file" else "a")
    if shutil.which("chattr") is None or subprocess.run(["chattr", f"+{flag}", locked], check=False).returncode:
        pytest.skip("this file system has no immutable files")
    try:
        before = state(folder)
        for act in (MODEL.save, monitor_saves):
            with pytest.raises(PermissionError, match="Operation not permitted") as caught:
                act(target)
            assert caught.value.filename == os.fspath(target)
        said = command("fit", "rows.csv", *SETTINGS, "--model", "TO")(target)
        reason = "no file can be created in its folder" if kind == "folder" else "Operation not permitted"
        assert said == f"streamkpca: {target}: {reason}; check the path and your permissions"
        assert state(folder) == before
    finally:
        subprocess.run(["chattr", f"-{flag}", locked], check=True)


@pytest.mark.parametrize(
    ("mode_of_folder", "mode_of_file"), [(0o555, 0o666), (0o444, 0o666), (0o000, 0o666), (0o777, 0o444), (0o777, 0o000)]
)
def test_without_permission_nothing_is_replaced(mode_of_folder: int, mode_of_file: int, open_folder: Path) -> None:
    inner = open_folder / "inner"
    inner.mkdir()
    target = inner / "m.npz"
    MODEL.save(target, "old")
    target.chmod(mode_of_file)
    inner.chmod(mode_of_folder)
    before = state(open_folder)

    def act() -> None:
        for write in (MODEL.save, monitor_saves, lambda path: ResultWriter(path, form="csv").__enter__()):
            with pytest.raises(PermissionError) as caught:
                write(target)
            assert caught.value.filename == os.fspath(target)
            assert os.strerror(errno.EACCES) in str(caught.value)
        # Before the work begins.
        with pytest.raises(PermissionError):
            files.check_target(target)

    assert unprivileged(act) == (0, "")
    assert state(open_folder) == before
    inner.chmod(0o777)


def test_a_folder_that_cannot_be_listed_takes_files(open_folder: Path) -> None:
    inner = open_folder / "inner"
    inner.mkdir()
    inner.chmod(0o333)

    def act() -> None:
        MODEL.save(inner / "m.npz")
        MODEL.save(inner / "m.npz")
        with ResultWriter(inner / "t.csv") as writer:
            writer.write(np.zeros(1))

    assert unprivileged(act) == (0, "")
    inner.chmod(0o777)
    assert sorted(os.listdir(inner)) == ["m.npz", "t.csv"]


@needs_root
def test_a_file_system_without_writing_is_refused_before_the_work() -> None:
    with mounted("size=1m") as folder:
        MODEL.save(folder / "m.npz")
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        before = state(folder)
        for target in ("m.npz", "new.npz"):
            with pytest.raises(OSError, match="Read-only file system") as caught:
                MODEL.save(folder / target)
            assert caught.value.filename == os.fspath(folder / target)
            with pytest.raises(OSError, match=r"Read-only file system|no file can be created"):
                files.check_target(folder / target)
        assert state(folder) == before


# Targets that change while a file is written


def replaced_by_a_folder(target: Path) -> None:
    target.unlink()
    target.mkdir()


def replaced_by_a_fifo(target: Path) -> None:
    target.unlink()
    os.mkfifo(target)


def replaced_by_a_link(target: Path) -> None:
    target.unlink()
    (target.parent / "elsewhere").write_text("mine")
    target.symlink_to("elsewhere")


def without_its_folder(target: Path) -> None:
    shutil.rmtree(target.parent)


@pytest.mark.parametrize("change", [replaced_by_a_folder, replaced_by_a_fifo, replaced_by_a_link, without_its_folder])
@pytest.mark.parametrize("by", ["write_durably", "ResultWriter"])
def test_a_target_that_changes_meanwhile_is_left_alone(change: Callable[[Path], None], by: str, folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    target = inner / "t.csv"
    target.write_text("old")
    after: list[Any] = []

    def act(file: Any) -> None:
        file.write(b"new")
        change(target)
        after.append({name: found for name, found in state(folder).items() if not name.endswith(".tmp")})

    def write_table() -> None:
        with ResultWriter(target) as writer:
            writer.write(np.zeros(1))
            act(writer._file)

    with pytest.raises(OSError, match=r"expected a regular file|directory") as caught:
        write_durably(target, act) if by == "write_durably" else write_table()
    assert caught.value.filename == os.fspath(target)
    assert state(folder) == after[0]


def test_a_target_that_is_deleted_meanwhile_is_made_anew(folder: Path) -> None:
    target = folder / "m.npz"
    target.write_text("old")
    target.chmod(0o666)
    write_durably(target, lambda file: (file.write(b"new"), target.unlink()))
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_rights_that_are_taken_away_meanwhile_stay_away(folder: Path) -> None:
    target = folder / "m.npz"
    target.write_text("old")
    target.chmod(0o666)
    write_durably(target, lambda file: (file.write(b"new"), target.chmod(0o600)))
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_deleted_file_of_another_process_is_refused(folder: Path) -> None:
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("this system does not show open files")
    with open(folder / "deleted", "wb") as file:
        process = subprocess.Popen(["sleep", "60"], stdout=file)
    try:
        os.unlink(folder / "deleted")
        with pytest.raises(OSError, match="the file was deleted"):
            MODEL.save(f"/proc/{process.pid}/fd/1")
    finally:
        process.kill()
        process.wait()
    assert os.listdir(folder) == []


def test_what_is_written_can_be_read_back_before_the_old_file_goes(folder: Path) -> None:
    targets = [folder / "file", folder / "fifo"]
    os.mkfifo(targets[1])
    targets[0].write_text("old")

    def act(file: Any) -> None:
        assert file.read() == b""
        file.write(b"123")
        file.seek(1)
        assert file.read() == b"23"
        file.seek(0)
        file.write(b"x")
        assert (folder / "file").read_text() in ("old", "x23")

    reader = threading.Thread(target=lambda: received.append(targets[1].read_bytes()), daemon=True)
    received: list[bytes] = []
    reader.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_READER_SECONDS", 60.0)
        for target in targets:
            write_durably(target, act)
    reader.join(60.0)
    assert [targets[0].read_bytes(), *received] == [b"x23", b"x23"]


# Full disks


@contextmanager
def mounted(options: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def limited(writer: Writer, target: Path, length: int) -> None:
    """Write while files can have so many bytes only, and report as the command does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, resource.RLIM_INFINITY))
    said = writer.act(target)
    if said is not None:
        print(said, file=sys.stderr)
        sys.exit(2)


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_is_full_leaves_the_old_file(name: str, folder: Path) -> None:
    writer = WRITERS[name]
    target = folder / f"t.{writer.ending}"
    assert writer.act(target) is None
    size = target.stat().st_size
    target.write_text("old")
    before = state(folder)
    lengths = sorted({0, *np.linspace(1, size - 1, N_LENGTHS).astype(int).tolist()} if NIGHTLY else {size // 2})
    for length in lengths:
        code, said = in_a_child(lambda length=length: limited(writer, target, length))
        assert code == 2, said
        (line,) = said.splitlines()
        assert str(target) in line
        assert "File too large" in line
        assert line.startswith(f"streamkpca: {target}: ") or not name.startswith(("fit", "merge", "plot", "transform"))
        assert state(folder) == before
    if NIGHTLY or name in KINDS:
        # Also where there is no old file.
        target.unlink()
        assert in_a_child(lambda: limited(writer, target, size // 2))[0] == 2
        assert os.listdir(folder) == []
    print(f"{name}: the disk was full after each of {len(lengths)} numbers of bytes")


@needs_root
def test_a_small_file_system_that_is_full_leaves_the_old_files(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sources)
    with mounted("size=256k") as folder:
        for writer in WRITERS.values():
            (folder / f"t.{writer.ending}").write_text("old")
        with open(folder / "filler", "wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
        before = state(folder)

        def act() -> None:
            for name, writer in WRITERS.items():
                said = writer.act(folder / f"t.{writer.ending}")
                assert said is not None, name
                assert "No space left on device" in said, (name, said)

        assert in_a_child(act) == (0, "")
        assert state(folder) == before
    print(f"{len(WRITERS)} writers on a full file system: the old files stay")


def test_a_demo_on_a_full_disk_leaves_the_old_files(folder: Path) -> None:
    writer = Writer("", command("demo", "--rows", "50", "--out", "TO"))
    assert writer.act(folder) is None
    table, picture = folder / "projections.parquet", folder / "picture.png"
    sizes = sorted(path.stat().st_size for path in (table, picture))
    assert sizes[0] == table.stat().st_size
    for path in (table, picture):
        path.write_text("old")
    for length, failed, replaced in [(sizes[0] // 2, table, set()), (sum(sizes) // 2, picture, {table.name})]:
        code, said = in_a_child(lambda length=length: limited(writer, folder, length))
        assert (code, said) == (2, f"streamkpca: {failed}: File too large; make room, or write elsewhere\n")
        assert sorted(os.listdir(folder)) == ["picture.png", "projections.parquet"]
        assert {path.name for path in (table, picture) if path.read_bytes() != b"old"} == replaced


@needs_root
def test_a_demo_leaves_devices_alone(folder: Path) -> None:
    for name in ("projections.parquet", "picture.png"):
        os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    before = state(folder)
    assert command("demo", "--rows", "50", "--out", "TO")(folder) is None
    assert state(folder) == before


@needs_root
@pytest.mark.parametrize(
    "args", [["completion", "bash"], ["completion", "fish", "--json"], ["info", "a.npz", "--json"]]
)
def test_standard_output_that_is_full_is_told(args: list[str], folder: Path) -> None:
    target = folder / "full"
    os.mknod(target, 0o666 | stat.S_IFCHR, os.makedev(1, 7))

    def act() -> None:
        os.dup2(os.open(target, os.O_WRONLY), 1)
        sys.stdout = os.fdopen(1, "w")
        cli.main(args, prog_name="streamkpca")

    code, said = in_a_child(act)
    assert (code, said) == (
        2,
        "streamkpca: standard output: No space left on device; make room, or write elsewhere\n",
    )


@pytest.mark.parametrize("n_left", [1, 2])
def test_generations_on_a_full_disk_stay(n_left: int, folder: Path) -> None:
    checkpoints = Checkpointer(folder / "m.npz", keep=n_left)
    for number in range(3):
        checkpoints.save(MODEL, number)
    before, size = state(folder), checkpoints.generations[0].stat().st_size

    def act() -> None:
        for length in np.linspace(0, size - 1, 4 * N_LENGTHS).astype(int).tolist():
            resource.setrlimit(resource.RLIMIT_FSIZE, (length, resource.RLIM_INFINITY))
            with pytest.raises(OSError, match="File too large") as caught:
                checkpoints.save(MODEL, "new")
            assert caught.value.filename == os.fspath(folder / "m-00000004.npz")

    assert in_a_child(act) == (0, "")
    assert state(folder) == before


# Leaks


def held() -> int:
    """Return the bytes in use that are traced, without those of Python's own caches.

    Each of the 4,096 entries of its cache of types' attributes holds the name that was asked for. Modules in C make a
    new string for each question, so that a thousand saves fill the cache with 80 kB of names.
    """
    gc.collect()
    (sys._clear_internal_caches if sys.version_info >= (3, 13) else sys._clear_type_cache)()
    return tracemalloc.get_traced_memory()[0]


def test_saving_often_leaks_nothing(folder: Path) -> None:
    checkpoints, monitor = Checkpointer(folder / "c.npz", keep=2), Monitor(new_model())

    def save_all() -> None:
        MODEL.save(folder / "m.npz")
        monitor.save(folder / "monitor.npz")
        checkpoints.save(MODEL)
        with ResultWriter(folder / "t.csv") as writer:
            writer.write(np.zeros(3))
        with suppress(OSError):
            MODEL.save(folder / "missing" / "m.npz")
        with suppress(TypeError):
            MODEL.save(folder / "m.npz", {1: 2})
        with suppress(OSError):
            MODEL.save(folder)

    for _ in range(5):
        save_all()
    gc.collect()
    n_files, n_open = len(os.listdir(folder)), len(os.listdir("/proc/self/fd"))
    tracemalloc.start()
    try:
        save_all()
        begun = held()
        for _ in range(N_SAVES):
            save_all()
        grown = held() - begun
    finally:
        tracemalloc.stop()
    assert len(os.listdir(folder)) == n_files == 5
    assert len(os.listdir("/proc/self/fd")) == n_open
    # Python keeps some small things; one descriptor object a save would be more.
    assert grown < 10_000 + 10 * N_SAVES, f"{grown} bytes more after {N_SAVES} saves"
    print(f"{N_SAVES} times 7 saves: {n_open} descriptors as before, {n_files} files, {grown} bytes more")


# Two processes at once


def children(acts: list[Callable[[], None]]) -> list[int]:
    started = []
    for act in acts:
        child = os.fork()
        if child == 0:
            try:
                while True:
                    act()
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            os._exit(1)
        started.append(child)
    return started


def test_two_processes_that_save_to_one_path_leave_whole_files(folder: Path) -> None:
    path, models = folder / "m.npz", [new_model(100), new_model(150), new_model(199)]
    allowed = [model.to_bytes() for model in models]
    models[0].save(path)
    started = children([lambda model=model: model.save(path) for model in models[1:]])
    found = Counter[int]()
    try:
        deadline = time.monotonic() + 120.0
        # Both must have come to write, whatever the scheduler does.
        while found.total() < N_SAVES or not (found[1] and found[2]):
            found[allowed.index(path.read_bytes())] += 1
            models[0].save(path) if found.total() % 10 == 0 else None
            assert time.monotonic() < deadline
    finally:
        for child in started:
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_bytes() in allowed
    files.remove_leftovers(path)
    assert os.listdir(folder) == ["m.npz"]
    print(f"{found.total()} reads while three processes saved to one path: {dict(found)}")


@pytest.mark.parametrize("form", FORMATS)
def test_two_processes_that_write_one_table_leave_one_of_both(form: str, folder: Path) -> None:
    path = folder / f"t.{form}"

    def write(value: float, target: Path) -> None:
        with ResultWriter(target) as writer:
            for _ in range(20):
                writer.write(np.full(50, value))

    allowed = []
    for value in (1.0, 2.0):
        write(value, folder / f"alone.{form}")
        allowed.append((folder / f"alone.{form}").read_bytes())
    (folder / f"alone.{form}").unlink()
    write(1.0, path)
    started = children([lambda value=value: write(value, path) for value in (1.0, 2.0)])
    found = Counter[int]()
    try:
        deadline = time.monotonic() + 120.0
        while found.total() < N_SAVES or not (found[0] and found[1]):
            found[allowed.index(path.read_bytes())] += 1
            assert time.monotonic() < deadline
    finally:
        for child in started:
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with ResultWriter(path) as writer:
        writer.write(np.zeros(1))
    assert os.listdir(folder) == [path.name], "the next writer removes what killed ones left"


@pytest.mark.parametrize("name", ["m.npz", "n" * 245])
def test_only_what_killed_processes_left_is_removed(name: str, folder: Path) -> None:
    def half(path: Path) -> Callable[[Any], None]:
        def write(file: Any) -> None:
            file.write(b"half")
            os.write(send, b"x")
            time.sleep(600.0)

        return write

    def writing(path: Path) -> int:
        child = os.fork()
        if child == 0:
            write_durably(path, half(path))
            os._exit(1)
        assert os.read(receive, 1) == b"x"
        return child

    receive, send = os.pipe()
    path, other = folder / name, folder / f"o{name}"
    killed, living, foreign = writing(path), writing(path), writing(other)
    try:
        os.kill(killed, signal.SIGKILL)
        os.waitpid(killed, 0)
        assert len(os.listdir(folder)) == 3
        os.kill(foreign, signal.SIGKILL)
        os.waitpid(foreign, 0)
        files.remove_leftovers(path)
        assert len(os.listdir(folder)) == 2, "that of the living one and the other file's"
    finally:
        os.kill(living, signal.SIGKILL)
        os.waitpid(living, 0)
        os.close(receive)
        os.close(send)
    for target in (path, other):
        files.remove_leftovers(target)
    assert os.listdir(folder) == []


# Generations


def test_generations_of_long_names_are_written_and_cleaned_up(folder: Path) -> None:
    stem = "n" * 240
    checkpoints = Checkpointer(folder / f"{stem}.np", keep=1)
    for number in range(3):
        checkpoints.save(MODEL, number)
    assert os.listdir(folder) == [f"{stem}-00000003.np"]

    def die(file: Any) -> None:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    code, _ = in_a_child(lambda: write_durably(folder / f"{stem}-00000004.np", die))
    assert code == -signal.SIGKILL
    assert len(os.listdir(folder)) == 2
    assert Checkpointer(folder / f"{stem}.np").latest().extra_ == 2
    assert os.listdir(folder) == [f"{stem}-00000003.np"]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda folder: "", IsADirectoryError, "expected the name of a file but got ''"),
        (lambda folder: folder, IsADirectoryError, "expected the name of a file"),
        (lambda folder: f"{folder}/new/", IsADirectoryError, "expected the name of a file"),
        (lambda folder: f"{folder}/..", IsADirectoryError, "expected the name of a file"),
        (lambda folder: "missing/m.npz", FileNotFoundError, "expected missing to be a folder; create it first"),
        (lambda folder: b"missing/m.npz", FileNotFoundError, "expected missing to be a folder; create it first"),
        (lambda folder: f"{folder}/a\0b", ValueError, "NUL character"),
        (lambda folder: f"{folder}/{'n' * 250}.npz", OSError, "File name too long"),
    ],
)
def test_generations_need_a_name_in_a_folder(
    make: Callable[[Path], Any], error: type[Exception], message: str, folder: Path
) -> None:
    with pytest.raises(error, match=message):
        Checkpointer(make(folder))
    assert os.listdir(folder) == []


def test_generations_may_have_a_name_in_bytes(folder: Path) -> None:
    checkpoints = Checkpointer(os.fsencode(folder) + b"/\xff.npz")
    checkpoints.save(MODEL, "x")
    assert checkpoints.latest().extra_ == "x"
    assert os.listdir(os.fsencode(folder)) == [b"\xff-00000001.npz"]


def test_what_only_has_the_name_of_a_generation_is_neither_read_nor_removed(folder: Path) -> None:
    checkpoints = Checkpointer(folder / "m.npz", keep=1)
    checkpoints.save(MODEL, "whole")
    os.mkfifo(folder / "m-00000002.npz")
    (folder / "m-00000003.npz").mkdir()

    def act() -> None:
        with pytest.warns(match="expected a regular file|Is a directory"):
            found = Checkpointer(folder / "m.npz").latest()
        assert found is not None
        assert found.extra_ == "whole"

    assert in_a_child(act, seconds=60) == (0, "")
    assert checkpoints.save(MODEL, "new").name == "m-00000004.npz"
    assert sorted(os.listdir(folder)) == ["m-00000002.npz", "m-00000003.npz", "m-00000004.npz"]


# The command


def test_a_model_is_not_continued_from_a_fifo(folder: Path) -> None:
    target = folder / "m.npz"
    os.mkfifo(target)
    act = command("fit", "rows.csv", *SETTINGS, "--model", "TO", "--resume")
    code, said = in_a_child(lambda: print(act(target), file=sys.stderr), seconds=60)
    assert code == 0
    assert f"{target}: is no regular file, so no model can be read from it; leave --resume out" in said


def test_results_and_model_need_two_names(folder: Path) -> None:
    target = folder / "both.csv"
    target.write_text("old")
    said = command("score", "rows.csv", "--model", "a.npz", "--save", "TO", "--save-model", "TO")(target)
    assert said is not None
    assert f"{target}: is read as input or holds the model" in said
    assert target.read_text() == "old"


def test_an_empty_name_is_no_missing_option(folder: Path) -> None:
    for name, writer in WRITERS.items():
        if not name.endswith("save"):
            said = writer.act("")
            assert said is not None
            assert "expected the name of a file but got ''. Try --help." in said
