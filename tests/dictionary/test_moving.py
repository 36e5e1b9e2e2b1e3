"""Atoms that move: the function that they descend on, and where they arrive."""

import numpy as np
import pytest
from comparisons import state
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from strategies import kernel_cases, rows

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.dictionary import moving
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moving import Unexplained, descend, move_basis
from streamkpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial, RationalQuadratic

UNITS = np.array([2.0, 0.25, 10.0])
KERNELS = [
    RBF(0.3),
    Matern(0.5, length_scale=2.0),
    Matern(1.5, length_scale=2.0),
    RationalQuadratic(0.7, length_scale=1.5),
    Laplacian(0.2),
    Polynomial(2, gamma=0.5, coef0=1.0),
    Polynomial(3, gamma=0.3),
    Cosine() * RBF(0.1),
    RBF(0.3).on([0, 2]) + 0.2 * Linear(),
    RBF(0.3).in_units(UNITS),
    Laplacian(0.2).in_units(UNITS[:2]).on([2, 0]) + 0.2 * Linear(),
]
SMOOTH = [RBF(0.3), Matern(2.5, length_scale=2.0), Polynomial(2, gamma=0.5, coef0=1.0)]
EVALUATIONS = 12


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def weights_of(seed, n):
    return np.random.default_rng(seed).uniform(0.2, 3.0, n)


def naive_unexplained(kernel, atoms, rows, weights, ridge=0.0):
    """Compute the share of the energy outside the span of the atoms from kernel matrices alone."""
    own, cross = kernel.matrix(atoms), kernel.matrix(rows, atoms)
    own = own + np.diag(ridge * np.diagonal(own))
    energy = kernel.diagonal(rows)
    inside = np.einsum("ij,ji->i", cross, np.linalg.solve(own, cross.T))
    return weights @ (energy - inside) / (weights @ energy)


def basis_of(kernel, atoms):
    basis = Basis.empty(kernel, atoms.shape[1])
    basis, _ = basis.extend(atoms)
    return basis


def left_by(basis, rows, weights):
    """Return the share of the energy that a basis leaves, as it counts itself."""
    seen = basis.project(rows)
    return weights @ seen.residual / (weights @ seen.energy)


def assert_no_worse(kernel, atoms, rows, weights, n_evaluations=EVALUATIONS):
    """Check all that a move promises; return the two bases."""
    before = basis_of(kernel, atoms)
    kept_atoms = before.atoms.copy()
    after, kept, has_moved = move_basis(before, rows, weights, n_evaluations=n_evaluations)
    np.testing.assert_array_equal(before.atoms, kept_atoms)
    assert np.isfinite(after.atoms).all()
    assert np.isfinite(after.factor).all()
    assert after.size == len(kept) == len(has_moved) <= before.size
    assert len(set(kept.tolist())) == len(kept)
    np.testing.assert_array_equal((after.atoms != before.atoms[kept]).any(axis=1), has_moved)
    # Residuals are known up to the rounding of both bases, and the ridge hides as much.
    rounding = 1e-8 + before.rounding_amplification + after.rounding_amplification
    if weights @ np.abs(kernel.diagonal(rows)) > 0.0:
        assert left_by(after, rows, weights) <= left_by(before, rows, weights) + rounding
    return before, after


