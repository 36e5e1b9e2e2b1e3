"""The manual's code runs as written and prints what its pages show; its API pages list every public name."""

import contextlib
import doctest
import importlib
import io
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import test_documentation
from commands import run

from streamkpca.cli.demo import SENSORS, simulate_week
from streamkpca.kernels import RBF
from streamkpca.tables import Writer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Their code needs engines or a compiler, and has tests of its own.
TESTED_APART = {"many-machines.md": "test_many_machines.py", "fleet.md": "test_fleet.py"}
PAGES = sorted(path.name for path in DOCS.glob("*.md") if path.name not in TESTED_APART)
LIBRARIES = {
    "matplotlib": "plots",
    "onnx": "onnx",
    "onnxruntime": "test",
    "pandas": "pandas",
    "river": "river",
    "sklearn": "sklearn",
}
# Their names are the package's, too.
LISTED_UNDER_THE_PACKAGE = {"streamkpca.models.bank"}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(page):
    """Return the fenced blocks of a page: their languages and texts."""
    return FENCED.findall((DOCS / page).read_text(encoding="utf-8"))


def with_code(language):
    return [page for page in PAGES if language in dict(blocks(page))]


def names_for(page):
    """Return what a page supposes that its reader has, and write the file that it reads."""

    def batches_from(offset):
        rows = np.random.default_rng(0).normal(size=(25_000, 3))
        yield from np.array_split(rows[offset:], 10)

    if page == "index.md":
        week = simulate_week()
        with Writer("machine.csv") as writer:
            writer.write({"time": week.times, **dict(zip(SENSORS, week.readings.T, strict=True))})
    return {"batches_from": batches_from} if page == "services.md" else {}


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_code_fits_beside_the_contents(page):
    """A page beside its lists of contents, on a screen of 1,280 pixels, shows 88 letters of code."""
    long = [line for language, code in blocks(page) if language == "python" for line in code.split("\n")]
    assert [line for line in long if len(line) > 88] == []


def require_libraries(code):
    imported = set(re.findall(r"^ *(?:from|import) (\w+)", code, re.MULTILINE))
    if "plots" in code:
        imported.add("matplotlib")
    for library in sorted(imported & set(LIBRARIES)):
        pytest.importorskip(library, reason=f"the page uses {library}; needs the extra {LIBRARIES[library]}")


def check_output(printed, shown, where):
    checker = doctest.OutputChecker()
    example = doctest.Example("", shown)
    message = checker.output_difference(example, printed, FLAGS)
    assert checker.check_output(shown, printed, FLAGS), f"{where}\n{message}"


def test_pages_that_are_tested_apart_exist():
    for page, test in TESTED_APART.items():
        assert (DOCS / page).exists()
        assert page in (Path(__file__).parent / test).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("page", with_code("python"))
def test_code_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    """All blocks of a page run in its order, in one namespace; a block of text is what the block above it printed."""
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    require_libraries("\n".join(code for language, code in found if language == "python"))
    names = names_for(page)
    for place, (language, code) in enumerate(found):
        if language != "python":
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, f"{page}, block {place + 1}", "exec"), names)
        follower, shown = found[place + 1] if place + 1 < len(found) else ("", "")
        if follower == "text":
            check_output(output.getvalue(), shown, f"{page}, block {place + 1}")
        elif page != "index.md":
            assert output.getvalue() == "", f"{page}, block {place + 1} prints what the page does not show"


def test_the_first_page_and_the_readme_begin_with_the_same_code():
    readme = FENCED.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert readme[:2] == blocks("index.md")[:2]


@pytest.mark.slow
def test_the_c_file_works_as_shown(tmp_path, monkeypatch):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the page compiles C; needs a C compiler named cc")
    monkeypatch.chdir(tmp_path)
    found = blocks("edge.md")
    names = {}
    for language, code in found:
        if language == "python" and "onnx" not in code:
            exec(code, names)
    listed = iter(code for language, code in found if language == "c")
    for name, prototypes, program in zip(("pump", "valve"), listed, listed, strict=True):
        text = Path(f"{name}.c").read_text(encoding="utf-8")
        for line in re.findall(rf"^\w+ {name}_\w+\(.*\);", prototypes, re.MULTILINE):
            assert line in text
        Path("main.c").write_text(program, encoding="utf-8")
        subprocess.run(
            [compiler, "-std=c99", "-Wall", "-Werror", "main.c", f"{name}.c", "-lm", "-o", "main"], check=True
        )
        done = subprocess.run(["./main"], capture_output=True, text=True, check=True)
        shown = found[found.index(("c", program)) + 1]
        assert ("text", done.stdout) == shown


