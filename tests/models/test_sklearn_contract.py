"""scikit-learn's own checks of estimators, all of them, none expected to fail."""

import warnings

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from streamkpca import KernelPCA, OutlierDetector, StreamingKernelPCA

# The batch estimators share what the checks reach.
ESTIMATORS = [StreamingKernelPCA(), KernelPCA(), OutlierDetector()]


def named_checks():
    for estimator in ESTIMATORS:
        with warnings.catch_warnings():
            # That it does not inherit from BaseEstimator.
            warnings.simplefilter("ignore", UserWarning)
            checks = list(estimator_checks_generator(estimator))
        for _, check in checks:
            yield pytest.param(estimator, check, id=f"{estimator}-{check.func.__name__}")


@pytest.mark.parametrize(("estimator", "check"), list(named_checks()))
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks(estimator, check):
    check(clone(estimator))
