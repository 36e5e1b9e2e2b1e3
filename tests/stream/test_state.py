"""States stay as they are, publish and refuse; their pending rows keep their order."""

import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
from comparisons import bits_of_stream as bits
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.components import snapshot
from streamkpca.components.refit import RefitSettings
from streamkpca.errors import SparsityWarning
from streamkpca.kernels import RBF
from streamkpca.stream.parameters import Settings
from streamkpca.stream.state import RowBuffer, State, latest_axes, record_pending, totals_and_sample
from streamkpca.stream.transitions import advance, fit, forget, merge, refit

ROWS = np.random.default_rng(0).normal(size=(120, 2))
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, 120)


def settings_of(*, noise_variance=None, **changes):
    defaults = {"kernel": RBF(0.5), "max_atoms": 6, "tolerance": 1e-3, "block_size": 8, "refit_every": 32}
    defaults |= {"half_life": None, "reservoir_size": 16, "random_state": 0}
    return Settings(**(defaults | changes), refit=RefitSettings(2, True, noise_variance=noise_variance))


def stream_of(n, settings=None):
    settings = settings or settings_of()
    return advance(State.begin(settings, 2), ROWS[:n], WEIGHTS[:n], settings)


@pytest.mark.parametrize("n", [1, 5, 8, 13])
def test_a_stream_stays_as_it_is_whatever_is_learned_from_it(n):
    settings, stream = settings_of(), stream_of(n)
    before = bits(stream)
    later = [
        (advance(stream, ROWS[i:j], WEIGHTS[i:j], settings), slice(i, j)) for i, j in [(20, 22), (40, 43), (60, 80)]
    ]
    assert bits(stream) == before
    for found, piece in later:
        rows, weights = np.vstack([ROWS[:n], ROWS[piece]]), np.append(WEIGHTS[:n], WEIGHTS[piece])
        assert bits(found) == bits(advance(State.begin(settings, 2), rows, weights, settings))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 119])
def test_rows_wait_until_their_block_is_full(n):
    stream = stream_of(n)
    assert (stream.n_rows, stream.pending.n_rows) == (n, n % 8)
    assert (stream.summary.n_rows if stream.summary else 0) == n - n % 8
    assert (stream.scheduled is None) == (n < 8)
    whole = record_pending(stream, settings_of())
    assert whole.n_rows == n
    assert whole.moments.total_weight == pytest.approx(WEIGHTS[:n].sum())


def test_publishing_takes_in_pending_rows_and_leaves_the_stream():
    stream = stream_of(117)
    before = bits(stream)
    refitted = refit(stream, settings_of())
    assert refitted.published.total_weight == pytest.approx(WEIGHTS[:117].sum())
    assert bits(stream) == before
    assert bits(refitted) | {"published": None} == before | {"published": None}
    summary = record_pending(stream, settings_of())
    assert summary.basis.kernel == RBF(0.5)
    np.testing.assert_array_equal(ROWS[summary.atom_stats.positions], summary.basis.atoms)
    assert summary.moments.total_weight == pytest.approx(WEIGHTS[:117].sum())
    assert bits(stream) == before


@pytest.mark.parametrize(("n", "half_life"), [(3, 20.0), (8, None), (117, 20.0)])
def test_certificates_read_sums_and_samples_and_look_for_no_atoms(monkeypatch, n, half_life):
    settings = settings_of(half_life=half_life)
    # A rejected row, which has weight zero, waits among the pending ones.
    rejected = advance(stream_of(n - 1, settings), ROWS[n - 1 : n], 0.0, settings)
    stream = advance(rejected, ROWS[:1], 1.0, settings)
    expected = record_pending(stream, settings)
    before = bits(stream)

    def refuse(*arguments, **options):
        raise AssertionError("a question searched for atoms")

    for name in ("search_block", "record_block", "shrink"):
        monkeypatch.setattr(sys.modules["streamkpca.stream.step"], name, refuse)
    totals, reservoir = totals_and_sample(stream, settings)
    np.testing.assert_array_equal(reservoir.positions, expected.reservoir.positions)
    np.testing.assert_array_equal(reservoir.rows, expected.reservoir.rows)
    np.testing.assert_array_equal(reservoir.keys, expected.reservoir.keys)
    np.testing.assert_array_equal(reservoir.weights, expected.reservoir.weights)
    moments = expected.moments
    assert totals.total_weight == pytest.approx(moments.total_weight, rel=1e-14)
    assert totals.energy == pytest.approx(moments.energy, rel=1e-14)
    assert totals.largest_energy == moments.largest_energy
    assert bits(stream) == before


