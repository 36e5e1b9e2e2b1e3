"""Noise variances: chosen, and searched for."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca.components.noise import fewest_that_hold, least_noise_variance
from streamkpca.components.weights import fit_weights


def draw_problem(seed, *, n=100, p=30, r=8):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(n, r)) * np.geomspace(3.0, 0.1, r)
    return data[:p], data.T @ data / n


def fits(features, second_moment):
    return partial(fit_weights, features, second_moment), second_moment


def test_least_noise_is_positive():
    assert least_noise_variance(np.diag([3.0, 1.0])) == pytest.approx(4e-10)
    noise = least_noise_variance(np.zeros((3, 3)))
    assert noise > 0.0
    assert not fit_weights(np.eye(3), np.zeros((3, 3)), noise).weights.any()


class Spans:
    """Bases of what the active candidates of each fit span; keeps the number of them and the share of variance lost."""

    def __init__(self, q, features, second_moment):
        self.q, self.features, self.second_moment, self.trials = q, features, second_moment, []

    def __call__(self, weights):
        active = self.features[weights > 0.0]
        self.trials.append((len(active), self.loss(active)))
        # numpy 2.2 finds no rank of no rows.
        rank = np.linalg.matrix_rank(active) if len(active) else 0
        return np.linalg.svd(active, full_matrices=False)[2][:rank]

    def loss(self, active):
        projector = np.linalg.pinv(active) @ active
        held = np.linalg.eigvalsh(projector @ self.second_moment @ projector)[::-1][: self.q].sum()
        return 1.0 - held / np.linalg.eigvalsh(self.second_moment)[::-1][: self.q].sum()


@settings(max_examples=20)
@given(
    seed=st.integers(0, 1_000),
    p=st.integers(5, 30),
    r=st.integers(1, 8),
    q=st.integers(1, 10),
    most_lost=st.sampled_from([0.2, 0.05, 0.01, 1e-3]),
)
def test_the_fewest_that_hold_enough_are_found(seed, p, r, q, most_lost):
    features, second_moment = draw_problem(seed, p=p, r=r)
    spans = Spans(q, features, second_moment)
    found = fewest_that_hold(q, most_lost, *fits(features, second_moment), spans)
    n_axes = min(q, r)
    enough = [count >= n_axes and loss <= most_lost * (1.0 + 1e-6) for count, loss in spans.trials]
    if found is None:
        # As a last resort there is hardly any noise.
        assert p < r
        assert not any(enough)
        return
    count = len(found.fit.active)
    assert count >= n_axes
    assert spans.loss(features[found.fit.active]) <= most_lost * (1.0 + 1e-6)
    again = fit_weights(features, second_moment, found.noise_variance, initial_weights=found.fit.weights)
    np.testing.assert_array_equal(again.active, found.fit.active)
    # Fewer were tried, and lost too much: one less, or those at a noise so near that none was tried between.
    assert all(fewer >= count for (fewer, _), holds in zip(spans.trials, enough, strict=True) if holds)
    if count > n_axes and len(spans.trials) < 30:
        largest = np.linalg.eigvalsh(second_moment)[-1]
        noisier = fit_weights(features, second_moment, min(1.02 * found.noise_variance, largest)).active
        has_neighbour = any(
            fewer >= count - 1 for (fewer, _), holds in zip(spans.trials, enough, strict=True) if not holds
        )
        assert has_neighbour or len(noisier) < count or spans.loss(features[noisier]) > most_lost


def test_a_search_for_the_fewest_may_start_noisier_or_quieter():
    features, second_moment = draw_problem(3, r=20, p=60)
    cold = fewest_that_hold(5, 0.05, *fits(features, second_moment), Spans(5, features, second_moment))
    for factor in (1e-3, 0.5, 1.0, 1.3, 1e3):
        spans = Spans(5, features, second_moment)
        start = cold.fit.weights, factor * cold.noise_variance
        found = fewest_that_hold(5, 0.05, *fits(features, second_moment), spans, start=start)
        assert 5 <= len(found.fit.active) <= len(cold.fit.active) + 3
        assert spans.loss(features[found.fit.active]) <= 0.05