# The function and its derivatives


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_gradient_is_its_derivative(kernel):
    X, weights, atoms, step = rows_of(0, 60), weights_of(1, 60), rows_of(2, 5), 1e-5
    numerical = np.empty(atoms.shape)
    for i, j in np.ndindex(*atoms.shape):
        ends = []
        for sign in (1.0, -1.0):
            there = atoms.copy()
            there[i, j] += sign * step
            ends.append(naive_unexplained(kernel, there, X, weights, ridge=1e-9))
        numerical[i, j] = (ends[0] - ends[1]) / (2.0 * step)
    np.testing.assert_allclose(Unexplained(kernel, X, weights)(atoms).gradient, numerical, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_single_precision_shows_in_no_digit_that_matters(kernel, offset):
    """Far from the origin kernels of distances lose nothing, and others fall back to double where they would."""
    X, weights, atoms = rows_of(0, 300) + offset, weights_of(1, 300), rows_of(2, 9) + offset
    exact, found = (Unexplained(kernel, X, weights, single=single)(atoms) for single in (False, True))
    assert (found is None) == (exact is None)
    if exact is not None:
        assert found.value == pytest.approx(exact.value, rel=1e-3, abs=1e-6)
        for one, other in zip(found[1:], exact[1:], strict=True):
            assert np.abs(one - other).max() <= 1e-2 * np.abs(other).max()


def test_atoms_that_nearly_meet_are_evaluated_in_double_precision():
    X, atoms = rows_of(0, 200, 1), np.linspace(-2.0, 2.0, 12)[:, None]
    exact, found = (Unexplained(RBF(0.05), X, np.ones(200), single=single)(atoms) for single in (False, True))
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_array_equal(one, other)


def test_atoms_where_the_factor_fails_have_no_value():
    with np.errstate(all="raise", under="ignore"):
        for bad in (np.nan, np.inf, 1e200):
            assert Unexplained(Linear(), rows_of(0, 9), np.ones(9))(np.full((2, 3), bad)) is None
        # A ridge holds up atoms that are equal.
        met = Unexplained(RBF(0.3), rows_of(0, 9), np.ones(9))(np.ones((4, 3)))
    assert all(np.isfinite(part).all() for part in met)
    one = naive_unexplained(RBF(0.3), np.ones((1, 3)), rows_of(0, 9), np.ones(9))
    assert met.value == pytest.approx(one, abs=1e-6)


# Where atoms arrive


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("worth_rounding", [0, np.inf])
def test_moved_atoms_leave_less(kernel, worth_rounding, monkeypatch):
    monkeypatch.setattr(moving, "_WORTH_ROUNDING", worth_rounding)
    X, weights = rows_of(0, 200), weights_of(1, 200)
    before, after = assert_no_worse(kernel, X[:8], X, weights)
    old, new = (naive_unexplained(kernel, basis.atoms, X, weights) for basis in (before, after))
    assert new < 0.97 * old
    assert left_by(after, X, weights) == pytest.approx(new, abs=1e-9)


@pytest.mark.parametrize(("kernel", "m"), list(zip(SMOOTH, [1, 3, 6], strict=True)))
def test_an_optimizer_of_its_own_reaches_no_more(kernel, m):
    """L-BFGS-B of scipy on the naive formula, with derivatives by differences."""
    X, weights = rows_of(0, 80, 2), weights_of(1, 80)

    def value(flat):
        return naive_unexplained(kernel, flat.reshape(m, 2), X, weights, ridge=1e-9)

    theirs = minimize(value, X[:m].ravel(), method="L-BFGS-B", options={"maxiter": 200, "maxfun": 10**5}).fun
    start = value(X[:m].ravel())
    ours = value(descend(kernel, X[:m], X, weights, n_evaluations=80).ravel())
    assert ours <= theirs + 0.03 * (start - theirs)


@pytest.mark.parametrize("n_evaluations", [0, 1, 2, 50])
def test_more_evaluations_never_lose(n_evaluations, monkeypatch):
    X, weights, calls = rows_of(0, 100), weights_of(1, 100), []
    evaluate = Unexplained.__call__
    monkeypatch.setattr(Unexplained, "__call__", lambda self, *a, **k: calls.append(1) or evaluate(self, *a, **k))
    before, after = assert_no_worse(RBF(0.3), X[:6], X, weights, n_evaluations)
    assert len(calls) <= max(n_evaluations, 1)
    # The first evaluation only tells where the atoms stand.
    assert (left_by(after, X, weights) < left_by(before, X, weights)) == (n_evaluations > 1)


@given(st.data(), rows(min_rows=1, max_rows=60), kernel_cases(), st.integers(1, 8))
def test_no_move_loses(data, X, case, m):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weights = rng.uniform(0.0, 2.0, len(X))
    atoms = X[rng.permutation(len(X))[:m]]
    assert_no_worse(case.kernel, atoms, X, weights, n_evaluations=6)


def test_atoms_that_nothing_improves_stay_to_the_bit():
    # One atom in the middle of rows that lie evenly around it.
    X = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
    for kernel in (RBF(0.1), RationalQuadratic(1.0, length_scale=3.0)):
        np.testing.assert_array_equal(descend(kernel, np.zeros((1, 2)), X, np.ones(4), n_evaluations=6), [[0, 0]])


def test_atoms_stay_where_no_row_can_be_explained():
    atoms = rows_of(1, 3)
    for X, weights in ((rows_of(0, 5), np.zeros(5)), (np.zeros((5, 3)), np.ones(5)), (np.empty((0, 3)), np.empty(0))):
        assert descend(Linear(), atoms, X, weights, n_evaluations=6) is atoms
    assert descend(Linear(), atoms[:0], rows_of(0, 5), np.ones(5), n_evaluations=6).shape == (0, 3)
    assert_no_worse(RBF(0.3), atoms[:0], rows_of(0, 5), np.ones(5))


# Odd rows


@pytest.mark.parametrize("rule", [None, "std", "range", [1e6, 1e-6, 1.0]], ids=str)
def test_columns_of_a_million_beside_millionths(rule):
    X = rows_of(0, 100) * [1e6, 1e-6, 1.0]
    if rule is None:
        assert_no_worse(RBF(1e-12), X[:6], X, np.ones(100))
        return
    kernel = RBF(0.3).in_units(rule).settled(X)
    before, after = assert_no_worse(kernel, X[:6], X, np.ones(100))
    assert left_by(after, X, np.ones(100)) < 0.9 * left_by(before, X, np.ones(100))
    # Atoms move along all columns.
    assert np.all(np.abs(after.atoms - before.atoms).max(axis=0) > 0.01 * X.std(axis=0))


def test_atoms_that_meet_are_left_once():
    X = rows_of(0, 80, 1) * 0.01
    before, after = assert_no_worse(RBF(1.0), np.array([[0.0], [0.5], [0.5001], [0.5002]]), X, np.ones(80))
    assert after.size <= before.size
    assert np.isfinite(after.inverse).all()


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 3))[rng.integers(7, size=1300)] + rng.normal(scale=0.2, size=(1300, 3))
    monkeypatch.setattr(moving, "_WORTH_THREADS", 0)
    monkeypatch.setattr(moving, "_VALUES_AT_ONCE", 1000)
    models = []
    for n_threads in (1, 3):
        monkeypatch.setattr(moving, "blas_threads", lambda n_threads=n_threads: n_threads)
        model = StreamingKernelPCA(3, kernel=kernels.RBF(0.3), max_atoms=12, block_size=8, noise_variance=None)
        models.append(model.partial_fit(X))
    assert state(models[0]) == state(models[1])
