"""The streaming model against the slow and obvious one: the same atoms, moments, axes and answers.

Rounding is multiplied in each step of a descent by up to the condition of the atoms' kernel matrix. Where atoms move,
kernels are narrow enough, and atoms few enough, that it stays below about 1e3 and models differ by 1e-12; so they too
agree to 1e-8. The atoms themselves are compared to 1e-6 only: where what they leave hardly depends on one of their
numbers, that number is known to fewer digits.
"""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import (
    FEWER,
    LINEAR,
    KernelCase,
    drifting_rows,
    generators,
    local_cases,
    rbf_cases,
    small_samples,
    streaming_model,
    weights_for,
)

from streamkpca import kernels
from streamkpca.stream import transitions

pytestmark = pytest.mark.slow


SETTINGS = {"max_atoms": 6, "tolerance": 1e-3, "block_size": 16}
BOTH = pytest.mark.parametrize("atoms", ["rows", "moved"])

# Long streams, which take the twin half a second each.
FEWEST = settings(max_examples=settings.default.max_examples // 5)


def streamed(X, weights, case, settings, **more):
    model = streaming_model(4, kernel=case.kernel, **settings, **more)
    return model.partial_fit(X, sample_weight=weights).refit()


def assert_agree(model, oracle, new, *, center, rank=None):
    """Atoms, eigenvalues, projections, errors and lost energy, to 1e-8 of the mean energy."""
    assert model.n_atoms_ == len(oracle.atoms)
    # Before the last atom of a basis as large as the rank, what is left of all rows lies on one line: each would win
    # the same, and rounding chooses.
    unique = len(oracle.atoms) - (len(oracle.atoms) == rank)
    rows, origins = model.atom_rows_, model.atom_origins_
    assert np.where(rows < 0, ~origins, rows)[:unique].tolist() == oracle.positions[:unique]
    if rank is None:
        np.testing.assert_allclose(model.atoms_, oracle.points(oracle.atoms), rtol=0, atol=1e-6)
    mean_energy = oracle.energy / oracle.weights.sum()
    lost = 1.0 - oracle.recorded_energy / oracle.energy
    assert model.unexplained_energy_ratio_ == pytest.approx(lost, abs=1e-8)

    q = min(4, len(oracle.atoms) - 1)
    axes = oracle.axes(q, center=center)
    np.testing.assert_allclose(model.eigenvalues_[:q], axes.eigenvalues, rtol=0, atol=1e-8 * mean_energy)

    scale = max(mean_energy, float(np.max(model.kernel_.diagonal(new))))
    np.testing.assert_allclose(
        model.reconstruction_error(new), axes.reconstruction_error(new), rtol=0, atol=1e-8 * scale
    )
    if not q:
        return
    neighbours = np.append(np.inf, np.append(axes.eigenvalues, model.eigenvalues_[q : q + 1].sum()))
    gaps = -np.diff(neighbours)
    apart = (gaps[:-1] > 1e-3 * mean_energy) & (gaps[1:] > 1e-3 * mean_energy)
    ours, theirs = model.transform(new)[:, :q], axes.transform(new)
    theirs = theirs * np.where((ours * theirs).sum(axis=0) < 0.0, -1.0, 1.0)
    np.testing.assert_allclose(ours[:, apart], theirs[:, apart], rtol=0, atol=1e-8 * np.sqrt(scale))
    if gaps[-1] > 1e-3 * mean_energy:
        np.testing.assert_allclose(
            model.reconstruction_error(new, q), axes.reconstruction_error(new, q), rtol=0, atol=1e-8 * scale
        )


def budgets(atoms):
    return st.fixed_dictionaries(
        {
            "atoms": st.just(atoms),
            "max_atoms": st.integers(1, 10),
            "tolerance": st.sampled_from([1e-6, 1e-3, 0.05]),
            "block_size": st.sampled_from([8, 16, 32]),
        }
    )


def tolerances():
    return st.fixed_dictionaries(
        {
            "max_atoms": st.none(),
            "tolerance": st.sampled_from([1e-3, 0.02, 0.2]),
            "block_size": st.sampled_from([4, 8, 32]),
        }
    )


def learners():
    """Kernels and settings, of atoms that move and of atoms that do not."""
    rows = st.tuples(rbf_cases(), budgets("rows") | tolerances())
    return st.tuples(local_cases(), budgets("moved")) | rows


@given(st.data(), drifting_rows(), learners(), st.sampled_from([None, None, 3.0, 20.0, 1e4]), st.booleans())
def test_agrees_with_and_without_a_budget_and_while_rows_fade(data, X, learner, half_life, center):
    case, settings = learner[0], {**learner[1], "half_life": half_life}
    weights = data.draw(weights_for(len(X)))
    model = streamed(X, weights, case, settings, center=center)
    a = np.ones(len(X)) if weights is None else weights
    oracle = naive.learn(X, a, case.function, **settings)
    assert_agree(model, oracle, X[:20] + 0.1, center=center)


@BOTH
@pytest.mark.parametrize("max_atoms", [5, None])
@pytest.mark.parametrize(
    ("case", "rank"),
    [
        (LINEAR, 8),
        (KernelCase(kernels.Polynomial(2, gamma=0.5, coef0=1.0), naive.polynomial(2, 0.5, 1.0)), 45),
    ],
    ids=["linear", "polynomial"],
)
def test_agrees_for_kernels_of_finite_rank(case, rank, max_atoms, atoms):
    settings = {"atoms": atoms, "max_atoms": max_atoms, "tolerance": 0.02, "block_size": 16}
    X = np.random.default_rng(5).normal(size=(120, 8)) * np.linspace(0.3, 1.5, 8)
    oracle = naive.learn(X, np.ones(len(X)), case.function, **settings)
    assert_agree(streamed(X, None, case, settings), oracle, X[:20] + 0.1, center=True, rank=rank)


@BOTH
@FEWEST
@given(generators(), st.sampled_from([None, 50.0]), st.sampled_from([None, 10]), st.booleans())
def test_agrees_after_two_passes(atoms, rng, half_life, sampled_rows_per_atom, center):
    X, case = rng.normal(size=(100, 2)), KernelCase(kernels.RBF(0.3), naive.rbf(0.3))
    weights = rng.uniform(0.5, 2.0, 100)
    settings = {**SETTINGS, "atoms": atoms, "half_life": half_life}
    with small_samples(sampled_rows_per_atom):
        model = streaming_model(4, kernel=case.kernel, center=center, **settings)
        model.fit(X, sample_weight=weights)
        oracle = naive.fit(X, weights, case.function, **settings)
        assert_agree(model, oracle, X[:20] + 0.1, center=center)

        # The stream continues from there: the statistics of every atom now count all rows.
        later = rng.normal(size=(48, 2)) + 2.0
        for start in range(0, 48, 16):
            oracle.advance(later[start : start + 16], np.ones(16))
        assert_agree(model.partial_fit(later).refit(), oracle, X[:20] + 0.1, center=center)


@BOTH
def test_agrees_after_every_block_of_a_stream_that_swaps_often(atoms):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(320, 3)) + np.repeat(rng.normal(scale=4.0, size=(4, 3)), 80, axis=0)
    case = KernelCase(kernels.RBF(0.1), naive.rbf(0.1))
    model = streaming_model(4, kernel=case.kernel, atoms=atoms, **SETTINGS)
    oracle = naive.NaiveStream(case.function, 3, max_atoms=6, tolerance=1e-3, atoms=atoms)
    for start in range(0, 320, 16):
        oracle.advance(X[start : start + 16], np.ones(16))
        model.partial_fit(X[start : start + 16])
        assert_agree(model.refit(), oracle, X[::16], center=True)
    if atoms == "rows":
        assert oracle.n_removed >= 10
    else:
        # The sample holds all rows, so they are recorded anew each time that atoms move.
        assert oracle.n_removed >= 3
        assert oracle.n_replays >= 4
        assert oracle.n_moves == oracle.n_refused == 0


