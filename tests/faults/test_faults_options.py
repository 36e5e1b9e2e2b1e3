"""The command with any value of any option, and with any file given as a model: it works, or refuses in one line.

HYPOTHESIS_PROFILE=nightly tries every option with every odd value, and every third use of a file.
"""

import json
import os
from collections import Counter
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from commands import assert_plain
from corruptions import DAMAGES, ROWS, models, repacked, unpacked, with_entry

from streamkpca import StreamingKernelPCA
from streamkpca.cli.commands import cli
from streamkpca.monitoring import Monitor
from streamkpca.tables import Reading

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# Every n-th option with its value, and every n-th odd model file, is tried.
EVERY_OPTION, EVERY_MODEL = (1, 3) if NIGHTLY else (97, 29)

DATA = np.round(np.random.default_rng(6).normal(size=(80, 3)), 5)
LINES = [",".join(map(repr, row)) + "\n" for row in DATA.tolist()]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give an empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


VALUES = [
    "", "0", "-1", "2", "1.5", "nan", "inf", "1e400", "9" * 5000, "x", "none", "auto", " ", "1_0", "\u0663", "a,b", "t",
    "0,1", "a,a", ",", "\t", '"', "\u00e9", "\x1b[31m", "\n", "--", "-", ".", "/", "/dev/null", "/dev/full",
    "/no/such/file", "m.npz", "x.csv", "x.npy", "o.csv", "o.parquet", "o.png", "o.c", "x" * 5000, "%s", "{}", "rbf",
    '{"RBF": {}}', "[" * 3000, "3", "1s", "9" * 400 + "s", "range", "csv", "\udcff",
]  # fmt: skip
BASES = {
    "fit": ["x.csv", "--drop", "t,l", "--max-atoms", "8"],
    "score": ["x.csv", "--drop", "t,l", "--model", "m.npz"],
    "watch": ["x.csv", "--drop", "t,l"],
    "info": ["m.npz"],
    "export": ["m.npz", "o.c"],
    "demo": ["--out", "d"],
}


def command_lines():
    for name, base in BASES.items():
        command = cli.commands[name]
        for parameter in command.get_params(click.Context(command)):
            if parameter.name == "follow":
                continue
            if isinstance(parameter, click.Argument):
                yield from ([name, value, *base[1:]] for value in VALUES)
            elif isinstance(parameter, click.Option) and parameter.is_flag:
                yield from ([name, *base, one] for one in (*parameter.opts, *parameter.secondary_opts))
            else:
                yield from ([name, *base, parameter.opts[-1], *[value] * parameter.nargs] for value in VALUES)


def run_plainly(args):
    """Run the command, and check that it ends as it should."""
    result = CliRunner().invoke(cli, args, input=b"")
    assert result.exception is None or isinstance(result.exception, SystemExit), (args, result.exception)
    assert result.exit_code in (0, 1, 2), args
    assert_plain(result.stderr.splitlines(), refused=result.exit_code > 0)
    assert "\x1b" not in result.stdout
    return result.exit_code


def write_table():
    with open("x.csv", "w") as file:
        file.write("t,a,b,c,l\n")
        for i, line in enumerate(LINES):
            file.write(f"2024-01-01T00:{i // 60:02}:{i % 60:02},{line.rstrip()},{i % 2}\n")
    np.save("x.npy", DATA)


def test_any_value_of_any_option_is_used_or_refused_in_a_line(folder):
    write_table()
    assert run_plainly(["fit", "x.csv", "--drop", "t,l", "--model", "m.npz", "--max-atoms", "8"]) == 0
    model, outcomes = Path("m.npz").read_bytes(), Counter[int]()
    assert [name for name, base in BASES.items() if run_plainly([name, *base])] == []
    for number, args in enumerate(command_lines()):
        if number % EVERY_OPTION:
            continue
        outcomes[run_plainly(args)] += 1
        # Results may have gone over them.
        write_table()
        Path("m.npz").write_bytes(model)
    assert min(outcomes[0], outcomes[1], outcomes[2]) > 0


