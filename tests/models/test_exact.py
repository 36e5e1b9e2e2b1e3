import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import KernelPCA as PeerKernelPCA

from streamkpca import KernelPCA
from streamkpca.kernels import RBF, Cosine, Linear, Polynomial

SEEDS = st.integers(0, 10**6)
PEERS = [
    pytest.param(RBF(0.4), {"kernel": "rbf", "gamma": 0.4}, id="rbf"),
    pytest.param(Linear(), {"kernel": "linear"}, id="linear"),
    pytest.param(
        Polynomial(3, gamma=0.2, coef0=1.0), {"kernel": "poly", "degree": 3, "gamma": 0.2, "coef0": 1}, id="poly"
    ),
    pytest.param(Cosine(), {"kernel": "cosine"}, id="cosine"),
]


def rows_of(seed, n, d=4):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize(("kernel", "options"), PEERS)
@given(seed=SEEDS, n=st.integers(6, 20))
def test_it_agrees_with_scikit_learn(kernel, options, seed, n):
    rows, new = rows_of(seed, n), rows_of(seed + 1, 5)
    peer = PeerKernelPCA(n_components=3, eigen_solver="dense", **options).fit(rows)
    model = KernelPCA(3, kernel=kernel).fit(rows)
    np.testing.assert_allclose(model.eigenvalues_, peer.eigenvalues_ / (n - 1), rtol=1e-8)
    gaps = np.min(-np.diff(np.append(peer.eigenvalues_, 0.0))) / peer.eigenvalues_[0]
    if gaps > 1e-4:
        expected = peer.transform(new)
        got = model.transform(new)
        signs = np.sign(np.sum(got * expected, axis=0))
        np.testing.assert_allclose(got * signs, expected, atol=1e-7 * np.abs(expected).max())


@given(SEEDS, st.integers(3, 20), st.booleans())
def test_a_linear_kernel_is_plain_pca(seed, n, center):
    rows, new = rows_of(seed, n), rows_of(seed + 1, 4)
    model = KernelPCA(4, kernel=Linear(), center=center).fit(rows)
    mean = rows.mean(axis=0) if center else np.zeros(4)
    _, singular, axes = np.linalg.svd(rows - mean, full_matrices=False)
    variances = np.zeros(4)
    variances[: len(singular)] = singular**2 / (n - 1 if center else n)
    np.testing.assert_allclose(model.eigenvalues_, variances, atol=1e-10)
    np.testing.assert_allclose(np.abs(model.transform(new))[:, :1], np.abs((new - mean) @ axes[:1].T), atol=1e-6)
    np.testing.assert_allclose(model.explained_variance_ratio_, variances / variances.sum(), atol=1e-10)
    outside = new - mean - (new - mean) @ axes[:1].T @ axes[:1]
    np.testing.assert_allclose(model.reconstruction_error(new, 1), np.sum(outside**2, axis=1), atol=1e-6)


@pytest.mark.parametrize("weight", [1e-100, 1e100])
def test_weights_of_any_size_mean_the_same(weight):
    rows = rows_of(0, 12)
    plain, model = KernelPCA(3).fit(rows), KernelPCA(3).fit(rows, sample_weight=np.full(12, weight))
    np.testing.assert_allclose(model.eigenvalues_, plain.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(model.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(model.reconstruction_error(rows, 2), plain.reconstruction_error(rows, 2), atol=1e-9)
