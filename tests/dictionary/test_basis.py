import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import rbf

from streamkpca._core.linalg import LEAST_PIVOT
from streamkpca.dictionary.basis import Basis, check_energy, rounding_error
from streamkpca.kernels import RBF, Linear, Polynomial

SEEDS = st.integers(0, 10**6)


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def basis_of(rows, kernel=None):
    basis = Basis.empty(RBF(0.3) if kernel is None else kernel, rows.shape[1])
    basis, accepted = basis.extend(rows)
    return basis, accepted


@given(SEEDS, st.integers(0, 12))
def test_the_factor_is_the_cholesky_factor_of_the_kernel_matrix(seed, m):
    atoms = rows_of(seed, m)
    basis, accepted = basis_of(atoms)
    np.testing.assert_array_equal(accepted, np.arange(m))
    np.testing.assert_array_equal(basis.atoms, atoms)
    np.testing.assert_allclose(basis.factor @ basis.factor.T, rbf(atoms, atoms), atol=1e-12)
    assert np.all(np.triu(basis.factor, 1) == 0.0)
    assert np.all(np.diagonal(basis.factor) > 0.0)


@given(SEEDS, st.integers(1, 12), st.data())
def test_extending_in_parts_is_extending_at_once(seed, m, data):
    cut = data.draw(st.integers(0, m))
    atoms = rows_of(seed, m)
    whole, _ = basis_of(atoms)
    parts, _ = basis_of(atoms[:cut])
    parts, _ = parts.extend(atoms[cut:])
    np.testing.assert_array_equal(parts.atoms, whole.atoms)
    np.testing.assert_allclose(parts.factor, whole.factor, atol=1e-8)


@given(SEEDS, st.integers(1, 8), st.integers(0, 6))
def test_residuals_are_squared_distances_to_the_span(seed, m, n):
    atoms, rows = rows_of(seed, m), rows_of(seed + 1, n)
    basis, _ = basis_of(atoms)
    seen = basis.project(rows)
    cross = rbf(rows, atoms)
    inside = np.einsum("ij,ji->i", cross, np.linalg.solve(rbf(atoms, atoms), cross.T))
    np.testing.assert_allclose(seen.residual, 1.0 - inside, atol=1e-9)
    np.testing.assert_allclose(seen.energy, 1.0)
    np.testing.assert_allclose(seen.coordinates @ basis.factor.T, cross, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e68])
def test_repeated_rows_are_admitted_once_at_any_scale(scale):
    atoms = scale * np.repeat(rows_of(3, 2), 3, axis=0)
    basis, accepted = basis_of(atoms, Linear())
    np.testing.assert_array_equal(accepted, [0, 3])
    assert len(basis.extend(atoms)[1]) == 0


def test_rows_without_energy_are_never_admitted():
    basis, accepted = basis_of(np.zeros((3, 2)), Linear())
    assert len(accepted) == 0
    assert basis.size == 0


@given(SEEDS, st.integers(1, 9), st.data())
def test_removing_leaves_the_basis_of_the_others(seed, m, data):
    removed = np.array(sorted(data.draw(st.sets(st.integers(0, m - 1)))), dtype=np.int64)
    atoms, rows = rows_of(seed, m), rows_of(seed + 1, 5)
    basis, _ = basis_of(atoms)
    before = basis.project(rows).coordinates
    basis, rotation = basis.without(removed)
    direct, _ = basis_of(np.delete(atoms, removed, axis=0))
    np.testing.assert_array_equal(basis.atoms, direct.atoms)
    np.testing.assert_allclose(basis.factor, direct.factor, atol=1e-7)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(m - len(removed)), atol=1e-12)
    np.testing.assert_allclose(before @ rotation.T, basis.project(rows).coordinates, atol=1e-7)
    assert np.all(np.triu(basis.factor, 1) == 0.0)


