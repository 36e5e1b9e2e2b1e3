"""Running the command in tests, in this process or another, and checking how it refuses."""

import re
import sys

from click.testing import CliRunner

from streamkpca.cli.main import cli

COMMAND = [sys.executable, "-m", "streamkpca"]
SMALL = ["--components", "3", "--max-atoms", "20", "--block-size", "64", "--refit-every", "128"]


def run(*args, stdin=None):
    result = CliRunner().invoke(cli, [str(arg) for arg in args], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def fact(output, name):
    """Find the value that the command prints beside a name."""
    return re.search(rf"^{name} +(.*)$", output, re.MULTILINE).group(1)


def refused(result, *parts):
    """Check that one line on standard error tells why, and that nothing else was printed."""
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("streamkpca: ")
    for part in parts:
        assert part in line


def assert_plain(lines: list[str], *, refused: bool = False) -> None:
    """Check that standard error holds lines of the command alone, one of them no warning if it refused."""
    text = "\n".join(lines)
    assert all(line.startswith("streamkpca: ") for line in lines), text
    assert "mistake of its own" not in text
    assert "Traceback" not in text
    assert not refused or sum(not line.startswith("streamkpca: warning: ") for line in lines) == 1, text
