"""Expected kernel values against quadrature over what is missing."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary.expected import ExpectedKernel, closed_form
from streamkpca.kernels import RBF, Custom, Linear, Matern, Polynomial
from streamkpca.rows.gaps import RowDistribution

D, NODES = 3, 40
CLOSED = {
    "RBF": RBF(0.3),
    "linear": Linear(),
    "times a number": 2.0 * (0.5 * RBF(0.3)),
    "RBF in units": RBF(0.3).in_units([1.0, 2.0, 0.5]),
    "RBF of some columns": RBF(0.3).on([2, 0]),
    "linear of some columns": Linear().on([1, 0]).in_units([1.0, 2.0, 0.5]),
}
OTHERS = {
    "Matern": Matern(1.5, length_scale=1.0),
    "polynomial": Polynomial(3, gamma=0.4, coef0=1.0),
    "sum": RBF(0.2) + Linear(),
    "exponential": Linear().exp(),
    "growing": (0.1 * RBF(0.3)).exp(),
    "of the caller": Custom(lambda X, Y: X @ Y.T),
}


def distribution(seed, independent):
    """Draw a normal distribution of rows; return it with its covariance."""
    rng = np.random.default_rng(seed)
    # Bounded, as the nodes of the quadrature are too few for deviations much wider than a kernel.
    root = 0.5 * rng.uniform(-1.0, 1.0, size=(D, D))
    covariance = root @ root.T + 0.2 * np.eye(D)
    scale = np.sqrt(np.diagonal(covariance))
    if independent:
        return RowDistribution(rng.normal(size=D), scale, np.empty((0, 0))), np.diag(scale**2)
    precision = np.linalg.inv(covariance / np.outer(scale, scale))
    return RowDistribution(rng.normal(size=D), scale, precision), covariance


def quadrature(row, mean, covariance):
    """Points (p, d) with the present numbers of the row, and weights (p,), of its conditional distribution."""
    gaps, others = np.flatnonzero(np.isnan(row)), np.flatnonzero(~np.isnan(row))
    centre, spread = mean[gaps], covariance[np.ix_(gaps, gaps)]
    if len(others):
        slopes = np.linalg.solve(covariance[np.ix_(others, others)], covariance[np.ix_(others, gaps)])
        centre = centre + (row[others] - mean[others]) @ slopes
        spread = spread - covariance[np.ix_(gaps, others)] @ slopes
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    grid = np.array(list(itertools.product(nodes, repeat=len(gaps))))
    shares = np.prod(list(itertools.product(weights / weights.sum(), repeat=len(gaps))), axis=1)
    points = np.repeat(row[None], len(grid), axis=0)
    points[:, gaps] = centre + grid @ np.linalg.cholesky(spread).T
    return points, shares


@pytest.mark.parametrize("name", CLOSED)
@given(st.integers(0, 10**6), st.sampled_from([(0,), (2,), (0, 1), (1, 2)]), st.booleans())
def test_closed_forms_are_integrals(name, seed, gaps, independent):
    kernel, rng = CLOSED[name], np.random.default_rng(seed)
    known, covariance = distribution(seed, independent)
    row, atoms = rng.normal(size=(1, D)), rng.normal(size=(4, D))
    row[0, list(gaps)] = np.nan
    points, shares = quadrature(row[0], known.mean, covariance)
    compared = ExpectedKernel(kernel, known).compare(row, atoms)
    values = kernel.matrix(points, atoms)
    size = float(kernel.diagonal(points) @ shares)
    np.testing.assert_allclose(compared.kernel_rows[0], shares @ values, rtol=1e-5, atol=1e-6 * size)
    assert compared.energy[0] + compared.spread[0] == pytest.approx(size, rel=1e-6)
    length = shares @ kernel.matrix(points) @ shares
    assert compared.energy[0] == pytest.approx(float(length), rel=1e-5, abs=1e-6 * size)


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_take_the_expected_row(name):
    kernel, rng = OTHERS[name], np.random.default_rng(1)
    assert closed_form(kernel.program) is None
    known, _ = distribution(0, independent=False)
    rows, atoms = rng.normal(size=(5, D)), rng.normal(size=(4, D))
    rows[0, 0] = rows[1, 1:] = rows[3] = np.nan
    expected = ExpectedKernel(kernel, known)
    whole, compared = known.complete(rows), expected.compare(rows, atoms)
    np.testing.assert_allclose(compared.kernel_rows, kernel.matrix(whole, atoms), rtol=1e-14)
    np.testing.assert_allclose(compared.energy, kernel.diagonal(whole), rtol=1e-14)
    assert not compared.spread.any()


def test_a_narrow_kernel_keeps_what_the_expected_row_has_lost():
    # At the expected row the value is exp(-1e5 * 9); integrated it is that of a normal density.
    known = RowDistribution(np.zeros(1), np.ones(1), np.eye(1))
    compared = ExpectedKernel(RBF(1e5), known).compare(np.array([[np.nan]]), np.array([[3.0]]))
    expected = (1.0 + 2e5) ** -0.5 * np.exp(-9.0 * 1e5 / (1.0 + 2e5))
    assert compared.kernel_rows[0, 0] == pytest.approx(expected, rel=1e-6)
