"""C files: compiled by the system's compiler, and compared with the models that they were made from."""

import ctypes
import re
import shutil
import subprocess

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
    probing_rows,
    scales,
    streamed,
)
from hypothesis import HealthCheck, assume, given, settings

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA
from streamkpca.export import to_c
from streamkpca.kernels import RBF, Cosine, Equal, Laplacian, Linear, Matern, Polynomial, RationalQuadratic

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
COMPILER_OF_CPP = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
STRICT = "-Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wdouble-promotion -Wmissing-declarations".split()
FAR_AWAY = [
    RBF(0.4),
    Matern(0.5, length_scale=1.7),
    Laplacian(0.4).on([1, 0]),
    RBF(0.4).in_units([0.7, 1.3, 3.1]),
    Laplacian(0.4).in_units([0.7, 1.3]).on([1, 0]),
    RBF(0.4).in_units("whitened"),
    Laplacian(0.4).in_units(MATRIX[:2, :2]).on([1, 0]),
]
NUMBERS = {"double": np.float64, "float": np.float32}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc or clang) on the path"),
]

# Reads rows of numbers; writes for each row its error, its novelty, whether it is novel, and its projection.
MAIN = """
#include <stdio.h>
int main(void)
{
    double x[%d], y[%d];
    int i;
    for (;;) {
        for (i = 0; i < %d; ++i) if (scanf("%%lf", &x[i]) != 1) return 0;
        kpca_transform(x, y);
        printf("%%.17g %%.17g %%d", kpca_reconstruction_error(x), kpca_novelty(x), kpca_is_novel(x));
        for (i = 0; i < %d; ++i) printf(" %%.17g", y[i]);
        printf("\\n");
    }
}
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def build(tmp_path):
    """Compile a model, and answer rows with it."""
    counter = iter(range(10**6))

    def build(model, *, dtype="double", threshold=None, contributions=False, flags=("-O1",)):
        text = to_c(model, name="kpca", dtype=dtype, threshold=threshold, contributions=contributions)
        stem = tmp_path / f"kpca{next(counter)}"
        source, library = stem.with_suffix(".c"), stem.with_suffix(".so")
        source.write_text(text, encoding="ascii")
        run(COMPILER, "-std=c99", *STRICT, *flags, "-shared", "-fPIC", source, "-o", library, "-lm")
        return Compiled(ctypes.CDLL(library), model, NUMBERS[dtype])

    return build


class Compiled:
    """The functions of a C file, row by row."""

    def __init__(self, library, model, dtype):
        self.dtype, self.q = dtype, len(model.eigenvalues_)
        array = np.ctypeslib.ndpointer(dtype, flags="C_CONTIGUOUS")
        self.library = library
        library.kpca_transform.argtypes, library.kpca_transform.restype = [array, array], None
        self.scores = library.kpca_reconstruction_error, library.kpca_novelty
        for score in self.scores:
            score.argtypes, score.restype = [array], np.ctypeslib.as_ctypes_type(dtype)

    def answers(self, rows):
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        projections = np.full((len(rows), self.q), np.nan, dtype=self.dtype)
        for row, projection in zip(rows, projections, strict=True):
            self.library.kpca_transform(row, projection)
        errors, novelty = (np.array([score(row) for row in rows]) for score in self.scores)
        return projections.astype(np.float64), errors, novelty

    def are_novel(self, rows):
        array = np.ctypeslib.ndpointer(self.dtype, flags="C_CONTIGUOUS")
        self.library.kpca_is_novel.argtypes = [array]
        return [self.library.kpca_is_novel(row) for row in np.ascontiguousarray(rows, dtype=self.dtype)]


def stated_accuracy(text):
    """Read the accuracy of errors, projections and novelty from the header."""
    words = re.sub(r"\s*\n \*\s*", " ", text)
    (found,) = re.findall(
        r"to about (\S+) of k\(x, x\) \(errors\) and (\S+) of its root \(projections\), and to (\S+) of k\(x, x\) "
        r"plus the score \(novelty\)",
        words,
    )
    return tuple(map(float, found))


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_every_exportable_kernel_answers_as_in_python(kernel, build):
    model = streamed(kernel)
    rows = probing_rows(model)
    assert_same_answers(model, rows, *build(model).answers(rows), tolerance=1e-12)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_categories_answer_as_in_python(dtype, build):
    for kernel in (Equal(), 0.5 * RBF(0.4).on(0) * (0.7 * Equal().on([2, 1])).exp()):
        rows = np.round(2.0 * drawn_rows(0))
        rows[:, 0] = drawn_rows(1)[:, 0]
        model = streamed(kernel, rows)
        library, new = build(model, dtype=dtype, contributions=True), np.roll(rows[:40], 1, axis=1)
        tolerance = 1e-11 if dtype == "double" else 1e-3
        assert_same_answers(model, new, *library.answers(new), tolerance=tolerance)
        expected = model.contributions(new)
        np.testing.assert_allclose(
            explained(library.library, new, NUMBERS[dtype]), expected, atol=tolerance, rtol=tolerance
        )
    model = streamed(Equal(), rows + 2.0**40)
    with pytest.raises(ValueError, match="to_c: expected categories that single precision can tell apart"):
        to_c(model, dtype="float")


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_single_precision_is_as_exact_as_the_header_states(kernel, build):
    model = streamed(kernel)
    rows = drawn_rows(1, 60)
    of_errors, of_projections, of_novelty = stated_accuracy(to_c(model, name="kpca", dtype="float"))
    projections, errors, novelty = build(model, dtype="float").answers(rows)
    beside, off = scales(model, rows)
    assert (np.abs(projections - model.transform(rows)) / beside).max() < 2.0 * of_projections < 1e-2
    assert (np.abs(errors - model.reconstruction_error(rows)) / off).max() < 2.0 * of_errors < 1e-3
    expected = model.novelty(rows)
    assert (np.abs(novelty - expected) / (off + expected)).max() < 2.0 * of_novelty < 1e-3


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kernel=exportable_kernels())
def test_combinations_answer_as_in_python(kernel, build):
    model = streamed(kernel, n_components=0.8)
    assume(are_well_apart(model))
    rows = drawn_rows(1, 30)
    assert_same_answers(model, rows, *build(model).answers(rows), tolerance=1e-12)


@pytest.mark.parametrize(
    "model",
    [KernelPCA(2), SparseKernelPCA(2, n_active=9), ApproximateKernelPCA(2, max_atoms=9)],
    ids=lambda model: type(model).__name__,
)
def test_every_estimator_can_be_exported(model, build):
    rows = drawn_rows(0, 60)
    rows[50:] = rows[:10]
    model.set_params(kernel=Laplacian(0.5)).fit(rows)
    rows = drawn_rows(1, 20)
    assert_same_answers(model, rows, *build(model).answers(rows), tolerance=1e-12)


def test_tiny_kernels_are_exported_or_refused(build):
    model = streamed(1e-200 * RBF(0.4))
    rows = drawn_rows(1, 20)
    np.testing.assert_allclose(build(model).answers(rows)[1], model.reconstruction_error(rows), rtol=1e-9, atol=1e-212)
    with pytest.raises(ValueError, match=r"to_c: expected numbers of single precision .* but this model needs 1e-200"):
        to_c(model, dtype="float")
    with pytest.raises(ValueError, match=r"to_c: expected values k\(x, x\) of at least 1e-290.*multiply the kernel"):
        to_c(streamed(1e-300 * RBF(0.4)))


def test_one_atom_is_enough(build):
    model = streamed(0.3 * Linear(), drawn_rows(0, d=1), n_components=1)
    assert model.n_atoms_ == 1
    rows = drawn_rows(1, 9, 1)
    assert_same_answers(model, rows, *build(model).answers(rows), tolerance=1e-12)


def test_the_error_is_as_exact_as_the_models_own_for_nearly_dependent_atoms(build):
    model = streamed(RBF(0.02), max_atoms=60, tolerance=1e-9)
    rows = drawn_rows(1, 200)
    truth = exact_rbf_errors(model, rows, 0.02)
    ours = np.abs(build(model).answers(rows)[1] - truth).max()
    assert ours < 4.0 * np.abs(model.reconstruction_error(rows) - truth).max() + 1e-13


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kernel", FAR_AWAY, ids=repr)
def test_large_offsets_do_no_harm(kernel, dtype, build):
    rows = (drawn_rows(0) + np.array([1e5, -3e5, 0.0])).astype(np.float32).astype(np.float64)
    model = streamed(kernel, rows)
    tolerance = {"double": 1e-12, "float": 1e-5}[dtype]
    assert_same_answers(model, rows[:50], *build(model, dtype=dtype).answers(rows[:50]), tolerance=tolerance)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_nan_stays_nan_and_counts_as_novel(dtype, build):
    for kernel in (
        RBF(0.4),
        Matern(2.5, length_scale=1.0),
        Cosine(),
        Polynomial(2, gamma=1.0),
        Linear().in_units([1.0, 2.0, 3.0]),
        RBF(0.4).in_units(MATRIX + 0.01),
    ):
        compiled = build(streamed(kernel), dtype=dtype, threshold=1e30)
        rows = np.array([[0.5, np.nan, 0.1], [np.nan] * 3, [0.5, 0.2, 0.1]])
        for answer in compiled.answers(rows):
            assert np.isnan(answer[:2]).all()
            assert np.isfinite(answer[2]).all()
        assert compiled.are_novel(rows) == [1, 1, 0]


def test_rows_far_away_resemble_no_atom(build):
    for kernel in (RBF(0.4), Matern(1.5, length_scale=1.0), RationalQuadratic(0.5, length_scale=1.0)):
        model = streamed(kernel)
        for size in (1e150, 1e200, np.inf):
            projections, errors, novelty = build(model).answers(np.full((1, 3), size))
            np.testing.assert_allclose(projections, -model._snapshot().offset[None], atol=1e-12)
            np.testing.assert_allclose(errors, 1.0, atol=1e-12)
            assert novelty[0] > 1e2


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kernel", [kernel for kernel in EXPORTABLE if kernel.is_stationary], ids=repr)
def test_novelty_goes_on_growing_far_away(kernel, dtype, build):
    model = streamed(kernel)
    farthest, tolerance = {"double": (1e140, 1e-11), "float": (1e15, 1e-4)}[dtype]
    rows = np.geomspace(10.0, farthest, 60)[:, None] * [0.7, -1.0, 0.2]
    rows = rows.astype(np.float32 if dtype == "float" else np.float64).astype(np.float64)
    np.testing.assert_allclose(build(model, dtype=dtype).answers(rows)[2], model.novelty(rows), rtol=tolerance)


def test_lengths_of_rows_do_not_overflow(build):
    model = streamed(Cosine())
    rows = drawn_rows(1, 4) * np.array([[1e200], [1e-200], [1.0], [0.0]])
    assert_same_answers(model, rows, *build(model).answers(rows), tolerance=1e-12)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_novel_rows_are_those_above_the_threshold(dtype, build):
    model = streamed(RBF(0.4))
    threshold = model.novelty_threshold(0.9)
    rows = np.concatenate([drawn_rows(1, 200), 5.0 * drawn_rows(2, 10)])
    novelty = model.novelty(rows)
    clear = np.abs(novelty - threshold) > 1e-5
    novel = np.array(build(model, dtype=dtype, threshold=threshold).are_novel(rows), dtype=bool)
    np.testing.assert_array_equal(novel[clear], (novelty > threshold)[clear])
    assert 5 < novel.sum() < 100
    assert "is_novel" not in to_c(model)


@pytest.mark.parametrize(("standard", "dtype"), [("c++98", "double"), ("c++17", "float")])
def test_the_file_is_also_valid_cpp(dtype, standard, tmp_path):
    if COMPILER_OF_CPP is None:
        pytest.skip("no C++ compiler (c++, g++ or clang++) on the path")
    for i, kernel in enumerate(EXPORTABLE):
        source = tmp_path / f"kpca{i}.cpp"
        source.write_text(to_c(streamed(kernel), dtype=dtype, threshold=0.5), encoding="ascii")
        if standard == "c++98" and "log1p" in source.read_text(encoding="ascii"):
            continue  # not in <math.h> before 2011
        run(COMPILER_OF_CPP, f"-std={standard}", *STRICT, "-fsyntax-only", source)


def test_sanitizers_find_nothing(tmp_path):
    flags = ["-std=c99", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    (tmp_path / "empty.c").write_text("int main(void) { return 0; }\n", encoding="ascii")
    probe = subprocess.run(
        [COMPILER, *flags, tmp_path / "empty.c", "-o", tmp_path / "empty"], capture_output=True, check=False
    )
    if probe.returncode or subprocess.run([tmp_path / "empty"], capture_output=True, check=False).returncode:
        pytest.skip("this compiler has no address and undefined behaviour sanitizers")
    models = [streamed(kernel) for kernel in EXPORTABLE[-8:]] + [streamed(RBF(0.4)), streamed(Linear())]
    for model in models:
        q, rows = len(model.eigenvalues_), np.concatenate([probing_rows(model), np.full((1, 3), 1e100)])
        source, program = tmp_path / "kpca.c", tmp_path / "kpca"
        text = to_c(model, name="kpca", threshold=0.5) + MAIN % (3, q, 3, q)
        source.write_text(text, encoding="ascii")
        run(COMPILER, *flags, source, "-o", program, "-lm")
        lines = run(program, input="\n".join(" ".join(map(repr, row)) for row in rows.tolist())).splitlines()
        printed = np.array([line.split() for line in lines], dtype=np.float64)
        near = slice(None, -1)  # the last row overflows where the kernel is not bounded
        assert_same_answers(model, rows[near], printed[near, 3:], printed[near, 0], printed[near, 1], tolerance=1e-12)


def test_there_is_no_heap_and_no_state(tmp_path):
    nm = shutil.which("nm")
    for i, kernel in enumerate(EXPORTABLE):
        text = to_c(streamed(kernel), threshold=0.5)
        assert re.findall(r"#\s*include\s*(.*)", text) == ["<math.h>"]
        assert all(line.startswith("static const") for line in re.findall(r"^static .*= \{$", text, re.MULTILINE))
        if nm is None:
            continue
        source, unit = tmp_path / f"kpca{i}.c", tmp_path / f"kpca{i}.o"
        source.write_text(text, encoding="ascii")
        run(COMPILER, "-std=c99", "-O0", "-fno-stack-protector", "-c", source, "-o", unit)
        undefined = {line.split()[-1] for line in run(nm, "-u", unit).splitlines()}
        assert undefined <= {"exp", "log", "sqrt", "log1p", "tanh", "fabs", "_GLOBAL_OFFSET_TABLE_"}
        # There is no data section, initialised or not: all tables are constant.
        assert not re.search(r" [bBdDC] ", run(nm, unit))
        sizes = [int(size, 16) for size in re.findall(r"^\S+ (\S+) r ", run(nm, "-S", unit), re.MULTILINE)]
        assert f"{sum(sizes)} bytes of constant tables" in text


def test_the_header_counts_the_operations_of_a_row():
    model = streamed(RBF(0.4))
    m, k, q = model.n_atoms_, model.n_active_, len(model.eigenvalues_)
    words = re.sub(r"\s*\n \*\s*", " ", to_c(model))
    # Squares of three differences and gamma for a kernel value; then the axes, or a triangle with its diagonal and the
    # squares of the coordinates.
    assert f"transform {4 * k + k * q} multiplications, {k} exp;" in words
    triangle = 4 * m + m * (m - 1) // 2 + m + m
    assert f"reconstruction_error {triangle} multiplications, {m} exp;" in words
    assert f"novelty {triangle + 2} multiplications, {m} exp, 1 log." in words
    assert f"{8 * m} bytes of arrays on the stack" in words
    assert "Kernel    RBF(gamma=0.4)" in words
    assert f"Atoms     {m}; projections are made of {k}, errors are measured to {m}" in words


def test_the_same_model_makes_the_same_text():
    assert to_c(streamed(RBF(0.4) + Cosine())) == to_c(streamed(RBF(0.4) + Cosine()))


def test_names_of_features_cannot_end_the_comment(build):
    columns = ['a */ #error "x" /*', "päßure \\", "/*??/\n"]
    model = streamed(RBF(0.4), pd.DataFrame(drawn_rows(0), columns=columns))
    text = to_c(model)
    assert r'Features  3: "a *\/ #error \"x\" \/\u002a", "p\u00e4\u00dfure \\", "\/\u002a?\u003f\/\n"' in text
    build(model)


def test_names_of_classes_cannot_end_the_comment_either(build):
    class Pümpe(KernelPCA):
        pass

    Pümpe.__name__ = '*/ #error "x"'
    model = Pümpe(2, kernel=RBF(0.4)).fit(drawn_rows(0, 20))
    assert r"from a *\/ #error" in to_c(model)
    build(model)


@pytest.mark.parametrize("name", ["", "3d", "a-b", "pümp", "_pump", "pump_", "my__pump", "a b", "x;y"])
def test_names_that_are_not_identifiers_are_refused(name):
    with pytest.raises(ValueError, match="to_c: name must be a C identifier such as 'pump', got"):
        to_c(streamed(RBF(0.4)), name=name)


def test_invalid_arguments_are_refused():
    model = streamed(RBF(0.4))
    with pytest.raises(TypeError, match="to_c: name must be a C identifier such as 'pump', got 3"):
        to_c(model, name=3)
    with pytest.raises(ValueError, match="to_c: threshold must be a finite number"):
        to_c(model, threshold=-1.0)
    with pytest.raises(ValueError, match="to_c: threshold must be a finite number"):
        to_c(model, threshold=float("nan"))
    with pytest.raises(ValueError, match="to_c: threshold must be a finite number"):
        to_c(model, threshold=float("inf"))
    with pytest.raises(ValueError, match='this model needs 1e-60; scale the features, or use dtype="double"'):
        to_c(model, threshold=1e-60, dtype="float")


@pytest.mark.parametrize(("kernel", "size"), [(Linear(), 1e60), (RBF(1e-60), 1e30), (Cosine() * 1e40, 1.0)], ids=repr)
def test_numbers_beyond_single_precision_are_refused(kernel, size):
    model = streamed(kernel, size * drawn_rows(0))
    with pytest.raises(ValueError, match=r'to_c: expected numbers of single precision .* or use dtype="double"'):
        to_c(model, dtype="float")
    assert to_c(model)


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_units_beyond_single_precision_are_refused(unit):
    model = streamed(RBF(0.4).in_units([unit, 1.0, 1.0]), drawn_rows(0) * [unit, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"to_c: expected numbers of single precision .* or use dtype=\"double\""):
        to_c(model, dtype="float")
    assert to_c(model)


def test_a_row_is_divided_once_and_not_for_each_atom():
    text = to_c(streamed(RBF(0.4).in_units([0.7, 1.3, 3.1])), name="kpca")
    assert text.count("/ kpca_units0[k]") == 1
    assert "static void kpca_divided0(const double *x, double *u)" in text
    assert "3 division" in text


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_matrices_beyond_single_precision_are_refused(unit):
    model = streamed(RBF(0.4).in_units(MATRIX / [unit, 1.0, 1.0]), drawn_rows(0) * [unit, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"to_c: expected numbers of single precision .* or use dtype=\"double\""):
        to_c(model, dtype="float")
    assert to_c(model)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_whitened_features_of_very_different_units(dtype, build):
    rows = drawn_rows(0, 400, 12)
    rows[:, 1:] += 0.8 * rows[:, :-1]
    rows = ((rows + 5.0) * 10.0 ** np.linspace(-3, 5, 12)).astype(np.float32).astype(np.float64)
    model = streamed(RBF("spread").in_units("whitened"), rows)
    tolerance = {"double": 1e-12, "float": 1e-5}[dtype]
    assert_same_answers(model, rows[:50], *build(model, dtype=dtype).answers(rows[:50]), tolerance=tolerance)


def test_a_row_is_multiplied_once_and_not_for_each_atom():
    model = streamed(RBF(0.4).in_units(MATRIX))
    text = to_c(model, name="kpca")
    assert text.count("kpca_units0[k][l] *") == 1
    assert "static void kpca_multiplied0(const double *x, double *u)" in text
    k, q = model._snapshot().projection.shape
    # 3 for a distance and one for gamma, then the axes; and once the matrix.
    assert f"transform {k * (3 + 1 + q) + 9} multiplications, {k} exp;" in text


def explained(library, rows, dtype):
    """Call the function of the contributions for each row."""
    array = np.ctypeslib.ndpointer(dtype, flags="C_CONTIGUOUS")
    library.kpca_contributions.argtypes, library.kpca_contributions.restype = [array, array], None
    rows = np.ascontiguousarray(rows, dtype=dtype)
    contributions = np.full(rows.shape, np.nan, dtype=dtype)
    for row, written in zip(rows, contributions, strict=True):
        library.kpca_contributions(row, written)
    return contributions.astype(np.float64)


@pytest.mark.parametrize("kernel", EXPORTABLE, ids=repr)
def test_contributions_are_those_of_python_where_the_kernel_allows_it(kernel, build):
    model = streamed(kernel)
    if re.search(r"Polynomial|Sigmoid|Linear\(\)\)\.exp|Cosine.* \*|\* Cosine|Cosine\(\) \*\*", repr(kernel)):
        with pytest.raises(
            ValueError, match=r"to_c: contributions under the kernel .* need derivatives, which C does not"
        ):
            to_c(model, contributions=True)
        return
    rows = probing_rows(model)
    for dtype, tolerance in (("double", 1e-9), ("float", 1e-3)):
        compiled = build(model, dtype=dtype, contributions=True)
        contributions = explained(compiled.library, rows, NUMBERS[dtype])
        beside = (scales(model, rows)[1] + model.novelty(rows))[:, None]
        assert (np.abs(contributions - model.contributions(rows)) / beside).max() < tolerance
        # Their sum is the novelty that the same file gives.
        novelty = compiled.answers(rows)[2]
        np.testing.assert_array_less(np.abs(contributions.sum(axis=1) - novelty) / beside[:, 0], tolerance / 100)


@pytest.mark.parametrize(("dtype", "tolerance"), [("double", 1e-9), ("float", 1e-3)])
@pytest.mark.parametrize("of", [RBF("spread"), Laplacian("spread"), Linear()], ids=repr)
def test_contributions_in_whitened_units_of_features_far_from_the_origin(of, dtype, tolerance, build):
    rows = drawn_rows(0, 400, 6)
    rows[:, 1:] += 0.8 * rows[:, :-1]
    rows = ((rows + 5.0) * 10.0 ** np.linspace(-3, 5, 6)).astype(np.float32).astype(np.float64)
    model = streamed(of.in_units("whitened"), rows, max_atoms=3)
    contributions = explained(build(model, dtype=dtype, contributions=True).library, rows[:50], NUMBERS[dtype])
    beside = (scales(model, rows[:50])[1] + model.novelty(rows[:50]))[:, None]
    assert (np.abs(contributions - model.contributions(rows[:50])) / beside).max() < tolerance


def test_contributions_under_cosines_in_units_of_a_matrix_are_refused():
    model = streamed(RBF(0.4) + Cosine().in_units(MATRIX))
    with pytest.raises(
        ValueError, match=r"to_c: contributions under .* need the lengths of rows, which C does not keep"
    ):
        to_c(model, contributions=True)
    assert to_c(model)


def test_contributions_to_the_error_of_few_linear_atoms_are_those_of_python(build):
    units = Linear().on([1, 0, 2]).in_units([0.5, 1.0, 2.0])
    for kernel in (Linear(), 2.0 * Linear(), units, Cosine(), Linear().on([2, 0]).in_units(MATRIX)):
        model = ApproximateKernelPCA(1, kernel=kernel, max_atoms=2).fit(drawn_rows(0))
        rows = drawn_rows(1, 20)
        contributions = explained(build(model, contributions=True).library, rows, np.float64)
        np.testing.assert_allclose(contributions, model.contributions(rows), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_contributions_far_away_are_shared_without_overflow(dtype, build):
    size = {"double": 1e100, "float": 1e15}[dtype]
    for kernel in (RBF(0.4), RBF(0.4) + Laplacian(0.2), Matern(1.5, length_scale=1.0)):
        library = build(streamed(kernel), dtype=dtype, contributions=True).library
        far, missing = explained(library, [[0.0, size, 0.0], [0.0, np.nan, 0.0]], NUMBERS[dtype])
        assert np.isfinite(far).all()
        assert far[1] > 0.99 * far.sum() > 100.0
        assert np.isnan(missing).all()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_contributions_are_also_valid_cpp(dtype, tmp_path):
    if COMPILER_OF_CPP is None:
        pytest.skip("no C++ compiler (c++, g++ or clang++) on the path")
    for i, kernel in enumerate(
        [RBF(0.4) + Laplacian(0.3), Linear().in_units(MATRIX), Cosine(), RBF(0.4).in_units(MATRIX)]
    ):
        source = tmp_path / f"kpca{i}.cpp"
        source.write_text(to_c(streamed(kernel), dtype=dtype, contributions=True), encoding="ascii")
        run(COMPILER_OF_CPP, "-std=c++98", *STRICT, "-fsyntax-only", source)


def test_contributions_are_written_only_where_they_are_wanted():
    model = streamed(RBF(0.4))
    assert "contributions" not in to_c(model)
    text = to_c(model, name="pump", contributions=True)
    assert "void pump_contributions(const double x[3], double y[3]);" in text
    assert f"{16 * model.n_atoms_} bytes of arrays on the stack" in re.sub(r"\s*\n \*\s*", " ", text)
    with pytest.raises(TypeError, match="to_c: contributions must be True or False"):
        to_c(model, contributions="yes")
