"""scipy's sparse matrices: the same model as of dense rows, without ever making these."""

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca import (
    ApproximateKernelPCA,
    CheckpointError,
    KernelPCA,
    SparseKernelPCA,
    StreamingKernelPCA,
    merge,
)
from streamkpca._core import packed
from streamkpca.export import to_c
from streamkpca.kernels import RBF, Cosine, Custom, Equal, Laplacian, Linear, Matern, Polynomial
from streamkpca.kernels.registry import parse_kernel
from streamkpca.kernels.sparse import OfSparse
from streamkpca.monitoring import Monitor

WIDE = 3000
# Atoms that move would become dense, so those of sparse rows stay rows.
SETTINGS = {"n_components": 3, "max_atoms": 24, "block_size": 64, "random_state": 0, "atoms": "rows"}
KERNELS = [RBF(0.01), Linear(), Cosine(), Laplacian(0.02), Matern(1.5, length_scale=9.0), Polynomial(2, gamma=0.01)]
QUESTIONS = ["transform", "novelty", "reconstruction_error", "score_samples"]


def counts(n, d=WIDE, seed=0, density=0.01):
    rows = sp.random_array((n, d), density=density, rng=np.random.default_rng(seed), format="csr")
    rows.data = np.ceil(5.0 * rows.data)
    return rows


ROWS, NEW = counts(400), counts(40, seed=1, density=0.014)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_stream_of_wide_sparse_rows_is_that_of_dense_ones(kernel):
    model = StreamingKernelPCA(**SETTINGS, kernel=kernel).partial_fit(ROWS)
    dense = StreamingKernelPCA(**SETTINGS, kernel=kernel).partial_fit(ROWS.toarray())
    np.testing.assert_array_equal(model.atom_rows_, dense.atom_rows_)
    np.testing.assert_array_equal(model.atoms_.toarray(), dense.atoms_)
    for question in QUESTIONS:
        close(getattr(model, question)(NEW), getattr(dense, question)(NEW.toarray()))
        np.testing.assert_array_equal(getattr(model, question)(NEW.toarray()), getattr(model, question)(NEW))
    close(model.contributions(NEW).toarray(), dense.contributions(NEW.toarray()))
    close(model.contributions(NEW, 2).toarray(), dense.contributions(NEW.toarray(), 2))
    close(model.captured_energy(), dense.captured_energy())
    assert model.n_features_in_ == WIDE


@pytest.mark.parametrize(
    "model", [KernelPCA(3), SparseKernelPCA(3, n_active=20), ApproximateKernelPCA(3, max_atoms=20)], ids=repr
)
def test_batch_models_of_wide_sparse_rows_are_those_of_dense_ones(model):
    chosen = model.get_params(deep=False) | {"kernel": RBF(0.01)}
    chosen |= {"atoms": "rows"} if "atoms" in chosen else {}
    sparse = type(model)(**chosen).fit(ROWS)
    dense = type(model)(**chosen).fit(ROWS.toarray())
    for question in QUESTIONS:
        close(getattr(sparse, question)(NEW), getattr(dense, question)(NEW.toarray()))
    np.testing.assert_array_equal(sparse.atoms_.toarray(), dense.atoms_)


def test_narrow_sparse_rows_are_dense_ones_to_the_byte():
    rows = counts(300, d=50, density=0.2)
    dense = StreamingKernelPCA(3, kernel=RBF("spread"), random_state=0, block_size=64).partial_fit(rows.toarray())
    for form in (rows, sp.csc_matrix(rows), sp.coo_array(rows)):
        model = StreamingKernelPCA(3, kernel=RBF("spread"), random_state=0, block_size=64).partial_fit(form)
        assert model.to_bytes() == dense.to_bytes()
        for question in (*QUESTIONS, "contributions", "score"):
            np.testing.assert_array_equal(getattr(model, question)(form), getattr(dense, question)(rows.toarray()))
    np.testing.assert_array_equal(KernelPCA(2).fit_transform(rows), KernelPCA(2).fit_transform(rows.toarray()))


