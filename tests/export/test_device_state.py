"""States of devices come home as models of the devices' own rows, and models go back as states."""

import copy
import zlib

import numpy as np
import pytest
from commands import run as command
from exports import NEEDS_COMPILER
from hypothesis import given
from hypothesis import strategies as st
from on_a_device import started
from scipy.linalg import cholesky, solve_triangular

from streamkpca import StreamingKernelPCA, merge
from streamkpca.export import from_device, to_device
from streamkpca.export.device_state import decode, encode, layout_of, place_of
from streamkpca.kernels import RBF, Linear
from streamkpca.stream import State
from streamkpca.stream.step import move_atoms

pytestmark = [pytest.mark.slow, NEEDS_COMPILER]
RANDOM = np.random.default_rng(5)
ANGLES = RANDOM.uniform(0.0, 2.0 * np.pi, 9000)
RING = np.column_stack([np.cos(ANGLES), np.sin(ANGLES), np.cos(2.0 * ANGLES)]) + 0.05 * RANDOM.normal(size=(9000, 3))
RING = RING.astype(np.float32).astype(np.float64)
# Rows of another place, for which devices need other atoms.
AWAY = RING + np.array([0.0, 0.0, 1.5])
HALF_LIFE = 1500.0


def gateway(half_life=None, kernel=None, n_rows=2000, **settings):
    model = StreamingKernelPCA(2, kernel=kernel or RBF(0.5), max_atoms=12, block_size=50, half_life=half_life)
    return model.set_params(**settings).partial_fit(RING[:n_rows]).refit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("devices")


@pytest.fixture(scope="module", params=[None, HALF_LIFE], ids=["forever", "half-life"])
def fleet(request, folder):
    """Let two devices learn, one rows like the gateway's and one others; return the gateway and their states."""
    model, states = gateway(request.param), []
    for rows in (RING[2000:5000], AWAY[5000:]):
        device = started(folder, model)
        device.learn(rows)
        states.append(device.saved())
    return model, states


def moments_of(model):
    return model.state_.summary.moments


def test_a_state_that_comes_home_has_the_moments_of_the_devices_rows(fleet):
    model, (state, _) = fleet
    home, rows = from_device(state, model), RING[2000:5000]
    atoms = home.state_.summary.basis.atoms
    # These rows need no other atoms, and those of the model are taken to the bit.
    np.testing.assert_array_equal(atoms, model.state_.summary.basis.atoms)
    assert home.n_samples_seen_ == 3000
    weights = np.ones(3000) if model.half_life is None else 0.5 ** (np.arange(3000)[::-1] / model.half_life)
    factor = cholesky(RBF(0.5).matrix(atoms, atoms), lower=True)
    coordinates = solve_triangular(factor, RBF(0.5).matrix(atoms, rows), lower=True)
    found, total = moments_of(home), weights.sum()
    assert found.total_weight == pytest.approx(total, rel=1e-4)
    assert found.total_squared_weight == pytest.approx((weights**2).sum(), rel=1e-3)
    np.testing.assert_allclose(found.first / total, coordinates @ weights / total, atol=1e-3)
    np.testing.assert_allclose(found.second / total, (coordinates * weights) @ coordinates.T / total, atol=1e-3)
    left = weights @ (1.0 - (coordinates**2).sum(axis=0))
    assert found.losses.total == pytest.approx(left, rel=0.05)


def test_energy_is_conserved_and_the_factor_is_that_of_the_atoms(fleet):
    model, states = fleet
    for state in states:
        home = from_device(state, model)
        summary = home.state_.summary
        basis, moments = summary.basis, summary.moments
        np.testing.assert_allclose(basis.factor @ basis.factor.T, RBF(0.5).matrix(basis.atoms, basis.atoms), atol=1e-12)
        assert np.trace(moments.second) + moments.losses.total == pytest.approx(moments.energy, rel=1e-9)
        centred = moments.second - np.outer(moments.first, moments.first) / moments.total_weight
        assert np.linalg.eigvalsh(centred)[0] > -1e-6
    # The one that has moved has found atoms of its own.
    assert not set(map(tuple, basis.atoms)) <= set(map(tuple, model.state_.summary.basis.atoms))
    assert (home.reconstruction_error(AWAY).mean()) < 0.5 * model.reconstruction_error(AWAY).mean()


