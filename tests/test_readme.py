"""What the README shows is there, leads somewhere, and does what it says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamkpca import Checkpointer, StreamingKernelPCA

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
# Who clones the project takes them along for ever.
MOST_BYTES = 80 * 1024
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
PAGES = ["README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", "benchmarks/README.md"]
# Few distinct ones, which is quick.
ROWS = np.random.default_rng(0).integers(0, 4, size=(35_000, 2)).astype(float)
ROWS[5, 1] = np.nan


class Killed(BaseException):
    """What no program catches."""


def snippet(heading: str) -> str:
    section = README.read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    return section.partition("```python\n")[2].partition("```")[0]


def test_a_service_goes_on_where_its_checkpoint_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        exec(snippet("In a service that must not stop"), names)
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


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Name the headings as links do."""
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
        assert len(text.split()) > 5, f"{target} needs a text for those who do not see it"


def test_files_that_are_named_exist() -> None:
    """Every script and page in backquotes is there; of some only the name is said, for the folder was."""
    named = set(re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md))`", README.read_text(encoding="utf-8")))
    assert len(named) > 10
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "examples" / name).exists(), name


def test_every_example_is_named() -> None:
    text = README.read_text(encoding="utf-8")
    missing = [path.name for path in sorted((ROOT / "examples").glob("*.py")) if path.name not in text]
    assert missing == []
