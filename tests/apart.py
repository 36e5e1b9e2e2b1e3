"""Work in forked processes: a crash there ends nothing but that process, and nothing has to be imported again."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def in_a_child(act: Callable[[Callable[[str], None]], object], *, seconds: int = 0) -> tuple[int, list[str]]:
    """Run a function in a separate process; return its exit code, or minus the signal that ended it, and its lines."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(receive)
            if seconds:
                signal.alarm(seconds)
            act(lambda line: os.write(send, (line.replace("\n", " | ") + "\n").encode("utf-8", "replace")))
            code = 0
        finally:
            os._exit(code)
    os.close(send)
    with os.fdopen(receive, "rb") as reports:
        lines = reports.read().decode().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lines


class Command:
    """The command in a forked process; `out` and `err` are the files that it writes to.

    Signals are handled as in a process of its own from the first one on, also if the parent ignores them. `closed` are
    standard streams (0, 1 and 2) that are closed before it begins. `stdin` is a file or a pipe to read from, and
    `other_end` the end of that pipe to write to, which must be closed in this process too.
    """

    def __init__(
        self,
        folder: Path,
        *args: object,
        stdin: int | None = None,
        other_end: int | None = None,
        closed: tuple[int, ...] = (),
        environment: Mapping[str, str | None] = {},
        name: str = "command",
    ) -> None:
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        self.code: int | None = None
        # A signal that comes before the process has its handlers waits for them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        self.pid = os.fork()
        if self.pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        else:
            try:
                if other_end is not None:
                    os.close(other_end)
                self._become(folder, [str(arg) for arg in args], stdin, closed, environment)
            finally:
                os._exit(1)

    def _become(
        self,
        folder: Path,
        args: list[str],
        stdin: int | None,
        closed: tuple[int, ...],
        environment: Mapping[str, str | None],
    ) -> None:
        for number in STOPS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.alarm(120)
        os.setsid()
        os.chdir(folder)
        for key, value in environment.items():
            os.environ.pop(key, None)
            if value is not None:
                os.environ[key] = value
        os.dup2(os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, 0)
        for number, path in ((1, self.out), (2, self.err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        for number in closed:
            os.close(number)
        # As Python opens them, and as it leaves them where they are closed.
        sys.stdin, sys.stdout, sys.stderr = (
            None if number in closed else open(number, mode, closefd=False)
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        from streamkpca.__main__ import main

        sys.argv = ["streamkpca", *args]
        code: object = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        except KeyboardInterrupt:
            # Python itself, too, ends by a Ctrl-C that comes before it has begun.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        try:
            main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        except OSError:
            code = 120
        os._exit(code if isinstance(code, int) else int(code is not None))

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def ended(self) -> bool:
        """Tell whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def wait(self) -> int:
        """Wait for the end; return the exit code, or minus the signal that ended it."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def said(self) -> list[str]:
        """Return the lines of standard error."""
        return self.err.read_text(errors="replace").splitlines() if self.err.exists() else []
