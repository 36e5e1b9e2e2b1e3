"""What all estimators share: queries, fitted attributes, names of columns, pickles."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import pytest

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA, kernels
from streamkpca.errors import NotFittedError

ESTIMATORS = [
    pytest.param(lambda: KernelPCA(3, kernel=kernels.RBF(0.5)), id="KernelPCA"),
    pytest.param(lambda: StreamingKernelPCA(3, kernel=kernels.RBF(0.5), block_size=8), id="StreamingKernelPCA"),
    pytest.param(lambda: SparseKernelPCA(3, kernel=kernels.RBF(0.5)), id="SparseKernelPCA"),
    pytest.param(lambda: ApproximateKernelPCA(3, kernel=kernels.RBF(0.5)), id="ApproximateKernelPCA"),
    pytest.param(lambda: StreamingKernelPCA(3, kernel=kernels.RBF(0.5), block_size=8, max_atoms=9), id="moved"),
    pytest.param(lambda: ApproximateKernelPCA(3, kernel=kernels.RBF(0.5), max_atoms=9, atoms="rows"), id="rows"),
]
ATTRIBUTES = [
    "eigenvalues_", "eigenvalue_bounds_", "explained_variance_ratio_", "unexplained_energy_ratio_", "noise_variance_",
    "atoms_", "n_atoms_", "atom_rows_", "atom_origins_", "weights_", "active_", "n_active_", "total_weight_",
    "kernel_", "n_features_in_", "feature_names_in_",
]  # fmt: skip
X = np.random.default_rng(0).normal(size=(24, 2))


@pytest.fixture(params=ESTIMATORS)
def model(request):
    return request.param()


def test_attributes_of_an_unfitted_model_do_not_exist(model):
    for attribute in ATTRIBUTES:
        assert not hasattr(model, attribute)
        with pytest.raises(NotFittedError, match=f"{attribute} needs a fitted {type(model).__name__}"):
            getattr(model, attribute)


def test_fitted_attributes_agree_with_each_other(model):
    model.fit(X)
    is_row = model.atom_rows_ >= 0
    np.testing.assert_array_equal(X[model.atom_rows_[is_row]], model.atoms_[is_row])
    np.testing.assert_array_equal(model.atom_rows_, np.where(is_row, model.atom_origins_, -1))
    assert is_row.all() or model.get_params()["atoms"] == "moved"
    assert len(set(model.atom_origins_.tolist())) == model.n_atoms_
    assert np.all((model.atom_origins_ >= 0) & (model.atom_origins_ < len(X)))
    assert model.atom_rows_.dtype == model.atom_origins_.dtype == np.int64
    assert len(model.weights_) == len(model.active_) == model.n_atoms_
    np.testing.assert_array_equal(model.active_, model.weights_ > 0.0)
    assert model.active_.dtype == bool
    assert model.n_active_ == model.active_.sum()
    assert 0.0 <= model.unexplained_energy_ratio_ < 1.0
    inside = model.kernel_.matrix(X, model.atoms_)
    gram = model.kernel_.matrix(model.atoms_)
    lost = 1.0 - np.einsum("ij,ji->i", inside, np.linalg.lstsq(gram, inside.T, rcond=1e-12)[0])
    assert model.unexplained_energy_ratio_ == pytest.approx(lost.mean(), abs=1e-6)
    assert model.noise_variance_ is None or model.noise_variance_ > 0.0


def test_a_model_fitted_without_names_accepts_tables(model):
    model.fit(X)
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(AttributeError, match="no feature_names_in_: its first rows came without column names"):
        _ = model.feature_names_in_
    np.testing.assert_array_equal(model.transform(pd.DataFrame(X, columns=["a", "b"])), model.transform(X))


def test_answers_cannot_be_written_into_the_model(model):
    for one in (model.fit(X), pickle.loads(pickle.dumps(copy.deepcopy(model)))):
        for name in ("eigenvalues_", "explained_variance_ratio_", "atoms_"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(one, name)[0] = 1.0


def test_the_caller_may_write_to_the_rows_later(model):
    rows, weights = X.copy(), np.ones(len(X))
    before = model.fit(rows, sample_weight=weights).transform(X)
    n_active = model.n_active_
    rows[:], weights[:] = 1e9, 0.0
    assert model.n_active_ == n_active
    np.testing.assert_array_equal(model.transform(X), before)


def test_an_unknown_parameter_sets_nothing_and_lists_the_known(model):
    with pytest.raises(ValueError, match=r"set_params: 'colour' is not a parameter; the parameters are n_components, "):
        model.set_params(n_components=1, colour=2.0)
    assert model.n_components == 3


def test_defaults_and_arrays_are_not_printed(model):
    shown = repr(model)
    assert re.match(rf"{type(model).__name__}\(n_components=3, .*kernel=RBF\(gamma=0\.5\)", shown)
    assert "center" not in shown
    assert eval(shown, {type(model).__name__: type(model), "RBF": kernels.RBF}).get_params() == model.get_params()
    assert repr(type(model)()) == f"{type(model).__name__}()"
    assert "array" not in repr(model.fit(X).snapshot_)


def test_scores_take_what_few_rows_share_for_unexplained(model):
    model.fit(X)
    squares = model.transform(X) ** 2
    unshared = squares / (squares + 100.0 * model.eigenvalues_)
    expected = model.reconstruction_error(X, 3) + (unshared * squares).sum(axis=1)
    np.testing.assert_allclose(model.score_samples(X), -expected, rtol=1e-12)


def test_an_outlier_that_was_fitted_has_the_lowest_score(model):
    rows = np.vstack([0.3 * np.random.default_rng(0).normal(size=(60, 2)), [[4.0, 4.0]]])
    assert model.fit(rows).score_samples(rows).argmin() == 60


def test_n_components_of_errors_is_at_most_the_number_of_axes(model):
    model.fit(X)
    for n_components, error, message in [
        (-1, ValueError, "n_components must be at least 0, got -1"),
        (4, ValueError, "n_components is 4 but the model has 3 axes; ask for fewer, or fit with a larger"),
        (1.5, TypeError, "n_components must be an integer"),
    ]:
        with pytest.raises(error, match=rf"{type(model).__name__}\.reconstruction_error: {message}"):
            model.reconstruction_error(X, n_components)
    assert np.all(model.reconstruction_error(X, 0) >= model.reconstruction_error(X, 3) - 1e-12)


def test_other_names_or_another_order_are_refused(model):
    model.fit(pd.DataFrame(X, columns=["a", "b"]))
    for columns, message in [
        (["b", "a"], "should match those that were passed during fit. Pass the columns a, b in this order"),
        (["a", "c"], "Unexpected: c. Missing: b. Pass the columns a, b"),
        (["a"], "Missing: b. "),
        (["a", "b", "c"], "Unexpected: c. "),
        (["a", "a"], "Missing: b. "),
    ]:
        table = pd.DataFrame(np.ones((2, len(columns))), columns=columns)
        with pytest.raises(ValueError, match=rf"{type(model).__name__}\.transform: The feature names .*{message}"):
            model.transform(table)