@settings(max_examples=10)
@given(st.lists(st.integers(1, 399), max_size=3, unique=True))
def test_cuts_do_not_matter_also_where_rows_need_more_room(cuts):
    # The last rows have several times as many numbers.
    rows = sp.vstack([ROWS[:300], counts(100, seed=3, density=0.05)], format="csr")
    whole = StreamingKernelPCA(**SETTINGS, kernel=RBF("spread")).partial_fit(rows)
    pieces = StreamingKernelPCA(**SETTINGS, kernel=RBF("spread"))
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 400], strict=True):
        pieces.partial_fit(rows[start:stop])
    assert pieces.to_bytes() == whole.to_bytes()


def test_more_room_is_made_in_the_middle_of_a_stream():
    wider = counts(30, seed=3, density=0.08)
    model = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).partial_fit(ROWS)
    before = model.novelty(NEW)
    # They fill no block, so that nothing else changes.
    np.testing.assert_array_equal(model.partial_fit(wider[:5]).novelty(NEW), before)
    expected = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).partial_fit(sp.vstack([ROWS, wider], format="csr"))
    assert model.partial_fit(wider[5:]).to_bytes() == expected.to_bytes()


def test_shards_are_merged_whatever_their_room():
    shards = [counts(200, seed=5), counts(200, seed=6, density=0.03)]
    models = [StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).fit(shard) for shard in shards]
    dense = [StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).fit(shard.toarray()) for shard in shards]
    close(merge(*models).novelty(NEW), merge(*dense).novelty(NEW.toarray()))
    close(merge(*models[::-1]).eigenvalues_, merge(*dense[::-1]).eigenvalues_)
    with pytest.raises(ValueError, match=r"expected a model of 3000 sparse features but got one of 3000;"):
        merge(models[0], dense[1])


def test_weights_bad_rows_and_single_precision():
    weights = np.arange(400) % 3
    model = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).fit(ROWS, sample_weight=weights)
    dense = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).fit(ROWS.toarray(), sample_weight=weights)
    close(model.novelty(NEW), dense.novelty(NEW.toarray()))
    bad = ROWS.copy()
    bad.data[bad.indptr[7]] = np.nan
    column = int(bad.indices[bad.indptr[7]])
    with pytest.raises(ValueError, match=rf"partial_fit: X contains NaN \(first at row 7, column {column}\)"):
        StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).partial_fit(bad)
    model = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01), on_bad_rows="skip").partial_fit(bad)
    dense = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01), on_bad_rows="skip").partial_fit(bad.toarray())
    assert model.n_rows_rejected_ == 1
    close(model.novelty(NEW), dense.novelty(NEW.toarray()))
    tenths = 0.1 * ROWS
    model = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.5), dtype="float32").partial_fit(tenths)
    dense = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.5), dtype="float32").partial_fit(tenths.toarray())
    close(model.novelty(0.1 * NEW), dense.novelty(0.1 * NEW.toarray()))


def test_zeros_entries_given_twice_and_empty_rows():
    data, rows, columns = [1.0, 2.0, 0.0, 4.0], [0, 0, 1, 2], [2500, 2500, 7, 9]
    odd = sp.coo_array((data, (rows, columns)), shape=(4, WIDE))
    model = KernelPCA(2, kernel=RBF(0.1)).fit(odd)
    np.testing.assert_array_equal(model.atoms_.toarray(), odd.toarray())
    close(model.transform(odd), KernelPCA(2, kernel=RBF(0.1)).fit(odd.toarray()).transform(odd.toarray()))
    assert odd.nnz == 4
    np.testing.assert_array_equal(odd.data, data)


def test_far_from_the_origin_distances_keep_their_digits():
    rows = ROWS.copy()
    rows.data += 1e6
    exact = RBF(0.01).matrix(rows[:60].toarray())
    np.testing.assert_allclose(OfSparse(RBF(0.01), WIDE).matrix(packed.packed_parts(rows)[:60]), exact, rtol=1e-10)
    twins = sp.vstack([rows[:1], rows[:1]], format="csr")
    assert OfSparse(RBF(1e3), WIDE).matrix(packed.packed_parts(twins)[:])[0, 1] == 1.0


