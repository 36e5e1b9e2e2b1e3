import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import LinAlgError

from streamkpca.components import spectrum as spectrum_module
from streamkpca.components.spectrum import (
    covariance_divisor,
    deciding_signs,
    leading_eigenpairs,
    leading_sum,
    likelihood_axes,
    principal_axes,
    total_variance,
)
from streamkpca.dictionary.moments import Moments

SEEDS = st.integers(0, 10**6)


def drawn(seed, n, m, beyond=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, m + beyond)) + rng.normal(size=m + beyond)
    weights = rng.uniform(0.1, 3.0, n)
    c = rows[:, :m]
    return rows, weights, Moments.zero(m).add(c, np.einsum("ij,ij->i", rows, rows), weights)


def covariance(rows, weights, *, center):
    if center:
        return np.atleast_2d(np.cov(rows.T, aweights=weights, ddof=1))
    return np.einsum("n,ni,nj->ij", weights, rows, rows) / weights.sum()


def variance_of(rows, weights, m, *, center):
    """Variance of whole rows around the mean of what lies in the span: the rest of the mean was not recorded."""
    total = weights.sum()
    mean = np.average(rows[:, :m], axis=0, weights=weights) if center else np.zeros(m)
    divisor = total - weights @ weights / total if center else total
    return (weights @ np.einsum("ij,ij->i", rows, rows) - total * mean @ mean) / divisor


def spectrum_of(moments, n_components, *, center):
    variance = total_variance(moments, center=center)
    return principal_axes(moments, n_components, center=center, variance=variance)


@given(SEEDS, st.integers(3, 20), st.integers(1, 6), st.integers(0, 2), st.floats(0.01, 0.99), st.booleans())
def test_a_fraction_takes_the_fewest_axes_that_explain_it(seed, n, m, beyond, share, center):
    rows, weights, moments = drawn(seed, n, m, beyond)
    spectrum = spectrum_of(moments, share, center=center)
    explained = np.cumsum(np.linalg.eigvalsh(covariance(rows[:, :m], weights, center=center))[::-1])
    needed = share * variance_of(rows, weights, m, center=center)
    q = len(spectrum.eigenvalues)
    if explained[-1] >= needed * (1 + 1e-9):
        assert explained[q - 1] >= needed * (1 - 1e-9)
        assert q == 1 or explained[q - 2] < needed * (1 + 1e-9)
    else:
        assert q <= min(m, n)


