"""What import-linter cannot check: jitted code calls no other file, optional libraries load late, the import is light.

The layers themselves are a contract in ``pyproject.toml``, which ``lint-imports`` checks.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import streamkpca

PACKAGE = Path(streamkpca.__file__).parent
REQUIRED = {"numpy", "numba", "scipy", "streamkpca"}
OPTIONAL = {
    "python_calamine",
    "sklearn",
    "pandas",
    "polars",
    "bokeh",
    "matplotlib",
    "pyarrow",
    "click",
    "river",
    "dask",
    "distributed",
    "onnx",
    "pyspark",
    "ray",
}
# Modules that are only imported by those who want these libraries.
LOADED_AT_ONCE = {
    "__main__": {"click"},
    "cli": {"click"},
    "tables": {"pyarrow"},
    "adapters.for_dask": {"dask"},
    "adapters.for_river": {"river"},
}


def module_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


TREES = {module_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
LOOPS = [module for module in TREES if module.endswith("._loops")]


def imported(tree, *, at_once=False):
    """Names of modules that a module imports: everywhere, or only what it loads at once."""
    nodes = tree.body if at_once else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield str(node.module)


def libraries_of(tree, *, at_once=False):
    return {name.partition(".")[0] for name in imported(tree, at_once=at_once)}


def allowed_at_once(module):
    return next((extra for name, extra in LOADED_AT_ONCE.items() if f"{module}.".startswith(f"{name}.")), set())


def is_jit(decorator):
    return isinstance(decorator, ast.Name) and decorator.id == "jit"


def jitted(tree):
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [function for function in functions if any(map(is_jit, function.decorator_list))]


def test_jitted_code_lives_in_loops_only():
    assert {module for module, tree in TREES.items() if jitted(tree)} == set(LOOPS)
    users = {module for module, tree in TREES.items() if "streamkpca._core.jit" in imported(tree)}
    # The warm-up counts what could not be cached.
    assert users == {*LOOPS, "compilation"}
    assert {module for module, tree in TREES.items() if "numba" in imported(tree)} == {"_core.jit"}


@pytest.mark.parametrize("module", LOOPS)
def test_loops_call_nothing_of_another_file(module):
    # Numba's cache on disk does not notice when another file changes; types in signatures are not compiled.
    allowed = {"math", "typing", "numpy", "streamkpca._core.arrays", "streamkpca._core.jit"}
    assert set(imported(TREES[module])) <= allowed
    for function in jitted(TREES[module]):
        nested = [node for node in ast.walk(function) if isinstance(node, ast.Raise | ast.ClassDef | ast.Try)]
        assert not nested, f"{function.name} raises or defines a class"


def test_optional_libraries_are_not_loaded_at_once():
    for module, tree in TREES.items():
        assert libraries_of(tree, at_once=True) & OPTIONAL <= allowed_at_once(module), module


def test_only_declared_libraries_are_imported_and_never_scikit_learn_or_data_frames():
    for module, tree in TREES.items():
        imported_here = libraries_of(tree) - set(sys.stdlib_module_names)
        assert imported_here <= (REQUIRED | OPTIONAL) - {"sklearn", "pandas", "polars"}, module


# `namedtuple` gives these to everybody.
OF_TUPLES = {"_replace", "_asdict", "_fields", "_make"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def defined_privately(tree):
    """Private names that a module defines: functions, classes, variables, and attributes of `self` and `cls`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__setattr__":
            yield ast.unparse(node.args[1]).strip("\"'")