def test_new_rows_make_the_provisional_answers_stale():
    stream = stream_of(5)
    first = latest_axes(stream, settings_of())
    assert latest_axes(stream, settings_of()) is first
    stream = advance(stream, ROWS[5:6], WEIGHTS[5:6], settings_of())
    assert latest_axes(stream, settings_of()).total_weight == pytest.approx(WEIGHTS[:6].sum())


def test_sparsity_that_cannot_be_had_stops_no_stream():
    impossible = settings_of(noise_variance=50.0)
    with pytest.warns(SparsityWarning, match="leaves no atom active.*; until then all atoms are active"):
        first = stream_of(8, impossible)
    assert first.scheduled.weights.tolist() == [1.0] * len(first.scheduled.atoms)
    stream = stream_of(40)
    with pytest.warns(SparsityWarning, match="leaves no atom active.*; until then all atoms are active"):
        stream = advance(stream, ROWS[40:80], WEIGHTS[40:80], impossible)
    assert stream.n_rows == 80
    # The axes are of all rows at the last refit, not of those at the last that found weights.
    assert stream.scheduled.weights.tolist() == [1.0] * len(stream.scheduled.atoms)
    assert stream.n_rows_at_refit > 40
    assert stream.scheduled.total_weight == pytest.approx(WEIGHTS[: stream.n_rows_at_refit].sum())
    with pytest.warns(SparsityWarning, match="all atoms are active"):
        assert refit(stream, impossible).published.total_weight == pytest.approx(WEIGHTS[:80].sum())


def test_what_is_published_is_ready_for_single_rows(monkeypatch):
    stream = stream_of(40)

    def refuse(*arguments):
        raise AssertionError("a single row had to wait for preparations")

    monkeypatch.setattr(snapshot, "PreparedKernel", refuse)
    published = stream.published
    np.testing.assert_allclose(published.transform(ROWS[:1]), published.transform(ROWS[:9])[:1])
    np.testing.assert_allclose(published.reconstruction_error(ROWS[:1]), published.reconstruction_error(ROWS[:9])[:1])


@pytest.mark.parametrize("learn", [advance, fit])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": np.full((3, 2), np.nan)}, "X contains NaN .first at row 0, column 0; 3 of 3"),
        ({"rows": np.array([[1.0, -np.inf]]), "missing": "marginal"}, "X contains infinity"),
        ({"weights": -1.0}, r"sample_weight\[0\] is -1.0"),
        ({"weights": np.full(120, np.nan)}, r"sample_weight\[0\] is nan"),
        ({"weights": np.ones(3)}, r"sample_weight has shape \(3,\) but X has 120 rows"),
        ({"block_size": 16}, "block_size and reservoir_size cannot change within a stream"),
    ],
)
def test_rows_weights_and_settings_that_would_spoil_a_state_are_refused(learn, changes, message):
    began = settings_of(missing=changes.get("missing", "raise"))
    changes = {"rows": ROWS, "weights": 1.0, **changes}
    rows, weights, stream = changes.pop("rows"), changes.pop("weights"), State.begin(began, 2)
    with pytest.raises(ValueError, match=f"{learn.__name__}: .*{message}"):
        learn(stream, rows, weights, settings_of(**changes))


