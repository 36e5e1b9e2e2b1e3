"""The page on the checkpoint's format names what the code writes, and is enough to read and write a checkpoint."""

import ast
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import plain_reader
import pytest
from corruptions import models, unpacked

from streamkpca import StreamingKernelPCA, kernels, load
from streamkpca.kernels.registry import _CLASSES, parse_kernel
from streamkpca.monitoring import Monitor
from streamkpca.stream.checkpoint.codec import VERSION
from streamkpca.stream.parameters import PARAMETERS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "checkpoint-format.md").read_text(encoding="utf-8")
MODELS = models()
# A kernel with a large matrix.
MODELS["matrix"] = StreamingKernelPCA(2, kernel=kernels.RBF(0.1).in_units(np.eye(5)), max_atoms=4, block_size=16)
MODELS["matrix"].partial_fit(np.random.default_rng(0).normal(size=(40, 5))).refit()
MODELS["gaps"] = StreamingKernelPCA(2, kernel=kernels.RBF(0.1), max_atoms=4, block_size=16, on_missing="marginal")
MODELS["gaps"].partial_fit([[1.0, np.nan], [np.nan, 2.0], [3.0, 4.0]] * 20).refit()
FILES = {name: model.to_bytes() for name, model in MODELS.items()}


def first_cells(heading: str) -> list[str]:
    """Return the names in backquotes in the first cells of the tables under a heading."""
    section = re.split(rf"^#+ {re.escape(heading)}\n", PAGE, maxsplit=1, flags=re.MULTILINE)[1]
    section = re.split(r"^## |^### ", section, maxsplit=1, flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def leaves(header: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of entries that are no objects, or empty ones."""
    for name, value in header.items():
        place = f"{path}.{name}" if path else name
        if isinstance(value, dict) and value and name != "extra":
            yield from leaves(value, place)
        else:
            yield place


def either(name: str) -> str:
    """Replace the names of the two kinds of answers by a star."""
    return re.sub(r"^(stream\.)?(scheduled|published)\.", r"\1*.", name)


def test_every_key_of_the_header_is_on_the_page_and_no_other() -> None:
    headings = ("The header", "Parameters", "The stream", "The summary", "Answers")
    listed = [name for heading in headings for name in first_cells(heading)]
    assert len(set(listed)) == len(listed)
    written = {either(path) for data in FILES.values() for path in leaves(unpacked(data)[0])}
    # Objects are listed where they may be null, or something else, and those of the top.
    objects = {"parameters", "parameters.kernel", "stream", "stream.scheduled", "stream.published"}
    objects |= {f"stream.summary{part}" for part in ("", ".settled", ".recent")}
    assert written | objects == set(listed)
    assert {f"parameters.{parameter.name}" for parameter in PARAMETERS} <= set(listed)


def test_every_array_is_on_the_page_with_its_type_and_shape() -> None:
    rows = re.findall(r"^\| `([\w.*]+)` \| (`<\w\d`|rows) \| ([\w, ]+) \|", PAGE, re.MULTILINE)
    listed = {name: (kind.strip("`"), shape.split(", ")) for name, kind, shape in rows}
    found = set()
    for data in FILES.values():
        header, arrays = unpacked(data)
        for name, values in arrays.items():
            if name.startswith("kernel.matrix."):
                found.add("kernel.matrix.NAME")
                assert name.removeprefix("kernel.matrix.") in header["matrices"]
                continue
            place = either(name)
            found.add(place)
            stream, part = header["stream"], header["stream"].get(name.partition(".")[0]) or {}
            summary = stream["summary"] or {}
            sizes = {
                "d": stream["n_features"], "n": stream["n_pending"], "s": stream["n_settling"], "2": 2,
                "m": part.get("n_m", summary.get("n_atoms")), "k": part.get("n_k"), "q": part.get("n_q"),
                "r": part.get("n_r"), "j": summary.get("jury", {}).get("count"),
                "v": summary.get("reservoir", {}).get("count"),
            }  # fmt: skip
            kind, letters = listed[place]
            kept = "<f8" if stream["dtype"] == "float64" else "<f4"
            assert values.dtype.str == (kept if kind == "rows" else kind), name
            assert values.shape == tuple(sizes[letter] for letter in letters), name
    assert found == set(listed)
    assert {name for name in first_cells("Arrays of the stream") if not name.startswith("<")} == set(listed)


def test_the_monitors_record_is_on_the_page() -> None:
    monitor = Monitor(lags=2)
    monitor.update(np.random.default_rng(0).normal(size=(100, 3)))
    record = unpacked(monitor.to_bytes())[0]["extra"]["monitor"]
    listed = {name for name in first_cells("Beside the model")}
    assert listed == {"parameters", "last_time", "state"} | {f"state.{name}" for name in record["state"]}
    row = next(line for line in PAGE.splitlines() if line.startswith("| `parameters` | object | `lags`"))
    assert set(re.findall(r"`(\w+)`", row)) - {"Monitor", "parameters"} == set(record["parameters"])


def test_versions_and_kernels_are_those_of_the_code() -> None:
    versions = PAGE.partition("\n## Versions\n")[2]
    assert re.findall(r"^\| (\d) \|", versions, re.MULTILINE) == [str(version + 1) for version in range(VERSION)]
    assert f"Version {VERSION} is written; versions 1 to {VERSION} are read." in PAGE.replace("\n", " ")
    listed = [name for name in first_cells("Kernels") if "(" in name]
    constructors = {name.partition("(")[0] for name in listed if name[0].isupper()}
    assert constructors == set(_CLASSES)
    numbers = {"p": "2", "g": "0.5", "c": "1.5", "v": "2.5", "l": "3.0", "a": "0.7"}
    for name in listed:
        if name[0].isupper():
            text = re.sub(r"=(\w)", lambda found: f"={numbers[found[1]]}", name)
            assert repr(parse_kernel(text)) == text


def test_formulas_of_kernels_are_those_of_the_code() -> None:
    """The last column of the table, written as Python."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3)).tolist()
    inner = math.fsum(a * b for a, b in zip(x, y, strict=True))
    squared = math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    t = math.sqrt(2 * 2.5) * math.sqrt(squared) / 3.0
    lengths = [math.sqrt(math.fsum(a * a for a in z)) for z in (x, y)]
    for text, value in {
        "Linear()": inner,
        "Polynomial(degree=2, gamma=0.5, coef0=1.5)": (0.5 * inner + 1.5) ** 2,
        "RBF(gamma=0.5)": math.exp(-0.5 * squared),
        "Laplacian(gamma=0.5)": math.exp(-0.5 * math.fsum(abs(a - b) for a, b in zip(x, y, strict=True))),
        "Matern(nu=2.5, length_scale=3.0)": (1 + t + t * t / 3) * math.exp(-t),
        "RationalQuadratic(alpha=0.7, length_scale=3.0)": (1 + squared / (2 * 0.7 * 3.0**2)) ** -0.7,
        "Cosine()": inner / (lengths[0] * lengths[1]),
        "Equal() + Equal().on((1,))": 0.0,
        "Sigmoid(gamma=0.5, coef0=1.5)": math.tanh(0.5 * inner + 1.5),
        "2.0 * Linear() ** 3 + Linear().exp() * Linear()": 2.0 * inner**3 + math.exp(inner) * inner,
        "Linear().on((0, 2)).in_units((2.0, 1.0, 4.0))": x[0] * y[0] / 4.0 + x[2] * y[2] / 16.0,
        "Linear().on((2, 0))": x[0] * y[0] + x[2] * y[2],
        "Linear().in_units(((0.0, 2.0), (3.0, 1.0))).on((0, 1))": (2 * x[1]) * (2 * y[1])
        + (3 * x[0] + x[1]) * (3 * y[0] + y[1]),
    }.items():
        np.testing.assert_allclose(parse_kernel(text).matrix([x], [y])[0, 0], value, rtol=1e-12)


def test_the_plain_reader_imports_nothing_but_what_it_may() -> None:
    tree = ast.parse(Path(plain_reader.__file__).read_text(encoding="utf-8"))
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found <= {"struct", "json", "math", "hashlib", "typing"}


@pytest.mark.parametrize("settings", [{}, {"noise_variance": None}, {"atoms": "rows", "dtype": "float32"}], ids=str)
@pytest.mark.parametrize("kernel", [kernels.RBF(0.3), kernels.RBF("median").in_units("std")], ids=repr)
def test_the_page_is_enough_to_compute_answers(kernel: Any, settings: Any, tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(400, 3))
    model = StreamingKernelPCA(3, kernel=kernel, max_atoms=20, block_size=64, **settings).partial_fit(rows).refit()
    model.save(tmp_path / "model.npz")
    plain = plain_reader.Checkpoint((tmp_path / "model.npz").read_bytes())
    probes = np.concatenate([np.random.default_rng(2).normal(size=(6, 3)), [[0.0] * 3, [4.0] * 3], model.atoms_[:2]])
    again = load(tmp_path / "model.npz")
    for row in probes:
        x = row.tolist()
        np.testing.assert_allclose(plain.projection(x), again.transform([row])[0], rtol=0, atol=1e-9)
        for theirs, ours in (
            (plain.reconstruction_error(x), again.reconstruction_error([row])[0]),
            (plain.error_to_axes(x, 2), again.reconstruction_error([row], n_components=2)[0]),
            (plain.novelty(x), again.novelty([row])[0]),
        ):
            np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-9)
    far = [40.0, -30.0, 35.0]
    assert plain.novelty(far) > 100.0
    np.testing.assert_allclose(plain.novelty(far), again.novelty([far])[0], rtol=1e-9)


def test_files_of_earlier_versions_are_read_by_the_page() -> None:
    for version in (1, 2, 3):
        data = (ROOT / "tests" / "checkpoints" / f"version-{version}.npz").read_bytes()
        found = plain_reader.members(data)
        header = json.loads(found["header.json"])
        assert header["version"] == version
        assert ("searched" in header["stream"]["summary"]["pace"]) == (version >= 2)
        assert ("atoms" in header["parameters"]) == (version >= 2)
        assert ("n_settling" in header["stream"]) == (version >= 3)


def test_the_page_is_enough_to_name_categories() -> None:
    texts = ["open", "closed", "7", "007", "0.5", "-1e-05", "1e999", "nan", "überlast", ""]
    model = StreamingKernelPCA(1, kernel=kernels.RBF(0.3).on(1) * kernels.Equal().on(0).exp(), block_size=4)
    model.partial_fit([[text, 0.0] for text in texts])
    plain = plain_reader.Checkpoint(model.refit().to_bytes())
    assert plain.categories == model.categories_
    assert list(plain.categories) == sorted(set(texts) - {"7", "0.5", "-1e-05"})
    assert [plain_reader.category_number(text) for text in texts] == [kernels.category_code(text) for text in texts]


@pytest.mark.parametrize("name", FILES)
def test_the_page_is_enough_to_write_the_same_bytes(name: str) -> None:
    found = plain_reader.members(FILES[name])
    arrays = {}
    for member, data in found.items():
        if member.endswith(".npy"):
            shape, numbers = plain_reader.array(data)
            kind = data[21:24].decode("ascii")
            arrays[member] = plain_reader.npy(kind, shape, numbers)
    assert plain_reader.written(json.loads(found["header.json"]), arrays) == FILES[name]


def test_the_page_is_enough_to_write_a_model_that_learns() -> None:
    """With only what the page says that a new model needs."""
    header = {
        "format": "streamkpca stream",
        "version": 3,
        "parameters": {"n_components": 2, "kernel": {"expression": "RBF(gamma=0.5)"}, "max_atoms": 8, "atoms": "rows"},
        "stream": None,
        "extra": {"written by": "someone"},
    }
    model = StreamingKernelPCA.from_bytes(plain_reader.written(header, {}))
    assert model.extra_ == {"written by": "someone"}
    rows = np.random.default_rng(0).normal(size=(50, 2))
    expected = StreamingKernelPCA(2, kernel=kernels.RBF(0.5), max_atoms=8, atoms="rows").partial_fit(rows)
    np.testing.assert_array_equal(model.partial_fit(rows).transform(rows), expected.transform(rows))
