"""The house: who lives on which floor, who may call whom, what the import of the package loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import streamkpca

PACKAGE = Path(streamkpca.__file__).parent

# Import only downwards. A package's own __init__ stands above all that it gathers, below the command.
FLOORS = {
    0: ["_blas", "_cached", "_jit", "errors", "write_lock", "checkpoints.files"],
    1: [
        "parameters",
        "validation",
        "validation_loops",
        "basis_loops",
        "distance_loops",
        "kernel_loops",
        "selection_loops",
        "weight_loops",
        "checkpoints.archive",
        "checkpoints.header",
        "gram_model",
    ],
    2: [
        "kernels.views",
        "kernels.planes",
        "kernels.scales",
        "kernels.programs",
        "kernels.core",
        "kernels.algebra",
        "kernels.distance",
        "kernels.targets",
        "kernels.slopes",
        "kernels.product",
        "kernels",
        "kernels.expressions",
        "gaussian_model",
        "weight_newton",
        "factor",
        "losses",
        "change",
        "row_sums",
        "fading",
        "reservoir",
        "pending",
    ],
    3: ["preimages", "basis", "moments", "candidate_gram", "weight_optimisers"],
    4: ["block", "search_pace", "residual_gram", "exchange", "selection", "pursuit", "spectrum", "likelihood"],
    5: ["lookahead", "summary", "snapshot", "sparsity"],
    6: ["weighting", "parameterized", "containers", "learned", "estimator", "certificates"],
    7: ["refit", "snapshot_estimator", "stream_settings"],
    8: ["stream"],
    9: ["checkpoints.records", "checkpoints.requirements", "checkpoints.agreement", "checkpoints.soundness"],
    10: ["checkpoints"],
    11: ["approximate", "batch", "sparse", "stream_estimator", "stored_estimator", "stream_writer"],
    12: ["streaming", "merging"],
    13: ["warmup", "checkpointer", "__init__"],
    14: [
        "plots.canvas",
        "tables.errors",
        "tables.columns",
        "tables.chunks",
        "tables.fields",
        "tables.openings",
        "tables.sources",
        "tables.table",
        "tables.text_tables",
        "tables.array_tables",
        "tables.arrow_tables",
        "tables.csv_tables",
        "tables.json_tables",
        "tables",
        "adapters.partitions",
        "adapters.river_learner",
        "export.formula",
        "export.steps",
        "export.rounding",
        "export.onnx_steps",
        "export.onnx_graph",
        "export.c_text",
        "export.c_kernel",
        "export.c_source",
        "export",
    ],
    15: [
        "adapters",
        "adapters.dask_blocks",
        "adapters.dask_runs",
        "adapters.for_dask",
        "adapters.river_detector",
        "adapters.river_transformer",
        "adapters.for_spark",
        "plots.atoms",
        "plots.contours",
        "plots.novelty",
        "plots.projections",
        "plots.spectra",
        "command",
        "command.plant",
        "command.detection",
        "command.results",
        "command.terminal",
    ],
    16: [
        "adapters.for_river",
        "plots",
        "command.inputs",
        "command.keeper",
        "command.options",
        "command.stops",
        "command.times",
    ],
    17: ["command.demo", "command.models", "command.pictures"],
    18: ["command.picture_options", "command.reports", "command.runs"],
    19: ["command.asking", "command.keeping", "command.learning", "command.model_drawing", "command.row_drawing"],
    20: ["command.drawing"],
    21: ["cli"],
    22: ["__main__"],
}
# Doors between rooms of one floor, each (who imports, what).
DOORS = {
    # Sums of kernel values become sums of coordinates.
    ("row_sums", "factor"),
    # Rows that need nothing are told by a compiled loop.
    ("validation", "validation_loops"),
    # What is demanded, of parts that belong together, of the whole.
    ("checkpoints.agreement", "checkpoints.requirements"),
    ("checkpoints.soundness", "checkpoints.requirements"),
    ("checkpoints.soundness", "checkpoints.agreement"),
    # Kernels: what is seen of rows, matrices of pairs, programs over them, the value, the algebra, the kernels
    # themselves, the gathering.
    ("kernels.planes", "kernels.views"),
    ("kernels.programs", "kernels.planes"),
    ("kernels.core", "kernels.planes"),
    ("kernels.core", "kernels.programs"),
    ("kernels.core", "kernels.views"),
    ("kernels.slopes", "kernels.planes"),
    ("kernels.slopes", "kernels.programs"),
    ("kernels.targets", "kernels.planes"),
    ("kernels.targets", "kernels.programs"),
    ("kernels.targets", "kernels.views"),
    ("kernels.algebra", "kernels.core"),
    ("kernels.algebra", "kernels.planes"),
    ("kernels.algebra", "kernels.programs"),
    ("kernels.algebra", "kernels.views"),
    ("kernels.distance", "kernels.algebra"),
    ("kernels.distance", "kernels.planes"),
    ("kernels.distance", "kernels.programs"),
    ("kernels.distance", "kernels.scales"),
    ("kernels.distance", "kernels.views"),
    ("kernels.product", "kernels.algebra"),
    ("kernels.product", "kernels.planes"),
    ("kernels.product", "kernels.programs"),
    ("kernels.product", "kernels.scales"),
    ("kernels.product", "kernels.views"),
    ("kernels", "kernels.algebra"),
    ("kernels", "kernels.distance"),
    ("kernels", "kernels.planes"),
    ("kernels", "kernels.product"),
    ("kernels", "kernels.programs"),
    ("kernels", "kernels.views"),
    ("kernels.expressions", "kernels"),
    # Estimators: parameters, then what they can be asked.
    ("learned", "parameterized"),
    ("estimator", "learned"),
    ("estimator", "containers"),
    # Coordinate ascent sees the candidates through their inner products with few.
    ("weight_optimisers", "candidate_gram"),
    # Merging many is merging two, again and again.
    ("merging", "streaming"),
    # When to search depends on what a block leaves unexplained.
    ("search_pace", "block"),
    # The search for atoms looks at residuals, and weighs atoms against them.
    ("selection", "residual_gram"),
    ("selection", "exchange"),
    # Streams: what reads, what is saved, what writes.
    ("stored_estimator", "stream_estimator"),
    ("stream_writer", "stored_estimator"),
    # The front door shows what uses all rooms below once.
    ("__init__", "warmup"),
    ("__init__", "checkpointer"),
    # Tables: what is wrong, columns, chunks, bytes, what all tables share, what text shares, the kinds, the gathering.
    ("tables.array_tables", "tables.chunks"),
    ("tables.array_tables", "tables.columns"),
    ("tables.array_tables", "tables.errors"),
    ("tables.array_tables", "tables.sources"),
    ("tables.array_tables", "tables.table"),
    ("tables.arrow_tables", "tables.chunks"),
    ("tables.arrow_tables", "tables.columns"),
    ("tables.arrow_tables", "tables.errors"),
    ("tables.arrow_tables", "tables.sources"),
    ("tables.arrow_tables", "tables.table"),
    ("tables.columns", "tables.errors"),
    ("tables.csv_tables", "tables.chunks"),
    ("tables.csv_tables", "tables.columns"),
    ("tables.csv_tables", "tables.errors"),
    ("tables.csv_tables", "tables.fields"),
    ("tables.csv_tables", "tables.sources"),
    ("tables.csv_tables", "tables.text_tables"),
    ("tables.fields", "tables.chunks"),
    ("tables.json_tables", "tables.chunks"),
    ("tables.json_tables", "tables.columns"),
    ("tables.json_tables", "tables.errors"),
    ("tables.json_tables", "tables.sources"),
    ("tables.json_tables", "tables.text_tables"),
    ("tables.sources", "tables.errors"),
    ("tables.sources", "tables.openings"),
    ("tables.table", "tables.chunks"),
    ("tables.table", "tables.columns"),
    ("tables.table", "tables.errors"),
    ("tables.text_tables", "tables.chunks"),
    ("tables.text_tables", "tables.errors"),
    ("tables.text_tables", "tables.openings"),
    ("tables.text_tables", "tables.sources"),
    ("tables.text_tables", "tables.table"),
    ("tables", "tables.array_tables"),
    ("tables", "tables.arrow_tables"),
    ("tables", "tables.chunks"),
    ("tables", "tables.columns"),
    ("tables", "tables.csv_tables"),
    ("tables", "tables.errors"),
    ("tables", "tables.json_tables"),
    ("tables", "tables.sources"),
    ("tables", "tables.table"),
    ("tables", "tables.text_tables"),
    # Dask: what runs on the workers, in what order, then the face.
    ("adapters.dask_runs", "adapters.dask_blocks"),
    ("adapters.for_dask", "adapters.dask_blocks"),
    ("adapters.for_dask", "adapters.dask_runs"),
    # Exports: what is written down, a kernel's steps, what rounding does, then each language, then the gathering.
    ("export.rounding", "export.formula"),
    ("export.rounding", "export.steps"),
    ("export.onnx_steps", "export.formula"),
    ("export.onnx_steps", "export.steps"),
    ("export.onnx_graph", "export.formula"),
    ("export.onnx_graph", "export.onnx_steps"),
    ("export.c_kernel", "export.c_text"),
    ("export.c_kernel", "export.formula"),
    ("export.c_kernel", "export.rounding"),
    ("export.c_kernel", "export.steps"),
    ("export.c_source", "export.c_kernel"),
    ("export.c_source", "export.c_text"),
    ("export.c_source", "export.formula"),
    ("export.c_source", "export.rounding"),
    ("export", "export.c_source"),
    ("export", "export.onnx_graph"),
}
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
# Rooms that are only entered by the command, and may load what reads its line and writes to its terminal at once.
COMMAND = {room for room in FLOOR_OF if room.startswith("command.")} | {"__main__", "cli"}
# Doors to other libraries: who imports one wants its library, and may load no other at once.
ADAPTERS = {
    "adapters.for_dask": {"dask"},
    "adapters.dask_blocks": {"dask"},
    "adapters.dask_runs": {"dask"},
    "adapters.river_detector": {"river"},
    "adapters.river_learner": {"river"},
    "adapters.river_transformer": {"river"},
}
OPTIONAL = {
    "sklearn",
    "pandas",
    "polars",
    "matplotlib",
    "pyarrow",
    "click",
    "rich",
    "river",
    "dask",
    "distributed",
    "onnx",
}
REQUIRED = {"numpy", "numba", "scipy", "streamkpca"}


def room_of(path):
    """Name a room; a package's __init__ is named like the package, that of the whole stays __init__."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