def test_a_fleet_is_one_model_that_answers_learns_and_is_saved(fleet):
    model, states = fleet
    devices = [from_device(state, model) for state in states]
    union = merge(model, *devices)
    assert union.n_samples_seen_ == 9000
    moments = moments_of(union)
    parts = [moments_of(part) for part in (model, *devices)]
    for name in ("total_weight", "total_squared_weight", "energy"):
        assert getattr(moments, name) == pytest.approx(sum(getattr(part, name) for part in parts), rel=1e-9)
    assert np.trace(moments.second) + moments.losses.total == pytest.approx(moments.energy, rel=1e-9)
    both = np.concatenate([RING[2000:], AWAY])
    assert union.reconstruction_error(both).mean() < model.reconstruction_error(both).mean()
    assert union.novelty_threshold() > 0.0
    for part in (*devices, union, merge(*devices)):
        again = StreamingKernelPCA.from_bytes(part.to_bytes()).refit()
        np.testing.assert_array_equal(again.eigenvalues_, copy.copy(part).refit().eigenvalues_)
        recorded = np.trace(moments_of(again).second) * (0.5 ** (500 / model.half_life) if model.half_life else 1.0)
        again.partial_fit(AWAY[:500])
        assert again.n_samples_seen_ == part.n_samples_seen_ + 500
        found = again.refit().state_.summary.moments
        # A sample without the rows of the devices must not stand for all rows.
        assert np.trace(found.second) > 0.9 * recorded
    assert move_atoms(union.state_.summary).basis.size == union.n_atoms_


def test_a_device_goes_on_to_the_bit_with_what_it_saved_or_was_sent(fleet, folder):
    model, (state, _) = fleet
    union = merge(model, from_device(state, model))
    storage = {"sequence", "parent", "is_sent", "crc"}

    def differing(one, other):
        one, other = decode(one), decode(other)
        return {name for name in one if np.any(one[name] != other[name])}

    for data in (state, to_device(union, state)):
        one, other = (started(folder, model) for _ in range(2))
        for device in (one, other):
            assert device.load(data) == 0
        assert differing(one.saved(), data) <= storage
        one.learn(AWAY[:700])
        assert one.load() == 0
        one.learn(AWAY[:2000])
        other.learn(AWAY[:2000])
        # One has saved twice, and the other once.
        assert differing(one.saved(), other.saved()) <= storage
    home = from_device(other.saved(), union)
    assert home.n_samples_seen_ == 2000
    assert moments_of(home).energy == pytest.approx(moments_of(home).total_weight, rel=1e-3)
    with pytest.raises(ValueError, match=r"from_device: expected the state of a device with this model of 2,000 rows"):
        from_device(other.saved(), model)


def test_a_union_of_an_older_state_is_refused_and_what_came_since_is_told_apart(fleet, folder):
    model, _ = fleet
    device = started(folder, model)
    device.learn(RING[2000:3000])
    older = device.saved()
    union = merge(model, from_device(older, model))
    device.learn(RING[3000:4000])
    newest = device.saved()
    device.learn(RING[4000:4001])
    assert device.receive(to_device(union, older))
    # Rows that are not saved would be lost.
    assert device.take() == -2
    device.load()
    assert device.receive(to_device(union, older))
    assert device.take() == 1
    assert decode(device.saved())["n_rows"][0] == 4000
    later = from_device(newest, model, since=older)
    assert later.n_samples_seen_ == 1000
    alone, found = copy.copy(model).without_rows().partial_fit(RING[3000:4000]), moments_of(later)
    expected = moments_of(alone.refit())
    np.testing.assert_array_equal(later.state_.summary.basis.atoms, model.state_.summary.basis.atoms)
    assert found.total_weight == pytest.approx(expected.total_weight, rel=1e-3)
    factor = cholesky(RBF(0.5).matrix(model.atoms_, model.atoms_), lower=True)
    weights = np.ones(1000) if model.half_life is None else 0.5 ** (np.arange(1000)[::-1] / model.half_life)
    coordinates = solve_triangular(factor, RBF(0.5).matrix(model.atoms_, RING[3000:4000]), lower=True)
    np.testing.assert_allclose(found.first / found.total_weight, coordinates @ weights / weights.sum(), atol=1e-3)
    # The union of the newest state is taken, and comes home as the rows after it.
    newest = bytes(device.slots[1 - device.library.pump_slot()])
    whole = merge(union, from_device(newest, model, since=older))
    sent = to_device(whole, newest)
    assert device.receive(sent)
    assert device.take() == 0
    device.learn(RING[4000:4500])
    home = device.saved()
    assert whole.n_samples_seen_ == 4000
    for one in (from_device(home, whole), from_device(home, model, since=sent)):
        assert one.n_samples_seen_ == 500


