import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import Scene, rbf, residual_gram

from streamkpca import IndefiniteKernelWarning
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.selection import ResidualGram
from streamkpca.kernels import RBF, Linear, Sigmoid

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.integers(0, 6), st.integers(1, 10))
def test_gains_are_what_the_rows_explain_of_the_block(seed, m, b):
    scene = Scene(seed, m, b)
    R = residual_gram(scene.rows, scene.atoms)
    before = scene.weights @ np.diagonal(R)
    residual = scene.residual()
    np.testing.assert_allclose(residual.residual, np.diagonal(R), atol=1e-9)
    assert residual.unexplained == pytest.approx(before, abs=1e-9)
    for j, gain in enumerate(residual.gains()):
        after = residual_gram(scene.rows, np.vstack([scene.atoms, scene.rows[j]]))
        assert gain == pytest.approx(before - scene.weights @ np.diagonal(after), abs=1e-7)


@given(SEEDS, st.integers(0, 6), st.integers(3, 10))
def test_cautious_gains_leave_the_row_out_and_one_standard_error(seed, m, b):
    scene = Scene(seed, m, b)
    R = residual_gram(scene.rows, scene.atoms)
    for j, gain in enumerate(scene.residual().cautious_gains(scene.total_weight)):
        others = np.delete(np.arange(b), j)
        x, a = R[others, j] ** 2 / R[j, j], scene.weights[others]
        mean = np.average(x, weights=a)
        variance = np.average((x - mean) ** 2, weights=a)
        expected = mean - np.sqrt(variance * (a @ a)) / a.sum() + scene.weights[j] * R[j, j] / scene.total_weight
        assert gain == pytest.approx(expected, abs=1e-7)


def test_a_row_alone_in_its_block_has_no_cautious_gain():
    assert Scene(0, 2, 1).residual().cautious_gains(100.0).tolist() == [-np.inf]


def test_rows_of_weight_zero_atoms_and_dependent_rows_gain_nothing():
    scene = Scene(4, 3, 6)
    scene.rows[1] = scene.atoms[2]
    scene.rows[4] = scene.rows[3]
    scene.weights[0] = 0.0
    scene.block = scene.basis.project(scene.rows)
    residual = scene.residual(more=1)
    assert np.isneginf(residual.gains()[[0, 1]]).all()
    assert np.isfinite(residual.gains()[2:]).all()
    residual.admit(3, 3)
    assert np.isneginf(residual.gains()[[0, 1, 3, 4]]).all()
    assert np.isneginf(residual.cautious_gains(scene.total_weight)[[0, 1, 3, 4]]).all()
    assert np.isfinite(residual.gains()[[2, 5]]).all()


def assert_measured(residual, scene, atoms, columns):
    """Compare with residuals, gains and interpolation (in the atoms' columns) from kernel matrices alone."""
    R = residual_gram(scene.rows, atoms)
    np.testing.assert_allclose(residual.residual, np.diagonal(R), atol=1e-7)
    gains = residual.gains()
    for j in np.flatnonzero(np.isfinite(gains)):
        assert gains[j] == pytest.approx(scene.weights @ R[j] ** 2 / R[j, j], abs=1e-5)
    expected = np.zeros_like(residual.interpolation)
    if len(atoms):
        expected[:, columns] = np.linalg.solve(rbf(atoms, atoms), rbf(atoms, scene.rows)).T
    np.testing.assert_allclose(residual.interpolation, expected, atol=1e-5)


@given(SEEDS, st.integers(0, 5), st.integers(1, 8), st.data())
def test_admit_adds_a_rows_direction_to_the_span(seed, m, b, data):
    row = data.draw(st.integers(0, b - 1))
    scene = Scene(seed, m, b)
    residual = scene.residual(more=2)
    residual.admit(row, m + 1)
    columns = [*range(m), m + 1]
    assert_measured(residual, scene, np.vstack([scene.atoms, scene.rows[row]]), columns)


def test_the_best_row_is_independent_beyond_rounding():
    # The atoms are so close that projections onto them have few correct digits: the third residual is below rounding.
    atoms = np.array([[1.0, 0.0, 0.0], [1.0, 1e-5, 0.0]])
    basis = Basis.empty(Linear(), 3)
    basis, _ = basis.extended(atoms)
    rows = np.array([[1.0, 0.0, 3e-3], [1.0, 0.0, 1e-1], [1.0, 3e4, 1e-5]])
    assert basis.size == 2
    residual = ResidualGram(basis, basis.project(rows), np.ones(3), 2)
    gains = np.array([1.0, 2.0, 3.0])
    assert residual.best(gains) == (1, 2.0)
    assert gains.tolist() == [1.0, 2.0, -np.inf]
    assert np.isneginf(residual.gains()[2])
    assert residual.best(np.full(3, -np.inf))[1] == -np.inf


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1.0, 1e100, 1e138])
def test_gains_scale_with_the_kernel(scale):
    plain, scaled = Scene(7, 2, 9), Scene(7, 2, 9, kernel=scale * RBF(0.3))
    np.testing.assert_allclose(scaled.residual().gains() / scale, plain.residual().gains(), rtol=1e-6)
    ours, theirs = (scene.residual().cautious_gains(100.0) for scene in (scaled, plain))
    np.testing.assert_allclose(ours / scale, theirs, rtol=1e-6)


def test_residuals_whose_squares_underflow_gain_nothing():
    rows = np.array([[1.0, 0.0], [0.5, 1.0], [1e-160, 1e-160]])
    basis = Basis.empty(Linear(), 2)
    residual = ResidualGram(basis, basis.project(rows), np.ones(3), 0)
    for gains in (residual.gains(), residual.cautious_gains(3.0)):
        assert np.isfinite(gains[:2]).all()
        assert gains[2] == -np.inf


def test_the_warning_of_an_indefinite_kernel_names_a_remedy():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    basis = Basis.empty(Sigmoid(1.0, coef0=-1.0), 2)
    with pytest.warns(IndefiniteKernelWarning, match="not positive definite.*squared distance.*RBF or Polynomial"):
        ResidualGram(basis, basis.project(rows), np.ones(30), 0)
