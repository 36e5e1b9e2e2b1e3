"""The odd ones of fleets: found among healthy machines, of one kind or two, and named with their features."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca import StreamingKernelPCA
from streamkpca.errors import NotFittedError
from streamkpca.fleet import _moderate, find_odd_machines
from streamkpca.kernels import RBF, Linear

pytestmark = pytest.mark.slow

LATE = np.arange(6.0)

# What the errors begin with.
HERE = "find_odd_machines: expected"


def rows_of(rng, n=1000, late=(), gain=(), noise=(), stuck=(), drift=(), kind=0.0):
    """Make rows of six sensors around a shaft, some of them faulty, of one of two kinds of machines."""
    late_of = LATE + 0.2 * np.isin(LATE, late) + kind * np.isin(LATE, [1, 4])
    rows = np.sin(rng.uniform(0.0, 2.0 * np.pi, size=(n, 1)) - late_of) * (1.0 + 0.15 * np.isin(LATE, gain))
    rows += 0.1 * (1.0 + 0.7 * np.isin(LATE, noise)) * rng.normal(size=rows.shape)
    rows[int(0.7 * n) :, stuck] = rows[int(0.7 * n), stuck]
    return rows + np.linspace(0.0, 0.5, n)[:, None] * np.isin(LATE, drift)


BEGUN = StreamingKernelPCA(2, max_atoms=32, atoms="rows", noise_variance=None, reservoir_size=0)
BEGUN.partial_fit(np.concatenate([rows_of(np.random.default_rng(0), kind=kind) for kind in (0.0, 0.5)]))
# With this tolerance, no row is worth an atom, and the atoms stay.
BEGUN.set_params(tolerance=0.9)


def machine(rng, begun=BEGUN, **faults):
    return begun.without_rows().partial_fit(rows_of(rng, **faults))


@pytest.fixture(scope="module")
def healthy():
    rng = np.random.default_rng(1)
    return [machine(rng, n=int(rng.integers(500, 2000))) for _ in range(40)]


def test_healthy_machines_are_not_odd(healthy):
    rng = np.random.default_rng(2)
    for size in (5, 6, 10, 20, 40):
        for _ in range(4):
            found = find_odd_machines({i: healthy[i] for i in rng.choice(40, size, replace=False)})
            assert len(found) == size
            assert found[0].rarity < 200
            assert all(one.rarity >= other.rarity for one, other in pairwise(found))


@pytest.mark.parametrize("fault", ["late", "gain", "noise", "stuck", "drift"])
@pytest.mark.parametrize("sensors", [(2,), (0, 3)])
def test_a_faulty_machine_is_the_oddest_and_its_sensors_are_named(healthy, fault, sensors):
    faulty = machine(np.random.default_rng(3), **{fault: sensors})
    for size in (9, 30):
        first, second, *_ = find_odd_machines({"faulty": faulty, **dict(enumerate(healthy[:size]))})
        assert first.name == "faulty"
        assert first.rarity > 200 > second.rarity
        assert set(sensors) <= set(first.features)
        # Two of six say more of a third one than of themselves when they are stuck.
        assert first.features[0] in sensors or (fault, len(sensors)) == ("stuck", 2)


def test_many_may_be_odd(healthy):
    rng = np.random.default_rng(4)
    faults = [{"late": (1,)}, {"gain": (2,)}, {"noise": (3,)}, {"stuck": (4,)}, {"drift": (5,)}, {"late": (0, 4)}]
    fleet = {tuple(fault): machine(rng, **fault) for fault in faults} | {
        f"odd {i}": machine(rng, **fault) for i, fault in enumerate(faults)
    }
    found = find_odd_machines(fleet | dict(enumerate(healthy[:28])))
    assert {one.name for one in found if one.rarity > 200} == set(fleet)


def test_machines_are_compared_with_those_of_their_kind(healthy):
    rng = np.random.default_rng(5)
    others = {f"other {i}": machine(rng, kind=0.5) for i in range(12)}
    fleet = {**dict(enumerate(healthy[:12])), **others, "faulty": machine(rng, kind=0.5, late=(3,))}
    first, second, *_ = find_odd_machines(fleet)
    assert (first.name, first.features[0]) == ("faulty", 3)
    assert first.rarity > 200 > second.rarity
    # A few that are alike are no kind.
    few = {name: others[name] for name in list(others)[:3]}
    assert {one.name for one in find_odd_machines({**dict(enumerate(healthy[:20])), **few}) if one.rarity > 200} == set(
        few
    )


def test_differences_that_the_fleet_shows_everywhere_are_usual():
    rng = np.random.default_rng(6)
    begun = BEGUN.without_rows()
    fleet = {
        i: begun.without_rows().partial_fit(
            rows_of(rng) * (1.0 + 0.03 * rng.normal(size=6)) + 0.05 * rng.normal(size=6)
        )
        for i in range(30)
    }
    found = find_odd_machines(fleet | {"faulty": begun.without_rows().partial_fit(rows_of(rng, stuck=(2,)))})
    assert [one.name for one in found if one.rarity > 200] == ["faulty"]


@given(st.integers(0, 2**20), st.permutations(range(12)), st.sampled_from([0.001, 1.0, 1e4]))
@settings(max_examples=5)
def test_the_order_and_units_do_not_matter(seed, order, unit):
    rng = np.random.default_rng(seed)
    rows = [rows_of(rng, n=400, late=(1,) * (i == 3)) for i in range(12)]
    found = []
    for scale, places in ((1.0, range(12)), (unit, order)):
        units = np.array([scale, 1.0, 1.0, 1.0, 1.0, 1.0])
        begun = StreamingKernelPCA(2, kernel=RBF(0.2).in_units(units), max_atoms=24, atoms="rows", tolerance=0.9)
        begun = begun.partial_fit(rows_of(np.random.default_rng(0)) * units)
        found.append(find_odd_machines({i: begun.without_rows().partial_fit(rows[i] * units) for i in places}))
    one, other = ({machine.name: machine for machine in fleet} for fleet in found)
    for name in range(12):
        assert one[name].rarity == pytest.approx(other[name].rarity, rel=1e-3)
        assert one[name].features == other[name].features


def test_atoms_may_differ(healthy):
    """Machines that replaced atoms are found, and healthy ones that did are not."""
    rng = np.random.default_rng(7)
    moving = StreamingKernelPCA(2, max_atoms=32, noise_variance=None, block_size=128).partial_fit(rows_of(rng, n=2000))
    fleet = {i: machine(rng, moving, n=2000) for i in range(8)}
    fleet |= {8 + i: moving.without_rows().set_params(atoms="rows").partial_fit(rows_of(rng)) for i in range(3)}
    assert len({model.state_.summary.basis.atoms.tobytes() for model in fleet.values()}) > 3
    faulty = machine(rng, moving, n=2000, late=(5,))
    first, second, *_ = find_odd_machines({**fleet, "faulty": faulty})
    assert (first.name, first.features[0]) == ("faulty", 5)
    assert first.rarity > 200 > second.rarity


def test_a_few_that_kept_their_atoms_do_not_tell_what_is_usual():
    """Most machines have seen loads that the first rows lack, so they replaced atoms and explained less on the way."""
    rng = np.random.default_rng(20)
    begun = StreamingKernelPCA(2, max_atoms=32, noise_variance=None, reservoir_size=0, block_size=128, atoms="rows")
    begun.partial_fit(rows_of(rng, n=2000))
    fleet = {i: machine(rng, begun.without_rows().set_params(tolerance=0.9), n=1500) for i in range(7)}
    for i in range(7, 21):
        load = np.where(rng.random((1500, 1)) < 0.05, 1.6, 1.0)
        fleet[i] = begun.without_rows().partial_fit(load * rows_of(rng, n=1500))
    assert len({model.state_.summary.basis.atoms.tobytes() for model in fleet.values()}) == 15
    assert find_odd_machines(fleet)[0].rarity < 200


def test_of_five_machines_the_one_that_replaced_its_atoms_is_odd():
    rng = np.random.default_rng(21)
    begun = StreamingKernelPCA(2, max_atoms=24, noise_variance=None, reservoir_size=0).partial_fit(rows_of(rng, n=2000))
    fleet = {name: machine(rng, begun, n=600, late=(2, 4) * (name == "late")) for name in [0, 1, 2, 3, "late"]}
    assert len({model.refit().state_.summary.basis.atoms.tobytes() for model in fleet.values()}) == 2
    assert [one.name for one in find_odd_machines(fleet) if one.rarity > 200] == ["late"]


def test_pending_rows_count_and_too_few_are_told_of(healthy):
    rng = np.random.default_rng(8)
    short = machine(rng, n=400, stuck=(2,))
    assert short.state_.pending.n_rows == 400
    few = machine(rng, n=10)
    found = find_odd_machines(
        {**dict(enumerate(healthy[:8])), "short": short, "few": few, "none": BEGUN.without_rows()}
    )
    assert (found[0].name, found[0].features[0]) == ("short", 2)
    assert [(one.name, math.isnan(one.rarity), one.features) for one in found[-2:]] == [
        ("few", True, ()),
        ("none", True, ()),
    ]


def test_rows_that_the_atoms_do_not_explain_are_odd(healthy):
    rng = np.random.default_rng(9)
    far = BEGUN.without_rows().partial_fit(rows_of(rng) * np.where(rng.random((1000, 1)) < 0.02, 9, 1))
    found = find_odd_machines({**dict(enumerate(healthy[:12])), "far": far})
    assert found[0].name == "far"
    assert found[0].rarity > 200
    # Where no row is near an atom, there is no covariance.
    lost = BEGUN.without_rows().partial_fit(rows_of(rng) + 1e6)
    assert [
        one.name for one in find_odd_machines({**dict(enumerate(healthy[:12])), "lost": lost}) if one.rarity > 200
    ] == ["lost"]


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.5).on([0, 2, 3]), 0.5 * RBF(0.05).in_units("std")])
def test_kernels_of_all_kinds_compare(kernel):
    rng = np.random.default_rng(10)
    begun = StreamingKernelPCA(1, kernel=kernel, max_atoms=24).partial_fit(rows_of(rng))
    fleet = {i: machine(rng, begun) for i in range(8)}
    found = find_odd_machines({**fleet, "faulty": machine(rng, begun, late=(2,))})
    assert (found[0].name, found[0].features[0]) == ("faulty", 2)
    assert found[0].rarity > 200 > found[1].rarity
    if "on" in repr(kernel):
        # What the kernel does not see cannot be odd.
        assert find_odd_machines({**fleet, "faulty": machine(rng, begun, stuck=(1,))})[0].rarity < 200


@pytest.mark.parametrize("max_atoms", [1, 2])
def test_few_atoms_and_equal_machines_are_no_error(max_atoms):
    """At a single atom, an RBF kernel does not change with any feature."""
    begun = StreamingKernelPCA(1, kernel=RBF(0.5), max_atoms=max_atoms).partial_fit(rows_of(np.random.default_rng(0)))
    equal = machine(np.random.default_rng(11), begun)
    assert [one.rarity for one in find_odd_machines(dict.fromkeys(range(12), equal))] == [1.0] * 12


def test_names_of_columns_are_told():
    rng = np.random.default_rng(12)
    names = [f"sensor {j}" for j in range(6)]
    begun = StreamingKernelPCA(1, max_atoms=24, atoms="rows").partial_fit(pd.DataFrame(rows_of(rng), columns=names))
    begun.set_params(tolerance=0.9)
    fleet = {
        i: begun.without_rows().partial_fit(pd.DataFrame(rows_of(rng, stuck=(4,) * (i == 2)), columns=names))
        for i in range(8)
    }
    first = find_odd_machines(fleet)[0]
    assert (first.name, first.features[0]) == (2, "sensor 4")


def test_states_that_cannot_be_compared_are_refused(healthy):
    fleet = dict(enumerate(healthy[:6]))
    rng = np.random.default_rng(13)
    other = StreamingKernelPCA(1, kernel=RBF(0.123), max_atoms=24).partial_fit(rows_of(rng))
    fading = BEGUN.without_rows().set_params(half_life=300.0).partial_fit(rows_of(rng))
    narrow = StreamingKernelPCA(1, max_atoms=24).partial_fit(rows_of(rng)[:, :4])
    for stranger, what in (
        (other, r"to have the kernel of most machines, RBF.*but got RBF\(gamma=0\.123\); compare machines that began"),
        (fading, "to have the half_life of most machines, None, but got 300.0; compare"),
        (narrow, r"to have the features of most machines, range\(0, 6\), but got range\(0, 4\); compare"),
    ):
        with pytest.raises(ValueError, match=f"^{HERE} 'x' {what}"):
            find_odd_machines({**fleet, "x": stranger})
    with pytest.raises(TypeError, match=f"^{HERE} 'x' to be a StreamingKernelPCA but got bytes; read the state"):
        find_odd_machines({**fleet, "x": b"SKPC"})
    with pytest.raises(TypeError, match=f"^{HERE} a mapping of names to models but got list; name the machines"):
        find_odd_machines(healthy)
    with pytest.raises(NotFittedError):
        find_odd_machines({**fleet, "x": StreamingKernelPCA(1)})
    for some in ({}, {0: healthy[0]}, {**dict(enumerate(healthy[:4])), "few": machine(rng, n=10)}):
        with pytest.raises(ValueError, match=rf"^{HERE} at least 5 machines .* but got (0 such of 0|1 such of 1|4 su)"):
            find_odd_machines(some)


@pytest.mark.parametrize(("prior", "prior_dof", "dof"), [(3.0, 8.0, 6.0), (0.01, 20.0, 4.0)])
def test_variances_are_drawn_towards_the_prior_that_they_come_from(prior, prior_dof, dof):
    """Smyth (2004), eqs. (1) and (2): s^2 ~ sigma^2 chi^2_d / d, where 1 / sigma^2 ~ chi^2_d0 / (d0 s0^2)."""
    rng = np.random.default_rng(0)
    true = prior * prior_dof / rng.chisquare(prior_dof, size=50_000)
    found = true * rng.chisquare(dof, size=len(true)) / dof
    moderated, total_dof = _moderate(found, dof)
    np.testing.assert_allclose(total_dof, prior_dof + dof, rtol=0.1)
    expected = (prior_dof * prior + dof * found) / (prior_dof + dof)
    np.testing.assert_allclose(np.median(moderated / expected), 1.0, rtol=0.02)
    # The mean of a variance given its estimate, by counting.
    middle = np.abs(np.log(found / prior)) < 0.1
    posterior = prior_dof + dof
    assert true[middle].mean() == pytest.approx((moderated[middle] * posterior / (posterior - 2.0)).mean(), rel=0.03)


def test_equal_variances_are_drawn_together():
    found = 2.0 * np.random.default_rng(0).chisquare(5.0, size=20_000) / 5.0
    moderated, dof = _moderate(found, 5.0)
    assert dof.min() >= 100.0
    np.testing.assert_allclose(np.mean(moderated), 2.0, rtol=0.02)
    assert moderated.std() < 0.1 * found.std()
