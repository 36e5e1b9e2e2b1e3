"""The laws of streams whose rows have gaps: cuts, merges, forgetting, files, the account, and what gaps may change."""

import numpy as np
import pytest
from comparisons import EXACT, assert_energy_is_conserved, given_in_pieces, state
from hypothesis import given
from hypothesis import strategies as st
from strategies import FEWER, budgets, cuts, drifting_rows, generators, kernel_cases, rows, weights_for

from streamkpca import KernelPCA, StreamingKernelPCA, kernels
from streamkpca.dictionary.expected import ExpectedKernel
from streamkpca.rows.gaps import ColumnSums
from streamkpca.stream.state import record_pending

KERNELS = st.one_of(
    kernel_cases().map(lambda case: case.kernel),
    st.sampled_from([kernels.Matern(1.5, length_scale=2.0), kernels.RBF(0.2) * kernels.Linear()]),
)


@st.composite
def gaps(draw, X):
    """Rows with gaps: none, scattered ones, a sensor that is lost for a while, and rows of which nothing is left."""
    rng, kind = draw(generators()), draw(st.sampled_from(["none", "scattered", "many", "burst", "empty rows"]))
    missing = np.zeros(X.shape, dtype=bool)
    if kind == "burst":
        start = draw(st.integers(0, len(X) - 1))
        missing[start : start + draw(st.integers(1, len(X))), draw(st.integers(0, X.shape[1] - 1))] = True
    elif kind != "none":
        missing = rng.random(X.shape) < (0.5 if kind == "many" else 0.1)
    if kind == "empty rows":
        missing[rng.random(len(X)) < 0.2] = True
    return np.where(missing, np.nan, X)


def model_of(n_components=2, **settings):
    return StreamingKernelPCA(n_components, noise_variance=None, missing="marginal", **settings)


@FEWER
@given(st.data(), rows(max_rows=70, offsets=False), KERNELS, budgets(), st.sampled_from([None, 30.0]))
def test_cuts_change_nothing(data, X, kernel, budget, half_life):
    X, weights = data.draw(gaps(X)), data.draw(weights_for(len(X)))
    if np.isnan(X).all():
        X[0] = 0.0
    whole, pieces = (model_of(kernel=kernel, half_life=half_life, **budget) for _ in range(2))
    whole.partial_fit(X, sample_weight=weights)
    given_in_pieces(pieces, X, weights, data.draw(cuts(len(X))))
    assert state(whole) == state(pieces)
    assert whole.to_bytes() == pieces.to_bytes()
    assert whole.n_rows_rejected_ == int(np.isnan(X).all(axis=1).sum())


@FEWER
@given(st.data(), rows(max_rows=70), kernel_cases(), budgets(), st.sampled_from([None, 30.0]))
def test_rows_without_gaps_are_learned_to_the_bit_as_ever(data, X, case, budget, half_life):
    weights, settings = data.draw(weights_for(len(X))), {"kernel": case.kernel, "half_life": half_life, **budget}
    with_gaps = model_of(**settings).partial_fit(X, sample_weight=weights)
    without = StreamingKernelPCA(2, noise_variance=None, **settings).partial_fit(X, sample_weight=weights)
    for name in ("atoms_", "eigenvalues_", "eigenvalue_bounds_", "explained_variance_ratio_"):
        assert getattr(with_gaps, name).tobytes() == getattr(without, name).tobytes()
    for method in ("transform", "novelty", "reconstruction_error"):
        assert getattr(with_gaps, method)(X).tobytes() == getattr(without, method)(X).tobytes()
    assert with_gaps.impute(X).tobytes() == X.tobytes()


@FEWER
@given(st.data(), rows(min_rows=4, max_rows=60, offsets=False), KERNELS, budgets())
def test_a_saved_model_goes_on_as_if_nothing_had_happened(data, X, kernel, budget):
    X, middle = data.draw(gaps(X)), data.draw(st.integers(1, len(X) - 1))
    if np.isnan(X[:middle]).all():
        X[0] = 0.0
    model = model_of(kernel=kernel, **budget).partial_fit(X[:middle])
    loaded = StreamingKernelPCA.from_bytes(model.to_bytes())
    assert loaded.to_bytes() == model.to_bytes()
    assert loaded.partial_fit(X[middle:]).to_bytes() == model.partial_fit(X[middle:]).to_bytes()
    usable = X[~np.isnan(X).all(axis=1)]
    for method in ("transform", "novelty", "impute"):
        assert getattr(loaded, method)(usable).tobytes() == getattr(model, method)(usable).tobytes()


@FEWER
@given(st.data(), drifting_rows(), KERNELS, budgets(), st.sampled_from([None, 30.0]))
def test_energy_is_conserved(data, X, kernel, budget, half_life):
    X, middle = data.draw(gaps(X)), data.draw(st.integers(1, len(X) - 1))
    X[[0, middle], 0] = 1.0
    model, other = (model_of(kernel=kernel, half_life=half_life, **budget) for _ in range(2))
    model.partial_fit(X[:middle]).forget(0.5)
    assert_energy_is_conserved(record_pending(model.state_, model.settings()))
    model.merge(other.partial_fit(X[middle:]))
    assert_energy_is_conserved(model.state_.summary)
    bounds = model.eigenvalue_bounds_
    assert np.all(bounds[:, 0] <= bounds[:, 1])


