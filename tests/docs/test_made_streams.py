"""The streams that benchmarks make are those of their seeds, and what is labelled is what was spoilt."""

import runpy
from pathlib import Path

import numpy as np
import pytest

MADE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "made_streams.py"))
FAMILIES, made, healthy = MADE["FAMILIES"], MADE["made"], MADE["healthy"]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", FAMILIES)
def test_faults_are_where_the_labels_are(name: str, seed: int) -> None:
    stream, again, usual = (
        made(name, seed, size=0.3),
        made(name, seed, size=0.3),
        made(name, seed, size=0.3, faults=False),
    )
    assert stream.test.tobytes() == again.test.tobytes()
    assert np.isfinite(stream.train).all()
    assert not usual.labels.any()
    assert 0.01 < stream.labels.mean() < 0.7
    changed = (stream.test != usual.test).any(axis=1)
    # The first row of a sensor that sticks is as it was.
    assert changed[stream.labels].mean() > 0.95
    # Plants and rooms take time to recover.
    assert name in ("plant", "occupancy") or not changed[~stream.labels].any()
    assert (stream.train == usual.train).all() == (not FAMILIES[name].taught)


@pytest.mark.parametrize("same", [False, True])
def test_isolated_rows_are_as_novel_as_asked(same: bool) -> None:
    rows = healthy("gauss", 0, 1000)

    def novelty(rows: np.ndarray) -> np.ndarray:
        return (rows**2).sum(axis=1) ** 2

    mixed, labels = MADE["with_isolated"](rows, novelty, 5e4, same=same)
    assert labels.sum() == 70
    assert np.allclose(novelty(mixed[labels]), 5e4, rtol=1e-3)
    assert (mixed[~labels] == rows[~labels]).all()
    directions = (mixed - rows)[labels]
    assert (np.linalg.matrix_rank(directions, tol=1e-6) == 1) == same


@pytest.mark.parametrize("runs", [False, True])
def test_contaminated_rows_are_a_share(runs: bool) -> None:
    rows = healthy("slow", 0, 3000)
    mixed, labels = MADE["contaminated"](rows, runs=runs, first=1000)
    assert not labels[:1000].any()
    assert labels[1000:].mean() == pytest.approx(0.1, abs=0.04)
    assert ((mixed != rows).any(axis=1) == labels).all()
    assert (np.diff(np.flatnonzero(labels)) > 1).all() == (not runs)
