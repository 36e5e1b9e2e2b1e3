"""The account of losses against what rows really lost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary.moments import ProjectionLoss

SEEDS = st.integers(0, 10**6)


def test_an_account_begins_with_nothing():
    assert ProjectionLoss().total == ProjectionLoss().orthogonal == ProjectionLoss().other_distance == 0.0


def test_entries_add_up_and_growth_makes_them_stale():
    losses = ProjectionLoss().arrived(4.0).removed(9.0)
    assert (losses.on_arrival, losses.by_removal, losses.total, losses.orthogonal) == (4.0, 9.0, 13.0, 13.0)
    assert losses.other_distance == 0.0
    grown = losses.span_grown()
    assert (grown.on_arrival, grown.by_removal, grown.orthogonal) == (4.0, 9.0, 0.0)
    assert grown.other_distance == 5.0
    # Arrivals are of other rows, so squares add up; removals may be of the same rows, so lengths do.
    again = grown.arrived(12.0).removed(4.0).span_grown()
    assert again.other_distance == pytest.approx(4.0 + 3.0 + 2.0)
    assert again.total == 29.0


def test_rounding_is_kept_whatever_happens_to_the_span():
    losses = ProjectionLoss().arrived(1.0, 0.25).rounded(0.5).removed(1.0).span_grown()
    assert losses.rounding == 0.75
    assert losses.decayed(0.5).rounding == 0.375
    assert losses.merged(losses).rounding == 1.5
    assert losses.total == 2.0


def test_rounding_never_makes_a_length_imaginary():
    losses = ProjectionLoss().arrived(-1e-18).removed(-1e-18)
    assert losses.orthogonal == 0.0
    assert losses.span_grown().other_distance == 0.0


@given(st.floats(0.0, 1.0), st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_fading_scales_energies_and_the_roots_of_lengths(factor, arrival, removal):
    losses = ProjectionLoss().arrived(arrival).removed(removal).span_grown().arrived(arrival)
    decayed = losses.decayed(factor)
    assert decayed.total == pytest.approx(factor * losses.total)
    assert decayed.other_distance == pytest.approx(math.sqrt(factor) * losses.other_distance)


def test_losses_of_different_rows_add_as_squares():
    merged = ProjectionLoss().removed(9.0).merged(ProjectionLoss().removed(16.0).arrived(1.0))
    assert merged.other_distance == pytest.approx(1.0 + 5.0)
    assert merged.orthogonal == 0.0
    assert merged.total == 26.0


@given(SEEDS, st.lists(st.sampled_from(["rows", "grow", "shrink"]), min_size=1, max_size=12))
def test_the_bounds_hold_for_rows_in_a_plane(seed, events):
    """Rows, a span that grows and shrinks along random directions, and what is recorded of them."""
    rng = np.random.default_rng(seed)
    d, rows, recorded = 6, np.empty((0, 6)), np.empty((0, 6))
    basis, losses = np.empty((0, d)), ProjectionLoss()
    for event in events:
        if event == "rows":
            new = rng.normal(size=(5, d))
            kept = new @ basis.T @ basis
            losses = losses.arrived(float((new**2).sum() - (kept**2).sum()))
            rows, recorded = np.vstack([rows, new]), np.vstack([recorded, kept])
        elif event == "grow" and len(basis) < d:
            basis = np.linalg.qr(np.vstack([basis, rng.normal(size=(1, d))]).T)[0].T
            losses = losses.span_grown()
        elif event == "shrink" and len(basis):
            basis = np.linalg.qr(rng.normal(size=(len(basis), len(basis))))[0][1:] @ basis
            kept = recorded @ basis.T @ basis
            losses = losses.removed(float((recorded**2).sum() - (kept**2).sum()))
            recorded = kept
    assert losses.total + (recorded**2).sum() == pytest.approx((rows**2).sum())
    if not len(rows):
        return
    true, seen = (np.linalg.svd(part, compute_uv=False) for part in (rows, recorded))
    assert np.all(true >= seen - losses.other_distance - 1e-9)
    assert np.all(true <= np.sqrt(seen**2 + losses.orthogonal) + losses.other_distance + 1e-9)