def test_what_lies_beyond_the_rank_is_zero_not_noise():
    rows = np.outer([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    moments = Moments.zero(3).add(rows, np.einsum("ij,ij->i", rows, rows), np.ones(3))
    spectrum = spectrum_of(moments, 3, center=True)
    assert spectrum.eigenvalues[0] > 0.0
    np.testing.assert_array_equal(spectrum.eigenvalues[1:], 0.0)
    np.testing.assert_array_equal(spectrum.axes[:, 1:], 0.0)


@pytest.mark.parametrize(("m", "count"), [(1, 3), (5, 2), (100, 10), (300, 10), (300, 200)])
def test_a_sum_of_the_largest_eigenvalues_needs_no_vectors(m, count):
    columns = np.random.default_rng(m).normal(size=(2 * m, m)) * np.geomspace(1.0, 0.1, m)
    matrix = columns.T @ columns
    assert leading_sum(matrix, count) == pytest.approx(np.linalg.eigvalsh(matrix)[::-1][:count].sum(), rel=1e-9)


def test_leading_eigenpairs_survive_a_driver_that_gives_up(monkeypatch):
    eigh, asked = spectrum_module.eigh, []

    def giving_up(matrix, **options):
        asked.append(options)
        if "subset_by_index" in options:
            raise LinAlgError("internal error")
        return eigh(matrix, **options)

    monkeypatch.setattr(spectrum_module, "eigh", giving_up)
    values, vectors = leading_eigenpairs(np.diag([1.0, 5.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]), 2)
    np.testing.assert_allclose(values, [5.0, 3.0])
    np.testing.assert_allclose(np.abs(vectors), np.eye(8)[:, [1, 2]])
    assert len(asked) == 2


@pytest.mark.parametrize("weight", [1e-90, 1.0, 3.7, 1e90])
def test_one_row_has_no_divisor_around_its_mean(weight):
    moments = Moments.zero(1).add(np.ones((1, 1)), np.ones(1), np.array([weight]))
    assert covariance_divisor(moments, center=True) == 0.0
    assert covariance_divisor(moments, center=False) == weight
    assert covariance_divisor(Moments.zero(1), center=True) == 0.0


@given(SEEDS, st.integers(1, 8), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_likelihood_axes_are_those_of_the_weighted_gram_matrix(seed, p, k, q, center):
    rng = np.random.default_rng(seed)
    rows, weights, moments = drawn(seed, 12, k)
    candidates, w, noise = rng.normal(size=(p, k)), rng.uniform(0.1, 2.0, p), 0.3
    variance = total_variance(moments, center=center)
    mean = np.average(rows, axis=0, weights=weights) if center else np.zeros(k)
    phi = candidates - mean
    spectrum = likelihood_axes(w, phi, np.eye(k), moments, noise, q, center=center, variance=variance)
    # Eqs. (15) to (17): eigenvectors u of W^1/2 K W^1/2 give axes Phi^T W^1/2 u / sqrt(eigenvalue).
    values, vectors = np.linalg.eigh(np.sqrt(np.outer(w, w)) * (phi @ phi.T))
    values, vectors = values[::-1], vectors[:, ::-1]
    rank = min(q, p, k)
    np.testing.assert_allclose(spectrum.eigenvalues[:rank], values[:rank] + noise, rtol=1e-8)
    assert not spectrum.eigenvalues[rank:].any()
    assert not spectrum.axes[:, rank:].any()
    expected = phi.T @ (np.sqrt(w)[:, None] * vectors[:, :rank]) / np.sqrt(values[:rank])
    if np.min(-np.diff(np.append(values[: rank + 1], 0.0))[:rank], initial=np.inf) > 1e-3:
        np.testing.assert_allclose(np.abs(np.sum(expected * spectrum.axes[:, :rank], axis=0)), 1.0, atol=1e-6)
    np.testing.assert_allclose(spectrum.mean, mean, atol=1e-12)
    assert spectrum.total_variance == variance
    # What they explain is the variance of the rows along them, not the model's.
    divisor = weights.sum() - (weights @ weights / weights.sum() if center else 0.0)
    along = weights @ ((rows - mean) @ spectrum.axes) ** 2 / divisor
    np.testing.assert_allclose(spectrum.explained, along, atol=1e-9)
    assert spectrum.explained_variance_ratio.sum() <= 1.0 + 1e-9


def test_a_missing_eigenvalue_is_noticed(monkeypatch):
    """Iterations that begin at right angles to an axis do not find it."""
    monkeypatch.setattr(spectrum_module, "_LARGE", 64)
    matrix = np.diag(np.r_[2.0, 2.0, np.linspace(1.0, 0.0, 62)])
    matrix[:2, :2] = [[2.0, -1.0], [-1.0, 2.0]]
    values, _ = leading_eigenpairs(matrix, 3)
    np.testing.assert_allclose(values, [3.0, 1.0, 1.0], atol=1e-9)


def test_signs_are_those_of_the_largest_entries():
    columns = np.array([[1.0, -3.0, 0.0, -2.0], [-2.0, 2.0, 0.0, 1.0]])
    assert deciding_signs(columns).tolist() == [-1.0, -1.0, 1.0, -1.0]
    assert deciding_signs(np.empty((0, 2))).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("by", ["Lanczos iterations", "LAPACK"])
@pytest.mark.parametrize("kind", ["smooth", "flat", "equal", "identity", "zero", "tiny", "huge"])
def test_few_pairs_of_a_large_matrix_are_the_largest(kind, by, monkeypatch):
    """Lanczos iterations, or LAPACK where they could miss an eigenvalue or the matrix is no larger than this one."""
    if by == "Lanczos iterations":
        monkeypatch.setattr(spectrum_module, "_LARGE", 200)
    rng = np.random.default_rng(3)
    m = 200
    eigenvalues = {
        "smooth": np.exp(-0.1 * np.arange(m)),
        "flat": 1.0 + 0.01 * rng.uniform(size=m),
        "equal": np.repeat([3.0, 2.0, 1.0, 0.5], m // 4),
        "identity": np.ones(m),
        "zero": np.zeros(m),
        "tiny": 1e-200 * np.exp(-0.1 * np.arange(m)),
        "huge": 1e138 * np.exp(-0.1 * np.arange(m)),
    }[kind]
    vectors = np.linalg.qr(rng.normal(size=(m, m)))[0]
    matrix = (vectors * eigenvalues) @ vectors.T
    matrix = 0.5 * (matrix + matrix.T)
    found, axes = leading_eigenpairs(matrix, 6)
    scale = eigenvalues.max()
    np.testing.assert_allclose(found, np.sort(eigenvalues)[::-1][:6], rtol=0, atol=2e-10 * scale)
    np.testing.assert_allclose(axes.T @ axes, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(matrix @ axes, axes * found, rtol=0, atol=1e-12 * scale)
