"""Laws of the streaming model, over kernels, cuts, weights and budgets."""

from pathlib import Path

import numpy as np
import pytest
from comparisons import assert_energy_is_conserved, bits, given_in_pieces, state
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    FEWER,
    budgets,
    cuts,
    drifting_rows,
    generators,
    kernel_cases,
    rows,
    streaming_model,
    untied_budgets,
    weights_for,
)

from streamkpca import kernels
from streamkpca.stream.state import record_pending

USPS = Path(__file__).parents[2] / ".." / "shared" / "data" / "usps" / "usps.npz"


def rounded_share(model):
    """Share of the energy that rounding may have moved by the model's account, but no more than a millionth.

    Atoms so close to each other that their last pivots are 1e-10 know a row's distance to their span to seven digits.
    """
    moments = record_pending(model.state_, model.settings()).moments
    return min(moments.losses.rounding / moments.energy, 1e-6) if moments.energy > 0.0 else 0.0


# Law 2: the tolerance is kept


@given(
    st.data(), rows(max_rows=80), kernel_cases(), st.sampled_from([1e-6, 1e-4, 0.01, 0.3]), st.sampled_from([2, 8, 32])
)
def test_tolerance_is_kept(data, X, case, tolerance, block_size):
    weights = data.draw(weights_for(len(X)))
    a = np.ones(len(X)) if weights is None else weights
    model = streaming_model(2, kernel=case.kernel, max_atoms=None, tolerance=tolerance, block_size=block_size)
    for start in range(0, len(X), block_size):
        piece = slice(start, start + block_size)
        if not a[piece].any():
            continue
        model.partial_fit(X[piece], sample_weight=a[piece]).refit()
        assert model.unexplained_energy_ratio_ <= tolerance + 1e-10 + rounded_share(model)
    energy = a @ case.kernel.diagonal(X)
    assert a @ model.reconstruction_error(X) <= (tolerance + 1e-10 + rounded_share(model)) * energy


# Law 3: cuts do not matter


@given(st.data(), rows(max_rows=70), kernel_cases(), budgets())
def test_cuts_do_not_matter(data, X, case, budget):
    weights = data.draw(st.none() | generators().map(lambda rng: rng.uniform(0.1, 3.0, len(X))))
    whole, cut = (streaming_model(3, kernel=case.kernel, refit_every=16, **budget) for _ in range(2))
    given_in_pieces(whole, X, weights, [len(X)])
    given_in_pieces(cut, X, weights, data.draw(cuts(len(X))))
    assert state(cut) == state(whole)
    assert bits(cut.refit().state_.published) == bits(whole.refit().state_.published)


# Law 8: a row's answer does not depend on its neighbours


@given(st.data(), rows(min_rows=2, offsets=False), kernel_cases(), untied_budgets())
def test_answers_do_not_depend_on_neighbours(data, X, case, budget):
    model = streaming_model(2, kernel=case.kernel, **budget).partial_fit(X)
    chosen = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1, max_size=8))
    scale = float(case.kernel.diagonal(X).max())
    # Kernel values may differ in their last digits, and a projection sums them with its coefficients.
    coefficients = np.abs(model._snapshot().projection).sum(axis=0).max()
    rounding = max(1e-10 * np.sqrt(scale), 64 * np.finfo(float).eps * scale * coefficients)
    np.testing.assert_allclose(model.transform(X)[chosen], model.transform(X[chosen]), rtol=0, atol=rounding)
    for q in (None, 0, 2):
        together = model.reconstruction_error(X, q)[chosen]
        alone = np.concatenate([model.reconstruction_error(X[[row]], q) for row in chosen])
        np.testing.assert_allclose(together, alone, rtol=0, atol=1e-10 * scale)


# Law 9: energy is conserved


