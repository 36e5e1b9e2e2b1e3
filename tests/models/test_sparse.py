import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.components import refit, weights
from streamkpca.components.weights import fit_weights
from streamkpca.errors import SparsityWarning
from streamkpca.kernels import RBF, Cosine, Laplacian, Linear, Polynomial

SEEDS = st.integers(0, 10**6)
KERNEL = RBF(0.3)


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def assert_same_columns(ours, theirs, eigenvalues, *, tolerance):
    """Compare projections up to sign where eigenvalues are apart."""
    gaps = -np.diff(np.concatenate([[np.inf], eigenvalues, [0.0]]))
    apart = np.minimum(gaps[:-1], gaps[1:]) > 1e-3 * eigenvalues[0]
    np.testing.assert_allclose(np.abs(ours)[:, apart], np.abs(theirs)[:, apart], atol=tolerance)


@given(
    SEEDS,
    st.integers(4, 25),
    st.sampled_from([KERNEL, Laplacian(0.3), Linear(), Cosine(), Polynomial(2, gamma=0.5)]),
    st.booleans(),
)
def test_without_a_noise_variance_it_is_kernel_pca(seed, n, kernel, center):
    rows, new = rows_of(seed, n), rows_of(seed + 1, 5)
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, n)
    model = SparseKernelPCA(3, kernel=kernel, noise_variance=None, center=center).fit(rows, sample_weight=weights)
    oracle = KernelPCA(3, kernel=kernel, center=center).fit(rows, sample_weight=weights)
    scale = kernel.diagonal(rows).max()
    np.testing.assert_allclose(model.eigenvalues_, oracle.eigenvalues_, atol=1e-8 * scale)
    np.testing.assert_allclose(model.explained_variance_ratio_, oracle.explained_variance_ratio_, atol=1e-8)
    assert_same_columns(
        model.transform(new), oracle.transform(new), oracle.eigenvalues_, tolerance=1e-6 * np.sqrt(scale)
    )
    errors = model.reconstruction_error(new), oracle.reconstruction_error(new)
    np.testing.assert_allclose(*errors, atol=1e-6 * kernel.diagonal(new).max())
    assert model.total_weight_ == oracle.total_weight_


@given(SEEDS, st.integers(6, 20), st.sampled_from([0.02, 0.1]))
def test_with_every_row_an_atom_the_stream_finds_the_same(seed, n, noise_variance):
    rows = rows_of(seed, n)
    # Where some row is close to the span of the others, weights may move along it and say the same.
    if np.linalg.cond(KERNEL.matrix(rows)) > 1e8:
        return
    options = {"kernel": KERNEL, "noise_variance": noise_variance}
    batch = SparseKernelPCA(2, **options).fit(rows)
    stream = StreamingKernelPCA(2, max_atoms=None, tolerance=0.0, **options).fit(rows)
    np.testing.assert_array_equal(np.sort(stream.atom_rows_), np.arange(n))
    weights = np.empty(n)
    weights[stream.atom_rows_] = stream.weights_
    np.testing.assert_allclose(weights, batch.weights_, atol=1e-6)
    np.testing.assert_allclose(stream.eigenvalues_, batch.eigenvalues_, atol=1e-6)
    new = rows_of(seed + 1, 3)
    gap = stream.eigenvalues_[0] - stream.eigenvalues_[1]
    if gap > 1e-3:
        np.testing.assert_allclose(np.abs(stream.transform(new)), np.abs(batch.transform(new)), atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise_variance": None},
        {"axes": "likelihood"},
        {"n_active": 3},
        {"noise_variance": 0.05, "optimizer": "fixed_point"},
        {"noise_variance": 0.05, "optimizer": "em"},
    ],
    ids=repr,
)
def test_whole_number_weights_are_repeated_rows(options, seed):
    """The candidates and the moments are the same, but for the rounding of sums."""
    rows, times = rows_of(seed, 15), np.arange(15) % 4
    weighted = SparseKernelPCA(2, kernel=KERNEL, **options).fit(rows, sample_weight=times)
    repeated = SparseKernelPCA(2, kernel=KERNEL, **options).fit(rows.repeat(times, axis=0))
    np.testing.assert_array_equal(weighted.atoms_, rows[times > 0])
    np.testing.assert_array_equal(weighted.atoms_, repeated.atoms_)
    np.testing.assert_array_equal(weighted.atom_rows_, np.flatnonzero(times))
    np.testing.assert_array_equal(weighted.active_, repeated.active_)
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, rtol=1e-6)
    total = times.sum()
    # Bessel's correction counts how many observations there are; the likelihood's own variances have none.
    ratio = 1.0 if options.get("axes") == "likelihood" else (total - 1) / (total - times @ times / total)
    np.testing.assert_allclose(weighted.eigenvalues_, ratio * repeated.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(
        weighted.reconstruction_error(rows, 2), repeated.reconstruction_error(rows, 2), atol=1e-6
    )
    assert weighted.total_weight_ == repeated.total_weight_ == total


MODES = [{}, {"noise_variance": 0.02}, {"n_active": 4}]


@pytest.mark.parametrize("optimizer", ["coordinate", "fixed_point"])
def test_every_search_uses_the_optimizer(optimizer, monkeypatch):
    used = []

    def recording(*arguments, **options):
        used.append(options["optimizer"])
        return fit_weights(*arguments, **options)

    for module in (weights, refit):
        monkeypatch.setattr(module, "fit_weights", recording)
    rows = rows_of(0, 12, 2)
    for options in MODES:
        model = SparseKernelPCA(2, kernel=KERNEL, optimizer=optimizer, **options).fit(rows)
        assert model.n_active_ == options.get("n_active", model.n_active_)
    assert len(used) >= 6
    assert set(used) == {optimizer}


@pytest.mark.parametrize("optimizer", ["fixed_point", "em"])
def test_an_optimizer_that_runs_out_of_rounds_warns(optimizer, monkeypatch):
    monkeypatch.setitem(weights.MOST_ROUNDS, optimizer, 3)
    rows = rows_of(0, 20)
    text = f"optimizer='{optimizer}' did not converge within 3 rounds; .*use optimizer='coordinate'"
    with pytest.warns(SparsityWarning, match=text):
        model = SparseKernelPCA(2, kernel=KERNEL, optimizer=optimizer).fit(rows)
    assert model.active_.any()
