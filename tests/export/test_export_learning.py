"""C files that learn: the bits of the reference, the account, thresholds, saved states, and inputs of all kinds."""

import os
import re
import shutil
from functools import partial

import numpy as np
import pytest
from device_reference import ReferenceDevice
from exports import COMPILER, NEEDS_COMPILER, drawn_rows, rarity_of, run, run_with_sanitizers
from on_a_device import FLAGS, started

from streamkpca import KernelPCA, StreamingKernelPCA
from streamkpca.export import device_state, to_c_learner
from streamkpca.export.views import fit_views
from streamkpca.kernels import RBF, Laplacian, Linear
from streamkpca.monitoring import Monitor

pytestmark = [pytest.mark.slow, NEEDS_COMPILER]
NARROW = RBF(0.3)


def moving_rows(n, d=3, seed=0):
    """Draw rows of regimes that come one after the other, so that atoms are replaced."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0.0, 2.0 * np.pi, (n, 2))
    rows = np.hstack([np.sin(angles), np.cos(angles)]) @ np.random.default_rng(1).normal(size=(4, d))
    rows += 0.1 * rng.normal(size=(n, d)) + np.sin(np.arange(n) // 700)[:, None] + 50.0
    return rows.astype(np.float32).astype(np.float64)


def taught(rows, kernel=NARROW, **settings):
    settings = {"max_atoms": 8, "half_life": 800, "random_state": 0, **settings}
    return StreamingKernelPCA(2, kernel=kernel, **settings).partial_fit(rows)


def reference_of(model):
    """Return the reference of a device that begins with a model."""
    values = device_state.decode(device_state.encode(device_state.values_of(model)))
    return ReferenceDevice(values, device_state.device_tables(fit_views(model), values))


def lost_on_arrival(state):
    return state.values["lost_on_arrival"] * state.values["unit"] * state.sums.total_weight


@pytest.fixture
def make(tmp_path):
    return partial(started, tmp_path)


@pytest.mark.parametrize(
    ("kernel", "n", "max_atoms"),
    [
        (RBF(0.3), 3000, 8),
        (RBF(0.05), 4000, 1),
        (Linear().in_units("std"), 1000, 8),
        pytest.param(2.0 * RBF("spread").in_units("std"), 12_000, 8, marks=pytest.mark.engines),
        pytest.param(Linear(), 6000, 1, marks=pytest.mark.engines),
    ],
)
def test_every_bit_is_that_of_the_reference(kernel, n, max_atoms, make):
    rows = moving_rows(int(os.environ.get("STREAMKPCA_DEVICE_ROWS", n)))
    model = taught(rows[:1000], kernel, half_life=None if "2.0" in repr(kernel) else 800, max_atoms=max_atoms)
    # The first atom explains no row any more.
    rows[1500:] += 10.0 * (max_atoms == 1)
    rows[7] = np.nan
    device, admitted = make(model), set()
    reference = reference_of(model)
    for start in range(0, len(rows), 1000):
        part = rows[start : start + 1000]
        np.testing.assert_array_equal(device.learn(part), [reference.update(row) for row in part])
        np.testing.assert_array_equal(device.numbers_of("rarity", part[::9]), list(map(reference.rarity, part[::9])))
        values = device_state.decode(device.saved())
        assert not reference.differences(values)
        assert len(reference.first) == values["n_atoms"] >= model.n_atoms_
        admitted |= {row.tobytes() for row in values["atoms"][: values["n_atoms"]]}
    assert "Linear" in repr(kernel) or len(admitted) > model.max_atoms


@pytest.mark.engines
def test_the_account_and_the_factor_hold_through_a_thousand_replacements(make):
    rows = moving_rows(300_000)
    device = make(taught(rows[:1000]))
    device.learn(rows)
    state = device_state.read(device.saved())
    lost = lost_on_arrival(state) + state.lost_by_removal
    assert np.trace(state.sums.second) + lost == pytest.approx(state.sums.energy, rel=1e-4)
    assert state.n_rows == 301_000
    assert state.sums.total_weight == pytest.approx(1.0 / (1.0 - 2.0 ** (-1 / 800)), rel=1e-5)
    np.testing.assert_allclose(state.factor @ state.factor.T, RBF(0.3).matrix(state.atoms), atol=1e-4)


@pytest.mark.engines
def test_equal_rows_saturate(make):
    device = make(taught(moving_rows(1000), half_life=None))
    rows = np.repeat(moving_rows(1), 1_000_000, axis=0)
    for _ in range(3):
        device.learn(rows)
    state = device_state.read(device.saved())
    assert state.sums.total_weight == state.n_rows == 3_001_000
    assert np.trace(state.sums.second) + lost_on_arrival(state) + state.lost_by_removal == pytest.approx(
        state.sums.energy, rel=2e-3
    )


@pytest.mark.engines
def test_alarms_come_once_in_their_return_period_wherever_the_levels_begin(make):
    rows = drawn_rows(0, 60_000)
    model = taught(rows[:2000], RBF("spread"), max_atoms=16, half_life=None)
    device = make(model, return_period=50)
    begun = device_state.decode(device.saved())
    for factor in (0.1, 1.0, 10.0):
        assert device.load(device_state.encode(begun | {"threshold": factor * begun["threshold"]})) == 0
        found = device.learn(rows[2000:])[30_000:]
        assert 0.01 < (found > 0).mean() < 0.04
        assert {1, 2} <= set(found.tolist())


def test_answers_are_those_of_the_model(make):
    rows = moving_rows(1500)
    for kernel in (Linear().in_units("std"), (2.0 * RBF(0.5)).in_units([1.0, 2.0, 0.5])):
        model = taught(rows, kernel).refit()
        device, asked = make(model), np.concatenate([rows[:40], rows[:5] + 100.0])
        novelty, own = model.novelty(asked), np.abs(model.kernel_.diagonal(asked)).max()
        np.testing.assert_allclose(device.numbers_of("novelty", asked), novelty, rtol=1e-4, atol=1e-4 * own)
        found = device.numbers_of("rarity", asked)
        rarity = rarity_of(model, asked, 1e-5 * own)
        # Those of the model are steps between the scores of sampled rows, those of the device are lines.
        assert ((0.5 * rarity < found) & (found < 2.0 * rarity))[:40].all()
        assert (found[40:] > 1000.0).all()
        assert (device.learn(asked[40:]) > 0).all()


def test_numbers_that_break_the_relation_are_named_with_what_is_expected(make):
    angle = np.random.default_rng(0).uniform(0.0, 2.0 * np.pi, 3000)
    rows = np.sin(angle[:, None] + np.arange(6)) + 0.05 * np.random.default_rng(1).normal(size=(3000, 6))
    device = make(taught(1000.0 * rows + 5000.0, RBF("spread").in_units("std"), max_atoms=32, half_life=None))
    relation, broken = fit_views(device.model).relation, 1000.0 * rows[:300] + 5000.0
    columns = np.arange(300) % 6
    broken[np.arange(300), columns] += 500.0
    most, expected, terms = device.explain(broken)
    np.testing.assert_array_equal(most, columns)
    np.testing.assert_allclose(expected, broken - relation.scale * relation.residuals(broken), rtol=1e-5)
    np.testing.assert_allclose(terms, relation.terms(broken), rtol=1e-3, atol=1e-4)
    # What is missing is predicted by the others.
    broken[np.arange(300), columns] = np.nan
    found = device.explain(broken)[1][np.arange(300), columns]
    np.testing.assert_allclose(found, expected[np.arange(300), columns], rtol=1e-5)
    assert (device.learn(1000.0 * rows[300:] + 5000.0) > 0).mean() < 0.03
    assert (device.learn(1000.0 * rows[:50] + 5000.0 + 500.0 * np.eye(6)[2]) > 0).mean() > 0.9


def test_the_relation_follows_the_mean_of_a_device(make):
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(30_000, 1)), 3, axis=1) + 0.1 * rng.normal(size=(30_000, 3))
    device = make(taught(rows[:1000], RBF("spread"), half_life=500))
    # A sensor with an offset of its own is surprising at first, and expected later.
    rows[1000:, 1] += 1.0
    before = device.explain(rows[1000:1100])[1][:, 1]
    device.learn(rows[1000:])
    after = device.explain(rows[1000:1100])[1][:, 1]
    assert np.abs(before - rows[1000:1100, 1] + 1.0).mean() < 0.2
    assert np.abs(after - rows[1000:1100, 1]).mean() < 0.2


def test_a_device_refuses_states_of_others(make):
    rows = moving_rows(1000)
    device, other = make(taught(rows)), make(taught(rows, RBF(0.31)))
    assert device.load(other.saved()) == -1
    device.library.pump_reset()
    state = device_state.read(device.saved())
    assert state.n_rows == 1000
    with pytest.raises(ValueError, match=r"expected the device's kernel, 3 features and max_atoms=\d+ but got"):
        device_state.values_of(other.model, like=state.values)
    values = device_state.values_of(device.model, like=state.values)
    numbers = {name: state.values[name] for name in ("sequence", "parent")}
    assert device_state.encode(values | numbers) == device_state.encode(state.values)


def test_rows_that_are_no_rows_are_counted_and_change_nothing_else(make):
    device = make(taught(moving_rows(1000)))
    before = device_state.decode(device.saved())
    bad = np.full((5, 3), 50.0)
    bad[range(5), [0, 1, 2, 0, 1]] = [np.nan, np.inf, -np.inf, 3e38, 1e12]
    assert (device.learn(bad) == -1).all()
    assert np.isnan([device.numbers_of(what, bad) for what in ("novelty", "rarity")]).all()
    assert np.isfinite(device.explain(bad)[1:]).all()
    after = device_state.decode(device.saved())
    changed = {name for name in before if np.any(before[name] != after[name])}
    assert changed == {"n_refused", "sequence", "parent", "crc"}
    assert after["n_refused"] == 5


FUZZ = """
static unsigned char slots[2][8192];
static uint32_t left = 0;
static int write(int slot, uint32_t at, const unsigned char bytes[32], uint32_t count)
{
    uint32_t k;
    for (k = 0; k < count; ++k, --left) {
        if (left == 0) return -1;
        slots[slot][at + k] = bytes[k];
    }
    return 0;
}
static int read(int slot, uint32_t at, unsigned char bytes[32], uint32_t count)
{
    uint32_t k;
    for (k = 0; k < count; ++k) bytes[k] = slots[slot][at + k];
    return 0;
}
int main(void)
{
    unsigned long seed = 1;
    long i, saved = 0;
    int k, kind, sum = 0;
    sum += pump_load(read);
    for (i = 0; i < ROWS; ++i) {
        float x[3], expected[3], terms[3];
        seed = (seed * 1103515245ul + 12345ul) & 0xfffffffful;
        kind = (int)(seed >> 20 & 15u);
        for (k = 0; k < 3; ++k) {
            union { float number; uint32_t bits; } word;
            seed = (seed * 1103515245ul + 12345ul) & 0xfffffffful;
            word.bits = (uint32_t)(seed >> 8) * 257u;
            x[k] = kind == 2 && k == 1 ? 1e6f : (float)(seed >> 16 & 255u) * 0.01f;
            x[k] = kind == 0 ? word.number : kind == 1 ? 0.0f : x[k];
        }
        sum += pump_update(x);
        if (i % 97 == 0) {
            left = i % 3 == 0 ? (uint32_t)(seed >> 12 & 4095u) : 8192u;
            slots[pump_slot()][seed >> 16 & 1023u] ^= 1u;
            if (pump_save(write) == 0) saved = i;
            else pump_reset();
            if (pump_load(read) != 0 && saved > 0) return 1;
        }
        if (i % 64 == 0) sum += pump_explain(x, expected, terms) + (pump_rarity(x) > expected[0]);
    }
    return sum == -1;
}
"""


@pytest.mark.parametrize(
    ("kernel", "max_atoms"),
    [(RBF(0.3), 8), *(pytest.param(*both, marks=pytest.mark.engines) for both in ((RBF(0.3), 1), (Linear(), 8)))],
)
def test_sanitizers_find_nothing(kernel, max_atoms, tmp_path):
    text = to_c_learner(taught(drawn_rows(0), kernel, max_atoms=max_atoms), name="pump")
    n_rows = os.environ.get("STREAMKPCA_DEVICE_ROWS", "30000")
    run_with_sanitizers(text + FUZZ.replace("ROWS", n_rows), tmp_path)


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm on the path, which lists the symbols of an object file")
@pytest.mark.parametrize("max_atoms", [1, 8])
def test_the_file_needs_no_library(max_atoms, tmp_path):
    source = tmp_path / "pump.c"
    text = to_c_learner(taught(drawn_rows(0), max_atoms=max_atoms))
    source.write_text(text, encoding="ascii")
    assert re.findall(r"#\s*include\s*(.*)", text) == ["<math.h>", "<stdint.h>"]
    assert "kpca_" not in text.replace("streamkpca_", "")
    run(COMPILER, *FLAGS, "-O2", "-c", source, "-o", tmp_path / "pump.o")
    undefined = {line.split()[-1] for line in run("nm", "-u", tmp_path / "pump.o").splitlines()}
    assert undefined <= {"_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail", "memset", "memcpy"}


@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="no cppcheck on the path; .ci/processors installs it")
def test_the_file_passes_cppcheck(tmp_path):
    source = tmp_path / "pump.c"
    source.write_text(to_c_learner(taught(drawn_rows(0))), encoding="ascii")
    checks = "--enable=warning,style,performance,portability --std=c99 --error-exitcode=1 -q".split()
    run("cppcheck", *checks, source)


def test_the_model_of_a_monitor_goes_on_learning_on_a_device(make):
    rows = moving_rows(700, d=5) * [1.0, 100.0, 1e-3, 1.0, 0.0]
    monitor = Monitor()
    monitor.update(rows)
    device = make(monitor.model)
    expected = monitor.model.novelty(rows[::50])
    # In single precision, rows that are explained to a few thousandths differ by rounding; the threshold is 0.009.
    np.testing.assert_allclose(device.numbers_of("novelty", rows[::50]), expected, rtol=0.01, atol=5e-3)
    assert (device.learn(rows) > 0).mean() < 0.05
    # The fifth column has never varied.
    assert (device.learn(rows[-50:] + 3.0 * np.eye(5)[4]) > 0).mean() > 0.9


def test_what_devices_cannot_learn_is_refused():
    rows = drawn_rows(0, 100)
    for kernel in (Laplacian(0.3), RBF(0.3) + Linear(), RBF(0.3).on([0, 1])):
        with pytest.raises(ValueError, match=r"to_c_learner: expected an RBF or linear kernel.*or export it without"):
            to_c_learner(taught(rows, kernel))
    for model in (KernelPCA(2).fit(rows), taught(rows, max_atoms=None, tolerance=0.5)):
        with pytest.raises(ValueError, match=r"to_c_learner: expected a StreamingKernelPCA with a.*set max_atoms"):
            to_c_learner(model)
    for return_period in (1.0, 1e6, np.nan):
        with pytest.raises(ValueError, match="to_c_learner: return_period"):
            to_c_learner(taught(rows), return_period=return_period)
    for model in (taught(rows[:40]), taught(rows, reservoir_size=0), taught(drawn_rows(0, 400, 300))):
        with pytest.raises(ValueError, match="to_c_learner: expected a model with a sample of 64 rows or more"):
            to_c_learner(model)


def test_records_that_are_none_are_refused():
    record = device_state.encode(device_state.values_of(taught(drawn_rows(0))))
    flipped = bytearray(record)
    flipped[300] ^= 4
    for wrong, what in (
        (b"", "do not begin as one"),
        (record[:100], "do not begin as one|bytes, and says"),
        (record[:-4], "bytes, and says"),
        (bytes(flipped), "its checksum is another"),
        (record[:4] + b"\x09" + record[5:], "its layout is version 9"),
        (device_state.encode(device_state.decode(record) | {"unit": -1.0}), "its unit or a scale is not positive"),
    ):
        with pytest.raises(ValueError, match=f"expected the saved state of a device but .*({what})"):
            device_state.read(wrong)
