"""Promises of the estimators that a change elsewhere can easily break."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.errors import IndefiniteKernelWarning, SparsityWarning
from streamkpca.kernels import RBF, Linear, Sigmoid

ESTIMATORS = [StreamingKernelPCA, KernelPCA, SparseKernelPCA, ApproximateKernelPCA]


def rows_of(seed, n, d):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_nearly_depend_on_each_other_make_a_square_factor(seed):
    # Two hundred rows of one feature are more than an RBF kernel can tell apart.
    rows = rows_of(seed, 200, 1 + seed % 2)
    model = SparseKernelPCA(10).fit(rows)
    assert np.isfinite(model.transform(rows)).all()
    assert model.explained_variance_ratio_.sum() <= 1.0 + 1e-9


@pytest.mark.parametrize("block_size", [16, 512])
def test_a_stream_with_fewer_rows_than_active_atoms_continues(block_size):
    model = StreamingKernelPCA(3, n_active=50, block_size=block_size)
    with pytest.warns(SparsityWarning, match="n_active=50 is more than the .* candidates there are so far"):
        answer = model.partial_fit(rows_of(0, 20, 3)).transform(rows_of(1, 5, 3))
    assert np.isfinite(answer).all()
    with pytest.warns(SparsityWarning, match="n_active=50"):
        StreamingKernelPCA(3, n_active=50, max_atoms=60, tolerance=0.5).fit(rows_of(0, 100, 3))


def test_a_noise_variance_below_rounding_stops_no_stream():
    model = StreamingKernelPCA(2, kernel=Linear(), noise_variance=1e-20, block_size=32)
    with pytest.warns(SparsityWarning, match="noise_variance=1e-20 is below .* rounding"):
        model.partial_fit(rows_of(0, 100, 3))
    with pytest.warns(SparsityWarning, match="noise_variance=1e-20 is below .* rounding"):
        assert np.isfinite(model.refit().transform(rows_of(1, 5, 3))).all()


@pytest.mark.parametrize("kernel", ["rbf", Linear() + RBF("spread")], ids=repr)
def test_rows_beyond_the_range_of_an_unsettled_kernel_are_refused_on_arrival(kernel):
    model = StreamingKernelPCA(2, kernel=kernel, max_atoms=10).partial_fit([[1.0], [2.0]])
    with pytest.raises(ValueError, match=r"scale the features down|leave such rows out"):
        model.partial_fit([[1e200], [-1e200]])
    assert model.partial_fit([[3.0]]).n_samples_seen_ == 3
    assert np.isfinite(model.transform([[2.0]])).all()


def test_a_generous_budget_costs_nothing_before_it_is_used():
    rows = rows_of(0, 96, 20)
    assert StreamingKernelPCA(3, max_atoms=10**9, block_size=32).partial_fit(rows).n_atoms_ > 0


def test_provisional_answers_follow_the_parameters_whatever_was_asked_before():
    asked, fresh = StreamingKernelPCA(5), StreamingKernelPCA(5)
    for model in (asked, fresh):
        model.partial_fit(rows_of(0, 50, 3))
    asked.transform(rows_of(1, 2, 3))
    for model in (asked, fresh):
        model.set_params(n_components=2)
    np.testing.assert_array_equal(asked.transform(rows_of(1, 2, 3)), fresh.transform(rows_of(1, 2, 3)))


@pytest.mark.parametrize("model", [StreamingKernelPCA(2, max_atoms=20), SparseKernelPCA(2)], ids=repr)
def test_the_error_of_reconstruction_from_the_active_rows_is_tippings(model):
    rows, probe = rows_of(0, 60, 2), rows_of(1, 9, 2)
    model.set_params(kernel=RBF(0.3)).fit(rows)
    active = model.atoms_[model.active_]
    assert 2 <= len(active) < model.n_atoms_
    to_active, among = RBF(0.3).matrix(probe, active), RBF(0.3).matrix(active)
    expected = 1.0 - np.einsum("ij,ji->i", to_active, np.linalg.solve(among, to_active.T))
    np.testing.assert_allclose(model.reconstruction_error(probe, active_only=True), expected, atol=1e-8)
    assert np.all(model.reconstruction_error(probe) <= expected + 1e-9)


@pytest.mark.parametrize("d", [5, 20])
def test_where_variance_is_spread_evenly_the_weights_are_sparse_all_the_same(d):
    model = StreamingKernelPCA(2).fit(rows_of(0, 1000, d))
    assert 2 <= model.n_active_ < model.n_atoms_
    assert model.noise_variance_ is not None


def test_likelihood_axes_explain_no_more_than_there_is():
    for seed in range(5):
        rows = rows_of(seed, 40, 2)
        model = SparseKernelPCA(4, kernel=RBF(0.5), noise_variance=0.02, axes="likelihood", center=False).fit(rows)
        along = (model.transform(rows) ** 2).mean(axis=0)
        np.testing.assert_allclose(model.explained_variance_ratio_, along, atol=1e-9)
        assert model.explained_variance_ratio_.sum() <= 1.0 + 1e-9


def test_likelihood_axes_need_a_likelihood():
    for model in (
        SparseKernelPCA(noise_variance=None, axes="likelihood"),
        StreamingKernelPCA(noise_variance=None, axes="likelihood"),
    ):
        with pytest.raises(ValueError, match="axes='likelihood' needs a likelihood"):
            model.fit(rows_of(0, 20, 2))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_kernel_that_is_not_positive_definite_gives_a_warning(estimator):
    rows = rows_of(0, 300, 8)
    with pytest.warns(IndefiniteKernelWarning, match="not positive definite"):
        model = estimator(3, kernel=Sigmoid(0.5, coef0=-3.0)).fit(rows)
    assert np.isfinite(model.transform(rows)).all()


def test_coordinates_of_an_indefinite_kernel_stay_within_its_energy():
    rows = rows_of(0, 600, 8)
    with pytest.warns(IndefiniteKernelWarning, match="not positive definite"):
        model = StreamingKernelPCA(3, kernel="sigmoid").fit(rows)
    assert model.eigenvalues_.max() <= 1.0


def held_variance(gamma, atoms, rows, q, *, center):
    """Sum the q largest eigenvalues of the rows' covariance in the span of atoms, by kernel matrices alone."""
    kernel = naive.rbf(gamma)
    across = kernel(rows, atoms)
    inside = across @ np.linalg.pinv(kernel(atoms, atoms), rcond=1e-12, hermitian=True) @ across.T
    if center:
        inside = inside - inside.mean(axis=0)
        inside = inside - inside.mean(axis=1, keepdims=True)
    return np.linalg.eigvalsh(inside)[-q:].sum()


@given(
    seed=st.integers(0, 1_000),
    q=st.integers(1, 6),
    d=st.integers(1, 6),
    n=st.integers(2, 80),
    max_atoms=st.integers(1, 40),
    center=st.booleans(),
)
def test_active_atoms_hold_what_all_atoms_hold(seed, q, d, n, max_atoms, center):
    # A second pass measures all rows in the span of the last atoms.
    rows = rows_of(seed, n, d) * 0.7 ** np.arange(d)
    model = StreamingKernelPCA(q, kernel=RBF(0.3), max_atoms=max_atoms, center=center, block_size=32).fit(rows)
    everything = held_variance(0.3, model.atoms_, rows, q, center=center)
    held = held_variance(0.3, model.atoms_[model.active_], rows, q, center=center)
    assert held >= 0.99 * everything
    # A direction so faint that `held_variance` leaves it out may hold a little.
    assert model.eigenvalues_.sum() == pytest.approx(held / (n - center), rel=1e-3, abs=1e-9)
    batch = SparseKernelPCA(q, kernel=RBF(0.3), center=center).fit(rows)
    everything = held_variance(0.3, rows, rows, q, center=center)
    assert held_variance(0.3, rows[batch.active_], rows, q, center=center) >= 0.99 * everything
