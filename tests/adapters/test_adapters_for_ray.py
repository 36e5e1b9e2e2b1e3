"""Ray: answers for batches, and real Datasets where Ray is installed."""

import doctest
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from streamkpca import KernelPCA, StreamingKernelPCA, kernels
from streamkpca.adapters import for_ray
from streamkpca.adapters.runs import NamedRows

NAMES = ["load", "heat", "flow"]
ROWS = np.random.default_rng(1).normal(size=(7000, 3))


def test_answers_stand_beside_the_columns():
    model = StreamingKernelPCA(2, max_atoms=8).partial_fit(NamedRows(NAMES, ROWS))
    batch = {"time": np.arange(5), **dict(zip(NAMES[::-1], ROWS[:5, ::-1].T, strict=True))}
    found = for_ray.transform(model, batch)
    assert list(found) == [*batch, "novelty", "streamingkernelpca0", "streamingkernelpca1"]
    np.testing.assert_array_equal(found["novelty"], model.novelty(ROWS[:5]))
    np.testing.assert_array_equal(found["streamingkernelpca1"], model.transform(ROWS[:5])[:, 1])
    empty = for_ray.transform(model, {name: column[:0] for name, column in batch.items()})
    assert {name: column.shape for name, column in empty.items()} == dict.fromkeys(found, (0,))
    batch["heat"] = np.array([0.5, None, 0.5, np.inf, 0.5], dtype=object)
    with pytest.raises(ValueError, match="NaN"):
        for_ray.transform(model, batch)
    skipped = for_ray.transform(model.set_params(on_bad_rows="skip"), batch)
    np.testing.assert_array_equal(np.isfinite(skipped["novelty"]), [True, False, True, False, True])
    with pytest.raises(ValueError, match=r"for_ray\.transform expected the column heat but got load, flow; check"):
        for_ray.transform(model, {"load": ROWS[:, 0], "flow": ROWS[:, 2]})


def test_invalid_models_are_refused_before_rows_are_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data.aggregate", SimpleNamespace(AggregateFnV2=object))
    monkeypatch.setitem(sys.modules, "ray.data.block", SimpleNamespace(BlockAccessor=object))
    with pytest.raises(TypeError, match=r"for_ray\.fit expected a StreamingKernelPCA but got KernelPCA"):
        for_ray.fit(KernelPCA(), None)
    with pytest.raises(ValueError, match=r"for_ray\.fit expected half_life=None but got 9\.0; Ray promises no order"):
        for_ray.fit(StreamingKernelPCA(half_life=9.0), None)
    monkeypatch.setitem(sys.modules, "ray.data.aggregate", None)
    with pytest.raises(ImportError, match=r'for_ray needs ray.*; pip install "streamkpca\[ray\]"'):
        for_ray.fit(StreamingKernelPCA(), None)


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray", reason="real Datasets of Ray; needs the extra ray")
    pytest.importorskip("pandas", reason="real Datasets of Ray; needs the extra ray")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=2**27,
        log_to_driver=False,
    )
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_fit_is_batch_kernel_pca_of_all_rows(ray):
    import pandas as pd

    rows = ROWS[:300]
    tables = [pd.DataFrame(part, columns=NAMES) for part in np.split(rows, [10, 100, 220])]
    exact = StreamingKernelPCA(3, kernel=kernels.RBF(0.4), max_atoms=None, tolerance=0.0, block_size=16)
    dataset = ray.data.from_pandas(tables)
    model = for_ray.fit(exact, dataset)
    batch = KernelPCA(3, kernel=kernels.RBF(0.4)).fit(rows)
    assert model.n_samples_seen_ == 300
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_allclose(model.eigenvalues_, batch.eigenvalues_, rtol=0, atol=1e-8)

    scores = dataset.map_batches(partial(for_ray.transform, model)).to_pandas().sort_values("load")
    expected = model.novelty(rows[np.argsort(rows[:, 0])])
    np.testing.assert_allclose(scores["novelty"], expected, rtol=1e-9, atol=1e-12)

    tables[-1].iloc[-1, 0] = np.nan
    found = for_ray.fit(exact.set_params(on_bad_rows="skip"), ray.data.from_pandas(tables))
    assert (found.n_samples_seen_, found.n_rows_rejected_) == (300, 1)
    with pytest.raises(ValueError, match="NaN"):
        for_ray.fit(StreamingKernelPCA(1), ray.data.from_pandas(tables))
    with pytest.raises(ValueError, match=r"for_ray\.fit: found 0 rows to learn from"):
        for_ray.fit(StreamingKernelPCA(1), ray.data.from_pandas(tables[0].iloc[:0]))
    test = doctest.DocTestParser().get_doctest(for_ray.fit.__doc__, {"ray": ray, "np": np}, "fit", None, None)
    assert sum(bool(example.options.pop(doctest.SKIP, False)) for example in test.examples) == 2
    assert doctest.DocTestRunner().run(test).failed == 0
