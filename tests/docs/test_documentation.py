"""Every public name has an example that runs, and a docstring with its parameters, results and errors."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Self

import pytest

import streamkpca
from streamkpca._core.concurrency import cached_property

ROOT = Path(__file__).parents[2]
# Gathers names for the command; not meant to be imported by users.
INTERNAL = {"streamkpca.tables"}


def declares_names(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def public_modules():
    """Return the modules that declare `__all__`, without importing the others."""
    found = pkgutil.walk_packages(streamkpca.__path__, "streamkpca.", onerror=lambda name: None)
    names = ["streamkpca", *(module.name for module in found if "._" not in module.name)]
    paths = {name: ROOT.joinpath(*name.split(".")) for name in names}
    files = {name: path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for name, path in paths.items()}
    return [name for name in names if declares_names(files[name])]


MODULES = [name for name in public_modules() if name not in INTERNAL]


@cache
def examples_of(module):
    found = doctest.DocTestFinder().find(importlib.import_module(module))
    return {test.name: test for test in found if test.examples}


def is_documented_member(value):
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod | property | cached_property)


def members_of(owner):
    """List public methods and properties, each with the first class of the MRO that defines it."""
    seen = set()
    for base in owner.__mro__:
        for name, value in vars(base).items():
            if name in seen or name.startswith("_"):
                continue
            seen.add(name)
            if base.__module__.startswith("streamkpca") and is_documented_member(value):
                yield base, name


def public_names():
    """Return all that a user may call, names in `__all__` and members of classes, by their qualified names."""
    names = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, ModuleType | str):
                continue
            names[f"{value.__module__}.{value.__qualname__}"] = value
            if inspect.isclass(value):
                for base, member in members_of(value):
                    names[f"{base.__module__}.{base.__qualname__}.{member}"] = vars(base)[member]
    return names


@pytest.fixture(scope="module")
def names():
    for library in ("dask", "matplotlib", "onnx", "pandas", "pyarrow", "river", "sklearn"):
        pytest.importorskip(library, reason="public names of all packages are read; needs the extra test")
    return public_names()


def has_example(place, value):
    """Whether doctest finds an example, this file runs it, or an example of the class or of another member uses it."""
    if isinstance(value, cached_property) and ">>> " in (value.__doc__ or ""):
        return True
    getter = value.fget if isinstance(value, property) else getattr(value, "_function", value)
    owner = getattr(getter, "__func__", getter)
    found, (whole, _, name) = examples_of(owner.__module__), place.rpartition(".")
    beside = [test for other, test in found.items() if other == whole or other.startswith(f"{whole}.")]
    return place in found or any(
        re.search(rf"\.{name}\b", example.source) for test in beside for example in test.examples
    )


def test_all_public_modules_are_found():
    # Otherwise the tests below could pass because the walk found nothing.
    assert {"streamkpca", "streamkpca.kernels", "streamkpca.plots", "streamkpca.export"} <= set(MODULES)
    listed = re.findall(r"^(\w+) :", str(importlib.import_module("streamkpca.adapters").__doc__), re.MULTILINE)
    assert listed
    assert {f"streamkpca.adapters.{name}" for name in listed} <= set(MODULES)
    imported = re.findall(r"^ *from (streamkpca[\w.]*) import", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(imported) <= set(MODULES)
    assert set(public_modules()) - set(MODULES) == INTERNAL


def test_every_public_name_has_an_example_that_runs(names):
    assert len(names) > 100
    assert {place for place, value in names.items() if not has_example(place, value)} == set()


def test_examples_of_cached_properties_run(names):
    # doctest finds functions, classes and the standard library's properties only.
    cached = {place: value for place, value in names.items() if isinstance(value, cached_property)}
    assert cached
    for place, value in cached.items():
        test = doctest.DocTestParser().get_doctest(str(value.__doc__), {}, place, None, None)
        flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0


def test_examples_show_something(names):
    """Every example has an expected output; without one, it would only show that nothing raises."""
    for place, value in names.items():
        test = doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", {}, place, None, None)
        assert not test.examples or any(example.want or example.exc_msg for example in test.examples), place


def parameters_of(documented):
    """Read the names in the Parameters section."""
    section = (inspect.getdoc(documented) or "").partition("Parameters\n----------\n")[2]
    section = re.split(r"\n\n\w[\w ]*\n-{3,}\n", section)[0]
    return {
        name for line in re.findall(r"^(\S.*?)(?: : .*)?$", section, re.MULTILINE) for name in re.findall(r"\w+", line)
    }


def test_parameters_are_documented(names):
    """Every argument is in a Parameters section: of the function, of its class, or of a base class."""
    missing = {}
    for place, value in names.items():
        function = getattr(value, "__func__", value)
        is_error = inspect.isclass(value) and issubclass(value, Exception)
        if is_error or not (inspect.isfunction(function) or inspect.isclass(function)):
            continue
        wanted = set(inspect.signature(function).parameters) - {"self", "cls", "args", "kwargs"}
        listed = set().union(*map(parameters_of, value.__mro__ if inspect.isclass(value) else [value]))
        if not wanted <= listed:
            missing[place] = wanted - listed
    assert missing == {}


def calls_or_raises(function):
    """Whether a function contains a `raise` or asks for a fitted model, which raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    asks = (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree)) or "_require_fitted" in asks


def test_errors_and_results_are_documented(names):
    missing = set()
    for place, value in names.items():
        function = getattr(value, "__func__", value)
        if inspect.isclass(value) and not issubclass(value, Exception):
            function = vars(value).get("__init__", vars(value).get("__post_init__"))
        if not inspect.isfunction(function) or function.__module__ == "dataclasses":
            continue
        sections = set(re.findall(r"^(\w+)\n-{3,}$", inspect.getdoc(value) or "", re.MULTILINE))
        returns = not inspect.isclass(value) and function.__annotations__.get("return") is not None
        # A first line may say all, and so does the annotation of a method that returns its object.
        returns = (
            returns
            and function.__annotations__["return"] is not Self
            and not re.match("(Return|Make|Write|Read) |Whether ", inspect.getdoc(value) or "")
        )
        if returns and sections.isdisjoint({"Returns", "Yields"}):
            missing.add(f"{place}: Returns")
        # The generated constructor of a dataclass has no source, and checks nothing.
        if (
            inspect.unwrap(function).__code__.co_filename.endswith(".py")
            and calls_or_raises(function)
            and "Raises" not in sections
        ):
            missing.add(f"{place}: Raises")
    assert missing == set()
