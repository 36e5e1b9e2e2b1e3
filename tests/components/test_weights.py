"""Sparse weights against plain formulas, dense Gaussians, a general optimizer and one another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tipping import (
    covariance_of,
    log_likelihood_gradient,
    mean_log_likelihood,
    posterior_moments,
    scatter_matrices,
)

from streamkpca.components import likelihood, weights
from streamkpca.components.weights import OPTIMISERS, fit_weights


def draw_problem(seed, *, n=200, p=8, r=4, noise_rank=1):
    """Rows of the data as candidates, and the eigenvalue of that rank (from below) as noise."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(n, r)) @ rng.normal(size=(r, r))
    second_moment = data.T @ data / n
    noise = np.linalg.eigvalsh(second_moment)[min(noise_rank, r - 1)]
    return data[:p], second_moment, noise


problems = st.builds(
    draw_problem,
    st.integers(0, 10_000),
    n=st.integers(5, 60),
    p=st.integers(1, 12),
    r=st.integers(2, 7),
    noise_rank=st.integers(0, 6),
).filter(lambda problem: problem[2] > 1e-5 * np.trace(problem[1]))


def test_rounds_follow_equations_13_and_14():
    features, second_moment, noise = draw_problem(1)
    weights = np.linspace(0.2, 1.0, 8)
    variances, mean_squares = posterior_moments(weights, features, second_moment, noise)
    expected = {
        "em": mean_squares + variances,
        "fixed_point": mean_squares / (1.0 - variances / weights),
    }
    for optimizer, after in expected.items():
        fit = fit_weights(features, second_moment, noise, optimizer=optimizer, initial_weights=weights, max_rounds=1)
        np.testing.assert_allclose(fit.weights, after, rtol=1e-10)
        assert (len(fit.trace), fit.converged) == (2, False)


@settings(max_examples=15)
@given(problem=problems, optimizer=st.sampled_from(OPTIMISERS), warm=st.booleans())
def test_likelihood_never_decreases(problem, optimizer, warm):
    features, second_moment, noise = problem
    start = np.linspace(0.0, 3.0, len(features)) if warm else None
    fit = fit_weights(features, second_moment, noise, optimizer=optimizer, initial_weights=start, max_rounds=50)
    assert (np.diff(fit.trace) >= 0.0).all()
    assert (fit.weights >= 0.0).all()
    np.testing.assert_allclose(
        fit.trace[-1], mean_log_likelihood(fit.weights, features, second_moment, noise), rtol=1e-9
    )


@settings(max_examples=20)
@given(problem=problems, are_few=st.booleans())
def test_coordinate_ends_where_no_weight_wants_to_move(problem, are_few):
    features, second_moment, noise = problem
    with pytest.MonkeyPatch.context() as patch:
        if not are_few:
            patch.setattr(likelihood, "_FEW", -1)
            patch.setattr(likelihood, "_FEW_OF", -1)
        fit = fit_weights(features, second_moment, noise, tolerance=1e-14, max_rounds=5_000)
    assert fit.converged
    A, Q = scatter_matrices(fit.weights, features, second_moment, noise)
    a, q, w = A.diagonal(), Q.diagonal(), fit.weights
    s_alone, q_alone = a / (1.0 - w * a), q / (1.0 - w * a) ** 2
    # A step that moves the ratio q / s by x gains x^2 / 4, so a gain is the square of what it leaves undone.
    slack = 4.0 * np.sqrt(1e-14 * max(1.0, np.trace(second_moment) / noise))
    zero = w == 0.0
    assert (q_alone[zero] <= s_alone[zero] * (1.0 + slack)).all()
    gradient = log_likelihood_gradient(w, features, second_moment, noise)
    np.testing.assert_allclose(w * gradient, 0.0, atol=slack)


