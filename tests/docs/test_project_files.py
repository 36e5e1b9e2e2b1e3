"""What the project's files say twice agrees: versions, requirements, and the Pythons that are tested."""

import re
import tomllib
from pathlib import Path

import yaml

import streamkpca
from streamkpca.cli.commands import cli

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_citation_names_this_version():
    citation = read("CITATION.cff")
    assert citation["version"] == streamkpca.__version__
    assert citation["license"] == PROJECT["license"]


def test_every_python_that_is_named_is_tested():
    named = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if " :: 3." in name}
    matrix = read(".github/workflows/tests.yml")["jobs"]["systems"]["strategy"]["matrix"]
    assert set(matrix["python"]) == named
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert PROJECT["requires-python"] == f">={min(named, key=lambda name: int(name.partition('.')[2]))}"


def test_the_recipe_asks_for_what_the_package_asks_for():
    recipe = read(".github/conda/recipe.yaml")
    assert recipe["context"]["version"] == streamkpca.__version__
    assert recipe["context"]["python_min"] == PROJECT["requires-python"].removeprefix(">=")
    asked = {line.replace(" ", "") for line in recipe["requirements"]["run"]} - {"python>=${{python_min}}"}
    assert asked == set(PROJECT["dependencies"])
    constraints = {line.replace(" ", "").replace("-base", "") for line in recipe["requirements"]["run_constraints"]}
    extras = {line for lines in PROJECT["optional-dependencies"].values() for line in lines}
    assert constraints <= extras


def test_a_release_is_built_from_what_is_tested():
    jobs = read(".github/workflows/release.yml")["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "permissions" not in jobs["build"]


def test_the_page_on_security_names_commands_that_exist():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    listed = re.search(r"and the commands (.*?)\.", text, re.DOTALL).group(1)
    for words in re.findall(r"`([^`]*)`", listed):
        name, *options = words.split()
        found = {option for parameter in cli.commands[name].params for option in parameter.opts}
        assert {*options} <= found, words
    # Every command that reads a model of somebody else.
    readers = {name for name, command in cli.commands.items() if "model" in {one.name for one in command.params}}
    assert readers <= {words.split()[0] for words in re.findall(r"`([^`]*)`", listed)}
