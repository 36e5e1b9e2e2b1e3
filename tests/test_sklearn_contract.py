"""scikit-learn's own checks of estimators, all of them, none expected to fail."""

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA

ESTIMATORS = [StreamingKernelPCA(), KernelPCA(), SparseKernelPCA(), ApproximateKernelPCA()]


def named_checks():
    for estimator in ESTIMATORS:
        for _, check in estimator_checks_generator(estimator):
            yield pytest.param(estimator, check, id=f"{type(estimator).__name__}-{check.func.__name__}")


@pytest.mark.parametrize(("estimator", "check"), list(named_checks()))
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks(estimator, check):
    check(clone(estimator))
