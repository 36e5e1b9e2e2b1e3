"""Woodbury's identity against dense covariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca.components.likelihood import GramModel


def draw_problem(seed, k, r):
    """Candidates of which one repeats another, and the second moment of some data."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(40, r)) * rng.uniform(0.3, 3.0, size=r)
    features = rng.normal(size=(k, r))
    features[-1] = features[0]
    return features, data.T @ data / 40, rng.uniform(0.1, 5.0, size=k)


def dense(features, moment, weights):
    return np.eye(len(moment)) + features.T @ (weights[:, None] * features)


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 8), r=st.integers(1, 6))
def test_everything_agrees_with_the_dense_covariance(seed, k, r):
    features, moment, weights = draw_problem(seed, k, r)
    model = GramModel(features @ features.T, features @ moment @ features.T, weights)
    assert model.is_reliable
    covariance = dense(features, moment, weights)
    inverse = np.linalg.inv(covariance)
    gain = -0.5 * (np.linalg.slogdet(covariance)[1] + np.trace(inverse @ moment) - np.trace(moment))
    assert model.gain == pytest.approx(gain, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(np.eye(r) - features.T @ model.precision @ features, inverse, atol=1e-10)

    A, Q = features @ inverse @ features.T, features @ inverse @ moment @ inverse @ features.T
    roots = np.sqrt(weights)
    for found, expected in zip(model.scaled_matrices, (A, Q), strict=True):
        np.testing.assert_allclose(found, roots[:, None] * expected * roots, atol=1e-9)

    others = np.random.default_rng(seed).normal(size=(3, r))
    X, V = model.solve(features @ others.T, features @ moment @ others.T)
    np.testing.assert_allclose(others.T - features.T @ X, inverse @ others.T, atol=1e-9)
    np.testing.assert_allclose(V, features @ moment @ inverse @ others.T, atol=1e-9)
    np.testing.assert_allclose(
        model.explain_away(features @ others.T), features @ inverse @ others.T, rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(
        model.explain_away(V), features @ inverse @ moment @ inverse @ others.T, rtol=1e-8, atol=1e-9
    )


def test_large_weights_keep_their_digits():
    lengths, weights = np.array([1.0, 2.0]), np.array([1e5, 1e-3])
    model = GramModel(np.diag(lengths**2), np.diag(3.0 * lengths**2), weights)
    growth = 1.0 + weights * lengths**2
    A, Q = model.scaled_matrices
    np.testing.assert_allclose(A.diagonal(), weights * lengths**2 / growth, rtol=1e-12)
    np.testing.assert_allclose(Q.diagonal(), 3.0 * weights * lengths**2 / growth**2, rtol=1e-12)
    np.testing.assert_allclose(model.explain_away(np.eye(2)), np.diag(1.0 / growth), rtol=1e-12)


@pytest.mark.parametrize("gram", [1e8, np.nan, np.inf, -3.0])
def test_an_ill_conditioned_model_is_not_reliable(gram):
    model = GramModel(np.array([[gram]]), np.ones((1, 1)), np.ones(1))
    assert not model.is_reliable
    assert model.gain == -np.inf


def test_without_weights_nothing_is_gained():
    model = GramModel(np.empty((0, 0)), np.empty((0, 0)), np.empty(0))
    assert model.is_reliable
    assert model.gain == 0.0
