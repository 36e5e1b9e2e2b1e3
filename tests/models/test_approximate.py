import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import ApproximateKernelPCA, KernelPCA
from streamkpca.kernels import RBF, Linear, Polynomial

SEEDS = st.integers(0, 10**6)
KERNEL = RBF(0.3)


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def residual_energy(rows, atoms, weights):
    """Weighted squared distances of rows to the span of atoms, from kernel matrices alone."""
    cross = KERNEL.matrix(rows, atoms)
    inside = np.einsum("ij,ji->i", cross, np.linalg.lstsq(KERNEL.matrix(atoms), cross.T, rcond=1e-13)[0])
    return weights @ (1.0 - inside)


@given(SEEDS, st.integers(2, 30), st.integers(1, 8), st.sampled_from(["residual", "original"]))
def test_singular_values_are_the_energy_that_each_row_added(seed, n, m, criterion):
    rows, weights = rows_of(seed, n), np.random.default_rng(seed).uniform(0.5, 2.0, n)
    model = ApproximateKernelPCA(2, kernel=KERNEL, max_atoms=m, atoms="rows", criterion=criterion, n_candidates=None)
    model.fit(rows, sample_weight=weights)
    assert model.n_atoms_ == model.n_active_ == len(model.singular_values_) == min(n, m)
    np.testing.assert_array_equal(rows[model.atom_rows_], model.atoms_)
    left = [weights.sum(), *(residual_energy(rows, model.atoms_[: i + 1], weights) for i in range(model.n_atoms_))]
    np.testing.assert_allclose(model.singular_values_**2, -np.diff(left), atol=1e-6)
    assert model.unexplained_energy_ratio_ == pytest.approx(left[-1] / weights.sum(), abs=1e-8)


@given(SEEDS, st.integers(5, 30), st.booleans(), st.sampled_from([KERNEL, Linear(), Polynomial(2, gamma=0.2)]))
def test_with_every_row_it_is_kernel_pca(seed, n, center, kernel):
    rows, new = rows_of(seed, n), rows_of(seed + 1, 4)
    model = ApproximateKernelPCA(3, kernel=kernel, max_atoms=n, center=center).fit(rows)
    oracle = KernelPCA(3, kernel=kernel, center=center).fit(rows)
    np.testing.assert_allclose(model.eigenvalues_, oracle.eigenvalues_, atol=1e-8)
    np.testing.assert_allclose(model.explained_variance_ratio_, oracle.explained_variance_ratio_, atol=1e-8)
    np.testing.assert_allclose(model.reconstruction_error(new), oracle.reconstruction_error(new), atol=1e-6)
    np.testing.assert_allclose(model.reconstruction_error(new, 3), oracle.reconstruction_error(new, 3), atol=1e-6)


def test_the_first_row_of_the_linear_kernel_is_that_of_the_paper():
    # X X^T x_j is longest, divided by |x_j|: once for its residual, which is itself, and once for the row.
    rows = rows_of(0, 50) * [5.0, 1.0, 0.2]
    scores = np.linalg.norm(rows @ rows.T, axis=0) / np.linalg.norm(rows, axis=1)
    for criterion in ("residual", "original"):
        model = ApproximateKernelPCA(
            1, kernel=Linear(), max_atoms=1, atoms="rows", criterion=criterion, n_candidates=None
        ).fit(rows)
        assert model.atom_rows_.tolist() == [np.argmax(scores)]
        assert model.singular_values_[0] == pytest.approx(scores.max())


@pytest.mark.parametrize("tolerance", [0.5, 0.1, 0.01])
def test_it_stops_at_the_tolerance(tolerance):
    rows = rows_of(0, 60)
    options = {"kernel": KERNEL, "tolerance": tolerance}
    moved, model = (ApproximateKernelPCA(2, atoms=atoms, **options).fit(rows) for atoms in ("moved", "rows"))
    # As many rows as reach the tolerance; moving them may leave less, never more.
    assert moved.n_atoms_ == model.n_atoms_
    assert moved.unexplained_energy_ratio_ <= model.unexplained_energy_ratio_ <= tolerance
    assert residual_energy(rows, model.atoms_[:-1], np.ones(60)) > tolerance * 60


@pytest.mark.parametrize("n_candidates", [None, 7])
def test_whole_number_weights_are_repeated_rows(n_candidates):
    rows, times = rows_of(0, 20), 1 + np.arange(20) % 3
    # Of rows, as the last digits of sums decide where atoms move: so many of them explain everything anywhere.
    options = {"kernel": KERNEL, "max_atoms": 20, "n_candidates": n_candidates, "atoms": "rows"}
    weighted = ApproximateKernelPCA(2, **options).fit(rows, sample_weight=times)
    repeated = ApproximateKernelPCA(2, **options).fit(rows.repeat(times, axis=0))
    total = times.sum()
    ratio = (total - 1) / (total - times @ times / total)
    np.testing.assert_allclose(weighted.eigenvalues_, ratio * repeated.eigenvalues_, rtol=1e-8)
    if n_candidates is None:
        np.testing.assert_array_equal(weighted.atoms_, repeated.atoms_)


def test_the_seed_decides_the_pools():
    rows = rows_of(0, 200)
    fits = [
        ApproximateKernelPCA(2, kernel=KERNEL, max_atoms=15, n_candidates=10, random_state=seed).fit(rows)
        for seed in (0, 0, 1)
    ]
    assert fits[0].atom_origins_.tolist() == fits[1].atom_origins_.tolist() != fits[2].atom_origins_.tolist()
    np.testing.assert_array_equal(fits[0].atoms_, fits[1].atoms_)
