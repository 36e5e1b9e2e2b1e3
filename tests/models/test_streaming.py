import copy
import pickle

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(200, 3))
PROBE = RNG.normal(size=(7, 3))


def made(**params):
    settings = {"n_components": 3, "max_atoms": 8, "block_size": 16, "refit_every": 48} | params
    return StreamingKernelPCA(**settings)


# The stream


@pytest.mark.parametrize(
    ("refit_every", "published"),
    # Blocks end at multiples of 16; the first refits at once, then growth by a half, at last every 48 rows.
    [(48, [16, 32, 48, 80, 128, 176]), (1, list(range(16, 200, 16)))],
)
def test_refits_follow_the_rows_not_the_calls(refit_every, published):
    # With a kernel that is settled already, as rows that are learned anew publish their axes anew.
    model = made(kernel=RBF(0.4), refit_every=refit_every).partial_fit(ROWS[:16])
    seen = [model.total_weight_]
    for i in range(16, 200):
        model.partial_fit(ROWS[i : i + 1])
        seen.append(model.total_weight_)
    assert sorted(set(seen)) == published
    assert made(kernel=RBF(0.4), refit_every=refit_every).partial_fit(ROWS).total_weight_ == published[-1]


def test_weights_that_were_forgotten_settle_a_scale():
    # Below those that a row may have.
    faint = made().partial_fit(ROWS[:100]).forget(1e-110).partial_fit(ROWS[100:200])
    assert np.isfinite(faint.kernel_.gamma)
    assert made().partial_fit(ROWS[:10], sample_weight=0.0).kernel_.is_settled


# Parameters in mid-stream


def test_the_number_of_axes_changes_at_the_next_refit():
    model = made(refit_every=10**6).partial_fit(ROWS)
    assert model.set_params(n_components=2).transform(PROBE).shape == (7, 3)
    assert model.refit().transform(PROBE).shape == (7, 2)
    assert model.set_params(n_components=5).refit().transform(PROBE).shape == (7, 5)
    np.testing.assert_allclose(model.set_params(center=False).refit().eigenvalues_.sum(), model.eigenvalues_.sum())


# Copies


@pytest.mark.parametrize(
    ("n", "twin_of"),
    [(5, copy.copy), (96, copy.deepcopy), (101, lambda model: pickle.loads(pickle.dumps(model)))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_independent(twin_of, n):
    model = made().partial_fit(ROWS[:n])
    twin = twin_of(model)
    assert repr(twin) == repr(model)
    assert twin.to_bytes() == model.to_bytes()
    twin.partial_fit(10.0 + ROWS[:40])
    assert model.to_bytes() == made().partial_fit(ROWS[:n]).to_bytes()
    assert model.partial_fit(ROWS[n:]).to_bytes() == made().partial_fit(ROWS).to_bytes()
    assert twin.to_bytes() == made().partial_fit(ROWS[:n]).partial_fit(10.0 + ROWS[:40]).to_bytes()
