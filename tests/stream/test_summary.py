"""Sums of a block against their definition, how often Page's test errs, and weights that decay below all numbers."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from naive import rbf

from streamkpca._core.linalg import solve_factor
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import Moments, RecordedMoments
from streamkpca.kernels import RBF
from streamkpca.stream.parameters import Settings
from streamkpca.stream.schedule import ResidualTrend
from streamkpca.stream.state import State, begin_summary
from streamkpca.stream.step import record_block
from streamkpca.stream.summary import decay_weights


def scene(seed, m, b, gamma=0.3, spread=1.0):
    rng = np.random.default_rng(seed)
    basis = Basis.empty(RBF(gamma), 3)
    basis, _ = basis.extend(spread * rng.normal(size=(m, 3)))
    return basis, rng.normal(size=(b, 3)), rng.choice([0.5, 1.0, 2.0], b)


@pytest.mark.parametrize("spread", [1.0, 0.1, 0.03, 0.01, 1e-3])
def test_errors_of_sums_of_kernel_values_stay_within_the_rounding_amplification(spread):
    """As atoms come closer, the error stays below the bound; beyond a limit coordinates are summed instead."""
    basis, rows, weights = scene(5, 24, 400, spread=spread)
    m = basis.size
    kernel_rows = basis.kernel.program.matrix(rows, basis.atoms)
    # The oracle: another factor of the same kernel matrix, and a sum over coordinates.
    factor = np.linalg.cholesky(rbf(0.3)(basis.atoms, basis.atoms))
    coordinates = solve_factor(factor, kernel_rows.copy())
    exact = Moments.zero(m).add(coordinates, np.ones(400), weights)
    settings = Settings.make(kernel=basis.kernel)
    summary = begin_summary(State.begin(settings, 3), settings)
    stats = summary.atom_stats.join(np.arange(m), np.ones(m), np.zeros(m))
    summary = replace(summary, basis=basis, record=RecordedMoments.zero(m), atom_stats=stats)
    summary = record_block(summary, rows, weights, None)
    lost = np.abs(np.linalg.eigvalsh(summary.moments.second) - np.linalg.eigvalsh(exact.second)).max()
    assert lost <= (1e-12 + basis.rounding_amplification) * weights.sum()
    assert basis.is_well_conditioned is (basis.rounding_amplification <= 1e-8)
    assert np.trace(summary.moments.second) + summary.moments.losses.total == pytest.approx(weights.sum(), rel=1e-12)
    assert summary.moments.losses.rounding == pytest.approx(basis.rounding_amplification * weights.sum())


def test_a_steady_stream_is_hardly_ever_accused():
    n_signals = 0
    for seed in range(6):
        trend = ResidualTrend()
        for share in 0.1 + 0.01 * np.random.default_rng(seed).normal(size=5000):
            before, trend = trend.n_blocks, trend.observe(float(share), 0.0)
            n_signals += trend.n_blocks == 1 and before > 0 and trend.signalled
    # One false alarm in some 10^5 blocks; the seeds are set.
    assert n_signals <= 1
    assert reduce(lambda trend, _: trend.observe(0.15, 0.0), range(20), trend).signalled


def test_rows_whose_decay_underflows_weigh_nothing():
    factor, weights = decay_weights(np.ones(5), 1e-3)
    assert factor == 0.0
    assert weights.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
