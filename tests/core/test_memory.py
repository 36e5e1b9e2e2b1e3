"""What needs more memory than there is is refused before it is taken."""

import numpy as np
import pytest

from streamkpca import KernelPCA
from streamkpca._core import memory


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that says what a machine and its containers have."""

    def say(meminfo, *limits):
        for name, text in zip(("meminfo", "v2", "v1"), (meminfo, *limits), strict=False):
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
        monkeypatch.setattr(memory, "_LIMITS", (tmp_path / "v2", tmp_path / "v1"))

    return say


@pytest.mark.parametrize(
    ("given", "available"),
    [
        (["MemTotal: 9 kB\nMemAvailable:   3000 kB\nSwapFree: 7 kB\n"], 3_072_000),
        (["MemAvailable: 3000 kB\n", "max\n"], 3_072_000),
        (["MemAvailable: 3000 kB\n", "4096\n"], 4096),
        (["MemAvailable: 3000 kB\n", "max\n", "8192\n"], 8192),
        (["MemTotal: 9 kB\n"], np.inf),
        (["", "4096"], 4096),
    ],
)
def test_the_least_of_what_is_said_is_there(machine, given, available):
    machine(*given)
    assert memory.available_bytes() == available


def test_a_system_that_says_nothing_has_no_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(memory, "_LIMITS", ())
    assert memory.available_bytes() == np.inf


def test_exact_models_of_too_many_rows_are_refused_with_the_number_that_fits(machine):
    # Seven matrices of 100 x 100 numbers take 560,000 bytes.
    machine("MemAvailable: 547 kB\n")
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = KernelPCA(1).fit(X[:99])
    before = model.eigenvalues_
    fault = (
        r"KernelPCA.fit: expected at most 100 rows, .* fit the 0.0 GB of memory that are there, but got 30,000 "
        r"\(50.4 GB\); take StreamingKernelPCA"
    )
    with pytest.raises(MemoryError, match=fault):
        model.fit(np.zeros((30_000, 2)))
    with pytest.raises(MemoryError, match="but got 101"):
        model.fit(np.zeros((101, 2)))
    np.testing.assert_array_equal(model.eigenvalues_, before)
    model.fit(X)
