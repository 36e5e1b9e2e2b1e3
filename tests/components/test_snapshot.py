"""Snapshots are values that cannot be written to, and answer alike however many rows they look at together."""

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF, Polynomial
from streamkpca.rows import validation as rows_module

ROWS = np.random.default_rng(0).normal(size=(40, 3))


def snapshot_of(kernel):
    return StreamingKernelPCA(3, kernel=kernel, max_atoms=6, block_size=16).fit(ROWS).snapshot_


def test_every_array_is_read_only_and_no_field_can_be_set():
    snapshot = snapshot_of(RBF(0.3))
    arrays = [getattr(snapshot, field.name) for field in fields(snapshot)]
    arrays = [array for array in arrays if isinstance(array, np.ndarray)]
    assert len(arrays) >= 10
    assert not any(array.flags.writeable for array in arrays)
    with pytest.raises(FrozenInstanceError):
        snapshot.atoms = np.ones((1, 1))


@pytest.mark.parametrize("n", [0, 9])
def test_chunks_change_no_answer(monkeypatch, n):
    snapshot = snapshot_of(RBF(0.3))
    whole = snapshot.transform(ROWS[:n]), snapshot.reconstruction_error(ROWS[:n], 2)
    monkeypatch.setattr(rows_module, "_MOST_ROWS", 8)
    np.testing.assert_allclose(snapshot.transform(ROWS[:n]), whole[0], atol=1e-12)
    np.testing.assert_allclose(snapshot.reconstruction_error(ROWS[:n], 2), whole[1], atol=1e-12)
    assert whole[0].shape == (n, 3)


@pytest.mark.parametrize("query", ["transform", "reconstruction_error"])
def test_rows_whose_kernel_values_overflow_are_named(monkeypatch, query):
    snapshot, rows = snapshot_of(Polynomial(2, gamma=1.0)), np.ones((9, 3))
    rows[7:] = 1e300
    # In another chunk than the first.
    monkeypatch.setattr(rows_module, "_MOST_ROWS", 4)
    with pytest.raises(ValueError, match=r"^kernel: row 7 is so far away that its values overflow; leave such rows"):
        getattr(snapshot, query)(rows)
