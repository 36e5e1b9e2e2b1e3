"""Categories: `Equal` is the linear kernel of one-hot columns, and everything that a model does follows from that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import ApproximateKernelPCA, KernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF, Equal, Linear, kernel_from

RANDOM = np.random.default_rng(0)
# A number, and three columns of 4, 3 and 2 categories.
CATEGORIES = np.column_stack([RANDOM.integers(0, count, 120) for count in (4, 3, 2)]).astype(float)
ROWS = np.column_stack([RANDOM.normal(size=120), CATEGORIES])
KERNEL = RBF(0.5).on(0) * (0.8 * Equal().on([1, 2, 3])).exp()


def one_hot(rows):
    parts = [rows[:, [j]] == np.arange(count) for j, count in enumerate((4, 3, 2))]
    return np.concatenate(parts, axis=1).astype(float)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 5), st.floats(0.01, 3.0))
def test_it_is_the_linear_kernel_and_its_exponential_the_rbf_of_one_hot_columns(seed, n, m, gamma):
    random = np.random.default_rng(seed)
    X, Y = (np.column_stack([random.integers(0, c, size) for c in (4, 3, 2)]).astype(float) for size in (n, m))
    np.testing.assert_array_equal(Equal().matrix(X, Y), Linear().matrix(one_hot(X), one_hot(Y)))
    np.testing.assert_array_equal(Equal().matrix(X), Linear().matrix(one_hot(X)))
    np.testing.assert_array_equal(Equal().diagonal(X), 3.0)
    exponential = float(np.exp(-6.0 * gamma)) * (2.0 * gamma * Equal()).exp()
    np.testing.assert_allclose(exponential.matrix(X, Y), RBF(gamma).matrix(one_hot(X), one_hot(Y)), rtol=1e-12)


def test_an_unseen_category_is_equal_to_none():
    model = KernelPCA(3, kernel=Equal().on([1, 2, 3])).fit(ROWS)
    unseen = np.array([[0.0, 9.0, 9.0, 9.0], [0.0, np.pi, -1.0, 2.0**53]])
    np.testing.assert_allclose(model.reconstruction_error(unseen), 3.0)


def test_what_depends_on_equality_grows_with_the_distance_of_the_other_columns():
    assert KERNEL.is_stationary
    assert not Equal().is_stationary
    assert not (RBF(1.0) * Equal()).is_stationary
    assert not (Linear() * Equal().exp()).is_stationary
    assert not (RBF(1.0) + Equal()).exp().is_stationary
    model = StreamingKernelPCA(2, kernel=KERNEL, max_atoms=20, block_size=32).fit(ROWS)
    far, farther = model.novelty(np.array([[50.0, 0.0, 0.0, 0.0], [500.0, 7.0, 7.0, 7.0]]))
    assert 0.0 < 50.0 * far < farther < np.inf


@pytest.mark.parametrize("kind", [StreamingKernelPCA, ApproximateKernelPCA])
def test_atoms_move_in_numbers_and_keep_their_categories(kind):
    model = kind(2, kernel=KERNEL, max_atoms=8).fit(ROWS)
    moved = model.atom_rows_ < 0
    assert moved.any()
    known = {tuple(row) for row in CATEGORIES}
    assert {tuple(row) for row in model.atoms_[:, 1:]} <= known


@pytest.mark.parametrize("kernel", [KERNEL, Equal().on([1, 2, 3])], ids=repr)
def test_pre_images_have_categories_that_were_seen(kernel):
    model = KernelPCA(8, kernel=kernel).fit(ROWS)
    found = model.inverse_transform(model.transform(ROWS))
    assert {tuple(row) for row in found[:, 1:]} <= {tuple(row) for row in CATEGORIES}
    # Rows of the fit are projected nearest to rows of nearly the same place.
    assert (found[:, 1:] == CATEGORIES).mean() > 0.9


def test_units_do_not_change_what_is_equal_and_matrices_are_refused():
    np.testing.assert_array_equal(Equal().in_units([0.3, 7.0, 1e9]).matrix(CATEGORIES), Equal().matrix(CATEGORIES))
    with pytest.raises(ValueError, match=r"Equal: expected features as they are but in_units multiplies them"):
        Equal().in_units(np.eye(3) + 0.1)
    with pytest.raises(ValueError, match=r"Equal: expected features as they are"):
        Equal().in_units("whitened").settled(CATEGORIES)
    assert kernel_from("equal") == Equal()