def test_checkpoints_and_pickles_hold_sparse_rows():
    model = StreamingKernelPCA(**SETTINGS, kernel=RBF()).partial_fit(ROWS[:100])
    data = model.to_bytes()
    again = StreamingKernelPCA.from_bytes(data)
    assert again.to_bytes() == data
    np.testing.assert_array_equal(again.partial_fit(NEW).novelty(NEW), model.partial_fit(NEW).novelty(NEW))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).novelty(NEW), model.novelty(NEW))
    assert parse_kernel(repr(model.kernel_)) == model.kernel_
    with pytest.raises(ValueError, match="cannot read"):
        parse_kernel("RBF(0.1) + OfSparse(RBF(0.1), 3000)")
    summary = model._stream.summary
    for column, place in ((WIDE, 0), (0.5, 0), (-2, 0), (0, 3)):
        rows = summary.basis.atoms.copy()
        rows[0, place] = column
        model._stream.summary.basis.atoms, kept = rows, summary.basis.atoms
        with pytest.raises(CheckpointError, match="packed rows"):
            StreamingKernelPCA.from_bytes(model.to_bytes())
        model._stream.summary.basis.atoms = kept


def test_memory_follows_the_numbers_and_not_the_columns():
    # As dense rows, one block alone would take 51 MB, and the sample that atoms are chosen from 130 MB.
    rows = counts(1300, d=100_000, density=2e-4)
    model = StreamingKernelPCA(2, kernel=RBF(0.01), max_atoms=16, block_size=64, random_state=0)
    model.partial_fit(rows[:64])
    tracemalloc.start()
    try:
        model.partial_fit(rows[64:])
        scores = model.novelty(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.isfinite(scores).all()
    assert peak < 12e6
    assert model.atoms_.shape[1] == 100_000


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(0.1).on([0, 1]),
        RBF(0.1).in_units("std"),
        Linear() + Equal(),
        Custom(lambda X, Y: X @ Y.T),
        2.0 * RBF().scaled_by(len),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels_that_need_single_columns_are_refused(kernel):
    model = StreamingKernelPCA(**SETTINGS, kernel=kernel)
    with pytest.raises(ValueError, match=r"partial_fit: sparse rows of 3000 columns are compared by .*X\.toarray\(\)"):
        model.partial_fit(ROWS)
    assert model._stream is None


def test_what_would_be_dense_is_refused():
    model = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).partial_fit(ROWS)
    for method, asked in (("inverse_transform", np.zeros((1, 3))), ("score", NEW)):
        with pytest.raises(ValueError, match=rf"{method} finds rows by regression, .* dense rows of 3000 columns"):
            getattr(model, method)(asked)
    with pytest.raises(ValueError, match="to_c: expected a model of dense rows but this one has learned sparse ones"):
        to_c(model)
    with pytest.raises(TypeError, match=r"X is sparse .* dense data is required"):
        Monitor(StreamingKernelPCA()).update(ROWS)


def test_sparse_rows_are_checked():
    model = StreamingKernelPCA(**SETTINGS, kernel=RBF(0.01)).partial_fit(ROWS)
    before = model.to_bytes()
    with pytest.raises(ValueError, match="X has 2999 features, but StreamingKernelPCA is expecting 3000"):
        model.partial_fit(ROWS[:, :-1])
    with pytest.raises(ValueError, match="X has 2999 features, but StreamingKernelPCA is expecting 3000"):
        model.novelty(ROWS[:, :-1].toarray())
    with pytest.raises(ValueError, match=r"expected sparse rows \(n, d\) but got the shape \(0, 3000\)"):
        model.partial_fit(ROWS[:0])
    with pytest.raises(TypeError, match="X is sparse with dtype complex128 but real numbers"):
        model.partial_fit(ROWS.astype(complex))
    assert model.to_bytes() == before
    with pytest.raises(ValueError, match="dtype='float32' cannot tell 20000000 columns apart"):
        StreamingKernelPCA(dtype="float32").partial_fit(counts(3, d=20_000_000, density=1e-7))
    with pytest.raises(ValueError, match="kernel, block_size, reservoir_size and dtype cannot change"):
        model.set_params(kernel=RBF(0.02)).partial_fit(ROWS)
