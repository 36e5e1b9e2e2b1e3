"""Running the command in tests, and checking how it refuses."""

import re
import sys

from click.testing import CliRunner

from streamkpca import StreamingKernelPCA
from streamkpca.cli.commands import cli
from streamkpca.kernels import RBF

COMMAND = [sys.executable, "-m", "streamkpca"]
SMALL = ["--components", "3", "--max-atoms", "20", "--block-size", "64", "--refit-every", "128"]


def small_model():
    """Make the model that the command makes with SMALL."""
    kernel = RBF().in_units("std")
    return StreamingKernelPCA(3, kernel=kernel, max_atoms=20, block_size=64, refit_every=128)


def learned(rows):
    """Learn what `fit` learns with SMALL."""
    return small_model().partial_fit(rows).refit()


def append(name, *lines):
    """Append lines to a file."""
    with open(name, "a") as file:
        file.write("".join(lines))


def run(*args, stdin=None):
    result = CliRunner().invoke(cli, [str(arg) for arg in args], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def fact(output, name):
    """Find the value that the command prints beside a name."""
    return re.search(rf"^ +{name} +(.*)$", output, re.MULTILINE).group(1)


def refused(result, *parts, code=1):
    """Check that the last line on standard error tells why, and that nothing went to standard output."""
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    line = result.stderr.splitlines()[-1]
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line


def assert_plain(lines: list[str], *, refused: bool = False) -> None:
    """Check that standard error holds no traceback, and one error if the command refused."""
    text = "\n".join(lines)
    assert "Traceback" not in text
    assert sum(line.startswith("Error: ") for line in lines) == refused, text
