"""ONNX graphs beyond their answers in double: single precision, batches, metadata."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from exports import (
    EXPORTABLE,
    Case,
    Session,
    assert_same_answers,
    drawn_rows,
    plain,
    probing_rows,
    rarity_of,
    streamed,
)

import streamkpca
from streamkpca import StreamingKernelPCA
from streamkpca.export import to_onnx
from streamkpca.export.scales import Scales
from streamkpca.kernels import RBF, Linear

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kernel", EXPORTABLE[::4], ids=repr)
def test_single_precision_keeps_its_tolerance(kernel):
    model = plain(kernel)
    rows = probing_rows(model).astype(np.float32).astype(np.float64)
    assert_same_answers(model, rows, *Session(Case(model, "float")).answers(rows), tolerance=1e-5)


def test_single_precision_keeps_its_tolerance_for_nearly_dependent_atoms():
    model = streamed(RBF(0.02), max_atoms=60, tolerance=1e-7)
    rows = drawn_rows(1, 100)
    assert_same_answers(model, rows, *Session(Case(model, "float")).answers(rows), tolerance=1e-5)


@pytest.mark.parametrize("d", [1, 4])
def test_rarity_and_expected_numbers_are_those_of_a_monitors_views(d):
    angle = np.random.default_rng(0).uniform(0.0, 2.0 * np.pi, (3000, 1))
    rows = (np.sin(angle + np.arange(d)) + 0.1 * drawn_rows(0, 3000, d)) * [100.0, 1.0, 0.01, 7.0][:d] + 50.0
    model = streamed(RBF("spread").in_units("std"), rows[:2000])
    session, relation = Session(Case(model)).session, Scales.of(model).relation
    asked = np.concatenate([rows[2000:], rows[:200] + 100.0 * np.eye(d)[0], np.full((1, d), 1e300)])
    rarity, expected, terms = session.run(["rarity", "expected", "terms"], {"X": asked})
    of_python = rarity_of(model, asked)
    assert ((0.6 * of_python < rarity) & (rarity < 1.7 * of_python))[:-1].all()
    assert 1e4 < rarity[-1] < np.inf
    np.testing.assert_allclose(expected[:-1], asked[:-1] - relation.scale * relation.residuals(asked[:-1]), rtol=1e-11)
    np.testing.assert_allclose(terms, relation.terms(asked), rtol=1e-11, atol=1e-12)
    asked[0, 0] = np.nan
    for answer in session.run(["rarity", "expected", "terms"], {"X": asked[:2]}):
        assert np.isnan(answer[0]).all()
        assert np.isfinite(answer[1]).all()


def test_batches_of_any_size_get_the_answers_of_all_rows():
    """A runtime may choose other loops for each size, so only up to rounding."""
    model, sizes = plain(RBF(0.4) + 0.5 * Linear()), (1, 2, 3, 5, 7, 8, 9, 31, 33, 127, 1, 1025)
    rows, ask = drawn_rows(1, sum(sizes)), Session(Case(model)).answers
    parts = [ask(part) for part in np.split(rows, np.cumsum(sizes)[:-1])]
    for found, expected in zip(map(np.concatenate, zip(*parts, strict=True)), ask(rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_a_model_that_takes_gaps_answers_complete_rows():
    rows = drawn_rows(0)
    rows[::5, 0] = np.nan
    model = StreamingKernelPCA(2, kernel=RBF(0.4), on_missing="marginal").partial_fit(rows)
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