def test_a_device_that_was_sent_a_model_answers_as_it_does(fleet, folder):
    model, states = fleet
    union = merge(model, *(from_device(state, model) for state in states))
    device = started(folder, model)
    sent = to_device(union, states[0])
    # The relation stays that of the device.
    for name in ("scales", "mean"):
        np.testing.assert_array_equal(decode(sent)[name], decode(states[0])[name])
    assert device.load(sent) == 0
    rows = np.concatenate([RING[:50], AWAY[:50]])
    np.testing.assert_allclose(device.numbers_of("novelty", rows), union.novelty(rows), rtol=1e-2, atol=1e-4)


def test_alarms_of_a_device_stay_rare_when_it_is_sent_a_union(fleet, folder):
    model, states = fleet
    parts = [from_device(state, model) for state in states]
    # One with a sample of the gateway's rows, one without any.
    for union in (merge(model, *parts), merge(*parts)):
        for state, rows in zip(states, (RING[5000:], AWAY[:4000]), strict=True):
            device = started(folder, model)
            assert device.load(to_device(union, state)) == 0
            alarms = device.learn(rows) > 0
            assert alarms.mean() < 0.06
            # The gateway's threshold alone would give a tenth of alarms at the other place.
            assert alarms[:300].mean() < (0.1 if len(union.state_.summary.reservoir) else 0.5)


def test_a_device_without_rows_of_its_own_adds_nothing(folder):
    model = gateway(HALF_LIFE)
    home = from_device(started(folder, model).saved(), model)
    assert home.n_samples_seen_ == 0
    union = merge(model, home)
    np.testing.assert_allclose(union.eigenvalues_, model.eigenvalues_, rtol=1e-6)


@pytest.mark.parametrize("half_life", [None, 1e6])
def test_rows_of_a_device_are_told_from_millions_of_the_gateway(folder, half_life):
    """A row never has less than 2^-20 of a device's means, so the model's rows have less than their weight says."""
    model = StreamingKernelPCA(2, kernel=RBF(0.5), max_atoms=12, block_size=50, half_life=half_life)
    model.partial_fit(RING[:2000], sample_weight=2000.0).refit()
    device = started(folder, model)
    # They need no other atoms.
    rows = np.tile(RING[2000:][RING[2000:, 0] > 0.0][:3000], (20, 1))
    device.learn(rows)
    home = from_device(device.saved(), model)
    basis, found = home.state_.summary.basis, moments_of(home)
    coordinates = basis.project(rows).coordinates
    assert found.total_weight == pytest.approx(60_000.0, rel=0.03)
    np.testing.assert_allclose(found.first / found.total_weight, coordinates.mean(axis=0), atol=0.01)
    expected = coordinates.T @ coordinates / len(rows)
    np.testing.assert_allclose(found.second / found.total_weight, expected, atol=0.02)


