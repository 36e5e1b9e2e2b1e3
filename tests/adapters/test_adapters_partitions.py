"""A distributed fit: pure functions, and the laws of their merges."""

import numpy as np
import pytest
from comparisons import rounding_of
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import CheckpointError, KernelPCA, StreamingKernelPCA, kernels
from streamkpca.adapters import partitions

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).normal(size=(60, 2))
EXACT = {"kernel": kernels.RBF(0.4), "max_atoms": None, "tolerance": 0.0, "block_size": 16}


def tree(template, parts, group):
    level = [partitions.summarise(template, [(part, None)]) for part in parts]
    while len(level) > 1:
        level = [partitions.merge_summaries(template, level[i : i + group]) for i in range(0, len(level), group)]
    return level[0]


@given(st.lists(st.integers(0, 60), max_size=5).map(sorted), st.integers(2, 4), st.sampled_from([None, 1.0, 30.0, 1e9]))
def test_any_tree_over_any_partitions_is_batch_kernel_pca(cuts, group, half_life):
    model = StreamingKernelPCA(3, half_life=half_life, **EXACT)
    template = partitions.template_of(model)
    whole = partitions.finish(model, template, tree(template, np.split(X, cuts), group))
    ages = np.arange(60.0)[::-1]
    # The oracle gets no weights that underflow to zero.
    weights = np.ones(60) if half_life is None else np.maximum(2.0 ** -(ages / half_life), 1e-99)
    exact = KernelPCA(3, kernel=EXACT["kernel"]).fit(X, sample_weight=weights)
    assert whole.n_samples_seen_ == 60
    assert whole.total_weight_ == pytest.approx(weights.sum())
    np.testing.assert_allclose(whole.eigenvalues_, exact.eigenvalues_, rtol=0, atol=1e-8 + rounding_of(whole))
    assert set(whole.atom_rows_) <= set(range(60))
    np.testing.assert_array_equal(whole.atoms_, X[whole.atom_rows_])


def test_weights_may_decay_below_the_smallest_number():
    template = partitions.template_of(StreamingKernelPCA(3, half_life=0.001, **EXACT))
    model = StreamingKernelPCA(3, half_life=0.001, **EXACT)
    whole = partitions.finish(model, template, tree(template, np.split(X, 6), 2))
    assert whole.total_weight_ == pytest.approx(1.0)
    assert whole.n_samples_seen_ == 60


def test_a_summary_is_a_pure_function():
    model = StreamingKernelPCA(2, random_state=None, block_size=16)
    template = partitions.template_of(model, X[:16])
    once = partitions.summarise(template, [(X, None)])
    assert partitions.summarise(template, [(X[:50], None), (X[:0], None), (X[50:], np.ones(10))]) == once
    assert not hasattr(template, "n_samples_seen_")
    assert not hasattr(model, "n_samples_seen_")


@given(st.lists(st.integers(0, 60), max_size=5).map(sorted), st.sampled_from([None, 30.0]), st.sampled_from([4, None]))
def test_a_stream_continues_from_partition_to_partition(cuts, half_life, max_atoms):
    model = StreamingKernelPCA(3, **(EXACT | {"half_life": half_life, "max_atoms": max_atoms}))
    template = partitions.template_of(model)
    summary = None
    for part in np.split(X, cuts):
        summary = partitions.summarise(template, [(part, None)], before=summary)
    assert summary == partitions.summarise(template, [(X, None)])


@given(st.integers(1, 200), st.integers(1, 40))
def test_runs_are_neighbours_of_similar_length(n_parts, n_streams):
    runs = partitions.runs_of(n_parts, n_streams)
    assert [number for run in runs for number in run] == list(range(n_parts))
    assert len(runs) == min(n_parts, n_streams)
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_the_result_has_the_given_parameters_and_learns_on():
    model = StreamingKernelPCA(2, kernel="rbf", axes="likelihood", refit_every=77, block_size=16, n_active=5)
    template = partitions.template_of(model, X[:16])
    whole = partitions.finish(model, template, tree(template, np.split(X, 3), 2))
    assert whole.get_params() == model.get_params()
    assert whole.kernel_ == template.kernel == kernels.RBF().settled(X[:16])
    assert len(whole.eigenvalues_) == 2
    assert whole.partial_fit(X).n_samples_seen_ == 120
    loaded = StreamingKernelPCA.from_bytes(whole.to_bytes())
    assert loaded.partial_fit(X).to_bytes() == whole.partial_fit(X).to_bytes()


def test_invalid_arguments_are_refused():
    model = StreamingKernelPCA()
    with pytest.raises(ValueError, match=r"template_of expected rows that settle the scale of RBF\(gamma='contrast'\)"):
        partitions.template_of(model)
    template = partitions.template_of(model, X)
    nothing = partitions.summarise(template, [])
    with pytest.raises(ValueError, match="fit: found 0 rows to learn from in all partitions"):
        partitions.finish(model, template, partitions.merge_summaries(template, [nothing, nothing]))
    weightless = partitions.summarise(template, [(X, np.zeros(60))])
    with pytest.raises(ValueError, match="fit: found 0 rows to learn from in all partitions"):
        partitions.finish(model, template, weightless)
    with pytest.raises(CheckpointError):
        partitions.merge_summaries(template, [nothing, nothing[:100]])
    with pytest.raises(CheckpointError):
        partitions.summarise(template, [(X, None)], before=nothing[:100])


def test_records_become_rows():
    rows = partitions.rows_of_records([{"a": 1, "b": 2.0}, {"b": 4.0}])
    assert rows.columns == ["a", "b"]
    np.testing.assert_array_equal(rows.to_numpy(), [[1.0, 2.0], [np.nan, 4.0]])
    assert (len(rows), rows.shape) == (2, (2, 2))
    assert partitions.rows_of_records([{"b": 1.0}], ["a", "b"]).columns == ["a", "b"]
    np.testing.assert_array_equal(partitions.rows_of_records(iter([[1.0, 2.0], [[3.0, 4.0]]])), [[1, 2], [3, 4]])
    assert len(partitions.rows_of_records([])) == 0
    with pytest.raises(ValueError, match=r"expected the features a \(set by the first record\) but got b too; drop"):
        partitions.rows_of_records([{"a": 1.0}, {"a": 1.0, "b": 2.0}])
