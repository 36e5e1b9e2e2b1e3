"""scikit-learn's own checks of estimators, all of them, none expected to fail."""

import warnings

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA

ESTIMATORS = [StreamingKernelPCA(), KernelPCA(), SparseKernelPCA(), ApproximateKernelPCA()]
# Two that differ in what they keep; scikit-learn gives them kernel matrices, by their tag.
ESTIMATORS += [KernelPCA(kernel="precomputed"), ApproximateKernelPCA(kernel="precomputed")]


def named_checks():
    for estimator in ESTIMATORS:
        with warnings.catch_warnings():
            # That it does not inherit from BaseEstimator.
            warnings.simplefilter("ignore", UserWarning)
            checks = list(estimator_checks_generator(estimator))
        for _, check in checks:
            # It asks about rows of 3 columns after a fit to a 10 by 10 matrix, and expects to read of NaN first.
            if check.func.__name__ == "check_estimators_nan_inf" and estimator.kernel == "precomputed":
                continue
            yield pytest.param(estimator, check, id=f"{estimator}-{check.func.__name__}")


@pytest.mark.parametrize(("estimator", "check"), list(named_checks()))
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks(estimator, check):
    check(clone(estimator))
