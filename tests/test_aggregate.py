"""The four verbs of a distributed fit, and the laws of their merges."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from comparisons import rounding_of
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import KernelPCA, StreamingKernelPCA, kernels
from streamkpca.aggregate import Aggregate
from streamkpca.errors import CheckpointError

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).normal(size=(60, 2))
LONG = np.random.default_rng(1).normal(size=(6000, 3))
EXACT = {"kernel": kernels.RBF(0.4), "max_atoms": None, "tolerance": 0.0, "block_size": 16}
SMALL = {"n_components": 2, "kernel": kernels.RBF(0.2), "max_atoms": 12, "block_size": 64}
CUTS = st.lists(st.integers(0, 60), max_size=5).map(sorted)


def sent(state):
    """Return the state that another process would receive."""
    return Aggregate.from_bytes(state.to_bytes())


def tree(states, group):
    while len(states) > 1:
        groups = [[sent(state) for state in states[i : i + group]] for i in range(0, len(states), group)]
        states = [first.merge(*others) for first, *others in groups]
    return states[0]


@given(CUTS, st.integers(2, 4), st.sampled_from([3.0, 30.0, 1e9]), st.booleans())
def test_any_tree_over_any_parts_is_batch_kernel_pca(cuts, group, half_life, warm):
    empty = Aggregate(StreamingKernelPCA(3, **EXACT))
    weights = 0.5 ** (np.arange(60.0)[::-1] / half_life)
    first, *others = zip(np.split(X, cuts), np.split(weights, cuts), strict=True)
    begun = empty.zero().add(*first)
    start = begun.zero() if warm else empty
    whole = tree([begun, *(start.zero().add(*part) for part in others)], group).finish()
    exact = KernelPCA(3, kernel=EXACT["kernel"]).fit(X, sample_weight=weights)
    assert whole.n_samples_seen_ == 60
    assert whole.total_weight_ == pytest.approx(weights.sum())
    np.testing.assert_allclose(whole.eigenvalues_, exact.eigenvalues_, rtol=0, atol=1e-8 + rounding_of(whole))
    assert set(whole.atom_rows_) <= set(range(60))
    np.testing.assert_array_equal(whole.atoms_, X[whole.atom_rows_])


@given(CUTS, st.sampled_from([4, None]))
def test_rows_in_any_pieces_give_the_same_bytes(cuts, max_atoms):
    empty = Aggregate(StreamingKernelPCA(3, **(EXACT | {"max_atoms": max_atoms})))
    once, pieces, passed_on = empty.zero().add(X), empty.zero(), empty
    for part in np.split(X, cuts):
        pieces.add(part, np.ones(len(part)))
        passed_on = sent(passed_on).add(part)
    assert once.to_bytes() == pieces.to_bytes() == passed_on.to_bytes()
    assert empty.n_rows_ == 0


@given(st.sampled_from([1, 500, 2000, 5000]), st.integers(0, 5000))
def test_empty_states_are_neutral_whatever_they_begin_with(n_template, n_rows):
    template = StreamingKernelPCA(**SMALL).partial_fit(LONG[:n_template])
    state = Aggregate(template).add(LONG[:n_rows])
    known = state.to_bytes()
    assert state.zero().merge(state).to_bytes() == known
    assert state.zero().merge(state.zero(), state.zero(), state, state.zero()).to_bytes() == known
    assert state.merge(state.zero()).merge().to_bytes() == known
    zero = state.zero()
    assert zero.n_rows_ == 0
    assert zero.to_bytes() == sent(zero).to_bytes() == zero.zero().to_bytes()


def test_a_finished_model_and_its_state_go_on_apart():
    state = Aggregate(StreamingKernelPCA(**SMALL, random_state=0)).add(LONG[:100])
    model = state.finish()
    state.add(LONG[100:110])
    known = state.to_bytes()
    model.partial_fit(LONG[200:210])
    assert state.to_bytes() == known
    plain = StreamingKernelPCA(**SMALL, random_state=0).partial_fit(np.vstack([LONG[:100], LONG[200:210]])).refit()
    # Axes keep the signs that they were first published with.
    expected = np.abs(plain.transform(LONG[:5]))
    assert np.abs(model.refit().transform(LONG[:5])).tolist() == expected.tolist()


def test_states_that_begin_alike_merge_exactly_in_any_order():
    template = StreamingKernelPCA(**SMALL).partial_fit(LONG)
    empty, rows = Aggregate(template), np.random.default_rng(2).normal(size=(4000, 3))
    # The template explains rows like its own as well as before, so no part searches for other atoms.
    parts = [empty.zero().add(part) for part in np.split(rows, [700, 1600, 3900])]
    whole = empty.zero().merge(*parts).finish()
    np.testing.assert_array_equal(whole.atoms_, template.atoms_)
    exact = StreamingKernelPCA(**SMALL)
    exact.state_ = Aggregate(template).add(rows)._model.state_
    for order in ([3, 1, 0, 2], [2, 3, 1, 0]):
        other = parts[order[0]].zero().merge(*(parts[number] for number in order)).finish()
        np.testing.assert_array_equal(other.atoms_, whole.atoms_)
        np.testing.assert_allclose(other.eigenvalues_, whole.eigenvalues_, rtol=1e-12)
        np.testing.assert_allclose(other.novelty(rows), whole.novelty(rows), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whole.eigenvalues_, exact.refit().eigenvalues_, rtol=1e-12)
    assert whole.total_weight_ == whole.n_samples_seen_ == 4000


def test_no_row_of_the_template_is_counted():
    template = StreamingKernelPCA(**SMALL).partial_fit(LONG + 1.0)
    model = Aggregate(template).add(LONG[:3000]).finish()
    moments = model.state_.summary.moments
    assert (model.n_samples_seen_, model.total_weight_, moments.total_weight) == (3000, 3000.0, 2944.0)
    kept = model.state_.summary.reservoir
    assert np.isin(kept.rows, LONG[:3000]).all()
    # What atoms explain is measured on rows of the stream alone.
    explained = 1.0 - model.reconstruction_error(LONG[:3000]).mean()
    low, high = model.captured_energy()
    assert low < explained < high
    # Atoms of the template are rows of no position; rows of the stream may replace them.
    own = model.atom_rows_ >= 0
    assert (model.atom_rows_[~own] == -1).all()
    assert not own.all()
    np.testing.assert_array_equal(model.atoms_[own], LONG[model.atom_rows_[own]])
    assert template.n_samples_seen_ == 6000


def test_rows_unlike_the_template_are_learned_as_well_as_without_it():
    rows = np.random.default_rng(3).normal(size=(6000, 3)) * 3.0 + 2.0
    others = np.random.default_rng(4).normal(size=(500, 3)) * 3.0 + 2.0
    warm = Aggregate(StreamingKernelPCA(**SMALL).partial_fit(LONG)).add(rows).finish()
    cold = Aggregate(StreamingKernelPCA(**SMALL)).add(rows).finish()
    assert warm.reconstruction_error(others).mean() < 1.05 * cold.reconstruction_error(others).mean()


def test_young_templates_give_their_atoms_and_their_width():
    template = StreamingKernelPCA(2, max_atoms=12, block_size=64).partial_fit(LONG[:300])
    state = Aggregate(template)
    assert state.kernel_ == template.kernel_
    loaded = sent(state.add(LONG[:100]))
    assert loaded.finish().kernel_ == template.kernel_
    pending = StreamingKernelPCA(2, max_atoms=12).partial_fit(LONG[:300])
    assert Aggregate(pending).add(LONG[:2000]).finish().kernel_ == pending.kernel_


def test_states_copy_and_pickle():
    state = Aggregate(StreamingKernelPCA(**SMALL)).add(LONG[:200])
    for twin in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state)):
        assert twin.add(LONG[200:300]).to_bytes() == sent(state).add(LONG[200:300]).to_bytes()
    assert state.n_rows_ == 200


def test_the_result_has_the_given_parameters_and_learns_on():
    model = StreamingKernelPCA(2, kernel=kernels.RBF(0.4), axes="likelihood", refit_every=77, block_size=16, n_active=5)
    whole = tree([Aggregate(model).add(part) for part in np.split(X, 3)], 2).finish()
    assert whole.get_params() == model.get_params()
    assert len(whole.eigenvalues_) == 2
    assert whole.partial_fit(X).n_samples_seen_ == 120
    loaded = StreamingKernelPCA.from_bytes(whole.to_bytes())
    assert loaded.partial_fit(X).to_bytes() == whole.partial_fit(X).to_bytes()


def test_kernels_with_functions_of_the_caller_are_passed_again():
    kernel = kernels.Custom(lambda A, B: A @ B.T)
    state = Aggregate(StreamingKernelPCA(1, kernel=kernel, block_size=16)).add(X)
    assert Aggregate.from_bytes(state.to_bytes(), kernel=kernel).merge(state).n_rows_ == 120
    with pytest.raises(CheckpointError, match=r"Aggregate\.from_bytes: .*functions of the caller"):
        sent(state)


def test_invalid_arguments_are_refused():
    with pytest.raises(TypeError, match="Aggregate: expected a StreamingKernelPCA but got KernelPCA"):
        Aggregate(KernelPCA())
    with pytest.raises(ValueError, match=r"Aggregate: expected a kernel whose scale is settled but got RBF"):
        Aggregate(StreamingKernelPCA())
    with pytest.raises(ValueError, match=r"Aggregate: expected half_life=None but got 9\.0, .*give rows the weights"):
        Aggregate(StreamingKernelPCA(**SMALL, half_life=9.0))
    state = Aggregate(StreamingKernelPCA(**SMALL))
    with pytest.raises(ValueError, match=r"Aggregate\.finish: found no rows to learn from"):
        state.finish()
    with pytest.raises(ValueError, match=r"Aggregate\.finish: found no rows to learn from"):
        state.zero().add(LONG, np.zeros(6000)).finish()
    known = state.add(LONG[:100]).to_bytes()
    for changes, message in (
        ({"kernel": kernels.RBF(0.3)}, r"with kernel=RBF\(gamma=0\.2\) but got kernel=RBF\(gamma=0\.3\); make all"),
        ({"max_atoms": 13}, "with max_atoms=12 but got max_atoms=13"),
    ):
        with pytest.raises(ValueError, match=rf"Aggregate\.merge: expected a state {message}"):
            state.merge(Aggregate(StreamingKernelPCA(**(SMALL | changes))).add(LONG[:100]))
    with pytest.raises(ValueError, match="expected a model of 3 features but got one of 2"):
        state.merge(state.zero(), Aggregate(StreamingKernelPCA(**SMALL)).add(X))
    named = Aggregate(StreamingKernelPCA(**SMALL)).add(pd.DataFrame(LONG[:100], columns=["a", "b", "c"]))
    others = Aggregate(StreamingKernelPCA(**SMALL)).add(pd.DataFrame(LONG[:100], columns=["a", "c", "b"]))
    before = named.to_bytes()
    with pytest.raises(
        ValueError, match=r"the features \['a', 'b', 'c'\] but got \['a', 'c', 'b'\]; merge models of the"
    ):
        named.merge(named.zero(), others)
    with pytest.raises(ValueError, match=r"feature names should match .* Pass the columns a, b, c in this order"):
        named.add(pd.DataFrame(LONG[:100], columns=["a", "c", "b"]))
    assert named.add(LONG[:0]).to_bytes() == before
    with pytest.raises(TypeError, match=r"Aggregate\.merge: expected an Aggregate but got StreamingKernelPCA; add"):
        state.merge(StreamingKernelPCA(**SMALL))
    with pytest.raises(ValueError, match="NaN"):
        state.add([[np.nan, 0.0, 0.0]])
    assert state.to_bytes() == known


def test_bytes_that_are_no_state_are_refused():
    known = Aggregate(StreamingKernelPCA(**SMALL)).add(LONG[:100]).to_bytes()
    model = StreamingKernelPCA(**SMALL).partial_fit(LONG[:100])
    for data, message in (
        (known[:100], "it is damaged, or not whole"),
        (b"", "this is not a checkpoint"),
        (model.to_bytes(), "they are a model's; read them with StreamingKernelPCA.from_bytes"),
        (model.to_bytes({"aggregate": 3}), "they are a model's"),
        (StreamingKernelPCA(**SMALL | {"kernel": "rbf"}).to_bytes("aggregate"), "a kernel whose scale is settled"),
    ):
        with pytest.raises(CheckpointError, match=rf"Aggregate\.from_bytes: the bytes are not .*: .*{message}"):
            Aggregate.from_bytes(data)
    # Every model can read a state: it is a checkpoint of few axes.
    assert StreamingKernelPCA.from_bytes(known).n_samples_seen_ == 100


@pytest.mark.parametrize("missing", ["skip", "marginal"])
def test_states_take_rows_with_gaps_as_their_template_does(missing):
    rows = LONG[:600].copy()
    rows[::7, 0] = rows[::11, 2] = rows[30] = np.nan
    empty = Aggregate(StreamingKernelPCA(**(SMALL | {"missing": missing})))
    states = [empty.zero().add(part) for part in np.split(rows, 3)]
    assert states[0].to_bytes() == empty.zero().add(rows[:77]).add(rows[77:200]).to_bytes()
    whole = tree(states, 2).finish()
    assert whole.missing == missing
    assert whole.n_samples_seen_ == 600
    bad = np.isnan(rows).all(axis=1) if missing == "marginal" else np.isnan(rows).any(axis=1)
    assert whole.n_rows_rejected_ == bad.sum()
    with pytest.raises(ValueError, match=f"expected a state with missing='{missing}' but got missing='raise'"):
        empty.merge(Aggregate(StreamingKernelPCA(**SMALL)))