@pytest.mark.parametrize("seed", [4, 7, 38])
def test_optimizers_agree_with_one_another_and_with_a_general_one(seed):
    features, second_moment, noise = draw_problem(seed)
    coordinate = fit_weights(features, second_moment, noise, tolerance=1e-13).trace[-1]
    paper = fit_weights(features, second_moment, noise, optimizer="fixed_point", tolerance=1e-12)
    em = fit_weights(features, second_moment, noise, optimizer="em", tolerance=1e-12, max_rounds=1_000)
    general = minimize(
        lambda w: -mean_log_likelihood(w, features, second_moment, noise),
        np.ones(8),
        jac=lambda w: -log_likelihood_gradient(w, features, second_moment, noise),
        bounds=[(0.0, None)] * 8,
        method="L-BFGS-B",
    )
    assert abs(paper.trace[-1] - coordinate) < 1e-5
    # EM approaches a vanishing weight no faster than one over the number of rounds.
    assert 0.0 <= coordinate - em.trace[-1] < 3e-3
    assert abs(-general.fun - coordinate) < 1e-5


@pytest.mark.parametrize("optimizer", OPTIMISERS)
def test_independent_candidates_have_a_closed_form(optimizer):
    features = np.diag([1.0, 2.0, 0.5, 1.0])
    second_moment = np.diag([5.0, 3.0, 0.4, 1.5])
    fit = fit_weights(features, second_moment, 1.0, optimizer=optimizer, tolerance=1e-15, max_rounds=300)
    expected = [4.0, 2.0 / 4.0, 0.0, 0.5]
    np.testing.assert_allclose(fit.weights, expected, atol=3e-2 if optimizer == "em" else 1e-6)
    if optimizer != "em":
        assert fit.active.tolist() == [0, 1, 3]


@pytest.mark.parametrize(("optimizer", "factor"), list(zip(OPTIMISERS, [1.0, 3.0, 1.0], strict=True)))
def test_nothing_is_active_from_the_largest_eigenvalue_on(optimizer, factor):
    features, second_moment, _ = draw_problem(5)
    noise = np.linalg.eigvalsh(second_moment)[-1] * factor
    for start in (None, np.ones(8)):
        for moment in (second_moment, np.zeros((4, 4))):
            fit = fit_weights(features, moment, noise, optimizer=optimizer, initial_weights=start)
            assert fit.converged
            assert not fit.weights.any()


@pytest.mark.parametrize(("optimizer", "shape"), list(zip(OPTIMISERS, [(1, 6), (20, 2), (3, 6)], strict=True)))
def test_dependent_and_vanishing_candidates_do_no_harm(optimizer, shape):
    p, r = shape
    features, second_moment, noise = draw_problem(11, p=p, r=r, noise_rank=0)
    features = np.vstack([features, 2.0 * features, 1e-160 * features, np.zeros((1, r))])
    fit = fit_weights(features, second_moment, noise, optimizer=optimizer, max_rounds=200)
    assert np.isfinite(fit.weights).all()
    assert np.isfinite(fit.trace).all()
    assert fit.weights.any()
    assert not fit.weights[2 * p :].any()


@settings(max_examples=15)
@given(problem=problems, seed=st.integers(0, 100), shrunk=st.sampled_from([1e-6, 1.0, 1e3]))
def test_a_warm_start_ends_where_no_single_weight_gains(problem, seed, shrunk):
    """Also from the weights of other data, of another noise, and of candidates that have gone."""
    features, second_moment, noise = problem
    rng = np.random.default_rng(seed)
    more = rng.normal(size=(3, features.shape[1]))
    earlier = fit_weights(features, 0.9 * second_moment + more.T @ more, noise * shrunk if shrunk > 1 else noise)
    features = np.vstack([features, more])
    start = np.append(shrunk * earlier.weights, [0.0, 1.0, 0.0])
    warm = fit_weights(features, second_moment, noise, initial_weights=start, tolerance=1e-12)
    assert warm.converged
    assert (np.diff(warm.trace) >= 0.0).all()
    # The likelihood is a difference of numbers as large as this.
    rounding = 1e-11 * np.trace(second_moment) / noise
    assert warm.trace[-1] == pytest.approx(
        mean_log_likelihood(warm.weights, features, second_moment, noise), rel=1e-9, abs=1e-9 + rounding
    )
    A, Q = scatter_matrices(warm.weights, features, second_moment, noise)
    zero = warm.weights == 0.0
    level = max(1.0, abs(warm.trace[-1]))
    # A gain of x^2 / 4 below the tolerance, or lost in rounding, leaves x below twice its root.
    excess, lost = Q.diagonal() / A.diagonal() - 1.0, 2.0 * np.sqrt(rounding)
    assert (excess[zero] <= 2e-5 * level + lost).all()
    assert (np.abs(excess[~zero]) * np.minimum(1.0, warm.weights * A.diagonal())[~zero] <= 1e-4 * level + lost).all()