@pytest.mark.parametrize("atoms", ["rows", "moved"])
@pytest.mark.parametrize("kernel", [kernels.RBF(0.5), kernels.Linear()])
def test_one_atom_gives_way_to_another_and_no_row_is_lost(kernel, atoms):
    rng = np.random.default_rng(0)
    X = 0.1 * rng.normal(size=(3000, 3)) + np.where(np.arange(3000)[:, None] < 600, [0.0, 1.0, 0.0], [4.0, 0.0, -2.0])
    model = streaming_model(1, kernel=kernel, max_atoms=1, block_size=64, half_life=500.0, atoms=atoms)
    for start in range(0, len(X), 64):
        model.partial_fit(X[start : start + 64])
        summary = model.state_.summary
        assert (summary.basis.size, summary.n_rows) == (1, min(start + 64, len(X) // 64 * 64))
        assert_energy_is_conserved(summary)
    assert np.abs(model.atoms_[0] - [4.0, 0.0, -2.0]).max() < 0.6
    assert model.n_samples_seen_ == 3000


# Law 10: shift; `models/test_extremes.py` has scales


@pytest.mark.slow
@FEWER
@given(drifting_rows(), untied_budgets(), st.sampled_from([-3.0, 1024.0, 2.0**20]))
def test_shifting_rows_changes_nothing_for_stationary_kernels(X, budget, shift):
    # Rows on a fine grid: the shift itself must not round.
    X = np.round(X * 2**24) / 2**24
    for kernel in (kernels.RBF(0.3), kernels.Matern(1.5, length_scale=2.0), kernels.Laplacian(0.3)):
        plain = streaming_model(2, kernel=kernel, **budget).partial_fit(X).refit()
        shifted = streaming_model(2, kernel=kernel, **budget).partial_fit(X + shift).refit()
        assert shifted.atom_rows_.tolist() == plain.atom_rows_.tolist()
        np.testing.assert_allclose(shifted.eigenvalues_, plain.eigenvalues_, rtol=0, atol=1e-8)
        np.testing.assert_allclose(shifted.score_samples(X + shift), plain.score_samples(X), rtol=1e-8, atol=1e-8)


# Law 11: reading never writes


@given(st.data(), rows(min_rows=4), kernel_cases(), budgets())
def test_reading_never_writes(data, X, case, budget):
    asked, left_alone = (streaming_model(2, kernel=case.kernel, **budget) for _ in range(2))
    middle = data.draw(st.integers(1, len(X) - 1))
    asked.partial_fit(X[:middle])
    left_alone.partial_fit(X[:middle])
    before = state(asked)
    asked.transform(X)
    asked.reconstruction_error(X, 1)
    asked.score_samples(X)
    asked.get_feature_names_out()
    for name in ("atoms_", "atom_rows_", "weights_", "active_", "n_atoms_", "n_active_", "eigenvalues_"):
        getattr(asked, name)
    assert state(asked) == before
    asked.partial_fit(X[middle:])
    left_alone.partial_fit(X[middle:])
    assert state(asked) == state(left_alone)


# Real digits


@pytest.mark.parametrize(
    ("order", "atoms", "most"),
    [
        ("as they came", "rows", 0.116),
        ("sorted by digit", "rows", 0.120),
        ("as they came", "moved", 0.085),
        ("sorted by digit", "moved", 0.100),
    ],
)
def test_usps_digits_are_explained_in_one_pass(order, atoms, most):
    if not USPS.exists():
        pytest.skip("needs ../shared/data/usps/usps.npz beside the repository")
    with np.load(USPS) as data:
        X, digits = data["X_train"].astype(float), data["y_train"]
    if order == "sorted by digit":
        X = X[np.argsort(digits, kind="stable")]
    model = streaming_model(10, kernel=kernels.RBF(0.00206), max_atoms=100, atoms=atoms)
    for start in range(0, len(X), 512):
        model.partial_fit(X[start : start + 512])
        if model.state_.summary is not None:
            assert model.state_.summary.basis.size <= 100
    model.refit()
    assert model.n_atoms_ == 100
    assert model.reconstruction_error(X).mean() <= most
