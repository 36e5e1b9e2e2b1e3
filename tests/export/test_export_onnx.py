"""ONNX graphs beyond their answers in double: single precision, batches, metadata."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from exports import (
    Case,
    Session,
    assert_same_answers,
    drawn_rows,
    plain,
    streamed,
)

import streamkpca
from streamkpca import StreamingKernelPCA
from streamkpca.export import to_onnx
from streamkpca.kernels import RBF

pytestmark = pytest.mark.slow


def test_single_precision_keeps_its_tolerance_for_nearly_dependent_atoms():
    model = streamed(RBF(0.02), max_atoms=60, tolerance=1e-7)
    rows = drawn_rows(1, 100)
    assert_same_answers(model, rows, *Session(Case(model, "float")).answers(rows), tolerance=1e-5)


def test_a_model_that_takes_gaps_answers_complete_rows():
    rows = drawn_rows(0)
    rows[::5, 0] = np.nan
    model = StreamingKernelPCA(2, kernel=RBF(0.4), missing="marginal").partial_fit(rows)
    complete = drawn_rows(1, 100)
    assert_same_answers(model, complete, *Session(Case(model)).answers(complete), tolerance=1e-12)


def test_a_graph_is_saved_loaded_and_states_its_origin(tmp_path):
    columns = ["flow", "päßure */", "n"]
    model = streamed(0.5 * RBF(0.4), pd.DataFrame(drawn_rows(0), columns=columns))
    graph, path = to_onnx(model), tmp_path / "model.onnx"
    onnx.save(graph, path)
    facts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert facts["streamkpca_version"] == graph.producer_version == streamkpca.__version__
    assert facts["estimator"] == "StreamingKernelPCA"
    assert facts["kernel"] == "0.5 * RBF(gamma=0.4)"
    assert facts["n_atoms"] == str(model.n_atoms_)
    assert facts["n_samples_seen"] == "400"
    assert json.loads(facts["feature_names"]) == columns
    assert "feature_names" not in {entry.key for entry in to_onnx(plain(RBF(0.4))).metadata_props}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given_rows,) = session.get_inputs()
    assert (given_rows.name, given_rows.shape[1]) == ("X", 3)
    (errors,) = session.run(["reconstruction_error"], {"X": drawn_rows(1, 5).astype(np.float32)})
    expected = model.reconstruction_error(pd.DataFrame(drawn_rows(1, 5), columns=columns))
    np.testing.assert_allclose(errors, expected, atol=1e-6)


def test_without_onnx_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'^to_onnx: onnx is not installed; pip install "streamkpca\[onnx\]"'):
        to_onnx(plain(RBF(0.4)))
