"""The code of docs/fleet.md runs as written: Python, C and shell, in the order of the page."""

import contextlib
import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import run

from streamkpca.export import from_device

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"


@pytest.mark.slow
def test_the_fleet_learns_as_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("cc") is None:
        pytest.skip("the page compiles C; needs a C compiler named cc")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = io.StringIO()

    def shell(line: str) -> None:
        if line.startswith("streamkpca "):
            done = run(*line.split()[1:])
            assert done.exit_code == 0, done.stderr
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
        else:
            for line in code.splitlines():
                shell(line)
    # What was sent goes on, and comes home again.
    shell("./pump b.bin < a.csv")
    again = from_device(Path("b.bin").read_bytes(), names["fleet"])
    assert again.n_samples_seen_ == 6000
    assert Path("fleet.npz").exists()
