"""Ray: refusals, and real Datasets where Ray is installed; `test_adapters_partition` has what its tasks do."""

import doctest
import inspect
import sys
from functools import reduce
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pandas", reason="blocks are tables of pandas; needs the extra pandas")

import pandas as pd

from streamkpca import KernelPCA, StreamingKernelPCA, kernels
from streamkpca.adapters import for_ray
from streamkpca.aggregate import Aggregate

NAMES = ["load", "heat", "flow"]
ROWS = np.random.default_rng(1).normal(size=(7000, 3))


def test_invalid_models_are_refused_before_rows_are_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data.aggregate", SimpleNamespace(AggregateFnV2=object))
    monkeypatch.setitem(sys.modules, "ray.data.block", SimpleNamespace(BlockAccessor=object))
    with pytest.raises(TypeError, match=r"^for_ray.fit: expected a StreamingKernelPCA but got Ker"):
        for_ray.fit(KernelPCA(), None)
    monkeypatch.setitem(sys.modules, "ray.data.aggregate", None)
    with pytest.raises(ImportError, match=r'^for_ray.fit: ray.* is not installed; pip install "streamkpca\[ray\]"'):
        for_ray.fit(StreamingKernelPCA(), None)


class Dataset:
    """The methods of a Dataset that the door uses, with a block for each table."""

    def __init__(self, tables):
        self.tables = tables

    def limit(self, n):
        return Dataset([self.to_pandas()[:n]])

    def to_pandas(self):
        return pd.concat(self.tables, ignore_index=True)

    def columns(self):
        return list(self.tables[0])

    def aggregate(self, fit):
        states = [fit.combine(fit.zero(), fit.aggregate_block(table)) for table in self.tables]
        return {"state": reduce(fit.combine, states)}

    def map_batches(self, answer, *, batch_format):
        assert batch_format == "pandas"
        return Dataset([answer(table) for table in self.tables])


class AggregateFnV2:
    def __init__(self, name, zero, *, on, ignore_nulls):
        self.zero = zero


def test_a_fit_is_the_merge_of_its_blocks(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data.aggregate", SimpleNamespace(AggregateFnV2=AggregateFnV2))
    accessor = SimpleNamespace(for_block=lambda block: SimpleNamespace(to_pandas=lambda: block))
    monkeypatch.setitem(sys.modules, "ray.data.block", SimpleNamespace(BlockAccessor=accessor))
    # The order of the columns may differ from block to block.
    tables = [pd.DataFrame(part, columns=NAMES) for part in np.split(ROWS[:300], [100, 120])]
    model = for_ray.fit(StreamingKernelPCA(2, max_atoms=8), Dataset([tables[0], tables[1][NAMES[::-1]], tables[2]]))
    empty = Aggregate(StreamingKernelPCA(2, max_atoms=8).partial_fit(pd.concat(tables)))
    states = [empty.zero().add(table) for table in tables]
    assert model.to_bytes() == reduce(Aggregate.merge, states).finish().to_bytes()
    answers = for_ray.transform(model, Dataset(tables), keep=["flow"]).to_pandas()
    np.testing.assert_allclose(answers["novelty"], model.novelty(pd.concat(tables)), rtol=1e-9, atol=1e-12)
    assert list(answers) == ["flow", "novelty", "streamingkernelpca0", "streamingkernelpca1"]
    with pytest.raises(ValueError, match=r"^for_ray.fit: found 0 rows to learn from"):
        for_ray.fit(StreamingKernelPCA(1), Dataset([tables[0][:0]]))


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray", reason="real Datasets of Ray; needs the extra ray")
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
    rows = ROWS[:300]
    tables = [pd.DataFrame(part, columns=NAMES) for part in np.split(rows, [10, 100, 220])]
    exact = StreamingKernelPCA(3, kernel=kernels.RBF(0.4), max_atoms=None, tolerance=0.0, block_size=16)
    dataset = ray.data.from_pandas(tables)
    model = for_ray.fit(exact, dataset)
    batch = KernelPCA(3, kernel=kernels.RBF(0.4)).fit(rows)
    assert model.n_samples_seen_ == 300
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_allclose(model.eigenvalues_, batch.eigenvalues_, rtol=0, atol=1e-8)

    scores = for_ray.transform(model, dataset, keep=["load"]).to_pandas().sort_values("load")
    assert list(scores) == ["load", "novelty", *model.get_feature_names_out()]
    expected = model.novelty(rows[np.argsort(rows[:, 0])])
    np.testing.assert_allclose(scores["novelty"], expected, rtol=1e-9, atol=1e-12)

    tables[-1].iloc[-1, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        for_ray.fit(StreamingKernelPCA(1), ray.data.from_pandas(tables))
    weighted = ray.data.from_pandas([table.fillna(0.0).assign(weight=0.5) for table in tables])
    assert for_ray.fit(exact, weighted, weight_column="weight").total_weight_ == 150.0
    examples = "\n\n".join(map(inspect.getdoc, (for_ray.fit, for_ray.transform)))
    test = doctest.DocTestParser().get_doctest(examples, {}, "for_ray", None, None)
    assert sum(bool(example.options.pop(doctest.SKIP, False)) for example in test.examples) == 7
    assert doctest.DocTestRunner().run(test).failed == 0
