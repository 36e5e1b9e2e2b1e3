"""The parts that tests of exports share: kernels, models, rows, compilers and sessions, and the scales of errors."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import strategies as st
from kinds import PRIMITIVES

from streamkpca import StreamingKernelPCA
from streamkpca.errors import IndefiniteKernelWarning
from streamkpca.export import to_c, to_onnx
from streamkpca.export.formula import formula_of
from streamkpca.export.views import fit_views
from streamkpca.kernels import RBF, Cosine, Custom, Laplacian, Linear, Matern, Polynomial, Sigmoid

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
NEEDS_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc or clang) on the path")
STRICT = "-Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wdouble-promotion -Wmissing-declarations".split()
NUMBERS = {"double": np.float64, "float": np.float32}

COMBINED = [
    RBF(0.4) + 0.5 * Linear(),
    Matern(1.5, length_scale=2.0).on([0, 2]) * Cosine(),
    (0.1 * Linear()).exp(),
    (RBF(0.2) + Laplacian(0.3)) ** 3,
    Cosine().on([2, 1]) + Polynomial(2, gamma=0.2).on(0) * RBF(0.5).on([1, 2]),
    RBF(0.4).in_units([0.7, 1.3, 3.1]),
    Laplacian(0.3).in_units([0.7, 1.3, 3.1]) + 0.1 * Linear().in_units([1.3, 0.7]).on([2, 0]),
    Cosine().in_units([0.7, 1.3, 3.1]) * Matern(1.5).on([1, 2]).in_units("range") + RBF(0.2),
    RBF(0.4).on([0, 2]) * (0.7 * Laplacian(0.3).on(1)).exp() + 0.2 * Linear(),
    Laplacian(0.3).in_units("std").on([2, 0, 1]) + 0.1 * Linear().in_units([1.3, 0.7]).on([2, 0]),
    Cosine().in_units([1.1, 0.9, 0.6]) * Matern(1.5).on([1, 2]).in_units("std") + Linear().in_units([0.3]).on(0),
]
EXPORTABLE = [*PRIMITIVES, *COMBINED]
OF_THE_CALLER = [
    Custom(lambda X, Y: X @ Y.T),
    RBF(0.4) + Custom(lambda X, Y: X @ Y.T),
    (2.0 * Custom(lambda X, Y: X @ Y.T)).on([0, 1]),
]


def drawn_rows(seed, n=400, d=3):
    """Draw rows that single precision holds exactly, so that a cast changes nothing."""
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32).astype(np.float64)


def streamed(kernel, rows=None, **settings):
    """Make a model of few atoms, none of them nearly dependent on others."""
    settings = {"n_components": 3, "max_atoms": 24, "block_size": 64, "tolerance": 1e-2, **settings}
    with warnings.catch_warnings():
        # Sigmoid warns that it is indefinite.
        warnings.simplefilter("ignore", IndefiniteKernelWarning)
        model = StreamingKernelPCA(kernel=kernel, **settings)
        return model.partial_fit(drawn_rows(0) if rows is None else rows).refit()


@functools.cache
def plain(kernel):
    """Make the model of a kernel that several tests ask."""
    return streamed(kernel)


def formula(model):
    """Take what exports write from a model."""
    return formula_of(model, language="C", single=False)


def probing_rows(model):
    """Return fresh rows, rows that became atoms, the origin, rows far away, and rows near the origin."""
    fresh = drawn_rows(1, 40, model.n_features_in_)
    return np.concatenate([fresh, model.atoms_[:5], 0.0 * fresh[:1], 10.0 * fresh[:3], 1e-3 * fresh[:3]])


def scales(model, rows):
    """Return the scales, row by row, that errors of projections and of reconstruction errors are relative to."""
    own = np.abs(model.kernel_.diagonal(rows))
    level = np.abs(model.kernel_.diagonal(model.atoms_)).mean()
    return np.sqrt(np.maximum(own, level))[:, None], np.maximum(own, 1e-300)


def assert_same_answers(model, rows, projections, errors, novelty, *, tolerance):
    """Compare the answers of an export with those of the model."""
    beside, off = scales(model, rows)
    assert projections.shape == model.transform(rows).shape
    assert errors.shape == (len(rows),)
    np.testing.assert_array_less(np.abs(projections - model.transform(rows)) / beside, tolerance)
    np.testing.assert_array_less(np.abs(errors - model.reconstruction_error(rows)) / off, tolerance)
    expected = model.novelty(rows)
    assert novelty.shape == (len(rows),)
    np.testing.assert_array_less(np.abs(novelty - expected) / (off + expected), tolerance)


def exportable_kernels():
    """Draw combinations of kernels over three columns."""
    parts = st.sampled_from([kernel for kernel in PRIMITIVES if not isinstance(kernel, Sigmoid)])
    columns = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)
    units = st.lists(st.sampled_from([0.3, 1.0, 1.7]), min_size=3, max_size=3)
    placed = st.one_of(
        parts,
        st.builds(lambda kernel, chosen: kernel.in_units(chosen), parts, units),
        st.builds(lambda kernel, chosen, own: kernel.in_units(own[: len(chosen)]).on(chosen), parts, columns, units),
    )
    return st.recursive(
        placed,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b: a * b, inner, inner),
            st.builds(lambda kernel, power: 0.3 * kernel**power, inner, st.integers(1, 3)),
            st.builds(lambda kernel: (0.01 * kernel).exp(), inner),
        ),
        max_leaves=4,
    ).filter(lambda kernel: kernel.diagonal(drawn_rows(0)).max() < 1e8)


def are_well_apart(model):
    """Say whether atoms are independent enough not to amplify rounding."""
    used, lengths = formula(model), np.sqrt(model.kernel_.diagonal(model.atoms_))
    gram = model.kernel_.matrix(model.atoms_) / lengths[:, None] / lengths
    sizes = np.abs(used.projection) * np.sqrt(model.kernel_.diagonal(used.rows[used.axis_rows]))[:, None]
    return bool(np.linalg.cond(gram) < 1e6) and bool(sizes.sum(axis=0).max() < 1e3)


def exact_rbf_shares(rows, atoms, factor, gamma):
    """Evaluate |c|^2 of eq. (18) for an RBF kernel in extended precision, whose exponents have 15 bits."""
    X, Z, L = (part.astype(np.longdouble) for part in (rows, atoms, factor))
    values = np.exp(-np.longdouble(gamma) * ((X[:, None] - Z) ** 2).sum(axis=2))
    coordinates = np.zeros_like(values)
    for j in range(len(Z)):
        coordinates[:, j] = (values[:, j] - coordinates[:, :j] @ L[j, :j]) / L[j, j]
    return (coordinates**2).sum(axis=1)


def exact_rbf_errors(model, rows, gamma):
    """Evaluate eq. (18) with the model's own factor."""
    used = formula(model)
    shares = exact_rbf_shares(rows, used.rows, used.factor, gamma)
    return np.maximum(1.0 - shares, 0.0).astype(np.float64)


