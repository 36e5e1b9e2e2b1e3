"""Dask: bytes depend on rows and partitions alone; answers are those of the model, in the type of the collection."""

import importlib
import os
import signal
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra dask")

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import distributed
import pandas as pd

from streamkpca import StreamingKernelPCA
from streamkpca.adapters import for_dask, partition
from streamkpca.aggregate import Aggregate
from streamkpca.errors import NotFittedError

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).normal(size=(1000, 3))
SMALL = {"n_components": 2, "max_atoms": 20, "block_size": 64}


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def two_processes():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def array(chunks=130, rows=X):
    return da.from_array(rows, chunks=(chunks, 2))


def frame(npartitions=5):
    return dd.from_pandas(pd.DataFrame(X, columns=list("abc"), index=2 * np.arange(1000)), npartitions=npartitions)


def fitted(rows, weight_column=None, **changes):
    return for_dask.fit(StreamingKernelPCA(**(SMALL | changes)), rows, weight_column=weight_column)


def by_hand(parts, **changes):
    """Learn partitions here, from the atoms of the first rows, and merge eight neighbours at a time."""
    empty = Aggregate(StreamingKernelPCA(**(SMALL | changes)).partial_fit(np.concatenate(parts)))
    states = [empty.zero().add(part) for part in parts]
    while len(states) > 1:
        groups = [states[i : i + 8] for i in range(0, len(states), 8)]
        states = [first.merge(*others) for first, *others in groups]
    return states[0].finish()


@pytest.mark.parametrize("chunks", [1000, 130, 40])
def test_a_fit_is_the_tree_of_merges_of_its_partitions(chunks):
    model = fitted(array(chunks))
    assert model.to_bytes() == by_hand(np.split(X, range(chunks, 1000, chunks))).to_bytes()
    assert model.n_samples_seen_ == 1000
    assert model.partial_fit(X[:100]).n_samples_seen_ == 1100


def test_bytes_do_not_depend_on_scheduler_or_workers_or_their_deaths(two_processes, tmp_path):
    marker, owner = str(tmp_path / "died"), os.getpid()

    def fragile(block, block_info=None):
        """Kill the first process that loads the sixth block."""
        try:
            if block_info[0]["chunk-location"][0] == 5:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                assert os.getpid() != owner
                os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
        return block

    alone = fitted(array()).to_bytes()
    with dask.config.set(scheduler="threads", num_workers=4):
        assert fitted(array()).to_bytes() == alone
    with dask.config.set(scheduler=None):
        assert fitted(array()).to_bytes() == alone
        assert fitted(array().persist()).to_bytes() == alone
        rows = array().map_blocks(fragile, dtype=float, meta=np.empty((0, 0)))
        assert fitted(rows).to_bytes() == alone
        assert os.path.exists(marker)


def test_no_more_partitions_are_loaded_than_threads_learn(monkeypatch):
    """A collection may be larger than memory."""
    lock, learn, loaded, states, most = threading.Lock(), partition.learn, 0, 0, 0

    def load(block):
        nonlocal loaded, most
        with lock:
            loaded += 1
            most = max(most, loaded - states)
        return block

    def learned(*arguments):
        nonlocal states
        state = learn(*arguments)
        with lock:
            states += 1
        return state

    template = StreamingKernelPCA(**SMALL).partial_fit(X)
    monkeypatch.setattr(partition, "learn", learned)
    rows = da.from_array(X, chunks=(20, 3)).map_blocks(load, meta=np.empty((0, 0)))
    with dask.config.set(scheduler="threads", num_workers=3):
        assert for_dask.fit(template, rows).n_samples_seen_ == 1000
    assert (loaded, states) == (50, 50)
    assert most <= 6


