"""A model as an ONNX graph: one node for each step of the kernel's program, then the projection and the scores."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array
from streamkpca._core.linalg import LARGEST_AMPLIFICATION, inverse_factor, one_blas_thread, rounding_amplification
from streamkpca._core.parameters import check_choice
from streamkpca._version import __version__
from streamkpca.errors import name_errors
from streamkpca.export.formula import Formula, formula_of
from streamkpca.export.segments import RowSegments
from streamkpca.export.views import BothViews, fit_views, tabulate
from streamkpca.kernels.logarithms import log_values
from streamkpca.kernels.program import Arithmetic, Base

if TYPE_CHECKING:
    from onnx import ModelProto


# log1p takes larger arguments for this one, because infinity over infinity would be NaN.
_FAR = 1e300
# Sizes of standardised numbers stop here, so that their squares are finite.
_FARTHEST = 1e60
# Logarithms of kernel values stop here, because infinity less infinity would be NaN.
_LEAST_LOG = -1e300
# Both are of 2020: old operators and an old format suffice, and newer runtimes read them.
_OPSET = 13
_IR_VERSION = 7


@name_errors
def to_onnx(model: Any, *, dtype: str = "float32") -> "ModelProto":
    """Write a model's projection, scores, rarity and expected numbers as an ONNX graph.

    Parameters
    ----------
    model : estimator
        Fitted: StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA.
    dtype : {"float32", "float64"}
        Type of the input rows and of the answers; the graph itself computes in float64.

    Returns
    -------
    onnx.ModelProto
        Input ``X`` of shape (n, d), n at least 1; outputs ``projection`` of shape (n, q), ``reconstruction_error`` and
        ``novelty`` of shape (n,). Of a stream with a sample of 64 rows or more, and 256 features at most, also
        ``rarity`` of shape (n,), ``expected`` and ``terms`` of shape (n, d), which `to_c` explains. The same model
        gives the same bytes.

    Raises
    ------
    ImportError
        onnx is not installed.
    NotFittedError, TypeError, ValueError
        As `to_c`.

    Notes
    -----
    Answers equal those of the model to 1e-12 in float64 and 1e-5 in float32, relative to k(x, x) (projections: to
    its root; novelty: to k(x, x) and itself), unless atoms nearly depend on each other. A row with NaN gives NaN;
    infinite rows and values that overflow give infinity or NaN. O(m (d + m)) a row. Operator set 13 and format 7.
    ``metadata_props`` holds the library's version, the estimator, the kernel, the numbers of atoms and rows, and the
    feature names, as JSON.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.export import to_onnx
    >>> graph = to_onnx(StreamingKernelPCA(2).partial_fit(np.random.default_rng(0).normal(size=(500, 3))))
    >>> [output.name for output in graph.graph.output]
    ['projection', 'reconstruction_error', 'novelty', 'rarity', 'expected', 'terms']
    """
    check_choice("dtype", dtype, choices=("float32", "float64"))
    formula = formula_of(model, language="ONNX", single=dtype == "float32")
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise ImportError(f'{error.name} is not installed; pip install "streamkpca[onnx]"') from error
    element = onnx.TensorProto.FLOAT if dtype == "float32" else onnx.TensorProto.DOUBLE
    graph = Graph(onnx, len(formula.rows))
    rows = graph.node("Cast", "X", to=onnx.TensorProto.DOUBLE)
    bases, own_bases = _base_matrices(graph, formula, rows)
    values = formula.kernel.program.evaluate(bases, _NodeArithmetic(graph, (graph.width,)))
    distances = _error(graph, formula, own_bases, values)
    answers = {
        "projection": _projection(graph, formula, values),
        "reconstruction_error": distances,
        "novelty": _novelty(graph, formula, bases) if formula.own_value() else distances,
    }
    if (views := fit_views(model)) is not None:
        answers |= _write_views(graph, formula, views, rows, answers["novelty"])
    for name, answer in answers.items():
        graph.node("Cast", answer, output=name, to=element)
    return _finish(graph, formula, element, list(answers))


class Graph:
    """A graph being written: every result has a name, and equal constants share one.

    Tables of kernel values have `width` columns, a column for each row of the formula. A single row is written twice:
    onnxruntime 1.31 fuses a single number next to a matrix product into it (MatMulScaleFusion), in single precision
    whatever the matrices are, which lost 1e-8 of a projection.
    """

    def __init__(self, onnx: Any, n_rows: int) -> None:
        self.onnx = onnx
        self.width = max(n_rows, 2)
        self.nodes: list[Any] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], Any] = {}

    def constant(self, values: npt.ArrayLike) -> str:
        """Write a constant of float64, int64 or bool, unless an equal one is there; return its name."""
        array = np.ascontiguousarray(values).reshape(np.shape(values))
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self.constants:
            self.constants[key] = self.onnx.numpy_helper.from_array(array, f"constant_{len(self.constants)}")
        name: str = self.constants[key].name
        return name

    def node(self, operator: str, *inputs: str | npt.ArrayLike, output: str | None = None, **attributes: Any) -> str:
        """Write a node with an operator of ONNX, its inputs (names or constants) and attributes; return its result."""
        name = f"{operator}_{len(self.nodes)}" if output is None else output
        names = [given if isinstance(given, str) else self.constant(given) for given in inputs]
        self.nodes.append(self.onnx.helper.make_node(operator, names, [name], **attributes))
        return name

    def at_least(self, values: str, least: npt.ArrayLike) -> str:
        """Write the larger of values and a number; NaN stays NaN."""
        # ONNX does not specify what Max makes of NaN.
        return self.node("Where", self.node("Less", values, least), least, values)

    def at_most(self, values: str, most: npt.ArrayLike) -> str:
        """Write the smaller of values and a number; NaN stays NaN."""
        return self.node("Where", self.node("Greater", values, most), most, values)


def _projection(graph: Graph, formula: Formula, values: str) -> str:
    # The other rows get coefficients of zero: their kernel values are there anyway, and nothing has to be gathered.
    coefficients = np.zeros((graph.width, formula.projection.shape[1]))
    coefficients[formula.axis_rows] = formula.projection
    return graph.node("Sub", graph.node("MatMul", values, coefficients), formula.offset)


def _error(graph: Graph, formula: Formula, own_bases: list[str], values: str) -> str:
    own: str | float | None = formula.own_value()
    if own is None:
        own = formula.kernel.program.evaluate(own_bases, _NodeArithmetic(graph, ()))
    return graph.at_least(graph.node("Sub", own, _explained(graph, formula, values)), 0.0)


def _novelty(graph: Graph, formula: Formula, bases: list[str]) -> str:
    """Write -e log |c|^2 / e, for all rows from logarithms of kernel values, less the largest in each row."""
    own, steps = formula.own_value(), _NodeArithmetic(graph, (graph.width,))
    assert own
    values = graph.at_least(log_values(formula.kernel.program, bases, steps), _LEAST_LOG)
    largest = graph.node("ReduceMax", values, axes=[1], keepdims=1)
    explained = _explained(graph, formula, graph.node("Exp", graph.node("Sub", values, largest)))
    twice = graph.node("Mul", graph.node("Squeeze", largest, np.array([1])), 2.0)
    share = graph.node("Sub", graph.node("Add", twice, graph.node("Log", explained)), np.log(own))
    return graph.at_least(graph.node("Mul", share, -own), 0.0)


def _explained(graph: Graph, formula: Formula, values: str) -> str:
    """Write the squared lengths (n,) of coordinates, from kernel values (n, width)."""
    factor = formula.factor
    with one_blas_thread():
        inverse = inverse_factor(factor)
    if len(formula.rows) < graph.width:
        values = graph.node("Gather", values, np.array([0]), axis=1)
    coordinates = graph.node("MatMul", values, inverse.T)
    if rounding_amplification(inverse, factor) > LARGEST_AMPLIFICATION:
        # ONNX cannot solve a triangular system, but one step of refinement is as exact: on a wide Gaussian the inverse
        # alone lost 3e-12 of k(x, x), the inverse with refinement 3e-13, and solving 2e-13.
        missing = graph.node("Sub", values, graph.node("MatMul", coordinates, factor.T))
        coordinates = graph.node("Add", coordinates, graph.node("MatMul", missing, inverse.T))
    return graph.node("ReduceSumSquare", coordinates, axes=[1], keepdims=0)


def _write_views(graph: Graph, formula: Formula, views: BothViews, rows: str, novelty: str) -> dict[str, str]:
    """Write the rarity (n,) of rows (n, d) with a novelty, and expected numbers and their terms (n, d)."""
    relation = views.relation
    away = graph.node("Div", graph.node("Sub", rows, relation.mean), relation.scale)
    away = graph.at_most(graph.at_least(away, -_FARTHEST), _FARTHEST)
    residuals = _product(graph, away, relation.precision / np.diagonal(relation.precision)[:, None])
    expected = graph.node("Add", graph.node("Mul", graph.node("Sub", away, residuals), relation.scale), relation.mean)
    sizes = graph.node("Div", residuals, relation.units)
    terms = graph.node("Log", graph.node("Add", graph.node("Mul", sizes, sizes), 1.0))
    surprise = graph.node("ReduceSum", terms, np.array([1]), keepdims=0)
    levels = tabulate(views, formula.mean_value(), single=False)["levels"]
    place, other = (_rank(graph, *view) for view in zip((novelty, surprise), levels, strict=True))
    rarer = graph.node("Where", graph.node("Greater", place, other), place, other)
    rarity = graph.at_least(graph.node("Div", rarer, views.rarity_divisor), 1.0)
    return {"rarity": rarity, "expected": expected, "terms": terms}


def _rank(graph: Graph, scores: str, levels: Array) -> str:
    """Write in how many rows a view finds one as odd (n,), as in `c_rarity.c`: 2 to the number of levels passed."""
    # Equal levels are passed at once.
    widths = np.maximum(np.diff(levels), np.finfo(float).tiny)
    logs = graph.node("Unsqueeze", graph.node("Log", graph.at_least(scores, np.finfo(float).tiny)), np.array([1]))
    shares = graph.at_least(graph.node("Div", graph.node("Sub", logs, levels[:-1]), widths), 0.0)
    passed = graph.node("ReduceSum", graph.at_most(shares, 1.0), np.array([1]), keepdims=0)
    beyond = graph.node("Squeeze", graph.node("Gather", shares, np.array([len(widths) - 1]), axis=1), np.array([1]))
    return graph.node("Mul", graph.node("Pow", 2.0, passed), graph.at_least(beyond, 1.0))


def _finish(graph: Graph, formula: Formula, element: int, outputs: list[str]) -> "ModelProto":
    helper = graph.onnx.helper
    d = formula.rows.shape[1]
    widths = {"projection": formula.projection.shape[1], "expected": d, "terms": d}
    answers = {name: ["n", widths[name]] if name in widths else ["n"] for name in outputs}
    model: ModelProto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "streamkpca",
            [helper.make_tensor_value_info("X", element, ["n", d])],
            [helper.make_tensor_value_info(name, element, shape) for name, shape in answers.items()],
            list(graph.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="streamkpca",
        producer_version=__version__,
    )
    facts = {"streamkpca_version": __version__, "kernel": repr(formula.kernel)}
    names = {} if formula.feature_names is None else {"feature_names": json.dumps(formula.feature_names)}
    helper.set_model_props(model, {**facts, **formula.facts, **names})
    return model


def _base_matrices(graph: Graph, formula: Formula, rows: str) -> tuple[list[str], list[str]]:
    """Write the base matrices between rows (n, d), given by name, and all rows of a formula, (n, width) each.

    Also write those between every row and itself, (n,), or () where all are the same, if k(x, x) depends on x.
    """
    layout = RowSegments(formula, single=False)
    viewed = {}
    for segment in layout.segments:
        seen = rows
        if segment.columns is not None:
            seen = graph.node("Gather", seen, segment.columns, axis=1)
        if segment.centre is not None:
            seen = graph.node("Sub", seen, segment.centre)
        if segment.units is not None:
            seen = graph.node("Div", seen, segment.units)
        viewed[segment] = _of_unit_length(graph, seen) if segment.is_unit else seen
    bases, own = [], []
    for matrix, segment in zip(layout.matrices, layout.of_matrix, strict=True):
        atoms = layout.atoms[:, segment.start : segment.start + segment.width]
        atoms = np.repeat(atoms, 2, axis=0) if len(atoms) == 1 else atoms
        if matrix.base in (Base.INNER, Base.COSINE):
            bases.append(_product(graph, viewed[segment], atoms))
            own.append(graph.node("ReduceSumSquare", viewed[segment], axes=[1], keepdims=0))
        else:
            bases.append(_distances(graph, viewed[segment], atoms, matrix.base))
            if formula.own_value() is None:
                own.append(graph.constant(np.float64(0.0)))
    return bases, own


def _product(graph: Graph, rows: str, matrix: Array) -> str:
    # A single number must not stand next to a matrix product: see `Graph`.
    return graph.node("MatMul" if matrix.shape[1] > 1 else "Mul", rows, matrix.T)


def _of_unit_length(graph: Graph, rows: str) -> str:
    """Write rows scaled to length 1, without overflow; rows of zeros stay."""
    largest = graph.node("ReduceMax", graph.node("Abs", rows), axes=[1], keepdims=1)
    scaled = graph.node("Div", rows, graph.at_least(largest, np.finfo(float).tiny))
    squares = graph.node("ReduceSumSquare", scaled, axes=[1], keepdims=1)
    # At least 1, except for rows of zeros.
    return graph.node("Div", scaled, graph.node("Sqrt", graph.at_least(squares, 0.5)))


def _distances(graph: Graph, rows: str, atoms: Array, base: Base) -> str:
    """Write distances one row after another, as all would take d times the memory.

    Inner products would be faster, but cancel near the atoms, where the root in a Matern kernel turns 1e-16 into 1e-8.
    """
    helper, double = graph.onnx.helper, graph.onnx.TensorProto.DOUBLE
    prefix = f"Distance_{len(graph.nodes)}"
    row, difference, distance = f"{prefix}_row", f"{prefix}_difference", f"{prefix}_sum"
    nodes = [helper.make_node("Sub", [row, graph.constant(atoms)], [difference])]
    if base is Base.SQUARED:
        nodes.append(helper.make_node("ReduceSumSquare", [difference], [distance], axes=[1], keepdims=0))
    else:
        sizes, axes = f"{prefix}_sizes", graph.constant(np.array([1], dtype=np.int64))
        nodes.append(helper.make_node("Abs", [difference], [sizes]))
        nodes.append(helper.make_node("ReduceSum", [sizes, axes], [distance], keepdims=0))
    body = helper.make_graph(
        nodes,
        f"{prefix}_of_one_row",
        [helper.make_tensor_value_info(row, double, [atoms.shape[1]])],
        [helper.make_tensor_value_info(distance, double, [len(atoms)])],
    )
    return graph.node("Scan", rows, body=body, num_scan_inputs=1)


class _NodeArithmetic(Arithmetic[str]):
    """Steps as nodes, on the names of results; constants have the given shape."""

    def __init__(self, graph: Graph, shape: tuple[int, ...]) -> None:
        self.graph = graph
        self.shape = shape

    def affine(self, x: str, a: float, b: float) -> str:
        if a != 1.0:
            x = self.graph.node("Mul", x, self._number(a))
        return x if b == 0.0 else self.graph.node("Add", x, self._number(b))

    def minimum(self, x: str, most: float) -> str:
        return self.graph.at_most(x, self._number(most))

    def add(self, x: str, y: str) -> str:
        return self.graph.node("Add", x, y)

    def multiply(self, x: str, y: str) -> str:
        return self.graph.node("Mul", x, y)

    def apply(self, function: str, x: str) -> str:
        # Apart from log1p, ONNX calls the functions Exp, Sqrt, Tanh and Reciprocal.
        return self._log1p(x) if function == "log1p" else self.graph.node(function.capitalize(), x)

    def add_logs(self, x: str, y: str) -> str:
        graph = self.graph
        x, y = graph.at_least(x, _LEAST_LOG), graph.at_least(y, _LEAST_LOG)
        is_larger = graph.node("Greater", x, y)
        larger, smaller = graph.node("Where", is_larger, x, y), graph.node("Where", is_larger, y, x)
        ratio = graph.node("Exp", graph.node("Sub", smaller, larger))
        return graph.node("Add", larger, graph.node("Log", graph.node("Add", ratio, self._number(1.0))))

    def _log1p(self, x: str) -> str:
        """Write x log(u) / (u - 1) with u = 1 + x as rounded (D. Goldberg 1991, theorem 4), as ONNX has no log1p."""
        graph, one = self.graph, self._number(1.0)
        x = self.minimum(x, _FAR)
        u = graph.node("Add", x, one)
        is_one = graph.node("Equal", u, one)
        rest = graph.node("Where", is_one, one, graph.node("Sub", u, one))
        ratio = graph.node("Where", is_one, one, graph.node("Div", graph.node("Log", u), rest))
        return graph.node("Mul", x, ratio)

    def _number(self, value: float) -> Array:
        return np.full(self.shape, value)
