"""The code of docs/fleet.md runs as written: Python, C and shell, in the order of the page."""

import contextlib
import glob
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import run

from streamkpca.export import from_device, to_device

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"


@pytest.mark.slow
def test_the_fleet_learns_as_the_page_shows(tmp_path, monkeypatch):
    if shutil.which("cc") is None:
        pytest.skip("the page compiles C; needs a C compiler named cc")
    monkeypatch.chdir(tmp_path)
    names = {}
    printed = io.StringIO()

    def shell(line):
        nonlocal printed
        if line.startswith("streamkpca "):
            words = line.split()[1:]
            done = run(*(name for word in words for name in sorted(glob.glob(word)) or [word]))
            assert done.exit_code == 0, done.stderr
            printed = io.StringIO(done.stdout)
        else:
            subprocess.run(line.replace("cc ", "cc -Wall -Wextra -Werror ", 1), shell=True, check=True)

    for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        if language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, names)
        elif language == "text":
            assert printed.getvalue() == code
        elif language == "c":
            Path("main.c").write_text(code, encoding="utf-8")
            for prototype in re.findall(r"^int pump_\w+\(.*\);$", code, re.MULTILINE):
                assert prototype in Path("pump.c").read_text(encoding="utf-8")
        elif language == "sh":
            for line in code.splitlines():
                shell(line)
    # What was sent goes on, and comes home again.
    shell("./pump 1.bin < 1-monday.csv")
    sent = to_device(names["healthy_union"], names["tuesday"]["1.bin"])
    state = Path("1.bin").read_bytes()
    for again in (from_device(state, names["healthy_union"]), from_device(state, names["plant"], since=sent)):
        assert again.n_samples_seen_ == 3000