@settings(max_examples=10)
@given(problem=problems, power=st.sampled_from([-20, 10, 20]))
def test_units_of_the_kernel_do_not_matter(problem, power):
    features, second_moment, noise = problem
    scale = 2.0**power
    fit = fit_weights(features, second_moment, noise)
    scaled = fit_weights(scale * features, scale**2 * second_moment, scale**2 * noise)
    np.testing.assert_array_equal(scaled.weights, fit.weights)
    shift = features.shape[1] * np.log(scale)
    np.testing.assert_allclose(scaled.trace[-1], fit.trace[-1] - shift, rtol=1e-10, atol=1e-10)


def test_small_noise_is_survived():
    noise = 1e-11
    features, second_moment, _ = draw_problem(8, p=30, r=12)
    fit = fit_weights(features, second_moment, noise)
    assert fit.converged
    assert len(fit.active) >= 12
    covariance = covariance_of(fit.weights, features, noise)
    np.testing.assert_allclose(np.trace(np.linalg.solve(covariance, second_moment)), 12.0, rtol=1e-2)


def test_a_round_that_lowers_the_likelihood_is_taken_back(monkeypatch):
    features, second_moment, noise = draw_problem(14)
    genuine = weights.ascend

    def spoilt(*arguments):
        steps = genuine(*arguments)
        if steps > 1:
            arguments[4][:] += 100.0
        return steps

    monkeypatch.setattr(weights, "ascend", spoilt)
    fit = fit_weights(features, second_moment, noise, tolerance=1e-6)
    assert (np.diff(fit.trace) >= 0.0).all()
    monkeypatch.undo()
    clean = fit_weights(features, second_moment, noise, tolerance=1e-6)
    np.testing.assert_allclose(fit.trace[-1], clean.trace[-1], atol=1e-4)


def test_fixed_point_falls_back_on_em(monkeypatch):
    monkeypatch.setitem(weights._RULES, "fixed_point", (lambda w, a, q: w + 100.0, 0.0))
    arguments = dict(initial_weights=np.ones(2), max_rounds=5)
    fallen = fit_weights(np.eye(2), np.diag([3.0, 2.0]), 1.0, optimizer="fixed_point", **arguments)
    em = fit_weights(np.eye(2), np.diag([3.0, 2.0]), 1.0, optimizer="em", **arguments)
    np.testing.assert_array_equal(fallen.weights, em.weights)


@pytest.mark.parametrize("optimizer", OPTIMISERS)
def test_a_start_with_zeros_bars_no_candidate(optimizer):
    """As in a search that lowers the noise: the paper's rules multiply, so a zero would stay one for ever."""
    features, second_moment = np.diag([1.0, 2.0, 0.5]), np.diag([5.0, 3.0, 2.0])
    first = fit_weights(features, second_moment, 4.0, optimizer=optimizer)
    assert first.active.tolist() == [0]
    second = fit_weights(features, second_moment, 1.0, optimizer=optimizer, initial_weights=first.weights)
    np.testing.assert_allclose(second.weights, [4.0, 0.5, 4.0], rtol=1e-2)


def test_what_would_overflow_is_refused():
    with pytest.raises(ValueError, match=r"kernel values up to 1e.200 are too large .* multiply the kernel by a small"):
        fit_weights(np.eye(2) * 1e100, np.eye(2), 0.5)
