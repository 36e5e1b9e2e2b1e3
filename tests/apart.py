"""Work in a forked process that reports lines: a crash there ends nothing but that process."""

import os
import signal
from collections.abc import Callable


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
