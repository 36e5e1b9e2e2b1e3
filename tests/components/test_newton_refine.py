"""Newton's method against finite differences, closed forms and a general optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize

from streamkpca.components.ascent import newton_refine
from streamkpca.components.likelihood import GramModel


@pytest.mark.parametrize("seed", range(3))
def test_a_general_optimiser_finds_no_more_among_those_kept(seed):
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