def test_rows_above_the_first_removed_keep_their_bits():
    basis, _ = basis_of(rows_of(2, 6))
    before = basis.factor.copy()
    basis, _ = basis.without(np.array([4]))
    np.testing.assert_array_equal(basis.factor[:4, :4], before[:4, :4])


def test_a_copy_is_independent_and_arrays_are_replaced_not_written():
    basis, _ = basis_of(rows_of(0, 5))
    twin, atoms, factor = basis, basis.atoms, basis.factor
    bits = atoms.tobytes(), factor.tobytes()
    basis, _ = basis.extend(rows_of(1, 3))
    basis, _ = basis.without(np.array([0, 2]))
    assert (twin.atoms.tobytes(), twin.factor.tobytes()) == bits
    assert twin.size == 5
    twin, _ = twin.extend(rows_of(2, 1))
    assert (atoms.tobytes(), factor.tobytes()) == bits
    assert (basis.size, twin.size) == (6, 6)


@given(SEEDS, st.integers(0, 6), st.integers(0, 5))
def test_interpolation_expresses_projections_by_the_atoms(seed, m, n):
    atoms, rows = rows_of(seed, m), rows_of(seed + 1, n)
    basis, _ = basis_of(atoms)
    found = basis.interpolation(basis.project(rows).coordinates)
    expected = np.linalg.solve(rbf(atoms, atoms), rbf(atoms, rows)).T if m else np.zeros((n, 0))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@given(SEEDS, st.integers(0, 9))
def test_energies_of_the_atoms_follow_them(seed, m):
    atoms = rows_of(seed, m)
    basis, _ = basis_of(atoms, Polynomial(2, gamma=0.5, coef0=1.0))
    np.testing.assert_allclose(basis.energy, (0.5 * (basis.atoms**2).sum(axis=1) + 1.0) ** 2)
    basis, _ = basis.without(np.arange(0, basis.size, 2))
    np.testing.assert_allclose(basis.energy, (0.5 * (basis.atoms**2).sum(axis=1) + 1.0) ** 2)
    assert len(basis.energy) == basis.size


@pytest.mark.parametrize("value", [1.1e139, -1e200, np.inf, -np.inf, np.nan])
def test_energies_beyond_the_range_of_squares_are_refused(value):
    check_energy(np.array([1e139, -1e139, 0.0]))
    with pytest.raises(ValueError, match=r"^kernel: k\(x, x\) is .* for row 2 of these.*limit is 1e\+139; scale"):
        check_energy(np.array([1.0, 2.0, value, value]))


@given(SEEDS, st.integers(0, 5))
def test_the_bound_on_rounding_is_its_formula(seed, m):
    rng = np.random.default_rng(seed)
    energy, beta, atom_energy = rng.uniform(0, 4, 3), rng.normal(size=(3, m)), rng.uniform(0, 9, m)
    reach = [np.sqrt(energy[n]) + sum(abs(beta[n, i]) * np.sqrt(atom_energy[i]) for i in range(m)) for n in range(3)]
    expected = 4 * np.finfo(float).eps * np.square(reach)
    np.testing.assert_allclose(rounding_error(energy, beta, atom_energy), expected)


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2, gamma=1.0), Polynomial(3, gamma=1 / 3)], ids=repr)
@pytest.mark.parametrize("seed", [0])
def test_the_stated_rounding_bounds_what_rounding_does(kernel, seed):
    rows = rows_of(seed, 400)
    basis = Basis.empty(kernel, 3)
    for start in range(0, 400, 8):
        basis, _ = basis.extend(rows[start : start + 8])
    # The atoms span all features of a kernel of finite rank, so every residual is rounding.
    seen = basis.project(rows)
    bound = rounding_error(seen.energy, basis.interpolation(seen.coordinates), basis.energy)
    worst = float(np.max(np.abs(seen.residual) / np.maximum(bound, LEAST_PIVOT * seen.energy)))
    assert worst <= 1.0
