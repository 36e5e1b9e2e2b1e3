"""Strategies of the property tests: rows, kernels, cuts of a stream, budgets."""

from contextlib import contextmanager
from dataclasses import dataclass

import naive
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.dictionary import selection

# For tests whose every example is some whole streams, and that have quicker ones of the same law beside them.
FEWER = settings(max_examples=settings.default.max_examples * 2 // 5)


@dataclass(frozen=True)
class KernelCase:
    """A kernel of the package and the same as a plain function."""

    kernel: kernels.Kernel
    function: naive.Function


def _rbf(gamma):
    return KernelCase(kernels.RBF(gamma), naive.rbf(gamma))


def _polynomial(degree, gamma, coef0):
    return KernelCase(kernels.Polynomial(degree, gamma=gamma, coef0=coef0), naive.polynomial(degree, gamma, coef0))


LINEAR = KernelCase(kernels.Linear(), naive.linear())


def rbf_cases():
    """Draw RBF kernels, but none so narrow that no row resembles another."""
    return st.builds(_rbf, st.sampled_from([0.02, 0.3, 1.0]))


def local_cases():
    """Draw RBF kernels under which atoms stay far from dependent: a descent multiplies rounding by their condition."""
    return st.builds(_rbf, st.sampled_from([0.3, 1.0]))


def polynomial_cases():
    """Polynomial kernels, homogeneous ones too."""
    return st.builds(_polynomial, st.integers(1, 3), st.sampled_from([0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0]))


def kernel_cases():
    """Draw linear, polynomial and RBF kernels, narrow ones too."""
    return st.one_of(st.just(LINEAR), polynomial_cases(), rbf_cases(), st.just(_rbf(5.0)))


def generators():
    """Draw sources of numbers that have no ties."""
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


# Normal rows, a grid with ties, clusters, rows of low rank, and heavy tails.
_SHAPES = [
    lambda rng, n, d: rng.normal(size=(n, d)),
    lambda rng, n, d: rng.integers(-2, 3, size=(n, d)).astype(float),
    lambda rng, n, d: 3.0 * rng.normal(size=(3, d))[rng.integers(0, 3, n)] + 0.1 * rng.normal(size=(n, d)),
    lambda rng, n, d: rng.normal(size=(n, 1)) * rng.normal(size=d),
    lambda rng, n, d: rng.standard_t(2.0, size=(n, d)),
]


@st.composite
def rows(draw, *, min_rows=1, max_rows=60, max_features=4, offsets=True):
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
def drifting_rows(draw, *, min_rows=40, max_rows=160):
    """Rows without ties whose distribution moves on, so that atoms grow stale."""
    n, d = draw(st.integers(min_rows, max_rows)), draw(st.integers(2, 4))
    rng = draw(generators())
    pace = draw(st.sampled_from([0.0, 1.0, 4.0]))
    return rng.normal(size=(n, d)) + pace * np.linspace(0.0, 1.0, n)[:, None] * rng.normal(size=d)


@st.composite
def weights_for(draw, n):
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
def cuts(draw, n):
    """Sizes of the pieces in which n rows are passed."""
    kind = draw(st.sampled_from(["whole", "one by one", "any"]))
    if kind == "whole":
        return [n]
    if kind == "one by one":
        return [1] * n
    sizes = []
    while sum(sizes) < n:
        sizes.append(draw(st.integers(1, n - sum(sizes))))
    return sizes


def budgets():
    """Arguments that bound the atoms, by number, by tolerance, by both; and whether atoms move."""
    return st.fixed_dictionaries(
        {
            "max_atoms": st.one_of(st.none(), st.integers(1, 12)),
            "atoms": st.sampled_from(["rows", "moved"]),
            "tolerance": st.sampled_from([0.0, 1e-6, 1e-3, 0.05]),
            "block_size": st.sampled_from([2, 5, 8, 16, 32]),
        }
    )


def untied_budgets():
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


def streaming_model(n_components, **settings):
    """Make a model whose axes use every atom, so that exact formulas apply."""
    return StreamingKernelPCA(n_components, noise_variance=None, **settings)


@contextmanager
def small_samples(rows_per_atom):
    """Let streams, and their plain twins, that begin here judge atoms by so few sampled rows; None changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        if rows_per_atom is not None:
            for name in ("SAMPLED_ROWS_PER_ATOM", "LEAST_SAMPLED_ROWS"):
                patch.setattr(naive, name, rows_per_atom)
                patch.setattr(selection, f"_{name}", rows_per_atom)
        yield
