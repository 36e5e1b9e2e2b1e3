"""The page on the checkpoint's format says what the code's tables say, and is enough to compute answers from a file."""

import re
from pathlib import Path

import numpy as np
import plain_reader
import pytest
from corruptions import PROBE, models

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.checkpoint.archive import VERSION
from streamkpca.checkpoint.table import STATE
from streamkpca.kernels.kinds import _KINDS
from streamkpca.monitoring import state as monitoring

PAGE = (Path(__file__).parents[2] / "docs" / "checkpoint-format.md").read_text(encoding="utf-8")


def section(heading):
    return re.split(rf"^## {heading}\n", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]


def on_the_page(heading):
    """Return what a table says of each part and field."""
    found = {}
    parts = [""]
    for line in section(heading).splitlines():
        if not line.startswith("|") or line.startswith(("| part", "|---")):
            continue
        part, fields, kind, shape, rule, _ = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        parts = re.findall("`(.*?)`", part) or parts
        for path in parts:
            found.setdefault(path, ())
            for name in re.findall("`(.*?)`", fields):
                found[f"{path.rstrip('?*')}.{name}"] = (
                    kind.replace("`", "").replace("\\", ""),
                    shape,
                    rule.replace("\\", ""),
                )
    return found


@pytest.mark.parametrize(("heading", "whole"), [("The state", STATE), ("A monitor", monitoring._STATE)])
def test_the_tables_are_those_of_the_code(heading, whole):
    expected = {}

    def add(part):
        expected[part.path + "?" * part.is_optional + "*" * part.is_listed] = ()
        for entry in part.fields:
            kind = entry.kind + "?" * entry.is_optional
            expected[f"{part.path}.{entry.name}"] = (kind, entry.shape, entry.rule)
        for child in part.children:
            add(child)

    add(whole)
    assert on_the_page(heading) == expected


def test_the_version_and_the_kernels_are_those_of_the_code():
    assert f'`"streamkpca"`, {VERSION}.' in PAGE
    cells = re.findall(r"^\| (`[A-Z].*?) \|", section("Kernels"), re.MULTILINE)
    assert sorted(name for cell in cells for name in re.findall("`(.*?)`", cell)) == sorted(_KINDS)


def test_the_page_is_enough_to_compute_answers():
    units = StreamingKernelPCA(2, kernel=kernels.RBF(0.3).on([0, 2]).in_units([2.0, 0.5, 1.0]), max_atoms=6)
    fitted = models()["fitted"]
    mixed = models()["moved"]
    for model in (units.partial_fit(np.random.default_rng(0).normal(size=(60, 3))).refit(), fitted, mixed):
        plain = plain_reader.Checkpoint(model.to_bytes())
        for row in [*PROBE, PROBE[0] + 3.0]:
            x = row.tolist()
            np.testing.assert_allclose(plain.projection(x), model.transform([x])[0], atol=1e-9)
            np.testing.assert_allclose(plain.reconstruction_error(x), model.reconstruction_error([x])[0], atol=1e-9)
            if model is not mixed:
                np.testing.assert_allclose(plain.novelty(x), model.novelty([x])[0], rtol=1e-7, atol=1e-9)
