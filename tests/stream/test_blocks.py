"""Pending rows, blocks against their definition, and blocks prepared ahead in threads."""

import pickle
import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from comparisons import state
from hypothesis import given
from hypothesis import strategies as st
from naive import rbf

from streamkpca import StreamingKernelPCA, kernels
from streamkpca._core.linalg import solve_factor
from streamkpca.dictionary import moving
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import Moments, RecordedMoments
from streamkpca.kernels import RBF
from streamkpca.stream import transitions as stream
from streamkpca.stream.parameters import Settings
from streamkpca.stream.state import RowBuffer, State, begin_summary
from streamkpca.stream.step import record_block
from streamkpca.stream.transitions import BlockPrefetcher

ROWS = np.random.default_rng(0).normal(size=(200, 3))
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, 200)


# Pending rows


@given(st.lists(st.integers(0, 40), max_size=8))
def test_rows_stay_in_order_and_older_values_do_not_change(sizes):
    values, start = [RowBuffer.empty(3)], 0
    for size in sizes:
        piece = slice(start, min(start + size, 199))
        values.append(values[-1].join(ROWS[piece], WEIGHTS[piece]))
        start = piece.stop
    stops = np.minimum(np.cumsum([0, *sizes]), 199)
    for value, stop in zip(values, stops, strict=True):
        assert value.n_rows == stop
        np.testing.assert_array_equal(value.rows, ROWS[:stop])
        np.testing.assert_array_equal(value.weights, WEIGHTS[:stop])


def test_single_rows_do_not_become_ever_more_pieces():
    pending = RowBuffer.empty(3)
    for i in range(600):
        pending = pending.join(ROWS[i % 200 : i % 200 + 1], 1.0)
        assert len(pending.row_pieces) <= 256
    np.testing.assert_array_equal(pending.rows, np.tile(ROWS, (3, 1)))


def test_equal_buffers_have_equal_pickles():
    """However their rows were cut."""
    whole = RowBuffer.empty(3).join(ROWS[:3], WEIGHTS[:3])
    cut = RowBuffer.empty(3).join(ROWS[:1], WEIGHTS[:1]).join(ROWS[1:3], WEIGHTS[1:3])
    assert pickle.dumps(whole) == pickle.dumps(cut)
    again = pickle.loads(pickle.dumps(cut)).join(ROWS[9:11], 3.0)
    np.testing.assert_array_equal(again.rows, np.concatenate([ROWS[:3], ROWS[9:11]]))
    np.testing.assert_array_equal(again.weights, [*WEIGHTS[:3], 3.0, 3.0])


# Blocks


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


# Blocks prepared ahead


def test_an_error_is_raised_and_no_thread_is_left_running():
    def prepare(number):
        if number == 3:
            raise ZeroDivisionError
        return number

    def request():
        with closing(BlockPrefetcher(3)) as ahead:
            for i in range(8):
                ahead.block(i, 7, prepare)

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        request()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "settings",
    [{"max_atoms": 12}, {"atoms": "rows"}, {"max_atoms": None, "tolerance": 0.2}, {"half_life": 40.0}],
    ids=repr,
)
def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch, settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 3))[rng.integers(7, size=2600)] + rng.normal(scale=0.2, size=(2600, 3))
    X[2000:] += 1.0
    monkeypatch.setattr(stream, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(moving, "_WORTH_THREADS", 0)
    monkeypatch.setattr(moving, "_VALUES_AT_ONCE", 1000)
    models, ahead = [], []
    original = BlockPrefetcher.block

    def spy(*arguments):
        block = original(*arguments)
        ahead.append(block is not None)
        return block

    monkeypatch.setattr(BlockPrefetcher, "block", spy)
    for n_threads in (1, 3):
        for module in (stream, moving):
            monkeypatch.setattr(module, "blas_threads", lambda n_threads=n_threads: n_threads)
        options = {"max_atoms": 12, "block_size": 8, "refit_every": 64, "noise_variance": None} | settings
        models.append(StreamingKernelPCA(3, kernel=kernels.RBF(0.3), **options))
        ahead.clear()
        models[-1].partial_fit(X[:5]).partial_fit(X[5:])
    assert sum(ahead) >= 5
    assert state(models[0]) == state(models[1])


def test_functions_of_the_caller_are_called_by_one_thread(monkeypatch):
    threads = set()

    def inner(X, Y):
        threads.add(threading.current_thread())
        return X @ Y.T

    monkeypatch.setattr(stream, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(stream, "blas_threads", lambda: 4)
    X = np.random.default_rng(0).normal(size=(3000, 2))
    StreamingKernelPCA(2, kernel=kernels.Custom(inner), max_atoms=None, block_size=8).partial_fit(X)
    assert threads == {threading.current_thread()}