PATHS = {room_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {room: ast.parse(path.read_text(encoding="utf-8")) for room, path in PATHS.items()}
LOOPS = [room for room in TREES if room.endswith("_loops")]


def imported(tree, *, at_once=False):
    """Names of modules that a module imports: everywhere, or only what it loads at once."""
    nodes = tree.body if at_once else list(ast.walk(tree))
    if at_once:
        typing_only = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
        assert all(isinstance(part, ast.ImportFrom | ast.Import) for node in typing_only for part in node.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "streamkpca":
                yield from (f"streamkpca.{alias.name}" for alias in node.names)
            else:
                yield str(node.module)


def libraries_of(tree, *, at_once=False):
    return {name.partition(".")[0] for name in imported(tree, at_once=at_once)}


def rooms_of(tree):
    names = [name.removeprefix("streamkpca.") for name in imported(tree) if name.startswith("streamkpca.")]
    # ``from streamkpca import StreamingKernelPCA`` enters by the front door.
    return {name if name in TREES else "__init__" for name in names}


def is_jit(decorator):
    return isinstance(decorator, ast.Name) and decorator.id == "jit"


def jitted(tree):
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [function for function in functions if any(map(is_jit, function.decorator_list))]


def test_every_room_has_a_floor_and_every_floor_its_rooms():
    assert set(FLOOR_OF) == set(TREES)
    assert sum(map(len, FLOORS.values())) == len(FLOOR_OF)


def test_rooms_import_only_downwards():
    entries = {(room, other) for room, tree in TREES.items() for other in rooms_of(tree)}
    assert {(room, other) for room, other in entries if FLOOR_OF[other] > FLOOR_OF[room]} == set()
    assert {(room, other) for room, other in entries if FLOOR_OF[other] == FLOOR_OF[room]} <= DOORS


def test_every_door_is_used():
    assert {(room, other) for room, other in DOORS if other not in rooms_of(TREES[room])} == set()


def test_doors_on_a_floor_lead_in_no_circle():
    remaining = set(DOORS)
    while remaining:
        rooms = {room for room, _ in remaining}
        leaves = {(room, other) for room, other in remaining if other not in rooms}
        assert leaves, f"a circle among {sorted(rooms)}"
        remaining -= leaves


def test_jitted_code_lives_in_loops_only():
    assert {room for room, tree in TREES.items() if jitted(tree)} == set(LOOPS)
    assert {room for room, tree in TREES.items() if "streamkpca._jit" in imported(tree)} == set(LOOPS)
    assert {room for room, tree in TREES.items() if "numba" in imported(tree)} == {"_jit"}


@pytest.mark.parametrize("room", LOOPS)
def test_loops_call_nothing_of_another_file(room):
    assert rooms_of(TREES[room]) <= {"_jit"}
    allowed_modules = {"math", "typing", "numpy", "numpy.typing", "streamkpca._jit"}
    assert set(imported(TREES[room])) <= allowed_modules
    for function in jitted(TREES[room]):
        nested = [node for node in ast.walk(function) if isinstance(node, ast.Raise | ast.ClassDef | ast.Try)]
        assert not nested, f"{function.name} raises or defines a class"


def test_every_room_of_arithmetic_has_a_test_file_of_its_own():
    rooms = {room for floor in range(FLOOR_OF["__init__"]) for room in FLOORS[floor] if "." not in room}
    missing = {room for room in rooms if not (Path(__file__).parent / f"test_{room.lstrip('_')}.py").exists()}
    assert missing == {"gaussian_model", "weight_optimisers"}, "these two are tested with test_likelihood.py"


def test_optional_libraries_are_not_loaded_at_once():
    for room in set(TREES):
        allowed = {"click", "rich"} if room in COMMAND else ADAPTERS.get(room, set())
        assert libraries_of(TREES[room], at_once=True) & OPTIONAL <= allowed, room


def test_only_declared_libraries_are_imported():
    for room, tree in TREES.items():
        assert libraries_of(tree) - set(sys.stdlib_module_names) <= REQUIRED | OPTIONAL, room


def test_scikit_learn_and_data_frames_are_never_imported():
    for room, tree in TREES.items():
        assert libraries_of(tree).isdisjoint({"sklearn", "pandas", "polars"}), room


def test_no_file_outgrows_two_ideas():
    lengths = {room: len(path.read_text(encoding="utf-8").splitlines()) for room, path in PATHS.items()}
    assert {room: length for room, length in lengths.items() if length > 400} == {}


def test_importing_the_package_loads_nothing_optional_and_no_command():
    code = (
        "import sys, streamkpca\n"
        f"optional = {sorted(OPTIONAL)!r}\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & set(optional)))\n"
        "print(sorted(name for name in sys.modules if name.startswith('streamkpca.')))\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    optional, own = map(ast.literal_eval, answer.stdout.splitlines())
    assert optional == []
    above = {f"streamkpca.{room}" for room, floor in FLOOR_OF.items() if floor > FLOOR_OF["__init__"]}
    assert above.isdisjoint(own)


def test_importing_the_package_leaves_slow_libraries_alone():
    # It takes a quarter as long to load as numba and scipy.linalg together; see benchmarks/cold_start.py.
    code = "import sys, streamkpca; print('scipy.optimize' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


def test_all_names_what_can_be_had():
    assert len(set(streamkpca.__all__)) == len(streamkpca.__all__)
    for name in streamkpca.__all__:
        assert getattr(streamkpca, name) is not None
