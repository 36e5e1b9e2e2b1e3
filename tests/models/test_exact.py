import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import KernelPCA as PeerKernelPCA

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA
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


OF_PRODUCTS = [Linear(), 2.0 * Linear().in_units([1.0, 2.0, 0.5, 1.0]), Linear().on([0, 2])]


@pytest.mark.parametrize("offset", [1e5, 1e7])
@pytest.mark.parametrize("kernel", OF_PRODUCTS, ids=repr)
def test_a_linear_kernel_of_rows_far_from_the_origin_is_plain_pca_too(kernel, offset):
    # Numbers that sums with the offset leave as they are.
    rows, new = (np.round(rows_of(seed, 20) * 2.0**10) / 2.0**10 for seed in range(2))
    near, far = KernelPCA(2, kernel=kernel).fit(rows), KernelPCA(2, kernel=kernel).fit(rows + offset)
    np.testing.assert_allclose(far.eigenvalues_, near.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(far.transform(new + offset), near.transform(new), atol=1e-6)
    projections = near.transform(new)
    back = far.inverse_transform(projections) - offset
    np.testing.assert_allclose(back, near.inverse_transform(projections), atol=1e-4)
    rounding = 1e-15 * kernel.diagonal(rows + offset).max()
    np.testing.assert_allclose(
        far.reconstruction_error(new + offset, 1), near.reconstruction_error(new, 1), atol=rounding
    )
    two = KernelPCA(2, kernel="linear").fit([[offset + 1.0, offset], [offset, offset + 1.0]])
    np.testing.assert_allclose(two.eigenvalues_, [1.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(np.abs(two.transform([[offset + 1.0, offset]])), [[np.sqrt(0.5), 0.0]], atol=1e-9)


def test_equal_rows_far_from_the_origin_have_no_variance():
    model = KernelPCA(2, kernel="linear").fit(np.full((7, 3), 1e9 + 0.1))
    assert model.eigenvalues_.tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(model.transform(np.full((1, 3), 5.0)), [[0.0, 0.0]])


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (KernelPCA(30, kernel="linear"), "KernelPCA.fit"),
        (SparseKernelPCA(30), "SparseKernelPCA.fit"),
        (ApproximateKernelPCA(30, max_atoms=4), "ApproximateKernelPCA.fit"),
        (StreamingKernelPCA(30, max_atoms=4), "StreamingKernelPCA.fit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_many_columns_of_zeros_are_worth_a_warning(model, name):
    with pytest.warns(
        UserWarning, match=rf"^{name}: n_components is 30 but .* columns of projections are zero; pass n_"
    ):
        model.fit(rows_of(0, 20))
    projections = model.transform(rows_of(0, 20))
    assert projections.shape == (20, 30)
    assert not projections[:, -1].any()
    model.n_components = 3
    model.fit(rows_of(0, 20))