@FEWER
@given(st.data(), drifting_rows(min_rows=100, max_rows=240), local_cases(), budgets("moved"))
def test_agrees_on_moves_when_the_sample_no_longer_holds_all_rows(data, X, case, settings):
    """Ten sampled rows for each atom, instead of 50 and at least 1,024, so that short streams have later moves too."""
    weights = data.draw(weights_for(len(X)))
    a = np.ones(len(X)) if weights is None else weights
    settings = {**settings, "half_life": data.draw(st.sampled_from([None, 20.0, 1e4]))}
    with small_samples(10):
        model = streamed(X, weights, case, settings)
        oracle = naive.learn(X, a, case.function, **settings)
        assert_agree(model, oracle, X[:20] + 0.1, center=True)

        # Statistics of moved atoms and small samples merge, too.
        part = X[: len(X) // 2] - 1.0
        others = naive.learn(part, np.ones(len(part)), case.function, **settings)
        model.merge(streamed(part, None, case, settings))
        oracle.merge(others)
        later = X[:64] + 0.5
        for start in range(0, 64, settings["block_size"]):
            oracle.advance(later[start : start + settings["block_size"]], np.ones(settings["block_size"]))
        assert_agree(model.partial_fit(later).refit(), oracle, X[:20] + 0.1, center=True)


@pytest.mark.parametrize(("half_life", "seed"), [(None, 58), (400.0, 21)])
def test_agrees_on_later_moves_accepted_and_refused(half_life, seed):
    rng = np.random.default_rng(seed)
    X = 0.7 * rng.normal(size=(1600, 2)) + np.linspace(0.0, 1.5, 1600)[:, None] * np.array([3.0, 1.0])
    case = KernelCase(kernels.RBF(0.5), naive.rbf(0.5))
    model = streaming_model(4, kernel=case.kernel, max_atoms=2, block_size=32, half_life=half_life)
    oracle = naive.NaiveStream(case.function, 2, max_atoms=2, tolerance=1e-3, half_life=half_life)
    n_decisions = 0
    for start in range(0, 1600, 32):
        oracle.advance(X[start : start + 32], np.ones(32))
        model.partial_fit(X[start : start + 32])
        before, n_decisions = n_decisions, oracle.n_replays + oracle.n_moves + oracle.n_refused
        if n_decisions > before:
            assert_agree(model.refit(), oracle, X[::64], center=True)
    assert_agree(model.refit(), oracle, X[::64], center=True)
    assert oracle.n_replays >= 3
    assert oracle.n_moves >= 1
    assert oracle.n_refused >= 1


@BOTH
def test_agrees_on_postponed_searches(atoms):
    """A steady stream is searched ever less often; one whose residual jumps is searched at once."""
    rng = np.random.default_rng(3)
    # Rows of a small set recur: once two atoms explain it as well as they can, searches find nothing.
    X = rng.normal(size=(6, 2))[rng.integers(6, size=270 * 4)]
    X[260 * 4 :] += 6.0
    case = KernelCase(kernels.RBF(0.3), naive.rbf(0.3))
    settings = {"atoms": atoms, "max_atoms": 2, "tolerance": 1e-3, "block_size": 4}
    calm = naive.learn(X[: 260 * 4], np.ones(260 * 4), case.function, **settings)
    assert_agree(streamed(X[: 260 * 4], None, case, settings), calm, X[:20], center=True)
    assert calm.countdown > 10
    assert calm.n_put_off > 180
    oracle = naive.learn(X, np.ones(len(X)), case.function, **settings)
    assert_agree(streamed(X, None, case, settings), oracle, X[:20], center=True)
    # Some of ten blocks of new rows are searched before the end of the pause. They make new rows usual, so that the
    # drift which is signalled later causes no other search.
    assert oracle.n_put_off < calm.n_put_off + 10
    assert atoms == "moved" or oracle.n_drifts == 1


@FEWER
@given(st.data(), drifting_rows(), budgets("rows"))
def test_agrees_on_the_width_of_young_streams(data, X, settings):
    """The twin looks at all rows first, and then learns them with the width that results."""
    # In few features, any row is explained by so many others that what is left is rounding.
    X = np.hstack([X, X @ np.random.default_rng(0).normal(size=(X.shape[1], 4))]) * 0.5
    X += 0.05 * np.random.default_rng(1).normal(size=X.shape)
    weights = data.draw(weights_for(len(X)))
    a = np.ones(len(X)) if weights is None else weights
    settings = {**settings, "half_life": data.draw(st.sampled_from([None, 20.0, 1e4]))}
    model = streamed(X, weights, KernelCase(kernels.RBF(), naive.rbf(1.0)), settings)
    gamma = naive.gamma_of_stream(X, a, settings["block_size"])
    # Where rounding decides which of a row and a copy is more novel, the contrast changes by a rank.
    assert model.kernel_.gamma == pytest.approx(gamma, rel=0.02)
    oracle = naive.learn(X, a, naive.rbf(model.kernel_.gamma), **settings)
    assert_agree(model, oracle, X[:20] + 0.1, center=True)


def test_agrees_on_the_last_width(monkeypatch):
    """Once the width is final, nothing changes it."""
    monkeypatch.setattr(transitions, "ROWS_TO_SETTLE", 100)
    monkeypatch.setattr(naive, "ROWS_TO_SETTLE", 100)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 9)) * np.repeat([0.2, 1.0, 5.0], [32, 80, 188])[:, None]
    X += 0.1 * rng.normal(size=X.shape)
    settings = {"max_atoms": 6, "tolerance": 1e-3, "block_size": 16}
    gammas = set()
    for n in (16, 40, 90, 111, 112, 300):
        model = streamed(X[:n], None, KernelCase(kernels.RBF(), naive.rbf(1.0)), {**settings, "atoms": "rows"})
        gamma = naive.gamma_of_stream(X[:n], np.ones(n), 16)
        assert model.kernel_.gamma == pytest.approx(gamma, rel=1e-9)
        oracle = naive.learn(X[:n], np.ones(n), naive.rbf(gamma), atoms="rows", **settings)
        assert_agree(model, oracle, X[:20], center=True)
        gammas.add(gamma)
    assert len(gammas) >= 3
    assert len({naive.gamma_of_stream(X[:n], np.ones(n), 16) for n in (112, 200, 300)}) == 1
