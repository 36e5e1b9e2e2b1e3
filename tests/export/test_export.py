"""The parts that all exports share: formulas of models, and refusals."""

from functools import partial

import numpy as np
import pytest
from exports import OF_THE_CALLER, drawn_rows, plain, streamed

from streamkpca import KernelPCA, StreamingKernelPCA, export
from streamkpca.errors import NotFittedError
from streamkpca.kernels import RBF, Linear

WRITERS = {"to_c": (export.to_c, "C"), "to_onnx": (export.to_onnx, "ONNX")}


@pytest.mark.parametrize("name", WRITERS)
def test_models_that_cannot_be_exported_are_refused(name):
    write, language = WRITERS[name]
    nothing = StreamingKernelPCA(1, kernel=Linear()).partial_fit(np.zeros((20, 2)))
    refused = [
        (KernelPCA(), NotFittedError, f"{name} needs a fitted KernelPCA"),
        (StreamingKernelPCA(), NotFittedError, f"{name} needs a fitted StreamingKernelPCA"),
        (3, TypeError, f"{name}: expected a fitted model .* an object of type int; from a pipeline"),
        (KernelPCA, TypeError, f"{name}: .* but got the class KernelPCA"),
        (nothing, ValueError, f"{name}: expected a model that keeps at least one row .* differ from zero"),
        *(
            (streamed(kernel), ValueError, f"{name}: expected a kernel made of formulas .* in {language}; combine")
            for kernel in OF_THE_CALLER
        ),
    ]
    for model, error, message in refused:
        with pytest.raises(error, match=message):
            write(model)
    with pytest.raises(ValueError, match=f"{name}: dtype must be one of"):
        write(plain(RBF(0.4)), dtype="int8")


@pytest.mark.parametrize(("kernel", "offset"), [(RBF(0.4), 1e8), (Linear(), -1e12)])
def test_rows_that_single_precision_hardly_tells_apart_are_refused(kernel, offset):
    # A column that never varies needs no digits.
    rows = drawn_rows(0) * [1.0, 1.0, 0.0]
    model = streamed(kernel, rows + np.array([0.0, offset, offset]))
    as_float, learning = partial(export.to_c, dtype="float"), export.to_c_learner
    for write in (as_float, learning, export.to_onnx, export.to_device):
        with pytest.raises(ValueError, match=r"expected numbers of single precision but feature 1 varies by .* near"):
            write(model)
    assert export.to_c(model)
    assert as_float(streamed(RBF(0.4), rows + np.array([0.0, 1e6, offset])))


def test_an_export_changes_nothing_and_is_the_same_each_time():
    model = streamed(RBF(0.4))
    before = model.to_bytes()
    assert export.to_c(model) == export.to_c(model)
    assert export.to_onnx(model).SerializeToString() == export.to_onnx(model).SerializeToString()
    assert model.to_bytes() == before
