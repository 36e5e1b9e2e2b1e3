"""Snapshots are values that answer alike however many rows they look at; novelty near the atoms, far away, between."""

import sys
from dataclasses import FrozenInstanceError, fields
from functools import cache

import numpy as np
import pytest
from exports import exact_rbf_shares
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import StreamingKernelPCA
from streamkpca.components.snapshot import NoveltyScore
from streamkpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial, RationalQuadratic
from streamkpca.rows import parts

ROWS = np.random.default_rng(0).normal(size=(40, 3))
LOCAL = [
    RBF(0.2),
    Matern(0.5, length_scale=1.5),
    Matern(2.5, length_scale=1.5),
    RationalQuadratic(0.7, length_scale=1.5),
    RBF(0.2) + 0.1 * Laplacian(0.1),
    RBF(0.2).on([0, 1]) * Matern(1.5, length_scale=2.0).on(2),
    1e-200 * RBF(0.2),
    RBF(0.2).in_units([0.5, 1.0, 20.0]),
]


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
    monkeypatch.setattr(parts, "_MOST_ROWS", 8)
    np.testing.assert_allclose(snapshot.transform(ROWS[:n]), whole[0], atol=1e-12)
    np.testing.assert_allclose(snapshot.reconstruction_error(ROWS[:n], 2), whole[1], atol=1e-12)
    assert whole[0].shape == (n, 3)


@pytest.mark.parametrize("query", ["transform", "reconstruction_error"])
def test_rows_whose_kernel_values_overflow_are_named(monkeypatch, query):
    snapshot, rows = snapshot_of(Polynomial(2, gamma=1.0)), np.ones((9, 3))
    rows[7:] = 1e300
    # In another chunk than the first.
    monkeypatch.setattr(parts, "_MOST_ROWS", 4)
    with pytest.raises(ValueError, match=r"^kernel: row 7 is so far away that its values overflow; leave such rows"):
        getattr(snapshot, query)(rows)


# Novelty


@cache
def fitted(kernel, seed=0, **settings):
    settings = {"max_atoms": 24, "block_size": 64, "tolerance": 1e-2, **settings}
    return StreamingKernelPCA(2, kernel=kernel, **settings).fit(np.random.default_rng(seed).normal(size=(300, 3)))


def own_energy(model):
    return model.kernel_.diagonal(model.atoms_[:1])[0]


@given(st.integers(0, 10**6), st.floats(-1.0, 1.7))
def test_novelty_equals_the_formula_in_extended_precision(seed, power):
    model = fitted(RBF(0.2))
    # Beyond this, squares of the kernel values leave the range of extended precision too.
    rows = 10.0**power * np.random.default_rng(seed).normal(size=(20, 3)).clip(-1.9, 1.9)
    snapshot = model._snapshot()
    shares = exact_rbf_shares(rows, snapshot.span_atoms, snapshot.span_factor, 0.2)
    expected = -np.log(shares).astype(np.float64)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(model.novelty(rows), np.maximum(expected, 0.0), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kernel", LOCAL, ids=repr)
def test_novelty_equals_the_error_where_that_is_small(kernel):
    model = fitted(kernel)
    rows = np.concatenate([model.atoms_ + shift for shift in np.geomspace(1e-9, 0.3, 20)])
    errors, own = model.reconstruction_error(rows) / own_energy(model), own_energy(model)
    novelty = model.novelty(rows) / own
    assert errors.min() < 1e-6
    assert (novelty >= errors).all()
    assert (novelty <= errors + errors**2 / (2.0 * (1.0 - errors)) + 1e-15).all()


@pytest.mark.parametrize("kernel", LOCAL, ids=repr)
@given(seed=st.integers(0, 10**6))
def test_novelty_ranks_rows_as_the_errors_do_while_these_differ(kernel, seed):
    model = fitted(kernel)
    rows = 2.0 * np.random.default_rng(seed).normal(size=(200, 3))
    order = np.argsort(model.reconstruction_error(rows))
    errors, novelty = model.reconstruction_error(rows)[order], model.novelty(rows)[order]
    apart = np.diff(errors) > 1e-12 * own_energy(model)
    assert (np.diff(novelty)[apart] > 0.0).all()


@pytest.mark.parametrize("kernel", LOCAL, ids=repr)
@given(seed=st.integers(0, 10**6))
def test_novelty_grows_along_every_ray_as_far_as_1e150(kernel, seed):
    model = fitted(kernel)
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=3)
    direction /= np.abs(direction).max()
    steps = np.geomspace(30.0, 1e150, 400)
    novelty = model.novelty(rng.normal(size=3) + steps[:, None] * direction)
    assert np.isfinite(novelty).all()
    assert (np.diff(novelty) > 0.0).all()


@pytest.mark.parametrize("kernel", LOCAL, ids=repr)
def test_novelty_has_no_steps_where_its_computation_changes(kernel):
    model = fitted(kernel)
    own = own_energy(model)
    direction = np.array([1.0, -0.5, 0.3])

    def at(distance):
        return model.novelty(np.outer(distance, direction)) / own

    # Half of the energy explained; and a share of 1e-200, or as far as heavy tails go.
    for level in (np.log(2.0), 200.0 * np.log(10.0)):
        low, high = 0.0, 1e4
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if at(middle)[0] < level else (low, middle)
        around = at(low * (1.0 + 1e-13 * np.arange(-20, 21)))
        assert np.ptp(around) < 1e-9 * max(level, 1.0)


@pytest.mark.parametrize("kernel", LOCAL, ids=repr)
def test_no_bit_of_a_novelty_by_row_depends_on_the_rows_beside(kernel):
    model = fitted(kernel)
    rows = np.random.default_rng(3).normal(size=(60, 3)) * np.geomspace(0.1, 1e100, 60)[:, None]
    alone = np.array([model.novelty(row[None])[0] for row in rows])
    by_row = model.state_.published.novelty_by_row
    np.testing.assert_array_equal(by_row(rows), alone)
    np.testing.assert_array_equal(np.concatenate([by_row(rows[:7]), by_row(rows[7:])]), alone)
    np.testing.assert_allclose(model.novelty(rows), alone, rtol=1e-9, atol=1e-12 * own_energy(model))


@pytest.mark.parametrize("kernel", LOCAL, ids=repr)
def test_the_largest_novelty_is_the_largest_number(kernel):
    model = fitted(kernel)
    for n in (1, 9):
        novelty = model.novelty(np.full((n, 3), 1e308))
        assert (novelty <= sys.float_info.max).all()
        assert (novelty >= model.novelty(np.full((n, 3), 1e150))).all()


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2), Cosine(), RBF(0.2) + Linear()], ids=repr)
def test_errors_without_a_common_limit_are_the_novelty(kernel):
    model = fitted(kernel, max_atoms=2)
    rows = np.random.default_rng(1).normal(size=(50, 3))
    np.testing.assert_array_equal(model.novelty(rows), model.reconstruction_error(rows))
    np.testing.assert_array_equal(model.novelty(rows[:1]), model.reconstruction_error(rows[:1]))


def test_without_atoms_the_novelty_of_every_row_is_its_error():
    nothing = np.empty((0, 3)), np.empty((0, 0))
    np.testing.assert_array_equal(NoveltyScore(RBF(0.2), *nothing).of_rows(np.ones((4, 3))), np.ones(4))
