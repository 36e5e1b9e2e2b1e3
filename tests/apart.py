"""Work in forked processes: a crash there ends nothing but that process, and nothing has to be imported again."""

import os
import signal
import sys
import traceback

import pytest

# Libraries keep threads, of which children touch none, nor do they wait for any.
FORKS = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]
STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def in_a_child(act, *, seconds=0):
    """Run a function in a separate process; return its exit code, or minus the signal that ended it, and its lines.

    These are what the function reports, and what comes on standard error.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(receive)
            signal.alarm(seconds)
            os.dup2(send, 2)
            sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
            act(lambda line: os.write(send, (line.replace("\n", " | ") + "\n").encode("utf-8", "replace")))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(send)
    with os.fdopen(receive, "rb") as reports:
        lines = reports.read().decode().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lines


class Command:
    """The command in a forked process; `out` and `err` are the files that it writes to.

    Signals are handled as in a process of its own from the first one on, also if the parent ignores them.
    """

    def __init__(self, folder, *args, name="command"):
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        self.code = None
        # A signal that comes before the process has its handlers waits for them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        self.pid = os.fork()
        if self.pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        else:
            try:
                self._become(folder, [str(arg) for arg in args])
            finally:
                os._exit(1)

    def _become(self, folder, args):
        for number in STOPS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.alarm(120)
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, path in ((1, self.out), (2, self.err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdin, sys.stdout, sys.stderr = (open(number, "w" if number else "r", closefd=False) for number in range(3))
        from streamkpca.__main__ import main

        sys.argv = ["streamkpca", *args]
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            main()
        except KeyboardInterrupt:
            # Python itself, too, ends by a Ctrl-C that comes before the command has begun.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except OSError:
            code = 120
        os._exit(code if isinstance(code, int) else int(code is not None))

    def send(self, number):
        """Send a signal."""
        os.kill(self.pid, number)

    def ended(self):
        """Tell whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def wait(self):
        """Wait for the end; return the exit code, or minus the signal that ended it."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def said(self):
        """Return the lines of standard error."""
        return self.err.read_text(errors="replace").splitlines() if self.err.exists() else []
