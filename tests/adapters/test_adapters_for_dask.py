"""Dask: bytes depend on rows and partitions alone; answers are those of the model, in the type of the collection."""

import importlib
import itertools
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra dask")

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import distributed
import pandas as pd

from streamkpca import KernelPCA, NotFittedError, kernels, merge
from streamkpca import StreamingKernelPCA as Plain
from streamkpca.adapters import for_dask as dask_adapter
from streamkpca.adapters import runs
from streamkpca.adapters.for_dask import StreamingKernelPCA
from streamkpca.adapters.runs import rows_to_begin_with
from streamkpca.aggregate import Aggregate

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).normal(size=(1000, 3))
RBF = kernels.RBF(0.3)
SMALL = {"n_components": 2, "max_atoms": 20, "block_size": 64}
EXACT = {"n_components": 3, "max_atoms": None, "tolerance": 0.0, "kernel": RBF, "block_size": 16}


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def two_processes():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def array(chunks=130):
    return da.from_array(X, chunks=(chunks, 2))


def frame(npartitions=5):
    return dd.from_pandas(pd.DataFrame(X, columns=list("abc"), index=2 * np.arange(1000)), npartitions=npartitions)


def bag_of_dicts():
    return db.from_sequence([dict(zip("abc", row, strict=True)) for row in X.tolist()], npartitions=8)


def fitted(rows, **changes):
    return StreamingKernelPCA(**(SMALL | changes)).fit(rows)


def by_hand(runs, split_every, **changes):
    """Learn runs here, all but the first from the atoms of its first rows, and merge level by level."""
    kernel = Plain(**SMALL).partial_fit(X).kernel_
    first = Aggregate(Plain(**(SMALL | {"kernel": kernel} | changes)))
    begun = first.zero().add(runs[0][0][: rows_to_begin_with(Plain(**SMALL))])
    states = [first, *(begun.zero() for _ in runs[1:])]
    for state, run in zip(states, runs, strict=True):
        for part in run:
            state.add(part)
    while len(states) > 1:
        groups = [states[i : i + split_every] for i in range(0, len(states), split_every)]
        states = [group[0].merge(*group[1:]) for group in groups]
    return states[0].finish()


