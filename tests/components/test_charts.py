"""Hotelling's T^2, SPE and their limits, against classical PCA in numpy, and against counts."""

import warnings

import numpy as np
import pytest
import scipy.stats
from exports import drawn_rows

from streamkpca import (
    ApproximateKernelPCA,
    KernelPCA,
    LocalKernelWarning,
    NotFittedError,
    SparseKernelPCA,
    StreamingKernelPCA,
)
from streamkpca.components.charts import spe_limit, t2_limit
from streamkpca.kernels import RBF, Linear, Polynomial

SCALES = np.array([5.0, 3.0, 2.0, 1.0, 0.7, 0.5])
ROWS = np.random.default_rng(0).normal(size=(400, 6)) * SCALES + [10.0, 0.0, -3.0, 0.0, 0.0, 1.0]
FRESH = np.random.default_rng(1).normal(size=(50, 6)) * SCALES * 2.0


def linear_models(**settings):
    return [
        KernelPCA(4, kernel="linear", **settings).fit(ROWS),
        StreamingKernelPCA(4, kernel="linear", noise_variance=None, block_size=64, **settings)
        .partial_fit(ROWS)
        .refit(),
        ApproximateKernelPCA(4, kernel="linear", max_atoms=6, **settings).fit(ROWS),
        SparseKernelPCA(4, kernel="linear", noise_variance=1e-3, **settings).fit(ROWS),
    ]


def classical_limits(rows, q, quantile, *, center=True):
    """Compute the limits as textbooks do, from the eigenvalues of the covariance."""
    n = len(rows)
    moments = np.cov(rows.T) if center else rows.T @ rows / n
    beside = np.sort(np.linalg.eigvalsh(moments))[::-1][q:]
    t2 = q * (n**2 - 1) / (n * (n - q)) * scipy.stats.f.ppf(quantile, q, n - q)
    one, two, three = beside.sum(), (beside**2).sum(), (beside**3).sum()
    h = 1 - 2 * one * three / (3 * two**2)
    c = scipy.stats.norm.ppf(quantile)
    spe = one * (c * np.sqrt(2 * two * h**2) / one + 1 + two * h * (h - 1) / one**2) ** (1 / h)
    return t2, spe


@pytest.mark.parametrize("q", [1, 4])
def test_with_a_linear_kernel_both_statistics_are_those_of_classical_pca(q):
    centred = FRESH - ROWS.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(ROWS.T))
    along = centred @ axes[:, ::-1][:, :q]
    t2 = (along**2 / variances[::-1][:q]).sum(axis=1)
    spe = (centred**2).sum(axis=1) - (along**2).sum(axis=1)
    for model in linear_models():
        np.testing.assert_allclose(model.hotelling_t2(FRESH, q), t2, rtol=1e-7)
        np.testing.assert_allclose(model.reconstruction_error(FRESH, q), spe, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("q", "quantile", "center"), [(1, 0.9, True), (3, 0.99, False), (None, 0.99, True)])
def test_with_a_linear_kernel_the_limits_are_those_of_classical_pca(q, quantile, center):
    expected = classical_limits(ROWS, q or 4, quantile, center=center)
    for model in linear_models(center=center):
        limits = model.control_limits(quantile, q)
        np.testing.assert_allclose(limits, expected, rtol=1e-6)
        assert limits == (limits.t2, limits.spe)


def test_weights_count_as_copies():
    weights = np.random.default_rng(2).integers(1, 3, len(ROWS)).astype(float)
    repeated = KernelPCA(2, kernel="linear").fit(np.repeat(ROWS, weights.astype(int), axis=0))
    for model in (
        KernelPCA(2, kernel="linear").fit(ROWS, sample_weight=weights),
        StreamingKernelPCA(2, kernel="linear", noise_variance=None).fit(ROWS, sample_weight=weights),
    ):
        np.testing.assert_allclose(model.control_limits(), repeated.control_limits(), rtol=0.02)


@pytest.mark.parametrize(
    "variances", [np.ones(1), np.ones(20), 0.7 ** np.arange(20), 1.0 / np.arange(1, 100), np.r_[5.0, np.full(99, 0.05)]]
)
def test_limits_of_sums_of_squares_hold(variances):
    sums = np.random.default_rng(5).standard_normal((50_000, len(variances))) ** 2 @ variances
    moments = [(variances**power).sum() for power in (1, 2, 3)]
    assert (sums > spe_limit(*moments, 0.9)).mean() == pytest.approx(0.1, abs=0.015)
    assert (sums > spe_limit(*moments, 0.99)).mean() < 0.013


def test_without_variance_there_are_limits_too():
    assert t2_limit(0, 100.0, 0.99) == 0.0
    assert spe_limit(0.0, 0.0, 0.0, 0.99) == 0.0
    for model in (KernelPCA(1, kernel="linear"), StreamingKernelPCA(1, kernel="linear")):
        limits = model.fit(np.ones((5, 2))).control_limits()
        assert limits.t2 == 0.0
        assert 0.0 < limits.spe < 1e-9
        assert not model.hotelling_t2([[3.0, 4.0]]).any()


@pytest.mark.parametrize("kernel", [RBF(0.2), Polynomial(2, gamma=0.5), 0.2 * RBF(0.3) + Linear()])
def test_limits_under_other_kernels_are_of_the_size_of_the_errors(kernel):
    rows, fresh = drawn_rows(0, 600), drawn_rows(1, 600)
    settings = {"kernel": kernel, "max_atoms": 30, "block_size": 64}
    for model in (
        KernelPCA(3, kernel=kernel).fit(rows),
        StreamingKernelPCA(3, **settings).partial_fit(rows),
        StreamingKernelPCA(3, **settings).partial_fit(rows).partial_fit(rows[:100]),
    ):
        exceeded = model.reconstruction_error(fresh, 3) > model.control_limits(0.95).spe
        # Their projections are not normal.
        assert exceeded.mean() < 0.2


def test_t2_under_a_local_kernel_warns_that_far_rows_are_alike():
    model = KernelPCA(2, kernel=RBF(0.5)).fit(drawn_rows(0, 40))
    with pytest.warns(LocalKernelWarning, match=r"KernelPCA.hotelling_t2: with the local kernel RBF\(gamma=0.5\) all"):
        far = model.hotelling_t2([[1e3, 0.0, 0.0], [0.0, -1e4, 0.0]])
    assert far[0] == far[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.control_limits()
        KernelPCA(2, kernel=RBF(0.5) + Linear()).fit(drawn_rows(0, 40)).hotelling_t2(drawn_rows(1, 2))


def test_bad_requests_are_refused():
    model = KernelPCA(2, kernel="linear")
    for query in (lambda: model.hotelling_t2([[1.0]]), model.control_limits):
        with pytest.raises(NotFittedError, match="needs a fitted KernelPCA"):
            query()
    model.fit(drawn_rows(0, 2))
    with pytest.raises(ValueError, match=r"control_limits: quantile must be a finite number in \(0, 1\), got 1.0"):
        model.control_limits(1.0)
    with pytest.raises(ValueError, match=r"control_limits: n_components is 3 but the model has 2 axes"):
        model.control_limits(0.9, 3)
    with pytest.raises(ValueError, match=r"hotelling_t2: n_components is 3 but the model has 2 axes"):
        model.hotelling_t2([[1.0, 2.0, 3.0]], 3)
    with pytest.raises(
        ValueError, match=r"control_limits: expected more rows than axes but there are 1 rows and 1 axes"
    ):
        KernelPCA(1, kernel="linear", center=False).fit(drawn_rows(0, 1)).control_limits()
