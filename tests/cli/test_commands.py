"""Commands as users see them: help without compiled loops, options from the table of parameters, plain errors."""

import io
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from commands import SMALL, refused, run

from streamkpca import StreamingKernelPCA, load
from streamkpca.cli.commands import Commands, cli
from streamkpca.cli.console import escape_letters, print_facts, print_json
from streamkpca.kernels import RBF

LIGHT = """
import json, sys
from click.testing import CliRunner
import streamkpca.__main__
from streamkpca.cli.commands import cli
for args, code, answer in json.loads(sys.stdin.read()):
    result = CliRunner().invoke(cli, args, prog_name="streamkpca")
    assert result.exit_code == code, (args, result.output)
    assert answer in result.output, (args, result.output)
    heavy = {"llvmlite", "matplotlib", "numba", "pyarrow", "scipy"} & set(sys.modules)
    assert not heavy, (args, heavy)
"""
USAGE_ERRORS = {
    "fit x.csv --max-atom 3": "No such option",
    "fit": "Missing argument 'FILE...'",
    "fit x.csv --max-atoms many": "expected N|none but got 'many'",
    "fit x.csv --max-atoms 0": "max_atoms must be at least 1, got 0",
    "fit x.csv --tolerance 2": "tolerance must be a finite number in [0, 1), got 2.0",
    "fit x.csv --axes best": "'best' is not one of 'ritz', 'likelihood'",
    "fit x.csv --save-every -1": "Invalid value for '--save-every'",
    "score x.csv --period 1month": "expected rows, as in 144, or a time, as in 1d, 24h, 90min, but got '1month'",
    "score x.csv --period 5m": "expected rows, as in 144, or a time, as in 1d, 24h, 90min, but got '5m'",
    "watch x.csv --plot a.txt": "pictures are written as .png, .svg, .pdf",
    "watch x.csv --from-start": "name its file (--model FILE), or leave out --from-start",
    "watch x.csv --accept 3": "name its file (--model FILE), or leave out --accept",
    "score x.csv": "Missing option '--model'",
}


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.tanh(np.random.default_rng(0).normal(size=(300, 2)) @ [[1.0, 2.0, 0.5], [0.0, 1.0, 1.0]]))
    return "x.npy"


def test_help_needs_no_compiled_loops():
    paths = [[], *([name] for name in cli.commands)]
    asked = [([*path, "--help"], 0, "Usage: streamkpca") for path in paths] + [(["--version"], 0, "version")]
    asked += [(["nonsense"], 2, "No such command 'nonsense'"), (["info"], 2, "Missing argument 'MODEL'")]
    done = subprocess.run([sys.executable, "-c", LIGHT], input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("line", "part"), USAGE_ERRORS.items())
def test_wrong_use_is_refused_before_a_file_is_opened(line, part):
    refused(run(*line.split()), part, code=2)


def test_the_help_of_watch_fits_a_screen():
    lines = CliRunner().invoke(cli, ["watch", "--help"], terminal_width=80).stdout.splitlines()
    assert len(lines) <= 56
    assert max(map(len, lines)) <= 80


def test_examples_in_the_help_name_options_that_there_are():
    n = 0
    for name, command in cli.commands.items():
        options = {
            option
            for parameter in command.get_params(click.Context(command))
            for option in parameter.opts + parameter.secondary_opts
        }
        for line in re.findall(rf"streamkpca {name} (.*)", command.help):
            assert {word for word in line.split() if word.startswith("--")} <= options
            n += 1
    assert n > 6


OTHERS = {
    "--components": ("0.5", 0.5),
    "--kernel": ("laplacian", None),
    "--max-atoms": ("none", None),
    "--atoms": ("rows", "rows"),
    "--tolerance": ("0.25", 0.25),
    "--noise-variance": ("none", None),
    "--n-active": ("4", 4),
    "--axes": ("likelihood", "likelihood"),
    "--no-center": (None, False),
    "--half-life": ("500", 500.0),
    "--block-size": ("32", 32),
    "--refit-every": ("96", 96),
    "--reservoir-size": ("64", 64),
    "--random-state": ("none", None),
    "--missing": ("marginal", "marginal"),
}


def test_the_command_offers_every_parameter_of_the_model(table):
    words = [word for name, (text, _) in OTHERS.items() for word in (name, text) if word is not None]
    result = run("fit", table, *words, "--model", "m.npz")
    assert result.exit_code == 0, result.stderr
    found = load("m.npz").get_params(deep=False)
    names = {"--components": "n_components", "--no-center": "center"}
    expected = {names.get(name, name[2:].replace("-", "_")): value for name, (_, value) in OTHERS.items()}
    assert type(found.pop("kernel")).__name__ == "InUnits"
    assert found == {name: value for name, value in expected.items() if name != "kernel"}


