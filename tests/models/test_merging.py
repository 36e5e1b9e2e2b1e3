"""Law 4: merging is concatenation; counts, weights and energy add; only the model that merges changes."""

import copy

import numpy as np
import pytest
from comparisons import EXACT, assert_energy_is_conserved, bits, rounding_of, state
from hypothesis import given
from hypothesis import strategies as st
from strategies import kernel_cases, rows

from streamkpca import KernelPCA, StreamingKernelPCA, kernels, merge

X = np.random.default_rng(0).normal(size=(300, 2))
RBF = kernels.RBF(0.4)
MODES = ("moved", "rows")


def learned(part, **changes):
    settings = {"kernel": RBF, "noise_variance": None, "block_size": 16, "max_atoms": 20}
    return StreamingKernelPCA(3, **(settings | changes)).partial_fit(part)


def shards_of(rng, data):
    cuts = np.sort(rng.choice(len(data) - 1, size=min(4, len(data) - 1), replace=False)) + 1
    return np.split(data, cuts)


def merged_as_a_tree(models, rng):
    models = [copy.deepcopy(model) for model in models]
    while len(models) > 1:
        i, j = rng.choice(len(models), size=2, replace=False)
        models[i].merge(models[j])
        del models[j]
    return models[0]


@given(st.integers(0, 10**6), rows(min_rows=6, max_rows=40, offsets=False), kernel_cases())
def test_exact_models_merge_to_batch_kernel_pca(seed, data, case):
    rng = np.random.default_rng(seed)
    models = [learned(part, kernel=case.kernel, **EXACT) for part in shards_of(rng, data)]
    before = [state(model) for model in models]
    exact = KernelPCA(3, kernel=case.kernel).fit(data)
    scale = float(case.kernel.diagonal(data).max())
    for whole in (merge(*models), merge(*models[::-1]), merged_as_a_tree(models, rng)):
        assert whole.n_samples_seen_ == whole.total_weight_ == len(data)
        atol = 1e-8 * scale + rounding_of(whole)
        np.testing.assert_allclose(whole.eigenvalues_, exact.eigenvalues_, rtol=0, atol=atol)
        # A merged stream meets atoms in any order, and some come close to each other.
        rounding = whole.state_.summary.basis.rounding_amplification
        np.testing.assert_allclose(whole.reconstruction_error(data), 0.0, atol=(1e-7 + rounding) * scale)
        assert_energy_is_conserved(whole.state_.summary)
    assert [state(model) for model in models] == before


def test_positions_count_on():
    moved, rows_only = (merge(*(learned(part, atoms=atoms) for part in (X[:50], X[50:120]))) for atoms in MODES)
    np.testing.assert_array_equal(rows_only.atoms_, X[rows_only.atom_rows_])
    assert max(rows_only.atom_rows_) >= 50
    # Atoms of both begin as rows of the union, and those that have moved since are -1 there.
    origins = moved.atom_origins_
    assert min(origins) < 50 <= max(origins) < 120
    is_row = moved.atom_rows_ >= 0
    assert not is_row.all()
    np.testing.assert_array_equal(moved.atoms_[is_row], X[origins[is_row]])
    whole = moved
    reservoir = whole.state_.summary.reservoir
    np.testing.assert_array_equal(X[reservoir.positions], reservoir.rows)


def test_empty_models_add_nothing():
    fitted, empty = learned(X[:50]), StreamingKernelPCA(3, kernel=RBF, noise_variance=None, block_size=16, max_atoms=20)
    before = state(fitted)
    assert not empty.merge(StreamingKernelPCA(3, kernel=RBF)).__sklearn_is_fitted__()
    np.testing.assert_allclose(merge(fitted, empty).eigenvalues_, merge(fitted).eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(empty.merge(fitted).eigenvalues_, fitted.refit().eigenvalues_, rtol=1e-9)
    assert bits(empty.state_.summary.moments.energy) == bits(50.0)
    assert empty.n_samples_seen_ == 50
    assert before["rows"] == state(fitted)["rows"]


def refusals():
    fitted = learned(X[:40])
    return [
        (lambda: fitted, ValueError, "a model is given twice: its rows would count twice; .* to double"),
        (lambda: "model", TypeError, "StreamingKernelPCA.merge: expected a StreamingKernelPCA but got str"),
        (lambda: KernelPCA(2).fit(X), TypeError, "expected a StreamingKernelPCA but got KernelPCA"),
        (lambda: learned(np.c_[X, X]), ValueError, "expected a model of 2 features but got one of 4; merge models of"),
        (lambda: learned(X, kernel=kernels.RBF(0.5)), ValueError, r"kernel RBF\(gamma=0.4\) but got RBF\(gamma=0.5\)"),
        (lambda: learned(X, kernel="rbf"), ValueError, "settle the scale on some rows once and pass kernel=first"),
        (lambda: learned(X, half_life=9.0), ValueError, "half_life=None but got half_life=9.0; set the same half_life"),
    ], fitted


@pytest.mark.parametrize("which", range(7))
def test_what_cannot_be_merged_is_named_and_nothing_changes(which):
    cases, fitted = refusals()
    make, error, message = cases[which]
    before = state(fitted)
    with pytest.raises(error, match=message):
        fitted.merge(make())
    assert state(fitted) == before


def test_the_function_wants_models_once_each():
    fitted = learned(X[:40])
    with pytest.raises(TypeError, match="merge: expected at least one StreamingKernelPCA but got none"):
        merge()
    with pytest.raises(TypeError, match="merge: expected a StreamingKernelPCA but got int"):
        merge(3)
    with pytest.raises(
        TypeError, match=r"expected a StreamingKernelPCA but got list; pass them one by one: merge\(\*models\)"
    ):
        merge([fitted, learned(X[40:80])])
    with pytest.raises(ValueError, match=r"merge: a model is given twice: .* give each model once"):
        merge(fitted, fitted)
    assert not merge(StreamingKernelPCA(2)).__sklearn_is_fitted__()
