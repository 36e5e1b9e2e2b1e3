"""C files: compiled by the system's compiler, many models in one file, and compared with the models in Python."""

import ctypes
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from exports import (
    EXPORTABLE,
    MATRIX,
    are_well_apart,
    assert_same_answers,
    drawn_rows,
    exact_rbf_errors,
    exportable_kernels,
    formula,
    plain,
    probing_rows,
    scales,
    streamed,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA
from streamkpca.export import to_c
from streamkpca.kernels import RBF, Cosine, Equal, Laplacian, Linear, Matern, Polynomial, RationalQuadratic

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
COMPILER_OF_CPP = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
STRICT = "-Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wdouble-promotion -Wmissing-declarations".split()
NUMBERS = {"double": np.float64, "float": np.float32}
WITHOUT_CONTRIBUTIONS = re.compile(
    r"Polynomial|Sigmoid|Linear\(\)\)\.exp|Cosine.* \*|\* Cosine|Cosine\(\) \*\*|in_units\(\(\(|'whitened'|matrix"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc or clang) on the path"),
]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def explains(kernel):
    return not WITHOUT_CONTRIBUTIONS.search(repr(kernel))


class Case(NamedTuple):
    """A model and how it is exported."""

    model: object
    dtype: str = "double"
    threshold: float = 0.5
    contributions: bool = False

    def text(self, name):
        return to_c(self.model, name=name, dtype=self.dtype, threshold=self.threshold, contributions=self.contributions)


class Compiled:
    """The functions of a model in C, row by row."""

    def __init__(self, library, name, case):
        self.model, self.number = case.model, NUMBERS[case.dtype]
        self.array = np.ctypeslib.ndpointer(self.number, flags="C_CONTIGUOUS")
        self.function = lambda what: getattr(library, f"{name}_{what}")

    def vectors(self, what, rows, width):
        call, rows = self.function(what), np.ascontiguousarray(rows, dtype=self.number)
        call.argtypes, call.restype = [self.array, self.array], None
        found = np.full((len(rows), width), np.nan, dtype=self.number)
        for row, target in zip(rows, found, strict=True):
            call(row, target)
        return found.astype(np.float64)

    def numbers(self, what, rows, kind=None):
        call = self.function(what)
        call.argtypes, call.restype = [self.array], kind or np.ctypeslib.as_ctypes_type(self.number)
        return np.array([call(row) for row in np.ascontiguousarray(rows, dtype=self.number)])

    def answers(self, rows):
        projections = self.vectors("transform", rows, len(self.model.eigenvalues_))
        return projections, self.numbers("reconstruction_error", rows), self.numbers("novelty", rows)

    def contributions(self, rows):
        return self.vectors("contributions", rows, self.model.n_features_in_)

    def are_novel(self, rows):
        return self.numbers("is_novel", rows, ctypes.c_int)


def compile_all(folder, cases):
    """Write cases beside each other into one file, compile it, and return what asks each of them."""
    source, library = folder / "kpca.c", folder / "kpca.so"
    source.write_text("\n".join(case.text(f"kpca{i}") for i, case in enumerate(cases)), encoding="ascii")
    run(COMPILER, "-std=c99", *STRICT, "-O1", "-shared", "-fPIC", source, "-o", library, "-lm")
    loaded = ctypes.CDLL(str(library))
    return [Compiled(loaded, f"kpca{i}", case) for i, case in enumerate(cases)]


@pytest.fixture
def build(tmp_path):
    """Compile some models in one file."""
    folders = (tmp_path / str(i) for i in range(100))

    def build(*cases):
        folder = next(folders)
        folder.mkdir()
        return compile_all(folder, cases)

    return build


@pytest.fixture(scope="module")
def every_kernel(tmp_path_factory):
    """Compile all kernels in both precisions, in one file, with contributions where there are any."""
    keys = [(kernel, dtype) for kernel in EXPORTABLE for dtype in NUMBERS]
    cases = [Case(plain(kernel), dtype, contributions=explains(kernel)) for kernel, dtype in keys]
    return dict(zip(keys, compile_all(tmp_path_factory.mktemp("kernels"), cases), strict=True))


def without_breaks(text):
    return re.sub(r"\s*\n \*\s*", " ", text)


