"""Kernels written as text: a printed kernel reads as that kernel, and nothing else runs."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import kernels
from streamkpca.kernels.registry import parse_kernel

POSITIVE = st.floats(0.01, 100)
UNITS = ["range", "std", "whitened", [0.5, 3.0], [[1.0, -0.5], [1e-3, 2.0]]]
SIMPLE = st.one_of(
    st.just(kernels.Linear()),
    st.just(kernels.Cosine()),
    st.builds(kernels.RBF, gamma=POSITIVE | st.sampled_from(["spread", "scale", "median"])),
    st.builds(kernels.Laplacian, gamma=POSITIVE),
    st.builds(kernels.Polynomial, degree=st.integers(1, 4), gamma=POSITIVE, coef0=st.floats(0, 3)),
    st.builds(kernels.Matern, nu=st.sampled_from([0.5, 1.5, 2.5]), length_scale=POSITIVE),
    st.builds(kernels.RationalQuadratic, alpha=POSITIVE, length_scale=POSITIVE),
    st.builds(kernels.Sigmoid, gamma=POSITIVE, coef0=st.floats(-3, 3)),
)
KERNELS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda c, k: c * k, POSITIVE, inner),
        st.builds(lambda k, p: k**p, inner, st.integers(1, 3)),
        st.builds(lambda k: k.exp(), inner),
        st.builds(lambda k, columns: k.on(columns), inner, st.just([0, 1])),
        st.builds(lambda k, units: k.in_units(units), inner, st.sampled_from(UNITS)),
    ),
    max_leaves=4,
)


@given(KERNELS)
def test_a_printed_kernel_reads_as_that_kernel(kernel):
    assert parse_kernel(repr(kernel)) == kernel


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("rbf", kernels.RBF()),
        (" poly ", kernels.Polynomial()),
        ("RBF", kernels.RBF()),
        ("2 * Equal().on([3]).exp()", 2 * kernels.Equal().on(3).exp()),
        ("RBF(0.5)", kernels.RBF(gamma=0.5)),
        ("RBF(gamma=median)", kernels.RBF(gamma="median")),
        ("Linear() * 2", 2 * kernels.Linear()),
        ("RBF(gamma=1e-3) + 0.1 * Linear().on(0)", kernels.RBF(gamma=1e-3) + 0.1 * kernels.Linear().on([0])),
        ("Sigmoid(gamma=1, coef0=-1)", kernels.Sigmoid(gamma=1, coef0=-1)),
    ],
)
def test_short_forms(text, kernel):
    assert parse_kernel(text) == kernel


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read kernel"),
        ("RBF(", "cannot read kernel"),
        ("nonsense", "'rbf'"),
        ("__import__('os').system('true')", "cannot read .* in a kernel"),
        ("RBF(gamma=__import__('os'))", "expected a number"),
        ("RBF.__class__", "cannot read"),
        ("Custom(print)", "cannot read"),
        ("RBF(**{})", "cannot read"),
        ("RBF() - Linear()", "cannot read"),
        ("RBF() ** 0.5", "expected a whole number"),
        ("RBF(gamma=-1)", "gamma"),
        ("RBF(gamma=2**9**9)", "expected a number"),
        ("RBF(beta=1)", "beta"),
        ("RBF(gamma=1e999)", "expected a number"),
        ("3", "cannot read"),
        ("(" * 600 + "RBF()" + ")" * 600, r"cannot read kernel '\(\(+'\.\.\.; write a name"),
        ("RBF()" + " " * 1_000_000, "of 1000005 characters; at most 1000000 are read"),
        ("RBF()" + ".exp()" * 300, "nested more than 200 deep"),
        ("+".join(["RBF()"] * 300), "nested more than 200 deep"),
        (f"RBF(gamma={10**400})", "too large"),
        ("RBF() ** 1e300", "exponent must be at most 1152921504606846976, got one of 997 bits"),
        (f"Polynomial({10**300})", "degree must be at most"),
        ("-" * 900 + "RBF()", "cannot read"),
        ("2or RBF()", "cannot read kernel '2or RBF"),
        ("RBF(gamma='\\x41')", "cannot read kernel"),
        ("RBF(\ud800)", r"cannot read kernel 'RBF\(.ud800\)'"),
        ("RBF(\0)", "cannot read kernel"),
        ("RBF(gamma=0x10)", "cannot read kernel"),
        ("x" * 900_000, "kernel must be a Kernel or one of .*, got 'x{200}'$"),
        ("1." + "9" * 5000 + " * RBF()", "cannot read kernel"),
        ("RBF().on([0" + ", 1" * 20 + ", 2.5])", r"expected a whole number in a kernel but got '\[...\]'"),
        ("RBF([1" + ", 1" * 20 + "])", r"expected a number in a kernel but got '\[...\]'"),
        ("RBF([" + "RBF(), " * 200 + "])", "expected a number in a kernel but got a long expression"),
        ("RBF(1.0)" + ".in_units([1.0, 2.0])" * 11, "units nested more than 10 deep"),
        ("(" * 20 + "RBF()" + "+RBF())" * 20 + "(" * 101, "cannot read kernel"),
        ('")' + ")" * 300 + '" + ' + "(" * 150 + "1" + ")" * 150, "cannot read kernel"),
        (".exp() + ".join(["RBF()"] * 20_000), "cannot read kernel"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises((ValueError, TypeError), match=message):
        parse_kernel(text)


def joined(parts):
    """Add texts in pairs, and these in pairs, so that brackets are not nested deep."""
    while len(parts) > 1:
        parts = [f"({'+'.join(parts[i : i + 2])})" for i in range(0, len(parts), 2)]
    return parts[0]


def test_a_kernel_of_a_thousand_parts_is_read_and_no_larger_one():
    kernel = parse_kernel(joined(["RBF(1.0)"] * 500))
    assert parse_kernel(repr(kernel)) == kernel
    with pytest.raises(ValueError, match="more than 1000 parts; join fewer kernels"):
        parse_kernel(joined(["RBF(1.0)"] * 501))


def test_long_lists_of_numbers_are_read_as_short_ones_are():
    columns = tuple(range(40, 0, -1))
    kernel = kernels.RBF(0.5).in_units([0.1 * i + 1e-7 for i in range(1, 51)]) * kernels.Linear().on(columns)
    assert parse_kernel(repr(kernel)) == kernel
    assert parse_kernel(f"Linear().on( [ {' , '.join(map(str, columns))} , ] )") == kernels.Linear().on(columns)
    matrix = [[float(i == j) + 0.01 * j for j in range(20)] for i in range(20)]
    assert parse_kernel(f"RBF(1.0).in_units({matrix})") == kernels.RBF(1.0).in_units(matrix)
    # Arguments and numbers in brackets are no lists.
    assert parse_kernel("Matern(1.5, length_scale=(2)) * (3)") == 3 * kernels.Matern(1.5, length_scale=2)


def test_large_matrices_are_multiplied_by_each_other_in_bounded_time():
    """Two hundred inside each other would have taken 20,000 products of matrices, at each of five readings."""
    matrix = kernels.RBF(1.0).in_units([[2.0 * (i == j) for j in range(5)] for i in range(5)])
    text, named = repr(matrix), matrix.matrices()
    units = text[text.index(".in_units") :]
    for allowed, refused in ((units, 2 * units), (*(" + ".join(["RBF(1.0)" + units] * n) for n in (64, 65)),)):
        start = "" if refused.startswith("RBF") else text
        assert parse_kernel(start + allowed, named).is_settled
        with pytest.raises(
            ValueError, match="large matrices of units nested more than 2 deep, or more than 64 of these"
        ):
            parse_kernel(start + refused, named)


@pytest.mark.skipif(os.name != "posix", reason="stacks of threads have another size")
def test_no_text_ends_the_process():
    """Threads have 512 KB of stack on some systems, and Python's parser does not check what is left of it."""
    texts = [
        f"{opened * count}RBF(){closed * count}"
        for count in (90, 190, 2900, 9000, 90_000)
        for opened, closed in (
            ("(", ")"), ("[", "]"), ("f(", ")"), ("-", ""), ("- ", ""), ("~+", ""), ("not ", ""), ("lambda:", ""),
            ("1 if 1 else ", ""), ("await ", ""), ("1**", ""), ("1**-", ""), ("1+", ""), ("", ".exp()"), ("", "+RBF()"),
            ("", "[0]"), ("{1:", "}"), ("*", ""), ("x:=", ""), ("1<", ""), ("1 or ", ""), ("f'{", "}'"),
            ("1if 1else ", ""), ("f()**", ""), ("-\\\n", ""), ("1or not\t", ""),
        )
    ]  # fmt: skip
    code = f"""
import threading
from streamkpca.kernels.registry import parse_kernel
def read():
    for text in {texts!r}:
        try:
            parse_kernel(text)
        except ValueError as error:
            assert len(str(error)) < 1000
        counts.append(text)
counts = []
threading.stack_size(512 * 1024)
thread = threading.Thread(target=read)
thread.start()
thread.join()
print(len(counts))
"""
    done = subprocess.run([sys.executable], input=code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{len(texts)}\n"), done.stderr