@FEWER
@given(st.data(), rows(min_rows=4, max_rows=40, offsets=False), kernel_cases())
def test_the_account_holds_what_is_expected(data, X, case):
    """In one block, all that is not known of gaps is what its rows say; each row is recorded as its expected image."""
    X, a = data.draw(gaps(X)), np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    X[0] = np.where(np.isnan(X[0]), 0.0, X[0])
    model = model_of(kernel=case.kernel, center=False, block_size=len(X), **EXACT).partial_fit(X, sample_weight=a)
    usable = ~np.isnan(X).all(axis=1)
    known = ColumnSums.of(X[usable], a[usable]).distribution()
    expected = ExpectedKernel(case.kernel, known)
    summary = model.state_.summary
    compared = expected.compare(X[usable], summary.basis.atoms)
    energy = a[usable] @ (compared.energy + compared.spread)
    assert summary.moments.energy == pytest.approx(energy, rel=1e-9)
    coordinates = np.linalg.solve(summary.basis.factor, compared.kernel_rows.T)
    second = coordinates * a[usable] @ coordinates.T
    size = float(np.abs(second).max(initial=0.0)) + energy * 1e-12
    np.testing.assert_allclose(
        summary.moments.second, second, rtol=0, atol=(1e-7 + summary.basis.rounding_amplification) * size
    )


@FEWER
@given(st.data(), rows(min_rows=6, max_rows=40, offsets=False), kernel_cases())
def test_merging_shards_is_learning_all_rows_where_no_row_has_a_gap_that_matters(data, X, case):
    """Columns that the kernel does not see may have any gaps: the merged model is that of the rows."""
    beside = np.where(np.random.default_rng(0).random((len(X), 2)) < 0.5, np.nan, 1.0)
    kernel, table = case.kernel.on(range(X.shape[1])), np.hstack([X, beside])
    cut = data.draw(st.integers(1, len(X) - 1))
    shards = [model_of(3, kernel=kernel, block_size=8, **EXACT) for _ in range(2)]
    merged = shards[0].partial_fit(table[:cut]).merge(shards[1].partial_fit(table[cut:]))
    exact = KernelPCA(3, kernel=case.kernel).fit(X)
    scale = float(case.kernel.diagonal(X).max())
    moments = merged.state_.summary.moments
    atol = 1e-8 * scale + moments.losses.rounding / max(len(X) - 1, 1)
    np.testing.assert_allclose(merged.eigenvalues_, exact.eigenvalues_, rtol=0, atol=atol)


@given(st.data(), rows(min_rows=12, max_rows=60, offsets=False), KERNELS, st.integers(2, 8))
def test_what_is_missing_makes_no_row_novel(data, X, kernel, max_atoms):
    model = model_of(kernel=kernel, max_atoms=max_atoms, block_size=8).partial_fit(X)
    table = data.draw(gaps(X))
    table[0] = X[0]
    novelty, missing = model.novelty(table), np.isnan(table)
    assert np.all(np.isfinite(novelty))
    assert np.all(novelty >= 0.0)
    imputed = model.impute(table)
    assert not np.isnan(imputed).any()
    np.testing.assert_array_equal(imputed[~missing], table[~missing])
    # Nor can the completion be more novel than the score says, up to rounding of other sums.
    size = max(float(np.abs(kernel.diagonal(X)).max()), 1e-12)
    assert np.all(model.novelty(imputed) <= novelty * (1.0 + 1e-6) + 1e-6 * size)


def test_rows_of_which_less_was_seen_are_alarms_more_rarely():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3)) @ rng.normal(size=(3, 12)) + 0.1 * rng.normal(size=(3000, 12))
    model = model_of(max_atoms=64).partial_fit(X[:2000])
    threshold, shares = model.novelty_threshold(0.95), []
    for share in (0.0, 0.2, 0.5, 0.8):
        table = np.where(rng.random((1000, 12)) < share, np.nan, X[2000:])
        shares.append(float(np.mean(model.novelty(table) > threshold)))
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.5 * shares[0]


def test_a_circle_is_completed_on_the_circle():
    """The expected number is the centre of the circle, where nothing was ever; the nearest atom knows better."""
    angle = np.random.default_rng(0).uniform(0.0, 2.0 * np.pi, 4000)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    table = np.where(np.random.default_rng(1).random(circle.shape) < 0.05, np.nan, circle)
    table[np.isnan(table).all(axis=1), 0] = 1.0
    model = model_of(kernel=kernels.RBF(2.0), max_atoms=48).partial_fit(table)
    found = model.impute(np.column_stack([np.linspace(-0.9, 0.9, 7), np.full(7, np.nan)]))
    np.testing.assert_allclose(np.hypot(*found.T), 1.0, atol=0.12)
    missing = np.isnan(table).any(axis=1)
    assert np.mean(model.novelty(table[missing]) > model.novelty_threshold(0.99)) <= 0.02
