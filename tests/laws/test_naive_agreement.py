"""The streaming model against the slow and obvious one: the same atoms, moments, axes and answers."""

from typing import Any

import naive
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import FEWER, LINEAR, KernelCase, drifting_rows, generators, rbf_cases, streaming_model, weights_for

from streamkpca import kernels

pytestmark = pytest.mark.slow

Array = npt.NDArray[np.float64]

SETTINGS: dict[str, Any] = {"atoms": "rows", "max_atoms": 6, "tolerance": 1e-3, "block_size": 16}

# Long streams, which take the twin half a second each.
FEWEST = settings(max_examples=settings.default.max_examples // 5)


def streamed(X: Array, weights: Array | None, case: KernelCase, settings: dict[str, Any], **more: Any) -> Any:
    model = streaming_model(4, kernel=case.kernel, **settings, **more)
    return model.partial_fit(X, sample_weight=weights).refit()


def assert_agree(model: Any, oracle: naive.NaiveStream, new: Array, *, center: bool, rank: int | None = None) -> None:
    """Atoms, eigenvalues, projections, errors and lost energy, to 1e-8 of the mean energy."""
    assert model.n_atoms_ == len(oracle.atoms)
    # Before the last atom of a basis as large as the rank, what is left of all rows lies on one line: each would win
    # the same, and rounding chooses.
    unique = len(oracle.atoms) - (len(oracle.atoms) == rank)
    rows, origins = model.atom_rows_, model.atom_origins_
    assert np.where(rows < 0, ~origins, rows)[:unique].tolist() == oracle.positions[:unique]
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


def budgets() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "atoms": st.just("rows"),
            "max_atoms": st.integers(1, 10),
            "tolerance": st.sampled_from([1e-6, 1e-3, 0.05]),
            "block_size": st.sampled_from([8, 16, 32]),
        }
    )


def tolerances() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "max_atoms": st.none(),
            "tolerance": st.sampled_from([1e-3, 0.02, 0.2]),
            "block_size": st.sampled_from([4, 8, 32]),
        }
    )


@FEWER
@given(st.data(), drifting_rows(), rbf_cases(), budgets(), st.booleans())
def test_agrees_within_a_budget(
    data: st.DataObject, X: Array, case: KernelCase, settings: dict[str, Any], center: bool
) -> None:
    weights = data.draw(weights_for(len(X)))
    model = streamed(X, weights, case, settings, center=center)
    a = np.ones(len(X)) if weights is None else weights
    oracle = naive.learn(X, a, case.function, **settings)
    assert_agree(model, oracle, X[:20] + 0.1, center=center)


@FEWER
@given(st.data(), drifting_rows(), rbf_cases(), tolerances(), st.booleans())
def test_agrees_without_a_budget(
    data: st.DataObject, X: Array, case: KernelCase, settings: dict[str, Any], center: bool
) -> None:
    weights = data.draw(weights_for(len(X)))
    model = streamed(X, weights, case, settings, center=center)
    a = np.ones(len(X)) if weights is None else weights
    oracle = naive.learn(X, a, case.function, **settings)
    assert_agree(model, oracle, X[:20] + 0.1, center=center)


@FEWER
@given(st.data(), drifting_rows(), rbf_cases(), st.one_of(budgets(), tolerances()), st.booleans())
def test_agrees_while_rows_fade(
    data: st.DataObject, X: Array, case: KernelCase, settings: dict[str, Any], center: bool
) -> None:
    weights = data.draw(weights_for(len(X)))
    settings = {**settings, "half_life": data.draw(st.sampled_from([3.0, 20.0, 1e4]))}
    model = streamed(X, weights, case, settings, center=center)
    a = np.ones(len(X)) if weights is None else weights
    oracle = naive.learn(X, a, case.function, **settings)
    assert_agree(model, oracle, X[:20] + 0.1, center=center)


@FEWER
@given(st.data(), drifting_rows(), rbf_cases(), st.one_of(budgets(), tolerances()))
def test_agrees_after_merging_and_forgetting(
    data: st.DataObject, X: Array, case: KernelCase, settings: dict[str, Any]
) -> None:
    parts = np.array_split(X, 2)
    models = [streamed(part, None, case, settings) for part in parts]
    oracles = [naive.learn(part, np.ones(len(part)), case.function, **settings) for part in parts]
    factor = data.draw(st.sampled_from([1.0, 0.5, 1e-3]))
    models[0].forget(factor).merge(models[1])
    # Pending rows were taken in before the forgetting by the oracle, after it by the model: the same rows and
    # weights.
    oracles[0].forget(factor)
    oracles[0].merge(oracles[1])
    assert_agree(models[0], oracles[0], X[:20] + 0.1, center=True)