# The command


def command_lines():
    """Return every line of shell that calls the command, in the manual and the README, with its page."""
    found = []
    for page in [*with_code("sh"), "../README.md"]:
        for language, text in blocks(page):
            lines = text.splitlines() if language == "sh" else []
            found += [(page, re.sub(r"\s+# .*", "", line)) for line in lines if "streamkpca " in line]
    return [(page, line) for page, line in found if not line.startswith(("pip", "python"))]


def arguments_of(line):
    """Return the arguments of the command in a line of shell."""
    return line.partition("streamkpca ")[2].partition(" | ")[0].replace("'", "").split()


def write_tables():
    """Write the files of rows that the pages name."""
    random = np.random.default_rng(0)
    for name in ("readings", "yesterday", "today", "tomorrow", "log", "server", "machine"):
        load = random.normal(size=600)
        faults = np.where(np.arange(600) > 590, 1, 0)
        columns = {"load": load, "heat": 2 * load + 9 * faults}
        if name != "readings":
            columns["when"] = np.arange(600)
        if name == "today":
            columns["fault"] = faults
        rows = np.column_stack(list(columns.values()))
        np.savetxt(f"{name}.csv", rows, delimiter=",", header=",".join(columns), comments="", fmt="%.6g")
    gapped = np.where(random.random((600, 2)) < 0.1, np.nan, random.normal(size=(600, 2)))
    np.savetxt("gaps.csv", gapped, delimiter=",", header="load,heat", comments="", fmt="%.6g")


@pytest.mark.slow
def test_lines_of_shell_run_in_their_order(tmp_path, monkeypatch):
    for library in ("click", "pyarrow", "matplotlib", "onnx"):
        pytest.importorskip(library, reason="the lines are for the command; needs the extras cli and onnx")
    monkeypatch.chdir(tmp_path)
    write_tables()
    assert run("fit", "readings.csv", "--kernel", RBF(0.3).to_json(), "--model", "east.npz").exit_code == 0
    words = ["--kernel", RBF(0.3).to_json(), "--drop", "when,fault"]
    assert run("fit", "today.csv", *words, "--model", "west.npz").exit_code == 0
    lines = command_lines()
    assert len(lines) > 15
    for page, line in lines:
        arguments = arguments_of(line)
        if "--follow" in arguments or arguments[0] in ("warmup", "fleet"):
            # The first never end, one compiles for half a minute, and one needs a fleet, whose page has a test of its
            # own; so only their options are checked.
            arguments.append("--help")
        stdin = Path("readings.csv").read_text(encoding="utf-8") if line.startswith("collect |") else None
        done = run(*arguments, stdin=stdin)
        assert done.exit_code == 0, f"{page}: {line}\n{done.stderr}"


def test_installations_name_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pages = [(DOCS / page).read_text(encoding="utf-8") for page in PAGES] + [(ROOT / "README.md").read_text("utf-8")]
    groups = [group for text in pages for group in re.findall(r"streamkpca\[([\w,]+)\]", text)]
    named = {extra for group in groups for extra in group.split(",")}
    assert named
    assert named <= set(extras)
    table = re.findall(r"^\| (`.*?) \|", (DOCS / "start.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = {extra for cell in table for extra in re.findall(r"`(\w+)`", cell)}
    assert listed == set(extras) - {"bench", "dev", "docs", "test"}


# The API


def listed_names():
    """Return the names that the API pages list, with the modules that they are listed under."""
    found = set()
    for page in (DOCS / "api").glob("*.rst"):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r"   [A-Za-z_]+", line) and module:
                found.add(f"{module}.{line.strip()}")
    return found


def test_api_pages_list_every_public_name_and_no_other():
    for library in ("dask", "matplotlib", "onnx", "river"):
        pytest.importorskip(library, reason="the names of all modules are read; needs the extra test")
    modules = set(test_documentation.MODULES) - LISTED_UNDER_THE_PACKAGE
    names = {f"{module}.{name}" for module in modules for name in importlib.import_module(module).__all__}
    assert listed_names() == names - {"streamkpca.__version__", "streamkpca.kernels"}