def stated_accuracy(text):
    """Read the accuracy of errors, projections and novelty from the header."""
    (found,) = re.findall(
        r"to about (\S+) of k\(x, x\) \(errors\) and (\S+) of its root \(projections\), and to (\S+) of k\(x, x\) "
        r"plus the score \(novelty\)",
        without_breaks(text),
    )
    return tuple(map(float, found))


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_every_exportable_kernel_answers_as_in_python(kernel, every_kernel):
    model = plain(kernel)
    rows = probing_rows(model)
    assert_same_answers(model, rows, *every_kernel[kernel, "double"].answers(rows), tolerance=1e-12)


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_single_precision_is_as_exact_as_the_header_states(kernel, every_kernel):
    model, rows = plain(kernel), drawn_rows(1, 60)
    of_errors, of_projections, of_novelty = stated_accuracy(Case(model, "float").text("kpca"))
    projections, errors, novelty = every_kernel[kernel, "float"].answers(rows)
    beside, off = scales(model, rows)
    assert (np.abs(projections - model.transform(rows)) / beside).max() < 2.0 * of_projections < 1e-2
    assert (np.abs(errors - model.reconstruction_error(rows)) / off).max() < 2.0 * of_errors < 1e-3
    expected = model.novelty(rows)
    assert (np.abs(novelty - expected) / (off + expected)).max() < 2.0 * of_novelty < 1e-3


@pytest.mark.parametrize("kernel", [kernel for kernel in EXPORTABLE if kernel.is_stationary], ids=repr)
def test_novelty_goes_on_growing_far_away(kernel, every_kernel):
    for dtype, farthest, tolerance in (("double", 1e140, 1e-11), ("float", 1e15, 1e-4)):
        rows = np.geomspace(10.0, farthest, 60)[:, None] * [0.7, -1.0, 0.2]
        rows = rows.astype(NUMBERS[dtype]).astype(np.float64)
        found = every_kernel[kernel, dtype].numbers("novelty", rows)
        np.testing.assert_allclose(found, plain(kernel).novelty(rows), rtol=tolerance)


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_contributions_are_those_of_python_or_refused(kernel, every_kernel):
    model = plain(kernel)
    if not explains(kernel):
        message = r"to_c: contributions under .* (need derivatives, which C does not|would need its matrix of units)"
        with pytest.raises(ValueError, match=message):
            to_c(model, contributions=True)
        return
    rows = probing_rows(model)
    for dtype, tolerance in (("double", 1e-9), ("float", 1e-3)):
        compiled = every_kernel[kernel, dtype]
        contributions = compiled.contributions(rows)
        beside = (scales(model, rows)[1] + model.novelty(rows))[:, None]
        assert (np.abs(contributions - model.contributions(rows)) / beside).max() < tolerance
        # Their sum is the novelty that the same file gives.
        novelty = compiled.numbers("novelty", rows)
        np.testing.assert_array_less(np.abs(contributions.sum(axis=1) - novelty) / beside[:, 0], tolerance / 100)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kernels=st.lists(exportable_kernels(), min_size=6, max_size=6))
def test_combinations_answer_as_in_python(kernels, tmp_path):
    models = [streamed(kernel, n_components=0.8) for kernel in kernels]
    cases = [Case(model) for model in models if are_well_apart(model)]
    rows = drawn_rows(1, 30)
    # A library of the same name would not be loaded anew.
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    for case, compiled in zip(cases, compile_all(folder, cases), strict=True):
        assert_same_answers(case.model, rows, *compiled.answers(rows), tolerance=1e-12)


def test_every_estimator_one_atom_and_units_of_all_sizes(build):
    rows = drawn_rows(0, 60)
    rows[50:] = rows[:10]
    batch = [KernelPCA(2), SparseKernelPCA(2, n_active=9), ApproximateKernelPCA(2, max_atoms=9)]
    models = [model.set_params(kernel=Laplacian(0.5)).fit(rows) for model in batch]
    lonely = streamed(0.3 * Linear(), drawn_rows(0, d=1), n_components=1)
    assert lonely.n_atoms_ == 1
    models += [lonely, streamed(Matern(0.5, length_scale=1.7).on([1]), n_components=1)]
    for model, compiled in zip(models, build(*map(Case, models)), strict=True):
        new = drawn_rows(1, 20, model.n_features_in_)
        assert_same_answers(model, new, *compiled.answers(new), tolerance=1e-12)


def test_categories_answer_as_in_python(build):
    rows = np.round(2.0 * drawn_rows(0))
    rows[:, 0] = drawn_rows(1)[:, 0]
    kernels = Equal(), 0.5 * RBF(0.4).on(0) * (0.7 * Equal().on([2, 1])).exp()
    cases = [Case(streamed(kernel, rows), dtype, contributions=True) for kernel in kernels for dtype in NUMBERS]
    new = np.roll(rows[:40], 1, axis=1)
    for case, compiled in zip(cases, build(*cases), strict=True):
        tolerance = 1e-11 if case.dtype == "double" else 1e-3
        assert_same_answers(case.model, new, *compiled.answers(new), tolerance=tolerance)
        expected = case.model.contributions(new)
        np.testing.assert_allclose(compiled.contributions(new), expected, atol=tolerance, rtol=tolerance)


