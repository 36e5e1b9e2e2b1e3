"""The README's code runs and does what it says; its links, and those of the manual, lead to what exists."""

import re
from pathlib import Path

import numpy as np
import pytest

from streamkpca import Checkpointer, StreamingKernelPCA, load

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING = ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md"
DOCS = ROOT / "docs"
# Every clone of the project carries all pictures for good.
MOST_BYTES = 80 * 1024
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
PAGES = [
    "README.md", "CHANGELOG.md", "SECURITY.md", ".github/CONTRIBUTING.md", "benchmarks/README.md",
    "examples/PICTURES.md", *sorted(path.relative_to(ROOT).as_posix() for path in DOCS.glob("*.md")),
]  # fmt: skip
# Few distinct rows, for speed.
ROWS = np.random.default_rng(0).integers(0, 4, size=(35_000, 2)).astype(float)
ROWS[5, 1] = np.nan


class Killed(BaseException):
    """An error that no program catches."""


def snippets(page, heading=None):
    text = page.read_text(encoding="utf-8")
    section = text if heading is None else text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_first_code_finds_the_sensor(tmp_path, monkeypatch, capsys):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    # Eight sensors around a shaft; one sticks in the middle of its range.
    random = np.random.default_rng(0)
    rows = np.sin(random.uniform(0.0, 2.0 * np.pi, size=(20_000, 1)) + np.arange(8) * np.pi / 4.0)
    rows += random.normal(scale=0.05, size=rows.shape)
    rows[15_000:15_100, 2] = 0.0
    table = pandas.DataFrame(rows, columns=list("abcdefgh"))
    table.insert(0, "time", pandas.date_range("2026-03-02", periods=len(rows), freq="min"))
    table.to_csv("machine.csv", index=False)
    exec(snippets(README)[0], {})
    text = capsys.readouterr().out
    start = str(table["time"][15_000])
    found = re.search(rf"{start} \(row 15,000\).*\n(?:  begun.*\n)?  c: -?(0\.\d+), expected (-?\d\.\d+)", text)
    assert found is not None, text
    assert float(found[1]) == 0.0
    assert abs(float(found[2])) > 0.3


def test_a_service_continues_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    offsets = []

    def run(stop):
        def batches_from(offset):
            offsets.append(offset)
            for start in range(offset, len(ROWS), 1000):
                if start == stop:
                    raise Killed
                yield ROWS[start : start + 1000]

        names = {"batches_from": batches_from}
        (code,) = snippets(DOCS / "services.md", "Save at intervals, go on after a crash")
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
    assert saved.to_bytes() == StreamingKernelPCA(missing="skip").partial_fit(ROWS).to_bytes()


def test_the_model_does_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(3000, 4))
    (code,) = snippets(README, "From Python")
    names = {"batches": np.array_split(rows, 7)}
    exec(code, names)
    assert names["Y"].shape == (len(names["X"]), 10)
    assert names["rows"].shape == names["X"].shape
    assert (names["novelty"] >= 0.0).all()
    assert load("model.npz").n_samples_seen_ == 3000


def without_code(page):
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page):
    """Return the anchors of all headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def file_of(target, page):
    """Return the file that a link leads to; None outside of the project."""
    path = target.partition("#")[0]
    return None if path.startswith(("https://", "http://")) else page.parent / path if path else page


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings_that_exist(name):
    page = ROOT / name
    for _, text, target in LINK.findall(without_code(page)):
        path, anchor = file_of(target, page), target.partition("#")[2]
        if path is None:
            continue
        assert path.exists(), f"{name}: {text}"
        assert not anchor or anchor in anchors(path), f"{name}: {text}"


def test_links_of_the_readme_stay_in_the_checkout():
    """Nothing is published, so a link to a site would lead nowhere."""
    targets = [target for _, _, target in LINK.findall(without_code(README))]
    assert len(targets) > 15
    assert [target for target in targets if ":" in target] == []


def described(page):
    """Return the descriptions of the pictures of a page, by their files in the project."""
    found = {}
    for is_picture, text, target in LINK.findall(without_code(page)):
        path = file_of(target, page)
        if is_picture and path is not None:
            found[path.resolve()] = " ".join(text.split())
    return found


def test_pictures_are_small_and_described():
    pictures = described(ROOT / "examples" / "PICTURES.md")
    assert set(pictures) == set((ROOT / "examples" / "pictures").resolve().iterdir())
    for path, text in pictures.items():
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n")
        assert len(content) < MOST_BYTES, path.name
        assert len(text.split()) > 5, f"{path.name} needs an alternative text"
    for page in (README, *DOCS.glob("*.md")):
        assert described(page).items() <= pictures.items(), f"{page.name} describes a picture in other words"


def test_files_that_are_named_exist():
    """Every script and page in backquotes exists, from the root, or in `examples/`, `benchmarks/` or `docs/`."""
    folders = [ROOT, *(ROOT / name for name in ("examples", "benchmarks", "docs"))]
    for page in (README, *DOCS.glob("*.md")):
        for name in re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md))`", page.read_text(encoding="utf-8")):
            assert any((folder / name).exists() for folder in folders), f"{page.name}: {name}"


def test_files_that_contributors_are_sent_to_exist():
    """Every file in backquotes exists, from the root or in the package; `_loops.py` stands for several."""
    named = set(re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md|toml))`", CONTRIBUTING.read_text(encoding="utf-8")))
    assert len(named) > 20
    package = ROOT / "streamkpca"
    missing = {name for name in named if not (ROOT / name).exists() and not (package / name).exists()}
    assert missing - {"_loops.py"} == set()
