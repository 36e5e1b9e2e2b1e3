"""The summary of a stream, and how weights decay."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.components.refit import RefitSettings
from streamkpca.kernels import RBF
from streamkpca.stream.parameters import Settings
from streamkpca.stream.state import State, begin_summary
from streamkpca.stream.step import advance_block, search_block, shrink
from streamkpca.stream.summary import clamp_decay, decay_weights


def blocks_of(seed, count, size, d=3):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(size, d)), rng.uniform(0.5, 2.0, size)) for _ in range(count)]


def settings_of(max_atoms, tolerance):
    given = {"half_life": None, "block_size": 8, "refit_every": 32, "reservoir_size": 0, "random_state": 0}
    refit = RefitSettings(2, True, noise_variance=None)
    return Settings(kernel=RBF(0.3), max_atoms=max_atoms, tolerance=tolerance, refit=refit, **given)


@pytest.mark.parametrize("moves_atoms", [False, True])
@pytest.mark.parametrize("max_atoms", [6, 3])
def test_a_selection_sample_is_sorted_once_and_stored_once(max_atoms, moves_atoms):
    # More rows than the sample holds; a search reads it, and so does a budget that shrinks.
    summary = begin_summary(State.begin(settings_of(6, 0.0), 3), settings_of(6, 0.0))
    for rows, weights in blocks_of(0, 40, 50):
        summary = advance_block(summary, rows, weights, settings_of(6, 0.0))
    sample = summary.selection_sample.sort()
    summary = replace(summary, selection_sample=sample.add(rows, weights, summary.n_rows, np.full(50, 1e-9)))
    assert summary.selection_sample.unsorted_draws
    if max_atoms < 6:
        summary = shrink(summary, max_atoms)
    else:
        block = summary.prepare(*blocks_of(1, 1, 50)[0])
        summary = search_block(summary, block, max_atoms, 0.0, moves_atoms=moves_atoms)
    assert len(summary.selection_sample) == summary.selection_sample.size
    assert summary.selection_sample._drawn is summary.selection_sample.sorted_draws


# Decay


def test_rows_whose_decay_underflows_weigh_nothing():
    factor, weights = decay_weights(np.ones(5), 1e-3)
    assert factor == 0.0
    assert weights.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]


@given(st.floats(0.0, 1.0), st.floats(1e-119, 1e100))
def test_forgetting_leaves_the_least_total_weight(factor, total):
    possible = clamp_decay(factor, total, 1e-120)
    assert factor <= possible <= 1.0
    assert possible * total >= 1e-120 * (1.0 - 1e-12)
    assert possible == factor or possible * total == pytest.approx(1e-120)
    assert clamp_decay(factor, 0.0, 1e-120) == 1.0
