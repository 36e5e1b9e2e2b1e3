"""What the estimators share that answer from a snapshot."""

import numpy as np
import pytest

from streamkpca import ApproximateKernelPCA, NotFittedError, SparseKernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF

X = np.random.default_rng(0).normal(size=(40, 2))
ESTIMATORS = [
    pytest.param(lambda: StreamingKernelPCA(2, kernel=RBF(0.5), block_size=8, max_atoms=9), id="streaming"),
    pytest.param(lambda: StreamingKernelPCA(2, kernel=RBF(0.5), block_size=8, max_atoms=9, atoms="rows"), id="rows"),
    pytest.param(lambda: SparseKernelPCA(2, kernel=RBF(0.5)), id="sparse"),
    pytest.param(lambda: ApproximateKernelPCA(2, kernel=RBF(0.5), max_atoms=9), id="approximate"),
    pytest.param(lambda: ApproximateKernelPCA(2, kernel=RBF(0.5), max_atoms=9, atoms="rows"), id="approximate rows"),
]
ATTRIBUTES = [
    "atom_rows_", "atom_origins_", "weights_", "active_", "n_active_", "noise_variance_", "unexplained_energy_ratio_",
]  # fmt: skip


@pytest.fixture(params=ESTIMATORS)
def model(request):
    return request.param()


def test_an_unfitted_model_has_no_attributes_of_a_snapshot(model):
    for attribute in ATTRIBUTES:
        assert not hasattr(model, attribute)
        with pytest.raises(NotFittedError, match=f"{attribute} needs a fitted {type(model).__name__}"):
            getattr(model, attribute)
    model.fit(X)
    assert all(hasattr(model, attribute) for attribute in ATTRIBUTES)


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