def read_privately(tree):
    """Private names that a module reads: attributes of anything, and names that it imports from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("streamkpca"):
            # The warm-up calls one loop of `rows` itself.
            yield from (alias.name for alias in node.names if alias.name != "_loops")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr", "setattr"}:
            yield ast.unparse(node.args[1]).strip("\"'")


def test_no_package_reads_private_names_of_another():
    """A private name belongs to the package that defines it, wherever an object with it may come from."""
    owners = {}
    for module, tree in TREES.items():
        for name in filter(is_private, defined_privately(tree)):
            owners.setdefault(name, set()).add(module.partition(".")[0])
    foreign = {
        f"{module}: {name} of {' or '.join(sorted(owners[name]))}"
        for module, tree in TREES.items()
        for name in filter(is_private, read_privately(tree))
        if module.partition(".")[0] not in owners.get(name, {module.partition(".")[0]})
    }
    assert sorted(foreign) == []


def answers_of(code):
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ast.literal_eval(answer.stdout)


def test_importing_the_package_loads_no_library():
    loaded = set(answers_of("import sys, streamkpca; dir(streamkpca); print(sorted(sys.modules))"))
    assert {name.partition(".")[0] for name in loaded}.isdisjoint({"numpy", "numba", "scipy"} | OPTIONAL)


def test_using_all_names_loads_nothing_that_they_do_not_need():
    loaded = set(answers_of("import sys; from streamkpca import *; print(sorted(sys.modules))"))
    assert {"numpy", "numba", "scipy"} <= loaded
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(OPTIONAL)
    # It takes a quarter as long to load as numba and scipy.linalg together; see benchmarks/cold_start.py.
    assert "scipy.optimize" not in loaded
    for package in ("cli", "export", "plots", "adapters"):
        assert f"streamkpca.{package}" not in loaded


def test_names_are_found_where_type_checkers_find_them():
    (guarded,) = (
        node
        for node in TREES["__init__"].body
        if isinstance(node, ast.If) and node.body and not node.orelse and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    typed = {alias.name: node.module for node in guarded.body for alias in node.names}
    homes = {name: f"streamkpca.{module}" for module, names in streamkpca._HOMES.items() for name in names.split()}
    assert typed == homes | {"kernels": "streamkpca"}
    assert {*homes, "kernels", "__version__"} == set(streamkpca.__all__)


# Each begins with a package that is not imported; a process imports numba for a second.
EXPRESSIONS = [
    "streamkpca.StreamingKernelPCA(3).n_components == 3",
    "streamkpca.kernels.RBF(2.0).gamma == 2.0",
    "streamkpca.monitoring.Monitor.__name__ == 'Monitor'",
    "callable(streamkpca.aggregate.Aggregate) and callable(streamkpca.changes.ChangeDetector)",
    "{'monitoring', 'changes', 'aggregate', 'fleet'} <= set(dir(streamkpca))",
    "streamkpca.models.exact.KernelPCA is streamkpca.KernelPCA",
    "issubclass(streamkpca.errors.SparsityError, ValueError)",
    "set(streamkpca.__all__) <= set(dir(streamkpca))",
    "'StreamingKernelPCA' in dict(inspect.getmembers(streamkpca))",
    "pickle.loads(pickle.dumps(streamkpca.merge)) is streamkpca.merge",
    "not hasattr(streamkpca, 'plots') and not hasattr(streamkpca, 'nonsense')",
]
ANEW = """
import importlib, inspect, pickle, sys
found = []
for expression in {expressions!r}:
    for name in [name for name in sys.modules if name.partition(".")[0] == "streamkpca"]:
        del sys.modules[name]
    streamkpca = importlib.import_module("streamkpca")
    found.append(eval(expression))
print(found)
"""


def test_a_package_just_imported_has_its_names():
    found = answers_of(ANEW.format(expressions=EXPRESSIONS))
    assert dict(zip(EXPRESSIONS, found, strict=True)) == dict.fromkeys(EXPRESSIONS, True)


THREADS = """
import threading, streamkpca
names, found = streamkpca.__all__ * 3, []
together = threading.Barrier(len(names))
def ask(name):
    together.wait()
    found.append(getattr(streamkpca, name))
threads = [threading.Thread(target=ask, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found) == len(names))
"""


def test_threads_may_ask_for_the_first_names_at_once():
    assert answers_of(THREADS) is True


def test_names_that_there_are_not_are_refused_as_python_does():
    with pytest.raises(AttributeError, match=r"^module 'streamkpca' has no attribute 'KernelPca'$"):
        streamkpca.KernelPca  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'KernelPca'"):
        from streamkpca import KernelPca  # noqa: F401
