"""Learning on need: a settled model stands still while the stream does."""

import numpy as np

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF
from streamkpca.monitoring import Monitor
from streamkpca.monitoring.policy import YOUNG

# Three of four rows are learned, and chunks have 128.
N_SETTLED = YOUNG.n_settled * 4 // 3 + 512


def steady_rows(n, seed=0, n_sensors=3, noise=0.3):
    """Return rows of sensors that follow one hidden number, with noise."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 1)) + noise * random.normal(size=(n, n_sensors))


def n_learned(monitor, rows):
    """Return how many of some more rows a monitor learns."""
    before = monitor.model.n_samples_seen_
    monitor.update(rows)
    return int(monitor.model.n_samples_seen_ - before)


def test_a_settled_model_stands_still_until_the_bulk_moves_and_then_follows():
    monitor = Monitor()
    monitor.update(steady_rows(N_SETTLED))
    assert n_learned(monitor, steady_rows(2560, 1)) < 256
    with_faults = steady_rows(2560, 2)
    # Each of them is beside the next dozen rows, too.
    with_faults[::64, 1] += 1.5
    assert n_learned(monitor, with_faults) < 256
    drifting = steady_rows(5120, 3) + np.linspace(0.0, 4.0, 5120)[:, None]
    assert n_learned(monitor, drifting) > 1024


def test_a_drift_that_outruns_the_scale_is_learned_and_a_jump_is_not():
    monitor, other = Monitor(), Monitor()
    for learner in (monitor, other):
        learner.update(steady_rows(N_SETTLED, n_sensors=20, noise=0.05))
    n = 40_960
    is_odd = np.arange(20) % 2
    drift = steady_rows(n, 1, 20, 0.05) + np.linspace(0.0, 2.0, n)[:, None] * is_odd
    # Without, 0.59.
    assert monitor.update(drift).is_alarm.mean() < 0.05
    assert n_learned(other, steady_rows(2560, 1, 20, 0.05) + 3.0 * is_odd) < 128


def test_a_state_that_was_learned_stays_known_when_another_one_comes():
    monitor, shift = Monitor(accept_after=128), np.array([3.0, 0.0, -3.0])
    monitor.update(steady_rows(N_SETTLED))
    assert monitor.update(steady_rows(256, 1) + shift).is_alarm[:48].mean() > 0.9
    for rows in (steady_rows(2560, 2) + shift, steady_rows(2560, 3), steady_rows(2560, 4) + shift):
        assert monitor.update(rows).is_alarm.mean() < 0.05


def test_a_model_that_forgets_goes_on_learning_and_so_does_one_that_learns_all():
    model = StreamingKernelPCA(kernel=RBF().in_units("std"), max_atoms=64, noise_variance=None, half_life=2000)
    for monitor in (Monitor(model), Monitor(learn="all")):
        monitor.update(steady_rows(N_SETTLED))
        assert n_learned(monitor, steady_rows(1280, 1)) > 640
