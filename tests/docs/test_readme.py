"""The README's code runs and does what it says; its links and files exist."""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamkpca import Checkpointer, StreamingKernelPCA, load
from streamkpca.kernels import RBF

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING = ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md"
# Every clone of the project carries all pictures for good.
MOST_BYTES = 80 * 1024
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
PAGES = [
    "README.md", "CHANGELOG.md", "SECURITY.md", ".github/CONTRIBUTING.md", "benchmarks/README.md",
    "docs/checkpoint-format.md", "docs/many-machines.md",
]  # fmt: skip
# Few distinct rows, for speed.
ROWS = np.random.default_rng(0).integers(0, 4, size=(35_000, 2)).astype(float)
ROWS[5, 1] = np.nan


class Killed(BaseException):
    """An error that no program catches."""


def snippets(heading: str) -> list[str]:
    section = README.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_a_monitor_does_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    rows = np.repeat(random.normal(size=(1500, 2)), 2, axis=1) + 0.1 * random.normal(size=(1500, 4))
    rows[1200:1230, 1] += 3.0
    names: dict[str, Any] = {"batches": np.array_split(rows, 5)}
    (code,) = snippets("Alarms that people can act on")
    exec(code, names)
    longest = max(names["monitor"].events_, key=lambda event: event.n_alarms)
    assert (longest.start, longest.features[0].feature) == (1200, 1)
    assert names["change"] is None
    assert Path("monitor.npz").exists()


def test_a_service_continues_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    offsets = []

    def run(stop: int | None) -> dict[str, Any]:
        def batches_from(offset: int) -> Iterator[npt.NDArray[np.float64]]:
            offsets.append(offset)
            for start in range(offset, len(ROWS), 1000):
                if start == stop:
                    raise Killed
                yield ROWS[start : start + 1000]

        names: dict[str, Any] = {"batches_from": batches_from}
        (code,) = snippets("In a service that must not stop")
        exec(code, names)
        return names

    for stop in (4_000, 13_000, 34_000):
        with pytest.raises(Killed):
            run(stop)
    run(None)
    assert offsets == [0, 0, 10_000, 30_000]
    saved = Checkpointer("plant.npz").latest()
    assert saved is not None
    assert saved.extra_ == {"offset": len(ROWS)}
    assert saved.to_bytes() == StreamingKernelPCA(on_bad_rows="skip").partial_fit(ROWS).to_bytes()


def test_the_model_does_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(3000, 4))
    first, second, third = snippets("From Python")
    names: dict[str, Any] = {"batches": np.array_split(rows, 7)}
    exec(first, names)
    assert names["Y"].shape == (len(names["X"]), 10)
    assert names["rows"].shape == names["X"].shape
    assert (names["novelty"] >= 0.0).all()
    assert load("model.npz").n_samples_seen_ == 3000

    names = {"X": rows, "other": StreamingKernelPCA(kernel=RBF(0.1), half_life=100_000).partial_fit(rows + 0.1)}
    exec(second, names)
    assert names["whole"].n_samples_seen_ == 6000
    assert 0.0 < names["novel"].mean() < 0.05
    exec(third, names)
    assert names["kernel"].matrix(rows[:5]).shape == (5, 5)


def test_exports_do_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx", reason="one of the exports is an ONNX graph; needs the extra onnx")
    monkeypatch.chdir(tmp_path)
    model = StreamingKernelPCA(2, max_atoms=16).partial_fit(np.random.default_rng(0).normal(size=(600, 3)))
    (code,) = snippets("At the edge")
    with warnings.catch_warnings():
        # For brevity, the README does not close its files; the interpreter does.
        warnings.simplefilter("ignore", ResourceWarning)
        exec(code, {"model": model})
    text = Path("pump.c").read_text(encoding="utf-8")
    assert all(f"pump_{name}(" in text for name in ("transform", "novelty", "is_novel"))
    assert Path("pump.onnx").stat().st_size > 1000


def test_pipelines_of_other_libraries_do_what_is_shown() -> None:
    for library in ("river", "dask", "pandas"):
        pytest.importorskip(library, reason=f"the README shows it; needs the extra {library}")
    import dask.dataframe as dd
    import pandas as pd

    rivers, dasks = snippets("With River, Dask and Spark")
    rows = [{"load": float(i % 7), "heat": 3.0 * (i % 7)} for i in range(700)] + [{"load": 0.0, "heat": 18.0}]
    names: dict[str, Any] = {"rows": rows}
    exec(rivers, names)
    assert names["alarm"]

    frame = dd.from_pandas(pd.DataFrame(ROWS[10:2000], columns=["load", "heat"]), npartitions=2)
    names = {"frame": frame}
    exec(dasks, names)
    assert (names["novelty"].compute() < 1e-9).all()


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of all headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings_that_exist(name: str) -> None:
    page = ROOT / name
    for _, text, target in LINK.findall(without_code(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        assert (page.parent / path).exists(), f"{name}: {text}"
        assert not anchor or anchor in anchors(page.parent / path if path else page), f"{name}: {text}"


def test_pictures_are_small_and_described() -> None:
    pictures = {
        target: " ".join(text.split()) for is_picture, text, target in LINK.findall(without_code(README)) if is_picture
    }
    stored = {str(path.relative_to(ROOT)) for path in (ROOT / "examples" / "pictures").iterdir()}
    assert set(pictures) == stored
    for target, text in pictures.items():
        content = (ROOT / target).read_bytes()
        assert content.startswith(b"\x89PNG\r\n")
        assert len(content) < MOST_BYTES, target
        assert len(text.split()) > 5, f"{target} needs an alternative text"


def test_files_that_are_named_exist() -> None:
    """Every script and page in backquotes exists, from the root or in `examples/`."""
    named = set(re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md))`", README.read_text(encoding="utf-8")))
    assert len(named) > 10
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "examples" / name).exists(), name


def test_files_that_contributors_are_sent_to_exist() -> None:
    """Every file in backquotes exists, from the root or in the package; `_loops.py` stands for several."""
    named = set(re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md|toml))`", CONTRIBUTING.read_text(encoding="utf-8")))
    assert len(named) > 20
    package = ROOT / "streamkpca"
    missing = {name for name in named if not (ROOT / name).exists() and not (package / name).exists()}
    assert missing - {"_loops.py"} == set()


def test_every_example_is_named() -> None:
    text = README.read_text(encoding="utf-8")
    missing = [path.name for path in sorted((ROOT / "examples").glob("*.py")) if path.name not in text]
    assert missing == []
