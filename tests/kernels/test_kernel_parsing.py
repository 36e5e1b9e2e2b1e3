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
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises((ValueError, TypeError), match=message):
        parse_kernel(text)


@pytest.mark.skipif(os.name != "posix", reason="stacks of threads have another size")
def test_no_text_ends_the_process():
    """Threads have 512 KB of stack on some systems, and Python's parser does not check what is left of it."""
    texts = [
        f"{opened * count}RBF(){closed * count}"
        for count in (90, 190, 2900, 9000)
        for opened, closed in (
            ("(", ")"), ("[", "]"), ("f(", ")"), ("-", ""), ("- ", ""), ("~+", ""), ("not ", ""), ("lambda:", ""),
            ("1 if 1 else ", ""), ("await ", ""), ("1**", ""), ("1**-", ""), ("1+", ""), ("", ".exp()"), ("", "+RBF()"),
            ("", "[0]"), ("{1:", "}"), ("*", ""), ("x:=", ""), ("1<", ""), ("1 or ", ""), ("f'{", "}'"),
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
