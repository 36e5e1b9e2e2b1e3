from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
from hypothesis import strategies as st

from streamkpca.components.refit import Candidates, RefitSettings, refit
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import Moments
from streamkpca.kernels import RBF, Polynomial
from streamkpca.rows import validation as rows_module

SEEDS = st.integers(0, 10**6)


def published(rows, atoms, *, q=3, center=True, noise_variance=None, previous=None, kernel=None):
    """Make a snapshot of rows over some atoms."""
    basis = Basis.empty(RBF(0.3) if kernel is None else kernel, rows.shape[1])
    basis, _ = basis.extend(atoms)
    seen = basis.project(rows)
    moments = Moments.zero(basis.size).add(seen.coordinates, seen.energy, np.ones(len(rows)))
    candidates = Candidates(basis.atoms, np.arange(basis.size), basis.factor, are_atoms=True)
    settings = RefitSettings(n_components=q, center=center, noise_variance=noise_variance)
    return refit(basis.kernel, candidates, moments, settings, basis.atoms[:0], previous)


def drawn(seed, n, m):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.normal(size=(m, 3))


def test_every_array_is_read_only_and_no_field_can_be_set():
    snapshot = published(*drawn(0, 20, 6), noise_variance="auto")
    arrays = [getattr(snapshot, field.name) for field in fields(snapshot)]
    arrays = [array for array in arrays if isinstance(array, np.ndarray)]
    assert len(arrays) >= 10
    assert not any(array.flags.writeable for array in arrays)
    with pytest.raises(FrozenInstanceError):
        snapshot.atoms = np.ones((1, 1))


@pytest.mark.parametrize("n", [0, 9])
def test_chunks_change_no_answer(monkeypatch, n):
    rows, atoms = drawn(0, 20, 4)
    snapshot = published(rows, atoms)
    whole = snapshot.transform(rows[:n]), snapshot.reconstruction_error(rows[:n], 2)
    monkeypatch.setattr(rows_module, "_MOST_ROWS", 8)
    np.testing.assert_allclose(snapshot.transform(rows[:n]), whole[0], atol=1e-12)
    np.testing.assert_allclose(snapshot.reconstruction_error(rows[:n], 2), whole[1], atol=1e-12)
    assert whole[0].shape == (n, 3)


@pytest.mark.parametrize("query", ["transform", "reconstruction_error"])
def test_rows_whose_kernel_values_overflow_are_named(monkeypatch, query):
    snapshot = published(*drawn(0, 20, 4), kernel=Polynomial(2, gamma=1.0))
    rows = np.ones((9, 3))
    rows[7:] = 1e300
    # In another chunk than the first.
    monkeypatch.setattr(rows_module, "_MOST_ROWS", 4)
    with pytest.raises(ValueError, match=r"^kernel: row 7 is so far away that its values overflow; leave such rows"):
        getattr(snapshot, query)(rows)
