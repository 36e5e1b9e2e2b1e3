"""What the span of a few candidates tells, against computations over all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca import candidate_span
from streamkpca.candidate_span import CandidateSpan
from streamkpca.gaussian_model import Problem, statistics


@st.composite
def chosen_spans(draw):
    """Draw a problem, some of whose candidates depend on others or vanish, and choose a few in several goes."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    p, r = draw(st.integers(1, 12)), draw(st.integers(1, 7))
    rank = draw(st.integers(1, r))
    data = rng.normal(size=(30, r)) * rng.uniform(0.3, 3.0, size=r)
    features = rng.normal(size=(p, rank)) @ rng.normal(size=(rank, r))
    features[rng.uniform(size=p) < 0.1] = 0.0
    problem = Problem(features, data.T @ data / 30)
    order = rng.permutation(p)[: draw(st.integers(0, p))]
    span = CandidateSpan(problem)
    for part in np.array_split(order, draw(st.integers(1, 3))):
        span.choose(part)
    weights = np.zeros(p)
    weights[order] = rng.uniform(0.1, 5.0, size=len(order)) * (rng.uniform(size=len(order)) < 0.8)
    return problem, span, order, weights


def gains_by_definition(problem, weights):
    """Compute what the best weight for one more candidate gains, by A and Q of a dense covariance."""
    covariance = np.eye(problem.features.shape[1]) + problem.features.T @ (weights[:, None] * problem.features)
    solved = np.linalg.solve(covariance, problem.features.T).T
    s = np.einsum("ij,ij->i", solved, problem.features)
    q = np.einsum("ij,jk,ik->i", solved, problem.second_moment, solved)
    ratio = np.maximum(np.divide(q, s, out=np.ones_like(q), where=s > 0.0), 1.0)
    return 0.5 * (ratio - 1.0 - np.log(ratio))


@settings(max_examples=50, deadline=None)
@given(chosen_spans())
def test_the_likelihood_of_the_chosen_is_that_of_all(drawn):
    problem, span, order, weights = drawn
    np.testing.assert_array_equal(span.chosen[: len(order)], order)
    inside = statistics(span.problem(), weights[span.chosen])
    whole = statistics(problem, weights)
    likelihood = inside.unit_log_likelihood + span.log_likelihood_beyond()
    assert likelihood == pytest.approx(whole.unit_log_likelihood, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(inside.diagonal_A, whole.diagonal_A[span.chosen], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(inside.diagonal_Q, whole.diagonal_Q[span.chosen], rtol=1e-9, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(chosen_spans(), st.sampled_from([0.0, 1e-10]))
def test_the_others_are_told_what_they_would_gain(drawn, least_gain):
    problem, span, _, weights = drawn
    gains = span.gains_of_others(weights, least_gain)
    expected = gains_by_definition(problem, weights)
    expected[span.chosen] = 0.0
    np.testing.assert_allclose(gains, expected, rtol=1e-6, atol=1e-10)


def test_no_basis_is_larger_than_the_space():
    rng = np.random.default_rng(0)
    span = CandidateSpan(Problem(rng.normal(size=(20, 3)), np.eye(3)))
    for candidates in np.arange(8).reshape(4, 2):
        span.choose(candidates)
    assert span.problem().features.shape == (8, 3)
    assert span.log_likelihood_beyond() == pytest.approx(0.0, abs=1e-12)


def test_when_most_are_chosen_all_are():
    rng = np.random.default_rng(0)
    problem = Problem(rng.normal(size=(10, 3)), np.eye(3))
    span = CandidateSpan(problem)
    span.choose(np.array([5, 1, 7, 2, 9, 0, 4]))
    assert len(span.chosen) == 7
    span.choose(np.array([8]))
    assert span.chosen.tolist() == [5, 1, 7, 2, 9, 0, 4, 8, 3, 6]
    np.testing.assert_array_equal(span.problem().features, problem.features[span.chosen])
    assert not span.gains_of_others(np.zeros(10), 0.0).any()


@pytest.mark.parametrize(("weight", "anew"), [(1.0, 0), (1e9, 1)])
def test_where_differences_lose_the_digits_all_is_computed_anew(monkeypatch, weight, anew):
    calls = []

    def counting(*arguments):
        calls.append(arguments)
        return statistics(*arguments)

    monkeypatch.setattr(candidate_span, "statistics", counting)
    # The second candidate is all but the first; with the first's large weight little of it is left.
    features = np.array([[1.0, 0.0], [1.0, 1e-5]])
    span = CandidateSpan(Problem(features, np.diag([weight + 1.0, 1.5])))
    span.choose(np.array([0]))
    weights = np.array([weight, 0.0])
    gains = span.gains_of_others(weights, 1e-10)
    assert len(calls) == anew
    # With C = diag(w + 1, 1): s = 1 / (w + 1) + 1e-10 and q = 1 / (w + 1) + 1.5e-10.
    s = 1.0 / (weight + 1.0) + 1e-10
    excess = 0.5e-10 / s
    np.testing.assert_allclose(gains, [0.0, 0.5 * (excess - np.log1p(excess))], rtol=1e-4, atol=1e-12)
