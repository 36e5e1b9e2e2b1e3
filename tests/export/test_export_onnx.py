"""ONNX graphs: run by onnxruntime, and compared with the models that they were made from."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from exports import (
    EXPORTABLE,
    are_well_apart,
    assert_same_answers,
    drawn_rows,
    exact_rbf_errors,
    exportable_kernels,
    formula,
    plain,
    probing_rows,
    streamed,
)
from hypothesis import assume, given

import streamkpca
from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA
from streamkpca.export import to_onnx
from streamkpca.kernels import RBF, Cosine, Equal, Laplacian, Linear, Matern, RationalQuadratic

pytestmark = pytest.mark.slow

TOLERANCES = {"float64": 1e-12, "float32": 1e-5}


def asker(model, dtype="float64"):
    """Return what asks a model's graph about rows, in one session."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = to_onnx(model, dtype=dtype)
    onnx.checker.check_model(graph, full_check=True)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def ask(rows):
        found = session.run(["projection", "reconstruction_error", "novelty"], {"X": rows.astype(dtype)})
        assert {array.dtype for array in found} == {np.dtype(dtype)}
        return tuple(array.astype(np.float64) for array in found)

    return ask


def answers(model, rows, dtype="float64"):
    return asker(model, dtype)(rows)


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_every_exportable_kernel_answers_as_in_python(kernel):
    model = plain(kernel)
    rows = probing_rows(model).astype(np.float32).astype(np.float64)
    ask = asker(model)
    assert_same_answers(model, rows, *ask(rows), tolerance=1e-12)
    if kernel.is_stationary:
        # Novelty goes on growing far away.
        rows = np.geomspace(10.0, 1e140, 60)[:, None] * [0.7, -1.0, 0.2]
        np.testing.assert_allclose(ask(rows)[2], model.novelty(rows), rtol=1e-11)


@pytest.mark.parametrize("kernel", EXPORTABLE[::4], ids=repr)
def test_single_precision_keeps_its_tolerance(kernel):
    model = plain(kernel)
    rows = probing_rows(model).astype(np.float32).astype(np.float64)
    assert_same_answers(model, rows, *answers(model, rows, "float32"), tolerance=1e-5)


def test_single_precision_keeps_its_tolerance_for_nearly_dependent_atoms():
    model = streamed(RBF(0.02), max_atoms=60, tolerance=1e-7)
    rows = drawn_rows(1, 100)
    assert_same_answers(model, rows, *answers(model, rows, "float32"), tolerance=1e-5)


def test_categories_answer_as_in_python():
    rows = np.round(2.0 * drawn_rows(0)) + 2.0**40
    rows[:, 0] = drawn_rows(1)[:, 0]
    for kernel in (Equal(), 0.5 * RBF(0.4).on(0) * (0.7 * Equal().on([2, 1])).exp()):
        model, new = streamed(kernel, rows), np.roll(rows[:40], 1, axis=0)
        assert_same_answers(model, new, *answers(model, new), tolerance=1e-11)


@given(exportable_kernels())
def test_combinations_answer_as_in_python(kernel):
    model = streamed(kernel, n_components=0.8)
    assume(are_well_apart(model))
    rows = drawn_rows(1, 30)
    assert_same_answers(model, rows, *answers(model, rows), tolerance=1e-12)


@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        (KernelPCA(2), "float64"),
        (SparseKernelPCA(2, n_active=9), "float32"),
        (ApproximateKernelPCA(2, max_atoms=9), "float64"),
    ],
    ids=str,
)
def test_every_estimator_can_be_exported(model, dtype):
    rows = drawn_rows(0, 60)
    rows[50:] = rows[:10]
    model.set_params(kernel=Laplacian(0.5)).fit(rows)
    rows = drawn_rows(1, 20)
    assert_same_answers(model, rows, *answers(model, rows, dtype), tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        (RBF(0.4), "float32"),
        (Matern(0.5, length_scale=1.7), "float64"),
        (Laplacian(0.4), "float32"),
        (RBF(0.4).in_units("whitened"), "float64"),
    ],
    ids=str,
)
def test_large_offsets_do_no_harm(kernel, dtype):
    rows = (drawn_rows(0) + np.array([1e5, -3e5, 0.0])).astype(np.float32).astype(np.float64)
    model = streamed(kernel, rows)
    assert_same_answers(model, rows[:50], *answers(model, rows[:50], dtype), tolerance=TOLERANCES[dtype])


def test_the_error_is_as_exact_as_the_models_own_for_nearly_dependent_atoms():
    model = streamed(RBF(0.02), max_atoms=60, tolerance=1e-9)
    rows = drawn_rows(1, 200)
    truth = exact_rbf_errors(model, rows, 0.02)
    ours = np.abs(answers(model, rows)[1] - truth).max()
    assert ours < 4.0 * np.abs(model.reconstruction_error(rows) - truth).max() + 1e-13


def test_one_row_and_one_atom_are_enough():
    model = streamed(0.3 * Linear(), drawn_rows(0, d=1), n_components=1)
    assert model.n_atoms_ == 1
    for n, dtype in ((1, "float64"), (2, "float32"), (50, "float64")):
        rows = drawn_rows(1, n, 1)
        assert_same_answers(model, rows, *answers(model, rows, dtype), tolerance=TOLERANCES[dtype])


def test_batches_of_any_size_get_the_answers_of_all_rows():
    """A runtime may choose other loops for each size, so only up to rounding."""
    model, sizes = plain(RBF(0.4) + 0.5 * Linear()), (1, 2, 3, 5, 7, 8, 9, 31, 33, 127, 1, 1025)
    rows, ask = drawn_rows(1, sum(sizes)), asker(model)
    parts = [ask(part) for part in np.split(rows, np.cumsum(sizes)[:-1])]
    for found, expected in zip(map(np.concatenate, zip(*parts, strict=True)), ask(rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_a_large_alpha_does_not_lose_digits():
    # alpha log(1 + t / alpha) with t / alpha near rounding is what log1p is for.
    model = streamed(RationalQuadratic(1e7 + 0.5, length_scale=1.0))
    rows = drawn_rows(1, 50)
    assert_same_answers(model, rows, *answers(model, rows), tolerance=1e-12)


def test_nan_stays_nan_and_harms_no_other_row():
    for kernel in (RBF(0.4), Matern(2.5, length_scale=1.7), Cosine(), RationalQuadratic(0.3, length_scale=1.7)):
        rows, ask = drawn_rows(1, 4), asker(plain(kernel))
        clean = ask(rows)
        rows[2, 1] = np.nan
        others = [0, 1, 3]
        for answer, before in zip(ask(rows), clean, strict=True):
            assert np.isnan(answer[2]).all()
            np.testing.assert_allclose(answer[others], before[others], atol=1e-14)


def test_rows_far_away_resemble_no_atom():
    for kernel in (RBF(0.4), Matern(1.5, length_scale=1.7), RationalQuadratic(1.0, length_scale=1.7)):
        projections, errors, novelty = answers(plain(kernel), np.full((1, 3), 1e200))
        np.testing.assert_allclose(projections, -formula(plain(kernel)).offset[None], atol=1e-12)
        np.testing.assert_allclose(errors, 1.0, atol=1e-12)
        assert 1e2 < novelty[0] < np.inf


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
    with pytest.raises(ImportError, match=r'to_onnx needs onnx; pip install "streamkpca\[onnx\]"'):
        to_onnx(plain(RBF(0.4)))
