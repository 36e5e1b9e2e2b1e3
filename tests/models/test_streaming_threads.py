"""Writers wait for each other, and readers see complete states only."""

import threading

import numpy as np
import pytest
from together import together

from streamkpca import StreamingKernelPCA, kernels

ROWS = np.random.default_rng(0).normal(size=(2000, 3))


def test_two_models_may_be_merged_into_each_other_at_once():
    models = [
        StreamingKernelPCA(2, kernel=kernels.RBF(0.5), max_atoms=20, block_size=16).partial_fit(ROWS[:100])
        for _ in range(2)
    ]
    together(lambda: models[0].merge(models[1]), lambda: models[1].merge(models[0]))
    assert {model.n_samples_seen_ for model in models} <= {200, 300}


def test_a_state_is_assigned_once_the_writer_is_done():
    model = StreamingKernelPCA(1, kernel="linear").partial_fit([[1.0], [2.0]])
    before = model.state_
    other = threading.Thread(target=setattr, args=(model, "state_", before))
    with model.write_lock:
        other.start()
        other.join(0.1)
        model.partial_fit([[3.0]])
    other.join()
    assert model.state_ is before


@pytest.mark.parametrize("state", [{}, StreamingKernelPCA(), StreamingKernelPCA().settings()])
def test_nothing_but_a_state_is_assigned(state):
    model = StreamingKernelPCA(1, kernel="linear").partial_fit([[1.0], [2.0]])
    before = model.state_
    with pytest.raises(TypeError, match="expected state_ to be a State or None"):
        model.state_ = state
    assert model.state_ is before