def test_the_command_has_the_defaults_of_the_model(table):
    assert run("fit", table, "--model", "m.npz").exit_code == 0
    expected = StreamingKernelPCA(kernel=RBF().in_units("std"))
    assert load("m.npz").get_params(deep=False) == expected.get_params(deep=False)


@pytest.mark.parametrize("name", ["--components", "--no-center"])
def test_a_parameter_cannot_change_when_a_model_continues(table, name):
    assert run("fit", table, *SMALL, "--model", "m.npz").exit_code == 0
    words = [name, *([] if name == "--no-center" else ["2"])]
    shown = name.replace("--no-center", "--center")
    refused(run("fit", table, *words, "--model", "m.npz", "--resume"), "leave out", shown, code=2)


def test_units_are_standard_deviations_unless_the_kernel_has_numbers_or_units(table):
    np.save("y.npy", np.random.default_rng(0).normal(size=(400, 3)) * [1.0, 1.0, 1000.0])
    own, fixed = RBF().in_units("range").to_json(), RBF(gamma=0.5).to_json()
    for words, expected in (
        ([], RBF().in_units("std")),
        (["--kernel", fixed], RBF(gamma=0.5)),
        (["--kernel", own], RBF().in_units("range")),
    ):
        result = run("fit", "y.npy", *words, "--model", "m.npz")
        assert result.exit_code == 0, result.stderr
        assert load("m.npz").get_params(deep=False)["kernel"] == expected
    refused(run("fit", "y.npy", "--kernel", "nonsense"), "nonsense", "rbf")
    refused(run("fit", "y.npy", "--kernel", '{"RBF": '), "--kernel: cannot read")


def grouped(command):
    """Run a function as the only command of a group of the same kind."""
    return CliRunner().invoke(Commands("group", commands={"act": click.Command("act", callback=command)}), ["act"])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("rows\nof 3"), 1, "Error: rows of 3\n"),
        (ImportError("pip install it"), 1, "Error: pip install it\n"),
        (FileNotFoundError(2, "No such file", "x.csv"), 1, "Error: x.csv: No such file\n"),
        (MemoryError(), 1, "Error: not enough memory; ask for fewer --max-atoms or --chunk-rows\n"),
        (KeyboardInterrupt(), 130, "Interrupted\n"),
        (BrokenPipeError(32, "gone"), 1, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_one_line_and_an_exit_code(error, code, said):
    def act():
        raise error

    result = grouped(act)
    assert (result.exit_code, result.stderr, result.stdout) == (code, said, "")


def test_a_warning_is_one_line():
    def act():
        warnings.simplefilter("always")
        warnings.warn("odd\nrows \x1b[2J", UserWarning, stacklevel=1)

    assert grouped(act).stderr == "Warning: odd rows \\x1b[2J\n"


def test_facts_are_printed_without_what_is_missing_and_json_without_nan(capsys):
    print_facts(
        "Title", {"a_b": 0.123456, "none": None, "list": [], "is_open": True, "inner": {"c_d": [1, 2], "no": None}}
    )
    print_json({"a": float("nan"), "b": [float("inf"), 1]})
    said = capsys.readouterr().out
    assert said == '\nTitle\n  a b      0.1235\n  is open  yes\n  inner    c d 1, 2\n{"a": null, "b": [null, 1]}\n'


@pytest.mark.parametrize("code", ["cp1252", "cp850", "latin-1", "ascii"])
def test_letters_that_a_console_lacks_are_escaped(code, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=code, write_through=True))
    escape_letters()
    print("ΔT, CO₂ and Ω")  # noqa: T201
    assert written.getvalue().strip() == b"\\u0394T, CO\\u2082 and \\u03a9"


def test_watch_says_how_it_read_the_first_row_and_what_else_a_date_may_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = (f"05/01/2026 00:{i // 60:02}:{i % 60:02},{i % 7},{i % 5}\n" for i in range(200))
    Path("x.csv").write_text("when,12V,x\n" + "".join(rows))
    told = json.loads(run("watch", "x.csv", "--json").stdout.splitlines()[-1])["read_as"][0]
    assert told["first_row"] == {"12V": 0.0, "x": 0.0}
    assert told["time_format"] == "%d/%m/%Y %H:%M:%S"
    assert (told["first_time"], told["other_first_time"]) == ("2026-01-05T00:00:00", "2026-05-01T00:00:00")
    said = run("watch", "x.csv", "--names", "when,a,b").stderr
    assert re.search(r"first row +2026-01-05T00:00:00; a 0, b 0\n", said)
    assert "or %m/%d/%Y %H:%M:%S: from 2026-05-01T00:00:00 (--time-format)" in said
    assert "--names when,a,b" in said