def test_arrays_and_frames_of_the_same_rows_and_partitions_give_the_same_model():
    from_array, from_frame = fitted(da.from_array(X, chunks=(200, 3))), fitted(frame(5))
    np.testing.assert_array_equal(from_array.atoms_, from_frame.atoms_)
    assert from_frame.feature_names_in_.tolist() == list("abc")
    few = frame(10)
    few = few[few.a > 2.0]
    assert fitted(few).n_samples_seen_ == (X[:, 0] > 2.0).sum()
    unknown = array()[array()[:, 0] > 2.0]
    assert np.isnan(unknown.shape[0])
    assert fitted(unknown).n_samples_seen_ == (X[:, 0] > 2.0).sum()
    for nothing in (few[few.a > 99.0], unknown[unknown[:, 0] > 99.0]):
        with pytest.raises(ValueError, match=r"^for_dask.fit: found 0 rows to learn from"):
            fitted(nothing)
    assert len(for_dask.transform(from_frame, few[few.a > 99.0]).compute()) == 0


def test_weights_and_rows_that_are_left_out_are_as_in_memory():
    rows = X.copy()
    rows[10:300, 1] = np.nan
    weights = np.where(np.arange(1000) < 400, 0.0, 1.0 + np.arange(1000))
    table = (
        frame().assign(w=1.0).map_partitions(lambda part: part.assign(w=np.interp(part.index, [0, 1998], [1, 1000])))
    )
    assert fitted(table, "w").total_weight_ == pytest.approx(np.arange(1, 1001).sum())
    both = da.from_array(np.column_stack([rows, weights]), chunks=(50, 4))
    found = fitted(both, 3, missing="skip")
    assert found.kernel_ == StreamingKernelPCA(**SMALL).partial_fit(X[400:], sample_weight=weights[400:]).kernel_
    assert (found.n_rows_rejected_, found.total_weight_) == (290, weights.sum())
    nullable = pd.DataFrame(rows, columns=list("abc")).convert_dtypes()
    plain = fitted(dd.from_pandas(pd.DataFrame(rows, columns=list("abc")), npartitions=3), missing="skip")
    assert fitted(dd.from_pandas(nullable, npartitions=3), missing="skip").to_bytes() == plain.to_bytes()


def test_answers_keep_the_type_the_chunks_and_the_index():
    model = fitted(frame())
    expected = np.column_stack([model.novelty(X), model.transform(X)])
    found = for_dask.transform(model, array())
    assert found.chunks == (array().chunks[0], (3,))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    table = frame().assign(time="noon")[["c", "time", "b", "a"]]
    found = for_dask.transform(model, table, keep=["time"])
    model.partial_fit(X + 3.0).refit()
    assert found.divisions == table.divisions
    known = found.compute()
    assert known.columns.tolist() == ["time", "novelty", "streamingkernelpca0", "streamingkernelpca1"]
    assert known.index.equals(table.index.compute())
    pd.testing.assert_frame_equal(known.iloc[:0], found._meta)
    # The answers are those of the model at the time of the call.
    np.testing.assert_allclose(known.iloc[:, 1:], expected, rtol=1e-9, atol=1e-12)


def test_invalid_arguments_are_refused():
    model, bag = StreamingKernelPCA(**SMALL), db.from_sequence([{"a": 1.0}])
    known = fitted(frame())
    for error, message, call, arguments in (
        (TypeError, "transform: expected a dask Array or DataFrame but got ndarray", for_dask.transform, (known, X)),
        (TypeError, r"fit: expected a dask .* but got Bag; convert .* by its to_data", for_dask.fit, (model, bag)),
        (TypeError, "got Delayed", for_dask.fit, (model, dask.delayed(X))),
        (ValueError, r"fit: expected a 2D collection .* but got 1D. Reshape", for_dask.fit, (model, frame().a)),
        (ValueError, "NaN", for_dask.fit, (model, array() * np.nan)),
        (NotFittedError, "StreamingKernelPCA", for_dask.transform, (model, array())),
        (ValueError, "expected the column b but got a; check", for_dask.transform, (known, frame()[["a"]])),
    ):
        with pytest.raises(error, match=message):
            call(*arguments)


def test_without_dask_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask.delayed", None)
    monkeypatch.delitem(sys.modules, "streamkpca.adapters.for_dask")
    with pytest.raises(ImportError, match=r'needs dask.delayed; pip install "streamkpca\[dask\]"'):
        importlib.import_module("streamkpca.adapters.for_dask")
