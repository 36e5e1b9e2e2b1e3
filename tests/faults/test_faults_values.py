"""Kernels so wide or so narrow that all rows are the same, or all unlike."""

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA, kernels

ROWS = np.random.default_rng(2).normal(size=(600, 3))
EXACT = {"max_atoms": None, "tolerance": 0.0, "block_size": 32}


def comes_back(model):
    data = model.to_bytes()
    return StreamingKernelPCA.from_bytes(data).to_bytes() == data


def test_gamma_so_large_that_all_rows_are_orthogonal():
    """With k(X, X) = I the centred matrix I - 1 1^T / n has n - 1 eigenvalues 1, so all variances are 1 / (n - 1)."""
    rows, n = ROWS[:96], 96
    model = StreamingKernelPCA(5, kernel=kernels.RBF(1e12), **EXACT).partial_fit(rows)
    assert model.n_atoms_ == n
    np.testing.assert_allclose(model.refit().eigenvalues_, 1.0 / (n - 1), rtol=1e-12)
    assert comes_back(model)
    budget = StreamingKernelPCA(5, kernel=kernels.RBF(1e12), max_atoms=7, block_size=32).partial_fit(ROWS)
    assert budget.n_atoms_ <= 7
    assert np.isfinite(budget.score_samples(ROWS)).all()
    assert comes_back(budget)


@pytest.mark.parametrize("settings", [EXACT, {"max_atoms": 7, "block_size": 32}])
def test_gamma_so_small_that_all_rows_are_the_same(settings):
    model = StreamingKernelPCA(3, kernel=kernels.RBF(1e-20), **settings).partial_fit(ROWS).refit()
    assert model.n_atoms_ == 1
    np.testing.assert_allclose(model.eigenvalues_, 0.0, atol=1e-15)
    np.testing.assert_allclose(model.score_samples(ROWS), 0.0, atol=1e-15)
    assert comes_back(model)


@pytest.mark.parametrize(("kernel", "factor"), [("rbf", 1e-60), (kernels.RBF("median"), 5e-324), ("linear", 1e-110)])
def test_pending_rows_may_be_forgotten_before_the_scale_is_settled(kernel, factor):
    model = StreamingKernelPCA(2, kernel=kernel, block_size=64).partial_fit(ROWS[:20]).forget(factor)
    same = StreamingKernelPCA(2, kernel=kernel, block_size=64).partial_fit(ROWS[:20])
    np.testing.assert_allclose(model.transform(ROWS), same.transform(ROWS), atol=1e-8)
    assert model.partial_fit(ROWS).n_samples_seen_ == 620
    assert comes_back(model)
