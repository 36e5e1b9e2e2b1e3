"""Kernel matrices in the place of rows: kernel="precomputed", as in scikit-learn."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from streamkpca import ApproximateKernelPCA, IndefiniteKernelWarning, KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.export import to_c
from streamkpca.kernels import RBF, Linear, kernel_from

RANDOM = np.random.default_rng(0)
ROWS, NEW = RANDOM.normal(size=(40, 3)), RANDOM.normal(size=(7, 3))
KERNEL = RBF(0.4)
K, K_NEW = KERNEL.matrix(ROWS), KERNEL.matrix(NEW, ROWS)
# Moved atoms are no rows, so no row's kernel value is theirs.
BATCH = [KernelPCA(3), SparseKernelPCA(3, n_active=10), ApproximateKernelPCA(3, max_atoms=12, atoms="rows")]


def both(model, **fitted):
    """Fit a model to rows, and one to their kernel values."""
    of_rows = clone(model).set_params(kernel=KERNEL).fit(ROWS, **fitted)
    return of_rows, clone(model).set_params(kernel="precomputed").fit(K, **fitted)


@pytest.mark.parametrize("model", BATCH, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("fitted", [{}, {"sample_weight": np.arange(1.0, 41.0)}], ids=["plain", "weighted"])
def test_kernel_values_tell_the_same_as_rows(model, fitted):
    of_rows, of_values = both(model, **fitted)
    np.testing.assert_allclose(of_values.eigenvalues_, of_rows.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(of_values.explained_variance_ratio_, of_rows.explained_variance_ratio_, rtol=1e-9)
    # Solving with kernel matrices of forty rows amplifies rounding.
    np.testing.assert_allclose(of_values.transform(K_NEW), of_rows.transform(NEW), atol=1e-8)
    np.testing.assert_allclose(of_values.hotelling_t2(K_NEW), quiet_t2(of_rows), rtol=1e-6)
    np.testing.assert_allclose(of_values.control_limits(), of_rows.control_limits(), rtol=1e-6)
    assert of_values.n_atoms_ == of_rows.n_atoms_
    assert of_values.n_features_in_ == 40
    if not isinstance(model, KernelPCA):
        np.testing.assert_array_equal(of_values.atom_rows_, of_rows.atom_rows_)
        np.testing.assert_allclose(of_values.sparsity_path([0.05]).weights, of_rows.sparsity_path([0.05]).weights)


def quiet_t2(model):
    with pytest.warns(match="local kernel"):
        return model.hotelling_t2(NEW)


@pytest.mark.parametrize("model", BATCH, ids=lambda model: type(model).__name__)
def test_a_copy_of_the_model_answers_alike_and_later_changes_of_the_matrix_do_not_matter(model):
    matrix = K.copy()
    fitted = clone(model).set_params(kernel="precomputed").fit(matrix)
    expected = fitted.transform(K_NEW)
    matrix[:] = 7.0
    np.testing.assert_array_equal(fitted.transform(K_NEW), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(K_NEW), expected)


@pytest.mark.parametrize("model", BATCH, ids=lambda model: type(model).__name__)
def test_fit_takes_square_symmetric_matrices_and_queries_as_many_columns(model):
    model = clone(model).set_params(kernel="precomputed")
    with pytest.raises(ValueError, match=r"square kernel matrix .* got the shape \(7, 40\); pass K of shape"):
        model.fit(K_NEW)
    skew = K.copy()
    skew[2, 5] += 0.1
    with pytest.raises(ValueError, match=r"expected a symmetric matrix but K\[2, 5\] is .* and K\[5, 2\] is"):
        model.fit(skew)
    with pytest.raises(ValueError, match="contains NaN"):
        model.fit(np.where(K == K[3, 4], np.nan, K))
    model.fit(K)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 40 features"):
        model.transform(NEW)


def test_single_precision_is_symmetric_enough():
    rough = (K + 1e-7 * np.triu(RANDOM.normal(size=K.shape))).astype(np.float32)
    model = KernelPCA(3, kernel="precomputed").fit(rough)
    np.testing.assert_allclose(model.eigenvalues_, KernelPCA(3, kernel=KERNEL).fit(ROWS).eigenvalues_, rtol=1e-5)


@pytest.mark.parametrize("method", ["reconstruction_error", "novelty", "contributions"])
def test_questions_that_need_more_than_kernel_values_are_refused(method):
    for model in BATCH:
        fitted = clone(model).set_params(kernel="precomputed").fit(K)
        with pytest.raises(ValueError, match=f"{method} needs .*kernel='precomputed' does not give"):
            getattr(fitted, method)(K_NEW)


def test_scikit_learn_finds_no_method_that_could_not_answer():
    model = KernelPCA(3, kernel="precomputed").fit(K)
    assert hasattr(KernelPCA(), "score")
    assert KernelPCA.score.__name__ == "score"
    for method, given in (("score", K_NEW), ("score_samples", K_NEW), ("inverse_transform", np.zeros((1, 3)))):
        with pytest.raises(AttributeError, match=rf"KernelPCA has no {method} with kernel='precomputed': it needs k"):
            getattr(model, method)
        # The fitted model counts, too.
        with pytest.raises(ValueError, match=f"{method} needs"):
            getattr(model.set_params(kernel="rbf"), method)(given)
        model.set_params(kernel="precomputed")


def test_rows_cannot_be_given_back():
    model = KernelPCA(3, kernel="precomputed").fit(K)
    with pytest.raises(AttributeError, match="has no atoms_: with kernel='precomputed'"):
        _ = model.atoms_
    with pytest.raises(ValueError, match="to_c: expected a kernel made of formulas"):
        to_c(model)


def test_cross_validation_cuts_both_sides_of_the_matrix():
    labels = (ROWS[:, 0] > 0.0).astype(int)
    assert get_tags(KernelPCA(kernel="precomputed")).input_tags.pairwise
    assert not get_tags(KernelPCA()).input_tags.pairwise
    scores = [
        cross_val_score(make_pipeline(model, LogisticRegression()), X, labels, cv=4)
        for model, X in ((KernelPCA(3, kernel="precomputed"), K), (KernelPCA(3, kernel=KERNEL), ROWS))
    ]
    np.testing.assert_allclose(*scores)
    assert scores[0].mean() > 0.8


def test_a_table_of_kernel_values_keeps_its_names():
    names = [f"row{i}" for i in range(40)]
    model = KernelPCA(3, kernel="precomputed").fit(pd.DataFrame(K, columns=names))
    np.testing.assert_array_equal(model.feature_names_in_, names)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(pd.DataFrame(K_NEW, columns=names[::-1]))


def test_one_row_is_a_matrix_too():
    model = KernelPCA(1, kernel="precomputed", center=False).fit([[4.0]])
    np.testing.assert_allclose(np.abs(model.transform([[2.0]])), [[1.0]])
    np.testing.assert_allclose(
        KernelPCA(1, kernel=Linear(), center=False).fit([[2.0]]).eigenvalues_, model.eigenvalues_
    )


def test_a_matrix_of_no_inner_products_warns():
    with pytest.warns(IndefiniteKernelWarning):
        KernelPCA(1, kernel="precomputed").fit([[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    "learn",
    [
        lambda **given: StreamingKernelPCA(**given).partial_fit(K),
        lambda kernel: kernel_from(kernel, where="x"),
    ],
    ids=["streaming", "kernel_from"],
)
def test_a_stream_says_why_it_has_no_such_matrix(learn):
    with pytest.raises(
        ValueError, match=r"'precomputed'\. A model that meets rows one after another.*KernelPCA, Sparse"
    ):
        learn(kernel="precomputed")


def test_a_matrix_has_no_parameters():
    with pytest.raises(ValueError, match="has no parameter 'gamma'; only kernels have them"):
        KernelPCA(kernel="precomputed").set_params(kernel__gamma=1.0)
