import numpy as np
import pandas as pd
import pytest

from streamkpca import ApproximateKernelPCA, KernelPCA, NotFittedError, SparseKernelPCA, StreamingKernelPCA, kernels

ESTIMATORS = [
    pytest.param(lambda: KernelPCA(3, kernel=kernels.RBF(0.5)), id="KernelPCA"),
    pytest.param(lambda: StreamingKernelPCA(3, kernel=kernels.RBF(0.5), block_size=8), id="StreamingKernelPCA"),
    pytest.param(lambda: SparseKernelPCA(3, kernel=kernels.RBF(0.5)), id="SparseKernelPCA"),
    pytest.param(lambda: ApproximateKernelPCA(3, kernel=kernels.RBF(0.5)), id="ApproximateKernelPCA"),
]
ATTRIBUTES = [
    "eigenvalues_",
    "explained_variance_ratio_",
    "atoms_",
    "n_atoms_",
    "kernel_",
    "total_weight_",
    "n_features_in_",
    "feature_names_in_",
]
X = np.random.default_rng(0).normal(size=(24, 2))


@pytest.fixture(params=ESTIMATORS)
def model(request):
    return request.param()


def test_attributes_of_an_unfitted_model_do_not_exist(model):
    for attribute in ATTRIBUTES:
        assert not hasattr(model, attribute)
        with pytest.raises(NotFittedError, match=f"{attribute} needs a fitted {type(model).__name__}"):
            getattr(model, attribute)


def test_names_are_no_matter_to_a_model_without_them(model):
    model.fit(X)
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(AttributeError, match="no feature_names_in_: its first rows came without column names"):
        _ = model.feature_names_in_
    np.testing.assert_array_equal(model.transform(pd.DataFrame(X, columns=["a", "b"])), model.transform(X))


def test_answers_cannot_be_written_into_the_model(model):
    model.fit(X)
    for name in ("eigenvalues_", "explained_variance_ratio_", "atoms_"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(model, name)[0] = 1.0