READING = Reading(("a", "b", "c"))._asdict()
NOTES = [
    None, 0, True, "x" * 1000, [], [1], {}, {"command": None}, {"command": []}, {"monitor": {}}, {"monitor": "x"},
    *({"command": {"places": {os.path.realpath("x.csv"): place}}} for place in (
        {}, {"byte": -5}, {"byte": 2**59}, {"byte": "6"}, {"line": 10**18}, {"row": "x"}, {"line": []}, [], "x",
    )),
    *({"command": {"reading": READING | {"columns": names}}} for names in (
        ["a", "a", "b"], ["\x1b[31m", "*/", "\ud800"], [""] * 3, ["$\\frac", "$x$", "_a"], [1], "abc", [],
    )),
    *({"command": {"reading": reading}} for reading in (
        "t", [], {}, READING | {"time": ["t"], "time_format": 5}, READING | {"time": ["a"], "time_format": "%H"},
        READING | {"time": ["a"], "time_format": "%Q"}, READING | {"time": ["absent"]},
        READING | {"differences": ["a"]},
        READING | {"gaps": {"a": ["x"]}}, READING | {"gaps": {"a": [0.5]}}, READING | {"wide": ["a", "b"]},
        READING | {"wide": ["absent", "b"]}, READING | {"wide": [1]},
    )),
]  # fmt: skip


def odd_models():
    """Yield files given as models: damaged, foreign, and whole ones whose notes make no sense."""
    rng = np.random.default_rng(8)
    good = {name: model.to_bytes({"offset": 1}) for name, model in models().items()}
    monitor = Monitor(StreamingKernelPCA(2, max_atoms=6, block_size=16, reservoir_size=10))
    monitor.update(ROWS)
    monitor.save("monitor.npz", {"command": {"columns": ["a", "b", "c"]}})
    good["monitor"] = Path("monitor.npz").read_bytes()
    for number in range(20 if NIGHTLY else 3):
        for kind, damage in DAMAGES.items():
            for name, data in good.items():
                yield f"{name}, {kind}, {number}", damage(data, rng)
    header, arrays = unpacked(good["fitted"])
    for extra in NOTES:
        yield f"extra {json.dumps(extra)[:60]}", repacked(with_entry(header, ("extra",), extra), arrays)
    for foreign in (
        b"",
        b"PK\x05\x06" + bytes(18),
        b"\x89PNG\r\n\x1a\n",
        b"a,b\n1,2\n",
        bytes(1000),
        b"\x93NUMPY\x01\x00",
    ):
        yield f"foreign {foreign[:9]!r}", foreign


USES = [
    ["info", "m.npz"],
    ["info", "m.npz", "--json"],
    ["score", "x.csv", "--model", "m.npz"],
    ["watch", "x.csv", "--model", "m.npz", "--json"],
    ["score", "x.csv", "--model", "m.npz", "--save", "o.csv"],
    ["fit", "x.csv", "--model", "m.npz", "--resume"],
    ["export", "m.npz", "o.c"],
    ["merge", "good.npz", "m.npz", "--out", "o.npz"],
    ["score", "x.csv", "--model", "m.npz", "--plot", "o.svg"],
]


def test_any_file_given_as_a_model_is_used_or_refused_in_a_line(folder):
    (folder / "x.csv").write_text("a,b,c\n" + "".join(LINES[:60]))
    models()["fitted"].save("good.npz")
    outcomes = Counter[int]()
    for number, (_, data) in enumerate(odd_models()):
        for use, args in enumerate(USES):
            if (number * 5 + use) % EVERY_MODEL:
                continue
            Path("m.npz").write_bytes(data)
            outcomes[run_plainly(args)] += 1
    assert min(outcomes[0], outcomes[1]) > 0
