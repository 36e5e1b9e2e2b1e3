"""Figures that the project promised, on real data by path."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.linalg import eigsh

from streamkpca import StreamingKernelPCA, kernels

pytestmark = pytest.mark.slow

USPS = Path(__file__).parents[3] / "shared" / "data" / "usps" / "usps.npz"
GAMMA = 0.00206


@pytest.fixture(scope="module")
def digits():
    if not USPS.exists():
        pytest.skip(f"the USPS digits are not part of the project; {USPS} is not there")
    with np.load(USPS) as file:
        return file["X_train"].astype(np.float64)


def variance_on_exact_axes(rows, q):
    """Sum the q largest eigenvalues of the kernel matrix over n, without the package."""
    squares = np.square(rows).sum(axis=1)
    gram = rows @ rows.T
    gram *= 2.0
    gram -= squares[:, None]
    gram -= squares
    gram *= GAMMA
    np.exp(gram, out=gram)
    return float(eigsh(gram, k=q, return_eigenvectors=False, v0=np.ones(len(rows))).sum() / len(rows))


def test_few_digits_hold_the_variance_of_the_exact_axes(digits):
    """At most 60 of 100 atoms hold 97.5% of the variance on the ten axes of exact kernel PCA of all 7,291 digits.

    Variance is the mean squared projection over all rows, without centring. Measured: 47 active atoms, 99.6%. The
    figure does not hold centred: without the mean, which the first axis nearly is (.62 of .80), the ten axes have .19
    left to hold, and even all 100 atoms hold no more than 96.9% of that.
    """
    model = StreamingKernelPCA(10, kernel=kernels.RBF(GAMMA), max_atoms=100, center=False)
    for chunk in np.array_split(digits, 20):
        model.partial_fit(chunk)
    model.refit()
    assert model.n_atoms_ == 100
    assert model.n_active_ <= 60
    held = np.square(model.transform(digits)).mean(axis=0).sum()
    assert 0.975 <= held / variance_on_exact_axes(digits, 10) <= 1.0
