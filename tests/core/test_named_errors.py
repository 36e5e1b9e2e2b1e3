"""Where an error says that it was raised: at the call of the user, not in a check below it."""

import pickle

import numpy as np
import pytest

from streamkpca import ApproximateKernelPCA, KernelPCA, StreamingKernelPCA, kernels
from streamkpca.errors import RowError
from streamkpca.monitoring import Monitor


def test_the_outermost_call_is_named_once():
    with pytest.raises(ValueError, match=r"^RBF: gamma must be"):
        kernels.RBF(-1.0)
    with pytest.raises(ValueError, match=r"^KernelPCA\.fit: kernel must be"):
        KernelPCA(kernel="rbff").fit([[1.0]])
    with pytest.raises(ValueError, match=r"^StreamingKernelPCA\.partial_fit: max_atoms must be"):
        StreamingKernelPCA(max_atoms=0).partial_fit([[1.0]])
    with pytest.raises(ValueError, match=r"^ApproximateKernelPCA\.fit_transform: X contains NaN"):
        ApproximateKernelPCA().fit_transform([[np.nan]])
    with pytest.raises(ValueError, match=r"^Monitor\.update: X contains infinity"):
        Monitor().update([[np.inf]])


def test_errors_of_other_code_stay_as_they_are():
    def fail(X, Y):
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        KernelPCA(kernel=kernels.Custom(fail)).fit([[1.0]])
    with pytest.raises(TypeError, match=r"^KernelPCA\.fit\(\) missing 1 required positional argument: 'X'$"):
        KernelPCA().fit()


def test_a_refused_row_keeps_its_number_and_its_place():
    with pytest.raises(RowError, match=r"^KernelPCA\.fit: .* for row 1 of these") as caught:
        KernelPCA(kernel="linear").fit([[1.0], [1e140]])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
