#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox"]
# ///
"""The project's tasks: `nox` runs lint and tests, `nox -l` lists all."""

import re
from datetime import UTC, datetime
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYTHONS = nox.project.python_versions(nox.project.load_toml("pyproject.toml"))

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and layers."""
    session.install("-e", ".[test]", *nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "dev"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests with the newest libraries."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session(python=PYTHONS[0], venv_backend="uv", default=False)
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest versions that pyproject.toml allows."""
    session.install("--resolution", "lowest-direct", "-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session(python=PYTHONS[0], default=False)
def engines(session: nox.Session) -> None:
    """Run the tests of Spark, which needs Java, of Ray and of Beam."""
    session.install("-e", ".[test,spark,ray]", "apache-beam")
    adapters = [f"tests/adapters/test_adapters_for_{name}.py" for name in ("spark", "ray")]
    session.run("python", "-m", "pytest", "-n", "2", "-m", "", *adapters, "tests/docs/test_many_machines.py")


@nox.session(python=PYTHONS, default=False)
def demo(session: nox.Session) -> None:
    """Run the demonstration, and watch its file in five formats."""
    session.install(".[cli]")
    session.cd(session.create_tmp())
    session.run("streamkpca", "demo")
    session.run("python", str(ROOT / ".ci" / "formats"))


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the manual."""
    session.install("-e", ".", *nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "docs"))
    session.run("python", "-m", "sphinx", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Measure everything again: nox -s benchmarks -- --data FOLDER."""
    session.install("-e", ".[bench]")
    session.run("python", "benchmarks/run.py", *session.posargs)


@nox.session(default=False)
def release(session: nox.Session) -> None:
    """Build a version, try README's two commands on what was built, and date its heading in the changelog."""
    version = re.search(r'__version__ = "(.+)"', (ROOT / "streamkpca" / "_version.py").read_text("utf-8"))[1]
    changelog = ROOT / "CHANGELOG.md"
    heading = f"## [{version}] - {datetime.now(tz=UTC):%Y-%m-%d}"
    text = changelog.read_text("utf-8")
    if f"## [{version}]" not in text:
        changelog.write_text(text.replace("## [Unreleased]", f"## [Unreleased]\n\n{heading}", 1), "utf-8")
    session.install("build", "twine", "hatchling")
    scratch = Path(session.create_tmp()).resolve()
    session.run("python", "-m", "build", "--outdir", str(scratch / "dist"), str(ROOT))
    built = sorted(map(str, (scratch / "dist").glob(f"streamkpca-{version}*")))
    session.run("twine", "check", "--strict", *built)
    wheel, sdist = (next(name for name in built if name.endswith(end)) for end in (".whl", ".tar.gz"))
    session.install(f"{wheel}[cli]")
    session.run("streamkpca", "demo", "--out", str(scratch / "demo"))
    session.install(f"{sdist}[test]")
    session.run("tar", "-xf", sdist, "-C", str(scratch), external=True)
    session.chdir(scratch / f"streamkpca-{version}")
    session.run("python", "-m", "pytest", "-n", "auto", "-p", "no:cacheprovider", *session.posargs)
    session.log(f"{heading}: {', '.join(built)}; docs/versions.md says what is left to do")


if __name__ == "__main__":
    nox.main()