@pytest.mark.parametrize("max_atoms", [5, None])
@pytest.mark.parametrize(
    ("case", "rank"),
    [
        (LINEAR, 8),
        (KernelCase(kernels.Polynomial(2, gamma=0.5, coef0=1.0), naive.polynomial(2, 0.5, 1.0)), 45),
    ],
    ids=["linear", "polynomial"],
)
def test_agrees_for_kernels_of_finite_rank(case: KernelCase, rank: int, max_atoms: int | None) -> None:
    settings: dict[str, Any] = {"atoms": "rows", "max_atoms": max_atoms, "tolerance": 0.02, "block_size": 16}
    X = np.random.default_rng(5).normal(size=(120, 8)) * np.linspace(0.3, 1.5, 8)
    oracle = naive.learn(X, np.ones(len(X)), case.function, **settings)
    assert_agree(streamed(X, None, case, settings), oracle, X[:20] + 0.1, center=True, rank=rank)


@FEWEST
@given(generators(), st.booleans())
def test_agrees_after_two_passes(rng: np.random.Generator, center: bool) -> None:
    X, case = rng.normal(size=(100, 2)), KernelCase(kernels.RBF(0.3), naive.rbf(0.3))
    weights = rng.uniform(0.5, 2.0, 100)
    model = streaming_model(4, kernel=case.kernel, center=center, **SETTINGS)
    model.fit(X, sample_weight=weights)
    oracle = naive.fit(X, weights, case.function, **SETTINGS)
    assert_agree(model, oracle, X[:20] + 0.1, center=center)

    # The stream continues from there: the statistics of every atom now count all rows.
    later = rng.normal(size=(48, 2)) + 2.0
    for start in range(0, 48, 16):
        oracle.advance(later[start : start + 16], np.ones(16))
    assert_agree(model.partial_fit(later).refit(), oracle, X[:20] + 0.1, center=center)


@FEWEST
@given(generators())
def test_agrees_when_the_budget_shrinks_and_grows(rng: np.random.Generator) -> None:
    X, case = rng.normal(size=(144, 2)), KernelCase(kernels.RBF(0.3), naive.rbf(0.3))
    model = streaming_model(4, kernel=case.kernel, **SETTINGS)
    oracle = naive.NaiveStream(case.function, 2, max_atoms=6, tolerance=1e-3, atoms="rows")
    for part, max_atoms in enumerate([6, 2, 9]):
        model.set_params(max_atoms=max_atoms)
        oracle.max_atoms = max_atoms
        for start in range(48 * part, 48 * part + 48, 16):
            model.partial_fit(X[start : start + 16])
            oracle.advance(X[start : start + 16], np.ones(16))
            assert_agree(model.refit(), oracle, X[:20] + 0.1, center=True)
            assert model.n_atoms_ <= max_atoms


def test_agrees_after_every_block_of_a_stream_that_swaps_often() -> None:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(320, 3)) + np.repeat(rng.normal(scale=4.0, size=(4, 3)), 80, axis=0)
    case = KernelCase(kernels.RBF(0.1), naive.rbf(0.1))
    model = streaming_model(4, kernel=case.kernel, **SETTINGS)
    oracle = naive.NaiveStream(case.function, 3, max_atoms=6, tolerance=1e-3, atoms="rows")
    for start in range(0, 320, 16):
        oracle.advance(X[start : start + 16], np.ones(16))
        model.partial_fit(X[start : start + 16])
        assert_agree(model.refit(), oracle, X[::16], center=True)
    assert oracle.n_removed >= 10


def test_agrees_on_postponed_searches() -> None:
    """A steady stream is searched ever less often; one whose residual jumps is searched at once."""
    rng = np.random.default_rng(3)
    # Rows of a small set recur: once two atoms explain it as well as they can, searches find nothing.
    X = rng.normal(size=(6, 2))[rng.integers(6, size=270 * 4)]
    X[260 * 4 :] += 6.0
    case = KernelCase(kernels.RBF(0.3), naive.rbf(0.3))
    settings = {"atoms": "rows", "max_atoms": 2, "tolerance": 1e-3, "block_size": 4}
    calm = naive.learn(X[: 260 * 4], np.ones(260 * 4), case.function, **settings)
    assert_agree(streamed(X[: 260 * 4], None, case, settings), calm, X[:20], center=True)
    assert calm.countdown > 10
    assert calm.n_put_off > 180
    oracle = naive.learn(X, np.ones(len(X)), case.function, **settings)
    assert_agree(streamed(X, None, case, settings), oracle, X[:20], center=True)
    # Some of ten blocks of new rows are searched before the end of the pause.
    assert oracle.n_put_off < calm.n_put_off + 9
    assert oracle.n_drifts == 1


def test_agrees_with_pending_rows() -> None:
    X, case = np.random.default_rng(2).normal(size=(75, 2)), KernelCase(kernels.RBF(0.3), naive.rbf(0.3))
    model = streaming_model(4, kernel=case.kernel, **SETTINGS).partial_fit(X).refit()
    oracle = naive.learn(X[:64], np.ones(64), case.function, **SETTINGS)
    assert_agree(model, oracle.with_pending(X[64:], np.ones(11)), X, center=True)

    # Queries give the pending rows to a copy, so they do not affect the stream.
    rest = np.random.default_rng(4).normal(size=(5, 2))
    oracle.advance(np.concatenate([X[64:], rest]), np.ones(16))
    assert_agree(model.partial_fit(rest).refit(), oracle, X, center=True)
