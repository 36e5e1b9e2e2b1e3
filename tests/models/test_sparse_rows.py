"""scipy's sparse matrices become dense rows part by part, and the model is that of dense rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from streamkpca import ApproximateKernelPCA, KernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF
from streamkpca.monitoring import Monitor

SETTINGS = {"n_components": 3, "kernel": RBF(0.01), "max_atoms": 24, "block_size": 64, "random_state": 0}


RANDOM = np.random.default_rng(0)
ROWS = sp.csr_array(np.where(RANDOM.random((300, 200)) < 0.05, RANDOM.integers(1, 6, (300, 200)), 0.0))


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix])
def test_the_model_and_its_answers_are_those_of_dense_rows(form):
    dense = StreamingKernelPCA(**SETTINGS).partial_fit(ROWS.toarray())
    model = StreamingKernelPCA(**SETTINGS).partial_fit(form(ROWS))
    assert model.to_bytes() == dense.to_bytes()
    for question in ("transform", "novelty", "reconstruction_error", "score_samples"):
        np.testing.assert_array_equal(getattr(model, question)(form(ROWS)), getattr(dense, question)(ROWS.toarray()))
    pieces = StreamingKernelPCA(**SETTINGS)
    for start in range(0, 300, 77):
        pieces.partial_fit(form(ROWS[start : start + 77]))
    assert pieces.to_bytes() == dense.to_bytes()
    for batch in (KernelPCA(2), ApproximateKernelPCA(2, max_atoms=20)):
        found, expected = batch.fit_transform(form(ROWS)), batch.fit_transform(ROWS.toarray())
        np.testing.assert_array_equal(found, expected)


def test_entries_given_twice_add_up_and_bad_numbers_are_named():
    odd = sp.coo_array(([1.0, 2.0, 0.0, 4.0], ([0, 0, 1, 2], [150, 150, 7, 9])), shape=(4, 200))
    np.testing.assert_array_equal(KernelPCA(2, kernel=RBF(0.1)).fit(odd).atoms_, odd.toarray())
    bad = ROWS.copy()
    bad.data[bad.indptr[7]] = np.nan
    column = int(bad.indices[bad.indptr[7]])
    model = StreamingKernelPCA(**SETTINGS)
    with pytest.raises(ValueError, match=rf"partial_fit: X contains NaN \(first at row 7, column {column};"):
        model.partial_fit(bad)
    with pytest.raises(ValueError, match=rf"KernelPCA.fit: X contains NaN \(first at row 7, column {column};"):
        KernelPCA(2).fit(bad)
    assert model.set_params(missing="skip").partial_fit(bad).n_rows_rejected_ == 1
    for wrong, error, message in [
        (ROWS[:, :-1], ValueError, "X has 199 features, but it is expecting 200"),
        (ROWS[:0], ValueError, r"found 0 sample\(s\)"),
        (ROWS.astype(complex), TypeError, "X is sparse with dtype complex128 but real numbers"),
        (sp.coo_array([1.0, 0.0, 2.0]), ValueError, "expected"),
    ]:
        with pytest.raises(error, match=message):
            model.partial_fit(wrong)
    assert model.n_samples_seen_ == 300


def test_a_monitor_takes_them_too():
    found, expected = (Monitor(StreamingKernelPCA(**SETTINGS)).update(rows) for rows in (ROWS, ROWS.toarray()))
    np.testing.assert_array_equal(found.novelty, expected.novelty)
