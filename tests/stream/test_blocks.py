"""A block against its definition, and sums of kernel values against sums of coordinates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import rbf, residual_gram

from streamkpca._core.triangular import solve_factor
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import Moments
from streamkpca.kernels import RBF, Linear
from streamkpca.stream.blocks import Block
from streamkpca.stream.summary import Summary

SEEDS = st.integers(0, 10**6)


def scene(seed, m, b, gamma=0.3, spread=1.0):
    rng = np.random.default_rng(seed)
    basis = Basis(RBF(gamma), 3)
    basis.extend(spread * rng.normal(size=(m, 3)))
    return basis, rng.normal(size=(b, 3)), rng.choice([0.5, 1.0, 2.0], b)


@given(SEEDS, st.integers(0, 6), st.integers(1, 12))
def test_what_is_unexplained_is_the_sum_of_squared_distances(seed, m, b):
    basis, rows, weights = scene(seed, m, b)
    block = Block(basis, rows, weights)
    expected = weights @ np.diagonal(residual_gram(rows, basis.atoms))
    assert block.unexplained == pytest.approx(expected, abs=1e-9)
    assert block.mean_residual == pytest.approx(max(expected, 0.0) / weights.sum(), abs=1e-9)
    coordinates = block.projected().coordinates
    np.testing.assert_allclose(coordinates @ basis.factor.T, rbf(rows, basis.atoms).reshape(b, m), atol=1e-9)


def test_a_block_knows_when_the_atoms_have_changed():
    basis, rows, weights = scene(0, 4, 6)
    block = Block(basis, rows, weights)
    assert block.is_seen_from(basis)
    assert block.is_seen_from(basis.copy())
    basis.extend(rows[:1])
    assert not block.is_seen_from(basis)
    # It still speaks of the atoms that it was compared with.
    assert block.projected().coordinates.shape == (6, 4)


@pytest.mark.parametrize("spread", [1.0, 0.1, 0.03, 0.01, 1e-3])
def test_sums_of_kernel_values_are_as_right_as_the_distortion_says(spread):
    """Ever closer atoms: what is lost stays below the bound, and above it coordinates are summed instead."""
    basis, rows, weights = scene(5, 24, 400, spread=spread)
    m = basis.size
    kernel_rows = basis.kernel.program.matrix(rows, basis.atoms)
    # The oracle: another factor of the same kernel matrix, and a sum over coordinates.
    factor = np.linalg.cholesky(rbf(basis.atoms, basis.atoms))
    coordinates = solve_factor(factor, kernel_rows.copy())
    exact = Moments.zero(m).add(coordinates, np.ones(400), weights)
    summary = Summary(basis.kernel, 3)
    summary.basis = basis
    summary.moments_base = Moments.zero(m)
    summary.atom_stats = summary.atom_stats.joined(np.arange(m), np.ones(m), np.zeros(m))
    summary.record(rows, weights)
    lost = np.abs(np.linalg.eigvalsh(summary.moments.second) - np.linalg.eigvalsh(exact.second)).max()
    assert lost <= (1e-12 + basis.rounding_amplification) * weights.sum()
    assert basis.is_well_conditioned is (basis.rounding_amplification <= 1e-8)
    assert np.trace(summary.moments.second) + summary.moments.losses.total == pytest.approx(weights.sum(), rel=1e-12)
    assert summary.moments.losses.rounding == pytest.approx(basis.rounding_amplification * weights.sum())


def test_close_atoms_are_told_from_distant_ones():
    assert scene(5, 24, 1)[0].is_well_conditioned
    assert not scene(5, 24, 1, spread=0.03)[0].is_well_conditioned


def test_rows_without_atoms_are_unexplained_whole():
    block = Block(Basis(Linear(), 2), np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([1.0, 0.5]))
    assert block.unexplained == block.sums.energy == 27.0
