"""Newton's method against a general optimizer, and where differences of inner products lose their digits."""

import numpy as np
import pytest
from scipy.optimize import minimize

from streamkpca.components.likelihood import CandidateGram, GramModel, Problem, newton_refine


@pytest.mark.parametrize("seed", range(3))
def test_a_general_optimizer_finds_no_more_among_those_kept(seed):
    rng = np.random.default_rng(seed)
    data, features = rng.normal(size=(40, 8)) * rng.uniform(0.5, 3.0, size=8), rng.normal(size=(5, 8))
    gram, moment_gram = features @ features.T, features @ (data.T @ data / 40) @ features.T
    kept, model = newton_refine(GramModel(gram, moment_gram, rng.uniform(0.1, 3.0, size=5)), 1e-14)
    general = minimize(
        lambda logs: -GramModel(model.gram, model.moment_gram, np.exp(logs)).gain,
        np.log(model.weights),
        bounds=[(-30.0, 30.0)] * len(kept),
        method="L-BFGS-B",
    )
    assert -general.fun <= model.gain + 1e-8
    A, Q = model.scaled_matrices
    np.testing.assert_allclose(A.diagonal(), Q.diagonal(), atol=1e-6)


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