@pytest.mark.parametrize("learn", [advance, fit])
def test_numbers_of_rows_and_features_are_counts(learn):
    for n_rejected in (-1, len(ROWS) + 1):
        with pytest.raises(ValueError, match=rf"^{learn.__name__}: n_rejected must be at .*, got {n_rejected}"):
            learn(State.begin(settings_of(), 2), ROWS, 1.0, settings_of(), n_rejected=n_rejected)
    with pytest.raises(ValueError, match=r"^State\.begin: n_features must be at least 1, got 0"):
        State.begin(settings_of(), 0)


@pytest.mark.parametrize("rows", [np.ma.masked_less(ROWS, 0.0), np.asarray(ROWS, dtype=np.float32), ROWS.tolist()])
def test_rows_are_plain_arrays(rows):
    with pytest.raises(ValueError, match=f"advance: expected rows as a float64 array .* got {type(rows).__name__};"):
        advance(State.begin(settings_of(), 2), rows, 1.0, settings_of())


def test_only_a_state_of_no_rows_is_fitted_and_to_rows_that_count():
    with pytest.raises(ValueError, match="no rows but got one of 13; advance adds rows"):
        fit(stream_of(13), ROWS, 1.0, settings_of())
    with pytest.raises(ValueError, match=r"none of the \d+ rows can be used"):
        fit(State.begin(settings_of(), 2), ROWS, 0.0, settings_of())


def test_a_merge_keeps_the_last_drift_in_the_count_of_all_rows():
    one, other = stream_of(16), stream_of(24)
    other = replace(other, summary=replace(other.summary, last_drift=20))
    assert merge(one, [(other, settings_of())], settings_of()).summary.last_drift == 36
    assert merge(other, [(one, settings_of())], settings_of()).summary.last_drift == 20


@pytest.mark.parametrize("factor", [-0.5, 2.0, np.nan])
def test_factors_that_are_no_share_are_refused(factor):
    with pytest.raises(ValueError, match=r"forget: factor must be a finite number in \[0, 1\]"):
        forget(stream_of(13), factor)


# Pending rows


@given(st.lists(st.integers(0, 40), max_size=8))
def test_rows_stay_in_order_and_older_values_do_not_change(sizes):
    values, start = [RowBuffer.empty(2)], 0
    for size in sizes:
        piece = slice(start, min(start + size, 119))
        values.append(values[-1].join(ROWS[piece], WEIGHTS[piece]))
        start = piece.stop
    stops = np.minimum(np.cumsum([0, *sizes]), 119)
    for value, stop in zip(values, stops, strict=True):
        assert value.n_rows == stop
        np.testing.assert_array_equal(value.rows, ROWS[:stop])
        np.testing.assert_array_equal(value.weights, WEIGHTS[:stop])


def test_single_rows_do_not_become_ever_more_pieces():
    pending = RowBuffer.empty(2)
    for i in range(600):
        pending = pending.join(ROWS[i % 120 : i % 120 + 1], 1.0)
        assert len(pending.row_pieces) <= 256
    np.testing.assert_array_equal(pending.rows, np.tile(ROWS, (5, 1)))


def test_equal_buffers_have_equal_pickles():
    """However their rows were cut."""
    whole = RowBuffer.empty(2).join(ROWS[:3], WEIGHTS[:3])
    cut = RowBuffer.empty(2).join(ROWS[:1], WEIGHTS[:1]).join(ROWS[1:3], WEIGHTS[1:3])
    assert pickle.dumps(whole) == pickle.dumps(cut)
    again = pickle.loads(pickle.dumps(cut)).join(ROWS[9:11], 3.0)
    np.testing.assert_array_equal(again.rows, np.concatenate([ROWS[:3], ROWS[9:11]]))
    np.testing.assert_array_equal(again.weights, [*WEIGHTS[:3], 3.0, 3.0])
