import numpy as np
import pytest

from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.selection import (
    choose_rows,
)
from streamkpca.errors import IndefiniteKernelWarning
from streamkpca.kernels import Linear, Sigmoid


def test_of_candidates_that_gain_the_same_the_farthest_is_chosen():
    # In the last dimension of a linear kernel every row explains all that is left.
    rows = np.random.default_rng(0).normal(size=(400, 3))
    basis = Basis.empty(Linear(), 3)
    choice = choose_rows(basis, basis.project(rows), np.ones(400), tolerated=1e-3)
    basis, _ = basis.extend(rows[choice.admitted])
    assert basis.size == 3
    assert np.linalg.cond(basis.factor) < 10.0


def test_admitted_rows_are_independent_beyond_rounding():
    # The atoms are so close that projections onto them have few correct digits: the last residual is below rounding.
    basis = Basis.empty(Linear(), 3)
    basis, _ = basis.extend(np.array([[1.0, 0.0, 0.0], [1.0, 1e-5, 0.0]]))
    rows = np.array([[1.0, 0.0, 1e-1], [1.0, 3e4, 1e-5]])
    assert choose_rows(basis, basis.project(rows), np.ones(2), tolerated=0.0).admitted.tolist() == [0]
    assert len(choose_rows(basis, basis.project(rows[1:]), np.ones(1), tolerated=0.0).admitted) == 0


def test_residuals_whose_squares_underflow_gain_nothing():
    rows = np.array([[1.0, 0.0], [0.5, 1.0], [1e-160, 1e-160]])
    basis = Basis.empty(Linear(), 2)
    assert sorted(choose_rows(basis, basis.project(rows), np.ones(3), tolerated=0.0).admitted) == [0, 1]


def test_the_warning_of_an_indefinite_kernel_names_a_remedy():
    # By itself no row shows it in the second case, as k(x, x) > 0, but k(x, y)^2 > k(x, x) k(y, y).
    for kernel, rows in (
        (Sigmoid(1.0, coef0=-1.0), np.random.default_rng(0).normal(size=(30, 2))),
        (Sigmoid(1.0), np.array([[1.0], [10.0]])),
    ):
        basis = Basis.empty(kernel, rows.shape[1])
        with pytest.warns(IndefiniteKernelWarning, match="not positive definite.*squared distance.*RBF or Polynomial"):
            choice = choose_rows(basis, basis.project(rows), np.ones(len(rows)), tolerated=0.0)
    assert len(choice.admitted) < 2
