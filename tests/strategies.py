"""Strategies of the property tests: rows, kernels, cuts of a stream, budgets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import naive
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.dictionary import selection

Array = npt.NDArray[np.float64]

# For tests whose every example is some whole streams, and that have quicker ones of the same law beside them.
FEWER = settings(max_examples=settings.default.max_examples * 2 // 5)


@dataclass(frozen=True)
class KernelCase:
    """A kernel of the package and the same as a plain function."""

    kernel: kernels.Kernel
    function: naive.Function


def _rbf(gamma: float) -> KernelCase:
    return KernelCase(kernels.RBF(gamma), naive.rbf(gamma))


def _polynomial(degree: int, gamma: float, coef0: float) -> KernelCase:
    return KernelCase(kernels.Polynomial(degree, gamma=gamma, coef0=coef0), naive.polynomial(degree, gamma, coef0))


LINEAR = KernelCase(kernels.Linear(), naive.linear())


def rbf_cases() -> st.SearchStrategy[KernelCase]:
    """Draw RBF kernels, but none so narrow that no row resembles another."""
    return st.builds(_rbf, st.sampled_from([0.02, 0.3, 1.0]))


def local_cases() -> st.SearchStrategy[KernelCase]:
    """Draw RBF kernels under which atoms stay far from dependent: a descent multiplies rounding by their condition."""
    return st.builds(_rbf, st.sampled_from([0.3, 1.0]))


def polynomial_cases() -> st.SearchStrategy[KernelCase]:
    """Polynomial kernels, homogeneous ones too."""
    return st.builds(_polynomial, st.integers(1, 3), st.sampled_from([0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0]))


def kernel_cases() -> st.SearchStrategy[KernelCase]:
    """Draw linear, polynomial and RBF kernels, narrow ones too."""
    return st.one_of(st.just(LINEAR), polynomial_cases(), rbf_cases(), st.just(_rbf(5.0)))


def generators() -> st.SearchStrategy[np.random.Generator]:
    """Draw sources of numbers that have no ties."""
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


def _grid(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.integers(-2, 3, size=(n, d)).astype(float)


def _clusters(rng: np.random.Generator, n: int, d: int) -> Array:
    return 3.0 * rng.normal(size=(3, d))[rng.integers(0, 3, n)] + 0.1 * rng.normal(size=(n, d))


def _low_rank(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.normal(size=(n, 1)) * rng.normal(size=d)


def _heavy_tails(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.standard_t(2.0, size=(n, d))


def _normal(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.normal(size=(n, d))


_SHAPES: list[Callable[[np.random.Generator, int, int], Array]] = [
    _normal, _grid, _clusters, _low_rank, _heavy_tails,
]  # fmt: skip


@st.composite
def rows(draw: Any, *, min_rows: int = 1, max_rows: int = 60, max_features: int = 4, offsets: bool = True) -> Array:
    """Rows with all that streams contain: duplicates, constant columns, offsets, unlike scales, low rank."""
    n, d = draw(st.integers(min_rows, max_rows)), draw(st.integers(1, max_features))
    rng = draw(generators())
    X = draw(st.sampled_from(_SHAPES))(rng, n, d)
    if draw(st.booleans()):
        X = X * np.array(draw(st.lists(st.sampled_from([0.1, 1.0, 10.0]), min_size=d, max_size=d)))
    if draw(st.booleans()):
        X[:, draw(st.integers(0, d - 1))] = draw(st.sampled_from([0.0, 1.0, -7.0]))
    if n > 1 and draw(st.booleans()):
        X[rng.integers(0, n, n // 2)] = X[rng.integers(0, n, n // 2)]
    if offsets:
        X = X + draw(st.sampled_from([0.0, 0.0, 1.0, -300.0, 1e6]))
    return X


@st.composite
def drifting_rows(draw: Any, *, min_rows: int = 40, max_rows: int = 160) -> Array:
    """Rows without ties whose distribution moves on, so that atoms grow stale."""
    n, d = draw(st.integers(min_rows, max_rows)), draw(st.integers(2, 4))
    rng = draw(generators())
    pace = draw(st.sampled_from([0.0, 1.0, 4.0]))
    return rng.normal(size=(n, d)) + pace * np.linspace(0.0, 1.0, n)[:, None] * rng.normal(size=d)


@st.composite
def weights_for(draw: Any, n: int) -> Array | None:
    """Sample weights, some of them zero, or none at all."""
    kind = draw(st.sampled_from(["none", "positive", "some zero"]))
    if kind == "none":
        return None
    rng = draw(generators())
    weights = rng.uniform(0.1, 3.0, n)
    if kind == "some zero":
        # The first row counts: a stream that has no weight yet has no mean either.
        weights[1:][rng.uniform(size=n - 1) < 0.3] = 0.0
    return weights


@st.composite
def cuts(draw: Any, n: int) -> list[int]:
    """Sizes of the pieces in which n rows are passed."""
    kind = draw(st.sampled_from(["whole", "one by one", "any"]))
    if kind == "whole":
        return [n]
    if kind == "one by one":
        return [1] * n
    sizes: list[int] = []
    while sum(sizes) < n:
        sizes.append(draw(st.integers(1, n - sum(sizes))))
    return sizes


def budgets() -> st.SearchStrategy[dict[str, Any]]:
    """Arguments that bound the atoms, by number, by tolerance, by both; and whether atoms move."""
    return st.fixed_dictionaries(
        {
            "max_atoms": st.one_of(st.none(), st.integers(1, 12)),
            "atoms": st.sampled_from(["rows", "moved"]),
            "tolerance": st.sampled_from([0.0, 1e-6, 1e-3, 0.05]),
            "block_size": st.sampled_from([2, 5, 8, 16, 32]),
        }
    )


def untied_budgets() -> st.SearchStrategy[dict[str, Any]]:
    """Draw bounds under which rounding decides nothing.

    Two rows alone gain the same from each other, and with no tolerance at all gains sink below rounding.
    """
    return budgets().map(
        lambda budget: {
            **budget,
            "tolerance": max(budget["tolerance"], 1e-6),
            "block_size": max(budget["block_size"], 8),
        }
    )


def streaming_model(n_components: int | float, **settings: Any) -> StreamingKernelPCA:
    """Make a model whose axes use every atom, so that exact formulas apply."""
    return StreamingKernelPCA(n_components, noise_variance=None, **settings)


@contextmanager
def small_samples(rows_per_atom: int | None) -> Iterator[None]:
    """Let streams, and their plain twins, that begin here judge atoms by so few sampled rows; None changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        if rows_per_atom is not None:
            for name in ("SAMPLED_ROWS_PER_ATOM", "LEAST_SAMPLED_ROWS"):
                patch.setattr(naive, name, rows_per_atom)
                patch.setattr(selection, f"_{name}", rows_per_atom)
        yield
