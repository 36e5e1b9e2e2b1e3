"""A short stream against the plain one; also run without the compiler and with bounds checks."""

import naive
import numpy as np
import pytest
from strategies import streaming_model

from streamkpca.kernels import RBF


@pytest.mark.parametrize("atoms", ["rows", "moved"])
def test_a_short_stream_chooses_swaps_and_moves_atoms_as_the_plain_one(atoms):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(64, 2)) + np.repeat(rng.normal(scale=4.0, size=(4, 2)), 16, axis=0)
    settings = {"max_atoms": 3, "tolerance": 1e-3, "block_size": 8, "atoms": atoms}
    model = streaming_model(2, kernel=RBF(0.1), **settings).partial_fit(X).refit()
    plain = naive.learn(X, np.ones(64), naive.rbf(0.1), **settings)
    assert model.state_.summary.atom_stats.positions.tolist() == plain.positions
    assert np.trace(model.state_.summary.moments.second) == pytest.approx(plain.recorded_energy, rel=1e-7)
    assert plain.n_removed >= 2
