"""Law 5: forgetting is weighting; law 2: the bounds hold with forgetting; and no number leaves its range."""

from dataclasses import replace

import numpy as np
import pytest
from comparisons import EXACT, assert_same_columns, given_in_pieces, rounding_of, state
from hypothesis import given
from hypothesis import strategies as st
from strategies import cuts, kernel_cases, rows, streaming_model, weights_for

from streamkpca import KernelPCA, StreamingKernelPCA, kernels

HALF_LIVES = st.sampled_from([0.7, 5.0, 40.0, 1e6])


def decayed_weights(n, half_life):
    """Weights of rows that halve every half-life, the newest of weight one."""
    return 2.0 ** (-np.arange(n)[::-1] / half_life)


@given(st.data(), rows(min_rows=3, max_rows=60, offsets=False), kernel_cases(), HALF_LIVES)
def test_a_half_life_is_weighting(data, X, case, half_life):
    drawn = data.draw(weights_for(len(X)))
    a = decayed_weights(len(X), half_life) * (1.0 if drawn is None else drawn)
    model = streaming_model(3, kernel=case.kernel, half_life=half_life, block_size=8, **EXACT)
    given_in_pieces(model, X, drawn, data.draw(cuts(len(X)))).refit()
    exact = KernelPCA(4, kernel=case.kernel).fit(X, sample_weight=a)
    scale = float(case.kernel.diagonal(X).max())
    assert model.total_weight_ == pytest.approx(a.sum())
    atol = 1e-8 * scale + rounding_of(model)
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_[:3], rtol=0, atol=atol)
    assert_same_columns(
        np.c_[model.transform(X), np.zeros(len(X))],
        np.c_[exact.transform(X)[:, :3], np.zeros(len(X))],
        np.append(exact.eigenvalues_[:3], exact.eigenvalues_[3]),
        scale,
        # A row that is dropped as dependent lies up to the root of 1e-10 of its length outside the span. Its projection
        # errs by that, and the axes tilt with it, more where eigenvalues are close to each other.
        tolerance=1e-4,
    )


@pytest.mark.parametrize("half_life", [1e-300, 1e-3, 1e300])
def test_the_shortest_and_the_longest_memory(half_life):
    X = np.random.default_rng(0).normal(size=(500, 2))
    model = streaming_model(2, kernel=kernels.RBF(0.5), max_atoms=8, half_life=half_life, block_size=32)
    model.partial_fit(X).refit()
    expected = 500.0 if half_life > 1.0 else 1.0
    assert model.total_weight_ == pytest.approx(expected)
    assert np.isfinite(model.transform(X)).all()
    assert model.n_samples_seen_ == 500


def test_forgetting_without_end_keeps_the_shares():
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = streaming_model(2, kernel=kernels.RBF(0.5), max_atoms=8, block_size=32).partial_fit(X).refit()
    eigenvalues = model.eigenvalues_
    for _ in range(3000):
        model.forget(0.3)
    model.refit()
    np.testing.assert_allclose(model.eigenvalues_, eigenvalues, rtol=1e-9)
    assert 0.0 < model.total_weight_ < 1e-100
    # Whatever comes now outweighs all that.
    model.partial_fit(X[:64] + 5.0).refit()
    assert model.total_weight_ == pytest.approx(64.0)


def test_a_stream_of_a_trillion_rows_counts_on_exactly():
    X = np.random.default_rng(0).normal(size=(2000, 2))
    model = streaming_model(2, kernel=kernels.RBF(0.5), max_atoms=8, half_life=100.0, block_size=50).partial_fit(
        X[:1000]
    )
    state = model.state_
    model.state_ = replace(state, summary=replace(state.summary, n_rows=state.summary.n_rows + 10**12))
    model.partial_fit(X[1000:]).refit()
    assert model.n_samples_seen_ == 10**12 + 2000
    assert model.atom_rows_.dtype == np.int64
    assert model.total_weight_ == pytest.approx(decayed_weights(2000, 100.0).sum())


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_factors_are_above_zero_and_at_most_one(factor):
    model = streaming_model(2, kernel=kernels.RBF(0.5), block_size=8).partial_fit(np.eye(4))
    before = state(model)
    with pytest.raises(ValueError, match=r"StreamingKernelPCA.forget: factor must be a finite number in \(0, 1\]"):
        model.forget(factor)
    with pytest.raises(TypeError, match=r"StreamingKernelPCA\.forget: factor must be a number, got 'half'"):
        model.forget("half")
    assert state(model) == before


def test_an_empty_model_has_nothing_to_forget():
    model = StreamingKernelPCA(2)
    assert model.forget(0.5) is model
    assert getattr(model, "state_", None) is None
