import numpy as np
import pytest

from streamkpca._core.linalg import LEAST_PIVOT
from streamkpca.dictionary.basis import Basis, rounding_error
from streamkpca.kernels import RBF, Linear, Polynomial


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def basis_of(rows, kernel=None):
    basis = Basis.empty(RBF(0.3) if kernel is None else kernel, rows.shape[1])
    basis, accepted = basis.extend(rows)
    return basis, accepted


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e68])
def test_repeated_rows_are_admitted_once_at_any_scale(scale):
    atoms = scale * np.repeat(rows_of(3, 2), 3, axis=0)
    basis, accepted = basis_of(atoms, Linear())
    np.testing.assert_array_equal(accepted, [0, 3])
    assert len(basis.extend(atoms)[1]) == 0


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2, gamma=1.0), Polynomial(3, gamma=1 / 3)], ids=repr)
@pytest.mark.parametrize("seed", [0])
def test_the_stated_rounding_bounds_what_rounding_does(kernel, seed):
    rows = rows_of(seed, 400)
    basis = Basis.empty(kernel, 3)
    for start in range(0, 400, 8):
        basis, _ = basis.extend(rows[start : start + 8])
    # The atoms span all features of a kernel of finite rank, so every residual is rounding.
    seen = basis.project(rows)
    bound = rounding_error(seen.energy, basis.interpolation(seen.coordinates), basis.energy)
    worst = float(np.max(np.abs(seen.residual) / np.maximum(bound, LEAST_PIVOT * seen.energy)))
    assert worst <= 1.0
