"""Many features, atoms, columns, terms and axes, and large blocks: each works in bounded memory, or says why not."""

import gc
import operator
import pickle
import tracemalloc
from functools import reduce

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF, Linear

MIB = 2**20
RANDOM = np.random.default_rng(9)


def traced(act):
    """Return what a function returns, and the MiB that it took at most, its answer included."""
    gc.collect()
    tracemalloc.start()
    try:
        return act(), tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def summed_in_pairs(parts):
    while len(parts) > 1:
        parts = [reduce(operator.add, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]


def one_term_a_feature(d):
    return summed_in_pairs([RBF(0.5 + 0.001 * j).on(j) for j in range(d)])


@pytest.mark.parametrize(
    ("size", "settings"), [(2, {"max_atoms": 8}), (4096, {"max_atoms": None, "tolerance": 0.5})], ids=["few", "many"]
)
def test_blocks_of_any_size_are_searched_in_bounded_memory(size, settings):
    rows = RANDOM.normal(size=(max(size, 300) + 50, 3))
    model = StreamingKernelPCA(2, kernel=RBF(0.5), block_size=size, **settings)
    _, peak = traced(lambda: model.partial_fit(rows))
    # Three matrices of 4,096 rows with each other, two of them filled as far as rows are chosen, and several numbers
    # for each row.
    assert peak < 3 * 128 + 60 + size * 1000 / MIB
    assert model.n_atoms_ <= 8 or "tolerance" in settings
    if "tolerance" in settings:
        assert model.unexplained_energy_ratio_ <= settings["tolerance"]
    pieces = StreamingKernelPCA(2, kernel=RBF(0.5), block_size=size, **settings)
    for piece in np.array_split(rows, 3):
        pieces.partial_fit(piece)
    assert pieces.to_bytes() == model.to_bytes()


def test_kernels_of_many_terms_take_little_memory():
    """One term for each feature, so that there are as many base matrices: at 4 MiB each, 3,000 would take 12 GiB."""
    d = 300
    rows = RANDOM.normal(size=(700, d))
    kernel = one_term_a_feature(d)
    values, peak = traced(lambda: kernel.matrix(rows[:600], rows[:40]))
    expected = np.zeros((600, 40))
    for j in range(d):
        expected += np.exp(-(0.5 + 0.001 * j) * (rows[:600, j, None] - rows[:40, j]) ** 2)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert peak < 64
    np.testing.assert_array_equal(kernel.diagonal(rows), float(d))

    def learn_and_ask():
        model = StreamingKernelPCA(2, kernel=kernel, max_atoms=4, block_size=64, reservoir_size=16)
        model.partial_fit(rows)
        for ask in (model.transform, model.novelty, model.score, model.reconstruction_error):
            ask(rows[:100])
            ask(rows[:2])
        return model

    model, peak = traced(learn_and_ask)
    # The rows that atoms are chosen from are d numbers each, in both.
    assert peak < 100 + 8 * rows.size / MIB * 3
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(rows), model.transform(rows))


def test_kernels_that_nest_too_deeply_are_refused_when_they_are_made():
    """Deeper ones would raise RecursionError wherever they are printed or compared."""
    kernel = Linear()

    def join_many():
        nonlocal kernel
        for _ in range(50):
            kernel = 2.0 * (kernel + Linear()).exp().on([0]) * Linear() ** 2

    with pytest.raises(ValueError, match=r"nested more than 200 deep; join fewer kernels, or many in pairs of pairs"):
        join_many()
    # All that was made works.
    assert repr(kernel)
    assert kernel == pickle.loads(pickle.dumps(kernel))
    assert hash(kernel) == hash(pickle.loads(pickle.dumps(kernel)))
    assert kernel.parameters()
    kernel.settled([[1.0]]).check_range(np.ones((1, 1)))
