"""A model as an ONNX graph."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from streamkpca import __version__
from streamkpca._blas import one_blas_thread
from streamkpca.export.formula import Formula, formula_of
from streamkpca.export.onnx_steps import Graph, kernel_values, own_values
from streamkpca.factor import LARGEST_DISTORTION, distortion, inverse_factor
from streamkpca.parameters import check_choice

if TYPE_CHECKING:
    from onnx import ModelProto

# Of 2020: old operators and an old format suffice, and newer runtimes read them.
_OPSET, _IR_VERSION = 13, 7


def to_onnx(model: Any, *, dtype: str = "float32") -> "ModelProto":
    """Write a model's projection and reconstruction error as an ONNX graph.

    Parameters
    ----------
    model : estimator
        Fitted: StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA.
    dtype : {"float32", "float64"}
        Type of the rows that go in and of the answers that come out. Within, all is float64.

    Returns
    -------
    onnx.ModelProto
        Input ``X`` of shape (n, d), any n; outputs ``projection`` of shape (n, q) and ``reconstruction_error`` of
        shape (n,). Save it with ``onnx.save(graph, path)``. The same model makes the same bytes.

    Raises
    ------
    ImportError
        onnx is not installed.
    TypeError
        Not an estimator of this library.
    NotFittedError
        No row was seen yet.
    ValueError
        The kernel asks functions of the caller, the model keeps no row, or `dtype` is neither of the two.

    Notes
    -----
    Answers equal those of the model to 1e-12 in float64 and 1e-5 in float32, relative to k(x, x) (projections: to
    its root), where the atoms do not nearly depend on each other: what is amplified then is the rounding of the model
    itself. Single precision throughout lost up to 8e-4 of k(x, x) (a polynomial kernel on a curved sheet), because
    the error is a difference of nearly equal numbers; float64 costs one row next to nothing.

    A graph answers what a model refuses: a row with NaN gives NaN, infinite rows and values that overflow give what
    arithmetic makes of them. Memory is O(n (m + d) + m (d + m)), time O(m (d + m)) a row; rows do not influence each
    other but for rounding. Operator set 13 and format 7, both of 2020; run with onnxruntime 1.15 and 1.31.

    ``metadata_props`` tells the library's version, the estimator, the kernel, the number of atoms and what the model
    was learned from; feature names too, as JSON, where there are any.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.export import to_onnx
    >>> model = StreamingKernelPCA(2).partial_fit(np.random.default_rng(0).normal(size=(500, 3)))
    >>> graph = to_onnx(model)
    >>> [output.name for output in graph.graph.output]
    ['projection', 'reconstruction_error']
    """
    where = "to_onnx"
    check_choice("dtype", dtype, choices=("float32", "float64"), where=where)
    formula = formula_of(model, where=where, language="ONNX")
    onnx = _onnx()
    graph = Graph(onnx)
    outputs = ["projection", "reconstruction_error"]
    names, rows, element = outputs, "X", onnx.TensorProto.DOUBLE
    if dtype == "float32":
        rows, element = graph.node("Cast", "X", to=onnx.TensorProto.DOUBLE), onnx.TensorProto.FLOAT
        names = [f"{name}_double" for name in outputs]
    values = kernel_values(graph, formula, rows)
    _write_projection(graph, formula, values, names[0])
    _write_error(graph, formula, rows, values, names[1])
    if dtype == "float32":
        for name, output in zip(names, outputs, strict=True):
            graph.node("Cast", name, output=output, to=element)
    return _finished(graph, formula, element)


def _write_projection(graph: Graph, formula: Formula, values: str, output: str) -> None:
    # Zeros for the other rows: their kernel values are there anyway, and no gathering is needed.
    coefficients = np.zeros((max(len(formula.rows), 2), formula.projection.shape[1]))
    coefficients[formula.axis_rows] = formula.projection
    projected = graph.node("MatMul", values, graph.constant(coefficients))
    graph.node("Sub", projected, graph.constant(formula.offset), output=output)


def _write_error(graph: Graph, formula: Formula, rows: str, values: str, output: str) -> None:
    factor, zero = formula.factor, graph.constant(np.float64(0.0))
    with one_blas_thread():
        inverse = inverse_factor(factor)
    if formula.n_span < max(len(formula.rows), 2):
        values = graph.node("Gather", values, graph.constant(np.arange(formula.n_span)), axis=1)
    apply_inverse = graph.constant(inverse.T)
    coordinates = graph.node("MatMul", values, apply_inverse)
    if distortion(inverse, factor) > LARGEST_DISTORTION:
        # ONNX cannot solve with a factor. One step of refinement is as exact: on a wide Gaussian the inverse alone
        # lost 3e-12 of k(x, x), with refinement 3e-13, solving 2e-13.
        missing = graph.node("Sub", values, graph.node("MatMul", coordinates, graph.constant(factor.T)))
        coordinates = graph.node("Add", coordinates, graph.node("MatMul", missing, apply_inverse))
    explained = graph.node("ReduceSumSquare", coordinates, axes=[1], keepdims=0)
    error = graph.node("Sub", own_values(graph, formula, rows), explained)
    # Not Max: what that makes of NaN is not written anywhere.
    graph.node("Where", graph.node("Less", error, zero), zero, error, output=output)


def _finished(graph: Graph, formula: Formula, element: int) -> "ModelProto":
    helper = graph.onnx.helper
    answers = {"projection": ["n", formula.projection.shape[1]], "reconstruction_error": ["n"]}
    model: ModelProto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "streamkpca",
            [helper.make_tensor_value_info("X", element, ["n", formula.n_features])],
            [helper.make_tensor_value_info(name, element, shape) for name, shape in answers.items()],
            list(graph.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="streamkpca",
        producer_version=__version__,
    )
    facts = {"streamkpca_version": __version__, "estimator": formula.estimator, "kernel": repr(formula.kernel)}
    names = {} if formula.feature_names is None else {"feature_names": json.dumps(formula.feature_names)}
    helper.set_model_props(model, {**facts, **formula.facts, **names})
    return model


def _onnx() -> Any:
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise ImportError(f'to_onnx needs {error.name}; pip install "streamkpca[onnx]"') from error
    return onnx
