"""Certificates against the truth: eigenvalues of all rows, shares of all rows, sorted samples."""

import numpy as np
import pytest

from streamkpca import KernelPCA, StreamingKernelPCA, kernels, merge
from streamkpca.components.certificates import eigenvalue_bounds, mean_interval
from streamkpca.dictionary.moments import Moments, ProjectionLoss

N_STREAMS = 50


def drawn(rng, population, weights, k):
    """Draw rows one after another, each time in proportion to weight among those that are left."""
    order = np.argsort(rng.exponential(size=len(population)) / weights)[:k]
    return population[order], weights[order]


# The interval for a mean


@pytest.mark.parametrize(
    ("kind", "fading"), [("even", False), ("skewed", True), ("coins", False), ("rare", True), ("rare", False)]
)
def test_the_interval_covers_the_mean(kind, fading):
    rng = np.random.default_rng(7)
    n, k, trials, covered = 600, 60, 500, 0
    for _ in range(trials):
        population = {
            "even": rng.uniform(size=n),
            "skewed": rng.beta(1, 20, n),
            "coins": (rng.uniform(size=n) < 0.3).astype(float),
            "rare": (rng.uniform(size=n) < 0.01).astype(float),
        }[kind]
        weights = 2.0 ** (-np.arange(n) / 200.0) if fading else np.ones(n)
        low, high = mean_interval(*drawn(rng, population, weights, k), weights.sum(), confidence=0.95)
        covered += low - 1e-12 <= np.average(population, weights=weights) <= high + 1e-12
    assert covered >= 0.94 * trials


def test_the_interval_is_nearly_as_short_as_that_of_the_central_limit_theorem():
    rng = np.random.default_rng(0)
    population = rng.beta(5, 5, 20_000)
    values, weights = drawn(rng, population, np.ones(20_000), 2000)
    low, high = mean_interval(values, weights, 20_000.0, confidence=0.95)
    assert high - low < 1.5 * 2.0 * 1.96 * values.std() / np.sqrt(2000)


def test_the_interval_is_a_point_when_everything_was_drawn():
    rng = np.random.default_rng(0)
    population, weights = rng.uniform(size=40), rng.uniform(0.1, 2.0, 40)
    interval = mean_interval(*drawn(rng, population, weights, 40), weights.sum(), confidence=0.99)
    np.testing.assert_allclose(interval, np.average(population, weights=weights), rtol=1e-12)


# The share of energy, through the estimator


def streams(rng, kind):
    """Make one small stream of a kind: a model that has learned it, its rows and their weights now."""
    n = 240
    X = rng.normal(size=(n, 2))
    a = np.ones(n)
    kernel, half_life = kernels.RBF(0.5), None
    if kind == "heavy tails":
        X, kernel = rng.standard_t(3, size=(n, 2)), kernels.Polynomial(2, gamma=1.0, coef0=1.0)
    elif kind == "rare outliers":
        X[rng.uniform(size=n) < 0.02] *= 10.0
    elif kind == "fading":
        half_life = 60.0
        a = 2.0 ** (-np.arange(n)[::-1] / half_life)
    settings = {
        "kernel": kernel,
        "half_life": half_life,
        "max_atoms": 3,
        "block_size": 60,
        "noise_variance": None,
        "reservoir_size": 40,
        "random_state": int(rng.integers(2**31)),
        "refit_every": 10**9,
    }
    if kind == "merged shards":
        parts = np.array_split(X, 2)
        return merge(*(StreamingKernelPCA(1, **settings).partial_fit(part) for part in parts)), X, a
    return StreamingKernelPCA(1, **settings).partial_fit(X), X, a


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "heavy tails", "rare outliers", "fading", "merged shards"])
def test_captured_energy_is_in_its_interval(kind):
    rng = np.random.default_rng(11)
    trials, covered = N_STREAMS, 0
    for _ in range(trials):
        model, X, a = streams(rng, kind)
        low, high = model.captured_energy(0.95)
        truth = 1.0 - a @ model.reconstruction_error(X) / (a @ model.kernel_.diagonal(X))
        covered += low - 1e-9 <= truth <= high + 1e-9
    assert covered >= 0.94 * trials


def test_rows_without_energy_are_fully_captured():
    model = StreamingKernelPCA(1, kernel=kernels.Linear(), max_atoms=2, block_size=4).partial_fit(np.zeros((9, 2)))
    np.testing.assert_array_equal(model.captured_energy(), [1.0, 1.0])


# The bounds of the eigenvalues


def test_the_bounds_are_the_formula():
    second = np.diag([4.0, 1.0])
    losses = ProjectionLoss(1.0, 0.5, 2.25, 0.25, 0.5, rounding=0.01)
    moments = Moments(10.0, 10.0, 9.0, 1.0, np.zeros(2), second, losses=losses)
    bounds = eigenvalue_bounds(moments, moments, np.array([0.4, 0.1]), center=False)
    distance = (1.5 + 0.5) / np.sqrt(10.0)
    upper = (np.sqrt([0.4 + 0.15, 0.1 + 0.15]) + distance) ** 2
    np.testing.assert_allclose(bounds[:, 1], np.minimum(upper, [0.9, 0.45]) + 0.001, atol=1e-8)
    np.testing.assert_allclose(
        bounds[:, 0], np.maximum(np.maximum(np.sqrt([0.4, 0.1]) - distance, 0.0) ** 2 - 0.001, 0.0), atol=1e-8
    )


def test_the_bounds_are_tight_while_the_span_stays():
    X = np.random.default_rng(0).normal(size=(600, 2))
    model = StreamingKernelPCA(3, kernel=kernels.RBF(0.3), max_atoms=25, block_size=100, noise_variance=None).fit(X)
    low, high = model.eigenvalue_bounds_.T
    np.testing.assert_allclose(low, model.eigenvalues_, atol=1e-8)
    np.testing.assert_allclose(high, model.eigenvalues_ + model.unexplained_energy_ratio_ * 600 / 599, atol=1e-8)
    true = KernelPCA(3, kernel=kernels.RBF(0.3)).fit(X).eigenvalues_
    assert np.all((low <= true) & (true <= high))


def test_the_recorded_mean_may_be_longer_than_the_true_one():
    # What other losses held against it is gone: the variance around the recorded mean is no bound then.
    for seed in (62, 73, 101):
        X = np.random.default_rng(seed).normal(size=(40, 3))
        model = StreamingKernelPCA(
            3, kernel=kernels.Linear(), half_life=0.7, noise_variance=None, max_atoms=1, tolerance=0.0, block_size=2
        )
        model.partial_fit(X).refit()
        weights = 2.0 ** (-np.arange(40)[::-1] / 0.7)
        true = KernelPCA(3, kernel=kernels.Linear()).fit(X, sample_weight=weights).eigenvalues_
        low, high = model.eigenvalue_bounds_.T
        assert np.all((low <= true) & (true <= high))
