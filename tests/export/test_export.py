"""The parts that all exports share: formulas of models, refusals, and the rounding errors of answers."""

import numpy as np
import pytest
from exports import EXPORTABLE, OF_THE_CALLER, drawn_rows, streamed

from streamkpca import ApproximateKernelPCA, KernelPCA, NotFittedError, SparseKernelPCA, StreamingKernelPCA, export
from streamkpca.export.model import formula_of
from streamkpca.export.rounding import measure_rounding, single_centre
from streamkpca.kernels import RBF, Linear

WRITERS = {"to_c": (export.to_c, "C"), "to_onnx": (export.to_onnx, "ONNX")}


def formula(model):
    return formula_of(model, where="test", language="C")


@pytest.mark.parametrize("kernel", OF_THE_CALLER, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("name", WRITERS)
def test_functions_of_the_caller_are_refused(name, kernel):
    write, language = WRITERS[name]
    pattern = f"{name}: expected a kernel made of formulas but .* calls a function of yours, .* in {language}; combine"
    with pytest.raises(ValueError, match=pattern):
        write(streamed(kernel))


@pytest.mark.parametrize("name", WRITERS)
def test_other_values_than_fitted_models_are_refused(name):
    write, _ = WRITERS[name]
    with pytest.raises(NotFittedError, match=f"{name} needs a fitted KernelPCA"):
        write(KernelPCA())
    with pytest.raises(NotFittedError, match=f"{name} needs a fitted StreamingKernelPCA"):
        write(StreamingKernelPCA())
    with pytest.raises(TypeError, match=f"{name}: expected a fitted model .* an object of type int; from a pipeline"):
        write(3)
    with pytest.raises(TypeError, match=f"{name}: .* but got the class KernelPCA"):
        write(KernelPCA)
    with pytest.raises(ValueError, match=f"{name}: dtype must be one of"):
        write(streamed(RBF(0.4)), dtype="int8")


@pytest.mark.parametrize("name", WRITERS)
def test_a_model_without_rows_is_refused(name):
    write, _ = WRITERS[name]
    nothing = StreamingKernelPCA(1, kernel=Linear()).partial_fit(np.zeros((20, 2)))
    with pytest.raises(ValueError, match=f"{name}: expected a model that keeps at least one row .* differ from zero"):
        write(nothing)


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_a_formula_answers_as_its_model(kernel):
    model = streamed(kernel)
    rows = drawn_rows(1, 20)
    np.testing.assert_allclose(formula(model).transform(rows), model.transform(rows), atol=1e-12)
    np.testing.assert_allclose(formula(model).reconstruction_error(rows), model.reconstruction_error(rows), atol=1e-12)
    np.testing.assert_allclose(formula(model).novelty(rows), model.novelty(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        KernelPCA(2),
        SparseKernelPCA(2, n_active=9),
        ApproximateKernelPCA(2, max_atoms=9),
        StreamingKernelPCA(2),
        StreamingKernelPCA(2, dtype="float32"),
    ],
    ids=repr,
)
def test_every_row_is_written_once(model):
    rows = drawn_rows(0, 60)
    rows[40:] = rows[:20]
    model.fit(rows)
    written = formula(model)
    assert len(np.unique(written.rows, axis=0)) == len(written.rows)
    np.testing.assert_allclose(written.transform(rows), model.transform(rows), atol=1e-9)
    np.testing.assert_allclose(written.reconstruction_error(rows), model.reconstruction_error(rows), atol=1e-9)


def test_an_export_takes_one_snapshot_and_changes_nothing():
    model = streamed(RBF(0.4))
    before = model.to_bytes()
    export.to_c(model)
    export.to_onnx(model)
    assert model.to_bytes() == before


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_measured_rounding_is_of_the_expected_size(kernel):
    measured = measure_rounding(formula(streamed(kernel)))
    assert 1e-9 < measured.projection < 1e-4
    assert measured.error < 1e-4
    assert measured.novelty < 1e-4
    # The number of roundings is the same in either precision.
    assert measured.in_double().projection == pytest.approx(measured.projection * 2.0**-29)


def test_atoms_that_nearly_depend_on_each_other_amplify_rounding():
    apart = measure_rounding(formula(streamed(RBF(0.4))))
    close = measure_rounding(formula(streamed(RBF(0.02), max_atoms=60, tolerance=1e-7)))
    assert close.error > 10 * apart.error


def test_numbers_beyond_single_precision_cannot_be_measured():
    assert np.isnan(measure_rounding(formula(streamed(Linear(), 1e60 * drawn_rows(0)))).projection)


def test_only_columns_far_from_the_origin_are_centred():
    rows = drawn_rows(0, 50) + np.array([0.0, 1e6, -1e3])
    centre = single_centre(rows)
    assert centre[0] == 0.0
    np.testing.assert_allclose(centre[1:], [1e6, -1e3], rtol=1e-3)
    assert np.array_equal(centre, centre.astype(np.float32))


@pytest.mark.parametrize("name", WRITERS)
def test_models_that_take_gaps_are_refused(name):
    write, language = WRITERS[name]
    rows = drawn_rows(0)
    gapped = rows.copy()
    gapped[::5, 0] = np.nan
    model = StreamingKernelPCA(2, kernel=RBF(0.4), on_missing="marginal").partial_fit(gapped)
    pattern = (
        rf"{name}: expected a model of complete rows .*\(on_missing='marginal'\), .* in {language}; export a model"
    )
    with pytest.raises(ValueError, match=pattern):
        write(model)
    write(StreamingKernelPCA(2, kernel=RBF(0.4)).partial_fit(model.impute(gapped)))
    write(StreamingKernelPCA(2, kernel=RBF(0.4), on_missing="skip").partial_fit(gapped))
