"""What inner products with a few candidates tell of all, against computations with dense covariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca.components import ascent as candidate_gram
from streamkpca.components.ascent import CandidateGram
from streamkpca.components.likelihood import Problem


@st.composite
def few_weights(draw):
    """Draw a problem, some of whose candidates depend on others, repeat them or vanish, and weights for some."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    p, r = draw(st.integers(1, 12)), draw(st.integers(1, 7))
    rank = draw(st.integers(1, r))
    data = rng.normal(size=(30, r)) * rng.uniform(0.3, 3.0, size=r)
    features = rng.normal(size=(p, rank)) @ rng.normal(size=(rank, r))
    features[rng.uniform(size=p) < 0.1] = 0.0
    features[-1] = features[0]
    weights = rng.uniform(0.1, 5.0, size=p) * (rng.uniform(size=p) < draw(st.floats(0.0, 1.0)))
    return Problem(features, data.T @ data / 30), weights


def defined(problem, weights):
    covariance = np.eye(problem.features.shape[1]) + problem.features.T @ (weights[:, None] * problem.features)
    solved = np.linalg.solve(covariance, problem.features.T).T
    likelihood = -0.5 * np.linalg.slogdet(covariance)[1]
    likelihood -= 0.5 * np.trace(np.linalg.solve(covariance, problem.second_moment))
    return likelihood, solved @ problem.features.T, solved @ problem.second_moment @ solved.T


@settings(max_examples=30)
@given(few_weights(), st.sampled_from([0.0, 1e-10]), st.booleans())
def test_everything_agrees_with_the_dense_covariance(drawn, least_gain, by_gram):
    problem, weights = drawn
    with pytest.MonkeyPatch.context() as patch:
        if not by_gram:
            patch.setattr(candidate_gram, "_FEW", -1)
            patch.setattr(candidate_gram, "_FEW_OF", -1)
        few = CandidateGram(problem).with_weights(weights)
    assert (few.model is not None) == by_gram
    likelihood, A, Q = defined(problem, weights)
    assert few.log_likelihood == pytest.approx(likelihood, rel=1e-10, abs=1e-10)
    np.testing.assert_array_equal(few.weights, weights)
    np.testing.assert_array_equal(few.active, np.flatnonzero(weights))
    diagonal_A, diagonal_Q = few.diagonals(least_gain)
    np.testing.assert_allclose(diagonal_A, A.diagonal(), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(diagonal_Q, Q.diagonal(), rtol=1e-8, atol=1e-10)
    newcomers = np.flatnonzero(weights == 0.0)[::2]
    working = np.concatenate([few.active, newcomers])
    found_A, found_Q = few.matrices(newcomers)
    assert found_A.flags.c_contiguous
    assert found_Q.flags.c_contiguous
    np.testing.assert_allclose(found_A, A[np.ix_(working, working)], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found_Q, Q[np.ix_(working, working)], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("weight", [1.0, 1e5, 1e9])
def test_where_differences_lose_the_digits_all_is_computed_anew(weight):
    # The second candidate is all but the first; with the first's large weight little of it is left.
    problem = Problem(np.array([[1.0, 0.0], [1.0, 1e-5]]), np.diag([weight + 1.0, 1.5]))
    few = CandidateGram(problem).with_weights(np.array([weight, 0.0]))
    a, q = few.diagonals(1e-10)
    # With C = diag(w + 1, 1).
    np.testing.assert_allclose(a, [1.0 / (weight + 1.0), 1.0 / (weight + 1.0) + 1e-10], rtol=1e-9)
    np.testing.assert_allclose(q, [1.0 / (weight + 1.0), 1.0 / (weight + 1.0) + 1.5e-10], rtol=1e-9)
    A, Q = few.matrices(np.array([1]))
    np.testing.assert_allclose([A.diagonal(), Q.diagonal()], [a, q], rtol=1e-9)