def test_tiny_kernels_are_exported_or_refused(build):
    model = streamed(1e-200 * RBF(0.4))
    rows = drawn_rows(1, 20)
    (compiled,) = build(Case(model))
    np.testing.assert_allclose(compiled.answers(rows)[1], model.reconstruction_error(rows), rtol=1e-9, atol=1e-212)
    with pytest.raises(ValueError, match=r"to_c: expected numbers of single precision .* but this model needs 1e-200"):
        to_c(model, dtype="float")
    with pytest.raises(ValueError, match=r"to_c: expected values k\(x, x\) of at least 1e-290.*multiply the kernel"):
        to_c(streamed(1e-300 * RBF(0.4)))


def test_the_error_is_as_exact_as_the_models_own_for_nearly_dependent_atoms(build):
    model = streamed(RBF(0.02), max_atoms=60, tolerance=1e-9)
    rows = drawn_rows(1, 200)
    truth = exact_rbf_errors(model, rows, 0.02)
    ours = np.abs(build(Case(model))[0].answers(rows)[1] - truth).max()
    assert ours < 4.0 * np.abs(model.reconstruction_error(rows) - truth).max() + 1e-13


def test_large_offsets_and_whitened_features_of_very_different_units_do_no_harm(build):
    rows = (drawn_rows(0) + np.array([1e5, -3e5, 0.0])).astype(np.float32).astype(np.float64)
    kernels = [
        RBF(0.4),
        Matern(0.5, length_scale=1.7),
        Laplacian(0.4).on([1, 0]),
        Laplacian(0.4).in_units([0.7, 1.3]).on([1, 0]),
        RBF(0.4).in_units("whitened"),
        Laplacian(0.4).in_units(MATRIX[:2, :2]).on([1, 0]),
    ]
    wide = drawn_rows(0, 400, 12)
    wide[:, 1:] += 0.8 * wide[:, :-1]
    wide = ((wide + 5.0) * 10.0 ** np.linspace(-3, 5, 12)).astype(np.float32).astype(np.float64)
    models = [(streamed(kernel, rows), rows[:50]) for kernel in kernels]
    models.append((streamed(RBF("spread").in_units("whitened"), wide), wide[:50]))
    cases = [(Case(model, dtype), some) for model, some in models for dtype in NUMBERS]
    for (case, some), compiled in zip(cases, build(*(case for case, _ in cases)), strict=True):
        tolerance = {"double": 1e-12, "float": 1e-5}[case.dtype]
        assert_same_answers(case.model, some, *compiled.answers(some), tolerance=tolerance)


def test_nan_stays_nan_and_counts_as_novel(every_kernel):
    rows = np.array([[0.5, np.nan, 0.1], [np.nan] * 3, [0.5, 0.2, 0.1]])
    for (kernel, _), compiled in every_kernel.items():
        # Categories are compared, and some kernels see other columns only.
        if "Equal" in repr(kernel) or ".on(" in repr(kernel):
            continue
        for answer in compiled.answers(rows):
            assert np.isnan(answer[:2]).all()
            assert np.isfinite(answer[2]).all()
        assert compiled.are_novel(rows)[:2].all()


def test_novel_rows_are_those_above_the_threshold(build):
    model = plain(RBF(0.4))
    threshold = model.novelty_threshold(0.9)
    rows = np.concatenate([drawn_rows(1, 200), 5.0 * drawn_rows(2, 10)])
    novelty = model.novelty(rows)
    clear = np.abs(novelty - threshold) > 1e-5
    for compiled in build(*(Case(model, dtype, threshold) for dtype in NUMBERS)):
        novel = compiled.are_novel(rows).astype(bool)
        np.testing.assert_array_equal(novel[clear], (novelty > threshold)[clear])
        assert 5 < novel.sum() < 100
    assert "is_novel" not in to_c(model)