def rarity_of(model, rows, rounding=0.0):
    """Return in how many healthy rows one is as odd by the rarer view, where novelty below rounding is not."""
    views, novelty = fit_views(model), model.novelty(rows)
    # Zeros are as common as a score can be.
    scores = np.where(novelty > rounding, novelty, 0.0), views.relation.score(rows)
    rarer = np.max([scale.rank(view) for scale, view in zip(views.scales, scores, strict=True)], axis=0)
    return np.maximum(rarer / views.rarity_divisor, 1.0)


class Case(NamedTuple):
    """A model and how it is exported; `dtype` is C's name."""

    model: Any
    dtype: str = "double"

    def text(self, name):
        """Write the C file."""
        return to_c(self.model, name=name, dtype=self.dtype)


def run(*command):
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_with_sanitizers(text, folder):
    """Compile a C program with the sanitizers of addresses and of undefined behaviour, and run it."""
    flags = ["-std=c99", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source, program = folder / "program.c", folder / "program"
    source.write_text("int main(void) { return 0; }\n", encoding="ascii")
    probe = subprocess.run([COMPILER, *flags, source, "-o", program], capture_output=True, check=False)
    if probe.returncode or subprocess.run([program], capture_output=True, check=False).returncode:
        pytest.skip("this compiler has no address and undefined behaviour sanitizers")
    source.write_text(text, encoding="ascii")
    run(COMPILER, *flags, source, "-o", program, "-lm")
    run(program)


class Compiled:
    """The functions of a model in C, row by row."""

    def __init__(self, library, name, case):
        self.model, self.number = case.model, NUMBERS[case.dtype]
        self.array = np.ctypeslib.ndpointer(self.number, flags="C_CONTIGUOUS")
        self.function = lambda what: getattr(library, f"{name}_{what}")

    def vectors(self, what, rows, width):
        """Call a function that writes a vector for each row."""
        call, rows = self.function(what), np.ascontiguousarray(rows, dtype=self.number)
        call.argtypes, call.restype = [self.array, self.array], None
        found = np.full((len(rows), width), np.nan, dtype=self.number)
        for row, target in zip(rows, found, strict=True):
            call(row, target)
        return found.astype(np.float64)

    def numbers(self, what, rows):
        """Call a function that returns a number for each row."""
        call = self.function(what)
        call.argtypes, call.restype = [self.array], np.ctypeslib.as_ctypes_type(self.number)
        return np.array([call(row) for row in np.ascontiguousarray(rows, dtype=self.number)])

    def rarity(self, rows):
        """Return in how many rows one is as odd."""
        return self.numbers("rarity", rows)

    def explain(self, rows):
        """Return the most surprising feature of each row, what is expected of all, and how surprising each is."""
        call, rows = self.function("explain"), np.ascontiguousarray(rows, dtype=self.number)
        call.argtypes, call.restype = [self.array] * 3, ctypes.c_int
        expected, terms = np.empty((2, *rows.shape), dtype=self.number)
        return np.array([call(*row) for row in zip(rows, expected, terms, strict=True)]), expected, terms

    def answers(self, rows):
        """Return projections, errors and novelty."""
        projections = self.vectors("transform", rows, len(self.model.eigenvalues_))
        return projections, self.numbers("reconstruction_error", rows), self.numbers("novelty", rows)


def compile_all(folder, cases):
    """Write cases beside each other into one C file, compile it, and return what answers for each of them."""
    # A library of the same name would not be loaded anew.
    folder = Path(tempfile.mkdtemp(dir=folder))
    source, library = folder / "kpca.c", folder / "kpca.so"
    source.write_text("\n".join(case.text(f"kpca{i}") for i, case in enumerate(cases)), encoding="ascii")
    run(COMPILER, "-std=c99", *STRICT, "-O1", "-shared", "-fPIC", source, "-o", library, "-lm")
    loaded = ctypes.CDLL(str(library))
    return [Compiled(loaded, f"kpca{i}", case) for i, case in enumerate(cases)]


class Session:
    """An ONNX graph in a runtime."""

    def __init__(self, case):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.dtype = np.dtype(NUMBERS[case.dtype])
        graph = to_onnx(case.model, dtype=self.dtype.name)
        onnx.checker.check_model(graph, full_check=True)
        cpu = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=cpu)

    def run(self, *names, rows):
        """Return outputs of the graph."""
        found = self.session.run(names, {"X": np.asarray(rows).astype(self.dtype)})
        assert {array.dtype for array in found} == {self.dtype}
        return tuple(array.astype(np.float64) for array in found)

    def answers(self, rows):
        """Return projections, errors and novelty."""
        return self.run("projection", "reconstruction_error", "novelty", rows=rows)

    def rarity(self, rows):
        """Return in how many rows one is as odd."""
        return self.run("rarity", rows=rows)[0]

    def explain(self, rows):
        """Return the most surprising feature of each row, what is expected of all, and how surprising each is."""
        expected, terms = self.run("expected", "terms", rows=rows)
        return terms.argmax(axis=1), expected, terms
