"""C files beyond their answers in double: their accuracy, headers, and that compilers accept them."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
from exports import (
    COMPILER,
    EXPORTABLE,
    NEEDS_COMPILER,
    NUMBERS,
    STRICT,
    Case,
    compile_all,
    drawn_rows,
    plain,
    probing_rows,
    run,
    run_with_sanitizers,
    streamed,
)

from streamkpca import KernelPCA
from streamkpca.export import to_c
from streamkpca.kernels import RBF, Cosine, Linear

COMPILER_OF_CPP = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
pytestmark = [pytest.mark.slow, NEEDS_COMPILER]


@pytest.fixture
def build(tmp_path):
    """Compile some models in one file."""
    return lambda *cases: compile_all(tmp_path, cases)


def without_breaks(text):
    return re.sub(r"\s*\n \*\s*", " ", text)


def test_tiny_kernels_are_exported_in_double(build):
    model = streamed(1e-200 * RBF(0.4))
    rows = drawn_rows(1, 20)
    (compiled,) = build(Case(model))
    np.testing.assert_allclose(compiled.answers(rows)[1], model.reconstruction_error(rows), rtol=1e-9, atol=1e-212)
    with pytest.raises(ValueError, match=r"to_c: expected numbers of single precision .* but this model needs 1e-200"):
        to_c(model, dtype="float")


def test_a_model_without_a_sample_of_enough_rows_says_nothing_of_rarity(build):
    rows = drawn_rows(0)
    for model in (KernelPCA(2).fit(rows), streamed(RBF(0.4), rows[:60]), streamed(RBF(0.4), reservoir_size=0)):
        assert "rarity" not in to_c(model)
    assert "rarity" not in to_c(streamed(RBF(0.01), drawn_rows(0, 100, 257)))


def test_novelty_that_is_rounding_is_not_rare(build):
    """With a linear kernel, all rows lie in the span."""
    model, rows = plain(Linear()), drawn_rows(1, 300)
    for compiled in build(*(Case(model, dtype) for dtype in NUMBERS)):
        assert (compiled.numbers("rarity", rows) > 100.0).mean() < 0.04


def test_the_file_is_also_valid_cpp(tmp_path):
    if COMPILER_OF_CPP is None:
        pytest.skip("no C++ compiler (c++, g++ or clang++) on the path")
    for standard, dtype in (("c++98", "double"), ("c++17", "float")):
        cases = [Case(plain(kernel), dtype) for kernel in EXPORTABLE]
        texts = [case.text(f"kpca{i}") for i, case in enumerate(cases)]
        # log1p is not in <math.h> before 2011.
        kept = [text for text in texts if standard != "c++98" or "log1p" not in text]
        source = tmp_path / f"{dtype}.cpp"
        source.write_text("\n".join(kept), encoding="ascii")
        run(COMPILER_OF_CPP, f"-std={standard}", *STRICT, "-fsyntax-only", source)


def test_sanitizers_find_nothing(tmp_path):
    # The last row overflows where the kernel is not bounded.
    rows = np.concatenate([probing_rows(plain(RBF(0.4))), np.full((1, 3), 1e100)])
    listed = ", ".join(f"{{{', '.join(map(repr, row))}}}" for row in rows.tolist())
    text, calls = f"static const double rows[{len(rows)}][3] = {{{listed}}};\n", ""
    for i, kernel in enumerate(EXPORTABLE):
        text += Case(plain(kernel)).text(f"kpca{i}")
        calls += f"sum += kpca{i}_explain(rows[i], y, z) + z[0];\n"
        calls += f"kpca{i}_transform(rows[i], y); sum += kpca{i}_rarity(rows[i]) + y[0];\n"
    main = f"int main(void) {{\nint i; double y[9], z[3], sum = 0.0;\nfor (i = 0; i < {len(rows)}; ++i) {{\n{calls}}}\n"
    run_with_sanitizers(f"{text}{main}return sum == 0.5;\n}}\n", tmp_path)


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
    words = without_breaks(to_c(model))
    assert f"A row takes {k} kernel values and {k * q} multiplications for a projection" in words
    # A triangle with its diagonal, and the squares of the coordinates.
    assert f"{m} and {m * (m - 1) // 2 + 2 * m} for an error or a novelty." in words
    assert f"{8 * (m + 6)} bytes of arrays on the stack" in words
    assert "Kernel    RBF(gamma=0.4)" in words
    assert f"Atoms     {m}; projections are made of {k}, errors are measured to {m}" in words


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


def test_numbers_beyond_single_precision_are_refused():
    rows = drawn_rows(0)
    models = [streamed(Linear(), 1e60 * rows), streamed(RBF(1e-60), 1e30 * rows), streamed(Cosine() * 1e40, rows)]
    for unit in (1e-60, 1e60):
        scaled = rows * [unit, 1.0, 1.0]
        models.append(streamed(RBF(0.4).in_units([unit, 1.0, 1.0]), scaled))
    for model in models:
        with pytest.raises(ValueError, match=r'to_c: expected numbers of single precision .* or use (dtype=")?double'):
            to_c(model, dtype="float")
        assert to_c(model)