def test_rows_far_away_resemble_no_atom_and_lengths_do_not_overflow(every_kernel):
    for kernel in (RBF(0.4), Matern(1.5, length_scale=1.7), RationalQuadratic(1.0, length_scale=1.7)):
        for size in (1e150, 1e200, np.inf):
            projections, errors, novelty = every_kernel[kernel, "double"].answers(np.full((1, 3), size))
            np.testing.assert_allclose(projections, -formula(plain(kernel)).offset[None], atol=1e-12)
            np.testing.assert_allclose(errors, 1.0, atol=1e-12)
            assert novelty[0] > 1e2
    rows = drawn_rows(1, 4) * np.array([[1e200], [1e-200], [1.0], [0.0]])
    answers = every_kernel[Cosine(), "double"].answers(rows)
    assert_same_answers(plain(Cosine()), rows, *answers, tolerance=1e-12)


@pytest.mark.parametrize("big", [1e100, 1e155, 1e160, 1e300])
def test_contributions_of_far_rows_are_shared_as_in_python(big, every_kernel):
    """Squares of such entries overflow, and shares of an infinite novelty were NaN."""
    rows = np.array([[0.3, big, -0.2], [big, -big, 0.2]])
    kernels = [kernel for kernel in EXPORTABLE if kernel.is_stationary and explains(kernel)]
    assert len(kernels) > 8
    for kernel in kernels:
        found = every_kernel[kernel, "double"].contributions(rows)
        np.testing.assert_allclose(found, plain(kernel).contributions(rows), rtol=1e-9)
        far, missing = every_kernel[kernel, "float"].contributions([[0.0, 1e25, 0.0], [0.0, np.nan, 0.0]])
        assert np.isfinite(far).all()
        assert np.isnan(missing).all() or "Equal" in repr(kernel) or ".on(" in repr(kernel)


def test_contributions_to_the_error_of_few_linear_atoms_are_those_of_python(build):
    units = Linear().on([1, 0, 2]).in_units([0.5, 1.0, 2.0])
    models = [
        ApproximateKernelPCA(1, kernel=kernel, max_atoms=2).fit(drawn_rows(0))
        for kernel in (Linear(), 2.0 * Linear(), units, Cosine())
    ]
    rows = drawn_rows(1, 20)
    for model, compiled in zip(models, build(*(Case(model, contributions=True) for model in models)), strict=True):
        np.testing.assert_allclose(compiled.contributions(rows), model.contributions(rows), rtol=1e-9, atol=1e-12)


def test_the_file_is_also_valid_cpp(tmp_path):
    if COMPILER_OF_CPP is None:
        pytest.skip("no C++ compiler (c++, g++ or clang++) on the path")
    for standard, dtype in (("c++98", "double"), ("c++17", "float")):
        cases = [Case(plain(kernel), dtype, contributions=explains(kernel)) for kernel in EXPORTABLE]
        texts = [case.text(f"kpca{i}") for i, case in enumerate(cases)]
        # log1p is not in <math.h> before 2011.
        kept = [text for text in texts if standard != "c++98" or "log1p" not in text]
        source = tmp_path / f"{dtype}.cpp"
        source.write_text("\n".join(kept), encoding="ascii")
        run(COMPILER_OF_CPP, f"-std={standard}", *STRICT, "-fsyntax-only", source)


