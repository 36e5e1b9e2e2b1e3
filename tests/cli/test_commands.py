"""Commands as users see them: help and errors without compiled loops, functions that take the options, progress."""

import inspect
import json
import re
import subprocess
import sys

import click
import numpy as np
import pytest
from commands import SMALL, refused, run

from streamkpca.cli.main import cli
from streamkpca.cli.options import MODEL_PARAMETERS, Command
from streamkpca.kernels.registry import KERNELS

LIGHT = """
import json, sys
from click.testing import CliRunner
import streamkpca.__main__
from streamkpca.cli.main import cli
for args, variables, code, answer in json.loads(sys.stdin.read()):
    result = CliRunner().invoke(cli, args, env=variables, prog_name="streamkpca")
    assert result.exit_code == code, (args, result.output)
    assert answer in result.output, (args, result.output)
    heavy = {"llvmlite", "matplotlib", "numba", "pyarrow", "scipy"} & set(sys.modules)
    assert not heavy, (args, variables, heavy)
"""


def every_command(command=cli, path=()):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every_command(command.get_command(context, name), (*path, name))


def loads_nothing_heavy(*asked):
    """Give command lines, variables, exit codes and parts of the answers to the command in a fresh process."""
    given = [(args, variables, code, answer) for args, variables, code, answer in asked]
    done = subprocess.run([sys.executable, "-c", LIGHT], input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_needs_no_compiled_loops():
    lines = [[*path, "--help"] for path, _ in every_command()]
    assert len(lines) == 19
    loads_nothing_heavy(*((line, {}, 0, "Usage: streamkpca") for line in lines), (["--version"], {}, 0, "version"))


def test_usage_errors_need_no_compiled_loops():
    lines = {
        "nonsense": "No such command 'nonsense'. There are: demo, fit, score,",
        "fitt": "No such command 'fitt'. Did you mean 'fit'?",
        "fit x.csv --max-atom 3": "No such option '--max-atom'. Did you mean --max-atoms?",
        "fit x.csv --smoothing 3": "No such option '--smoothing'. These commands have it: score, plot novelty.",
        "fit": "Missing argument 'FILE...'",
        "fit x.csv --nonsense": "No such option",
        "fit x.csv --max-atoms many": "expected a whole number or 'none' but got 'many'",
        "fit x.csv --max-atoms 0": "fit: --max-atoms must be at least 1, got 0",
        "fit x.csv --tolerance 2": "fit: --tolerance must be a number of at least 0 and below 1, got 2.0",
        "fit x.csv --axes best": "'best' is not one of 'ritz', 'likelihood'",
        "fit x.csv --save-every 3d": "neither a number of rows",
        "score x.csv --noise-variance -1": "score: --noise-variance must be a number above 0, got -1.0",
        "score x.csv --top -1": "--top",
        "transform x.csv": "Missing option '--model'",
        "info": "Missing argument 'MODEL'",
        "export m.npz": "Missing argument 'OUT.onnx|OUT.c'",
        "demo --rows 0": "--rows",
        "plot nonsense": "No such command",
        "plot atoms --save a.png": "Missing argument 'MODEL'",
        "plot atoms m.npz n.npz --save a.png": "Expected one model but got m.npz, n.npz",
        "plot novelty x.csv --model m.npz --save n.png --size big": "'big' is not two sizes in inches",
        "completion cmd": "'cmd' is not one of",
    }
    loads_nothing_heavy(*((line.split(), {}, 2, part) for line, part in lines.items()))


def test_shell_completion_needs_no_compiled_loops():
    words = {
        "": "plain,transform",
        "plot no": "plain,novelty",
        "fit --ker": "plain,--kernel",
        "fit --kernel rb": "plain,rbf",
        "fit --dtype ": "plain,float32",
        "plot atoms --sh": "plain,--shape",
        "completion b": "plain,bash",
        "info ": "file,",
    }
    answers = (
        (
            [],
            {"_STREAMKPCA_COMPLETE": "bash_complete", "COMP_WORDS": f"streamkpca {line}", "COMP_CWORD": f"{n}"},
            0,
            part,
        )
        for line, part in words.items()
        for n in [line.count(" ") + 1]
    )
    scripts = ((["completion", shell], {}, 0, f"{shell}_complete") for shell in ("bash", "zsh", "fish"))
    loads_nothing_heavy(*answers, *scripts)


LEAVES = [
    pytest.param(path, one, id=" ".join(path)) for path, one in every_command() if not isinstance(one, click.Group)
]


@pytest.mark.parametrize(("path", "command"), LEAVES)
def test_the_function_of_a_command_takes_its_options(path, command):
    names = {parameter.name for parameter in command.params if parameter.expose_value} - {"named_models"}
    assert inspect.signature(command.function).bind(**dict.fromkeys(names))
    # One that is left to **options is used by name; all others are arguments.
    arguments = inspect.signature(command.function).parameters.values()
    assert {one.name for one in arguments if one.kind is not inspect.Parameter.VAR_KEYWORD} <= names


@pytest.mark.parametrize(("path", "command"), LEAVES)
def test_every_help_is_a_manual_page(path, command):
    result = run(*path, "--help")
    assert result.exit_code == 0
    for part in ("Usage:", "Results:", "Examples:", "Standard output and error:", "Exit codes:"):
        assert part in result.stdout
    # Examples can be typed: each names this command and options that there are.
    options = {name for parameter in command.params for name in parameter.opts + parameter.secondary_opts}
    assert command.examples
    lines = [line for line, _ in command.examples if f"streamkpca {' '.join(path)}" in line]
    assert lines
    for line in lines:
        words = line.partition(f"streamkpca {' '.join(path)}")[2].partition("|")[0].split()
        assert {word for word in words if word.startswith("--")} <= options


def test_the_kernels_that_shells_complete_are_those_that_there_are():
    assert list(MODEL_PARAMETERS["kernel"].usual) == sorted(KERNELS)


def test_a_parameter_is_refused_before_a_file_is_opened(tmp_path):
    refused(run("fit", tmp_path / "absent.csv", "--half-life", "-3"), "fit: --half-life must be", "got -3")


def test_the_demo_says_what_it_does_before_it_loads_anything(monkeypatch):
    def function(command):
        click.echo("loads", err=True)
        return lambda **options: click.echo("works", err=True)

    monkeypatch.setattr(Command, "function", property(function))
    first, *later = run("demo", "--rows", "1234").stderr.splitlines()
    assert first.startswith("streamkpca: simulating 1,234 rows of a plant with 24 sensors; the first run also compiles")
    assert later == ["loads", "works"]
    assert run("fit", "x.csv").stderr.splitlines() == ["loads", "works"]


def test_the_demo_tells_its_progress_in_lines_where_there_is_no_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr("streamkpca.cli.console._SECONDS_BETWEEN_LINES", 0.0)
    done = run("demo", "--rows", "1600", "--out", tmp_path, "--json")
    _, *lines = done.stderr.splitlines()
    pattern = r"streamkpca: learning: (62|100)%, 1,[06]00 rows, [\d,]+ rows/s, \d+ atoms"
    assert len(lines) == 2
    assert all(re.fullmatch(pattern, line) for line in lines)
    (answer,) = done.stdout.splitlines()
    assert json.loads(answer)["model"]["rows"] == 1600


def test_other_commands_tell_no_progress_where_there_is_no_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr("streamkpca.cli.console._SECONDS_BETWEEN_LINES", 1e9)
    assert len(run("demo", "--rows", "1600", "--out", tmp_path).stderr.splitlines()) == 1
    monkeypatch.setattr("streamkpca.cli.console._SECONDS_BETWEEN_LINES", 0.0)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 3)))
    done = run("fit", tmp_path / "x.npy", *SMALL)
    assert (done.exit_code, done.stderr) == (0, "")
