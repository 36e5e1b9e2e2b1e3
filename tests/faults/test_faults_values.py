"""Rows and kernels at the limits of the range of numbers.

HYPOTHESIS_PROFILE=nightly gives 10^6 equal rows.
"""

import os
from typing import Any

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA, kernels

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
N_EQUAL = 1_000_000 if NIGHTLY else 30_000
ROWS = np.random.default_rng(2).normal(size=(600, 3))
EXACT: dict[str, Any] = {"max_atoms": None, "tolerance": 0.0, "block_size": 32}


def comes_back(model: StreamingKernelPCA) -> bool:
    data = model.to_bytes()
    return StreamingKernelPCA.from_bytes(data).to_bytes() == data


@pytest.mark.parametrize(
    ("row", "kernel"),
    [([0.0, 0.0, 0.0], "linear"), ([1.5, -2.0, 1e-310], "rbf"), ([1e6, 1e-6, -1e6], "cosine"), ([0.0] * 3, "rbf")],
)
def test_a_million_equal_rows_are_one_atom_without_variance(row: list[float], kernel: str) -> None:
    model = StreamingKernelPCA(2, kernel=kernel, max_atoms=8)
    chunk = np.tile(row, (N_EQUAL // 10, 1))
    for _ in range(10):
        model.partial_fit(chunk)
    energy = model.kernel_.diagonal([row])[0]
    assert model.n_samples_seen_ == len(chunk) * 10
    assert model.refit().total_weight_ == len(chunk) * 10
    assert model.n_atoms_ == (1 if energy > 0.0 else 0)
    np.testing.assert_allclose(model.eigenvalues_, 0.0, atol=1e-9 * energy)
    assert np.isfinite(model.transform(chunk[:5])).all()
    assert comes_back(model)


@pytest.mark.parametrize(
    ("scale", "kernel"),
    [(5e-324, "rbf"), (1e-310, "linear"), (1e-200, "cosine"), (1e150, "laplacian"), (1e150, "linear"), (1e300, "rbf"),
     (1e300, kernels.Polynomial(3)), (5e-324, kernels.Polynomial(3))],
)  # fmt: skip
def test_whatever_the_scale_answers_are_finite_or_rows_are_refused(scale: float, kernel: Any) -> None:
    model = StreamingKernelPCA(2, kernel=kernel, max_atoms=8, block_size=32)
    try:
        model.partial_fit(ROWS[:200] * scale)
    except ValueError as error:
        if "limit is" not in str(error):
            raise
        assert not model.__sklearn_is_fitted__()
        return
    assert np.isfinite(model.transform(ROWS[:5] * scale)).all()
    assert np.isfinite(model.refit().eigenvalue_bounds_).all()
    assert comes_back(model)


def test_gamma_so_large_that_all_rows_are_orthogonal() -> None:
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
def test_gamma_so_small_that_all_rows_are_the_same(settings: dict[str, Any]) -> None:
    model = StreamingKernelPCA(3, kernel=kernels.RBF(1e-20), **settings).partial_fit(ROWS).refit()
    assert model.n_atoms_ == 1
    np.testing.assert_allclose(model.eigenvalues_, 0.0, atol=1e-15)
    np.testing.assert_allclose(model.score_samples(ROWS), 0.0, atol=1e-15)
    assert comes_back(model)


@pytest.mark.parametrize(
    "order", ["nearest first", "farthest first", "alternating", "each row twice", "outliers first"]
)
def test_the_tolerance_is_kept_whatever_the_order_of_rows(order: str) -> None:
    rows = np.concatenate([ROWS, 30.0 * ROWS[:20]])
    by_length = rows[np.argsort(np.einsum("ij,ij->i", rows, rows))]
    orders = {
        "nearest first": by_length,
        "farthest first": by_length[::-1],
        "alternating": np.stack([by_length[:310], by_length[:309:-1]], axis=1).reshape(-1, 3),
        "each row twice": np.repeat(rows, 2, axis=0),
        "outliers first": rows[::-1],
    }
    model = StreamingKernelPCA(4, kernel=kernels.RBF(0.3), max_atoms=None, tolerance=0.01, block_size=32)
    model.partial_fit(np.ascontiguousarray(orders[order])).refit()
    assert model.unexplained_energy_ratio_ <= 0.01
    centred = kernels.RBF(0.3).matrix(orders[order])
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None] + centred.mean()
    true = np.linalg.eigvalsh(centred)[::-1][:4] / (len(orders[order]) - 1)
    bounds = model.eigenvalue_bounds_
    assert np.all((bounds[:, 0] <= true * (1 + 1e-9)) & (true <= bounds[:, 1] * (1 + 1e-9)))
    assert comes_back(model)


@pytest.mark.parametrize(("kernel", "factor"), [("rbf", 1e-60), (kernels.RBF("median"), 5e-324), ("linear", 1e-110)])
def test_pending_rows_may_be_forgotten_before_the_scale_is_settled(kernel: Any, factor: float) -> None:
    model = StreamingKernelPCA(2, kernel=kernel, block_size=64).partial_fit(ROWS[:20]).forget(factor)
    same = StreamingKernelPCA(2, kernel=kernel, block_size=64).partial_fit(ROWS[:20])
    np.testing.assert_allclose(model.transform(ROWS), same.transform(ROWS), atol=1e-8)
    assert model.partial_fit(ROWS).n_samples_seen_ == 620
    assert comes_back(model)
