#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox"]
# ///
"""The project's tasks: `nox` runs lint and tests, `nox -l` lists all."""

import nox

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


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Run the tests."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


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


if __name__ == "__main__":
    nox.main()