def killed_once(block, marker, owner):
    """Return the block, but kill the first process that loads it."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    assert os.getpid() != owner
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("n_streams", "split_every", "lengths"),
    [(8, 2, [1] * 8), (8, 3, [1] * 8), (100, 8, [1] * 8), (3, 2, [3, 3, 2]), (3, 8, [3, 3, 2]), (1, 2, [8])],
)
def test_a_fit_is_the_tree_of_merges_of_its_runs(n_streams, split_every, lengths):
    model = StreamingKernelPCA(**SMALL, atoms="rows").fit(array(), n_streams=n_streams, split_every=split_every)
    parts = np.split(X, range(130, 1000, 130))
    starts = np.cumsum([0, *lengths])
    tree = by_hand([parts[i:j] for i, j in itertools.pairwise(starts)], split_every, atoms="rows")
    assert model.kernel_ == tree.kernel_
    assert model.n_samples_seen_ == model.total_weight_ == 1000
    assert model.n_atoms_ == tree.n_atoms_ == 20
    for name in ("atoms_", "atom_rows_", "eigenvalues_", "eigenvalue_bounds_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(tree, name))
    assert model.set_params(kernel=tree.kernel).n_atoms_ == 20
    model.state_.kernel = tree.state_.kernel
    assert model.to_bytes() == tree.to_bytes()


def test_one_stream_gives_the_model_of_one_process():
    model = StreamingKernelPCA(**SMALL).fit(array(), n_streams=1)
    plain = Plain(**SMALL).partial_fit(X).refit()
    for name in ("atoms_", "atom_rows_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(plain, name))
    np.testing.assert_allclose(model.captured_energy(), plain.captured_energy(), rtol=1e-9)


@pytest.mark.parametrize("half_life", [None, 100.0])
def test_without_a_budget_it_is_batch_kernel_pca(half_life):
    weights = np.ones(200) if half_life is None else 2.0 ** (-np.arange(200)[::-1] / half_life)
    exact = KernelPCA(3, kernel=RBF).fit(X[:200], sample_weight=weights)
    for chunks in (200, 40, 7):
        for n_streams in (1, 3, 8):
            model = StreamingKernelPCA(**EXACT, half_life=half_life)
            model.fit(da.from_array(X[:200], chunks=(chunks, 3)), n_streams=n_streams)
            np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, rtol=0, atol=1e-8)
            assert model.total_weight_ == pytest.approx(weights.sum())


@pytest.mark.parametrize("n_streams", [2, 8])
def test_bytes_do_not_depend_on_scheduler_or_workers(two_processes, n_streams):
    def fit():
        return StreamingKernelPCA(**SMALL).fit(array(), n_streams=n_streams).to_bytes()

    alone = fit()
    with dask.config.set(scheduler="threads", num_workers=4):
        assert fit() == alone
    with dask.config.set(scheduler=None):
        assert fit() == alone


@pytest.mark.parametrize("n_streams", [2, 8])
def test_a_worker_that_dies_changes_no_byte(two_processes, tmp_path, n_streams):
    marker, owner = tmp_path / "died", os.getpid()

    def fragile(block, block_info=None):
        is_sixth = block_info[0]["chunk-location"][0] == 5
        return killed_once(block, str(marker), owner) if is_sixth else block

    alone = StreamingKernelPCA(**SMALL).fit(array(), n_streams=n_streams).to_bytes()
    with dask.config.set(scheduler=None):
        before = set(two_processes.run(os.getpid).values())
        rows = array().map_blocks(fragile, dtype=float, meta=np.empty((0, 0)))
        assert StreamingKernelPCA(**SMALL).fit(rows, n_streams=n_streams).to_bytes() == alone
        assert marker.exists()
        two_processes.wait_for_workers(2, timeout=60)
        assert set(two_processes.run(os.getpid).values()) != before


@pytest.mark.parametrize("n_streams", [1, 2, 3])
def test_no_more_partitions_are_loaded_than_streams_learn(monkeypatch, n_streams):
    """A collection may be larger than memory. By default, schedulers load all of it while the first steps learn."""
    lock, loaded, learned, waiting = threading.Lock(), 0, 0, []

    def load(block):
        nonlocal loaded
        with lock:
            loaded += block.shape[1] / 3
            waiting.append(loaded - learned)
        return block

    def added(*arguments):
        nonlocal learned
        time.sleep(0.01)
        state = runs.added(*arguments)
        with lock:
            learned += 1
        return state

    monkeypatch.setattr(dask_adapter, "added", added)
    model, rows = StreamingKernelPCA(**(SMALL | {"kernel": RBF})), array(40)
    expected, nothing = model.fit(rows, n_streams=n_streams).to_bytes(), np.empty((0, 0))
    loaded = learned = 0
    for loads in (rows.map_blocks(load, meta=nothing), rows.rechunk((40, 3)).map_blocks(load, meta=nothing) + 0.0):
        waiting.clear()
        with dask.config.set(scheduler="threads", num_workers=6):
            assert model.fit(loads, n_streams=n_streams).to_bytes() == expected
        assert len(waiting) >= 25
        assert max(waiting) < n_streams + 0.01


def test_tasks_shared_by_partitions_run_once():
    calls = []

    def spread(block):
        calls.append(len(block))
        return block

    rows = array(500).map_blocks(spread, meta=np.empty((0, 0))).rechunk((100, 3))
    calls.clear()
    assert fitted(rows, kernel=RBF).to_bytes() == fitted(array(100), kernel=RBF).to_bytes()
    assert len(calls) == 4  # two blocks of rows by two of features


def test_shuffled_rows_are_learned_in_their_new_partitions(two_processes):
    with dask.config.set(scheduler=None):
        # A shuffle of the cluster's own kind, whose tasks must not be fused.
        between = frame().assign(e=frame().a * 2.0).set_index("a")
        through_workers = fitted(between, kernel=RBF)
        parts = [part.to_numpy() for part in dask.compute(*between.to_delayed())]
    known = da.from_array(np.concatenate(parts), chunks=(tuple(map(len, parts)), 3))
    np.testing.assert_array_equal(through_workers.atoms_, fitted(known, kernel=RBF).atoms_)
    on_disk = frame().shuffle("a", shuffle_method="disk")
    assert fitted(on_disk, kernel=RBF).n_samples_seen_ == 1000


def test_rows_that_workers_hold_are_learned_there(two_processes):
    with dask.config.set(scheduler=None):
        held = array().persist()
        pieces = [two_processes.submit(np.add, part, 1.0) for part in np.split(X, 4)]
        submitted = da.concatenate([da.from_delayed(piece, (250, 3), dtype=float) for piece in pieces])
        from_held = [fitted(rows, kernel=RBF).to_bytes() for rows in (held, held + 1.0, submitted, submitted - 1.0)]
    quarters = da.from_array(X, chunks=(250, 3))
    expected = (array(), array() + 1.0, quarters + 1.0, quarters + 1.0 - 1.0)
    assert from_held == [fitted(rows, kernel=RBF).to_bytes() for rows in expected]


def test_all_collections_of_the_same_rows_and_partitions_give_the_same_model():
    halves = [X[:500], X[500:]]
    from_array = fitted(da.from_array(X, chunks=(500, 3)))
    from_blocks = fitted(db.from_sequence(halves, npartitions=2))
    from_rows = fitted(db.from_sequence(list(X), npartitions=2))
    assert from_array.to_bytes() == from_blocks.to_bytes() == from_rows.to_bytes()
    named = [dict(zip("abc", row, strict=True)) for row in X.tolist()]
    from_dicts = fitted(db.from_sequence(named, npartitions=2))
    from_frame = fitted(dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=2))
    assert from_dicts.to_bytes() == from_frame.to_bytes()
    assert from_dicts.feature_names_in_.tolist() == list("abc")
    np.testing.assert_array_equal(from_dicts.atoms_, from_array.atoms_)


def test_rows_in_memory_are_learned_as_by_the_plain_model():
    assert StreamingKernelPCA(**SMALL).fit(X).to_bytes() == Plain(**SMALL).fit(X).to_bytes()
    assert StreamingKernelPCA(**SMALL).partial_fit(X).to_bytes() == Plain(**SMALL).partial_fit(X).to_bytes()


def test_a_fitted_model_learns_merges_and_reloads():
    model = fitted(array())
    model.partial_fit(X[:100])
    assert model.n_samples_seen_ == 1100
    assert merge(model, fitted(array(), kernel=model.kernel_)).n_samples_seen_ == 2100
    loaded = StreamingKernelPCA.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(loaded.transform(array()).compute(), model.transform(array()).compute())


def test_empty_and_small_partitions_are_learned():
    few = frame(10)
    few = few[few.a > 2.0]
    expected = X[X[:, 0] > 2.0]
    model = fitted(few)
    assert model.n_samples_seen_ == len(expected)
    assert model.kernel_ == Plain(**SMALL).partial_fit(expected).kernel_
    unknown = array()[array()[:, 0] > 2.0]
    assert np.isnan(unknown.shape[0])
    assert fitted(unknown).n_samples_seen_ == len(expected)
    errors = model.reconstruction_error(few.compute())
    np.testing.assert_allclose(model.reconstruction_error(few), errors, rtol=1e-9, atol=1e-12)
    for nothing in (few[few.a > 99.0], unknown[unknown[:, 0] > 99.0], bag_of_dicts().filter(lambda row: False)):
        for kernel in ("rbf", RBF):
            with pytest.raises(ValueError, match=r"fit: found 0 rows to learn from in"):
                model.set_params(kernel=kernel).fit(nothing)
    assert model.n_samples_seen_ == len(expected)
    assert model.transform(few[few.a > 99.0]).compute().shape == (0, 2)


def test_weights_may_be_arrays_or_collections():
    weights = np.abs(X[:, 0])
    total = pytest.approx(weights.sum())
    for given in (weights, weights.tolist(), da.from_array(weights, chunks=77)):
        assert StreamingKernelPCA(**SMALL).fit(array(), sample_weight=given).total_weight_ == total
    a, b = frame(), bag_of_dicts()
    assert StreamingKernelPCA(**SMALL).fit(a, sample_weight=a.a.abs()).total_weight_ == total
    assert StreamingKernelPCA(**SMALL).fit(b, sample_weight=b.map(lambda row: abs(row["a"]))).total_weight_ == total
    assert StreamingKernelPCA(**SMALL).fit(b, sample_weight=2.0).total_weight_ == 2000.0


def test_the_first_usable_rows_settle_the_scale():
    weights = np.where(np.arange(1000) < 400, 0.0, 1.0)
    model = StreamingKernelPCA(**SMALL).fit(array(), sample_weight=weights)
    assert model.kernel_ == Plain(**SMALL).partial_fit(X[400:]).kernel_
    weights = 1.0 + np.arange(1000)
    one = Plain(**SMALL).partial_fit(X, sample_weight=weights)
    for rows, given in ((array(40), weights), (frame(), frame().a.map_partitions(lambda a: 1.0 + a.index / 2))):
        assert StreamingKernelPCA(**SMALL).fit(rows, sample_weight=given).kernel_ == one.kernel_
    coarse = Plain(**SMALL, dtype="float32").partial_fit(X)
    assert StreamingKernelPCA(**SMALL, dtype="float32").fit(array()).kernel_ == coarse.kernel_
    broken = X.copy()
    broken[10:200, 1] = np.nan
    model = fitted(da.from_array(broken, chunks=(50, 3)), on_bad_rows="skip")
    assert model.kernel_ == Plain(**SMALL).partial_fit(np.r_[X[:10], X[200:]]).kernel_
    assert (model.n_rows_rejected_, model.total_weight_) == (190, 810.0)


def test_answers_to_arrays_keep_their_chunks():
    model, rows = fitted(array()), array()
    projections = model.transform(rows)
    assert projections.chunks == (rows.chunks[0], (2,))
    assert projections.dtype == np.float64
    np.testing.assert_allclose(projections, model.transform(X), rtol=1e-9, atol=1e-12)
    for n_components in (None, 1):
        errors = model.reconstruction_error(rows, n_components, active_only=n_components is None)
        expected = model.reconstruction_error(X, n_components, active_only=n_components is None)
        assert errors.chunks == (rows.chunks[0],)
        np.testing.assert_allclose(errors, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.score_samples(rows), model.score_samples(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.novelty(rows), model.novelty(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_components", [None, 1])
def test_contributions_have_a_column_for_each_feature(n_components):
    model = fitted(frame())
    expected = model.contributions(X, n_components)
    np.testing.assert_allclose(model.contributions(array(), n_components), expected, rtol=1e-9, atol=1e-12)
    answers = model.contributions(frame(), n_components)
    assert answers.columns.tolist() == list(model.feature_names_in_)
    np.testing.assert_allclose(answers.compute(), expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="n_components is 9 but the model has"):
        model.contributions(array(), 9)


def test_t2_of_a_collection_is_that_of_its_rows():
    model = fitted(array(), kernel="linear")
    np.testing.assert_allclose(model.hotelling_t2(array()), model.hotelling_t2(X), rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="hotelling_t2: n_components is 9 but the model has"):
        model.hotelling_t2(array(), 9)


def test_pre_images_keep_the_type_of_the_projections():
    model = fitted(frame())
    expected = model.inverse_transform(model.transform(X))
    rows = model.inverse_transform(model.transform(array()))
    assert rows.chunks == (array().chunks[0], (3,))
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-9)
    rows = model.inverse_transform(model.transform(frame()))
    assert rows.columns.tolist() == list("abc")
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-9)
    assert fitted(array()).inverse_transform(model.transform(frame())).columns.tolist() == ["x0", "x1", "x2"]
    rows = model.inverse_transform(model.transform(bag_of_dicts())).compute()
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-9)


def test_answers_ignore_set_output_for_collections():
    model = fitted(frame()).set_output(transform="pandas")
    assert isinstance(model.transform(X), pd.DataFrame)
    assert isinstance(model.transform(array()).compute(), np.ndarray)
    assert model.transform(frame()).compute().shape == (1000, 2)
    assert np.shape(model.transform(bag_of_dicts()).compute()) == (1000, 2)


def test_answers_to_data_frames_keep_the_index():
    model, rows = fitted(frame()), frame()
    projections, errors = model.transform(rows), model.reconstruction_error(rows)
    assert projections.columns.tolist() == model.get_feature_names_out().tolist()
    assert projections.divisions == errors.divisions == rows.divisions
    known = projections.compute()
    assert known.index.equals(rows.index.compute())
    pd.testing.assert_frame_equal(known.iloc[:0], projections._meta)
    pd.testing.assert_series_equal(errors.compute().iloc[:0], errors._meta)
    np.testing.assert_allclose(known, Plain.from_bytes(model.to_bytes()).transform(X), rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(rows[["b", "a", "c"]]).compute()


def test_answers_to_bags_come_item_by_item():
    model = fitted(bag_of_dicts())
    expected = model.transform(X)
    np.testing.assert_allclose(model.transform(bag_of_dicts()).compute(), expected, rtol=1e-9, atol=1e-12)
    pieces = db.from_sequence([X[:300], X[300], X[301:]], npartitions=2)
    answers = model.score_samples(pieces).compute()
    assert [np.shape(answer) for answer in answers] == [(300,), (), (699,)]
    assert model.transform(bag_of_dicts().filter(lambda row: False)).compute() == []


def test_answers_are_those_of_the_model_at_the_time_of_the_call():
    model = fitted(array())
    asked, expected = model.transform(array()), model.transform(X)
    model.partial_fit(X + 3.0).refit()
    np.testing.assert_allclose(asked, expected, rtol=1e-9, atol=1e-12)


def test_invalid_arguments_are_refused():
    model = StreamingKernelPCA(**SMALL)
    with pytest.raises(NotFittedError, match="StreamingKernelPCA"):
        model.transform(array())
    with pytest.raises(ValueError, match=r"fit: expected a 2D array \(rows, features\) but got 1D"):
        model.fit(array()[:, 0])
    with pytest.raises(TypeError, match="fit expected a dask Array, DataFrame or Bag but got Series"):
        model.fit(frame().a)
    with pytest.raises(TypeError, match="fit expected a dask Array, DataFrame or Bag but got Delayed"):
        model.fit(dask.delayed(X))
    with pytest.raises(TypeError, match="partial_fit expected rows in memory but got a dask collection; fit another"):
        model.partial_fit(array())
    with pytest.raises(TypeError, match="score expected rows in memory but got a dask collection; a sample of it"):
        model.score(array())
    with pytest.raises(ValueError, match="split_every"):
        model.fit(array(), split_every=1)
    with pytest.raises(ValueError, match="n_streams"):
        model.fit(array(), n_streams=0)
    with pytest.raises(ValueError, match=r"sample_weight has shape \(9,\) but X has 1000 rows; give one weight a row"):
        model.fit(array(), sample_weight=np.ones(9))
    with pytest.raises(TypeError, match="sample_weight as a dask collection partitioned like X, but got ndarray"):
        model.fit(frame(), sample_weight=np.ones(1000))
    with pytest.raises(ValueError, match="sample_weight has 3 partitions but X has 5; repartition one like the other"):
        model.fit(frame(), sample_weight=frame(3).a.abs())
    with pytest.raises(ValueError, match="NaN"):
        model.fit(array() * np.nan)
    with pytest.raises(ValueError, match=r"expected the features a, b \(set by the first record\) but got c too"):
        model.fit(db.from_sequence([{"a": 1.0, "b": 2.0}, {"a": 1.0, "c": 2.0}], npartitions=1))
    with pytest.raises(NotFittedError):
        _ = model.n_atoms_
    with pytest.raises(ValueError, match="n_components is 3 but the model has 2 axes"):
        fitted(array()).reconstruction_error(array(), 3)


def test_without_a_seed_each_fit_draws_one():
    first, second = (fitted(array(), random_state=None, reservoir_size=50) for _ in range(2))
    assert first.to_bytes() != second.to_bytes()


def test_custom_kernels_are_learned():
    kernel = kernels.Custom(lambda A, B: A @ B.T)
    model = StreamingKernelPCA(2, kernel=kernel, block_size=64).fit(array())
    same = StreamingKernelPCA(2, kernel="linear", block_size=64).fit(array())
    np.testing.assert_allclose(model.eigenvalues_, same.eigenvalues_, rtol=1e-9)


def test_without_dask_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask.base", None)
    monkeypatch.delitem(sys.modules, "streamkpca.adapters.for_dask")
    with pytest.raises(ImportError, match=r'needs dask.base; pip install "streamkpca\[dask\]"'):
        importlib.import_module("streamkpca.adapters.for_dask")
