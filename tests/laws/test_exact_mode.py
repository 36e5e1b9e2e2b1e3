"""Law 1: without tolerance and budget the stream is batch kernel PCA."""

import math

import numpy as np
import pytest
from comparisons import EXACT, assert_same_columns, mean_energy
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import kernel_cases, rows, streaming_model, weights_for

from streamkpca import KernelPCA, kernels


def rank_is_clear(X, kernel):
    """Whether rows are dependent or not, with nothing in between that double precision cannot tell apart."""
    gram, energy = kernel.matrix(X), kernel.diagonal(X)
    length = np.sqrt(np.where(energy > 0.0, energy, 1.0))
    eigenvalues = np.linalg.eigvalsh(gram / length[:, None] / length)
    return not ((np.abs(eigenvalues) > 1e-13 * len(X)) & (eigenvalues < 1e-6)).any()


# As many axes as rows are asked for, however few the rows have.
@pytest.mark.filterwarnings("ignore:.* columns of projections are zero")
@given(st.data(), rows(min_rows=2, max_rows=40), kernel_cases(), st.booleans(), st.sampled_from([2, 7, 16, 64]))
def test_exact_mode_is_batch_kernel_pca(data, X, case, center, block_size):
    assume(rank_is_clear(X, case.kernel))
    weights, n = data.draw(weights_for(len(X))), len(X)
    batch = KernelPCA(n, kernel=case.kernel, center=center).fit(X, sample_weight=weights)
    model = streaming_model(n, kernel=case.kernel, center=center, block_size=block_size, **EXACT)
    model.partial_fit(X, sample_weight=weights).refit()
    scale, counted = mean_energy(X, weights, case.kernel), slice(None) if weights is None else weights > 0.0
    X = X[counted]
    largest = max(scale, float(case.kernel.diagonal(X).max()))

    np.testing.assert_allclose(model.eigenvalues_, batch.eigenvalues_, rtol=0, atol=1e-8 * scale)
    ours, theirs = model.transform(X), batch.transform(X)
    assert_same_columns(ours, theirs, batch.eigenvalues_, largest, tolerance=1e-8)
    # Inner products of projections are the same whether or not eigenvalues lie close together.
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, rtol=0, atol=1e-8 * largest)
    np.testing.assert_allclose(
        model.reconstruction_error(X), batch.reconstruction_error(X), rtol=0, atol=1e-8 * largest
    )
    for q in (0, n):
        np.testing.assert_allclose(
            model.reconstruction_error(X, q), batch.reconstruction_error(X, q), rtol=0, atol=1e-8 * largest
        )


@pytest.mark.parametrize("gamma", [0.02, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_exact_mode_is_batch_kernel_pca_for_smooth_kernels(gamma, seed):
    """Eigenvalues fall below rounding without a gap: the order in which a block's rows enter decides the error."""
    X = np.random.default_rng(seed).normal(size=(40, 1))
    batch = KernelPCA(6, kernel=kernels.RBF(gamma)).fit(X)
    model = streaming_model(6, kernel=kernels.RBF(gamma), block_size=64, **EXACT).partial_fit(X)
    np.testing.assert_allclose(model.eigenvalues_, batch.eigenvalues_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(model.reconstruction_error(X, 6), batch.reconstruction_error(X, 6), rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_projections_survive_a_large_offset(seed):
    """With one feature and a linear kernel a projection is x less the mean, whatever the mean is."""
    X = np.random.default_rng(seed).normal(size=(5, 1)) + 1e6
    for model in (KernelPCA(1, kernel=kernels.Linear()), streaming_model(1, kernel=kernels.Linear(), **EXACT)):
        projected, expected = model.fit(X).transform(X), X - X.mean()
        if projected[0] * expected[0] < 0.0:
            projected = -projected
        np.testing.assert_allclose(projected, expected, rtol=0, atol=1e-8 * 1e6)


@pytest.mark.parametrize("d", [1, 3, 5])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_basis_reaches_the_rank(d, degree):
    X = np.random.default_rng(d).normal(size=(500, d))
    kernel = kernels.Polynomial(degree, gamma=1.0, coef0=1.0)
    for n in (200, 500):
        model = streaming_model(2, kernel=kernel, block_size=50, **EXACT).partial_fit(X[:n]).refit()
        assert model.n_atoms_ == math.comb(d + degree, degree)