def test_sanitizers_find_nothing(tmp_path):
    flags = ["-std=c99", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source, program = tmp_path / "kpca.c", tmp_path / "kpca"
    source.write_text("int main(void) { return 0; }\n", encoding="ascii")
    probe = subprocess.run([COMPILER, *flags, source, "-o", program], capture_output=True, check=False)
    if probe.returncode or subprocess.run([program], capture_output=True, check=False).returncode:
        pytest.skip("this compiler has no address and undefined behaviour sanitizers")
    # The last row overflows where the kernel is not bounded.
    rows = np.concatenate([probing_rows(plain(RBF(0.4))), np.full((1, 3), 1e100)])
    listed = ", ".join(f"{{{', '.join(map(repr, row))}}}" for row in rows.tolist())
    text, calls = f"static const double rows[{len(rows)}][3] = {{{listed}}};\n", ""
    for i, kernel in enumerate(EXPORTABLE):
        text += Case(plain(kernel), contributions=explains(kernel)).text(f"kpca{i}")
        calls += f"kpca{i}_transform(rows[i], y); sum += kpca{i}_is_novel(rows[i]) + y[0];\n"
        calls += f"kpca{i}_contributions(rows[i], y); sum += y[0];\n" if explains(kernel) else ""
    main = f"int main(void) {{\nint i; double y[9], sum = 0.0;\nfor (i = 0; i < {len(rows)}; ++i) {{\n{calls}}}\n"
    source.write_text(f"{text}{main}return sum == 0.5;\n}}\n", encoding="ascii")
    run(COMPILER, *flags, source, "-o", program, "-lm")
    run(program)


def test_there_is_no_heap_and_no_state(tmp_path):
    texts = [Case(plain(kernel)).text(f"kpca{i}") for i, kernel in enumerate(EXPORTABLE)]
    assert {name for text in texts for name in re.findall(r"#\s*include\s*(.*)", text)} == {"<math.h>"}
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("no nm on the path, which lists the symbols of an object file")
    source, unit = tmp_path / "kpca.c", tmp_path / "kpca.o"
    source.write_text("\n".join(texts), encoding="ascii")
    run(COMPILER, "-std=c99", "-O0", "-fno-stack-protector", "-c", source, "-o", unit)
    undefined = {line.split()[-1] for line in run(nm, "-u", unit).splitlines()}
    assert undefined <= {"exp", "log", "sqrt", "log1p", "tanh", "fabs", "_GLOBAL_OFFSET_TABLE_"}
    # There is no data section, initialised or not: all tables are constant, and as large as the headers state.
    assert not re.search(r" [bBdDC] ", run(nm, unit))
    sizes = [int(size, 16) for size in re.findall(r"^\S+ (\S+) r ", run(nm, "-S", unit), re.MULTILINE)]
    assert sum(sizes) == sum(int(re.search(r"(\d+) bytes of constant tables", text)[1]) for text in texts)


def test_the_header_counts_the_operations_of_a_row():
    model = plain(RBF(0.4))
    m, k, q = model.n_atoms_, model.n_active_, len(model.eigenvalues_)
    words = without_breaks(to_c(model, contributions=True))
    # Squares of three differences, and gamma.
    assert "about, for a kernel value: 4 multiplications, 1 exp." in words
    assert f"A row takes {k} kernel values and {k * q} multiplications for a projection" in words
    # A triangle with its diagonal, and the squares of the coordinates.
    assert f"{m} and {m * (m - 1) // 2 + 2 * m} for an error or a novelty, three times as much for contri" in words
    # Those of the contributions, and of the novelty that they call.
    assert f"{2 * 8 * (m + 3)} bytes of arrays on the stack" in words
    assert "Kernel    RBF(gamma=0.4)" in words
    assert f"Atoms     {m}; projections are made of {k}, errors are measured to {m}" in words
    assert "void streamkpca_contributions(const double x[3], double y[3]);" in words
    assert "contributions" not in to_c(model)


def test_names_of_features_and_classes_cannot_end_the_comment(build):
    class Pümpe(KernelPCA):
        pass

    Pümpe.__name__ = '*/ #error "x"'
    columns = ['a */ #error "x" /*', "päßure \\", "/*??/\n"]
    model = Pümpe(2, kernel=RBF(0.4)).fit(pd.DataFrame(drawn_rows(0, 20), columns=columns))
    text = to_c(model)
    assert r"from a *\/ #error" in text
    assert r'Features  3: "a *\/ #error \"x\" \/\u002a", "p\u00e4\u00dfure \\", "\/\u002a?\u003f\/\n"' in text
    build(Case(model))


def test_invalid_arguments_are_refused():
    model = plain(RBF(0.4))
    for name in ["", "3d", "a-b", "pümp", "_pump", "pump_", "my__pump", "a b", "x;y"]:
        with pytest.raises(ValueError, match="to_c: name must be a C identifier such as 'pump', got"):
            to_c(model, name=name)
    with pytest.raises(TypeError, match="to_c: name must be a C identifier such as 'pump', got 3"):
        to_c(model, name=3)
    for threshold in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="to_c: threshold must be a finite number"):
            to_c(model, threshold=threshold)
    with pytest.raises(TypeError, match="to_c: contributions must be True or False"):
        to_c(model, contributions="yes")


def test_numbers_beyond_single_precision_are_refused():
    rows = drawn_rows(0)
    models = [streamed(Linear(), 1e60 * rows), streamed(RBF(1e-60), 1e30 * rows), streamed(Cosine() * 1e40, rows)]
    for unit in (1e-60, 1e60):
        scaled = rows * [unit, 1.0, 1.0]
        models += [streamed(RBF(0.4).in_units(u), scaled) for u in ([unit, 1.0, 1.0], MATRIX / [unit, 1.0, 1.0])]
    for model in models:
        with pytest.raises(ValueError, match=r'to_c: expected numbers of single precision .* or use dtype="double"'):
            to_c(model, dtype="float")
        assert to_c(model)
    with pytest.raises(ValueError, match='this model needs 1e-60; scale the features, or use dtype="double"'):
        to_c(plain(Polynomial(2, gamma=1.0)), threshold=1e-60, dtype="float")
