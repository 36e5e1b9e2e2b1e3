"""The simulated plant: the same for the same seed, faults where they are said to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.cli.demo import BLOCK_ROWS, FAULT_KINDS, N_SENSORS, simulate_plant


def stream(n_rows, seed=0):
    rows, faults = zip(*simulate_plant(n_rows, seed=seed), strict=True)
    return np.concatenate(rows), np.concatenate(faults)


@given(st.integers(1, 3500), st.integers(0, 5))
def test_a_shorter_stream_is_the_beginning_of_a_longer_one(n_rows, seed):
    short, long = stream(n_rows, seed), stream(3500, seed)
    for a, b in zip(short, long, strict=True):
        assert len(a) == n_rows
        np.testing.assert_array_equal(a, b[:n_rows])


def test_another_seed_is_another_plant():
    assert not np.allclose(stream(10)[0], stream(10, seed=1)[0])


def test_the_stream_begins_healthy_and_has_all_faults():
    rows, faults = stream(60_000)
    assert rows.shape == (60_000, N_SENSORS)
    assert np.isfinite(rows).all()
    assert not faults[: 2 * BLOCK_ROWS].any()
    assert set(np.unique(faults)) == set(range(len(FAULT_KINDS)))
    assert 0.002 < (faults > 0).mean() < 0.05


def test_a_stuck_sensor_repeats_its_reading():
    rows, faults = stream(60_000)
    stuck = np.flatnonzero(faults == FAULT_KINDS.index("stuck"))
    first = stuck[np.diff(stuck, prepend=-9) > 1]
    assert len(first)
    for row in first:
        assert ((rows[row : row + 20] == rows[row]).all(axis=0)).sum() == 2


def test_sensors_are_correlated_and_drift():
    rows, faults = stream(200_000)
    healthy = rows[faults == 0]
    spectrum = np.linalg.eigvalsh(np.cov(healthy[::20].T))[::-1]
    assert spectrum[:3].sum() / spectrum.sum() > 0.8
    moved = np.abs(healthy[:20_000].mean(axis=0) - healthy[-20_000:].mean(axis=0))
    assert (moved > 0.1).any()


@pytest.mark.parametrize(("n_rows", "seed", "error"), [(0, 0, ValueError), (10, -1, ValueError), (1.5, 0, TypeError)])
def test_bad_arguments_are_refused(n_rows, seed, error):
    with pytest.raises(error, match=r"simulate_plant: (n_rows|seed) must be"):
        next(simulate_plant(n_rows, seed=seed))
