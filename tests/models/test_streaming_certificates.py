"""Certificates from the random sample, drift, seeds and copies."""

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.errors import NotFittedError

X = np.random.default_rng(0).normal(size=(3000, 2))


def model(**changes):
    settings = {"kernel": kernels.RBF(0.5), "max_atoms": 12, "block_size": 50, "reservoir_size": 64}
    return StreamingKernelPCA(2, **(settings | changes))


@pytest.mark.parametrize(
    ("method", "share"),
    [("captured_energy", 0.0), ("captured_energy", np.nan), ("novelty_threshold", 1.0), ("novelty_threshold", -1.0)],
)
def test_shares_are_strictly_between_zero_and_one(method, share):
    name = "confidence" if method == "captured_energy" else "quantile"
    with pytest.raises(ValueError, match=rf"StreamingKernelPCA.{method}: {name} must be a finite number in \(0, 1\)"):
        getattr(model().partial_fit(X[:100]), method)(share)


@pytest.mark.parametrize("method", ["captured_energy", "novelty_threshold"])
def test_certificates_need_a_sample(method):
    with pytest.raises(NotFittedError, match=method):
        getattr(model(), method)()
    with pytest.raises(ValueError, match=f"{method}: expected a random sample .* reservoir_size is 0; start a stream"):
        getattr(model(reservoir_size=0).partial_fit(X[:100]), method)()
    with pytest.raises(ValueError, match=f"{method}: .* no row had a weight above 0"):
        getattr(model().partial_fit(X[:60], sample_weight=0.0), method)()


def test_a_young_stream_has_no_drift():
    young = model().partial_fit(X[:10])
    assert (young.residual_trend_, young.drift_detected_, young.last_drift_row_) == (0.0, False, None)


# Atoms that move are searched for less often, in one round, and three of twelve stay behind in this stream.
@pytest.mark.parametrize(("atoms", "most_left", "most_error"), [("rows", 0, 0.1), ("moved", 3, 0.13)])
def test_drift_is_signalled_and_the_atoms_follow(atoms, most_left, most_error):
    stream = model(half_life=300.0, atoms=atoms).partial_fit(X)
    assert not stream.drift_detected_
    assert 0.0 <= stream.residual_trend_ < 1.0
    moved = X + 6.0
    for start in range(0, 1000, 50):
        stream.partial_fit(moved[start : start + 50])
        if stream.drift_detected_:
            break
    assert stream.drift_detected_
    assert 3000 < stream.last_drift_row_ <= 3500
    stream.partial_fit(moved[1000:]).refit()
    assert not stream.drift_detected_
    assert np.count_nonzero(stream.atom_origins_ < 3000) <= most_left
    assert stream.reconstruction_error(moved[:100]).mean() < most_error


def test_the_seed_decides_the_sample_and_nothing_else():
    one, same, other = (model(random_state=seed).partial_fit(X).refit() for seed in (1, 1, 2))
    assert one.novelty_threshold() == same.novelty_threshold()
    assert one.novelty_threshold() != other.novelty_threshold()
    unnamed = [model(random_state=None).partial_fit(X) for _ in range(2)]
    assert unnamed[0].novelty_threshold() != unnamed[1].novelty_threshold()
