"""Tolerances refer to the variance: how wide a kernel is, and how far rows lie from the origin, costs no atoms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import kernel_cases, rows, streaming_model, weights_for

from streamkpca import kernels

TOLERANCES = st.sampled_from([1e-4, 1e-2, 0.3])


def lost_and_varying(model, X, weights):
    """Return the energy outside the span of the atoms, the energy around the mean, and the whole, by their formulas."""
    gram = model.kernel_.matrix(X)
    lost = float(weights @ np.maximum(model.reconstruction_error(X), 0.0))
    energy = float(weights @ np.diagonal(gram))
    return lost, energy - float(weights @ gram @ weights) / weights.sum(), energy


@given(st.data(), rows(min_rows=2, max_rows=40, offsets=False), kernel_cases(), TOLERANCES)
def test_a_block_keeps_the_tolerance_of_its_variance(data, X, case, tolerance):
    weights = data.draw(weights_for(len(X)))
    model = streaming_model(1, kernel=case.kernel, max_atoms=None, tolerance=tolerance, block_size=len(X))
    model.partial_fit(X, sample_weight=weights)
    lost, varying, energy = lost_and_varying(model, X, np.ones(len(X)) if weights is None else weights)
    # What lies below a billionth of the energy is rounding, and so is what is independent by less than 1e-10.
    assert lost <= tolerance * max(varying, 1e-9 * energy) + 1e-9 * energy


@pytest.mark.parametrize("max_atoms", [None, 100])
def test_a_wide_kernel_gets_atoms(max_atoms):
    """With wide kernels most of the energy is that of the mean, which one atom explains."""
    X = np.random.default_rng(0).normal(size=(1024, 6))
    for gamma in (1e-2, 1e-3, 1e-4):
        model = streaming_model(3, kernel=kernels.RBF(gamma), max_atoms=max_atoms, tolerance=1e-2, block_size=128)
        model.partial_fit(X)
        lost, varying, energy = lost_and_varying(model, X, np.ones(1024))
        assert varying < 0.2 * energy
        # A wide kernel is nearly linear, so that six atoms and one for the mean explain all but a little.
        assert model.n_atoms_ >= 7
        assert lost <= 2e-2 * varying


def test_atoms_do_not_depend_on_the_width_of_a_nearly_linear_kernel():
    X = np.random.default_rng(0).normal(size=(600, 5))
    numbers = []
    for gamma in (1e-4, 1e-5, 1e-6):
        model = streaming_model(3, kernel=kernels.RBF(gamma), max_atoms=50, tolerance=0.05, block_size=100)
        numbers.append(model.partial_fit(X).n_atoms_)
    assert max(numbers) - min(numbers) <= 1


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("max_atoms", [None, 8])
def test_neither_units_of_the_kernel_nor_of_the_weights_matter(factor, max_atoms):
    X = np.random.default_rng(1).normal(size=(300, 4))
    settings = {"max_atoms": max_atoms, "tolerance": 0.02, "block_size": 32, "atoms": "rows"}
    plain = streaming_model(2, kernel=kernels.RBF(0.1), **settings).partial_fit(X)
    scaled = streaming_model(2, kernel=factor * kernels.RBF(0.1), **settings).partial_fit(X)
    heavy = streaming_model(2, kernel=kernels.RBF(0.1), **settings).partial_fit(X, sample_weight=factor)
    assert plain.atom_rows_.tolist() == scaled.atom_rows_.tolist() == heavy.atom_rows_.tolist()


def test_a_far_origin_costs_no_atoms_of_a_linear_kernel():
    X = np.random.default_rng(2).normal(size=(400, 6)) * [3.0, 2.0, 1.0, 0.1, 0.1, 0.1]
    for offset in (0.0, 10.0, 1000.0):
        model = streaming_model(3, kernel="linear", max_atoms=None, tolerance=0.05, block_size=50)
        model.partial_fit(X + offset)
        # Three directions vary, and one leads to the mean.
        assert 3 <= model.n_atoms_ <= 4


@pytest.mark.parametrize("max_atoms", [None, 20])
@pytest.mark.parametrize("kernel", [kernels.Linear(), kernels.Polynomial(2, gamma=1.0)], ids=repr)
def test_what_is_rounding_becomes_no_atom(kernel, max_atoms):
    """Seen from so far away, rows differ by less than their energy is rounded to."""
    X = 1e8 + np.random.default_rng(3).normal(size=(300, 10))
    model = streaming_model(1, kernel=kernel, max_atoms=max_atoms, tolerance=1e-3, block_size=50).partial_fit(X)
    assert model.n_atoms_ == 1
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize("max_atoms", [None, 20])
@pytest.mark.parametrize("tolerance", [0.0, 1e-12, 1e-3])
@pytest.mark.parametrize(
    "kernel", [kernels.RBF(), kernels.RBF(1e-8), kernels.Linear(), kernels.Polynomial(3, gamma=1.0)], ids=repr
)
def test_a_constant_stream_has_one_atom(kernel, tolerance, max_atoms):
    X = np.full((200, 3), 0.1)
    model = streaming_model(1, kernel=kernel, max_atoms=max_atoms, tolerance=tolerance, block_size=16).partial_fit(X)
    assert model.n_atoms_ == 1
    assert not model.drift_detected_
    # What varies later is new, however little it is beside the mean.
    model.partial_fit(X + np.random.default_rng(0).normal(scale=0.3, size=X.shape))
    assert model.n_atoms_ > 1


def test_rows_without_energy_have_no_atom():
    model = streaming_model(1, kernel="linear", block_size=16).partial_fit(np.zeros((40, 3)))
    assert model.n_atoms_ == 0
    assert model.partial_fit(np.eye(3).repeat(16, axis=0)).n_atoms_ == 3


@pytest.mark.parametrize("gamma", [1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("seed", range(3))
def test_drifts_show_in_the_variance_of_wide_kernels(seed, gamma):
    """Beside the energy, what the rows after a drift leave unexplained is next to nothing; nearly all their variance.

    Rows move from one plane to another at right angles to it. Three atoms explain one plane, and do not leave it for
    a tenth of the rows. A block adds at most 3.5 to a sum that signals at 10.
    """
    rng = np.random.default_rng(seed)
    planes = 2.0 * np.linalg.qr(rng.normal(size=(6, 4)))[0].T.reshape(2, 2, 6)
    usual, other = (rng.normal(size=(3200, 2)) @ plane + 0.02 * rng.normal(size=(3200, 6)) for plane in planes)
    model = streaming_model(2, kernel=kernels.RBF(gamma), max_atoms=3, block_size=64).partial_fit(usual)
    assert model.last_drift_row_ is None
    model.partial_fit(other[: 5 * 64])
    assert model.last_drift_row_ is not None
    assert model.last_drift_row_ >= 3200 + 3 * 64
