import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.components import snapshot
from streamkpca.components.refit import RefitSettings
from streamkpca.errors import SparsityWarning
from streamkpca.kernels import RBF
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.state import Stream

ROWS = np.random.default_rng(0).normal(size=(120, 2))
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, 120)


def settings_of(*, noise_variance=None, **changes):
    defaults = {"kernel": RBF(0.5), "max_atoms": 6, "tolerance": 1e-3, "block_size": 8, "refit_every": 32}
    defaults |= {"half_life": None, "reservoir_size": 16, "random_state": 0, "skips_bad_rows": False}
    return StreamSettings(**(defaults | changes), refit=RefitSettings(2, True, noise_variance=noise_variance))


def stream_of(n, settings=None, *, publish=True):
    stream = Stream(settings or settings_of(), 2, None)
    stream.take(ROWS[:n], WEIGHTS[:n], settings or settings_of(), publish=publish)
    return stream


def bits(stream):
    """Take down what was learned."""
    summary, scheduled = stream.summary, stream.scheduled
    pending = stream.pending.rows.tobytes(), stream.pending.weights.tobytes()
    parts = [stream.n_rows, stream.n_rows_at_refit, pending]
    if summary is not None:
        arrays = [
            summary.basis.factor,
            summary.moments.second,
            summary.moments.first,
            summary.atom_stats.weight_since_admission,
        ]
        parts += [part.tobytes() for part in [*arrays, summary.atom_stats.positions]]
    if scheduled is not None:
        parts += [part.tobytes() for part in (scheduled.projection, scheduled.weights, scheduled.eigenvalues)]
    return parts


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_cuts_do_not_matter(sizes):
    n = min(sum(sizes), 120)
    settings = settings_of(noise_variance="auto")
    whole, parts = stream_of(n, settings), Stream(settings, 2, None)
    for start, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
        if start < n:
            piece = slice(start, min(start + size, n))
            parts.take(ROWS[piece], WEIGHTS[piece], settings, publish=True)
    assert bits(parts) == bits(whole)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 119])
def test_rows_wait_until_their_block_is_full(n):
    stream = stream_of(n)
    assert (stream.n_rows, stream.pending.n_rows) == (n, n % 8)
    assert (stream.summary.n_rows if stream.summary else 0) == n - n % 8
    assert (stream.scheduled is None) == (n < 8)
    stream.flush(settings_of())
    assert (stream.n_rows, stream.pending.n_rows, stream.summary.n_rows) == (n, 0, n)
    assert stream.summary.moments.total_weight == pytest.approx(WEIGHTS[:n].sum())


def test_refits_follow_growth_then_the_interval():
    seen, stream = [], Stream(settings_of(), 2, None)
    for i in range(120):
        before = stream.scheduled
        stream.take(ROWS[i : i + 1], WEIGHTS[i : i + 1], settings_of(), publish=True)
        if stream.scheduled is not before:
            assert stream.published is stream.scheduled
            seen.append(i + 1)
    # Every block until growth by a quarter exceeds one block of 8, never more than 32 rows apart.
    assert seen == [8, 16, 24, 32, 40, 56, 72, 96, 120]
    assert stream.scheduled.total_weight == pytest.approx(WEIGHTS.sum())


def test_nothing_is_published_where_nobody_asked():
    stream = stream_of(120, publish=False)
    assert stream.scheduled is stream.published is None
    assert stream.n_rows_at_refit == 0


def test_publishing_takes_in_pending_rows_and_leaves_the_stream():
    stream = stream_of(117)
    before = bits(stream)
    snapshot = stream.publish(settings_of())
    assert snapshot.total_weight == pytest.approx(WEIGHTS[:117].sum())
    assert bits(stream) == before
    summary, atoms = stream.state(settings_of())
    assert summary.basis.kernel == RBF(0.5)
    assert atoms.are_atoms
    np.testing.assert_array_equal(ROWS[atoms.positions], atoms.rows)
    assert summary.moments.total_weight == pytest.approx(WEIGHTS[:117].sum())
    assert bits(stream) == before


def test_an_older_copy_does_not_notice():
    stream = stream_of(13)
    before = bits(stream)
    newer = copy.copy(stream)
    newer.take(ROWS[13:], WEIGHTS[13:], settings_of(), publish=True)
    assert bits(stream) == before
    assert bits(newer) == bits(stream_of(120))
    other = copy.copy(stream)
    other.take(ROWS[13:15], WEIGHTS[13:15], settings_of(), publish=True)
    assert bits(other) == bits(stream_of(15))


def test_new_rows_make_the_provisional_answers_stale():
    stream = stream_of(5)
    first = stream.read_provisional(settings_of())
    assert stream.read_provisional(settings_of()) is first
    stream.take(ROWS[5:6], WEIGHTS[5:6], settings_of(), publish=True)
    assert stream.read_provisional(settings_of()).total_weight == pytest.approx(WEIGHTS[:6].sum())


def test_the_kernel_is_settled_on_the_first_block():
    settings = settings_of(kernel=RBF())
    stream = stream_of(100, settings)
    assert stream.summary.basis.kernel == RBF().settled(ROWS[:8], WEIGHTS[:8])
    assert stream.kernel == RBF()
    young = stream_of(5, settings)
    assert young.publish(settings).kernel == RBF().settled(ROWS[:5], WEIGHTS[:5])


def test_sparsity_that_cannot_be_had_stops_no_stream():
    impossible = settings_of(noise_variance=50.0)
    with pytest.warns(SparsityWarning, match="leaves no atom active.*; until then all atoms are used"):
        first = stream_of(8, impossible)
    assert first.scheduled.weights.tolist() == [1.0] * len(first.scheduled.atoms)
    stream = stream_of(40)
    last = stream.scheduled
    with pytest.warns(SparsityWarning, match="leaves no atom active.*; until then the last axes stay"):
        stream.take(ROWS[40:80], WEIGHTS[40:80], impossible, publish=True)
    assert stream.scheduled is last
    assert stream.n_rows == 80


def test_what_is_published_is_ready_for_single_rows(monkeypatch):
    stream = stream_of(40)

    def refuse(*arguments):
        raise AssertionError("a single row had to wait for preparations")

    monkeypatch.setattr(snapshot, "PreparedKernel", refuse)
    monkeypatch.setattr(snapshot, "inverse_factor", refuse)
    published = stream.published
    np.testing.assert_allclose(published.transform(ROWS[:1]), published.transform(ROWS[:9])[:1])
    np.testing.assert_allclose(published.reconstruction_error(ROWS[:1]), published.reconstruction_error(ROWS[:9])[:1])
