"""Streams whose kernel is settled while they are young: each is what it would be had it begun with that kernel."""

import numpy as np
import pytest
from comparisons import given_in_pieces, state
from hypothesis import given
from hypothesis import strategies as st
from strategies import FEWER, cuts, weights_for

from streamkpca import StreamingKernelPCA, kernels, merge
from streamkpca.stream import transitions as streams

BLOCK = 16
PROBE = np.random.default_rng(9).normal(size=(7, 4))
KERNELS = [
    kernels.RBF(),
    kernels.RBF("spread"),
    kernels.Laplacian(),
    kernels.RBF("spread").in_units("range"),
    0.5 * kernels.Matern(length_scale="spread") + kernels.Polynomial(2, gamma="spread"),
]


def growing_rows(seed, n, d=4):
    """Rows whose spread grows, so that the scale of a kernel is settled anew several times."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 2)) * np.exp(np.linspace(0.0, rng.choice([0.0, 2.0, 4.0]), n))[:, None]
    return np.asarray(latent @ rng.normal(size=(2, d)) + 0.05 * rng.normal(size=(n, d)))


def made(kernel, **settings):
    return StreamingKernelPCA(
        3, kernel=kernel, **({"max_atoms": 6, "block_size": BLOCK, "reservoir_size": 10} | settings)
    )


def assert_same(model, other):
    """Bit for bit: what was learned, and the answers; the kernel expressions may differ."""
    assert model.kernel_ == other.kernel_
    assert state(model) == state(other)
    if model.n_samples_seen_ > 0:
        np.testing.assert_array_equal(model.transform(PROBE), other.transform(PROBE))
        np.testing.assert_array_equal(model.score_samples(PROBE), other.score_samples(PROBE))


def rows_kept(model):
    """Return how many rows a stream keeps to settle its kernel; None if that is final."""
    stream = model.state_
    assert stream is not None
    return None if stream.settling is None else stream.settling.n_rows


settings_of_streams = st.fixed_dictionaries(
    {
        "max_atoms": st.sampled_from([1, 6, None]),
        "tolerance": st.sampled_from([1e-3, 0.05]),
        "atoms": st.sampled_from(["rows", "moved"]),
        "half_life": st.sampled_from([None, 20.0, 1e4]),
        "block_size": st.sampled_from([2, 16, 50]),
        "refit_every": st.sampled_from(["auto", 1, 40]),
    }
)


@FEWER
@given(st.data(), st.integers(0, 10**6), st.integers(1, 200), st.sampled_from(KERNELS), settings_of_streams)
def test_a_young_stream_is_what_its_kernel_would_have_made_of_it(data, seed, n, kernel, settings):
    X = growing_rows(seed, n)
    weights = data.draw(weights_for(n))
    with pytest.MonkeyPatch.context() as patch:
        # Final for some of these streams.
        patch.setattr(streams, "ROWS_TO_SETTLE", data.draw(st.sampled_from([100, streams.ROWS_TO_SETTLE])))
        model = given_in_pieces(made(kernel, **settings), X, weights, data.draw(cuts(n)))
        known = made(model.kernel_, **settings).partial_fit(X, sample_weight=weights)
        assert_same(model, known)
        whole = made(kernel, **settings).partial_fit(X, sample_weight=weights)
    assert whole.to_bytes() == model.to_bytes()


def test_by_default_the_scale_is_final_after_4096_rows():
    X = growing_rows(0, 4700)
    model = made(kernels.RBF("spread"), block_size=500, max_atoms=3, noise_variance=None)
    model.partial_fit(X[:4499])
    assert rows_kept(model) == 4000
    known = model.kernel_
    assert known.is_near(kernels.RBF("spread").settled(X[:4000]))
    model.partial_fit(X[4499:])
    assert rows_kept(model) is None
    assert model.kernel_.is_near(kernels.RBF("spread").settled(X[:4500]))
    assert_same(model, made(model.kernel_, block_size=500, max_atoms=3, noise_variance=None).partial_fit(X))
    final = model.kernel_
    assert model.partial_fit(1000.0 * X).kernel_ == final


def test_a_scale_that_is_near_the_present_one_changes_nothing():
    X = np.random.default_rng(0).normal(size=(800, 4))
    model = made(kernels.RBF("spread"), block_size=200).partial_fit(X[:200])
    first = model.kernel_
    model.partial_fit(X[200:] * 1.05)
    assert model.kernel_ == first
    assert first != kernels.RBF("spread").settled(np.concatenate([X[:200], X[200:] * 1.05]))


@pytest.mark.parametrize("offset", [0, 16, 40])
def test_rows_of_weight_zero_settle_nothing_and_keep_their_places(offset):
    X = np.concatenate([np.full((offset, 4), 1e6), growing_rows(1, 150)])
    weights = np.repeat([0.0, 1.0], [offset, 150])
    weights[offset + 20 : offset + 55] = 0.0
    X[weights == 0.0] = -1e6
    model = made(kernels.RBF("spread"))
    for start in range(0, len(X), 13):
        model.partial_fit(X[start : start + 13], sample_weight=weights[start : start + 13])
        if weights[: start + 13].any():
            known = made(model.kernel_).partial_fit(X[: start + 13], sample_weight=weights[: start + 13])
            assert_same(model, known)
    assert model.kernel_.gamma < 1.0
    assert model.kernel_.gamma > 1e-5
    assert StreamingKernelPCA.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


def revived(model):
    return StreamingKernelPCA.from_bytes(model.to_bytes())


@given(st.integers(0, 10**6), st.lists(st.sampled_from([1.0, 0.5, 0.25, 0.9, 1e-3]), min_size=5, max_size=5))
def test_forgetting_in_a_young_stream_is_that_of_its_last_kernel(seed, factors):
    X = growing_rows(seed, 150)
    model = made(kernels.RBF("spread"), max_atoms=None, tolerance=0.01)
    for part, factor in zip(np.split(X, 5), factors, strict=True):
        model.partial_fit(part).forget(factor)
    known = made(model.kernel_, max_atoms=None, tolerance=0.01)
    for part, factor in zip(np.split(X, 5), factors, strict=True):
        known.partial_fit(part).forget(factor)
    assert model.refit().total_weight_ == pytest.approx(known.refit().total_weight_, rel=1e-12)
    np.testing.assert_array_equal(model.atom_rows_, known.atom_rows_)
    # Weights are multiplied before rows are learned anew, and sums after.
    np.testing.assert_allclose(model.eigenvalues_, known.eigenvalues_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.reconstruction_error(PROBE), known.reconstruction_error(PROBE), atol=1e-9)
    weights = np.repeat([np.prod(factors[part:]) for part in range(5)], 30)
    stream = model.state_
    np.testing.assert_allclose(stream.settling.weights, weights[:144], rtol=1e-12)


def test_forgetting_everything_in_a_young_stream_leaves_it_sound():
    X = growing_rows(4, 200)
    model = made(kernels.RBF("spread")).partial_fit(X[:20])
    for stop in range(40, 201, 20):
        model.forget(1e-300).partial_fit(X[stop - 20 : stop])
        assert revived(model).to_bytes() == model.to_bytes()
        assert np.isfinite(model.refit().transform(PROBE)).all()
    # What is left are the last rows.
    assert model.total_weight_ == pytest.approx(20.0)


def test_fit_settles_on_all_rows_and_for_good():
    X = growing_rows(5, 100)
    model = made(kernels.RBF()).partial_fit(X[:20]).fit(X)
    assert model.kernel_ == kernels.RBF().settled(X)
    assert rows_kept(model) is None
    assert model.partial_fit(100.0 * X).kernel_ == kernels.RBF().settled(X)
    assert_same(made(kernels.RBF()).fit(X), made(kernels.RBF().settled(X)).fit(X))


# Merging


def test_a_merge_makes_the_scale_of_young_streams_final():
    X = growing_rows(5, 100)
    first = made(kernels.RBF()).partial_fit(X[:50])
    second = made(first.kernel_).partial_fit(X[50:])
    merged = merge(first, second)
    assert rows_kept(merged) is None
    assert rows_kept(first) == 48
    assert merged.kernel_ == first.kernel_
    assert merged.n_samples_seen_ == 100
    assert_same(merged, merge(made(first.kernel_).partial_fit(X[:50]), second))
    assert merged.partial_fit(100.0 * X).kernel_ == first.kernel_
    assert revived(merged).to_bytes() == merged.to_bytes()


@pytest.mark.parametrize(("own", "others"), [(10, 10), (10, 4), (3, 1)])
def test_streams_of_pending_rows_are_joined_and_stay_young(own, others):
    X = growing_rows(5, 200)
    model = made(kernels.RBF()).partial_fit(X[:own]).merge(made(kernels.RBF()).partial_fit(X[own : own + others]))
    assert rows_kept(model) == (own + others) // BLOCK * BLOCK
    model.partial_fit(X[own + others :])
    # A merge publishes axes, and later ones begin with these.
    assert state(model)["summary"] == state(made(model.kernel_).partial_fit(X))["summary"]
    assert revived(model).to_bytes() == model.to_bytes()


def test_a_stream_of_pending_rows_takes_the_scale_of_the_other():
    X = growing_rows(5, 100)
    old, young = made(kernels.RBF()).partial_fit(X[:64]), made(kernels.RBF()).partial_fit(X[64:70])
    for first, second in ((old, young), (young, old)):
        merged = merge(first, second)
        assert merged.kernel_ == old.kernel_
        assert merged.n_samples_seen_ == 70
        assert rows_kept(merged) is None