def test_linear_kernels_in_units_come_home(folder):
    model = gateway(kernel=Linear().in_units([0.5, 2.0, 1.0]))
    device = started(folder, model)
    device.learn(RING[2000:4000])
    union, whole = merge(model, from_device(device.saved(), model)), copy.copy(model).partial_fit(RING[2000:4000])
    np.testing.assert_allclose(union.eigenvalues_, whole.refit().eigenvalues_, rtol=1e-3)


# Refusals


@pytest.fixture(scope="module")
def saved(folder):
    model = gateway()
    device = started(folder, model)
    device.learn(RING[2000:2500])
    return model, device.saved()


@given(bit=st.integers(0, 10**6), cut=st.integers(0, 10**6))
def test_a_flipped_bit_or_a_cut_is_refused(saved, bit, cut):
    model, data = saved
    place = bit % (8 * len(data))
    flipped = bytearray(data)
    flipped[place // 8] ^= 1 << place % 8
    for damaged in (bytes(flipped), data[: cut % len(data)], data + b"\0" * (1 + cut % 9)):
        with pytest.raises(ValueError, match="from_device: expected the saved state of a device but"):
            from_device(damaged, model)


def with_value(data, name, value):
    """Change the first word of a field, and mend the checksum."""
    place = place_of(layout_of(12, 3), name)
    body = data[:place] + value.tobytes() + data[place + 4 : -4]
    return body + zlib.crc32(body).to_bytes(4, "little")


def test_the_state_of_another_model_is_refused(saved):
    _, data = saved
    expected = r"from_device: expected the state of a device with"
    for other, what in (
        (gateway(n_rows=1950), "this model of 1,950 rows"),
        (gateway(random_state=3).partial_fit(RING[:50]), "this model of 2,050 rows"),
        (gateway(half_life=50.0), r"half_life=50\.0 but got None"),
        (gateway(kernel=RBF(0.6)), r"the kernel RBF\(gamma=0\.6\) but got kernel values that differ by up to 0\."),
        (StreamingKernelPCA(2, max_atoms=12).partial_fit(RING[:2000, :2]), "2 features but got 3"),
    ):
        with pytest.raises(ValueError, match=f"{expected} {what}.*; pass the model that the device began with"):
            from_device(data, other)
    with pytest.raises(TypeError, match="from_device: expected a StreamingKernelPCA"):
        from_device(data, "plant.npz")
    with pytest.raises(ValueError, match=r"to_device: expected the .* max_atoms=12 but got .* and 16; set max_atoms"):
        to_device(gateway(max_atoms=16), data)
    with pytest.raises(ValueError, match="to_device: expected the state of a device with the kernel"):
        to_device(gateway(kernel=RBF(0.6)), data)


def test_only_an_earlier_state_of_the_device_tells_what_came_since(saved, folder):
    model, data = saved
    other = gateway(kernel=RBF(0.6))
    for since, what in (
        (with_value(data, "n_rows", np.uint32(2501)), "2,501 rows and save 1"),
        (with_value(data, "sequence", np.uint32(2)), "2,500 rows and save 2"),
        (with_value(data, "origin", np.uint32(2)), "another beginning"),
        (to_device(other), "another beginning"),
    ):
        with pytest.raises(ValueError, match=f"expected since to be an earlier .* 2,500 rows and save 1, .*{what}; pa"):
            from_device(data, model, since=since)
    assert from_device(data, model, since=data).n_samples_seen_ == 0


def test_damage_with_a_right_checksum_is_refused(saved):
    model, data = saved
    with pytest.raises(ValueError, match="it holds NaN or infinity"):
        from_device(with_value(data, "waiting_count", np.float32(np.nan)), model)
    for name, value in (("n_rows", np.uint32(7)), ("energy", np.float32(-1.0)), ("total_weight", np.float32(-3e4))):
        with pytest.raises(ValueError, match="from_device: expected the state of a device with an account of its rows"):
            from_device(with_value(data, name, value), model)


# The samples


def test_a_model_whose_sample_lacks_rows_is_not_recorded_anew(saved):
    model, data = saved
    home = from_device(data, model)
    assert isinstance(home.state_, State)
    summary = home.state_.summary
    assert summary.sampled_share == 0.0
    assert not summary.samples_all_rows
    assert model.state_.summary.sampled_share == pytest.approx(1.0, abs=0.2)
    young = gateway(n_rows=500)
    assert young.state_.summary.samples_all_rows
    # Few rows of Python's own join the sample, and would have stood for all.
    home.partial_fit(RING[:600])
    found = moments_of(home.refit())
    assert np.trace(found.second) > 0.95 * found.energy
    assert found.total_weight == pytest.approx(1100.0, rel=1e-5)


def test_atoms_are_dropped_by_moments_where_the_sample_lacks_most_rows(fleet):
    model, states = fleet
    union = merge(*(from_device(state, model) for state in states))
    assert union.n_atoms_ == 12
    # Both places keep atoms; an empty sample would have dropped those that came last, and so a whole place.
    assert union.reconstruction_error(AWAY).mean() < 0.6 * model.reconstruction_error(AWAY).mean()
    assert union.reconstruction_error(RING).mean() < 0.2


# The command


def test_the_command_merges_models_and_states(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, data = saved
    model.save("plant.npz")
    (tmp_path / "a.bin").write_bytes(data)
    gateway(n_rows=300).save("east.npz")
    done = command("merge", "plant.npz", "a.bin", "east.npz", "--out", "fleet.npz")
    assert done.exit_code == 0, done.stderr
    assert "2800" in done.stdout
    union = StreamingKernelPCA.load("fleet.npz")
    expected = merge(model, from_device(data, model), gateway(n_rows=300))
    np.testing.assert_array_equal(union.eigenvalues_, expected.eigenvalues_)
    (tmp_path / "b.bin").write_bytes(data[:-1])
    for arguments, message in (
        (["plant.npz", "b.bin", "--out", "o.npz"], "b.bin: expected the saved state of a device"),
        (["plant.npz", "a.bin", "./a.bin", "--out", "o.npz"], "./a.bin: is given twice"),
        (["plant.npz", "a.bin", "--out", "plant.npz"], "plant.npz: is read as input"),
        (["a.bin", "plant.npz", "--out", "o.npz"], "a.bin: is the state of a device; name the model that it began"),
    ):
        refused = command("merge", *arguments)
        assert refused.exit_code in (1, 2)
        assert message in refused.stderr
    assert not (tmp_path / "o.npz").exists()


def test_a_model_of_few_rows_takes_what_its_device_brings_home():
    # Its kernel's scale is settled with the first block only, that of the C file on these rows.
    model = StreamingKernelPCA(max_atoms=12).partial_fit(RING[:300])
    device = from_device(to_device(model), model)
    assert model.state_.summary is None
    for models in ((model, device), (device, model)):
        union = merge(*models)
        assert union.n_samples_seen_ == 300
        assert union.kernel_ == model.kernel_
    with pytest.raises(ValueError, match="merge: expected a model with the kernel"):
        merge(StreamingKernelPCA(max_atoms=12).partial_fit(2.0 * RING[:300]), device)


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_single_precision_are_refused():
    for model in (gateway(kernel=RBF(1e80)), StreamingKernelPCA(kernel=RBF(0.5), max_atoms=12)):
        model.partial_fit(1e50 * RING[:100], sample_weight=np.full(100, 1e30))
        with pytest.raises(ValueError, match="to_device: expected numbers of single precision"):
            to_device(model)
    # These would be rounded to zero, by which devices divide.
    for kernel, size, what in ((RBF(), 1e50, "scale"), (Linear(), 1e-25, "unit")):
        model = StreamingKernelPCA(kernel=kernel, max_atoms=12).partial_fit(size * RING[:100])
        with pytest.raises(ValueError, match=f"to_device: expected numbers of single precision but {what} is beyond"):
            to_device(model)


@pytest.mark.parametrize("name", ["seed", "sequence"])
def test_numbers_of_a_device_go_round(name):
    values = decode(to_device(gateway())) | {name: 2**32 - 1}
    assert decode(to_device(gateway(), encode(values)))[name] == 0
